//! What a kernel holds after each block, beside what it should hold.
//!
//! A kernel shows no state, only its answers. So it is asked for *prefixes*: problems of which the exact
//! answer is the state after a block. The first prefix whose answer is wrong is the block where kernel
//! and exact state part.
//!
//! | failure | prefix |
//! |---|---|
//! | output, LSE | the same row with the keys after the block hidden |
//! | `dQ` | the values after the block set to 0: `dQ` is linear in the values |
//! | `dK`, `dV`, `dBias`, `dSink` | the upstream gradients of the rows after the block set to 0: all are linear in them |

mod exact;
mod forward;
mod gradient;

use std::ops::Range;

use flashproof_spec::profile::{Profile, Schedule};
use serde::Serialize;

use super::target::Target;
use crate::adapter::Subject;
use crate::report::number;
use crate::run::{Examined, Instance, RunError};
use crate::verdict::{Compared, Element, Location, Quantity, Standing};

/// Keys of a block where the kernel declares no schedule.
const DEFAULT_BLOCK: usize = 64;

/// Most steps of one level: as many rows as one reads.
const STEPS: usize = 16;

/// What a trace needs of a failing instance.
struct Scene<'s> {
    subject: &'s mut dyn Subject,
    profile: &'s Profile,
    target: &'s Target,
    instance: &'s Instance,
    examined: &'s Examined,
    name: &'s str,
}

/// The failing element from block to block.
#[derive(Clone, Debug, Serialize)]
pub struct Trace {
    /// Which output.
    pub quantity: Quantity,
    /// The element that is followed.
    pub location: Location,
    /// What is taken block by block.
    pub along: Along,
    /// The rows that are summed, in words, in the order in which they are taken; empty for the others.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rows: Vec<String>,
    /// How the kernel was asked for its state.
    pub probe: Probe,
    /// Blocks; then parts of the block where answer and exact answer part, down to single keys or
    /// rows.
    pub levels: Vec<Level>,
}

/// What a trace goes along.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Along {
    /// The keys of the row.
    Keys,
    /// The values of the row's keys.
    Values,
    /// The query rows that contribute to the element.
    Rows,
}

impl Along {
    /// One of them, in words.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Keys => "key",
            Self::Values => "value",
            Self::Rows => "row",
        }
    }
}

/// How a kernel is asked for its state after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Probe {
    /// Later keys are hidden by a boolean mask; with a mask that hides none, the kernel's answer was
    /// that without it, bit for bit.
    HiddenKeys,
    /// Later keys are cut off.
    CutKeys,
    /// Later values are set to 0.
    ZeroValues,
    /// The upstream gradients of later rows are set to 0.
    ZeroUpstream,
}

impl Probe {
    /// What was done, in words.
    #[must_use]
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::HiddenKeys => "the kernel asked with the keys after each block hidden by a mask",
            Self::CutKeys => "the kernel asked with the keys after each block cut off",
            Self::ZeroValues => {
                "the kernel asked with the values after each block set to 0, in which dQ is linear"
            }
            Self::ZeroUpstream => {
                "the kernel asked with the upstream gradients of the rows after each block set to 0"
            }
        }
    }
}

/// Consecutive blocks.
#[derive(Clone, Debug, Serialize)]
pub struct Level {
    /// The blocks, in order.
    pub steps: Vec<Step>,
    /// The first of them after which the answer is wrong; `None` where all are right.
    pub parts: Option<usize>,
}

/// A block, and the answer to everything up to its end.
#[derive(Clone, Debug, Serialize)]
pub struct Step {
    /// The first position of the block.
    pub start: usize,
    /// One past its last position.
    pub end: usize,
    /// The row's exact state after it; absent for gradients, and where infinities or NaN take part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// The normalizer that the kernel's LSE implies against the exact `m`; absent where `state` is, and
    /// where it gives none that counts the same terms.
    #[serde(serialize_with = "number::serialize_option", skip_serializing_if = "Option::is_none")]
    pub kernel_l: Option<f64>,
    /// The element that is followed; absent where the kernel gave no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub element: Option<Element>,
    /// The LSE beside an output that is followed, and the output beside an LSE.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub beside: Option<Element>,
    /// A clause that the answer violates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub violates: Option<&'static str>,
    /// Why there is no answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_answer: Option<String>,
}

/// The state of the online softmax (`FAS:fwd.online.absorb`), in `f64`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct State {
    /// The greatest score so far.
    #[serde(serialize_with = "number::serialize")]
    pub m: f64,
    /// The normalizer.
    #[serde(serialize_with = "number::serialize")]
    pub l: f64,
    /// The numerator of the output entry that is followed.
    #[serde(serialize_with = "number::serialize")]
    pub n: f64,
    /// `n / l`; 0 where no key has been seen.
    #[serde(serialize_with = "number::serialize")]
    pub output: f64,
}

impl Trace {
    /// Consecutive positions in words: their numbers, or the rows that they are.
    #[must_use]
    pub fn positions(&self, range: &Range<usize>) -> String {
        let name = |at: usize| self.rows.get(at).cloned().unwrap_or_else(|| at.to_string());
        match range.len() {
            0 => "none".to_owned(),
            1 => name(range.start),
            _ if self.rows.is_empty() => format!("{}-{}", range.start, range.end - 1),
            _ => format!("{} to {}", name(range.start), name(range.end - 1)),
        }
    }

    /// The smallest block after which kernel and exact state part first, and the clause that is violated
    /// there.
    #[must_use]
    pub fn parting(&self) -> Option<(Range<usize>, Option<&'static str>)> {
        let level = self.levels.iter().rev().find(|level| level.parts.is_some())?;
        let step = &level.steps[level.parts?];
        Some((step.start..step.end, step.violates))
    }
}

/// Follows the element by which the target's failure is known. `None` where its answer is not compared
/// with the exact one: there is none, or it is one bit for bit.
///
/// # Errors
/// [`RunError`] where a prefix could not be put to the kernel or to the oracle.
pub fn trace(
    subject: &mut dyn Subject,
    profile: &Profile,
    target: &Target,
    (instance, examined): (&Instance, &Examined),
    name: &str,
) -> Result<Option<Trace>, RunError> {
    if instance.poison.is_some() {
        return Ok(None);
    }
    let mut scene = Scene { subject, profile, target, instance, examined, name };
    if target.is_forward() { scene.forward() } else { scene.gradient() }
}

/// An answer to a prefix, or why there is none.
type Asked<T> = Result<Result<T, String>, RunError>;

/// Blocks of `block` positions, or of more where there are too many of them; single positions where one
/// block holds all and they are few.
fn blocks(count: usize, block: usize) -> Vec<Range<usize>> {
    let block = if count > block { block } else { 1 };
    let blocks = count.div_ceil(block.max(1));
    divided(0..count, block * blocks.div_ceil(STEPS).max(1))
}

/// Parts of a block.
fn parts(of: Range<usize>) -> Vec<Range<usize>> {
    let part = of.len().div_ceil(STEPS).max(1);
    divided(of, part)
}

fn divided(of: Range<usize>, by: usize) -> Vec<Range<usize>> {
    of.clone().step_by(by).map(|start| start..(start + by).min(of.end)).collect()
}

/// Keys in a block of the kernel's schedule.
const fn block_of(profile: &Profile) -> usize {
    match profile.schedule {
        Schedule::Blocks(keys) if keys > 0 => keys,
        _ => DEFAULT_BLOCK,
    }
}

/// Levels from blocks down to single positions: each divides the block where the one before parts.
fn levels(
    first: Vec<Range<usize>>,
    mut ask: impl FnMut(&[Range<usize>]) -> Result<Vec<Step>, RunError>,
) -> Result<Vec<Level>, RunError> {
    let mut levels = Vec::new();
    let mut ranges = first;
    loop {
        let steps = ask(&ranges)?;
        let parting = steps.iter().position(|step| step.violates.is_some());
        let next = parting.map(|at| ranges[at].clone()).filter(|range| range.len() > 1);
        levels.push(Level { steps, parts: parting });
        match next {
            Some(range) => ranges = parts(range),
            None => return Ok(levels),
        }
    }
}

/// The clause that an element violates, where it does.
const fn violated(compared: &Compared) -> Option<&'static str> {
    match compared.standing {
        Standing::Wrong(clause) => Some(clause),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn blocks_cover_every_position_once(count in 0..5000_usize, block in 1..200_usize) {
            let blocks = blocks(count, block);
            prop_assert!(blocks.len() <= STEPS);
            let all: Vec<usize> = blocks.iter().cloned().flatten().collect();
            prop_assert_eq!(all, (0..count).collect::<Vec<_>>());
            if count > block {
                prop_assert!(blocks.iter().all(|range| range.start.is_multiple_of(block)));
            }
        }

        #[test]
        fn parts_get_smaller(start in 0..500_usize, len in 2..5000_usize) {
            let of = start..start + len;
            let parts = parts(of.clone());
            prop_assert!(parts.len() <= STEPS && parts.len() > 1);
            prop_assert_eq!(parts.into_iter().flatten().collect::<Vec<_>>(), of.collect::<Vec<_>>());
        }
    }
}
