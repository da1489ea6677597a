//! Tensors by their names in a file.

use std::fs::File;
use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};

use super::{JudgeError, Request, description};
use crate::io::safetensors::Archive;

/// Usual names of the query, in the order that they are looked for.
const QUERY: &[&str] = &["query", "q"];
/// Usual names of the key.
const KEY: &[&str] = &["key", "k"];
/// Usual names of the value.
const VALUE: &[&str] = &["value", "v"];
/// Usual names of the output.
pub(super) const OUTPUT: &[&str] = &["output", "out", "o"];
/// Usual names of the LSE.
pub(super) const LSE: &[&str] = &["lse"];

/// An open file of tensors.
pub(super) struct Source {
    file: String,
    archive: Archive<File>,
}

impl Source {
    pub(super) fn open(path: &Path) -> Result<Self, JudgeError> {
        Ok(Self { file: path.display().to_string(), archive: Archive::open(path)? })
    }

    pub(super) fn file(&self) -> &str {
        &self.file
    }

    pub(super) const fn archive(&mut self) -> &mut Archive<File> {
        &mut self.archive
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.archive.contains(name)
    }

    /// The names of all tensors, for messages.
    pub(super) fn present(&self) -> String {
        let names = self.archive.names();
        if names.is_empty() { "none".to_owned() } else { names.join(", ") }
    }

    /// What a report calls the tensors.
    pub(super) fn name(&self, request: &Request) -> String {
        let query = request.names.query.as_deref();
        format!("{}:{}", self.file, query.or_else(|| self.usual(QUERY)).unwrap_or("query"))
    }

    /// The first of the usual names that the file has.
    fn usual(&self, names: &[&'static str]) -> Option<&'static str> {
        names.iter().copied().find(|name| self.archive.contains(name))
    }

    /// The tensor of the given name, or of the first usual one that the file has; `None` where no
    /// name is given and the file has none of them.
    pub(super) fn optional(
        &mut self,
        given: Option<&str>,
        usual: &[&'static str],
        rank: usize,
    ) -> Result<Option<Tensor>, JudgeError> {
        match given.or_else(|| self.usual(usual)) {
            None => Ok(None),
            Some(name) => Ok(Some(self.archive.tensor_of_rank(name, rank)?)),
        }
    }

    fn required(
        &mut self,
        role: &'static str,
        given: Option<&str>,
        usual: &[&'static str],
    ) -> Result<Tensor, JudgeError> {
        self.optional(given, usual, 4)?.ok_or_else(|| JudgeError::NoTensor {
            file: self.file.clone(),
            role,
            tried: usual.join(" or "),
            present: self.present(),
        })
    }

    /// The problem that tensors, flags and metadata describe, and its inputs.
    pub(super) fn problem_and_inputs(
        &mut self,
        request: &Request,
    ) -> Result<(Problem, Inputs), JudgeError> {
        let names = &request.names;
        let inputs = Inputs {
            query: self.required("query", names.query.as_deref(), QUERY)?,
            key: self.required("key", names.key.as_deref(), KEY)?,
            value: self.required("value", names.value.as_deref(), VALUE)?,
        };
        let problem = description::problem(self, &inputs, &request.described)?;
        problem.validate()?;
        inputs.check(&problem)?;
        if problem.query_len == 0 {
            return Err(JudgeError::NoRows);
        }
        Ok((problem, inputs))
    }
}

/// The extents of tensors of four axes.
pub(super) fn extents(tensor: &Tensor) -> [usize; 4] {
    let (batch, heads, len, dim) = tensor.view4().dim();
    [batch, heads, len, dim]
}

/// The format of the query, which the others must share.
pub(super) fn format(inputs: &Inputs) -> Format {
    inputs.query.format()
}
