//! Some positions of an axis, and everything that runs along it cut to them.

use flashproof_spec::layout::{Layout, Placed};
use flashproof_spec::mask::{BlockSparse, Documents, Mask, Prefix, Rule};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Dropout, Slopes};
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::Axis as At;

use crate::inputs::LayoutKind;
use crate::run::Instance;

/// An axis of a problem along which it can be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Batch members.
    Batch,
    /// Key heads, each with the query heads that read it.
    KeyHead,
    /// Query heads of a group, in every group.
    Group,
    /// Queries.
    Query,
    /// Keys with their values.
    Key,
    /// Entries of a value and of an output.
    ValueDim,
    /// Entries of a query and of a key.
    HeadDim,
}

/// The axes of a tensor, and of what is broadcast to scores.
const BATCH: usize = 0;
const HEAD: usize = 1;
const POSITION: usize = 2;
const ENTRY: usize = 3;

impl Axis {
    /// Every axis, in the order in which they are cut: what makes each question cheaper first.
    pub const ALL: [Self; 7] = [
        Self::Batch,
        Self::KeyHead,
        Self::Group,
        Self::Query,
        Self::Key,
        Self::ValueDim,
        Self::HeadDim,
    ];

    /// Positions along it.
    #[must_use]
    pub const fn extent(self, problem: &Problem) -> usize {
        match self {
            Self::Batch => problem.batch,
            Self::KeyHead => problem.key_heads,
            Self::Group => problem.query_heads / problem.key_heads,
            Self::Query => problem.query_len,
            Self::Key => problem.key_len,
            Self::ValueDim => problem.value_dim,
            Self::HeadDim => problem.head_dim,
        }
    }

    /// Whether a problem may have none of it, and still be asked: a row may have no key.
    #[must_use]
    pub const fn may_be_empty(self) -> bool {
        matches!(self, Self::Key)
    }
}

/// Positions kept of an axis, ascending, as each tensor and pattern meets them.
struct Cut<'k> {
    axis: Axis,
    keep: &'k [usize],
    /// The query heads that are kept, where heads are cut.
    query_heads: Vec<usize>,
}

/// The instance with these positions of an axis alone, ascending. A layout is that of the same kind;
/// `None` where the smaller problem can not have one.
#[must_use]
pub fn select(
    instance: &Instance,
    axis: Axis,
    keep: &[usize],
    layout: Option<LayoutKind>,
) -> Option<Instance> {
    let cut = Cut { axis, keep, query_heads: query_heads(&instance.problem, axis, keep) };
    let Instance { problem, inputs, cotangents, poison } = instance;
    let cut = Instance {
        problem: cut.problem(problem),
        inputs: cut.inputs(inputs),
        cotangents: cotangents.as_ref().map(|it| cut.cotangents(it)),
        poison: *poison,
    };
    laid_out(cut, layout)
}

/// The instance in a layout of this kind, with the inputs as it holds them.
#[must_use]
pub fn laid_out(instance: Instance, layout: Option<LayoutKind>) -> Option<Instance> {
    let Instance { mut problem, mut inputs, .. } = instance;
    let Some(kind) = layout else {
        problem.layout = Layout::Contiguous;
        return Some(Instance { problem, inputs, ..instance });
    };
    problem.layout = kind.of(&problem)?;
    problem.validate().ok()?;
    inputs.query = problem.as_stored(Placed::Query, &inputs.query);
    inputs.key = problem.as_stored(Placed::Key, &inputs.key);
    inputs.value = problem.as_stored(Placed::Value, &inputs.value);
    Some(Instance { problem, inputs, ..instance })
}

fn query_heads(problem: &Problem, axis: Axis, keep: &[usize]) -> Vec<usize> {
    let group = Axis::Group.extent(problem);
    match axis {
        Axis::KeyHead => keep.iter().flat_map(|head| head * group..(head + 1) * group).collect(),
        Axis::Group => (0..problem.key_heads)
            .flat_map(|head| keep.iter().map(move |offset| head * group + offset))
            .collect(),
        _ => (0..problem.query_heads).collect(),
    }
}

impl Cut<'_> {
    fn problem(&self, problem: &Problem) -> Problem {
        let mut cut = problem.clone();
        let kept = self.keep.len();
        match self.axis {
            Axis::Batch => cut.batch = kept,
            Axis::KeyHead => cut.key_heads = kept,
            Axis::Group => {}
            Axis::Query => cut.query_len = kept,
            Axis::Key => cut.key_len = kept,
            Axis::ValueDim => cut.value_dim = kept,
            Axis::HeadDim => cut.head_dim = kept,
        }
        cut.query_heads = self.query_heads.len();
        cut.mask = Mask { rules: problem.mask.rules.iter().map(|it| self.rule(it)).collect() };
        cut.bias = problem.bias.map(|bias| Bias { shape: self.score_shape(bias.shape), ..bias });
        if let Some(alibi) = &mut cut.alibi
            && let Slopes::Given(slopes) = &mut alibi.slopes
        {
            *slopes = self.query_heads.iter().map(|&head| slopes[head]).collect();
        }
        cut.dropout = problem
            .dropout
            .as_ref()
            .map(|dropout| Dropout { keep: self.pattern(&dropout.keep), ..dropout.clone() });
        cut
    }

    fn inputs(&self, inputs: &Inputs) -> Inputs {
        let score = |tensor: &Tensor| {
            (BATCH..=ENTRY).fold(tensor.clone(), |tensor, at| match self.of_scores(at) {
                Some(keep) if tensor.shape()[at] > 1 => take(&tensor, at, keep),
                _ => tensor,
            })
        };
        Inputs {
            query: self.taken(&inputs.query, Of::Query),
            key: self.taken(&inputs.key, Of::Key),
            value: self.taken(&inputs.value, Of::Value),
            bias: inputs.bias.as_ref().map(score),
            sink: inputs.sink.as_ref().map(|sink| match self.of_scores(HEAD) {
                Some(heads) => take(sink, 0, heads),
                None => sink.clone(),
            }),
            // Problems with descales are not shrunk.
            descale: None,
        }
    }

    fn cotangents(&self, cotangents: &Cotangents) -> Cotangents {
        Cotangents {
            output: self.taken(&cotangents.output, Of::Output),
            lse: cotangents.lse.as_ref().map(|lse| self.taken(lse, Of::Lse)),
        }
    }

    /// A tensor of one row of entries a position.
    fn taken(&self, tensor: &Tensor, of: Of) -> Tensor {
        let (keys, rows) = (matches!(of, Of::Key | Of::Value), !matches!(of, Of::Key | Of::Value));
        match self.axis {
            Axis::Batch => take(tensor, BATCH, self.keep),
            Axis::KeyHead if keys => take(tensor, HEAD, self.keep),
            Axis::KeyHead | Axis::Group if rows => take(tensor, HEAD, &self.query_heads),
            Axis::Query if rows => take(tensor, POSITION, self.keep),
            Axis::Key if keys => take(tensor, POSITION, self.keep),
            Axis::HeadDim if matches!(of, Of::Query | Of::Key) => take(tensor, ENTRY, self.keep),
            Axis::ValueDim if matches!(of, Of::Value | Of::Output) => {
                take(tensor, ENTRY, self.keep)
            }
            _ => tensor.clone(),
        }
    }

    /// What is kept of an axis of scores; `None` where that is everything.
    fn of_scores(&self, at: usize) -> Option<&[usize]> {
        match (self.axis, at) {
            (Axis::Batch, BATCH) | (Axis::Query, POSITION) | (Axis::Key, ENTRY) => Some(self.keep),
            (Axis::KeyHead | Axis::Group, HEAD) => Some(&self.query_heads),
            _ => None,
        }
    }

    /// A shape that is broadcast to scores: an extent of 1 stands for every position.
    fn score_shape(&self, shape: [usize; 4]) -> [usize; 4] {
        std::array::from_fn(|at| match self.of_scores(at) {
            Some(keep) if shape[at] > 1 => keep.len(),
            _ => shape[at],
        })
    }

    fn pattern(&self, pattern: &Pattern) -> Pattern {
        let shape = pattern.shape();
        Pattern::from_fn(self.score_shape(shape), |place| {
            pattern.at(std::array::from_fn(|at| match self.of_scores(at) {
                Some(keep) if shape[at] > 1 => keep[place[at]],
                _ => place[at],
            }))
        })
    }

    fn rule(&self, rule: &Rule) -> Rule {
        match rule {
            Rule::CausalTopLeft
            | Rule::CausalBottomRight
            | Rule::Window(_)
            | Rule::Chunked(_)
            | Rule::Dilated(_) => rule.clone(),
            Rule::KeyLengths(lengths) => Rule::KeyLengths(self.lengths(lengths, Axis::Key)),
            Rule::KeyStarts(starts) => Rule::KeyStarts(self.lengths(starts, Axis::Key)),
            Rule::QueryLengths(lengths) => Rule::QueryLengths(self.lengths(lengths, Axis::Query)),
            Rule::Prefix(Prefix { lengths, alignment }) => {
                let lengths = self.lengths(lengths, Axis::Key);
                Rule::Prefix(Prefix { lengths, alignment: *alignment })
            }
            Rule::Documents(Documents { query, key }) => Rule::Documents(Documents {
                query: self.documents(query, Axis::Query),
                key: self.documents(key, Axis::Key),
            }),
            Rule::Boolean(pattern) => Rule::Boolean(self.pattern(pattern)),
            Rule::BlockSparse(blocks) => Rule::BlockSparse(self.blocks(blocks)),
        }
    }

    /// Numbers of positions before a limit, one a batch member.
    fn lengths(&self, lengths: &[usize], along: Axis) -> Vec<usize> {
        if self.axis == Axis::Batch {
            return self.keep.iter().map(|&member| lengths[member]).collect();
        }
        if self.axis != along {
            return lengths.to_vec();
        }
        let before = |&limit: &usize| self.keep.iter().filter(|&&at| at < limit).count();
        lengths.iter().map(before).collect()
    }

    fn documents(&self, documents: &[Vec<u32>], along: Axis) -> Vec<Vec<u32>> {
        if self.axis == Axis::Batch {
            return self.keep.iter().map(|&member| documents[member].clone()).collect();
        }
        if self.axis != along {
            return documents.to_vec();
        }
        documents.iter().map(|ids| self.keep.iter().map(|&at| ids[at]).collect()).collect()
    }

    /// The same blocks over what is left: of positions, the pattern keeps its first blocks.
    fn blocks(&self, blocks: &BlockSparse) -> BlockSparse {
        let BlockSparse { query_block, key_block, pattern } = blocks;
        let cropped =
            |of: Axis, block: usize| (self.axis == of).then_some(self.keep.len().div_ceil(block));
        let crops =
            [None, None, cropped(Axis::Query, *query_block), cropped(Axis::Key, *key_block)];
        let shape = pattern.shape();
        let kept = |at: usize| match self.of_scores(at) {
            Some(keep) if at < POSITION && shape[at] > 1 => Some(keep),
            _ => None,
        };
        let new = std::array::from_fn(|at| match (kept(at), crops[at]) {
            (Some(keep), _) => keep.len(),
            (None, Some(blocks)) if shape[at] > 1 => blocks,
            _ => shape[at],
        });
        let pattern = Pattern::from_fn(new, |place| {
            pattern.at(std::array::from_fn(|at| kept(at).map_or(place[at], |keep| keep[place[at]])))
        });
        BlockSparse { query_block: *query_block, key_block: *key_block, pattern }
    }
}

/// Whose entries a tensor holds.
#[derive(Clone, Copy)]
enum Of {
    Query,
    Key,
    Value,
    Output,
    Lse,
}

/// The tensor with these positions of an axis alone.
fn take(tensor: &Tensor, axis: usize, keep: &[usize]) -> Tensor {
    Tensor::rounded(tensor.format(), &tensor.values().select(At(axis), keep))
}
