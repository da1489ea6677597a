//! Sums of enclosed coefficients times exact rows of entries, in integers.
//!
//! Coefficients are rounded outward to a grid `precision` bits below the largest of them, so that they
//! are pairs of integers; the entries are integers already ([`crate::grid`]). Each product takes
//! the end of its coefficient that the entry's sign asks for, and no other error exists. A higher
//! precision has a finer grid that holds every point of the coarser one, and shorter coefficients,
//! so its sums are contained.

use rug::float::Round;
use rug::{Assign, Float, Integer, Rational};

use crate::enclosure::Enclosure;
use crate::grid::{Grid, GridRow};
use crate::numerator::NARROW_PRECISION;
use crate::scale::dyadic;

/// Coefficients as pairs of integers `(lo, hi)`, times `2^exponent`.
#[derive(Debug)]
pub(crate) struct Coefficients {
    exponent: i32,
    precision: u32,
    bounds: Vec<(Integer, Integer)>,
}

/// The entries that coefficients multiply: `x_ij`, or their differences `x_ij - x_oj` from those of
/// one row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms<'a> {
    pub(crate) grid: &'a Grid,
    /// The row of each coefficient.
    pub(crate) rows: &'a [usize],
    /// The row `o`.
    pub(crate) origin: Option<usize>,
}

impl Coefficients {
    /// The coefficients, on a grid `precision` bits below the largest.
    pub(crate) fn new(enclosures: &[Enclosure], precision: u32) -> Self {
        let exponents = enclosures.iter().flat_map(|x| [x.lo().get_exp(), x.hi().get_exp()]);
        let exponent = exponents.flatten().max().map_or(0, |top| top - precision as i32);
        let units = |x: &Float, round| {
            let scaled = x.clone() >> exponent;
            scaled.to_integer_round(round).map_or_else(Integer::new, |(integer, _)| integer)
        };
        let bounds =
            enclosures.iter().map(|x| (units(x.lo(), Round::Down), units(x.hi(), Round::Up)));
        Self { exponent, precision, bounds: bounds.collect() }
    }

    /// The sums in these columns, one coefficient a row.
    pub(crate) fn sums(&self, terms: Terms<'_>, columns: &[usize]) -> Vec<Enclosure> {
        let exponent = self.exponent + terms.grid.exponent();
        self.narrow_sums(terms, columns)
            .unwrap_or_else(|| self.wide_sums(terms, columns))
            .into_iter()
            .map(|(lo, hi)| Enclosure::new(dyadic(&lo, exponent), dyadic(&hi, exponent)))
            .collect()
    }

    /// The coefficients other than zero, with their rows.
    fn nonzero<'t>(
        &'t self,
        terms: Terms<'t>,
    ) -> impl Iterator<Item = (&'t (Integer, Integer), GridRow<'t>)> {
        self.bounds
            .iter()
            .zip(terms.rows)
            .filter(|((lo, hi), _)| !lo.is_zero() || !hi.is_zero())
            .map(move |(bounds, &row)| (bounds, terms.grid.row(row)))
    }

    /// The sums, unless they could leave machine words.
    fn narrow_sums(&self, terms: Terms<'_>, columns: &[usize]) -> Option<Vec<(Integer, Integer)>> {
        // A difference has one bit more than the entries, and the largest coefficient may be
        // rounded up to the next power of two.
        let count_bits = usize::BITS - terms.rows.len().leading_zeros();
        let bits = self.precision + 1 + terms.grid.width() + 1 + count_bits;
        if self.precision > NARROW_PRECISION || bits >= i128::BITS {
            return None;
        }
        let origin = match terms.origin.map(|row| terms.grid.row(row)) {
            None => vec![0; columns.len()],
            Some(GridRow::Narrow(row)) => columns.iter().map(|&column| row[column]).collect(),
            Some(GridRow::Wide(_)) => return None,
        };
        let mut sums = vec![(0_i128, 0_i128); columns.len()];
        for ((lo, hi), row) in self.nonzero(terms) {
            let GridRow::Narrow(row) = row else { return None };
            let (lo, hi) = (lo.to_i64_wrapping(), hi.to_i64_wrapping());
            for (((sum_lo, sum_hi), &column), origin) in sums.iter_mut().zip(columns).zip(&origin) {
                let entry = row[column] - origin;
                let (least, most) = if entry < 0 { (hi, lo) } else { (lo, hi) };
                *sum_lo += i128::from(least) * i128::from(entry);
                *sum_hi += i128::from(most) * i128::from(entry);
            }
        }
        Some(sums.into_iter().map(|(lo, hi)| (Integer::from(lo), Integer::from(hi))).collect())
    }

    /// As [`Coefficients::narrow_sums`], for entries and coefficients of any size.
    fn wide_sums(&self, terms: Terms<'_>, columns: &[usize]) -> Vec<(Integer, Integer)> {
        let origin = terms.origin.map(|row| terms.grid.row(row));
        let mut sums = vec![(Integer::new(), Integer::new()); columns.len()];
        let mut entry = Integer::new();
        for ((lo, hi), row) in self.nonzero(terms) {
            for ((sum_lo, sum_hi), &column) in sums.iter_mut().zip(columns) {
                entry.assign(0);
                if let Some(origin) = origin {
                    origin.subtract_from(&mut entry, column);
                }
                row.add(&mut entry, column);
                let (least, most) = if entry.is_negative() { (hi, lo) } else { (lo, hi) };
                *sum_lo += least * &entry;
                *sum_hi += most * &entry;
            }
        }
        sums
    }
}

/// The sum of rational coefficients times the entries of one column.
pub(crate) fn rational_sum(coefficients: &[Rational], terms: Terms<'_>, column: usize) -> Rational {
    let entry = |row: usize| terms.grid.row(row).entry(column);
    let product = |(coefficient, &row): (&Rational, &usize)| coefficient.clone() * entry(row);
    let sum: Rational = coefficients.iter().zip(terms.rows).map(product).sum();
    sum << terms.grid.exponent()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::Array2;
    use proptest::prelude::*;

    const COLUMNS: usize = 3;

    /// Coefficients as intervals, and rows of entries that fit one machine word or do not.
    fn terms() -> impl Strategy<Value = (Vec<Enclosure>, Array2<f64>)> {
        let coefficient = (-1e3..1e3_f64, 0.0..1e-9_f64, -40..40_i32).prop_map(|(x, width, e)| {
            let float = |x: f64| Float::with_val(64, x) << e;
            Enclosure::new(float(x), float(x + width))
        });
        let entry =
            |e: i32| (-256..=256_i32, -e..=e).prop_map(|(x, e)| f64::from(x) * f64::from(e).exp2());
        (1_usize..12, prop_oneof![Just(4), Just(25), Just(400)]).prop_flat_map(move |(rows, e)| {
            let entries = prop::collection::vec(entry(e), rows * COLUMNS);
            let entries = entries
                .prop_map(move |entries| Array2::from_shape_vec((rows, COLUMNS), entries).unwrap());
            (prop::collection::vec(coefficient.clone(), rows), entries)
        })
    }

    /// The sum with each coefficient somewhere in its interval.
    fn exact(
        coefficients: &[Enclosure],
        entries: &Array2<f64>,
        origin: Option<usize>,
        column: usize,
        at: f64,
    ) -> Rational {
        let rational = |x: f64| Rational::from_f64(x).unwrap();
        let from = origin.map_or(0.0, |row| entries[[row, column]]);
        let term = |(coefficient, row): (&Enclosure, usize)| {
            let end = |x: &Float| Rational::try_from(x).unwrap();
            let (lo, hi) = (end(coefficient.lo()), end(coefficient.hi()));
            let member = (hi - &lo) * rational(at) + lo;
            member * (rational(entries[[row, column]]) - rational(from))
        };
        coefficients.iter().zip(0..).map(term).sum()
    }

    proptest! {
        #[test]
        fn sums_contain_every_choice_of_coefficients(
            (coefficients, entries) in terms(), precision in 2_u32..140,
            origin in prop::option::of(0_usize..12), at in 0.0..=1.0_f64,
        ) {
            let grid = Grid::new(&entries.view());
            let rows: Vec<usize> = (0..coefficients.len()).collect();
            let origin = origin.filter(|&row| row < rows.len());
            let terms = Terms { grid: &grid, rows: &rows, origin };
            let columns: Vec<usize> = (0..COLUMNS).collect();
            let rounded = Coefficients::new(&coefficients, precision);
            let sums = rounded.sums(terms, &columns);
            for (&column, sum) in columns.iter().zip(&sums) {
                let exact = exact(&coefficients, &entries, origin, column, at);
                prop_assert!(sum.lo() <= &exact && &exact <= sum.hi(), "{sum:?} misses {exact}");
            }
            let finer = Coefficients::new(&coefficients, 2 * precision).sums(terms, &columns);
            for (sum, finer) in sums.iter().zip(&finer) {
                prop_assert!(sum.contains(finer), "{sum:?} does not contain {finer:?}");
            }
            if let Some(narrow) = rounded.narrow_sums(terms, &columns) {
                prop_assert_eq!(narrow, rounded.wide_sums(terms, &columns));
            }
        }
    }

    /// Sums of `rows` terms, each of the largest magnitude for entries of so many bits.
    fn assert_machine_words_hold(rows: usize, bits: u8, narrow: bool) {
        let most = f64::from(bits).exp2().next_down();
        let entry = |(row, column): (usize, usize)| match (column, row) {
            (0, 0) => most,
            (0, _) => -most,
            _ => 1.0,
        };
        let grid = Grid::new(&Array2::from_shape_fn((rows, 2), entry).view());
        assert_eq!(grid.width(), u32::from(bits));
        // Rounds up to 2^62.
        let below_one = Float::with_val(200, 1) - (Float::with_val(200, 1) >> 100_u32);
        let coefficients = vec![Enclosure::point(below_one); rows];
        let rows: Vec<usize> = (0..rows).collect();
        for origin in [None, Some(0), Some(1)] {
            let terms = Terms { grid: &grid, rows: &rows, origin };
            let rounded = Coefficients::new(&coefficients, NARROW_PRECISION);
            let sums = rounded.narrow_sums(terms, &[0]);
            assert_eq!(sums.is_some(), narrow, "{bits} bits, {} rows", rows.len());
            assert!(sums.is_none_or(|sums| sums == rounded.wide_sums(terms, &[0])));
        }
    }

    #[test]
    fn the_largest_numbers_of_machine_words_do_not_overflow() {
        assert_machine_words_hold(3, 61, true);
        assert_machine_words_hold(31, 58, true);
        // Products of 2^125, of which two words hold three.
        assert_machine_words_hold(4, 62, false);
        assert_machine_words_hold(64, 62, false);
    }

    #[test]
    fn zeros_add_up_to_exactly_zero() {
        let zeros = vec![Enclosure::point(Float::new(64)); 2];
        let grid = Grid::new(&ndarray::arr2(&[[1.0], [f64::MAX]]).view());
        let terms = Terms { grid: &grid, rows: &[0, 1], origin: None };
        let sums = Coefficients::new(&zeros, NARROW_PRECISION).sums(terms, &[0]);
        assert!(*sums[0].lo() == 0 && *sums[0].hi() == 0);
    }
}
