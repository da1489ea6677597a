//! Lanes of a warp: what they exchange, and where they meet again after they have parted.

mod kernel;

use flashproof_ptx::Options;
use kernel::Kernel;

fn output(body: &str, threads: u32) -> Vec<u32> {
    let kernel = Kernel::new(body).threads(threads);
    kernel.run_with(&[0; 1], &Options::default()).unwrap_or_else(|error| panic!("{error}")).1
}

fn exchanged(body: &str) -> Vec<u32> {
    let body = format!("mov.u32 %r1, %laneid; {body} st.global.u32 [%rd2], %r2;");
    output(&body, 32)
}

fn each(f: impl Fn(u32) -> u32) -> Vec<u32> {
    (0..32).map(f).collect()
}

#[test]
fn shuffles_stay_in_their_segment() {
    assert_eq!(exchanged("shfl.sync.bfly.b32 %r2, %r1, 5, 31, -1;"), each(|lane| lane ^ 5));
    assert_eq!(exchanged("shfl.sync.idx.b32 %r2, %r1, 7, 31, -1;"), each(|_| 7));
    let up = "shfl.sync.up.b32 %r2, %r1, 3, 0, -1;";
    assert_eq!(exchanged(up), each(|lane| if lane < 3 { lane } else { lane - 3 }));
    let down = "shfl.sync.down.b32 %r2, %r1, 3, 31, -1;";
    assert_eq!(exchanged(down), each(|lane| if lane > 28 { lane } else { lane + 3 }));
    // Segments of 8 lanes: mask 0x18 above, clamp 7 or 0 below.
    let down = "shfl.sync.down.b32 %r2, %r1, 3, 0x1807, -1;";
    assert_eq!(exchanged(down), each(|lane| if lane % 8 > 4 { lane } else { lane + 3 }));
    let up = "shfl.sync.up.b32 %r2, %r1, 3, 0x1800, -1;";
    assert_eq!(exchanged(up), each(|lane| if lane % 8 < 3 { lane } else { lane - 3 }));
    let index = "shfl.sync.idx.b32 %r2, %r1, 2, 0x1807, -1;";
    assert_eq!(exchanged(index), each(|lane| lane / 8 * 8 + 2));
    // Whether the source lies inside.
    let inside = "shfl.sync.down.b32 %r3|%p1, %r1, 3, 31, -1; selp.u32 %r2, 1, 0, %p1;";
    assert_eq!(exchanged(inside), each(|lane| u32::from(lane <= 28)));
}

#[test]
fn votes_matches_and_reductions() {
    let odd = "and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 1;";
    assert_eq!(
        exchanged(&format!("{odd} vote.sync.ballot.b32 %r2, %p1, -1;")),
        each(|_| 0xaaaa_aaaa)
    );
    for (mode, holds) in [("all", 0), ("any", 1), ("uni", 0)] {
        let body = format!("{odd} vote.sync.{mode}.pred %p2, %p1, -1; selp.u32 %r2, 1, 0, %p2;");
        assert_eq!(exchanged(&body), each(|_| holds), "{mode}");
    }
    let thirds = "rem.u32 %r3, %r1, 3;";
    let mask =
        |third: u32| (0..32).filter(|lane| lane % 3 == third).fold(0, |all, lane| all | 1 << lane);
    let matched = format!("{thirds} match.any.sync.b32 %r2, %r3, -1;");
    assert_eq!(exchanged(&matched), each(|lane| mask(lane % 3)));
    assert_eq!(exchanged("redux.sync.add.u32 %r2, %r1, -1;"), each(|_| 31 * 16));
    assert_eq!(
        exchanged("sub.s32 %r3, 5, %r1; redux.sync.min.s32 %r2, %r3, -1;"),
        each(|_| (-26_i32).cast_unsigned())
    );
    assert_eq!(
        exchanged("elect.sync %r3|%p1, -1; selp.u32 %r2, 1, 0, %p1;"),
        each(|lane| u32::from(lane == 0))
    );
    let below = "mov.u32 %r2, %lanemask_lt;";
    assert_eq!(exchanged(below), each(|lane| (1 << lane) - 1));
}

#[test]
fn reductions_over_a_block() {
    let body = "mov.u32 %r1, %tid.x; and.b32 %r3, %r1, 3; setp.eq.u32 %p1, %r3, 0;
        bar.red.popc.u32 %r2, 0, %p1; bar.red.or.pred %p2, 0, %p1; bar.red.and.pred %p3, 0, %p1;
        selp.u32 %r4, 1000, 0, %p2; selp.u32 %r5, 2000, 0, %p3; add.u32 %r2, %r2, %r4;
        add.u32 %r2, %r2, %r5; st.global.u32 [%rd2], %r2;";
    assert_eq!(output(body, 96), vec![24 + 1000; 96]);
}

/// How many lanes execute what follows together.
const COUNT: &str = "activemask.b32 %r9; popc.b32 %r9, %r9;";

#[test]
fn lanes_meet_after_a_branch() {
    let body = format!(
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 10; @%p1 bra $less;
         {COUNT} mov.u32 %r2, %r9; bra $end;
         $less: {COUNT} add.u32 %r2, %r9, 100;
         $end: {COUNT} mad.lo.u32 %r2, %r9, 1000, %r2; st.global.u32 [%rd2], %r2;"
    );
    assert_eq!(output(&body, 32), each(|lane| 32000 + if lane < 10 { 110 } else { 22 }));
}

#[test]
fn lanes_meet_after_a_loop_of_different_length() {
    let body = format!(
        "mov.u32 %r1, %laneid; mov.u32 %r2, 0; mov.u32 %r3, 0;
         $again: {COUNT} add.u32 %r3, %r3, %r9; add.u32 %r2, %r2, 1;
         setp.le.u32 %p1, %r2, %r1; @%p1 bra $again;
         {COUNT} mad.lo.u32 %r3, %r9, 10000, %r3; st.global.u32 [%rd2], %r3;"
    );
    // In turn n, lanes n and up are left.
    let sum = |lane: u32| (0..=lane).map(|turn| 32 - turn).sum::<u32>();
    assert_eq!(output(&body, 32), each(|lane| 320_000 + sum(lane)));
}

#[test]
fn nested_branches_meet_inside_out() {
    let body = format!(
        "mov.u32 %r1, %laneid; and.b32 %r3, %r1, 1; setp.eq.u32 %p1, %r3, 0;
         setp.lt.u32 %p2, %r1, 16; mov.u32 %r2, 0;
         @%p1 bra $outer;
         @%p2 bra $inner; add.u32 %r2, %r2, 1;
         $inner: {COUNT} add.u32 %r2, %r2, %r9;
         $outer: {COUNT} mad.lo.u32 %r2, %r9, 100, %r2; st.global.u32 [%rd2], %r2;"
    );
    let expected = each(|lane| match (lane % 2, lane) {
        (0, _) => 3200,
        (_, lane) if lane < 16 => 3216,
        _ => 3217,
    });
    assert_eq!(output(&body, 32), expected);
}

#[test]
fn lanes_that_end_are_not_waited_for() {
    let body = format!(
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 8; setp.lt.u32 %p2, %r1, 4;
         @!%p1 bra $rest; @%p2 exit; $rest: {COUNT} st.global.u32 [%rd2], %r9;"
    );
    assert_eq!(output(&body, 32), each(|lane| if lane < 4 { u32::MAX } else { 28 }));
    // Paths that only meet at the end do not meet.
    let body = format!(
        "mov.u32 %r1, %laneid; setp.lt.u32 %p1, %r1, 8; @%p1 bra $less;
         {COUNT} st.global.u32 [%rd2], %r9; ret; $less: {COUNT} st.global.u32 [%rd2], %r9; ret;"
    );
    assert_eq!(output(&body, 32), each(|lane| if lane < 8 { 8 } else { 24 }));
}
