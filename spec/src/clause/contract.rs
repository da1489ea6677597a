//! `FAS:fwd.output.*` and `FAS:fwd.input.*`: what a kernel does to memory.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:fwd.output.written",
        status: Status::Normative,
        title: "Every output element is written",
        statement: "A kernel writes every element of output and LSE that the problem defines, \
            rows without visible keys included, and nothing outside them; what the buffers held \
            before has no influence.",
        equation: "",
        rationale: "Memory that happens to hold zeros, or the previous run's answer, makes a \
            kernel that skips rows look right. Buffers are therefore filled with NaN beforehand.",
        references: &[
            "pytorch PR#188933 and flash-attention PR#2324 (rows past the last sequence)",
        ],
        executable: "",
        checked_by: &[
            "conformance/tests/verdict.rs::nan_where_a_number_belongs_was_not_written_or_not_finite",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.output.finite",
        status: Status::Normative,
        title: "Finite data gives a finite answer",
        statement: "If the visible keys, their values and the query of a row are finite, and the \
            profile bounds the row, then every output entry and the LSE are finite. Each exact \
            output entry lies between the smallest and the largest visible value of its column.",
        equation: "min_i v_ij <= o_j <= max_i v_ij;  L >= m",
        rationale: "The output is a mean, so it cannot leave the values' range, however large the \
            scores: an infinity or a NaN is an overflow on the way, such as a half-precision dot \
            product before scaling, or a fused multiply-add that leaves the largest score above \
            the maximum it was rounded to.",
        references: &[
            "mlc-llm PR#1870 (half-precision products overflow before scaling)",
            "pytorch#121558 (fused scaling minus a rounded maximum)",
        ],
        executable: "attention::dense_row",
        checked_by: &["spec/tests/definition.rs::output_lies_between_the_values"],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.input.unchanged",
        status: Status::Normative,
        title: "Inputs are read only",
        statement: "A forward pass leaves query, key and value as they were, bit for bit.",
        equation: "",
        rationale: "A caller uses them again: keys and values in the next layer's or the next \
            step's cache, and all three in the backward pass. Scaling a query in place is the \
            usual fault.",
        references: &[],
        executable: "",
        checked_by: &["conformance/src/adapter/builtin/fingerprint.rs::a_changed_input_is_named"],
        proof: None,
    },
];
