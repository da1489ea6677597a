//! Interval, then round: whether a stored result is the rounding of a number that a correct kernel can
//! have.

use super::super::outward::Upper;
use super::super::weight;
use crate::format::Format;
use crate::profile::Profile;

/// Sums in `f64`, with a bound on what their evaluation loses.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    value: f64,
    mass: f64,
    terms: usize,
}

impl Sum {
    pub(super) fn add(&mut self, term: f64) {
        self.value += term;
        self.mass += term.abs();
        self.terms += 1;
    }

    pub(super) const fn value(&self) -> f64 {
        self.value
    }

    /// Sum of the magnitudes of the exact terms, where each is one product, from above.
    pub(super) fn mass(&self) -> Upper {
        let mass = Upper::new(self.mass);
        mass + self.relative() * mass + self.lost()
    }

    /// `|value - sum|`, where each term is the rounding of one product.
    pub(super) fn error(&self) -> Upper {
        let relative = self.relative();
        relative * self.mass() + self.lost()
    }

    /// The sum of both.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            value: self.value + other.value,
            mass: self.mass + other.mass,
            terms: self.terms + other.terms + 1,
        }
    }

    /// Every term is rounded once as a product and once in each addition; and once for second orders.
    fn relative(&self) -> Upper {
        Upper::new(Format::F64.unit_roundoff()).compound(self.terms + 2)
    }

    /// What products lose below the normal range.
    fn lost(&self) -> Upper {
        Upper::new(f64::from_bits(1)) * Upper::count(self.terms)
    }
}

/// Where a correct kernel's result lies before it is stored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Admitted {
    lo: f64,
    hi: f64,
    /// The format that it is then rounded to; `None` where it is in that already.
    stored: Option<Format>,
    /// Whether a subnormal one becomes zero there.
    flushed: bool,
}

impl Admitted {
    /// Within `bound` of `centre`; `None` where that may be out of the range of what it is stored in.
    pub(super) fn new(
        profile: &Profile,
        stored: Format,
        centre: f64,
        bound: Upper,
    ) -> Option<Self> {
        Self::between(profile, stored, (centre, centre), bound)
    }

    /// Within `bound` of a number between two; `None` as for [`Admitted::new`].
    pub(super) fn between(
        profile: &Profile,
        stored: Format,
        (lo, hi): (f64, f64),
        bound: Upper,
    ) -> Option<Self> {
        let (lo, hi) = ((lo - bound.get()).next_down(), (hi + bound.get()).next_up());
        let fits = |x: f64| x.abs() <= stored.max_finite();
        (fits(lo) && fits(hi)).then(|| Self {
            lo,
            hi,
            stored: weight::narrows(profile, stored).then_some(stored),
            flushed: weight::flushes(stored, profile.flush_to_zero),
        })
    }

    /// The interval.
    #[must_use]
    pub const fn ends(&self) -> (f64, f64) {
        (self.lo, self.hi)
    }

    /// How far from the middle of the interval the nearest number lies that a kernel can have stored as
    /// `got`, and half the length of the interval. The result is accepted if and only if the first is no
    /// more than the second.
    #[must_use]
    pub fn departure(&self, got: f64) -> (f64, f64) {
        let (lo, hi) = self.preimage(got);
        let half = ((self.hi - self.lo) / 2.0).next_up();
        let middle = f64::midpoint(self.lo, self.hi);
        let distance = (lo - middle).max(middle - hi).max(0.0);
        let accepted = lo <= self.hi && self.lo <= hi;
        // The ends decide; the distance is rounded.
        (if accepted { distance.min(half) } else { distance.max(half.next_up()) }, half)
    }

    /// The numbers that are stored as `got`.
    fn preimage(&self, got: f64) -> (f64, f64) {
        let Some(format) = self.stored else { return (got, got) };
        let (lo, hi) = format.preimage(got);
        if self.flushed && got == 0.0 {
            return (-format.smallest_normal(), format.smallest_normal());
        }
        (lo, hi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn admitted(lo: f64, hi: f64, format: Format) -> Admitted {
        let profile = Profile::standard(format);
        Admitted::between(&profile, format, (lo, hi), Upper::ZERO).expect("an interval")
    }

    proptest! {
        /// What rounds to a number of the interval is accepted, and the neighbours of its ends are not.
        #[test]
        fn what_rounds_into_the_interval_is_accepted(
            lo in -4.0..4.0_f64, length in 0.0..0.1_f64, share in 0.0..=1.0_f64,
        ) {
            for format in [Format::Bf16, Format::F16] {
                let hi = lo + length;
                let interval = admitted(lo, hi, format);
                let inside = (lo + share * length).clamp(lo, hi);
                let (error, bound) = interval.departure(format.round(inside));
                prop_assert!(error <= bound);
                let ulp = format.smallest_normal().max(4.0 * 2.0 * format.unit_roundoff());
                for outside in [lo - 1.01 * ulp, hi + 1.01 * ulp] {
                    let (error, bound) = interval.departure(format.round(outside));
                    prop_assert!(error > bound, "{outside} beside {lo}..{hi}");
                }
            }
        }
    }

    #[test]
    fn a_result_in_the_format_of_the_arithmetic_is_taken_as_it_is() {
        let interval = admitted(1.0, 1.5, Format::F32);
        let (error, bound) = interval.departure(1.5 + 2.0_f64.powi(-23));
        assert!(error > bound);
        let (error, bound) = interval.departure(1.5);
        assert!(error <= bound);
    }

    #[test]
    fn what_is_flushed_is_accepted_as_zero() {
        let profile = Profile { flush_to_zero: true, ..Profile::standard(Format::Bf16) };
        let ends = (2.0_f64.powi(-130), 2.0_f64.powi(-129));
        let at = |profile| Admitted::between(profile, Format::Bf16, ends, Upper::ZERO);
        let (error, bound) = at(&profile).expect("an interval").departure(0.0);
        assert!(error <= bound);
        let (error, bound) = at(&Profile::standard(Format::Bf16)).expect("one").departure(0.0);
        assert!(error > bound);
    }
}
