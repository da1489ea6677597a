//! The steps of a trace, aligned.

use std::io::{self, Write};
use std::ops::Range;

use flashproof_spec::format::Format;

use crate::explain::state::{Level, State, Step, Trace};
use crate::report::number::{show_in, show_rough};
use crate::report::text::BAD;
use crate::verdict::{Element, Quantity, Want};

/// Digits of the numbers of an exact state.
const DIGITS: usize = 7;

/// Writes one line a step, and marks the one where kernel and exact answer part.
pub fn write(
    level: &Level,
    trace: &Trace,
    format: Format,
    sink: &mut impl Write,
) -> io::Result<()> {
    let has_state = level.steps.iter().any(|step| step.state.is_some());
    let has_lse = level.steps.iter().any(|step| step.kernel_l.is_some());
    let header = header(trace, has_state, has_lse);
    let rows: Vec<Vec<String>> =
        level.steps.iter().map(|step| row(step, trace, format, (has_state, has_lse))).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.chain([&header[column]]).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |cells: &[String]| {
        let padded = cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        padded.collect::<Vec<_>>().join("  ")
    };
    writeln!(sink, "    {}", line(&header))?;
    for (at, (row, step)) in rows.iter().zip(&level.steps).enumerate() {
        if let Some(reason) = &step.no_answer {
            writeln!(sink, "    {}  {reason}", line(&row[..1]))?;
        } else if level.parts == Some(at) {
            writeln!(sink, "    {BAD}{}  <- here{BAD:#}", line(row))?;
        } else {
            writeln!(sink, "    {}", line(row))?;
        }
    }
    Ok(())
}

fn header(trace: &Trace, has_state: bool, has_lse: bool) -> Vec<String> {
    let mut header = vec![format!("{}s", trace.along.name())];
    if has_state {
        header.extend(["m", "l"].map(str::to_owned));
        if has_lse {
            header.push("kernel's l".to_owned());
        }
    }
    let quantity = trace.quantity;
    header.push(match trace.location.entry {
        Some(entry) => format!("{quantity}[{entry}]"),
        None => quantity.to_string(),
    });
    header.extend(["kernel's", "error", "bound", "ratio"].map(str::to_owned));
    header
}

fn row(
    step: &Step,
    trace: &Trace,
    format: Format,
    (has_state, has_lse): (bool, bool),
) -> Vec<String> {
    let mut row = vec![trace.positions(&(step.start..step.end))];
    if has_state {
        let state = |of: fn(&State) -> f64| {
            step.state.as_ref().map_or_else(String::new, |state| digits(of(state)))
        };
        row.extend([state(|it| it.m), state(|it| it.l)]);
        if has_lse {
            row.push(step.kernel_l.map_or_else(String::new, digits));
        }
    }
    let Some(element) = &step.element else { return row };
    let exact = match (trace.quantity, &step.state, element.want) {
        (Quantity::Output, Some(state), Want::Number(_)) => digits(state.output),
        (_, _, Want::Number(want)) => digits(want),
        (_, _, want) => want.to_string(),
    };
    row.extend([exact, show_in(format, element.got)]);
    row.extend(measures(element));
    row
}

fn measures(element: &Element) -> [String; 3] {
    let shown = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), show_rough);
    [shown(element.error), shown(element.bound), show_rough(element.ratio)]
}

/// A number in a few significant digits.
fn digits(value: f64) -> String {
    /// Magnitudes written without an exponent.
    const PLAIN: Range<f64> = 1e-4..1e7;
    if value == 0.0 || !value.is_finite() {
        return value.to_string();
    }
    let rounded: f64 = format!("{value:.*e}", DIGITS - 1).parse().unwrap_or(value);
    if PLAIN.contains(&rounded.abs()) { rounded.to_string() } else { format!("{rounded:e}") }
}
