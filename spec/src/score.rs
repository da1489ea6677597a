//! What happens to a score between the scaled product and the softmax, and to a weight after it.
//!
//! With `x = scale * <q, k>`, bias `b` and ALiBi term `a`, the score of a visible key is
//!
//! ```text
//! s = cap * tanh(x / cap) + b + a          softcap before bias
//! s = cap * tanh((x + b + a) / cap)        softcap after bias
//! ```
//!
//! and `x + b + a` without a softcap. A key whose bias is minus infinity is invisible, whatever
//! the order (`FAS:score.bias.minus-infinity`). A sink is one more score in the normalizer, without
//! a value. Dropout multiplies weights after the softmax.

use serde::{Deserialize, Serialize};

use crate::format::Format;
use crate::mask::{Alignment, Lengths, Site};
use crate::pattern::{Pattern, broadcast_place};
use crate::problem::Problem;
use crate::tensor::Inputs;

/// A soft bound on scores (`FAS:score.softcap.tanh`).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Softcap {
    /// The bound: positive and finite.
    pub cap: f64,
    /// Whether it bounds the score with or without bias.
    #[serde(default)]
    pub order: SoftcapOrder,
}

/// Whether a softcap applies before or after bias and ALiBi are added; before the mask in any case
/// (`FAS:score.softcap.before-mask`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SoftcapOrder {
    /// `cap * tanh(x / cap) + b`.
    #[default]
    BeforeBias,
    /// `cap * tanh((x + b) / cap)`.
    AfterBias,
}

/// An additive bias, the tensor `bias` of the inputs (`FAS:score.bias.add`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bias {
    /// `[batch, query_heads, query_len, key_len]`; an axis of extent 1 is broadcast.
    pub shape: [usize; 4],
    /// Its number format, and that of its gradient.
    pub format: Format,
}

/// Attention with linear biases: `-slope[head] * |position - key|` (`FAS:score.alibi.distance`; Press
/// et al., arXiv 2108.12409).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Alibi {
    /// One slope a query head.
    pub slopes: Slopes,
    /// Where a query's own position is.
    #[serde(default)]
    pub alignment: Alignment,
}

/// The slopes of ALiBi.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Slopes {
    /// Those of the paper, for any number of heads ([`standard_slopes`]), in f32.
    Standard,
    /// These f32 numbers, one a query head.
    Given(Vec<f64>),
}

/// A logit in the normalizer that has no key and no value (`FAS:score.sink.normalizer`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sink {
    /// The logit 0 in every head: the off-by-one softmax.
    Zero,
    /// The tensor `sink` of the inputs, `[query_heads]`, of this format.
    Logits(Format),
}

/// Dropout of weights with an explicit keep mask (`FAS:score.dropout.keep`): a weight is multiplied by
/// `scale` where it is kept and by 0 elsewhere, after the softmax; normalizer and LSE do not
/// change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropout {
    /// `1 / (1 - probability)`: positive, an f32 number, and for `f64` problems a power of two.
    pub scale: f64,
    /// Which weights are kept.
    pub keep: Pattern,
}

/// The slopes of ALiBi for a number of heads, each rounded to f32 (`FAS:score.alibi.slopes`).
///
/// With `n` the greatest power of two up to the number of heads, head `i < n` has
/// `2^(-8 (i + 1) / n)`; the others take every other slope of `2 n` heads: `2^(-4 (2 (i - n) + 1) / n)`.
#[must_use]
pub fn standard_slopes(heads: usize) -> Vec<f64> {
    (0..heads).map(|head| standard_slope(head, heads)).collect()
}

fn standard_slope(head: usize, heads: usize) -> f64 {
    let power = 1_usize << heads.ilog2();
    let fourths = if head < power { 2 * (head + 1) } else { 2 * (head - power) + 1 };
    Format::F32.round((-4.0 * fourths as f64 / power as f64).exp2())
}

impl Softcap {
    /// `cap * tanh(x / cap)` in `f64` (`FAS:score.softcap.tanh`).
    #[must_use]
    pub fn apply(self, x: f64) -> f64 {
        self.cap * (x / self.cap).tanh()
    }

    /// Its derivative, `1 - tanh^2(x / cap)`, in `f64` (`FAS:bwd.softcap.slope`).
    #[must_use]
    pub fn slope(self, x: f64) -> f64 {
        // 1 - tanh^2 = 1 / cosh^2, which does not cancel.
        (x / self.cap).cosh().powi(2).recip()
    }
}

impl Alibi {
    /// The slope of a query head.
    ///
    /// # Panics
    /// When there is no slope for the head: [`Problem::validate`] the problem first.
    #[must_use]
    pub fn slope(&self, head: usize, heads: usize) -> f64 {
        match &self.slopes {
            Slopes::Standard => standard_slope(head, heads),
            Slopes::Given(slopes) => slopes[head],
        }
    }
}

/// What is added to a score, exactly.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Addends {
    /// The entry of the bias.
    pub bias: f64,
    /// `-slope * |position - key|`: the product of an f32 and an integer, exact in f64 up to `2^29`
    /// positions.
    pub alibi: f64,
}

impl Problem {
    /// The score of a visible key in `f64`, from its scaled product and what is added to it
    /// (`FAS:score.bias.add`, `FAS:score.softcap.tanh`).
    #[must_use]
    pub fn score(&self, product: f64, Addends { bias, alibi }: Addends) -> f64 {
        match self.softcap {
            None => product + bias + alibi,
            Some(softcap) => match softcap.order {
                SoftcapOrder::BeforeBias => softcap.apply(product) + bias + alibi,
                SoftcapOrder::AfterBias => softcap.apply(product + bias + alibi),
            },
        }
    }

    /// The derivative of that score by the product.
    #[must_use]
    pub fn score_slope(&self, product: f64, Addends { bias, alibi }: Addends) -> f64 {
        self.softcap.map_or(1.0, |softcap| match softcap.order {
            SoftcapOrder::BeforeBias => softcap.slope(product),
            SoftcapOrder::AfterBias => softcap.slope(product + bias + alibi),
        })
    }

    /// The ALiBi term of a site; 0 where the problem has none.
    #[must_use]
    pub fn alibi_at(&self, site: Site) -> f64 {
        let Some(alibi) = &self.alibi else { return 0.0 };
        let lengths = self.used_lengths(site.batch);
        let distance = alibi.alignment.position(site.query, lengths) - site.key as i128;
        -(alibi.slope(site.head, self.query_heads) * distance.unsigned_abs() as f64)
    }

    /// Queries and keys of a batch member that are in use.
    #[must_use]
    pub fn used_lengths(&self, batch: usize) -> Lengths {
        Lengths {
            queries: self.mask.used_queries(batch, self.query_len),
            keys: self.mask.used_keys(batch, self.key_len),
        }
    }

    /// What dropout multiplies a weight by: its scale, 0, or 1 where the problem has none.
    #[must_use]
    pub fn dropout_at(&self, site: Site) -> f64 {
        match &self.dropout {
            None => 1.0,
            Some(Dropout { scale, keep }) if keep.at(site.place()) => *scale,
            Some(_) => 0.0,
        }
    }
}

impl Inputs {
    /// The bias of a site; 0 where there is none.
    ///
    /// # Panics
    /// When the bias is not the problem's: [`Inputs::check`] it first.
    #[must_use]
    pub fn bias_at(&self, problem: &Problem, site: Site) -> f64 {
        let (Some(bias), Some(tensor)) = (&problem.bias, &self.bias) else { return 0.0 };
        tensor.view4()[broadcast_place(bias.shape, site.place())]
    }

    /// What is added to the score of a site.
    ///
    /// # Panics
    /// When the bias is not the problem's: [`Inputs::check`] it first.
    #[must_use]
    pub fn addends_at(&self, problem: &Problem, site: Site) -> Addends {
        Addends { bias: self.bias_at(problem, site), alibi: problem.alibi_at(site) }
    }

    /// The logit of a query head's sink; `None` where the problem has none.
    ///
    /// # Panics
    /// When the sink is not the problem's: [`Inputs::check`] it first.
    #[must_use]
    pub fn sink_at(&self, problem: &Problem, head: usize) -> Option<f64> {
        match problem.sink? {
            Sink::Zero => Some(0.0),
            Sink::Logits(_) => Some(self.sink.as_ref().expect("a checked sink").values()[[head]]),
        }
    }

    /// The keys that one query row sees, ascending: those that the mask admits and whose bias is
    /// not minus infinity.
    ///
    /// # Panics
    /// When the bias is not the problem's: [`Inputs::check`] it first.
    #[must_use]
    pub fn visible_keys(
        &self,
        problem: &Problem,
        batch: usize,
        head: usize,
        query: usize,
    ) -> Vec<usize> {
        let mut keys = problem.visible_keys(batch, head, query);
        if problem.bias.is_some() {
            let site = |key| Site { batch, head, query, key };
            keys.retain(|&key| self.bias_at(problem, site(key)) != f64::NEG_INFINITY);
        }
        keys
    }
}
