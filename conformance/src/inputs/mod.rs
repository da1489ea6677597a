//! Inputs: deterministic families of query, key and value tensors, and of upstream gradients.
//!
//! A [`Family`] pairs a pattern of scores (how query and key are drawn) with a pattern of values;
//! [`Modifiers`] say how bias and sinks are drawn where a problem has them. Everything is drawn in `f64`
//! from `ChaCha8` with an explicit seed and rounded to the format of its tensor, so a family, a
//! problem and a seed name the same bits on every run.

pub mod bias;
mod draw;
pub mod layout;
mod modifiers;
pub mod pattern;
pub mod poison;
mod quantized;
pub mod scores;
pub mod sink;
pub mod upstream;
pub mod values;

use std::fmt;
use std::str::FromStr;

use flashproof_spec::format::Format;
use flashproof_spec::layout::Placed;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{Array4, s};
use serde::{Deserialize, Serialize};

pub use bias::BiasValues;
pub use layout::LayoutKind;
pub use modifiers::Modifiers;
pub use scores::Scores;
pub use sink::SinkValues;
pub use upstream::Upstream;
pub use values::Values;

/// How inputs are drawn. Its name is `SCORES`, or `SCORES+VALUES` where the values are not normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Family {
    /// How query and key are drawn.
    pub scores: Scores,
    /// How the values are drawn.
    pub values: Values,
}

/// The name given is no input family.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown input family '{0}': expected SCORES or SCORES+VALUES, such as 'ties+ones'")]
pub struct UnknownFamily(pub String);

/// A problem that a family's numbers do not fit.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Misfit {
    /// A number that the family stands on is not a value of the problem's format.
    #[error("{format} does not hold the value {value} that the family '{family}' stands on")]
    Value {
        /// The family's name.
        family: String,
        /// The problem's format.
        format: Format,
        /// The number.
        value: f64,
    },
    /// A family of given scores cannot be drawn when every score is zero.
    #[error("the family '{0}' sets scores, and a softmax scale of 0 makes every score 0")]
    ZeroScale(String),
}

impl Family {
    /// Normal values with the given scores.
    #[must_use]
    pub const fn of(scores: Scores) -> Self {
        Self { scores, values: Values::Normal }
    }

    /// What the family is for and which fault it exposes, in a sentence or two.
    #[must_use]
    pub fn purpose(self) -> String {
        if self.values == Values::Normal {
            self.scores.purpose().to_owned()
        } else {
            format!("{} {}", self.scores.purpose(), self.values.purpose())
        }
    }

    /// Whether inputs lie below the smallest normal number of their format.
    #[must_use]
    pub fn has_subnormals(self) -> bool {
        self.scores == Scores::Subnormal || self.values == Values::Subnormal
    }

    /// Checks that the problem's format and scale can hold what the family stands on.
    ///
    /// # Errors
    /// Names the number that does not fit.
    pub fn fits(self, problem: &Problem) -> Result<(), Misfit> {
        scores::fits(self, problem)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.scores.name())?;
        if self.values != Values::Normal {
            write!(f, "+{}", self.values.name())?;
        }
        Ok(())
    }
}

impl FromStr for Family {
    type Err = UnknownFamily;

    fn from_str(name: &str) -> Result<Self, UnknownFamily> {
        let unknown = || UnknownFamily(name.to_owned());
        let (scores, values) = match name.split_once('+') {
            None => (name, Values::Normal.name()),
            Some(parts) => parts,
        };
        Ok(Self {
            scores: Scores::ALL.into_iter().find(|it| it.name() == scores).ok_or_else(unknown)?,
            values: Values::ALL.into_iter().find(|it| it.name() == values).ok_or_else(unknown)?,
        })
    }
}

impl TryFrom<String> for Family {
    type Error = UnknownFamily;

    fn try_from(name: String) -> Result<Self, UnknownFamily> {
        name.parse()
    }
}

impl From<Family> for String {
    fn from(family: Family) -> Self {
        family.to_string()
    }
}

/// Query, key and value of the family for the problem, and normal bias and sinks where it has them.
///
/// The same arguments give the same bits. Each tensor comes from a stream of its own of the seed, so
/// families that share a pattern share its numbers.
///
/// # Errors
/// [`Misfit`] where [`Family::fits`] says so.
///
/// # Panics
/// When the problem is not valid: [`Problem::validate`] it first.
pub fn generate(problem: &Problem, family: Family, seed: u64) -> Result<Inputs, Misfit> {
    generate_modified(problem, family, Modifiers::default(), seed)
}

/// As [`generate`], with bias and sinks of these patterns.
///
/// # Errors
/// As [`generate`].
///
/// # Panics
/// As [`generate`].
pub fn generate_modified(
    problem: &Problem,
    family: Family,
    modifiers: Modifiers,
    seed: u64,
) -> Result<Inputs, Misfit> {
    family.fits(problem)?;
    let (query, mut key) = scores::draw(problem, family.scores, seed);
    if family.values == Values::Cancelling {
        repeat_each_key(&mut key);
    }
    let value = values::draw(problem, family.values, seed);
    // Quantized from what was drawn, not from what was rounded before.
    let format = if problem.quantization.is_some() { Format::F64 } else { problem.format };
    let tensor = |values: Array4<f64>| Tensor::rounded(format, &values.into_dyn());
    let inputs = Inputs {
        query: tensor(query),
        key: tensor(key),
        value: tensor(value),
        bias: problem.bias.map(|bias| bias::draw(problem, bias, modifiers.bias, seed)),
        sink: modifiers.sinks(problem, seed),
        descale: None,
    };
    let inputs = quantized::quantized(problem, inputs, seed);
    Ok(if problem.layout.is_contiguous() { inputs } else { as_stored(problem, inputs) })
}

/// The inputs as the layout holds them: elements that share a place are equal, and those without
/// storage are NaN.
fn as_stored(problem: &Problem, inputs: Inputs) -> Inputs {
    Inputs {
        query: problem.as_stored(Placed::Query, &inputs.query),
        key: problem.as_stored(Placed::Key, &inputs.key),
        value: problem.as_stored(Placed::Value, &inputs.value),
        ..inputs
    }
}

/// Makes each key of odd position equal to the one before it.
fn repeat_each_key(key: &mut Array4<f64>) {
    for odd in (1..key.dim().2).step_by(2) {
        let (even, mut odd) = key.multi_slice_mut((s![.., .., odd - 1, ..], s![.., .., odd, ..]));
        odd.assign(&even);
    }
}
