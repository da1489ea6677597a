//! The gradients by their definition, evaluated by brute force in so many bits that rounding errors
//! are far below anything that is compared with them.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_oracle::backward::KeyIndex;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::pattern::broadcast_place;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Addends, Softcap, SoftcapOrder};
use rug::{Float, Rational};

use crate::gradient::GradientCase;
use crate::support::inputs::all_rows;

/// Bits of the evaluation: above the 5,400 or so over which the products of five `f64` can spread.
const PRECISION: u32 = 6000;

/// One query row and its pairs.
#[derive(Debug)]
pub struct DefinedRow {
    pub index: RowIndex,
    /// The keys that it sees. The vectors below run over these.
    pub visible: Vec<usize>,
    /// `scale <q, k_i>`.
    pub product: Vec<Float>,
    /// Bias and ALiBi term.
    pub addends: Vec<Addends>,
    pub score: Vec<Float>,
    /// The score's derivative by the product.
    pub slope: Vec<Float>,
    pub probability: Vec<Float>,
    /// What dropout multiplies the weight by, `z_i`.
    pub dropout: Vec<f64>,
    /// `<dO, v_i>`, before dropout.
    pub dp: Vec<Float>,
    /// `z_i dP_i - D + g`.
    pub centred: Vec<Float>,
    pub ds: Vec<Float>,
    pub lse: Float,
    /// `D`.
    pub delta: Float,
    pub sink: Option<DefinedSink>,
}

/// The sink of a row.
#[derive(Debug)]
pub struct DefinedSink {
    pub logit: f64,
    pub probability: Float,
    /// `g - D`.
    pub centred: Float,
}

/// The gradients of a problem, evaluated entry by entry.
#[derive(Debug)]
pub struct Definition<'c> {
    case: &'c GradientCase,
    scale: Float,
    /// Rows that see a key, in order.
    pub rows: Vec<DefinedRow>,
}

/// A number in the evaluation's precision.
pub fn number(x: f64) -> Float {
    Float::with_val(PRECISION, x)
}

fn sum(terms: impl Iterator<Item = Float>) -> Float {
    terms.fold(number(0.0), |sum, term| sum + term)
}

fn dot<'v>(x: impl Iterator<Item = &'v f64>, y: impl Iterator<Item = &'v f64>) -> Float {
    let rational = |x: &f64| Rational::from_f64(*x).expect("a finite entry");
    let dot: Rational = x.zip(y).map(|(x, y)| rational(x) * rational(y)).sum();
    Float::with_val(PRECISION, dot)
}

impl<'c> Definition<'c> {
    pub fn new(case: &'c GradientCase) -> Self {
        let scale = scale(&case.problem);
        let row = |index| row(case, &scale, index);
        let rows = all_rows(&case.problem).into_iter().filter_map(row).collect();
        Self { case, scale, rows }
    }

    /// The row with this index; `None` where it sees no key.
    pub fn row(&self, index: RowIndex) -> Option<&DefinedRow> {
        self.rows.iter().find(|row| row.index == index)
    }

    /// `dQ_j = scale * sum_i dS_i k_ij`.
    pub fn query_gradient(&self, index: RowIndex, column: usize) -> Float {
        let Some(row) = self.row(index) else { return number(0.0) };
        self.scaled(
            (0..row.visible.len())
                .map(|at| (row.by_product(at), self.key(row, row.visible[at], column))),
        )
    }

    /// `sum_i p_i c_i k_ij`, with `c_i` the slope of the softcap.
    pub fn mean_key(&self, index: RowIndex, column: usize) -> Float {
        let Some(row) = self.row(index) else { return number(0.0) };
        sum((0..row.visible.len()).map(|at| {
            let weight = row.probability[at].clone() * &row.slope[at];
            weight * self.key(row, row.visible[at], column)
        }))
    }

    /// `dK_ij = scale * sum_r dS_ri q_rj`.
    pub fn key_gradient(&self, index: KeyIndex, column: usize) -> Float {
        let query = self.case.inputs.query.view4();
        self.scaled(self.seen_by(index).map(|(row, at)| {
            let RowIndex { batch, head, query: position } = row.index;
            (row.by_product(at), query[[batch, head, position, column]])
        }))
    }

    /// `dV_ij = sum_r p_ri z_ri dO_rj`.
    pub fn value_gradient(&self, index: KeyIndex, column: usize) -> Float {
        let cotangent = self.case.cotangents.output.view4();
        sum(self.seen_by(index).map(|(row, at)| {
            let RowIndex { batch, head, query } = row.index;
            let kept = row.probability[at].clone() * row.dropout[at];
            kept * cotangent[[batch, head, query, column]]
        }))
    }

    /// The gradient of the entry of the bias at this place of its own shape: the sum over all sites that
    /// it stands for.
    pub fn bias_gradient(&self, place: [usize; 4]) -> Float {
        let shape = self.case.problem.bias.expect("a bias").shape;
        sum(self.rows.iter().flat_map(|row| {
            let RowIndex { batch, head, query } = row.index;
            let here = move |&at: &usize| {
                broadcast_place(shape, [batch, head, query, row.visible[at]]) == place
            };
            (0..row.visible.len()).filter(here).map(|at| self.by_addend(row, at))
        }))
    }

    /// The gradient of the logit of a head's sink: `sum p (g - D)` over batch and queries.
    pub fn sink_gradient(&self, head: usize) -> Float {
        let Problem { mask, query_len, .. } = &self.case.problem;
        let in_use = |index: &RowIndex| index.query < mask.used_queries(index.batch, *query_len);
        let rows = all_rows(&self.case.problem).into_iter();
        let rows = rows.filter(|index| index.head == head && in_use(index));
        sum(rows.map(|index| match self.row(index) {
            None => number(lse_gradient(self.case, index)),
            Some(row) => {
                let sink = row.sink.as_ref().expect("a sink");
                sink.probability.clone() * &sink.centred
            }
        }))
    }

    /// `dS_i`, or its part that a softcap around the bias lets through.
    fn by_addend(&self, row: &DefinedRow, at: usize) -> Float {
        match self.case.problem.softcap {
            Some(Softcap { order: SoftcapOrder::AfterBias, .. }) => row.by_product(at),
            _ => row.ds[at].clone(),
        }
    }

    /// The rows that see a key, with its place among their visible keys.
    pub fn seen_by(&self, index: KeyIndex) -> impl Iterator<Item = (&DefinedRow, usize)> {
        let reads = move |row: &&DefinedRow| {
            let key_head = self.case.problem.key_head_of(row.index.head);
            (row.index.batch, key_head) == (index.batch, index.key_head)
        };
        let place =
            move |row: &DefinedRow| row.visible.iter().position(|&visible| visible == index.key);
        self.rows.iter().filter(reads).filter_map(move |row| Some((row, place(row)?)))
    }

    fn key(&self, row: &DefinedRow, key: usize, column: usize) -> f64 {
        let key_head = self.case.problem.key_head_of(row.index.head);
        self.case.inputs.key.view4()[[row.index.batch, key_head, key, column]]
    }

    fn scaled(&self, terms: impl Iterator<Item = (Float, f64)>) -> Float {
        sum(terms.map(|(dx, entry)| dx * entry)) * &self.scale
    }
}

impl DefinedRow {
    /// `dS_i c_i`, with `c_i` the slope of the softcap.
    pub fn by_product(&self, at: usize) -> Float {
        self.ds[at].clone() * &self.slope[at]
    }
}

/// The upstream gradient of a row's LSE.
pub fn lse_gradient(case: &GradientCase, index: RowIndex) -> f64 {
    let RowIndex { batch, head, query } = index;
    case.cotangents.lse.as_ref().map_or(0.0, |lse| lse.view3()[[batch, head, query]])
}

fn scale(problem: &Problem) -> Float {
    match problem.scale {
        Scale::Value(scale) => number(scale),
        Scale::InverseSqrtHeadDim => number(problem.head_dim as f64).sqrt().recip(),
    }
}

fn row(case: &GradientCase, scale: &Float, index: RowIndex) -> Option<DefinedRow> {
    let GradientCase { problem, inputs, cotangents, .. } = case;
    let RowIndex { batch, head, query } = index;
    let visible = inputs.visible_keys(problem, batch, head, query);
    if visible.is_empty() {
        return None;
    }
    let key_head = problem.key_head_of(head);
    let (queries, keys) = (inputs.query.view4(), inputs.key.view4());
    let (values, upstream) = (inputs.value.view4(), cotangents.output.view4());
    let lane = |tensor: &ndarray::ArrayView4<'_, f64>, head: usize, position: usize| {
        let extent = tensor.dim().3;
        (0..extent).map(|j| tensor[[batch, head, position, j]]).collect::<Vec<f64>>()
    };
    let q = lane(&queries, head, query);
    let d_o = lane(&upstream, head, query);
    let g = lse_gradient(case, index);
    let of_keys = |tensor, row: &[f64]| -> Vec<Float> {
        visible.iter().map(|&key| dot(row.iter(), lane(tensor, key_head, key).iter())).collect()
    };
    let site = |key: usize| Site { batch, head, query, key };
    let product: Vec<Float> = of_keys(&keys, &q).into_iter().map(|dot| dot * scale).collect();
    let addends: Vec<Addends> =
        visible.iter().map(|&key| inputs.addends_at(problem, site(key))).collect();
    let capped = product.iter().zip(&addends).map(|(x, addends)| score(problem, x, *addends));
    let (score, slope): (Vec<Float>, Vec<Float>) = capped.unzip();
    let dp = of_keys(&values, &d_o);
    let dropout: Vec<f64> = visible.iter().map(|&key| problem.dropout_at(site(key))).collect();
    let kept: Vec<Float> = dp.iter().zip(&dropout).map(|(dp, z)| dp.clone() * z).collect();
    // MPFR's exponents have room for any score here, and its precision for any sum.
    let logit = inputs.sink_at(problem, head);
    let scores = score.iter().cloned().chain(logit.map(number));
    let largest = scores.clone().reduce(|x, y| x.max(&y)).expect("a visible key");
    let normalizer = sum(scores.map(|s| (s - &largest).exp()));
    let weigh = |s: &Float| (s.clone() - &largest).exp() / &normalizer;
    let probability: Vec<Float> = score.iter().map(weigh).collect();
    let delta = sum(probability.iter().zip(&kept).map(|(p, dp)| p.clone() * dp));
    let centred: Vec<Float> = kept.iter().map(|dp| dp.clone() - &delta + number(g)).collect();
    let ds = probability.iter().zip(&centred).map(|(p, t)| p.clone() * t).collect();
    let sink = logit.map(|logit| DefinedSink {
        logit,
        probability: weigh(&number(logit)),
        centred: number(g) - &delta,
    });
    let lse = normalizer.ln() + largest;
    Some(DefinedRow {
        index,
        visible,
        product,
        addends,
        score,
        slope,
        probability,
        dropout,
        dp,
        centred,
        ds,
        lse,
        delta,
        sink,
    })
}

/// A score and its derivative by the product.
fn score(problem: &Problem, product: &Float, Addends { bias, alibi }: Addends) -> (Float, Float) {
    let addend = number(bias) + alibi;
    let Some(Softcap { cap, order }) = problem.softcap else {
        return (addend + product, number(1.0));
    };
    let inside = order == SoftcapOrder::AfterBias;
    let argument = if inside { addend.clone() + product } else { product.clone() } / cap;
    let capped = argument.clone().tanh() * cap;
    // 1 - tanh^2 = 1 / cosh^2, of which no digits cancel.
    let slope = argument.sech().square();
    (if inside { capped } else { capped + addend }, slope)
}
