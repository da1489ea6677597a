//! Which clause a kernel breaks that does what a device lets pass, or answers at random.

use flashproof_ptx::{Fault, FaultKind};

use crate::adapter::Failure;

/// A kernel did what no kernel may do (`FAS:device.*`), whatever numbers came out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{launch}: {fault}")]
pub struct DeviceFault {
    /// The clause that it breaks.
    pub clause: &'static str,
    /// The launch, the file and the entry.
    pub launch: String,
    /// What it did, at which instruction, in which thread, and where in which buffer.
    pub fault: String,
}

/// What a fault in a launch comes to.
pub(super) fn failure_of(launch: String, fault: &Fault) -> Failure {
    match clause_of(&fault.kind) {
        Some(clause) => Failure::Device(DeviceFault { clause, launch, fault: fault.to_string() }),
        None => match fault.kind {
            FaultKind::Descriptor { .. } => {
                Failure::Unsupported(format!("by the emulator, in {launch}: {fault}"))
            }
            _ => Failure::Crashed(format!("{launch}: {fault}")),
        },
    }
}

/// The clause that a fault breaks; `None` where it is the kernel's own stop, or beyond the emulator.
pub(super) const fn clause_of(kind: &FaultKind) -> Option<&'static str> {
    Some(match kind {
        FaultKind::OutOfBounds { .. } => "FAS:device.memory.bounds",
        FaultKind::Misaligned { .. } => "FAS:device.memory.aligned",
        FaultKind::Uninitialised { .. } => "FAS:device.memory.initialised",
        FaultKind::SharedRace { .. } => "FAS:device.race.shared",
        FaultKind::GlobalRace { .. } => "FAS:device.race.global",
        FaultKind::UnfinishedCopy { .. } => "FAS:device.copy.waited",
        FaultKind::OperandOverwritten { .. } | FaultKind::RegisterInUse { .. } => {
            "FAS:device.product.waited"
        }
        FaultKind::MissingProxyFence { .. } | FaultKind::MissingProductFence => {
            "FAS:device.product.fenced"
        }
        FaultKind::Divergent { .. }
        | FaultKind::NotMember { .. }
        | FaultKind::ShuffleFromInactive { .. }
        | FaultKind::DivergentUniformBranch => "FAS:device.warp.converged",
        FaultKind::IncompleteBarrier { .. } | FaultKind::Deadlock { .. } => {
            "FAS:device.barrier.complete"
        }
        FaultKind::BarrierOperand { .. } | FaultKind::BarrierObject { .. } => {
            "FAS:device.barrier.valid"
        }
        FaultKind::Unspecified(_) => "FAS:device.result.specified",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use flashproof_ptx::{Access, Site};

    use super::*;

    fn site() -> Site {
        let text = "ld.global.u32 %r1, [%rd1]".to_owned();
        Site { line: 7, text, block: [1, 0, 0], thread: [3, 0, 0], whole_warp: false }
    }

    /// One fault of each kind that breaks a clause.
    fn faults() -> Vec<FaultKind> {
        vec![
            FaultKind::MissingProductFence,
            FaultKind::RegisterInUse { product_line: 1, product_text: String::new(), writes: true },
            FaultKind::Divergent { executing: 1, expected: 3 },
            FaultKind::NotMember { members: 1 },
            FaultKind::ShuffleFromInactive { source: 1 },
            FaultKind::DivergentUniformBranch,
            FaultKind::IncompleteBarrier { barrier: 0, arrived: 32, expected: 64, ended: 32 },
            FaultKind::Deadlock { waiting: Vec::new() },
            FaultKind::BarrierOperand { barrier: 16, threads: 32 },
            FaultKind::BarrierObject { address: 0, problem: "uninitialised" },
            FaultKind::Unspecified("a division by zero"),
            FaultKind::UnfinishedCopy { address: 0, access: Access::Read, copy: site() },
            FaultKind::OperandOverwritten { address: 0, product: site() },
            FaultKind::MissingProxyFence { address: 0, write: site() },
        ]
    }

    #[test]
    fn faults_break_clauses_that_exist_and_say_where() {
        for kind in faults() {
            let fault = Fault { kind, site: site() };
            let failure = failure_of("forward[0]".to_owned(), &fault);
            let Failure::Device(DeviceFault { clause, .. }) = &failure else {
                panic!("{failure}");
            };
            assert!(flashproof_spec::clause::find(clause).is_some(), "{clause}");
            let text = failure.to_string();
            for part in
                ["forward[0]", "line 7", "ld.global.u32", "block (1, 0, 0)", "thread (3, 0, 0)"]
            {
                assert!(text.contains(part), "{text}");
            }
        }
    }

    #[test]
    fn a_stop_of_the_kernel_s_own_is_a_crash_and_what_is_not_known_is_unsupported() {
        let failure = |kind| failure_of("forward[0]".to_owned(), &Fault { kind, site: site() });
        assert!(matches!(failure(FaultKind::Trap), Failure::Crashed(_)));
        assert!(matches!(failure(FaultKind::InstructionLimit(5)), Failure::Crashed(_)));
        let unknown = FaultKind::Descriptor { descriptor: 1, problem: "an unknown swizzle" };
        assert!(matches!(failure(unknown), Failure::Unsupported(_)));
    }
}
