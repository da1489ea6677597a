//! The base and the sign in which a kernel gives its LSE (`FAS:choice.lse.base`,
//! `FAS:choice.lse.sign`).

use std::f64::consts::LN_2;

use flashproof_oracle::enclosure::Enclosure;

use crate::adapter::{Choices, LseBase, LseSign};

/// How the number of an element is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Convention {
    base: LseBase,
    sign: LseSign,
}

impl Convention {
    /// As it stands: for outputs, and for an LSE in nats.
    pub(crate) const PLAIN: Self = Self { base: LseBase::Natural, sign: LseSign::Plus };

    /// That of a kernel's LSE.
    pub(crate) const fn of_lse(choices: Choices) -> Self {
        Self { base: choices.lse_base, sign: choices.lse_sign }
    }

    /// Whether the sign is the other one.
    pub(super) fn is_negated(self) -> bool {
        self.sign == LseSign::Minus
    }

    /// What a kernel writes for a number.
    pub(crate) fn written(self, nats: f64) -> f64 {
        match self.base {
            LseBase::Natural => self.signed(nats),
            LseBase::Two => self.signed(nats / LN_2),
        }
    }

    /// The number with its sign as the kernel has it, or the kernel's with the usual one.
    pub(super) fn signed(self, x: f64) -> f64 {
        if self.is_negated() { -x } else { x }
    }

    /// What a kernel gave, in nats and with the usual sign: exactly, or within three units in the last
    /// place where it is in base two.
    pub(crate) fn nats(self, got: f64) -> f64 {
        let got = self.signed(got);
        match self.base {
            LseBase::Natural => got,
            LseBase::Two => got * LN_2,
        }
    }

    /// The least error, in nats, of what a kernel gave.
    pub(super) fn least_error(self, got: f64, enclosure: &Enclosure) -> f64 {
        let got = self.signed(got);
        if self.base == LseBase::Natural {
            return enclosure.error_of(got).0;
        }
        let (below, above) = in_nats(got);
        let at_an_end = enclosure.error_of(below).0.max(enclosure.error_of(above).0);
        // |x - end| - |x - got| is at most the interval's width.
        (at_an_end - (above - below).next_up()).next_down().max(0.0)
    }

    /// The most error, in nats, of what a kernel gave.
    pub(super) fn most_error(self, got: f64, enclosure: &Enclosure) -> f64 {
        let got = self.signed(got);
        if self.base == LseBase::Natural {
            return enclosure.error_of(got).1;
        }
        let (below, above) = in_nats(got);
        enclosure.error_of(below).1.max(enclosure.error_of(above).1)
    }
}

/// Bounds on an LSE in nats that is given in base two.
fn in_nats(got: f64) -> (f64, f64) {
    // `LN_2` and the product each err by half an ulp of theirs, together below two ulps of the
    // product; the third is for the second order.
    let nats = got * LN_2;
    (nats.next_down().next_down().next_down(), nats.next_up().next_up().next_up())
}
