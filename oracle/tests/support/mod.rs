//! What tests and benches share: settings, inputs, and the definition evaluated by brute force.
#![allow(dead_code)] // each test program uses a part of it

pub mod definition;
pub mod inputs;
pub mod modified;

use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

/// The seed of every property test, unless `PROPTEST_RNG_SEED` gives another.
const SEED: u64 = 26;

/// How many inputs a property is tried on, unless `PROPTEST_CASES` gives another number.
const CASES: u32 = 512;

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
    eprintln!(
        "reproduce: PROPTEST_RNG_SEED={} PROPTEST_CASES={} cargo test -p flashproof-oracle --test {name}",
        config.rng_seed, config.cases
    );
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct(failures)));
    config
}
