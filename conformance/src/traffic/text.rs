//! A survey as text.

use std::io::{self, Write};

use super::words::{COLUMNS, asked, memory, query_tile, row, traffic};
use super::{Series, Skipped, Survey};

/// Writes the survey.
///
/// # Errors
/// Those of the sink.
pub fn write(survey: &Survey, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(sink, "Bytes of global memory, by the emulator: {}.", asked(survey))?;
    for series in &survey.series {
        write_series(survey, series, sink)?;
    }
    for Skipped { kernel, format, pass, reason } in &survey.skipped {
        writeln!(sink, "\n{kernel}, {format}, {}: unsupported, {reason}", pass.name())?;
    }
    Ok(())
}

fn write_series(
    survey: &Survey,
    series: &Series,
    sink: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    let Series { kernel, description, format, pass, points, .. } = series;
    let bold = anstyle::Style::new().bold();
    writeln!(sink, "\n{bold}{kernel}, {format}, {}{bold:#}: {description}", pass.name())?;
    let rows: Vec<_> = (0..points.len()).map(|index| row(survey, series, index)).collect();
    let widths: Vec<_> = (0..COLUMNS.len())
        .map(|column| {
            let cells = rows.iter().map(|row| row[column].len());
            cells.chain([COLUMNS[column].len()]).max().unwrap_or(0)
        })
        .collect();
    let mut line = |cells: &[&str]| {
        for (cell, width) in cells.iter().zip(&widths) {
            write!(sink, "  {cell:>width$}")?;
        }
        writeln!(sink)
    };
    line(&COLUMNS)?;
    for row in &rows {
        line(&row.each_ref().map(String::as_str))?;
    }
    writeln!(sink, "  FAS:io.memory.linear          {}", memory(series))?;
    writeln!(sink, "  FAS:io.traffic.shared-memory  {}", traffic(series))?;
    writeln!(sink, "  FAS:io.traffic.streamed       {}", query_tile(series))
}
