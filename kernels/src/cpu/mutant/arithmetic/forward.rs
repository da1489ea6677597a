//! The forward pass: batch members, heads and tiles.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs};
use ndarray::{Array1, Array3, Array4, s};
use num_traits::Zero;

use super::Arithmetic;
use super::state::State;
use super::terms::Sight;
use crate::Unsupported;
use crate::cpu::convert::tensor;
use crate::cpu::element::Element;
use crate::cpu::head::{Head, Heads};
use crate::cpu::merge::Row;
use crate::cpu::mutant::blocks;
use crate::cpu::number_type::{self, Computation};
use crate::cpu::position::InUse;

/// The step that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cpu::mutant) enum ForwardFault {
    /// The running maximum starts at -50000.
    MaxInitFinite,
    /// A block of no keys leaves a maximum of 0.
    DeadBlockMaxZero,
    /// Minus infinity is subtracted from minus infinity.
    NoInfGuard,
    /// A row without keys is the mean of all values.
    EmptyRowMean,
    /// The last, shorter block of keys is not entered, though the block before it ends at the bound.
    CausalLoopShort,
    /// Positions past the last key have a score of 0.
    TailScoreZero,
    /// What the mask hides weighs 0, and is multiplied all the same.
    MaskedValueMultiply,
    /// What the mask hides is minus infinity before the softcap, which makes it minus the cap.
    SoftcapAfterMask,
    /// The numerator is not rescaled.
    SkipNumeratorRescale,
    /// The normalizer is not rescaled.
    SkipNormalizerRescale,
    /// A small rise of the maximum rescales nothing, but weights are measured from it.
    LazyRescaleFrame,
    /// Weights are `2^(s log2 e - m log2 e)` with one rounding of the difference, where `m log2 e` is
    /// rounded by itself.
    FusedResidue,
    /// Products are summed in f16.
    ProductF16,
    /// The numerator is carried in bf16 between blocks.
    NumeratorBf16,
    /// The normalizer is carried in bf16 between blocks.
    NormalizerBf16,
    /// The exponential has 12 significant bits.
    Exp12Bit,
    /// The exponential is cut off after 16 significant bits.
    ExpCut,
    /// The maximum of a block is doubled where scores tie, or 0 where it is negative.
    TieShift,
    /// The last query does not see its first key.
    DropKey,
    /// The last block of keys is not entered where it is shorter, unless it is the first.
    DropTailBlock,
    /// The key after the last in use is seen.
    ReadPastLength,
    /// The sink counts in the maximum and not in the normalizer.
    SinkNotInNormalizer,
    /// The LSE is the logarithm of the normalizer alone.
    LseWithoutMaximum,
    /// The LSE counts weights as they were rounded.
    LseFromRounded,
    /// The normalizer sums weights as they were rounded.
    RoundedNormalizer,
    /// A row starts from the maximum of the row before it.
    StaleMaximum,
    /// Only the first 64 entries of query and key are multiplied.
    First64Entries,
    /// What dropout leaves out is left out of the normalizer too.
    DropoutInNormalizer,
    /// Control: as `RoundedNormalizer`, and declared.
    DeclaredRoundedNormalizer,
    /// Control: weights are not rounded, and declared so.
    DeclaredWideWeights,
    /// Control: entries are multiplied by the reciprocal of the normalizer, and declared so.
    Reciprocal,
    /// Control: blocks of keys, and keys within them, last to first.
    KeysReversed,
    /// Control: every score of ALiBi is a slope lower, and the LSE that much higher.
    AlibiShifted,
    /// Control: a small rise of the maximum changes nothing.
    LazyRescale,
    /// Control: the exponential is the number after the one that the library gives.
    ExpOneUlp,
}

/// How the queries of a head are answered.
pub(in crate::cpu::mutant) trait Passing {
    /// One row for each query, in order, of batch member and head `place`.
    fn rows<E: Element>(
        &self,
        problem: &Problem,
        place: [usize; 2],
        head: &Head<'_, E>,
    ) -> Vec<Row<E::Accumulator>>;
}

/// The forward pass of the tiled kernel, with a fault if there is one.
pub(in crate::cpu::mutant) fn forward(
    arithmetic: &Arithmetic<ForwardFault>,
    problem: &Problem,
    inputs: &Inputs,
) -> Result<Outputs, Unsupported> {
    driven(arithmetic, problem, inputs)
}

/// Every row of a problem.
pub(in crate::cpu::mutant) fn driven(
    passing: &impl Passing,
    problem: &Problem,
    inputs: &Inputs,
) -> Result<Outputs, Unsupported> {
    inputs.check(problem).expect("inputs of the problem's shapes and formats");
    // The caller puts its own name on a refusal.
    number_type::run("tiled", problem, Forward { passing, problem, inputs })
}

struct Forward<'a, P> {
    passing: &'a P,
    problem: &'a Problem,
    inputs: &'a Inputs,
}

impl<P: Passing> Computation for Forward<'_, P> {
    type Answer = Outputs;

    fn run<E: Element>(self, scale: E::Accumulator) -> Outputs {
        let Self { passing, problem, inputs } = self;
        let heads = Heads::<E>::new(problem, inputs, scale);
        let mut output = Array4::from_elem(problem.output_shape(), E::from_exact(0.0));
        let mut lse = Array3::from_elem(problem.lse_shape(), E::Accumulator::zero());
        for batch in 0..problem.batch {
            for query_head in 0..problem.query_heads {
                let head = heads.head(batch, query_head);
                let rows = passing.rows(problem, [batch, query_head], &head);
                for (query, row) in rows.into_iter().enumerate() {
                    let stored = row.output.into_iter().map(E::store).collect::<Array1<E>>();
                    output.slice_mut(s![batch, query_head, query, ..]).assign(&stored);
                    lse[[batch, query_head, query]] = row.lse;
                }
            }
        }
        Outputs { output: tensor(&output), lse: Some(tensor(&lse)) }
    }
}

impl Passing for Arithmetic<ForwardFault> {
    fn rows<E: Element>(
        &self,
        problem: &Problem,
        [batch, query_head]: [usize; 2],
        head: &Head<'_, E>,
    ) -> Vec<Row<E::Accumulator>> {
        let in_use = InUse::new(problem, batch);
        let sight =
            Sight { fault: self.fault, tiles: self.tiles, problem, query_head, in_use, head };
        let initial = State::initial(&sight);
        let mut rows = Vec::with_capacity(head.query.nrows());
        for queries in blocks(0..head.query.nrows(), self.tiles.queries) {
            let mut states = vec![initial.clone(); queries.len()];
            for (index, keys) in sight.key_blocks(&queries).into_iter().enumerate() {
                for (row, query) in queries.clone().enumerate() {
                    if index == 0 && row > 0 && self.has(&ForwardFault::StaleMaximum) {
                        let before = states[row - 1].maximum();
                        states[row].start_from(before);
                    }
                    states[row].absorb(&sight, query, keys.clone());
                }
            }
            rows.extend(states.into_iter().map(|state| state.finish(&sight)));
        }
        rows
    }
}
