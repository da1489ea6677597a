//! Why answers can not be recorded, compared or accepted.

use std::io;

use flashproof_spec::format::Format;

use crate::adapter::Failure;
use crate::run::RunError;

/// Why answers can not be recorded, compared or accepted.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum DriftError {
    #[error("cannot read '{path}': {source}")]
    Read { path: String, source: io::Error },
    #[error("cannot write '{path}': {source}")]
    Write { path: String, source: io::Error },
    #[error("'{path}' is no drift {what}: {reason}")]
    Text { path: String, what: &'static str, reason: String },
    #[error(
        "'{path}' is a drift {what} of version {found}: expected version {expected}; record it again \
         with this program"
    )]
    Version { path: String, what: &'static str, found: String, expected: u32 },
    #[error(
        "the snapshots are of different kernels, '{before}' and '{after}': to compare them all the \
         same, record the second with --as '{before}'"
    )]
    Kernels { before: String, after: String },
    #[error(
        "the kernels were asked different things, {what}: {before} before and {after} after; record \
         the second as the first"
    )]
    Asked { what: &'static str, before: String, after: String },
    #[error("the snapshots have no group of cases on the same inputs in common: expected one")]
    NothingInCommon,
    #[error("no run was asked for: expected --runs of 1 or more")]
    NoRuns,
    #[error("no case was asked for: expected one or more")]
    NoCases,
    #[error("the kernel's profile for {format} is not known: {failure}")]
    Profile { format: Format, failure: Failure },
    #[error("the note '{name}' is given twice, or says what the program finds out by itself")]
    Note { name: String },
    #[error("'{text}' is no note: expected NAME=TEXT, such as compiler='nvcc 13.0 -O3'")]
    NoteForm { text: String },
    #[error("there is nothing to accept: {0}")]
    NothingToAccept(&'static str),
    #[error(
        "{format} {group}: {cases} that passed before no longer pass; a verdict that got worse is \
         a fault to mend, not a drift to accept"
    )]
    Worse { format: Format, group: String, cases: String },
    #[error("the reason is empty: expected why the change is right")]
    NoReason,
    #[error(transparent)]
    Run(#[from] RunError),
}
