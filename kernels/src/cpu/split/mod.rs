//! Split-KV attention: parts of the keys finished by themselves, and merged by their LSEs
//! (FlashAttention-2, arXiv 2307.08691, section 3.1; "flash decoding").
//!
//! Where one query meets many keys, tiles of queries leave most of a device idle, so the keys are
//! divided among workers. Each runs the tiled kernel on its own keys and writes output and LSE, and
//! a second kernel merges them. The sink belongs to the row and not to a part: it enters the merge,
//! once. The backward pass needs no splits and is the tiled kernel's.
//!
//! Where each field of its [`Profile`] happens: as in [`tiled`](super::tiled), and
//!
//! | field | forward |
//! |---|---|
//! | `merged_parts` | `merge_partials`: as many parts as the name says, and the sink as one more |
//! | `exp_ulp`, `division_ulp`, `log` | once in each part, by `State`, and once more in the merge |
//! | `carried_format`, `lse_format` | outputs and LSEs of parts are accumulators |
//! | `value_accumulation`, `normalizer` | within a part in key order; parts in order, the sink last |

mod forward;

use std::num::NonZeroUsize;
use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs};

use super::backward::{self, GroupGradients, Upstream};
use super::bias_gradient::BiasGradient;
use super::element::Element;
use super::tiled::Tiled;
use crate::{Kernel, Unsupported};

/// Split-KV attention, in any number of splits. Each is finished, empty or not, and held until the
/// merge: time and memory grow with their number.
#[derive(Clone, Debug)]
pub struct Split {
    name: String,
    splits: NonZeroUsize,
    tiled: Tiled,
}

impl Split {
    /// A kernel of so many splits, named `split:N` after them.
    #[must_use]
    pub fn new(splits: NonZeroUsize) -> Self {
        Self { name: format!("split:{splits}"), splits, tiled: Tiled::default() }
    }

    /// The keys of each split: as many in each as it takes, and so none in the last ones where keys
    /// are few. They are cut from all keys there are, used or not: a launch knows the extents of
    /// tensors, not what a mask leaves of them.
    ///
    /// Clause: `FAS:fwd.split.merge`.
    fn splits(&self, key_len: usize) -> impl Iterator<Item = Range<usize>> {
        let splits = self.splits.get();
        let size = key_len.div_ceil(splits);
        let at = move |split: usize| key_len.min(split.saturating_mul(size));
        (0..splits).map(move |split| at(split)..at(split + 1))
    }
}

impl Default for Split {
    /// Four splits, named `split`.
    fn default() -> Self {
        let splits = const { NonZeroUsize::new(4).unwrap() };
        Self { name: "split".to_owned(), splits, tiled: Tiled::default() }
    }
}

impl Kernel for Split {
    fn name(&self) -> &str {
        &self.name
    }

    fn summary(&self) -> &'static str {
        "keys split among workers, finished parts merged by their LSEs (split-KV decoding)"
    }

    fn profile(&self, format: Format) -> Profile {
        let parts = self.splits.get().saturating_add(1);
        // Weights are relative to maxima of their part.
        Profile { merged_parts: Some(parts), max_policy: None, ..self.tiled.profile(format) }
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        super::forward::run(self, problem, inputs)
    }

    fn backward(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        backward::run(self, problem, inputs, outputs, cotangents)
    }
}

impl backward::Algorithm for Split {
    fn gradients<E: Element>(
        &self,
        group: &[Upstream<'_, E>],
        bias: &mut BiasGradient<E::Accumulator>,
    ) -> GroupGradients<E::Accumulator> {
        self.tiled.gradients(group, bias)
    }
}
