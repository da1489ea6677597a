//! What a number can be rounded to that is known up to an error.
//!
//! Rounding to nearest is monotone: what lies between two numbers rounds to something between their
//! roundings. Where those are one and the same, the number *snaps* to it, and its rounding error is
//! known exactly. Otherwise the middle between them stands for it, with half their distance as its
//! error: half an ulp, where a rounding boundary lies within the number's own error.

use super::super::outward::Upper;
use super::super::weight;
use super::narrows_weights;
use crate::profile::Profile;

/// A rounded number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Snapped {
    pub(super) centre: f64,
    /// What it can differ from that; zero where it snaps.
    pub(super) radius: Upper,
}

impl Snapped {
    /// What a number between `lo` and `hi` is, rounded to the weight format; the number itself where
    /// weights are not rounded. `None` where that may be infinite.
    pub(super) fn new(profile: &Profile, lo: f64, hi: f64) -> Option<Self> {
        let (lo, hi) = if narrows_weights(profile) { rounded(profile, lo, hi) } else { (lo, hi) };
        if !(lo.is_finite() && hi.is_finite()) {
            return None;
        }
        if lo == hi {
            return Some(Self { centre: lo, radius: Upper::ZERO });
        }
        let centre = f64::midpoint(lo, hi);
        let radius = (hi - centre).max(centre - lo).next_up();
        Some(Self { centre, radius: Upper::new(radius) })
    }

    /// Its magnitude, from above.
    pub(super) fn magnitude(&self) -> Upper {
        Upper::new(self.centre.abs()) + self.radius
    }
}

fn rounded(profile: &Profile, lo: f64, hi: f64) -> (f64, f64) {
    let format = profile.weight_format;
    let (least, most) = (format.round(lo), format.round(hi));
    if !weight::flushes(format, profile.flush_to_zero) {
        return (least, most);
    }
    // A subnormal one may or may not become zero.
    let normal = format.smallest_normal();
    let is_small = |x: f64| x.abs() < normal;
    let least = if is_small(lo) { least.min(0.0) } else { least };
    let most = if is_small(hi) { most.max(0.0) } else { most };
    (least, most)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Format;

    fn snapped(lo: f64, hi: f64) -> Snapped {
        Snapped::new(&Profile::standard(Format::Bf16), lo, hi).expect("a finite number")
    }

    #[test]
    fn between_boundaries_a_number_snaps() {
        let ulp = 2.0_f64.powi(-7);
        let at = snapped(1.0 - 0.2 * ulp, 1.0 + 0.4 * ulp);
        assert_eq!(at, Snapped { centre: 1.0, radius: Upper::ZERO });
        let across = snapped(1.0 + 0.4 * ulp, 1.0 + 0.6 * ulp);
        assert_eq!(across.centre, 1.0 + ulp / 2.0);
        assert!(across.radius.get() >= ulp / 2.0 && across.radius.get() < 0.5001 * ulp);
    }

    #[test]
    fn a_number_that_is_not_rounded_is_as_well_known_as_before() {
        let wide = Snapped::new(&Profile::standard(Format::F32), 0.3, 0.7).expect("finite");
        assert_eq!(wide.centre, 0.5);
        assert!(wide.radius.get() >= 0.2);
    }

    #[test]
    fn a_flushed_number_may_be_zero() {
        let profile = Profile { flush_to_zero: true, ..Profile::standard(Format::Bf16) };
        let tiny = 2.0_f64.powi(-128);
        let at = Snapped::new(&profile, tiny, tiny).expect("finite");
        assert!(at.centre - at.radius.get() <= 0.0 && at.centre + at.radius.get() >= tiny);
        let at = Snapped::new(&profile, -tiny, -tiny).expect("finite");
        assert!(at.centre - at.radius.get() <= -tiny && at.centre + at.radius.get() >= 0.0);
    }

    #[test]
    fn what_may_overflow_is_not_known() {
        let profile = Profile::standard(Format::F16);
        assert_eq!(Snapped::new(&profile, 60_000.0, 65_530.0), None);
    }
}
