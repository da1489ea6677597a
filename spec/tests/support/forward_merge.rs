//! What becomes of the splits of the simulated forward kernel, and of its sink.

use rug::Float;

use super::{Inputs, Reference, Run, SinkPlace, State, Term, accumulator, big, columns};
use crate::simulated_forward::BITS;

/// A split that is finished by itself.
struct Part {
    lse: Float,
    output: Vec<Float>,
}

impl Run<'_, '_> {
    /// The state of the sink alone.
    pub fn sink(&mut self, logit: f64, inputs: &Inputs) -> State {
        let product = self.scoring.sink(logit, self.roundings);
        let score = match &self.scoring.pending {
            Some(pending) => Float::with_val(BITS, &product / pending),
            None => product.clone(),
        };
        let reference = Reference { score, product };
        self.references.push(reference.clone());
        State { reference, normalizer: big(1.0), numerator: vec![big(0.0); columns(inputs)] }
    }

    /// Splits against the greatest of their references, added one after another.
    pub fn merge(&mut self, states: Vec<State>) -> State {
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
                        .map(|(a, b)| self.plus(a, b, format))
                        .collect(),
                    reference: state.reference,
                },
            });
        }
        merged.expect("a visible key")
    }

    /// Splits that are finished by themselves and merged by their LSEs.
    pub fn merged_parts(
        mut self,
        mut sink: Option<State>,
        terms: &[Option<Term<'_>>],
        (split, block): (usize, usize),
        columns: usize,
    ) -> Vec<Float> {
        let place = self.kernel.style.sink;
        let key_frame = if place == SinkPlace::KeyFrame { sink.take() } else { None };
        let mut first = if place == SinkPlace::First { sink.take() } else { None };
        let mut states: Vec<State> = Vec::new();
        for terms in terms.chunks(split) {
            states.extend(self.split(first.take(), terms, block));
        }
        let mut parts: Vec<Part> = Vec::new();
        for state in states {
            let lse = self.natural_lse(&state);
            let output = self.quotients(state);
            parts.push(Part { lse, output });
        }
        parts.extend(sink.or(key_frame.clone().filter(|_| parts.is_empty())).map(|state| Part {
            lse: self.in_nats(&state.reference.product),
            output: state.numerator,
        }));
        self.merged(parts, key_frame, columns)
    }

    /// Finished parts by their LSEs, and a sink in the frame of the greatest of them.
    fn merged(mut self, parts: Vec<Part>, sink: Option<State>, columns: usize) -> Vec<Float> {
        let lses = parts.iter().map(|part| part.lse.clone());
        let Some(greatest) = lses.max_by(Float::total_cmp) else {
            return vec![big(f64::NAN); columns + 1];
        };
        let mut normalizer = big(0.0);
        let mut output = vec![big(0.0); columns];
        let format = accumulator(self.kernel.profile.value_accumulation);
        for part in parts {
            let argument = self.round(Float::with_val(BITS, &part.lse - &greatest));
            let weight = self.exponential(argument.exp());
            normalizer = self.plus(normalizer, weight.clone(), self.kernel.profile.arithmetic);
            for (sum, entry) in output.iter_mut().zip(part.output) {
                let product = self.roundings.round(entry * &weight, format);
                *sum = self.plus(sum.clone(), product, format);
            }
        }
        if let Some(sink) = sink {
            let argument = self.in_nats(&sink.reference.product) - &greatest;
            let argument = self.round(argument);
            let weight = self.exponential(argument.exp());
            normalizer = self.round(normalizer + weight);
        }
        let ln = self.logarithm(&normalizer);
        let lse = self.round(ln + greatest);
        let lse = self.narrow(lse, self.kernel.profile.lse_format);
        let output: Vec<Float> =
            output.into_iter().map(|entry| self.divide(entry, &normalizer)).collect();
        self.stored(output, lse)
    }

    /// An argument of a weight in nats, exactly.
    pub fn in_nats(&self, argument: &Float) -> Float {
        let base = if self.kernel.style.base_two { big(2.0).ln() } else { big(1.0) };
        Float::with_val(BITS, argument * base)
    }
}
