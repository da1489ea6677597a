//! The gradient of a row of the bias: `sum dS`, or `sum c dS` where a softcap with slopes `c` is taken of
//! scores with the bias, over all sites that share an entry.
//!
//! An entry that is broadcast over keys sums `dS` over all keys that a row sees, and that is
//! `g` less the `dS` of a sink ([`super::query`]), unless slopes come in between. So without a sink it is
//! exactly the sum of `g`, and zero where there are none: the bias moves all scores of a row alike.

use flashproof_spec::pattern::broadcast_place;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Softcap, SoftcapOrder};
use rug::{Float, Rational};

use super::answer::{BiasGradientRow, BiasRowIndex, ExpectedGradient};
use super::group::{Group, RowKind};
use super::reduce::{Sums, sum_over};
use super::settle::{Entries, Target, settle};
use super::weight::Exponential;
use super::{Backward, RESULT_BITS, in_parallel};
use crate::enclosure::Enclosure;
use crate::error::OracleError;
use crate::finite::first_precision;
use crate::row::RowIndex;

/// A query row, by its place in its group.
pub(crate) type Row<'r, 'a> = (&'r Group<'a>, usize);

impl<'a> Backward<'a> {
    /// The exact gradient of one row of the bias: for each entry, the sum over all sites that it is
    /// broadcast over. Entries without terms are exactly zero.
    ///
    /// # Errors
    /// [`OracleError::NoInput`] when the problem has no bias, [`OracleError::BiasRow`] when the bias has no
    /// such row.
    pub fn bias_gradient_row(&self, index: BiasRowIndex) -> Result<BiasGradientRow, OracleError> {
        let bias = self.bias(index)?;
        let rows = self.rows_of_bias(bias, index);
        let entries = BiasEntries::new(bias, rows.iter().copied().filter(is_finite).collect());
        let columns: Vec<usize> = (0..bias.shape[3]).collect();
        let precision = first_precision(bias.format.precision());
        let target = Target { format: bias.format, ..self.target() };
        let first = entries.enclose(precision, &columns);
        let mut settled: Vec<ExpectedGradient> = settle(&entries, first, precision, target)
            .into_iter()
            .map(ExpectedGradient::Exact)
            .collect();
        for &(group, member) in rows.iter().filter(|row| !is_finite(row)) {
            for key in group.visible_keys(member) {
                let [.., column] = broadcast_place(bias.shape, [0, 0, 0, key]);
                settled[column] = ExpectedGradient::Unspecified;
            }
        }
        let contributors = rows.iter().map(|&(group, member)| group.index(member)).collect();
        Ok(BiasGradientRow { index, bias: settled, contributors })
    }

    /// The exact gradients of many rows of the bias, in the order asked for, computed in parallel;
    /// `progress` is called once a row, from any thread.
    ///
    /// # Errors
    /// As for [`Backward::bias_gradient_row`].
    pub fn bias_gradient_rows(
        &self,
        rows: &[BiasRowIndex],
        progress: impl Fn() + Sync,
    ) -> Result<Vec<BiasGradientRow>, OracleError> {
        in_parallel(rows, |&index| self.bias_gradient_row(index), progress)
    }

    /// The gradient of one row of the bias, enclosed at one working precision; `None` where an entry is
    /// not a sum of real numbers. The enclosures at twice the precision are contained in these
    /// (`FAS:oracle.enclosure`).
    ///
    /// # Errors
    /// As for [`Backward::bias_gradient_row`], and [`OracleError::Precision`] for a precision below
    /// [`MIN_PRECISION`](crate::forward::MIN_PRECISION) or above
    /// [`Options::max_precision`](super::Options::max_precision).
    pub fn enclose_bias_gradient(
        &self,
        index: BiasRowIndex,
        precision: u32,
    ) -> Result<Option<Vec<Enclosure>>, OracleError> {
        self.check_precision(precision)?;
        let bias = self.bias(index)?;
        let rows = self.rows_of_bias(bias, index);
        if !rows.iter().all(is_finite) {
            return Ok(None);
        }
        let columns: Vec<usize> = (0..bias.shape[3]).collect();
        Ok(Some(BiasEntries::new(bias, rows).enclose(precision, &columns)))
    }

    /// The problem's bias, after a check that it has this row.
    fn bias(&self, index: BiasRowIndex) -> Result<Bias, OracleError> {
        let bias = self.problem.bias.ok_or(OracleError::NoInput { input: "bias" })?;
        let [batch, heads, queries, _] = bias.shape;
        for (field, index, extent) in [
            ("batch", index.batch, batch),
            ("head", index.head, heads),
            ("query", index.query, queries),
        ] {
            if index >= extent {
                return Err(OracleError::BiasRow { field, index, extent });
            }
        }
        Ok(bias)
    }

    /// The query rows that a row of the bias is added to and that see a key, ascending.
    fn rows_of_bias(&self, bias: Bias, index: BiasRowIndex) -> Vec<Row<'_, 'a>> {
        let along = |axis: usize, at: usize, full: usize| {
            if bias.shape[axis] == 1 { 0..full } else { at..at + 1 }
        };
        let problem = self.problem;
        let mut rows = Vec::new();
        for batch in along(0, index.batch, problem.batch) {
            for head in along(1, index.head, problem.query_heads) {
                let group = self.group(batch, problem.key_head_of(head));
                let members = along(2, index.query, problem.query_len)
                    .map(|query| group.member(RowIndex { batch, head, query }));
                let seeing = members.filter(|&member| group.kind(member) != RowKind::Empty);
                rows.extend(seeing.map(|member| (group, member)));
            }
        }
        rows
    }
}

fn is_finite(&(group, member): &Row<'_, '_>) -> bool {
    group.kind(member) == RowKind::Finite
}

/// The entries of a row of the bias, one for each key.
#[derive(Debug)]
pub(crate) struct BiasEntries<'r, 'a> {
    /// The query rows that the row of the bias is added to, each [`RowKind::Finite`].
    rows: Vec<Row<'r, 'a>>,
    /// Whether there is one entry for all keys.
    broadcast: bool,
}

/// Whether a softcap is taken of scores with the bias.
fn is_capped(problem: &Problem) -> bool {
    matches!(problem.softcap, Some(Softcap { order: SoftcapOrder::AfterBias, .. }))
}

/// `dS` of a pair, or its part that a softcap lets through to the bias.
fn rational_term((group, member): Row<'_, '_>, key: usize) -> Option<Rational> {
    let pair = group.rational_pair(member, key)?;
    if is_capped(group.problem) { pair.by_product } else { Some(pair.ds) }
}

impl<'r, 'a> BiasEntries<'r, 'a> {
    fn new(bias: Bias, rows: Vec<Row<'r, 'a>>) -> Self {
        Self { rows, broadcast: bias.shape[3] == 1 }
    }

    /// The sums in these columns, one a key.
    fn by_key(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        let mut places = vec![None; columns.iter().max().map_or(0, |&last| last + 1)];
        columns.iter().enumerate().for_each(|(place, &column)| places[column] = Some(place));
        let place = |key: usize| places.get(key).copied().flatten();
        sum_over(&self.rows, columns.len(), precision + RESULT_BITS, |&(group, member), sums| {
            let visible = group.visible_keys(member);
            let is_wanted = |key: &usize| place(*key).is_some();
            let wanted: Vec<usize> = visible.iter().copied().filter(is_wanted).collect();
            if wanted.is_empty() {
                return;
            }
            let exponential = Exponential::new(group.scale, precision);
            let (_, pairs) = group.pairs_with(member, &wanted, &visible, &exponential);
            for (place, pair) in wanted.into_iter().filter_map(place).zip(pairs) {
                sums.add(place, &pair.into_addend_term(is_capped(group.problem), precision));
            }
        })
    }

    /// The sum of all keys.
    fn over_keys(&self, precision: u32) -> Vec<Enclosure> {
        sum_over(&self.rows, 1, precision + RESULT_BITS, |&row, sums| {
            if is_capped(row.0.problem) {
                add_capped(row, precision, sums);
            } else {
                add_passed_on(row, precision, sums);
            }
        })
    }

    /// The rational sum of all keys.
    fn rational_over_keys(&self) -> Option<Rational> {
        let of_row = |&(group, member): &Row<'_, '_>| {
            if is_capped(group.problem) {
                let visible = group.visible_keys(member);
                return visible.iter().map(|&key| rational_term((group, member), key)).sum();
            }
            let g = Rational::from_f64(group.lse_gradient(member))?;
            match group.problem.sink {
                None => Some(g),
                Some(_) => Some(g - group.rational_sink(member)?),
            }
        };
        self.rows.iter().map(of_row).sum()
    }
}

impl Entries for BiasEntries<'_, '_> {
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        if columns.is_empty() {
            vec![]
        } else if self.broadcast {
            self.over_keys(precision)
        } else {
            self.by_key(precision, columns)
        }
    }

    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
        if self.broadcast {
            return Some(vec![self.rational_over_keys()?]);
        }
        let entry = |&key: &usize| {
            let seen = self.rows.iter().filter(|(group, member)| group.sees(*member, key));
            seen.map(|&row| rational_term(row, key)).sum()
        };
        columns.iter().map(entry).collect()
    }
}

/// Adds what a row brings where a softcap has a slope for each of its keys.
fn add_capped((group, member): Row<'_, '_>, precision: u32, sums: &mut Sums) {
    let exponential = Exponential::new(group.scale, precision);
    let (_, pairs) = group.pairs(member, &group.visible_keys(member), &exponential);
    for pair in pairs {
        sums.add(0, &pair.into_addend_term(true, precision));
    }
}

/// Adds what a row brings where that is `g` less the part of a sink.
fn add_passed_on((group, member): Row<'_, '_>, precision: u32, sums: &mut Sums) {
    let g = Float::with_val(f64::MANTISSA_DIGITS, group.lse_gradient(member));
    sums.add(0, &Enclosure::point(g));
    if group.problem.sink.is_none() {
        return;
    }
    let summary = group.summary(member, &Exponential::new(group.scale, precision));
    if let Some(sink) = &summary.sink {
        sums.add(0, &sink.ds.neg());
    }
}
