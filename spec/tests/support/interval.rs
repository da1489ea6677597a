//! Interval arithmetic: every result contains the exact one, so that a comparison of intervals
//! needs no tolerance.

use std::cmp::Ordering;

use flashproof_spec::arithmetic::Arithmetic;
use rug::Float;
use rug::float::Round;

/// Bits of the bounds.
const BITS: u32 = 300;

/// Intervals whose bounds are rounded outward.
pub struct Intervals;

/// All real numbers from `lo` to `hi`.
#[derive(Clone, Debug, PartialEq)]
pub struct Interval {
    lo: Float,
    hi: Float,
}

impl Interval {
    /// The number itself.
    pub fn exact(x: f64) -> Self {
        let point = Float::with_val(BITS, x);
        Self { lo: point.clone(), hi: point }
    }

    /// The largest magnitude in it.
    pub fn magnitude(&self) -> Float {
        let lo = Float::with_val(BITS, self.lo.abs_ref());
        lo.max(&Float::with_val(BITS, self.hi.abs_ref()))
    }

    /// The smallest magnitude in it: 0 where it contains 0.
    pub fn mignitude(&self) -> Float {
        if self.lo <= 0 && self.hi >= 0 {
            Float::new(BITS)
        } else {
            let lo = Float::with_val(BITS, self.lo.abs_ref());
            lo.min(&Float::with_val(BITS, self.hi.abs_ref()))
        }
    }

    /// The interval that `f` makes of both bounds, rounding down and up.
    fn ends(lo: impl Fn(Round) -> Float, hi: impl Fn(Round) -> Float) -> Self {
        Self { lo: lo(Round::Down), hi: hi(Round::Up) }
    }
}

impl PartialOrd for Interval {
    /// The order of the lower bounds: that of references, any of which gives the same row.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        self.lo.partial_cmp(&other.lo)
    }
}

impl Arithmetic for Intervals {
    type Score = Interval;
    type Number = Interval;

    fn zero(&self) -> Interval {
        Interval::exact(0.0)
    }

    fn add(&self, a: &Interval, b: &Interval) -> Interval {
        Interval::ends(
            |round| Float::with_val_round(BITS, &a.lo + &b.lo, round).0,
            |round| Float::with_val_round(BITS, &a.hi + &b.hi, round).0,
        )
    }

    fn sub(&self, a: &Interval, b: &Interval) -> Interval {
        Interval::ends(
            |round| Float::with_val_round(BITS, &a.lo - &b.hi, round).0,
            |round| Float::with_val_round(BITS, &a.hi - &b.lo, round).0,
        )
    }

    fn mul(&self, a: &Interval, b: &Interval) -> Interval {
        let products = |round| {
            let product = |x: &Float, y: &Float| Float::with_val_round(BITS, x * y, round).0;
            [
                product(&a.lo, &b.lo),
                product(&a.lo, &b.hi),
                product(&a.hi, &b.lo),
                product(&a.hi, &b.hi),
            ]
        };
        Interval::ends(
            |round| products(round).into_iter().reduce(|x, y| x.min(&y)).expect("four products"),
            |round| products(round).into_iter().reduce(|x, y| x.max(&y)).expect("four products"),
        )
    }

    fn div(&self, a: &Interval, b: &Interval) -> Interval {
        assert!(b.lo > 0, "a divisor that is not known to be positive");
        let reciprocal = Interval::ends(
            |round| Float::with_val_round(BITS, 1 / &b.hi, round).0,
            |round| Float::with_val_round(BITS, 1 / &b.lo, round).0,
        );
        self.mul(a, &reciprocal)
    }

    fn weight(&self, score: &Interval, reference: &Interval) -> Interval {
        let gap = self.sub(score, reference);
        Interval::ends(
            |round| Float::with_val_round(BITS, gap.lo.exp_ref(), round).0,
            |round| Float::with_val_round(BITS, gap.hi.exp_ref(), round).0,
        )
    }

    fn lse(&self, reference: &Interval, normalizer: &Interval) -> Interval {
        assert!(normalizer.lo > 0, "a normalizer that is not known to be positive");
        let logarithm = Interval::ends(
            |round| Float::with_val_round(BITS, normalizer.lo.ln_ref(), round).0,
            |round| Float::with_val_round(BITS, normalizer.hi.ln_ref(), round).0,
        );
        self.add(reference, &logarithm)
    }

    fn shift(&self, score: &Interval, by: &Interval) -> Interval {
        self.add(score, by)
    }
}
