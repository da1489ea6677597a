//! `FAS:bwd.*` of score modifications: gradients through bias, sink, softcap and dropout.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:bwd.bias.gradient",
        status: Status::Normative,
        title: "Gradient of a bias",
        statement: "The gradient of a bias entry is dS at its place: 0 where the key is invisible, and \
            times the softcap's slope where the softcap is applied after the bias.",
        equation: "dB_ri = dS_ri",
        rationale: "The bias enters the score with derivative 1; neither the softmax scale nor the key \
            multiplies it. Its gradient is stored in its own format, which may be wider than the \
            inputs'.",
        references: &["jax#32242 (f32 bias gives a non-finite gradient)"],
        executable: "gradient::modified::modified_pair",
        checked_by: &[
            "spec/tests/gradient_modified.rs::bias_gradients_are_derivatives",
            "oracle/tests/gradient_finite_differences.rs::bias_gradients_are_slopes_of_the_loss",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.bias.reduce",
        status: Status::Normative,
        title: "The gradient of a broadcast bias is a sum",
        statement: "The gradient of a bias entry is summed over everything that the entry is broadcast \
            to: batch members, heads, queries and keys along axes of extent 1.",
        equation: "dB[..] = sum over broadcast indices of dS",
        rationale: "A broadcast is a sum in reverse. A kernel that stores the gradient of the last head, \
            or of one of several blocks, gives a plausible tensor of the right shape.",
        references: &[],
        executable: "gradient::modified::modified_pair",
        checked_by: &[
            "oracle/tests/gradient_modifications.rs::a_broadcast_bias_collects_what_a_full_one_gets",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.sink.gradient",
        status: Status::Normative,
        title: "Gradient of a sink",
        statement: "The gradient of a sink's logit in head h is the sum over batch members and queries \
            of P_t (g - D), P_t = e^(t - L), rows without visible keys included, where P_t = 1 \
            and D = 0. Padding queries (FAS:mask.length.queries) bring nothing.",
        equation: "dt_h = sum_r e^(t - L_r) (g_r - D_r)",
        rationale: "The sink is a key whose value is 0, so its dP is 0. The gradients of a row's scores \
            and of its logit together sum to g.",
        references: &[],
        executable: "gradient::modified::sink_gradient",
        checked_by: &[
            "spec/tests/gradient_modified.rs::sink_gradients_are_derivatives",
            "spec/tests/gradient_modified.rs::gradients_of_scores_and_sink_sum_to_that_of_the_lse",
            "spec/tests/gradient_modified.rs::a_row_without_keys_passes_the_lse_gradient_to_its_sink",
            "oracle/tests/gradient_finite_differences.rs::sink_gradients_are_slopes_of_the_loss",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.softcap.slope",
        status: Status::Normative,
        title: "Gradients pass the slope of the softcap",
        statement: "Under a softcap, dS is multiplied by 1 - tanh^2(x / cap) before it meets keys and \
            queries, where x is what the softcap was taken of.",
        equation: "dX_i = (1 - tanh^2(x_i / cap)) dS_i",
        rationale: "Without the slope, gradients of saturated scores are as large as if they were not \
            capped.",
        references: &[],
        executable: "score::Problem::score_slope",
        checked_by: &[
            "spec/tests/scores.rs::softcap_and_slope_agree_with_mpfr",
            "spec/tests/gradient_modified.rs::products_take_the_slope_of_the_softcap",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bwd.dropout.keep",
        status: Status::Normative,
        title: "Dropout in the backward pass",
        statement: "With dropout factors z, dV sums P z dO, and dS is P (z dP - D + g): the weight \
            before dropout times the gradient of the kept one. D = sum_j dO_j o_j holds with the \
            output that dropout left.",
        equation: "dS_i = P_i (z_i dP_i - D + g)    dV_i = sum_r P_ri z_ri dO_r",
        rationale: "P after dropout times dP before it, or the other way round, is zero in the same \
            places and wrong by the scale or by the dropped terms of D elsewhere.",
        references: &["nki-samples PR#81", "pytorch PR#197563 (a stale seed)"],
        executable: "gradient::modified::modified_pair",
        checked_by: &[
            "spec/tests/gradient_modified.rs::bias_gradients_are_derivatives",
            "spec/tests/gradient_modified.rs::value_gradients_carry_the_kept_weights",
        ],
        proof: None,
    },
];
