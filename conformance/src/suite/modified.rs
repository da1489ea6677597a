//! Cases that cover every pair of a mask, a score modification, a layout and the other conditions.
//!
//! Arrays of their own, beside that of `grid.rs`: its extents are about tiles, these about what the
//! scores go through. So they are small, and their cases many.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Alignment;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};

use super::Suite;
use super::masks::{MaskKind, shape};
use super::pairwise::{self, Partial};
use crate::case::Case;
use crate::inputs::{
    BiasValues, Family, LayoutKind, Modifiers, Scores, SinkValues, Upstream, Values, pattern,
};

/// The levels of each dimension. Order is preference: where the choice is free, the first is taken.
#[derive(Clone, Copy)]
pub(super) struct Grid {
    mask: &'static [MaskKind],
    layout: &'static [Option<LayoutKind>],
    bias: &'static [Option<BiasValues>],
    /// Axes of `[batch, head, query, key]` along which a bias is not broadcast.
    bias_axes: &'static [[bool; 4]],
    sink: &'static [Option<SinkLevel>],
    softcap: &'static [Option<Softcap>],
    alibi: &'static [Option<AlibiKind>],
    dropout: &'static [Option<DropoutKind>],
    /// Query and key lengths.
    lengths: &'static [(usize, usize)],
    /// Query and key heads.
    heads: &'static [(usize, usize)],
    batch: &'static [usize],
    /// Entries of a head and of a value.
    dims: &'static [(usize, usize)],
    scale: &'static [Scale],
    scores: &'static [Scores],
    values: &'static [Values],
    /// Whether bias and sinks are `f32` whatever the problem's format.
    wide: &'static [bool],
    upstream: &'static [Option<Upstream>],
    /// The most products of a case, as in the other grid.
    most_products: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SinkLevel {
    Zero,
    Logits(SinkValues),
}

#[derive(Clone, Copy)]
enum AlibiKind {
    Standard(Alignment),
    Given,
}

#[derive(Clone, Copy)]
enum DropoutKind {
    Each,
    SharedHeads,
    DroppedRow,
}

const EACH: [bool; 4] = [true; 4];

/// Every kind of mask with every modification, at few and small extents.
const QUICK: Grid = Grid {
    mask: &MaskKind::EVERY,
    layout: &[None],
    bias: &[
        None,
        Some(BiasValues::Normal),
        Some(BiasValues::MinusInfinity),
        Some(BiasValues::Lowest),
        Some(BiasValues::Ramp),
        Some(BiasValues::Causal),
        Some(BiasValues::MinusInfinityRows),
        Some(BiasValues::LowestRows),
    ],
    bias_axes: &[
        [false, true, true, true],
        EACH,
        [false, false, true, true],
        [true, false, false, true],
        [true, true, true, false],
        [false, true, false, false],
    ],
    sink: &[
        None,
        Some(SinkLevel::Logits(SinkValues::Normal)),
        Some(SinkLevel::Logits(SinkValues::Twenty)),
        Some(SinkLevel::Zero),
        Some(SinkLevel::Logits(SinkValues::High)),
        Some(SinkLevel::Logits(SinkValues::Low)),
    ],
    softcap: &[
        None,
        Some(Softcap { cap: 30.0, order: SoftcapOrder::BeforeBias }),
        Some(Softcap { cap: 1.0, order: SoftcapOrder::BeforeBias }),
        Some(Softcap { cap: 5.0, order: SoftcapOrder::AfterBias }),
    ],
    alibi: &[
        None,
        Some(AlibiKind::Standard(Alignment::BottomRight)),
        Some(AlibiKind::Standard(Alignment::TopLeft)),
        Some(AlibiKind::Given),
    ],
    dropout: &[
        None,
        Some(DropoutKind::Each),
        Some(DropoutKind::SharedHeads),
        Some(DropoutKind::DroppedRow),
    ],
    lengths: &[(9, 20), (12, 12), (1, 70), (20, 9), (65, 64), (33, 130)],
    heads: &[(6, 2), (3, 3), (1, 1), (12, 4), (8, 1)],
    batch: &[2, 1, 3],
    dims: &[(8, 8), (16, 5), (40, 24), (64, 64)],
    scale: &[Scale::InverseSqrtHeadDim, Scale::Value(0.3), Scale::Value(-0.5), Scale::Value(0.0)],
    scores: &[
        Scores::Normal,
        Scores::Rising,
        Scores::Ties,
        Scores::Outliers,
        Scores::Integers,
        Scores::Negative,
        Scores::Zero,
    ],
    values: &[Values::Normal, Values::OneHot, Values::Positive],
    wide: &[false, true],
    upstream: &[None],
    most_products: 500_000,
};

/// The same at larger extents.
const FULL: Grid = Grid {
    lengths: &[
        (9, 20),
        (12, 12),
        (1, 70),
        (20, 9),
        (65, 64),
        (33, 130),
        (129, 127),
        (64, 257),
        (1, 1025),
        (129, 63),
    ],
    dims: &[(8, 8), (16, 5), (40, 24), (64, 64), (72, 72), (128, 96), (256, 256)],
    most_products: 2_500_000,
    ..QUICK
};

const QUICK_GRADIENT: Grid = Grid {
    bias: GRADIENT_BIAS,
    lengths: &[(9, 20), (12, 12), (1, 33), (20, 9), (5, 65)],
    dims: &[(8, 8), (8, 5), (5, 8)],
    upstream: UPSTREAM,
    most_products: 30_000,
    ..QUICK
};

const FULL_GRADIENT: Grid = Grid {
    bias: GRADIENT_BIAS,
    lengths: FULL.lengths,
    dims: &[(8, 8), (16, 5), (40, 24), (64, 64), (72, 96)],
    upstream: UPSTREAM,
    most_products: 400_000,
    ..QUICK
};

/// Without rows whose every key has the lowest bias, which many masks make of its entries: an LSE near
/// the lowest number of its format is so coarse that weights recomputed from it mean nothing, and
/// nothing bounds their gradients. `special.rs` has the entries alone.
const GRADIENT_BIAS: &[Option<BiasValues>] = &[
    None,
    Some(BiasValues::Normal),
    Some(BiasValues::MinusInfinity),
    Some(BiasValues::Ramp),
    Some(BiasValues::Causal),
    Some(BiasValues::MinusInfinityRows),
];

const UPSTREAM: &[Option<Upstream>] =
    &[Some(Upstream::OutputAndLse), Some(Upstream::Output), Some(Upstream::Positive)];

/// Every layout, with the masks that say which positions are in use.
const LAYOUTS: Grid = Grid {
    mask: &MaskKind::OF_LENGTHS,
    layout: &[
        Some(LayoutKind::Ragged),
        Some(LayoutKind::RaggedGaps),
        Some(LayoutKind::Bshd),
        Some(LayoutKind::Transposed),
        Some(LayoutKind::HeadFirst),
        Some(LayoutKind::PackedQkv),
        Some(LayoutKind::Gapped),
        Some(LayoutKind::SharedHeads),
        Some(LayoutKind::SharedBatch),
        Some(LayoutKind::Paged1),
        Some(LayoutKind::Paged3),
        Some(LayoutKind::Paged16),
        Some(LayoutKind::PagedPrefix),
    ],
    bias: &[None, Some(BiasValues::Normal), Some(BiasValues::MinusInfinity)],
    sink: &[None, Some(SinkLevel::Logits(SinkValues::Normal)), Some(SinkLevel::Zero)],
    softcap: &[None, Some(Softcap { cap: 30.0, order: SoftcapOrder::BeforeBias })],
    alibi: &[None, Some(AlibiKind::Standard(Alignment::BottomRight))],
    dropout: &[None, Some(DropoutKind::Each)],
    lengths: &[(12, 12), (9, 20), (1, 33), (20, 9), (5, 65)],
    heads: &[(6, 2), (3, 3), (4, 1)],
    batch: &[3, 2, 1],
    dims: &[(8, 8), (8, 5), (5, 8)],
    scale: &[Scale::InverseSqrtHeadDim],
    scores: &[Scores::Normal, Scores::Rising],
    values: &[Values::Normal, Values::OneHot],
    ..QUICK
};

const LAYOUTS_GRADIENT: Grid = Grid { upstream: UPSTREAM, most_products: 60_000, ..LAYOUTS };

/// The arrays of the forward pass.
pub(super) const fn forward(suite: Suite) -> [Grid; 2] {
    match suite {
        Suite::Quick => [QUICK, LAYOUTS],
        Suite::Full => [FULL, LAYOUTS],
    }
}

/// The arrays of the backward pass.
pub(super) const fn backward(suite: Suite) -> [Grid; 2] {
    match suite {
        Suite::Quick => [QUICK_GRADIENT, LAYOUTS_GRADIENT],
        Suite::Full => [FULL_GRADIENT, LAYOUTS_GRADIENT],
    }
}

/// Dimensions of the grid, by their place in a row; those with most levels first.
mod dimension {
    pub(super) const MASK: usize = 0;
    pub(super) const LAYOUT: usize = 1;
    pub(super) const BIAS: usize = 2;
    pub(super) const LENGTHS: usize = 3;
    pub(super) const SCORES: usize = 4;
    pub(super) const BIAS_AXES: usize = 5;
    pub(super) const SINK: usize = 6;
    pub(super) const HEADS: usize = 7;
    pub(super) const SOFTCAP: usize = 8;
    pub(super) const ALIBI: usize = 9;
    pub(super) const DROPOUT: usize = 10;
    pub(super) const DIMS: usize = 11;
    pub(super) const SCALE: usize = 12;
    pub(super) const BATCH: usize = 13;
    pub(super) const VALUES: usize = 14;
    pub(super) const UPSTREAM: usize = 15;
    pub(super) const WIDE: usize = 16;
    pub(super) const COUNT: usize = 17;
}

impl Grid {
    /// The grid's cases, in `f32`.
    pub(super) fn cases(&self, seed: u64) -> Vec<Case> {
        let rows = pairwise::cover(&self.levels(), |partial| self.completable(partial));
        rows.iter().map(|row| self.case(row, seed)).collect()
    }

    fn levels(&self) -> [usize; dimension::COUNT] {
        let mut levels = [0; dimension::COUNT];
        levels[dimension::MASK] = self.mask.len();
        levels[dimension::LAYOUT] = self.layout.len();
        levels[dimension::BIAS] = self.bias.len();
        levels[dimension::LENGTHS] = self.lengths.len();
        levels[dimension::SCORES] = self.scores.len();
        levels[dimension::BIAS_AXES] = self.bias_axes.len();
        levels[dimension::SINK] = self.sink.len();
        levels[dimension::HEADS] = self.heads.len();
        levels[dimension::SOFTCAP] = self.softcap.len();
        levels[dimension::ALIBI] = self.alibi.len();
        levels[dimension::DROPOUT] = self.dropout.len();
        levels[dimension::DIMS] = self.dims.len();
        levels[dimension::SCALE] = self.scale.len();
        levels[dimension::BATCH] = self.batch.len();
        levels[dimension::VALUES] = self.values.len();
        levels[dimension::UPSTREAM] = self.upstream.len();
        levels[dimension::WIDE] = self.wide.len();
        levels
    }

    /// Whether some allowed row extends the partial one: none of its levels exclude each other, and
    /// the cheapest levels of the rest are cheap enough. The first level of a dimension excludes
    /// none of another.
    fn completable(&self, partial: &Partial) -> bool {
        let excluded = self.erases_scores(partial)
            || self.has_no_rows_of_bias(partial)
            || self.is_unequal_though_packed(partial)
            || self.counts_sinks_of_rows_without_storage(partial)
            || self.leaves_sinks_without_bound(partial);
        !excluded && self.least_products(partial) <= self.most_products
    }

    /// A scale of 0 makes every score 0, so none can be given.
    fn erases_scores(&self, partial: &Partial) -> bool {
        let zero = |level: usize| self.scale[level] == Scale::Value(0.0);
        let given = |level: usize| self.scores[level].level().is_some();
        partial[dimension::SCALE].is_some_and(zero) && partial[dimension::SCORES].is_some_and(given)
    }

    /// A bias of whole rows is nothing new where it is broadcast along queries or keys, or there is
    /// one query.
    fn has_no_rows_of_bias(&self, partial: &Partial) -> bool {
        let rows = |level: usize| self.bias[level].is_some_and(BiasValues::needs_rows);
        let broadcast = |level: usize| !(self.bias_axes[level][2] && self.bias_axes[level][3]);
        let one_query = |level: usize| self.lengths[level].0 == 1;
        partial[dimension::BIAS].is_some_and(rows)
            && (partial[dimension::BIAS_AXES].is_some_and(broadcast)
                || partial[dimension::LENGTHS].is_some_and(one_query))
    }

    fn is_unequal_though_packed(&self, partial: &Partial) -> bool {
        let packed = |level: usize| self.layout[level] == Some(LayoutKind::PackedQkv);
        let unequal = |level: usize| self.lengths[level].0 != self.lengths[level].1;
        partial[dimension::LAYOUT].is_some_and(packed)
            && partial[dimension::LENGTHS].is_some_and(unequal)
    }

    /// The gradient of a sink counts the LSE's upstream gradient in rows without keys, and a ragged
    /// batch has no storage for those that are padding.
    fn counts_sinks_of_rows_without_storage(&self, partial: &Partial) -> bool {
        let ragged = |level: usize| self.layout[level].is_some_and(LayoutKind::is_ragged);
        let logits = |level: usize| matches!(self.sink[level], Some(SinkLevel::Logits(_)));
        let lse = |level: usize| self.upstream[level].is_some_and(Upstream::has_lse);
        partial[dimension::LAYOUT].is_some_and(ragged)
            && partial[dimension::SINK].is_some_and(logits)
            && partial[dimension::UPSTREAM].is_some_and(lse)
    }

    /// Where a sink lies far above every score of a row, a kernel may find its weight infinite, and
    /// nothing bounds the LSE.
    fn leaves_sinks_without_bound(&self, partial: &Partial) -> bool {
        let sink = |level: usize| self.sink[level].is_some();
        let low_scores = |level: usize| self.scores[level] == Scores::Negative;
        partial[dimension::SINK].is_some_and(sink)
            && (partial[dimension::SCORES].is_some_and(low_scores)
                || self.has_bias(partial, BiasValues::Lowest)
                || self.has_bias(partial, BiasValues::LowestRows))
    }

    fn has_bias(&self, partial: &Partial, values: BiasValues) -> bool {
        partial[dimension::BIAS].is_some_and(|level| self.bias[level] == Some(values))
    }

    /// The products of the cheapest case that extends the partial row.
    fn least_products(&self, partial: &Partial) -> usize {
        let least = |dimension: usize, of: &dyn Fn(usize) -> usize| {
            let levels = 0..self.levels()[dimension];
            partial[dimension].map_or_else(|| levels.map(of).min().unwrap_or(0), of)
        };
        let packed = |level: usize| self.layout[level] == Some(LayoutKind::PackedQkv);
        let must_be_equal = partial[dimension::LAYOUT].is_some_and(packed);
        let sites = least(dimension::LENGTHS, &|level| match self.lengths[level] {
            (queries, keys) if must_be_equal && queries != keys => usize::MAX,
            (queries, keys) => queries * keys,
        });
        let heads = least(dimension::HEADS, &|level| self.heads[level].0);
        let entries = least(dimension::DIMS, &|level| self.dims[level].0 + self.dims[level].1);
        let batch = least(dimension::BATCH, &|level| self.batch[level]);
        (batch * heads * entries).saturating_mul(sites)
    }

    fn case(&self, row: &[usize], seed: u64) -> Case {
        let (query_heads, key_heads) = self.heads[row[dimension::HEADS]];
        let (query_len, key_len) = self.lengths[row[dimension::LENGTHS]];
        let (head_dim, value_dim) = self.dims[row[dimension::DIMS]];
        let sink = self.sink[row[dimension::SINK]];
        let bias = self.bias[row[dimension::BIAS]];
        let mut problem = Problem {
            batch: self.batch[row[dimension::BATCH]],
            key_heads,
            query_len,
            value_dim,
            scale: self.scale[row[dimension::SCALE]],
            softcap: self.softcap[row[dimension::SOFTCAP]],
            alibi: self.alibi[row[dimension::ALIBI]].map(|kind| kind.of(query_heads)),
            sink: sink.map(SinkLevel::sink),
            ..Problem::new(Format::F32, query_heads, key_len, head_dim)
        };
        problem.mask = self.mask[row[dimension::MASK]].mask(&problem);
        let axes = self.bias_axes[row[dimension::BIAS_AXES]];
        problem.bias = bias.map(|_| Bias { shape: shape(&problem, axes), format: problem.format });
        problem.dropout = self.dropout[row[dimension::DROPOUT]].map(|kind| kind.of(&problem));
        if let Some(layout) = self.layout[row[dimension::LAYOUT]] {
            problem.layout = layout.of(&problem).unwrap_or_default();
        }
        let family = Family {
            scores: self.scores[row[dimension::SCORES]],
            values: self.values[row[dimension::VALUES]],
        };
        let modifiers = Modifiers {
            bias: bias.unwrap_or_default(),
            sink: sink.map(SinkLevel::values).unwrap_or_default(),
            wide: self.wide[row[dimension::WIDE]],
        };
        let case = Case::new(problem, family, None, seed).with_modifiers(modifiers);
        match self.upstream[row[dimension::UPSTREAM]] {
            None => case,
            Some(upstream) => case.with_upstream(upstream),
        }
    }
}

impl SinkLevel {
    const fn sink(self) -> Sink {
        match self {
            Self::Zero => Sink::Zero,
            Self::Logits(_) => Sink::Logits(Format::F32),
        }
    }

    fn values(self) -> SinkValues {
        match self {
            Self::Zero => SinkValues::default(),
            Self::Logits(values) => values,
        }
    }
}

/// Distance of the slopes that are given.
const SLOPE_STEP: f64 = 1.0 / 64.0;

impl AlibiKind {
    fn of(self, heads: usize) -> Alibi {
        match self {
            Self::Standard(alignment) => Alibi { slopes: Slopes::Standard, alignment },
            Self::Given => {
                // Exact in f32, no power of two for most heads, and none at all for the last.
                let slopes = (0..heads).rev().map(|step| SLOPE_STEP * step as f64).collect();
                Alibi { slopes: Slopes::Given(slopes), alignment: Alignment::BottomRight }
            }
        }
    }
}

/// Weights that are kept, about.
const KEPT: f64 = 0.7;

impl DropoutKind {
    fn of(self, problem: &Problem) -> Dropout {
        let axes = match self {
            Self::Each | Self::DroppedRow => EACH,
            Self::SharedHeads => [true, false, true, true],
        };
        let keep = pattern::balanced("keep", shape(problem, axes), KEPT);
        let keep = match self {
            Self::DroppedRow => pattern::with_last_row_empty(&keep),
            Self::Each | Self::SharedHeads => keep,
        };
        Dropout { scale: Format::F32.round(1.0 / KEPT), keep }
    }
}
