//! Inputs of score modifications: what each pattern of bias and sinks promises, in every format.

use std::fmt::Write as _;

use flashproof_conformance::case::FORMATS;
use flashproof_conformance::inputs::{
    BiasValues, Family, Modifiers, Scores, SinkValues, generate, generate_modified,
};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Bias, Sink};
use flashproof_spec::tensor::{Inputs, Tensor};
use proptest::prelude::*;
use sha2::{Digest, Sha256};

/// The seed of every draw that is not random.
const SEED: u64 = 1;

/// A full bias and sinks in a format of their own.
fn problem(format: Format) -> Problem {
    let mut problem = Problem::new(Format::Bf16, 4, 9, 8);
    (problem.batch, problem.key_len) = (2, 20);
    problem.bias = Some(Bias { shape: problem.score_shape(), format });
    problem.sink = Some(Sink::Logits(format));
    problem
}

fn drawn(problem: &Problem, bias: BiasValues, sink: SinkValues) -> Inputs {
    let modifiers = Modifiers { bias, sink, wide: false };
    let inputs = generate_modified(problem, Family::of(Scores::Normal), modifiers, SEED).unwrap();
    assert_eq!(inputs.check(problem), Ok(()));
    inputs
}

fn bias(format: Format, values: BiasValues) -> Tensor {
    drawn(&problem(format), values, SinkValues::Normal).bias.expect("a bias")
}

/// How many entries are of the kind, of how many.
fn count(tensor: &Tensor, is: impl Fn(f64) -> bool) -> (usize, usize) {
    let values = tensor.values();
    (values.iter().filter(|&&value| is(value)).count(), values.len())
}

#[test]
fn three_in_ten_entries_are_set_apart() {
    for format in FORMATS {
        let hidden = bias(format, BiasValues::MinusInfinity);
        let (hidden, all) = count(&hidden, |entry| entry == f64::NEG_INFINITY);
        assert_eq!((hidden, all), (432, 1440), "{format}");
        let lowest = bias(format, BiasValues::Lowest);
        assert_eq!(count(&lowest, |entry| entry == -format.max_finite()), (432, 1440), "{format}");
        assert_eq!(count(&lowest, f64::is_finite), (1440, 1440), "{format}");
    }
}

#[test]
fn every_third_row_is_set_apart_whole() {
    for format in FORMATS {
        for (values, apart) in [
            (BiasValues::MinusInfinityRows, f64::NEG_INFINITY),
            (BiasValues::LowestRows, -format.max_finite()),
        ] {
            let bias = bias(format, values);
            for (row, entries) in bias.view4().rows().into_iter().enumerate() {
                let set_apart = row.is_multiple_of(3);
                assert!(entries.iter().all(|&entry| (entry == apart) == set_apart), "{values:?}");
            }
        }
        let lowest = bias(format, BiasValues::AllLowest);
        assert_eq!(count(&lowest, |entry| entry == -format.max_finite()), (1440, 1440));
    }
}

#[test]
fn a_causal_bias_is_the_mask_from_the_last_query_and_key() {
    let bias = bias(Format::F16, BiasValues::Causal);
    for ((_, _, query, key), &entry) in bias.view4().indexed_iter() {
        let hidden = key > query + 20 - 9;
        assert_eq!(entry, if hidden { f64::NEG_INFINITY } else { 0.0 });
    }
}

#[test]
fn a_ramp_tells_heads_queries_and_keys_apart() {
    let bias = bias(Format::F32, BiasValues::Ramp);
    let bias = bias.view4();
    for moved in [[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]] {
        assert_ne!(bias[moved], bias[[0; 4]]);
    }
    assert_ne!(bias[[0, 0, 1, 2]], bias[[0, 0, 2, 1]]);
}

#[test]
fn one_entry_is_no_number_where_the_pattern_says_so() {
    for values in BiasValues::ALL {
        let bias = bias(Format::F32, values);
        let odd = count(&bias, |entry| entry.is_nan() || entry == f64::INFINITY).0;
        let expected = matches!(values, BiasValues::Nan | BiasValues::Infinity);
        assert_eq!(odd, usize::from(expected), "{values:?}");
        assert_eq!(count(&bias, |entry| entry == f64::NEG_INFINITY).0 > 0, values.hides());
    }
}

#[test]
fn broadcast_axes_have_one_entry_and_something_is_always_seen() {
    for values in BiasValues::ALL {
        let mut problem = problem(Format::F32);
        problem.bias = Some(Bias { shape: [2, 1, 1, 20], format: Format::F32 });
        let inputs = drawn(&problem, values, SinkValues::Normal);
        let seen = |batch| !inputs.visible_keys(&problem, batch, 0, 8).is_empty();
        assert!(seen(0) || seen(1), "{values:?}");
    }
}

#[test]
fn sinks_lie_where_they_are_said_to() {
    for format in FORMATS {
        for (values, low, high) in [
            (SinkValues::Normal, -6.0, 6.0),
            (SinkValues::Twenty, 14.0, 26.0),
            (SinkValues::High, 34.0, 46.0),
            (SinkValues::Low, -36_000.0, -24_000.0),
        ] {
            let sink = drawn(&problem(format), BiasValues::Normal, values).sink.expect("sinks");
            // Six standard deviations.
            assert_eq!(count(&sink, |logit| (low..high).contains(&logit)), (4, 4), "{values:?}");
        }
    }
}

#[test]
fn a_sink_of_zero_is_no_input() {
    let mut problem = problem(Format::F32);
    problem.sink = Some(Sink::Zero);
    assert_eq!(drawn(&problem, BiasValues::Normal, SinkValues::Twenty).sink, None);
}

#[test]
fn names_are_those_of_the_serialised_form() {
    for values in BiasValues::ALL {
        assert_eq!(serde_json::to_value(values).unwrap(), values.name());
        assert!(!values.purpose().is_empty());
    }
    for values in SinkValues::ALL {
        assert_eq!(serde_json::to_value(values).unwrap(), values.name());
        assert!(!values.purpose().is_empty());
    }
}

#[test]
fn a_pattern_and_a_seed_name_the_same_bits_for_ever() {
    let digest = |tensor: Option<Tensor>| {
        let mut hasher = Sha256::new();
        for value in tensor.expect("a tensor").values() {
            let value = if value.is_nan() { f64::NAN } else { *value };
            hasher.update(value.to_bits().to_le_bytes());
        }
        hasher.finalize().iter().take(8).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    };
    let mut table = String::new();
    for values in BiasValues::ALL {
        let inputs = drawn(&problem(Format::F32), values, SinkValues::Normal);
        let _ = writeln!(table, "{}  bias {}", digest(inputs.bias), values.name());
    }
    for values in SinkValues::ALL {
        let inputs = drawn(&problem(Format::F32), BiasValues::Normal, values);
        let _ = writeln!(table, "{}  sink {}", digest(inputs.sink), values.name());
    }
    insta::assert_snapshot!(table);
}

proptest! {
    /// Bias and sinks have streams of their own: query, key and value do not depend on them.
    #[test]
    fn modifications_leave_the_rest_as_it_was(seed in any::<u64>()) {
        let modified = problem(Format::F32);
        let plain = Problem { bias: None, sink: None, ..modified.clone() };
        let family = Family::of(Scores::Normal);
        let with = generate(&modified, family, seed).unwrap();
        let without = generate(&plain, family, seed).unwrap();
        prop_assert_eq!(Inputs { bias: None, sink: None, ..with }, without);
    }
}
