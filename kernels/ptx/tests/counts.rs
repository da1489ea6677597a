//! What is counted, against counts from the shape of the problem; and that it and the results do not
//! depend on the order of warps.

mod kernel;
mod support;

use flashproof_ptx::{Executed, Options, Space, Traffic};
use kernel::Kernel;
use support::{FORWARD, HEAD_DIM, Inputs, TILE, forward, module};

const SEED: u64 = 0x5eed_0506;

#[test]
fn bytes_and_instructions_of_a_small_kernel() {
    let kernel = Kernel::new(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 40;
         @%p1 ld.global.v2.u32 {%r2, %r3}, [%rd1]; @%p1 st.shared.u16 [s], 1; bar.sync 0;
         atom.global.add.u32 %r4, [%rd1], 1;",
    );
    let statistics = kernel.threads(64).run(&Options::default());
    // Two warps store the same halfword, which nothing orders.
    assert!(statistics.is_err());
    let kernel = Kernel::new(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 8; setp.lt.u32 %p2, %r1, 1;
         @%p1 ld.global.v2.u32 {%r2, %r3}, [%rd1]; @%p2 st.shared.u16 [s], 1; bar.sync 0;
         ld.shared.u16 %h1, [s]; st.global.u32 [%rd2], %r1;",
    );
    let statistics = kernel.threads(64).blocks(2).run(&Options::default()).expect("no fault");
    let traffic = |read, written| Traffic { read, written };
    assert_eq!(statistics.traffic_of(Space::Global), traffic(2 * 8 * 8, 2 * 64 * 4));
    assert_eq!(statistics.traffic_of(Space::Shared), traffic(2 * 64 * 2, 2 * 2));
    assert_eq!(statistics.traffic_of(Space::Param), traffic(2 * 64 * 16, 0));
    // Lanes 0 to 7 of one warp, and no lane of the other.
    assert_eq!(statistics.opcodes["ld.global.v2.u32"], Executed { warps: 2, lanes: 16 });
    assert_eq!(statistics.opcodes["bar.sync"], Executed { warps: 4, lanes: 128 });
}

/// Global traffic of causal attention in tiles: each block of queries reads its queries once and all
/// keys and values up to its diagonal, and writes outputs and LSE once.
#[test]
fn global_traffic_of_flash_attention() {
    for kernel in FORWARD {
        let module = module(kernel.file);
        let element = if kernel.format == support::Format::F32 { 4 } else { 2 };
        for rows in [64, 256] {
            let inputs = Inputs::new(rows, kernel.format, SEED);
            let outputs = forward(&module, kernel, &inputs, &Options::default()).expect("no fault");
            let traffic = outputs.statistics.traffic_of(Space::Global);
            let blocks = (rows / TILE) as u64;
            let tile = (TILE * HEAD_DIM * element) as u64;
            let tiles_of_keys = blocks * (blocks + 1) / 2;
            assert_eq!(traffic.read, (blocks + 2 * tiles_of_keys) * tile, "{}", kernel.file);
            let written = (rows * HEAD_DIM * 4 + rows * 4) as u64;
            assert_eq!(traffic.written, written, "{}", kernel.file);
        }
    }
}

#[test]
fn neither_results_nor_counts_depend_on_the_order_of_warps() {
    for kernel in FORWARD {
        let (module, inputs) = (module(kernel.file), Inputs::new(128, kernel.format, SEED));
        let first = forward(&module, kernel, &inputs, &Options::default()).expect("no fault");
        for seed in 0..3 {
            let options = Options { seed: Some(seed), ..Options::default() };
            let other = forward(&module, kernel, &inputs, &options).expect("no fault");
            assert_eq!(first.output, other.output, "{}, seed {seed}", kernel.file);
            assert_eq!(first.statistics, other.statistics, "{}, seed {seed}", kernel.file);
        }
    }
}
