//! Faulty kernels: the [tiled](super::tiled) kernel with one exact change each, for a suite to find;
//! and controls, whose change no suite may mind.
//!
//! The correct kernels know nothing of this: nothing outside of this folder asks for a fault. A change
//! is made in one of five places:
//!
//! | file | what it changes |
//! |---|---|
//! | `misreading/` | the correct kernel is handed another problem, or other tensors |
//! | `arithmetic/` | a copy of the tiled passes in which steps ask for the one fault; without one it is `tiled`, bit for bit |
//! | `answer.rs` | the correct kernel's answer is stored as another |
//! | `merge.rs` | the merge of parts of the keys, in a copy of the [split](super::split) kernel |
//! | `storage.rs` | where elements are read and written |
//!
//! and `catalogue/` lists them, each with the clauses that say what is wrong. A fault of the forward
//! pass leaves the backward pass as it is, and the other way round.
//!
//! Sources: public reports of faults (cited by the pinned cases of the suite), and plain slips in the
//! listings of the chapter.

mod answer;
mod arithmetic;
mod catalogue;
mod kernel;
mod merge;
mod misreading;
mod storage;

use std::num::NonZeroUsize;
use std::ops::Range;

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use crate::Kernel;
use arithmetic::{BackwardFault, ForwardFault};
use merge::MergeFault;
use storage::StorageFault;

pub use catalogue::mutants;

/// A correct kernel with one exact change.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// What `builtin("mutant:NAME")` opens it by.
    pub name: &'static str,
    /// What it does that the correct kernel does not, in a few words.
    pub summary: &'static str,
    /// Whether a suite must find it or must not mind it.
    pub kind: Kind,
    /// The pass that is changed.
    pub pass: Pass,
    /// The clauses that say what is wrong with it; of a control, those that allow it.
    pub clauses: &'static [&'static str],
    change: Change,
    tiles: [usize; 2],
}

/// Whether a change is a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The kernel breaks the specification, or the precision contract that it declares.
    Fault,
    /// The kernel is another correct one.
    Control,
}

/// The pass that a change is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pass {
    /// Output and LSE.
    Forward,
    /// Gradients.
    Backward,
}

/// The change.
#[derive(Clone, Copy, Debug)]
enum Change {
    /// None: the copies of the passes, of the merge and of the storage, with no fault asked for.
    Unchanged,
    /// The forward pass reads another problem or other inputs.
    ReadsForward(fn(&mut Problem, &mut Inputs)),
    /// The backward pass does.
    ReadsBackward(fn(&mut Read)),
    /// The kernel for inputs of 8 bits reads other inputs.
    ReadsQuantized(fn(&mut Inputs)),
    /// A step of the forward pass.
    Forward(ForwardFault),
    /// A step of the backward pass.
    Backward(BackwardFault),
    /// The forward pass stores another answer.
    AnswersForward(fn(&Problem, &mut Outputs)),
    /// The backward pass does.
    AnswersBackward(fn(&Problem, &mut Gradients)),
    /// The keys are split, in this many parts, and merged.
    Splits(usize, Option<MergeFault>),
    /// Elements are read from or written to other places.
    Storage(StorageFault),
}

/// What a backward pass reads.
struct Read {
    problem: Problem,
    inputs: Inputs,
    outputs: Outputs,
    cotangents: Cotangents,
}

impl Mutant {
    /// The mutant of that name.
    #[must_use]
    pub fn find(name: &str) -> Option<&'static Self> {
        mutants().iter().find(|mutant| mutant.name == name)
    }

    /// The queries and keys of its own tiles: those of `tiled`, unless the change needs others.
    #[must_use]
    pub const fn tiles(&self) -> [usize; 2] {
        self.tiles
    }

    /// The kernel, in tiles of its own.
    #[must_use]
    pub fn kernel(&'static self) -> Box<dyn Kernel> {
        Box::new(kernel::Changed::new(self))
    }

    /// The kernel in tiles of `queries` by `keys`.
    #[must_use]
    pub fn tiled_kernel(
        &'static self,
        queries: NonZeroUsize,
        keys: NonZeroUsize,
    ) -> Box<dyn Kernel> {
        Box::new(kernel::Changed::tiled(self, Tiles { queries, keys }))
    }
}

/// The extents of tiles.
#[derive(Clone, Copy, Debug)]
struct Tiles {
    queries: NonZeroUsize,
    keys: NonZeroUsize,
}

/// `all` in blocks of `size`, the last one shorter where `size` does not divide its length.
fn blocks(all: Range<usize>, size: NonZeroUsize) -> Vec<Range<usize>> {
    let size = size.get();
    let ends = |start: usize| all.end.min(start.saturating_add(size));
    all.clone().step_by(size).map(|start| start..ends(start)).collect()
}
