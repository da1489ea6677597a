//! What a launch did, in numbers.

use std::collections::BTreeMap;

use crate::isa::operand::Space;

/// What all blocks of a launch did together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Instructions, each counted once for a warp that executes it, and once a lane.
    pub instructions: Executed,
    /// The same by opcode with its modifiers.
    pub opcodes: BTreeMap<String, Executed>,
    /// Bytes by memory. An instruction counts what its lanes ask for: lanes that read one address
    /// count each. Bytes of asynchronous copies are read from global and written to shared memory;
    /// matrix products of `wgmma` count each of their four warps.
    pub traffic: BTreeMap<Space, Traffic>,
}

/// How often something was executed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Executed {
    /// By warps with at least one lane taking part.
    pub warps: u64,
    /// By lanes.
    pub lanes: u64,
}

/// Bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes read, atomics included.
    pub read: u64,
    /// Bytes written, atomics included.
    pub written: u64,
}

impl Statistics {
    /// Bytes of a memory, read and written.
    #[must_use]
    pub fn traffic_of(&self, space: Space) -> Traffic {
        self.traffic.get(&space).copied().unwrap_or_default()
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.instructions.add(other.instructions);
        for (opcode, executed) in &other.opcodes {
            self.opcodes.entry(opcode.clone()).or_default().add(*executed);
        }
        for (space, traffic) in &other.traffic {
            let sum = self.traffic.entry(*space).or_default();
            sum.read += traffic.read;
            sum.written += traffic.written;
        }
    }
}

impl Executed {
    pub(crate) fn add(&mut self, other: Self) {
        self.warps += other.warps;
        self.lanes += other.lanes;
    }
}

/// Bytes while a block runs, by memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    read: [u64; SPACES.len()],
    written: [u64; SPACES.len()],
}

const SPACES: [Space; 5] = [Space::Global, Space::Shared, Space::Local, Space::Param, Space::Const];

const fn index(space: Space) -> usize {
    match space {
        Space::Global | Space::Generic => 0,
        Space::Shared => 1,
        Space::Local => 2,
        Space::Param => 3,
        Space::Const => 4,
    }
}

impl Counters {
    pub(crate) const fn read(&mut self, space: Space, bytes: usize) {
        self.read[index(space)] += bytes as u64;
    }

    pub(crate) const fn write(&mut self, space: Space, bytes: usize) {
        self.written[index(space)] += bytes as u64;
    }

    pub(crate) fn traffic(&self) -> BTreeMap<Space, Traffic> {
        SPACES
            .iter()
            .enumerate()
            .map(|(at, space)| (*space, Traffic { read: self.read[at], written: self.written[at] }))
            .filter(|(_, traffic)| *traffic != Traffic::default())
            .collect()
    }
}
