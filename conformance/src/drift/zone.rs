//! Where elements stand among a kernel's key blocks.
//!
//! Taken from the schedule that the kernel declares, with blocks that start at key 0. A row of output,
//! LSE or `dQ` runs through the blocks of the keys that it sees; an element of `dK`, `dV` or `dBias`
//! stands in the block of its key.

use std::fmt;

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Profile, Schedule};
use serde::{Deserialize, Serialize};

use crate::verdict::{Location, Position, Quantity};

/// A place among key blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Zone {
    /// The kernel declares no blocks, or the element has no key.
    Whole,
    /// The row sees no key.
    Empty,
    /// All keys that it sees, or all there are, lie in one block: nothing is carried between blocks.
    Single,
    /// In the first block of several.
    First,
    /// A row that ends with a full block, of several; a key that stands in one between first and last.
    Interior,
    /// In the last block of several, a full one.
    Last,
    /// In the last block of several, which the length does not fill; a row that ends there.
    Tail,
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Whole => "no blocks",
            Self::Empty => "no keys",
            Self::Single => "one block",
            Self::First => "first block",
            Self::Interior => "interior",
            Self::Last => "last block",
            Self::Tail => "tail block",
        })
    }
}

impl Zone {
    /// The key in a snapshot.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Whole => "whole",
            Self::Empty => "empty",
            Self::Single => "single",
            Self::First => "first",
            Self::Interior => "interior",
            Self::Last => "last",
            Self::Tail => "tail",
        }
    }
}

/// The zones of one problem's elements.
pub(super) struct Zones {
    /// Keys of a block and of the problem; absent without blocks.
    blocks: Option<Blocks>,
    /// Of each row, in row-major order of `[batch, head, query]`.
    rows: Vec<Zone>,
    heads: usize,
    queries: usize,
    /// Whether an element of the bias stands at one key.
    bias_has_keys: bool,
}

#[derive(Clone, Copy)]
struct Blocks {
    keys: usize,
    key_len: usize,
}

impl Zones {
    pub(super) fn new(problem: &Problem, profile: &Profile) -> Self {
        let key_len = problem.key_len;
        let blocks = match profile.schedule {
            Schedule::Blocks(keys) => Some(Blocks { keys: keys.max(1), key_len }),
            Schedule::Dense | Schedule::Undeclared => None,
        };
        let [batch, heads, queries] = problem.lse_shape();
        let row = |(batch, head, query)| {
            let visible = problem.visible_keys(batch, head, query);
            match (blocks, visible.first(), visible.last()) {
                (_, None, _) | (_, _, None) => Zone::Empty,
                (None, ..) => Zone::Whole,
                (Some(blocks), Some(&first), Some(&last)) => blocks.of_row(first, last),
            }
        };
        let rows = ndarray::indices((batch, heads, queries)).into_iter().map(row).collect();
        let bias_has_keys = problem.bias.is_some_and(|bias| bias.shape[3] == key_len);
        Self { blocks, rows, heads, queries, bias_has_keys }
    }

    /// The zone of an element.
    pub(super) fn of(&self, quantity: Quantity, location: Location) -> Zone {
        let Location { batch, head, .. } = location;
        match location.position {
            Position::Query(query) => {
                let row = (batch * self.heads + head) * self.queries + query;
                self.rows.get(row).copied().unwrap_or(Zone::Whole)
            }
            Position::Pair { .. } if !self.bias_has_keys => Zone::Whole,
            Position::Key(key) | Position::Pair { key, .. } => {
                self.blocks.map_or(Zone::Whole, |blocks| blocks.of_key(key))
            }
            Position::Head => {
                debug_assert_eq!(quantity, Quantity::SinkGradient);
                Zone::Whole
            }
        }
    }
}

impl Blocks {
    const fn of_row(self, first: usize, last: usize) -> Zone {
        if first / self.keys == last / self.keys {
            Zone::Single
        } else if self.is_in_tail(last) {
            Zone::Tail
        } else {
            Zone::Interior
        }
    }

    const fn of_key(self, key: usize) -> Zone {
        let (block, last) = (key / self.keys, self.key_len.saturating_sub(1) / self.keys);
        if last == 0 {
            Zone::Single
        } else if block == 0 {
            Zone::First
        } else if self.is_in_tail(key) {
            Zone::Tail
        } else if block == last {
            Zone::Last
        } else {
            Zone::Interior
        }
    }

    /// Whether the key's block is cut short by the length.
    const fn is_in_tail(self, key: usize) -> bool {
        key / self.keys == self.key_len / self.keys
    }
}

#[cfg(test)]
mod tests {
    use flashproof_oracle::row::RowIndex;
    use flashproof_spec::format::Format;
    use flashproof_spec::mask::{Mask, Rule};

    use super::*;

    #[test]
    fn rows_and_keys_stand_where_the_schedule_says() {
        let mut problem = Problem::new(Format::F32, 2, 10, 4);
        problem.mask = Mask { rules: vec![Rule::CausalTopLeft, Rule::KeyLengths(vec![10])] };
        let profile = Profile { schedule: Schedule::Blocks(4), ..Profile::standard(Format::F32) };
        let zones = Zones::new(&problem, &profile);
        let row = |query| {
            let row = RowIndex { batch: 0, head: 1, query };
            zones.of(Quantity::Output, Location::of_row(row, Some(0)))
        };
        assert_eq!([0, 3, 4, 7, 8, 9].map(row), {
            [Zone::Single, Zone::Single, Zone::Interior, Zone::Interior, Zone::Tail, Zone::Tail]
        });
        let key = |key| {
            zones.of(
                Quantity::KeyGradient,
                Location::of_element(Quantity::KeyGradient, &[0, 0, key, 0]),
            )
        };
        assert_eq!([0, 3, 4, 7, 8].map(key), {
            [Zone::First, Zone::First, Zone::Interior, Zone::Interior, Zone::Tail]
        });
    }

    #[test]
    fn a_full_last_block_is_no_tail() {
        let blocks = Blocks { keys: 4, key_len: 8 };
        assert_eq!([0, 4, 7].map(|key| blocks.of_key(key)), [Zone::First, Zone::Last, Zone::Last]);
        assert_eq!(blocks.of_row(0, 7), Zone::Interior);
        assert_eq!(Blocks { keys: 4, key_len: 4 }.of_key(3), Zone::Single);
    }
}
