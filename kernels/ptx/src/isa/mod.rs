//! The typed instruction set: what each statement means, with operands resolved to registers.
//!
//! A value of [`Operation`] can only be one that the emulator runs; everything else is refused where
//! text becomes operations.

pub(crate) mod matrix;
pub(crate) mod operand;
pub(crate) mod operation;
pub(crate) mod registers;
pub(crate) mod types;

use operand::Condition;
use operation::Operation;

/// An instruction of an entry.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    /// Lanes where it does not hold skip the instruction.
    pub(crate) guard: Option<Condition>,
    pub(crate) operation: Operation,
    /// Line of the text, from 1.
    pub(crate) line: usize,
    /// The statement, as the text has it.
    pub(crate) text: String,
    /// The opcode with its modifiers, as an index into [`crate::module::Entry`]'s list.
    pub(crate) opcode: u32,
}
