//! `FAS:score.*`: what happens to a score before the softmax, and to a weight after it.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:score.scale.sign",
        status: Status::Normative,
        title: "The softmax scale may be negative or zero",
        statement: "The softmax scale is any finite number. A negative one turns the order of the \
            scores around; under 0 every visible key has the same weight, and with neither bias \
            nor ALiBi the output is the mean of their values.",
        equation: "s_i = scale * <q, k_i> for any real scale",
        rationale: "Kernels that find the maximum of the unscaled products, to scale only the \
            differences, are right for positive scales alone.",
        references: &[],
        executable: "problem::Problem::scale_f64",
        checked_by: &["spec/tests/scores.rs::scores_add_bias_and_alibi_to_the_product"],
        proof: None,
    },
    Clause {
        id: "FAS:score.bias.add",
        status: Status::Normative,
        title: "A bias is added to the scaled product",
        statement: "Where the problem has a bias b, the score of key i in a row is scale * <q, \
            k_i> + b_i (+ the ALiBi term), the bias not multiplied by the scale, in units of nats \
            like the score.",
        equation: "s_i = scale * <q, k_i> + b_i",
        rationale: "Kernels that work in base two multiply scores by log2 e; a bias that is added \
            after that, or before the scale, is off by that factor.",
        references: &["ONNX Attention (attn_mask); PyTorch scaled_dot_product_attention"],
        executable: "score::Problem::score",
        checked_by: &["spec/tests/scores.rs::scores_add_bias_and_alibi_to_the_product"],
        proof: None,
    },
    Clause {
        id: "FAS:score.bias.broadcast",
        status: Status::Normative,
        title: "Broadcasting of a bias",
        statement: "A bias has shape [batch, query_heads, query_len, key_len], any of them 1: its \
            one entry then stands for every index of that axis.",
        equation: "b(b, h, q, k) = bias[b or 0, h or 0, q or 0, k or 0]",
        rationale: "A kernel that reads a [1, 1, q, k] bias as if it had all heads reads past its \
            end, and one that applies it to head 0 alone leaves the others without.",
        references: &["burn#4778 (a broadcast mask applied to head 0 only)"],
        executable: "pattern::broadcast_place",
        checked_by: &["spec/tests/scores.rs::a_bias_is_broadcast_along_axes_of_extent_one"],
        proof: None,
    },
    Clause {
        id: "FAS:score.bias.minus-infinity",
        status: Status::Normative,
        title: "A bias of minus infinity hides the key",
        statement: "A key whose bias is minus infinity is invisible to that row, as if a mask hid \
            it, whatever the softcap and its order: nothing of the key or its value may matter, \
            its gradients are zero, and a row whose every key is hidden sees none.",
        equation: "b_i = -inf => i is not visible",
        rationale: "It is how masks reach kernels that have only a bias. Arithmetic gives the \
            same where it meets finite numbers, e^(-inf) = 0; it does not where a maximum of \
            -inf is subtracted from itself, where 0 meets a NaN in padding, or where a softcap \
            makes -inf a finite -cap.",
        references: &[
            "onnx#7865 and llama.cpp PR#29034 (softcap after the mask)",
            "pytorch#103963 (a row of -inf)",
        ],
        executable: "score::Inputs::visible_keys",
        checked_by: &[
            "spec/tests/scores.rs::a_bias_of_minus_infinity_hides_the_key_and_a_finite_one_does_not",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:score.bias.finite",
        status: Status::Normative,
        title: "A finite bias hides nothing",
        statement: "A key whose bias is finite is visible, however negative the bias. In a row \
            whose every bias is the lowest finite number, outputs are still weighted means of the \
            values, and the LSE is a number.",
        equation: "b_i > -inf => i is visible, where the mask admits it",
        rationale: "Frameworks write the lowest finite number where they mean minus infinity, so \
            whole rows of it occur. Subtracting the maximum leaves the differences of the scores, \
            as far as their format keeps them; NaN or zero is neither.",
        references: &["pytorch#109517 and #110213"],
        executable: "score::Inputs::visible_keys",
        checked_by: &[
            "spec/tests/scores.rs::a_bias_of_minus_infinity_hides_the_key_and_a_finite_one_does_not",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:score.alibi.distance",
        status: Status::Normative,
        title: "ALiBi falls with the distance",
        statement: "With ALiBi, -slope[h] * |position - key| is added to the score, where \
            position is the query's own among the keys under the problem's alignment, counted \
            with the lengths in use.",
        equation: "a_i = -slope_h * |position - i|",
        rationale: "The distance to the query's own position makes the LSE meaningful and the \
            term right without a causal mask. Terms that differ by a constant of the row, such as \
            slope * key under a causal mask, have the same output and another LSE.",
        references: &["Press, Smith, Lewis 2022, arXiv 2108.12409"],
        executable: "score::Problem::alibi_at",
        checked_by: &["spec/tests/scores.rs::alibi_falls_with_the_distance_from_the_own_position"],
        proof: None,
    },
    Clause {
        id: "FAS:score.alibi.slopes",
        status: Status::Normative,
        title: "ALiBi slopes for any number of heads",
        statement: "Among query_heads heads, with n the greatest power of two up to their number, \
            head h < n has slope 2^(-8 (h + 1) / n), and head h >= n has 2^(-4 (2 (h - n) + 1) / \
            n), each an f32 number: correctly rounded, or within one unit in the last place.",
        equation: "slope_h = 2^(-8 (h + 1) / n), h < n; 2^(-4 (2 (h - n) + 1) / n), h >= n",
        rationale: "The rule for powers of two does not extend by its own formula; the paper's \
            code takes every other slope of twice as many heads for those beyond. Three heads \
            tell the readings apart.",
        references: &[
            "Press, Smith, Lewis 2022, arXiv 2108.12409, and its published code",
            "llama.cpp PR#20031 (heads not a power of two)",
        ],
        executable: "score::standard_slopes",
        checked_by: &[
            "spec/tests/scores.rs::alibi_slopes_are_those_of_the_paper",
            "spec/tests/scores.rs::alibi_slopes_are_correctly_rounded",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:score.softcap.tanh",
        status: Status::Normative,
        title: "Softcap",
        statement: "With a softcap, a score x becomes cap * tanh(x / cap): of the scaled product, \
            with bias and ALiBi added afterwards, or of the sum of all three, as the problem says.",
        equation: "s = cap * tanh(x / cap)",
        rationale: "The two orders differ wherever a bias is large; a kernel says which it \
            computes (FAS:choice.softcap.order).",
        references: &["Gemma Team 2024, arXiv 2408.00118 (logit soft-capping)"],
        executable: "score::Problem::score",
        checked_by: &[
            "spec/tests/scores.rs::softcap_and_slope_agree_with_mpfr",
            "spec/tests/scores.rs::a_softcap_comes_before_or_after_the_bias_as_the_problem_says",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:score.softcap.before-mask",
        status: Status::Normative,
        title: "The mask comes after the softcap",
        statement: "A softcap never makes a masked key visible: masks, and biases of minus \
            infinity, apply after it in effect.",
        equation: "visible(i) does not depend on cap",
        rationale: "cap * tanh(-inf / cap) is -cap, a finite score: with the order reversed, \
            masked keys take part.",
        references: &["onnx#7865", "llama.cpp PR#29034"],
        executable: "score::Inputs::visible_keys",
        checked_by: &["spec/tests/scores.rs::a_softcap_leaves_the_mask_alone"],
        proof: None,
    },
    Clause {
        id: "FAS:score.sink.normalizer",
        status: Status::Normative,
        title: "A sink is a term of the normalizer",
        statement: "A sink of logit t adds e^(t - m) to the normalizer, and so to the LSE, and \
            nothing to the numerator. Its logit is not scaled, capped, biased or masked. A row \
            that sees no key has output 0 and LSE t. The logit 0 in every head is the off-by-one \
            softmax.",
        equation: "l = sum_i e^(s_i - m) + e^(t - m)    o_j = n_j / l    L = m + ln l",
        rationale: "Weights then sum to less than one. A sink far below the scores changes \
            nothing, and the logit 0 little on large scores: neither shows a kernel that drops \
            it; 20 does.",
        references: &[
            "Xiao et al. 2024, arXiv 2309.17453 (attention sinks)",
            "TransformerEngine PR#3551 (sink dropped; a zero sink hides it)",
        ],
        executable: "attention::sink",
        checked_by: &[
            "spec/tests/modified_rows.rs::a_sink_is_one_more_term_of_the_normalizer",
            "spec/tests/modified_rows.rs::the_sink_zero_is_the_off_by_one_softmax",
            "spec/tests/modified_rows.rs::a_row_of_nothing_but_a_sink_has_output_zero_and_the_logit_as_lse",
        ],
        proof: Some("Softmax.sink_is_a_key_without_value"),
    },
    Clause {
        id: "FAS:score.sink.once",
        status: Status::Normative,
        title: "A sink counts once in a row",
        statement: "However the keys of a row are divided, into blocks, splits or devices, its \
            sink enters the normalizer exactly once.",
        equation: "merge(splits, sink) = finish(keys and sink)",
        rationale: "Each split finishing with the sink counts it once for each, and leaving it \
            to the merge that never happens for one split counts it never.",
        references: &["rocm-libraries PR#12229"],
        executable: "attention::merge_splits",
        checked_by: &[
            "spec/tests/modified_rows.rs::a_sink_may_be_absorbed_anywhere",
            "spec/tests/modified_rows.rs::a_sink_belongs_to_one_split_only",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:score.dropout.keep",
        status: Status::Normative,
        title: "Dropout multiplies weights after the softmax",
        statement: "With dropout of keep mask z, the weight of a kept key is multiplied by the \
            dropout scale 1 / (1 - probability), and that of another by 0, where it meets the \
            value. Normalizer and LSE are those without dropout.",
        equation: "o_j = sum_i p_i z_i v_ij",
        rationale: "Dropping scores before the softmax, or summing the normalizer from kept \
            weights, renormalizes what is left: a different, deterministic-looking estimator. \
            With the mask given, the pass is a function of its inputs and can be checked.",
        references: &["Dao et al. 2022, arXiv 2205.14135, algorithm 3", "pytorch PR#197563"],
        executable: "attention::dropout",
        checked_by: &[
            "spec/tests/modified_rows.rs::dropout_changes_the_numerator_alone",
            "spec/tests/scores.rs::dropout_factors_are_the_scale_or_zero",
        ],
        proof: None,
    },
];
