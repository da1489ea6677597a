//! A faulty kernel's value for one element, and whether that is what was given.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::Tensor;

use super::change::Change;
use super::model::Model;
use super::{FailingGradient, GradientOf};

/// A sum and the sum of its terms' magnitudes.
#[derive(Clone, Copy, Debug, Default)]
struct Predicted {
    value: f64,
    mass: f64,
}

impl Predicted {
    fn add(&mut self, term: f64) {
        self.value += term;
        self.mass += term.abs();
    }

    fn times(self, factor: f64) -> Self {
        Self { value: factor * self.value, mass: factor.abs() * self.mass }
    }
}

/// Whether a kernel with this fault, within its declared profile, gives the element that was given.
pub(super) fn explains(change: Change, model: &Model<'_>, at: &FailingGradient) -> bool {
    let given = model.given(at);
    let predicted = predict(change, model, at);
    if !predicted.mass.is_finite() {
        return !given.is_finite();
    }
    let slack = relative_error(model, at.quantity) * predicted.mass;
    (given - predicted.value).abs() <= at.bound + slack
}

fn predict(change: Change, model: &Model<'_>, at: &FailingGradient) -> Predicted {
    let sum = match at.quantity {
        GradientOf::Query => query_sum(change, model, at),
        GradientOf::Key | GradientOf::Value => key_sum(change, model, at),
        GradientOf::Bias => bias_sum(change, model, at),
        GradientOf::Sink => sink_sum(change, model, at),
    };
    sum.times(change.factor(model, at.quantity))
}

fn query_sum(change: Change, model: &Model<'_>, at: &FailingGradient) -> Predicted {
    let FailingGradient { batch, head, position, entry, .. } = *at;
    let mut sum = Predicted::default();
    let row = RowIndex { batch, head, query: position };
    let key_head = model.problem.key_head_of(head);
    for key in 0..change.positions(model) {
        if let Some(pair) = change.pair(model, row, key) {
            let k = if pair.padding { 0.0 } else { model.key[[batch, key_head, key, entry]] };
            sum.add(pair.score_gradient * pair.slope * k);
        }
    }
    sum
}

fn key_sum(change: Change, model: &Model<'_>, at: &FailingGradient) -> Predicted {
    let FailingGradient { quantity, batch, head, position, entry, .. } = *at;
    let mut sum = Predicted::default();
    for row in model.readers(batch, head) {
        if !change.counts(model, row.head) {
            continue;
        }
        if let Some(pair) = change.pair(model, row, position) {
            let at = [row.batch, row.head, row.query, entry];
            sum.add(match quantity {
                GradientOf::Value => pair.weight * model.output_gradient[at],
                _ => pair.score_gradient * pair.slope * model.query[at],
            });
        }
    }
    sum
}

/// Over every site that shares the entry of the bias.
fn bias_sum(change: Change, model: &Model<'_>, at: &FailingGradient) -> Predicted {
    let mut sum = Predicted::default();
    let place = [at.batch, at.head, at.position, at.entry];
    let [batches, heads, queries, keys] = std::array::from_fn(|axis| shared(model, axis, place));
    for batch in batches {
        for head in heads.clone() {
            for query in queries.clone() {
                for key in keys.clone() {
                    if !change.counts_site(model, Site { batch, head, query, key }) {
                        continue;
                    }
                    let row = RowIndex { batch, head, query };
                    if let Some(pair) = change.pair(model, row, key) {
                        sum.add(pair.bias_gradient(model));
                    }
                }
            }
        }
    }
    sum
}

/// The indices along an axis of scores that share an entry of the bias.
fn shared(model: &Model<'_>, axis: usize, place: [usize; 4]) -> std::ops::Range<usize> {
    match model.problem.bias {
        Some(bias) if bias.shape[axis] == 1 => 0..model.problem.score_shape()[axis],
        _ => place[axis]..place[axis] + 1,
    }
}

/// Over every row of a query head that is in use.
fn sink_sum(change: Change, model: &Model<'_>, at: &FailingGradient) -> Predicted {
    let Problem { batch, query_len, .. } = *model.problem;
    let mut sum = Predicted::default();
    for batch in 0..batch {
        for query in 0..model.problem.mask.used_queries(batch, query_len) {
            let row = RowIndex { batch, head: at.head, query };
            sum.add(change.sink_gradient(model, row).unwrap_or(0.0));
        }
    }
    sum
}

/// Whether the element is no further from the right computation than carrying its sum in `format`
/// between blocks takes it, besides the roundings that are declared.
pub(super) fn within_carry(format: Format, model: &Model<'_>, at: &FailingGradient) -> bool {
    /// Blocks of kernels in use have 16 rows or more.
    const SMALLEST_BLOCK: usize = 16;
    let right = predict(Change::None, model, at);
    let blocks = 1 + terms(model, at.quantity).div_ceil(SMALLEST_BLOCK);
    let carried = blocks as f64 * format.unit_roundoff();
    (model.given(at) - right.value).abs() <= at.bound + carried * right.mass
}

/// How many terms the sum of an element has, at most.
fn terms(model: &Model<'_>, quantity: GradientOf) -> usize {
    let problem = model.problem;
    match quantity {
        GradientOf::Query => problem.key_len,
        GradientOf::Key | GradientOf::Value => {
            problem.query_len * (problem.query_heads / problem.key_heads)
        }
        GradientOf::Bias => (0..4).map(|axis| shared(model, axis, [0; 4]).len()).product(),
        GradientOf::Sink => problem.batch * problem.query_len,
    }
}

/// The error of a backward pass relative to the mass of the sum, to first order: the weight format,
/// the output format, and one rounding of the arithmetic for every product and sum on the way.
fn relative_error(model: &Model<'_>, quantity: GradientOf) -> f64 {
    let Profile { arithmetic, weight_format, .. } = model.profile;
    let problem = model.problem;
    let stored = model.of(quantity).map_or(problem.format, Tensor::format);
    let roundings = 2 * (terms(model, quantity) + problem.head_dim + problem.value_dim);
    weight_format.unit_roundoff()
        + stored.unit_roundoff()
        + roundings as f64 * arithmetic.unit_roundoff()
}
