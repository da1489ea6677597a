//! The failing input as a file that `flashproof judge` takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use flashproof_oracle::error::OracleError;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayD, IxDyn};

use super::{Example, Explanation};
use crate::io::safetensors::{self, WriteError};
use crate::run::{Given, Instance};
use crate::verdict::{Answer, Compared, GradientAnswer, Quantity, judge_gradients, judge_rows};

/// An example that could not be written.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum WriteExampleError {
    #[error(transparent)]
    File(#[from] WriteError),
    #[error("the exact answer could not be computed: {0}")]
    Oracle(#[from] OracleError),
    #[error("the problem can not be described: {0}")]
    Description(#[from] serde_json::Error),
}

/// Writes the example as a safetensors file: the inputs, what the kernel gave under the usual names,
/// and beside each of its tensors `expected_` one, the exact answer rounded, NaN where there is no one
/// number.
///
/// The metadata holds `problem`, as the kernel reads it, and `profile`, as `judge` takes both; `kernel`,
/// `case`, and `clause`, what is violated.
///
/// # Errors
/// [`WriteExampleError`] names the file. Nothing is left behind.
pub fn write(
    explanation: &Explanation,
    example: &Example,
    path: &Path,
) -> Result<(), WriteExampleError> {
    let given = example.shrunk.examined.given.as_ref();
    let Instance { problem, inputs, cotangents, .. } = &example.shrunk.instance;
    let inputs = given.map_or(inputs, |given| &given.inputs);
    let mut tensors =
        vec![("query", &inputs.query), ("key", &inputs.key), ("value", &inputs.value)];
    tensors.extend(inputs.bias.as_ref().map(|it| ("bias", it)));
    tensors.extend(inputs.sink.as_ref().map(|it| ("sink", it)));
    if let Some(cotangents) = cotangents {
        tensors.push(("output_gradient", &cotangents.output));
        tensors.extend(cotangents.lse.as_ref().map(|it| ("lse_gradient", it)));
    }
    let answers = given.map_or_else(Vec::new, answers);
    let expected = given.map(|given| expected(explanation, example, given)).transpose()?;
    let expected = expected.unwrap_or_default();
    tensors.extend(answers.iter().map(|&(quantity, tensor)| (name_of(quantity), tensor)));
    tensors.extend(expected.iter().map(|(name, tensor)| (&name[..], tensor)));
    let problem = given.map_or(problem, |given| &given.read);
    let metadata = [
        ("problem", serde_json::to_string(problem)?),
        ("profile", declared(&example.profile)?),
        ("kernel", explanation.kernel.clone()),
        ("case", explanation.report.name.clone()),
        ("clause", example.target.clause.unwrap_or_default().to_owned()),
    ];
    let metadata: BTreeMap<String, String> =
        metadata.into_iter().map(|(name, text)| (name.to_owned(), text)).collect();
    Ok(safetensors::write(path, &tensors, &metadata)?)
}

/// The profile in the form in which a worker declares one.
fn declared(profile: &Profile) -> serde_json::Result<String> {
    let mut declared = serde_json::to_value(profile)?;
    declared["base"] = "standard".into();
    serde_json::to_string(&declared)
}

/// The name of an output in a file.
pub(super) const fn name_of(quantity: Quantity) -> &'static str {
    match quantity {
        Quantity::Output => "output",
        Quantity::Lse => "lse",
        Quantity::QueryGradient => "query_gradient",
        Quantity::KeyGradient => "key_gradient",
        Quantity::ValueGradient => "value_gradient",
        Quantity::BiasGradient => "bias_gradient",
        Quantity::SinkGradient => "sink_gradient",
    }
}

/// What the kernel gave.
fn answers(given: &Given) -> Vec<(Quantity, &Tensor)> {
    let of = |quantity| given.tensor(quantity).map(|tensor| (quantity, tensor));
    Quantity::ALL.into_iter().filter_map(of).collect()
}

/// What it should have given.
fn expected(
    explanation: &Explanation,
    example: &Example,
    given: &Given,
) -> Result<Vec<(String, Tensor)>, OracleError> {
    let answers = answers(given);
    let unknown = |&(quantity, tensor): &(Quantity, &Tensor)| {
        (quantity, ArrayD::from_elem(IxDyn(tensor.shape()), f64::NAN))
    };
    let wanted: Mutex<BTreeMap<Quantity, ArrayD<f64>>> =
        Mutex::new(answers.iter().map(unknown).collect());
    let visit = |elements: &[Compared]| {
        let mut wanted = wanted.lock().unwrap_or_else(PoisonError::into_inner);
        for Compared { quantity, element, .. } in elements {
            if let Some(values) = wanted.get_mut(quantity) {
                values[&element.location.indices()[..]] = element.want.expected();
            }
        }
    };
    let forward = Answer {
        problem: &given.read,
        inputs: &given.inputs,
        outputs: &given.outputs,
        profile: &example.profile,
        choices: explanation.choices,
    };
    judge_rows(&forward, &forward.every_row(), visit)?;
    if let Some((cotangents, gradients)) =
        example.shrunk.instance.cotangents.as_ref().zip(given.gradients.as_ref())
    {
        let answer = GradientAnswer { forward, cotangents, gradients, wrong_rows: &[] };
        judge_gradients(&answer, &answer.every_place(), visit)?;
    }
    let wanted = wanted.into_inner().unwrap_or_else(PoisonError::into_inner);
    let tensor = |(quantity, tensor): (Quantity, &Tensor)| {
        let values = wanted.get(&quantity)?;
        let name = name_of(quantity);
        Some((format!("expected_{name}"), Tensor::rounded(tensor.format(), values)))
    };
    Ok(answers.into_iter().filter_map(tensor).collect())
}
