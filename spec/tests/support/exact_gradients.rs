//! The gradients of a head by their definition, in 160 bits, and what the bounds need of its rows.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::bound::gradient::{GradientCondition, SinkGradientCondition};
use flashproof_spec::bound::strict::Centre;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::SoftcapOrder;
use rug::Float;
use rug::float::Round;

use crate::simulated::{BITS, Inputs, Outputs, RowInputs, bias_entry, big, site};

/// `|x|` from above; never zero but for zero itself.
pub fn hi(x: &Float) -> f64 {
    Float::with_val(BITS, x.abs_ref()).to_f64_round(Round::Up)
}

/// `x` between two numbers.
fn ends(x: &Float) -> (f64, f64) {
    (x.to_f64_round(Round::Down), x.to_f64_round(Round::Up))
}

fn times(x: &Float, y: &Float) -> Float {
    Float::with_val(BITS, x * y)
}

fn dot(x: &[f64], y: &[f64]) -> Float {
    x.iter().zip(y).fold(big(0.0), |sum, (&x, &y)| sum + big(x) * y)
}

/// `sum |x_j y_j|`.
fn mass(x: &[f64], y: &[f64]) -> Float {
    x.iter().zip(y).fold(big(0.0), |sum, (&x, &y)| sum + (big(x) * y).abs())
}

/// A score and what it is made of.
#[derive(Clone, Debug)]
struct Score {
    product: Float,
    addend_magnitude: f64,
    /// What the softcap is taken of, over the cap.
    cap_argument: Float,
    /// `1 - tanh^2`.
    slope: Float,
    value: Float,
}

/// A query row and a key that it sees.
#[derive(Clone, Debug)]
pub struct Pair {
    score: Score,
    dot_mass: Float,
    dp: Float,
    dp_mass: Float,
    centred: Float,
    pub probability: Float,
    dropout: f64,
    score_gradient: Float,
}

impl Pair {
    pub fn slope(&self) -> &Float {
        &self.score.slope
    }

    /// The gradient of what the softcap is taken of.
    fn argument_gradient(&self) -> Float {
        times(&self.score_gradient, &self.score.slope)
    }
}

/// A query row with something in its normalizer.
#[derive(Clone, Debug)]
pub struct ExactRow {
    pub output: Vec<Float>,
    pub lse: Float,
    delta: Float,
    /// One for each key of the head.
    pub pairs: Vec<Option<Pair>>,
    /// The sink's probability.
    sink: Option<Float>,
}

/// The rows of a head; `None` where one has nothing in its normalizer.
pub struct ExactHead<'a> {
    problem: &'a Problem,
    inputs: &'a Inputs,
    scale: Float,
    pub rows: Vec<Option<ExactRow>>,
}

impl<'a> ExactHead<'a> {
    pub fn new(problem: &'a Problem, inputs: &'a Inputs) -> Self {
        let scale = big(problem.head_dim as f64).sqrt().recip();
        let mut head = Self { problem, inputs, scale, rows: Vec::new() };
        head.rows = (0..inputs.rows.len()).map(|r| head.row(r)).collect();
        head
    }

    fn score(&self, r: usize, i: usize) -> Score {
        let Self { problem, inputs, .. } = *self;
        let product = dot(&inputs.rows[r].query, &inputs.keys[i]) * &self.scale;
        let bias = bias_entry(problem, (r, i)).map_or(0.0, |entry| inputs.bias[entry]);
        let alibi = problem.alibi_at(site((r, i)));
        let addends = big(bias) + alibi;
        let addend_magnitude = hi(&(big(bias.abs()) + alibi.abs()));
        let Some(softcap) = problem.softcap else {
            let value = product.clone() + addends;
            let (cap_argument, slope) = (big(0.0), big(1.0));
            return Score { product, addend_magnitude, cap_argument, slope, value };
        };
        let before = softcap.order == SoftcapOrder::BeforeBias;
        let capped = if before { product.clone() } else { product.clone() + &addends };
        let cap_argument = capped / softcap.cap;
        let tanh = cap_argument.clone().tanh();
        // 1 - tanh^2 without cancellation.
        let slope = cap_argument.clone().cosh().square().recip();
        let value = tanh * softcap.cap;
        let value = if before { value + addends } else { value };
        Score { product, addend_magnitude, cap_argument, slope, value }
    }

    fn row(&self, r: usize) -> Option<ExactRow> {
        let Self { problem, inputs, .. } = *self;
        let row = &inputs.rows[r];
        let keys = 0..inputs.keys.len();
        let scores: Vec<_> = keys.map(|i| row.visible[i].then(|| self.score(r, i))).collect();
        let values = scores.iter().flatten().map(|score| score.value.clone());
        let logit = inputs.sink.map(big);
        let weights = values.chain(logit.clone()).map(Float::exp);
        let normalizer = weights.reduce(|sum, weight| sum + weight)?;
        let lse = normalizer.ln();
        let probability = |score: &Float| Float::with_val(BITS, score - &lse).exp();
        let mut output = vec![big(0.0); problem.value_dim];
        let mut delta = big(0.0);
        for (i, score) in scores.iter().enumerate() {
            let Some(score) = score else { continue };
            let kept = probability(&score.value) * problem.dropout_at(site((r, i)));
            for (o, &v) in output.iter_mut().zip(&inputs.values[i]) {
                *o += big(v) * &kept;
            }
            delta += dot(&row.output_gradient, &inputs.values[i]) * kept;
        }
        let pair = |(i, score): (usize, Option<Score>)| {
            let score = score?;
            let dropout = problem.dropout_at(site((r, i)));
            let dp = dot(&row.output_gradient, &inputs.values[i]);
            let centred = dp.clone() * dropout - &delta + row.lse_gradient;
            let probability = probability(&score.value);
            Some(Pair {
                dot_mass: mass(&row.query, &inputs.keys[i]) * &self.scale,
                dp_mass: mass(&row.output_gradient, &inputs.values[i]),
                score_gradient: times(&probability, &centred),
                score,
                dp,
                centred,
                probability,
                dropout,
            })
        };
        let pairs = scores.into_iter().enumerate().map(pair).collect();
        let sink = logit.map(|logit| probability(&logit));
        Some(ExactRow { output, lse, delta, pairs, sink })
    }

    /// `scale sum dX k`, `scale sum dX q`, `sum p z dO`, sums of `dS` or `dX`, and `sum p (g - D)`.
    pub fn gradients(&self) -> Outputs {
        let Self { problem, inputs, .. } = *self;
        let zeros = |rows: usize, entries: usize| vec![vec![big(0.0); entries]; rows];
        let mut query = zeros(inputs.rows.len(), problem.head_dim);
        let mut key = zeros(inputs.keys.len(), problem.head_dim);
        let mut value = zeros(inputs.keys.len(), problem.value_dim);
        let mut bias = vec![big(0.0); inputs.bias.len()];
        for (r, i, pair) in self.pairs() {
            let row = &inputs.rows[r];
            let dx = pair.argument_gradient();
            let kept = pair.probability.clone() * pair.dropout;
            add(&mut query[r], &times(&dx, &self.scale), &inputs.keys[i]);
            add(&mut key[i], &times(&dx, &self.scale), &row.query);
            add(&mut value[i], &kept, &row.output_gradient);
            if let Some(entry) = bias_entry(problem, (r, i)) {
                bias[entry] += if self.capped_after_bias() { &dx } else { &pair.score_gradient };
            }
        }
        let sinks = self.rows.iter().zip(&inputs.rows).filter_map(|(row, inputs)| {
            let row = row.as_ref()?;
            Some(times(row.sink.as_ref()?, &(big(inputs.lse_gradient) - &row.delta)))
        });
        let sink = inputs.sink.map(|_| sinks.fold(big(0.0), |sum, term| sum + term));
        Outputs { query, key, value, bias, sink }
    }

    fn capped_after_bias(&self) -> bool {
        self.problem.softcap.is_some_and(|softcap| softcap.order == SoftcapOrder::AfterBias)
    }

    /// Every query and key that it sees.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize, &Pair)> {
        self.rows.iter().enumerate().flat_map(|(r, row)| {
            let pairs = row.iter().flat_map(|row| row.pairs.iter().enumerate());
            pairs.filter_map(move |(i, pair)| Some((r, i, pair.as_ref()?)))
        })
    }

    /// What one row is with the LSE and output that the kernel's forward pass made of it; `None` where
    /// it has nothing in its normalizer.
    pub fn centre(&self, r: usize, own: &RowInputs) -> Option<Centre> {
        let row = self.rows[r].as_ref()?;
        let factor = (row.lse.clone() - own.lse).exp();
        let own_delta = dot(&own.output_gradient, &own.output);
        let shift = own_delta - &row.delta;
        let mut centre = Centre::default();
        for pair in row.pairs.iter().flatten() {
            let probability = times(&pair.probability, &factor);
            let centred = Float::with_val(BITS, &pair.centred - &shift);
            let argument = times(&times(&probability, &centred), pair.slope());
            centre.probability.push(ends(&probability));
            centre.argument.push(ends(&argument));
            centre.centred_magnitude_hi.push(hi(&centred));
        }
        Some(centre)
    }

    /// What the bounds need of one row, given what the kernel's forward pass made of it; `None`
    /// where it has nothing in its normalizer.
    pub fn condition(&self, r: usize, own: &RowInputs) -> Option<GradientCondition> {
        let row = self.rows[r].as_ref()?;
        let seen = || row.pairs.iter().flatten();
        let each = |of: &dyn Fn(&Pair) -> f64| seen().map(of).collect::<Vec<_>>();
        let d_o = &own.output_gradient;
        let own_delta = dot(d_o, &own.output);
        let lowest = f64::from_bits(1);
        Some(GradientCondition {
            score_magnitude_hi: each(&|pair| hi(&pair.score.value)),
            product_magnitude_hi: each(&|pair| hi(&pair.score.product)),
            addend_magnitude_hi: each(&|pair| pair.score.addend_magnitude),
            cap_argument_lo: each(&|pair| {
                pair.score.cap_argument.clone().abs().to_f64_round(Round::Down)
            }),
            cap_slope_hi: each(&|pair| hi(&pair.score.slope).max(lowest)),
            dropout: each(&|pair| pair.dropout),
            dot_mass_hi: each(&|pair| hi(&pair.dot_mass)),
            probability_hi: each(&|pair| hi(&pair.probability).max(lowest)),
            log_probability_hi: each(&|pair| {
                Float::with_val(BITS, &pair.score.value - &row.lse).to_f64_round(Round::Up)
            }),
            lse_magnitude_hi: hi(&row.lse),
            dp_magnitude_hi: each(&|pair| hi(&pair.dp)),
            dp_mass_hi: each(&|pair| hi(&pair.dp_mass)),
            centred_magnitude_hi: each(&|pair| hi(&pair.centred)),
            lse_gradient_magnitude_hi: own.lse_gradient.abs(),
            delta_magnitude_hi: hi(&own_delta),
            delta_mass_hi: hi(&mass(d_o, &own.output)),
            delta_shift_hi: hi(&(own_delta - &row.delta)),
            lse_shift_hi: hi(&(big(own.lse) - &row.lse)),
            sink: row.sink.as_ref().zip(self.inputs.sink).map(|(probability, logit)| {
                SinkGradientCondition {
                    logit,
                    probability_hi: hi(probability).max(lowest),
                    centred_magnitude_hi: hi(&(big(own.lse_gradient) - &row.delta)),
                }
            }),
        })
    }
}

/// `sum += coefficient * vector`.
fn add(sum: &mut [Float], coefficient: &Float, vector: &[f64]) {
    for (entry, &x) in sum.iter_mut().zip(vector) {
        *entry += big(x) * coefficient;
    }
}
