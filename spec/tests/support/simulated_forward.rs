//! A forward kernel whose every rounding is chosen.
//!
//! One query row at a time, in blocks with a running maximum, or dense, or in splits that are
//! merged at the end. What it returns must lie within the stated bounds.

use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, Normalizer, Profile, Schedule, Weights};
use rug::Float;
use rug::ops::Pow;

#[path = "roundings.rs"]
mod roundings;

pub use roundings::{BITS, Roundings, big};

/// Freedoms that a kernel has under one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // independent of each other
pub struct Style {
    /// Weights are powers of two, and the LSE is converted from base two.
    pub base_two: bool,
    /// The scale multiplies the query before the dot product.
    pub folded_scale: bool,
    /// Rescaling factors come from the rounded products of the references, which weights also use.
    pub rounded_references: bool,
    /// The output is multiplied by the normalizer's reciprocal.
    pub reciprocal: bool,
    /// A block's products are added up before they join the numerator.
    pub separate_blocks: bool,
    /// Blocks in a split; every block where 0.
    pub split: usize,
}

/// One row: what the kernel reads. A key that is `None` is invisible.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub query: Vec<f64>,
    pub keys: Vec<Option<KeyValue>>,
}

#[derive(Clone, Debug)]
pub struct KeyValue {
    pub key: Vec<f64>,
    pub value: Vec<f64>,
}

/// The softmax scale, exactly.
pub fn exact_scale(problem: &Problem) -> Float {
    match problem.scale {
        Scale::Value(scale) => big(scale),
        Scale::InverseSqrtHeadDim => big(problem.head_dim as f64).sqrt().recip(),
    }
}

pub struct Kernel<'a> {
    pub problem: &'a Problem,
    pub profile: &'a Profile,
    pub style: Style,
}

/// Format of an accumulator; only IEEE accumulators are simulated.
fn accumulator(accumulation: Accumulation) -> Format {
    match accumulation {
        Accumulation::Ieee { format, .. } => format,
        Accumulation::TensorCore { .. } => unreachable!("no tensor core is simulated"),
    }
}

/// A maximum and its rounded product with the factor, the reference of weights.
#[derive(Clone)]
struct Reference {
    score: Float,
    product: Float,
}

struct State {
    reference: Reference,
    normalizer: Float,
    numerator: Vec<Float>,
}

/// One run of the kernel.
struct Run<'r, 'p> {
    kernel: &'r Kernel<'r>,
    factor: Float,
    roundings: &'r mut Roundings<'p>,
    /// References so far: the product of the same maximum is the same number.
    references: Vec<Reference>,
}

impl Kernel<'_> {
    /// Outputs, then the LSE.
    pub fn run(&self, inputs: &Inputs, roundings: &mut Roundings<'_>) -> Vec<Float> {
        let arithmetic = self.profile.arithmetic;
        let factor = (0..self.profile.scale_roundings)
            .fold(self.exact_factor(), |factor, _| roundings.round(factor, arithmetic));
        Run { kernel: self, factor, roundings, references: Vec::new() }.row(inputs)
    }

    fn exact_factor(&self) -> Float {
        let scale = exact_scale(self.problem);
        if self.style.base_two { scale / big(2.0).ln() } else { scale }
    }

    /// Whether `fma(score, factor, -reference)` takes an unscaled score.
    fn fused(&self) -> bool {
        !self.profile.scaled_score_rounded && !self.style.folded_scale
    }
}

impl Run<'_, '_> {
    fn row(mut self, inputs: &Inputs) -> Vec<Float> {
        let scores = self.scores(inputs);
        let keys: Vec<Option<(Float, &[f64])>> = scores
            .into_iter()
            .zip(&inputs.keys)
            .map(|(score, key)| Some((score?, &key.as_ref()?.value[..])))
            .collect();
        let block = match self.kernel.profile.schedule {
            Schedule::Dense => keys.len(),
            Schedule::Blocks(keys) => keys,
            Schedule::Undeclared => 1,
        };
        let split = match self.kernel.style.split {
            0 => keys.len(),
            blocks => blocks * block,
        };
        let states: Vec<State> =
            keys.chunks(split).filter_map(|keys| self.split(keys, block)).collect();
        let state = self.merge(states);
        self.finish(state)
    }

    fn round(&mut self, x: Float) -> Float {
        self.roundings.round(x, self.kernel.profile.arithmetic)
    }

    fn narrow(&mut self, x: Float, format: Format) -> Float {
        self.roundings.narrow(x, format, self.kernel.profile)
    }

    /// Scores as they meet the maximum: unscaled where a fused multiply-add scales them.
    fn scores(&mut self, inputs: &Inputs) -> Vec<Option<Float>> {
        let profile = self.kernel.profile;
        let format = accumulator(profile.score_accumulation);
        let query: Vec<Float> = inputs
            .query
            .iter()
            .map(|&q| {
                if self.kernel.style.folded_scale {
                    self.roundings.round(big(q) * &self.factor, format)
                } else {
                    big(q)
                }
            })
            .collect();
        let keys = inputs.keys.iter();
        keys.map(|key| Some(self.score(&query, &key.as_ref()?.key, format))).collect()
    }

    fn score(&mut self, query: &[Float], key: &[f64], format: Format) -> Float {
        let mut dot: Option<Float> = None;
        for (q, &k) in query.iter().zip(key) {
            let product = self.roundings.round(big(k) * q, format);
            dot = Some(match dot {
                None => product,
                Some(sum) => self.roundings.round(sum + product, format),
            });
        }
        let dot = dot.expect("a head of at least one entry");
        let scaled = if self.kernel.fused() || self.kernel.style.folded_scale {
            dot
        } else {
            let scaled = dot * &self.factor;
            self.round(scaled)
        };
        self.narrow(scaled, self.kernel.profile.score_format)
    }

    fn reference(&mut self, score: Float) -> Reference {
        if let Some(known) = self.references.iter().find(|known| known.score == score) {
            let known = known.clone();
            self.roundings.pass(usize::from(self.kernel.fused()));
            return known;
        }
        let product = if self.kernel.fused() {
            let product = Float::with_val(BITS, &score * &self.factor);
            self.round(product)
        } else {
            score.clone()
        };
        let reference = Reference { score, product };
        self.references.push(reference.clone());
        reference
    }

    fn power(&mut self, argument: Float) -> Float {
        let exact =
            if self.kernel.style.base_two { big(2.0).pow(argument) } else { argument.exp() };
        self.roundings.ulps(exact, self.kernel.profile.exp_ulp, self.kernel.profile)
    }

    fn weight(&mut self, score: &Float, reference: &Reference) -> Float {
        let argument = if self.kernel.fused() {
            Float::with_val(BITS, score * &self.factor) - &reference.product
        } else {
            Float::with_val(BITS, score - &reference.product)
        };
        let argument = self.round(argument);
        self.power(argument)
    }

    fn rescaling_factor(&mut self, old: &Reference, new: &Reference) -> Float {
        if self.kernel.fused() && !self.kernel.style.rounded_references {
            let difference = self.round(Float::with_val(BITS, &old.score - &new.score));
            let argument = self.round(difference * &self.factor);
            return self.power(argument);
        }
        let argument = self.round(Float::with_val(BITS, &old.product - &new.product));
        self.power(argument)
    }

    /// Multiplies by the rescaling factor; an unmoved reference changes nothing.
    fn rescale(&mut self, state: State, reference: &Reference) -> State {
        if state.reference.score == reference.score {
            let fused = self.kernel.fused() && !self.kernel.style.rounded_references;
            self.roundings.pass(3 + usize::from(fused) + state.numerator.len());
            return state;
        }
        let factor = self.rescaling_factor(&state.reference, reference);
        let format = accumulator(self.kernel.profile.value_accumulation);
        let numerator = state.numerator.into_iter();
        State {
            normalizer: self.round(state.normalizer * &factor),
            numerator: numerator.map(|n| self.roundings.round(n * &factor, format)).collect(),
            reference: reference.clone(),
        }
    }

    fn split(&mut self, keys: &[Option<(Float, &[f64])>], block: usize) -> Option<State> {
        let mut state = None;
        for keys in keys.chunks(block) {
            let keys: Vec<&(Float, &[f64])> = keys.iter().flatten().collect();
            if !keys.is_empty() {
                state = Some(self.absorb(state, &keys));
            }
        }
        state
    }

    fn absorb(&mut self, state: Option<State>, keys: &[&(Float, &[f64])]) -> State {
        let scores = keys.iter().map(|(score, _)| score);
        let scores = scores.chain(state.iter().map(|state| &state.reference.score));
        let largest = scores.max_by(|a, b| a.total_cmp(b)).expect("a visible key").clone();
        let reference = self.reference(largest);
        let state = state.map(|state| self.rescale(state, &reference));
        let weights: Vec<Float> =
            keys.iter().map(|(score, _)| self.weight(score, &reference)).collect();
        let narrowed: Vec<Float> = match self.kernel.profile.weights {
            Weights::Unnormalized => weights.iter().map(|w| self.narrow_weight(w)).collect(),
            Weights::Normalized => weights.clone(),
        };
        let rounded = self.kernel.profile.normalizer == Normalizer::Rounded;
        let summed = if rounded { &narrowed } else { &weights };
        let normalizer = self.add(
            state.as_ref().map(|state| state.normalizer.clone()),
            summed.clone(),
            self.kernel.profile.arithmetic,
        );
        let applied = match self.kernel.profile.weights {
            Weights::Unnormalized => narrowed,
            Weights::Normalized => self.normalize(&weights, &normalizer),
        };
        let numerator = (0..keys[0].1.len())
            .map(|j| {
                let values = keys.iter().map(|(_, value)| value[j]);
                let carried = state.as_ref().map(|state| state.numerator[j].clone());
                self.weighted_sum(carried, &applied, values)
            })
            .collect();
        State { reference, normalizer, numerator }
    }

    fn narrow_weight(&mut self, weight: &Float) -> Float {
        self.narrow(weight.clone(), self.kernel.profile.weight_format)
    }

    fn normalize(&mut self, weights: &[Float], normalizer: &Float) -> Vec<Float> {
        weights
            .iter()
            .map(|weight| {
                let quotient = self.divide(weight.clone(), normalizer);
                self.narrow(quotient, self.kernel.profile.weight_format)
            })
            .collect()
    }

    fn weighted_sum(
        &mut self,
        carried: Option<Float>,
        weights: &[Float],
        values: impl Iterator<Item = f64>,
    ) -> Float {
        let format = accumulator(self.kernel.profile.value_accumulation);
        let products: Vec<Float> = weights
            .iter()
            .zip(values)
            .map(|(w, v)| self.roundings.round(big(v) * w, format))
            .collect();
        let sum = self.add(carried, products, format);
        self.narrow(sum, self.kernel.profile.carried_format)
    }

    fn add(&mut self, carried: Option<Float>, terms: Vec<Float>, format: Format) -> Float {
        let mut terms = terms.into_iter();
        let first = match carried {
            Some(carried) if !self.kernel.style.separate_blocks => carried,
            Some(carried) => {
                let block = self.add(None, terms.collect(), format);
                return self.roundings.round(carried + block, format);
            }
            None => terms.next().expect("a visible key"),
        };
        terms.fold(first, |sum, term| self.roundings.round(sum + term, format))
    }

    /// Splits against the greatest of their references, added one after another.
    fn merge(&mut self, states: Vec<State>) -> State {
        let references = states.iter().map(|state| &state.reference);
        let largest =
            references.max_by(|a, b| a.score.total_cmp(&b.score)).expect("a visible key").clone();
        let format = accumulator(self.kernel.profile.value_accumulation);
        let mut merged: Option<State> = None;
        for state in states {
            let state = self.rescale(state, &largest);
            merged = Some(match merged {
                None => state,
                Some(sum) => State {
                    normalizer: self.round(sum.normalizer + state.normalizer),
                    numerator: sum
                        .numerator
                        .into_iter()
                        .zip(state.numerator)
                        .map(|(a, b)| self.roundings.round(a + b, format))
                        .collect(),
                    reference: state.reference,
                },
            });
        }
        merged.expect("a visible key")
    }

    fn divide(&mut self, x: Float, by: &Float) -> Float {
        let profile = self.kernel.profile;
        if self.kernel.style.reciprocal {
            let reciprocal =
                self.roundings.ulps(Float::with_val(BITS, by.recip_ref()), 1.0, profile);
            return self.round(x * reciprocal);
        }
        self.roundings.ulps(x / by, profile.division_ulp, profile)
    }

    fn finish(&mut self, state: State) -> Vec<Float> {
        let lse = self.lse(&state);
        let mut row: Vec<Float> = state
            .numerator
            .into_iter()
            .map(|n| {
                let output = match self.kernel.profile.weights {
                    Weights::Unnormalized => self.divide(n, &state.normalizer),
                    Weights::Normalized => n,
                };
                self.narrow(output, self.kernel.problem.format)
            })
            .collect();
        row.push(lse);
        row
    }

    fn lse(&mut self, state: &State) -> Float {
        let profile = self.kernel.profile;
        let ln = Float::with_val(BITS, state.normalizer.ln_ref());
        let ulps = Float::with_val(BITS, ln.abs_ref())
            * (2.0 * profile.log.ulp * profile.arithmetic.unit_roundoff());
        let ln = self.roundings.shift(ln, &ulps.max(&big(profile.log.absolute)));
        let reference = if self.kernel.fused() {
            let product = Float::with_val(BITS, &state.reference.score * &self.factor);
            self.round(product)
        } else {
            state.reference.score.clone()
        };
        let lse = if self.kernel.style.base_two {
            let base = self.round(big(2.0).ln());
            let sum = self.round(reference + ln / big(2.0).ln());
            self.round(sum * base)
        } else {
            self.round(reference + ln)
        };
        self.narrow(lse, profile.lse_format)
    }
}
