//! `exec:`: what the adapter makes of workers, right and wrong, without any other language.
//!
//! The test program is also the worker that it tests against, so that neither can be stale.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

#[path = "../adapter_support/mod.rs"]
mod adapter_support;
mod cases;
mod gradients;
mod layouts;
#[path = "../../examples/worker/serve.rs"]
mod serve;
mod start;
#[path = "../../examples/worker/tensors.rs"]
mod tensors;
mod worker;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if words.get(1).is_some_and(|word| word == worker::SWITCH) {
        worker::run(&words[2], words.get(3));
        return ExitCode::SUCCESS;
    }
    let trials = [cases::trials(), gradients::trials(), layouts::trials(), start::trials()];
    let trials: Vec<Trial> = trials.into_iter().flatten().collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}
