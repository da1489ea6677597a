//! The tensors of a backward pass: upstream gradients, and what came of them.

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Gradients, Tensor};

use super::source::Source;
use super::{JudgeError, Names};

/// A tensor of the backward pass: the option that names it, its usual names, and its axes.
struct Role {
    option: &'static str,
    usual: &'static [&'static str],
    axes: Axes,
}

/// Which axes a tensor has.
#[derive(Clone, Copy)]
enum Axes {
    /// Batch, head, position and entry, in the order of the file.
    Activations,
    /// This many, in the usual order.
    Rank(usize),
}

const OUTPUT_GRADIENT: Role = Role {
    option: "output-gradient",
    usual: &["output_gradient", "do", "dO"],
    axes: Axes::Activations,
};
const LSE_GRADIENT: Role =
    Role { option: "lse-gradient", usual: &["lse_gradient", "dlse", "dLSE"], axes: Axes::Rank(3) };
const QUERY_GRADIENT: Role = Role {
    option: "query-gradient",
    usual: &["query_gradient", "dq", "dQ"],
    axes: Axes::Activations,
};
const KEY_GRADIENT: Role =
    Role { option: "key-gradient", usual: &["key_gradient", "dk", "dK"], axes: Axes::Activations };
const VALUE_GRADIENT: Role = Role {
    option: "value-gradient",
    usual: &["value_gradient", "dv", "dV"],
    axes: Axes::Activations,
};
const BIAS_GRADIENT: Role = Role {
    option: "bias-gradient",
    usual: &["bias_gradient", "dbias", "dBias"],
    axes: Axes::Rank(4),
};
const SINK_GRADIENT: Role = Role {
    option: "sink-gradient",
    usual: &["sink_gradient", "dsink", "dSink"],
    axes: Axes::Rank(1),
};

/// The upstream gradients in the files, the first one first; `None` where no file has that of the
/// output.
pub(super) fn cotangents(
    files: &mut [&mut Source],
    names: &Names,
    problem: &Problem,
    profile: &Profile,
) -> Result<Option<Cotangents>, JudgeError> {
    let output = OUTPUT_GRADIENT.find(files, names.output_gradient.as_deref())?;
    let lse = LSE_GRADIENT.find(files, names.lse_gradient.as_deref())?;
    let Some(output) = output else {
        let asked = names.lse_gradient.is_some();
        return if asked { Err(OUTPUT_GRADIENT.missing(files)) } else { Ok(None) };
    };
    let cotangents = Cotangents { output, lse };
    cotangents.check(problem, profile.lse_format)?;
    Ok(Some(cotangents))
}

/// Upstream gradients and gradients in the files, the last file first for gradients; `None` where
/// there is no gradient, and no upstream gradient was asked for by name.
pub(super) fn backward(
    files: &mut [&mut Source],
    names: &Names,
    problem: &Problem,
    profile: &Profile,
) -> Result<Option<(Cotangents, Gradients)>, JudgeError> {
    let cotangents = cotangents(files, names, problem, profile)?;
    files.reverse();
    let mut find = |role: &Role, name: &Option<String>| role.find(files, name.as_deref());
    let query = find(&QUERY_GRADIENT, &names.query_gradient)?;
    let key = find(&KEY_GRADIENT, &names.key_gradient)?;
    let value = find(&VALUE_GRADIENT, &names.value_gradient)?;
    let bias = find(&BIAS_GRADIENT, &names.bias_gradient)?;
    let sink = find(&SINK_GRADIENT, &names.sink_gradient)?;
    let asked = names.output_gradient.is_some() || names.lse_gradient.is_some();
    if !asked && [&query, &key, &value, &bias, &sink].iter().all(|tensor| tensor.is_none()) {
        return Ok(None);
    }
    let required = |role: &Role, tensor: Option<Tensor>| tensor.ok_or_else(|| role.missing(files));
    let has_logits = matches!(problem.sink, Some(Sink::Logits(_)));
    let gradients = Gradients {
        query: required(&QUERY_GRADIENT, query)?,
        key: required(&KEY_GRADIENT, key)?,
        value: required(&VALUE_GRADIENT, value)?,
        bias: match problem.bias {
            Some(_) => Some(required(&BIAS_GRADIENT, bias)?),
            None => bias,
        },
        sink: if has_logits { Some(required(&SINK_GRADIENT, sink)?) } else { sink },
    };
    gradients.check(problem)?;
    let cotangents = cotangents.ok_or_else(|| OUTPUT_GRADIENT.missing(files))?;
    Ok(Some((cotangents, gradients)))
}

impl Role {
    /// The tensor of the given name, or of the first usual one, in the first file that has it.
    fn find(
        &self,
        files: &mut [&mut Source],
        given: Option<&str>,
    ) -> Result<Option<Tensor>, JudgeError> {
        let has = |file: &Source| match given {
            Some(name) => file.contains(name),
            None => self.usual.iter().any(|name| file.contains(name)),
        };
        // A name that no file has is an error of the last one.
        let last = files.len().saturating_sub(1);
        let at = files.iter().position(|file| has(file)).unwrap_or(last);
        files.get_mut(at).map_or(Ok(None), |file| match self.axes {
            Axes::Activations => file.activations(given, self.usual),
            Axes::Rank(rank) => file.optional(given, self.usual, rank),
        })
    }

    fn missing(&self, files: &[&mut Source]) -> JudgeError {
        let join = |words: Vec<String>, by: &str| words.join(by);
        JudgeError::NoTensor {
            file: join(files.iter().map(|file| file.file().to_owned()).collect(), "', '"),
            role: self.option,
            tried: self.usual.join(" or "),
            present: join(files.iter().map(|file| file.present()).collect(), ", "),
        }
    }
}
