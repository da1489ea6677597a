//! Barrier objects in shared memory (`mbarrier`).

use super::step::{Raised, Step, lanes_of};
use crate::fault::Access;
use crate::isa::operand::Space;
use crate::isa::operation::{MemoryBarrierOp, MemoryBarrierOperands};
use crate::memory::address::from_generic;
use crate::memory::shared::Wrong;

impl Step<'_> {
    /// Executes an operation on a barrier object; gives the object and its phase if a wait did not
    /// succeed in every lane.
    pub(super) fn barrier_object(
        &mut self,
        op: MemoryBarrierOp,
        operands: &MemoryBarrierOperands,
    ) -> Result<Option<(u64, u64)>, Box<Raised>> {
        use MemoryBarrierOp as Op;
        let addresses = self.addresses(operands.address);
        let is_state = matches!(op, Op::Test | Op::Try);
        let values = if is_state {
            self.read::<u64>(operands.value)
        } else {
            self.read::<u32>(operands.value).map(u64::from)
        };
        let mut states = [0_u64; 32];
        let mut passed = 0_u32;
        let mut blocked = None;
        for lane in lanes_of(self.mask) {
            let address = match operands.space {
                Space::Generic => from_generic(addresses[lane]).1,
                _ => addresses[lane],
            };
            let value = values[lane];
            let who = self.accessor(lane);
            let done = match op {
                Op::Initialise => self.shared.initialise(address, value as u32, who),
                Op::Invalidate => self.shared.invalidate(address),
                Op::Arrive => self
                    .shared
                    .arrive(address, value as u32, self.warp)
                    .map(|phase| states[lane] = phase),
                Op::ArriveExpect => self
                    .shared
                    .expect_bytes(address, value as i64)
                    .and_then(|()| self.shared.arrive(address, 1, self.warp))
                    .map(|phase| states[lane] = phase),
                Op::Expect => self.shared.expect_bytes(address, value as i64),
                Op::Complete => self.shared.expect_bytes(address, -(value as i64)),
                Op::Test | Op::Try | Op::TestParity | Op::TryParity => {
                    self.passes(address, value, is_state).map(|phase| match phase {
                        None => passed |= 1 << lane,
                        Some(phase) => blocked = Some((address, phase)),
                    })
                }
            };
            if let Err(wrong) = done {
                return self.shared_fault(wrong, address, 8, Access::Atomic, lane);
            }
        }
        match op {
            Op::Arrive | Op::ArriveExpect => self.write(operands.d, &states),
            Op::Test | Op::Try | Op::TestParity | Op::TryParity => {
                self.write_predicate(operands.d, passed);
            }
            _ => {}
        }
        Ok(blocked)
    }

    /// Whether a phase has ended: `None` if it has, the phase at hand if not. A phase is named by the
    /// state that an arrival gave, or by its parity.
    fn passes(&mut self, address: u64, value: u64, is_state: bool) -> Result<Option<u64>, Wrong> {
        let phase = self.shared.barrier(address)?.phase;
        let has_ended = if is_state { phase > value } else { phase % 2 != value % 2 };
        if !has_ended {
            return Ok(Some(phase));
        }
        self.shared.pass(address, self.warp)?;
        Ok(None)
    }
}
