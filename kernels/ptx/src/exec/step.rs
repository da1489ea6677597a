//! One instruction of some lanes of a warp: what it may touch, and how operands are read.

use super::Context;
use super::copy::Copies;
use super::product::Products;
use super::registers::{ALL, LANES, Lane, Registers};
use crate::fault::FaultKind;
use crate::isa::operand::{Address, Axis, Base, Condition, Destination, LaneMask, Source, Special};
use crate::isa::operation::Operation;
use crate::isa::types::Class;
use crate::memory::local::Local;
use crate::memory::shared::Shared;
use crate::statistics::Counters;

/// A fault before it is known whose.
#[derive(Debug)]
pub(crate) struct Raised {
    pub(crate) kind: FaultKind,
    /// The lane at fault; `None` where it is the warp.
    pub(crate) lane: Option<usize>,
}

/// What an instruction gives: nothing, or a fault.
pub(crate) type Done = Result<(), Box<Raised>>;

/// A fault of a lane.
pub(crate) fn raise<T>(kind: FaultKind, lane: impl Into<Option<usize>>) -> Result<T, Box<Raised>> {
    Err(Box::new(Raised { kind, lane: lane.into() }))
}

/// An instruction while it is executed.
pub(crate) struct Step<'a> {
    pub(crate) context: &'a Context<'a>,
    pub(crate) registers: &'a mut Registers,
    pub(crate) local: &'a mut Local,
    pub(crate) copies: &'a mut Copies,
    pub(crate) products: &'a mut Products,
    pub(crate) shared: &'a mut Shared,
    pub(crate) counters: &'a mut Counters,
    pub(crate) threads: &'a [[u32; LANES]; 3],
    pub(crate) block: [u32; 3],
    pub(crate) block_number: u32,
    pub(crate) warp: usize,
    /// Lanes that execute it.
    pub(crate) mask: u32,
    /// Lanes of the warp that have not ended.
    pub(crate) live: u32,
    pub(crate) instruction: u32,
}

/// The lanes of a mask.
pub(crate) fn lanes_of(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

impl Step<'_> {
    // Operands.

    pub(crate) fn read<T: Lane>(&self, source: Source) -> [T; LANES] {
        match source {
            Source::Register(slot) => self.registers.get(slot),
            Source::Immediate(bits) => [T::from_immediate(bits); LANES],
            Source::Special(special) => {
                self.special(special).map(|value| T::from_immediate(value.into()))
            }
        }
    }

    fn special(&self, special: Special) -> [u32; LANES] {
        let axis = |axis: Axis| match axis {
            Axis::X => 0,
            Axis::Y => 1,
            Axis::Z => 2,
        };
        let launch = self.context.launch;
        let threads = launch.block.iter().product::<u32>();
        match special {
            Special::Thread(along) => self.threads[axis(along)],
            Special::Threads(along) => [launch.block[axis(along)]; LANES],
            Special::Block(along) => [self.block[axis(along)]; LANES],
            Special::Blocks(along) => [launch.grid[axis(along)]; LANES],
            Special::Lane => std::array::from_fn(|lane| lane as u32),
            Special::Warp => [self.warp as u32; LANES],
            Special::Warps => [threads.div_ceil(32); LANES],
            Special::LaneMask(mask) => std::array::from_fn(|lane| lane_mask(mask, lane)),
            Special::Zero => [0; LANES],
            Special::One => [1; LANES],
            Special::DynamicShared => [launch.dynamic_shared as u32; LANES],
            Special::TotalShared => [self.shared.size() as u32; LANES],
        }
    }

    /// Values as 64 bits, whatever their class.
    pub(crate) fn read_bits(&self, class: Class, source: Source) -> [u64; LANES] {
        match class {
            Class::Long => self.read(source),
            _ => self.read::<u32>(source).map(u64::from),
        }
    }

    pub(crate) fn write<T: Lane>(&mut self, d: Destination, values: &[T; LANES]) {
        self.registers.set(d, self.mask, values);
    }

    /// Values of 64 bits into registers of a class.
    pub(crate) fn write_bits(&mut self, class: Class, d: Destination, values: &[u64; LANES]) {
        match class {
            Class::Long => self.write(d, values),
            _ => self.write(d, &values.map(|value| value as u32)),
        }
    }

    pub(crate) fn condition(&self, condition: Condition) -> u32 {
        self.registers.predicate(condition)
    }

    pub(crate) fn write_predicate(&mut self, d: Destination, value: u32) {
        self.registers.set_predicate(d, self.mask, value);
    }

    pub(crate) fn addresses(&self, address: Address) -> [u64; LANES] {
        let base = match address.base {
            Base::Word(slot) => self.registers.get::<u32>(slot).map(u64::from),
            Base::Long(slot) => self.registers.get::<u64>(slot),
            Base::Zero => [0; LANES],
        };
        let is_word = matches!(address.base, Base::Word(_));
        base.map(|base| {
            let sum = base.wrapping_add_signed(address.offset);
            if is_word { sum & 0xffff_ffff } else { sum }
        })
    }

    // Evaluation of every lane, executing or not: functions given here have no effects.

    pub(crate) fn map1<A: Lane, R: Lane>(&mut self, d: Destination, a: Source, f: impl Fn(A) -> R) {
        let a = self.read(a);
        let values = std::array::from_fn(|lane| f(a[lane]));
        self.write(d, &values);
    }

    pub(crate) fn map2<A: Lane, B: Lane, R: Lane>(
        &mut self,
        d: Destination,
        (a, b): (Source, Source),
        f: impl Fn(A, B) -> R,
    ) {
        let (a, b) = (self.read(a), self.read(b));
        let values = std::array::from_fn(|lane| f(a[lane], b[lane]));
        self.write(d, &values);
    }

    pub(crate) fn map3<A: Lane, B: Lane, C: Lane, R: Lane>(
        &mut self,
        d: Destination,
        (a, b, c): (Source, Source, Source),
        f: impl Fn(A, B, C) -> R,
    ) {
        let (a, b, c) = (self.read(a), self.read(b), self.read(c));
        let values = std::array::from_fn(|lane| f(a[lane], b[lane], c[lane]));
        self.write(d, &values);
    }

    // Lanes that must execute together.

    /// An instruction of the whole warp, all 32 lanes of it.
    pub(crate) fn whole_warp(&self) -> Done {
        if self.mask == ALL {
            return Ok(());
        }
        raise(FaultKind::Divergent { executing: self.mask, expected: ALL }, None)
    }

    /// An instruction of the lanes that a mask names: every executing lane names the same, itself
    /// among them, and all that are named and have not ended execute it.
    pub(crate) fn members(&self, members: Source) -> Result<u32, Box<Raised>> {
        let masks = self.read::<u32>(members);
        let first = self.mask.trailing_zeros() as usize % LANES;
        let named = masks[first];
        for lane in lanes_of(self.mask) {
            if masks[lane] != named || named >> lane & 1 == 0 {
                return raise(FaultKind::NotMember { members: masks[lane] }, lane);
            }
        }
        let expected = named & self.live;
        if expected & !self.mask != 0 {
            return raise(FaultKind::Divergent { executing: self.mask, expected }, None);
        }
        Ok(named)
    }

    /// Executes an operation that neither moves the program counter nor waits.
    pub(crate) fn execute(&mut self, operation: &Operation) -> Done {
        match operation {
            Operation::Integer { op, ty, d, s } => return self.integer(*op, *ty, *d, *s),
            Operation::Single { op, mode, d, s } => self.single(*op, *mode, *d, *s),
            Operation::Double { op, d, s } => self.double(*op, *d, *s),
            Operation::Halves { op, format, packed, mode, d, s } => {
                self.halves(*op, (*format, *packed), *mode, *d, *s);
            }
            Operation::Setp(setp) => self.setp(setp),
            Operation::Select { class, d, a, b, condition } => {
                self.select(*class, *d, (*a, *b), *condition);
            }
            Operation::Predicate { op, d, a, b } => self.logic(*op, *d, *a, *b),
            Operation::Convert(convert) => self.convert(convert),
            Operation::Move { class: Class::Long, d, a } => self.map1(*d, *a, |a: u64| a),
            Operation::Move { d, a, .. } => self.map1(*d, *a, |a: u32| a),
            Operation::Pack { class, d, parts, bits } => self.pack(*class, *d, parts, *bits),
            Operation::Unpack { class, a, parts, bits } => self.unpack(*class, *a, parts, *bits),
            Operation::ConvertAddress { from, to, d, a, .. } => {
                self.convert_address(*from, *to, *d, *a);
            }
            Operation::IsSpace { space, d, a } => self.is_space(*space, *d, *a),
            Operation::Load(access) => return self.load(access),
            Operation::Store(access) => return self.store(access),
            Operation::Atomic(atomic) => return self.atomic(atomic),
            Operation::CopyAsync(copy) => return self.copy_async(copy),
            Operation::CommitCopies => self.copies.commit(self.mask),
            Operation::WaitCopies(most) => return self.wait_copies(*most),
            Operation::ArriveAfterCopies { barrier, space, increments } => {
                return self.arrive_after_copies(*barrier, *space, *increments);
            }
            Operation::LoadMatrix(access) => return self.load_matrix(access),
            Operation::StoreMatrix(access) => return self.store_matrix(access),
            Operation::Mma(mma) => return self.mma(mma),
            Operation::Wgmma(wgmma) => return self.wgmma(wgmma),
            Operation::WgmmaFence => {
                self.whole_warp()?;
                self.registers.fence();
            }
            Operation::CommitWgmma => {
                self.whole_warp()?;
                self.products.commit();
            }
            Operation::WaitWgmma(most) => return self.wait_products(*most),
            Operation::Shuffle { .. } => return self.shuffle(operation),
            Operation::Vote { mode, d, a, members } => return self.vote(*mode, *d, *a, *members),
            Operation::Match { all, class, d, p, a, members } => {
                return self.matching((*all, *class), (*d, *p), *a, *members);
            }
            Operation::Reduce { op, ty, d, a, members } => {
                return self.reduce(*op, *ty, *d, *a, *members);
            }
            Operation::Elect { d, p, members } => return self.elect(*d, *p, *members),
            Operation::ActiveMask { d } => {
                let mask = self.mask;
                self.write(*d, &[mask; LANES]);
            }
            Operation::ProxyFence => self.shared.tracker.fence(self.warp),
            Operation::Trap => {
                return raise(FaultKind::Trap, self.mask.trailing_zeros() as usize % LANES);
            }
            // The scheduler executes what waits or jumps.
            Operation::Fence
            | Operation::Hint
            | Operation::Barrier(_)
            | Operation::WarpSync { .. }
            | Operation::MemoryBarrier(..)
            | Operation::Branch { .. }
            | Operation::Exit => {}
        }
        Ok(())
    }
}

fn lane_mask(mask: LaneMask, lane: usize) -> u32 {
    let own = 1_u32 << lane;
    match mask {
        LaneMask::Equal => own,
        LaneMask::Less => own - 1,
        LaneMask::LessEqual => own | (own - 1),
        LaneMask::Greater => !(own | (own - 1)),
        LaneMask::GreaterEqual => !(own - 1),
    }
}
