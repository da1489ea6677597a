//! `FAS:oracle.*`: what the exact answer is that kernels are compared with.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:oracle.enclosure",
        status: Status::Normative,
        title: "The oracle encloses the exact answer",
        statement: "Inputs are taken as the exact dyadic numbers they are. For every output entry \
            and LSE the oracle gives an interval that contains the exact real answer; the \
            interval at any working precision meets that at every other, and contains the one at \
            twice the precision.",
        equation: "o_j in [lo_p, hi_p];  [lo_2p, hi_2p] is contained in [lo_p, hi_p]",
        rationale: "A reference computed in a wider format is another approximation with an \
            unknown error. An enclosure carries its error with it, so that a verdict can be drawn \
            without trusting a precision. Infinite and NaN data are decided by the clauses \
            FAS:fwd.special.nan and FAS:fwd.special.infinity instead.",
        references: &[
            "Moore, Kearfott and Cloud 2009, doi:10.1137/1.9780898717716 (interval analysis)",
        ],
        executable: "",
        checked_by: &[
            "oracle/tests/enclosures.rs::twice_the_precision_is_contained",
            "oracle/tests/enclosures.rs::the_definition_is_enclosed",
            "oracle/tests/two_evaluations.rs::enclosures_meet",
            "oracle/tests/gradient_enclosures.rs::twice_the_precision_is_contained",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:oracle.rounding",
        status: Status::Normative,
        title: "Correct rounding of the exact answer, and why it ends",
        statement: "The rounded answer is the exact answer rounded once to the output format \
            (FAS:num.format.rounding): the working precision rises until both ends of the \
            enclosure round to one value. Where the exact answer can be a midpoint of two values, \
            or a value itself, it is decided exactly: keys with exactly equal scores are grouped, \
            and if all groups have one common mean value, that mean is the answer.",
        equation: "RN(o_j);  o_j rational => every group of equal scores has the mean o_j",
        rationale: "Raising precision never ends on a midpoint, so midpoints must be recognised. \
            Scores are algebraic numbers, the square root in the scale included, and exponentials \
            of distinct algebraic numbers are linearly independent over the algebraic numbers \
            (Lindemann and Weierstrass). If o_j is rational, sum_i e^(s_i) (v_ij - o_j) = 0 is \
            such a linear relation, so the coefficient of each distinct score vanishes: every \
            group's mean is o_j. By the same theorem e^L = sum_i e^(s_i) with an algebraic L \
            needs one visible key alone, whose score L then is; in base two it needs scores that \
            are all zero and a number of keys that is a power of two.",
        references: &[
            "Baker 1975, Transcendental Number Theory, theorem 1.4 (Lindemann and Weierstrass)",
            "Ziv 1991, doi:10.1145/114697.116813 (rising precision)",
        ],
        executable: "",
        checked_by: &[
            "oracle/tests/rounding.rs::the_definition_rounds_to_the_answer",
            "oracle/tests/rounding.rs::groups_of_one_common_mean_are_recognised_as_exact",
            "oracle/tests/rounding.rs::a_weight_far_below_the_precision_decides_a_midpoint",
            "oracle/tests/gradient_closed_forms.rs::equal_scores_have_rational_gradients",
            "oracle/tests/gradient_closed_forms.rs::a_midpoint_that_rows_make_together_is_left_undecided",
        ],
        proof: None,
    },
];
