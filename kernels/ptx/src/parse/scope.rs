//! What a name stands for in a scope.

use std::collections::HashMap;

use crate::error::Reason;
use crate::isa::operand::Space;
use crate::isa::types::{Class, Scalar};

/// A named thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Symbol {
    Register(Register),
    /// A variable, by its offset in the space; a global one by its address.
    Variable {
        space: Space,
        offset: u64,
    },
}

/// A register: its declared type and its place in the file of its class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Register {
    pub(crate) ty: Scalar,
    pub(crate) slot: u32,
}

/// Nested scopes of a function, innermost last; the first is the module's.
#[derive(Default)]
pub(crate) struct Scopes<'a> {
    open: Vec<Scope<'a>>,
    next: usize,
    /// Registers in use in each file.
    pub(crate) words: u32,
    pub(crate) longs: u32,
    pub(crate) predicates: u32,
}

#[derive(Default)]
struct Scope<'a> {
    number: usize,
    names: HashMap<&'a str, Symbol>,
    /// `%r<n>`: the registers `%r0` to `%r(n-1)`, which get a place when first named.
    families: HashMap<&'a str, (u64, Scalar)>,
}

impl<'a> Scopes<'a> {
    pub(crate) fn enter(&mut self) {
        self.next += 1;
        self.open.push(Scope { number: self.next, ..Scope::default() });
    }

    /// Leaves the innermost scope; false where it is the outermost.
    pub(crate) fn leave(&mut self) -> bool {
        self.open.pop();
        !self.open.is_empty()
    }

    /// Numbers of the open scopes, innermost first.
    pub(crate) fn chain(&self) -> Vec<usize> {
        self.open.iter().rev().map(|scope| scope.number).collect()
    }

    /// Number of the innermost scope.
    pub(crate) fn innermost(&self) -> usize {
        self.open.last().map_or(0, |scope| scope.number)
    }

    pub(crate) fn declare(&mut self, name: &'a str, symbol: Symbol) -> Result<(), Reason> {
        let scope = self.open.last_mut().ok_or_else(|| Reason::Name(name.to_owned()))?;
        match scope.names.insert(name, symbol) {
            None => Ok(()),
            Some(_) => Err(Reason::Redeclared(name.to_owned())),
        }
    }

    pub(crate) fn declare_register(&mut self, name: &'a str, ty: Scalar) -> Result<(), Reason> {
        let register = self.place(ty);
        self.declare(name, Symbol::Register(register))
    }

    pub(crate) fn declare_family(
        &mut self,
        prefix: &'a str,
        count: u64,
        ty: Scalar,
    ) -> Result<(), Reason> {
        let scope = self.open.last_mut().ok_or_else(|| Reason::Name(prefix.to_owned()))?;
        match scope.families.insert(prefix, (count, ty)) {
            None => Ok(()),
            Some(_) => Err(Reason::Redeclared(prefix.to_owned())),
        }
    }

    fn place(&mut self, ty: Scalar) -> Register {
        let count = match ty.class() {
            Class::Predicate => &mut self.predicates,
            Class::Word => &mut self.words,
            Class::Long => &mut self.longs,
        };
        let slot = *count;
        *count += 1;
        Register { ty, slot }
    }

    pub(crate) fn find(&mut self, name: &'a str) -> Option<Symbol> {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (prefix, number) = name.split_at(name.len() - digits);
        let number = Some(number)
            .filter(|text| *text == "0" || !text.starts_with('0'))
            .and_then(|text| text.parse::<u64>().ok());
        for at in (0..self.open.len()).rev() {
            if let Some(symbol) = self.open[at].names.get(name) {
                return Some(*symbol);
            }
            let family = self.open[at].families.get(prefix).copied();
            if let (Some(number), Some((count, ty))) = (number, family)
                && number < count
            {
                let symbol = Symbol::Register(self.place(ty));
                self.open[at].names.insert(name, symbol);
                return Some(symbol);
            }
        }
        None
    }
}
