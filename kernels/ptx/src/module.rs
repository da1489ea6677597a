//! What a parsed PTX text holds: entries to launch, and variables of the module.

use crate::error::ParseError;
use crate::isa::Instruction;

/// A parsed PTX text.
#[derive(Clone, Debug)]
pub struct Module {
    pub(crate) target: String,
    pub(crate) entries: Vec<Entry>,
    pub(crate) globals: Vec<Variable>,
    pub(crate) constants: Vec<u8>,
}

/// A global variable of the module, set up anew for every launch.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// An entry: a kernel that can be launched.
#[derive(Clone, Debug)]
pub struct Entry {
    pub(crate) name: String,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: usize,
    pub(crate) code: Vec<Instruction>,
    /// For each instruction that branches, where its lanes meet again: the first instruction that
    /// every path from it passes, or [`NEVER`].
    pub(crate) reconvergence: Vec<u32>,
    /// Opcodes with their modifiers, each once.
    pub(crate) opcodes: Vec<String>,
    pub(crate) words: u32,
    pub(crate) longs: u32,
    pub(crate) predicates: u32,
    /// Bytes of shared memory that the text declares; dynamic shared memory follows.
    pub(crate) static_shared: usize,
    pub(crate) local_bytes: usize,
    pub(crate) required_threads: Option<[u32; 3]>,
    pub(crate) most_threads: Option<[u32; 3]>,
    /// The smallest access to shared memory in bytes: what races are told apart by.
    pub(crate) shared_granule: usize,
    /// Whether it has asynchronous matrix products.
    pub(crate) has_products: bool,
    /// Whether results can depend on the order of blocks.
    pub(crate) has_global_atomics: bool,
}

/// An instruction index that no path reaches.
pub(crate) const NEVER: u32 = u32::MAX;

/// A parameter of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the text.
    pub name: String,
    /// Bytes that it takes.
    pub bytes: usize,
    pub(crate) offset: usize,
}

impl Module {
    /// Reads a PTX text of 64-bit addresses.
    ///
    /// Every instruction of every entry is understood or the text is refused: nothing is skipped but
    /// debug information.
    ///
    /// # Errors
    /// [`ParseError`] names the line and the statement.
    pub fn parse(source: &str) -> Result<Self, ParseError> {
        crate::parse::module(source)
    }

    /// The architecture that the text was made for, as `sm_80`.
    #[must_use]
    pub fn target(&self) -> &str {
        &self.target
    }

    /// The entries, in the order of the text.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of this name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.name == name)
    }
}

impl Entry {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its parameters, in order.
    #[must_use]
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Threads of a block along x, y and z that the text requires (`.reqntid`).
    #[must_use]
    pub const fn required_threads(&self) -> Option<[u32; 3]> {
        self.required_threads
    }

    /// Bytes of shared memory that the text declares itself.
    #[must_use]
    pub const fn static_shared(&self) -> usize {
        self.static_shared
    }

    /// Opcodes with their modifiers, in the order of their first use.
    pub fn opcodes(&self) -> impl Iterator<Item = &str> {
        self.opcodes.iter().map(String::as_str)
    }
}
