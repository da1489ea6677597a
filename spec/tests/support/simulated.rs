//! A backward kernel whose every rounding is chosen.
//!
//! The kernel computes in 160 bits and asks its [`Roundings`] what each operation loses: up to the
//! unit roundoff of the operation's format in either direction, which is more freedom than any
//! machine has. What it then returns must lie within the stated bounds.

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use rug::Float;

#[path = "roundings.rs"]
mod roundings;

pub use roundings::{BITS, Roundings, big};

/// Freedoms that a kernel has under one profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Style {
    /// The LSE is converted to base two: a rounded factor and a product more.
    pub base_two: bool,
    /// The LSE's gradient is subtracted from `D` once, instead of added to each `dP - D`.
    pub folded_lse_gradient: bool,
    /// The scale multiplies queries and keys, instead of their gradients.
    pub folded_scale: bool,
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
}

impl Fault {
    /// Every fault there is.
    pub const ALL: [Self; 5] = [
        Self::NoDelta,
        Self::UnscaledKey,
        Self::LseGradientIgnored,
        Self::DeltaOfAnotherRow,
        Self::ZeroQueryGradient,
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

/// A head: what the kernel reads.
#[derive(Clone, Debug)]
pub struct Inputs {
    pub rows: Vec<RowInputs>,
    pub keys: Vec<Vec<f64>>,
    pub values: Vec<Vec<f64>>,
}

/// `dQ`, `dK` and `dV`.
#[derive(Clone, Debug)]
pub struct Outputs {
    pub query: Vec<Vec<Float>>,
    pub key: Vec<Vec<Float>>,
    pub value: Vec<Vec<Float>>,
}

/// The kernel: every pair one after another, sums from the first term on.
pub struct Kernel<'a> {
    pub problem: &'a Problem,
    pub profile: &'a Profile,
    pub style: Style,
    pub fault: Fault,
}

/// Running sums, `None` before their first term.
type Sums = Vec<Vec<Option<Float>>>;

impl Kernel<'_> {
    pub fn run(&self, inputs: &Inputs, roundings: &mut Roundings<'_>) -> Outputs {
        let (rows, keys) = (inputs.rows.len(), inputs.keys.len());
        let (head_dim, value_dim) = (self.problem.head_dim, self.problem.value_dim);
        let scale = self.scale(roundings);
        let mut query: Sums = vec![vec![None; head_dim]; rows];
        let mut key: Sums = vec![vec![None; head_dim]; keys];
        let mut value: Sums = vec![vec![None; value_dim]; keys];
        for (r, row) in inputs.rows.iter().enumerate() {
            let delta = self.delta(inputs, r, roundings);
            for i in (0..keys).filter(|&i| row.visible[i]) {
                let (p, ds) = self.pair(inputs, (r, i), &scale, &delta, roundings);
                let factor = if self.style.folded_scale { Some(&scale) } else { None };
                self.add(&mut query[r], &ds, &inputs.keys[i], factor, roundings);
                self.add(&mut key[i], &ds, &row.query, factor, roundings);
                self.add(&mut value[i], &p, &row.output_gradient, None, roundings);
            }
        }
        let unscaled = if self.style.folded_scale { None } else { Some(&scale) };
        let of_query =
            if self.fault == Fault::ZeroQueryGradient { Some(&big(0.0)) } else { unscaled };
        let of_key = if self.fault == Fault::UnscaledKey { None } else { unscaled };
        Outputs {
            query: self.store(query, of_query, roundings),
            key: self.store(key, of_key, roundings),
            value: self.store(value, None, roundings),
        }
    }

    /// The scale with all the roundings that its factor is declared to have.
    fn scale(&self, roundings: &mut Roundings<'_>) -> Float {
        let scale = big(self.problem.head_dim as f64).sqrt().recip();
        (0..self.profile.scale_roundings)
            .fold(scale, |scale, _| roundings.round(scale, self.profile.arithmetic))
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

    /// `D`, or `D - g` where that is folded in.
    fn delta(&self, inputs: &Inputs, r: usize, roundings: &mut Roundings<'_>) -> Float {
        let row = &inputs.rows[r];
        let of = if self.fault == Fault::DeltaOfAnotherRow { r + 1 } else { r };
        let output = &inputs.rows[of % inputs.rows.len()].output;
        let delta = match self.fault {
            Fault::NoDelta => big(0.0),
            _ => self.dot(&row.output_gradient, output, roundings),
        };
        if self.style.folded_lse_gradient && self.lse_gradient(row) != 0.0 {
            roundings.round(delta - self.lse_gradient(row), self.profile.arithmetic)
        } else {
            delta
        }
    }

    fn lse_gradient(&self, row: &RowInputs) -> f64 {
        if self.fault == Fault::LseGradientIgnored { 0.0 } else { row.lse_gradient }
    }

    /// `P` and `dS` as they meet the tiles.
    fn pair(
        &self,
        inputs: &Inputs,
        (r, i): (usize, usize),
        scale: &Float,
        delta: &Float,
        roundings: &mut Roundings<'_>,
    ) -> (Float, Float) {
        let (profile, row) = (self.profile, &inputs.rows[r]);
        let format = profile.arithmetic;
        let dot = self.dot(&row.query, &inputs.keys[i], roundings);
        let score = roundings.round(dot * scale, format);
        let score = roundings.narrow(score, profile.score_format, profile);
        let mut lse = big(row.lse);
        if self.style.base_two {
            lse = roundings.round(lse, format);
            lse = roundings.round(lse, format);
        }
        let argument = roundings.round(score - lse, format);
        let p = roundings.exp(argument, profile);
        let dp = self.dot(&row.output_gradient, &inputs.values[i], roundings);
        let mut centred = roundings.round(dp - delta, format);
        if !self.style.folded_lse_gradient && self.lse_gradient(row) != 0.0 {
            centred = roundings.round(centred + self.lse_gradient(row), format);
        }
        let ds = roundings.round(Float::with_val(BITS, &p * &centred), format);
        (
            roundings.narrow(p, profile.weight_format, profile),
            roundings.narrow(ds, profile.weight_format, profile),
        )
    }

    /// `sums += coefficient * factor * vector`, carried on in the declared format.
    fn add(
        &self,
        sums: &mut [Option<Float>],
        coefficient: &Float,
        vector: &[f64],
        factor: Option<&Float>,
        roundings: &mut Roundings<'_>,
    ) {
        let format = self.profile.arithmetic;
        for (sum, &x) in sums.iter_mut().zip(vector) {
            let x = match factor {
                None => big(x),
                Some(factor) => roundings.round(big(x) * factor, format),
            };
            let product = roundings.round(x * coefficient, format);
            let added = match sum.take() {
                None => product,
                Some(sum) => roundings.round(sum + product, format),
            };
            *sum = Some(roundings.narrow(added, self.profile.carried_format, self.profile));
        }
    }

    fn store(
        &self,
        sums: Sums,
        scale: Option<&Float>,
        roundings: &mut Roundings<'_>,
    ) -> Vec<Vec<Float>> {
        let mut store = |sum: Option<Float>| {
            let sum = sum.unwrap_or_else(|| big(0.0));
            let scaled = match scale {
                None => sum,
                Some(scale) => roundings.round(sum * scale, self.profile.arithmetic),
            };
            roundings.narrow(scaled, self.problem.format, self.profile)
        };
        sums.into_iter().map(|row| row.into_iter().map(&mut store).collect()).collect()
    }
}
