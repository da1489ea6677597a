//! Synchronisations taken out of compiled attention kernels, one at a time: each is missed, with
//! instruction and thread, but those that compilers put in for nothing.

mod support;

use flashproof_ptx::{Fault, FaultKind, Module, Options, RunError};
use support::reference::saved;
use support::{BACKWARD, FORWARD, Format, Inputs, backward, forward, text};

const SEED: u64 = 0x5eed_0106;
/// Rows that need several blocks and, in the last, several turns of the loop.
const ROWS: usize = 256;

const SYNCHRONISATIONS: [&str; 5] =
    ["bar.sync", "cp.async.wait_group", "wgmma.wait_group", "wgmma.fence", "fence.proxy"];

/// Lines that nothing depends on, since another synchronisation stands between the same accesses or
/// there is nothing left to wait for.
fn idle(file: &str) -> &'static [usize] {
    match file {
        "triton_fwd_f32_sm80" => &[1813, 1814],
        "triton_fwd_bf16_sm90" => &[803],
        "triton_bwd_bf16_sm80" => &[1877, 2038, 2230, 2231],
        "triton_bwd_bf16_sm90" => &[252, 726, 846, 965, 1194, 1259, 1436],
        _ => &[],
    }
}

/// Runs a changed text of a fixture.
fn fault_of(file: &str, text: &str, options: &Options) -> Option<Fault> {
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{file}: {error}"));
    let kernel = FORWARD.into_iter().find(|kernel| kernel.file == file);
    let inputs = Inputs::new(ROWS, kernel.map_or(Format::Bf16, |kernel| kernel.format), SEED);
    let result = if let Some(kernel) = kernel {
        forward(&module, kernel, &inputs, options).map(|_| ())
    } else {
        let (lse, delta) = saved(&inputs);
        backward(&module, &inputs, (&lse, &delta), options).map(|_| ())
    };
    match result {
        Ok(()) => None,
        Err(RunError::Fault(fault)) => Some(*fault),
        Err(RunError::Launch(error)) => panic!("{file}: {error}"),
    }
}

/// The text with lines changed; a line of the text keeps its number.
fn changed(text: &str, change: impl Fn(usize, &str) -> Option<String>) -> String {
    let line = |(at, line): (usize, &str)| change(at + 1, line).unwrap_or_else(|| line.to_owned());
    text.lines().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

fn without(text: &str, lines: &[usize]) -> String {
    changed(text, |at, _| lines.contains(&at).then(String::new))
}

#[test]
fn every_synchronisation_that_matters_is_missed() {
    for file in FORWARD.map(|kernel| kernel.file).into_iter().chain(BACKWARD) {
        let text = text(file);
        let found: Vec<usize> = text
            .lines()
            .enumerate()
            .filter(|(_, line)| {
                SYNCHRONISATIONS.iter().any(|opcode| line.trim_start().starts_with(opcode))
            })
            .map(|(at, _)| at + 1)
            .collect();
        assert!(!found.is_empty(), "{file} has no synchronisation");
        for line in found {
            let fault = fault_of(file, &without(&text, &[line]), &Options::default());
            let is_idle = idle(file).contains(&line);
            assert_eq!(fault.is_none(), is_idle, "{file} without line {line}: {fault:?}");
            if let Some(fault) = fault {
                assert!(fault.site.line > 0 && !fault.site.text.is_empty(), "{fault}");
            }
        }
    }
}

#[test]
fn a_fault_is_found_under_every_order_of_warps() {
    let (file, text) = ("nvrtc_fwd_bf16_sm80", text("nvrtc_fwd_bf16_sm80"));
    for seed in 0..8 {
        let options = Options { seed: Some(seed), ..Options::default() };
        assert_eq!(fault_of(file, &text, &options), None, "seed {seed}");
        // The barrier at the end of the loop, which keeps the next tile out of the one in use.
        let fault = fault_of(file, &without(&text, &[2036]), &options);
        let kind = fault.map(|fault| fault.kind);
        assert!(matches!(kind, Some(FaultKind::SharedRace { .. })), "seed {seed}: {kind:?}");
    }
}

#[test]
fn a_wait_that_leaves_one_group_more_is_missed() {
    let file = "nvrtc_fwd_bf16_sm80";
    let weakened = changed(&text(file), |_, line| {
        line.contains("cp.async.wait_group 1").then(|| line.replace("wait_group 1", "wait_group 2"))
    });
    let fault = fault_of(file, &weakened, &Options::default()).expect("a fault");
    let FaultKind::UnfinishedCopy { copy, .. } = &fault.kind else { panic!("{fault}") };
    assert!(copy.text.starts_with("cp.async.cg.shared.global"), "{fault}");
    assert!(fault.site.text.starts_with("ldmatrix"), "{fault}");
}

#[test]
fn an_address_past_the_end_or_between_elements_is_found() {
    let file = "triton_fwd_bf16_sm80";
    let text = text(file);
    // The first store of the output.
    let store = |offset: &str| {
        let line_of_store =
            text.lines().position(|line| line.contains("st.global.v4.b32")).expect("a store");
        changed(&text, |at, line| {
            (at == line_of_store + 1).then(|| line.replace("+ 0 ]", &format!("+ {offset} ]")))
        })
    };
    // One row of tiles and a little more: out of bounds in the last block alone.
    let fault = fault_of(file, &store("65536"), &Options::default()).expect("a fault");
    let FaultKind::OutOfBounds { place: Some(place), bytes, .. } = &fault.kind else {
        panic!("{fault}")
    };
    assert_eq!((place.buffer.as_str(), place.length, *bytes), ("output", ROWS * 64 * 4, 16));
    assert!(place.offset >= place.length as u64, "{fault}");
    let fault = fault_of(file, &store("4"), &Options::default()).expect("a fault");
    assert!(matches!(fault.kind, FaultKind::Misaligned { bytes: 16, .. }), "{fault}");
}

#[test]
fn sums_of_a_gradient_without_atomics_race() {
    let file = "triton_bwd_bf16_sm90";
    // dQ += x becomes dQ = x.
    let plain = changed(&text(file), |_, line| {
        let start = line.find("atom.global.gpu.acq_rel.add.v4.f32")?;
        let (guard, rest) = line.split_at(start);
        let address = rest.find('[')?;
        let value = rest.rfind('{')?;
        let (address, value) = (&rest[address..value], &rest[value..]);
        Some(format!("{guard}st.global.v4.f32 {address}{value}"))
    });
    let fault = fault_of(file, &plain, &Options::default()).expect("a fault");
    let FaultKind::GlobalRace { place: Some(place), .. } = &fault.kind else { panic!("{fault}") };
    assert_eq!(place.buffer, "query gradient");
}
