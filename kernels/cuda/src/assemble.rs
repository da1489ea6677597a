//! From PTX to the resources that its entries take on an architecture, by ptxas.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::toolkit::{BUILD, HOW_TO_INSTALL, Toolkit};

/// The architectures that are reported: of the A100, the H100 and the B200.
pub const ARCHITECTURES: [&str; 3] = ["sm_80", "sm_90a", "sm_100"];

/// The program ptxas, of the build [`BUILD`].
#[derive(Clone, Debug)]
pub struct Assembler {
    program: PathBuf,
}

/// Why there is no assembler.
#[derive(Debug, thiserror::Error)]
pub enum NoAssembler {
    /// It does not start.
    #[error("no ptxas: '{}' does not run: {error}; {HOW_TO_INSTALL}", .program.display())]
    NotFound {
        /// What was started.
        program: PathBuf,
        /// Why it did not.
        #[source]
        error: io::Error,
    },
    /// Another build, whose numbers may be others.
    #[error("'{}' is not ptxas {BUILD} but says '{found}'; {HOW_TO_INSTALL}", .program.display())]
    Build {
        /// What was started.
        program: PathBuf,
        /// How it describes itself.
        found: String,
    },
}

/// Why a PTX file was not assembled.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// ptxas did not start.
    #[error("ptxas: {0}")]
    Start(#[from] io::Error),
    /// ptxas refuses the file.
    #[error("{} for {architecture}: ptxas refuses it:\n{log}", .path.display())]
    Rejected {
        /// The file.
        path: PathBuf,
        /// For which architecture.
        architecture: String,
        /// What ptxas says.
        log: String,
    },
    /// ptxas says something that is not understood here.
    #[error("{} for {architecture}: what ptxas says is not understood: '{line}'", .path.display())]
    Log {
        /// The file.
        path: PathBuf,
        /// For which architecture.
        architecture: String,
        /// The line.
        line: String,
    },
}

/// What an entry takes on an architecture.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// The entry.
    pub entry: String,
    /// Registers of a thread, of 32 bits.
    pub registers: u32,
    /// Bytes of a thread's stack.
    pub stack: u32,
    /// Bytes of registers that a thread stores on its stack, as instructions.
    pub spill_stores: u32,
    /// Bytes of registers that a thread loads from its stack, as instructions.
    pub spill_loads: u32,
    /// Bytes of static shared memory of a block.
    pub shared: u32,
}

impl Assembler {
    /// The assembler of [`Toolkit::from_environment`].
    ///
    /// # Errors
    /// [`NoAssembler`].
    pub fn open() -> Result<Self, NoAssembler> {
        Self::of(&Toolkit::from_environment())
    }

    /// The assembler of a toolkit.
    ///
    /// # Errors
    /// [`NoAssembler`].
    pub fn of(toolkit: &Toolkit) -> Result<Self, NoAssembler> {
        let program = toolkit.assembler();
        let output = match Command::new(&program).arg("--version").output() {
            Ok(output) => output,
            Err(error) => return Err(NoAssembler::NotFound { program, error }),
        };
        let text = said(&output);
        // Cuda compilation tools, release 13.0, V13.0.88
        if text.split_whitespace().any(|word| word.strip_prefix('V') == Some(BUILD)) {
            return Ok(Self { program });
        }
        let found = text.lines().find(|line| line.contains("release")).unwrap_or(&text).to_owned();
        Err(NoAssembler::Build { program, found })
    }

    /// What each entry of a PTX file takes on an architecture such as `sm_80`, in the order of their names.
    ///
    /// # Errors
    /// [`AssembleError`].
    pub fn usage(&self, path: &Path, architecture: &str) -> Result<Vec<Usage>, AssembleError> {
        let output = Command::new(&self.program)
            .args(["--verbose", "--gpu-name", architecture, "--output-file", "/dev/null"])
            .arg(path)
            .output()?;
        let log = said(&output);
        let (path, architecture) = (path.to_owned(), architecture.to_owned());
        if !output.status.success() {
            return Err(AssembleError::Rejected { path, architecture, log });
        }
        let mut usages = read_log(&log).map_err(|line| AssembleError::Log {
            path,
            architecture,
            line: line.to_owned(),
        })?;
        usages.sort_by(|a, b| a.entry.cmp(&b.entry));
        Ok(usages)
    }
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&output.stdout) + &text(&output.stderr)).trim().to_owned()
}

/// The entries that a log of `ptxas --verbose` describes, or the line that is not understood.
fn read_log(log: &str) -> Result<Vec<Usage>, &str> {
    let mut usages: Vec<Usage> = Vec::new();
    for line in log.lines() {
        if line.contains("Compiling entry function") {
            let entry = line.split('\'').nth(1).ok_or(line)?.to_owned();
            usages.push(Usage { entry, ..Usage::default() });
        } else if line.contains("bytes stack frame") {
            let usage = usages.last_mut().ok_or(line)?;
            usage.stack = number_before(line, "bytes stack frame").ok_or(line)?;
            usage.spill_stores = number_before(line, "bytes spill stores").ok_or(line)?;
            usage.spill_loads = number_before(line, "bytes spill loads").ok_or(line)?;
        } else if line.contains("Used ") {
            let usage = usages.last_mut().ok_or(line)?;
            usage.registers = number_after(line, "Used").ok_or(line)?;
            // Left out where there is none.
            usage.shared = if line.contains("bytes smem") {
                number_before(line, "bytes smem").ok_or(line)?
            } else {
                0
            };
        }
    }
    match usages.iter().find(|it| it.registers == 0) {
        Some(_) => Err("an entry without its registers"),
        None if usages.is_empty() => Err("no entry"),
        None => Ok(usages),
    }
}

fn number_before(line: &str, words: &str) -> Option<u32> {
    line[..line.find(words)?].split_whitespace().next_back()?.parse().ok()
}

fn number_after(line: &str, words: &str) -> Option<u32> {
    line[line.find(words)? + words.len()..].split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_80'
ptxas info    : Function properties for first
    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads
ptxas info    : Used 168 registers, used 1 barriers, 8 bytes cumulative stack size, 4096 bytes smem, 776 bytes cmem[0]
ptxas info    : Compile time = 1.415 ms
ptxas info    : Compiling entry function 'second' for 'sm_80'
ptxas info    : Function properties for second
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers";

    #[test]
    fn a_log_is_read() {
        let expected = [
            Usage {
                entry: "first".to_owned(),
                registers: 168,
                stack: 8,
                spill_stores: 12,
                spill_loads: 16,
                shared: 4096,
            },
            Usage { entry: "second".to_owned(), registers: 8, ..Usage::default() },
        ];
        assert_eq!(read_log(LOG).expect("a log"), expected);
    }

    #[test]
    fn a_log_that_is_cut_short_is_refused() {
        for lines in 0..5 {
            let log: Vec<_> = LOG.lines().take(lines).collect();
            assert!(read_log(&log.join("\n")).is_err(), "{lines} lines");
        }
        let named_late: Vec<_> = LOG.lines().skip(4).collect();
        assert!(read_log(&named_late.join("\n")).is_err());
    }

    #[test]
    fn numbers_that_are_none_are_refused() {
        let log = LOG.replace("Used 168", "Used many");
        assert!(read_log(&log).expect_err("no number").contains("Used many"));
    }
}
