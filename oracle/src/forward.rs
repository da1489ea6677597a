//! The exact forward pass: output and LSE of each query row.
//!
//! A row goes through these steps, of which only the exponential, the logarithm, the last division, and
//! what an irrational scale or a softcap makes of a score, round, all outward:
//!
//! 1. Entries become integers on common grids, and dot products exact integers (`grid`, `dot`).
//!    Bias, ALiBi term and sink stay exact beside them (`score`).
//! 2. Keys, and the sink, are grouped by equal score, largest first (`groups`, `ranking`).
//! 3. Weights `e^(s - m)` become pairs of integers on a grid of the working precision (`weights`).
//! 4. Normalizer and numerators are exact sums of those (`numerator`). The sink is in the normalizer alone
//!    (`FAS:score.sink.normalizer`), dropout in the numerators alone (`FAS:score.dropout.keep`).
//! 5. Output and LSE are enclosed and rounded; where an enclosure leaves two candidates, the
//!    midpoint between them is compared exactly (`tie`), or the working precision is doubled.
//!
//! This ends. An enclosure's width falls in proportion to the weights' grid, and the smallest
//! distance between two midpoints of a format is its smallest positive number. So each output
//! entry comes down to one midpoint by a precision that the format and the largest value entry
//! bound (below 2,300 bits for `f64`), and the exact comparison ends by the Lindemann-Weierstrass
//! theorem. The same theorem says that the LSE of two keys or more is no midpoint. How far the
//! precision must rise is not bounded by the theorem; [`Options::max_precision`] is, and an
//! element it leaves undecided says so.
//!
//! A softcap makes scores transcendental, and the theorem is silent. An element that is, or may be, a
//! midpoint then stays undecided from 4,096 bits on; all others are decided as before.
//!
//! A row without visible keys, or whose visible scores are all minus infinity, has an exact answer where
//! it has a sink: the output is zero and the LSE the sink's logit.

use std::sync::OnceLock;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;
use rayon::prelude::*;

use crate::enclosure::Enclosure;
use crate::error::OracleError;
use crate::exact;
use crate::finite::{Answer, Target};
use crate::head::{Head, RowInputs};
use crate::row::{Exact, Expected, Row, RowEnclosures, RowIndex};
use crate::special::Scores;

/// The least working precision: below it, enclosures would not shrink as the precision rises.
pub const MIN_PRECISION: u32 = 2;

/// How far the oracle goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Format to which the LSE is rounded.
    pub lse_format: Format,
    /// Format to which the output is rounded; `None`: the problem's.
    pub output_format: Option<Format>,
    /// No working precision above this many bits is tried, but for the first one.
    pub max_precision: u32,
}

impl Options {
    /// Several times the precision that comes down to one midpoint in any format.
    const MAX_PRECISION: u32 = 1 << 14;

    /// The LSE rounded to `lse_format`.
    #[must_use]
    pub const fn new(lse_format: Format) -> Self {
        Self { lse_format, output_format: None, max_precision: Self::MAX_PRECISION }
    }
}

/// Exact attention on given inputs.
///
/// Keys and values of a head are prepared once, by the first row that needs them.
#[derive(Debug)]
pub struct Oracle<'a> {
    problem: &'a Problem,
    inputs: &'a Inputs,
    options: Options,
    /// One for each key head of each batch member.
    heads: Vec<OnceLock<Head<'a>>>,
}

impl<'a> Oracle<'a> {
    /// Checks the problem and its inputs.
    ///
    /// # Errors
    /// The first fault found in either; [`OracleError::Quantized`] for inputs with descales, which
    /// are to be [dequantized](Inputs::dequantized) first, and so is the [problem](Problem::dequantized).
    pub fn new(
        problem: &'a Problem,
        inputs: &'a Inputs,
        options: Options,
    ) -> Result<Self, OracleError> {
        problem.validate()?;
        inputs.check(problem)?;
        if problem.quantization.is_some() {
            return Err(OracleError::Quantized);
        }
        let heads = (0..problem.batch * problem.key_heads).map(|_| OnceLock::new()).collect();
        Ok(Self { problem, inputs, options, heads })
    }

    /// The exact answer for one query row.
    ///
    /// # Errors
    /// [`OracleError::Row`] when the problem has no such row.
    pub fn row(&self, index: RowIndex) -> Result<Row, OracleError> {
        let visible = self.visible_keys(index)?;
        let admitted = self.admitted(index, &visible);
        let inputs = self.row_inputs(index, &visible);
        let without_weights = |outputs, lse| {
            let visible = visible.clone();
            Row { index, admitted, visible, weighted: vec![], outputs, lse, condition: None }
        };
        let weighted = match inputs.scores() {
            Scores::Weighted(weighted) => weighted,
            Scores::Decided { output, lse } => {
                return Ok(without_weights(vec![output; self.problem.value_dim], lse));
            }
        };
        let mut outputs = inputs.special_outputs(&weighted);
        if let (true, Some(logit)) = (weighted.is_empty(), inputs.logit()) {
            let zero = |output: Option<_>| output.unwrap_or_else(|| exactly(0.0, 0.0));
            let lse = exactly(logit, self.options.lse_format.round(logit));
            return Ok(without_weights(outputs.into_iter().map(zero).collect(), lse));
        }
        let finite = inputs.finite_row(&weighted, finite_columns(&outputs));
        let Answer { outputs: exact, lse, condition } = finite.answer(self.target());
        for (&column, output) in finite.columns.iter().zip(exact) {
            outputs[column] = Some(Expected::Exact(output));
        }
        drop(finite);
        Ok(Row {
            index,
            admitted,
            visible,
            weighted,
            outputs: outputs.into_iter().flatten().collect(),
            lse: Expected::Exact(lse),
            condition: Some(condition),
        })
    }

    /// The exact answers for many rows, in the order asked for, computed in parallel; `progress` is
    /// called once a row, from any thread.
    ///
    /// # Errors
    /// [`OracleError::Row`] when the problem lacks one of the rows.
    pub fn rows(
        &self,
        rows: &[RowIndex],
        progress: impl Fn() + Sync,
    ) -> Result<Vec<Row>, OracleError> {
        rows.par_iter()
            .map(|&index| {
                let row = self.row(index);
                progress();
                row
            })
            .collect()
    }

    /// The numbers of one query row, enclosed at one working precision; `None` for a row that has
    /// none. Those at twice the precision are contained in these (`FAS:oracle.enclosure`).
    ///
    /// # Errors
    /// [`OracleError::Row`] when the problem has no such row, [`OracleError::Precision`] for a
    /// precision below [`MIN_PRECISION`] or above [`Options::max_precision`].
    pub fn enclose_row(
        &self,
        index: RowIndex,
        precision: u32,
    ) -> Result<Option<RowEnclosures>, OracleError> {
        if precision < MIN_PRECISION || precision > self.options.max_precision {
            let max_precision = self.options.max_precision;
            return Err(OracleError::Precision { precision, max_precision });
        }
        let visible = self.visible_keys(index)?;
        let inputs = self.row_inputs(index, &visible);
        let Scores::Weighted(weighted) = inputs.scores() else { return Ok(None) };
        let columns = finite_columns(&inputs.special_outputs(&weighted));
        if let (true, Some(logit)) = (weighted.is_empty(), inputs.logit()) {
            return Ok(Some(RowEnclosures {
                outputs: vec![Enclosure::point(exact::number(0.0)); columns.len()],
                lse: Enclosure::point(exact::number(logit)),
            }));
        }
        Ok(Some(inputs.finite_row(&weighted, columns).enclose(precision)))
    }

    /// The keys that a row sees, after a check that there is such a row.
    fn visible_keys(&self, index: RowIndex) -> Result<Vec<usize>, OracleError> {
        index.check(self.problem)?;
        Ok(self.inputs.visible_keys(self.problem, index.batch, index.head, index.query))
    }

    /// How many keys the mask admits, these visible ones among them.
    fn admitted(&self, index: RowIndex, visible: &[usize]) -> usize {
        match self.problem.bias {
            None => visible.len(),
            Some(_) => self.problem.visible_keys(index.batch, index.head, index.query).len(),
        }
    }

    fn row_inputs<'r>(&'r self, index: RowIndex, visible: &'r [usize]) -> RowInputs<'r, 'a> {
        let problem = self.problem;
        let key_head = problem.key_head_of(index.head);
        let head = self.heads[index.batch * problem.key_heads + key_head]
            .get_or_init(|| Head::new(problem, self.inputs, index.batch, key_head));
        RowInputs::new(problem, self.inputs, head, index, visible)
    }

    fn target(&self) -> Target {
        Target {
            output_format: self.options.output_format.unwrap_or(self.problem.format),
            lse_format: self.options.lse_format,
            max_precision: self.options.max_precision,
        }
    }
}

/// A known number, and the value nearest to it.
fn exactly(number: f64, rounded: f64) -> Expected {
    let enclosure = Enclosure::point(exact::number(number));
    Expected::Exact(Exact { enclosure, rounded: Some(rounded) })
}

/// The columns whose output is a number.
fn finite_columns(special: &[Option<Expected>]) -> Vec<usize> {
    (0..special.len()).filter(|&column| special[column].is_none()).collect()
}
