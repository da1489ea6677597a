//! Whether two kernels answered a case alike.

use flashproof_spec::tensor::{Gradients, Outputs, Tensor};

use super::answered::{Answers, Related, Rest};

impl Answers {
    /// Whether another kernel answered with the same bits, but for those of NaNs.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        let rest = match (&self.rest, &other.rest) {
            (Rest::Poisoned(_, a), Rest::Poisoned(_, b)) => same_outputs(a, b),
            (Rest::Related(a), Rest::Related(b)) => a.is_same_as(b),
            (Rest::Backward(a), Rest::Backward(b)) => same_gradients(&a.gradients, &b.gradients),
            (Rest::Nothing, Rest::Nothing) | (Rest::Closed(_), Rest::Closed(_)) => true,
            _ => false,
        };
        rest && same_outputs(&self.outputs, &other.outputs)
    }
}

impl Related {
    fn is_same_as(&self, other: &Self) -> bool {
        let others = self.others.iter().zip(&other.others);
        let gradients = match (&self.gradients, &other.gradients) {
            (Some(a), Some(b)) => {
                same_gradients(&a.first, &b.first) && same_gradients(&a.other, &b.other)
            }
            (None, None) => true,
            _ => false,
        };
        gradients
            && self.others.len() == other.others.len()
            && others.into_iter().all(|((_, a), (_, b))| same_outputs(a, b))
    }
}

/// Whether the outputs have the same bits.
fn same_outputs(a: &Outputs, b: &Outputs) -> bool {
    same_bits(&a.output, &b.output) && same_optional_bits(a.lse.as_ref(), b.lse.as_ref())
}

/// Whether the gradients have the same bits.
fn same_gradients(a: &Gradients, b: &Gradients) -> bool {
    same_bits(&a.query, &b.query)
        && same_bits(&a.key, &b.key)
        && same_bits(&a.value, &b.value)
        && same_optional_bits(a.bias.as_ref(), b.bias.as_ref())
        && same_optional_bits(a.sink.as_ref(), b.sink.as_ref())
}

fn same_optional_bits(a: Option<&Tensor>, b: Option<&Tensor>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => same_bits(a, b),
        (None, None) => true,
        _ => false,
    }
}

/// Whether the values have the same bits; payloads of NaNs are not kept by a tensor.
pub(crate) fn same_bits(a: &Tensor, b: &Tensor) -> bool {
    let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    (a.format(), a.shape()) == (b.format(), b.shape())
        && a.values().iter().zip(b.values()).all(same)
}
