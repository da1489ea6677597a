//! Changes to how parts of the keys become one row, in a copy of the split kernel.

use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use half::{bf16, f16};
use ndarray::{Array1, Array3, Array4, s};

use super::arithmetic::{Passing, driven};
use crate::cpu::Tiled;
use crate::cpu::element::{Accumulator, Element};
use crate::cpu::head::Head;
use crate::cpu::merge::Row;
use crate::cpu::row::add_scaled;
use crate::{Kernel, Unsupported};

/// The step that is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MergeFault {
    /// A part without keys is not left out: its weight is `e^(-inf - m)`, NaN where all are such.
    EmptyNan,
    /// Every part counts the sink.
    SinkPerSplit,
    /// Outputs of parts are averaged without their weights.
    Unweighted,
    /// The maximum of the LSEs is not subtracted before they are exponentiated.
    WithoutMaximum,
}

/// The forward pass of the split kernel, with a fault.
pub(super) fn forward(
    splits: usize,
    fault: MergeFault,
    problem: &Problem,
    inputs: &Inputs,
) -> Result<Outputs, Unsupported> {
    driven(&Merging { splits, fault }, problem, inputs)
}

struct Merging {
    splits: usize,
    fault: MergeFault,
}

impl Passing for Merging {
    fn rows<E: Element>(
        &self,
        _: &Problem,
        _: [usize; 2],
        head: &Head<'_, E>,
    ) -> Vec<Row<E::Accumulator>> {
        let (queries, value_dim) = (head.query.nrows(), head.value.ncols());
        let mut parts = vec![Vec::new(); queries];
        for keys in self.parts(head.key.nrows()) {
            for (parts, part) in parts.iter_mut().zip(Tiled::default().parts(head, keys)) {
                let sink = head.sink.filter(|_| self.fault == MergeFault::SinkPerSplit);
                parts.extend(sink.map(|logit| Row::of_sink(value_dim, logit)));
                parts.push(part);
            }
        }
        let once = head.sink.filter(|_| self.fault != MergeFault::SinkPerSplit);
        let finished = parts.into_iter().map(|mut parts| {
            parts.extend(once.map(|logit| Row::of_sink(value_dim, logit)));
            merged(Some(self.fault), value_dim, &parts)
        });
        finished.collect()
    }
}

impl Merging {
    /// The keys of each part, as the split kernel cuts them.
    fn parts(&self, key_len: usize) -> Vec<Range<usize>> {
        let size = key_len.div_ceil(self.splits);
        let at = |split: usize| key_len.min(split.saturating_mul(size));
        (0..self.splits).map(|split| at(split)..at(split + 1)).collect()
    }
}

/// A copy of the merge, in which steps ask for a fault.
fn merged<A: Accumulator>(fault: Option<MergeFault>, value_dim: usize, parts: &[Row<A>]) -> Row<A> {
    let counts =
        |part: &&Row<A>| fault == Some(MergeFault::EmptyNan) || part.lse != A::neg_infinity();
    if parts.is_empty() || !parts.iter().any(|part| counts(&part)) {
        return Row::without_keys(value_dim);
    }
    let maximum = if fault == Some(MergeFault::WithoutMaximum) {
        A::zero()
    } else {
        parts.iter().map(|part| part.lse).fold(A::neg_infinity(), A::max)
    };
    let mut normalizer = A::zero();
    let mut output = vec![A::zero(); value_dim];
    let mut counted = A::zero();
    for part in parts.iter().filter(counts) {
        let weight = (part.lse - maximum).exp();
        normalizer += weight;
        let averaged = fault == Some(MergeFault::Unweighted);
        add_scaled(&mut output, if averaged { A::one() } else { weight }, &part.output);
        counted += A::one();
    }
    let divisor = if fault == Some(MergeFault::Unweighted) { counted } else { normalizer };
    for sum in &mut output {
        *sum /= divisor;
    }
    Row { output, lse: maximum + normalizer.ln() }
}

/// A copy of the merge of stored parts.
pub(super) fn merge(
    fault: Option<MergeFault>,
    problem: &Problem,
    partials: &[Outputs],
) -> Result<Outputs, Unsupported> {
    match problem.format {
        Format::F64 => Ok(merge_as::<f64>(fault, problem, partials)),
        Format::F32 => Ok(merge_as::<f32>(fault, problem, partials)),
        Format::F16 => Ok(merge_as::<f16>(fault, problem, partials)),
        Format::Bf16 => Ok(merge_as::<bf16>(fault, problem, partials)),
        // The correct kernel's refusal.
        _ => Tiled::default().merge(problem, partials),
    }
}

fn merge_as<E: Element>(
    fault: Option<MergeFault>,
    problem: &Problem,
    partials: &[Outputs],
) -> Outputs {
    let mut output = Array4::zeros(problem.output_shape());
    let mut lse = Array3::zeros(problem.lse_shape());
    for (batch, head, query) in ndarray::indices(problem.lse_shape()) {
        let parts: Vec<_> =
            partials.iter().map(|part| stored_row::<E>(part, [batch, head, query])).collect();
        let row = merged(fault, problem.value_dim, &parts);
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
