//! Whether numbers are within a tolerance.

use flashproof_spec::format::Format;

/// The elements of one output, and what they are compared with; of equal length.
#[derive(Clone, Copy, Debug)]
pub struct Numbers<'a> {
    /// The format of the output.
    pub format: Format,
    /// What the kernel gave.
    pub got: &'a [f64],
    /// Dense attention in `f64`.
    pub reference: &'a [f64],
    /// Dense attention in the kernel's own format.
    pub peer: &'a [f64],
}

/// A condition on all elements of an output. NaN on either side fails each of them; equal infinities
/// are no error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tolerance {
    /// `|got - want| <= absolute + relative |want|` in at least this share of the elements.
    Close {
        /// The absolute tolerance.
        absolute: f64,
        /// The relative tolerance.
        relative: f64,
        /// The share of elements that must be so.
        matched: f64,
        /// What is wanted.
        want: Want,
    },
    /// `max |got - ref| <= factor max |peer - ref| + slack`, the reference rounded to the output's
    /// format.
    PeerMaximum {
        /// What the peer's largest error is multiplied by.
        factor: f64,
        /// What is added.
        slack: f64,
    },
    /// As [`Tolerance::PeerMaximum`], and `2 max |(ref + 0.3 - 0.3) - ref|` in the output's format
    /// added: roundings at the magnitude of 0.3.
    PeerMaximumAndRoundings {
        /// What the peer's largest error is multiplied by.
        factor: f64,
        /// What is added.
        slack: f64,
    },
    /// `max |got - ref| <= max(least, factor max |peer - ref|)`, the reference as it is.
    PeerMaximumAtLeast {
        /// What the peer's largest error is multiplied by.
        factor: f64,
        /// What is tolerated in any case.
        least: f64,
    },
    /// `|got - ref| <= absolute + relative |ref|` with both tolerances from the peer: its largest
    /// absolute and its largest relative error, at least the defaults of the format, times `factor`.
    /// A relative tolerance above 1e30, as from a reference of 0, is the default instead.
    PeerClose {
        /// What the tolerances are multiplied by.
        factor: f64,
    },
    /// `mean |got - ref| <= factor mean |peer - ref|`.
    PeerMean {
        /// What the peer's mean error is multiplied by.
        factor: f64,
    },
    /// `max |got - ref| < maximum` and `mean |got - ref| < mean`.
    MaximumAndMean {
        /// The largest error must be below.
        maximum: f64,
        /// The mean error must be below.
        mean: f64,
    },
    /// `max |got - ref| <= maximum` or `mean |got - ref| < mean`.
    MaximumOrMean {
        /// Errors up to this are no failure.
        maximum: f64,
        /// A mean error below this excuses any other.
        mean: f64,
    },
    /// `sum (got - ref)^2 <= limit sum ref^2`: the normalized mean squared error.
    MeanSquare {
        /// The largest normalized mean squared error.
        limit: f64,
    },
}

/// What elements are compared with one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    /// The reference.
    Reference,
    /// The reference rounded to the output's format.
    Rounded,
    /// Another implementation in the kernel's own format.
    Peer,
}

impl Tolerance {
    /// Every element within `absolute + relative |reference|`.
    #[must_use]
    pub const fn close(absolute: f64, relative: f64) -> Self {
        Self::Close { absolute, relative, matched: 1.0, want: Want::Rounded }
    }

    /// Whether the output would pass.
    #[must_use]
    pub fn accepts(self, numbers: &Numbers<'_>) -> bool {
        let Numbers { format, got, reference, peer } = *numbers;
        let rounded: Vec<f64> = reference.iter().map(|&it| format.round(it)).collect();
        match self {
            Self::Close { absolute, relative, matched, want } => {
                let want = match want {
                    Want::Reference => reference,
                    Want::Rounded => &rounded,
                    Want::Peer => peer,
                };
                matched_share(got, want, absolute, relative) >= matched
            }
            Self::PeerMaximum { factor, slack } => {
                maximum(got, &rounded) <= factor * maximum(peer, &rounded) + slack
            }
            Self::PeerMaximumAndRoundings { factor, slack } => {
                let roundings = 2.0 * maximum(&moved_and_back(&rounded, format), &rounded);
                maximum(got, &rounded) <= factor * maximum(peer, &rounded) + roundings + slack
            }
            Self::PeerMaximumAtLeast { factor, least } => {
                maximum(got, reference) <= least.max(factor * maximum(peer, reference))
            }
            Self::PeerClose { factor } => {
                let (absolute, relative) = from_peer(peer, reference, format, factor);
                matched_share(got, &rounded, absolute, relative) >= 1.0
            }
            Self::PeerMean { factor } => mean(got, reference) <= factor * mean(peer, reference),
            Self::MaximumAndMean { maximum: most, mean: least } => {
                maximum(got, reference) < most && mean(got, reference) < least
            }
            Self::MaximumOrMean { maximum: most, mean: least } => {
                maximum(got, reference) <= most || mean(got, reference) < least
            }
            Self::MeanSquare { limit } => normalized_mean_square(got, reference) <= limit,
        }
    }
}

/// The share of elements that are close; 1 of none. An infinite error is within no tolerance, not even
/// an infinite one: so `NumPy` and `PyTorch` have it.
fn matched_share(got: &[f64], want: &[f64], absolute: f64, relative: f64) -> f64 {
    if got.is_empty() {
        return 1.0;
    }
    let is_close = |(got, want): &(&f64, &f64)| {
        let error = (*got - *want).abs();
        got == want || (error.is_finite() && error <= absolute + relative * want.abs())
    };
    let close = got.iter().zip(want).filter(is_close).count();
    close as f64 / got.len() as f64
}

/// The largest distance; NaN where some is, 0 of none.
fn maximum(a: &[f64], b: &[f64]) -> f64 {
    distances(a, b).fold(0.0, nan_or_max)
}

fn nan_or_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn distances(a: &[f64], b: &[f64]) -> impl Iterator<Item = f64> {
    a.iter().zip(b).map(|(a, b)| if a == b { 0.0 } else { (a - b).abs() })
}

/// The mean distance; 0 of none.
fn mean(a: &[f64], b: &[f64]) -> f64 {
    distances(a, b).sum::<f64>() / (a.len().max(1)) as f64
}

fn normalized_mean_square(got: &[f64], want: &[f64]) -> f64 {
    let error: f64 = distances(got, want).map(|it| it.powi(2)).sum();
    let whole: f64 = want.iter().filter(|it| it.is_finite()).map(|it| it.powi(2)).sum();
    if error == 0.0 { 0.0 } else { error / whole }
}

/// The reference of FlashAttention-3's rule moved by 0.3 and back, in the format.
fn moved_and_back(reference: &[f64], format: Format) -> Vec<f64> {
    /// FlashAttention-3's tests add and subtract this number.
    const MOVED: f64 = 0.3;
    let back = |&it: &f64| format.round(format.round(it + MOVED) - MOVED);
    reference.iter().map(back).collect()
}

/// `PyTorch`'s `get_tolerances`: absolute and relative.
fn from_peer(peer: &[f64], reference: &[f64], format: Format, factor: f64) -> (f64, f64) {
    /// A relative tolerance above this is taken for one of a reference of zero.
    const MEANINGLESS: f64 = 1e30;
    let (default_absolute, default_relative) = defaults(format);
    // 0 / 0 counts as the default.
    let relative = |(peer, reference): (&f64, &f64)| {
        let relative = ((reference - peer) / reference).abs();
        if relative.is_nan() { default_relative } else { relative }
    };
    let largest = peer.iter().zip(reference).map(relative).fold(0.0, f64::max);
    let absolute = factor * maximum(peer, reference).max(default_absolute);
    let relative = factor * largest.max(default_relative);
    (absolute, if relative > MEANINGLESS { default_relative } else { relative })
}

/// `PyTorch`'s default tolerances in its attention tests: absolute and relative.
const fn defaults(format: Format) -> (f64, f64) {
    match format {
        Format::F16 => (1e-3, 1e-3),
        Format::Bf16 => (1e-3, 1.6e-2),
        _ => (1e-5, 1.3e-6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const F32: Format = Format::F32;

    fn accepts(tolerance: Tolerance, got: &[f64], reference: &[f64], peer: &[f64]) -> bool {
        tolerance.accepts(&Numbers { format: F32, got, reference, peer })
    }

    #[test]
    fn close_is_absolute_plus_relative() {
        let close = Tolerance::close(0.25, 0.125);
        assert!(accepts(close, &[8.0 + 1.25], &[8.0], &[0.0]));
        assert!(!accepts(close, &[8.0 + 1.5], &[8.0], &[0.0]));
        assert!(accepts(close, &[f64::NEG_INFINITY], &[f64::NEG_INFINITY], &[0.0]));
        for other in [0.0, f64::INFINITY, f64::NAN] {
            assert!(!accepts(close, &[other], &[f64::NEG_INFINITY], &[0.0]), "{other}");
        }
    }

    #[test]
    fn a_share_may_be_required() {
        let most =
            Tolerance::Close { absolute: 0.0, relative: 0.0, matched: 0.75, want: Want::Reference };
        assert!(accepts(most, &[1.0, 1.0, 1.0, 9.0], &[1.0; 4], &[1.0; 4]));
        assert!(!accepts(most, &[1.0, 1.0, 9.0, 9.0], &[1.0; 4], &[1.0; 4]));
    }

    #[test]
    fn peers_bound_the_largest_error() {
        let twice = Tolerance::PeerMaximum { factor: 2.0, slack: 0.0 };
        // The peer is off by 0.5 in one element, so an error of 1 passes in another.
        assert!(accepts(twice, &[1.0, 3.0], &[1.0, 2.0], &[1.5, 2.0]));
        assert!(!accepts(twice, &[1.0, 3.125], &[1.0, 2.0], &[1.5, 2.0]));
        assert!(accepts(
            Tolerance::PeerMaximum { factor: 2.0, slack: 0.125 },
            &[1.0, 3.125],
            &[1.0, 2.0],
            &[1.5, 2.0]
        ));
        let least = Tolerance::PeerMaximumAtLeast { factor: 2.0, least: 0.5 };
        assert!(accepts(least, &[1.5], &[1.0], &[1.0]));
        assert!(!accepts(least, &[1.75], &[1.0], &[1.125]));
    }

    #[test]
    fn roundings_at_the_magnitude_of_0_3_are_added() {
        let rule = Tolerance::PeerMaximumAndRoundings { factor: 2.0, slack: 0.0 };
        let numbers = |got: &[f64]| {
            rule.accepts(&Numbers { format: Format::Bf16, got, reference: &[0.0], peer: &[0.0] })
        };
        // 0 + 0.3 - 0.3 is 0.30078125 - 0.3, which is 0.00078125 to nearest, 0.00078201...
        let moved = Format::Bf16.round(0.300_781_25 - 0.3);
        assert!(numbers(&[2.0 * moved]));
        assert!(!numbers(&[2.5 * moved]));
    }

    #[test]
    fn tolerances_from_a_peer_are_its_worst_errors_at_any_element() {
        let rule = Tolerance::PeerClose { factor: 1.0 };
        // The peer is off by a quarter of a small element: so may all be.
        assert!(accepts(rule, &[125.0, 1e-3], &[100.0, 1e-3], &[100.0, 1.25e-3]));
        assert!(!accepts(rule, &[126.0, 1e-3], &[100.0, 1e-3], &[100.0, 1.25e-3]));
        // An element of zero makes the relative error infinite, and so the default 1.3e-6.
        assert!(!accepts(rule, &[125.0, 0.0], &[100.0, 0.0], &[100.0, 1e-6]));
        assert!(accepts(rule, &[100.0001, 0.0], &[100.0, 0.0], &[100.0, 1e-6]));
    }

    #[test]
    fn means_hide_what_is_large() {
        let (reference, peer) = ([0.0; 4], [0.1; 4]);
        let rule = Tolerance::PeerMean { factor: 1.1 };
        assert!(accepts(rule, &[0.4, 0.0, 0.0, 0.0], &reference, &peer));
        assert!(!accepts(rule, &[0.5, 0.0, 0.0, 0.0], &reference, &peer));
        let both = Tolerance::MaximumAndMean { maximum: 0.3, mean: 0.2 };
        assert!(!accepts(both, &[0.4, 0.0, 0.0, 0.0], &reference, &peer));
        assert!(!accepts(both, &[0.25; 4], &reference, &peer));
        assert!(accepts(both, &[0.25, 0.0, 0.0, 0.0], &reference, &peer));
        let either = Tolerance::MaximumOrMean { maximum: 0.3, mean: 0.2 };
        assert!(accepts(either, &[0.4, 0.0, 0.0, 0.0], &reference, &peer));
        assert!(accepts(either, &[0.25; 4], &reference, &peer));
        assert!(!accepts(either, &[0.5; 4], &reference, &peer));
    }

    #[test]
    fn mean_squares_are_relative_to_the_whole() {
        let rule = Tolerance::MeanSquare { limit: 0.01 };
        assert!(accepts(rule, &[11.0, 0.0], &[10.0, 0.0], &[0.0; 2]));
        assert!(!accepts(rule, &[11.0, 0.5], &[10.0, 0.0], &[0.0; 2]));
        assert!(accepts(rule, &[0.0, 0.0], &[0.0, 0.0], &[0.0; 2]));
    }

    #[test]
    fn nan_passes_nothing() {
        for tolerance in [
            Tolerance::close(1.0, 1.0),
            Tolerance::PeerMaximum { factor: 2.0, slack: 1.0 },
            Tolerance::PeerMaximumAndRoundings { factor: 2.0, slack: 1.0 },
            Tolerance::PeerMaximumAtLeast { factor: 2.0, least: 1.0 },
            Tolerance::PeerClose { factor: 2.0 },
            Tolerance::PeerMean { factor: 2.0 },
            Tolerance::MaximumAndMean { maximum: 1.0, mean: 1.0 },
            Tolerance::MaximumOrMean { maximum: 1.0, mean: 1.0 },
            Tolerance::MeanSquare { limit: 1.0 },
        ] {
            assert!(accepts(tolerance, &[1.0, 1.0], &[1.0, 1.0], &[1.25, 1.0]), "{tolerance:?}");
            assert!(
                !accepts(tolerance, &[f64::NAN, 1.0], &[1.0, 1.0], &[1.25, 1.0]),
                "{tolerance:?}"
            );
        }
    }
}
