//! The tensors of a backward pass: upstream gradients, and what came of them.

use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Tensor};

use super::source::Source;
use super::{JudgeError, Names};

/// A tensor of the backward pass: the option that names it, its usual names, and its axes.
struct Role {
    option: &'static str,
    usual: &'static [&'static str],
    rank: usize,
}

const OUTPUT_GRADIENT: Role =
    Role { option: "output-gradient", usual: &["output_gradient", "do", "dO"], rank: 4 };
const LSE_GRADIENT: Role =
    Role { option: "lse-gradient", usual: &["lse_gradient", "dlse", "dLSE"], rank: 3 };
const QUERY_GRADIENT: Role =
    Role { option: "query-gradient", usual: &["query_gradient", "dq", "dQ"], rank: 4 };
const KEY_GRADIENT: Role =
    Role { option: "key-gradient", usual: &["key_gradient", "dk", "dK"], rank: 4 };
const VALUE_GRADIENT: Role =
    Role { option: "value-gradient", usual: &["value_gradient", "dv", "dV"], rank: 4 };

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
    let found = [
        (QUERY_GRADIENT, &names.query_gradient),
        (KEY_GRADIENT, &names.key_gradient),
        (VALUE_GRADIENT, &names.value_gradient),
    ]
    .map(|(role, name)| role.find(files, name.as_deref()).map(|tensor| (role, tensor)));
    let [query, key, value] = found;
    let (query, key, value) = (query?, key?, value?);
    let asked = names.output_gradient.is_some() || names.lse_gradient.is_some();
    if !asked && [&query, &key, &value].iter().all(|(_, tensor)| tensor.is_none()) {
        return Ok(None);
    }
    let required =
        |(role, tensor): (Role, Option<Tensor>)| tensor.ok_or_else(|| role.missing(files));
    let gradients =
        Gradients { query: required(query)?, key: required(key)?, value: required(value)? };
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
        files.get_mut(at).map_or(Ok(None), |file| file.optional(given, self.usual, self.rank))
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
