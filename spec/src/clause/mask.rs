//! `FAS:mask.*`: which keys a query sees.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:mask.full",
        status: Status::Normative,
        title: "The full mask",
        statement: "Without any rule, every query sees every key of its batch member, positions 0 \
            to key_len - 1.",
        equation: "visible(i, t) for all 0 <= t < key_len",
        rationale: "It is the neutral element of intersection, and what remains of every mask \
            whose rules exclude nothing.",
        references: &["The chapter, equation 26.1"],
        executable: "mask::Mask::full",
        checked_by: &["spec/tests/masks.rs::without_rules_every_key_is_visible"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.intersection",
        status: Status::Normative,
        title: "Rules intersect",
        statement: "A key is visible when every rule of the mask admits it. The order of rules \
            does not matter, and a repeated rule changes nothing.",
        equation: "visible = rule_1 and rule_2 and ... and rule_n",
        rationale: "One rule of combination for all masks: a kernel that takes the last of two \
            masks, or their union, differs on a padded causal batch.",
        references: &[],
        executable: "mask::Mask::admits",
        checked_by: &["spec/tests/masks.rs::rules_intersect"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.causal.top-left",
        status: Status::Normative,
        title: "Causal mask, aligned at the first key",
        statement: "Under top-left alignment query i sees key t when t <= i, whatever the \
            lengths. Queries past the last key see all keys.",
        equation: "visible(i, t) <=> t <= i",
        rationale: "Positions count from the start of both sequences: what training on whole \
            sequences means. With equal lengths it is the bottom-right mask.",
        references: &["flash-attention#282 (the two alignments)", "jax#24491"],
        executable: "mask::Mask::admits",
        checked_by: &["spec/tests/masks.rs::causal_masks_match_the_tables"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.causal.bottom-right",
        status: Status::Normative,
        title: "Causal mask, aligned at the last key",
        statement: "Under bottom-right alignment query i sees key t when t <= i + used - \
            query_len, where used is the number of keys in use (key_len, or the batch member's \
            length where one is given): the last query sees the last key in use. With more \
            queries than keys, the first query_len - used queries see none.",
        equation: "visible(i, t) <=> t + query_len <= i + used",
        rationale: "It is what decoding with a cache means: the queries are the newest positions. \
            Aligned top-left instead, one new query on a cache of thousands would see its first \
            key alone. The offset is that of the keys in use, not of the buffer that holds them.",
        references: &[
            "flash-attention#282, PR#436 and #1778",
            "cutlass#2336 (3 queries on 128 keys; kernel and verifier shared the mask's code)",
        ],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/masks.rs::causal_masks_match_the_tables",
            "spec/tests/masks.rs::bottom_right_is_aligned_with_the_keys_in_use",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.length.padding",
        status: Status::Normative,
        title: "Keys at or past the length are padding",
        statement: "Where a batch member b has a key length, its keys at positions length[b] and \
            above are invisible to all its queries. A length of 0 leaves its rows without visible \
            keys; other batch members are unaffected.",
        equation: "visible(b, i, t) => t < length[b]",
        rationale: "Padding holds whatever memory held. Reading one position or one page too far \
            moves the output by about one weight, which a loose tolerance hides.",
        references: &[
            "flash-attention#1745 (NaN in padding leaked)",
            "pegainfer#291 (one page too many)",
            "sglang PR#22688 (length 0 for one member)",
        ],
        executable: "mask::Mask::used_keys",
        checked_by: &["spec/tests/masks.rs::keys_past_the_length_are_invisible"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.length.left-padding",
        status: Status::Normative,
        title: "Keys before the start are padding",
        statement: "Where a batch member b has a key start, its keys at positions below start[b] are \
            invisible to all its queries. Positions keep counting from 0: causal masks, windows \
            and ALiBi do not move.",
        equation: "visible(b, i, t) => t >= start[b]",
        rationale: "Batches of prompts of uneven length are aligned at their ends for generation. A \
            kernel that shifts positions by the padding, or reads it, is wrong for all but the \
            longest prompt.",
        references: &[],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/rules.rs::padding_on_the_left_matches_the_tables",
            "spec/tests/rules.rs::starts_and_lengths_leave_a_range",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.length.queries",
        status: Status::Normative,
        title: "Queries at or past their length are padding",
        statement: "Where a batch member b has a query length, its queries at positions length[b] and \
            above see no key: they are rows without keys (FAS:fwd.softmax.empty-row), with zero \
            gradients. Bottom-right alignment counts the queries in use.",
        equation: "visible(b, i, t) => i < length[b]",
        rationale: "A gradient row that no kernel writes holds what memory held, and the optimizer adds \
            it up. Aligned with the allocated instead of the used length, every causal row of a \
            short member is off.",
        references: &[
            "pytorch PR#188933 and flash-attention PR#2324 (gradient rows past the last sequence uninitialised)",
        ],
        executable: "mask::Mask::used_queries",
        checked_by: &["spec/tests/rules.rs::padding_queries_match_the_tables"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.length.range",
        status: Status::Normative,
        title: "Lengths beyond the extent are errors",
        statement: "A length, start or prefix above the extent that it divides is refused as an error; \
            it is never clamped, wrapped or read beyond.",
        equation: "0 <= length[b] <= key_len",
        rationale: "A length that exceeds its buffer is a fault of the caller, and reading past the \
            buffer or silently shortening the sequence hides it.",
        references: &[
            "flash-attention PR#2711 and onnxruntime PR#32391 (block table read out of bounds)",
        ],
        executable: "problem::Problem::validate",
        checked_by: &["spec/tests/problem.rs::impossible_masks_are_refused_by_name"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.window.inclusive",
        status: Status::Normative,
        title: "Sliding window with inclusive bounds",
        statement: "Under a window (left, right), a query at position p among the keys sees keys p - \
            left to p + right, both included; a bound that is not given does not restrict. p is \
            the query's position under the window's alignment. Windows may be zero or exceed the \
            sequence.",
        equation: "visible(i, t) <=> p - left <= t <= p + right",
        rationale: "Whether a window of w covers w keys or w + 1 is decided differently by libraries; \
            off by one, a long sequence changes by one weight in w.",
        references: &[
            "flash-attention (window_size)",
            "onnxruntime PR#25927 and transformers#39408 (window off by one)",
        ],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/rules.rs::windows_match_the_tables",
            "spec/tests/rules.rs::a_causal_mask_is_a_window_open_to_the_left",
            "spec/tests/rules.rs::a_two_sided_window_is_the_intersection_of_its_sides",
            "spec/tests/rules.rs::a_wider_window_sees_what_a_narrower_one_sees",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.prefix.bidirectional",
        status: Status::Normative,
        title: "Prefix language model",
        statement: "With prefix length P for a batch member, a query sees every key below P and, beyond \
            them, what the causal mask of the rule's alignment shows.",
        equation: "visible(i, t) <=> t <= p or t < P",
        rationale: "It is the union of two masks, the only one here: a kernel that bounds its loop by \
            the diagonal alone loses the prefix for early queries.",
        references: &["Raffel et al. 2020, arXiv 1910.10683 (prefix LM)"],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/rules.rs::prefixes_match_the_tables",
            "spec/tests/rules.rs::a_prefix_is_the_union_of_causal_and_length",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.chunk.local",
        status: Status::Normative,
        title: "Chunked local attention",
        statement: "Positions are divided into chunks of a given size, the first from position 0. A \
            query sees the keys of its own chunk; with a causal rule beside it, those up to \
            itself.",
        equation: "visible(i, t) <=> floor(p / size) = floor(t / size)",
        rationale: "Unlike a window, the first query of a chunk sees none before it. Negative positions, \
            of more queries than keys, lie in chunks of their own: division rounds down, not \
            towards zero.",
        references: &["Llama 4 (chunked attention)"],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/rules.rs::chunks_match_the_tables",
            "spec/tests/rules.rs::chunks_are_documents_of_consecutive_positions",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.dilated.step",
        status: Status::Normative,
        title: "Dilated attention",
        statement: "Under dilation by step, a query at position p sees the keys whose distance from p is \
            a multiple of step, on either side; with a window beside it, dilated local \
            attention.",
        equation: "visible(i, t) <=> step divides p - t",
        rationale: "Counted from key 0 instead of the query's own position, only every step-th query \
            would see itself.",
        references: &[
            "Child et al. 2019, arXiv 1904.10509 (strided patterns)",
            "Beltagy et al. 2020, arXiv 2004.05150 (dilated windows)",
        ],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/rules.rs::dilated_masks_match_the_tables",
            "spec/tests/rules.rs::dilated_keys_stand_whole_steps_apart",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.document.same",
        status: Status::Normative,
        title: "Documents do not see each other",
        statement: "Where positions carry document numbers, a query sees the keys of its own document \
            only. Numbers need not be ascending or contiguous, and a document may lack queries \
            or keys.",
        equation: "visible(i, t) <=> document(i) = document(t)",
        rationale: "Several short sequences are packed into one; a key of a neighbour that leaks changes \
            the loss by little and the model for good.",
        references: &["FlexAttention (document masking)"],
        executable: "mask::Mask::admits",
        checked_by: &["spec/tests/rules.rs::documents_match_the_tables"],
        proof: None,
    },
    Clause {
        id: "FAS:mask.boolean.broadcast",
        status: Status::Normative,
        title: "Boolean masks broadcast",
        statement: "A boolean mask of shape [batch, query_heads, query_len, key_len], any of them 1, \
            admits a key where it holds; an axis of extent 1 stands for every index.",
        equation: "visible(b, h, i, t) <=> mask[b or 0, h or 0, i or 0, t or 0]",
        rationale: "Applied to the first head or member alone, or indexed by the packed row of grouped \
            heads, the rest of the batch is masked wrongly or not at all.",
        references: &[
            "burn#4778",
            "flash-attention PR#2528 (packed grouped heads divide the row index)",
        ],
        executable: "pattern::Pattern::at",
        checked_by: &[
            "spec/tests/rules.rs::boolean_masks_match_the_tables",
            "spec/tests/pattern.rs::axes_of_extent_one_are_broadcast",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:mask.block-sparse.pattern",
        status: Status::Normative,
        title: "Block-sparse masks",
        statement: "A pattern over blocks of queries by keys admits every pair of a block where it \
            holds. Blocks start at position 0; the last ones are shorter where a block does not \
            divide the length.",
        equation: "visible(i, t) <=> pattern[floor(i / query_block), floor(t / key_block)]",
        rationale: "The blocks of the pattern are the problem's, not the kernel's tiles; a kernel whose \
            tiles differ has to intersect them.",
        references: &["Dao et al. 2022, arXiv 2205.14135, algorithm 5"],
        executable: "mask::Mask::admits",
        checked_by: &[
            "spec/tests/rules.rs::block_sparse_masks_match_the_tables",
            "spec/tests/rules.rs::blocks_of_one_are_a_boolean_mask",
        ],
        proof: None,
    },
];
