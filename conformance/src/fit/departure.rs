//! What a kernel may do otherwise than it declares.

use std::fmt;

use flashproof_spec::format::Format;
use flashproof_spec::profile::{Accumulation, Carried, CarriedGradients, Profile};
use serde::{Serialize, Serializer};

/// One departure from a declared profile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Departure {
    /// A gradient is carried between blocks in a narrower format.
    CarriedGradient(Gradient, Carried),
    /// The exponential errs by so many units in the last place of the arithmetic.
    Exponential(f64),
    /// The normalizer is carried between blocks in a narrower format.
    CarriedNormalizer(Format),
    /// The numerator is.
    CarriedNumerator(Format),
    /// Weights are rounded to a narrower format.
    Weights(Format),
    /// Scores are kept in a narrower format.
    Scores(Format),
    /// Products of query and key are summed in a narrower format.
    ScoreSums(Format),
    /// Products with values, queries and keys are.
    ValueSums(Format),
    /// Chains of additions are longer than declared.
    AnyOrder,
    /// Results below the smallest normal number become zero.
    FlushToZero,
}

/// A gradient that is carried between blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gradient {
    /// `dQ`, between blocks of keys.
    Query,
    /// `dK`, between blocks of queries.
    Key,
    /// `dV`, between blocks of queries.
    Value,
}

impl Departure {
    /// The profile with this departure; `None` where the profile already has as much.
    pub(super) fn from(self, declared: &Profile) -> Option<Profile> {
        let mut profile = declared.clone();
        match self {
            Self::CarriedGradient(gradient, carried) => {
                let CarriedGradients { query, key, value } = &mut profile.carried_gradients;
                let carries = match gradient {
                    Gradient::Query => query,
                    Gradient::Key => key,
                    Gradient::Value => value,
                };
                let before = carries.map_or(declared.carried_format, |carried| carried.format);
                *carries = narrows(carried.format, before).then_some(Some(carried))?;
            }
            Self::Exponential(ulp) => raise(&mut profile.exp_ulp, ulp)?,
            Self::CarriedNormalizer(format) => {
                let carried = profile.carried_normalizer.get_or_insert(declared.arithmetic);
                narrow(carried, format)?;
            }
            Self::CarriedNumerator(format) => {
                narrow(&mut profile.carried_format, format)?;
                // The format of gradients too, unless they have one of their own.
                let CarriedGradients { query, key, value } = &mut profile.carried_gradients;
                let as_before = Carried { format: declared.carried_format, block: 1 };
                for carries in [query, key, value] {
                    carries.get_or_insert(as_before);
                }
            }
            Self::Weights(format) => narrow(&mut profile.weight_format, format)?,
            Self::Scores(format) => narrow(&mut profile.score_format, format)?,
            Self::ScoreSums(format) => narrow_sum(&mut profile.score_accumulation, format)?,
            Self::ValueSums(format) => narrow_sum(&mut profile.value_accumulation, format)?,
            Self::AnyOrder => {
                profile.normalizer_depth = None;
                for sum in [&mut profile.score_accumulation, &mut profile.value_accumulation] {
                    if let Accumulation::Ieee { depth, .. } = sum {
                        *depth = None;
                    }
                }
            }
            Self::FlushToZero => profile.flush_to_zero = true,
        }
        (profile != *declared).then_some(profile)
    }
}

fn narrows(format: Format, declared: Format) -> bool {
    format.precision() < declared.precision()
}

fn narrow(declared: &mut Format, format: Format) -> Option<()> {
    narrows(format, *declared).then(|| *declared = format)
}

/// That of a tensor core is not made narrower: what its bits count has no order with formats.
fn narrow_sum(declared: &mut Accumulation, to: Format) -> Option<()> {
    match declared {
        Accumulation::Ieee { format, .. } => narrow(format, to),
        Accumulation::TensorCore { .. } => None,
    }
}

fn raise(declared: &mut f64, ulp: f64) -> Option<()> {
    (ulp > *declared).then(|| *declared = ulp)
}

impl fmt::Display for Gradient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Query => "dQ",
            Self::Key => "dK",
            Self::Value => "dV",
        })
    }
}

/// What follows "passes if".
impl fmt::Display for Departure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CarriedGradient(gradient, Carried { format, block: 1 }) => {
                write!(f, "{gradient} is carried in {format}, rounded with every term")
            }
            Self::CarriedGradient(gradient, Carried { format, block }) => {
                let of = if *gradient == Gradient::Query { "key" } else { "query" };
                write!(
                    f,
                    "{gradient} is carried in {format} between {of} blocks of {block} or less"
                )
            }
            Self::Exponential(ulp) => write!(f, "exp errs by {ulp} ulp"),
            Self::CarriedNormalizer(format) => {
                write!(f, "the normalizer is carried in {format} between key blocks")
            }
            Self::CarriedNumerator(format) => {
                write!(f, "the numerator is carried in {format} between key blocks")
            }
            Self::Weights(format) => write!(f, "weights are rounded to {format}"),
            Self::Scores(format) => write!(f, "scores are kept in {format}"),
            Self::ScoreSums(format) => {
                write!(f, "products of query and key are summed in {format}")
            }
            Self::ValueSums(format) => {
                write!(f, "products of weights and score gradients are summed in {format}")
            }
            Self::AnyOrder => f.write_str("sums are taken in any order"),
            Self::FlushToZero => {
                f.write_str("results below the smallest normal number become zero")
            }
        }
    }
}

impl Serialize for Departure {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}
