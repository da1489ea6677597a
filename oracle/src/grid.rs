//! Tensor entries as integers on a common grid of powers of two.
//!
//! Every finite `f64` is an integer times a power of two, so the entries of a tensor are integers
//! times the smallest of these powers. Sums and products of such integers are exact.

use ndarray::ArrayView2;
use rug::Integer;

/// Widest entries that are kept in machine words: a sign and this many bits, with room to spare in
/// an `i64`.
const NARROW_BITS: u32 = 62;

/// Rows of entries, each an integer times `2^exponent`.
#[derive(Debug)]
pub(crate) struct Grid {
    exponent: i32,
    width: u32,
    columns: usize,
    mantissas: Mantissas,
    finite: Vec<bool>,
}

#[derive(Debug)]
enum Mantissas {
    Narrow(Vec<i64>),
    Wide(Vec<Integer>),
}

/// One row of a [`Grid`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum GridRow<'a> {
    /// Entries below `2^62` in magnitude.
    Narrow(&'a [i64]),
    /// Entries of any size.
    Wide(&'a [Integer]),
}

impl Grid {
    /// The grid of these entries. Entries that are not finite count as zero, and their row as not
    /// finite.
    pub(crate) fn new(entries: &ArrayView2<'_, f64>) -> Self {
        let parts = || entries.iter().map(|&x| if x.is_finite() { split(x) } else { (0, 0) });
        let spans = || parts().filter(|(mantissa, _)| *mantissa != 0);
        let exponent = spans().map(|(_, exponent)| exponent).min().unwrap_or(0);
        let top = spans().map(|(mantissa, exponent)| exponent + bits(mantissa) as i32).max();
        let width = (top.unwrap_or(exponent) - exponent) as u32;
        // A zero is on every grid, and its exponent says nothing.
        let shift = |m: i64, at: i32| if m == 0 { 0 } else { (at - exponent) as u32 };
        let mantissas = if width <= NARROW_BITS {
            Mantissas::Narrow(parts().map(|(m, at)| m << shift(m, at)).collect())
        } else {
            Mantissas::Wide(parts().map(|(m, at)| Integer::from(m) << shift(m, at)).collect())
        };
        let finite =
            entries.rows().into_iter().map(|row| row.iter().all(|x| x.is_finite())).collect();
        Self { exponent, width, columns: entries.ncols(), mantissas, finite }
    }

    /// Exponent of the grid's spacing.
    pub(crate) const fn exponent(&self) -> i32 {
        self.exponent
    }

    /// Every entry is below `2^width` in magnitude, as an integer.
    pub(crate) const fn width(&self) -> u32 {
        self.width
    }

    /// Whether every entry of the row is finite.
    pub(crate) fn is_finite(&self, row: usize) -> bool {
        self.finite[row]
    }

    pub(crate) fn row(&self, row: usize) -> GridRow<'_> {
        let range = row * self.columns..(row + 1) * self.columns;
        match &self.mantissas {
            Mantissas::Narrow(entries) => GridRow::Narrow(&entries[range]),
            Mantissas::Wide(entries) => GridRow::Wide(&entries[range]),
        }
    }
}

impl GridRow<'_> {
    /// Adds `factor` times an entry to a sum.
    pub(crate) fn add_product(self, sum: &mut Integer, factor: &Integer, column: usize) {
        match self {
            Self::Narrow(entries) => *sum += factor * entries[column],
            Self::Wide(entries) => *sum += factor * &entries[column],
        }
    }

    /// Adds an entry to a sum.
    pub(crate) fn add(self, sum: &mut Integer, column: usize) {
        match self {
            Self::Narrow(entries) => *sum += entries[column],
            Self::Wide(entries) => *sum += &entries[column],
        }
    }

    /// Subtracts an entry from a sum.
    pub(crate) fn subtract_from(self, sum: &mut Integer, column: usize) {
        match self {
            Self::Narrow(entries) => *sum -= entries[column],
            Self::Wide(entries) => *sum -= &entries[column],
        }
    }

    /// Adds an entry's magnitude to a sum.
    pub(crate) fn add_magnitude(self, sum: &mut Integer, column: usize) {
        match self {
            Self::Narrow(entries) => *sum += entries[column].unsigned_abs(),
            Self::Wide(entries) if entries[column].is_negative() => *sum -= &entries[column],
            Self::Wide(entries) => *sum += &entries[column],
        }
    }

    /// An entry.
    pub(crate) fn entry(self, column: usize) -> Integer {
        match self {
            Self::Narrow(entries) => Integer::from(entries[column]),
            Self::Wide(entries) => entries[column].clone(),
        }
    }
}

/// A finite number as an odd integer times a power of two; zero as `(0, 0)`.
pub(crate) fn split(x: f64) -> (i64, i32) {
    const FRACTION_BITS: u32 = f64::MANTISSA_DIGITS - 1;
    if x == 0.0 {
        return (0, 0);
    }
    let biased = ((x.to_bits() >> FRACTION_BITS) & 0x7ff) as i32;
    let fraction = (x.to_bits() & ((1 << FRACTION_BITS) - 1)) as i64;
    // Subnormal numbers have no hidden bit and the exponent of the smallest normal ones.
    let (mantissa, biased) =
        if biased == 0 { (fraction, 1) } else { (fraction | 1 << FRACTION_BITS, biased) };
    let odd = mantissa.trailing_zeros();
    let exponent = biased - f64::MAX_EXP - FRACTION_BITS as i32 + 1 + odd as i32;
    let magnitude = mantissa >> odd;
    (if x.is_sign_negative() { -magnitude } else { magnitude }, exponent)
}

/// Bits of an integer's magnitude.
const fn bits(mantissa: i64) -> u32 {
    u64::BITS - mantissa.unsigned_abs().leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;
    use proptest::prelude::*;
    use rug::Rational;

    fn value(grid: &Grid, row: usize, column: usize) -> Rational {
        Rational::from(grid.row(row).entry(column)) << grid.exponent()
    }

    fn any_finite() -> impl Strategy<Value = f64> {
        prop_oneof![
            any::<f64>().prop_filter("finite", |x| x.is_finite()),
            -8.0..8.0_f64,
            any::<f32>().prop_filter("finite", |x| x.is_finite()).prop_map(f64::from),
            Just(f64::from_bits(1)),
            Just(f64::MAX),
            Just(-0.0),
        ]
    }

    proptest! {
        #[test]
        fn every_entry_is_kept_exactly(entries in prop::collection::vec(any_finite(), 1..12)) {
            let columns = entries.len();
            let grid = Grid::new(&Array2::from_shape_vec((1, columns), entries.clone()).unwrap().view());
            for (column, &x) in entries.iter().enumerate() {
                prop_assert_eq!(value(&grid, 0, column), Rational::from_f64(x).unwrap());
                let integer = grid.row(0).entry(column);
                prop_assert!(integer.significant_bits() <= grid.width());
            }
        }
    }

    #[test]
    fn entries_that_are_not_finite_mark_their_row() {
        let entries = ndarray::arr2(&[[1.0, f64::NAN], [f64::INFINITY, 2.0], [3.0, 4.0]]);
        let grid = Grid::new(&entries.view());
        assert_eq!([0, 1, 2].map(|row| grid.is_finite(row)), [false, false, true]);
        assert_eq!(value(&grid, 0, 1), 0);
        assert_eq!(value(&grid, 1, 1), 2);
    }

    #[test]
    fn no_entries_and_zeros_have_no_width() {
        assert_eq!(Grid::new(&Array2::zeros((0, 3)).view()).width(), 0);
        assert_eq!(Grid::new(&Array2::zeros((2, 3)).view()).width(), 0);
    }
}
