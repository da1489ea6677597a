//! Why a text is not a module that this emulator runs.

/// A text that was refused, with the line and the statement that were.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {reason}: `{text}`")]
pub struct ParseError {
    /// Line of the text, from 1.
    pub line: usize,
    /// The statement, white space made single; at most [`LONGEST_TEXT`] bytes of it.
    pub text: String,
    /// What is wrong with it.
    pub reason: Reason,
}

/// Bytes of a statement that an error or a fault repeats.
pub const LONGEST_TEXT: usize = 200;

/// What is wrong with a statement.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Reason {
    /// A character that begins no token.
    #[error("unexpected character {0:?}")]
    Character(char),
    /// A comment or a string without an end.
    #[error("{0} without end")]
    Unterminated(&'static str),
    /// A number that does not fit, or has digits of another base.
    #[error("malformed number '{0}'")]
    Number(String),
    /// Another token was expected.
    #[error("expected {expected}, found {found}")]
    Expected {
        /// What the grammar has here.
        expected: &'static str,
        /// What stands there.
        found: String,
    },
    /// An instruction that the emulator does not know.
    #[error("unknown instruction '{0}'")]
    Instruction(String),
    /// A directive that the emulator does not know.
    #[error("unknown directive '.{0}'")]
    Directive(String),
    /// A modifier that the emulator does not know, or not in this place of this instruction.
    #[error("unknown modifier '.{modifier}' of '{opcode}'")]
    Modifier {
        /// The instruction.
        opcode: String,
        /// The modifier.
        modifier: String,
    },
    /// A modifier that the instruction needs is missing.
    #[error("'{opcode}' lacks {missing}")]
    Incomplete {
        /// The instruction.
        opcode: String,
        /// What it lacks.
        missing: &'static str,
    },
    /// Something that PTX has and this emulator does not run.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// A name that nothing declares.
    #[error("unknown name '{0}'")]
    Name(String),
    /// A name declared twice in one scope.
    #[error("'{0}' is declared twice")]
    Redeclared(String),
    /// An operand of another kind or width than the instruction takes.
    #[error("operand {position}: expected {expected}, found {found}")]
    Operand {
        /// Which operand, from 1.
        position: usize,
        /// What the instruction takes.
        expected: String,
        /// What was given.
        found: String,
    },
    /// Too few or too many operands.
    #[error("wrong number of operands: {0}")]
    OperandCount(usize),
    /// A declaration past what the emulator holds.
    #[error("{what} exceeds {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The most that is held.
        limit: usize,
    },
}
