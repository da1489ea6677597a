//! Attention of 256 rows of 64 entries in the emulator, with every check. The budget on two cores is
//! 25 ms for the forward pass and 100 ms for the backward pass.

#[path = "../tests/support/mod.rs"]
mod support;

use flashproof_ptx::{Module, Options};
use support::reference::saved;
use support::{BACKWARD, FORWARD, Format, Inputs, backward, forward, module, text};

const ROWS: usize = 256;
const SEED: u64 = 1;

fn main() {
    divan::main();
}

#[divan::bench(args = FORWARD.map(|kernel| kernel.file))]
fn forward_pass(bencher: divan::Bencher<'_, '_>, file: &str) {
    let kernel = FORWARD.into_iter().find(|kernel| kernel.file == file).expect("a kernel");
    let (module, inputs) = (module(file), Inputs::new(ROWS, kernel.format, SEED));
    bencher.bench(|| {
        forward(&module, kernel, &inputs, &Options::default()).expect("a kernel without fault").lse
    });
}

#[divan::bench(args = BACKWARD)]
fn backward_pass(bencher: divan::Bencher<'_, '_>, file: &str) {
    let (module, inputs) = (module(file), Inputs::new(ROWS, Format::Bf16, SEED));
    let (lse, delta) = saved(&inputs);
    bencher.bench(|| {
        backward(&module, &inputs, (&lse, &delta), &Options::default())
            .expect("a kernel without fault")
            .value
    });
}

#[divan::bench(args = FORWARD.map(|kernel| kernel.file))]
fn parse(bencher: divan::Bencher<'_, '_>, file: &str) {
    let text = text(file);
    bencher.bench(|| Module::parse(&text).expect("a module"));
}
