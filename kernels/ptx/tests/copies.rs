//! Asynchronous copies: what arrives, when, and for whom; and matrices stored and loaded again.

mod kernel;

use flashproof_ptx::{FaultKind, Options, Space};
use kernel::{Kernel, fault};

fn run(body: &str, threads: u32, input: &[u32]) -> Vec<u32> {
    let kernel = Kernel::new(body).threads(threads);
    kernel.run_with(input, &Options::default()).unwrap_or_else(|error| panic!("{error}")).1
}

#[test]
fn bytes_past_the_source_are_zero() {
    let input = [0x0403_0201, 0x0807_0605, 0x0c0b_0a09, 0x100f_0e0d];
    for (size, cache, source, expected) in [
        (16, "cg", 16, [input[0], input[1], input[2], input[3]]),
        (16, "cg", 6, [input[0], 0x0605, 0, 0]),
        (8, "ca", 8, [input[0], input[1], 7, 7]),
        (8, "ca", 1, [0x01, 0, 7, 7]),
        (4, "ca", 0, [0, 7, 7, 7]),
    ] {
        let body = format!(
            "st.shared.v4.u32 [s], {{7, 7, 7, 7}}; mov.u32 %r1, {source};
             cp.async.{cache}.shared.global [s], [%rd1], {size}, %r1;
             cp.async.commit_group; cp.async.wait_group 0;
             mov.u32 %r2, %tid.x; shl.b32 %r3, %r2, 2; mov.u32 %r4, s; add.u32 %r4, %r4, %r3;
             ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [s];
             st.global.u32 [%rd2], %r5; st.global.u32 [%rd2+4], %r6;
             st.global.u32 [%rd2+8], %r7; st.global.u32 [%rd2+12], %r8;"
        );
        // One thread of four copies and stores; the others end.
        let body = format!("mov.u32 %r9, %tid.x; setp.ne.u32 %p1, %r9, 0; @%p1 ret; {body}");
        assert_eq!(run(&body, 4, &input), expected, "{size} bytes, {source} of them");
    }
}

#[test]
fn a_wait_leaves_the_newest_groups_unfinished() {
    let copies = |most: u32, read: u32| {
        Kernel::new(&format!(
            "cp.async.ca.shared.global [s], [%rd1], 4; cp.async.commit_group;
             cp.async.ca.shared.global [s+4], [%rd1+4], 4; cp.async.commit_group;
             cp.async.ca.shared.global [s+8], [%rd1+8], 4;
             cp.async.wait_group {most}; ld.shared.u32 %r1, [s+{read}]; st.global.u32 [%rd2], %r1;"
        ))
    };
    let options = Options::default();
    for (most, read, value) in [(1, 0, 10), (0, 0, 10), (0, 4, 20)] {
        let output = copies(most, read).run_with(&[10, 20, 30], &options).expect("no fault").1;
        assert_eq!(output, [value]);
    }
    // A group too new, and a copy in no group.
    for (most, read) in [(2, 0), (1, 4), (0, 8)] {
        let fault = fault(copies(most, read).run_with(&[10, 20, 30], &options));
        let FaultKind::UnfinishedCopy { copy, .. } = &fault.kind else { panic!("{fault}") };
        assert!(copy.text.contains(&format!("s+{read}")) || read == 0, "{fault}");
    }
    let all = "cp.async.ca.shared.global [s], [%rd1], 4; cp.async.wait_all;
        ld.shared.u32 %r1, [s]; st.global.u32 [%rd2], %r1;";
    assert_eq!(run(all, 1, &[10]), [10]);
}

#[test]
fn copies_that_read_past_a_buffer_are_found_where_they_are_issued() {
    let kernel = Kernel::new("cp.async.cg.shared.global [s], [%rd1+4096], 16;");
    let fault = fault(kernel.run(&Options::default()));
    assert!(matches!(fault.kind, FaultKind::OutOfBounds { space: Space::Global, .. }), "{fault}");
    // Nothing is read where the source has no bytes.
    let kernel = Kernel::new("cp.async.cg.shared.global [s], [%rd1+4096], 16, 0;");
    kernel.run(&Options::default()).expect("no fault");
}

#[test]
fn copies_arrive_at_barrier_objects() {
    let kernel = |wait: &str| {
        Kernel::new(&format!(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, s; setp.ne.u32 %p1, %r1, 0;
             @!%p1 mbarrier.init.shared::cta.b64 [%r2+1024], 32; bar.sync 0;
             shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; cvt.u64.u32 %rd5, %r3;
             add.s64 %rd6, %rd1, %rd5; setp.ge.u32 %p2, %r1, 32; @%p2 bra $wait;
             cp.async.ca.shared.global [%r4], [%rd6], 4;
             cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2+1024]; bra $end;
             $wait: {wait} ld.shared.u32 %r5, [%r4+-128]; st.global.u32 [%rd2], %r5;
             $end:"
        ))
        .threads(64)
    };
    let wait = "$try: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2+1024], 0; @!%p3 bra $try;";
    let input: Vec<u32> = (100..132).collect();
    let output = kernel(wait).run_with(&input, &Options::default()).expect("no fault").1;
    assert_eq!(output[32..], input);
    let kind = fault(kernel("").run_with(&input, &Options::default())).kind;
    assert!(matches!(kind, FaultKind::SharedRace { .. }), "{kind:?}");
}

#[test]
fn matrices_stored_are_loaded_again() {
    // Rows of 16 bytes; each lane of a matrix holds two elements, (row, 2 t) and (row, 2 t + 1).
    let round_trip = |store: &str, load: &str| {
        let body = format!(
            "mov.u32 %r1, %laneid; mul.lo.u32 %r2, %r1, 0x20002; add.u32 %r2, %r2, 0x10000;
             mov.u32 %r3, s; and.b32 %r4, %r1, 7; shl.b32 %r4, %r4, 4; add.u32 %r3, %r3, %r4;
             stmatrix.sync.aligned.m8n8.x1{store}.shared.b16 [%r3], {{%r2}}; bar.warp.sync -1;
             ldmatrix.sync.aligned.m8n8.x1{load}.shared.b16 {{%r5}}, [%r3];
             st.global.u32 [%rd2], %r5;"
        );
        run(&body, 32, &[0])
    };
    // The element of row r and column c is 8 r + c.
    let plain: Vec<u32> = (0..32).map(|lane| (2 * lane + 1) << 16 | (2 * lane)).collect();
    let transposed: Vec<u32> = (0..32)
        .map(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            (8 * (column + 1) + row) << 16 | (8 * column + row)
        })
        .collect();
    assert_eq!(round_trip("", ""), plain);
    assert_eq!(round_trip(".trans", ".trans"), plain);
    assert_eq!(round_trip("", ".trans"), transposed);
    assert_eq!(round_trip(".trans", ""), transposed);
}
