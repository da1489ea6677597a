//! `FAS:meta.*`, `FAS:closed.*` and `FAS:repeat.*`: what must hold between answers, and answers known without an oracle.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:meta.key-permutation",
        status: Status::Normative,
        title: "Keys may be permuted",
        statement: "Without a rule, bias or keep mask that tells keys apart, permuting keys together \
            with their values leaves output and LSE unchanged, within twice their bounds.",
        equation: "o(perm(K), perm(V)) = o(K, V)",
        rationale: "Softmax attention is a function of the set of pairs. A dropped or repeated tail, or \
            a rescaling that depends on where the maximum stands, breaks it.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_key_dropped_by_its_place_breaks_key_permutation",
        ],
        proof: Some("Online.dense_permutation"),
    },
    Clause {
        id: "FAS:meta.batch-independence",
        status: Status::Normative,
        title: "Batch members do not influence each other",
        statement: "What a batch member gets depends on its own inputs alone: changing the others \
            changes nothing, bit for bit where the kernel declares batch invariance, within \
            twice the bound otherwise.",
        equation: "o_b = f(q_b, k_b, v_b)",
        rationale: "Members that share a tile, a semaphore or a length leak into each other.",
        references: &["sglang PR#22688"],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_leak_between_members_breaks_batch_independence",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:meta.head-independence",
        status: Status::Normative,
        title: "Heads do not influence each other",
        statement: "What a query head gets depends on its own query and on the key head that it reads.",
        equation: "o_h = f(q_h, k_g(h), v_g(h))",
        rationale: "A head that reads its neighbour is invisible where all heads look alike.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_leak_between_heads_breaks_head_independence",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:meta.causal-window",
        status: Status::Normative,
        title: "A causal mask is a window",
        statement: "The causal mask and the window of all keys before the query's own position and none \
            after it are the same mask, and have the same answer within twice the bound.",
        equation: "causal = window(key_len, 0)",
        rationale: "They run through different loop bounds of the same kernel.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_window_one_key_short_is_no_causal_mask",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:meta.score-shift",
        status: Status::Normative,
        title: "A constant added to all scores changes the LSE alone",
        statement: "Adding a constant to every score of a row, as a bias, leaves the output unchanged \
            and adds the constant to the LSE, within twice the bounds.",
        equation: "s_i + c: o unchanged, L + c",
        rationale: "It moves the maximum across zero and past initial values that are not minus \
            infinity.",
        references: &["flashinfer#4267"],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_finite_initial_maximum_breaks_the_score_shift",
        ],
        proof: Some("Softmax.lse_of_shifted_scores"),
    },
    Clause {
        id: "FAS:meta.value-shift",
        status: Status::Normative,
        title: "A constant added to all values is added to the output",
        statement: "Adding a constant to every value of a column adds it to every output of that column, \
            within the sum of the two bounds, where the shifted values are exact and no weight \
            is dropped and no sink takes a share.",
        equation: "v_ij + c_j: o_j + c_j",
        rationale: "Weights sum to one. Weights that were rounded apart from their normalizer do not \
            quite.",
        references: &["arXiv 2510.04212"],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::weights_that_do_not_sum_to_one_break_the_value_shift",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:meta.batch-split",
        status: Status::Normative,
        title: "A batch may be split",
        statement: "Running a batch member by member gives what the whole batch gives.",
        equation: "f([a, b]) = [f(a), f(b)]",
        rationale: "Work distribution depends on the batch; answers do not.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::an_answer_that_depends_on_the_batch_breaks_the_batch_split",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:meta.document-concat",
        status: Status::Normative,
        title: "Documents may be concatenated",
        statement: "Attention over concatenated documents under their document mask is attention over \
            each by itself, within twice the bound.",
        equation: "f([a, b], documents) = [f(a), f(b)]",
        rationale: "It checks block skipping at boundaries that no tile respects, at any length.",
        references: &["FlexAttention (document masking)"],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::an_ignored_document_mask_breaks_concatenation",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:closed.uniform",
        status: Status::Normative,
        title: "Equal scores average the values",
        statement: "Where every visible key has the same score, the output is the mean of their values \
            and the LSE the score plus the logarithm of their number.",
        equation: "o_j = sum_i v_ij / n    L = s + ln n",
        rationale: "Exact at any length, so that it reaches sequences that no oracle would finish.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_dropped_key_is_missed_by_no_formula",
            "conformance/src/closed/forms.rs::formulas_and_oracle_agree",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:closed.one-hot",
        status: Status::Normative,
        title: "One score above all others selects its value",
        statement: "Where one score exceeds all others by so much that their weights together vanish \
            beside it in every format, the output is its value within the bound, and the LSE its \
            score.",
        equation: "o_j = v_tj    L = s_t",
        rationale: "It reads one chosen key of a long sequence: the first, the last, either side of a tile.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_dropped_key_is_missed_by_no_formula",
            "conformance/src/closed/forms.rs::formulas_and_oracle_agree",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:closed.geometric",
        status: Status::Normative,
        title: "Scores in arithmetic progression have a closed form",
        statement: "With scores s_i = s_0 - c i and values that are a function of the position, output \
            and LSE are quotients of finite geometric sums.",
        equation: "l = (1 - e^(-c n)) / (1 - e^(-c))",
        rationale: "Weights fall over the whole range of the format, and the answer still is a formula.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_wrong_scale_is_missed_by_no_geometric_sum",
            "conformance/src/closed/forms.rs::formulas_and_oracle_agree",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:repeat.deterministic",
        status: Status::Normative,
        title: "A deterministic kernel repeats itself",
        statement: "A kernel that declares determinism gives the same bits each time it is run on the \
            same inputs, forward and backward.",
        equation: "f(x) = f(x), bit for bit",
        rationale: "Sums that meet in memory in the order of arrival differ from run to run, and a flag \
            called deterministic has not always removed them.",
        references: &["flash-attention#2244 and PR#1766"],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::one_bit_breaks_a_promise_and_nothing_else",
            "conformance/tests/relations.rs::gradients_that_vary_break_a_promise",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:repeat.batch-invariant",
        status: Status::Normative,
        title: "A batch-invariant kernel does not look at the batch",
        statement: "A kernel that declares batch invariance gives a batch member the same bits whatever \
            other members there are, and in whatever order.",
        equation: "f([a, b])_a = f([a])_a, bit for bit",
        rationale: "Splitting the keys by how busy the device is changes the order of additions with the \
            load.",
        references: &[],
        executable: "",
        checked_by: &[
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::an_answer_that_depends_on_the_batch_breaks_the_batch_split",
        ],
        proof: None,
    },
];
