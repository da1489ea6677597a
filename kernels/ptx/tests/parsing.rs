//! Texts that are refused, with line and statement.

mod kernel;
mod support;

use flashproof_ptx::{Module, ParseError, Reason};
use support::text;

fn body(body: &str) -> String {
    kernel::Kernel::new(body).text()
}

fn refused(statement: &str) -> ParseError {
    match Module::parse(&body(statement)) {
        Err(error) => error,
        Ok(_) => panic!("accepted: {statement}"),
    }
}

#[test]
fn unknown_instructions_and_modifiers_are_refused_with_line_and_text() {
    let error = refused("\n\nfrobnicate.u32 %r1, %r2;");
    assert_eq!(error.reason, Reason::Instruction("frobnicate".to_owned()));
    assert_eq!(error.text, "frobnicate.u32 %r1, %r2");
    let first = body("").lines().count();
    assert_eq!(error.line, first + 2 - 1);
    for (statement, modifier) in [
        ("add.rn.u32 %r1, %r2, %r3;", "rn"),
        ("add.sat.u32 %r1, %r2, %r3;", "u32"),
        ("mul.f32.rn %r1, %r2, %r3;", "f32"),
        ("mul.u32 %r1, %r2, %r3;", "u32"),
        ("ld.global.bypass.u32 %r1, [%rd1];", "bypass"),
        ("bar.sync.new 0;", "new"),
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.bf16.bf16.f32 {%r1,%r1,%r1,%r1}, {%r1,%r1,%r1,%r1}, {%r1,%r1}, {%r1,%r1,%r1,%r1};",
            "m16n8k32",
        ),
        ("shfl.sync.sideways.b32 %r1, %r1, 0, 31, -1;", "sideways"),
        ("cvt.rn.ftz.wide.f32.s32 %r1, %r2;", "wide"),
        ("setp.lt.b32 %p1, %r1, %r2;", "b32"),
        ("ex2.approx.sat.f32 %r1, %r2;", "sat"),
    ] {
        let reason = refused(statement).reason;
        let Reason::Modifier { modifier: found, .. } = &reason else {
            panic!("{statement}: {reason}")
        };
        assert_eq!(found, modifier, "{statement}");
    }
}

#[test]
fn what_is_not_supported_says_so() {
    let error = Module::parse(&text("triton_fwd_bf16_sm100")).expect_err("tensor memory");
    assert!(
        matches!(&error.reason, Reason::Unsupported(what) if what.contains("tcgen05")),
        "{error}"
    );
    for statement in [
        "call.uni f, (%r1);",
        "cp.async.bulk.commit_group;",
        "barrier.cluster.arrive;",
        "add.rz.f64 %rd3, %rd3, %rd3;",
    ] {
        assert!(matches!(refused(statement).reason, Reason::Unsupported(_)), "{statement}");
    }
}

#[test]
fn operands_must_fit() {
    for statement in [
        "add.u32 %r1, %rd1, %r2;",
        "add.u64 %rd1, %r1, 1;",
        "mov.u32 %r1, %h1;",
        "add.f32 %r1, %r2, 3;",
        "ld.global.u64 %r1, [%rd1];",
        "ld.shared.u32 %r1, [p];",
        "ld.global.v4.u64 {%rd1, %rd1, %rd1, %rd1}, [%rd1];",
        "st.shared.v2.u32 [s], {%r1, %r2, %r3};",
        "setp.eq.u32 %r1, %r2, %r3;",
        "selp.u32 %r1, %r2, %r3, %r4;",
        "bra %r1;",
        "add.u32 %r1, %r2;",
        "add.u32 %r1, %r2, %r3, %r4;",
        "add.u32 1, %r2, %r3;",
        "cp.async.cg.shared.global [s], [%rd1], 8;",
    ] {
        let reason = refused(statement).reason;
        let is_typed = matches!(
            reason,
            Reason::Operand { .. } | Reason::OperandCount(_) | Reason::Unsupported(_)
        );
        assert!(is_typed, "{statement}: {reason}");
    }
    for (statement, name) in [
        ("add.u32 %r1, %r2, %r40;", "%r40"),
        ("bra $nowhere;", "$nowhere"),
        ("@%q bra $nowhere;", "%q"),
        ("mov.u32 %r1, %clock;", "%clock"),
    ] {
        assert_eq!(refused(statement).reason, Reason::Name(name.to_owned()), "{statement}");
    }
}

#[test]
fn scopes_hold_registers_and_labels_of_their_own() {
    let text = body(
        "{ .reg .b64 %r1; mov.u64 %r1, 1; $l: setp.ne.u64 %p1, %r1, 1; @%p1 bra $l; }
         { .reg .b32 %inner; mov.u32 %inner, 2; $l: setp.ne.u32 %p1, %inner, 2; @%p1 bra $l; }
         mov.u32 %r1, 3;",
    );
    Module::parse(&text).expect("a module");
    assert_eq!(refused("{ $l: } bra $l;").reason, Reason::Name("$l".to_owned()));
    assert_eq!(refused("$l: $l: ret;").reason, Reason::Redeclared("$l".to_owned()));
}

#[test]
fn what_a_module_declares_can_be_asked() {
    let module = Module::parse(&text("nvrtc_fwd_bf16_sm80")).expect("a module");
    assert_eq!(module.target(), "sm_80");
    let entry = module.entry("flash_fwd_bf16_d64").expect("an entry");
    let bytes: Vec<usize> = entry.parameters().iter().map(|parameter| parameter.bytes).collect();
    assert_eq!(bytes, [8, 8, 8, 8, 8, 4, 4, 4]);
    assert!(module.entry("flash_fwd").is_none());
}
