//! Asynchronous copies of the threads of a warp: begun at once, done when waited for and no sooner.

use super::step::{Done, Step, lanes_of, raise};
use crate::fault::{Access, FaultKind};
use crate::isa::operand::{Address, Space};
use crate::isa::operation::CopyAsync;
use crate::memory::address::from_generic;

/// A copy that has begun.
#[derive(Clone, Copy, Debug)]
struct Copy {
    lane: u8,
    /// The thread's group, counted from its first; meaningless while the group is open.
    group: u32,
    /// Offset in shared memory.
    to: usize,
    from: u64,
    bytes: u8,
    source_bytes: u8,
    instruction: u32,
}

/// Copies that threads of a warp have begun.
#[derive(Default)]
pub(crate) struct Copies {
    /// In groups that are not yet closed.
    open: Vec<Copy>,
    /// In closed groups, in the order of their beginning.
    closed: Vec<Copy>,
    /// How many groups each lane has closed.
    groups: [u32; 32],
}

impl Copies {
    /// Closes the open group of each lane.
    pub(super) fn commit(&mut self, lanes: u32) {
        let groups = &self.groups;
        for copy in self.open.extract_if(.., |copy| lanes >> copy.lane & 1 == 1) {
            self.closed.push(Copy { group: groups[usize::from(copy.lane)], ..copy });
        }
        for lane in lanes_of(lanes) {
            self.groups[lane] += 1;
        }
    }

    /// Takes out what is to be done when lanes wait until at most `most` of their groups are left;
    /// everything where that is `None`.
    fn due(&mut self, lanes: u32, most: Option<u32>) -> Vec<Copy> {
        let groups = self.groups;
        let of = |copy: &Copy| lanes >> copy.lane & 1 == 1;
        let is_due = |copy: &mut Copy| {
            let closed_after = groups[usize::from(copy.lane)] - copy.group;
            of(copy) && most.is_none_or(|most| closed_after > most)
        };
        let mut due: Vec<Copy> = self.closed.extract_if(.., is_due).collect();
        if most.is_none() {
            due.extend(self.open.extract_if(.., |copy| of(copy)));
        }
        due
    }
}

impl Step<'_> {
    pub(super) fn copy_async(&mut self, copy: &CopyAsync) -> Done {
        let (to, from) = (self.addresses(copy.to), self.addresses(copy.from));
        let source_bytes = self.read::<u32>(copy.source_bytes);
        let bytes = copy.bytes as usize;
        for lane in lanes_of(self.mask) {
            let source_bytes = source_bytes[lane].min(copy.bytes) as u8;
            let who = self.accessor(lane);
            let offset = match self.shared.begin_copy(to[lane], bytes, who) {
                Ok(offset) => offset,
                Err(wrong) => {
                    return self.shared_fault(wrong, to[lane], bytes, Access::Write, lane);
                }
            };
            if !from[lane].is_multiple_of(bytes as u64) {
                let (space, address) = (Space::Global, from[lane]);
                let place = self.place(space, address);
                return raise(FaultKind::Misaligned { space, address, bytes, place }, lane);
            }
            self.counters.read(Space::Global, source_bytes.into());
            self.counters.write(Space::Shared, bytes);
            let copy = Copy {
                lane: lane as u8,
                group: 0,
                to: offset,
                from: from[lane],
                bytes: bytes as u8,
                source_bytes,
                instruction: self.instruction,
            };
            // What is read out of bounds is at fault where it is asked for.
            self.fetch(&copy)?;
            self.copies.open.push(copy);
        }
        Ok(())
    }

    /// The bytes that a copy reads now, zeros behind them.
    fn fetch(&self, copy: &Copy) -> Result<[u8; 16], Box<super::step::Raised>> {
        let (bytes, source_bytes) = (usize::from(copy.bytes), usize::from(copy.source_bytes));
        if source_bytes == 0 {
            return Ok([0; 16]);
        }
        let mut who = self.global_accessor();
        who.instruction = copy.instruction;
        let found = self.context.device.load_part(copy.from, source_bytes, bytes, who);
        found.or_else(|wrong| {
            self.device_fault(wrong, copy.from, source_bytes, Access::Read, copy.lane.into())
        })
    }

    pub(super) fn wait_copies(&mut self, most: Option<u32>) -> Done {
        for copy in self.copies.due(self.mask, most) {
            let value = self.fetch(&copy)?;
            let mut who = self.accessor(copy.lane.into());
            who.instruction = copy.instruction;
            self.shared.finish_copy(copy.to, &value[..copy.bytes.into()], who);
        }
        Ok(())
    }

    /// The thread's copies so far are done before it arrives; whoever waits for the barrier object
    /// sees them, and whoever reads them without that races.
    pub(super) fn arrive_after_copies(
        &mut self,
        barrier: Address,
        space: Space,
        increments: bool,
    ) -> Done {
        self.wait_copies(None)?;
        let addresses = self.addresses(barrier);
        for lane in lanes_of(self.mask) {
            let address = match space {
                Space::Generic => from_generic(addresses[lane]).1,
                _ => addresses[lane],
            };
            let expected = if increments { self.shared.expect_arrival(address) } else { Ok(()) };
            let arrived = expected.and_then(|()| self.shared.arrive(address, 1, self.warp));
            if let Err(wrong) = arrived {
                return self.shared_fault(wrong, address, 8, Access::Atomic, lane);
            }
        }
        Ok(())
    }
}
