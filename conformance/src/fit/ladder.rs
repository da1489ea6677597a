//! Which departures are tried, and in which order.
//!
//! A ladder holds departures of one kind, each of which allows all that those before it do, so that the
//! least that suffices is found by halving. Ladders come in this order, the first that suffices being
//! taken for the least:
//!
//! 1. one gradient carried between blocks in fewer bits, which nothing else sees;
//! 2. the exponential, up to the error of the coarsest that hardware has for f32;
//! 3. normalizer, then numerator, carried between blocks in fewer bits;
//! 4. weights, then scores, kept in fewer bits;
//! 5. whole sums in fewer bits;
//! 6. the order of sums, and results that are flushed to zero.
//!
//! Within a kind, formats come from many bits to few, blocks from large to small. Of pairs, the first
//! departure counts first, then how far it goes, and then the second.

use flashproof_spec::format::Format;
use flashproof_spec::profile::{Carried, Profile};

use super::departure::{Departure, Gradient};

/// Departures of one kind, the least first.
pub(super) type Ladder = Vec<Departure>;

/// Formats that sums, weights and scores are kept in, from many bits to few. `tf32` and `f16` have as
/// many, and differ in range.
const FORMATS: [Format; 4] = [Format::F32, Format::Tf32, Format::F16, Format::Bf16];

/// Blocks of kernels in use, and a rounding with every term.
const BLOCKS: [usize; 6] = [256, 128, 64, 32, 16, 1];

/// PTX ISA, `ex2.approx.ftz.bf16` errs by 2^-7 and `ex2.approx.f16` by 2^-9.9; `tanh.approx.f32`, the
/// coarsest of those for `f32`, by 2^-11: 4096 units of 2^-23. Coarser ones than the last are taken for
/// narrow formats of what they give.
const COARSEST_EXPONENTIAL: f64 = 4096.0;

/// The ladders for a kernel of this profile, in the order in which they are tried.
pub(super) fn ladders(declared: &Profile) -> Vec<Ladder> {
    let mut ladders = Vec::new();
    for gradient in [Gradient::Value, Gradient::Key, Gradient::Query] {
        ladders.extend(FORMATS.map(|format| {
            let carried = |block| Departure::CarriedGradient(gradient, Carried { format, block });
            BLOCKS.map(carried).to_vec()
        }));
    }
    ladders.push(exponentials(declared.exp_ulp));
    for of in [
        Departure::CarriedNormalizer as fn(Format) -> Departure,
        Departure::CarriedNumerator,
        Departure::Weights,
        Departure::Scores,
        Departure::ScoreSums,
        Departure::ValueSums,
    ] {
        ladders.extend(FORMATS.map(|format| vec![of(format)]));
    }
    ladders.extend([vec![Departure::AnyOrder], vec![Departure::FlushToZero]]);
    for ladder in &mut ladders {
        ladder.retain(|departure| departure.from(declared).is_some());
    }
    ladders.retain(|ladder| !ladder.is_empty());
    ladders
}

/// Errors of two significant digits above the declared one.
fn exponentials(declared: f64) -> Ladder {
    let mut errors = Vec::new();
    let mut unit = 0.1;
    while 10.0 * unit <= COARSEST_EXPONENTIAL {
        errors.extend((10_u32..100).map(|digits| f64::from(digits) * unit));
        unit *= 10.0;
    }
    errors.retain(|&ulp| ulp > declared && ulp < COARSEST_EXPONENTIAL);
    errors.push(COARSEST_EXPONENTIAL);
    errors.into_iter().map(Departure::Exponential).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Halving needs each to allow what those before it do, and none to be the declared one.
    #[test]
    fn exponentials_rise_above_the_declared_one() {
        let errors: Vec<f64> = exponentials(2.5)
            .into_iter()
            .map(|departure| match departure {
                Departure::Exponential(ulp) => ulp,
                other => panic!("{other} is no exponential"),
            })
            .collect();
        assert!(errors.is_sorted_by(|a, b| a < b));
        assert!(errors[0] > 2.5);
        assert_eq!(errors.last(), Some(&COARSEST_EXPONENTIAL));
    }

    #[test]
    fn every_departure_departs() {
        for format in [Format::F64, Format::F32, Format::F16, Format::Bf16] {
            for declared in [Profile::standard(format), Profile::dense(format)] {
                for departure in ladders(&declared).into_iter().flatten() {
                    let departed = departure.from(&declared).expect("a departure");
                    assert_ne!(departed, declared, "{departure}");
                    let words = departure.to_string();
                    assert!(!words.is_empty() && words.trim() == words, "{words}");
                }
            }
        }
    }
}
