//! `FAS:fwd.score.*`, `FAS:fwd.softmax.*` and `FAS:fwd.lse.*`: what a row's answer is.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:fwd.score.scale",
        status: Status::Normative,
        title: "Scores are scaled dot products",
        statement: "The score of a visible key is the exact real number scale * <q, k_i>. The \
            scale is exactly 1/sqrt(head_dim), with the real square root, unless the problem \
            gives a number, which then is exactly that binary64 number. It multiplies the dot \
            product once, before the exponential and before the LSE.",
        equation: "s_i = scale * sum_t q_t k_it;  scale = 1/sqrt(head_dim)",
        rationale: "The answer that a kernel is held to is that of the problem, not of a rounded \
            scale: rounding 1/sqrt(head_dim) is the kernel's error and counted in its profile. A \
            scale held in bfloat16 is exact for head_dim 64 and 256 and wrong by 2^-9 for 112.",
        references: &[
            "The chapter, equation 26.1",
            "Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1",
        ],
        executable: "problem::Problem::scale_f64",
        checked_by: &["spec/tests/problem.rs::the_scale_is_the_problems"],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.softmax.definition",
        status: Status::Normative,
        title: "Output of a row",
        statement: "Each output entry of a row with finite scores and at least one visible key is \
            the mean of the visible keys' value entries, weighted by the exponentials of their \
            scores.",
        equation: "o_j = sum_i e^(s_i - m) v_ij / sum_i e^(s_i - m),  m = max_i s_i",
        rationale: "This is attention itself; every other forward clause says how it may be \
            computed or what happens at its edges.",
        references: &[
            "The chapter, equation 26.1 and listing 26.2",
            "Vaswani et al. 2017, arXiv 1706.03762",
        ],
        executable: "attention::dense_row",
        checked_by: &["spec/tests/definition.rs::dense_row_is_the_weighted_mean"],
        proof: Some("Softmax.online_softmax_is_attention"),
    },
    Clause {
        id: "FAS:fwd.softmax.every-key",
        status: Status::Normative,
        title: "Every visible key counts exactly once",
        statement: "Normalizer and numerator have exactly one term for each visible key, and none \
            besides.",
        equation: "l = sum over visible i of e^(s_i - m), each i once",
        rationale: "Dropped tails, blocks read twice, keys past the length and loops that end one \
            block early all break this clause and no other. One key lost in a row of thousands \
            moves the output by less than usual tolerances; its weight is missing from the LSE \
            all the same.",
        references: &[
            "jax PR#17314 (causal loop one block short)",
            "jax#27224 (length not a multiple of the block)",
            "pegainfer#291 (one page too many, hidden by a bfloat16 tolerance)",
        ],
        executable: "attention::dense_row",
        checked_by: &["spec/tests/definition.rs::every_visible_key_counts_once"],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.softmax.shift",
        status: Status::Normative,
        title: "Any reference gives the same row",
        statement: "Output and LSE do not depend on the score that weights are taken against: the \
            row's maximum, a running maximum, one that lags behind it (lazy or conditional \
            rescaling) and any constant define the same row. In rounding arithmetic the reference \
            decides only whether weights overflow or underflow.",
        equation: "sum_i e^(s_i - r) v_ij / sum_i e^(s_i - r) and r + ln sum_i e^(s_i - r) are \
            the same for every r",
        rationale: "Skipping a rescaling while the maximum moves little saves work in the \
            critical path; it is correct only if weights, normalizer and numerator stay in one \
            frame. A kernel that keeps the old maximum but forms new weights against the new one \
            mixes two frames. A fixed reference, such as a finite stand-in for minus infinity, \
            loses rows whose scores all lie far below it.",
        references: &[
            "The chapter, equation 26.1",
            "rocm-libraries PR#6498 (old maximum, new frame)",
            "flashinfer#4267 (running maximum started at -5e4)",
            "arXiv 2510.04212 (a shifted reference at ties)",
        ],
        executable: "attention::dense_row_at",
        checked_by: &[
            "spec/tests/reference.rs::any_reference_gives_the_same_row",
            "spec/tests/reference.rs::conditional_rescaling_gives_the_same_row",
        ],
        proof: Some("Lazy.any_reference_output"),
    },
    Clause {
        id: "FAS:fwd.softmax.empty-row",
        status: Status::Normative,
        title: "A row without visible keys",
        statement: "Where no key is visible, because the mask excludes all or key_len is 0, the \
            LSE is minus infinity and every output entry is the value declared by \
            FAS:choice.empty-row.output. Neither depends on any input. With a sink the row has a \
            term left: its output is zero and its LSE the logit (FAS:score.sink.normalizer).",
        equation: "no visible i => L = ln 0 = -inf, l = 0, n = 0",
        rationale: "The sums are empty, so the LSE is the logarithm of zero; it lets such a row \
            be merged with others (it weighs nothing). The quotient 0/0 has no value of its own, \
            hence the choice. Kernels have returned the mean of the values, stale memory, a \
            finite LSE and +inf.",
        references: &[
            "pytorch#103963 (an all-False mask row gave NaN)",
            "flashinfer#4452 (finite LSE on dead rows)",
            "flash-attention PR#978 (LSE +inf for no keys)",
        ],
        executable: "online::finish",
        checked_by: &["spec/tests/masked_keys.rs::a_row_without_visible_keys_has_no_answer"],
        proof: Some("Softmax.row_without_keys"),
    },
    Clause {
        id: "FAS:fwd.lse.definition",
        status: Status::Normative,
        title: "Log-sum-exp of a row",
        statement: "The LSE of a row with finite scores and at least one visible key is the \
            natural logarithm of the sum of the exponentials of its visible scores, scale \
            included; it is divided by ln 2 where the kernel declares base two \
            (FAS:choice.lse.base).",
        equation: "L = m + ln sum_i e^(s_i - m) = ln sum_i e^(s_i)",
        rationale: "The LSE is what backward passes, split merges and attention sinks build on. \
            It is also the sharpest detector of a wrong forward pass, because no value averages \
            its error away: it shows a missing key, a wrong scale and a weak exponential where \
            outputs look right.",
        references: &["The chapter, equation 26.2", "Dao 2023, arXiv 2307.08691, algorithm 1"],
        executable: "attention::dense_row",
        checked_by: &["spec/tests/definition.rs::lse_is_the_logarithm_of_the_mass"],
        proof: Some("Softmax.lse_of_dense"),
    },
    Clause {
        id: "FAS:fwd.lse.shift",
        status: Status::Normative,
        title: "A constant on every score moves the LSE alone",
        statement: "Adding one finite constant to every visible score of a row leaves its output \
            as it was and adds the constant to its LSE.",
        equation: "s_i -> s_i + c for all i  =>  o -> o, L -> L + c",
        rationale: "Softmax sees differences of scores only. It makes a relation between two runs \
            of one kernel that needs no reference answer, and it is why position biases that \
            differ by a constant along a row are the same bias.",
        references: &[
            "The chapter, equation 26.1",
            "Press et al. 2021, arXiv 2108.12409 (linear biases)",
        ],
        executable: "attention::dense_row",
        checked_by: &["spec/tests/reference.rs::a_constant_on_every_score_moves_the_lse_alone"],
        proof: Some("Softmax.lse_of_shifted_scores"),
    },
];
