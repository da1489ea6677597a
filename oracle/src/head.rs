//! The inputs of one row: its query, and the keys and values of the head that it reads.

use std::borrow::Cow;

use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Addends;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{ArrayView1, ArrayView2, Axis};
use rug::Integer;

use crate::dot::{Query, mass_hi};
use crate::finite::{FiniteRow, Magnitudes};
use crate::grid::Grid;
use crate::numerator::{Kept, Values};
use crate::ranking::RowScores;
use crate::row::{Expected, RowIndex};
use crate::scale::ExactScale;
use crate::score::ScoreRule;
use crate::special::{self, ScorePart, Scores, Special, ValueEntry};

/// Keys and values of one key head of one batch member: those in use, padding left out.
#[derive(Debug)]
pub(crate) struct Head<'a> {
    pub(crate) keys: Slab<'a>,
    pub(crate) values: Slab<'a>,
}

/// Rows of entries, as they are and on a grid.
#[derive(Debug)]
pub(crate) struct Slab<'a> {
    pub(crate) entries: ArrayView2<'a, f64>,
    pub(crate) grid: Grid,
}

/// What one query row reads.
#[derive(Debug)]
pub(crate) struct RowInputs<'r, 'a> {
    problem: &'r Problem,
    inputs: &'a Inputs,
    index: RowIndex,
    scale: ExactScale,
    rule: ScoreRule,
    entries: ArrayView1<'a, f64>,
    query: Query,
    head: &'r Head<'a>,
    visible: &'r [usize],
    kept: Option<Kept>,
}

impl<'a> Head<'a> {
    pub(crate) fn new(problem: &Problem, inputs: &'a Inputs, batch: usize, head: usize) -> Self {
        let used = problem.mask.used_keys(batch, problem.key_len);
        let slab = |tensor: &'a Tensor| {
            let (entries, _padding) = rows_of(tensor, batch, head).split_at(Axis(0), used);
            Slab { entries, grid: Grid::new(&entries) }
        };
        Self { keys: slab(&inputs.key), values: slab(&inputs.value) }
    }
}

impl<'r, 'a> RowInputs<'r, 'a> {
    pub(crate) fn new(
        problem: &'r Problem,
        inputs: &'a Inputs,
        head: &'r Head<'a>,
        index: RowIndex,
        visible: &'r [usize],
    ) -> Self {
        let RowIndex { batch, head: query_head, query } = index;
        let entries = rows_of(&inputs.query, batch, query_head).index_axis_move(Axis(0), query);
        let query = Query::new(&entries);
        let rule = ScoreRule::new(problem, query.exponent(&head.keys.grid));
        let scale = ExactScale::of(problem);
        let kept = problem.dropout.as_ref().map(|dropout| Kept {
            of_key: (0..head.keys.entries.nrows())
                .map(|key| dropout.keep.at(site(index, key).place()))
                .collect(),
            scale: dropout.scale,
        });
        Self { problem, inputs, index, scale, rule, entries, query, head, visible, kept }
    }

    /// What the scores alone decide.
    pub(crate) fn scores(&self) -> Scores {
        special::classify(self.visible, |key| self.score_part(key).special, self.logit())
    }

    /// The logit of the sink.
    pub(crate) fn logit(&self) -> Option<f64> {
        self.inputs.sink_at(self.problem, self.index.head)
    }

    /// The special part of a key's score.
    fn score_part(&self, key: usize) -> ScorePart {
        let keys = &self.head.keys;
        let product = if self.query.is_finite() && keys.grid.is_finite(key) {
            Special::Finite
        } else {
            special::product(&self.entries, &keys.entries.row(key), self.scale.sign())
        };
        let bias = self.inputs.bias_at(self.problem, site(self.index, key));
        special::score(product, bias, self.problem.softcap.map(|softcap| softcap.order))
    }

    /// The output entries that are no numbers, in a row whose `weighted` keys have finite scores and
    /// whose other keys have minus infinity.
    pub(crate) fn special_outputs(&self, weighted: &[usize]) -> Vec<Option<Expected>> {
        let values = &self.head.values;
        let keys: Vec<usize> =
            self.visible.iter().copied().filter(|&key| !values.grid.is_finite(key)).collect();
        let entry = |column, key: usize| ValueEntry {
            value: values.entries[[key, column]],
            weighted: weighted.binary_search(&key).is_ok(),
            kept: self.kept.as_ref().is_none_or(|kept| kept.of_key[key]),
        };
        (0..values.entries.ncols())
            .map(|column| special::output(keys.iter().map(|&key| entry(column, key))))
            .collect()
    }

    /// The finite computation behind these columns of the output, and behind the LSE.
    pub(crate) fn finite_row<'w>(
        &'w self,
        weighted: &'w [usize],
        columns: Vec<usize>,
    ) -> FiniteRow<'w> {
        let values = &self.head.values;
        FiniteRow {
            scores: self.row_scores(weighted),
            magnitudes: self.magnitudes(weighted),
            values: Values { grid: &values.grid, keys: weighted, kept: self.kept.as_ref() },
            columns,
            value_dim: values.entries.ncols(),
        }
    }

    /// The exact scores of these keys, all finite, and of the sink.
    fn row_scores(&self, weighted: &[usize]) -> RowScores {
        let keys = &self.head.keys;
        let dot = |&key: &usize| self.query.dot(&keys.grid, key);
        let dots: Vec<Integer> = weighted.iter().map(dot).collect();
        let parts = |(&key, dot): (&usize, &Integer)| {
            let addends = self.inputs.addends_at(self.problem, site(self.index, key));
            match self.score_part(key).saturated {
                None => self.rule.key(dot.clone(), addends),
                Some(saturated) => self.rule.saturated(saturated, addends),
            }
        };
        let parts = if self.rule.is_plain() {
            vec![]
        } else {
            weighted.iter().zip(&dots).map(parts).collect()
        };
        RowScores {
            rule: self.rule,
            exponent: self.query.exponent(&keys.grid),
            dots,
            keys: parts,
            sink: self.finite_logit().map(|logit| self.rule.sink(logit)),
        }
    }

    fn magnitudes(&self, weighted: &[usize]) -> Magnitudes {
        let keys = &self.head.keys;
        let query = contiguous(&self.entries);
        let infinite = |key: usize| !self.query.is_finite() || !keys.grid.is_finite(key);
        let mass = |&key: &usize| {
            let mass = mass_hi(&query, &contiguous(&keys.entries.row(key)));
            if infinite(key) { f64::INFINITY } else { mass }
        };
        let addend = |&key: &usize| {
            let Addends { bias, alibi } =
                self.inputs.addends_at(self.problem, site(self.index, key));
            addend_hi(bias.abs(), alibi.abs())
        };
        let adds = self.problem.bias.is_some() || self.problem.alibi.is_some();
        Magnitudes {
            scale: self.scale,
            masses: weighted.iter().map(mass).collect(),
            addends: if adds { weighted.iter().map(addend).collect() } else { vec![] },
            saturated: match self.problem.softcap {
                None => vec![],
                Some(_) => (0..weighted.len())
                    .filter(|&place| self.score_part(weighted[place]).saturated.is_some())
                    .collect(),
            },
            logit: self.finite_logit(),
        }
    }

    /// The logit of a sink that has weight.
    fn finite_logit(&self) -> Option<f64> {
        self.logit().filter(|logit| logit.is_finite())
    }
}

/// The place of a row's score against a key.
fn site(RowIndex { batch, head, query }: RowIndex, key: usize) -> Site {
    Site { batch, head, query, key }
}

/// A sum of magnitudes, rounded up.
fn addend_hi(a: f64, b: f64) -> f64 {
    if a == 0.0 || b == 0.0 { a + b } else { (a + b).next_up() }
}

/// The entries of one head, `[position, dimension]`.
fn rows_of(tensor: &Tensor, batch: usize, head: usize) -> ArrayView2<'_, f64> {
    tensor.view4().index_axis_move(Axis(0), batch).index_axis_move(Axis(0), head)
}

/// The entries side by side, copied only where they are not.
pub(crate) fn contiguous<'a>(row: &ArrayView1<'a, f64>) -> Cow<'a, [f64]> {
    row.to_slice().map_or_else(|| Cow::Owned(row.to_vec()), Cow::Borrowed)
}
