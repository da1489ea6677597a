//! The report as JSON, for scripts. `REPORT.md` documents every field.

use std::io::{self, Write};

use super::Report;

/// Writes the report as one indented JSON object and a newline.
///
/// # Errors
/// Those of the sink.
pub fn write(report: &Report, sink: &mut impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *sink, report)?;
    sink.write_all(b"\n")
}
