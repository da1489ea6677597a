//! The maxima that a row's weights are relative to, and how far a kernel's lie from the exact ones.
//!
//! Scores are taken in the unit of `m - s_i`. The kernel's are `s_i + E_i` with `|E_i| <= e_i`: their
//! error ([`super::super::score`]) and, where they are rounded after the scale has multiplied them, that
//! rounding. What multiplies all of a row's scores does not change which is the greatest, and is left
//! to their differences.
//!
//! # Frames
//! The running maximum of the terms up to and including some block lies between `max (s_i - e_i)` and
//! `max (s_i + e_i)` over those. A block none of whose `s_i + e_i` reaches the first of these, taken
//! before it, moves the maximum in no kernel. So blocks fall into *frames*: runs that surely share one
//! computed maximum, which is the exact one, `m_f`, but for `-L_f <= E <= U_f`,
//!
//! ```text
//! L_f = min (m_f - s_i + e_i)    U_f = max (e_i - (m_f - s_i))
//! ```
//!
//! over the terms up to the first block of the frame. A sink is a term without a value, in a block of
//! its own before all others (or, under [`MaxPolicy::Row`], in the only one).
//!
//! # A weight
//! Relative to the exact weight in the exact frame, `x_i = e^(s_i - m_f)`, the kernel's is
//! `x_i e^d` with
//!
//! ```text
//! |d| <= D_i = e_i + E_f + (n_c + 3) u (m_f - s_i + e_i + E_f) + u (|m_f| + E_f) + eps_exp
//! ```
//!
//! where `E_f = max(L_f, U_f)`: the errors of score and maximum, the roundings of factor, difference and
//! product with the factor, that of the reference, and the exponential. The maximum's own error is part
//! of it here: weights are rounded in the kernel's frame, not in a common one. Where one term is surely
//! the greatest it meets itself, and `d` is `eps_exp` alone, or with it the rounding of the reference
//! where a fused product leaves that on one side.
//!
//! # Rescaling
//! What frame `f` is multiplied by until the end is `e^(m_f - m) e^r`, and the factors of one row
//! telescope ([`super::super::weight`]):
//!
//! ```text
//! |r| <= E_f + E_last + (n_c + 3) u (m - m_f + E_f + E_last) + u (|m_f| + E_f + |m| + E_last) + K eps_exp
//! ```
//!
//! with as many exponentials `K` as frames follow. `r` is common to numerator and normalizer, and 0 for
//! the last frame. A frame whose maximum is so low that `e^(m_f - m)` has left the range of `f64`
//! *vanishes*: what is in it counts for nothing but for a bound on that, evaluated in the exponent.

use std::ops::Range;

use super::super::outward::{Lower, Upper};
use super::super::weight::{self, Scores};
use super::super::{RowCondition, exponential, sink};
use crate::problem::Problem;
use crate::profile::{MaxPolicy, Profile, Schedule};

/// A visible key, or the sink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Term {
    /// Where it stands among the visible keys; `None` for the sink.
    pub(super) key: Option<usize>,
    block: usize,
    /// `m - s`.
    pub(super) gap: (f64, f64),
    /// `e_i`.
    error: Upper,
    magnitude: Upper,
    /// `e^(s - m) / l`.
    pub(super) probability: (f64, f64),
    /// Whether a kernel may have no score here but minus infinity.
    pub(super) may_vanish: bool,
}

/// Terms that surely meet one computed maximum.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) terms: Range<usize>,
    /// `m - m_f`.
    gap: (f64, f64),
    /// `e^(m_f - m) / l`.
    pub(super) scale: (f64, f64),
    /// `L_f` and `U_f`.
    below: Upper,
    above: Upper,
    /// `|m_f|`, from above.
    magnitude: Upper,
    /// The term that is surely the greatest.
    greatest: Option<usize>,
    /// `e^|r| - 1`.
    pub(super) growth: Upper,
    /// `e^-|r|`.
    pub(super) shrinkage: Lower,
    /// Where the frame vanishes, the most that anything in it is multiplied by in the end, over `l`.
    pub(super) vanished: Option<Upper>,
}

/// The terms of a row and their frames.
#[derive(Debug)]
pub(super) struct Maxima<'a> {
    profile: &'a Profile,
    /// In ascending order of block.
    pub(super) terms: Vec<Term>,
    pub(super) frames: Vec<Frame>,
    roundings: Roundings,
}

/// What the profile's operations between scores and weights cost.
#[derive(Clone, Copy, Debug)]
struct Roundings {
    /// `(n_c + 3) u`.
    per_gap: Upper,
    /// `u`, of a reference.
    per_reference: Upper,
    /// `eps_exp`.
    exponential: Upper,
}

impl Roundings {
    fn new(profile: &Profile) -> Self {
        /// Difference, product with the factor, and one for the second order.
        const DIFFERENCE_ROUNDINGS: usize = 3;
        let u = weight::unit(profile);
        let per_gap = u.compound(profile.scale_roundings as usize + DIFFERENCE_ROUNDINGS);
        let exponential = weight::exponential_error(profile);
        Self {
            per_gap,
            per_reference: u * (Upper::ONE + per_gap),
            exponential: exponential / exponential.complement(),
        }
    }
}

/// What is known of the maximum of some terms.
#[derive(Clone, Copy)]
struct Extremes {
    /// Least `m - s`.
    gap: (f64, f64),
    /// Least `m - s + e`: no computed maximum is further below `m`.
    least: Upper,
    /// Largest and second largest `e - (m - s)`: no computed maximum is further above `m`.
    most: f64,
    second: f64,
    /// The term of the largest one.
    top: usize,
    scale: (f64, f64),
    magnitude: Upper,
}

impl Extremes {
    const NONE: Self = Self {
        gap: (f64::INFINITY, f64::INFINITY),
        least: Upper::INFINITE,
        most: f64::NEG_INFINITY,
        second: f64::NEG_INFINITY,
        top: 0,
        scale: (0.0, 0.0),
        magnitude: Upper::ZERO,
    };

    fn include(&mut self, index: usize, term: &Term) {
        self.gap = (self.gap.0.min(term.gap.0), self.gap.1.min(term.gap.1));
        self.scale = (self.scale.0.max(term.probability.0), self.scale.1.max(term.probability.1));
        self.magnitude = self.magnitude.max(term.magnitude);
        if !term.may_vanish {
            self.least = self.least.min(weight::magnitude(term.gap.1) + term.error);
        }
        let most = term.most();
        if most > self.most {
            (self.second, self.most, self.top) = (self.most, most, index);
        } else {
            self.second = self.second.max(most);
        }
    }

    /// Whether a maximum of these is surely above one that is at most `most` above `m`.
    fn is_above(&self, most: f64) -> bool {
        (most + self.least.get()).next_up() < 0.0
    }
}

impl Term {
    /// At least `e - (m - s)`.
    fn most(&self) -> f64 {
        (self.error.get() - self.gap.0).next_up()
    }
}

impl<'a> Maxima<'a> {
    /// `keys` are the positions of the row's visible keys; `None` where blocks are not declared.
    pub(super) fn new(
        problem: &Problem,
        profile: &'a Profile,
        row: &RowCondition,
        keys: &[usize],
    ) -> Option<Self> {
        let block = match (profile.max_policy?, profile.schedule) {
            (MaxPolicy::Running, Schedule::Blocks(keys)) => keys.max(1),
            (MaxPolicy::Row, Schedule::Dense) => usize::MAX,
            _ => return None,
        };
        let terms = terms(problem, profile, row, keys, block);
        let mut all = Self {
            profile,
            frames: frames(&terms, weight::magnitude(row.max_magnitude_hi)),
            terms,
            roundings: Roundings::new(profile),
        };
        all.rescale(row);
        Some(all)
    }

    /// Bounds what becomes of each frame until the end.
    fn rescale(&mut self, row: &RowCondition) {
        let Self { frames, roundings, .. } = self;
        let count = frames.len();
        let Some(last) = frames.last().cloned() else { return };
        for (index, frame) in frames[..count - 1].iter_mut().enumerate() {
            let (own, end) = (frame.below.max(frame.above), last.below.max(last.above));
            let rounding = roundings.per_gap * weight::magnitude(frame.gap.1)
                + roundings.per_gap * (own + end)
                + roundings.per_reference * (frame.magnitude + own)
                + roundings.per_reference * (last.magnitude + end)
                + roundings.exponential * Upper::count(count - 1 - index);
            let (up, down) =
                (frame.above + last.below + rounding, frame.below + last.above + rounding);
            let either = up.max(down);
            frame.growth = either.exp_m1();
            frame.shrinkage = either.exp_neg();
            if frame.scale.1 < f64::MIN_POSITIVE {
                let rounding = roundings.per_gap * weight::magnitude(frame.gap.1)
                    + roundings.per_gap * (frame.above + end)
                    + roundings.per_reference * (frame.magnitude + frame.above)
                    + roundings.per_reference * (last.magnitude + end)
                    + roundings.exponential * Upper::count(count - 1 - index);
                let up = frame.above + last.below + rounding;
                let lo = Lower::new(row.normalizer_lo);
                frame.vanished = Some(exponential::of_sum(-frame.gap.0, up) / lo);
            }
        }
    }

    /// `D_i`: how far the logarithm of a term's weight can lie from that of the exact one.
    pub(super) fn log_error(&self, frame: &Frame, index: usize) -> Upper {
        let Roundings { per_gap, per_reference, exponential } = self.roundings;
        let of_maximum = frame.below.max(frame.above);
        let reference = per_reference * (frame.magnitude + of_maximum);
        if frame.greatest == Some(index) {
            // It meets itself.
            let apart = if self.profile.scaled_score_rounded { Upper::ZERO } else { reference };
            return apart + exponential;
        }
        let term = &self.terms[index];
        let gap = Upper::new((term.gap.1 - frame.gap.0).next_up());
        let slack = term.error + of_maximum;
        slack + per_gap * gap + per_gap * slack + reference + exponential
    }

    /// Bounds on the kernel's weight of a term whose `D_i` this is, where no weight exceeds `largest`.
    pub(super) fn weight(
        &self,
        frame: &Frame,
        index: usize,
        log_error: Upper,
        largest: Upper,
    ) -> (f64, f64) {
        let Term { probability: (lo, hi), gap, may_vanish, .. } = self.terms[index];
        let (scale_lo, scale_hi) = frame.scale;
        let tiny = weight::exponential_underflow(self.profile);
        let least = if frame.greatest == Some(index) {
            Lower::new(1.0)
        } else if may_vanish || scale_hi == 0.0 {
            Lower::ZERO
        } else {
            Lower::new((lo / scale_hi).next_down())
        };
        let least = least * log_error.exp_neg();
        let most = if frame.greatest == Some(index) {
            Upper::ONE
        } else {
            Upper::new(hi) / Lower::new(scale_lo)
        };
        let mut most = most * (Upper::ONE + log_error.exp_m1());
        if hi < f64::MIN_POSITIVE {
            // Below the normal range a probability no longer says how small it is.
            let log = -(gap.0 - frame.gap.1).next_down();
            most = most.min(exponential::of_sum(log, log_error));
        }
        let most = most.min(largest) + tiny;
        ((least.get() - tiny.get()).next_down().max(0.0), most.get())
    }
}

/// The terms of a row, in ascending order of block.
fn terms(
    problem: &Problem,
    profile: &Profile,
    row: &RowCondition,
    keys: &[usize],
    block: usize,
) -> Vec<Term> {
    let scores = Scores::new(problem, profile, row);
    let after_scale =
        if profile.scaled_score_rounded { weight::unit(profile) } else { Upper::ZERO };
    let rounded =
        |magnitude: Upper, error: Upper| error + after_scale * magnitude + after_scale * error;
    let of_sink = row.sink.map(|it| {
        let magnitude = Upper::new(it.logit.abs());
        Term {
            key: None,
            block: 0,
            gap: (it.gap_lo, it.gap_hi),
            error: rounded(magnitude, sink::logit_error(profile, it)),
            magnitude,
            probability: (it.probability_lo, it.probability_hi),
            may_vanish: false,
        }
    });
    // The first block is the sink's.
    let of_keys = keys.iter().enumerate().map(|(i, &position)| Term {
        key: Some(i),
        block: if block == usize::MAX { 0 } else { 1 + position / block },
        gap: (row.gap_lo[i], row.gap_hi[i]),
        error: rounded(scores.magnitudes[i], scores.errors[i]),
        magnitude: scores.magnitudes[i],
        probability: (row.probability_lo[i], row.probability_hi[i]),
        may_vanish: weight::may_vanish(problem, profile, row, (i, scores.errors[i])),
    });
    of_sink.into_iter().chain(of_keys).collect()
}

/// `largest` is `|m|`.
fn frames(terms: &[Term], largest: Upper) -> Vec<Frame> {
    let mut frames: Vec<Frame> = Vec::new();
    let mut so_far = Extremes::NONE;
    let mut start = 0;
    for block in terms.chunk_by(|a, b| a.block == b.block) {
        let end = start + block.len();
        let most = block.iter().map(Term::most).fold(f64::NEG_INFINITY, f64::max);
        let stays = so_far.is_above(most);
        for (offset, term) in block.iter().enumerate() {
            so_far.include(start + offset, term);
        }
        match frames.last_mut() {
            Some(frame) if stays => frame.terms.end = end,
            _ => frames.push(Frame::new(start..end, &so_far, largest)),
        }
        start = end;
    }
    frames
}

impl Frame {
    /// Of the terms of its first block, given all up to it.
    fn new(terms: Range<usize>, so_far: &Extremes, largest: Upper) -> Self {
        let Extremes { gap, least, most, second, top, scale, magnitude } = *so_far;
        Self {
            terms,
            gap,
            scale,
            below: weight::excess(least, gap.0),
            above: Upper::new((most + gap.1).next_up()),
            // It is one of the scores, and no further from 0 than the greatest and its gap.
            magnitude: magnitude.min(largest + weight::magnitude(gap.1)),
            greatest: so_far.is_above(second).then_some(top),
            growth: Upper::ZERO,
            shrinkage: Lower::new(1.0),
            vanished: None,
        }
    }
}
