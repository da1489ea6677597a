//! Time of the exact forward pass on one thread: every row of a head of 256 queries and keys.
//!
//! The floor: one exponential for each pair of query and key (65,536), and one multiply-add for
//! each entry of a key and of a value in each pair (4,194,304 each at dimension 64).

#[path = "../tests/support/mod.rs"]
mod support;

use divan::Bencher;
use divan::counter::ItemsCount;
use flashproof_oracle::double_double;
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;

const LENGTH: usize = 256;
const SEED: u64 = 26;

fn main() {
    divan::main();
}

#[divan::bench(args = [Format::Bf16, Format::F32, Format::F64], sample_count = 10)]
fn mpfr(bencher: Bencher, format: Format) {
    let problem = Problem::new(format, 1, LENGTH, 64);
    let inputs = support::inputs::normal_inputs(&problem, SEED);
    let rows = support::inputs::all_rows(&problem);
    let lse_format = if format == Format::F64 { Format::F64 } else { Format::F32 };
    bencher.counter(ItemsCount::new(LENGTH * LENGTH)).bench_local(|| {
        let oracle = Oracle::new(&problem, &inputs, Options::new(lse_format)).expect("a problem");
        for &row in &rows {
            divan::black_box(oracle.row(row).expect("a row of the problem"));
        }
    });
}

#[divan::bench(args = [Format::Bf16, Format::F32, Format::F64], sample_count = 10)]
fn double_word(bencher: Bencher, format: Format) {
    let problem = Problem::new(format, 1, LENGTH, 64);
    let inputs = support::inputs::normal_inputs(&problem, SEED);
    let rows = support::inputs::all_rows(&problem);
    bencher.counter(ItemsCount::new(LENGTH * LENGTH)).bench_local(|| {
        for &row in &rows {
            divan::black_box(double_double::enclose_row(&problem, &inputs, row).expect("a row"));
        }
    });
}
