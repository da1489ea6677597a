//! `FAS:bwd.*` and `FAS:bound.bwd.*`: what the gradients of a head are, how they may be computed,
//! and how far rounding can take them.

use super::{Clause, Status};

/// Dao et al. 2022, whose algorithm 4 is the backward pass by recomputation.
const FLASH_ATTENTION: &str = "Dao et al. 2022, arXiv 2205.14135, algorithm 4 and appendix B.2";

/// Dao 2023, whose algorithm 2 keeps the LSE alone and forms `D` once.
const FLASH_ATTENTION_2: &str = "Dao 2023, arXiv 2307.08691, algorithm 2";

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:bwd.delta.rowsum",
        status: Status::Normative,
        title: "D is the row sum of output gradient times output",
        statement: "D of a row is the sum over its output entries of the output's upstream \
            gradient times the output, both of that same row: the output that the forward pass \
            stored, or one as exact. It equals the mean of dP_i under the row's probabilities.",
        equation: "D = sum_j dO_j o_j = sum_i P_i dP_i",
        rationale: "The second form needs a whole row of probabilities, the first value_dim \
            products; that is what lets a backward pass work tile by tile. It is only as good as \
            the output that it reads: D of another row, or of a buffer that a later step has \
            overwritten, is a number of the same size as the right one.",
        references: &[FLASH_ATTENTION, FLASH_ATTENTION_2],
        executable: "gradient::delta",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::delta_stale",
            "spec/tests/gradient_identities.rs::delta_is_the_mean_of_the_probability_gradients",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_leave_the_bounds",
        ],
        proof: Some("Gradient.delta_is_rowsum"),
    },
    Clause {
        id: "FAS:bwd.probability.recompute",
        status: Status::Normative,
        title: "Probabilities are recomputed from the LSE",
        statement: "The probability of a visible key is the exponential of its score less the \
            row's LSE. It is the probability that the forward pass had, and needs neither its \
            maximum nor its normalizer. Scores are formed as in the forward pass, scale included, \
            and the LSE is taken in the base that it was given in.",
        equation: "P_i = e^(s_i - L) = e^(s_i - m) / l",
        rationale: "Storing the probabilities would take query_len * key_len numbers; the LSE \
            takes one for each row. An LSE in base two taken for natural, or a scale that differs \
            between the passes, gives weights that no longer sum to one.",
        references: &[FLASH_ATTENTION_2, "Chen et al. 2016, arXiv 1604.06174 (recomputation)"],
        executable: "gradient::probability",
        checked_by: &[
            "spec/tests/gradient_identities.rs::recomputed_probabilities_are_those_of_the_forward_pass",
            "spec/tests/gradient_identities.rs::probabilities_of_a_row_sum_to_one",
        ],
        proof: Some("Softmax.softmax_from_lse"),
    },
    Clause {
        id: "FAS:bwd.probability.mask",
        status: Status::Normative,
        title: "What a query does not see has no probability in the backward pass either",
        statement: "P and dS of a key that a query does not see (masked, padding, or past the last \
            key) are exactly zero and bring nothing to any gradient, whatever its score would be \
            and whatever memory holds there, NaN and infinities included. The gradients of a key \
            and value that no query sees are zero.",
        equation: "i not visible => P_i = 0, dS_i = 0;  never P_i = e^(0 - L)",
        rationale: "The mask must be applied again, for nothing in the recomputed score remembers \
            it. A padded key of zeros scores 0, and e^(0 - L) is no small number where L is \
            negative: it overflows binary32 below L = -88.7. To select such keys away by \
            multiplying with zero does not help: 0 * NaN is NaN.",
        references: &[
            "pytorch#196678 (half a tile of padding; scores near -120)",
            "flash-attention#1947 (probabilities not masked again)",
            FLASH_ATTENTION,
        ],
        executable: "gradient::probability",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::mask_shift",
            "conformance/tests/gradient_faults.rs::padding_that_scores_zero",
            "conformance/tests/gradient_faults.rs::padding_that_overflows",
            "spec/tests/gradient_identities.rs::only_visible_pairs_have_gradients",
            "spec/tests/gradient_identities.rs::keys_that_no_query_sees_have_zero_gradients",
            "spec/tests/gradient_masked.rs::invisible_data_has_no_influence",
            "spec/tests/gradient_masked.rs::a_row_depends_on_the_keys_it_sees",
            "spec/tests/gradient_masked.rs::padding_under_low_scores_has_no_probability",
            "spec/tests/gradient_tiles.rs::padding_the_last_tile_changes_nothing",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.score.gradient",
        status: Status::Normative,
        title: "Gradient of a score",
        statement: "The gradient of the loss by a visible score is the key's probability times \
            the difference between its dP and the row's D, with the LSE's upstream gradient g \
            added to that difference. It is the derivative by the score as it enters the \
            exponential in base e, scale included. Without g, the gradients of a row sum to zero.",
        equation: "dS_i = P_i (dP_i - D + g),  dP_i = sum_j dO_j v_ij;  sum_i dS_i = g",
        rationale: "d o_j / d s_i = P_i (v_ij - o_j): raising one score lowers every other \
            probability of the row, and -D is that. Left out, the gradients look plausible and \
            are those of unnormalized weights. A row that sees a single key has no score gradient \
            at all unless g is given.",
        references: &[
            FLASH_ATTENTION,
            FLASH_ATTENTION_2,
            "flash-attention#334 (one query on one key gave NaN)",
        ],
        executable: "gradient::score_gradient",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::no_delta",
            "spec/tests/gradient_derivative.rs::score_gradients_are_derivatives",
            "spec/tests/gradient_identities.rs::score_gradients_of_a_row_sum_to_the_lse_gradient",
            "spec/tests/gradient_masked.rs::a_single_key_has_no_score_gradient",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_leave_the_bounds",
        ],
        proof: Some("Gradient.score_gradient_is_derivative"),
    },
    Clause {
        id: "FAS:bwd.lse.gradient",
        status: Status::Normative,
        title: "A gradient that arrives through the LSE",
        statement: "Where the loss depends on the LSE of a row, with upstream gradient g in nats, \
            each score gradient of the row grows by P_i g, and value gradients do not change. A \
            kernel whose LSE is in base two is given, or converts, the gradient accordingly: g is \
            the gradient by L / ln 2, divided by ln 2. A kernel that offers the LSE and not its \
            gradient says so (unsupported); it does not take g for zero.",
        equation: "d L / d s_i = P_i  =>  dS_i = P_i (dP_i - D + g)",
        rationale: "The LSE is an output like any other: split merges, auxiliary losses and \
            attention sinks differentiate through it. Taking g from D, once for the row, costs \
            nothing.",
        references: &["flash-attention#141 and #889 (the gradient of the LSE was ignored)"],
        executable: "gradient::score_gradient",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::dlse_ignored",
            "spec/tests/gradient_identities.rs::an_lse_gradient_adds_its_share_of_every_probability",
            "spec/tests/gradient_derivative.rs::score_gradients_are_derivatives",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_leave_the_bounds",
        ],
        proof: Some("Gradient.lse_derivative"),
    },
    Clause {
        id: "FAS:bwd.query.gradient",
        status: Status::Normative,
        title: "Gradient of a query",
        statement: "The gradient of a query is the softmax scale times the sum, over the keys that \
            the query sees, of score gradient times key. Each visible key counts exactly once, in \
            whichever block it comes.",
        equation: "dQ_r = scale sum_i dS_ri k_i",
        rationale: "In a loop over key blocks this is the gradient that every block adds to, \
            through memory or by atomic operations. Query \
            gradients are small where attention is nearly uniform, so that absolute tolerances in \
            common use accept zeros for them.",
        references: &[
            FLASH_ATTENTION,
            "flash-attention PR#2896 (wrong at head dimensions 72 and 104)",
            "TransformerEngine#3216 (wrong for a second batch member)",
        ],
        executable: "gradient::query_gradient",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::dq_zero",
            "spec/tests/gradient_derivative.rs::query_gradients_are_derivatives",
            "spec/tests/gradient_difference.rs::halving_the_step_of_a_query_quarters_the_error",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_leave_the_bounds",
        ],
        proof: Some("Gradient.query_gradient_is_derivative"),
    },
    Clause {
        id: "FAS:bwd.query.scale",
        status: Status::Normative,
        title: "The scale enters a query's gradient once",
        statement: "The softmax scale multiplies the gradient of a query exactly once: at the end, \
            or on each key, or on each score gradient, and not in two of these. It is the scale \
            of the scores, without the factor log2 e that a kernel may keep with it.",
        equation: "s_i = scale <q, k_i>  =>  d s_i / d q = scale k_i",
        rationale: "A kernel that multiplies its queries by the scale beforehand has scores \
            without a scale of their own, and the gradient of the scaled query is not that of the \
            query.",
        references: &[FLASH_ATTENTION],
        executable: "gradient::query_gradient",
        checked_by: &[
            "spec/tests/gradient_identities.rs::the_scale_enters_query_and_key_gradients_once",
            "spec/tests/gradient_derivative.rs::query_gradients_are_derivatives",
        ],
        proof: Some("Gradient.query_gradient_is_derivative"),
    },
    Clause {
        id: "FAS:bwd.key.scale",
        status: Status::Normative,
        title: "Gradient of a key, scaled exactly once",
        statement: "The gradient of a key is the softmax scale times the sum, over the queries \
            that see it in every query head of its group, of score gradient times query. The scale \
            multiplies it exactly once: where queries were scaled beforehand it is in them \
            already.",
        equation: "dK_i = scale sum_r dS_ri q_r",
        rationale: "The scale is applied to dQ at the end of its loop, and dK, which another loop \
            finishes, is where it is forgotten, or applied to queries that carry it. At head_dim \
            1 the scale is 1 and shows neither.",
        references: &[FLASH_ATTENTION, FLASH_ATTENTION_2],
        executable: "gradient::key_gradient",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::dk_unscaled",
            "spec/tests/gradient_derivative.rs::key_gradients_are_derivatives",
            "spec/tests/gradient_difference.rs::halving_the_step_of_a_key_quarters_the_error",
            "spec/tests/gradient_identities.rs::the_scale_enters_query_and_key_gradients_once",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_leave_the_bounds",
        ],
        proof: Some("Gradient.key_gradient_is_derivative"),
    },
    Clause {
        id: "FAS:bwd.value.gradient",
        status: Status::Normative,
        title: "Gradient of a value",
        statement: "The gradient of a value is the sum, over the queries that see its key in every \
            query head of the group, of probability times output gradient. Neither the scale nor \
            the LSE's gradient enters it.",
        equation: "dV_i = sum_r P_ri dO_r",
        rationale: "The output is linear in the values, so differences of any step give this \
            gradient exactly: a check that needs no reference. It has value_dim entries, which \
            need not be head_dim.",
        references: &[FLASH_ATTENTION, "flash-attention#2552 (value_dim differs from head_dim)"],
        executable: "gradient::value_gradient",
        checked_by: &[
            "spec/tests/gradient_derivative.rs::value_gradients_are_derivatives",
            "spec/tests/gradient_difference.rs::differences_along_a_value_are_exact",
        ],
        proof: Some("Gradient.value_gradient_is_derivative"),
    },
    Clause {
        id: "FAS:bwd.empty-row.zero",
        status: Status::Normative,
        title: "A row without visible keys has no gradient",
        statement: "The gradient of a query that sees no key is zero in every entry, and the row \
            adds nothing to the gradient of any key or value, whatever its query and its upstream \
            gradients hold and whatever value its output was given (FAS:choice.empty-row.output). \
            Zero of either sign is accepted.",
        equation: "no visible i => dQ = 0, and the row is no term of any dK_i, dV_i",
        rationale: "Its output and LSE do not depend on any input. With L = -inf, e^(s - L) is \
            infinite and e^(-inf - L) NaN: such rows have to be left out, not computed.",
        references: &[
            "flash-attention#443 (rows without keys under a causal mask gave NaN)",
            "pytorch#103963",
        ],
        executable: "gradient::attention_gradient",
        checked_by: &[
            "conformance/tests/gradient_verdict.rs::a_query_without_keys_has_a_gradient_of_exactly_zero",
            "oracle/tests/gradient_closed_forms.rs::rows_and_keys_without_terms_have_exactly_no_gradient",
            "spec/tests/gradient_identities.rs::rows_without_visible_keys_bring_nothing",
            "spec/tests/gradient_masked.rs::invisible_data_has_no_influence",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.tiled.order",
        status: Status::Normative,
        title: "Gradients do not depend on tiles or their order",
        statement: "Divide queries and keys into blocks of any sizes and take the tiles in any \
            order, key block by key block, query block by query block, or in parallel: the \
            gradients are those of all pairs at once. A tile without a visible pair adds nothing. \
            In rounding arithmetic the order decides the roundings, and the stated bounds hold for \
            all orders.",
        equation: "dQ_r = scale sum_b sum_(i in b) dS_ri k_i, and so for dK, dV, for every \
            partition into blocks b",
        rationale: "Each gradient is a sum over pairs, and a pair needs its row's L and D and \
            nothing of other pairs. This is the licence for every loop order, split and atomic \
            addition; repeating bit for bit is a further property, which a kernel may or may not \
            claim.",
        references: &[
            FLASH_ATTENTION,
            FLASH_ATTENTION_2,
            "flash-attention#2244 and PR#1766 (order of additions and repeatability)",
        ],
        executable: "gradient::tiled::by_key_blocks",
        checked_by: &[
            "spec/tests/gradient_tiles.rs::key_blocks_in_any_order_give_the_dense_gradients",
            "spec/tests/gradient_tiles.rs::two_passes_in_any_order_give_the_dense_gradients",
            "spec/tests/gradient_tiles.rs::fully_masked_blocks_bring_nothing",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.head.group-sum",
        status: Status::Normative,
        title: "Shared keys collect gradients from every query head",
        statement: "The gradients of a key and value head are the sums of what each query head \
            that reads it brings (FAS:head.group.block), each head exactly once.",
        equation: "dK_g = sum over query heads h with floor(h key_heads / query_heads) = g of \
            dK_h, and so for dV",
        rationale: "A kernel with one thread block for each query head writes the same gradient \
            from several: overwriting keeps the last head's alone, and leaves a result that is \
            right where query_heads = key_heads. A group assigned as h mod key_heads is wrong \
            unless both counts agree; six query heads on two key heads show it.",
        references: &[
            "Ainslie et al. 2023, arXiv 2305.13245 (grouped-query attention)",
            "levanter PR#449 (gradients of the group not summed)",
        ],
        executable: "gradient::group_sum",
        checked_by: &[
            "spec/tests/gradient_derivative.rs::key_and_value_gradients_sum_over_the_query_heads_that_read_them",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.accumulator.precision",
        status: Status::Normative,
        title: "Gradients are accumulated as declared",
        statement: "The sums of dQ, dK and dV are formed and carried from block to block, through \
            memory where they travel, in the formats that the profile declares. A kernel that adds \
            to a narrower buffer, once for each block, head or atomic operation, declares that \
            format for its carried accumulators.",
        equation: "one rounding of the carried format for each addition to what is carried",
        rationale: "A sum over thousands of queries kept in bfloat16 stops growing once its terms \
            fall below half a unit in its last place. The error is of one sign on positive data \
            and far above what one final rounding costs, yet within the tolerances in common use.",
        references: &[
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
            FLASH_ATTENTION_2,
        ],
        executable: "",
        checked_by: &[
            "conformance/tests/gradient_faults.rs::dv_accumulated_in_bf16",
            "spec/tests/gradient_bounds.rs::a_narrow_accumulator_needs_declaring",
            "spec/tests/gradient_bounds.rs::a_narrow_accumulator_between_blocks_is_rounded_once_a_block",
            "spec/tests/gradient_bounds.rs::a_looser_profile_never_tightens",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.output.written",
        status: Status::Normative,
        title: "Every gradient element is written",
        statement: "A backward pass writes every element of dQ, dK and dV that the problem \
            defines, those of rows without visible keys, of keys that no query sees and of padding \
            included, which are zero, and nothing outside them. What the buffers held before has \
            no influence, so accumulators that live in them are cleared first.",
        equation: "",
        rationale: "Rows that no thread block visits keep what memory held: the previous step's \
            gradients, or zeros that make the kernel look right in a test. Buffers are therefore \
            filled with NaN beforehand.",
        references: &[
            "pytorch PR#188933 and flash-attention PR#2324 (rows past the last sequence)",
            "rocm-libraries PR#5790 (gradients of a sequence without queries)",
        ],
        executable: "gradient::attention_gradient",
        checked_by: &[
            "conformance/tests/gradient_verdict.rs::what_is_no_number_was_not_written_or_is_out_of_bounds",
            "conformance/tests/gradient_verdict.rs::a_key_that_no_query_sees_has_gradients_of_exactly_zero",
            "spec/tests/gradient_identities.rs::every_input_entry_has_a_gradient",
            "spec/tests/gradient_identities.rs::keys_that_no_query_sees_have_zero_gradients",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.special.unspecified",
        status: Status::Normative,
        title: "Gradients through infinities and NaN are not specified",
        statement: "Where a query row has a visible key, value, query entry or upstream gradient \
            that is infinite or NaN, or a score that is, this version specifies neither the row's \
            query gradient nor the gradients of the keys and values that the row sees. All other \
            gradients are what they would be without that row's data.",
        equation: "",
        rationale: "The recurrences of kernels part on such rows, as 0 * inf and inf - inf arise at \
            different places, and no use depends on the outcome. That the damage stays where it \
            was done is another matter: it is what keeps one bad sequence from ruining a batch.",
        references: &["pytorch#101967 and pytorch#141128 (NaN that spread, and NaN that was lost)"],
        executable: "",
        checked_by: &["oracle/tests/gradient_special_values.rs::\
            what_a_spoiled_entry_reaches_is_unspecified_and_nothing_else"],
        proof: None,
    },
    Clause {
        id: "FAS:bound.bwd.query",
        status: Status::Normative,
        title: "Bound on an entry of a query's gradient",
        statement: "A kernel that keeps its declared profile, and forms its gradients from its own \
            output o^ and LSE L^, gives every entry of dQ within B_dQ of the exact one. The \
            distance of o^ and L^ from the exact output and LSE is measured and enters as it is. \
            It is common to the row, so it multiplies the exact gradient and the mean key, both \
            signed sums. Added are, for each key, the errors of its probability, its dP and the \
            roundings of dS; the summation in any order; the scale; and storing the result.",
        equation: "dS^_i = e^(-(L^ - L)) [ dS_i - b p_i + w_i ] (1 + u_P),  |w_i| <= W_i = p_i [ \
            (|T_i| + |b|) F_i + (eps_i + u|g|)(1 + F_i) ],  1 + F_i = e^(D_i) (1 + u)^3,  T_i = \
            dP_i - D + g;  B = (e^|L^ - L| - 1)|dQ_j| + e^|L^ - L| |scale| ( |b| |sum p_i k_ij| + \
            sum (W_i + u_P |dS^_i|) |k_ij| ) + sums + scale + storing",
        rationale: "Derivation: P^_i = p_i e^(-(L^ - L)) (1 + t_i) with |t_i| <= e^(D_i) - 1, D_i \
            the error of the exponent (score, factor, difference: (n_c + 2) u (|s_i| + |L|)) and \
            of the exponential. D^ = D + b with b the measured sum dO_j (o^_j - o_j), the rounding \
            of D's own sum, and that of D - g where a kernel folds g in. dP^_i errs by eps_i at \
            most, the rounding of its sum. Two differences and a product round dS^_i. Multiplying \
            out, every factor that all keys of the row share stands before the bracket and what is \
            left is W_i. Linear in k, so the shared factors multiply sum dS_i k_ij and sum p_i \
            k_ij with their cancellation, and only W_i and the rounding to the weight format u_P \
            multiply magnitudes. The half-mass lemma (FAS:bound.half-mass) bounds the summation.",
        references: &[
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
            FLASH_ATTENTION_2,
        ],
        executable: "bound::gradient::query_gradient",
        checked_by: &[
            "conformance/tests/gradient_suite.rs::no_false_alarm_in_a_million_gradient_elements",
            "spec/tests/gradient_bounds.rs::the_evaluation_is_just_above_the_equations",
            "spec/tests/gradient_bounds.rs::a_looser_profile_never_tightens",
            "spec/tests/gradient_bounds.rs::a_harder_row_never_tightens",
            "spec/tests/gradient_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "spec/tests/gradient_simulation.rs::random_roundings_stay_within_the_bounds",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.bwd.key",
        status: Status::Normative,
        title: "Bound on an entry of a key's gradient",
        statement: "A kernel that keeps its declared profile gives every entry of dK within B_dK \
            of the exact one, summed over all query rows that see the key, in every query head of \
            the group. Each row brings the errors of its score gradient as in FAS:bound.bwd.query; \
            what is common to a row differs between rows, so here it multiplies magnitudes.",
        equation: "B = |scale| sum_r [ (e^|L^_r - L_r| - 1)|dS_r| + e^|L^_r - L_r| (|b_r| p_r + \
            W_r) + u_P |dS^_r| ] |q_rj| + sums + scale + storing",
        rationale: "Derivation: the column's entries dS^_r come from different rows, each with its \
            own L^_r and b_r, whose signs nothing relates, so the triangle inequality is all there \
            is. Summation, scale and storing are as for a query.",
        references: &[
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
            FLASH_ATTENTION_2,
        ],
        executable: "bound::gradient::key_gradient",
        checked_by: &[
            "conformance/tests/gradient_suite.rs::no_false_alarm_in_a_million_gradient_elements",
            "spec/tests/gradient_bounds.rs::the_evaluation_is_just_above_the_equations",
            "spec/tests/gradient_bounds.rs::a_looser_profile_never_tightens",
            "spec/tests/gradient_bounds.rs::a_harder_row_never_tightens",
            "spec/tests/gradient_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "spec/tests/gradient_simulation.rs::random_roundings_stay_within_the_bounds",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.bwd.value",
        status: Status::Normative,
        title: "Bound on an entry of a value's gradient",
        statement: "A kernel that keeps its declared profile gives every entry of dV within B_dV \
            of the exact one, summed over all query rows that see the value's key, in every query \
            head of the group. Each row brings the error of its recomputed probability, the \
            measured error of its LSE and the rounding to the weight format.",
        equation: "B = sum_r p_r [ (1 + u_P) e^(D_r) e^|L^_r - L_r| - 1 ] |dO_rj| + sums + storing",
        rationale: "Derivation: P^_r = p_r e^(-(L^_r - L_r)) (1 + t_r) with |t_r| <= e^(D_r) - 1, \
            rounded once to the weight format; the product of the three factors less one bounds \
            its relative error. D and g do not enter. Probabilities are positive, so where output \
            gradients have one sign the sum has no cancellation and the bound is tight: a narrow \
            accumulator shows here first.",
        references: &[
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
            FLASH_ATTENTION_2,
        ],
        executable: "bound::gradient::value_gradient",
        checked_by: &[
            "conformance/tests/gradient_suite.rs::no_false_alarm_in_a_million_gradient_elements",
            "spec/tests/gradient_bounds.rs::the_evaluation_is_just_above_the_equations",
            "spec/tests/gradient_bounds.rs::a_looser_profile_never_tightens",
            "spec/tests/gradient_bounds.rs::one_value_gradient_costs_two_roundings",
            "spec/tests/gradient_bounds.rs::a_narrow_accumulator_needs_declaring",
            "spec/tests/gradient_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "spec/tests/gradient_simulation.rs::random_roundings_stay_within_the_bounds",
        ],
        proof: None,
    },
];
