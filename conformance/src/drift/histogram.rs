//! The distribution of ratios, in memory that does not grow with the number of elements.
//!
//! A bucket holds the numbers of one octave that share their first [`FRACTION_BITS`] fraction bits, so
//! its ends are less than one part in `2^FRACTION_BITS` apart. Buckets are read off the bits of the
//! number: no logarithm of any library has a part in it, and counts are added in any order to the same
//! histogram.

use std::collections::BTreeMap;

/// Fraction bits that tell buckets of an octave apart: a quantile is at most 1/32 too large.
const FRACTION_BITS: u32 = 5;
/// Fraction bits of an `f64` that a bucket drops.
const DROPPED: u32 = f64::MANTISSA_DIGITS - 1 - FRACTION_BITS;
/// Smaller ratios count as zero.
const SMALLEST: f64 = f64::from_bits((1023 - 64) << 52);

/// How many numbers lie in each bucket.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Histogram {
    counts: BTreeMap<u64, u64>,
    len: u64,
}

impl Histogram {
    /// Counts a number that is not negative; infinity has a bucket of its own, and is where NaN goes.
    pub(super) fn add(&mut self, ratio: f64) {
        let bucket = if ratio < SMALLEST {
            0
        } else if ratio.is_finite() {
            ratio.to_bits() >> DROPPED
        } else {
            f64::INFINITY.to_bits() >> DROPPED
        };
        *self.counts.entry(bucket).or_default() += 1;
        self.len += 1;
    }

    /// Adds the counts of another.
    pub(super) fn merge(&mut self, other: &Self) {
        for (&bucket, count) in &other.counts {
            *self.counts.entry(bucket).or_default() += count;
        }
        self.len += other.len;
    }

    /// How many numbers were counted.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// The upper end of the first bucket by which `per_mille` thousandths of the numbers are counted;
    /// zero where there are none.
    pub(super) fn quantile(&self, per_mille: u64) -> f64 {
        let wanted = self.len.saturating_mul(per_mille).div_ceil(1000);
        let mut counted = 0;
        for (&bucket, count) in &self.counts {
            counted += count;
            if counted >= wanted {
                return upper_end(bucket);
            }
        }
        0.0
    }
}

fn upper_end(bucket: u64) -> f64 {
    match bucket {
        0 => 0.0,
        _ if bucket == f64::INFINITY.to_bits() >> DROPPED => f64::INFINITY,
        _ => f64::from_bits((bucket + 1) << DROPPED),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn histogram(numbers: &[f64]) -> Histogram {
        let mut histogram = Histogram::default();
        for &number in numbers {
            histogram.add(number);
        }
        histogram
    }

    proptest! {
        #[test]
        fn a_quantile_is_at_most_a_32nd_above_the_number_at_its_rank(
            mut numbers in prop::collection::vec(1e-12..1e6_f64, 1..200),
            per_mille in 1..=1000_u64,
        ) {
            let found = histogram(&numbers).quantile(per_mille);
            numbers.sort_by(f64::total_cmp);
            let rank = (numbers.len() as u64 * per_mille).div_ceil(1000) as usize;
            let exact = numbers[rank - 1];
            prop_assert!(found > exact && found <= exact * (1.0 + 1.0 / 32.0), "{found} for {exact}");
        }

        #[test]
        fn halves_merge_to_the_whole_in_any_order(
            numbers in prop::collection::vec(any::<f64>().prop_map(f64::abs), 0..50),
            cut in any::<prop::sample::Index>(),
        ) {
            let (left, right) = numbers.split_at(cut.index(numbers.len() + 1));
            let mut merged = histogram(right);
            merged.merge(&histogram(left));
            prop_assert_eq!(merged, histogram(&numbers));
        }
    }

    #[test]
    fn nothing_zero_and_infinity_have_quantiles() {
        assert_eq!(histogram(&[]).quantile(500), 0.0);
        assert_eq!(histogram(&[0.0, 0.0, 1.0]).quantile(500), 0.0);
        assert_eq!(histogram(&[0.0, f64::INFINITY]).quantile(1000), f64::INFINITY);
    }
}
