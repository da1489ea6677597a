//! `FAS:num.*`: number formats and precision profiles.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:num.accumulation.tensor-core",
        status: Status::Normative,
        title: "The accumulation of a tensor core",
        statement: "A kernel that declares a tensor core (k, F, ob) takes the products of a sum k at a \
            time, in order, with the accumulator. It aligns the products and the accumulator to \
            the greatest of their exponents e, truncates each toward zero to a multiple of \
            2^(e - F), adds them exactly, and truncates the sum toward zero to ob fraction bits, \
            within the range of binary32. The exponent of a product is the sum of its factors'; \
            that of a subnormal factor is the least of its format, that of zero -126. Where a \
            product or the accumulator is no finite number, the result is their IEEE sum.",
        equation: "acc' = RZ_ob( sum_{i <= k} T(x_i) + T(acc) ),  T(x) = trunc(x 2^(F - e)) 2^(e - F)",
        rationale: "Accumulation of tensor cores is no IEEE arithmetic: they truncate, so errors \
            add up in one direction, and 8-bit operands lose all but 13 bits on some devices. A \
            bound for IEEE sums does not hold for them.",
        references: &[
            "Xie et al. 2025, MMA-Sim, arXiv 2511.10909",
            "DeepSeek-AI 2024, DeepSeek-V3, arXiv 2412.19437, section 3.5.2 (about 14 bits in FP8)",
        ],
        executable: "",
        checked_by: &[
            "kernels/src/cpu/tensor_core.rs::a_step_is_the_truncated_sum_in_integers",
            "kernels/src/cpu/tensor_core.rs::a_step_stays_within_its_stated_error",
            "conformance/tests/tensor_cores.rs::tensor_cores_pass_in_the_formats_that_they_take",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:num.descale.block",
        status: Status::Normative,
        title: "A descale for each block of positions",
        statement: "Where the problem gives query, key or value a descale for every n positions, \
            positions n i to n i + n - 1 of a head share the i-th, the last block being as long as \
            is left. An entry stands for itself times the descale of its own block, whatever tiles \
            the kernel works in; descales of values are applied before sums over blocks are added.",
        equation: "x[b, h, p, e] = descale[b, h, p / n] stored[b, h, p, e]",
        rationale: "Blocks of descales need not be the kernel's tiles. A kernel that applies one \
            descale to a sum over keys of two blocks is wrong by their ratio.",
        references: &["Shah et al. 2024, FlashAttention-3, arXiv 2407.08608, section 3.3"],
        executable: "quantization::Inputs::dequantized",
        checked_by: &[
            "conformance/tests/quantized.rs::kernels_of_8_bits_pass",
            "conformance/tests/quantized.rs::a_descale_that_is_another_s_fails",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:num.descale.head",
        status: Status::Normative,
        title: "A descale for each head",
        statement: "Inputs of 8 bits come with descales: positive binary32 numbers, for each batch \
            member and head, of query, key and value each. Entries stand for themselves times the \
            descale of their tensor and head, and attention is that of the products; the key's \
            descale is in scores and LSE, the value's in the output alone. The output has a format \
            of its own, and no descale.",
        equation: "s = scale dq dk <q, k>,  o = dv sum p v",
        rationale: "Each of the three has been dropped, or taken for another, by kernels that worked \
            where they happened to be 1.",
        references: &[
            "Shah et al. 2024, FlashAttention-3, arXiv 2407.08608, section 3.3",
            "flashinfer#1023",
        ],
        executable: "quantization::Inputs::dequantized",
        checked_by: &[
            "conformance/tests/quantized.rs::kernels_of_8_bits_pass",
            "conformance/tests/quantized.rs::a_descale_that_is_another_s_fails",
        ],
        proof: None,
    },
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
        proof: Some("Exp2.cubic_approximates_exp2"),
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
    Clause {
        id: "FAS:num.weight-scale",
        status: Status::Normative,
        title: "The scale of weights before they are rounded",
        statement: "A kernel may multiply its weights by a scale before it rounds them to the weight \
            format, and divide what they make of the values by it after; it declares the scale. \
            The scaled weights stay in the range of the format. Results are those of the unscaled \
            weights but for their rounding: normalizer and LSE know no such scale.",
        equation: "w = RN_P(S e^(s - m)) / S,  |w - e^(s - m)| <= u_P e^(s - m) + xi_P / S",
        rationale: "In e4m3 what is below 2^-10 of the largest weight is flushed, in long rows most of \
            them; scaled by 256, that is 2^-18. Unscaled, such a kernel loses what is in no bound \
            of one that scales.",
        references: &["FlashAttention-3's source, hopper/softmax.h (weights times 2^8)"],
        executable: "",
        checked_by: &[
            "conformance/tests/quantized.rs::weights_that_are_not_scaled_as_declared_fail",
        ],
        proof: None,
    },
];
