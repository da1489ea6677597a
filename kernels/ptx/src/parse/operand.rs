//! How an operand is written.

use super::cursor::Cursor;
use super::lexer::{Kind, Literal};
use super::scope::{Scopes, Symbol};
use super::statement::Raw;
use crate::error::Reason;
use crate::isa::operand::Special;

/// The most parts of a vector: the sums of a `wgmma` of 256 columns.
const MOST_PARTS: usize = 128;
/// The most operands of an instruction.
const MOST_OPERANDS: usize = 16;

/// The operands up to the semicolon, which is passed over.
pub(super) fn operands<'a>(
    cursor: &mut Cursor<'a>,
    scopes: &mut Scopes<'a>,
) -> Result<Vec<Raw<'a>>, Reason> {
    let mut operands = Vec::new();
    if cursor.accept(';') {
        return Ok(operands);
    }
    loop {
        let operand = operand(cursor, scopes)?;
        operands.push(operand);
        if operands.len() > MOST_OPERANDS {
            return Err(Reason::OperandCount(operands.len()));
        }
        if cursor.accept(';') {
            return Ok(operands);
        }
        cursor.expect(',', "',' or ';'")?;
    }
}

fn operand<'a>(cursor: &mut Cursor<'a>, scopes: &mut Scopes<'a>) -> Result<Raw<'a>, Reason> {
    if cursor.accept('{') {
        return vector(cursor, scopes);
    }
    if cursor.accept('[') {
        return address(cursor, scopes);
    }
    if cursor.accept('!') {
        let name = cursor.word("a predicate")?;
        return match scopes.find(name) {
            Some(Symbol::Register(register)) => Ok(Raw::Negated(register)),
            _ => Err(Reason::Name(name.to_owned())),
        };
    }
    let first = atom(cursor, scopes)?;
    if cursor.accept('|') {
        let second = atom(cursor, scopes)?;
        return Ok(Raw::Pair(Box::new(first), Box::new(second)));
    }
    // `symbol+offset` outside brackets, as `mov` has it.
    if let Raw::Variable { space, offset } = first
        && matches!(cursor.peek(), Some(Kind::Mark('+')))
    {
        let added = displacement(cursor)?;
        return Ok(Raw::Variable { space, offset: offset.wrapping_add_signed(added) });
    }
    Ok(first)
}

/// An operand without brackets or braces.
fn atom<'a>(cursor: &mut Cursor<'a>, scopes: &mut Scopes<'a>) -> Result<Raw<'a>, Reason> {
    let negative = cursor.accept('-');
    if let Some(Kind::Number(value)) = cursor.peek() {
        cursor.next();
        return Ok(Raw::Literal { value, negative });
    }
    if negative {
        return Err(cursor.unexpected("a number"));
    }
    let name = cursor.word("an operand")?;
    if name == "_" {
        return Ok(Raw::Sink);
    }
    if name == "WARP_SZ" {
        return Ok(Raw::Literal { value: Literal::Integer(32), negative });
    }
    if let Some(symbol) = scopes.find(name) {
        return Ok(symbol.into());
    }
    if name.starts_with('%') {
        let axis = match cursor.peek() {
            Some(Kind::Dotted(axis)) => {
                cursor.next();
                Some(axis)
            }
            _ => None,
        };
        return Special::parse(name, axis)
            .map(Raw::Special)
            .ok_or_else(|| Reason::Name(name.to_owned()));
    }
    Ok(Raw::Unknown(name))
}

fn vector<'a>(cursor: &mut Cursor<'a>, scopes: &mut Scopes<'a>) -> Result<Raw<'a>, Reason> {
    let mut parts = Vec::new();
    loop {
        parts.push(atom(cursor, scopes)?);
        if parts.len() > MOST_PARTS {
            return Err(Reason::TooLarge { what: "a vector", limit: MOST_PARTS });
        }
        if cursor.accept('}') {
            return Ok(Raw::Vector(parts));
        }
        cursor.expect(',', "',' or '}'")?;
    }
}

fn address<'a>(cursor: &mut Cursor<'a>, scopes: &mut Scopes<'a>) -> Result<Raw<'a>, Reason> {
    let base = atom(cursor, scopes)?;
    let offset = if cursor.accept(']') {
        0
    } else {
        let offset = displacement(cursor)?;
        cursor.expect(']', "']'")?;
        offset
    };
    Ok(Raw::Address { base: Box::new(base), offset })
}

/// `+n`, `-n` or `+-n`.
fn displacement(cursor: &mut Cursor<'_>) -> Result<i64, Reason> {
    let plus = cursor.accept('+');
    let minus = cursor.accept('-');
    if !(plus || minus) {
        return Err(cursor.unexpected("'+', '-' or ']'"));
    }
    match cursor.next() {
        Some(Kind::Number(Literal::Integer(value))) => {
            let value = value.cast_signed();
            Ok(if minus { value.wrapping_neg() } else { value })
        }
        _ => Err(cursor.unexpected("an offset")),
    }
}
