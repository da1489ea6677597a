//! The gradient of the logit of a sink: `sum p (g - D)` over the query rows of a head.
//!
//! It is the `dS` of a term of each row ([`super::row`]). A row without keys has no other term: there
//! `p = 1`, `D = 0` and the gradient is `g`. Padding queries bring nothing.

use flashproof_spec::format::Format;
use flashproof_spec::score::Sink;
use rug::Rational;

use super::answer::{ExpectedGradient, SinkGradient};
use super::bias::Row;
use super::group::RowKind;
use super::reduce::sum_over;
use super::settle::{Entries, Target, enclose_rational, settle};
use super::weight::Exponential;
use super::{Backward, RESULT_BITS, in_parallel};
use crate::enclosure::Enclosure;
use crate::error::OracleError;
use crate::finite::first_precision;
use crate::row::{Exact, RowIndex};

impl<'a> Backward<'a> {
    /// The exact gradient of the logit of a query head's sink.
    ///
    /// # Errors
    /// [`OracleError::NoInput`] when the problem has no logits of sinks, [`OracleError::Head`] when it has
    /// no such head.
    pub fn sink_gradient(&self, head: usize) -> Result<SinkGradient, OracleError> {
        let format = self.sink_format(head)?;
        let (rows, without_keys) = self.rows_of_sink(head);
        let sink = SinkEntry::new(&rows, &without_keys)
            .map_or(ExpectedGradient::Unspecified, |entry| self.settle_sink(&entry, format));
        let index = |&(group, member): &Row<'_, 'a>| group.index(member);
        Ok(SinkGradient {
            head,
            sink,
            contributors: rows.iter().map(index).collect(),
            without_keys: without_keys.iter().map(index).collect(),
        })
    }

    /// The exact gradients of the logits of many sinks, in the order asked for, computed in parallel;
    /// `progress` is called once a sink, from any thread.
    ///
    /// # Errors
    /// As for [`Backward::sink_gradient`].
    pub fn sink_gradients(
        &self,
        heads: &[usize],
        progress: impl Fn() + Sync,
    ) -> Result<Vec<SinkGradient>, OracleError> {
        in_parallel(heads, |&head| self.sink_gradient(head), progress)
    }

    /// The gradient of the logit of a query head's sink, enclosed at one working precision; `None`
    /// where it is not a sum of real numbers. The enclosure at twice the precision is contained in
    /// this one (`FAS:oracle.enclosure`).
    ///
    /// # Errors
    /// As for [`Backward::sink_gradient`], and [`OracleError::Precision`] for a precision below
    /// [`MIN_PRECISION`](crate::forward::MIN_PRECISION) or above
    /// [`Options::max_precision`](super::Options::max_precision).
    pub fn enclose_sink_gradient(
        &self,
        head: usize,
        precision: u32,
    ) -> Result<Option<Enclosure>, OracleError> {
        self.check_precision(precision)?;
        self.sink_format(head)?;
        let (rows, without_keys) = self.rows_of_sink(head);
        Ok(SinkEntry::new(&rows, &without_keys).map(|entry| entry.sum(precision)))
    }

    /// The format of the logits of sinks, after a check that the problem has this head.
    fn sink_format(&self, head: usize) -> Result<Format, OracleError> {
        let Some(Sink::Logits(format)) = self.problem.sink else {
            return Err(OracleError::NoInput { input: "tensor of sinks" });
        };
        let extent = self.problem.query_heads;
        if head < extent { Ok(format) } else { Err(OracleError::Head { index: head, extent }) }
    }

    /// The rows of a query head that are in use, ascending: those that see a key, and those that see
    /// none.
    fn rows_of_sink(&self, head: usize) -> (Vec<Row<'_, 'a>>, Vec<Row<'_, 'a>>) {
        let problem = self.problem;
        let of_batch = |batch| {
            let group = self.group(batch, problem.key_head_of(head));
            let member = move |query| group.member(RowIndex { batch, head, query });
            let in_use = problem.mask.used_queries(batch, problem.query_len);
            (0..in_use).map(move |query| (group, member(query)))
        };
        (0..problem.batch)
            .flat_map(of_batch)
            .partition(|(group, member)| group.kind(*member) != RowKind::Empty)
    }

    fn settle_sink(&self, entry: &SinkEntry<'_, 'a>, format: Format) -> ExpectedGradient {
        let precision = first_precision(format.precision());
        let target = Target { format, ..self.target() };
        let first = vec![entry.sum(precision)];
        let settled: Vec<Exact> = settle(entry, first, precision, target);
        let [exact] = <[Exact; 1]>::try_from(settled).expect("as many answers as enclosures");
        ExpectedGradient::Exact(exact)
    }
}

/// The one entry of the gradient.
#[derive(Debug)]
struct SinkEntry<'r, 'a> {
    /// The query rows that see a key, each [`RowKind::Finite`].
    rows: &'r [Row<'r, 'a>],
    /// The exact sum of `g` over the rows that see none.
    passed_on: Rational,
}

impl<'r, 'a> SinkEntry<'r, 'a> {
    /// `None` where a row's part is not a real number.
    fn new(rows: &'r [Row<'r, 'a>], without_keys: &[Row<'r, 'a>]) -> Option<Self> {
        let is_finite = |&(group, member): &Row<'_, '_>| group.kind(member) == RowKind::Finite;
        if !rows.iter().all(is_finite) {
            return None;
        }
        let passed_on = |&(group, member): &Row<'_, '_>| {
            group.passes_on(member).then(|| Rational::from_f64(group.lse_gradient(member)))?
        };
        let passed_on = without_keys.iter().map(passed_on).sum::<Option<Rational>>()?;
        Some(Self { rows, passed_on })
    }

    /// The sum over all rows.
    fn sum(&self, precision: u32) -> Enclosure {
        let digits = precision + RESULT_BITS;
        let passed_on = enclose_rational(&self.passed_on, digits);
        let sums = sum_over(self.rows, 1, digits, |&(group, member), sums| {
            let summary = group.summary(member, &Exponential::new(group.scale, precision));
            if let Some(sink) = &summary.sink {
                sums.add(0, &sink.ds);
            }
        });
        sums.iter().fold(passed_on, |total, sum| total.add(sum, digits))
    }
}

impl Entries for SinkEntry<'_, '_> {
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
        vec![self.sum(precision); columns.len()]
    }

    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
        let term = |&(group, member): &Row<'_, '_>| group.rational_sink(member);
        let sum: Rational = self.rows.iter().map(term).sum::<Option<_>>()?;
        Some(vec![sum + &self.passed_on; columns.len()])
    }
}
