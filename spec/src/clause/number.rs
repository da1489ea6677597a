//! `FAS:num.*`: number formats and precision profiles.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:num.format.rounding",
        status: Status::Normative,
        title: "Number formats and rounding into them",
        statement: "The finite values of a format are the integer multiples k * 2^q with |k| < \
            2^precision and q >= min_quantum, up to its largest. A real number is rounded to the \
            nearest value, a tie to the neighbour whose last significant bit is zero; a number \
            that would round past the largest value becomes infinity of its sign, or NaN in e4m3, \
            which has no infinity. Subnormal values are kept, and so is the sign of zero.",
        equation: "RN(x) = x (1 + d) + e,  |d| <= u/(1 + u),  |e| <= 2^(min_quantum - 1),  d e = 0",
        rationale: "The answer in an output format is this rounding of the exact answer, so the \
            rounding must be fixed to the last bit. Truncation, flushed subnormals and saturation \
            are properties of a kernel and belong in its profile.",
        references: &[
            "IEEE 754-2019, section 4.3.1",
            "OCP 8-bit Floating Point Specification (OFP8) 1.0",
            "PTX ISA, alternate floating-point data formats",
        ],
        executable: "format::Format::round",
        checked_by: &[
            "spec/tests/format_values.rs::half_crate_values_are_fixed_points",
            "spec/tests/format_values.rs::float8_crate_values_are_fixed_points",
            "spec/tests/format_rounding.rs::midpoints_and_their_neighbours_round_as_mpfr_does",
            "spec/tests/format_rounding.rs::random_numbers_round_as_mpfr_does",
            "spec/tests/format_rounding.rs::overflow_begins_half_a_unit_above_the_largest_value",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:num.profile.standard",
        status: Status::Normative,
        title: "The standard profile of a flash kernel",
        statement: "A kernel that declares the standard profile accumulates dot products, \
            normalizer and numerator by IEEE operations in binary32 (binary64 for binary64 \
            inputs), in any order; keeps scores in that format; errs by at most 2.5 ulp in the \
            exponential; rounds unnormalized weights to the input format before they meet the \
            values where that format is narrower; sums the normalizer from the weights before \
            that rounding; rescales as often as it likes; divides at the end, with at most 2.5 \
            ulp; keeps subnormal numbers; and rounds once to the output format.",
        equation: "",
        rationale: "A verdict needs a contract: without one, any error can be called rounding. \
            The standard profile is strict, so that a kernel which computes in less says so \
            instead of being given the room silently. Its constants are the documented errors of \
            the hardware's instructions.",
        references: &[
            "PTX ISA, ex2.approx.f32 (2 ulp from the correctly rounded value)",
            "CUDA C++ Programming Guide, mathematical functions",
            "Dao 2023, arXiv 2307.08691, algorithm 1",
        ],
        executable: "profile::Profile::standard",
        checked_by: &["spec/tests/profiles.rs::standard_profile_is_as_its_clause_says"],
        proof: None,
    },
    Clause {
        id: "FAS:num.profile.dense",
        status: Status::Normative,
        title: "The profile of a dense kernel",
        statement: "A kernel that declares the dense profile computes as under the standard \
            profile, except that it knows the maximum of the whole row before it forms a weight, \
            so that nothing is ever rescaled, and that it divides weights by the normalizer \
            before they meet the values, keeping them in the accumulator's format.",
        equation: "",
        rationale: "It is the contract of the plain algorithm that flash kernels are compared \
            with, and has fewer roundings: held to the standard profile it would be given room \
            that it does not need.",
        references: &["The chapter, listing 26.2"],
        executable: "profile::Profile::dense",
        checked_by: &["spec/tests/profiles.rs::dense_profile_is_as_its_clause_says"],
        proof: None,
    },
];
