//! What the property tests share: their settings, rows of the exact model, and ways to divide them.
#![allow(dead_code)] // each test program uses a part of it

use flashproof_spec::arithmetic::{Arithmetic, ExactModel, Logarithm};
use flashproof_spec::online::{KeyOf, StateOf, absorb, start};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use rug::Rational;

/// A key of the exact model.
pub type ExactKey = KeyOf<ExactModel>;

/// A state of the exact model.
pub type ExactState = StateOf<ExactModel>;

/// The seed of every property test, unless `PROPTEST_RNG_SEED` gives another.
const SEED: u64 = 26;

/// How many inputs a property is tried on, unless `PROPTEST_CASES` gives another number.
const CASES: u32 = 1024;

/// Settings of the test program `name`: a printed seed, and a committed file for the seeds of
/// failures.
pub fn settings(name: &str, failures: &'static str) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(SEED);
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let (seed, cases) = (config.rng_seed, config.cases);
    let command = format!("cargo test -p flashproof-spec --test {name}");
    eprintln!("reproduce: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} {command}");
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct(failures)));
    config
}

/// Scores: wide apart, close together with many ties, and none (an invisible key).
pub fn score() -> impl Strategy<Value = Option<Logarithm>> {
    prop_oneof![
        2 => (-300_i16..=300).prop_map(|k| Some(Logarithm::from(k))),
        2 => (-2_i16..=2).prop_map(|k| Some(Logarithm::from(k))),
        1 => Just(None),
    ]
}

/// Any score, not only integers: the logarithm of a fraction.
pub fn reference() -> impl Strategy<Value = Logarithm> {
    (1_i32..=9, 1_i32..=9, -300_i16..=300).prop_map(|(numerator, denominator, k)| {
        let fraction = Logarithm::of(Rational::from((numerator, denominator))).expect("positive");
        ExactModel.shift(&fraction, &Logarithm::from(k))
    })
}

/// Small fractions, zero among them.
pub fn number() -> impl Strategy<Value = Rational> {
    (-9_i32..=9, 1_i32..=4).prop_map(Rational::from)
}

/// A key with `value_dim` value entries.
pub fn key(value_dim: usize) -> impl Strategy<Value = ExactKey> {
    (score(), prop::collection::vec(number(), value_dim))
        .prop_map(|(score, value)| ExactKey { score, value })
}

/// Up to 20 keys, invisible ones among them, none at all included.
pub fn keys(value_dim: usize) -> impl Strategy<Value = Vec<ExactKey>> {
    prop::collection::vec(key(value_dim), 0..=20)
}

/// The state of up to 20 keys.
pub fn state(value_dim: usize) -> impl Strategy<Value = ExactState> {
    keys(value_dim).prop_map(move |keys| state_of(&keys, value_dim))
}

/// Sizes of blocks, empty ones included.
pub fn sizes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(0_usize..=7, 0..=8)
}

/// The state of some keys, absorbed as one block.
pub fn state_of(keys: &[ExactKey], value_dim: usize) -> ExactState {
    absorb(&ExactModel, start(&ExactModel, value_dim), keys)
}

/// The items in consecutive blocks of the given sizes, and what is left in a last one.
pub fn divide<'t, T>(mut items: &'t [T], sizes: &[usize]) -> Vec<&'t [T]> {
    let mut blocks = Vec::new();
    for &size in sizes {
        let (block, rest) = items.split_at(size.min(items.len()));
        blocks.push(block);
        items = rest;
    }
    blocks.push(items);
    blocks
}
