//! Input families: what each promises, in every format that holds it.

use std::collections::HashSet;
use std::fmt::Write as _;

use flashproof_conformance::case::FORMATS;
use flashproof_conformance::inputs::{Family, Scores, Values, generate};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::ArrayView1;
use proptest::prelude::*;
use sha2::{Digest, Sha256};

/// The seed of every draw that is not random.
const SEED: u64 = 1;

fn problem(format: Format) -> Problem {
    let mut problem = Problem::new(format, 4, 33, 24);
    (problem.batch, problem.key_heads, problem.key_len, problem.value_dim) = (2, 2, 130, 10);
    problem
}

fn families() -> impl Iterator<Item = Family> {
    let by_scores = Scores::ALL.into_iter().map(Family::of);
    let by_values = Values::ALL.into_iter().map(|values| Family { scores: Scores::Normal, values });
    by_scores.chain(by_values)
}

fn drawn(format: Format, family: Family) -> Option<Inputs> {
    generate(&problem(format), family, SEED).ok()
}

fn tensors(inputs: &Inputs) -> [&Tensor; 3] {
    [&inputs.query, &inputs.key, &inputs.value]
}

/// The score of a query and a key in `f64`.
fn score(problem: &Problem, query: &ArrayView1<'_, f64>, key: &ArrayView1<'_, f64>) -> f64 {
    problem.scale_f64() * query.dot(key)
}

#[test]
fn values_are_of_the_format_and_finite_unless_the_family_says_otherwise() {
    for format in FORMATS {
        for family in families() {
            let Some(inputs) = drawn(format, family) else { continue };
            assert_eq!(inputs.check(&problem(format)), Ok(()), "{format} {family}");
            let special = tensors(&inputs)
                .iter()
                .flat_map(|tensor| tensor.values())
                .filter(|value| !value.is_finite())
                .count();
            let expected = match (family.scores, family.values) {
                (Scores::NanQuery | Scores::NanKey, _) | (_, Values::Nan | Values::Infinity) => 1,
                _ => 0,
            };
            assert_eq!(special, expected, "{format} {family}");
        }
    }
}

#[test]
fn only_f16_lacks_a_family() {
    for format in FORMATS {
        for family in families() {
            let huge = matches!(family.scores, Scores::All133120 | Scores::One133120);
            let fits = family.fits(&problem(format)).is_ok();
            assert_eq!(fits, !(format == Format::F16 && huge), "{format} {family}");
        }
    }
}

#[test]
fn scores_that_a_zero_scale_erases_are_refused() {
    let zero = Problem { scale: Scale::Value(0.0), ..problem(Format::F32) };
    assert!(Family::of(Scores::Rising).fits(&zero).is_err());
    assert!(Family::of(Scores::Normal).fits(&zero).is_ok());
}

#[test]
fn given_scores_come_out() {
    /// Entries of the query stray from 1 by some 1/64 in the root mean square, and a key's entries
    /// are rounded; either moves a score by a few per cent at most.
    const FEW_PER_CENT: f64 = 0.1;
    for format in FORMATS {
        let problem = problem(format);
        for (scores, level) in [
            (Scores::TiesHigh, 200.0),
            (Scores::TiesLow, -200.0),
            (Scores::Negative, -200.0),
            (Scores::DeepNegative, -60_000.0),
        ] {
            let inputs = drawn(format, Family::of(scores)).unwrap();
            let (query, key) = (inputs.query.view4(), inputs.key.view4());
            for q in query.rows() {
                for k in key.rows() {
                    let found = score(&problem, &q, &k);
                    let strays = (found / level - 1.0).abs();
                    assert!(strays < FEW_PER_CENT, "{format} {scores:?}: {found}");
                }
            }
        }
    }
}

#[test]
fn maxima_rise_in_every_block_or_only_in_the_first() {
    const BLOCK: usize = 32;
    for format in FORMATS {
        let problem = problem(format);
        for scores in [Scores::Rising, Scores::Falling] {
            let inputs = drawn(format, Family::of(scores)).unwrap();
            let (query, key) = (inputs.query.view4(), inputs.key.view4());
            let (q, keys) = (query.rows().into_iter().next().unwrap(), key.rows());
            let all: Vec<_> =
                keys.into_iter().take(problem.key_len).map(|k| score(&problem, &q, &k)).collect();
            let maxima: Vec<_> = all
                .chunks_exact(BLOCK)
                .map(|block| block.iter().copied().fold(f64::NEG_INFINITY, f64::max))
                .collect();
            let rises = maxima.windows(2).all(|pair| pair[0] < pair[1]);
            let falls = maxima.windows(2).all(|pair| pair[0] > pair[1]);
            assert!(if scores == Scores::Rising { rises } else { falls }, "{format}: {maxima:?}");
        }
    }
}

#[test]
fn ties_are_exact() {
    let bits = |tensor: &Tensor| -> Vec<Vec<u64>> {
        let rows = tensor.view4();
        rows.rows().into_iter().map(|row| row.iter().map(|x| x.to_bits()).collect()).collect()
    };
    for format in FORMATS {
        let inputs = drawn(format, Family::of(Scores::Ties)).unwrap();
        let distinct: HashSet<_> = bits(&inputs.key).into_iter().collect();
        assert_eq!(distinct.len(), 3, "{format}");
        let inputs = drawn(format, Family::of(Scores::TiesHigh)).unwrap();
        let mut counts: Vec<_> = bits(&inputs.key);
        counts.sort_unstable();
        let largest = counts.chunk_by(|a, b| a == b).map(<[_]>::len).max().unwrap();
        assert!(largest > counts.len() / 3, "{format}: {largest} of {}", counts.len());
    }
}

#[test]
fn values_cancel_in_pairs_of_equal_keys() {
    for format in FORMATS {
        let family = Family { scores: Scores::Normal, values: Values::Cancelling };
        let inputs = drawn(format, family).unwrap();
        let (key, value) = (inputs.key.view4(), inputs.value.view4());
        for at in (1..key.dim().2).step_by(2) {
            assert_eq!(
                key.slice(ndarray::s![0, 0, at, ..]),
                key.slice(ndarray::s![0, 0, at - 1, ..])
            );
            let pair = value[[0, 0, at, 0]] + value[[0, 0, at - 1, 0]];
            // A residue of 1/64 and two roundings.
            assert!(pair.abs() < value[[0, 0, at, 0]].abs() / 32.0, "{format}");
            assert_ne!(pair, 0.0, "{format}");
        }
    }
}

#[test]
fn subnormal_keys_make_ordinary_scores() {
    for format in FORMATS {
        let problem = problem(format);
        let inputs = drawn(format, Family::of(Scores::Subnormal)).unwrap();
        let (query, key) = (inputs.query.view4(), inputs.key.view4());
        assert!(key.iter().all(|x| x.abs() < format.smallest_normal()), "{format}");
        let largest = query
            .rows()
            .into_iter()
            .flat_map(|q| key.rows().into_iter().map(move |k| q.dot(&k)))
            .map(|dot| (dot * problem.scale_f64()).abs())
            .fold(0.0, f64::max);
        // Far above what reading the keys as zero would leave, far below any overflow.
        assert!((0.1..10.0).contains(&largest), "{format}: {largest}");
    }
}

#[test]
fn outliers_are_few_and_far() {
    /// Five standard deviations: one normal entry in 1.7 million.
    const FAR: f64 = 5.0;
    let mut problem = problem(Format::F32);
    problem.key_len = 2000;
    let inputs = generate(&problem, Family::of(Scores::Outliers), SEED).unwrap();
    let entries = inputs.key.values().len();
    let far = inputs.key.values().iter().filter(|x| x.abs() > FAR).count();
    // A thousandth is drawn from the wide distribution, and 62% of that lies beyond.
    assert!((entries / 4000..entries / 1000).contains(&far), "{far} of {entries}");
}

#[test]
fn a_family_and_a_seed_name_the_same_bits_for_ever() {
    let mut table = String::new();
    for family in families() {
        let mut hasher = Sha256::new();
        for tensor in tensors(&drawn(Format::F32, family).unwrap()) {
            for value in tensor.values() {
                // One NaN stands for all.
                let value = if value.is_nan() { f64::NAN } else { *value };
                hasher.update(value.to_bits().to_le_bytes());
            }
        }
        let digest = hasher.finalize();
        let short: String = digest.iter().take(8).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        let _ = writeln!(table, "{short}  {family}");
    }
    insta::assert_snapshot!(table);
}

proptest! {
    #[test]
    fn any_text_is_a_family_or_an_error(text in "[a-z0-9+-]{0,24}") {
        if let Ok(family) = text.parse::<Family>() {
            prop_assert_eq!(family.to_string().parse::<Family>().unwrap(), family);
        }
    }

    #[test]
    fn the_seed_decides_the_inputs(seed in any::<u64>(), other in any::<u64>()) {
        let problem = Problem::new(Format::F32, 1, 3, 8);
        let family = Family { scores: Scores::Normal, values: Values::Outliers };
        let draw = |seed| generate(&problem, family, seed).unwrap();
        prop_assert_eq!(draw(seed), draw(seed));
        prop_assert_eq!(draw(seed) == draw(other), seed == other);
    }
}
