//! Loads, stores and atomics, in whatever memory an address lies.

use super::convert::extend;
use super::integer::combine;
use super::registers::{LANES, Lane};
use super::step::{Done, Raised, Step, lanes_of, raise};
use crate::fault::{Access as How, FaultKind, Place, Site};
use crate::isa::operand::{Source, Space};
use crate::isa::operation::{Access, Atomic, AtomicOp};
use crate::isa::types::{Class, Half, Rounding, Scalar};
use crate::memory::address::from_generic;
use crate::memory::race::{Accessor, Conflict, Stamp};
use crate::memory::{device, local, shared};
use crate::numerics::half;

/// Bytes that an access of a lane moves, from the lowest.
type Bytes = [u8; 16];

impl Step<'_> {
    /// Who a lane is to shared memory; lane 32 is the warp.
    pub(super) const fn accessor(&self, lane: usize) -> Accessor {
        Accessor { warp: self.warp, lane: lane as u32, instruction: self.instruction }
    }

    pub(super) const fn global_accessor(&self) -> device::Accessor {
        device::Accessor { block: self.block_number, instruction: self.instruction }
    }

    /// The space and the address there of an address of a lane.
    const fn resolve(space: Space, address: u64) -> (Space, u64) {
        match space {
            Space::Generic => from_generic(address),
            space => (space, address),
        }
    }

    pub(super) fn load(&mut self, access: &Access) -> Done {
        let addresses = self.addresses(access.address);
        let size = access.ty.bytes();
        let count = access.destinations.len();
        let mut values = [[0_u64; LANES]; 4];
        for lane in lanes_of(self.mask) {
            let (space, address) = Self::resolve(access.space, addresses[lane]);
            let bytes = self.load_lane(space, address, size * count, lane)?;
            for (at, values) in values[..count].iter_mut().enumerate() {
                let bits = element(&bytes, at, size);
                values[lane] = extend(access.ty, bits, access.register_bits);
            }
        }
        let class = Class::of_bits(access.register_bits);
        for (d, values) in access.destinations.iter().zip(&values) {
            self.write_bits(class, *d, values);
        }
        Ok(())
    }

    fn load_lane(
        &mut self,
        space: Space,
        address: u64,
        bytes: usize,
        lane: usize,
    ) -> Result<Bytes, Box<Raised>> {
        self.counters.read(space, bytes);
        match space {
            Space::Global | Space::Generic => {
                let who = self.global_accessor();
                let found = self.context.device.load(address, bytes, who);
                found.or_else(|wrong| self.device_fault(wrong, address, bytes, How::Read, lane))
            }
            Space::Shared => {
                let who = self.accessor(lane);
                let found = self.shared.load(address, bytes, who);
                found.or_else(|wrong| self.shared_fault(wrong, address, bytes, How::Read, lane))
            }
            Space::Local => {
                let check = self.context.options.checks.uninitialised;
                let found = self.local.load(lane, address, bytes, check);
                found.or_else(|wrong| local_fault(&wrong, address, bytes, lane))
            }
            Space::Param => constant(&self.context.parameters, space, address, bytes, lane),
            Space::Const => constant(self.context.constants, space, address, bytes, lane),
        }
    }

    pub(super) fn store(&mut self, access: &Access) -> Done {
        let addresses = self.addresses(access.address);
        let size = access.ty.bytes();
        let class = Class::of_bits(access.register_bits);
        let mut values = [[0_u64; LANES]; 4];
        for (values, source) in values.iter_mut().zip(&access.sources) {
            *values = self.read_bits(class, *source);
        }
        let count = access.sources.len();
        for lane in lanes_of(self.mask) {
            let mut bytes = [0; 16];
            for (at, values) in values[..count].iter().enumerate() {
                let value = values[lane].to_le_bytes();
                bytes[at * size..(at + 1) * size].copy_from_slice(&value[..size]);
            }
            let (space, address) = Self::resolve(access.space, addresses[lane]);
            self.store_lane(space, address, size * count, &bytes, lane)?;
        }
        Ok(())
    }

    fn store_lane(
        &mut self,
        space: Space,
        address: u64,
        bytes: usize,
        value: &Bytes,
        lane: usize,
    ) -> Done {
        self.counters.write(space, bytes);
        match space {
            Space::Global | Space::Generic => {
                let who = self.global_accessor();
                let done = self.context.device.store(address, bytes, value, who);
                done.or_else(|wrong| self.device_fault(wrong, address, bytes, How::Write, lane))
            }
            Space::Shared => {
                let who = self.accessor(lane);
                let done = self.shared.store(address, bytes, value, who);
                done.or_else(|wrong| self.shared_fault(wrong, address, bytes, How::Write, lane))
            }
            Space::Local => {
                let done = self.local.store(lane, address, bytes, value);
                done.or_else(|wrong| local_fault(&wrong, address, bytes, lane))
            }
            Space::Param | Space::Const => {
                raise(FaultKind::OutOfBounds { space, address, bytes, place: None }, lane)
            }
        }
    }

    /// Elements of a vector are updated one by one, lanes in order.
    pub(super) fn atomic(&mut self, atomic: &Atomic) -> Done {
        let addresses = self.addresses(atomic.address);
        let class = atomic.ty.class();
        let size = atomic.ty.bytes();
        let compare = self.read_bits(class, atomic.compare);
        let count = atomic.values.len();
        let mut olds = [[0_u64; LANES]; 4];
        for lane in lanes_of(self.mask) {
            let (space, start) = Self::resolve(atomic.space, addresses[lane]);
            if !start.is_multiple_of((size * count) as u64) {
                let place = self.place(space, start);
                let bytes = size * count;
                return raise(FaultKind::Misaligned { space, address: start, bytes, place }, lane);
            }
            for (at, source) in atomic.values.iter().enumerate() {
                let value = self.read_lane(class, *source, lane);
                let address = start + (at * size) as u64;
                let flush = space == Space::Global;
                let change = |old: u64| update(atomic, old, value, compare[lane], flush);
                olds[at][lane] = self.update_lane(space, address, size, lane, change)?;
            }
        }
        for (d, olds) in atomic.destinations.iter().zip(&olds[..count]) {
            self.write_bits(class, *d, olds);
        }
        Ok(())
    }

    fn read_lane(&self, class: Class, source: Source, lane: usize) -> u64 {
        self.read_bits(class, source)[lane]
    }

    fn update_lane(
        &mut self,
        space: Space,
        address: u64,
        bytes: usize,
        lane: usize,
        change: impl Fn(u64) -> u64,
    ) -> Result<u64, Box<Raised>> {
        self.counters.read(space, bytes);
        self.counters.write(space, bytes);
        match space {
            Space::Global => {
                let who = self.global_accessor();
                let done = self.context.device.update(address, bytes, who, change);
                done.or_else(|wrong| self.device_fault(wrong, address, bytes, How::Atomic, lane))
            }
            Space::Shared => {
                let who = self.accessor(lane);
                let done = self.shared.update(address, bytes, who, change);
                done.or_else(|wrong| self.shared_fault(wrong, address, bytes, How::Atomic, lane))
            }
            _ => raise(FaultKind::OutOfBounds { space, address, bytes, place: None }, lane),
        }
    }

    // Faults.

    pub(super) fn place(&self, space: Space, address: u64) -> Option<Place> {
        if space != Space::Global {
            return None;
        }
        let (buffer, length, offset) = self.context.device.describe(address)?;
        Some(Place { buffer, offset, length })
    }

    pub(super) fn device_fault<T>(
        &self,
        wrong: device::Wrong,
        address: u64,
        bytes: usize,
        access: How,
        lane: usize,
    ) -> Result<T, Box<Raised>> {
        let space = Space::Global;
        let place = |address| self.place(space, address);
        let kind = match wrong {
            device::Wrong::Misaligned => {
                FaultKind::Misaligned { space, address, bytes, place: place(address) }
            }
            device::Wrong::OutOfBounds => {
                FaultKind::OutOfBounds { space, address, bytes, place: place(address) }
            }
            device::Wrong::Uninitialised { address } => {
                FaultKind::Uninitialised { space, address, place: place(address) }
            }
            device::Wrong::Race { address, block, instruction, kind } => {
                let other = &self.context.entry.code[instruction as usize];
                FaultKind::GlobalRace {
                    address,
                    place: place(address),
                    access,
                    other_access: match kind {
                        device::Kind::Read => How::Read,
                        device::Kind::Write => How::Write,
                        device::Kind::Atomic => How::Atomic,
                    },
                    other_line: other.line,
                    other_text: other.text.clone(),
                    other_block: self.context.coordinates(block),
                }
            }
        };
        raise(kind, lane)
    }

    /// The instruction and thread that a stamp names.
    fn site_of(&self, stamp: Stamp) -> Site {
        let lane = stamp.lane().map(|lane| lane as usize);
        self.context.site(stamp.instruction(), self.block, stamp.warp(), lane)
    }

    pub(super) fn shared_fault<T>(
        &self,
        wrong: shared::Wrong,
        address: u64,
        bytes: usize,
        access: How,
        lane: usize,
    ) -> Result<T, Box<Raised>> {
        let space = Space::Shared;
        let object = |problem| FaultKind::BarrierObject { address, problem };
        let kind = match wrong {
            shared::Wrong::Misaligned => {
                FaultKind::Misaligned { space, address, bytes, place: None }
            }
            shared::Wrong::OutOfBounds => {
                FaultKind::OutOfBounds { space, address, bytes, place: None }
            }
            shared::Wrong::BarrierObject => object("accessed as plain memory"),
            shared::Wrong::NoBarrierObject => object("never initialised"),
            shared::Wrong::BarrierCount => object("more arrivals than it awaits or can count"),
            shared::Wrong::Conflict { address, conflict } => {
                self.conflict(address as u64, conflict, access)
            }
        };
        raise(kind, (lane < LANES).then_some(lane))
    }

    fn conflict(&self, address: u64, conflict: Conflict, access: How) -> FaultKind {
        match conflict {
            Conflict::Uninitialised => {
                FaultKind::Uninitialised { space: Space::Shared, address, place: None }
            }
            Conflict::Write(stamp) if stamp.is_pending() => {
                FaultKind::UnfinishedCopy { address, access, copy: self.site_of(stamp) }
            }
            Conflict::Read(stamp) if stamp.is_pending() => {
                FaultKind::OperandOverwritten { address, product: self.site_of(stamp) }
            }
            Conflict::Unfenced(stamp) => {
                FaultKind::MissingProxyFence { address, write: self.site_of(stamp) }
            }
            Conflict::Write(stamp) => {
                let earlier_access = if stamp.is_atomic() { How::Atomic } else { How::Write };
                let earlier = self.site_of(stamp);
                FaultKind::SharedRace { address, access, earlier_access, earlier }
            }
            Conflict::Read(stamp) => {
                let earlier = self.site_of(stamp);
                FaultKind::SharedRace { address, access, earlier_access: How::Read, earlier }
            }
        }
    }
}

/// The element of this number, of `size` bytes.
fn element(bytes: &Bytes, at: usize, size: usize) -> u64 {
    let mut word = [0; 8];
    word[..size].copy_from_slice(&bytes[at * size..(at + 1) * size]);
    u64::from_le_bytes(word)
}

/// A load from memory that nothing writes.
fn constant(
    memory: &[u8],
    space: Space,
    address: u64,
    bytes: usize,
    lane: usize,
) -> Result<Bytes, Box<Raised>> {
    if !address.is_multiple_of(bytes as u64) {
        return raise(FaultKind::Misaligned { space, address, bytes, place: None }, lane);
    }
    let start = usize::try_from(address).unwrap_or(usize::MAX);
    let Some(found) = start.checked_add(bytes).and_then(|end| memory.get(start..end)) else {
        return raise(FaultKind::OutOfBounds { space, address, bytes, place: None }, lane);
    };
    let mut value = [0; 16];
    value[..bytes].copy_from_slice(found);
    Ok(value)
}

fn local_fault<T>(
    wrong: &local::Wrong,
    address: u64,
    bytes: usize,
    lane: usize,
) -> Result<T, Box<Raised>> {
    let (space, place) = (Space::Local, None);
    let kind = match wrong {
        local::Wrong::Misaligned => FaultKind::Misaligned { space, address, bytes, place },
        local::Wrong::OutOfBounds => FaultKind::OutOfBounds { space, address, bytes, place },
        local::Wrong::Uninitialised => FaultKind::Uninitialised { space, address, place },
    };
    raise(kind, lane)
}

/// What an atomic makes of a value. Sums in f32 flush subnormals in global memory and not in shared
/// memory; sums in 16-bit formats flush in neither (PTX ISA, `atom`).
fn update(atomic: &Atomic, old: u64, value: u64, compare: u64, flush: bool) -> u64 {
    let op = atomic.op;
    if op == AtomicOp::CompareAndSwap {
        return if old == compare { value } else { old };
    }
    match atomic.ty {
        Scalar::F32 => {
            let keep = |x: f32| if flush { crate::numerics::single::flush(x) } else { x };
            let of = |bits: u64| keep(f32::from_bits(bits as u32));
            let sum = keep(of(old) + of(value));
            u64::from(if sum.is_nan() { crate::numerics::single::NAN } else { sum }.to_bits())
        }
        Scalar::F64 => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        Scalar::F16 => half_sum(Half::F16, old, value, 0),
        Scalar::Bf16 => half_sum(Half::Bf16, old, value, 0),
        Scalar::F16x2 => half_sum(Half::F16, old, value, 0) | half_sum(Half::F16, old, value, 16),
        Scalar::Bf16x2 => {
            half_sum(Half::Bf16, old, value, 0) | half_sum(Half::Bf16, old, value, 16)
        }
        Scalar::S32 => combined::<i32>(op, old, value),
        Scalar::U64 | Scalar::B64 => combined::<u64>(op, old, value),
        Scalar::S64 => combined::<i64>(op, old, value),
        _ => combined::<u32>(op, old, value),
    }
}

fn combined<T: super::registers::Integer + Lane>(op: AtomicOp, old: u64, value: u64) -> u64 {
    combine(op, T::from_bits(old), T::from_bits(value)).bits()
}

fn half_sum(format: Half, old: u64, value: u64, shift: u32) -> u64 {
    let of = |bits: u64| f64::from(half::decode(format, (bits >> shift) as u16));
    // The sum of two such numbers is exact, or its error too small to reach the rounding.
    let sum = crate::numerics::rounding::add(of(old), of(value));
    u64::from(half::encode(format, sum, Rounding::Nearest)) << shift
}
