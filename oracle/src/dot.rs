//! Dot products of queries and keys, exactly.
//!
//! On a common grid the entries are integers and so is the dot product: no rounding happens at
//! all. Machine integers are used where the widths prove that they can not overflow.

use ndarray::{ArrayView1, Axis};
use rug::{Assign, Integer};

use crate::grid::{Grid, GridRow};

/// A query, to be multiplied with many keys.
#[derive(Debug)]
pub(crate) struct Query {
    grid: Grid,
}

impl Query {
    pub(crate) fn new(entries: &ArrayView1<'_, f64>) -> Self {
        Self { grid: Grid::new(&entries.insert_axis(Axis(0))) }
    }

    /// Whether every entry is finite.
    pub(crate) fn is_finite(&self) -> bool {
        self.grid.is_finite(0)
    }

    /// Exponent of the spacing of dot products with these keys.
    pub(crate) fn exponent(&self, keys: &Grid) -> i32 {
        self.grid.exponent() + keys.exponent()
    }

    /// The dot product with one of the keys, in units of `2^exponent`.
    pub(crate) fn dot(&self, keys: &Grid, key: usize) -> Integer {
        dot((&self.grid, 0), (keys, key))
    }
}

/// The dot product of a row of one grid with a row of another, in units of the product of their
/// spacings.
pub(crate) fn dot(x: (&Grid, usize), y: (&Grid, usize)) -> Integer {
    let rows = (x.0.row(x.1), y.0.row(y.1));
    let (GridRow::Narrow(a), GridRow::Narrow(b)) = rows else {
        return dot_wide(rows.0, rows.1);
    };
    // Every partial sum is at most `length * 2^(widths)` in magnitude.
    let bits = x.0.width() + y.0.width() + usize::BITS - a.len().leading_zeros();
    if bits < i64::BITS {
        Integer::from(a.iter().zip(b).map(|(a, b)| a * b).sum::<i64>())
    } else if bits < i128::BITS {
        let product = |(&a, &b): (&i64, &i64)| i128::from(a) * i128::from(b);
        Integer::from(a.iter().zip(b).map(product).sum::<i128>())
    } else {
        dot_wide(rows.0, rows.1)
    }
}

fn dot_wide(x: GridRow<'_>, y: GridRow<'_>) -> Integer {
    let mut sum = Integer::new();
    match x {
        GridRow::Wide(entries) => {
            for (column, entry) in entries.iter().enumerate() {
                y.add_product(&mut sum, entry, column);
            }
        }
        GridRow::Narrow(entries) => {
            let mut factor = Integer::new();
            for (column, &entry) in entries.iter().enumerate() {
                factor.assign(entry);
                y.add_product(&mut sum, &factor, column);
            }
        }
    }
    sum
}

/// An upper bound on `sum_t |x_t y_t|`, the mass that bounds the rounding errors of the dot product.
///
/// With unit roundoff `u`, each of the `n` computed products is at least `(1 - u) |x_t y_t|` less
/// half the smallest subnormal number, and their computed sum at least `(1 - u)^n` times their sum.
/// So the mass is at most `sum / (1 - u)^(n + 1)` plus `n` smallest subnormal numbers, and
/// `(1 - u)^-(n + 1) <= 1 + 2 (n + 1) u` where `(n + 1) u <= 1/2`, as in any vector that fits in memory.
pub(crate) fn mass_hi(x: &[f64], y: &[f64]) -> f64 {
    const UNIT_ROUNDOFF: f64 = f64::EPSILON / 2.0;
    const SMALLEST_SUBNORMAL: f64 = f64::from_bits(1);
    let n = x.len() as f64;
    let sum: f64 = x.iter().zip(y).map(|(x, y)| (x * y).abs()).sum();
    let growth = (1.0 + 2.0 * (n + 1.0) * UNIT_ROUNDOFF).next_up();
    ((sum * growth).next_up() + n * SMALLEST_SUBNORMAL).next_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Rational;

    fn rational_dot(x: &[f64], y: &[f64], map: impl Fn(Rational) -> Rational) -> Rational {
        x.iter()
            .zip(y)
            .map(|(&x, &y)| map(Rational::from_f64(x).unwrap() * Rational::from_f64(y).unwrap()))
            .sum()
    }

    fn grid_dot(x: &[f64], y: &[f64]) -> Rational {
        let query = Query::new(&ArrayView1::from(x));
        let keys = Grid::new(&ArrayView1::from(y).insert_axis(Axis(0)));
        Rational::from(query.dot(&keys, 0)) << query.exponent(&keys)
    }

    /// Vectors whose grids need one machine word, two, or more.
    fn entries() -> impl Strategy<Value = Vec<(f64, f64)>> {
        let of = |range: std::ops::RangeInclusive<i32>| {
            let entry = (-256..=256_i32, range)
                .prop_map(|(mantissa, exponent)| f64::from(mantissa) * f64::from(exponent).exp2());
            prop::collection::vec((entry.clone(), entry), 1..40)
        };
        prop_oneof![of(-8..=8), of(-25..=25), of(-400..=400), of(-1000..=-400)]
    }

    proptest! {
        #[test]
        fn dot_is_exact_and_mass_is_above(pairs in entries()) {
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            prop_assert_eq!(grid_dot(&x, &y), rational_dot(&x, &y, |product| product));
            let mass = rational_dot(&x, &y, Rational::abs);
            prop_assert!(Rational::from_f64(mass_hi(&x, &y)).unwrap() >= mass);
        }

        #[test]
        fn any_two_vectors_multiply_exactly(
            pairs in prop::collection::vec((any::<f64>(), any::<f64>()), 1..20)
        ) {
            let finite = |x: f64| if x.is_finite() { x } else { 1.0 };
            let (x, y): (Vec<f64>, Vec<f64>) =
                pairs.into_iter().map(|(x, y)| (finite(x), finite(y))).unzip();
            prop_assert_eq!(grid_dot(&x, &y), rational_dot(&x, &y, |product| product));
            let bound = mass_hi(&x, &y);
            let mass = rational_dot(&x, &y, Rational::abs);
            prop_assert!(bound.is_infinite() || Rational::from_f64(bound).unwrap() >= mass);
        }
    }

    #[test]
    fn the_largest_entries_of_a_width_do_not_overflow() {
        // 64 products of two entries of 29 bits: 58 + 7 bits do not fit 63, and must take two words.
        let x = vec![f64::from((1 << 29) - 1); 64];
        assert_eq!(grid_dot(&x, &x), rational_dot(&x, &x, |product| product));
        let y = [f64::MAX; 3];
        assert_eq!(grid_dot(&y, &y), rational_dot(&y, &y, |product| product));
    }
}
