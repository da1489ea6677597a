//! `FAS:io.*`: the memory that a flash kernel takes, and what it moves through it.

use super::{Clause, Status};

pub const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:io.memory.linear",
        status: Status::Normative,
        title: "Memory grows with the rows, not with the pairs",
        statement: "What a flash kernel holds in global memory beside its inputs and outputs is, at \
            a fixed shape and from some length on, an affine function of the number T of queries \
            and keys: its divided second difference over any three lengths is zero. Where keys \
            are divided into splits, that length is where their number grows no more.",
        equation: "(B(T3) - B(T2)) (T2 - T1) = (B(T2) - B(T1)) (T3 - T2)",
        rationale: "A dense kernel holds T^2 scores a head, 16,777,216 at T = 4,096 against 4,096 \
            row states: it runs out of memory where a flash kernel does not. A kernel that is right \
            in every number may still have lost this.",
        references: &[
            "Dao et al. 2022, arXiv 2205.14135, theorem 1 (O(N) memory beyond inputs and outputs)",
            "The chapter, listing 26.4",
            "Rabe and Staats 2021, arXiv 2112.05682",
        ],
        executable: "traffic::Growth::is_affine",
        checked_by: &[
            "spec/tests/traffic.rs::what_is_kept_of_rows_is_affine_and_of_pairs_is_not",
            "conformance/tests/traffic.rs::flash_kernels_hold_memory_in_proportion_to_the_rows",
            "conformance/tests/traffic.rs::the_dense_kernel_is_caught",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:io.traffic.streamed",
        status: Status::Normative,
        title: "Keys and values pass each tile of queries once",
        statement: "A forward pass that keeps a tile of B queries of a head on the chip and streams \
            keys and values past it reads each query of the tile once, each key and value that some \
            query of the tile sees once, and writes output and LSE once. It moves no other bytes \
            through global memory, whatever the mask and the length of the last tiles.",
        equation: "bytes = e (sum over tiles of (|Q_t| d + |union of what Q_t sees| (d + dv)) + T dv) \
            + bytes of the LSE",
        rationale: "An equality of whole numbers: a tile read twice, a tile read that nobody sees, \
            rows read past the end, or scores spilled to memory all break it, and leave every \
            result right.",
        references: &[
            "Dao et al. 2022, arXiv 2205.14135, proof of theorem 2",
            "Dao 2023, arXiv 2307.08691, section 3.2 (queries in the outer loop) and 3.1.1 (blocks that \
             a causal mask hides are skipped)",
            "The chapter, listing 26.3",
        ],
        executable: "traffic::streamed",
        checked_by: &[
            "spec/tests/traffic.rs::a_square_problem_streams_keys_once_a_tile",
            "spec/tests/traffic.rs::a_causal_mask_hides_tiles",
            "conformance/tests/traffic.rs::forward_kernels_move_exactly_what_is_derived",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:io.traffic.shared-memory",
        status: Status::Normative,
        title: "Traffic falls as shared memory grows",
        statement: "Let a block have M bytes of shared memory and a row d entries of e bytes, d e <= M. \
            The global traffic of a flash kernel's forward pass is c P d^2 e^2 / M bytes, and what \
            grows more slowly than T^2; P pairs of query and key are visible, T^2 or, under a causal \
            mask, T^2 / 2. A kernel that keeps B queries on the chip has c = 2 M / (B d e). So c is \
            at least 2 where the tile of queries goes into M, and at most 12, the constant of the \
            published algorithm, where M is no more than six such tiles. Bytes are a polynomial in T at \
            lengths of whole tiles.",
        equation: "2 <= c = (divided second difference of bytes over T) M T^2 / (P d^2 e^2) <= 12",
        rationale: "This is what makes a flash kernel fast: the dense one moves Theta(T d + T^2) \
            entries, M / d^2 times as many. A tile of queries that is small beside the shared memory \
            loses it, with right results. Where M is little more than d^2 entries, dense kernels may \
            have such a c, too, and FAS:io.memory.linear tells them apart.",
        references: &[
            "Dao et al. 2022, arXiv 2205.14135, theorem 2 and algorithm 1 (4 N d / M tiles, 3 N d \
             entries each: c = 12)",
            "Saha and Ye 2024, arXiv 2402.07443 (no algorithm moves less where M >= d^2)",
        ],
        executable: "traffic::is_tiled",
        checked_by: &[
            "spec/tests/traffic.rs::the_constant_is_two_tiles_of_queries",
            "spec/tests/traffic.rs::algorithm_1_has_the_greatest_constant",
            "conformance/tests/traffic.rs::constants_lie_where_the_tiles_put_them",
            "conformance/tests/traffic.rs::the_dense_kernel_is_caught",
        ],
        proof: None,
    },
];
