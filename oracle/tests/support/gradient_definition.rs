//! The gradients by their definition, evaluated by brute force in so many bits that rounding errors
//! are far below anything that is compared with them.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_oracle::backward::KeyIndex;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::problem::{Problem, Scale};
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
    pub score: Vec<Float>,
    pub probability: Vec<Float>,
    pub dp: Vec<Float>,
    /// `dP_i - D + g`.
    pub centred: Vec<Float>,
    pub ds: Vec<Float>,
    pub lse: Float,
    /// `D`.
    pub delta: Float,
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
            row.ds.iter().zip(&row.visible).map(|(ds, &key)| (ds, self.key(row, key, column))),
        )
    }

    /// `sum_i p_i k_ij`.
    pub fn mean_key(&self, index: RowIndex, column: usize) -> Float {
        let Some(row) = self.row(index) else { return number(0.0) };
        let pairs = row.probability.iter().zip(&row.visible);
        sum(pairs.map(|(p, &key)| p.clone() * self.key(row, key, column)))
    }

    /// `dK_ij = scale * sum_r dS_ri q_rj`.
    pub fn key_gradient(&self, index: KeyIndex, column: usize) -> Float {
        let query = self.case.inputs.query.view4();
        self.scaled(self.seen_by(index).map(|(row, at)| {
            let RowIndex { batch, head, query: position } = row.index;
            (&row.ds[at], query[[batch, head, position, column]])
        }))
    }

    /// `dV_ij = sum_r p_ri dO_rj`.
    pub fn value_gradient(&self, index: KeyIndex, column: usize) -> Float {
        let cotangent = self.case.cotangents.output.view4();
        sum(self.seen_by(index).map(|(row, at)| {
            let RowIndex { batch, head, query } = row.index;
            row.probability[at].clone() * cotangent[[batch, head, query, column]]
        }))
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

    fn scaled<'d>(&self, terms: impl Iterator<Item = (&'d Float, f64)>) -> Float {
        sum(terms.map(|(ds, entry)| ds.clone() * entry)) * &self.scale
    }
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
    let visible = problem.visible_keys(batch, head, query);
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
    let g = cotangents.lse.as_ref().map_or(0.0, |lse| lse.view3()[[batch, head, query]]);
    let of_keys = |tensor, row: &[f64]| -> Vec<Float> {
        visible.iter().map(|&key| dot(row.iter(), lane(tensor, key_head, key).iter())).collect()
    };
    let score: Vec<Float> = of_keys(&keys, &q).into_iter().map(|dot| dot * scale).collect();
    let dp = of_keys(&values, &d_o);
    // MPFR's exponents have room for any score here, and its precision for any sum.
    let largest = score.iter().fold(score[0].clone(), Float::max);
    let weight: Vec<Float> = score.iter().map(|s| (s.clone() - &largest).exp()).collect();
    let normalizer = sum(weight.iter().cloned());
    let probability: Vec<Float> = weight.into_iter().map(|w| w / &normalizer).collect();
    let delta = sum(probability.iter().zip(&dp).map(|(p, dp)| p.clone() * dp));
    let centred: Vec<Float> = dp.iter().map(|dp| dp.clone() - &delta + number(g)).collect();
    let ds = probability.iter().zip(&centred).map(|(p, t)| p.clone() * t).collect();
    let lse = normalizer.ln() + largest;
    Some(DefinedRow { index, visible, score, probability, dp, centred, ds, lse, delta })
}
