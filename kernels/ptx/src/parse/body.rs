//! How the body of an entry becomes its instructions.

use std::collections::HashMap;

use super::cursor::Cursor;
use super::lexer::Kind;
use super::operand::operands;
use super::scope::{Scopes, Symbol};
use super::statement::Statement;
use super::variable::{Declaration, MOST_BYTES, declaration};
use super::{SharedLayout, Stop, family, place_shared};
use crate::error::{ParseError, Reason};
use crate::flow;
use crate::isa::Instruction;
use crate::isa::operand::{Condition, Space};
use crate::isa::operation::Operation;
use crate::isa::types::Scalar;
use crate::module::Entry;

/// The most instructions of an entry; the record of an access has so much room for its number.
pub(crate) const MOST_INSTRUCTIONS: usize = 1 << 20;

/// Reads a body up to the brace that closes it.
pub(super) fn read<'a>(
    cursor: &mut Cursor<'a>,
    scopes: &mut Scopes<'a>,
    shared: SharedLayout,
    entry: &mut Entry,
) -> Result<(), Stop> {
    (scopes.words, scopes.longs, scopes.predicates) = (0, 0, 0);
    let mut body = Body {
        cursor,
        scopes,
        shared,
        entry,
        labels: HashMap::new(),
        branches: Vec::new(),
        opcodes: HashMap::new(),
        depth: 1,
    };
    body.scopes.enter();
    while body.depth > 0 {
        let place = body.cursor.place();
        body.item().map_err(|reason| body.cursor.error(place, reason))?;
    }
    Ok(body.finish()?)
}

/// Bytes of the shared variables that the body declares after those of `layout`; its brace is just
/// passed.
///
/// Dynamic shared memory follows them all, and instructions name it before they are all read.
pub(super) fn shared_bytes(
    mut cursor: Cursor<'_>,
    mut layout: SharedLayout,
) -> Result<usize, Reason> {
    let mut depth = 1_usize;
    while depth > 0 {
        match cursor.next() {
            Some(Kind::Mark('{')) => depth += 1,
            Some(Kind::Mark('}')) => depth -= 1,
            Some(Kind::Dotted("shared")) => {
                place_shared(&mut layout, &declaration(&mut cursor, false)?)?;
            }
            // What follows a word on its way to the semicolon are modifiers and operands.
            Some(Kind::Word(_)) => {
                while !matches!(cursor.peek(), None | Some(Kind::Mark(';' | ':' | '{' | '}'))) {
                    cursor.next();
                }
            }
            Some(_) => {}
            None => return Err(cursor.unexpected("'}'")),
        }
    }
    Ok(layout.bytes)
}

struct Body<'a, 'b> {
    cursor: &'b mut Cursor<'a>,
    scopes: &'b mut Scopes<'a>,
    shared: SharedLayout,
    entry: &'b mut Entry,
    /// Labels by the scope that declares them.
    labels: HashMap<(usize, &'a str), u32>,
    branches: Vec<Branch<'a>>,
    opcodes: HashMap<String, u32>,
    depth: usize,
}

/// A branch whose target is not yet known.
struct Branch<'a> {
    instruction: usize,
    label: &'a str,
    /// Scopes in which to look for the label, innermost first.
    scopes: Vec<usize>,
    place: usize,
}

impl<'a> Body<'a, '_> {
    fn item(&mut self) -> Result<(), Reason> {
        match self.cursor.peek() {
            Some(Kind::Mark('{')) => {
                self.cursor.next();
                self.scopes.enter();
                self.depth += 1;
                Ok(())
            }
            Some(Kind::Mark('}')) => {
                self.cursor.next();
                self.scopes.leave();
                self.depth -= 1;
                Ok(())
            }
            Some(Kind::Mark(';')) => {
                self.cursor.next();
                Ok(())
            }
            Some(Kind::Dotted(name)) => {
                self.cursor.next();
                self.directive(name)
            }
            Some(Kind::Word(name)) if self.cursor.peek_second() == Some(Kind::Mark(':')) => {
                self.cursor.next();
                self.cursor.next();
                self.label(name)
            }
            Some(_) => self.instruction(),
            None => Err(self.cursor.unexpected("'}'")),
        }
    }

    fn label(&mut self, name: &'a str) -> Result<(), Reason> {
        let target = self.entry.code.len() as u32;
        match self.labels.insert((self.scopes.innermost(), name), target) {
            None => Ok(()),
            Some(_) => Err(Reason::Redeclared(name.to_owned())),
        }
    }

    fn directive(&mut self, name: &'a str) -> Result<(), Reason> {
        match name {
            "reg" => self.registers(),
            "shared" => {
                let declaration = declaration(self.cursor, false)?;
                if declaration.initial.is_some() {
                    return Err(Reason::Unsupported("an initial value in shared memory".into()));
                }
                let symbol = place_shared(&mut self.shared, &declaration)?;
                self.scopes.declare(declaration.name, symbol)
            }
            "local" => {
                let declaration = declaration(self.cursor, false)?;
                self.local(&declaration)
            }
            "loc" => {
                self.cursor.skip_line();
                Ok(())
            }
            "pragma" => {
                self.cursor.next();
                self.cursor.expect(';', "';'")
            }
            other => Err(Reason::Directive(other.to_owned())),
        }
    }

    fn local(&mut self, declaration: &Declaration<'a>) -> Result<(), Reason> {
        if declaration.initial.is_some() {
            return Err(Reason::Unsupported("an initial value in local memory".into()));
        }
        let offset = self.entry.local_bytes.next_multiple_of(declaration.alignment);
        self.entry.local_bytes = offset + declaration.bytes;
        if self.entry.local_bytes > MOST_BYTES {
            return Err(Reason::TooLarge { what: "local memory", limit: MOST_BYTES });
        }
        let symbol = Symbol::Variable { space: Space::Local, offset: offset as u64 };
        self.scopes.declare(declaration.name, symbol)
    }

    /// `.reg .type name, name<count>, ..;`
    fn registers(&mut self) -> Result<(), Reason> {
        let name = self.cursor.dotted("a type")?;
        let ty = Scalar::parse(name)
            .filter(|ty| ty.bits() != 8 && *ty != Scalar::Tf32)
            .ok_or_else(|| Reason::Unsupported(format!("a register of type '.{name}'")))?;
        loop {
            let name = self.cursor.word("a register")?;
            if self.cursor.accept('<') {
                let count = self.cursor.integer("a number of registers")?;
                self.cursor.expect('>', "'>'")?;
                self.scopes.declare_family(name, count, ty)?;
            } else {
                self.scopes.declare_register(name, ty)?;
            }
            if self.cursor.accept(';') {
                return Ok(());
            }
            self.cursor.expect(',', "',' or ';'")?;
        }
    }

    fn guard(&mut self) -> Result<Option<Condition>, Reason> {
        if !self.cursor.accept('@') {
            return Ok(None);
        }
        let negated = self.cursor.accept('!');
        let name = self.cursor.word("a predicate")?;
        match self.scopes.find(name) {
            Some(Symbol::Register(register)) if register.ty == Scalar::Pred => {
                Ok(Some(Condition::Register { slot: register.slot, negated }))
            }
            _ => Err(Reason::Name(name.to_owned())),
        }
    }

    fn instruction(&mut self) -> Result<(), Reason> {
        let (place, line) = (self.cursor.place(), self.cursor.line());
        let text = self.cursor.text_from(place);
        let guard = self.guard()?;
        let start = self.cursor.place();
        let opcode = self.cursor.word("an instruction")?;
        family::supported(opcode)?;
        let mut modifiers = Vec::new();
        while let Some(Kind::Dotted(modifier)) = self.cursor.peek() {
            self.cursor.next();
            modifiers.push(modifier);
        }
        let full = self.cursor.text_until_here(start);
        let operands = operands(self.cursor, self.scopes)?;
        let mut statement = Statement::new(opcode, modifiers, operands);
        let operation = family::operation(&mut statement)?;
        if matches!(operation, Operation::Branch { .. }) {
            let (instruction, label) = (self.entry.code.len(), statement.label()?);
            let scopes = self.scopes.chain();
            self.branches.push(Branch { instruction, label, scopes, place });
        }
        statement.finish()?;
        let opcode = self.opcode(full);
        self.entry.code.push(Instruction { guard, operation, line, text, opcode });
        if self.entry.code.len() >= MOST_INSTRUCTIONS {
            return Err(Reason::TooLarge { what: "an entry", limit: MOST_INSTRUCTIONS });
        }
        Ok(())
    }

    fn opcode(&mut self, name: String) -> u32 {
        let next = self.entry.opcodes.len() as u32;
        let opcodes = &mut self.entry.opcodes;
        *self.opcodes.entry(name).or_insert_with_key(|name| {
            opcodes.push(name.clone());
            next
        })
    }

    fn finish(self) -> Result<(), ParseError> {
        for branch in &self.branches {
            let target = branch
                .scopes
                .iter()
                .find_map(|scope| self.labels.get(&(*scope, branch.label)))
                .ok_or_else(|| {
                    self.cursor.error(branch.place, Reason::Name(branch.label.to_owned()))
                })?;
            if let Operation::Branch { target: place, .. } =
                &mut self.entry.code[branch.instruction].operation
            {
                *place = *target;
            }
        }
        // Running off the end is returning.
        self.entry.code.push(Instruction {
            guard: None,
            operation: Operation::Exit,
            line: self.cursor.line(),
            text: "}".to_owned(),
            opcode: self.entry.opcodes.len() as u32,
        });
        (self.entry.words, self.entry.longs, self.entry.predicates) =
            (self.scopes.words, self.scopes.longs, self.scopes.predicates);
        self.entry.reconvergence = flow::reconvergence(&self.entry.code);
        self.entry.shared_granule = flow::shared_granule(&self.entry.code);
        self.entry.has_products = flow::has_products(&self.entry.code);
        self.entry.has_global_atomics = flow::has_global_atomics(&self.entry.code);
        Ok(())
    }
}
