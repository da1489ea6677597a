//! Device memory during a launch: what loads, stores and atomics of all blocks do to it, and which of
//! them are at fault.
//!
//! Blocks of a launch are not ordered among themselves. A byte that one block writes and another
//! reads or writes, other than both by atomics, is a race whatever order the blocks happened to run
//! in. It is found if both accesses are made, in either order. Accesses of one block are not compared
//! with each other here.

use std::sync::atomic::{AtomicU64, Ordering};

use super::address::{Region, region};
use super::buffers::{Buffer, Memory};

/// Device memory as the blocks of a launch see it.
pub(crate) struct Device<'a> {
    memory: &'a Memory,
    globals: &'a [Buffer],
    /// One record a byte of each buffer; none where races between blocks are not looked for.
    records: Option<Vec<Vec<AtomicU64>>>,
    check_written: bool,
}

/// An access as the record keeps it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Atomic,
}

/// Who accesses: the number of the block and of the instruction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessor {
    pub(crate) block: u32,
    pub(crate) instruction: u32,
}

/// What is wrong with an access to device memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Misaligned,
    /// Outside every buffer; with the buffer whose region it lies in, if any, and its offset there.
    OutOfBounds,
    Uninitialised {
        address: u64,
    },
    Race {
        address: u64,
        block: u32,
        instruction: u32,
        kind: Kind,
    },
}

/// Up to sixteen bytes.
pub(crate) type Bytes = [u8; 16];

/// A record packs kind, instruction and block: 2, 30 and 32 bits. Zero is no access.
fn pack(kind: Kind, who: Accessor) -> u64 {
    let kind = match kind {
        Kind::Read => 1_u64,
        Kind::Write => 2,
        Kind::Atomic => 3,
    };
    kind << 62 | u64::from(who.instruction) << 32 | u64::from(who.block)
}

fn unpack(record: u64) -> Option<(Kind, Accessor)> {
    let kind = match record >> 62 {
        0 => return None,
        1 => Kind::Read,
        2 => Kind::Write,
        _ => Kind::Atomic,
    };
    let instruction = (record >> 32) as u32 & 0x3fff_ffff;
    Some((kind, Accessor { block: record as u32, instruction }))
}

/// Stands for several blocks that have read a byte.
const SEVERAL: u32 = u32::MAX;

impl<'a> Device<'a> {
    pub(crate) fn new(
        memory: &'a Memory,
        globals: &'a [Buffer],
        check_races: bool,
        check_written: bool,
    ) -> Self {
        let record = |buffer: &Buffer| (0..buffer.bytes).map(|_| AtomicU64::new(0)).collect();
        let records =
            check_races.then(|| memory.buffers.iter().chain(globals).map(record).collect());
        Self { memory, globals, records, check_written }
    }

    /// The buffer that an access lies in, its number among the records, and the offset.
    fn locate(&self, address: u64, bytes: usize) -> Result<(&Buffer, usize, usize), Wrong> {
        if !address.is_multiple_of(bytes as u64) {
            return Err(Wrong::Misaligned);
        }
        let (buffer, number, offset) = match region(address) {
            Region::Buffer(index, offset) => (self.memory.buffers.get(index), index, offset),
            Region::ModuleGlobal(index, offset) => {
                (self.globals.get(index), self.memory.buffers.len() + index, offset)
            }
            Region::Nothing => (None, 0, 0),
        };
        match buffer {
            Some(buffer) if offset + bytes as u64 <= buffer.bytes as u64 => {
                Ok((buffer, number, offset as usize))
            }
            _ => Err(Wrong::OutOfBounds),
        }
    }

    /// The buffer in whose region an address lies: its name, its length, and the offset from its
    /// start.
    pub(crate) fn describe(&self, address: u64) -> Option<(String, usize, u64)> {
        let (buffer, offset) = match region(address) {
            Region::Buffer(index, offset) => (self.memory.buffers.get(index)?, offset),
            Region::ModuleGlobal(index, offset) => (self.globals.get(index)?, offset),
            Region::Nothing => return None,
        };
        Some((buffer.name.clone(), buffer.bytes, offset))
    }

    /// Loads `bytes` bytes, a power of two up to sixteen.
    pub(crate) fn load(&self, address: u64, bytes: usize, who: Accessor) -> Result<Bytes, Wrong> {
        let (buffer, number, offset) = self.locate(address, bytes)?;
        self.check_read(buffer, number, offset, bytes, address, who)?;
        Ok(load(buffer, offset, bytes))
    }

    /// As [`Device::load`], of any number of bytes; the address must be a multiple of `alignment`.
    pub(crate) fn load_part(
        &self,
        address: u64,
        bytes: usize,
        alignment: usize,
        who: Accessor,
    ) -> Result<Bytes, Wrong> {
        if bytes == alignment {
            return self.load(address, bytes, who);
        }
        if !address.is_multiple_of(alignment as u64) {
            return Err(Wrong::Misaligned);
        }
        let mut all = [0; 16];
        for (at, byte) in all[..bytes].iter_mut().enumerate() {
            *byte = self.load(address + at as u64, 1, who)?[0];
        }
        Ok(all)
    }

    /// Stores `bytes` bytes, a power of two up to sixteen.
    pub(crate) fn store(
        &self,
        address: u64,
        bytes: usize,
        value: &Bytes,
        who: Accessor,
    ) -> Result<(), Wrong> {
        let (buffer, number, offset) = self.locate(address, bytes)?;
        self.record(number, offset, bytes, address, Kind::Write, who)?;
        mark_written(buffer, offset, bytes);
        store(buffer, offset, bytes, value);
        Ok(())
    }

    /// Replaces a value of up to eight bytes by what `change` makes of it; gives the old one.
    pub(crate) fn update(
        &self,
        address: u64,
        bytes: usize,
        who: Accessor,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, Wrong> {
        let (buffer, number, offset) = self.locate(address, bytes)?;
        self.check_initialised(buffer, offset, bytes, address)?;
        self.record(number, offset, bytes, address, Kind::Atomic, who)?;
        let (shift, mask) = field(offset, bytes);
        let word = &buffer.words[offset / 8];
        let replace = |old: u64| {
            let new = change((old >> shift) & mask) & mask;
            Some(old & !(mask << shift) | new << shift)
        };
        let old = word.fetch_update(Ordering::AcqRel, Ordering::Acquire, replace);
        let old = old.unwrap_or_else(|old| old);
        Ok((old >> shift) & mask)
    }

    fn check_initialised(
        &self,
        buffer: &Buffer,
        offset: usize,
        bytes: usize,
        address: u64,
    ) -> Result<(), Wrong> {
        let Some(written) = buffer.written.as_ref().filter(|_| self.check_written) else {
            return Ok(());
        };
        let is_written = |at: usize| written[at / 64].load(Ordering::Relaxed) >> (at % 64) & 1 == 1;
        match (offset..offset + bytes).find(|at| !is_written(*at)) {
            None => Ok(()),
            Some(at) => Err(Wrong::Uninitialised { address: address + (at - offset) as u64 }),
        }
    }

    fn check_read(
        &self,
        buffer: &Buffer,
        number: usize,
        offset: usize,
        bytes: usize,
        address: u64,
        who: Accessor,
    ) -> Result<(), Wrong> {
        self.check_initialised(buffer, offset, bytes, address)?;
        self.record(number, offset, bytes, address, Kind::Read, who)
    }

    /// Compares an access with what is recorded of each byte, and records it.
    fn record(
        &self,
        number: usize,
        offset: usize,
        bytes: usize,
        address: u64,
        kind: Kind,
        who: Accessor,
    ) -> Result<(), Wrong> {
        let Some(records) = &self.records else { return Ok(()) };
        let mine = pack(kind, who);
        for (at, record) in records[number][offset..offset + bytes].iter().enumerate() {
            let mut found = record.load(Ordering::Relaxed);
            loop {
                let keep = match unpack(found) {
                    None => mine,
                    Some((other, by)) if by.block == who.block => {
                        // A write stays on record over reads of its own block.
                        if rank(other) > rank(kind) { found } else { mine }
                    }
                    Some((Kind::Read, by)) if kind == Kind::Read => {
                        pack(Kind::Read, Accessor { block: SEVERAL, ..by })
                    }
                    Some((Kind::Atomic, _)) if kind == Kind::Atomic => found,
                    Some((kind, by)) => {
                        let address = address + at as u64;
                        let (block, instruction) = (by.block, by.instruction);
                        return Err(Wrong::Race { address, block, instruction, kind });
                    }
                };
                if keep == found {
                    break;
                }
                match record.compare_exchange_weak(
                    found,
                    keep,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => break,
                    Err(changed) => found = changed,
                }
            }
        }
        Ok(())
    }
}

/// What a record keeps of several accesses of one block.
const fn rank(kind: Kind) -> u8 {
    match kind {
        Kind::Read => 0,
        Kind::Atomic => 1,
        Kind::Write => 2,
    }
}

/// Where a value of up to eight bytes stands in its word.
const fn field(offset: usize, bytes: usize) -> (u32, u64) {
    let mask = if bytes >= 8 { u64::MAX } else { (1 << (8 * bytes)) - 1 };
    ((offset % 8 * 8) as u32, mask)
}

fn load(buffer: &Buffer, offset: usize, bytes: usize) -> Bytes {
    let mut all = [0; 16];
    let first = buffer.words[offset / 8].load(Ordering::Relaxed);
    if bytes <= 8 {
        let (shift, mask) = field(offset, bytes);
        all[..8].copy_from_slice(&((first >> shift) & mask).to_le_bytes());
    } else {
        let second = buffer.words[offset / 8 + 1].load(Ordering::Relaxed);
        all[..8].copy_from_slice(&first.to_le_bytes());
        all[8..].copy_from_slice(&second.to_le_bytes());
    }
    all
}

fn store(buffer: &Buffer, offset: usize, bytes: usize, value: &Bytes) {
    let (low, high) = value.split_at(8);
    let word =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |word, byte| word << 8 | u64::from(*byte));
    if bytes >= 8 {
        buffer.words[offset / 8].store(word(low), Ordering::Relaxed);
        if bytes == 16 {
            buffer.words[offset / 8 + 1].store(word(high), Ordering::Relaxed);
        }
        return;
    }
    let (shift, mask) = field(offset, bytes);
    let new = (word(low) & mask) << shift;
    let replace = |old: u64| Some(old & !(mask << shift) | new);
    // The update is never refused.
    let _ = buffer.words[offset / 8].fetch_update(Ordering::Relaxed, Ordering::Relaxed, replace);
}

fn mark_written(buffer: &Buffer, offset: usize, bytes: usize) {
    if let Some(written) = &buffer.written {
        let bits = ((1_u64 << bytes) - 1) << (offset % 64);
        let word = &written[offset / 64];
        if word.load(Ordering::Relaxed) & bits != bits {
            word.fetch_or(bits, Ordering::Relaxed);
        }
    }
}
