//! Mean and root mean square of signed ratios, the same in whatever order elements come.
//!
//! Sums are of whole multiples of [`UNIT`], in integers, so that adding them in another order, or from
//! another number of threads, changes nothing.

/// What a ratio is rounded to a multiple of.
const UNIT: f64 = 1.0 / (1_u64 << 32) as f64;
/// Larger ratios count as this one: the mean of a kernel that fails by more says no more.
const LARGEST: f64 = 4096.0;

/// A ratio and the direction of its error: `1` above, `-1` below, `0` where it has none.
pub(super) type Signed = (f64, f64);

/// Sums over the elements that have a ratio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Moments {
    count: u64,
    /// Of the ratios, in squared units.
    squares: u128,
    /// Of the signed ratios, in units.
    sum: i128,
    /// Their squares, each times the number of elements in its row.
    row_squares: u128,
}

impl Moments {
    /// Adds the elements of one row.
    pub(super) fn add_row(&mut self, row: &[Signed]) {
        for &(ratio, sign) in row {
            let units = (ratio.min(LARGEST) / UNIT).round() as i64;
            let square = u128::from(units.unsigned_abs()).pow(2);
            self.count += 1;
            self.squares = self.squares.saturating_add(square);
            if sign != 0.0 {
                self.sum += i128::from(if sign < 0.0 { -units } else { units });
                let of_row = square.saturating_mul(row.len() as u128);
                self.row_squares = self.row_squares.saturating_add(of_row);
            }
        }
    }

    /// Adds the sums of another.
    pub(super) fn merge(&mut self, other: &Self) {
        self.count += other.count;
        self.squares = self.squares.saturating_add(other.squares);
        self.sum += other.sum;
        self.row_squares = self.row_squares.saturating_add(other.row_squares);
    }

    /// The root mean square of the ratios; zero of nothing.
    pub(super) fn rms(&self) -> f64 {
        (self.squares as f64 / self.of()).sqrt() * UNIT
    }

    /// The mean of the signed ratios; zero of nothing.
    pub(super) fn mean(&self) -> f64 {
        self.sum as f64 / self.of() * UNIT
    }

    /// A bound on the standard deviation of the mean, were the errors of different rows independent and
    /// of mean zero; within a row they may be as alike as they like.
    ///
    /// The variance of the sum of a row of `d_r` errors is at most the mean of its square, and that at
    /// most `d_r` times the mean of the sum of their squares (Cauchy and Schwarz). So the variance of
    /// the mean of `n` errors is at most `sum_r d_r E[sum_i e_ri^2] / n^2`, and the sample's own
    /// squares estimate it.
    pub(super) fn deviation(&self) -> f64 {
        (self.row_squares as f64).sqrt() / self.of() * UNIT
    }

    const fn of(&self) -> f64 {
        if self.count == 0 { 1.0 } else { self.count as f64 }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn moments(rows: &[Vec<Signed>]) -> Moments {
        let mut moments = Moments::default();
        for row in rows {
            moments.add_row(row);
        }
        moments
    }

    /// Multiples of the unit with few bits, whose sums are exact in `f64` too.
    fn rows() -> impl Strategy<Value = Vec<Vec<Signed>>> {
        let ratio = (0..=1024_u16).prop_map(|k| f64::from(k) / 1024.0);
        let sign = prop::sample::select(vec![-1.0, 0.0, 1.0]);
        prop::collection::vec(prop::collection::vec((ratio, sign), 1..6), 1..12)
    }

    proptest! {
        #[test]
        fn any_order_of_rows_gives_the_same_sums(rows in rows()) {
            let mut reversed = rows.clone();
            reversed.reverse();
            prop_assert_eq!(moments(&rows), moments(&reversed));
            let mut merged = moments(&rows[..1]);
            merged.merge(&moments(&rows[1..]));
            prop_assert_eq!(merged, moments(&rows));
        }

        #[test]
        fn they_are_those_of_their_definitions(rows in rows()) {
            let all = rows.concat();
            let count = all.len() as f64;
            let squares: f64 = all.iter().map(|(ratio, _)| ratio * ratio).sum();
            let signed = |&(ratio, sign): &Signed| ratio * sign;
            let sum: f64 = all.iter().map(signed).sum();
            let of_row = |row: &Vec<Signed>| {
                row.len() as f64 * row.iter().map(|it| signed(it).powi(2)).sum::<f64>()
            };
            let weighted: f64 = rows.iter().map(of_row).sum();
            let moments = moments(&rows);
            prop_assert_eq!(moments.mean(), sum / count);
            prop_assert_eq!(moments.rms(), (squares / count).sqrt());
            prop_assert_eq!(moments.deviation(), weighted.sqrt() / count);
        }
    }

    #[test]
    fn nothing_and_the_infinite_are_finite() {
        assert_eq!((Moments::default().mean(), Moments::default().rms()), (0.0, 0.0));
        assert_eq!(moments(&[vec![(f64::INFINITY, 1.0)]]).mean(), LARGEST);
    }
}
