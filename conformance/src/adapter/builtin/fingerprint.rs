//! Whether a kernel changed what it read.

use flashproof_spec::layout::Buffer;
use flashproof_spec::tensor::Tensor;
use sha2::{Digest, Sha256};

use crate::adapter::Failure;

/// SHA-256 of the bits of each tensor that a kernel reads.
pub(super) struct Fingerprint(Vec<(&'static str, [u8; 32])>);

impl Fingerprint {
    pub(super) fn of(tensors: &[(&'static str, &impl Bits)]) -> Self {
        Self(tensors.iter().map(|&(name, tensor)| (name, tensor.digest())).collect())
    }

    pub(super) fn check(&self, tensors: &[(&'static str, &impl Bits)]) -> Result<(), Failure> {
        let changed =
            self.0.iter().zip(Self::of(tensors).0).find(|(before, after)| *before != after);
        changed.map_or(Ok(()), |((name, _), _)| Err(Failure::InputChanged((*name).to_owned())))
    }
}

/// What has bits that a kernel could change.
pub(super) trait Bits {
    fn digest(&self) -> [u8; 32];
}

impl Bits for Tensor {
    fn digest(&self) -> [u8; 32] {
        digest(self.values().iter().map(|value| value.to_bits()))
    }
}

impl Bits for Buffer {
    fn digest(&self) -> [u8; 32] {
        digest(self.written().flat_map(|(offset, value)| [offset as u64, value.to_bits()]))
    }
}

fn digest(words: impl Iterator<Item = u64>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    for word in words {
        hasher.update(word.to_le_bytes());
    }
    hasher.finalize().into()
}

#[cfg(test)]
mod tests {
    use flashproof_spec::format::Format;
    use flashproof_spec::tensor::{Cotangents, Inputs};
    use ndarray::{ArrayD, IxDyn};

    use super::*;
    use crate::adapter::named_inputs;

    fn tensor(value: f64) -> Tensor {
        Tensor::rounded(Format::F32, &ArrayD::from_elem(IxDyn(&[1, 1, 1, 2]), value))
    }

    #[test]
    fn a_changed_input_is_named() {
        let inputs = Inputs {
            query: tensor(1.0),
            key: tensor(f64::NAN),
            value: tensor(0.0),
            bias: None,
            sink: None,
            descale: None,
        };
        let cotangents = Cotangents { output: tensor(2.0), lse: Some(tensor(3.0)) };
        let fingerprint = Fingerprint::of(&named_inputs(&inputs, Some(&cotangents)));
        let check = |inputs: &Inputs, cotangents: &Cotangents| {
            fingerprint.check(&named_inputs(inputs, Some(cotangents)))
        };
        let changed = |name: &str| Err(Failure::InputChanged(name.to_owned()));
        assert_eq!(check(&inputs, &cotangents), Ok(()));
        let key = Inputs { key: tensor(1.0), ..inputs.clone() };
        assert_eq!(check(&key, &cotangents), changed("key"));
        let value = Inputs { value: tensor(-0.0), ..inputs.clone() };
        assert_eq!(check(&value, &cotangents), changed("value"));
        let output = Cotangents { output: tensor(-2.0), ..cotangents.clone() };
        assert_eq!(check(&inputs, &output), changed("output_gradient"));
        let lse = Cotangents { lse: Some(tensor(0.0)), ..cotangents };
        assert_eq!(check(&inputs, &lse), changed("lse_gradient"));
    }
}
