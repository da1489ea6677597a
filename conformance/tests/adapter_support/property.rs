//! Settings of property tests.

use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

/// The seed, unless `PROPTEST_RNG_SEED` gives another.
const SEED: u64 = 26;

/// How many inputs a property is tried on, unless `PROPTEST_CASES` gives another number.
const CASES: u32 = 1024;

/// Settings of the test program `name`: a printed seed, and a file for the seeds of failures.
pub fn settings(name: &str, failures: &'static str) -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(SEED);
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    eprintln!(
        "reproduce: PROPTEST_RNG_SEED={} PROPTEST_CASES={} cargo test -p flashproof-conformance --test {name}",
        config.rng_seed, config.cases
    );
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct(failures)));
    config
}
