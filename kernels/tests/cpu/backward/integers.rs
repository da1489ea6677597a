//! Gradients of whole numbers, which every kernel must get exactly.
//!
//! A score equals its row's LSE, and its key weighs `e^0 = 1`, or lies so far below it that its
//! weight underflows to 0. (The LSE need not be the row's own: gradients are a function of the LSE
//! that is handed over.) Then all equations are sums of products of small integers, and all that is
//! rounded is the result, when it is stored.

use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::{Problem, Scale};
use ndarray::{Array3, Array4, s};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::support::problems::problems;
use crate::support::sight::sees;
use crate::support::{cotangents, differentiate, inputs, kernels, outputs, values};

/// Powers of two, so that scaling an integer rounds nothing.
const SCALES: [f64; 4] = [1.0, 2.0, 0.5, -0.5];

/// Twice the difference of scores at which the lower one weighs nothing: `e^-1024` is below every
/// `f64`, and the smallest scale is one half.
const APART: i64 = 2048;

/// The largest entry elsewhere. Of at most 4 value entries it keeps `|dS|` below 256, up to which
/// `bf16` has every integer; of at most 27 rows and 9 keys it keeps every sum, those with `APART`
/// included, below `2^24`, up to which `f32` has.
const LARGEST: i64 = 3;

#[derive(Debug)]
struct Case {
    problem: Problem,
    query: Array4<i64>,
    key: Array4<i64>,
    value: Array4<i64>,
    output: Array4<i64>,
    output_gradient: Array4<i64>,
    lse_gradient: Array3<i64>,
}

impl Case {
    /// The first entries of query and key make the score; of the others, queries have only the odd
    /// ones and keys only the even ones.
    fn draw(problem: Problem, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut small = |shape: [usize; 4]| {
            Array4::from_shape_simple_fn(shape, || rng.random_range(-LARGEST..=LARGEST))
        };
        let [mut query, mut key] = [small(problem.query_shape()), small(problem.key_shape())];
        let value = small(problem.value_shape());
        let [output, output_gradient] = [(); 2].map(|()| small(problem.output_shape()));
        query.slice_mut(s![.., .., .., ..;2]).fill(0);
        key.slice_mut(s![.., .., .., 1..;2]).fill(0);
        query.slice_mut(s![.., .., .., 0]).map_inplace(|q| *q = APART * rng.random_range(-1..=1));
        key.slice_mut(s![.., .., .., 0]).map_inplace(|k| *k = rng.random_range(0..=1));
        let lse_gradient = Array3::from_shape_simple_fn(problem.lse_shape(), || {
            rng.random_range(-LARGEST..=LARGEST)
        });
        Self { problem, query, key, value, output, output_gradient, lse_gradient }
    }

    fn scale(&self) -> f64 {
        match self.problem.scale {
            Scale::Value(scale) => scale,
            Scale::InverseSqrtHeadDim => unreachable!("cases have one of SCALES"),
        }
    }

    fn score(&self, [batch, head, query]: [usize; 3], key: usize) -> f64 {
        let q = self.query.slice(s![batch, head, query, ..]);
        let k = self.key.slice(s![batch, self.key_head(head), key, ..]);
        self.scale() * q.dot(&k) as f64
    }

    fn key_head(&self, head: usize) -> usize {
        head * self.problem.key_heads / self.problem.query_heads
    }

    fn visible(&self, [batch, head, query]: [usize; 3]) -> Vec<usize> {
        let seen = |&key: &usize| sees(&self.problem, Site { batch, head, query, key });
        (0..self.problem.key_len).filter(seen).collect()
    }

    /// The largest visible score, `-inf` where there is none.
    fn lse(&self, row: [usize; 3]) -> f64 {
        let scores = self.visible(row).into_iter().map(|key| self.score(row, key));
        scores.fold(f64::NEG_INFINITY, f64::max)
    }

    fn lse_of_rows(&self) -> Array3<f64> {
        Array3::from_shape_fn(self.problem.lse_shape(), |(batch, head, query)| {
            self.lse([batch, head, query])
        })
    }

    /// `dQ`, `dK`, `dV`: the first two are scaled where they are stored.
    fn gradients(&self) -> [Array4<i64>; 3] {
        let [mut dq, mut dk, mut dv] =
            [self.query.dim(), self.key.dim(), self.value.dim()].map(Array4::zeros);
        for (row, &dl) in self.lse_gradient.indexed_iter() {
            let (batch, head, query) = row;
            let row = [batch, head, query];
            let q = self.query.slice(s![batch, head, query, ..]);
            let d_o = self.output_gradient.slice(s![batch, head, query, ..]);
            let delta = d_o.dot(&self.output.slice(s![batch, head, query, ..]));
            for key in
                self.visible(row).into_iter().filter(|&k| self.score(row, k) == self.lse(row))
            {
                let at = s![batch, self.key_head(head), key, ..];
                let ds = d_o.dot(&self.value.slice(at)) - delta + dl;
                dv.slice_mut(at).scaled_add(1, &d_o);
                dq.slice_mut(s![batch, head, query, ..]).scaled_add(ds, &self.key.slice(at));
                dk.slice_mut(at).scaled_add(ds, &q);
            }
        }
        [dq, dk, dv]
    }
}

fn reals(integers: &Array4<i64>) -> Vec<f64> {
    integers.iter().map(|&n| n as f64).collect()
}

fn stored(sums: &Array4<i64>, factor: f64, format: Format) -> Vec<f64> {
    sums.iter().map(|&sum| format.round(factor * sum as f64)).collect()
}

proptest! {
    #[test]
    fn sums_of_integers_are_exact(
        problem in problems(),
        scale in proptest::sample::select(&SCALES[..]),
        seed: u64,
    ) {
        let case = Case::draw(Problem { scale: Scale::Value(scale), ..problem }, seed);
        let Case { problem, query, key, value, output, output_gradient, lse_gradient } = &case;
        let inputs = inputs(problem, &reals(query), &reals(key), &reals(value));
        let lse: Vec<f64> = case.lse_of_rows().into_iter().collect();
        let outputs = outputs(problem, &reals(output), &lse);
        let lse_gradient: Vec<f64> = lse_gradient.iter().map(|&n| n as f64).collect();
        let cotangents = cotangents(problem, &reals(output_gradient), Some(&lse_gradient));
        let [dq, dk, dv] = case.gradients();
        let format = problem.format;
        for kernel in kernels() {
            let gradients = differentiate(kernel.as_ref(), problem, &inputs, &outputs, &cotangents);
            prop_assert_eq!(values(&gradients.query), stored(&dq, scale, format), "dQ, {}", kernel.name());
            prop_assert_eq!(values(&gradients.key), stored(&dk, scale, format), "dK, {}", kernel.name());
            prop_assert_eq!(values(&gradients.value), stored(&dv, 1.0, format), "dV, {}", kernel.name());
        }
    }
}
