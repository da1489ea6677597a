//! A backward kernel whose every rounding is chosen.
//!
//! The kernel computes in 160 bits and asks its [`Roundings`] what each operation loses: up to the
//! unit roundoff of the operation's format in either direction, which is more freedom than any
//! machine has. What it then returns must lie within the stated bounds.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::pattern::broadcast_place;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::score::{Sink, SoftcapOrder};
use rug::Float;

#[path = "roundings.rs"]
mod roundings;
#[path = "simulated_score.rs"]
mod score;

#[allow(unused_imports)] // each test program uses a part of it
pub use roundings::{BITS, Keeping, Roundings, big};

/// Freedoms that a kernel has under one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools)] // each goes with any other
pub struct Style {
    /// Everything is converted to base two: a rounded factor and a product more.
    pub base_two: bool,
    /// The LSE's gradient is subtracted from `D` once, instead of added to each `dP - D`.
    pub folded_lse_gradient: bool,
    /// The scale multiplies queries and keys, instead of their gradients.
    pub folded_scale: bool,
    /// Dropout's scale multiplies what the gradients are summed to, instead of `P` and `dP`.
    pub late_dropout: bool,
    /// `dS` is rounded to the weight format before it is added to the gradient of the bias.
    pub narrow_bias_terms: bool,
    /// How the softcap's slope is formed.
    pub slope: SlopeForm,
}

/// Forms of `1 - tanh^2`, and of its product with `dS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlopeForm {
    /// `1 - t t`.
    Square,
    /// `(1 - t)(1 + t)`.
    Factors,
    /// `1 - t t`, with `t` the capped score over the cap.
    Capped,
    /// `dS (1 - t) + dS (1 - t) t`.
    Distributed,
}

impl SlopeForm {
    /// Every form there is.
    pub const ALL: [Self; 4] = [Self::Square, Self::Factors, Self::Capped, Self::Distributed];
}

/// A fault of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    None,
    NoDelta,
    UnscaledKey,
    LseGradientIgnored,
    DeltaOfAnotherRow,
    ZeroQueryGradient,
    /// `dP` is taken as if nothing were dropped.
    DropoutIgnoredInProbabilityGradient,
    /// `dV` is.
    DropoutIgnoredInValueGradient,
    /// `dS` goes to queries and keys as if there were no softcap.
    SlopeIgnored,
    /// The gradient of the bias is that of the last row alone.
    BiasOfOneRow,
    /// The sink's gradient leaves out `D`.
    SinkWithoutDelta,
    /// It leaves out rows that see no key.
    SinkWithoutEmptyRows,
}

impl Fault {
    /// Every fault of a kernel without score modifications.
    pub const PLAIN: [Self; 5] = [
        Self::NoDelta,
        Self::UnscaledKey,
        Self::LseGradientIgnored,
        Self::DeltaOfAnotherRow,
        Self::ZeroQueryGradient,
    ];

    /// Every fault in a score modification.
    pub const OF_MODIFICATIONS: [Self; 6] = [
        Self::DropoutIgnoredInProbabilityGradient,
        Self::DropoutIgnoredInValueGradient,
        Self::SlopeIgnored,
        Self::BiasOfOneRow,
        Self::SinkWithoutDelta,
        Self::SinkWithoutEmptyRows,
    ];
}

/// One query row: what the kernel reads.
#[derive(Clone, Debug)]
pub struct RowInputs {
    pub query: Vec<f64>,
    pub visible: Vec<bool>,
    pub output_gradient: Vec<f64>,
    pub lse_gradient: f64,
    /// The kernel's own output and LSE.
    pub output: Vec<f64>,
    pub lse: f64,
}

/// A head: what the kernel reads. Dropout and ALiBi are the problem's.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub rows: Vec<RowInputs>,
    pub keys: Vec<Vec<f64>>,
    pub values: Vec<Vec<f64>>,
    /// Row-major, of the problem's shape.
    pub bias: Vec<f64>,
    pub sink: Option<f64>,
}

impl RowInputs {
    pub fn is_empty(&self) -> bool {
        !self.visible.contains(&true)
    }
}

/// Query and key of the only head.
pub fn site((query, key): (usize, usize)) -> Site {
    Site { batch: 0, head: 0, query, key }
}

/// Which entry of the bias stands for a pair.
pub fn bias_entry(problem: &Problem, pair: (usize, usize)) -> Option<usize> {
    let shape = problem.bias?.shape;
    let [_, _, query, key] = broadcast_place(shape, site(pair).place());
    Some(query * shape[3] + key)
}

/// The gradients of a head.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub query: Vec<Vec<Float>>,
    pub key: Vec<Vec<Float>>,
    pub value: Vec<Vec<Float>>,
    /// Row-major.
    pub bias: Vec<Float>,
    pub sink: Option<Float>,
}

impl Outputs {
    /// Every entry, in order.
    pub fn entries(self) -> Vec<Float> {
        let matrices = self.query.into_iter().chain(self.key).chain(self.value).flatten();
        matrices.chain(self.bias).chain(self.sink).collect()
    }
}

/// The kernel: every pair one after another, sums from the first term on.
pub struct Kernel<'a> {
    pub problem: &'a Problem,
    pub profile: &'a Profile,
    pub style: Style,
    pub fault: Fault,
}

/// Running sums, `None` before their first term.
type Sums = Vec<Option<Float>>;

/// What all rows share: the factors that the kernel has rounded.
struct Factors {
    scale: Float,
    /// Dropout's scale, where the problem has it.
    dropout: Option<Float>,
}

/// What the pairs of a row share.
struct RowState {
    /// `D`, or `D - g` where that is folded in, over dropout's scale where that comes late.
    delta: Float,
    /// The LSE, in the base of the exponential.
    lse: Float,
    /// What is yet to be added to each `dP - D`.
    lse_gradient: Option<Float>,
}

/// One pair's `P` and gradients.
struct Pair {
    /// `z P`, as it meets the output gradient.
    weight: Float,
    /// `dS`, not yet rounded to the weight format.
    score: Float,
    /// `dX`, as it meets query and key.
    argument: Float,
    /// `dX`, not yet rounded to the weight format.
    wide_argument: Float,
}

impl Kernel<'_> {
    pub fn run(&self, inputs: &Inputs, roundings: &mut Roundings<'_>) -> Outputs {
        let (rows, keys) = (inputs.rows.len(), inputs.keys.len());
        let (head_dim, value_dim) = (self.problem.head_dim, self.problem.value_dim);
        let factors = self.factors(roundings);
        let mut query: Vec<Sums> = vec![vec![None; head_dim]; rows];
        let mut key: Vec<Sums> = vec![vec![None; head_dim]; keys];
        let mut value: Vec<Sums> = vec![vec![None; value_dim]; keys];
        let mut bias: Sums = vec![None; inputs.bias.len()];
        let mut sink: Sums = vec![None];
        for (r, row) in inputs.rows.iter().enumerate() {
            let state = self.row_state(inputs, r, roundings);
            for i in (0..keys).filter(|&i| row.visible[i]) {
                let pair = self.pair(inputs, (r, i), &factors, &state, roundings);
                let factor = self.style.folded_scale.then_some(&factors.scale);
                self.add(&mut query[r], &pair.argument, &inputs.keys[i], factor, roundings);
                self.add(&mut key[i], &pair.argument, &row.query, factor, roundings);
                self.add(&mut value[i], &pair.weight, &row.output_gradient, None, roundings);
                if let Some(entry) = bias_entry(self.problem, (r, i)) {
                    self.add_bias(&mut bias[entry], (r, rows), pair, roundings);
                }
            }
            self.add_sink(&mut sink[0], inputs, r, &state, roundings);
        }
        let unscaled = (!self.style.folded_scale).then_some(&factors.scale);
        let zero = big(0.0);
        let of_query = if self.fault == Fault::ZeroQueryGradient { Some(&zero) } else { unscaled };
        let of_key = if self.fault == Fault::UnscaledKey { None } else { unscaled };
        let late = factors.dropout.as_ref().filter(|_| self.style.late_dropout);
        let format = self.problem.format;
        let bias_format = self.problem.bias.map_or(format, |bias| bias.format);
        let mut store = |sums: Vec<Sums>, scale: Option<&Float>| {
            sums.into_iter()
                .map(|sums| self.store(sums, [scale, late], format, roundings))
                .collect()
        };
        let (query, key, value) = (store(query, of_query), store(key, of_key), store(value, None));
        let bias = self.store(bias, [None, late], bias_format, roundings);
        let sink = match self.problem.sink {
            Some(Sink::Logits(format)) => self.store(sink, [None, None], format, roundings).pop(),
            _ => None,
        };
        Outputs { query, key, value, bias, sink }
    }

    /// The scale with all the roundings that its factor is declared to have, and dropout's with one.
    fn factors(&self, roundings: &mut Roundings<'_>) -> Factors {
        let format = self.profile.arithmetic;
        let scale = big(self.problem.head_dim as f64).sqrt().recip();
        let scale = (0..self.profile.scale_roundings)
            .fold(scale, |scale, _| roundings.round(scale, format));
        let dropout = self.problem.dropout.as_ref();
        let dropout = dropout.map(|dropout| roundings.round(big(dropout.scale), format));
        Factors { scale, dropout }
    }

    fn dot(&self, x: &[f64], y: &[f64], roundings: &mut Roundings<'_>) -> Float {
        let format = self.profile.arithmetic;
        let mut sum = None;
        for (&x, &y) in x.iter().zip(y) {
            let product = roundings.round(big(x) * y, format);
            sum = Some(match sum {
                None => product,
                Some(sum) => roundings.round(product + &sum, format),
            });
        }
        sum.unwrap_or_else(|| big(0.0))
    }

    /// `x y`, rounded.
    fn product(&self, x: &Float, y: &Float, roundings: &mut Roundings<'_>) -> Float {
        roundings.round(Float::with_val(BITS, x * y), self.profile.arithmetic)
    }

    fn row_state(&self, inputs: &Inputs, r: usize, roundings: &mut Roundings<'_>) -> RowState {
        let format = self.profile.arithmetic;
        let row = &inputs.rows[r];
        let of = if self.fault == Fault::DeltaOfAnotherRow { r + 1 } else { r };
        let output = &inputs.rows[of % inputs.rows.len()].output;
        let mut delta = match self.fault {
            Fault::NoDelta => big(0.0),
            _ => self.dot(&row.output_gradient, output, roundings),
        };
        let g = if self.fault == Fault::LseGradientIgnored { 0.0 } else { row.lse_gradient };
        let mut lse_gradient = (g != 0.0).then(|| big(g));
        if let Some(dropout) = self.problem.dropout.as_ref().filter(|_| self.style.late_dropout) {
            let inverse = roundings.round(big(dropout.scale).recip(), format);
            delta = self.product(&delta, &inverse, roundings);
            lse_gradient = lse_gradient.map(|g| self.product(&g, &inverse, roundings));
        }
        if self.style.folded_lse_gradient
            && let Some(g) = lse_gradient.take()
        {
            delta = roundings.round(delta - g, format);
        }
        let lse = self.in_base(big(row.lse), roundings);
        RowState { delta, lse, lse_gradient }
    }

    /// `x` in the base of the exponential: where that is two, a rounded factor and a product.
    fn in_base(&self, x: Float, roundings: &mut Roundings<'_>) -> Float {
        if !self.style.base_two {
            return x;
        }
        let factor = roundings.round(big(1.0), self.profile.arithmetic);
        self.product(&x, &factor, roundings)
    }

    fn pair(
        &self,
        inputs: &Inputs,
        (r, i): (usize, usize),
        factors: &Factors,
        state: &RowState,
        roundings: &mut Roundings<'_>,
    ) -> Pair {
        let (profile, row) = (self.profile, &inputs.rows[r]);
        let format = profile.arithmetic;
        let score = self.score(inputs, (r, i), &factors.scale, roundings);
        let argument = roundings.round(score.value.clone() - &state.lse, format);
        let p = roundings.exp(argument, profile);
        let dp = self.dot(&row.output_gradient, &inputs.values[i], roundings);
        let dp = match self.fault {
            Fault::DropoutIgnoredInProbabilityGradient => dp,
            _ => self.dropped(dp, (r, i), factors, roundings),
        };
        let mut centred = roundings.round(dp - &state.delta, format);
        if let Some(g) = &state.lse_gradient {
            centred = roundings.round(centred + g, format);
        }
        let ds = self.product(&p, &centred, roundings);
        let dx = match self.fault {
            Fault::SlopeIgnored => ds.clone(),
            _ => self.with_slope(ds.clone(), &score, roundings),
        };
        let weight = match self.fault {
            Fault::DropoutIgnoredInValueGradient => p,
            _ => self.dropped(p, (r, i), factors, roundings),
        };
        Pair {
            weight: roundings.weight(weight, profile),
            score: ds,
            argument: roundings.weight(dx.clone(), profile),
            wide_argument: dx,
        }
    }

    /// `x` under dropout, without its scale where that comes late.
    fn dropped(
        &self,
        x: Float,
        pair: (usize, usize),
        factors: &Factors,
        roundings: &mut Roundings<'_>,
    ) -> Float {
        match &factors.dropout {
            None => x,
            Some(_) if self.problem.dropout_at(site(pair)) == 0.0 => big(0.0),
            Some(_) if self.style.late_dropout => x,
            Some(scale) => self.product(&x, scale, roundings),
        }
    }

    /// `sums += coefficient * factor * vector`, carried on in the declared format.
    fn add(
        &self,
        sums: &mut Sums,
        coefficient: &Float,
        vector: &[f64],
        factor: Option<&Float>,
        roundings: &mut Roundings<'_>,
    ) {
        for (sum, &x) in sums.iter_mut().zip(vector) {
            let x = match factor {
                None => big(x),
                Some(factor) => self.product(&big(x), factor, roundings),
            };
            let term = self.product(&x, coefficient, roundings);
            self.add_term(sum, term, roundings);
        }
    }

    fn add_term(&self, sum: &mut Option<Float>, term: Float, roundings: &mut Roundings<'_>) {
        let added = match sum.take() {
            None => term,
            Some(sum) => roundings.round(sum + term, self.profile.arithmetic),
        };
        *sum = Some(roundings.narrow(added, self.profile.carried_format, self.profile));
    }

    fn add_bias(
        &self,
        sum: &mut Option<Float>,
        (r, rows): (usize, usize),
        pair: Pair,
        roundings: &mut Roundings<'_>,
    ) {
        if self.fault == Fault::BiasOfOneRow && r + 1 < rows {
            return;
        }
        let softcap = self.problem.softcap;
        let after = softcap.is_some_and(|softcap| softcap.order == SoftcapOrder::AfterBias);
        let term = if after { pair.wide_argument } else { pair.score };
        let term = if self.style.narrow_bias_terms {
            roundings.narrow(term, self.profile.weight_format, self.profile)
        } else {
            term
        };
        self.add_term(sum, term, roundings);
    }

    /// `sum += p (g - D)`, with `D` before dropout's scale divides it.
    fn add_sink(
        &self,
        sum: &mut Option<Float>,
        inputs: &Inputs,
        r: usize,
        state: &RowState,
        roundings: &mut Roundings<'_>,
    ) {
        let (format, row) = (self.profile.arithmetic, &inputs.rows[r]);
        let Some(logit) = inputs.sink else { return };
        if self.fault == Fault::SinkWithoutEmptyRows && row.is_empty() {
            return;
        }
        let logit = self.in_base(big(logit), roundings);
        let argument = roundings.round(logit - &state.lse, format);
        let p = roundings.exp(argument, self.profile);
        let delta = match self.fault {
            Fault::SinkWithoutDelta => big(0.0),
            _ => self.dot(&row.output_gradient, &row.output, roundings),
        };
        let centred = roundings.round(big(row.lse_gradient) - delta, format);
        let term = self.product(&p, &centred, roundings);
        self.add_term(sum, term, roundings);
    }

    fn store(
        &self,
        sums: Sums,
        factors: [Option<&Float>; 2],
        format: Format,
        roundings: &mut Roundings<'_>,
    ) -> Vec<Float> {
        let mut store = |sum: Option<Float>| {
            let sum = sum.unwrap_or_else(|| big(0.0));
            let scaled = factors
                .into_iter()
                .flatten()
                .fold(sum, |sum, factor| self.product(&sum, factor, roundings));
            roundings.stored(scaled, format, self.profile)
        };
        sums.into_iter().map(&mut store).collect()
    }
}
