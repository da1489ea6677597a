//! Registers of a warp: for each, the values of 32 lanes side by side.

use crate::isa::operand::{Condition, Destination};

/// Lanes of a warp.
pub(crate) const LANES: usize = 32;
/// All lanes of a warp.
pub(crate) const ALL: u32 = u32::MAX;

/// The register files of a warp.
pub(crate) struct Registers {
    words: Vec<[u32; LANES]>,
    longs: Vec<[u64; LANES]>,
    predicates: Vec<u32>,
    /// Words that were written since the last fence of asynchronous matrix products, all of them
    /// before the first; empty where the entry has none.
    unfenced: Vec<bool>,
}

impl Registers {
    /// Files of so many registers; what is not yet written reads as NaN.
    pub(crate) fn new(words: u32, longs: u32, predicates: u32, has_products: bool) -> Self {
        Self {
            unfenced: vec![true; if has_products { words as usize } else { 0 }],
            words: vec![[u32::MAX; LANES]; words as usize],
            longs: vec![[u64::MAX; LANES]; longs as usize],
            predicates: vec![0; predicates as usize],
        }
    }

    pub(crate) fn predicate(&self, condition: Condition) -> u32 {
        match condition {
            Condition::Register { slot, negated } => {
                self.predicates[slot as usize] ^ if negated { ALL } else { 0 }
            }
            Condition::Constant(true) => ALL,
            Condition::Constant(false) => 0,
        }
    }

    pub(crate) fn set_predicate(&mut self, d: Destination, mask: u32, value: u32) {
        if let Some(slot) = d {
            let old = &mut self.predicates[slot as usize];
            *old = *old & !mask | value & mask;
        }
    }

    pub(crate) fn set<T: Lane>(&mut self, d: Destination, mask: u32, values: &[T; LANES]) {
        let Some(slot) = d else { return };
        T::Word::mark(self, slot as usize);
        let register = &mut T::Word::file_mut(self)[slot as usize];
        if mask == ALL {
            for (old, new) in register.iter_mut().zip(values) {
                *old = new.into_word();
            }
        } else {
            for (lane, (old, new)) in register.iter_mut().zip(values).enumerate() {
                if mask >> lane & 1 == 1 {
                    *old = new.into_word();
                }
            }
        }
    }

    /// Asynchronous matrix products may use what was written until now.
    pub(crate) fn fence(&mut self) {
        self.unfenced.fill(false);
    }

    /// Whether a word was written since the last fence.
    pub(crate) fn is_unfenced(&self, slot: u32) -> bool {
        self.unfenced.get(slot as usize).is_some_and(|unfenced| *unfenced)
    }

    /// The product at hand wrote this word, which the next may use without a fence.
    pub(crate) fn keep_fenced(&mut self, slot: u32) {
        if let Some(unfenced) = self.unfenced.get_mut(slot as usize) {
            *unfenced = false;
        }
    }

    /// The values of a source that is no special register.
    pub(crate) fn get<T: Lane>(&self, slot: u32) -> [T; LANES] {
        T::Word::file(self)[slot as usize].map(T::from_word)
    }
}

/// What a register holds for one lane: 32 or 64 bits.
pub(crate) trait Word: Copy {
    fn file(registers: &Registers) -> &[[Self; LANES]];
    fn file_mut(registers: &mut Registers) -> &mut [[Self; LANES]];
    fn from_bits(bits: u64) -> Self;
    /// Notes that a register is written.
    fn mark(registers: &mut Registers, slot: usize);
}

impl Word for u32 {
    fn mark(registers: &mut Registers, slot: usize) {
        if let Some(unfenced) = registers.unfenced.get_mut(slot) {
            *unfenced = true;
        }
    }

    fn file(registers: &Registers) -> &[[Self; LANES]] {
        &registers.words
    }

    fn file_mut(registers: &mut Registers) -> &mut [[Self; LANES]] {
        &mut registers.words
    }

    fn from_bits(bits: u64) -> Self {
        bits as Self
    }
}

impl Word for u64 {
    /// No matrix product has operands of 64 bits in registers but descriptors.
    fn mark(_: &mut Registers, _: usize) {}

    fn file(registers: &Registers) -> &[[Self; LANES]] {
        &registers.longs
    }

    fn file_mut(registers: &mut Registers) -> &mut [[Self; LANES]] {
        &mut registers.longs
    }

    fn from_bits(bits: u64) -> Self {
        bits
    }
}

/// A value that a register holds for one lane.
pub(crate) trait Lane: Copy {
    type Word: Word;

    fn from_word(word: Self::Word) -> Self;

    /// The bits, zero-extended to the register.
    fn into_word(self) -> Self::Word;

    fn from_immediate(bits: u64) -> Self {
        Self::from_word(Self::Word::from_bits(bits))
    }
}

macro_rules! lane {
    ($ty:ty, $word:ty, $from:expr, $into:expr) => {
        impl Lane for $ty {
            type Word = $word;

            fn from_word(word: $word) -> Self {
                $from(word)
            }

            fn into_word(self) -> $word {
                $into(self)
            }
        }
    };
}

lane!(u16, u32, |word| word as u16, u32::from);
lane!(i16, u32, |word| word as i16, |value: i16| u32::from(value.cast_unsigned()));
lane!(u32, u32, |word| word, |value| value);
lane!(i32, u32, u32::cast_signed, i32::cast_unsigned);
lane!(f32, u32, f32::from_bits, f32::to_bits);
lane!(u64, u64, |word| word, |value| value);
lane!(i64, u64, u64::cast_signed, i64::cast_unsigned);
lane!(f64, u64, f64::from_bits, f64::to_bits);

/// An integer of arithmetic.
pub(crate) trait Integer: Lane + Ord {
    const BITS: u32;
    const SIGNED: bool;

    /// The bits, zero-extended.
    fn bits(self) -> u64;
    /// The lowest bits.
    fn from_bits(bits: u64) -> Self;
    /// The value.
    fn wide(self) -> i128;
}

macro_rules! integer {
    ($ty:ty, $unsigned:ty, $signed:expr) => {
        impl Integer for $ty {
            const BITS: u32 = <$ty>::BITS;
            const SIGNED: bool = $signed;

            fn bits(self) -> u64 {
                (self as $unsigned).into()
            }

            fn from_bits(bits: u64) -> Self {
                bits as Self
            }

            fn wide(self) -> i128 {
                self.into()
            }
        }
    };
}

integer!(u16, u16, false);
integer!(i16, u16, true);
integer!(u32, u32, false);
integer!(i32, u32, true);
integer!(u64, u64, false);
integer!(i64, u64, true);
