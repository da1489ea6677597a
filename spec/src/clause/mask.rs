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
];
