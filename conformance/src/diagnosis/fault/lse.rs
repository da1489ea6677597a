//! Faults of the LSE alone.

use super::{Fault, Variants, none, only};
use crate::diagnosis::prediction::LseForm;
use crate::diagnosis::row::RowModel;

pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "lse-base2",
        clause: "FAS:choice.lse.base",
        explanation: "the LSE is in base 2 where the natural logarithm is declared",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::BaseTwo),
    },
    Fault {
        name: "lse-without-max",
        clause: "FAS:fwd.lse.definition",
        explanation: "the LSE is ln l: the maximum is not added",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::WithoutMaximum),
    },
    Fault {
        name: "lse-max-only",
        clause: "FAS:fwd.lse.definition",
        explanation: "the LSE is the maximum alone: ln l is not added",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::MaximumOnly),
    },
    Fault {
        name: "lse-negated",
        clause: "FAS:choice.lse.sign",
        explanation: "the LSE has the wrong sign",
        same_variant: true,
        variants: |row| lse_form(row, LseForm::Negated),
    },
];

fn lse_form<'r>(row: &'r RowModel<'_>, lse: LseForm) -> Variants<'r> {
    if row.lse.is_none() { none() } else { only(row.reading().prediction().with_lse(lse)) }
}
