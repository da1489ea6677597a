//! Short names of bits.

use std::fmt;

use flashproof_spec::tensor::Tensor;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

/// The first 64 bits of a SHA-256, as 16 hexadecimal digits: enough to tell versions of a kernel
/// apart, not to withstand somebody who wants two to look the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest(u64);

impl Digest {
    /// Of a text.
    #[must_use]
    pub fn of_text(text: &str) -> Self {
        let mut bits = Bits::default();
        bits.text(text);
        bits.digest()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl TryFrom<String> for Digest {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digest = u64::from_str_radix(&text, 16).map(Self).ok();
        digest
            .filter(|it| it.to_string() == text)
            .ok_or_else(|| format!("'{text}' is no digest: expected 16 hexadecimal digits"))
    }
}

/// Bits on their way into a digest.
#[derive(Clone, Default)]
pub(super) struct Bits(Sha256);

impl Bits {
    /// Text, and its length so that no two lists of texts run together to the same.
    pub(super) fn text(&mut self, text: &str) {
        self.word(text.len() as u64);
        self.0.update(text);
    }

    /// The bits of a number; all NaN are the same.
    pub(super) fn number(&mut self, value: f64) {
        self.word(if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() });
    }

    pub(super) fn tensor(&mut self, tensor: &Tensor) {
        self.text(tensor.format().name());
        for &extent in tensor.shape() {
            self.word(extent as u64);
        }
        for &value in tensor.values() {
            self.number(value);
        }
    }

    /// The bits of what belongs to one case.
    pub(super) fn of_case(&mut self, name: &str, bits: Self) {
        self.text(name);
        self.word(bits.digest().0);
    }

    fn word(&mut self, word: u64) {
        self.0.update(word.to_le_bytes());
    }

    pub(super) fn digest(self) -> Digest {
        let bytes = self.0.finalize();
        Digest(bytes.iter().take(8).fold(0, |sum, &byte| (sum << 8) | u64::from(byte)))
    }
}
