//! One fault in a backward pass, as a change to the right computation.

use flashproof_oracle::row::RowIndex;

use super::GradientOf;
use super::model::Model;

/// What is computed otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Change {
    /// Nothing.
    None,
    /// `dS = P dP`.
    NoDelta,
    /// `D` from the output of the query this far away, around the end.
    DeltaOfNeighbour(isize),
    /// The upstream gradient of the LSE times this.
    LseGradient(f64),
    /// One more power of the scale, or one less.
    Scale(GradientOf, i32),
    /// A gradient that is never computed.
    Zero(GradientOf),
    /// The mask ends this many keys later, or earlier.
    MaskEnd(isize),
    /// No mask at all.
    Unmasked,
    /// Invisible positions up to the end of a tile of this many score 0.
    TileScoresZero(usize),
    /// One query head of each group, this one of it, is all that reaches `dK` and `dV`.
    OneHead(HeadOfGroup),
}

/// A query head's place among those that share a key head.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HeadOfGroup {
    First,
    Last,
}

/// A pair of query row and key as a faulty kernel has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) probability: f64,
    pub(super) score_gradient: f64,
    /// Whether key and value are padding of zeros rather than data.
    pub(super) padding: bool,
}

impl Change {
    /// The pair, or `None` where it takes no part.
    pub(super) fn pair(self, model: &Model<'_>, row: RowIndex, key: usize) -> Option<Pair> {
        let lse = model.lse(row);
        if lse == f64::NEG_INFINITY {
            return None;
        }
        let padding = !self.sees(model, row, key);
        if padding && !self.fills(model, row, key) {
            return None;
        }
        let (score, dp) =
            if padding { (0.0, 0.0) } else { (model.score(row, key), model.dp(row, key)) };
        let exact = (score - lse).exp();
        let overflows = exact > model.profile.arithmetic.max_finite();
        let probability = if overflows { f64::INFINITY } else { exact };
        let score_gradient =
            probability * (dp - self.delta(model, row) + self.lse_gradient(model, row));
        Some(Pair { probability, score_gradient, padding })
    }

    /// How many key positions a row meets, padding included.
    pub(super) fn positions(self, model: &Model<'_>) -> usize {
        let key_len = model.problem.key_len;
        match self {
            Self::TileScoresZero(tile) => key_len.next_multiple_of(tile),
            _ => key_len,
        }
    }

    fn sees(self, model: &Model<'_>, row: RowIndex, key: usize) -> bool {
        match self {
            Self::Unmasked => key < model.problem.key_len,
            Self::MaskEnd(later) if !model.problem.mask.rules.is_empty() => {
                match key.checked_add_signed(-later) {
                    None => true,
                    Some(shifted) => shifted < model.problem.key_len && model.sees(row, shifted),
                }
            }
            _ => model.sees(row, key),
        }
    }

    /// Whether an invisible position lies in a tile that holds a visible one.
    fn fills(self, model: &Model<'_>, row: RowIndex, key: usize) -> bool {
        match self {
            Self::TileScoresZero(tile) => {
                let first = key / tile * tile;
                (first..key).any(|key| model.sees(row, key))
            }
            _ => false,
        }
    }

    fn delta(self, model: &Model<'_>, row: RowIndex) -> f64 {
        match self {
            Self::NoDelta => 0.0,
            Self::DeltaOfNeighbour(distance) => {
                let count = model.problem.query_len as isize;
                let query = (row.query as isize + distance).rem_euclid(count) as usize;
                model.delta(row, RowIndex { query, ..row })
            }
            _ => model.delta(row, row),
        }
    }

    fn lse_gradient(self, model: &Model<'_>, row: RowIndex) -> f64 {
        let factor = if let Self::LseGradient(factor) = self { factor } else { 1.0 };
        factor * model.lse_gradient(row)
    }

    /// The factor in front of the sum.
    pub(super) fn factor(self, model: &Model<'_>, quantity: GradientOf) -> f64 {
        let scale = model.problem.scale_f64();
        match self {
            Self::Zero(of) if of == quantity => 0.0,
            Self::Scale(of, power) if of == quantity => scale.powi(1 + power),
            _ if quantity == GradientOf::Value => 1.0,
            _ => scale,
        }
    }

    /// Whether a query head contributes to its key head's gradients.
    pub(super) fn counts(self, model: &Model<'_>, head: usize) -> bool {
        let group = model.problem.query_heads / model.problem.key_heads;
        match self {
            Self::OneHead(HeadOfGroup::First) => head.is_multiple_of(group),
            Self::OneHead(HeadOfGroup::Last) => head % group == group - 1,
            _ => true,
        }
    }
}
