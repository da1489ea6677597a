//! Cases at random.

use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::{Family, Scores, Values};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use rand::RngExt;
use rand_chacha::ChaCha8Rng;

/// A case of few entries, so that many tilings and shapes are reached in little time.
pub fn case_of_few_entries(format: Format, seed: u64, rng: &mut ChaCha8Rng) -> Case {
    let (query_len, key_len) = (rng.random_range(1..=64), rng.random_range(1..=257));
    let mut problem = Problem::new(format, 2, query_len, rng.random_range(1..=8));
    (problem.batch, problem.key_len, problem.value_dim) = (2, key_len, rng.random_range(1..=32));
    problem.key_heads = rng.random_range(1..=2);
    let mut rules = Vec::new();
    if rng.random() {
        rules.push(Rule::KeyLengths(vec![rng.random_range(0..=key_len), key_len]));
    }
    if rng.random() {
        rules.push(if rng.random() { Rule::CausalTopLeft } else { Rule::CausalBottomRight });
    }
    problem.mask = Mask { rules };
    let pick = |rng: &mut ChaCha8Rng, count| rng.random_range(0..count);
    loop {
        let family = Family {
            scores: Scores::ALL[pick(rng, Scores::ALL.len())],
            values: Values::ALL[pick(rng, Values::ALL.len())],
        };
        if family.fits(&problem).is_ok() {
            return Case::new(problem, family, None, seed);
        }
    }
}
