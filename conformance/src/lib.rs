//! The conformance suite for attention kernels, and the library behind the `flashproof` program.
//!
//! | module | question it answers |
//! |---|---|
//! | [`adapter`] | how a kernel under test is reached |
//! | [`inputs`], [`case`](mod@case), [`suite`] | what it is asked |
//! | [`run`](mod@run) | what it answers |
//! | [`verdict`], [`diagnosis`] | whether that is right, and which fault would explain it |
//! | [`explain`](mod@explain) | where and why one case fails, on the smallest input that still does |
//! | [`fit`](mod@fit) | which other precision contract a failing kernel would keep |
//! | [`judge`](mod@judge) | the same of tensors from a file |
//! | [`statistics`] | whether errors are as small as independent roundings make them |
//! | [`trivial`] | what a case would not tell from a right answer |
//! | [`drift`] | how answers change between versions and machines |
//! | [`mutants`], [`rules`] | which faults all that catches, and which of them the rules of others miss |
//! | [`traffic`] | what compiled kernels move through memory, and hold in it |
//! | [`report`] | how that is told |
//! | [`io`] | how tensors are kept in files |
// Not `forbid`: ndarray's slicing macro allows itself unsafe code.
#![deny(unsafe_code)]

pub mod adapter;
pub mod case;
pub mod closed;
pub mod diagnosis;
pub mod drift;
pub mod explain;
pub mod fit;
pub mod inputs;
pub mod io;
pub mod judge;
pub mod merge;
pub mod mutants;
pub mod relation;
pub mod report;
pub mod rules;
pub mod run;
pub mod statistics;
pub mod suite;
pub mod traffic;
pub mod trivial;
pub mod verdict;
