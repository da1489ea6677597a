//! The table of what each entry of each PTX file takes.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::assemble::{ARCHITECTURES, AssembleError, Assembler, Usage};
use crate::toolkit::BUILD;
use crate::variant::{Variant, variants};

/// What every entry of a folder of PTX takes, on each of [`ARCHITECTURES`].
///
/// Displayed as Markdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// In the order of [`variants`].
    pub rows: Vec<Row>,
}

/// What an entry takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The PTX file.
    pub file: String,
    /// The entry.
    pub entry: String,
    /// The most threads of a block that the entry is compiled for.
    pub threads: u32,
    /// On each of [`ARCHITECTURES`].
    pub usage: [Usage; ARCHITECTURES.len()],
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// A file can not be read.
    #[error("{}: {error}", .path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        error: io::Error,
    },
    /// A file can not be assembled.
    #[error(transparent)]
    Assemble(#[from] AssembleError),
    /// An entry does not say how many threads it is compiled for, by `__launch_bounds__`.
    #[error("{}: '{entry}' has no launch bounds", .path.display())]
    Threads {
        /// The file.
        path: PathBuf,
        /// The entry.
        entry: String,
    },
}

/// Registers of a multiprocessor, on every architecture that is reported; also the most of one block.
const REGISTERS: u32 = 65_536;
/// Threads of a warp.
const WARP: u32 = 32;
/// Registers are given to a warp in multiples of this.
const ALLOCATED: u32 = 256;

impl Row {
    /// The most registers of a thread, on any of the architectures.
    #[must_use]
    pub fn registers(&self) -> u32 {
        self.usage.iter().map(|it| it.registers).max().unwrap_or(0)
    }

    /// Whether a block of [`Row::threads`] has the registers that it needs, on each of the architectures.
    #[must_use]
    pub fn fits(&self) -> bool {
        let a_warp = (self.registers() * WARP).next_multiple_of(ALLOCATED);
        self.threads.div_ceil(WARP) * a_warp <= REGISTERS
    }

    /// Whether a register is stored on the stack, on any of the architectures.
    #[must_use]
    pub fn spills(&self) -> bool {
        self.usage.iter().any(|it| it.spill_stores + it.spill_loads > 0)
    }
}

impl Report {
    /// Assembles every variant's PTX in this folder.
    ///
    /// # Errors
    /// [`ReportError`].
    pub fn of(assembler: &Assembler, folder: &Path) -> Result<Self, ReportError> {
        let rows = variants().into_par_iter().map(|variant| rows_of(assembler, folder, &variant));
        Ok(Self { rows: rows.collect::<Result<Vec<_>, _>>()?.concat() })
    }
}

fn rows_of(
    assembler: &Assembler,
    folder: &Path,
    variant: &Variant,
) -> Result<Vec<Row>, ReportError> {
    let file = variant.ptx_file();
    let path = folder.join(&file);
    let ptx = match fs::read_to_string(&path) {
        Ok(ptx) => ptx,
        Err(error) => return Err(ReportError::Read { path, error }),
    };
    let [first, second, third] =
        ARCHITECTURES.map(|architecture| assembler.usage(&path, architecture));
    let entries = first?.into_iter().zip(second?).zip(third?);
    entries
        .map(|((first, second), third)| {
            let entry = first.entry.clone();
            let Some(threads) = launch_bounds(&ptx, &entry) else {
                return Err(ReportError::Threads { path: path.clone(), entry });
            };
            Ok(Row { file: file.clone(), entry, threads, usage: [first, second, third] })
        })
        .collect()
}

/// The most threads of a block of this entry, by its directive `.maxntid` or `.reqntid`.
fn launch_bounds(ptx: &str, entry: &str) -> Option<u32> {
    let (_, after) = ptx.split_once(&format!(".entry {entry}("))?;
    let (head, _) = after.split_once('{')?;
    let directive = head
        .lines()
        .find_map(|line| line.strip_prefix(".maxntid").or_else(|| line.strip_prefix(".reqntid")))?;
    directive.split(',').map(|number| number.trim().parse::<u32>().ok()).product()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let three = ARCHITECTURES.join(" / ");
        writeln!(f, "# What the kernels take")?;
        writeln!(f)?;
        writeln!(
            f,
            "By ptxas {BUILD}, for {three}; one number where all three are the same. Registers, of 32 bits, \
             stack and spills (bytes stored + loaded) are of a thread, static shared memory (bytes) of a \
             block; dynamic shared memory is in the manifests. Threads: the most of a block. A multiprocessor \
             has {REGISTERS} registers, and a thread at most 255. No number here was seen on a device."
        )?;
        writeln!(f)?;
        writeln!(
            f,
            "Written by `cargo run -p flashproof-cuda --example compile`; a test compares it."
        )?;
        writeln!(f)?;
        writeln!(f, "| PTX | entry | threads | registers | stack | spills | static shared |")?;
        writeln!(f, "|---|---|--:|--:|--:|--:|--:|")?;
        for Row { file, entry, threads, usage } in &self.rows {
            let registers = each(usage, |it| it.registers.to_string());
            let stack = each(usage, |it| it.stack.to_string());
            let spills = each(usage, |it| match (it.spill_stores, it.spill_loads) {
                (0, 0) => "0".to_owned(),
                (stores, loads) => format!("{stores} + {loads}"),
            });
            let shared = each(usage, |it| it.shared.to_string());
            writeln!(
                f,
                "| {file} | `{entry}` | {threads} | {registers} | {stack} | {spills} | {shared} |"
            )?;
        }
        Ok(())
    }
}

/// One number where all are the same.
fn each(usage: &[Usage], number: impl Fn(&Usage) -> String) -> String {
    let numbers: Vec<_> = usage.iter().map(number).collect();
    if numbers.iter().all(|it| *it == numbers[0]) {
        numbers[0].clone()
    } else {
        numbers.join(" / ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &str = "\
.visible .entry one(
	.param .u64 one_param_0
)
.maxntid 16, 8, 1
.minnctapersm 2
{
}
.visible .entry two(
	.param .u64 two_param_0
)
{
.maxntid 4, 1, 1
}";

    #[test]
    fn launch_bounds_are_those_of_the_entry() {
        assert_eq!(launch_bounds(PTX, "one"), Some(128));
        assert_eq!(launch_bounds(PTX, "two"), None);
        assert_eq!(launch_bounds(PTX, "three"), None);
    }

    fn row(registers: [u32; 3], threads: u32) -> Row {
        let usage = registers.map(|registers| Usage { registers, ..Usage::default() });
        Row { file: "a.ptx".to_owned(), entry: "a".to_owned(), threads, usage }
    }

    #[test]
    fn a_block_fits_where_its_warps_have_their_registers() {
        assert!(row([255, 8, 8], 256).fits());
        assert!(row([128, 8, 8], 512).fits());
        // 129 are allocated as 136.
        assert!(!row([8, 129, 8], 512).fits());
        assert!(row([8, 8, 136], 480).fits());
        assert!(!row([8, 8, 137], 480).fits());
    }

    #[test]
    fn a_row_names_each_architecture_where_they_differ() {
        let mut rows = vec![row([40, 40, 40], 64), row([40, 41, 40], 64)];
        rows[1].usage[2].spill_stores = 4;
        assert!(!rows[0].spills() && rows[1].spills());
        let text = Report { rows }.to_string();
        assert!(text.contains("| a.ptx | `a` | 64 | 40 | 0 | 0 | 0 |"), "{text}");
        assert!(
            text.contains("| a.ptx | `a` | 64 | 40 / 41 / 40 | 0 | 0 / 0 / 4 + 0 | 0 |"),
            "{text}"
        );
    }
}
