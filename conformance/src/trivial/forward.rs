//! Outputs and LSEs that are no attention.

use std::collections::BTreeMap;

use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::tensor::Tensor;
use ndarray::{Array1, Array3, Array4, ArrayD, ArrayView3, IxDyn, s};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, StandardNormal};

use super::{Answer, Question, reference};
use crate::inputs::{self, Family, Scores};
use crate::verdict::Quantity;

/// Seed of the noise, and of the inputs that stale outputs are of.
pub(super) const SEED: u64 = 0x7269_7669_616c;

/// The tensors that the answer replaces.
pub(super) fn tensors(answer: Answer, question: &Question<'_>) -> BTreeMap<Quantity, Tensor> {
    let problem = question.problem;
    let (output, lse) = match answer {
        Answer::Zeros => (filled(question, 0.0), Some(lse_filled(question, 0.0))),
        Answer::ZeroOutput => (filled(question, 0.0), None),
        Answer::MeanOfVisible => (means(question, |_, _| 1.0), None),
        Answer::MeanOfAll => (mean_of_all(question), None),
        Answer::Uniform => {
            let kept = |question: &Question<'_>, site| question.problem.dropout_at(site);
            (means(question, kept), Some(counted(question)))
        }
        Answer::Noise => {
            let output = noise(problem.output_format(), &problem.output_shape(), 0);
            (output, Some(noise(question.lse_format, &problem.lse_shape(), 1)))
        }
        Answer::Nan => (filled(question, f64::NAN), Some(lse_filled(question, f64::NAN))),
        Answer::Stale => {
            let other = inputs::generate(problem, Family::of(Scores::Normal), SEED);
            let other = other.expect("normal inputs fit every problem");
            let stale = reference::outputs(problem, &other);
            let lse = stale.lse.map(|lse| written(question, &lse.view3()));
            (Tensor::rounded(problem.output_format(), stale.output.values()), lse)
        }
        Answer::CopiedValue => (cycled(&question.inputs.value, &filled(question, 0.0)), None),
        Answer::CopiedQuery => (cycled(&question.inputs.query, &filled(question, 0.0)), None),
        Answer::Narrower => {
            let exact = reference::outputs(problem, question.inputs).output;
            (reference::rounded(problem.output_format(), &exact), None)
        }
        _ => return BTreeMap::new(),
    };
    let output = (Quantity::Output, output);
    [Some(output), lse.map(|lse| (Quantity::Lse, lse))].into_iter().flatten().collect()
}

fn filled(question: &Question<'_>, value: f64) -> Tensor {
    let shape = question.problem.output_shape();
    Tensor::rounded(question.problem.output_format(), &Array4::from_elem(shape, value).into_dyn())
}

fn lse_filled(question: &Question<'_>, value: f64) -> Tensor {
    let shape = question.problem.lse_shape();
    Tensor::rounded(question.lse_format, &Array3::from_elem(shape, value).into_dyn())
}

/// LSEs in nats, as the kernel writes them.
fn written(question: &Question<'_>, nats: &ArrayView3<'_, f64>) -> Tensor {
    let lse = nats.mapv(|nats| question.convention.written(nats)).into_dyn();
    Tensor::rounded(question.lse_format, &lse)
}

/// The mean, in each row, of the values that it sees, each times its factor; zero where it sees none.
fn means(question: &Question<'_>, factor: impl Fn(&Question<'_>, Site) -> f64) -> Tensor {
    let problem = question.problem;
    let inputs = question.inputs.dequantized(problem);
    let values = inputs.value.view4();
    let mut output = Array4::zeros(problem.output_shape());
    for (batch, head, query) in ndarray::indices(problem.lse_shape()) {
        let keys = inputs.visible_keys(problem, batch, head, query);
        let key_head = problem.key_head_of(head);
        let mut sum = Array1::<f64>::zeros(problem.value_dim);
        for &key in &keys {
            let factor = factor(question, Site { batch, head, query, key });
            sum.scaled_add(factor, &values.slice(s![batch, key_head, key, ..]));
        }
        sum.mapv_inplace(|entry| entry / keys.len().max(1) as f64);
        output.slice_mut(s![batch, head, query, ..]).assign(&sum);
    }
    Tensor::rounded(problem.output_format(), &output.into_dyn())
}

/// In every row, the mean of all values of the head that have a place in memory.
fn mean_of_all(question: &Question<'_>) -> Tensor {
    let problem = question.problem;
    let inputs = question.inputs.dequantized(problem);
    let values = inputs.value.view4();
    let mut output = Array4::zeros(problem.output_shape());
    for (batch, head) in ndarray::indices((problem.batch, problem.query_heads)) {
        let stored = (0..problem.key_len).filter(|&key| problem.has_key_row(batch, key));
        let keys: Vec<_> = stored.collect();
        let mut sum = Array1::<f64>::zeros(problem.value_dim);
        for &key in &keys {
            sum += &values.slice(s![batch, problem.key_head_of(head), key, ..]);
        }
        sum.mapv_inplace(|entry| entry / keys.len().max(1) as f64);
        for mut row in output.slice_mut(s![batch, head, .., ..]).rows_mut() {
            row.assign(&sum);
        }
    }
    Tensor::rounded(problem.output_format(), &output.into_dyn())
}

/// The LSE of as many zeros as a row sees keys.
fn counted(question: &Question<'_>) -> Tensor {
    let Question { problem, inputs, .. } = *question;
    let count = |(batch, head, query)| inputs.visible_keys(problem, batch, head, query).len();
    let lse = Array3::from_shape_fn(problem.lse_shape(), |row| (count(row) as f64).ln());
    written(question, &lse.view())
}

/// Standard normal numbers from a stream of their own.
pub(super) fn noise(format: Format, shape: &[usize], stream: u64) -> Tensor {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    rng.set_stream(stream);
    let values = ArrayD::from_shape_simple_fn(IxDyn(shape), || StandardNormal.sample(&mut rng));
    Tensor::rounded(format, &values)
}

/// The values of a tensor, again from the first after the last, in the shape and format of another.
pub(super) fn cycled(source: &Tensor, like: &Tensor) -> Tensor {
    let mut values = source.values().iter().copied().cycle();
    let next = || values.next().unwrap_or(0.0);
    Tensor::rounded(like.format(), &ArrayD::from_shape_simple_fn(like.values().raw_dim(), next))
}
