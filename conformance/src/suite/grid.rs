//! Cases that cover every pair of conditions.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};

use super::Suite;
use super::masks::MaskKind;
use super::pairwise::{self, Partial};
use crate::case::Case;
use crate::inputs::poison::Poison;
use crate::inputs::{Family, Scores, Upstream, Values};

/// The levels of each dimension. Order is preference: where the choice is free, the first is taken.
struct Grid {
    query_len: &'static [usize],
    key_len: &'static [usize],
    head_dim: &'static [usize],
    value_dim: &'static [ValueDim],
    heads: &'static [(usize, usize)],
    batch: &'static [usize],
    mask: &'static [MaskKind],
    scale: &'static [Scale],
    scores: &'static [Scores],
    values: &'static [Values],
    upstream: &'static [Option<Upstream>],
    /// The most products of a case: `batch * query_heads * query_len * key_len * (head_dim +
    /// value_dim)`. Nearly all time goes into the exact answer, which grows with it.
    most_products: usize,
}

#[derive(Clone, Copy)]
enum ValueDim {
    AsHead,
    Of(usize),
}

/// Extents about the powers of two that kernels tile by, and the smallest ones.
const QUICK: Grid = Grid {
    query_len: &[5, 1, 2, 3, 17, 63, 64, 65, 127, 257],
    key_len: &[17, 1, 2, 3, 5, 63, 64, 65, 127, 257],
    mask: &MaskKind::PLAIN,
    scores: SCORES,
    values: VALUES,
    upstream: &[None],
    heads: &[(1, 1), (6, 2), (3, 3), (4, 1)],
    batch: &[1, 2, 3],
    head_dim: &[8, 1, 40, 64, 72, 112, 128, 256],
    value_dim: &[ValueDim::AsHead, ValueDim::Of(16), ValueDim::Of(96)],
    scale: SCALES,
    most_products: 1_500_000,
};

/// More of both sides of every power of two, and rows of many blocks.
const FULL: Grid = Grid {
    query_len: &[5, 1, 2, 3, 15, 17, 31, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257],
    key_len: &[17, 1, 2, 3, 5, 15, 31, 33, 63, 64, 65, 127, 128, 129, 257, 513, 1025, 2049],
    head_dim: &[8, 1, 16, 24, 40, 64, 72, 80, 96, 104, 112, 128, 192, 256],
    value_dim: &[ValueDim::AsHead, ValueDim::Of(16), ValueDim::Of(96), ValueDim::Of(128)],
    most_products: 20_000_000,
    ..QUICK
};

const SCALES: &[Scale] = &[Scale::InverseSqrtHeadDim, Scale::Value(0.3), Scale::Value(1.0)];

const SCORES: &[Scores] = &[
    Scores::Normal,
    Scores::Large,
    Scores::Outliers,
    Scores::Ties,
    Scores::Rising,
    Scores::Falling,
    Scores::Negative,
    Scores::TiesHigh,
    Scores::TiesLow,
    Scores::Integers,
    Scores::Subnormal,
    Scores::Zero,
];

const VALUES: &[Values] = &[
    Values::Normal,
    Values::OneHot,
    Values::Outliers,
    Values::Ones,
    Values::Cancelling,
    Values::Positive,
    Values::Integers,
    Values::Subnormal,
];

/// The same conditions at fewer extents: a gradient costs several times what an output does.
const QUICK_GRADIENT: Grid = Grid {
    query_len: &[5, 1, 3, 17, 64, 65],
    key_len: &[17, 1, 3, 5, 64, 65, 129],
    head_dim: &[8, 1, 40, 72, 128, 256],
    scores: GRADIENT_SCORES,
    upstream: UPSTREAM,
    most_products: 400_000,
    ..QUICK
};

const FULL_GRADIENT: Grid = Grid {
    scores: GRADIENT_SCORES,
    upstream: UPSTREAM,
    most_products: 4_000_000,
    head_dim: FULL.head_dim,
    value_dim: FULL.value_dim,
    ..QUICK
};

/// Without subnormal keys: the queries that make up for them are so large that the keys' gradients
/// leave the range of every format but f16.
const GRADIENT_SCORES: &[Scores] = &[
    Scores::Normal,
    Scores::Large,
    Scores::Outliers,
    Scores::Ties,
    Scores::Rising,
    Scores::Falling,
    Scores::Negative,
    Scores::TiesHigh,
    Scores::TiesLow,
    Scores::Integers,
    Scores::Zero,
];

const UPSTREAM: &[Option<Upstream>] =
    &[Some(Upstream::OutputAndLse), Some(Upstream::Output), Some(Upstream::Positive)];

/// The smallest grid that has every kind of poison, mask and head grouping.
const POISONED: Grid = Grid {
    query_len: &[5, 64, 129],
    key_len: &[17, 5, 65, 257],
    scores: &[Scores::Normal, Scores::Rising],
    values: &[Values::Normal, Values::Ones],
    head_dim: &[8, 72],
    value_dim: &[ValueDim::AsHead],
    scale: &[Scale::InverseSqrtHeadDim],
    ..QUICK
};

/// The cases of the suite's grid and those that are poisoned, in `f32`; the format is a dimension
/// of its own, met by every other.
pub(super) fn cases(suite: Suite, seed: u64) -> Vec<Case> {
    let grid = match suite {
        Suite::Quick => QUICK,
        Suite::Full => FULL,
    };
    let clean = grid.rows().into_iter().map(|row| grid.case(&row, None, seed));
    let poisoned = POISONED.rows().into_iter().flat_map(|row| {
        Poison::ALL.into_iter().filter_map(move |poison| {
            let case = POISONED.case(&row, Some(poison), seed);
            case.poisons_something().then_some(case)
        })
    });
    let special =
        SPECIAL.into_iter().map(|family| Case::new(special_problem(), family, None, seed));
    clean.chain(poisoned).chain(special).collect()
}

/// Those of the backward pass, likewise.
pub(super) fn gradient_cases(suite: Suite, seed: u64) -> Vec<Case> {
    let grid = match suite {
        Suite::Quick => QUICK_GRADIENT,
        Suite::Full => FULL_GRADIENT,
    };
    let clean = grid.rows().into_iter().map(|row| grid.case(&row, None, seed));
    let poisoned = Poison::ALL.into_iter().map(|poison| {
        Case::new(special_problem(), Family::of(Scores::Normal), Some(poison), seed)
            .with_upstream(Upstream::OutputAndLse)
    });
    clean.chain(poisoned).collect()
}

/// Families with an entry that is no number.
const SPECIAL: [Family; 4] = [
    Family::of(Scores::NanQuery),
    Family::of(Scores::NanKey),
    Family { scores: Scores::Normal, values: Values::Nan },
    Family { scores: Scores::Normal, values: Values::Infinity },
];

/// Rows that see the first key and rows that see none, over several blocks of several sizes, in
/// heads that share keys and heads that do not.
fn special_problem() -> Problem {
    let mut problem = Problem::new(Format::F32, 4, 70, 8);
    (problem.batch, problem.key_heads, problem.key_len) = (2, 2, 66);
    problem.mask = MaskKind::LengthsBottomRight.mask(&problem);
    problem
}

/// Dimensions of the grid, by their place in a row. Those with most levels come first, since the
/// greedy construction settles them first.
mod dimension {
    pub(super) const KEY_LEN: usize = 0;
    pub(super) const QUERY_LEN: usize = 1;
    pub(super) const SCORES: usize = 2;
    pub(super) const VALUES: usize = 3;
    pub(super) const HEAD_DIM: usize = 4;
    pub(super) const MASK: usize = 5;
    pub(super) const HEADS: usize = 6;
    pub(super) const VALUE_DIM: usize = 7;
    pub(super) const BATCH: usize = 8;
    pub(super) const SCALE: usize = 9;
    pub(super) const UPSTREAM: usize = 10;
    pub(super) const COUNT: usize = 11;
}

impl Grid {
    fn levels(&self) -> [usize; dimension::COUNT] {
        let mut levels = [0; dimension::COUNT];
        levels[dimension::KEY_LEN] = self.key_len.len();
        levels[dimension::QUERY_LEN] = self.query_len.len();
        levels[dimension::SCORES] = self.scores.len();
        levels[dimension::VALUES] = self.values.len();
        levels[dimension::HEAD_DIM] = self.head_dim.len();
        levels[dimension::MASK] = self.mask.len();
        levels[dimension::HEADS] = self.heads.len();
        levels[dimension::VALUE_DIM] = self.value_dim.len();
        levels[dimension::BATCH] = self.batch.len();
        levels[dimension::SCALE] = self.scale.len();
        levels[dimension::UPSTREAM] = self.upstream.len();
        levels
    }

    fn rows(&self) -> Vec<Vec<usize>> {
        pairwise::cover(&self.levels(), |partial| {
            self.least_products(partial) <= self.most_products
        })
    }

    /// The products of the cheapest case that extends the partial row. Each factor is least at a
    /// level of its own, so the product of the least ones is reached.
    fn least_products(&self, partial: &Partial) -> usize {
        let least = |dimension: usize, of: &dyn Fn(usize) -> usize| {
            let levels = 0..self.levels()[dimension];
            partial[dimension].map_or_else(|| levels.map(of).min().unwrap_or(0), of)
        };
        let keys = least(dimension::KEY_LEN, &|level| self.key_len[level]);
        let queries = least(dimension::QUERY_LEN, &|level| self.query_len[level]);
        let head_dim = least(dimension::HEAD_DIM, &|level| self.head_dim[level]);
        let heads = least(dimension::HEADS, &|level| self.heads[level].0);
        let value_dim = least(dimension::VALUE_DIM, &|level| self.value_dim[level].given(head_dim));
        let batch = least(dimension::BATCH, &|level| self.batch[level]);
        batch * heads * queries * keys * (head_dim + value_dim)
    }

    fn case(&self, row: &[usize], poison: Option<Poison>, seed: u64) -> Case {
        let (query_heads, key_heads) = self.heads[row[dimension::HEADS]];
        let batch = self.batch[row[dimension::BATCH]];
        let key_len = self.key_len[row[dimension::KEY_LEN]];
        let head_dim = self.head_dim[row[dimension::HEAD_DIM]];
        let mut problem = Problem {
            batch,
            key_heads,
            query_len: self.query_len[row[dimension::QUERY_LEN]],
            value_dim: self.value_dim[row[dimension::VALUE_DIM]].given(head_dim),
            scale: self.scale[row[dimension::SCALE]],
            ..Problem::new(Format::F32, query_heads, key_len, head_dim)
        };
        problem.mask = self.mask[row[dimension::MASK]].mask(&problem);
        let family = Family {
            scores: self.scores[row[dimension::SCORES]],
            values: self.values[row[dimension::VALUES]],
        };
        let case = Case::new(problem, family, poison, seed);
        match self.upstream[row[dimension::UPSTREAM]] {
            None => case,
            Some(upstream) => case.with_upstream(upstream),
        }
    }
}

impl ValueDim {
    const fn given(self, head_dim: usize) -> usize {
        match self {
            Self::AsHead => head_dim,
            Self::Of(value_dim) => value_dim,
        }
    }
}
