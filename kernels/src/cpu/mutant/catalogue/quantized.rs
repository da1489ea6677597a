//! Faults of the kernel for inputs of 8 bits.

use super::Change::ReadsQuantized;
use super::{Mutant, forward_fault as fault};
use crate::cpu::mutant::misreading::descale;

/// Descales.
pub(super) const QUANTIZED: &[Mutant] = &[fault(
    "drop-vscale",
    ReadsQuantized(descale::drop_of_value),
    &["FAS:num.descale.head", "FAS:num.descale.block"],
    "entries of the value are not multiplied by their descales",
)];
