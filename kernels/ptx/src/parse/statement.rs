//! One instruction while it is read: its modifiers, taken in order, and its operands, taken in order.
//!
//! What is not taken is refused: a family of instructions takes what it knows, and
//! [`Statement::finish`] finds the rest.

use super::lexer::Literal;
use super::scope::{Register, Symbol};
use crate::error::Reason;
use crate::isa::operand::{Address, Base, Condition, Destination, Source, Space, Special};
use crate::isa::types::{Class, Scalar};

/// An operand as written, names resolved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Raw<'a> {
    Register(Register),
    Negated(Register),
    Literal {
        value: Literal,
        negative: bool,
    },
    Special(Special),
    Variable {
        space: Space,
        offset: u64,
    },
    Vector(Vec<Raw<'a>>),
    Address {
        base: Box<Raw<'a>>,
        offset: i64,
    },
    Pair(Box<Raw<'a>>, Box<Raw<'a>>),
    Sink,
    /// A name that nothing declares: a label, or an error.
    Unknown(&'a str),
}

impl Raw<'_> {
    fn describe(&self) -> String {
        match self {
            Self::Register(register) => format!("a register of {} bits", register.ty.bits()),
            Self::Negated(_) => "a negated predicate".to_owned(),
            Self::Literal { .. } => "a number".to_owned(),
            Self::Special(_) => "a special register".to_owned(),
            Self::Variable { space, .. } => format!("a variable in {space} memory"),
            Self::Vector(parts) => format!("{} values", parts.len()),
            Self::Address { .. } => "an address".to_owned(),
            Self::Pair(..) => "two results".to_owned(),
            Self::Sink => "'_'".to_owned(),
            Self::Unknown(name) => format!("the unknown name '{name}'"),
        }
    }
}

/// An instruction while it is read.
pub(crate) struct Statement<'a> {
    pub(crate) opcode: &'a str,
    modifiers: Vec<&'a str>,
    modifier: usize,
    operands: Vec<Raw<'a>>,
    operand: usize,
}

impl<'a> Statement<'a> {
    pub(crate) const fn new(
        opcode: &'a str,
        modifiers: Vec<&'a str>,
        operands: Vec<Raw<'a>>,
    ) -> Self {
        Self { opcode, modifiers, modifier: 0, operands, operand: 0 }
    }

    // Modifiers.

    fn next_modifier(&self) -> Option<&'a str> {
        self.modifiers.get(self.modifier).copied()
    }

    /// The type that the last modifier names.
    pub(crate) fn last_type(&self) -> Option<Scalar> {
        self.modifiers.last().and_then(|name| Scalar::parse(name))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.modifiers.contains(&name)
    }

    /// Takes a modifier if it is next.
    pub(crate) fn take(&mut self, name: &str) -> bool {
        let is_next = self.next_modifier() == Some(name);
        self.modifier += usize::from(is_next);
        is_next
    }

    /// Takes the next modifier if it is one of these.
    pub(crate) fn choose<T: Copy>(&mut self, choices: &[(&str, T)]) -> Option<T> {
        let next = self.next_modifier()?;
        let choice = choices.iter().find(|(name, _)| *name == next)?.1;
        self.modifier += 1;
        Some(choice)
    }

    /// Takes the next modifier, which must be one of these.
    pub(crate) fn require<T: Copy>(
        &mut self,
        choices: &[(&str, T)],
        missing: &'static str,
    ) -> Result<T, Reason> {
        match self.choose(choices) {
            Some(choice) => Ok(choice),
            None => Err(self.bad_modifier(missing)),
        }
    }

    /// Takes a modifier that must be next.
    pub(crate) fn require_modifier(&mut self, name: &'static str) -> Result<(), Reason> {
        self.require(&[(name, ())], name)
    }

    /// Takes the next modifier, which must name one of these types.
    pub(crate) fn ty(&mut self, allowed: &[Scalar]) -> Result<Scalar, Reason> {
        match self.next_modifier().and_then(Scalar::parse).filter(|ty| allowed.contains(ty)) {
            Some(ty) => {
                self.modifier += 1;
                Ok(ty)
            }
            None => Err(self.bad_modifier("a type")),
        }
    }

    /// The next modifier, read by `read`.
    pub(crate) fn read_modifier<T>(
        &mut self,
        missing: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Reason> {
        match self.next_modifier().and_then(read) {
            Some(value) => {
                self.modifier += 1;
                Ok(value)
            }
            None => Err(self.bad_modifier(missing)),
        }
    }

    /// What is wrong with the next modifier.
    pub(crate) fn bad_modifier(&self, missing: &'static str) -> Reason {
        let opcode = self.opcode.to_owned();
        match self.next_modifier() {
            Some(modifier) => Reason::Modifier { opcode, modifier: modifier.to_owned() },
            None => Reason::Incomplete { opcode, missing },
        }
    }

    // Operands.

    /// Whether operands are left.
    pub(crate) fn has_operand(&self) -> bool {
        self.operand < self.operands.len()
    }

    /// How many operands are left.
    pub(crate) fn operands_left(&self) -> usize {
        self.operands.len().saturating_sub(self.operand)
    }

    pub(crate) fn peek_operand(&self) -> Option<&Raw<'a>> {
        self.operands.get(self.operand)
    }

    pub(crate) fn next_operand(&mut self) -> Result<Raw<'a>, Reason> {
        let raw = self.operands.get(self.operand).cloned();
        self.operand += 1;
        raw.ok_or(Reason::OperandCount(self.operands.len()))
    }

    fn mismatch(&self, expected: impl Into<String>, found: &Raw<'_>) -> Reason {
        if let Raw::Unknown(name) = found {
            return Reason::Name((*name).to_owned());
        }
        let (expected, found) = (expected.into(), found.describe());
        Reason::Operand { position: self.operand, expected, found }
    }

    /// A register of exactly the type's width, or `_`.
    pub(crate) fn destination(&mut self, ty: Scalar) -> Result<Destination, Reason> {
        let raw = self.next_operand()?;
        self.as_destination(&raw, ty)
    }

    fn as_destination(&self, raw: &Raw<'_>, ty: Scalar) -> Result<Destination, Reason> {
        match raw {
            Raw::Sink => Ok(None),
            Raw::Register(register) if register.ty.bits() == ty.bits() => Ok(Some(register.slot)),
            found => Err(self.mismatch(format!("a register of {} bits", ty.bits()), found)),
        }
    }

    /// A destination that may be a pair `d|p` with a predicate.
    pub(crate) fn destination_pair(
        &mut self,
        ty: Scalar,
    ) -> Result<(Destination, Destination), Reason> {
        match self.next_operand()? {
            Raw::Pair(first, second) => {
                Ok((self.as_destination(&first, ty)?, self.as_destination(&second, Scalar::Pred)?))
            }
            raw => Ok((self.as_destination(&raw, ty)?, None)),
        }
    }

    /// A value of the type.
    pub(crate) fn source(&mut self, ty: Scalar) -> Result<Source, Reason> {
        let raw = self.next_operand()?;
        self.as_source(&raw, ty)
    }

    fn as_source(&self, raw: &Raw<'_>, ty: Scalar) -> Result<Source, Reason> {
        match raw {
            Raw::Register(register) if register.ty.bits() == ty.bits() && ty != Scalar::Pred => {
                Ok(Source::Register(register.slot))
            }
            Raw::Literal { value, negative } => immediate(*value, *negative, ty)
                .map(Source::Immediate)
                .ok_or_else(|| self.mismatch(format!("a number of {} bits", ty.bits()), raw)),
            Raw::Special(special) if ty.bits() == 32 => Ok(Source::Special(*special)),
            found => Err(self.mismatch(format!("a value of {} bits", ty.bits()), found)),
        }
    }

    /// A number known when the text is read.
    pub(crate) fn constant(&mut self) -> Result<u64, Reason> {
        match self.next_operand()? {
            Raw::Literal { value: Literal::Integer(value), negative } => {
                Ok(if negative { value.wrapping_neg() } else { value })
            }
            found => Err(self.mismatch("an integer", &found)),
        }
    }

    /// A predicate, possibly negated, or a constant.
    pub(crate) fn condition(&mut self) -> Result<Condition, Reason> {
        match self.next_operand()? {
            Raw::Register(register) if register.ty == Scalar::Pred => {
                Ok(Condition::Register { slot: register.slot, negated: false })
            }
            Raw::Negated(register) if register.ty == Scalar::Pred => {
                Ok(Condition::Register { slot: register.slot, negated: true })
            }
            Raw::Literal { value: Literal::Integer(value), .. } => {
                Ok(Condition::Constant(value != 0))
            }
            found => Err(self.mismatch("a predicate", &found)),
        }
    }

    /// One register or a vector of them, each of at least the type's width; with the width of all.
    pub(crate) fn load_destinations(
        &mut self,
        ty: Scalar,
        count: usize,
    ) -> Result<(u32, Box<[Destination]>), Reason> {
        let parts = self.parts(count)?;
        let bits = self.shared_bits(&parts, ty)?;
        let destinations = parts
            .iter()
            .map(|raw| match raw {
                Raw::Sink => Ok(None),
                Raw::Register(register) => Ok(Some(register.slot)),
                found => Err(self.mismatch("a register", found)),
            })
            .collect::<Result<_, _>>()?;
        Ok((bits, destinations))
    }

    /// One value or a vector of them, each of at least the type's width; with the width of all.
    pub(crate) fn store_sources(
        &mut self,
        ty: Scalar,
        count: usize,
    ) -> Result<(u32, Box<[Source]>), Reason> {
        let parts = self.parts(count)?;
        let bits = self.shared_bits(&parts, ty)?;
        let sources = parts
            .iter()
            .map(|raw| match raw {
                Raw::Register(register) => Ok(Source::Register(register.slot)),
                other => self.as_source(other, ty),
            })
            .collect::<Result<_, _>>()?;
        Ok((bits, sources))
    }

    /// A vector of `count` operands; braces may be missing around one.
    fn parts(&mut self, count: usize) -> Result<Vec<Raw<'a>>, Reason> {
        match self.next_operand()? {
            Raw::Vector(parts) if parts.len() == count => Ok(parts),
            Raw::Vector(parts) => {
                Err(self.mismatch(format!("{count} values"), &Raw::Vector(parts)))
            }
            one if count == 1 => Ok(vec![one]),
            found => Err(self.mismatch(format!("{count} values"), &found)),
        }
    }

    /// Values of a load or store stand in registers of one width, at least the type's.
    fn shared_bits(&self, parts: &[Raw<'_>], ty: Scalar) -> Result<u32, Reason> {
        let mut bits = None;
        for part in parts {
            if let Raw::Register(register) = part {
                let found = register.ty.bits();
                let fits = found >= ty.bits() && register.ty != Scalar::Pred;
                if !fits || bits.is_some_and(|bits| bits != found) {
                    return Err(self.mismatch(format!("a register of {} bits", ty.bits()), part));
                }
                bits = Some(found);
            }
        }
        Ok(bits.unwrap_or(ty.bits()))
    }

    /// A vector of `count` registers of 32 bits to write.
    pub(crate) fn word_destinations(&mut self, count: usize) -> Result<Box<[Destination]>, Reason> {
        let parts = self.parts(count)?;
        parts.iter().map(|raw| self.as_destination(raw, Scalar::B32)).collect()
    }

    /// A vector of `count` values of 32 bits.
    pub(crate) fn word_sources(&mut self, count: usize) -> Result<Box<[Source]>, Reason> {
        let parts = self.parts(count)?;
        parts.iter().map(|raw| self.as_source(raw, Scalar::B32)).collect()
    }

    /// The parts of a vector as destinations of the type.
    pub(crate) fn vector_destinations(
        &self,
        parts: &[Raw<'_>],
        ty: Scalar,
    ) -> Result<Box<[Destination]>, Reason> {
        parts.iter().map(|raw| self.as_destination(raw, ty)).collect()
    }

    /// The parts of a vector as values of the type.
    pub(crate) fn vector_sources(
        &self,
        parts: &[Raw<'_>],
        ty: Scalar,
    ) -> Result<Box<[Source]>, Reason> {
        parts.iter().map(|raw| self.as_source(raw, ty)).collect()
    }

    /// An operand in brackets. A variable must lie in `space`.
    pub(crate) fn address(&mut self, space: Space) -> Result<Address, Reason> {
        let raw = self.next_operand()?;
        let Raw::Address { base, offset } = &raw else {
            return Err(self.mismatch("an address in brackets", &raw));
        };
        let (base, start) = match base.as_ref() {
            Raw::Register(register) => match register.ty.class() {
                Class::Word if register.ty.bits() == 32 => (Base::Word(register.slot), 0),
                Class::Long => (Base::Long(register.slot), 0),
                _ => return Err(self.mismatch("an address register", &raw)),
            },
            Raw::Variable { space: found, offset } if *found == space => (Base::Zero, *offset),
            Raw::Literal { value: Literal::Integer(value), negative: false } => {
                (Base::Zero, *value)
            }
            Raw::Variable { .. } => {
                return Err(self.mismatch(format!("a variable in {space} memory"), base));
            }
            found => return Err(self.mismatch("an address", found)),
        };
        Ok(Address { base, offset: offset.wrapping_add(start.cast_signed()) })
    }

    /// The name of a label.
    pub(crate) fn label(&mut self) -> Result<&'a str, Reason> {
        match self.next_operand()? {
            Raw::Unknown(name) => Ok(name),
            found => Err(self.mismatch("a label", &found)),
        }
    }

    /// Refuses what no one took.
    pub(crate) fn finish(&self) -> Result<(), Reason> {
        if self.modifier < self.modifiers.len() {
            return Err(self.bad_modifier("nothing"));
        }
        if self.operand < self.operands.len() {
            return Err(Reason::OperandCount(self.operands.len()));
        }
        Ok(())
    }

    /// Refuses what PTX has here and the emulator has not.
    pub(crate) fn unsupported<T>(&self, what: &str) -> Result<T, Reason> {
        Err(Reason::Unsupported(format!("'{}': {what}", self.opcode)))
    }

    pub(crate) fn expected(&self, expected: &str, found: &Raw<'_>) -> Reason {
        self.mismatch(expected, found)
    }
}

/// The bits of a number as a value of a type, if it can be one.
fn immediate(value: Literal, negative: bool, ty: Scalar) -> Option<u64> {
    let is_float = matches!(ty, Scalar::F32 | Scalar::F64);
    match value {
        Literal::Integer(value) if !is_float => {
            let value = if negative { value.wrapping_neg() } else { value };
            Some(if ty.bits() >= 64 { value } else { value & ((1 << ty.bits()) - 1) })
        }
        Literal::Single(bits) if ty.bits() == 32 => {
            Some(u64::from(if negative { bits ^ 0x8000_0000 } else { bits }))
        }
        Literal::Double(value) => {
            let value = if negative { -value } else { value };
            match ty {
                Scalar::F64 | Scalar::B64 => Some(value.to_bits()),
                Scalar::F32 => Some(u64::from((value as f32).to_bits())),
                _ => None,
            }
        }
        Literal::Integer(_) | Literal::Single(_) => None,
    }
}

impl From<Symbol> for Raw<'_> {
    fn from(symbol: Symbol) -> Self {
        match symbol {
            Symbol::Register(register) => Raw::Register(register),
            Symbol::Variable { space, offset } => Raw::Variable { space, offset },
        }
    }
}
