//! One fault in a backward pass, as a change to the right computation.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::score::SoftcapOrder;

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
    /// `D` from the upstream gradient in place of the output.
    DeltaOfGradient,
    /// The LSE is read as this many nats a unit.
    LseUnit(f64),
    /// The upstream gradient of the LSE times this.
    LseGradient(f64),
    /// One more power of the scale, or one less.
    Scale(GradientOf, i32),
    /// A gradient times this: zero where it is never computed.
    Times(GradientOf, f64),
    /// The mask ends this many keys later, or earlier.
    MaskEnd(isize),
    /// No mask at all.
    Unmasked,
    /// Invisible positions up to the end of a tile of this many score 0.
    TileScoresZero(usize),
    /// One query head of each group, this one of it, is all that reaches `dK` and `dV`.
    OneHead(EndOfAxis),
    /// One index of an axis that the bias is broadcast along is all that reaches `dBias`.
    OneOfAxis(Axis, EndOfAxis),
    /// The slope of the softcap is missing.
    NoSlope,
    /// The keep mask of dropout is applied elsewhere.
    Dropout(Misplaced),
}

/// An axis of the score matrix, by its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Batch = 0,
    Head = 1,
    Query = 2,
    Key = 3,
}

/// The first index of an axis, or of a group along it, or the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOfAxis {
    First,
    Last,
}

impl EndOfAxis {
    /// Whether an index is that one of `extent`.
    const fn is(self, index: usize, extent: usize) -> bool {
        match self {
            Self::First => index == 0,
            Self::Last => index + 1 == extent,
        }
    }
}

/// Where dropout goes wrong: it belongs to `dP`, and to `P` in `dV` alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misplaced {
    /// `dS = z P (dP - D + g)`: on `P` in place of `dP`.
    OnWeights,
    /// On `P` as well as on `dP`.
    OnBoth,
    /// On `P` in `dV` alone.
    NotOnDp,
    /// On `dP` alone.
    NotOnValue,
    /// Nowhere.
    Nowhere,
}

/// A pair of query row and key as a faulty kernel has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    /// `P` as it enters `dV`, with the factor of dropout.
    pub(super) weight: f64,
    /// `dS`.
    pub(super) score_gradient: f64,
    /// What the softcap multiplies it by.
    pub(super) slope: f64,
    /// Whether key and value are padding of zeros rather than data.
    pub(super) padding: bool,
}

impl Pair {
    /// What it brings to the gradient of its bias: that of the softcap's argument where the bias is
    /// part of it.
    pub(super) fn bias_gradient(self, model: &Model<'_>) -> f64 {
        match model.problem.softcap.map(|softcap| softcap.order) {
            Some(SoftcapOrder::AfterBias) => self.score_gradient * self.slope,
            Some(SoftcapOrder::BeforeBias) | None => self.score_gradient,
        }
    }
}

impl Change {
    /// The pair, or `None` where it takes no part.
    pub(super) fn pair(self, model: &Model<'_>, row: RowIndex, key: usize) -> Option<Pair> {
        let lse = self.lse(model, row);
        if lse == f64::NEG_INFINITY {
            return None;
        }
        let padding = !self.sees(model, row, key);
        if padding && !self.fills(model, row, key) {
            return None;
        }
        let (score, dp, slope, dropout) = if padding {
            (0.0, 0.0, 1.0, 1.0)
        } else {
            let slope = if self == Self::NoSlope { 1.0 } else { model.slope(row, key) };
            (model.score(row, key), model.dp(row, key), slope, model.dropout(row, key))
        };
        let exact = (score - lse).exp();
        let overflows = exact > model.profile.arithmetic.max_finite();
        let probability = if overflows { f64::INFINITY } else { exact };
        let (on_dp, on_p, on_value) = self.kept(dropout);
        let centred = on_dp * dp - self.delta(model, row) + self.lse_gradient(model, row);
        let score_gradient = on_p * probability * centred;
        Some(Pair { weight: on_value * probability, score_gradient, slope, padding })
    }

    /// The factors of dropout on `dP`, on `P` in `dS`, and on `P` in `dV`.
    fn kept(self, factor: f64) -> (f64, f64, f64) {
        match self {
            Self::Dropout(Misplaced::OnWeights) => (1.0, factor, factor),
            Self::Dropout(Misplaced::OnBoth) => (factor, factor, factor),
            Self::Dropout(Misplaced::NotOnDp) => (1.0, 1.0, factor),
            Self::Dropout(Misplaced::NotOnValue) => (factor, 1.0, 1.0),
            Self::Dropout(Misplaced::Nowhere) => (1.0, 1.0, 1.0),
            _ => (factor, 1.0, factor),
        }
    }

    /// What a row brings to the gradient of its sink; `None` without one.
    pub(super) fn sink_gradient(self, model: &Model<'_>, row: RowIndex) -> Option<f64> {
        let centred = self.lse_gradient(model, row) - self.delta(model, row);
        Some((model.sink(row)? - self.lse(model, row)).exp() * centred)
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
            // There is no key before the first one, which stays as it is.
            Self::MaskEnd(later) if model.hides_keys() => {
                model.sees(row, key.checked_add_signed(-later).unwrap_or(key))
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
            Self::DeltaOfGradient => model.square_of_gradient(row),
            _ => model.delta(row, row),
        }
    }

    /// The LSE as the backward pass reads it.
    fn lse(self, model: &Model<'_>, row: RowIndex) -> f64 {
        let unit = if let Self::LseUnit(unit) = self { unit } else { 1.0 };
        unit * model.lse(row)
    }

    fn lse_gradient(self, model: &Model<'_>, row: RowIndex) -> f64 {
        let factor = if let Self::LseGradient(factor) = self { factor } else { 1.0 };
        factor * model.lse_gradient(row)
    }

    /// The factor in front of the sum.
    pub(super) fn factor(self, model: &Model<'_>, quantity: GradientOf) -> f64 {
        let scale = model.problem.scale_f64();
        let power = match quantity {
            GradientOf::Query | GradientOf::Key => 1,
            GradientOf::Value | GradientOf::Bias | GradientOf::Sink => 0,
        };
        match self {
            Self::Times(of, factor) if of == quantity => factor * scale.powi(power),
            Self::Scale(of, more) if of == quantity => scale.powi(power + more),
            _ => scale.powi(power),
        }
    }

    /// Whether a query head contributes to its key head's gradients.
    pub(super) fn counts(self, model: &Model<'_>, head: usize) -> bool {
        let group = model.problem.query_heads / model.problem.key_heads;
        match self {
            Self::OneHead(end) => end.is(head % group, group),
            _ => true,
        }
    }

    /// Whether a site contributes to the gradient of the bias that it shares.
    pub(super) fn counts_site(self, model: &Model<'_>, site: Site) -> bool {
        let Self::OneOfAxis(axis, end) = self else { return true };
        let axis = axis as usize;
        end.is(site.place()[axis], model.problem.score_shape()[axis])
    }
}
