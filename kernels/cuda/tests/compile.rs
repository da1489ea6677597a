//! CUDA to PTX, and the PTX that is committed.

mod support;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use flashproof_cuda::{
    CompileError, Compiler, Element, NoCompiler, PTX, SOURCES, Toolkit, Variant, variants,
};
use rayon::prelude::*;
use support::needed;

fn data(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

#[test]
fn a_source_becomes_the_same_ptx_wherever_it_lies() {
    let Some(compiler) =
        needed("a_source_becomes_the_same_ptx_wherever_it_lies", "nvrtc", Compiler::open())
    else {
        return;
    };
    let compile = |source: &Path| {
        compiler.compile(source, Element::F32, Some(32)).expect("CUDA that compiles")
    };
    let here = compile(&data("scale.cu"));
    assert_eq!(here.warnings, "");
    for expected in [".target sm_80\n", ".visible .entry scale(", "0f42000000"] {
        assert!(here.ptx.contains(expected), "no {expected:?} in\n{}", here.ptx);
    }

    let elsewhere = tempfile::tempdir().expect("a temporary folder");
    for name in ["scale.cu", "scale.cuh"] {
        fs::copy(data(name), elsewhere.path().join(name)).expect("a copy");
    }
    assert_eq!(compile(&elsewhere.path().join("scale.cu")), here);

    let other = compiler.compile(&data("scale.cu"), Element::F32, Some(64)).expect("a variant");
    assert_ne!(other, here);
}

#[test]
fn a_source_that_is_wrong_is_refused_with_its_line() {
    let Some(compiler) =
        needed("a_source_that_is_wrong_is_refused_with_its_line", "nvrtc", Compiler::open())
    else {
        return;
    };
    let refused = compiler.compile(&data("broken.cu"), Element::F16, None);
    let Err(CompileError::Rejected { log, .. }) = refused else { panic!("{refused:?}") };
    assert!(log.contains("broken.cu(2): error: identifier \"undeclared\" is undefined"), "{log}");

    let missing = compiler.compile(&data("missing.cu"), Element::F16, None);
    assert!(matches!(missing, Err(CompileError::Read { .. })), "{missing:?}");
}

#[test]
fn a_folder_without_nvrtc_is_an_error_that_says_what_to_install() {
    let error = Compiler::of(&Toolkit::at(data(""))).expect_err("no NVRTC there");
    assert!(matches!(error, NoCompiler::NotFound { .. }), "{error:?}");
    let text = error.to_string();
    for expected in ["libnvrtc-builtins.so.13.0", "nvidia-cuda-nvrtc==13.0.88", "FLASHPROOF_CUDA"] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn the_folder_of_ptx_has_each_variant_and_nothing_else() {
    let expected: BTreeSet<_> = variants().iter().map(Variant::ptx_file).collect();
    let found: BTreeSet<_> = fs::read_dir(PTX)
        .expect("a folder of PTX")
        .map(|entry| entry.expect("a readable entry").file_name().into_string().expect("UTF-8"))
        .collect();
    assert_eq!(found, expected);
}

#[test]
fn the_committed_ptx_is_what_the_sources_become() {
    let Some(compiler) =
        needed("the_committed_ptx_is_what_the_sources_become", "nvrtc", Compiler::open())
    else {
        return;
    };
    variants().into_par_iter().for_each(|variant| {
        let file = variant.ptx_file();
        let committed = fs::read_to_string(Path::new(PTX).join(&file)).expect("committed PTX");
        let compiled =
            compiler.compile_variant(Path::new(SOURCES), &variant).expect("CUDA that compiles").ptx;
        // Not `assert_eq`, which would print both.
        assert!(
            committed == compiled,
            "{file} is not what its source becomes: {}\n\
             run `cargo run -p flashproof-cuda --example compile`",
            first_difference(&committed, &compiled)
        );
    });
}

fn first_difference(committed: &str, compiled: &str) -> String {
    let pairs = committed.lines().zip(compiled.lines()).enumerate();
    pairs.into_iter().find(|(_, (before, now))| before != now).map_or_else(
        || "one is longer".to_owned(),
        |(line, (before, now))| format!("line {} is '{before}', now '{now}'", line + 1),
    )
}
