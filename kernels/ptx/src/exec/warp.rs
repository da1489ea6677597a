//! Which lanes of a warp run together, and where those that part meet again.
//!
//! Lanes that execute together form a *fragment*. At a branch that they part at, a fragment becomes
//! two, and a *join* is set up at the instruction where their paths meet again: a fragment that
//! reaches it waits until all lanes of the join that have not ended have come. Fragments of a warp
//! take turns, so that one may wait for what another does, as on devices since `sm_70`.

use super::copy::Copies;
use super::product::Products;
use super::registers::Registers;
use crate::isa::operand::Destination;
use crate::isa::operation::BarrierReduction;
use crate::memory::local::Local;
use crate::module::{Entry, NEVER};

/// A warp of a block.
pub(crate) struct Warp {
    pub(crate) registers: Registers,
    /// Lanes that exist.
    pub(crate) full: u32,
    /// Lanes that have not ended.
    pub(crate) live: u32,
    pub(crate) fragments: Vec<Fragment>,
    joins: Vec<Join>,
    free: Vec<usize>,
    pub(crate) copies: Copies,
    pub(crate) products: Products,
    pub(crate) local: Local,
    /// Instructions executed.
    pub(crate) executed: u64,
    /// Coordinates of each lane's thread.
    pub(crate) threads: [[u32; 32]; 3],
}

/// Lanes that run together.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fragment {
    pub(crate) pc: u32,
    pub(crate) lanes: u32,
    join: Option<usize>,
    pub(crate) state: State,
}

/// Whether a fragment can run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum State {
    Ready,
    /// Waits at a barrier of the block; with where the result of a reduction goes.
    Barrier {
        number: u32,
        reduction: Option<(BarrierReduction, Destination)>,
    },
    /// Waits for these lanes of the warp.
    Warp {
        members: u32,
    },
    /// Waits for a phase of a barrier object to end.
    Object {
        address: u64,
        phase: u64,
    },
}

/// Where lanes that have parted meet.
#[derive(Clone, Copy, Debug)]
struct Join {
    pc: u32,
    /// Lanes that have yet to come, or have, and have not ended.
    expected: u32,
    arrived: u32,
    parent: Option<usize>,
}

impl Warp {
    /// The warp of threads `32 number` and on of a block of these extents, before its first
    /// instruction.
    pub(crate) fn new(entry: &Entry, number: usize, block: [u32; 3]) -> Self {
        let threads = block[0] * block[1] * block[2];
        let first = 32 * number as u32;
        let count = (threads - first).min(32);
        let full = if count == 32 { u32::MAX } else { (1 << count) - 1 };
        let coordinate = |axis: usize| {
            std::array::from_fn(|lane| {
                let thread = first + lane as u32;
                match axis {
                    0 => thread % block[0],
                    1 => thread / block[0] % block[1],
                    _ => thread / block[0] / block[1],
                }
            })
        };
        Self {
            registers: Registers::new(
                entry.words,
                entry.longs,
                entry.predicates,
                entry.has_products,
            ),
            full,
            live: full,
            fragments: vec![Fragment { pc: 0, lanes: full, join: None, state: State::Ready }],
            joins: Vec::new(),
            free: Vec::new(),
            copies: Copies::default(),
            products: Products::new(entry.words),
            local: Local::new(entry.local_bytes),
            executed: 0,
            threads: [coordinate(0), coordinate(1), coordinate(2)],
        }
    }

    /// If the fragment stands where it meets others, has it wait there; true if it has done so, and
    /// fragments have changed.
    pub(crate) fn meet(&mut self, fragment: usize) -> bool {
        let Fragment { pc, lanes, join, .. } = self.fragments[fragment];
        let Some(at) = join.filter(|at| self.joins[*at].pc == pc) else { return false };
        self.joins[at].arrived |= lanes;
        self.fragments.swap_remove(fragment);
        self.resume(at);
        true
    }

    /// Lets the lanes of a join go on if all have come.
    fn resume(&mut self, at: usize) {
        let Join { pc, expected, arrived, parent } = self.joins[at];
        if arrived != expected {
            return;
        }
        self.free.push(at);
        if arrived != 0 {
            self.fragments.push(Fragment { pc, lanes: arrived, join: parent, state: State::Ready });
        }
    }

    /// Splits a fragment: its lanes in `taken` go to `target`, the others to the next instruction;
    /// they meet at `meets`.
    pub(crate) fn part(&mut self, fragment: usize, taken: u32, target: u32, meets: u32) {
        let old = self.fragments[fragment];
        let is_same = |at: usize| self.joins[at].pc == meets;
        let join = if meets == NEVER || old.join.is_some_and(is_same) {
            old.join
        } else {
            let join = Join { pc: meets, expected: old.lanes, arrived: 0, parent: old.join };
            let at = self.free.pop().unwrap_or(self.joins.len());
            if at == self.joins.len() {
                self.joins.push(join);
            } else {
                self.joins[at] = join;
            }
            Some(at)
        };
        self.fragments[fragment] =
            Fragment { pc: old.pc + 1, lanes: old.lanes & !taken, join, state: State::Ready };
        self.fragments.push(Fragment { pc: target, lanes: taken, join, state: State::Ready });
    }

    /// Ends lanes of a fragment; true if none are left of it, and fragments have changed.
    pub(crate) fn end(&mut self, fragment: usize, lanes: u32) -> bool {
        self.live &= !lanes;
        let mut at = self.fragments[fragment].join;
        self.fragments[fragment].lanes &= !lanes;
        let is_empty = self.fragments[fragment].lanes == 0;
        if is_empty {
            self.fragments.swap_remove(fragment);
        }
        while let Some(join) = at {
            self.joins[join].expected &= !lanes;
            at = self.joins[join].parent;
            self.resume(join);
        }
        is_empty
    }

    /// Lets fragments go on that wait for lanes of the warp, if all of these have come.
    ///
    /// Returns whether any has.
    pub(crate) fn release_warp(&mut self) -> bool {
        let waits = |fragment: &&Fragment| matches!(fragment.state, State::Warp { .. });
        let waiting = self.fragments.iter().filter(waits).fold(0, |all, one| all | one.lanes);
        let mut released = false;
        for fragment in &mut self.fragments {
            if let State::Warp { members } = fragment.state
                && members & self.live & !waiting == 0
            {
                fragment.state = State::Ready;
                released = true;
            }
        }
        released
    }
}
