//! How the warps of a block take turns.
//!
//! Without a seed, warps run in order, each until it waits or has executed [`TURN`] instructions.
//! With one, the order is drawn anew for every round and the length of each turn too. A block in which
//! no warp can run is at fault.

use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Context;
use super::barrier::{BARRIERS, NamedBarrier};
use super::step::{Raised, Step, lanes_of};
use super::warp::{State, Warp};
use crate::fault::{Fault, FaultKind, Site, Waiting};
use crate::isa::Instruction;
use crate::isa::operation::{MemoryBarrierOp, MemoryBarrierOperands, Operation};
use crate::memory::shared::Shared;
use crate::module::NEVER;
use crate::statistics::{Counters, Executed};

/// Instructions of a turn without a seed.
const TURN: u32 = 4096;
/// The longest turn with a seed.
const LONGEST_DRAWN_TURN: u32 = 64;

/// What a block counts while it runs.
pub(crate) struct Tally {
    pub(crate) counters: Counters,
    /// By the number of the opcode.
    pub(crate) executed: Vec<Executed>,
}

/// A block while it runs.
pub(crate) struct Block<'a> {
    pub(super) context: &'a Context<'a>,
    number: u32,
    coordinates: [u32; 3],
    pub(super) shared: &'a mut Shared,
    tally: &'a mut Tally,
    pub(super) warps: Vec<Warp>,
    pub(super) barriers: [NamedBarrier; BARRIERS],
    random: Option<ChaCha8Rng>,
}

pub(super) type Outcome<T> = Result<T, Box<Fault>>;

/// What becomes of a turn after an instruction.
pub(super) enum Next {
    Go,
    /// The fragment waits, has ended or has become others.
    Turn,
}

impl<'a> Block<'a> {
    pub(crate) fn new(
        context: &'a Context<'a>,
        number: u32,
        shared: &'a mut Shared,
        tally: &'a mut Tally,
    ) -> Self {
        let launch = context.launch;
        let warps = launch.block.iter().product::<u32>().div_ceil(32) as usize;
        // Every block draws its own stream of the seed.
        let random = context.options.seed.map(|seed| {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            random.set_stream(u64::from(number) + 1);
            random
        });
        Self {
            context,
            number,
            coordinates: context.coordinates(number).unwrap_or_default(),
            shared,
            tally,
            warps: (0..warps).map(|warp| Warp::new(context.entry, warp, launch.block)).collect(),
            barriers: std::array::from_fn(|_| NamedBarrier::default()),
            random,
        }
    }

    /// Runs all threads to their end.
    pub(crate) fn run(mut self) -> Outcome<()> {
        let mut order: Vec<usize> = (0..self.warps.len()).collect();
        loop {
            if let Some(random) = &mut self.random {
                order.shuffle(random);
            }
            let mut progress = false;
            for &warp in &order {
                self.wake(warp);
                if let Some(fragment) = self.ready(warp) {
                    progress = true;
                    self.turn(warp, fragment)?;
                }
            }
            if self.warps.iter().all(|warp| warp.fragments.is_empty()) {
                return Ok(());
            }
            if !progress {
                return Err(self.stuck());
            }
        }
    }

    /// Lets fragments go on whose barrier object has turned.
    fn wake(&mut self, warp: usize) {
        for fragment in &mut self.warps[warp].fragments {
            if let State::Object { address, phase } = fragment.state
                && self.shared.barrier(address).map_or(true, |barrier| barrier.phase != phase)
            {
                fragment.state = State::Ready;
            }
        }
    }

    /// A fragment of a warp that can run.
    fn ready(&mut self, warp: usize) -> Option<usize> {
        let fragments = &self.warps[warp].fragments;
        let is_ready = |at: &usize| fragments[*at].state == State::Ready;
        match &mut self.random {
            None => (0..fragments.len()).find(is_ready),
            Some(random) => {
                let ready: Vec<usize> = (0..fragments.len()).filter(is_ready).collect();
                if ready.is_empty() {
                    None
                } else {
                    Some(ready[random.random_range(0..ready.len())])
                }
            }
        }
    }

    fn turn(&mut self, warp: usize, fragment: usize) -> Outcome<()> {
        let turn = match &mut self.random {
            None => TURN,
            Some(random) => random.random_range(1..=LONGEST_DRAWN_TURN),
        };
        for _ in 0..turn {
            if self.warps[warp].meet(fragment) {
                return Ok(());
            }
            if matches!(self.instruction(warp, fragment)?, Next::Turn) {
                return Ok(());
            }
        }
        // Fragments of a warp take turns too.
        if self.warps[warp].fragments.len() > 1 {
            self.warps[warp].fragments.rotate_left(1);
        }
        Ok(())
    }

    /// Executes the next instruction of a fragment.
    fn instruction(&mut self, number: usize, fragment: usize) -> Outcome<Next> {
        let context = self.context;
        let warp = &mut self.warps[number];
        let current = warp.fragments[fragment];
        let at = current.pc;
        let instruction = &context.entry.code[at as usize];
        let mask = match instruction.guard {
            None => current.lanes,
            Some(guard) => current.lanes & warp.registers.predicate(guard),
        };
        warp.executed += 1;
        if warp.executed > context.options.instruction_limit {
            let limit = context.options.instruction_limit;
            return Err(self.fault(number, at, None, FaultKind::InstructionLimit(limit)));
        }
        warp.fragments[fragment].pc = at + 1;
        if mask == 0 {
            return Ok(Next::Go);
        }
        let executed = &mut self.tally.executed[instruction.opcode as usize];
        executed.add(Executed { warps: 1, lanes: u64::from(mask.count_ones()) });
        match &instruction.operation {
            Operation::Branch { target, uniform } => {
                self.branch(number, fragment, mask, (*target, *uniform))
            }
            Operation::Exit => {
                let ended = self.warps[number].end(fragment, mask);
                // Those that wait for lanes that have ended wait no longer.
                let released = self.warps[number].release_warp();
                Ok(if ended || released { Next::Turn } else { Next::Go })
            }
            Operation::Barrier(barrier) => self.barrier(number, fragment, mask, barrier),
            Operation::WarpSync { members } => {
                let named = self.step(number, at, mask, |step| {
                    let masks = step.read::<u32>(*members);
                    Ok(lanes_of(mask).fold(u32::MAX, |all, lane| all & masks[lane]))
                })?;
                self.synchronise_warp(number, fragment, mask, named)
            }
            Operation::MemoryBarrier(op, operands) => {
                self.barrier_object(number, fragment, mask, *op, operands)
            }
            _ => self.plain(number, at, mask, instruction),
        }
    }

    fn plain(
        &mut self,
        warp: usize,
        at: u32,
        mask: u32,
        instruction: &Instruction,
    ) -> Outcome<Next> {
        if let Some((product, writes)) =
            self.warps[warp].products.disturbed_by(&instruction.operation)
        {
            let product = &self.context.entry.code[product as usize];
            let (product_line, product_text) = (product.line, product.text.clone());
            let kind = FaultKind::RegisterInUse { product_line, product_text, writes };
            return Err(self.fault(warp, at, None, kind));
        }
        self.step(warp, at, mask, |step| step.execute(&instruction.operation))?;
        Ok(Next::Go)
    }

    /// Has lanes of a warp do something, and says whose fault it is if they are at fault.
    pub(super) fn step<T>(
        &mut self,
        number: usize,
        at: u32,
        mask: u32,
        act: impl FnOnce(&mut Step<'_>) -> Result<T, Box<Raised>>,
    ) -> Outcome<T> {
        let warp = &mut self.warps[number];
        let mut step = Step {
            context: self.context,
            registers: &mut warp.registers,
            local: &mut warp.local,
            copies: &mut warp.copies,
            products: &mut warp.products,
            shared: self.shared,
            counters: &mut self.tally.counters,
            threads: &warp.threads,
            block: self.coordinates,
            block_number: self.number,
            warp: number,
            mask,
            live: warp.live,
            instruction: at,
        };
        let done = act(&mut step);
        done.map_err(|raised| {
            let lane = raised.lane;
            let site = self.context.site(at, self.coordinates, number, lane);
            Box::new(Fault { kind: raised.kind, site })
        })
    }

    pub(super) fn fault(
        &self,
        warp: usize,
        at: u32,
        lane: Option<usize>,
        kind: FaultKind,
    ) -> Box<Fault> {
        Box::new(Fault { kind, site: self.context.site(at, self.coordinates, warp, lane) })
    }

    fn branch(
        &mut self,
        number: usize,
        fragment: usize,
        mask: u32,
        (target, uniform): (u32, bool),
    ) -> Outcome<Next> {
        let warp = &mut self.warps[number];
        let at = warp.fragments[fragment].pc - 1;
        if mask == warp.fragments[fragment].lanes {
            warp.fragments[fragment].pc = target;
            return Ok(Next::Go);
        }
        if uniform {
            return Err(self.fault(number, at, None, FaultKind::DivergentUniformBranch));
        }
        warp.fragments[fragment].pc = at;
        let meets = self.context.entry.reconvergence.get(at as usize).copied().unwrap_or(NEVER);
        warp.part(fragment, mask, target, meets);
        Ok(Next::Turn)
    }

    fn synchronise_warp(
        &mut self,
        number: usize,
        fragment: usize,
        mask: u32,
        members: u32,
    ) -> Outcome<Next> {
        let warp = &mut self.warps[number];
        let at = warp.fragments[fragment].pc - 1;
        if members & mask != mask || mask != warp.fragments[fragment].lanes {
            return Err(self.fault(number, at, None, FaultKind::NotMember { members }));
        }
        self.shared.tracker.synchronise_warp(number);
        if members & warp.live & !mask == 0 {
            return Ok(Next::Go);
        }
        warp.fragments[fragment].state = State::Warp { members };
        if warp.release_warp() {
            self.shared.tracker.synchronise_warp(number);
        }
        Ok(Next::Turn)
    }

    // Barrier objects in shared memory.

    fn barrier_object(
        &mut self,
        number: usize,
        fragment: usize,
        mask: u32,
        op: MemoryBarrierOp,
        operands: &MemoryBarrierOperands,
    ) -> Outcome<Next> {
        let at = self.warps[number].fragments[fragment].pc - 1;
        let blocked = self.step(number, at, mask, |step| step.barrier_object(op, operands))?;
        let Some((address, phase)) = blocked else { return Ok(Next::Go) };
        let whole = mask == self.warps[number].fragments[fragment].lanes;
        if matches!(op, MemoryBarrierOp::Try | MemoryBarrierOp::TryParity) && whole {
            // The wait may take as long as it likes: it is taken up again when the phase has ended.
            let waiting = &mut self.warps[number].fragments[fragment];
            waiting.pc = at;
            waiting.state = State::Object { address, phase };
        }
        Ok(Next::Turn)
    }

    // Blocks that can not go on.

    /// Why no warp can run.
    fn stuck(&self) -> Box<Fault> {
        let mut waiting = Vec::new();
        let mut incomplete = None;
        for (number, warp) in self.warps.iter().enumerate() {
            let Some(fragment) = warp.fragments.first() else { continue };
            let lane = fragment.lanes.trailing_zeros() as usize % 32;
            let (at, reason) = match fragment.state {
                State::Barrier { number, .. } => {
                    incomplete = incomplete.or(Some((waiting.len(), number)));
                    (fragment.pc - 1, format!("barrier {number}"))
                }
                State::Warp { members } => (fragment.pc - 1, format!("lanes {members:#010x}")),
                State::Object { address, .. } => {
                    (fragment.pc, format!("the barrier object at {address:#x}"))
                }
                State::Ready => (fragment.pc, "its turn".to_owned()),
            };
            let site = self.context.site(at, self.coordinates, number, Some(lane));
            waiting.push(Waiting { site, reason });
        }
        let ended: u32 = self.warps.iter().map(|warp| (warp.full & !warp.live).count_ones()).sum();
        let site = |at: usize| waiting.get(at).map(|waiting: &Waiting| waiting.site.clone());
        match incomplete {
            Some((at, barrier)) if ended > 0 => {
                let named = &self.barriers[barrier as usize];
                let (arrived, expected) = (named.arrived, named.expected);
                let kind = FaultKind::IncompleteBarrier { barrier, arrived, expected, ended };
                Box::new(Fault { kind, site: site(at).unwrap_or_else(|| self.nowhere()) })
            }
            _ => {
                let site = site(0).unwrap_or_else(|| self.nowhere());
                Box::new(Fault { kind: FaultKind::Deadlock { waiting }, site })
            }
        }
    }

    fn nowhere(&self) -> Site {
        self.context.site(0, self.coordinates, 0, None)
    }
}
