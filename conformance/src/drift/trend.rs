//! Headroom over the accepted changes: where it was first, where it was accepted last, where it is.

use std::collections::BTreeMap;

use flashproof_spec::format::Format;

use super::compare::Comparison;
use super::figure::Figure;
use super::history::{Accepted, History};
use crate::verdict::Quantity;

/// What is left of headroom after a change that is taken for a large one.
///
/// A policy, not a measurement: half of what there was. A change that leaves less is seen when it is
/// made; several that each leave more are what a history is there to show.
pub const LARGE_STEP: f64 = 0.5;

/// The largest ratio of one output in one format, over the accepted changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Trend {
    /// The format of the inputs.
    pub format: Format,
    /// Which output.
    pub quantity: Quantity,
    /// Before the first accepted change.
    pub first: f64,
    /// After each accepted change, oldest first.
    pub accepted: Vec<f64>,
    /// Now.
    pub now: f64,
}

/// The trend of each output that the history knows, the largest ratio first.
#[must_use]
pub fn trends(history: &History, comparison: &Comparison<'_>) -> Vec<Trend> {
    let after = comparison.after;
    let entries: Vec<_> = history.of(&after.kernel, &after.asked).collect();
    let mut trends: Vec<_> = comparison
        .largest()
        .into_iter()
        .filter_map(|(of, [_, now])| Trend::new(&entries, of, now))
        .collect();
    trends.sort_by(|a, b| b.now.total_cmp(&a.now));
    trends
}

impl Trend {
    fn new(entries: &[&Accepted], of: (Format, Quantity), now: f64) -> Option<Self> {
        let (format, quantity) = of;
        let ratios = |entry: &&Accepted| {
            let of_format: &BTreeMap<_, _> = entry.largest.get(&format)?;
            of_format.get(&quantity).map(|ratios| ratios.map(Figure::get))
        };
        let steps: Vec<_> = entries.iter().filter_map(ratios).collect();
        let first = steps.first()?[0];
        let accepted = steps.iter().map(|[_, after]| *after).collect();
        Some(Self { format, quantity, first, accepted, now })
    }

    /// Whether the headroom ever was another.
    #[must_use]
    pub fn moved(&self) -> bool {
        self.accepted.iter().chain([&self.now]).any(|ratio| *ratio != self.first)
    }

    /// How much of the headroom is gone since the first.
    #[must_use]
    pub const fn shrunk(&self) -> f64 {
        self.now - self.first
    }

    /// Whether half of the first headroom or more is gone, and no single step took half of what there
    /// was: nobody would have stopped at any of them.
    #[must_use]
    pub fn creeps(&self) -> bool {
        let all: Vec<_> = [self.first]
            .into_iter()
            .chain(self.accepted.iter().copied())
            .chain([self.now])
            .collect();
        is_large(self.first, self.now) && !all.windows(2).any(|step| is_large(step[0], step[1]))
    }
}

/// Whether a change of the largest ratio leaves no more than [`LARGE_STEP`] of the headroom.
#[must_use]
pub fn is_large(before: f64, after: f64) -> bool {
    after > before && 1.0 - after <= LARGE_STEP * (1.0 - before)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trend(first: f64, accepted: &[f64], now: f64) -> Trend {
        let accepted = accepted.to_vec();
        Trend { format: Format::F32, quantity: Quantity::Output, first, accepted, now }
    }

    #[test]
    fn many_small_steps_creep_and_one_large_one_does_not() {
        assert!(trend(0.2, &[0.4, 0.6, 0.75, 0.85], 0.9).creeps());
        assert!(!trend(0.2, &[0.9], 0.9).creeps());
        assert!(!trend(0.2, &[0.21, 0.22], 0.23).creeps());
        assert!(!trend(0.9, &[0.5], 0.2).creeps());
    }

    #[test]
    fn a_step_is_large_that_leaves_half_of_the_headroom_or_less() {
        assert!(is_large(0.2, 0.6) && is_large(0.5, 2.0) && is_large(0.0, f64::INFINITY));
        assert!(!is_large(0.2, 0.59) && !is_large(0.6, 0.2) && !is_large(0.3, 0.3));
    }
}
