//! A survey as Markdown.

use std::io::{self, Write};

use super::words::{COLUMNS, asked, command, memory, query_tile, row, short_name, traffic};
use super::{Series, Skipped, Survey};

/// Writes the survey; `plot` is the path of its plot, as the file says it.
///
/// # Errors
/// Those of the sink.
pub fn write(
    survey: &Survey,
    plot: Option<&str>,
    sink: &mut (impl Write + ?Sized),
) -> io::Result<()> {
    writeln!(sink, "# What kernels move through memory, and hold in it\n")?;
    writeln!(
        sink,
        "Bytes that a kernel asks of global memory, counted in the emulator: the same on every run and \
         machine, and without caches or time. Measured on {}. Made by `{}`.\n",
        asked(survey),
        command(survey)
    )?;
    if let Some(plot) = plot {
        writeln!(sink, "![Bytes moved and held over the length]({plot})\n")?;
    }
    write_clauses(sink)?;
    write_judgements(survey, sink)?;
    writeln!(sink, "## Counts\n")?;
    writeln!(
        sink,
        "*Scratch* is what the manifest asks for beside inputs and outputs, for both passes together; \
         *shared* is of a block. *c* is what the bytes are of `P d^2 e^2 / M` at this length, which falls \
         towards the one above as T grows. The last column divides what any kernel moves at least that \
         stores its scores in f32 (FlashAttention, algorithm 0) by what this one moves."
    )?;
    for series in &survey.series {
        let Series { description, format, pass, points, .. } = series;
        writeln!(sink, "\n### {description}, {format}, {}\n", pass.name())?;
        writeln!(sink, "| {} |", COLUMNS.join(" | "))?;
        writeln!(sink, "|{}", "--:|".repeat(COLUMNS.len()))?;
        for index in 0..points.len() {
            writeln!(sink, "{}", table_row(survey, series, index))?;
        }
    }
    Ok(())
}

/// The row of a table that tells of one length of a series.
#[must_use]
pub fn table_row(survey: &Survey, series: &Series, index: usize) -> String {
    format!("| {} |", row(survey, series, index).join(" | "))
}

fn write_clauses(sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(
        sink,
        "T is the number of queries and of keys, d the entries of a row, e the bytes of an entry, M the \
         shared memory of a block in bytes, P the visible pairs of query and key: T^2, or half of it under \
         a causal mask.\n\n\
         - `FAS:io.memory.linear`: scratch memory is affine in T. It is an equality of whole numbers.\n\
         - `FAS:io.traffic.shared-memory`: traffic is `c P d^2 e^2 / M` and what grows less than T^2, with \
         c from 2 (tiles of queries fill the shared memory) to 12 (the published algorithm). c comes from \
         second differences over T, and a kernel with tiles of B queries has `c = 2 M / (B d e)`.\n\
         - `FAS:io.traffic.streamed`: every byte is explained by tiles of so many queries, past which each \
         key and value that the tile sees is streamed once.\n\n\
         Where M is little more than d^2 e, a kernel that stores its scores moves about as much as one \
         that does not, and c may lie between 2 and 12 for both: scratch memory tells them apart. The \
         range is that of forward passes; the c of backward passes is told, and not judged.\n"
    )
}

fn write_judgements(survey: &Survey, sink: &mut (impl Write + ?Sized)) -> io::Result<()> {
    writeln!(sink, "| kernel | format | pass | scratch memory | traffic | streamed |")?;
    writeln!(sink, "|---|---|---|---|---|---|")?;
    for series in &survey.series {
        writeln!(
            sink,
            "| `{}` | {} | {} | {} | {} | {} |",
            short_name(&series.kernel),
            series.format,
            series.pass.name(),
            memory(series),
            traffic(series),
            query_tile(series)
        )?;
    }
    for Skipped { kernel, format, pass, reason } in &survey.skipped {
        let name = short_name(kernel);
        writeln!(sink, "| `{name}` | {format} | {} | not offered: {reason} | | |", pass.name())?;
    }
    writeln!(sink)
}
