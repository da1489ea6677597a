//! Faults put into the CUDA sources: each is compiled, run in the emulator through cases of the suite, and
//! reported by the clause that it breaks; those of memory and synchronisation with instruction and thread.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use flashproof_conformance::adapter::compiled::Compiled;
use flashproof_conformance::case::Case;
use flashproof_conformance::inputs::{Family, Scores, Upstream};
use flashproof_conformance::report::CaseReport;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::Verdict;
use flashproof_cuda::{Compiler, Element, SOURCES, variants};
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use tempfile::TempDir;

const SEED: u64 = 0x5eed_0601;
/// Entries of a head, and of the variants that are compiled.
const HEAD_DIM: usize = 32;

/// A change to a source.
struct Fault {
    name: &'static str,
    /// The source or header that is changed, and how.
    file: &'static str,
    change: [&'static str; 2],
    /// The manifest whose kernel it is in.
    manifest: &'static str,
    pass: Pass,
    /// What must be named.
    clause: &'static str,
}

#[derive(Clone, Copy, PartialEq)]
enum Pass {
    Forward,
    Backward,
}

const TILED: &str = "tensor_cores.toml";
const ATOMIC: &str = "tensor_cores_atomic.toml";

/// Faults of memory and synchronisation: found where they happen, whatever numbers come out.
const UNSAFE: &[Fault] = &[
    Fault {
        name: "no barrier between the uses of a stage",
        file: "forward.cu",
        change: [
            "            wait_copies<0>();\n            __syncthreads();\n        }\n        if (careful",
            "            wait_copies<0>();\n        }\n        if (careful",
        ],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:device.race.shared",
    },
    Fault {
        name: "one group of copies too many left unfinished",
        file: "forward.cu",
        change: [
            "            wait_copies<0>();\n            __syncthreads();\n        }\n        if (careful",
            "            wait_copies<1>();\n            __syncthreads();\n        }\n        if (careful",
        ],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:device.copy.waited",
    },
    Fault {
        name: "a row past the last is stored",
        file: "forward.cu",
        change: ["if (row < output_rows) store_row", "if (row <= output_rows) store_row"],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:device.memory.bounds",
    },
    Fault {
        name: "rows of operands one entry off",
        file: "tile.cuh",
        change: [
            "load_matrices(a, tile_address(tile, lane % 16, lane / 16 * 8)",
            "load_matrices(a, tile_address(tile, lane % 16, lane / 16 * 8 + 1)",
        ],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:device.memory.aligned",
    },
    Fault {
        name: "dQ is added to without atomics",
        file: "backward_key_value.cuh",
        change: [
            "atomicAdd(to + entry, sum[n][2 * half + i])",
            "to[entry] += sum[n][2 * half + i]",
        ],
        manifest: ATOMIC,
        pass: Pass::Backward,
        clause: "FAS:device.race.global",
    },
];

/// Faults of the algorithm: found by their numbers.
const WRONG: &[Fault] = &[
    Fault {
        name: "the diagonal one key late",
        file: "params.cuh",
        change: ["BOTTOM_RIGHT ? shift : 0) + 1);", "BOTTOM_RIGHT ? shift : 0) + 2);"],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:mask.intersection",
    },
    Fault {
        name: "the numerator is not rescaled",
        file: "forward.cu",
        change: [
            "const float factor = rows[half].raise(greatest);",
            "const float factor = 1; rows[half].raise(greatest);",
        ],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:fwd.online.rescale",
    },
    Fault {
        name: "the LSE in base two",
        file: "softmax.cuh",
        change: [
            "return maximum * ln_2 + logf(whole_normalizer)",
            "return maximum + logf(whole_normalizer) / ln_2",
        ],
        manifest: TILED,
        pass: Pass::Forward,
        clause: "FAS:choice.lse.base",
    },
    Fault {
        name: "dK is not scaled",
        file: "backward_key_value.cuh",
        change: ["store_gradient(key_sum, p.scale,", "store_gradient(key_sum, 1.f,"],
        manifest: TILED,
        pass: Pass::Backward,
        clause: "FAS:bwd.key.scale",
    },
];

/// The compiler; says aloud where there is none that nothing was run.
fn compiler(test: &str) -> Option<Compiler> {
    match Compiler::open() {
        Ok(compiler) => Some(compiler),
        Err(reason) => {
            let required = std::env::var("FLASHPROOF_REQUIRE").unwrap_or_default();
            assert!(
                !required.split(',').any(|name| name.trim() == "nvrtc"),
                "nvrtc is required and missing: {reason}"
            );
            let message = format!("NOT RUN: {test} needs nvrtc: {reason}\n");
            // Not `eprintln`, which the test harness keeps to itself where a test passes.
            let _ = std::io::stderr().write_all(message.as_bytes());
            None
        }
    }
}

/// The kernels as they are compiled from changed sources, with their manifests.
struct Built(TempDir);

impl Built {
    /// The variants for bf16 and short heads of which the change reaches the source.
    fn new(compiler: &Compiler, change: Option<&Fault>) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let [sources, ptx, manifests] = ["source", "ptx", "manifests"].map(|name| {
            let path = folder.path().join(name);
            fs::create_dir(&path).expect("a directory");
            path
        });
        copy(Path::new(SOURCES), &sources);
        copy(&Path::new(SOURCES).with_file_name("manifests"), &manifests);
        if let Some(Fault { name, file, change: [from, to], .. }) = change {
            let path = sources.join(file);
            let text = fs::read_to_string(&path).expect("a source");
            assert_eq!(text.matches(from).count(), 1, "{name}: '{from}' in {file}");
            fs::write(&path, text.replace(from, to)).expect("a source");
        }
        for variant in variants() {
            let short = variant.head_dim.is_none_or(|head_dim| head_dim as usize == HEAD_DIM);
            if variant.element == Element::Bf16 && short {
                let compiled = compiler.compile_variant(&sources, &variant);
                let compiled = compiled.unwrap_or_else(|error| panic!("{error}"));
                fs::write(ptx.join(variant.ptx_file()), compiled.ptx).expect("a file");
            }
        }
        Self(folder)
    }

    fn report(&self, manifest: &str, case: Case) -> CaseReport {
        let path = self.0.path().join("manifests").join(manifest).display().to_string();
        let mut subject = Compiled::emulated(&path).unwrap_or_else(|error| panic!("{error}"));
        run(&mut subject, Suite::Quick, &[case], |_| ()).expect("a run").remove(0)
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        fs::copy(entry.path(), to.join(entry.file_name())).expect("a file");
    }
}

/// Causal attention over a few tiles, the last of each kind not full.
fn case(pass: Pass) -> Case {
    let mask = Mask::only(Rule::CausalBottomRight);
    let problem = Problem {
        query_len: 100,
        key_len: 230,
        mask,
        ..Problem::new(Format::Bf16, 1, 1, HEAD_DIM)
    };
    let case = Case::new(problem, Family::of(Scores::Normal), None, SEED);
    match pass {
        Pass::Forward => case,
        Pass::Backward => case.with_upstream(Upstream::Output),
    }
}

fn named(report: &CaseReport) -> Vec<&'static str> {
    let violated = report.violations.iter().map(|violation| violation.clause);
    let diagnosed = report.diagnosis.iter().map(|finding| finding.clause);
    let device = report.no_answer.iter().filter_map(|it| it.clause);
    violated.chain(diagnosed).chain(device).collect()
}

#[test]
fn sources_without_a_fault_pass() {
    let Some(compiler) = compiler("sources_without_a_fault_pass") else { return };
    let built = Built::new(&compiler, None);
    for manifest in [TILED, ATOMIC] {
        for pass in [Pass::Forward, Pass::Backward] {
            let report = built.report(manifest, case(pass));
            assert_eq!(report.verdict, Verdict::Pass, "{manifest}: {:?}", report.no_answer);
        }
    }
}

#[test]
fn faults_of_memory_and_synchronisation_are_reported_with_instruction_and_thread() {
    let test = "faults_of_memory_and_synchronisation_are_reported_with_instruction_and_thread";
    let Some(compiler) = compiler(test) else { return };
    for fault in UNSAFE {
        let report = Built::new(&compiler, Some(fault)).report(fault.manifest, case(fault.pass));
        let what = report.no_answer.unwrap_or_else(|| panic!("{}: an answer", fault.name));
        println!("{}: {}", fault.name, what.reason);
        assert_eq!(what.clause, Some(fault.clause), "{}: {}", fault.name, what.reason);
        assert_eq!(report.verdict, Verdict::Fail, "{}", fault.name);
        for part in ["line ", "thread (", "block ("] {
            assert!(what.reason.contains(part), "{}: no '{part}' in {}", fault.name, what.reason);
        }
    }
}

#[test]
fn faults_of_the_algorithm_are_reported_by_their_clause() {
    let test = "faults_of_the_algorithm_are_reported_by_their_clause";
    let Some(compiler) = compiler(test) else { return };
    for fault in WRONG {
        let report = Built::new(&compiler, Some(fault)).report(fault.manifest, case(fault.pass));
        assert_eq!(report.verdict, Verdict::Fail, "{}", fault.name);
        println!("{}: {:?}", fault.name, named(&report));
        assert!(named(&report).contains(&fault.clause), "{}: {:?}", fault.name, named(&report));
    }
}
