//! The other problems of a relation, and where their rows come from.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Documents, Mask, Rule, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Bias;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{Array4, ArrayD, Axis, s};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{Posed, Relation};
use crate::inputs::{self, Family, Misfit, Scores};

/// What is added to every score: past the initial maxima of -5e4 that kernels have had
/// (flashinfer#4267), and exact in `f32`.
const SCORE_SHIFT: f64 = -65_536.0;

/// Values become multiples of `1 / VALUE_STEPS` up to `VALUE_SHIFT`, to which `VALUE_SHIFT` is added:
/// seven bits, which every format from bf16 up holds.
const VALUE_STEPS: f64 = 8.0;
const VALUE_SHIFT: f64 = 8.0;

/// Another problem, and how its rows follow from those of the first.
#[derive(Clone, Debug, PartialEq)]
pub struct Other {
    /// The problem and its inputs.
    pub posed: Posed,
    /// Which rows of the first it has.
    pub rows: Rows,
    /// What is added to every output.
    pub output_shift: f64,
    /// What is added to every LSE.
    pub lse_shift: f64,
}

/// Rows of the first problem that another has too.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rows {
    /// All, in their places.
    All,
    /// Those of a batch member, in their places.
    Member(usize),
    /// Those of a batch member, as the only one.
    MemberAlone(usize),
    /// Those of the query heads from 0 up to this, in their places.
    HeadsBelow(usize),
    /// Those of so many queries from a first one, as queries 0 and up.
    Queries {
        /// The first.
        from: usize,
        /// How many.
        count: usize,
    },
}

impl Rows {
    /// The row of the other problem that a row of the first becomes; `None` where it has none.
    #[must_use]
    pub fn of(self, row: RowIndex) -> Option<RowIndex> {
        match self {
            Self::All => Some(row),
            Self::Member(member) => (row.batch == member).then_some(row),
            Self::MemberAlone(member) => {
                (row.batch == member).then_some(RowIndex { batch: 0, ..row })
            }
            Self::HeadsBelow(heads) => (row.head < heads).then_some(row),
            Self::Queries { from, count } => {
                let query = row.query.checked_sub(from).filter(|&query| query < count)?;
                Some(RowIndex { query, ..row })
            }
        }
    }
}

/// The inputs as the relation needs them: those whose shifted values must be exact on a coarse grid.
#[must_use]
pub fn suited(relation: Relation, inputs: Inputs) -> Inputs {
    if relation != Relation::ValueShift {
        return inputs;
    }
    let on_grid = |value: f64| {
        (value * VALUE_STEPS).round().clamp(-VALUE_SHIFT * VALUE_STEPS, VALUE_SHIFT * VALUE_STEPS)
            / VALUE_STEPS
    };
    Inputs { value: mapped(&inputs.value, on_grid), ..inputs }
}

/// The others of a problem under a relation. What is drawn anew, or permuted, follows from `seed`.
///
/// # Errors
/// [`Misfit`] when inputs can not be drawn for the problem.
///
/// # Panics
/// When the problem lacks what the relation is about: several batch members, heads or queries, a
/// causal mask.
pub fn others(
    relation: Relation,
    first: &Posed,
    family: Family,
    seed: u64,
) -> Result<Vec<Other>, Misfit> {
    let Posed { problem, inputs } = first;
    Ok(match relation {
        Relation::KeyPermutation => vec![moved(problem.clone(), permuted(problem, inputs, seed))],
        Relation::BatchIndependence => {
            let anew = inputs::generate(problem, family, seed)?;
            vec![keeping_member(first, &anew, problem.batch / 2)]
        }
        Relation::HeadIndependence => {
            vec![keeping_first_heads(first, &inputs::generate(problem, family, seed)?)]
        }
        Relation::CausalWindow => {
            let problem = Problem { mask: causal_as_window(&problem.mask), ..problem.clone() };
            vec![moved(problem, inputs.clone())]
        }
        Relation::ScoreShift => vec![with_shifted_scores(first)],
        Relation::ValueShift => {
            let value = mapped(&inputs.value, |value| value + VALUE_SHIFT);
            let other = moved(problem.clone(), Inputs { value, ..inputs.clone() });
            vec![Other { output_shift: VALUE_SHIFT, ..other }]
        }
        Relation::BatchSplit | Relation::BatchInvariant => {
            (0..problem.batch).map(|member| alone(first, member)).collect()
        }
        Relation::DocumentConcat => documents(first),
        Relation::Repeat => vec![moved(problem.clone(), inputs.clone())],
    })
}

/// Another problem with the same rows in the same places.
const fn moved(problem: Problem, inputs: Inputs) -> Other {
    let posed = Posed { problem, inputs };
    Other { posed, rows: Rows::All, output_shift: 0.0, lse_shift: 0.0 }
}

fn mapped(tensor: &Tensor, change: impl Fn(f64) -> f64) -> Tensor {
    Tensor::rounded(tensor.format(), &tensor.values().mapv(change))
}

fn permuted(problem: &Problem, inputs: &Inputs, seed: u64) -> Inputs {
    let mut order: Vec<usize> = (0..problem.key_len).collect();
    order.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    let permute = |tensor: &Tensor| {
        Tensor::rounded(tensor.format(), &tensor.values().select(Axis(2), &order))
    };
    Inputs { key: permute(&inputs.key), value: permute(&inputs.value), ..inputs.clone() }
}

/// The first inputs for one batch member, new ones for the others.
fn keeping_member(first: &Posed, anew: &Inputs, member: usize) -> Other {
    let mix = |old: &Tensor, new: &Tensor| {
        let mut values = new.view4().to_owned();
        values.slice_mut(s![member, .., .., ..]).assign(&old.view4().slice(s![member, .., .., ..]));
        Tensor::rounded(old.format(), &values.into_dyn())
    };
    let other = moved(first.problem.clone(), mixed(&first.inputs, anew, mix, mix));
    Other { rows: Rows::Member(member), ..other }
}

/// The first inputs for the first key head and the query heads that read it, new ones for the others.
fn keeping_first_heads(first: &Posed, anew: &Inputs) -> Other {
    let problem = &first.problem;
    let queries = problem.query_heads / problem.key_heads;
    let mix_first = |heads: usize| {
        move |old: &Tensor, new: &Tensor| {
            let mut values = new.view4().to_owned();
            let kept = old.view4();
            values.slice_mut(s![.., ..heads, .., ..]).assign(&kept.slice(s![.., ..heads, .., ..]));
            Tensor::rounded(old.format(), &values.into_dyn())
        }
    };
    let inputs = mixed(&first.inputs, anew, mix_first(queries), mix_first(1));
    Other { rows: Rows::HeadsBelow(queries), ..moved(problem.clone(), inputs) }
}

/// Queries from two inputs by one rule, keys and values by another.
fn mixed(
    old: &Inputs,
    new: &Inputs,
    query: impl Fn(&Tensor, &Tensor) -> Tensor,
    key: impl Fn(&Tensor, &Tensor) -> Tensor,
) -> Inputs {
    Inputs {
        query: query(&old.query, &new.query),
        key: key(&old.key, &new.key),
        value: key(&old.value, &new.value),
        ..old.clone()
    }
}

/// Each causal rule as a window over everything before the query's own position.
fn causal_as_window(mask: &Mask) -> Mask {
    let window = |alignment| Rule::Window(Window { left: None, right: Some(0), alignment });
    let rules = mask.rules.iter().map(|rule| match rule {
        Rule::CausalTopLeft => window(Alignment::TopLeft),
        Rule::CausalBottomRight => window(Alignment::BottomRight),
        rule => rule.clone(),
    });
    Mask { rules: rules.collect() }
}

fn with_shifted_scores(first: &Posed) -> Other {
    let shape = [1; 4];
    let format = if first.problem.format == Format::F64 { Format::F64 } else { Format::F32 };
    let problem = Problem { bias: Some(Bias { shape, format }), ..first.problem.clone() };
    let bias = ArrayD::from_elem(&shape[..], SCORE_SHIFT);
    let bias = Some(Tensor::rounded(format, &bias));
    let other = moved(problem, Inputs { bias, ..first.inputs.clone() });
    Other { lse_shift: SCORE_SHIFT, ..other }
}

/// One batch member as the only one.
fn alone(first: &Posed, member: usize) -> Other {
    let one = |tensor: &Tensor| {
        let values = tensor.values().slice_axis(Axis(0), (member..=member).into()).to_owned();
        Tensor::rounded(tensor.format(), &values)
    };
    let Posed { problem, inputs } = first;
    let rules = problem.mask.rules.iter().map(|rule| match rule {
        Rule::KeyLengths(lengths) => Rule::KeyLengths(vec![lengths[member]]),
        Rule::QueryLengths(lengths) => Rule::QueryLengths(vec![lengths[member]]),
        rule => rule.clone(),
    });
    let problem = Problem { batch: 1, mask: Mask { rules: rules.collect() }, ..problem.clone() };
    let inputs = Inputs {
        query: one(&inputs.query),
        key: one(&inputs.key),
        value: one(&inputs.value),
        ..inputs.clone()
    };
    Other { rows: Rows::MemberAlone(member), ..moved(problem, inputs) }
}

/// The two documents of a problem of as many queries as keys, each by itself, without their mask.
fn documents(first: &Posed) -> Vec<Other> {
    let Posed { problem, inputs } = first;
    let Some(Rule::Documents(documents)) = problem.mask.rules.first() else {
        panic!("a problem whose first rule is of documents");
    };
    let boundary = documents.key[0].iter().filter(|&&document| document == 0).count();
    [(0, boundary), (boundary, problem.key_len - boundary)]
        .into_iter()
        .map(|(from, count)| {
            let part = |tensor: &Tensor| {
                let values: Array4<f64> =
                    tensor.view4().slice(s![.., .., from..from + count, ..]).to_owned();
                Tensor::rounded(tensor.format(), &values.into_dyn())
            };
            let problem = Problem {
                query_len: count,
                key_len: count,
                mask: Mask { rules: problem.mask.rules[1..].to_vec() },
                ..problem.clone()
            };
            let inputs = Inputs {
                query: part(&inputs.query),
                key: part(&inputs.key),
                value: part(&inputs.value),
                ..inputs.clone()
            };
            Other { rows: Rows::Queries { from, count }, ..moved(problem, inputs) }
        })
        .collect()
}

/// The problem that shows a relation: one that has what it is about.
#[must_use]
pub fn shows(relation: Relation, mut problem: Problem) -> Problem {
    let half = problem.key_len / 2 + 1;
    match relation {
        Relation::CausalWindow => problem.mask = Mask::only(Rule::CausalBottomRight),
        Relation::DocumentConcat => {
            problem.query_len = problem.key_len;
            let ids: Vec<u32> = (0..problem.key_len).map(|key| u32::from(key >= half)).collect();
            let documents = vec![ids; problem.batch];
            let rule = Documents { query: documents.clone(), key: documents };
            problem.mask = Mask { rules: vec![Rule::Documents(rule), Rule::CausalTopLeft] };
        }
        Relation::BatchIndependence | Relation::BatchSplit | Relation::BatchInvariant => {
            problem.batch = problem.batch.max(3);
            let lengths = (0..problem.batch).map(|member| problem.key_len - member % 2).collect();
            problem.mask = Mask::only(Rule::KeyLengths(lengths));
        }
        Relation::HeadIndependence => (problem.query_heads, problem.key_heads) = (6, 2),
        Relation::KeyPermutation
        | Relation::ScoreShift
        | Relation::ValueShift
        | Relation::Repeat => {}
    }
    problem
}

/// The family that relations draw their inputs from.
pub const FAMILY: Family = Family::of(Scores::Normal);
