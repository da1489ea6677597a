//! The answers of the built-in kernels, under review: `cargo insta review` shows what a change did.
//!
//! Two snapshots of each kernel. Verdicts, and what is counted by them, hold on every machine. Bits, and
//! the statistics that follow from them, also depend on `exp`, `ln` and `tanh`, which Rust takes from
//! the C library of the machine: they are compared only where these functions give the bits that they
//! gave where the snapshots were taken, and where not, the test says so.

use std::fmt::Write as _;
use std::io::Write as _;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::FORMATS;
use flashproof_conformance::drift::{self, Asked, Request, Snapshot, math_digest};
use flashproof_conformance::suite::{DEFAULT_SEED, Suite};

/// What `math_digest` was where the snapshots were taken: glibc 2.36 on x86-64 with FMA.
const RECORDED: &str = "83075a7ffb87b3dc";

/// Blocks that are full, cut short and alone; causal, windowed, grouped and packed heads; biases, sinks,
/// softcaps and dropout; scores that rise, tie and vanish; forward and backward.
const CASES: [&str; 8] = [
    "*/causal-br/q65-k65-d8/*",
    "*/full/q65-k65-d40/normal/gradient+lse",
    "*/causal-tl/h4g1-q5-k129-d8/integers+integers/gradient+lse",
    "*/window-l4r0/h6g2-q5-k65-d8/*",
    "*/documents-causal-tl/h6g2-q5-k65-d8-v5/*",
    "*/chunked5-tl/b3-q1-k33-d5-v8-s-0.5/*",
    "*/prefix/h12g4-q20-k9-d8-v5-s-0.5/*",
    "*/reported/11-*",
];

fn recorded(kernel: &str) -> Snapshot {
    let asked = Asked {
        suite: Suite::Quick,
        formats: FORMATS.into(),
        only: CASES.map(str::to_owned).to_vec(),
        seed: DEFAULT_SEED,
    };
    let request = Request { asked, runs: None, name: None, notes: Vec::new() };
    let mut subject = Builtin::open(kernel).unwrap();
    let mut snapshot = drift::record(&mut subject, &request, |_| ()).unwrap();
    // What the bits depend on of it is in `RECORDED`.
    snapshot.environment.clear();
    snapshot
}

/// What does not depend on the last bit of a function.
fn verdicts(snapshot: &Snapshot) -> String {
    let mut text = String::new();
    for group in &snapshot.groups {
        let _ = write!(text, "{} {}:", group.format, group.name);
        for (verdict, cases) in &group.verdicts {
            let _ = write!(text, " {cases} {}", verdict.name());
        }
        let _ = writeln!(text);
        for (quantity, answers) in &group.of {
            let (elements, values) = (&answers.elements, &answers.values);
            let _ = writeln!(
                text,
                "  {quantity:6} {} compared, {} wrong, {} unbounded; {} NaN, {} infinite",
                elements.compared, elements.wrong, elements.unbounded, values.nan, values.infinite
            );
        }
    }
    text
}

fn is_as_reviewed(kernel: &str) {
    let snapshot = recorded(kernel);
    insta::assert_snapshot!(format!("{kernel}_verdicts"), verdicts(&snapshot));
    let math = math_digest().to_string();
    if math == RECORDED {
        insta::assert_snapshot!(format!("{kernel}_bits"), snapshot.to_string());
    } else {
        // Not by a macro, whose output the harness keeps to itself where a test passes.
        let said = writeln!(
            std::io::stderr(),
            "\nSKIPPED: the bits of builtin:{kernel} are not compared with their snapshot: the \
             mathematical functions of this machine have digest {math}, not {RECORDED}"
        );
        said.expect("standard error");
    }
}

#[test]
fn the_naive_kernel_is_as_reviewed() {
    is_as_reviewed("naive");
}

#[test]
fn the_tiled_kernel_is_as_reviewed() {
    is_as_reviewed("tiled");
}

#[test]
fn the_split_kernel_is_as_reviewed() {
    is_as_reviewed("split");
}
