//! How matrix instructions sum products.

use super::rounding::{exponent, power};
use super::single::NAN;
use crate::isa::matrix::Factor;

/// How a matrix instruction sums the products of a row and a column, and its accumulator.
///
/// The PTX ISA leaves order, alignment and rounding of these sums open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TensorCore {
    /// In binary64, in order, and rounded once to nearest.
    #[default]
    Rounded,
    /// As tensor cores do: terms are taken in chunks; of each chunk, products and accumulator are
    /// aligned to the largest exponent, truncated to `fraction_bits` bits behind the point there,
    /// added exactly, and truncated to `output_bits` fraction bits
    /// (Xie et al.: MMA-Sim, arXiv 2511.10909).
    Truncating {
        /// Products of f16 or bf16 numbers in a chunk.
        terms: usize,
        /// Products of tf32 numbers in a chunk.
        tf32_terms: usize,
        /// Fraction bits kept of a term, at the largest exponent of its chunk.
        fraction_bits: i32,
        /// Fraction bits of a sum.
        output_bits: i32,
    },
}

impl TensorCore {
    /// A100 and other devices of `sm_80` to `sm_89` (MMA-Sim).
    pub const AMPERE: Self =
        Self::Truncating { terms: 8, tf32_terms: 4, fraction_bits: 24, output_bits: 23 };
    /// H100 (MMA-Sim).
    pub const HOPPER: Self =
        Self::Truncating { terms: 16, tf32_terms: 8, fraction_bits: 25, output_bits: 23 };
}

/// Adds the product of `a` (rows of `k`) and `b` (columns of `k`) to `sums` (rows of `n`).
///
/// `k` is the length of a row of `a`; `b` holds `n` columns, each `k` long.
pub(crate) fn accumulate(
    model: TensorCore,
    factor: Factor,
    k: usize,
    a: &[f32],
    b: &[f32],
    sums: &mut [f32],
) {
    let n = b.len() / k;
    match model {
        TensorCore::Rounded => rounded(k, n, a, b, sums),
        TensorCore::Truncating { terms, tf32_terms, fraction_bits, output_bits } => {
            let chunk = if factor == Factor::Tf32 { tf32_terms } else { terms };
            let least = if factor == Factor::F16 { -14 } else { -126 };
            let model = Truncation { least, fraction_bits, output_bits };
            for (row, sums) in a.chunks_exact(k).zip(sums.chunks_exact_mut(n)) {
                for (column, sum) in b.chunks_exact(k).zip(sums) {
                    let chunks = row.chunks(chunk.max(1)).zip(column.chunks(chunk.max(1)));
                    *sum = chunks.fold(*sum, |sum, (row, column)| model.add(row, column, sum));
                }
            }
        }
    }
}

/// Sums in binary64: products of up to 22 bits are exact there.
fn rounded(k: usize, n: usize, a: &[f32], b: &[f32], sums: &mut [f32]) {
    /// Columns summed side by side.
    const LANES: usize = 8;
    let mut wide = [[0.0_f64; LANES]; MOST_K];
    for start in (0..n).step_by(LANES) {
        let columns = LANES.min(n - start);
        for (at, lanes) in wide[..k].iter_mut().enumerate() {
            for (lane, value) in lanes[..columns].iter_mut().enumerate() {
                *value = f64::from(b[(start + lane) * k + at]);
            }
        }
        for (row, sums) in a.chunks_exact(k).zip(sums.chunks_exact_mut(n)) {
            let mut totals = [0.0_f64; LANES];
            for (total, sum) in totals.iter_mut().zip(&sums[start..start + columns]) {
                *total = f64::from(*sum);
            }
            for (factor, lanes) in row.iter().zip(&wide) {
                let factor = f64::from(*factor);
                totals = std::array::from_fn(|lane| totals[lane] + factor * lanes[lane]);
            }
            for (sum, total) in sums[start..start + columns].iter_mut().zip(totals) {
                *sum = if total.is_nan() { NAN } else { total as f32 };
            }
        }
    }
}

/// The longest row of a factor that an instruction has.
const MOST_K: usize = 16;

struct Truncation {
    /// Exponent of the smallest normal number of the factors: subnormal ones keep it.
    least: i32,
    fraction_bits: i32,
    output_bits: i32,
}

impl Truncation {
    /// One chunk. Zero products have no exponent and take no part in the alignment.
    fn add(&self, row: &[f32], column: &[f32], sum: f32) -> f32 {
        let product = |(a, b): (&f32, &f32)| f64::from(*a) * f64::from(*b);
        let plain = row.iter().zip(column).map(product).sum::<f64>() + f64::from(sum);
        if !plain.is_finite() {
            return if plain.is_nan() { NAN } else { plain as f32 };
        }
        let of = |x: f32| exponent(x.into()).max(self.least);
        let largest = row
            .iter()
            .zip(column)
            .filter(|(a, b)| **a != 0.0 && **b != 0.0)
            .map(|(a, b)| of(*a) + of(*b))
            .chain((sum != 0.0).then(|| exponent(sum.into()).max(-126)))
            .max();
        let Some(largest) = largest else { return 0.0 };
        let unit = largest - self.fraction_bits;
        // Below 4 units of 2^fraction_bits a term; conversion to an integer truncates.
        let scale = power(-unit);
        let total: i64 = row
            .iter()
            .zip(column)
            .map(|pair| (product(pair) * scale) as i64)
            .chain(std::iter::once((f64::from(sum) * scale) as i64))
            .sum();
        truncate(total as f64 * power(unit), self.output_bits)
    }
}

/// Toward zero to so many fraction bits, subnormal numbers to the quantum of binary32.
fn truncate(x: f64, fraction_bits: i32) -> f32 {
    if x == 0.0 {
        return 0.0;
    }
    let quantum = (exponent(x) - fraction_bits).max(-149);
    ((x * power(-quantum)).trunc() * power(quantum)) as f32
}
