//! The strict gate on output entries (`FAS:bound.fwd.strict`).
//!
//! # Derivation
//! In frame `f` ([`super::frames`]) the kernel's weight of key `i` is `x_i e^(d_i)`, `|d_i| <= D_i`, which
//! is rounded to `P_i`. Rounding is monotone, so `P_i` lies between the roundings of the ends of
//! `[x_i e^(-D_i), x_i e^(D_i)]`: known exactly where those agree, and otherwise within a radius `h_i`
//! of their middle ([`super::snap`]). Let `P_i` stand for that centre now. With `w_f = e^(m_f - m) / l`,
//!
//! ```text
//! n_i = w_f P_i = p_i (1 + eta_i)      q_i = p_i, or n_i where the normalizer sums rounded weights
//! c_j = sum n_i v_ij / sum q_i         = o_j + sum p_i eta_i v_ij where it does not
//! ```
//!
//! and a kernel that rounds weights so, and does nothing else inexactly, returns
//!
//! ```text
//! o'_j = sum_f A_f sum_(i in f) (n_i + dn_i) v_ij / sum_f A_f sum_(i in f) (q_i + dq_i)
//! A_f = e^(r_f)    |dn_i| <= w_f h_i    |dq_i| <= p_i (e^(D_i) - 1), or dq_i = dn_i
//! ```
//!
//! Numerator and normalizer share the rescaling `A_f`. They do *not* share `d_i` where the normalizer
//! sums weights before they are rounded: a weight that snaps forgets `d_i`, and the normalizer does not.
//! Since `sum n_i v_ij = c_j sum q_i`,
//!
//! ```text
//! (o'_j - c_j) sum A_f (q_i + dq_i) =
//!     sum_f (A_f - 1) sum_(i in f) (n_i v_ij - c_j q_i) + sum_f A_f sum_(i in f) (dn_i v_ij - c_j dq_i)
//! |o'_j - c_j| <= S_j = [ sum_f (e^|r_f| - 1) |N_fj - c_j Q_f| + sum_f e^|r_f| R_fj ] / sum_f e^(-|r_f|) (Q_f - dQ_f)
//! ```
//!
//! where `N_fj` and `Q_f` are the signed sums over the frame, and `R_fj = sum (|dn_i v_ij| + |c_j dq_i|)`, or
//! `sum |dn_i| |v_ij - c_j|` where both share `dn_i`. A sink is a term of the normalizer alone, never
//! rounded to the weight format. Products, sums, rescalings, the normalizer's own sum, the division and
//! underflow follow as in [`super::super::forward`], without `u_P`, and without the rounding to the
//! output format: what comes before that lies in `[c_j - B, c_j + B]`.
//!
//! Where weights are not rounded at all, the bound of the hard gate before that last rounding stands
//! around `o_j`.

use ndarray::{ArrayView1, ArrayView2};

use super::super::accumulation::{self, Sum as Products};
use super::super::forward::Row;
use super::super::outward::{Lower, Upper};
use super::super::{RowCondition, exponential, weight};
use super::frames::{Frame, Maxima};
use super::interval::{Admitted, Sum};
use super::snap::Snapped;
use super::{applies_forward, narrows_weights};
use crate::format::Format;
use crate::problem::Problem;
use crate::profile::{Normalizer, Profile};

/// Where the output entries of one query row lie before they are stored; `None` for those to which the
/// strict gate does not apply, or which it does not bound.
///
/// `row` and `values` are as in [`super::super::forward()`]; `keys` are the positions, ascending, of the
/// keys that they run over.
///
/// # Panics
/// When `keys` or `values` has not one entry or row for each visible key, or `row` not one output for
/// each column of `values`.
#[must_use]
pub fn forward(
    problem: &Problem,
    profile: &Profile,
    row: &RowCondition,
    keys: &[usize],
    values: &ArrayView2<'_, f64>,
) -> Vec<Option<Admitted>> {
    assert_eq!(keys.len(), row.gap_hi.len(), "one position for each visible key");
    assert_eq!(values.nrows(), keys.len(), "one value row for each visible key");
    assert_eq!(values.ncols(), row.output_hi.len(), "one output for each value entry");
    let none = || vec![None; values.ncols()];
    if !applies_forward(problem, profile) {
        return none();
    }
    let Some(hard) = Row::new(problem, profile, row) else { return none() };
    let columns = values.columns().into_iter();
    if !narrows_weights(profile) {
        let around = |(j, column): (usize, ArrayView1<'_, f64>)| {
            let bound = hard.before_output(&column, j)?;
            Admitted::between(profile, problem.format, hard.output_ends(j), bound)
        };
        return columns.enumerate().map(around).collect();
    }
    let Some(snapped) = SnappedRow::new(&hard, keys) else { return none() };
    columns.map(|column| snapped.admitted(&column)).collect()
}

/// One row with its rounded weights.
struct SnappedRow<'a> {
    hard: &'a Row<'a>,
    frames: Vec<FrameSum>,
    /// `n_i` and `|dn_i|` of each visible key.
    keys: Vec<Coefficient>,
    /// `sum q_i`.
    normalizer: Sum,
    /// A lower bound on `sum A_f (q_i + dq_i)`.
    least_normalizer: Lower,
}

#[derive(Clone, Copy)]
struct Coefficient {
    value: f64,
    error: Upper,
}

/// What is common to the columns of one frame.
struct FrameSum {
    /// The visible keys in it.
    keys: std::ops::Range<usize>,
    /// `e^|r_f| - 1`.
    growth: Upper,
    /// `Q_f`.
    normalizer: Sum,
    /// `sum |dq_i|` of terms that share nothing with the numerator.
    lone: Upper,
}

impl<'a> SnappedRow<'a> {
    /// `None` where a rounded weight may be infinite.
    fn new(hard: &'a Row<'a>, keys: &[usize]) -> Option<Self> {
        let Row { problem, profile, condition, .. } = *hard;
        let maxima = Maxima::new(problem, profile, condition, keys)?;
        let mut row = Self {
            hard,
            frames: Vec::with_capacity(maxima.frames.len()),
            keys: Vec::with_capacity(keys.len()),
            normalizer: Sum::default(),
            least_normalizer: Lower::ZERO,
        };
        for frame in &maxima.frames {
            row.push(&maxima, frame)?;
        }
        Some(row)
    }

    fn push(&mut self, maxima: &Maxima<'_>, frame: &Frame) -> Option<()> {
        let Row { profile, condition, .. } = *self.hard;
        let rounded_sum = profile.normalizer == Normalizer::Rounded;
        let first = self.keys.len();
        let mut sum = FrameSum {
            keys: first..first,
            growth: if frame.vanished.is_some() { Upper::ZERO } else { frame.growth },
            normalizer: Sum::default(),
            lone: Upper::ZERO,
        };
        let mut shared = Upper::ZERO;
        for index in frame.terms.clone() {
            let term = &maxima.terms[index];
            let log_error = maxima.log_error(frame, index);
            let (numerator, own) = match frame.vanished {
                Some(most) => self.vanished(most),
                None => (
                    self.coefficient(maxima, frame, index, log_error)?,
                    moved(condition, term.probability, term.gap.0, log_error, term.may_vanish),
                ),
            };
            if term.key.is_some() {
                self.keys.push(numerator);
            }
            if rounded_sum && term.key.is_some() {
                sum.normalizer.add(numerator.value);
                shared = shared + numerator.error;
            } else {
                sum.normalizer.add(own.value);
                sum.lone = sum.lone + own.error;
            }
        }
        sum.keys.end = self.keys.len();
        let lost = sum.normalizer.error() + sum.lone + shared;
        let least = Lower::new((sum.normalizer.value() - lost.get()).next_down());
        let shrinkage = if frame.vanished.is_some() { Lower::new(1.0) } else { frame.shrinkage };
        self.least_normalizer = self.least_normalizer + least * shrinkage;
        self.normalizer = self.normalizer.and(sum.normalizer);
        self.frames.push(sum);
        Some(())
    }

    /// `n_i`; zero for a sink.
    fn coefficient(
        &self,
        maxima: &Maxima<'_>,
        frame: &Frame,
        index: usize,
        log_error: Upper,
    ) -> Option<Coefficient> {
        if maxima.terms[index].key.is_none() {
            return Some(Coefficient { value: 0.0, error: Upper::ZERO });
        }
        let largest = self.hard.weights.largest;
        let (lo, hi) = maxima.weight(frame, index, log_error, largest);
        let snapped = Snapped::new(self.hard.profile, lo, hi)?;
        let (scale_lo, scale) = frame.scale;
        let value = scale * snapped.centre;
        let apart = Upper::new((scale - scale_lo).next_up()) * snapped.magnitude();
        let u = Upper::new(Format::F64.unit_roundoff());
        let product = u * Upper::new(value) + Upper::new(f64::from_bits(1));
        Some(Coefficient { value, error: Upper::new(scale) * snapped.radius + apart + product })
    }

    /// `n_i` and `q_i` in a frame that vanishes: nothing, but for all that a weight can be times
    /// `most`.
    fn vanished(&self, most: Upper) -> (Coefficient, Coefficient) {
        let format = self.hard.profile.weight_format;
        let largest = self.hard.weights.largest;
        let rounded = largest
            + largest * Upper::new(format.unit_roundoff())
            + Upper::new(format.smallest_normal());
        let nothing = Coefficient { value: 0.0, error: rounded * most };
        (nothing, nothing)
    }

    /// Where an output entry lies before it is stored.
    fn admitted(&self, values: &ArrayView1<'_, f64>) -> Option<Admitted> {
        let Row { problem, profile, .. } = *self.hard;
        let column = Column::new(self, values);
        let shift = column.shift(self);
        let perturbed = Upper::new(column.centre.abs()) + shift;
        let values_mass: Upper = values.iter().map(|v| Upper::new(v.abs())).sum();
        // A bound on what any partial numerator weighs, as for the hard gate.
        if self.hard.numerator_overflows(values, Upper::INFINITE) {
            return None;
        }
        let numerator = self.numerator(column.mass / self.least_normalizer, perturbed, values_mass);
        let division = weight::division_error(profile);
        let relative = self.hard.normalizer.relative;
        let quotient = numerator * (Upper::ONE + division) + perturbed * (division + relative);
        let bound = shift + quotient / relative.complement() + weight::division_underflow(profile);
        Admitted::new(profile, problem.format, column.centre, bound)
    }

    /// What roundings of products and sums add to the numerator, relative to the perturbed normalizer.
    fn numerator(&self, mass: Upper, total: Upper, values_mass: Upper) -> Upper {
        let Row { problem, profile, .. } = *self.hard;
        let rescalings = weight::rescalings(problem, profile);
        // The rounding of weights is counted where it happens, underflow included.
        let lost = self.hard.lost(values_mass, Upper::ZERO, rescalings);
        let sum = Products {
            terms: self.keys.len(),
            positions: problem.key_len,
            runs: 1 + rescalings,
            rescalings,
            mass: mass + lost,
            total: total + lost,
            // Of tensor cores alone.
            aligned: Upper::ZERO,
        };
        accumulation::error(profile.value_accumulation, &sum) + lost
    }
}

/// `q_i` where the normalizer sums weights as they are before they are rounded: `p_i`, moved by their own
/// errors.
fn moved(
    row: &RowCondition,
    (lo, hi): (f64, f64),
    gap_lo: f64,
    log_error: Upper,
    may_vanish: bool,
) -> Coefficient {
    let mut moved = Upper::new(hi) * log_error.exp_m1();
    if hi < f64::MIN_POSITIVE {
        moved = moved.min(exponential::of_sum(-gap_lo, log_error) / Lower::new(row.normalizer_lo));
    }
    if may_vanish {
        moved = moved.max(Upper::new(hi));
    }
    Coefficient { value: hi, error: moved + Upper::new((hi - lo).next_up()) }
}

/// The sums over one column of the values.
struct Column {
    /// `c_j`.
    centre: f64,
    /// `N_fj`, and `sum |dn_i| |v_ij|`, of each frame.
    frames: Vec<(Sum, Upper)>,
    /// `sum |dn_i| |v_ij - c_j|` of each frame, where the normalizer shares `dn_i`.
    shared: Option<Vec<Upper>>,
    /// `sum A_f (n_i + dn_i) |v_ij|`.
    mass: Upper,
    /// All of `N_fj`.
    numerator: Sum,
}

impl Column {
    fn new(row: &SnappedRow<'_>, values: &ArrayView1<'_, f64>) -> Self {
        let mut frames = Vec::with_capacity(row.frames.len());
        let mut numerator = Sum::default();
        let mut mass = Upper::ZERO;
        for frame in &row.frames {
            let mut sum = Sum::default();
            let mut radius = Sum::default();
            for i in frame.keys.clone() {
                let (Coefficient { value, error }, v) = (row.keys[i], values[i]);
                sum.add(value * v);
                radius.add(error.get() * v);
            }
            let radius = radius.mass();
            mass = mass + (frame.growth + Upper::ONE) * (sum.mass() + radius);
            numerator = numerator.and(sum);
            frames.push((sum, radius));
        }
        let centre = numerator.value() / row.normalizer.value();
        let shared = (row.hard.profile.normalizer == Normalizer::Rounded).then(|| {
            let distance = |i: usize| {
                let distance = Upper::new((values[i] - centre).abs().next_up());
                row.keys[i].error * distance
            };
            row.frames.iter().map(|frame| frame.keys.clone().map(distance).sum()).collect()
        });
        Self { centre, frames, shared, mass, numerator }
    }

    /// `S_j`.
    fn shift(&self, row: &SnappedRow<'_>) -> Upper {
        let centre = Upper::new(self.centre.abs());
        let mut moved = self.residual(row);
        for (f, (frame, &(sum, radius))) in row.frames.iter().zip(&self.frames).enumerate() {
            let normalizer = frame.normalizer.value();
            let apart = Upper::new((sum.value() - self.centre * normalizer).abs())
                // Product and difference are rounded, too.
                + Upper::new(2.0 * f64::EPSILON) * (sum.mass() + centre * Upper::new(normalizer))
                + sum.error()
                + centre * frame.normalizer.error();
            let own = self.shared.as_ref().map_or(radius, |shared| shared[f]);
            moved = moved
                + frame.growth * apart
                + (frame.growth + Upper::ONE) * (own + centre * frame.lone);
        }
        moved / row.least_normalizer
    }

    /// `|sum n_i v_ij - c_j sum q_i|`: what rounding leaves of it.
    fn residual(&self, row: &SnappedRow<'_>) -> Upper {
        let centre = Upper::new(self.centre.abs());
        let quotient = Upper::new(f64::EPSILON) * Upper::new(self.numerator.value().abs())
            + Upper::new(f64::from_bits(1)) * Upper::new(row.normalizer.value());
        self.numerator.error() + centre * row.normalizer.error() + quotient
    }
}
