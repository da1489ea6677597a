//! `FAS:choice.*`: points where honest kernels differ, and each declares its option.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:choice.causal.alignment",
        status: Status::Choice { options: &["as-asked", "top-left", "bottom-right"] },
        title: "Alignment of the causal mask",
        statement: "A causal problem says which alignment it means: top-left \
            (FAS:mask.causal.top-left) or bottom-right (FAS:mask.causal.bottom-right). A kernel \
            computes what is asked (as-asked) and reports an alignment that it lacks as \
            unsupported; or it declares the one that it computes whatever is asked (top-left or \
            bottom-right) and is judged by that reading.",
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
        status: Status::Choice { options: &["zero", "nan", "mean"] },
        title: "Output of a row without visible keys",
        statement: "Every output entry of a row without visible keys is zero (zero), or NaN \
            (nan); its LSE is minus infinity under either option. Zero of either sign is \
            accepted. Under a third, the output is the mean of the values of the keys in use \
            (mean), and the LSE is not specified.",
        equation: "0/0",
        rationale: "The quotient of two empty sums has no value. Zero is what a flash kernel that \
            guards its division returns, and lets gradients vanish; NaN is what softmax over an \
            all-masked row gives without a guard; a mean of the values what a lowest finite \
            number in place of minus infinity gives. It is wrong unless it is declared.",
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
    Clause {
        id: "FAS:choice.window.convention",
        status: Status::Choice { options: &["inclusive", "count"] },
        title: "What a window's bound counts",
        statement: "A window's bounds count the keys beside the query's own position (inclusive, \
            FAS:mask.window.inclusive), or that position too (count): under count a bound of w \
            reads as w - 1.",
        equation: "inclusive: t >= p - left    count: t > p - left",
        rationale: "Interfaces that take one number for a window mean either. A kernel that passes the \
            number through declares how it reads it and is judged by that reading.",
        references: &["transformers#39408", "onnxruntime PR#25927"],
        executable: "",
        checked_by: &[
            "conformance/tests/adapter_choices.rs::counts_become_inclusive_bounds",
            "conformance/tests/adapter_choices.rs::a_window_of_counts_sees_what_it_says",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:choice.softcap.order",
        status: Status::Choice { options: &["as-asked", "before-bias", "after-bias"] },
        title: "Softcap before or after the bias",
        statement: "A kernel applies a softcap as the problem says (as-asked), or always before bias and \
            ALiBi (before-bias) or after them (after-bias), and is judged by that reading. The \
            mask comes last under all options.",
        equation: "cap tanh(x / cap) + b    or    cap tanh((x + b) / cap)",
        rationale: "Libraries differ and the difference shows only where both are used.",
        references: &["ONNX Attention; FlashAttention's flash_fwd_kernel"],
        executable: "score::Problem::score",
        checked_by: &[
            "spec/tests/scores.rs::a_softcap_comes_before_or_after_the_bias_as_the_problem_says",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:choice.lse.sign",
        status: Status::Choice { options: &["plus", "minus"] },
        title: "Sign of the LSE",
        statement: "The LSE is given as it is defined (plus), or negated (minus).",
        equation: "L or -L",
        rationale: "Some kernels store what the backward pass subtracts. A merge that mixes the two \
            weights splits by their inverse.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/verdict_choices.rs::a_negated_lse_is_right_where_it_is_declared",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:choice.lse.sink",
        status: Status::Choice { options: &["included", "excluded"] },
        title: "Whether the LSE counts the sink",
        statement: "In a row with a sink the LSE counts it as one of its terms (included), or is that of \
            the keys alone (excluded), minus infinity in a row without keys.",
        equation: "L = ln(sum_i e^(s_i) + e^t)    or    L = ln sum_i e^(s_i)",
        rationale: "With the sink included, probabilities are e^(s - L) and the backward pass needs \
            nothing else; without it, splits merge as if there were none and the sink is counted \
            at the end.",
        references: &["rocm-libraries PR#12229"],
        executable: "",
        checked_by: &[
            "conformance/tests/verdict_choices.rs::an_lse_without_the_sink_is_right_where_it_is_declared",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:choice.masked-row.output",
        status: Status::Choice { options: &["zero", "nan", "mean"] },
        title: "Output of a row hidden by its bias",
        statement: "A row that the mask leaves keys, each of which has a bias of minus infinity, has \
            output zero and LSE minus infinity (zero), output NaN and LSE minus infinity or NaN \
            (nan), or as its output the mean of the values of the keys in use (mean).",
        equation: "softmax of a row of -inf",
        rationale: "It is a row without visible keys. Kernels that hide keys by arithmetic meet -inf - \
            -inf there, and return NaN where a row emptied by their own mask returns zero.",
        references: &["pytorch#103963"],
        executable: "",
        checked_by: &[
            "conformance/tests/verdict_choices.rs::a_row_of_minus_infinity_is_what_is_declared",
        ],
        proof: None,
    },
];
