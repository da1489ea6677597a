//! The known faults of forward kernels, each as a prediction.
//!
//! Sources: the public reports that the pinned cases cite. To add a fault, add a row to one of the
//! tables and a function that lists what a kernel with it would answer.

mod keys;
mod lse;
mod mask;
mod score;
mod weights;

use super::prediction::Prediction;
use super::reading::Reading;
use super::row::RowModel;

/// A way in which a forward kernel can be wrong.
pub struct Fault {
    /// Short name, as in the list of mutants.
    pub name: &'static str,
    /// The clause that is violated.
    pub clause: &'static str,
    /// What a kernel with this fault does.
    pub explanation: &'static str,
    /// Whether its particulars must be the same in every row: a block size, but not a key.
    pub(super) same_variant: bool,
    /// What it would answer, for each particular.
    pub(super) variants: for<'r> fn(&'r RowModel<'_>) -> Variants<'r>,
}

/// What a fault can look like, one at a time: a long row has as many variants as keys.
pub(super) type Variants<'r> = Box<dyn Iterator<Item = Variant> + 'r>;

/// A fault with its particulars.
pub(super) struct Variant {
    pub(super) prediction: Prediction,
    /// The particulars in words; empty where there are none.
    pub(super) detail: String,
}

/// Every fault, the most specific first: those without a particular to choose, and those of a
/// modification that the problem has, before those that could be adjusted to any row.
pub fn faults() -> impl Iterator<Item = &'static Fault> {
    [lse::FAULTS, score::FAULTS, mask::FAULTS, weights::FAULTS, keys::FAULTS].into_iter().flatten()
}

fn only<'r>(prediction: Prediction) -> Variants<'r> {
    Box::new(std::iter::once(Variant { prediction, detail: String::new() }))
}

fn none<'r>() -> Variants<'r> {
    Box::new(std::iter::empty())
}

/// One variant for each reading of the row, with its particulars.
fn readings<'r, 'a: 'r>(readings: Vec<(&'static str, Reading<'r, 'a>)>) -> Variants<'r> {
    Box::new(readings.into_iter().map(|(detail, reading)| Variant {
        prediction: reading.prediction(),
        detail: detail.to_owned(),
    }))
}

/// One variant for each reading under which the row sees other keys than it should.
fn maskings<'r, 'a>(
    row: &'r RowModel<'a>,
    mut of: Vec<(&'static str, Reading<'r, 'a>)>,
) -> Variants<'r> {
    let right = row.visible();
    of.retain(|(_, reading)| reading.visible() != right);
    readings(of)
}
