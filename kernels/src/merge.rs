//! Merging partial results that are stored as tensors.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Outputs, Tensor};
use half::{bf16, f16};
use ndarray::{Array1, Array3, Array4, s};

use crate::Unsupported;
use crate::cpu::element::Element;
use crate::cpu::merge::{Row, merge_partials};

/// [`Kernel::merge`](crate::Kernel::merge) of the kernels here: rows as stored, merged in the
/// accumulator, each entry rounded once more when it is stored.
pub(crate) fn merge(
    kernel: &str,
    problem: &Problem,
    partials: &[Outputs],
) -> Result<Outputs, Unsupported> {
    match problem.output_format() {
        Format::F64 => Ok(merge_as::<f64>(problem, partials)),
        Format::F32 => Ok(merge_as::<f32>(problem, partials)),
        Format::F16 => Ok(merge_as::<f16>(problem, partials)),
        Format::Bf16 => Ok(merge_as::<bf16>(problem, partials)),
        format @ (Format::Tf32 | Format::E4m3 | Format::E5m2) => Err(Unsupported {
            kernel: kernel.to_owned(),
            feature: format!("number format {format}"),
        }),
    }
}

fn merge_as<E: Element>(problem: &Problem, partials: &[Outputs]) -> Outputs {
    let mut output = Array4::zeros(problem.output_shape());
    let mut lse = Array3::zeros(problem.lse_shape());
    for (batch, head, query) in ndarray::indices(problem.lse_shape()) {
        let parts: Vec<_> =
            partials.iter().map(|part| stored_row::<E>(part, [batch, head, query])).collect();
        let row = merge_partials(problem.value_dim, &parts);
        let stored: Array1<f64> = row.output.into_iter().map(|o| E::store(o).to_exact()).collect();
        output.slice_mut(s![batch, head, query, ..]).assign(&stored);
        lse[[batch, head, query]] = row.lse.to_exact();
    }
    let exact = "a number that was stored is a value of its format";
    let output = Tensor::exact(E::FORMAT, output.into_dyn()).expect(exact);
    let lse = Tensor::exact(E::Accumulator::FORMAT, lse.into_dyn()).expect(exact);
    Outputs { output, lse: Some(lse) }
}

fn stored_row<E: Element>(part: &Outputs, [batch, head, query]: [usize; 3]) -> Row<E::Accumulator> {
    let lse = part.lse.as_ref().expect("a partial result with an LSE").view3();
    let output = part.output.view4();
    let entries = output.slice_move(s![batch, head, query, ..]);
    Row {
        output: entries.iter().map(|&entry| E::from_exact(entry).load()).collect(),
        lse: E::Accumulator::from_exact(lse[[batch, head, query]]),
    }
}
