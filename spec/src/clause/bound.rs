//! `FAS:bound.*`: how far rounding can take a correct kernel from the exact answer.

use super::{Clause, Status};

pub(super) const CLAUSES: &[Clause] = &[
    Clause {
        id: "FAS:bound.half-mass",
        status: Status::Normative,
        title: "Half-mass lemma for sums",
        statement: "Every partial sum of terms x_1 .. x_n, in every order and every tree, is at \
            most H = (sum |x_i| + |sum x_i|)/2 in magnitude. Summing them with a unit roundoff u \
            therefore errs by at most ((1+u)^(n-1) - 1) H for any order, and by at most ((1+u)^h \
            - 1) sum |x_i| where no term passes through more than h additions.",
        equation: "|fl(sum x_i) - sum x_i| <= min( ((1+u)^(n-1) - 1) (sum|x_i| + |sum x_i|)/2, \
            ((1+u)^h - 1) sum|x_i| )",
        rationale: "A partial sum P and its complement Q have |P| + |Q| <= sum |x_i| and |P| <= \
            |Q| + |sum x_i|; adding the two gives 2|P| <= 2H. A kernel does not say in which \
            order it adds, so the bound must hold for all; halving the mass is what that costs \
            least.",
        references: &[
            "Higham, Accuracy and Stability of Numerical Algorithms, section 4.2",
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
        ],
        executable: "bound::accumulation::error",
        checked_by: &[
            "spec/src/bound/accumulation.rs::every_tree_stays_within_the_half_mass",
            "spec/src/bound/accumulation.rs::every_partial_sum_is_at_most_half_the_mass",
        ],
        proof: Some("HalfMass.half_mass_bound"),
    },
    Clause {
        id: "FAS:bound.weight",
        status: Status::Normative,
        title: "Error of a weight",
        statement: "A computed weight of key i is the exact weight times e^t with |t| <= D_i, \
            where D_i adds up the error of the dot product (its mass times its accumulation's \
            coefficient, times the scale), the roundings of scale, scaled score and difference, \
            and the exponential's own error once for the weight and once for each rescaling.",
        equation: "D_i = e_i + u [ (n_c + 4)(m - s_i + 2 E_i) + (1 + sep)(X_i + E_i) ] + (1 + R) \
            eps_exp,  e_i = |scale| [ G(d) H_i + u sum|q_t k_it| ] without modifications \
            (FAS:bound.score),  X_i = max(|s_i|, |m|),  E_i = max( e_i, max_j (e_j - (m - s_j)) ); \
            max |s_j| and max e_j for both where nothing is added to scores",
        rationale: "Errors before the exponential are absolute errors of a logarithm, so they \
            grow with the magnitude of scores. Numerator and normalizer share them, and the \
            common part cancels in the quotient.",
        references: &[
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
            "Blanchard et al. 2020, doi:10.1137/19M1289546 (blocked sums and tensor cores)",
        ],
        executable: "bound::weight::weights",
        checked_by: &[
            "spec/tests/forward_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "spec/tests/bounds.rs::the_evaluation_is_just_above_the_equations",
        ],
        proof: Some("Rounding.chain_of_roundings"),
    },
    Clause {
        id: "FAS:bound.fwd.output",
        status: Status::Normative,
        title: "Bound on an output entry",
        statement: "A kernel that keeps its declared profile gives every output entry within B_O \
            of the exact one. B_O collects the weights' errors, which move the mean only as far \
            as values differ from it; the rounding of weights to their format; the summation of \
            numerator and normalizer and their rescalings; the division; and the rounding to the \
            output format. Where the profile's accumulation admits any error, no bound exists and \
            no verdict is drawn.",
        equation: "|O_j - o_j| <= S_j + [ E_N (1 + eps_div) + (|o_j| + S_j)(eps_div + E_l) ] / \
            (1 - E_l) + u_out |O_j|,  S_j = min( sum p_i c_i |v_ij - o_j| / sum p_i e^(-D_i), max_i \
            |v_ij - o_j| ),  c_i = e^(D_i) - 1",
        rationale: "Nothing in it is fitted to a kernel: an output outside it contradicts the \
            declared profile. It holds for every order of summation, and is evaluated with \
            outward rounding, so that evaluating it cannot turn a correct kernel into a failure.",
        references: &[
            "Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038",
            "Dao et al. 2022, arXiv 2205.14135, appendix B.3 (correctness of the tiled recurrence)",
        ],
        executable: "bound::forward::forward",
        checked_by: &[
            "spec/tests/forward_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "conformance/tests/suite.rs::no_false_alarm_in_half_a_million_elements",
            "spec/tests/bounds.rs::the_evaluation_is_just_above_the_equations",
            "spec/tests/bounds.rs::a_looser_profile_never_tightens",
            "spec/tests/bounds.rs::constant_values_cancel_score_errors",
            "spec/tests/bounds.rs::enormous_scores_leave_one_key_exact",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.fwd.lse",
        status: Status::Normative,
        title: "Bound on the LSE",
        statement: "A kernel that keeps its declared profile gives the LSE within B_L of the \
            exact one. B_L collects the weights' errors as they enter the normalizer, its \
            summation and rescalings, the logarithm's error, and the roundings of reference and \
            result.",
        equation: "|L^ - L| <= min( max( ln(1 + sum p_i c_i), -ln sum p_i e^(-D_i) ), max D_i ) - \
            ln(1 - E_l) + E_log + u [ (n_c + 3)|m| + 3 ln l + 2|L| ]",
        rationale: "Every key's weight enters the LSE with the same sign and no value in front of \
            it, so the bound is tight enough to show a single missing key among thousands.",
        references: &["Blanchard, Higham and Higham 2021, doi:10.1093/imanum/draa038"],
        executable: "bound::lse::bound",
        checked_by: &[
            "spec/tests/forward_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "conformance/tests/suite.rs::no_false_alarm_in_half_a_million_elements",
            "spec/tests/bounds.rs::the_evaluation_is_just_above_the_equations",
        ],
        proof: Some("Rounding.recursive_sum_error"),
    },
    Clause {
        id: "FAS:bound.fwd.statistical",
        status: Status::Normative,
        title: "Bound on an output entry that holds with high probability",
        statement: "Where roundings are to nearest and independent, outputs and LSE lie within the \
            systematic part of their worst-case bound, plus lambda times the 2-norm of the sizes of \
            their random roundings, plus the rounding of the output: each with a probability of error \
            below 10^-9, for lambda = sqrt(2 ln(2/10^-9)). It is never larger than the worst-case \
            bound. It applies to scores and values that are drawn independently, and to IEEE \
            accumulators without flushing to zero; never to ties, low-rank, constant or structured \
            data, and never to accumulators that truncate. A check of it is asked for, never implied.",
        equation: "B = s + lambda sqrt( (sum (p_i e^(D_i) c_i |v_ij - o_j|)^2) + u_P^2 sum (p'_i v_ij)^2 + u^2 [(n \
            - 1 + R) H_j^2 + sum (p'_i v_ij)^2] + u^2 (h + R) o_j^2 ) + u_out |o_j|,  c_i^2 = u^2 [(d-1) H_i^2 + \
            M_i^2] + u_S^2 |s_i|^2",
        rationale: "Worst-case bounds of long f32 sums are far from what such sums do. Where the \
            model fails the bound does: with identical keys but one, every rounding of a weight is the \
            same; a truncating accumulator errs to one side.",
        references: &[
            "Higham and Mary 2019, doi:10.1137/18M1226312 (probabilistic backward error analysis)",
            "Azuma 1967, doi:10.2748/tmj/1178243286 (sums of bounded martingale differences)",
        ],
        executable: "bound::statistical::statistical",
        checked_by: &[
            "spec/src/bound/statistical.rs::lambda_is_of_the_probability",
            "conformance/tests/statistics.rs::correct_kernels_are_never_rejected",
            "conformance/tests/statistics.rs::identical_keys_but_one_leave_the_bound",
            "conformance/tests/statistics.rs::a_truncating_accumulator_leaves_the_bound",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.fwd.mean-error",
        status: Status::Normative,
        title: "Signed mean error",
        statement: "Under the same conditions, the sum over many rows of the errors of outputs, each \
            counted as positive where it is away from zero, and that of the errors of LSEs, lie within \
            their systematic parts plus lambda times the 2-norm of the roundings: those of one row's \
            entries taken to be the same, those of different rows independent.",
        equation: "|sum_rj sign(o_rj) (O_rj - o_rj)| <= sum_rj s_rj + lambda sqrt( sum_r (sum_j sigma_rj)^2 + \
            sum_rj omega_rj^2 )",
        rationale: "The mean's random part falls with the number of rows and a bias does not: weights \
            that are truncated, or a normalizer that its numerator disagrees with, shrink every output \
            by less than any element's bound.",
        references: &[
            "Higham and Mary 2019, doi:10.1137/18M1226312",
            "Why low-precision transformer training fails, arXiv 2510.04212 (bias of rounded weights)",
        ],
        executable: "bound::statistical::MeanError::bound",
        checked_by: &[
            "spec/src/bound/statistical.rs::rows_add_as_squares_and_entries_as_they_are",
            "conformance/tests/statistics.rs::correct_kernels_are_never_rejected",
            "conformance/tests/statistics.rs::truncated_weights_are_caught_by_their_mean",
            "conformance/tests/statistics.rs::unrounded_normalizers_under_ties_are_caught_by_their_mean",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.score",
        status: Status::Normative,
        title: "Score modifications in the bounds",
        statement: "Softcap, bias and ALiBi enter the error of a score by the roundings that they cost, \
            relative to the magnitudes that meet: of the product, of what is added, and of the \
            score. The softcap's slope is at most 1, so it amplifies nothing, and far beyond the cap it \
            forgets; a sink is a weight of exact score and no value; dropout rounds each weight once \
            more, and by its factor.",
        equation: "e_i = e(x) + u|x| + (n_c + 3) u (|b| + |a|) + k u (|x| + |b| + |a| + |s|)/2 with k \
            additions;  softcap: e' = min( e, 2 cap, 4 e^(-2(|y| - e)/cap) e ) + (n_c + 7 + eps_div + \
            eps_tanh) u |z|,  z = cap tanh(y/cap)",
        rationale: "A finite bias of 3e38 makes its own key's score uncertain by 1e32 and must not make \
            others' so: each key's weight is bounded by its own magnitudes and gap, in the exponent. \
            Where all keys lie there, an output is still a mean of values.",
        references: &["FAS:score.bias.finite"],
        executable: "bound::score::score_error",
        checked_by: &[
            "spec/tests/forward_simulation.rs::adversarial_roundings_stay_within_the_bounds",
            "spec/tests/forward_simulation.rs::random_roundings_stay_within_the_bounds",
            "spec/tests/modified_bounds.rs::a_hidden_key_leaves_the_others_alone",
            "spec/tests/modified_bounds.rs::a_row_of_lowest_biases_is_still_a_mean",
            "spec/tests/modified_bounds.rs::a_saturated_softcap_forgets_the_product",
            "spec/tests/modified_bounds.rs::a_sink_pulls_constant_values",
            "spec/tests/modified_bounds.rs::dropout_rounds_each_weight_again",
            "spec/tests/modified_bounds.rs::more_freedom_never_tightens",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.bwd.bias",
        status: Status::Normative,
        title: "The bound on bias gradients",
        statement: "A bias gradient errs as the sum of score gradients that it is: each with its row's \
            factors, summed in any order, rounded to the bias's format.",
        equation: "|dB^ - dB| <= B_dB = sum of the errors of dS, of their sum and of its rounding",
        rationale: "It needs no scale and no key, so it shows errors of dS that dQ and dK average away.",
        references: &[],
        executable: "bound::gradient::bias_gradient",
        checked_by: &[
            "spec/tests/gradient_bounds_modified.rs::the_gradient_of_a_bias_is_a_sum_of_the_arithmetic_stored_in_its_format",
            "spec/tests/gradient_bounds_modified.rs::the_gradient_of_a_bias_has_the_slope_of_a_softcap_after_it",
            "spec/tests/gradient_simulation.rs::adversarial_roundings_of_modified_scores_stay_within_the_bounds",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_in_a_modification_leave_the_bounds",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.bwd.sink",
        status: Status::Normative,
        title: "The bound on sink gradients",
        statement: "A sink gradient errs as the sum over rows of P_t (g - D): each with the error of its \
            weight, recomputed from the kernel's own LSE, and of its D, from the kernel's own \
            output.",
        equation: "|dt^ - dt| <= B_dt = sum over rows of the errors of P_t (g - D)",
        rationale: "It is the only gradient that sees rows without keys.",
        references: &[],
        executable: "bound::gradient::sink_gradient",
        checked_by: &[
            "spec/tests/gradient_bounds_modified.rs::a_row_without_keys_brings_its_sink_the_gradient_of_the_lse",
            "spec/tests/gradient_simulation.rs::adversarial_roundings_of_modified_scores_stay_within_the_bounds",
            "spec/tests/gradient_simulation.rs::kernels_with_a_fault_in_a_modification_leave_the_bounds",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.fwd.strict",
        status: Status::Normative,
        title: "What a declared schedule leaves of an output",
        statement: "A kernel that declares its blocks of keys, the format of its weights and the \
            maximum that they are relative to gives every output entry as the rounding of a number \
            within B of c_j, the exact output shifted by the exact rounding errors of the weights. A \
            weight whose error leaves a rounding boundary within reach counts half the distance between \
            the two numbers that it may be. Where weights are not rounded, c_j is the exact output and B \
            the bound of FAS:bound.fwd.output before the result is stored. The gate does not apply to \
            weights that are normalized first or to dropout where weights are rounded, nor to tensor \
            cores, merged parts or carried results of a narrower format.",
        equation: "RN_out(c_j - B) <= O_j <= RN_out(c_j + B),  c_j = o_j + sum p_i eta_i v_ij,  P_i = RN_P(x_i) \
            = x_i (1 + eta_i) where RN_P(x_i e^-D_i) = RN_P(x_i e^D_i),  x_i = e^(s_i - m_b),  B = S_j + [ \
            E_N (1 + eps_div) + (|c_j| + S_j)(eps_div + E_l) ] / (1 - E_l),  S_j = [ sum_f (e^|r_f| - 1) \
            |sum_(i in f) (p_i (1 + eta_i) v_ij - c_j p_i)| + sum e^|r| p_i (|h_i / x_i| |v_ij| + (e^D_i - 1) |c_j|) ] \
            / sum p_i e^(-D_i - |r|)",
        rationale: "The rounding of weights is most of the hard bound and no freedom of the kernel: what \
            is rounded is known, and nearly always the result. The normalizer sums weights before they \
            are rounded, so a weight that snaps shares its error with nothing, and only the factors r of \
            later rescalings are common to numerator and normalizer. Storing the result is a monotone \
            function of it, so the interval is rounded instead of widened.",
        references: &[
            "Dao 2023, arXiv 2307.08691, algorithm 1 (running maximum by blocks)",
            "Milakov and Gimelshein 2018, arXiv 1805.02867",
            "FAS:bound.fwd.output",
            "FAS:num.format.rounding",
        ],
        executable: "bound::strict::forward::forward",
        checked_by: &[
            "spec/tests/strict_simulation.rs::adversarial_roundings_stay_within_the_strict_gate",
            "spec/tests/strict_simulation.rs::random_roundings_stay_within_the_strict_gate",
            "spec/tests/strict_simulation.rs::truncated_weights_and_other_maxima_leave_it",
            "conformance/tests/strict.rs::no_false_alarm_in_two_million_elements",
            "conformance/tests/strict.rs::the_strict_gate_finds_what_the_hard_one_misses",
        ],
        proof: None,
    },
    Clause {
        id: "FAS:bound.bwd.strict",
        status: Status::Normative,
        title: "What known LSE and output leave of a gradient",
        statement: "A kernel that declares as in FAS:bound.fwd.strict gives every entry of dQ, dK and dV \
            as the rounding of a number within B of c_j: the sum of P or of dX as its own LSE and its own \
            output make them, each rounded to the weight format; those that a rounding boundary is in \
            reach of count as half the distance between the two numbers that they may be. Not under \
            dropout, nor for a row whose forward answer is itself proven wrong: its gradients may be \
            those of other numbers than it gave.",
        equation: "RN(c_j - B) <= dV_j <= RN(c_j + B),  c_j = sum_r RN_P(e^(s_r - L^_r)) dO_rj,  B = sum_r h_r \
            |dO_rj| + sums;  dQ with c_j = scale sum_i RN_P(dX_i) k_ij,  dX_i = c_i e^(s_i - L^) (dP_i - D^ + g), \
            and dK alike",
        rationale: "LSE and output of the forward pass are numbers that the kernel itself gave, so what \
            they are off by moves the centre. P and dX are rounded before the three products, to what is \
            nearly always known.",
        references: &[
            "Dao 2023, arXiv 2307.08691, algorithm 2",
            "FAS:bound.bwd.query",
            "FAS:bound.bwd.value",
        ],
        executable: "bound::strict::gradient::query_gradient",
        checked_by: &[
            "spec/tests/strict_gradient_simulation.rs::adversarial_roundings_stay_within_the_strict_gate",
            "spec/tests/strict_gradient_simulation.rs::random_roundings_stay_within_the_strict_gate",
            "spec/tests/strict_gradient_simulation.rs::truncated_weights_leave_it",
            "conformance/tests/strict.rs::no_false_alarm_in_two_million_elements",
        ],
        proof: None,
    },
];
