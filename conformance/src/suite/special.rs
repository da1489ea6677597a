//! Cases of poison, of data that is no number and of no queries, under every kind of mask, with
//! bias and in every layout.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Sink, Slopes, Softcap, SoftcapOrder};

use super::masks::{MaskKind, shape};
use crate::case::Case;
use crate::inputs::poison::Poison;
use crate::inputs::{BiasValues, Family, LayoutKind, Modifiers, Scores, Upstream, Values};

const NORMAL: Family = Family::of(Scores::Normal);

/// The cases of the forward pass, in `f32`.
pub(super) fn forward(seed: u64) -> Vec<Case> {
    let masked = masked().flat_map(|problem| poisoned(&problem, BiasValues::Normal, seed));
    let hiding = HIDING.into_iter().flat_map(|bias| poisoned(&biased(), bias, seed));
    let laid_out = laid_out().flat_map(|problem| poisoned(&problem, BiasValues::Normal, seed));
    let no_numbers = FAMILIES.into_iter().map(|family| Case::new(everything(), family, None, seed));
    let no_bias = [BiasValues::Infinity, BiasValues::Nan].into_iter().map(|bias| {
        Case::new(biased(), NORMAL, None, seed)
            .with_modifiers(Modifiers { bias, ..Modifiers::default() })
    });
    let no_queries = [Case::new(without_queries(), NORMAL, None, seed)];
    masked
        .chain(hiding)
        .chain(laid_out)
        .chain(no_numbers)
        .chain(no_bias)
        .chain(no_queries)
        .collect()
}

/// The cases of the backward pass, in `f32`: those of keys and queries that take no part.
pub(super) fn backward(seed: u64) -> Vec<Case> {
    let problems = masked().chain(laid_out());
    let hidden = problems.flat_map(|problem| poisoned(&problem, BiasValues::Normal, seed));
    let hiding = HIDING.into_iter().flat_map(|bias| poisoned(&biased(), bias, seed));
    let unseen = |case: &Case| case.poison == Some(Poison::Unseen);
    // In f32 whatever the inputs are: at the lowest number of f64 the gradients' bounds leave f64.
    let lowest = Modifiers { bias: BiasValues::Lowest, wide: true, ..Modifiers::default() };
    let unlikely = [Case::new(biased(), NORMAL, None, seed).with_modifiers(lowest)];
    let no_queries = [Case::new(without_queries(), NORMAL, None, seed)];
    hidden
        .chain(hiding)
        .filter(unseen)
        .chain(unlikely)
        .chain(no_queries)
        .map(|case| case.with_upstream(Upstream::OutputAndLse))
        .collect()
}

/// Patterns of bias that hide keys.
const HIDING: [BiasValues; 2] = [BiasValues::MinusInfinity, BiasValues::Causal];

/// Families with an entry that is no number.
const FAMILIES: [Family; 4] = [
    Family::of(Scores::NanQuery),
    Family::of(Scores::NanKey),
    Family { scores: Scores::Normal, values: Values::Nan },
    Family { scores: Scores::Normal, values: Values::Infinity },
];

/// The problem with each kind of poison that finds something to poison in it.
fn poisoned(problem: &Problem, bias: BiasValues, seed: u64) -> Vec<Case> {
    let modifiers = Modifiers { bias, ..Modifiers::default() };
    let poisons = Poison::ALL.into_iter().map(|poison| {
        Case::new(problem.clone(), NORMAL, Some(poison), seed).with_modifiers(modifiers)
    });
    poisons.filter(Case::poisons_something).collect()
}

/// Several members, heads in groups, and a few keys more than queries.
fn small() -> Problem {
    let mut problem = Problem::new(Format::F32, 4, 9, 8);
    (problem.batch, problem.key_heads, problem.key_len) = (2, 2, 20);
    problem
}

/// A bias under every kind of mask: hidden entries of it are poisoned too.
fn masked() -> impl Iterator<Item = Problem> {
    MaskKind::EVERY.into_iter().map(|kind| {
        let mut problem = small();
        problem.mask = kind.mask(&problem);
        let shape = shape(&problem, [true, false, true, true]);
        problem.bias = Some(Bias { shape, format: problem.format });
        problem
    })
}

/// A bias that alone can hide: the keys that it hides, it hides from all queries.
fn biased() -> Problem {
    let mut problem = small();
    let shape = shape(&problem, [true, false, false, true]);
    problem.bias = Some(Bias { shape, format: problem.format });
    problem
}

/// Members shorter than what was allocated, in every layout in which none share data.
fn laid_out() -> impl Iterator<Item = Problem> {
    let kinds = LayoutKind::ALL.into_iter().filter(|kind| !kind.shares());
    kinds.filter_map(|kind| {
        let mut problem = small();
        if kind == LayoutKind::PackedQkv {
            problem.query_len = problem.key_len;
        }
        problem.mask = MaskKind::QueryLengthsBottomRight.mask(&problem);
        problem.layout = kind.of(&problem)?;
        Some(problem)
    })
}

/// Everything that can happen to a score, but for dropout: a dropped NaN has no agreed meaning.
fn everything() -> Problem {
    let mut problem = small();
    problem.mask = MaskKind::WindowBoth.mask(&problem);
    let shape = shape(&problem, [false, true, true, true]);
    problem.bias = Some(Bias { shape, format: problem.format });
    problem.alibi = Some(Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight });
    problem.softcap = Some(Softcap { cap: 30.0, order: SoftcapOrder::BeforeBias });
    problem.sink = Some(Sink::Logits(problem.format));
    problem
}

fn without_queries() -> Problem {
    let mut problem = Problem::new(Format::F32, 2, 5, 8);
    problem.query_len = 0;
    problem.mask = Mask::full();
    problem
}
