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
