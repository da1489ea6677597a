//! Changes to where elements are read and written.
//!
//! A copy of the passes over stored tensors, whose addresses come from the specification of layouts and
//! are then changed. Past the end of a buffer stands poison, as in memory that is not ours: what is read
//! there is NaN, and what is written is lost.

use std::collections::BTreeSet;

use flashproof_spec::layout::{
    Buffer, Layout, Placed, StoredCotangents, StoredGradients, StoredInputs, StoredOutputs,
};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use ndarray::{ArrayD, IxDyn};

use crate::cpu::position::InUse;
use crate::{Kernel, Unsupported};

/// The element that a change is in the address of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StorageFault {
    /// Query, key and value are read as if they were dense.
    AssumePacked,
    /// An offset is a 32-bit integer with a sign.
    Offset32,
    /// The pages of the first batch member are read for all.
    PagesOfFirst,
    /// A store of query rows goes one row past the last in use.
    WritePastTail,
    /// Gradients of keys and values of a member without queries are not written.
    SkipEmpty,
}

/// What a backward pass reads.
pub(super) struct Read<'a> {
    pub(super) problem: &'a Problem,
    pub(super) inputs: &'a StoredInputs,
    pub(super) outputs: &'a StoredOutputs,
    pub(super) cotangents: &'a StoredCotangents,
}

pub(super) fn forward(
    kernel: &dyn Kernel,
    fault: Option<StorageFault>,
    problem: &Problem,
    inputs: &StoredInputs,
) -> Result<StoredOutputs, Unsupported> {
    let addresses = Addresses { fault, problem };
    let outputs = kernel.forward(&dense(problem), &addresses.inputs(inputs))?;
    Ok(StoredOutputs {
        output: addresses.scatter(Placed::Output, &outputs.output),
        lse: outputs.lse.map(|lse| addresses.scatter(Placed::Lse, &lse)),
    })
}

pub(super) fn backward(
    kernel: &dyn Kernel,
    fault: Option<StorageFault>,
    read: &Read<'_>,
) -> Result<StoredGradients, Unsupported> {
    let &Read { problem, inputs, outputs, cotangents } = read;
    let addresses = Addresses { fault, problem };
    let lse = |lse: &Option<Buffer>| lse.as_ref().map(|lse| addresses.gather(Placed::Lse, lse));
    let outputs = Outputs {
        output: addresses.gather(Placed::Output, &outputs.output),
        lse: lse(&outputs.lse),
    };
    let cotangents = Cotangents {
        output: addresses.gather(Placed::Output, &cotangents.output),
        lse: lse(&cotangents.lse),
    };
    let inputs = addresses.inputs(inputs);
    let gradients = kernel.backward(&dense(problem), &inputs, &outputs, &cotangents)?;
    Ok(StoredGradients {
        query: addresses.scatter(Placed::QueryGradient, &gradients.query),
        key: addresses.scatter(Placed::KeyGradient, &gradients.key),
        value: addresses.scatter(Placed::ValueGradient, &gradients.value),
        bias: gradients.bias,
        sink: gradients.sink,
    })
}

fn dense(problem: &Problem) -> Problem {
    Problem { layout: Layout::Contiguous, ..problem.clone() }
}

struct Addresses<'a> {
    fault: Option<StorageFault>,
    problem: &'a Problem,
}

impl Addresses<'_> {
    fn inputs(&self, inputs: &StoredInputs) -> Inputs {
        Inputs {
            query: self.gather(Placed::Query, &inputs.query),
            key: self.gather(Placed::Key, &inputs.key),
            value: self.gather(Placed::Value, &inputs.value),
            bias: inputs.bias.clone(),
            sink: inputs.sink.clone(),
            descale: None,
        }
    }

    fn gather(&self, placed: Placed, buffer: &Buffer) -> Tensor {
        let problem = self.as_read();
        let mut shape = problem.placed_shape(placed).to_vec();
        let mut values = ArrayD::from_elem(IxDyn(&shape), f64::NAN);
        for (place, offset) in problem.owned(placed) {
            let address = self.address(placed, place, offset);
            let within = address.filter(|&address| address < buffer.len());
            values[IxDyn(&place)] = within.map_or(f64::NAN, |address| buffer.read(address));
        }
        if placed == Placed::Lse {
            shape.pop();
            values = values.into_shape_with_order(IxDyn(&shape)).expect("an axis of extent 1 less");
        }
        Tensor::exact(buffer.format(), values).expect("values of the buffer's own format")
    }

    fn scatter(&self, placed: Placed, tensor: &Tensor) -> Buffer {
        let shape = IxDyn(&self.problem.placed_shape(placed));
        let values = tensor.values().to_shape(shape).expect("a tensor of the problem's shape");
        let mut buffer = Buffer::poisoned(tensor.format(), self.problem.buffer_len(placed));
        for (place, offset) in self.problem.owned(placed) {
            let address = self.address(placed, place, offset);
            let within = address.filter(|&address| address < buffer.len());
            if let Some(address) = within.filter(|_| self.writes(placed, place)) {
                buffer.write(address, values[IxDyn(&place)]);
            }
        }
        if self.fault == Some(StorageFault::WritePastTail) && placed == Placed::Output {
            self.write_past_tail(&mut buffer);
        }
        buffer
    }

    /// The problem as its layout is read.
    fn as_read(&self) -> Problem {
        let mut problem = self.problem.clone();
        if let (Some(StorageFault::PagesOfFirst), Layout::Paged(paged)) =
            (self.fault, &mut problem.layout)
        {
            let first = paged.block_table[0].clone();
            paged.block_table.fill(first);
        }
        problem
    }

    /// Where an element that stands at `offset` is looked for; `None` before the buffer.
    fn address(
        &self,
        placed: Placed,
        [batch, head, position, entry]: [usize; 4],
        offset: usize,
    ) -> Option<usize> {
        let is_input = matches!(placed, Placed::Query | Placed::Key | Placed::Value);
        match self.fault {
            Some(StorageFault::AssumePacked)
                if is_input && matches!(self.problem.layout, Layout::Strided(_)) =>
            {
                let [_, heads, positions, entries] = self.problem.placed_shape(placed);
                Some(((batch * heads + head) * positions + position) * entries + entry)
            }
            // The cast is the fault.
            #[allow(clippy::cast_possible_wrap)]
            Some(StorageFault::Offset32) => usize::try_from(offset as i32).ok(),
            _ => Some(offset),
        }
    }

    fn writes(&self, placed: Placed, [batch, ..]: [usize; 4]) -> bool {
        let of_keys = matches!(placed, Placed::KeyGradient | Placed::ValueGradient);
        let skips = self.fault == Some(StorageFault::SkipEmpty) && of_keys;
        !skips || InUse::new(self.problem, batch).queries > 0
    }

    /// Zeros in the row after each member's last, where no member owns it: one that does is written
    /// afterwards.
    fn write_past_tail(&self, buffer: &mut Buffer) {
        let Layout::Ragged(ragged) = &self.problem.layout else { return };
        let [_, heads, _, entries] = self.problem.output_shape();
        let owned: BTreeSet<usize> = self.problem.owned(Placed::Output).map(|(_, it)| it).collect();
        for (batch, start) in ragged.query_starts.iter().enumerate() {
            let row = start + InUse::new(self.problem, batch).queries;
            let end = buffer.len().min((row + 1) * heads * entries);
            for offset in (row * heads * entries..end).filter(|offset| !owned.contains(offset)) {
                buffer.write(offset, 0.0);
            }
        }
    }
}
