//! Trivial answers beside a kernel's own, against the same exact answers.
//!
//! Rows of the oracle cost far more than anything here, so they are computed once, for the kernel,
//! and shown to every trivial answer as they pass. What is shown is the exact answer rounded to the
//! output's format, not its enclosure, with its hard bound: an element that is nearer to that than the
//! rounding is not held to be wrong, and an answer that is nowhere wrong is judged again, in full.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;

use super::{Answer, Mark, Question, Reason, Replaced, mark};
use crate::verdict::{Answer as Judged, Compared, Convention, Quantity, Standing, Want};

/// The trivial answers to one question, while elements of a right answer pass.
pub(crate) struct Trial {
    tried: Vec<Tried>,
    convention: Convention,
}

/// One trivial answer.
pub(crate) struct Tried {
    pub(crate) answer: Answer,
    pub(crate) replaced: Replaced,
    wrong: AtomicBool,
    /// Bits of the largest error over bound; those of numbers from 0 on are ordered as they are.
    largest: AtomicU64,
}

/// What an element comes to.
#[derive(Clone, Copy)]
enum Seen {
    /// Within its bound or nearly so, by this ratio to it, or what is required, or not to be proven
    /// wrong.
    Admitted(f64),
    Wrong,
}

impl Trial {
    /// These answers to the question.
    pub(crate) fn new(answers: impl Iterator<Item = Answer>, question: &Question<'_>) -> Self {
        let tried = |answer| Tried {
            answer,
            replaced: Replaced::of(answer, question),
            wrong: AtomicBool::new(false),
            largest: AtomicU64::new(0),
        };
        Self { tried: answers.map(tried).collect(), convention: question.convention }
    }

    /// Shows each answer, where it is not known to be wrong, the elements of a row.
    pub(crate) fn visit(&self, compared: &[Compared]) {
        for tried in self.surviving() {
            for compared in compared {
                tried.record(self.seen(&tried.replaced, compared));
            }
        }
    }

    /// The answers that are not known to be wrong.
    pub(crate) fn surviving(&self) -> impl Iterator<Item = &Tried> {
        self.tried.iter().filter(|tried| !tried.wrong.load(Ordering::Relaxed))
    }

    fn seen(&self, replaced: &Replaced, compared: &Compared) -> Seen {
        let Compared { quantity, element, standing, strict: _ } = compared;
        let Some(tensor) = replaced.get(*quantity) else { return Seen::Admitted(0.0) };
        if matches!(standing, Standing::Unbounded | Standing::Unspecified) {
            return Seen::Admitted(0.0);
        }
        let got = tensor.values()[&element.location.indices()[..]];
        match (element.want, element.bound) {
            (Want::Number(want), Some(bound)) => {
                let lse = *quantity == Quantity::Lse;
                let convention = if lse { self.convention } else { Convention::PLAIN };
                distance(tensor.format(), convention, got, want, bound)
            }
            // The kernel's own element is no number, and its bound was not kept.
            (Want::Number(_), None) => Seen::Admitted(0.0),
            (want, _) if want.admits(got) => Seen::Admitted(0.0),
            _ => Seen::Wrong,
        }
    }
}

impl Tried {
    pub(crate) fn condemn(&self) {
        self.wrong.store(true, Ordering::Relaxed);
    }

    /// The largest error over bound of elements that are numbers.
    fn largest_ratio(&self) -> f64 {
        f64::from_bits(self.largest.load(Ordering::Relaxed))
    }

    /// What it is marked with, where it is wrong nowhere; `consistent` where nothing but agreement was
    /// asked of it.
    pub(crate) fn mark(&self, rows: &[RowIndex], right: &Judged<'_>, consistent: bool) -> Mark {
        let Judged { problem, inputs, .. } = *right;
        let reason = if consistent {
            Reason::Consistent
        } else {
            mark::reason(self.answer, rows, problem, inputs)
        };
        Mark { answer: self.answer, reason, largest_ratio: self.largest_ratio() }
    }

    fn record(&self, seen: Seen) {
        match seen {
            Seen::Admitted(ratio) => {
                self.largest.fetch_max(ratio.to_bits(), Ordering::Relaxed);
            }
            Seen::Wrong => self.condemn(),
        }
    }
}

/// Compares with the rounded exact answer, which differs from the exact one by half a unit in the last
/// place at most.
fn distance(format: Format, convention: Convention, got: f64, want: f64, bound: f64) -> Seen {
    /// Roundings in `f64` of what is compared here, a change of base included, twice over.
    const ROUNDINGS: f64 = 16.0 * f64::EPSILON;
    if !got.is_finite() {
        return Seen::Wrong;
    }
    // A bound leaves room for the rounding of the output.
    if got.to_bits() == want.to_bits() {
        return Seen::Admitted(0.0);
    }
    let (got, want) = (convention.nats(got), convention.nats(want));
    let distance = (got - want).abs();
    let unit = 2.0 * format.unit_roundoff() * want.abs() + format.smallest_subnormal();
    let slack = unit + ROUNDINGS * (bound + want.abs() + got.abs());
    if distance > bound + slack { Seen::Wrong } else { Seen::Admitted(distance / (bound + slack)) }
}
