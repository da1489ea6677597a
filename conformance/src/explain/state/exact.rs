//! The exact state of a row as the online softmax goes through its keys.

use std::ops::Range;

use flashproof_oracle::row::RowIndex;
use flashproof_spec::arithmetic::{Arithmetic, Mpfr};
use flashproof_spec::mask::Site;
use flashproof_spec::online::{Key, KeyOf, StateOf, absorb, start};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Addends, Softcap, SoftcapOrder};
use flashproof_spec::tensor::Inputs;
use rug::Float;

use super::State;

/// Bits of the arithmetic: several times those of `f64`, in which states are shown.
const PRECISION: u32 = 256;

/// A row whose scores and values are numbers.
pub struct ExactRow<'a> {
    arithmetic: Mpfr,
    problem: &'a Problem,
    inputs: &'a Inputs,
    row: RowIndex,
    visible: Vec<usize>,
    /// `1/sqrt(d)`, or the number given.
    scale: Float,
}

impl<'a> ExactRow<'a> {
    /// The row, under the problem as it is to be read; `None` where infinities or NaN take part in it.
    pub fn new(problem: &'a Problem, inputs: &'a Inputs, row: RowIndex) -> Option<Self> {
        let arithmetic = Mpfr::new(PRECISION).ok()?;
        let RowIndex { batch, head, query } = row;
        let visible = inputs.visible_keys(problem, batch, head, query);
        let scale = match problem.scale {
            Scale::Value(scale) => arithmetic.number(scale),
            Scale::InverseSqrtHeadDim => {
                let one = arithmetic.number(1.0);
                arithmetic.div(&one, &arithmetic.number(problem.head_dim as f64).sqrt())
            }
        };
        let row = Self { arithmetic, problem, inputs, row, visible, scale };
        row.is_finite().then_some(row)
    }

    fn is_finite(&self) -> bool {
        let RowIndex { batch, head, query } = self.row;
        let (queries, keys, values) =
            (self.inputs.query.view4(), self.inputs.key.view4(), self.inputs.value.view4());
        let of_head = self.problem.key_head_of(head);
        let of_query =
            (0..self.problem.head_dim).all(|t| queries[[batch, head, query, t]].is_finite());
        let sink = self.inputs.sink_at(self.problem, head);
        of_query
            && sink.is_none_or(f64::is_finite)
            && self.visible.iter().all(|&key| {
                let site = Site { batch, head, query, key };
                (0..self.problem.head_dim).all(|t| keys[[batch, of_head, key, t]].is_finite())
                    && (0..self.problem.value_dim)
                        .all(|j| values[[batch, of_head, key, j]].is_finite())
                    && self.inputs.bias_at(self.problem, site).is_finite()
            })
    }

    /// The state after each of the ranges of keys, taken one after another from the first key; with
    /// output entry `entry`. The sink, where there is one, is absorbed before them.
    pub fn states(&self, ranges: &[Range<usize>], entry: usize) -> Vec<State> {
        let a = &self.arithmetic;
        let mut state = start(a, self.problem.value_dim);
        if let Some(logit) = self.inputs.sink_at(self.problem, self.row.head) {
            let value = vec![a.zero(); self.problem.value_dim];
            state = absorb(a, state, &[Key { score: Some(a.number(logit)), value }]);
        }
        let mut states = Vec::new();
        for range in ranges {
            let block: Vec<KeyOf<Mpfr>> = self
                .visible
                .iter()
                .filter(|&key| range.contains(key))
                .map(|&key| Key { score: Some(self.score(key)), value: self.value(key) })
                .collect();
            state = absorb(a, state, &block);
            states.push(self.shown(&state, entry));
        }
        states
    }

    fn shown(&self, state: &StateOf<Mpfr>, entry: usize) -> State {
        let m = state.reference.as_ref().map_or(f64::NEG_INFINITY, Float::to_f64);
        let has_keys = state.normalizer > 0;
        let output = if has_keys {
            self.arithmetic.div(&state.numerator[entry], &state.normalizer).to_f64()
        } else {
            0.0
        };
        State { m, l: state.normalizer.to_f64(), n: state.numerator[entry].to_f64(), output }
    }

    /// The score of a visible key.
    fn score(&self, key: usize) -> Float {
        let a = &self.arithmetic;
        let RowIndex { batch, head, query } = self.row;
        let (queries, keys) = (self.inputs.query.view4(), self.inputs.key.view4());
        let of_head = self.problem.key_head_of(head);
        let dot = a.sum((0..self.problem.head_dim).map(|t| {
            let (q, k) = (queries[[batch, head, query, t]], keys[[batch, of_head, key, t]]);
            a.mul(&a.number(q), &a.number(k))
        }));
        let product = a.mul(&self.scale, &dot);
        let Addends { bias, alibi } =
            self.inputs.addends_at(self.problem, Site { batch, head, query, key });
        let addend = a.add(&a.number(bias), &a.number(alibi));
        let capped = |x: Float, cap: f64| {
            let cap = a.number(cap);
            a.mul(&cap, &a.div(&x, &cap).tanh())
        };
        match self.problem.softcap {
            None => a.add(&product, &addend),
            Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
                a.add(&capped(product, cap), &addend)
            }
            Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
                capped(a.add(&product, &addend), cap)
            }
        }
    }

    /// A key's value, times its factor of dropout.
    fn value(&self, key: usize) -> Vec<Float> {
        let a = &self.arithmetic;
        let RowIndex { batch, head, query } = self.row;
        let kept = a.number(self.problem.dropout_at(Site { batch, head, query, key }));
        let values = self.inputs.value.view4();
        let of_head = self.problem.key_head_of(head);
        (0..self.problem.value_dim)
            .map(|j| a.mul(&kept, &a.number(values[[batch, of_head, key, j]])))
            .collect()
    }
}
