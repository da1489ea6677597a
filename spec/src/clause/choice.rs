//! `FAS:choice.*`: points where honest kernels differ, and each declares its option.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:choice.causal.alignment",
        status: Status::Choice { options: &["top-left", "bottom-right"] },
        title: "Alignment of the causal mask",
        statement: "A causal problem says which alignment it means: top-left \
            (FAS:mask.causal.top-left) or bottom-right (FAS:mask.causal.bottom-right). A kernel \
            that offers one only reports the other as unsupported; it does not compute its own in \
            its place.",
        equation: "",
        rationale: "The two agree where query_len equals the number of keys in use. Elsewhere a \
            flag named `causal` has meant either, and has changed its meaning between versions of \
            one library.",
        references: &["flash-attention#282 and PR#436"],
        executable: "mask::Mask::admits",
        checked_by: &["spec/tests/masks.rs::causal_alignments_agree_on_squares_only"],
        proof: None,
    },
    Clause {
        id: "FAS:choice.empty-row.output",
        status: Status::Choice { options: &["zero", "nan"] },
        title: "Output of a row without visible keys",
        statement: "Every output entry of a row without visible keys is zero (zero), or NaN \
            (nan). Its LSE is minus infinity under either option. Zero of either sign is \
            accepted.",
        equation: "0/0",
        rationale: "The quotient of two empty sums has no value. Zero is what a flash kernel that \
            guards its division returns, and lets gradients vanish; NaN is what softmax over an \
            all-masked row gives without a guard. A mean of the values is neither.",
        references: &["pytorch#103963", "flash-attention PR#978"],
        executable: "online::finish",
        checked_by: &[
            "conformance/tests/verdict.rs::a_row_without_keys_is_exact",
            "conformance/tests/verdict.rs::a_declared_nan_row_is_nan_and_nothing_else",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:choice.lse.base",
        status: Status::Choice { options: &["natural", "two"] },
        title: "Base of the LSE",
        statement: "The LSE is given in nats (natural), or divided by ln 2 (two), the base of the \
            hardware's exponential. Minus infinity is the same in both.",
        equation: "L_two = L / ln 2 = log2 sum_i e^(s_i)",
        rationale: "Kernels work in base two and some return it so. Taken for the other, weights \
            in a merge are wrong by a power of 1/ln 2 = 1.44, with no sign of it in the output of \
            an unsplit run.",
        references: &["pytorch#181645 and sglang#40903 (base two taken for natural)"],
        executable: "",
        checked_by: &[
            "conformance/tests/verdict.rs::an_lse_is_compared_in_its_declared_base",
            "conformance/tests/diagnosis.rs::base_two_lse",
        ],
        proof: None,
    },
];
