//! What the bounds on gradients need of a query row.

use crate::bound::outward::Upper;
use crate::bound::score::ScoreParts;

/// The exact data of one query row that its part in the gradients depends on.
///
/// Vectors run over the row's visible keys, in ascending key order. Every field is at least the
/// exact value, but for `cap_argument_lo`, which is at most it. A row without visible keys has a
/// condition only for its sink: its vectors are empty, its LSE is the sink's logit, and its `D` is
/// that of whatever the kernel stored as its output.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientCondition {
    /// `|s_i|`.
    pub score_magnitude_hi: Vec<f64>,
    /// `|scale * <q, k_i>|`, before softcap, bias and ALiBi.
    pub product_magnitude_hi: Vec<f64>,
    /// The magnitudes of the bias and of the ALiBi term, added.
    pub addend_magnitude_hi: Vec<f64>,
    /// `|x_i| / cap`, with `x_i` what the softcap is taken of; 0 without softcap. 0 where nothing is
    /// known of it: it serves scores so far beyond the cap that their own error is large.
    pub cap_argument_lo: Vec<f64>,
    /// `c_i = ds_i / dx_i` with `x_i` what the softcap is taken of: `1 - tanh^2`; 1 without softcap.
    pub cap_slope_hi: Vec<f64>,
    /// `z_i`, what dropout multiplies the weight by, exactly; 1 without dropout.
    pub dropout: Vec<f64>,
    /// `|scale| * sum_t |q_t k_it|`.
    pub dot_mass_hi: Vec<f64>,
    /// `p_i`.
    pub probability_hi: Vec<f64>,
    /// `ln p_i = s_i - L`. 0 where nothing is known of it: it serves scores so low that their own
    /// error is large.
    pub log_probability_hi: Vec<f64>,
    /// `|L|`.
    pub lse_magnitude_hi: f64,
    /// `|dP_i|`, `dP_i = sum_j dO_j v_ij`, before dropout.
    pub dp_magnitude_hi: Vec<f64>,
    /// `sum_j |dO_j v_ij|`.
    pub dp_mass_hi: Vec<f64>,
    /// `|T_i| = |z_i dP_i - D + g|`.
    pub centred_magnitude_hi: Vec<f64>,
    /// `|g|`, the upstream gradient of the LSE.
    pub lse_gradient_magnitude_hi: f64,
    /// `|sum_j dO_j O^_j|` with the kernel's own output.
    pub delta_magnitude_hi: f64,
    /// `sum_j |dO_j O^_j|` with the kernel's own output.
    pub delta_mass_hi: f64,
    /// `|sum_j dO_j (O^_j - o_j)|`.
    pub delta_shift_hi: f64,
    /// `|L^ - L|`.
    pub lse_shift_hi: f64,
    /// The sink, where the row has one.
    pub sink: Option<SinkGradientCondition>,
}

/// The exact data of a sink that its row's part in its gradient, `p (g - D)`, depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SinkGradientCondition {
    /// Its logit.
    pub logit: f64,
    /// `p = e^(logit - L)`.
    pub probability_hi: f64,
    /// `|g - D|`.
    pub centred_magnitude_hi: f64,
}

impl GradientCondition {
    /// What the score of one key is made of.
    pub(super) fn parts(&self, i: usize) -> ScoreParts {
        ScoreParts {
            mass: Upper::new(self.dot_mass_hi[i]),
            product: Upper::new(self.product_magnitude_hi[i]),
            addend: Upper::new(self.addend_magnitude_hi[i]),
            score: Upper::new(self.score_magnitude_hi[i]),
            cap_argument_lo: self.cap_argument_lo[i],
            // No gradient is asked of quantized inputs.
            unit: Upper::ONE,
        }
    }

    /// How many keys the row sees.
    ///
    /// # Panics
    /// When the vectors differ in length.
    pub(super) fn keys(&self) -> usize {
        let keys = self.probability_hi.len();
        for vector in [
            &self.score_magnitude_hi,
            &self.product_magnitude_hi,
            &self.addend_magnitude_hi,
            &self.cap_argument_lo,
            &self.cap_slope_hi,
            &self.dropout,
            &self.dot_mass_hi,
            &self.log_probability_hi,
            &self.dp_magnitude_hi,
            &self.dp_mass_hi,
            &self.centred_magnitude_hi,
        ] {
            assert_eq!(vector.len(), keys, "one entry for each visible key");
        }
        keys
    }
}
