//! A mutant as a kernel: which pass meets the change.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicUsize, Ordering};

use flashproof_spec::format::Format;
use flashproof_spec::layout::{StoredCotangents, StoredGradients, StoredInputs, StoredOutputs};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{DIVISION_ULP, Normalizer, Profile};
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::arithmetic::{self, Arithmetic, BackwardFault, ForwardFault};
use super::storage::StorageFault;
use super::{Change, Mutant, Read, Tiles, answer, merge, storage};
use crate::cpu::{Quantized, Split, Tiled};
use crate::{Kernel, Unsupported};

/// The tiled kernel with a mutant's change.
pub(super) struct Changed {
    mutant: &'static Mutant,
    name: String,
    tiles: Tiles,
    /// Backward passes so far: what a kernel without a fixed order might depend on.
    calls: AtomicUsize,
}

impl Changed {
    /// In the mutant's own tiles, named `mutant:NAME`.
    pub(super) fn new(mutant: &'static Mutant) -> Self {
        let [queries, keys] = mutant.tiles.map(|size| NonZeroUsize::new(size).expect("a tile"));
        let tiles = Tiles { queries, keys };
        Self { mutant, name: format!("mutant:{}", mutant.name), tiles, calls: AtomicUsize::new(0) }
    }

    /// In tiles of any size, named `mutant:NAME:QxK`.
    pub(super) fn tiled(mutant: &'static Mutant, tiles: Tiles) -> Self {
        let name = format!("mutant:{}:{}x{}", mutant.name, tiles.queries, tiles.keys);
        Self { mutant, name, tiles, calls: AtomicUsize::new(0) }
    }

    /// The kernel that was changed.
    fn correct(&self) -> Tiled {
        Tiled::new(self.tiles.queries, self.tiles.keys)
    }

    fn split(splits: usize) -> Split {
        Split::new(NonZeroUsize::new(splits).expect("a split"))
    }

    fn arithmetic<F>(&self, fault: Option<F>) -> Arithmetic<F> {
        Arithmetic { fault, tiles: self.tiles }
    }

    fn calls(&self) -> usize {
        self.calls.fetch_add(1, Ordering::Relaxed)
    }

    /// A refusal in the mutant's own name.
    fn named(&self, refused: Unsupported) -> Unsupported {
        Unsupported { kernel: self.name.clone(), ..refused }
    }
}

impl Kernel for Changed {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &str {
        self.mutant.summary
    }

    /// That of the correct kernel, whatever the fault; a control declares what it does.
    fn profile(&self, format: Format) -> Profile {
        let tiled = self.correct().profile(format);
        match self.mutant.change {
            Change::ReadsQuantized(_) => Quantized::default().profile(format),
            Change::Splits(splits, _) => Self::split(splits).profile(format),
            Change::Forward(ForwardFault::DeclaredRoundedNormalizer) => {
                Profile { normalizer: Normalizer::Rounded, ..tiled }
            }
            Change::Forward(ForwardFault::Reciprocal) => {
                Profile { division_ulp: DIVISION_ULP, ..tiled }
            }
            // Weights are relative to other maxima than those of the blocks so far.
            Change::Forward(ForwardFault::KeysReversed | ForwardFault::LazyRescale) => {
                Profile { max_policy: None, ..tiled }
            }
            Change::Forward(ForwardFault::DeclaredWideWeights) => {
                Profile { weight_format: tiled.arithmetic, ..tiled }
            }
            _ => tiled,
        }
    }

    fn takes(&self, format: Format) -> bool {
        match self.mutant.change {
            Change::ReadsQuantized(_) => Quantized::default().takes(format),
            _ => self.correct().takes(format),
        }
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        let answer = match self.mutant.change {
            Change::ReadsQuantized(misread) => {
                let mut inputs = inputs.clone();
                misread(&mut inputs);
                Quantized::default().forward(problem, &inputs)
            }
            Change::Unchanged => arithmetic::forward(&self.arithmetic(None), problem, inputs),
            Change::Forward(fault) => {
                arithmetic::forward(&self.arithmetic(Some(fault)), problem, inputs)
            }
            Change::ReadsForward(misread) => {
                let (mut problem, mut inputs) = (problem.clone(), inputs.clone());
                misread(&mut problem, &mut inputs);
                self.correct().forward(&problem, &inputs)
            }
            Change::AnswersForward(change) => {
                self.correct().forward(problem, inputs).map(|mut outputs| {
                    change(problem, &mut outputs);
                    outputs
                })
            }
            Change::Splits(splits, None) => Self::split(splits).forward(problem, inputs),
            Change::Splits(splits, Some(fault)) => merge::forward(splits, fault, problem, inputs),
            Change::ReadsBackward(_)
            | Change::Backward(_)
            | Change::AnswersBackward(_)
            | Change::Storage(_) => self.correct().forward(problem, inputs),
        };
        answer.map_err(|refused| self.named(refused))
    }

    fn backward(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        let correct = || self.correct().backward(problem, inputs, outputs, cotangents);
        let copied = |fault| {
            let reversed = fault == Some(BackwardFault::QueryOrder) && self.calls() % 2 == 1;
            let read = arithmetic::Read { problem, inputs, outputs, cotangents };
            arithmetic::backward(&self.arithmetic(fault), reversed, &read)
        };
        let answer = match self.mutant.change {
            Change::Unchanged => copied(None),
            Change::Backward(fault) => copied(Some(fault)),
            Change::ReadsBackward(misread) => {
                let mut read = Read {
                    problem: problem.clone(),
                    inputs: inputs.clone(),
                    outputs: outputs.clone(),
                    cotangents: cotangents.clone(),
                };
                misread(&mut read);
                let Read { problem, inputs, outputs, cotangents } = &read;
                self.correct().backward(problem, inputs, outputs, cotangents)
            }
            Change::AnswersBackward(change) => correct().map(|mut gradients| {
                change(problem, &mut gradients);
                gradients
            }),
            Change::Storage(StorageFault::SkipEmpty) => correct().map(|mut gradients| {
                answer::unwritten_without_queries(problem, &mut gradients);
                gradients
            }),
            Change::ReadsQuantized(_) => {
                Quantized::default().backward(problem, inputs, outputs, cotangents)
            }
            Change::ReadsForward(_)
            | Change::Forward(_)
            | Change::AnswersForward(_)
            | Change::Splits(..)
            | Change::Storage(_) => correct(),
        };
        answer.map_err(|refused| self.named(refused))
    }

    fn merge(&self, problem: &Problem, partials: &[Outputs]) -> Result<Outputs, Unsupported> {
        let merged = match self.mutant.change {
            Change::Unchanged => merge::merge(None, problem, partials),
            Change::Splits(_, fault) => merge::merge(fault, problem, partials),
            _ => self.correct().merge(problem, partials),
        };
        merged.map_err(|refused| self.named(refused))
    }

    fn forward_stored(
        &self,
        problem: &Problem,
        inputs: &StoredInputs,
    ) -> Result<StoredOutputs, Unsupported> {
        match self.mutant.change {
            Change::Unchanged => storage::forward(self, None, problem, inputs),
            Change::Storage(fault) => storage::forward(self, Some(fault), problem, inputs),
            _ => crate::storage::forward(self, problem, inputs),
        }
    }

    fn backward_stored(
        &self,
        problem: &Problem,
        inputs: &StoredInputs,
        outputs: &StoredOutputs,
        cotangents: &StoredCotangents,
    ) -> Result<StoredGradients, Unsupported> {
        let read = storage::Read { problem, inputs, outputs, cotangents };
        match self.mutant.change {
            Change::Unchanged => storage::backward(self, None, &read),
            Change::Storage(fault) => storage::backward(self, Some(fault), &read),
            _ => crate::storage::backward(self, problem, inputs, outputs, cotangents),
        }
    }
}
