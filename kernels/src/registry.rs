//! The kernels of this crate by name.

use std::num::NonZeroUsize;

use flashproof_spec::tensor_core::TensorCore;

use crate::Kernel;
use crate::cpu::{Matrix, Naive, Quantized, Split, Tiled};
use crate::mutant::{Mutant, mutants};

/// Every kernel, each once: a family of tilings or splits by its default member.
#[must_use]
pub fn builtins() -> Vec<Box<dyn Kernel>> {
    vec![
        Box::new(Naive),
        Box::new(Tiled::default()),
        Box::new(Split::default()),
        Box::new(Matrix::default()),
        Box::new(Quantized::default()),
    ]
}

/// The kernel of a name: `naive`, `tiled`, `tiled:QxK` for tiles of `Q` queries by `K` keys, such as
/// `tiled:32x48`, `split`, or `split:N` for `N` splits of the keys, `matrix:GENERATION` for the
/// accumulation of a generation of tensor cores, such as `matrix:ampere`, `quantized`; and `mutant:NAME` for
/// a kernel with one of the [faults](mutants) to be found, or `mutant:NAME:QxK` for that in tiles of
/// such a size.
///
/// # Errors
/// [`UnknownKernel`] names the part of the name that means nothing, and what was expected.
pub fn builtin(name: &str) -> Result<Box<dyn Kernel>, UnknownKernel> {
    if let Some(tile) = name.strip_prefix("tiled:") {
        return Ok(Box::new(tiled(name, tile)?));
    }
    if let Some(splits) = name.strip_prefix("split:") {
        return Ok(Box::new(split(name, splits)?));
    }
    if let Some(mutant) = name.strip_prefix("mutant:") {
        return mutated(name, mutant);
    }
    if let Some(generation) = name.strip_prefix("matrix:") {
        return Ok(Box::new(matrix(name, generation)?));
    }
    builtins()
        .into_iter()
        .find(|kernel| kernel.name() == name)
        .ok_or_else(|| UnknownKernel::Name { name: name.to_owned() })
}

/// A name that is no kernel's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum UnknownKernel {
    #[error(
        "no kernel is called '{name}': expected naive, tiled, tiled:QUERIESxKEYS, split, split:SPLITS, matrix:GENERATION, quantized or mutant:NAME"
    )]
    Name { name: String },
    #[error("no mutant is called '{mutant}': the names most like it are {}", near.join(", "))]
    Mutant { mutant: String, near: Vec<String> },
    #[error(
        "'{generation}' in '{name}' is no generation of tensor cores: expected volta, turing, ampere, ada, hopper or blackwell"
    )]
    Generation { name: String, generation: String },
    #[error("'{tile}' in '{name}' is no tile: expected QUERIESxKEYS, such as 32x48")]
    Tile { name: String, tile: String },
    #[error(
        "'{size}' in '{name}' is no block size: expected a whole number from 1 to {max}",
        max = usize::MAX
    )]
    BlockSize { name: String, size: String },
    #[error(
        "'{splits}' in '{name}' is no number of splits: expected a whole number from 1 to {max}",
        max = MOST_SPLITS
    )]
    Splits { name: String, splits: String },
}

/// As many splits as a kernel can be asked for: each is finished, empty or not.
pub const MOST_SPLITS: usize = 1 << 16;

fn tiled(name: &str, tile: &str) -> Result<Tiled, UnknownKernel> {
    let [queries, keys] = extents(name, tile)?;
    Ok(Tiled::new(queries, keys))
}

fn mutated(name: &str, mutant: &str) -> Result<Box<dyn Kernel>, UnknownKernel> {
    let (mutant, tile) = match mutant.split_once(':') {
        Some((mutant, tile)) => (mutant, Some(tile)),
        None => (mutant, None),
    };
    let found = Mutant::find(mutant)
        .ok_or_else(|| UnknownKernel::Mutant { mutant: mutant.to_owned(), near: near(mutant) })?;
    match tile {
        None => Ok(found.kernel()),
        Some(tile) => {
            let [queries, keys] = extents(name, tile)?;
            Ok(found.tiled_kernel(queries, keys))
        }
    }
}

/// At most this many mutants are suggested.
const SUGGESTED: usize = 3;

/// The mutants whose names are most like `word`, the likest first.
fn near(word: &str) -> Vec<String> {
    let mut scored: Vec<_> = mutants()
        .iter()
        .map(|mutant| (strsim::jaro_winkler(word, mutant.name), mutant.name))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.into_iter().take(SUGGESTED).map(|(_, name)| name.to_owned()).collect()
}

fn extents(name: &str, tile: &str) -> Result<[NonZeroUsize; 2], UnknownKernel> {
    let (queries, keys) = tile
        .split_once('x')
        .ok_or_else(|| UnknownKernel::Tile { name: name.to_owned(), tile: tile.to_owned() })?;
    Ok([block_size(name, queries)?, block_size(name, keys)?])
}

fn matrix(name: &str, generation: &str) -> Result<Matrix, UnknownKernel> {
    let core = TensorCore::ALL.into_iter().find(|core| core.name() == generation);
    core.map(Matrix::new).ok_or_else(|| UnknownKernel::Generation {
        name: name.to_owned(),
        generation: generation.to_owned(),
    })
}

fn split(name: &str, splits: &str) -> Result<Split, UnknownKernel> {
    plain_number(splits)
        .filter(|splits| splits.get() <= MOST_SPLITS)
        .map(Split::new)
        .ok_or_else(|| UnknownKernel::Splits { name: name.to_owned(), splits: splits.to_owned() })
}

fn block_size(name: &str, size: &str) -> Result<NonZeroUsize, UnknownKernel> {
    plain_number(size)
        .ok_or_else(|| UnknownKernel::BlockSize { name: name.to_owned(), size: size.to_owned() })
}

/// Accepts a number only as it would be printed: no sign, no leading zero. So one kernel has one
/// name, and reports that name it can be compared as text.
fn plain_number(number: &str) -> Option<NonZeroUsize> {
    number.parse::<NonZeroUsize>().ok().filter(|parsed| parsed.to_string() == number)
}
