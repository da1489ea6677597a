//! Changes to descales.

use flashproof_spec::tensor::Inputs;

use super::changed;

/// Entries of the value stand for themselves.
pub(in crate::cpu::mutant) fn drop_of_value(inputs: &mut Inputs) {
    if let Some(descales) = &mut inputs.descale {
        changed(&mut descales.value, |descales| descales.fill(1.0));
    }
}
