//! A forward kernel whose every rounding is chosen.
//!
//! One query row at a time, in blocks with a running maximum, or dense, or in splits that are
//! merged at the end. What it returns must lie within the stated bounds.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Accumulation, Normalizer, Profile, Schedule, Weights};
use rug::Float;
use rug::ops::Pow;

#[path = "forward_merge.rs"]
mod forward_merge;
#[path = "forward_scores.rs"]
mod forward_scores;
#[path = "roundings.rs"]
mod roundings;

use forward_scores::Scoring;
pub use forward_scores::{Addition, Capping, exact_scale, site};
#[allow(unused_imports)] // each test program uses a part of it
pub use roundings::{BITS, Keeping, Roundings, big};

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
    /// Where bias and ALiBi term join the product.
    pub addition: Addition,
    /// Whether they are added to each other first.
    pub addends_first: bool,
    /// How a softcap divides.
    pub capping: Capping,
    /// Where a sink enters.
    pub sink: SinkPlace,
    /// Where the factor of dropout enters.
    pub dropout: DropoutPlace,
}

/// Where a sink enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkPlace {
    /// In the state before the first block.
    First,
    /// After the last block, as one more candidate for the maximum.
    Last,
    /// After the last block, in the frame of the greatest key.
    KeyFrame,
}

/// Where the factor of dropout enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropoutPlace {
    /// Before the weight is rounded to its format.
    Weight,
    /// After that; the product is rounded again.
    RoundedWeight,
    /// After the division.
    Output,
}

/// One row: what the kernel reads. A key that is `None` is invisible.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub query: Vec<f64>,
    pub keys: Vec<Option<KeyValue>>,
    /// The sink's logit, where the problem has one.
    pub sink: Option<f64>,
}

#[derive(Clone, Debug)]
pub struct KeyValue {
    pub key: Vec<f64>,
    pub value: Vec<f64>,
    /// Read where the problem has a bias.
    pub bias: f64,
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

#[derive(Clone)]
struct State {
    reference: Reference,
    normalizer: Float,
    numerator: Vec<Float>,
}

/// Entries of an output.
fn columns(inputs: &Inputs) -> usize {
    inputs.keys.iter().flatten().next().map_or(0, |key| key.value.len())
}

/// A key's score and what its weight meets.
struct Term<'v> {
    score: Float,
    value: &'v [f64],
    /// Whether dropout keeps the weight.
    kept: bool,
}

/// One run of the kernel.
struct Run<'r, 'p> {
    kernel: &'r Kernel<'r>,
    scoring: Scoring<'r>,
    /// The factor of dropout as computed.
    kept_scale: Option<Float>,
    roundings: &'r mut Roundings<'p>,
    /// References so far: the product of the same maximum is the same number.
    references: Vec<Reference>,
}

impl Kernel<'_> {
    /// Outputs, then the LSE.
    pub fn run(&self, inputs: &Inputs, roundings: &mut Roundings<'_>) -> Vec<Float> {
        let scoring = Scoring::new(self, roundings);
        let kept_scale = self
            .problem
            .dropout
            .as_ref()
            .map(|kept| roundings.round(big(kept.scale), self.profile.arithmetic));
        Run { kernel: self, scoring, kept_scale, roundings, references: Vec::new() }.row(inputs)
    }
}

impl Run<'_, '_> {
    fn row(mut self, inputs: &Inputs) -> Vec<Float> {
        let scores = self.scoring.scores(inputs, self.roundings);
        let terms: Vec<Option<Term<'_>>> = scores
            .into_iter()
            .zip(&inputs.keys)
            .enumerate()
            .map(|(position, (score, key))| {
                let kept = self.kernel.problem.dropout_at(site(position)) != 0.0;
                Some(Term { score: score?, value: &key.as_ref()?.value, kept })
            })
            .collect();
        let (split, block) = self.portions(terms.len());
        let sink = inputs.sink.map(|logit| self.sink(logit, inputs));
        if self.kernel.profile.merged_parts.is_some() {
            return self.merged_parts(sink, &terms, (split, block), columns(inputs));
        }
        let mut states: Vec<State> = Vec::new();
        let mut first = match self.kernel.style.sink {
            SinkPlace::First => sink.clone(),
            SinkPlace::Last | SinkPlace::KeyFrame => None,
        };
        for terms in terms.chunks(split) {
            states.extend(self.split(first.take(), terms, block));
        }
        if states.is_empty() {
            // Every score is minus infinity: there is nothing to return but the sink.
            return match sink {
                Some(sink) => self.finish(sink),
                None => vec![big(f64::NAN); columns(inputs) + 1],
            };
        }
        let mut state = self.merge(states);
        match (sink, self.kernel.style.sink) {
            (Some(sink), SinkPlace::Last) => state = self.merge(vec![state, sink]),
            (Some(sink), SinkPlace::KeyFrame) => {
                let weight = self.weight_of_product(&sink.reference.product, &state.reference);
                state.normalizer = self.round(state.normalizer + weight);
            }
            _ => {}
        }
        self.finish(state)
    }

    /// Keys in a split and in a block.
    fn portions(&self, keys: usize) -> (usize, usize) {
        let Kernel { profile, style, .. } = self.kernel;
        let block = match profile.schedule {
            // Each part at once, where there are parts.
            Schedule::Dense if profile.merged_parts.is_some() => return (style.split.max(1), keys),
            Schedule::Dense => keys,
            Schedule::Blocks(keys) => keys,
            Schedule::Undeclared => 1,
        };
        match style.split {
            0 => (keys, block),
            blocks => (blocks * block, block),
        }
    }

    fn round(&mut self, x: Float) -> Float {
        self.roundings.round(x, self.kernel.profile.arithmetic)
    }

    fn narrow(&mut self, x: Float, format: Format) -> Float {
        self.roundings.narrow(x, format, self.kernel.profile)
    }

    fn reference(&mut self, score: Float) -> Reference {
        if let Some(known) = self.references.iter().find(|known| known.score == score) {
            let known = known.clone();
            self.roundings.pass(usize::from(self.scoring.pending.is_some()));
            return known;
        }
        let product = match &self.scoring.pending {
            Some(pending) => {
                let product = Float::with_val(BITS, &score * pending);
                self.round(product)
            }
            None => score.clone(),
        };
        let reference = Reference { score, product };
        self.references.push(reference.clone());
        reference
    }

    fn power(&mut self, argument: Float) -> Float {
        let exact =
            if self.kernel.style.base_two { big(2.0).pow(argument) } else { argument.exp() };
        self.exponential(exact)
    }

    fn exponential(&mut self, exact: Float) -> Float {
        self.roundings.ulps(exact, self.kernel.profile.exp_ulp, self.kernel.profile)
    }

    fn weight(&mut self, score: &Float, reference: &Reference) -> Float {
        let product = match &self.scoring.pending {
            Some(pending) => Float::with_val(BITS, score * pending),
            None => score.clone(),
        };
        self.weight_of_product(&product, reference)
    }

    /// The weight of a score that is already in the unit of arguments.
    fn weight_of_product(&mut self, product: &Float, reference: &Reference) -> Float {
        let argument = self.round(Float::with_val(BITS, product - &reference.product));
        self.power(argument)
    }

    fn rescaling_factor(&mut self, old: &Reference, new: &Reference) -> Float {
        if let Some(pending) = self.scoring.pending.clone()
            && !self.kernel.style.rounded_references
        {
            let difference = self.round(Float::with_val(BITS, &old.score - &new.score));
            let argument = self.round(difference * pending);
            return self.power(argument);
        }
        let argument = self.round(Float::with_val(BITS, &old.product - &new.product));
        self.power(argument)
    }

    /// Multiplies by the rescaling factor; an unmoved reference changes nothing.
    fn rescale(&mut self, state: State, reference: &Reference) -> State {
        if state.reference.score == reference.score {
            let fused = self.scoring.pending.is_some() && !self.kernel.style.rounded_references;
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

    fn split(
        &mut self,
        first: Option<State>,
        terms: &[Option<Term<'_>>],
        block: usize,
    ) -> Option<State> {
        let mut state = first;
        for terms in terms.chunks(block) {
            let terms: Vec<&Term<'_>> = terms.iter().flatten().collect();
            if !terms.is_empty() {
                state = Some(self.absorb(state, &terms));
            }
        }
        state
    }

    fn absorb(&mut self, state: Option<State>, terms: &[&Term<'_>]) -> State {
        let scores = terms.iter().map(|term| &term.score);
        let scores = scores.chain(state.iter().map(|state| &state.reference.score));
        let largest = scores.max_by(|a, b| a.total_cmp(b)).expect("a visible key").clone();
        let reference = self.reference(largest);
        let state = state.map(|state| self.rescale(state, &reference));
        let weights: Vec<Float> =
            terms.iter().map(|term| self.weight(&term.score, &reference)).collect();
        // Where weights are divided first, those that are rounded do not exist yet.
        let rounded = self.kernel.profile.normalizer == Normalizer::Rounded
            && self.kernel.profile.weights == Weights::Unnormalized;
        let summed = if rounded {
            weights.iter().map(|weight| self.narrow_weight(weight)).collect()
        } else {
            weights.clone()
        };
        let normalizer = self.add(
            state.as_ref().map(|state| state.normalizer.clone()),
            summed.clone(),
            self.kernel.profile.arithmetic,
        );
        let carried = self.kernel.profile.carried_normalizer;
        let normalizer = match carried {
            Some(format) => self.narrow(normalizer, format),
            None => normalizer,
        };
        let applied: Vec<Float> = match self.kernel.profile.weights {
            Weights::Unnormalized if rounded => self.applied(terms, weights, Some(summed)),
            Weights::Unnormalized => self.applied(terms, weights, None),
            Weights::Normalized => {
                let quotients =
                    weights.into_iter().map(|weight| self.divide(weight, &normalizer)).collect();
                self.applied(terms, quotients, None)
            }
        };
        let numerator = (0..terms[0].value.len())
            .map(|j| {
                let values = terms.iter().map(|term| term.value[j]);
                let carried = state.as_ref().map(|state| state.numerator[j].clone());
                self.weighted_sum(carried, &applied, values)
            })
            .collect();
        State { reference, normalizer, numerator }
    }

    /// The weights as they meet the values: rounded, if they are not already, and dropped or scaled.
    fn applied(
        &mut self,
        terms: &[&Term<'_>],
        weights: Vec<Float>,
        rounded: Option<Vec<Float>>,
    ) -> Vec<Float> {
        let weights: Vec<(Float, Option<Float>)> = match rounded {
            Some(rounded) => weights.into_iter().zip(rounded.into_iter().map(Some)).collect(),
            None => weights.into_iter().map(|weight| (weight, None)).collect(),
        };
        terms
            .iter()
            .zip(weights)
            .map(|(term, (weight, rounded))| {
                let weight = self.applied_one(weight, rounded);
                if term.kept { weight } else { big(0.0) }
            })
            .collect()
    }

    fn applied_one(&mut self, weight: Float, rounded: Option<Float>) -> Float {
        let scale = self.kept_scale.clone();
        match (scale, self.kernel.style.dropout) {
            (Some(scale), DropoutPlace::Weight) => {
                let product = self.round(weight * scale);
                self.narrow_weight(&product)
            }
            (Some(scale), DropoutPlace::RoundedWeight) => {
                let rounded = rounded.unwrap_or_else(|| self.narrow_weight(&weight));
                let product = self.round(rounded * scale);
                self.narrow_weight(&product)
            }
            _ => rounded.unwrap_or_else(|| self.narrow_weight(&weight)),
        }
    }

    fn narrow_weight(&mut self, weight: &Float) -> Float {
        self.roundings.weight(weight.clone(), self.kernel.profile)
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
                return self.plus(carried, block, format);
            }
            None => terms.next().expect("a visible key"),
        };
        terms.fold(first, |sum, term| self.plus(sum, term, format))
    }

    /// A sum; with zero there is nothing to round.
    fn plus(&mut self, x: Float, y: Float, format: Format) -> Float {
        if x.is_zero() || y.is_zero() {
            self.roundings.pass(1);
            return x + y;
        }
        self.roundings.round(x + y, format)
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
        let lse = self.natural_lse(&state);
        let lse = self.narrow(lse, self.kernel.profile.lse_format);
        let output = self.quotients(state);
        self.stored(output, lse)
    }

    /// The numerator over the normalizer.
    fn quotients(&mut self, state: State) -> Vec<Float> {
        let numerator = state.numerator.into_iter();
        match self.kernel.profile.weights {
            Weights::Unnormalized => numerator.map(|n| self.divide(n, &state.normalizer)).collect(),
            Weights::Normalized => numerator.collect(),
        }
    }

    /// The outputs as stored, and the LSE.
    fn stored(&mut self, output: Vec<Float>, lse: Float) -> Vec<Float> {
        let scale = match self.kernel.style.dropout {
            DropoutPlace::Output => self.kept_scale.clone(),
            DropoutPlace::Weight | DropoutPlace::RoundedWeight => None,
        };
        let mut row: Vec<Float> = output
            .into_iter()
            .map(|entry| {
                let entry = match &scale {
                    Some(scale) => self.round(entry * scale),
                    None => entry,
                };
                self.roundings.stored(entry, self.kernel.problem.format, self.kernel.profile)
            })
            .collect();
        row.push(lse);
        row
    }

    fn logarithm(&mut self, normalizer: &Float) -> Float {
        let profile = self.kernel.profile;
        let ln = Float::with_val(BITS, normalizer.ln_ref());
        let ulps = Float::with_val(BITS, ln.abs_ref())
            * (2.0 * profile.log.ulp * profile.arithmetic.unit_roundoff());
        self.roundings.shift(ln, &ulps.max(&big(profile.log.absolute)))
    }

    fn natural_lse(&mut self, state: &State) -> Float {
        let ln = self.logarithm(&state.normalizer);
        let reference = match &self.scoring.pending {
            Some(pending) => {
                let product = Float::with_val(BITS, &state.reference.score * pending);
                self.round(product)
            }
            None => state.reference.score.clone(),
        };
        if self.kernel.style.base_two {
            let base = self.round(big(2.0).ln());
            let sum = self.round(reference + ln / big(2.0).ln());
            self.round(sum * base)
        } else {
            self.round(reference + ln)
        }
    }
}
