//! Shared memory of a block: its bytes, the barrier objects in it, and what is at fault.

use super::race::{Accessor, Conflict, Knowledge, Tracker, WriteKind};

/// What is wrong with an access to shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Misaligned,
    OutOfBounds,
    /// The bytes belong to a barrier object.
    BarrierObject,
    /// No barrier object has been initialised there.
    NoBarrierObject,
    /// A barrier object is told of more arrivals than it awaits, or awaits more than it can count.
    BarrierCount,
    Conflict {
        address: usize,
        conflict: Conflict,
    },
}

/// Shared memory of a block.
pub(crate) struct Shared {
    bytes: Vec<u8>,
    pub(crate) tracker: Tracker,
    barriers: Vec<(usize, BarrierObject)>,
}

/// A barrier object (`mbarrier`): a phase ends when all arrivals and all expected bytes have come.
#[derive(Clone, Debug, Default)]
pub(crate) struct BarrierObject {
    /// Number of the phase at hand.
    pub(crate) phase: u64,
    expected: u32,
    pending: u32,
    pending_bytes: i64,
    /// Told by those that arrived in this phase.
    arriving: Knowledge,
    /// Told by those of the last one, for those that wait for it.
    pub(crate) arrived: Knowledge,
}

/// The most arrivals that a barrier object awaits (PTX ISA, "Contents of the mbarrier object").
const MOST_ARRIVALS: u32 = (1 << 20) - 1;
/// Bytes of a barrier object.
const BARRIER_BYTES: usize = 8;
/// What shared memory holds before it is written: as a float of any width, NaN.
const POISON: u8 = 0xff;

impl Shared {
    pub(crate) fn new(bytes: usize, tracker: Tracker) -> Self {
        Self { bytes: vec![POISON; bytes], tracker, barriers: Vec::new() }
    }

    /// The start of another block.
    pub(crate) fn reset(&mut self) {
        self.bytes.fill(POISON);
        self.tracker.reset();
        self.barriers.clear();
    }

    pub(crate) const fn size(&self) -> usize {
        self.bytes.len()
    }

    fn locate(&self, address: u64, bytes: usize) -> Result<usize, Wrong> {
        if !address.is_multiple_of(bytes as u64) {
            return Err(Wrong::Misaligned);
        }
        let end = address.checked_add(bytes as u64).ok_or(Wrong::OutOfBounds)?;
        if end > self.bytes.len() as u64 {
            return Err(Wrong::OutOfBounds);
        }
        let offset = address as usize;
        let overlaps = |at: usize| offset < at + BARRIER_BYTES && at < offset + bytes;
        if self.barriers.iter().any(|(at, _)| overlaps(*at)) {
            return Err(Wrong::BarrierObject);
        }
        Ok(offset)
    }

    /// Loads `bytes` bytes, a power of two up to sixteen.
    pub(crate) fn load(
        &mut self,
        address: u64,
        bytes: usize,
        who: Accessor,
    ) -> Result<[u8; 16], Wrong> {
        let offset = self.locate(address, bytes)?;
        self.tracker.read(offset, bytes, who).map_err(conflict)?;
        let mut value = [0; 16];
        value[..bytes].copy_from_slice(&self.bytes[offset..offset + bytes]);
        Ok(value)
    }

    /// Stores `bytes` bytes, a power of two up to sixteen.
    ///
    /// Lanes of one instruction that store the same bytes to one place do not race.
    pub(crate) fn store(
        &mut self,
        address: u64,
        bytes: usize,
        value: &[u8; 16],
        who: Accessor,
    ) -> Result<(), Wrong> {
        let offset = self.locate(address, bytes)?;
        let place = offset..offset + bytes;
        match self.tracker.write(offset, bytes, who, WriteKind::Plain) {
            Err((_, Conflict::Write(stamp)))
                if stamp.warp() == who.warp
                    && stamp.instruction() == who.instruction
                    && !stamp.is_pending()
                    && self.bytes[place.clone()] == value[..bytes] => {}
            result => result.map_err(conflict)?,
        }
        self.bytes[place].copy_from_slice(&value[..bytes]);
        Ok(())
    }

    /// Replaces a value of up to eight bytes; gives the old one.
    pub(crate) fn update(
        &mut self,
        address: u64,
        bytes: usize,
        who: Accessor,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, Wrong> {
        let offset = self.locate(address, bytes)?;
        self.tracker.write(offset, bytes, who, WriteKind::Atomic).map_err(conflict)?;
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&self.bytes[offset..offset + bytes]);
        let old = u64::from_le_bytes(word);
        let new = change(old).to_le_bytes();
        self.bytes[offset..offset + bytes].copy_from_slice(&new[..bytes]);
        Ok(old)
    }

    /// Begins an asynchronous copy to here; gives the offset for [`Shared::finish_copy`].
    pub(crate) fn begin_copy(
        &mut self,
        address: u64,
        bytes: usize,
        who: Accessor,
    ) -> Result<usize, Wrong> {
        let offset = self.locate(address, bytes)?;
        self.tracker.write(offset, bytes, who, WriteKind::Pending).map_err(conflict)?;
        Ok(offset)
    }

    /// The bytes of an asynchronous copy arrive.
    pub(crate) fn finish_copy(&mut self, offset: usize, value: &[u8], who: Accessor) {
        self.bytes[offset..offset + value.len()].copy_from_slice(value);
        self.tracker.complete_write(offset, value.len(), who);
    }

    /// Sixteen bytes that an asynchronous matrix product reads.
    pub(crate) fn product_load(&mut self, address: u64, who: Accessor) -> Result<[u8; 16], Wrong> {
        let offset = self.locate(address, 16)?;
        self.tracker.product_read(offset, 16, who).map_err(conflict)?;
        let mut value = [0; 16];
        value.copy_from_slice(&self.bytes[offset..offset + 16]);
        Ok(value)
    }

    fn barrier_at(&self, address: u64) -> Result<usize, Wrong> {
        let found = self.barriers.iter().position(|(at, _)| *at as u64 == address);
        found.ok_or(Wrong::NoBarrierObject)
    }

    /// Initialises a barrier object for so many arrivals a phase.
    pub(crate) fn initialise(
        &mut self,
        address: u64,
        count: u32,
        who: Accessor,
    ) -> Result<(), Wrong> {
        if count == 0 || count > MOST_ARRIVALS {
            return Err(Wrong::BarrierCount);
        }
        self.barriers.retain(|(at, _)| *at as u64 != address);
        let offset = self.locate(address, BARRIER_BYTES)?;
        self.tracker.write(offset, BARRIER_BYTES, who, WriteKind::Plain).map_err(conflict)?;
        let barrier = BarrierObject { expected: count, pending: count, ..BarrierObject::default() };
        self.barriers.push((offset, barrier));
        Ok(())
    }

    pub(crate) fn invalidate(&mut self, address: u64) -> Result<(), Wrong> {
        let at = self.barrier_at(address)?;
        self.barriers.remove(at);
        Ok(())
    }

    /// The barrier object at an address.
    pub(crate) fn barrier(&self, address: u64) -> Result<&BarrierObject, Wrong> {
        Ok(&self.barriers[self.barrier_at(address)?].1)
    }

    /// A thread of `warp` arrives `count` times; gives the number of the phase it arrives in.
    pub(crate) fn arrive(&mut self, address: u64, count: u32, warp: usize) -> Result<u64, Wrong> {
        let at = self.barrier_at(address)?;
        let barrier = &mut self.barriers[at].1;
        if count == 0 || count > barrier.pending {
            return Err(Wrong::BarrierCount);
        }
        let phase = barrier.phase;
        barrier.pending -= count;
        self.tracker.release(warp, &mut barrier.arriving);
        barrier.turn();
        Ok(phase)
    }

    /// The phase at hand awaits one arrival more.
    pub(crate) fn expect_arrival(&mut self, address: u64) -> Result<(), Wrong> {
        let at = self.barrier_at(address)?;
        let barrier = &mut self.barriers[at].1;
        if barrier.pending >= MOST_ARRIVALS {
            return Err(Wrong::BarrierCount);
        }
        barrier.pending += 1;
        Ok(())
    }

    /// The phase at hand awaits so many bytes more, or fewer.
    pub(crate) fn expect_bytes(&mut self, address: u64, bytes: i64) -> Result<(), Wrong> {
        let at = self.barrier_at(address)?;
        let barrier = &mut self.barriers[at].1;
        barrier.pending_bytes += bytes;
        if barrier.pending_bytes.unsigned_abs() > u64::from(MOST_ARRIVALS) {
            return Err(Wrong::BarrierCount);
        }
        barrier.turn();
        Ok(())
    }

    /// `warp` has seen the phase before the one at hand complete.
    pub(crate) fn pass(&mut self, address: u64, warp: usize) -> Result<(), Wrong> {
        let at = self.barrier_at(address)?;
        self.tracker.acquire(warp, &self.barriers[at].1.arrived);
        Ok(())
    }
}

impl BarrierObject {
    /// Ends the phase if all has come.
    fn turn(&mut self) {
        if self.pending == 0 && self.pending_bytes == 0 {
            self.phase += 1;
            self.pending = self.expected;
            self.arrived = std::mem::take(&mut self.arriving);
        }
    }
}

fn conflict((address, conflict): (usize, Conflict)) -> Wrong {
    Wrong::Conflict { address, conflict }
}
