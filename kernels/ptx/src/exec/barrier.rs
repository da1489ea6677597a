//! The sixteen barriers of a block.

use super::block::{Block, Next, Outcome};
use super::warp::State;
use crate::fault::FaultKind;
use crate::isa::operation::{Barrier, BarrierKind, BarrierReduction};

/// Barriers that a block has.
pub(crate) const BARRIERS: usize = 16;

/// One barrier: who has arrived since it was last complete.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedBarrier {
    /// Threads that it waits for; 0 while no one has arrived.
    pub(crate) expected: u32,
    pub(crate) arrived: u32,
    /// Warps of which threads have arrived, and of which threads wait.
    pub(crate) arrivals: Vec<usize>,
    pub(crate) waits: Vec<usize>,
    /// Of a reduction: threads that brought a predicate, and how many held.
    pub(crate) voters: u32,
    pub(crate) votes: u32,
}

impl NamedBarrier {
    /// Threads of a warp arrive; false if others were told of another number of threads.
    pub(crate) fn arrive(&mut self, warp: usize, threads: u32, expected: u32, waits: bool) -> bool {
        if self.arrived > 0 && self.expected != expected {
            return false;
        }
        self.expected = expected;
        self.arrived += threads;
        if !self.arrivals.contains(&warp) {
            self.arrivals.push(warp);
        }
        if waits && !self.waits.contains(&warp) {
            self.waits.push(warp);
        }
        true
    }

    pub(crate) const fn is_complete(&self) -> bool {
        self.arrived >= self.expected
    }

    /// What a reduction gives.
    pub(crate) const fn result(&self, reduction: BarrierReduction) -> u32 {
        match reduction {
            BarrierReduction::Count => self.votes,
            BarrierReduction::All => {
                if self.votes == self.voters {
                    u32::MAX
                } else {
                    0
                }
            }
            BarrierReduction::Any => {
                if self.votes > 0 {
                    u32::MAX
                } else {
                    0
                }
            }
        }
    }
}

impl Block<'_> {
    pub(super) fn barrier(
        &mut self,
        number: usize,
        fragment: usize,
        mask: u32,
        barrier: &Barrier,
    ) -> Outcome<Next> {
        let at = self.warps[number].fragments[fragment].pc - 1;
        let (full, lanes) = (self.warps[number].full, self.warps[number].fragments[fragment].lanes);
        if barrier.aligned && mask != full {
            let kind = FaultKind::Divergent { executing: mask, expected: full };
            return Err(self.fault(number, at, None, kind));
        }
        if mask != lanes {
            let kind = FaultKind::Divergent { executing: mask, expected: lanes };
            return Err(self.fault(number, at, None, kind));
        }
        let (index, threads, votes) = self.barrier_operands(number, at, mask, barrier)?;
        let all = self.context.launch.block.iter().product::<u32>();
        let fits =
            |count: u32| count > 0 && count.is_multiple_of(32) && count <= all.next_multiple_of(32);
        if index as usize >= BARRIERS || threads.is_some_and(|count| !fits(count)) {
            let threads = threads.unwrap_or(all);
            let kind = FaultKind::BarrierOperand { barrier: index, threads };
            return Err(self.fault(number, at, None, kind));
        }
        // With a count, warps count as whole ones.
        let arriving = match threads {
            Some(_) if barrier.aligned => 32,
            _ => mask.count_ones(),
        };
        let expected = threads.unwrap_or(all);
        let waits = !matches!(barrier.kind, BarrierKind::Arrive);
        let named = &mut self.barriers[index as usize];
        if !named.arrive(number, arriving, expected, waits) {
            let kind = FaultKind::BarrierOperand { barrier: index, threads: expected };
            return Err(self.fault(number, at, None, kind));
        }
        if matches!(barrier.kind, BarrierKind::Reduce { .. }) {
            named.voters += mask.count_ones();
            named.votes += votes.count_ones();
        }
        if waits {
            let reduction = match barrier.kind {
                BarrierKind::Reduce { op, d, .. } => Some((op, d)),
                _ => None,
            };
            self.warps[number].fragments[fragment].state =
                State::Barrier { number: index, reduction };
        }
        if self.barriers[index as usize].is_complete() {
            self.release(index);
        }
        Ok(if waits { Next::Turn } else { Next::Go })
    }

    /// Number of the barrier, of threads, and lanes whose predicate holds.
    fn barrier_operands(
        &mut self,
        warp: usize,
        at: u32,
        mask: u32,
        barrier: &Barrier,
    ) -> Outcome<(u32, Option<u32>, u32)> {
        self.step(warp, at, mask, |step| {
            let first = mask.trailing_zeros() as usize % 32;
            let number = step.read::<u32>(barrier.number)[first];
            let threads = barrier.threads.map(|threads| step.read::<u32>(threads)[first]);
            let votes = match barrier.kind {
                BarrierKind::Reduce { a, .. } => step.condition(a) & mask,
                _ => 0,
            };
            Ok((number, threads, votes))
        })
    }

    fn release(&mut self, index: u32) {
        let named = std::mem::take(&mut self.barriers[index as usize]);
        for &number in &named.waits {
            let warp = &mut self.warps[number];
            for at in 0..warp.fragments.len() {
                let State::Barrier { number, reduction } = warp.fragments[at].state else {
                    continue;
                };
                if number != index {
                    continue;
                }
                warp.fragments[at].state = State::Ready;
                let lanes = warp.fragments[at].lanes;
                match reduction {
                    None => {}
                    Some((op @ BarrierReduction::Count, d)) => {
                        warp.registers.set(d, lanes, &[named.result(op); 32]);
                    }
                    Some((op, d)) => warp.registers.set_predicate(d, lanes, named.result(op)),
                }
            }
        }
        self.shared.tracker.synchronise(&named.arrivals, &named.waits);
    }
}
