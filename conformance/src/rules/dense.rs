//! Dense attention, as the references of other projects compute it.
//!
//! One program in two precisions. In `f64` it is a reference. In the kernel's own format it is what
//! eager `PyTorch` does: sums in `f32` (in `f64` for `f64`), softmax in `f32`, and every tensor that an
//! operation gives rounded to the format, in the order of `FlashAttention`'s test reference: the key is
//! scaled, then multiplied with the query; softcap; bias; mask; softmax; dropout; the product with the
//! value. The backward pass is what differentiating that gives, with the same roundings.
//!
//! Whether a query sees a key, and what is added to a score, comes from the specification; the rest is
//! plain code of its own. Keys that a query does not see are not read. A row that sees none is zero,
//! and its LSE minus infinity.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Cotangents, Inputs};
use ndarray::{Array1, Array3, Array4, ArrayView1, s};

/// Dense attention of one precision on given inputs.
#[derive(Clone, Copy, Debug)]
pub struct Dense<'a> {
    problem: &'a Problem,
    inputs: &'a Inputs,
    /// What the tensors between operations are rounded to.
    stored: Format,
    /// What sums and the softmax are computed in.
    inner: Format,
}

/// Output and LSE.
#[derive(Clone, Debug)]
pub struct DenseOutputs {
    /// `[batch, query_heads, query_len, value_dim]`.
    pub output: Array4<f64>,
    /// `[batch, query_heads, query_len]`.
    pub lse: Array3<f64>,
}

/// Gradients.
#[derive(Clone, Debug)]
pub struct DenseGradients {
    /// Of the query.
    pub query: Array4<f64>,
    /// Of the key.
    pub key: Array4<f64>,
    /// Of the value.
    pub value: Array4<f64>,
    /// Of the bias; of shape 0 without one.
    pub bias: Array4<f64>,
    /// Of the logits of the sinks.
    pub sink: Array1<f64>,
}

/// A row of weights.
struct Row {
    keys: Vec<usize>,
    /// The scores' slopes by the product: 1 without a softcap.
    slopes: Vec<f64>,
    weights: Vec<f64>,
    /// Factors of dropout.
    kept: Vec<f64>,
    sink_weight: f64,
    lse: f64,
}

impl<'a> Dense<'a> {
    /// In `f64`.
    #[must_use]
    pub const fn reference(problem: &'a Problem, inputs: &'a Inputs) -> Self {
        Self { problem, inputs, stored: Format::F64, inner: Format::F64 }
    }

    /// In the problem's own format.
    #[must_use]
    pub const fn peer(problem: &'a Problem, inputs: &'a Inputs) -> Self {
        let inner = match problem.format {
            Format::F64 => Format::F64,
            _ => Format::F32,
        };
        Self { problem, inputs, stored: problem.format, inner }
    }

    /// Output and LSE.
    ///
    /// # Panics
    /// When the inputs are not the problem's.
    #[must_use]
    pub fn forward(&self) -> DenseOutputs {
        let problem = self.problem;
        let mut output = Array4::zeros(problem.output_shape());
        let mut lse = Array3::zeros(problem.lse_shape());
        let scaled = self.scaled_keys();
        let value = self.inputs.value.view4();
        for (batch, head, query) in self.rows() {
            let row = self.row(&scaled, batch, head, query);
            lse[[batch, head, query]] = row.lse;
            let weights: Vec<f64> = self.dropped(&row);
            let mut out = output.slice_mut(s![batch, head, query, ..]);
            let head = problem.key_head_of(head);
            for (entry, out) in out.iter_mut().enumerate() {
                let terms = row.keys.iter().zip(&weights);
                let terms = terms.map(|(&key, &weight)| weight * value[[batch, head, key, entry]]);
                *out = self.stored.round(self.sum(terms));
            }
        }
        DenseOutputs { output, lse }
    }

    /// The gradients of a loss with these gradients of output and LSE.
    ///
    /// # Panics
    /// When inputs or cotangents are not the problem's.
    #[must_use]
    pub fn backward(&self, cotangents: &Cotangents) -> DenseGradients {
        let problem = self.problem;
        let mut sums = DenseGradients {
            query: Array4::zeros(problem.query_shape()),
            key: Array4::zeros(problem.key_shape()),
            value: Array4::zeros(problem.value_shape()),
            bias: Array4::zeros(problem.bias.map_or([0; 4], |bias| bias.shape)),
            sink: Array1::zeros(problem.query_heads),
        };
        let scaled = self.scaled_keys();
        for batch in 0..problem.batch {
            for head in 0..problem.query_heads {
                self.add_head(&mut sums, &scaled, cotangents, batch, head);
            }
        }
        let scale = problem.scale_f64();
        sums.key.mapv_inplace(|it| self.stored.round(it * scale));
        sums.value.mapv_inplace(|it| self.stored.round(it));
        sums.bias.mapv_inplace(|it| self.stored.round(it));
        sums
    }

    /// What one query head brings: its `dQ`, and its part of the other gradients, which are rounded
    /// before they are added up.
    fn add_head(
        &self,
        sums: &mut DenseGradients,
        scaled: &Array4<f64>,
        cotangents: &Cotangents,
        batch: usize,
        head: usize,
    ) {
        let problem = self.problem;
        let key_head = problem.key_head_of(head);
        let (queries, d_output) = (self.inputs.query.view4(), cotangents.output.view4());
        let mut d_key = Array4::<f64>::zeros([1, 1, problem.key_len, problem.head_dim]);
        let mut d_value = Array4::<f64>::zeros([1, 1, problem.key_len, problem.value_dim]);
        for query in (0..problem.query_len).filter(|&it| problem.has_query_row(batch, it)) {
            let row = self.row(scaled, batch, head, query);
            let upstream = d_output.slice(s![batch, head, query, ..]);
            let d_scores = self.score_gradients(sums, &row, cotangents, [batch, head, query]);
            let weights = self.dropped(&row);
            for (place, &key) in row.keys.iter().enumerate() {
                let entries = queries.slice(s![batch, head, query, ..]);
                self.add(d_key.slice_mut(s![0, 0, key, ..]), d_scores[place], &entries);
                self.add(d_value.slice_mut(s![0, 0, key, ..]), weights[place], &upstream);
            }
            for (entry, out) in
                sums.query.slice_mut(s![batch, head, query, ..]).iter_mut().enumerate()
            {
                let terms = row.keys.iter().zip(&d_scores);
                let terms = terms.map(|(&key, &d)| d * scaled[[batch, key_head, key, entry]]);
                *out = self.stored.round(self.sum(terms));
            }
        }
        let mut key = sums.key.slice_mut(s![batch, key_head, .., ..]);
        key += &d_key.slice(s![0, 0, .., ..]).mapv(|it| self.stored.round(it));
        let mut value = sums.value.slice_mut(s![batch, key_head, .., ..]);
        value += &d_value.slice(s![0, 0, .., ..]).mapv(|it| self.stored.round(it));
    }

    /// The gradients of a row's products; those of bias and sink are added to the sums.
    fn score_gradients(
        &self,
        sums: &mut DenseGradients,
        row: &Row,
        cotangents: &Cotangents,
        [batch, head, query]: [usize; 3],
    ) -> Vec<f64> {
        let problem = self.problem;
        let upstream = cotangents.output.view4();
        let upstream = upstream.slice(s![batch, head, query, ..]);
        let values = self.inputs.value.view4();
        let key_head = problem.key_head_of(head);
        let d_weights: Vec<f64> = row
            .keys
            .iter()
            .zip(&row.kept)
            .map(|(&key, &kept)| {
                let value = values.slice(s![batch, key_head, key, ..]);
                let d_dropped = self.stored.round(self.dot(&upstream, &value));
                if kept == 1.0 { d_dropped } else { self.stored.round(d_dropped * kept) }
            })
            .collect();
        let mean = self.sum(row.weights.iter().zip(&d_weights).map(|(p, d)| p * d));
        let of_lse = cotangents.lse.as_ref().map_or(0.0, |lse| lse.view3()[[batch, head, query]]);
        sums.sink[head] += row.sink_weight * (of_lse - mean);
        let at_bias = |key| {
            let shape = problem.bias.map(|bias| bias.shape)?;
            let place = Site { batch, head, query, key }.place();
            Some(flashproof_spec::pattern::broadcast_place(shape, place))
        };
        let after = problem.softcap.is_some_and(|cap| cap.order == SoftcapOrder::AfterBias);
        row.keys
            .iter()
            .enumerate()
            .map(|(place, &key)| {
                let d_score = row.weights[place] * (d_weights[place] - mean + of_lse);
                let d_score = self.stored.round(d_score);
                let d_product = match problem.softcap {
                    None => d_score,
                    Some(_) => self.stored.round(d_score * row.slopes[place]),
                };
                if let Some(place) = at_bias(key) {
                    sums.bias[place] += if after { d_product } else { d_score };
                }
                d_product
            })
            .collect()
    }

    fn rows(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let Problem { batch, query_heads, query_len, .. } = *self.problem;
        ndarray::indices((batch, query_heads, query_len))
            .into_iter()
            .filter(|&(batch, _, query)| self.problem.has_query_row(batch, query))
    }

    /// The keys times the softmax scale.
    fn scaled_keys(&self) -> Array4<f64> {
        let scale = self.problem.scale_f64();
        self.inputs.key.view4().mapv(|key| self.stored.round(key * scale))
    }

    fn row(&self, scaled: &Array4<f64>, batch: usize, head: usize, query: usize) -> Row {
        let problem = self.problem;
        let keys = self.inputs.visible_keys(problem, batch, head, query);
        let queries = self.inputs.query.view4();
        let entries = queries.slice(s![batch, head, query, ..]);
        let key_head = problem.key_head_of(head);
        let site = |key| Site { batch, head, query, key };
        let (scores, slopes): (Vec<f64>, Vec<f64>) = keys
            .iter()
            .map(|&key| {
                let product = self.dot(&entries, &scaled.slice(s![batch, key_head, key, ..]));
                self.score(self.stored.round(product), site(key))
            })
            .unzip();
        let logit = self.inputs.sink_at(problem, head);
        let kept = keys.iter().map(|&key| problem.dropout_at(site(key))).collect();
        let most = scores.iter().copied().chain(logit).fold(f64::NEG_INFINITY, nan_or_max);
        if most == f64::NEG_INFINITY {
            let weights = vec![0.0; keys.len()];
            return Row { keys, slopes, weights, kept, sink_weight: 0.0, lse: most };
        }
        let exponential = |score: f64| self.inner.round((score - most).exp());
        let terms: Vec<f64> = scores.iter().map(|&score| exponential(score)).collect();
        let of_sink = logit.map(exponential);
        let normalizer = self.sum(terms.iter().copied().chain(of_sink));
        let weights = terms.iter().map(|term| self.stored.round(term / normalizer)).collect();
        let sink_weight = of_sink.map_or(0.0, |term| term / normalizer);
        let lse = self.inner.round(most + normalizer.ln());
        Row { keys, slopes, weights, kept, sink_weight, lse }
    }

    /// The score of a product, and its slope by the product.
    fn score(&self, product: f64, site: Site) -> (f64, f64) {
        let addends = self.inputs.addends_at(self.problem, site);
        let add = |score: f64| {
            let mut score = score;
            for addend in [addends.bias, addends.alibi] {
                if addend != 0.0 {
                    score = self.stored.round(score + addend);
                }
            }
            score
        };
        let capped = |score: f64, Softcap { cap, .. }: Softcap| {
            let tanh = self.stored.round(self.stored.round(score / cap).tanh());
            (self.stored.round(tanh * cap), 1.0 - tanh * tanh)
        };
        match self.problem.softcap {
            None => (add(product), 1.0),
            Some(softcap) if softcap.order == SoftcapOrder::BeforeBias => {
                let (score, slope) = capped(product, softcap);
                (add(score), slope)
            }
            Some(softcap) => capped(add(product), softcap),
        }
    }

    /// The row's weights after dropout.
    fn dropped(&self, row: &Row) -> Vec<f64> {
        let weights = row.weights.iter().zip(&row.kept);
        weights.map(|(weight, &kept)| self.stored.round(weight * kept)).collect()
    }

    fn dot(&self, a: &ArrayView1<'_, f64>, b: &ArrayView1<'_, f64>) -> f64 {
        self.sum(a.iter().zip(b).map(|(a, b)| a * b))
    }

    /// In order.
    fn sum(&self, terms: impl Iterator<Item = f64>) -> f64 {
        match self.inner {
            Format::F64 => terms.sum(),
            _ => f64::from(terms.fold(0.0_f32, |sum, term| sum + term as f32)),
        }
    }

    /// Adds a multiple of the entries.
    fn add(
        &self,
        mut sums: ndarray::ArrayViewMut1<'_, f64>,
        factor: f64,
        entries: &ArrayView1<'_, f64>,
    ) {
        for (sum, entry) in sums.iter_mut().zip(entries) {
            *sum = self.sum([*sum, factor * entry].into_iter());
        }
    }
}

fn nan_or_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}
