//! A small tensor in a few lines.

use std::io::{self, Write};

use flashproof_spec::tensor::Tensor;
use ndarray::{ArrayViewD, Dimension};

use crate::report::number::show_in;

/// Tensors of more values are not shown.
const MOST_VALUES: usize = 48;

/// Width of a name's column.
const NAME: usize = 15;

/// Values other than zero that are shown of a tensor of more values.
const MOST_EXCEPTIONS: usize = 6;

/// Writes the tensor's values on one line: all of them, or those that are not zero, or how many there
/// are.
pub fn write(name: &str, tensor: &Tensor, sink: &mut impl Write) -> io::Result<()> {
    let values = tensor.values();
    let shape: Vec<String> = tensor.shape().iter().map(ToString::to_string).collect();
    let shape = format!("[{}]", shape.join(", "));
    if values.len() > MOST_VALUES {
        let shown = exceptions(tensor).unwrap_or_else(|| format!("{} values", values.len()));
        return writeln!(sink, "  {name:NAME$} {shape} {shown}");
    }
    let shown = nested(&values.view(), &|value| show_in(tensor.format(), value));
    writeln!(sink, "  {name:NAME$} {shape} {shown}")
}

/// The few values that are not zero, each with its place; `None` where they are many.
fn exceptions(tensor: &Tensor) -> Option<String> {
    let others = || tensor.values().indexed_iter().filter(|(_, value)| **value != 0.0);
    if others().nth(MOST_EXCEPTIONS).is_some() {
        return None;
    }
    let shown = others().map(|(place, &value)| {
        format!("{:?} = {}", place.slice(), show_in(tensor.format(), value))
    });
    let shown: Vec<String> = shown.collect();
    Some(if shown.is_empty() { "0".to_owned() } else { format!("0 but {}", shown.join(", ")) })
}

/// The values in brackets, without those of leading axes of extent 1.
fn nested(values: &ArrayViewD<'_, f64>, show: &dyn Fn(f64) -> String) -> String {
    match values.shape() {
        [] => values.iter().map(|&value| show(value)).collect(),
        [1, _, ..] => nested(&values.index_axis(ndarray::Axis(0), 0), show),
        [_, ..] => {
            let inner: Vec<String> =
                values.outer_iter().map(|it| nested_whole(&it, show)).collect();
            format!("[{}]", inner.join(", "))
        }
    }
}

/// The values in brackets, one pair an axis.
fn nested_whole(values: &ArrayViewD<'_, f64>, show: &dyn Fn(f64) -> String) -> String {
    if values.ndim() == 0 {
        return values.iter().map(|&value| show(value)).collect();
    }
    let inner: Vec<String> = values.outer_iter().map(|it| nested_whole(&it, show)).collect();
    format!("[{}]", inner.join(", "))
}
