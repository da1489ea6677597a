//! The oracle's enclosures contain the exact answer and shrink around it.

mod support;

use flashproof_oracle::enclosure::Enclosure;
use flashproof_oracle::forward::{MIN_PRECISION, Options, Oracle};
use flashproof_oracle::row::RowEnclosures;
use flashproof_spec::format::Format;
use proptest::prelude::*;
use rug::Float;
use support::definition::{certain, evaluate};
use support::inputs::{Case, ONLY_ROW, case};
use support::modified::modified;
use support::settings;

fn enclose(case: &Case, precision: u32) -> RowEnclosures {
    Oracle::new(&case.problem, &case.inputs, Options::new(Format::F64))
        .expect("a problem and its inputs")
        .enclose_row(ONLY_ROW, precision)
        .expect("a row and a precision")
        .expect("a row of finite numbers")
}

fn elements(row: &RowEnclosures) -> impl Iterator<Item = &Enclosure> {
    row.outputs.iter().chain([&row.lse])
}

proptest! {
    #![proptest_config(settings("enclosures", "tests/proptest-regressions/enclosures.txt"))]

    #[test]
    fn twice_the_precision_is_contained(case in case(), precision in MIN_PRECISION..300) {
        let (coarse, fine) = (enclose(&case, precision), enclose(&case, 2 * precision));
        for (coarse, fine) in elements(&coarse).zip(elements(&fine)) {
            prop_assert!(coarse.contains(fine), "{coarse:?} does not contain {fine:?}");
        }
    }

    #[test]
    fn the_definition_is_enclosed(case in case(), precision in MIN_PRECISION..300) {
        let definition = evaluate(&case);
        let exact = definition.output.iter().chain([&definition.lse]);
        for (enclosure, exact) in elements(&enclose(&case, precision)).zip(exact) {
            prop_assert!(enclosure.intersects(&certain(exact)), "{enclosure:?} misses {exact}");
        }
    }

    #[test]
    fn twice_the_precision_is_contained_whatever_the_modifications(
        case in modified(), precision in MIN_PRECISION..300,
    ) {
        let (coarse, fine) = (enclose(&case, precision), enclose(&case, 2 * precision));
        for (coarse, fine) in elements(&coarse).zip(elements(&fine)) {
            prop_assert!(coarse.contains(fine), "{coarse:?} does not contain {fine:?}");
        }
    }

    #[test]
    fn the_definition_is_enclosed_whatever_the_modifications(
        case in modified(), precision in MIN_PRECISION..300,
    ) {
        let definition = evaluate(&case);
        let exact = definition.output.iter().chain([&definition.lse]);
        for (enclosure, exact) in elements(&enclose(&case, precision)).zip(exact) {
            prop_assert!(enclosure.intersects(&certain(exact)), "{enclosure:?} misses {exact}");
        }
    }

    #[test]
    fn width_falls_in_proportion_to_the_grid(case in modified(), precision in 64_u32..300) {
        // Each of n weights is enclosed in two units of the grid. That makes the numerator, enclosed
        // to both sides, 4 n max|v| units wide, the normalizer 2 n, and their quotient, at most max|v|,
        // the sum of both: the normalizer is at least 1. Rounded endpoints and second-order terms
        // fit into what one of the n keys, whose weight is exactly 1, leaves. A sink is one more key, and
        // dropout makes values larger.
        let keys = case.problem.key_len as u32 + u32::from(case.problem.sink.is_some());
        let factor = case.problem.dropout.as_ref().map_or(1.0, |dropout| dropout.scale);
        let largest = case.inputs.value.values().iter().fold(0.0, |max: f64, v| max.max(v.abs()));
        let bound = (Float::with_val(64, largest) * factor * (6 * keys)) >> precision;
        for output in enclose(&case, precision).outputs {
            prop_assert!(Float::with_val(1000, output.hi() - output.lo()) <= bound);
        }
    }
}
