//! How variables and parameters are declared.

use super::cursor::Cursor;
use super::lexer::{Kind, Literal};
use crate::error::Reason;
use crate::isa::operand::Space;
use crate::isa::types::Scalar;

/// Bytes that one memory of a module may hold.
pub(super) const MOST_BYTES: usize = 1 << 26;

/// A declared variable.
pub(super) struct Declaration<'a> {
    pub(super) name: &'a str,
    pub(super) alignment: usize,
    /// Bytes of the whole array.
    pub(super) bytes: usize,
    pub(super) initial: Option<Vec<u8>>,
}

impl Declaration<'_> {
    /// Its bytes at the start of a launch: the initial value, then zeros.
    pub(super) fn contents(&self) -> Vec<u8> {
        let mut bytes = self.initial.clone().unwrap_or_default();
        bytes.resize(self.bytes, 0);
        bytes
    }
}

/// The state space that a directive names.
pub(super) fn space_of(name: &str) -> Result<Space, Reason> {
    Ok(match name {
        "global" => Space::Global,
        "shared" => Space::Shared,
        "const" => Space::Const,
        "local" => Space::Local,
        other => return Err(Reason::Directive(other.to_owned())),
    })
}

/// `{.align n} .type name{[n]..}{ = value};`, the state space being read.
pub(super) fn declaration<'a>(
    cursor: &mut Cursor<'a>,
    is_extern: bool,
) -> Result<Declaration<'a>, Reason> {
    let mut declaration = head(cursor, is_extern)?;
    let (element, mut declared) = (declaration.1, declaration.0.bytes);
    if cursor.accept('=') {
        let bytes = initial(cursor, element, declared)?;
        declared = declared.max(bytes.len());
        declaration.0.initial = Some(bytes);
    }
    declaration.0.bytes = declared;
    cursor.expect(';', "';'")?;
    Ok(declaration.0)
}

/// A parameter of an entry, after `.param`.
pub(super) fn parameter<'a>(cursor: &mut Cursor<'a>) -> Result<Declaration<'a>, Reason> {
    Ok(head(cursor, false)?.0)
}

fn alignment(cursor: &mut Cursor<'_>) -> Result<usize, Reason> {
    let value = cursor.integer("an alignment")?;
    match usize::try_from(value) {
        Ok(value) if value.is_power_of_two() && value <= 1 << 16 => Ok(value),
        _ => Err(Reason::Number(value.to_string())),
    }
}

fn head<'a>(cursor: &mut Cursor<'a>, is_extern: bool) -> Result<(Declaration<'a>, Scalar), Reason> {
    let mut aligned = cursor.accept_dotted("align").then(|| alignment(cursor)).transpose()?;
    let name = cursor.dotted("a type")?;
    let element = Scalar::parse(name)
        .filter(|ty| *ty != Scalar::Pred)
        .ok_or_else(|| Reason::Unsupported(format!("a variable of type '.{name}'")))?;
    // What a pointer parameter points to says nothing about the parameter.
    if cursor.accept_dotted("ptr") {
        while let Some(Kind::Dotted("global" | "shared" | "const" | "local")) = cursor.peek() {
            cursor.next();
        }
        if cursor.accept_dotted("align") {
            alignment(cursor)?;
        }
    } else if aligned.is_none() && cursor.accept_dotted("align") {
        aligned = Some(alignment(cursor)?);
    }
    let name = cursor.word("a name")?;
    let mut bytes = element.bytes();
    while cursor.accept('[') {
        if cursor.accept(']') {
            if !is_extern {
                bytes = 0;
            }
            continue;
        }
        let count = cursor.integer("a number of elements")?;
        bytes = usize::try_from(count)
            .ok()
            .and_then(|count| bytes.checked_mul(count))
            .filter(|bytes| *bytes <= MOST_BYTES)
            .ok_or(Reason::TooLarge { what: "a variable", limit: MOST_BYTES })?;
        cursor.expect(']', "']'")?;
    }
    let alignment = aligned.unwrap_or(element.bytes());
    Ok((Declaration { name, alignment, bytes, initial: None }, element))
}

/// A number, or numbers in braces; braces within braces say nothing more.
fn initial(cursor: &mut Cursor<'_>, element: Scalar, declared: usize) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::new();
    let mut depth = 0_usize;
    loop {
        if cursor.accept('{') {
            depth += 1;
            continue;
        }
        if depth > 0 && cursor.accept('}') {
            depth -= 1;
        } else {
            let value = number(cursor, element)?;
            bytes.extend_from_slice(&value.to_le_bytes()[..element.bytes()]);
        }
        while depth > 0 && cursor.accept('}') {
            depth -= 1;
        }
        if depth == 0 {
            break;
        }
        cursor.expect(',', "',' or '}'")?;
    }
    if declared > 0 && bytes.len() > declared {
        return Err(Reason::TooLarge { what: "an initial value", limit: declared });
    }
    Ok(bytes)
}

fn number(cursor: &mut Cursor<'_>, element: Scalar) -> Result<u64, Reason> {
    let negative = cursor.accept('-');
    match cursor.next() {
        Some(Kind::Number(Literal::Integer(value))) => {
            Ok(if negative { value.wrapping_neg() } else { value })
        }
        Some(Kind::Number(Literal::Single(bits))) if element.bits() == 32 && !negative => {
            Ok(u64::from(bits))
        }
        Some(Kind::Number(Literal::Double(value))) if !negative => match element {
            Scalar::F32 => Ok(u64::from((value as f32).to_bits())),
            Scalar::F64 | Scalar::B64 => Ok(value.to_bits()),
            _ => Err(cursor.unexpected("a number of the variable's type")),
        },
        _ => Err(cursor.unexpected("a number of the variable's type")),
    }
}
