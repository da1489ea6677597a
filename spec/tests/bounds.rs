//! The bounds: evaluated a second way, and their qualitative properties.
//!
//! [`Exact`] evaluates the equations of `FAS:bound.*` at 300 bits with no outward rounding. The
//! crate's `f64` evaluation must lie above it, and not far above.

use flashproof_spec::bound::{self, Bound, NoBound, RowCondition};
use flashproof_spec::format::Format;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::profile::{Accumulation, Normalizer, Profile, Schedule, Weights};
use ndarray::Array2;
use proptest::prelude::*;
use rug::Float;

const BITS: u32 = 300;

/// The crate's evaluation is some thousand operations, each off by an ulp at most, of positive
/// terms, with exponentials tight to `2^-42`.
const EVALUATION_SLACK: f64 = 1.0 / (1_u64 << 35) as f64;

fn big(x: f64) -> Float {
    Float::with_val(BITS, x)
}

fn compound(u: f64, n: usize) -> Float {
    let first: Float = big(u) * n as u32;
    Float::with_val(BITS, &first / (big(1.0) - &first))
}

/// A row of scores and values and what the bounds need of it.
#[derive(Clone, Debug)]
struct Row {
    condition: RowCondition,
    values: Array2<f64>,
}

fn row(scores: &[f64], mass_factor: f64, values: Vec<f64>) -> Row {
    let n = scores.len();
    let m = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|s| (s - m).exp()).collect();
    let l: f64 = weights.iter().sum();
    let p: Vec<f64> = weights.iter().map(|w| w / l).collect();
    let columns = values.len() / n;
    let values = Array2::from_shape_vec((n, columns), values).expect("a full array");
    let output: Vec<f64> = values
        .columns()
        .into_iter()
        .map(|column| column.iter().zip(&p).map(|(v, p)| v * p).sum())
        .collect();
    let condition = RowCondition {
        gap_lo: scores.iter().map(|s| m - s).collect(),
        gap_hi: scores.iter().map(|s| m - s).collect(),
        product_magnitude_hi: scores.iter().map(|s| s.abs()).collect(),
        addend_magnitude_hi: vec![0.0; n],
        cap_argument_lo: vec![0.0; n],
        score_magnitude_hi: scores.iter().map(|s| s.abs()).collect(),
        dot_mass_hi: scores.iter().map(|s| s.abs() * mass_factor).collect(),
        probability_lo: p.clone(),
        probability_hi: p,
        max_magnitude_hi: m.abs(),
        normalizer_lo: l,
        normalizer_hi: l,
        lse_magnitude_hi: (m + l.ln()).abs(),
        output_lo: output.clone(),
        output_hi: output,
        sink: None,
        product_unit_hi: 1.0,
        value_unit_hi: 1.0,
    };
    Row { condition, values }
}

/// A row whose value rows are all `[v]`, so that its output is exactly `v`.
fn constant_row(scores: &[f64], mass_factor: f64, v: f64) -> Row {
    let mut row = row(scores, mass_factor, vec![v; scores.len()]);
    row.condition.output_lo = vec![v];
    row.condition.output_hi = vec![v];
    row
}

fn rows() -> impl Strategy<Value = Row> {
    (1_usize..24, 1_usize..4, 1.0..4.0_f64).prop_flat_map(|(n, columns, mass_factor)| {
        let scores = prop::collection::vec(-40.0..40.0_f64, n);
        let values = prop::collection::vec(-8.0..8.0_f64, n * columns);
        (scores, values).prop_map(move |(scores, values)| row(&scores, mass_factor, values))
    })
}

fn problem(format: Format, key_len: usize) -> Problem {
    Problem { query_len: 1, ..Problem::new(format, 1, key_len, 16) }
}

fn profiles() -> impl Strategy<Value = (Format, Profile)> {
    let formats = vec![Format::F64, Format::F32, Format::F16, Format::Bf16];
    (prop::sample::select(formats), any::<(bool, bool, bool, bool, bool)>(), 1_usize..9).prop_map(
        |(format, (dense, rounded, fused, carried, narrow_sum), block)| {
            let base = if dense { Profile::dense(format) } else { Profile::standard(format) };
            let narrow = carried && !dense;
            let profile = Profile {
                normalizer: if rounded { Normalizer::Rounded } else { Normalizer::Unrounded },
                scaled_score_rounded: !fused,
                schedule: if dense { Schedule::Dense } else { Schedule::Blocks(block) },
                carried_format: if narrow { base.weight_format } else { base.arithmetic },
                carried_normalizer: narrow_sum.then_some(Format::Bf16),
                ..base
            };
            (format, profile)
        },
    )
}

fn bounds_of(problem: &Problem, profile: &Profile, row: &Row) -> bound::ForwardBounds {
    bound::forward(problem, profile, &row.condition, &row.values.view())
}

/// The equations, term by term.
struct Exact<'a> {
    problem: &'a Problem,
    profile: &'a Profile,
    row: &'a Row,
    u: f64,
    tiny: f64,
    rescalings: usize,
    score_error: Float,
    log_error: Vec<Float>,
    kept: Float,
    own_normalizer: Float,
}

/// Unit roundoff and half the smallest subnormal of a format that rounding takes place to.
fn narrow(profile: &Profile, to: Format) -> (f64, f64) {
    if to == profile.arithmetic || to == Format::F64 {
        (0.0, 0.0)
    } else {
        (to.unit_roundoff(), to.smallest_subnormal() / 2.0)
    }
}

impl<'a> Exact<'a> {
    fn new(problem: &'a Problem, profile: &'a Profile, row: &'a Row) -> Self {
        let u = profile.arithmetic.unit_roundoff();
        let tiny = (profile.arithmetic.smallest_subnormal() / 2.0).max(f64::from_bits(1));
        let c = &row.condition;
        let rescalings = profile.schedule.rescalings(problem.key_len);
        let d = problem.head_dim;
        let scale = big(d as f64).sqrt().recip();

        let score_errors: Vec<Float> = c
            .dot_mass_hi
            .iter()
            .zip(&c.score_magnitude_hi)
            .map(|(&mass, &s)| {
                let products: Float = big(mass) * u;
                let h: Float = (products.clone() * 2 + mass + s) / 2;
                let underflow: Float = big(tiny) * &scale * (2 * d as u32);
                products * 2 + compound(u, d - 1) * h + underflow
            })
            .collect();
        let score_error = score_errors.iter().fold(big(0.0), Float::max);

        let x = c.score_magnitude_hi.iter().fold(big(0.0), |a, &b| a.max(&big(b)));
        let per_gap = compound(u, profile.scale_roundings as usize + 4);
        let references = 1 + u32::from(profile.scaled_score_rounded);
        let constant: Float = (x + &score_error) * u * references * (per_gap.clone() + 1);
        let eps: Float = big(profile.exp_ulp) * 2 * u;
        let mut exponentials: Float = eps.clone() / (big(1.0) - &eps) * (1 + rescalings as u32);
        if profile.normalizer == Normalizer::Rounded {
            let (u_p, _) = narrow(profile, profile.weight_format);
            exponentials += big(u_p) / (big(1.0) - big(u_p));
        }
        let log_error: Vec<Float> = score_errors
            .iter()
            .zip(&c.gap_hi)
            .map(|(e, &gap)| {
                let stretched: Float = score_error.clone() * 2 + gap;
                e.clone() + per_gap.clone() * stretched + &constant + &exponentials
            })
            .collect();
        let kept = log_error
            .iter()
            .zip(&c.probability_lo)
            .fold(big(0.0), |sum, (d, &p)| sum + big(p) * Float::with_val(BITS, -d).exp());
        let from_row = big(c.normalizer_lo) * &kept * Float::with_val(BITS, -&score_error).exp();
        let own_normalizer = if profile.scaled_score_rounded {
            from_row.max(&Float::with_val(BITS, -&exponentials).exp())
        } else {
            from_row
        };
        Self {
            problem,
            profile,
            row,
            u,
            tiny,
            rescalings,
            score_error,
            log_error,
            kept,
            own_normalizer,
        }
    }

    /// So many ulps of the smallest subnormal.
    fn tiny_exponential(&self) -> Float {
        big(self.profile.exp_ulp) * self.profile.arithmetic.smallest_subnormal()
    }

    fn c(&self, i: usize) -> Float {
        self.log_error[i].clone().exp_m1()
    }

    fn e_l(&self) -> Float {
        let n = self.log_error.len();
        let mut lost = self.tiny_exponential() * ((n + 1) * (1 + self.rescalings)) as u32
            + big(self.tiny) * (n + self.rescalings) as u32;
        if self.profile.normalizer == Normalizer::Rounded {
            lost += big(narrow(self.profile, self.profile.weight_format).1) * n as u32;
        }
        let carried = self.profile.carried_normalizer.unwrap_or(self.profile.arithmetic);
        let (u_l, xi_l) = narrow(self.profile, carried);
        lost += big(xi_l) * (1 + self.rescalings) as u32;
        let sum = compound(self.u, n - 1 + self.rescalings) + 1_u32;
        sum * (compound(u_l, 1 + self.rescalings) + 1_u32) - 1_u32 + lost / &self.own_normalizer
    }

    fn output(&self, j: usize) -> Float {
        let (profile, c) = (self.profile, &self.row.condition);
        let v = self.row.values.column(j);
        let (n, o) = (v.len(), c.output_hi[j]);
        let (mut moved, mut hull) = (big(0.0), big(0.0));
        let (mut mass, mut top, mut values_mass) = (big(0.0), big(0.0), big(0.0));
        for i in 0..n {
            let distance = (big(v[i]) - o).abs();
            moved += big(c.probability_hi[i]) * self.c(i) * &distance;
            hull = hull.max(&distance);
            mass += big(c.probability_hi[i]) * (self.c(i) + 1) * v[i].abs();
            top = top.max(&big(v[i].abs()));
            values_mass += v[i].abs();
        }
        let s = (moved / &self.kept).min(&hull);
        let v_mass = (mass / &self.kept).min(&top);

        let division: Float = big(profile.division_ulp) * 2 * self.u;
        let (u_p, xi_p) = narrow(profile, profile.weight_format);
        let u_p = if profile.normalizer == Normalizer::Rounded { 0.0 } else { u_p };
        let normalized = profile.weights == Weights::Normalized;
        let a = if normalized { (division.clone() + 1) * (1.0 + big(u_p)) - 1 } else { big(u_p) };
        let rounding: Float = a * &v_mass;
        let perturbed: Float = s.clone() + o.abs();
        let (u_c, xi_c) = narrow(profile, profile.carried_format);
        let per_value: Float =
            self.tiny_exponential() * (1 + self.rescalings as u32) + xi_p + self.tiny;
        let absolute: Float = big(self.tiny) * (2 * n + self.rescalings) as u32
            + big(xi_c) * (1 + self.rescalings as u32);
        let frame = self.own_normalizer.clone().recip() + u32::from(normalized);
        let lost: Float = (per_value * values_mass + absolute) * frame;
        let term_mass = v_mass + &rounding + &lost;
        let products: Float = term_mass.clone() * self.u;
        let total: Float = perturbed.clone() + &rounding + &lost;
        let h: Float = (term_mass.clone() + total + products.clone() * 2) / 2;
        let sums = products + compound(self.u, n - 1 + self.rescalings) * h;
        let carried = compound(u_c, 1 + self.rescalings) * (term_mass + &sums);
        let e_n = rounding + sums + carried + lost;

        let eps = if normalized { big(0.0) } else { division };
        let e_l = self.e_l();
        let quotient = e_n * (eps.clone() + 1) + perturbed * (eps + &e_l);
        let before: Float = s + quotient / (big(1.0) - e_l) + self.tiny;
        let (u_out, xi_out) = narrow(profile, self.problem.format);
        before.clone() + (before + o.abs()) * u_out + xi_out
    }

    fn lse(&self) -> Float {
        let (profile, c) = (self.profile, &self.row.condition);
        let grown = (0..self.log_error.len())
            .fold(big(0.0), |sum, i| sum + big(c.probability_hi[i]) * self.c(i));
        let up = grown.ln_1p();
        let down = -self.kept.clone().ln();
        let largest = self.log_error.iter().fold(big(0.0), Float::max);
        let moved = up.max(&down).min(&largest) - (big(1.0) - self.e_l()).ln();
        let ln_l = big(c.normalizer_hi).ln() + &moved + &self.score_error;
        let log = big(profile.log.absolute).max(&(big(2.0 * profile.log.ulp) * self.u * &ln_l));
        let factor = compound(self.u, profile.scale_roundings as usize + 3);
        let reference = factor * (self.score_error.clone() + c.max_magnitude_hi);
        let before: Float = moved + log + reference + compound(self.u, 3) * ln_l;
        before.clone() + compound(self.u, 2) * (before + c.lse_magnitude_hi) + self.tiny
    }
}

fn within(bound: Bound) -> f64 {
    match bound {
        Bound::Within(bound) => bound,
        Bound::None(reason) => panic!("no bound: {reason:?}"),
    }
}

fn assert_just_above(bound: Bound, truth: &Float, slack: &Float) {
    let bound = big(within(bound));
    assert!(bound >= *truth, "{bound} is below {truth}");
    assert!(bound <= Float::with_val(BITS, truth + slack), "{bound} is far above {truth}");
}

/// Where both are bounded, `loose` is no smaller.
fn assert_no_smaller(strict: Bound, loose: Bound, profile: &Profile) {
    if let (Bound::Within(strict), Bound::Within(loose)) = (strict, loose) {
        assert!(loose >= strict, "{loose} < {strict} for {profile:?}");
    }
}

proptest! {
    #[test]
    fn the_evaluation_is_just_above_the_equations(row in rows(), (format, profile) in profiles()) {
        let problem = problem(format, row.condition.gap_hi.len());
        let bounds = bounds_of(&problem, &profile, &row);
        let exact = Exact::new(&problem, &profile, &row);
        for (j, &bound) in bounds.output.iter().enumerate() {
            let truth = exact.output(j);
            assert_just_above(bound, &truth, &Float::with_val(BITS, &truth * EVALUATION_SLACK));
        }
        // Three logarithms, each tight to 1024 roots of four ulps; and that of the normalizer, which is
        // not small where it is carried in bf16, to x^3 / 24 at a 1024th of it.
        let truth = exact.lse();
        let sum = -(big(1.0) - exact.e_l()).ln();
        let roots = sum.square() * truth.clone() * 2f64.powi(-20) / 24;
        let slack = Float::with_val(BITS, &truth * EVALUATION_SLACK) + 3.0 * 2f64.powi(-40) + roots;
        assert_just_above(bounds.lse, &truth, &slack);
    }

    /// Whatever a kernel declares more generously bounds it more loosely.
    #[test]
    fn a_looser_profile_never_tightens(row in rows(), (format, profile) in profiles()) {
        let problem = problem(format, row.condition.gap_hi.len());
        let looser = [
            Profile { exp_ulp: profile.exp_ulp * 2.0, ..profile.clone() },
            Profile { division_ulp: profile.division_ulp * 2.0, ..profile.clone() },
            Profile { scale_roundings: profile.scale_roundings + 1, ..profile.clone() },
            Profile { score_format: Format::Bf16, ..profile.clone() },
            Profile { carried_format: Format::Bf16, ..profile.clone() },
            Profile { carried_normalizer: Some(Format::Bf16), ..profile.clone() },
            Profile { flush_to_zero: true, ..profile.clone() },
            Profile { schedule: Schedule::Undeclared, ..profile.clone() },
        ];
        let strict = bounds_of(&problem, &profile, &row);
        for profile in &looser {
            let loose = bounds_of(&problem, profile, &row);
            for (&strict, &loose) in strict.output.iter().zip(&loose.output) {
                assert_no_smaller(strict, loose, profile);
            }
            assert_no_smaller(strict.lse, loose.lse, profile);
        }
    }

    /// Errors in the scores cancel where every key has the same value: what remains is roundings
    /// of weights, sums, division and output, whatever the scores.
    #[test]
    fn constant_values_cancel_score_errors(
        scores in prop::collection::vec(-1e6..1e6_f64, 1..20),
        v in 0.5..8.0_f64,
    ) {
        let problem = problem(Format::Bf16, scores.len());
        let profile = Profile::standard(Format::Bf16);
        let of = |row: &Row| within(bounds_of(&problem, &profile, row).output[0]);
        let calm = of(&constant_row(&vec![0.0; scores.len()], 1.0, v));
        let wild = of(&constant_row(&scores, 4.0, v));
        prop_assert!(calm >= 2.0 * Format::Bf16.unit_roundoff() * v);
        prop_assert!(wild <= calm * (1.0 + EVALUATION_SLACK), "{wild} against {calm}");
    }
}

/// One key, value 1, bf16: the weight is rounded once and the output once, and everything else is
/// of the order of `f32`.
#[test]
fn one_key_costs_two_roundings() {
    let profile = Profile { schedule: Schedule::Blocks(64), ..Profile::standard(Format::Bf16) };
    let row = constant_row(&[3.0], 1.0, 1.0);
    let bound = within(bounds_of(&problem(Format::Bf16, 1), &profile, &row).output[0]);
    let u = Format::Bf16.unit_roundoff();
    assert!(bound >= 2.0 * u + u * u);
    // Product, division, and what each brings on top of the others.
    let of_f32 = 16.0 * Format::F32.unit_roundoff();
    assert!(bound <= 2.0 * u + u * u + of_f32, "{bound}");
}

#[test]
fn an_accumulator_that_bounds_nothing_says_so() {
    let coarse = Accumulation::TensorCore { chunk: 4, fraction_bits: 3, output_bits: 3 };
    let profile = Profile { value_accumulation: coarse, ..Profile::standard(Format::F16) };
    let bounds =
        bounds_of(&problem(Format::F16, 23), &profile, &constant_row(&[1.0; 23], 1.0, 1.0));
    assert_eq!(bounds.output, [Bound::None(NoBound::Accumulation)]);
}

#[test]
fn scores_beyond_the_accumulator_have_no_bound() {
    let profile = Profile::standard(Format::F32);
    let row = row(&[1e38, 0.0], 4.0, vec![1.0, 2.0]);
    let bounds = bounds_of(&problem(Format::F32, 2), &profile, &row);
    assert_eq!(bounds.output, [Bound::None(NoBound::Overflow)]);
    assert_eq!(bounds.lse, Bound::None(NoBound::Overflow));
}

/// With scores near 1e11 in f32 no weight is known, yet one key must give its value
/// (pytorch#121558).
#[test]
fn enormous_scores_leave_one_key_exact() {
    let problem = Problem { scale: Scale::Value(1.0), ..problem(Format::Bf16, 1) };
    let row = constant_row(&[2.8e11], 1.0, 133_120.0);
    let bound = within(bounds_of(&problem, &Profile::standard(Format::Bf16), &row).output[0]);
    let (u, of_f32) = (Format::Bf16.unit_roundoff(), 16.0 * Format::F32.unit_roundoff());
    assert!(bound / 133_120.0 <= 2.0 * u + u * u + of_f32, "{bound}");
}
