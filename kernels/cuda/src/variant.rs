//! Which sources are compiled for which elements and head dims.

use std::fmt;

/// The number format of queries, keys, values, outputs and gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the variants are number formats
pub enum Element {
    F16,
    Bf16,
    F32,
}

impl Element {
    /// What CUDA calls it.
    #[must_use]
    pub fn cuda_name(self) -> &'static str {
        match self {
            Self::F16 => "__half",
            Self::Bf16 => "__nv_bfloat16",
            Self::F32 => "float",
        }
    }
}

/// As in the names of files: `f16`, `bf16`, `f32`.
impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        })
    }
}

/// A source compiled for one element and, where the source depends on it, one head dim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Variant {
    /// Name of the source, without `.cu`.
    pub source: &'static str,
    /// Stands for `ELEMENT` in the source.
    pub element: Element,
    /// Stands for `HEAD_DIM` in the source: the largest head dim and value dim that the kernel takes.
    pub head_dim: Option<u32>,
}

impl Variant {
    /// File of the source.
    #[must_use]
    pub fn source_file(&self) -> String {
        format!("{}.cu", self.source)
    }

    /// File of the PTX, such as `forward_bf16_d64.ptx`, or `merge_f16.ptx` without a head dim.
    #[must_use]
    pub fn ptx_file(&self) -> String {
        let Self { source, element, head_dim } = self;
        head_dim.map_or_else(
            || format!("{source}_{element}.ptx"),
            |head_dim| format!("{source}_{element}_d{head_dim}.ptx"),
        )
    }
}

/// A source, its elements, and its head dims; none where it does not depend on them.
type Sources = (&'static str, &'static [Element], &'static [u32]);

const TENSOR_CORE: &[Element] = &[Element::F16, Element::Bf16];
const SINGLE: &[Element] = &[Element::F32];
const EVERY: &[Element] = &[Element::F16, Element::Bf16, Element::F32];

const FORWARD: &[u32] = &[32, 64, 96, 128, 256];
const BACKWARD: &[u32] = &[32, 64, 96, 128];

const TABLE: &[Sources] = &[
    ("forward", TENSOR_CORE, FORWARD),
    ("backward_key_value", TENSOR_CORE, BACKWARD),
    ("backward_query", TENSOR_CORE, BACKWARD),
    ("backward_atomic", TENSOR_CORE, BACKWARD),
    ("simt_forward", SINGLE, FORWARD),
    ("simt_backward_key_value", SINGLE, BACKWARD),
    ("simt_backward_query", SINGLE, BACKWARD),
    ("merge", EVERY, &[]),
    ("prepare", EVERY, &[]),
    ("dense", EVERY, &[]),
];

/// Every variant whose PTX is committed.
#[must_use]
pub fn variants() -> Vec<Variant> {
    TABLE.iter().flat_map(|&sources| variants_of(sources)).collect()
}

fn variants_of((source, elements, head_dims): Sources) -> Vec<Variant> {
    let head_dims: Vec<_> = if head_dims.is_empty() {
        vec![None]
    } else {
        head_dims.iter().copied().map(Some).collect()
    };
    let of = |element| head_dims.iter().map(move |&head_dim| Variant { source, element, head_dim });
    elements.iter().flat_map(|&element| of(element)).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_variant_has_a_file_of_its_own() {
        let files: HashSet<_> = variants().iter().map(Variant::ptx_file).collect();
        assert_eq!(files.len(), variants().len());
        for file in ["forward_bf16_d64.ptx", "backward_atomic_f16_d128.ptx", "merge_f32.ptx"] {
            assert!(files.contains(file), "{file}");
        }
    }
}
