//! What the committed PTX takes.

mod support;

use std::fs;
use std::path::Path;

use flashproof_cuda::{AssembleError, Assembler, NoAssembler, PTX, RESOURCES, Report, Toolkit};
use support::needed;

#[test]
fn the_committed_table_is_what_ptxas_says_and_every_kernel_fits() {
    let Some(assembler) = needed(
        "the_committed_table_is_what_ptxas_says_and_every_kernel_fits",
        "ptxas",
        Assembler::open(),
    ) else {
        return;
    };
    let report = Report::of(&assembler, Path::new(PTX)).expect("PTX that assembles");
    for row in &report.rows {
        assert!(!row.spills(), "spills: {row:?}");
        assert!(row.registers() <= 255, "too many registers for a thread: {row:?}");
        assert!(row.fits(), "too many registers for a block: {row:?}");
    }
    let committed = fs::read_to_string(RESOURCES).expect("a committed table");
    assert!(
        committed == report.to_string(),
        "{RESOURCES} is not what ptxas says: run `cargo run -p flashproof-cuda --example compile`"
    );
}

#[test]
fn ptx_that_is_wrong_is_refused_with_its_line() {
    let Some(assembler) =
        needed("ptx_that_is_wrong_is_refused_with_its_line", "ptxas", Assembler::open())
    else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("wrong.ptx");
    fs::write(&path, ".version 9.0\n.target sm_80\nwrong\n").expect("a writable file");
    let refused = assembler.usage(&path, "sm_80");
    let Err(AssembleError::Rejected { log, .. }) = refused else { panic!("{refused:?}") };
    assert!(log.contains("line 3"), "{log}");
}

#[test]
fn a_folder_without_ptxas_is_an_error_that_says_what_to_install() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let error = Assembler::of(&Toolkit::at(folder.path())).expect_err("no ptxas there");
    assert!(matches!(error, NoAssembler::NotFound { .. }), "{error:?}");
    let text = error.to_string();
    for expected in ["bin/ptxas", "nvidia-cuda-nvcc==13.0.88", "FLASHPROOF_CUDA"] {
        assert!(text.contains(expected), "{text}");
    }
}
