//! Compiles every variant of the CUDA sources into the folder of PTX, removes what is in it and of no
//! variant, and writes the table of what each entry takes.
//!
//! `cargo run -p flashproof-cuda --example compile`, where `FLASHPROOF_CUDA` says where CUDA is.

use std::collections::HashSet;
use std::error::Error;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

use flashproof_cuda::{Assembler, Compiler, PTX, RESOURCES, Report, SOURCES, variants};

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    // Both are asked for before anything is written.
    let (compiler, assembler) = (Compiler::open()?, Assembler::open()?);
    let folder = Path::new(PTX);
    fs::create_dir_all(folder)?;
    for variant in variants() {
        let start = Instant::now();
        let compiled = compiler.compile_variant(Path::new(SOURCES), &variant)?;
        let file = variant.ptx_file();
        fs::write(folder.join(&file), &compiled.ptx)?;
        println!("{file:40} {:8} bytes {:5.1?}", compiled.ptx.len(), start.elapsed());
        eprint!("{}", compiled.warnings);
    }
    remove_stale(folder)?;
    let start = Instant::now();
    fs::write(RESOURCES, Report::of(&assembler, folder)?.to_string())?;
    println!("{:40} {:5.1?}", "RESOURCES.md", start.elapsed());
    Ok(())
}

fn remove_stale(folder: &Path) -> std::io::Result<()> {
    let current: HashSet<_> = variants().iter().map(|it| OsString::from(it.ptx_file())).collect();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if !current.contains(&entry.file_name()) {
            fs::remove_file(entry.path())?;
            println!("{:40} removed", entry.file_name().display());
        }
    }
    Ok(())
}
