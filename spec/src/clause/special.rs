//! `FAS:fwd.special.*`: infinities, NaN, and data that a row does not see.
//!
//! Together with `FAS:fwd.softmax.empty-row` these clauses decide every row. The first line that
//! applies is the row's:
//!
//! | visible scores | output entry `j` | LSE |
//! |---|---|---|
//! | none | the declared empty-row value | `-inf` |
//! | some NaN | NaN | NaN |
//! | some `+inf` | NaN | NaN or `+inf` |
//! | all `-inf` | NaN or the declared empty-row value | NaN or `-inf` |
//! | some finite, others finite or `-inf` | by the values, below | that of the finite scores |
//!
//! | visible values of column `j`, in a row of the last kind | output entry `j` |
//! |---|---|
//! | some NaN, or some infinite under a score of `-inf` | NaN |
//! | infinities of both signs | NaN |
//! | infinities of one sign | that infinity, or NaN |
//! | all finite | within the bound of the exact answer; a score of `-inf` has weight zero |

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:fwd.special.score",
        status: Status::Normative,
        title: "Scores of infinite and NaN data",
        statement: "A score whose query or key row holds an infinity or a NaN, or whose dot \
            product does, is what IEEE 754 makes of the products, their sum and the factor \
            `scale` when nothing finite overflows: NaN if any entry of either row is NaN, if an \
            infinity meets a zero, if infinite products of both signs are summed, or if `scale` \
            is zero and a product infinite; otherwise the infinity of the common sign of the \
            infinite products, times the sign of `scale`.",
        equation: "s_i = scale * sum_t q_t k_it, with inf * 0 = NaN and inf - inf = NaN",
        rationale: "The order of summation does not change which of the three outcomes is \
            reached, so one rule serves every kernel. Where the products of finite entries can \
            overflow the accumulator, no bound exists and no verdict is drawn.",
        references: &["IEEE 754-2019, sections 6.1 and 6.2"],
        executable: "",
        checked_by: &["oracle/tests/special_values.rs::the_scale_turns_and_kills_infinities"],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.special.nan",
        status: Status::Normative,
        title: "A visible NaN is not lost",
        statement: "If a visible score is NaN, every output entry of the row and its LSE are NaN. \
            If every visible score is finite or -inf, at least one is finite, and the value of a \
            visible key is NaN in column j, then output entry j is NaN, however small that key's \
            weight; the LSE and the other columns are unaffected.",
        equation: "s_i = NaN => o = NaN, L = NaN;  v_ij = NaN => o_j = NaN",
        rationale: "A NaN reports a fault upstream, and a kernel that turns it into a number \
            hides the fault. A maximum that ignores NaN is harmless, for e^(NaN - m) is NaN \
            whatever m is. A weight that underflows to zero does not help either: 0 * NaN is NaN.",
        references: &[
            "IEEE 754-2019, section 6.2",
            "pytorch#141128 (a NaN in a live query became zeros)",
        ],
        executable: "attention::dense_row",
        checked_by: &[
            "spec/tests/special_values.rs::a_nan_score_poisons_the_row",
            "spec/tests/special_values.rs::special_values_stay_in_their_column",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.special.infinity",
        status: Status::Normative,
        title: "Visible infinities follow IEEE 754",
        statement: "Let no visible score be NaN. (1) If one is +inf, every output entry is NaN, \
            and the LSE is NaN or +inf. (2) If all are -inf, every output entry is NaN or the \
            declared value of an empty row, and the LSE is NaN or -inf. (3) Otherwise a score of \
            -inf has weight exactly zero: output and LSE are those of the keys with finite \
            scores, in every order and partition of the keys, except that an infinite value in \
            column j under a score of -inf makes output entry j NaN. (4) In case 3, if the values \
            of column j under finite scores hold infinities of one sign only (and no NaN), output \
            entry j is that infinity or NaN; infinities of both signs make it NaN. It is never \
            finite.",
        equation: "e^(-inf - m) = 0;  inf - inf = NaN;  0 * inf = NaN",
        rationale: "(1) With the maximum as reference e^(inf - inf) is NaN; with another \
            reference, as under conditional rescaling, normalizer and numerator are infinite, \
            their quotient NaN, and the LSE +inf, which is also its limit: both are honest. (2) \
            Every weight e^(s - m) is e^(-inf + inf); a kernel that masks by adding -inf cannot \
            tell such a row from an empty one. (3) The definition gives these keys no weight, so \
            a leading block whose scores are all -inf must not turn the rest of the row into NaN. \
            (4) The exact quotient is infinite, but the weight may underflow, and 0 * inf is NaN; \
            which happens depends on the order of blocks.",
        references: &[
            "IEEE 754-2019, sections 6.1 and 7.2",
            "pytorch#127055 (leading dead blocks: e^(-inf + inf))",
            "flash-attention#2082 (a guard stored 0 as the maximum of a dead block)",
        ],
        executable: "attention::dense_row",
        checked_by: &[
            "spec/tests/special_values.rs::an_infinite_score_poisons_the_row",
            "spec/tests/special_values.rs::scores_all_minus_infinity_are_never_a_finite_answer",
            "spec/tests/special_values.rs::a_score_of_minus_infinity_has_no_weight",
            "spec/tests/special_values.rs::special_values_stay_in_their_column",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:fwd.special.invisible",
        status: Status::Normative,
        title: "Invisible data has no influence",
        statement: "Outputs do not depend on the key and value rows of invisible keys (masked, \
            padding, or past the last key), nor on the query of a row without visible keys: \
            replacing that data by any other, NaN and infinities included, changes no bit of any \
            output.",
        equation: "i not visible => O and L do not depend on k_i, v_i",
        rationale: "A kernel that computes the score of an invisible key and then adds -inf, or \
            that multiplies its value by a weight of zero, lets NaN through: NaN - inf and 0 * \
            NaN are NaN. Invisible keys are to be selected away, never multiplied away.",
        references: &[
            "pytorch#101967 (NaN in a masked key)",
            "flash-attention#1745 and vllm PR#936 (NaN in cache padding)",
            "flash-attention PR#2906 (0 times uninitialised memory)",
        ],
        executable: "online::absorb",
        checked_by: &["spec/tests/masked_keys.rs::invisible_keys_have_no_influence"],
        proof: None,
    },
];
