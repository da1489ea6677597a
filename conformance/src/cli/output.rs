//! Standard output, standard error and files.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};

use super::error::CliError;
use crate::cli::Outcome;
use flashproof_conformance::report::{Report, json, text};

/// Writes what `render` makes to standard output, in one piece, with styles where it is a terminal.
///
/// A reader that went away, as `head` does, is no error.
pub fn print(render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> Result<(), CliError> {
    write_to(&mut anstream::stdout(), render).map_err(CliError::Stdout)
}

/// Writes what `render` makes of each item, as soon as it is made; ends where the reader went away.
pub fn print_each<T>(
    items: impl Iterator<Item = T>,
    render: impl Fn(&T, &mut Vec<u8>) -> io::Result<()>,
) -> Result<(), CliError> {
    let mut stdout = anstream::stdout();
    for item in items {
        let mut rendered = Vec::new();
        let written = render(&item, &mut rendered)
            .and_then(|()| stdout.write_all(&rendered))
            .and_then(|()| stdout.flush());
        match written {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => break,
            written => written.map_err(CliError::Stdout)?,
        }
    }
    Ok(())
}

fn write_to(
    sink: &mut impl Write,
    render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> io::Result<()> {
    let mut rendered = Vec::new();
    render(&mut rendered)?;
    match sink.write_all(&rendered).and_then(|()| sink.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Writes the report: as text to standard output; as JSON to a file, or to standard output in place
/// of the text, which then goes to standard error.
pub fn report(report: &Report, json_to: Option<&Path>) -> Result<Outcome, CliError> {
    text_and_json(json_to, |sink| text::write(report, sink), |sink| json::write(report, sink))?;
    Ok(report.summary.outcome())
}

/// Writes text to standard output; JSON to a file, or to standard output in place of the text, which
/// then goes to standard error.
pub fn text_and_json(
    json_to: Option<&Path>,
    text: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    json: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
) -> Result<(), CliError> {
    match json_to {
        None => print(text),
        Some(path) if path == Path::new("-") => {
            write_to(&mut anstream::stderr(), text).map_err(CliError::Stdout)?;
            print(json)
        }
        Some(path) => {
            file(path, json)
                .map_err(|source| CliError::Write { path: path.display().to_string(), source })?;
            print(text)
        }
    }
}

/// Writes the file whole or not at all.
pub fn file(path: &Path, render: impl FnOnce(&mut Vec<u8>) -> io::Result<()>) -> io::Result<()> {
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::NamedTempFile::new_in(directory.unwrap_or(Path::new(".")))?;
    write_to(&mut file, render)?;
    file.persist(path)?;
    Ok(())
}

/// Tells why the command could not be carried out.
pub fn error(error: &CliError) {
    let style = anstyle::AnsiColor::Red.on_default().bold();
    // Where even standard error is gone, nobody is left to tell.
    let _ = writeln!(anstream::stderr(), "{style}error:{style:#} {error}");
}

/// A progress bar on standard error, or none where that is no terminal.
pub fn progress(length: u64, unit: &str) -> ProgressBar {
    if !io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let template = format!("{{wide_bar}} {{pos}}/{{len}} {unit}, {{eta}} left");
    let style =
        ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length).with_style(style)
}
