//! Attention with linear biases (Press et al., arXiv 2108.12409).

use flashproof_spec::problem::Problem;
use flashproof_spec::score::Slopes;

use super::element::Accumulator;
use super::position::{InUse, signed};

/// One head's linear bias.
#[derive(Clone, Copy, Debug)]
pub(super) struct HeadAlibi<A> {
    slope: A,
    /// From a query's index to its own position.
    shift: isize,
}

impl<A: Accumulator> HeadAlibi<A> {
    /// That of query head `head` of batch member `batch`; `None` where the problem has none.
    pub(super) fn new(problem: &Problem, batch: usize, head: usize) -> Option<Self> {
        let alibi = problem.alibi.as_ref()?;
        let slope = match &alibi.slopes {
            Slopes::Standard => A::nearest(f64::from(standard_slope(head, problem.query_heads))),
            Slopes::Given(slopes) => A::nearest(slopes[head]),
        };
        Some(Self { slope, shift: InUse::new(problem, batch).shift(alibi.alignment) })
    }

    /// `-slope |position - key|`: the distance is a whole number, exact in an `f32` accumulator up
    /// to `2^24` and rounded beyond; the product is rounded.
    ///
    /// Clause: `FAS:score.alibi.distance`.
    pub(super) fn at(&self, query: usize, key: usize) -> A {
        let distance = (signed(query) + self.shift).abs_diff(signed(key));
        -(self.slope * A::nearest(distance as f64))
    }
}

/// The slope of one head among any number of them.
///
/// As many heads as the greatest power of two `n` that there are have the slopes `2^(-8/n)`,
/// `2^(-16/n)`, and so on to `2^-8`. Further heads have those that lie midway between them in the
/// exponent: `2^(-4/n)`, `2^(-12/n)`, and so on. The exponent is exact in `f32`, since `n` is a
/// power of two; `exp2` of the standard library errs by less than an ulp.
///
/// Clause: `FAS:score.alibi.slopes`.
fn standard_slope(head: usize, heads: usize) -> f32 {
    let mut n = 1;
    while n <= heads / 2 {
        n *= 2;
    }
    let exponent = if head < n { 8.0 * (head as f32 + 1.0) } else { 8.0 * (head - n) as f32 + 4.0 };
    (-exponent / n as f32).exp2()
}
