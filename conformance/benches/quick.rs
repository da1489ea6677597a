//! `check --suite quick` on a built-in kernel, both passes: what a newcomer waits for first. The budget
//! is 30 s on two cores.

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::case::FORMATS;
use flashproof_conformance::run::run;
use flashproof_conformance::suite::{DEFAULT_SEED, Suite, cases};

fn main() {
    divan::main();
}

/// All cases of all formats.
#[divan::bench(sample_count = 3, sample_size = 1)]
fn quick_suite() -> usize {
    let cases = cases(Suite::Quick, &FORMATS, DEFAULT_SEED);
    let mut subject = Builtin::open("tiled").expect("a built-in kernel");
    run(&mut subject, Suite::Quick, &cases, |_| ()).expect("a run").len()
}

/// Making the list of cases alone.
#[divan::bench]
fn list_of_cases() -> usize {
    cases(Suite::Quick, &FORMATS, DEFAULT_SEED).len()
}
