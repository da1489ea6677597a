//! `FAS:fwd.online.*`, `FAS:fwd.tiled.*`, `FAS:fwd.split.*` and `FAS:fwd.memory.*`: how a row may
//! be computed piece by piece.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:fwd.online.identity",
        status: Status::Normative,
        title: "The state of no keys",
        statement: "A row starts from reference minus infinity (no reference), normalizer 0 and \
            numerator 0. Merged with any state, on either side, it gives that state.",
        equation: "(-inf, 0, 0) * (m, l, n) = (m, l, n)",
        rationale: "A finite stand-in for minus infinity becomes the maximum of every row whose \
            scores lie below it, and their weights underflow. Starting from no reference has no \
            such row.",
        references: &[
            "The chapter, equation 26.2",
            "flashinfer#4267 (maximum started at -5e4; a score of -6e4 vanishes)",
        ],
        executable: "online::start",
        checked_by: &["spec/tests/merge.rs::start_is_the_identity_of_merge"],
        proof: Some("Online.merge_start_left"),
    },
    Clause {
        id: "FAS:fwd.online.absorb",
        status: Status::Normative,
        title: "Absorbing a block of keys",
        statement: "Absorbing a block into the state of other keys gives the state of all of \
            them: the new reference is the greater of the old one and the block's greatest \
            visible score, old normalizer and numerator are rescaled to it, and each visible key \
            of the block adds its weight, and its weight times its value.",
        equation: "m' = max(m, max_i s_i);  l' = e^(m - m') l + sum_i e^(s_i - m');  n' = e^(m - \
            m') n + sum_i e^(s_i - m') v_i",
        rationale: "This is the recurrence that makes one pass over the keys enough, and every \
            tiled kernel is an arrangement of it.",
        references: &[
            "The chapter, equation 26.2 and listing 26.3",
            "Milakov and Gimelshein 2018, arXiv 1805.02867, algorithm 3",
            "Dao et al. 2022, arXiv 2205.14135, algorithm 1",
        ],
        executable: "online::absorb",
        checked_by: &[
            "spec/tests/merge.rs::absorbing_a_block_merges_its_state",
            "spec/tests/golden.rs::recurrence_reproduces_the_golden_rows",
        ],
        proof: Some("Online.absorb_is_merge"),
    },
    Clause {
        id: "FAS:fwd.online.rescale",
        status: Status::Normative,
        title: "Normalizer and numerator are rescaled together",
        statement: "When the reference moves from m to m', both the normalizer and every entry of \
            the numerator are multiplied by e^(m - m'), before anything is added in the new \
            frame. A state rescaled to any reference is the state of the same keys.",
        equation: "l -> e^(m - m') l;  n -> e^(m - m') n",
        rationale: "Output is a quotient: scaling one of the two and not the other is wrong by \
            the factor e^(m - m'), which is near 1 on data whose maximum comes first and so \
            passes most random tests. Data with rising maxima across blocks shows it.",
        references: &["The chapter, equation 26.2", "Dao 2023, arXiv 2307.08691, section 3.1"],
        executable: "online::rescale",
        checked_by: &[
            "spec/tests/reference.rs::a_rescaled_state_is_the_same_row",
            "spec/tests/golden.rs::recurrence_reproduces_the_golden_rows",
        ],
        proof: Some("Lazy.rescale_represents"),
    },
    Clause {
        id: "FAS:fwd.online.merge",
        status: Status::Normative,
        title: "Merging states is commutative and associative",
        statement: "The states of two disjoint sets of keys merge into the state of their union. \
            The merge is commutative and associative, so that any tree of merges over any \
            grouping of the keys gives one state.",
        equation: "m = max(m1, m2);  l = e^(m1 - m) l1 + e^(m2 - m) l2;  n = e^(m1 - m) n1 + \
            e^(m2 - m) n2",
        rationale: "Warps, thread blocks and devices may take keys in whatever order they come: \
            this is the licence.",
        references: &[
            "The chapter, equation 26.2",
            "Milakov and Gimelshein 2018, arXiv 1805.02867, section 3.1",
        ],
        executable: "online::merge",
        checked_by: &[
            "spec/tests/merge.rs::merge_is_commutative",
            "spec/tests/merge.rs::merge_is_associative",
            "spec/tests/merge.rs::any_tree_of_merges_gives_one_state",
        ],
        proof: Some("Online.merge_assoc"),
    },
    Clause {
        id: "FAS:fwd.online.masked-block",
        status: Status::Normative,
        title: "A block without visible keys changes nothing",
        statement: "Absorbing a block none of whose keys is visible leaves the state as it was, \
            reference included, whether visible keys come before it, after it, or never.",
        equation: "no visible i in the block => (m', l', n') = (m, l, n)",
        rationale: "With masked scores held as -inf such a block's maximum is -inf, and e^(-inf + \
            inf) is NaN. A guard that replaces that maximum by 0 and keeps it makes later scores \
            underflow.",
        references: &[
            "pytorch#127055 (dead leading blocks)",
            "flash-attention#2082 (the guard's 0 stored as maximum)",
        ],
        executable: "online::absorb",
        checked_by: &["spec/tests/masked_keys.rs::fully_masked_blocks_change_nothing"],
        proof: Some("Online.masked_block_changes_nothing"),
    },
    Clause {
        id: "FAS:fwd.tiled.partition",
        status: Status::Normative,
        title: "Any partition into blocks, in any order, is the dense row",
        statement: "Output and LSE of a row do not depend on how its keys are divided into \
            blocks, nor on the order of blocks or of keys within them; blocks may be empty, fully \
            masked, and of different sizes.",
        equation: "absorb(... absorb(absorb(start, B_1), B_2) ..., B_n) = dense(B_1 B_2 ... B_n)",
        rationale: "A block size is a matter of speed alone. In rounding arithmetic two \
            partitions may differ, by no more than the sum of their bounds.",
        references: &["The chapter, listing 26.3", "Dao et al. 2022, arXiv 2205.14135, theorem 1"],
        executable: "attention::blocks_row",
        checked_by: &[
            "spec/tests/partition.rs::any_partition_in_any_order_is_the_dense_row",
            "spec/tests/partition.rs::every_block_size_is_the_dense_row",
        ],
        proof: Some("Online.any_partition_is_dense"),
    },
    Clause {
        id: "FAS:fwd.tiled.tail",
        status: Status::Normative,
        title: "Positions past the last key have no weight",
        statement: "A tile that reaches past the last key is treated as if its remaining \
            positions were invisible: they enter no maximum, no normalizer and no numerator, and \
            what memory holds there has no influence.",
        equation: "key_len not a multiple of the block => position i >= key_len adds nothing",
        rationale: "A padded key of zeros has score 0, not minus infinity: it gains weight e^(0 - \
            m), negligible where scores are large and positive, and everything where they are \
            negative.",
        references: &[
            "jax#23819 and jax#27224 (length not a multiple of the block)",
            "cutlass#2428 (64 keys under a tile of 128)",
        ],
        executable: "attention::tiled_row",
        checked_by: &["spec/tests/partition.rs::padding_the_last_tile_changes_nothing"],
        proof: Some("Online.absorbing_blocks_is_dense"),
    },
    Clause {
        id: "FAS:fwd.split.merge",
        status: Status::Normative,
        title: "Finished splits merge by their LSE",
        statement: "Let the keys of a row be divided into splits, each finished by itself into \
            output o_k and LSE L_k. The row's LSE is the log-sum-exp of the L_k, its output the \
            mean of the o_k weighted by e^(L_k). A split without visible keys (L_k = -inf) has \
            weight zero, whatever its output holds; if all are such, so is the row.",
        equation: "L = ln sum_k e^(L_k);  o = sum_k e^(L_k - L) o_k",
        rationale: "Split-KV decoding, sequence parallelism and cascaded prefixes all rest on it. \
            A finished split is a key with score L_k and value o_k, so the merge is attention \
            again and merges of merges are sound.",
        references: &[
            "Dao 2023, arXiv 2307.08691, section 3.1 (the state reduced to output and LSE)",
            "flashinfer#4051 and vllm#28181 (merging two empty splits gave NaN)",
        ],
        executable: "attention::merge_splits",
        checked_by: &[
            "spec/tests/split.rs::merged_splits_are_the_whole_row",
            "spec/tests/split.rs::merges_of_merges_are_the_whole_row",
            "spec/tests/split.rs::empty_splits_alone_are_an_empty_row",
        ],
        proof: Some("Split.merge_of_partials"),
    },
    Clause {
        id: "FAS:fwd.memory.row-state",
        status: Status::Normative,
        title: "A row's state has a fixed size",
        statement: "What the online algorithm carries from block to block is value_dim + 2 \
            numbers a row (reference, normalizer, numerator), however many keys there are. Beside \
            one tile of scores it holds nothing that grows with query_len * key_len.",
        equation: "query_len * (value_dim + 2) numbers, against query_len * key_len scores",
        rationale: "For 4,096 queries and keys, 4,096 row states stand against 16,777,216 dense \
            scores a head. This is the reason to compute attention online at all.",
        references: &[
            "The chapter, listing 26.4",
            "Dao et al. 2022, arXiv 2205.14135, theorem 1",
            "Rabe and Staats 2021, arXiv 2112.05682",
        ],
        executable: "memory::state_numbers",
        checked_by: &[
            "spec/tests/memory.rs::a_state_is_as_large_after_many_keys_as_after_none",
            "spec/tests/memory.rs::dense_scores_against_row_states_at_4096",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.merge.partials",
        status: Status::Normative,
        title: "Merging given partials",
        statement: "An operation that merges finished partials, outputs o_k with their LSEs L_k, \
            gives attention over them: L = ln sum_k e^(L_k) and o = sum_k e^(L_k - L) o_k. A \
            partial whose LSE is minus infinity saw no key, has output zero and no influence; where \
            all are such, the row sees none.",
        equation: "(o, L) = attention over keys of score L_k and value o_k",
        rationale: "Partials come from split keys, from a shared prefix or from other devices, \
            and empty ones with them: -inf minus -inf is NaN.",
        references: &[
            "flashinfer#4051 and vllm#28181 (two empty partials merge to NaN)",
            "FlashInfer (merge_state)",
        ],
        executable: "attention::merge_splits",
        checked_by: &[
            "spec/tests/split.rs::merged_splits_are_the_whole_row",
            "spec/tests/split.rs::empty_splits_alone_are_an_empty_row",
            "conformance/tests/relations.rs::right_kernels_pass_every_check",
            "conformance/tests/relations.rs::a_partial_that_is_lost_breaks_the_merge",
        ],
        proof: Some("Split.partials_merge_like_keys"),
    },
];
