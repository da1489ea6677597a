//! Tensors in files.

pub mod safetensors;
