//! `FAS:problem.*` and `FAS:head.*`: what the tensors are, and which heads meet.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:problem.shape",
        status: Status::Normative,
        title: "Shapes of the tensors",
        statement: "Query is [batch, query_heads, query_len, head_dim], key [batch, key_heads, \
            key_len, head_dim], value [batch, key_heads, key_len, value_dim], output [batch, \
            query_heads, query_len, value_dim] and LSE [batch, query_heads, query_len], all in \
            row-major order unless the problem has another layout. value_dim may differ from head_dim and query_len from key_len; \
            query_len and key_len may be 0, every other extent is at least 1. Query, key, value \
            and output share one number format; the LSE has the profile's.",
        equation: "",
        rationale: "Kernels that assume value_dim = head_dim, query_len = key_len or a length \
            that the block size divides are right on most benchmarks and wrong in use; the shapes \
            are therefore independent parameters. A kernel that offers fewer says so \
            (unsupported).",
        references: &[
            "flash-attention#2552 (d_v differs from d)",
            "jax#24491 (query_len differs from key_len)",
            "triton#621 (half of the head dimension used)",
        ],
        executable: "problem::Problem::validate",
        checked_by: &[
            "spec/tests/problem.rs::shapes_follow_the_extents",
            "spec/tests/problem.rs::impossible_problems_are_refused_by_name",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:head.group.block",
        status: Status::Normative,
        title: "Consecutive query heads share a key head",
        statement: "key_heads divides query_heads, and query head h reads key and value head \
            floor(h / (query_heads / key_heads)): each run of query_heads / key_heads consecutive \
            query heads shares one. Equal counts are multi-head attention, key_heads = 1 \
            multi-query attention.",
        equation: "g = floor(h * key_heads / query_heads)",
        rationale: "The interleaved assignment h mod key_heads gives tensors of the same shape \
            and plausible values, and agrees where query_heads = key_heads or key_heads = 1. Six \
            query heads on two key heads tell the two apart.",
        references: &[
            "Ainslie et al. 2023, arXiv 2305.13245 (grouped-query attention)",
            "levanter PR#449",
        ],
        executable: "problem::Problem::key_head_of",
        checked_by: &["spec/tests/problem.rs::query_heads_share_key_heads_in_runs"],
        proof: None,
    },
];
