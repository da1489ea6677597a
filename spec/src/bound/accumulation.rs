//! The error of a sum of products, in any order (`FAS:bound.half-mass`).
//!
//! # The half-mass lemma
//! Let `x_1 .. x_n` have sum `S` and mass `M = sum |x_i|`. Every partial sum that any summation
//! order forms is the sum of a subset. The positive terms add up to `(M + S)/2` and the negative
//! ones to `-(M - S)/2`, so every subset sum has magnitude at most `H = (M + |S|)/2`.
//!
//! Let `E(k)` bound the error of a node of the summation tree below which `k` additions happen.
//! Its own rounding adds at most `u (H + E)` to what its children bring, so
//! `E(a + b + 1) <= (E(a) + E(b)) (1 + u) + u H`. With `E(k) = ((1 + u)^k - 1) H` this holds,
//! because `(A - 1)(B - 1) >= 0` for `A = (1 + u)^a`, `B = (1 + u)^b`. A whole sum has `k = n - 1`
//! additions; multiplying a partial sum by a rescaling factor is one more rounding of the same
//! kind. (Blanchard, Higham, Higham 2021, doi:10.1093/imanum/draa038, bound a chain by its depth;
//! the subset argument removes the depth and halves the mass under cancellation.)
//!
//! # Tensor cores
//! A step of `k` products aligns them and the accumulator to the greatest of their exponents `e` and
//! truncates each to a multiple of `2^(e - F)`, then their exact sum to `ob` fraction bits. Where `2^e`
//! is at most the largest addend, which is a subset sum, a step errs by at most
//! `(k + 1) 2^-F + 2^-ob` of `H + E`, so that `t` steps err by `g/(1 - g) H`, `g = t ((k + 1) 2^-F + 2^-ob)`.
//! From `g = 1` on nothing is bounded.
//!
//! A subnormal operand is aligned by the least exponent of its format, and zero by that of `f32`
//! (MMA-Sim, arXiv 2511.10909), so there `2^e` may exceed the product: it is at most the smallest
//! normal number of the one factor times the largest of the other, `A`. That adds at most
//! `t (k + 1) 2^-F A` to what the steps truncate, and as much to mass and total of what they add.

use super::outward::Upper;
use crate::format::Format;
use crate::profile::Accumulation;

/// A sum of products as a kernel forms it.
pub(super) struct Sum {
    /// How many products are added.
    pub(super) terms: usize,
    /// Over how many positions they are spread, masked ones between them included.
    pub(super) positions: usize,
    /// In how many runs those positions are taken that may begin and end inside a chunk of a tensor
    /// core: blocks, or heads. A single sum from its first position on has none.
    pub(super) runs: usize,
    /// How often a partial sum is multiplied by a rescaling factor on its way.
    pub(super) rescalings: usize,
    /// `sum |x_i|` of the terms as the kernel forms them, before the products are rounded.
    pub(super) mass: Upper,
    /// `|sum x_i|` of the same terms.
    pub(super) total: Upper,
    /// `A`: what `2^e` of a product comes to at most where that exceeds the product itself; of
    /// interest to tensor cores alone.
    pub(super) aligned: Upper,
}

impl Sum {
    /// A sum over every position, in one go.
    pub(super) const fn contiguous(
        terms: usize,
        mass: Upper,
        total: Upper,
        aligned: Upper,
    ) -> Self {
        Self { terms, positions: terms, runs: 0, rescalings: 0, mass, total, aligned }
    }
}

/// The most that the computed sum differs from the sum of its terms; infinite where the
/// accumulator bounds nothing.
pub(super) fn error(accumulation: Accumulation, sum: &Sum) -> Upper {
    let roundings = sum.terms.saturating_sub(1) + sum.rescalings;
    match accumulation {
        Accumulation::Ieee { format, depth } => {
            let u = Upper::new(format.unit_roundoff());
            // Products that are rounded before they are added: one error of u each.
            let products = u * sum.mass;
            let mass = sum.mass + products;
            let half_mass = half(mass + sum.total + products);
            let any_order = u.compound(roundings) * half_mass;
            let chain = depth.map_or(Upper::INFINITE, |depth| {
                u.compound(depth.saturating_add(sum.rescalings)) * mass
            });
            products + any_order.min(chain)
        }
        Accumulation::TensorCore { chunk, fraction_bits, output_bits } => {
            let chunk = chunk.max(1) as usize;
            // A chunk without a term adds zeros, exactly.
            let touched = sum.terms.min(sum.positions.div_ceil(chunk) + 2 * sum.runs);
            let steps = Upper::count(touched + sum.rescalings);
            let truncated = Upper::count(chunk + 1) * power_of_half(fraction_bits);
            let g = steps * (truncated + power_of_half(output_bits));
            let aligned = steps * truncated * sum.aligned;
            aligned + g / g.complement() * (half(sum.mass + sum.total) + aligned)
        }
    }
}

/// `A` of products of two numbers of these formats.
pub(super) fn aligned(one: Format, other: Format) -> Upper {
    let reach = |subnormal: Format, factor: Format| {
        Upper::new(subnormal.smallest_normal()) * Upper::new(factor.max_finite())
    };
    reach(one, other).max(reach(other, one))
}

/// The format of the accumulator; a tensor core's results are in the arithmetic's.
pub(super) const fn format(accumulation: Accumulation, arithmetic: Format) -> Format {
    match accumulation {
        Accumulation::Ieee { format, .. } => format,
        Accumulation::TensorCore { .. } => arithmetic,
    }
}

fn half(x: Upper) -> Upper {
    x * Upper::new(0.5)
}

fn power_of_half(bits: u32) -> Upper {
    Upper::new((-f64::from(bits)).exp2())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A summation tree over consecutive terms: where each node splits its range.
    fn sum_by_tree(
        terms: &[f64],
        splits: &mut impl Iterator<Item = usize>,
        add: &impl Fn(f64, f64) -> f64,
        partial: &mut Vec<f64>,
    ) -> f64 {
        let sum = match terms {
            [] => 0.0,
            [term] => *term,
            _ => {
                let at = 1 + splits.next().unwrap_or(0) % (terms.len() - 1);
                let left = sum_by_tree(&terms[..at], splits, add, partial);
                let right = sum_by_tree(&terms[at..], splits, add, partial);
                add(left, right)
            }
        };
        partial.push(sum);
        sum
    }

    /// Terms on a grid so coarse that `f64` adds them exactly.
    fn exact_terms() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec((-(1_i64 << 20)..1 << 20).prop_map(|x| x as f64), 1..64)
    }

    fn splits() -> impl Strategy<Value = Vec<usize>> {
        prop::collection::vec(any::<usize>(), 64)
    }

    proptest! {
        #[test]
        fn every_partial_sum_is_at_most_half_the_mass(terms in exact_terms(), splits in splits()) {
            let mut partial = Vec::new();
            let total =
                sum_by_tree(&terms, &mut splits.into_iter(), &|a, b| a + b, &mut partial);
            let mass: f64 = terms.iter().map(|x| x.abs()).sum();
            let half_mass = f64::midpoint(mass, total.abs());
            for sum in partial {
                prop_assert!(sum.abs() <= half_mass);
            }
        }

        /// The same sums, rounded to bf16 at every node.
        #[test]
        fn every_tree_stays_within_the_half_mass(terms in exact_terms(), splits in splits()) {
            let format = Format::Bf16;
            let terms: Vec<f64> = terms.into_iter().map(|x| format.round(x)).collect();
            let total: f64 = terms.iter().sum();
            let mass: f64 = terms.iter().map(|x| x.abs()).sum();
            let rounded = |a, b| format.round(a + b);
            let computed = sum_by_tree(&terms, &mut splits.into_iter(), &rounded, &mut Vec::new());
            let sum = Sum {
                terms: terms.len(),
                positions: terms.len(),
                runs: 0,
                rescalings: 0,
                mass: Upper::new(mass),
                total: Upper::new(total.abs()),
                aligned: Upper::ZERO,
            };
            let bound = error(Accumulation::Ieee { format, depth: None }, &sum);
            prop_assert!((computed - total).abs() <= bound.get());
        }
    }
}
