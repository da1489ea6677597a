//! Exchanges between lanes of a warp.

use super::integer::combine;
use super::registers::{Integer, LANES};
use super::step::{Done, Step, lanes_of, raise};
use crate::fault::FaultKind;
use crate::isa::operand::{Condition, Destination, Source};
use crate::isa::operation::{AtomicOp, Operation, ShuffleMode, VoteMode};
use crate::isa::types::{Class, Int};

impl Step<'_> {
    /// Which lane each takes its value from, or its own where that lies outside its segment (PTX ISA,
    /// `shfl.sync`).
    pub(super) fn shuffle(&mut self, operation: &Operation) -> Done {
        let Operation::Shuffle { mode, d, p, a, lane, clamp, members } = operation else {
            return Ok(());
        };
        self.members(*members)?;
        let (values, offsets) = (self.read::<u32>(*a), self.read::<u32>(*lane));
        let controls = self.read::<u32>(*clamp);
        let mut result = values;
        let mut inside = 0_u32;
        for lane in lanes_of(self.mask) {
            let (source, valid) = source_of(*mode, lane as u32, offsets[lane], controls[lane]);
            inside |= u32::from(valid) << lane;
            let source = if valid { source } else { lane as u32 };
            if self.mask >> source & 1 == 0 {
                return raise(FaultKind::ShuffleFromInactive { source }, lane);
            }
            result[lane] = values[source as usize];
        }
        self.write(*d, &result);
        self.write_predicate(*p, inside);
        Ok(())
    }

    pub(super) fn vote(
        &mut self,
        mode: VoteMode,
        d: Destination,
        a: Condition,
        members: Source,
    ) -> Done {
        self.members(members)?;
        let votes = self.condition(a) & self.mask;
        let spread = |holds: bool| if holds { u32::MAX } else { 0 };
        match mode {
            VoteMode::Ballot => self.write(d, &[votes; LANES]),
            VoteMode::All => self.write_predicate(d, spread(votes == self.mask)),
            VoteMode::Any => self.write_predicate(d, spread(votes != 0)),
            VoteMode::Uniform => {
                self.write_predicate(d, spread(votes == 0 || votes == self.mask));
            }
        }
        Ok(())
    }

    pub(super) fn matching(
        &mut self,
        (all, class): (bool, Class),
        (d, p): (Destination, Destination),
        a: Source,
        members: Source,
    ) -> Done {
        self.members(members)?;
        let values = self.read_bits(class, a);
        let equal_to = |value: u64| {
            lanes_of(self.mask)
                .filter(|lane| values[*lane] == value)
                .fold(0_u32, |mask, lane| mask | 1 << lane)
        };
        let masks = values.map(equal_to);
        if all {
            let first = self.mask.trailing_zeros() as usize % LANES;
            let agree = masks[first] == self.mask;
            self.write(d, &[if agree { self.mask } else { 0 }; LANES]);
            self.write_predicate(p, if agree { u32::MAX } else { 0 });
        } else {
            self.write(d, &masks);
        }
        Ok(())
    }

    pub(super) fn reduce(
        &mut self,
        op: AtomicOp,
        ty: Int,
        d: Destination,
        a: Source,
        members: Source,
    ) -> Done {
        self.members(members)?;
        match ty {
            Int::S32 => self.reduce_of::<i32>(op, d, a),
            _ => self.reduce_of::<u32>(op, d, a),
        }
        Ok(())
    }

    fn reduce_of<T: Integer>(&mut self, op: AtomicOp, d: Destination, a: Source) {
        let values = self.read::<T>(a);
        let combined =
            lanes_of(self.mask).map(|lane| values[lane]).reduce(|a, b| combine(op, a, b));
        if let Some(value) = combined {
            self.write(d, &[value; LANES]);
        }
    }

    /// The first lane that executes is elected.
    pub(super) fn elect(&mut self, d: Destination, p: Destination, members: Source) -> Done {
        self.members(members)?;
        let leader = self.mask.trailing_zeros() % LANES as u32;
        self.write(d, &[leader; LANES]);
        self.write_predicate(p, 1 << leader);
        Ok(())
    }
}

/// The lane that `lane` takes a value from, and whether it lies in its segment.
fn source_of(mode: ShuffleMode, lane: u32, offset: u32, control: u32) -> (u32, bool) {
    let (offset, clamp, segment) = (offset & 31, control & 31, control >> 8 & 31);
    let most = (lane & segment) | (clamp & !segment);
    let least = lane & segment;
    match mode {
        ShuffleMode::Up => {
            let source = lane.wrapping_sub(offset);
            (source, lane >= offset && source.cast_signed() >= most.cast_signed())
        }
        ShuffleMode::Down => (lane + offset, lane + offset <= most),
        ShuffleMode::Butterfly => (lane ^ offset, lane ^ offset <= most),
        ShuffleMode::Index => {
            let source = least | (offset & !segment);
            (source, source <= most)
        }
    }
}
