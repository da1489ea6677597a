//! The identities of online softmax and tiled attention as numbered, citable, executable clauses.
//!
//! Attention over one query row with visible keys `i`, scores `s_i` and value rows `v_i` is
//! `o = sum_i e^(s_i - m) v_i / sum_i e^(s_i - m)`, with `m = max_i s_i` (the chapter, equation
//! 26.1). A flash kernel computes it block by block from a running state `(m, l, n)` (equation
//! 26.2). This crate says what is true of such kernels, what they may choose, and how far from the
//! exact answer rounding can take them:
//!
//! | module | question it answers |
//! |---|---|
//! | [`clause`] | what is required, in which words, from which source, checked by which test |
//! | [`problem`], [`mask`], [`score`], [`pattern`], [`layout`], [`quantization`], [`tensor`] | what is computed |
//! | [`mod@format`], [`profile`], [`tensor_core`] | in which number formats, and with which roundings |
//! | [`arithmetic`], [`online`], [`attention`], [`gradient`] | the algebra, as functions |
//! | [`memory`], [`traffic`] | what dense and online attention hold, and what they move |
//! | [`bound`] | the error that the declared roundings can cause, per element |
#![forbid(unsafe_code)]

pub mod arithmetic;
pub mod attention;
pub mod bound;
pub mod clause;
pub mod format;
pub mod gradient;
pub mod layout;
pub mod mask;
pub mod memory;
pub mod online;
pub mod pattern;
pub mod problem;
pub mod profile;
pub mod proof;
pub mod quantization;
pub mod score;
pub mod tensor;
pub mod tensor_core;
pub mod traffic;
