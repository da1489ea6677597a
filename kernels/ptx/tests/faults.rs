//! Small kernels with one fault each, and their neighbours without it.

mod kernel;

use flashproof_ptx::{Access, Checks, FaultKind, Options, RunError, Space};
use kernel::{Kernel, fault};

fn options() -> Options {
    Options::default()
}

#[test]
fn lanes_of_a_warp_are_ordered_by_warp_barriers_alone() {
    let exchange = |between: &str| {
        Kernel::new(&format!(
            "mov.u32 %r1, %tid.x; shl.b32 %r2, %r1, 2; mov.u32 %r3, s; add.s32 %r3, %r3, %r2;
             st.shared.u32 [%r3], %r1; {between}
             xor.b32 %r4, %r2, 4; mov.u32 %r5, s; add.s32 %r5, %r5, %r4;
             ld.shared.u32 %r6, [%r5]; st.global.u32 [%rd2], %r6;"
        ))
        .threads(32)
    };
    exchange("bar.warp.sync -1;").run(&options()).expect("no fault");
    exchange("bar.sync 0;").run(&options()).expect("no fault");
    let fault = fault(exchange("").run(&options()));
    let FaultKind::SharedRace { access, earlier_access, earlier, .. } = &fault.kind else {
        panic!("{fault}")
    };
    assert_eq!((*access, *earlier_access), (Access::Read, Access::Write));
    assert_eq!((fault.site.thread, earlier.thread), ([0, 0, 0], [1, 0, 0]));
    let checks = Checks { shared_races: false, ..Checks::default() };
    exchange("").run(&Options { checks, ..options() }).expect("not looked for");
}

#[test]
fn a_read_before_any_write_is_found() {
    let shared = Kernel::new("ld.shared.u32 %r1, [s+8]; st.global.u32 [%rd2], %r1;");
    let kind = fault(shared.run(&options())).kind;
    assert_eq!(kind, FaultKind::Uninitialised { space: Space::Shared, address: 8, place: None });
    let local = Kernel::new("ld.local.u32 %r1, [l]; st.global.u32 [%rd2], %r1;");
    let kind = fault(local.run(&options())).kind;
    assert!(matches!(kind, FaultKind::Uninitialised { space: Space::Local, .. }), "{kind:?}");
    // The output buffer is not initialised.
    let global = Kernel::new("ld.global.u32 %r1, [%rd2]; st.global.u32 [%rd2], %r1;");
    let fault = fault(global.run(&options()));
    let FaultKind::Uninitialised { place: Some(place), .. } = &fault.kind else {
        panic!("{fault}")
    };
    assert_eq!(place.buffer, "output");
}

#[test]
fn bounds_and_alignment_hold_in_every_memory() {
    for (body, space) in [
        ("st.shared.u32 [s+4096], 1;", Space::Shared),
        ("st.local.u32 [l+64], 1;", Space::Local),
        ("st.global.u32 [%rd1+0x100000], 1;", Space::Global),
        ("ld.param.u32 %r1, [p+16];", Space::Param),
        ("st.global.u32 [0], 1;", Space::Global),
    ] {
        let fault = fault(Kernel::new(body).run(&options()));
        let found = matches!(fault.kind, FaultKind::OutOfBounds { space: s, .. } if s == space);
        assert!(found, "{body}: {fault}");
    }
    for body in [
        "st.shared.u32 [s+2], 1;",
        "st.local.v2.u32 [l+4], {1, 2};",
        "st.global.u16 [%rd1+1], 1;",
        "mov.u64 %rd3, 1; atom.global.add.u32 %r1, [%rd1+2], 1;",
    ] {
        let fault = fault(Kernel::new(body).run(&options()));
        assert!(matches!(fault.kind, FaultKind::Misaligned { .. }), "{body}: {fault}");
    }
}

#[test]
fn barriers_that_not_all_threads_reach_are_found() {
    // Half of a warp.
    let half = Kernel::new(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 16; @!%p1 bra $skip; bar.sync 0; $skip:",
    );
    let kind = fault(half.threads(64).run(&options())).kind;
    assert_eq!(kind, FaultKind::Divergent { executing: 0xffff, expected: u32::MAX });
    // A warp that has ended.
    let ended =
        Kernel::new("mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 exit; bar.sync 0;");
    let fault_found = fault(ended.threads(64).run(&options()));
    assert_eq!(
        fault_found.kind,
        FaultKind::IncompleteBarrier { barrier: 0, arrived: 32, expected: 64, ended: 32 }
    );
    assert!(fault_found.site.text.starts_with("bar.sync"), "{fault_found}");
    // Two warps at two barriers.
    let crossed = Kernel::new(
        "mov.u32 %r1, %tid.x; setp.ge.u32 %p1, %r1, 32; @%p1 bra $other; bar.sync 1; bra $end;
         $other: bar.sync 2; $end:",
    );
    let kind = fault(crossed.threads(64).run(&options())).kind;
    let FaultKind::Deadlock { waiting } = kind else { panic!("{kind:?}") };
    assert_eq!(waiting.len(), 2);
}

#[test]
fn named_barriers_order_those_that_take_part() {
    // Warp 0 writes and arrives; warp 1 waits and reads; warp 2 does not take part.
    let kernel = |reader: u32| {
        Kernel::new(&format!(
            "mov.u32 %r1, %tid.x; shr.u32 %r2, %r1, 5; and.b32 %r3, %r1, 31; shl.b32 %r3, %r3, 2;
             mov.u32 %r4, s; add.s32 %r4, %r4, %r3;
             setp.ne.u32 %p1, %r2, 0; @%p1 bra $one;
             st.shared.u32 [%r4], %r1; bar.arrive 3, 64; bra $end;
             $one: setp.ne.u32 %p1, %r2, 1; @%p1 bra $two; bar.sync 3, 64;
             $two: setp.ne.u32 %p1, %r2, {reader}; @%p1 bra $end;
             ld.shared.u32 %r5, [%r4]; st.global.u32 [%rd2], %r5;
             $end:"
        ))
        .threads(96)
    };
    kernel(1).run(&options()).expect("no fault");
    let kind = fault(kernel(2).run(&options())).kind;
    assert!(matches!(kind, FaultKind::SharedRace { .. }), "{kind:?}");
}

#[test]
fn blocks_race_on_plain_stores_and_not_on_atomics() {
    let plain = Kernel::new("mov.u32 %r1, %ctaid.x; st.global.u32 [%rd1], %r1;").blocks(2);
    let fault = fault(plain.run(&options()));
    let FaultKind::GlobalRace { other_block, .. } = fault.kind else { panic!("{fault}") };
    assert_ne!(other_block, Some(fault.site.block));
    let atomic = Kernel::new("red.global.add.u32 [%rd1], 1;").blocks(3).threads(32);
    let input = atomic.run_with(&[5; 32], &options()).expect("no fault").0;
    assert_eq!(input[0], 5 + 96);
}

#[test]
fn barrier_objects_order_those_that_arrive_before_those_that_wait() {
    let kernel = |wait: &str| {
        Kernel::new(&format!(
            "mov.u32 %r1, %tid.x; mov.u32 %r2, s; setp.ne.u32 %p1, %r1, 0;
             @!%p1 mbarrier.init.shared::cta.b64 [%r2+1024], 32; bar.sync 0;
             shl.b32 %r3, %r1, 2; add.s32 %r4, %r2, %r3; setp.ge.u32 %p2, %r1, 32;
             @%p2 bra $wait;
             st.shared.u32 [%r4], %r1; mbarrier.arrive.shared::cta.b64 %rd4, [%r2+1024]; bra $end;
             $wait: {wait} ld.shared.u32 %r5, [%r4+-128];
             st.global.u32 [%rd2], %r5;
             $end:"
        ))
        .threads(64)
    };
    let wait =
        "$again: mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r2+1024], 0; @!%p3 bra $again;";
    for seed in [None, Some(1), Some(2)] {
        let options = Options { seed, ..options() };
        let (_, output) = kernel(wait).run_with(&[0; 64], &options).expect("no fault");
        assert_eq!(output[32..64], (0..32).collect::<Vec<u32>>());
    }
    let kind = fault(kernel("").run(&Options { seed: Some(1), ..options() })).kind;
    let is_found = matches!(kind, FaultKind::SharedRace { .. } | FaultKind::Uninitialised { .. });
    assert!(is_found, "{kind:?}");
}

#[test]
fn a_wait_for_a_phase_that_never_ends_is_a_deadlock() {
    let kernel = Kernel::new(
        "mov.u32 %r2, s; mbarrier.init.shared::cta.b64 [%r2+1024], 2;
         mbarrier.arrive.shared::cta.b64 %rd4, [%r2+1024];
         $again: mbarrier.try_wait.shared::cta.b64 %p3, [%r2+1024], %rd4; @!%p3 bra $again;",
    );
    let fault = fault(kernel.run(&options()));
    let FaultKind::Deadlock { waiting } = &fault.kind else { panic!("{fault}") };
    assert!(waiting[0].reason.contains("barrier object"), "{fault}");
}

#[test]
fn exchanges_need_the_lanes_they_name() {
    for (body, check) in [
        (
            "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 8;
             @%p1 shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xffffffff;",
            "Divergent",
        ),
        (
            "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 8;
             @%p1 shfl.sync.idx.b32 %r2, %r1, 9, 31, 0xff;",
            "ShuffleFromInactive",
        ),
        ("mov.u32 %r1, %tid.x; shfl.sync.idx.b32 %r2, %r1, 0, 31, 0xff;", "NotMember"),
        (
            "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 8; mov.u32 %r2, s;
             @%p1 ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r3}, [%r2];",
            "Divergent",
        ),
    ] {
        let fault = fault(Kernel::new(body).threads(32).run(&options()));
        assert!(format!("{:?}", fault.kind).starts_with(check), "{body}: {fault}");
    }
}

#[test]
fn results_that_ptx_leaves_open_and_traps_and_endless_loops_are_found() {
    let zero = Kernel::new("mov.u32 %r1, 0; div.u32 %r2, 1, %r1;");
    assert!(matches!(fault(zero.run(&options())).kind, FaultKind::Unspecified(_)));
    assert_eq!(fault(Kernel::new("trap;").run(&options())).kind, FaultKind::Trap);
    let endless = Kernel::new("$again: bra $again;");
    let limited = Options { instruction_limit: 1000, ..options() };
    assert_eq!(fault(endless.run(&limited)).kind, FaultKind::InstructionLimit(1000));
    let parting = Kernel::new(
        "mov.u32 %r1, %tid.x; setp.lt.u32 %p1, %r1, 8; @%p1 bra.uni $end; add.u32 %r1, %r1, 1; $end:",
    );
    let kind = fault(parting.threads(32).run(&options())).kind;
    assert_eq!(kind, FaultKind::DivergentUniformBranch);
}

#[test]
fn diverged_lanes_wait_for_each_other() {
    // Lane 1 waits in a loop for what lane 0 does on the other path.
    let kernel = Kernel::new(
        "mov.u32 %r1, %tid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra $wait;
         atom.shared.exch.b32 %r2, [s], 7; bra $end;
         $wait: atom.shared.or.b32 %r3, [s], 0; setp.ne.u32 %p2, %r3, 7; @%p2 bra $wait;
         $end: st.global.u32 [%rd2], 1;",
    )
    .threads(2);
    for seed in [None, Some(3)] {
        let checks = Checks { uninitialised: false, ..Checks::default() };
        let options = Options { seed, checks, ..options() };
        assert_eq!(kernel.run_with(&[0; 2], &options).expect("no fault").1, [1, 1]);
    }
}

#[test]
fn launches_that_do_not_fit_are_refused() {
    let kernel = Kernel::new("ret;");
    for threads in [0, 1025] {
        let result = kernel.clone().threads(threads).run(&options());
        assert!(matches!(result, Err(RunError::Launch(_))), "{threads} threads");
    }
    assert!(matches!(kernel.blocks(0).run(&options()), Err(RunError::Launch(_))));
}
