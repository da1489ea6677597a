//! The two loops over the entries of rows.

use num_traits::Zero;

use super::element::Element;

/// `sum_t a_t b_t`: each product and each addition rounded to the accumulator, in order.
pub(super) fn dot<'r, E: Element + 'r>(
    a: impl IntoIterator<Item = &'r E>,
    b: impl IntoIterator<Item = &'r E>,
) -> E::Accumulator {
    let mut sum = E::Accumulator::zero();
    for (a, b) in a.into_iter().zip(b) {
        sum += a.load() * b.load();
    }
    sum
}

/// `sums_t += factor row_t`: each product and each addition rounded to the accumulator.
pub(super) fn add_scaled<'r, E: Element + 'r>(
    sums: impl IntoIterator<Item = &'r mut E::Accumulator>,
    factor: E::Accumulator,
    row: impl IntoIterator<Item = &'r E>,
) where
    E::Accumulator: 'r,
{
    for (sum, entry) in sums.into_iter().zip(row) {
        *sum += factor * entry.load();
    }
}
