//! One pass over a problem: buffers, launches, and what they leave.

use std::collections::BTreeMap;
use std::path::PathBuf;

use flashproof_spec::format::Format;
use flashproof_spec::layout::{Buffer, Layout, Placed, Strides};
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};

use super::expression::{Expression, Names, Value};
use super::machine::{self, Machine, UNWRITTEN};
use super::manifest::{Argument, Launch, Manifest, Piece, Scratch, Stored, Template};
use super::pack;
use super::text::Initial;
use super::variables::{
    Circumstances, Masked, PLACED, layout_name, names_of, rule_name, strides_of,
};
use crate::adapter::ownership::check_ownership;
use crate::adapter::{AnswerError, Backward, Failure};
use crate::io::safetensors::{decode, encode, poison};

/// A problem on a machine.
pub(super) struct Pass<'a> {
    manifest: &'a Manifest,
    machine: &'a mut dyn Machine,
    problem: &'a Problem,
    /// The problem in whose layout the LSE stands.
    lse: Problem,
    lse_format: Format,
    names: Names,
    /// Where each name of a buffer points to; a name without an entry is null.
    pointers: BTreeMap<String, u64>,
    /// What the kernel reads and must leave as it is: name, address and bytes.
    given: Vec<(String, u64, Vec<u8>)>,
}

impl<'a> Pass<'a> {
    /// Prepares for the problem, of which the inputs are known to be right.
    pub(super) fn begin(
        manifest: &'a Manifest,
        machine: &'a mut dyn Machine,
        problem: &'a Problem,
        lse_format: Format,
        cotangents: Option<&Cotangents>,
    ) -> Result<Self, Failure> {
        let refuse = |what: String| Err(Failure::Unsupported(what));
        let has_lse_gradient = cotangents.is_some_and(|it| it.lse.is_some());
        if let Some(what) = refused(manifest, problem, has_lse_gradient) {
            return refuse(what);
        }
        let masked = match Masked::of(problem) {
            Ok(masked) => masked,
            Err(what) => return refuse(what),
        };
        machine.clear();
        let mut pass = Self {
            manifest,
            machine,
            problem,
            lse: problem.clone(),
            lse_format,
            names: Names::default(),
            pointers: BTreeMap::new(),
            given: Vec::new(),
        };
        if manifest.has_contiguous_lse() {
            pass.lse.layout = Layout::Contiguous;
        }
        let about = Circumstances { has_lse_gradient, aligned: pass.is_aligned(cotangents) };
        pass.names = names_of(problem, &pass.lse, &masked, about);
        for (name, expression) in &manifest.lets {
            let value = pass.value(&format!("let.{name}"), expression)?;
            pass.names.set(name, value);
        }
        for (key, that, otherwise) in &manifest.supports.conditions {
            if !pass.truth(key, that)? {
                return refuse(otherwise.clone());
            }
        }
        let Masked { query_lengths, key_lengths, key_starts, .. } = masked;
        let (query_offsets, key_offsets) = match &problem.layout {
            Layout::Ragged(ragged) => {
                (Some(ragged.query_starts.clone()), Some(ragged.key_starts.clone()))
            }
            _ => (None, None),
        };
        for (name, numbers) in [
            ("query_lengths", query_lengths),
            ("key_lengths", key_lengths),
            ("key_starts", key_starts),
            ("query_offsets", query_offsets),
            ("key_offsets", key_offsets),
        ] {
            if let Some(numbers) = numbers {
                let bytes = numbers.iter().map(|&number| {
                    i32::try_from(number).map(i32::to_le_bytes).map_err(|_| {
                        Failure::Unsupported(format!("{name} of {number}, more than an int holds"))
                    })
                });
                let bytes = bytes.collect::<Result<Vec<_>, _>>()?.concat();
                pass.give(name, 0, bytes)?;
            }
        }
        for (name, scratch) in &manifest.scratch {
            pass.allocate_scratch(name, scratch)?;
        }
        Ok(pass)
    }

    /// The forward pass.
    pub(super) fn forward(mut self, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.run_forward(inputs)
    }

    /// The forward pass, and the backward pass from what it stored.
    pub(super) fn backward(
        mut self,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        let outputs = self.run_forward(inputs)?;
        // Rounded once to the problem's format, as they are judged.
        self.give_tensor("output", Placed::Output, &outputs.output)?;
        if let Some(lse) = &outputs.lse {
            self.give_tensor("lse", Placed::Lse, lse)?;
        }
        self.give_tensor("output_gradient", Placed::Output, &cotangents.output)?;
        if let Some(lse) = &cotangents.lse {
            self.give_tensor("lse_gradient", Placed::Lse, lse)?;
        }
        for placed in GRADIENTS {
            self.allocate_tensor(placed, self.problem.format)?;
        }
        self.launch_all(&self.manifest.backward)?;
        self.check_given()?;
        let take = |placed| self.tensor(placed, self.problem.format);
        let gradients = Gradients {
            query: take(Placed::QueryGradient)?,
            key: take(Placed::KeyGradient)?,
            value: take(Placed::ValueGradient)?,
            bias: None,
            sink: None,
        };
        gradients.check(self.problem).map_err(AnswerError::from)?;
        Ok(Backward { outputs, gradients })
    }

    fn run_forward(&mut self, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.give_tensor("query", Placed::Query, &inputs.query)?;
        self.give_tensor("key", Placed::Key, &inputs.key)?;
        self.give_tensor("value", Placed::Value, &inputs.value)?;
        self.allocate_tensor(Placed::Output, self.problem.output_format())?;
        let gives_lse = points_to(&self.manifest.forward, Placed::Lse.name());
        if gives_lse {
            self.allocate_tensor(Placed::Lse, self.lse_format)?;
        }
        self.launch_all(&self.manifest.forward)?;
        self.check_given()?;
        let output = self.tensor(Placed::Output, self.problem.output_format())?;
        let lse = if gives_lse { Some(self.tensor(Placed::Lse, self.lse_format)?) } else { None };
        let outputs = Outputs { output, lse };
        outputs.check(self.problem, self.lse_format).map_err(AnswerError::from)?;
        Ok(outputs)
    }

    /// The problem in whose layout a tensor stands.
    fn laid_out(&self, placed: Placed) -> &Problem {
        if placed == Placed::Lse { &self.lse } else { self.problem }
    }

    /// How a tensor is stored that has this format in the problem.
    fn stored(&self, placed: Placed, format: Format) -> (Format, Initial) {
        let Stored { format: other, initial, .. } =
            self.manifest.tensors.get(placed.name()).copied().unwrap_or_default();
        (other.unwrap_or(format), initial)
    }

    /// Whether all tensors of the operation have rows of whole 16 bytes, at multiples of 16 bytes.
    fn is_aligned(&self, cotangents: Option<&Cotangents>) -> bool {
        const BYTES: usize = 16;
        let problem = self.problem;
        let tensors = [Placed::Query, Placed::Key, Placed::Value, Placed::Output];
        let gradients = GRADIENTS.iter().filter(|_| cotangents.is_some());
        tensors.iter().chain(gradients).all(|&placed| {
            let format =
                if placed == Placed::Output { problem.output_format() } else { problem.format };
            let shape @ [.., entries] = problem.placed_shape(placed);
            let Strides { offset, strides: [batch, head, row, entry], .. } =
                strides_of(problem, placed);
            let steps = [offset, entries];
            let axes = [(batch, shape[0]), (head, shape[1]), (row, shape[2])];
            let strides = axes.iter().filter(|(_, extent)| *extent > 1).map(|(stride, _)| *stride);
            let whole = |format: Format| {
                let is_whole = |elements: usize| {
                    elements.checked_mul(format.bytes()).is_some_and(|it| it.is_multiple_of(BYTES))
                };
                steps.into_iter().chain(strides.clone()).all(is_whole)
            };
            (entry == 1 || entries == 1) && whole(format) && whole(self.stored(placed, format).0)
        })
    }

    fn check_size(&self, name: &str, bytes: Option<usize>) -> Result<usize, Failure> {
        let most = self.machine.most_bytes();
        bytes.filter(|bytes| *bytes <= most).ok_or_else(|| {
            let size = bytes.map_or_else(|| "more".to_owned(), |bytes| bytes.to_string());
            Failure::Unsupported(format!(
                "by the machine: {size} bytes for '{name}', at most {most}"
            ))
        })
    }

    /// Hands over a buffer to be read; the pointer is to the element at `offset` bytes.
    fn give(&mut self, name: &str, offset: usize, bytes: Vec<u8>) -> Result<(), Failure> {
        let address = self.machine.upload(name, &bytes)?;
        self.pointers.insert(name.to_owned(), address + offset as u64);
        self.given.push((name.to_owned(), address, bytes));
        Ok(())
    }

    fn give_tensor(&mut self, name: &str, placed: Placed, tensor: &Tensor) -> Result<(), Failure> {
        let (problem, format) = (self.laid_out(placed), tensor.format());
        let size = format.bytes();
        let length = problem.buffer_len(placed);
        let bytes = self.check_size(name, length.checked_mul(size))?;
        let buffer = Buffer::store(problem, placed, tensor)
            .map_err(|error| Failure::Environment(error.to_string()))?;
        // What belongs to no element is NaN.
        let mut contents = poison(format).repeat(length);
        debug_assert_eq!(contents.len(), bytes);
        let (offsets, values): (Vec<usize>, Vec<f64>) = buffer.written().unzip();
        let elements = encode(format, values.into_iter());
        for (offset, element) in offsets.into_iter().zip(elements.chunks_exact(size)) {
            contents[offset * size..][..size].copy_from_slice(element);
        }
        let offset = strides_of(problem, placed).offset * size;
        self.give(name, offset, contents)
    }

    fn allocate_tensor(&mut self, placed: Placed, format: Format) -> Result<(), Failure> {
        let (problem, name) = (self.laid_out(placed), placed.name());
        let (format, initial) = self.stored(placed, format);
        let bytes =
            self.check_size(name, problem.buffer_len(placed).checked_mul(format.bytes()))?;
        let offset = strides_of(problem, placed).offset * format.bytes();
        let address = self.allocate(name, bytes, initial)?;
        self.pointers.insert(name.to_owned(), address + offset as u64);
        Ok(())
    }

    fn allocate_scratch(&mut self, name: &str, scratch: &Scratch) -> Result<(), Failure> {
        let key = format!("scratch.{name}");
        if let Some(when) = &scratch.when
            && !self.truth(&format!("{key}.when"), when)?
        {
            return Ok(());
        }
        let key = format!("{key}.elements");
        let value = self.value(&key, &scratch.elements)?;
        let Value::Integer(elements @ 0..) = value else {
            return Err(misfit(&key, &scratch.elements, &format!("{value} is no count")));
        };
        let bytes = (elements as usize).checked_mul(scratch.element_bytes);
        let bytes = self.check_size(name, bytes)?;
        let address = self.allocate(name, bytes, scratch.initial)?;
        self.pointers.insert(name.to_owned(), address);
        Ok(())
    }

    fn allocate(&mut self, name: &str, bytes: usize, initial: Initial) -> Result<u64, Failure> {
        match initial {
            Initial::Unwritten => self.machine.allocate(name, bytes),
            Initial::Zero => self.machine.upload(name, &vec![0; bytes]),
        }
    }

    fn check_given(&self) -> Result<(), Failure> {
        for (name, address, bytes) in &self.given {
            if self.machine.read(*address)?.bytes != *bytes {
                return Err(Failure::InputChanged(name.clone()));
            }
        }
        Ok(())
    }

    /// What the kernel wrote of a tensor, rounded to its format in the problem, once each of its
    /// elements and nothing else is seen to have been written (`FAS:layout.ownership`).
    fn tensor(&self, placed: Placed, format: Format) -> Result<Tensor, Failure> {
        let (problem, name) = (self.laid_out(placed), placed.name());
        let (stored, initial) = self.stored(placed, format);
        let size = stored.bytes();
        let offset = strides_of(problem, placed).offset * size;
        let Some(pointer) = self.pointers.get(name) else {
            return Err(Failure::Environment(format!("'{name}' was not allocated")));
        };
        let contents = self.machine.read(pointer - offset as u64)?;
        let is_written = |at: usize| match (initial, &contents.written) {
            (Initial::Zero, _) => contents.bytes[at * size..][..size].iter().any(|byte| *byte != 0),
            (Initial::Unwritten, Some(written)) => {
                written[at * size..][..size].iter().any(|written| *written)
            }
            (Initial::Unwritten, None) => {
                contents.bytes[at * size..][..size].iter().any(|byte| *byte != UNWRITTEN)
            }
        };
        let mut buffer = Buffer::poisoned(format, problem.buffer_len(placed));
        let values = decode(stored, &contents.bytes);
        for (at, &value) in values.iter().enumerate() {
            if is_written(at) {
                buffer.write(at, format.round(value));
            }
        }
        if initial == Initial::Zero {
            // An element that is zero may have been left so.
            for (_, at) in problem.owned(placed) {
                buffer.write(at, format.round(values[at]));
            }
        }
        if problem.layout != self.problem.layout {
            buffer = moved(&buffer, placed, problem, self.problem);
        }
        check_ownership(self.problem, placed, &buffer)?;
        Ok(buffer.gather(self.problem, placed))
    }

    fn launch_all(&mut self, launches: &[Launch]) -> Result<(), Failure> {
        launches.iter().try_for_each(|launch| self.launch(launch))
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), Failure> {
        let Launch { key, when, ptx, entry, grid, block, shared, arguments } = launch;
        let of = |field: &str| format!("{key}.{field}");
        if let Some(when) = when
            && !self.truth(&of("when"), when)?
        {
            return Ok(());
        }
        let file = file_of(self.manifest, &self.filled(&of("ptx"), ptx)?);
        let entry = self.filled(&of("entry"), entry)?;
        let arguments = arguments
            .iter()
            .enumerate()
            .map(|(index, argument)| self.packed(&format!("{key}.arguments[{index}]"), argument))
            .collect::<Result<_, _>>()?;
        let launch = machine::Launch {
            key,
            file: &file,
            entry: &entry,
            grid: self.extents(&of("grid"), grid)?,
            block: self.extents(&of("block"), block)?,
            shared: self.extent(&of("shared"), shared, 0)?,
            arguments,
        };
        self.machine.launch(&launch)
    }

    fn packed(&self, key: &str, argument: &Argument) -> Result<Vec<u8>, Failure> {
        match argument {
            Argument::Pointer(name) => {
                let address = self.pointers.get(name).copied().unwrap_or(0);
                Ok(address.to_le_bytes().into())
            }
            Argument::Number(kind, expression) => {
                let value = self.value(key, expression)?;
                pack::number(*kind, &value).map_err(|reason| misfit(key, expression, &reason))
            }
            Argument::Struct(members) => {
                let member = |(index, member)| self.packed(&format!("{key}[{index}]"), member);
                let packed =
                    members.iter().enumerate().map(member).collect::<Result<Vec<_>, _>>()?;
                Ok(pack::members(&packed))
            }
        }
    }

    fn extents(&self, key: &str, expressions: &[Expression]) -> Result<[u32; 3], Failure> {
        let mut extents = [1; 3];
        for (axis, (extent, expression)) in extents.iter_mut().zip(expressions).enumerate() {
            *extent = self.extent(&format!("{key}[{axis}]"), expression, 1)?;
        }
        Ok(extents)
    }

    fn extent(&self, key: &str, expression: &Expression, least: u32) -> Result<u32, Failure> {
        let value = self.value(key, expression)?;
        let extent = match value {
            Value::Integer(value) => u32::try_from(value).ok().filter(|it| *it >= least),
            _ => None,
        };
        let reason = format!("{value}, where a whole number from {least} on is expected");
        extent.ok_or_else(|| misfit(key, expression, &reason))
    }

    fn filled(&self, key: &str, template: &Template) -> Result<String, Failure> {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => Ok(text.clone()),
            Piece::Expression(expression) => match self.value(key, expression)? {
                Value::Word(word) => Ok(word),
                value => Ok(value.to_string()),
            },
        };
        template.0.iter().map(piece).collect()
    }

    fn value(&self, key: &str, expression: &Expression) -> Result<Value, Failure> {
        let value = self.manifest.expressions.value(expression, &self.names);
        value.map_err(|reason| misfit(key, expression, &reason))
    }

    fn truth(&self, key: &str, expression: &Expression) -> Result<bool, Failure> {
        match self.value(key, expression)? {
            Value::Truth(truth) => Ok(truth),
            other => Err(misfit(key, expression, &format!("{other} is no truth value"))),
        }
    }
}

const GRADIENTS: [Placed; 3] = [Placed::QueryGradient, Placed::KeyGradient, Placed::ValueGradient];

/// The written elements of a tensor where another layout has them; what that has no place for is left out.
fn moved(buffer: &Buffer, placed: Placed, from: &Problem, to: &Problem) -> Buffer {
    let mut moved = Buffer::poisoned(buffer.format(), to.buffer_len(placed));
    for (place, at) in to.owned(placed) {
        if let Some(stood) = from.offset_of(placed, place).filter(|&it| buffer.is_written(it)) {
            moved.write(at, buffer.read(stood));
        }
    }
    moved
}

/// The file of a path in a manifest.
pub(super) fn file_of(manifest: &Manifest, path: &str) -> PathBuf {
    manifest.directory.join(path)
}

/// A number that the manifest derives from this problem is of no use.
fn misfit(key: &str, expression: &Expression, reason: &str) -> Failure {
    Failure::Reported(format!("in the manifest, {key} = '{}': {reason}", expression.text))
}

/// Whether some launch has a pointer to this buffer.
fn points_to(launches: &[Launch], buffer: &str) -> bool {
    fn is_pointer(argument: &Argument, buffer: &str) -> bool {
        match argument {
            Argument::Pointer(name) => name == buffer,
            Argument::Number(..) => false,
            Argument::Struct(members) => members.iter().any(|member| is_pointer(member, buffer)),
        }
    }
    launches.iter().any(|launch| launch.arguments.iter().any(|it| is_pointer(it, buffer)))
}

/// What a problem has that the manifest does not say to be supported, by name.
fn refused(manifest: &Manifest, problem: &Problem, has_lse_gradient: bool) -> Option<String> {
    let supports = &manifest.supports;
    let Problem { quantization, bias, alibi, sink, dropout, softcap, mask, layout, .. } = problem;
    let modifiers = [
        (quantization.is_some(), "quantization"),
        (bias.is_some(), "bias"),
        (alibi.is_some(), "alibi"),
        (sink.is_some(), "sink"),
        (dropout.is_some(), "dropout"),
        (softcap.is_some(), "softcap"),
        (has_lse_gradient, "lse-gradient"),
    ];
    let modifier = modifiers.iter().find(|(has, name)| *has && !supports.modifiers.contains(*name));
    if let Some((_, name)) = modifier {
        return Some((*name).to_owned());
    }
    let rule = mask.rules.iter().map(rule_name).find(|name| !supports.rules.contains(*name));
    if let Some(name) = rule {
        return Some(format!("the mask '{name}'"));
    }
    let name = layout_name(layout);
    (!supports.layouts.contains(name)).then(|| format!("the layout '{name}'"))
}

/// Every name of a tensor is that of a place, but for the upstream gradients.
const _: () = assert!(PLACED.len() == 2 + Placed::ALL.len());
