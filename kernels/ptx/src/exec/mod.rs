//! How a launch runs: blocks over CPU threads, warps of a block in turns, lanes of a warp together.

mod access;
mod barrier;
mod block;
mod convert;
mod copy;
mod exchange;
mod float;
mod integer;
mod matrix;
mod object;
mod product;
mod registers;
mod step;
mod warp;

use std::sync::atomic::{AtomicU32, Ordering};

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;

use crate::fault::{Fault, Site};
use crate::launch::{Launch, LaunchError, MOST_BLOCKS, MOST_SHARED, Options, RunError};
use crate::memory::Memory;
use crate::memory::device::Device;
use crate::memory::race::{Look, Tracker};
use crate::memory::shared::Shared;
use crate::module::{Entry, Module};
use crate::statistics::{Counters, Executed, Statistics};
use block::{Block, Tally};

/// What all blocks of a launch have in common.
pub(crate) struct Context<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) launch: &'a Launch,
    pub(crate) options: &'a Options,
    pub(crate) device: &'a Device<'a>,
    pub(crate) parameters: Vec<u8>,
    pub(crate) constants: &'a [u8],
}

impl Context<'_> {
    /// Coordinates of the block of a number; `None` past the grid.
    pub(crate) fn coordinates(&self, block: u32) -> Option<[u32; 3]> {
        let [x, y, z] = self.launch.grid;
        (block < x * y * z).then(|| [block % x, block / x % y, block / x / y])
    }

    /// An instruction, as a lane of a warp executes it; as the warp does where `lane` is `None`.
    pub(crate) fn site(
        &self,
        instruction: u32,
        block: [u32; 3],
        warp: usize,
        lane: Option<usize>,
    ) -> Site {
        let [x, y, _] = self.launch.block;
        let thread = 32 * warp as u32 + lane.unwrap_or(0) as u32;
        let found = self.entry.code.get(instruction as usize);
        Site {
            line: found.map_or(0, |instruction| instruction.line),
            text: found.map_or_else(String::new, |instruction| instruction.text.clone()),
            block,
            thread: [thread % x, thread / x % y, thread / x / y],
            whole_warp: lane.is_none(),
        }
    }
}

/// Runs a launch of the entry of this name on the buffers of `memory`.
///
/// Blocks run on the threads of the `rayon` pool at hand; one after the other where the entry has
/// atomics on global memory, so that a run is a function of its seed. Global variables of the module
/// begin every launch with their initial values.
///
/// # Errors
/// [`RunError::Launch`] where the launch does not fit the entry; [`RunError::Fault`] where the kernel
/// is at fault. Buffers then hold what was written until then.
pub fn run(
    module: &Module,
    entry: &str,
    launch: &Launch,
    memory: &Memory,
    options: &Options,
) -> Result<Statistics, RunError> {
    let entry = module.entry(entry).ok_or_else(|| LaunchError::NoEntry(entry.to_owned()))?;
    let parameters = check(entry, launch)?;
    let globals: Vec<_> = module.globals.iter().map(crate::memory::module_buffer).collect();
    let checks = options.checks;
    let device = Device::new(memory, &globals, checks.global_races, checks.uninitialised);
    let constants = &module.constants;
    let context = Context { entry, launch, options, device: &device, parameters, constants };
    let mut blocks: Vec<u32> = (0..launch.grid.iter().product()).collect();
    if let Some(seed) = options.seed {
        blocks.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
    }
    if entry.has_global_atomics {
        let mut worker = Worker::new(&context);
        blocks.iter().try_for_each(|block| worker.run(*block))?;
        return Ok(worker.statistics());
    }
    in_parallel(&context, &blocks)
}

/// Runs blocks on all threads; of several faults, gives that of the first block in order.
fn in_parallel(context: &Context<'_>, blocks: &[u32]) -> Result<Statistics, RunError> {
    let next = AtomicU32::new(0);
    let workers = rayon::current_num_threads().min(blocks.len());
    let results: Vec<(u32, Result<Statistics, Box<Fault>>)> = (0..workers)
        .into_par_iter()
        .map(|_| {
            let mut worker = Worker::new(context);
            loop {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(block) = blocks.get(place as usize) else {
                    return (place, Ok(worker.statistics()));
                };
                if let Err(fault) = worker.run(*block) {
                    // No other block need begin.
                    next.store(blocks.len() as u32, Ordering::Relaxed);
                    return (place, Err(fault));
                }
            }
        })
        .collect();
    let mut statistics = Statistics::default();
    let mut first: Option<(u32, Box<Fault>)> = None;
    for (place, result) in results {
        match result {
            Ok(part) => statistics.add(&part),
            Err(fault) if first.as_ref().is_none_or(|(other, _)| place < *other) => {
                first = Some((place, fault));
            }
            Err(_) => {}
        }
    }
    match first {
        None => Ok(statistics),
        Some((_, fault)) => Err(fault.into()),
    }
}

/// What one CPU thread runs blocks with.
struct Worker<'a> {
    context: &'a Context<'a>,
    shared: Shared,
    is_fresh: bool,
    tally: Tally,
}

impl<'a> Worker<'a> {
    fn new(context: &'a Context<'a>) -> Self {
        let entry = context.entry;
        let bytes = entry.static_shared + context.launch.dynamic_shared;
        let warps = context.launch.block.iter().product::<u32>().div_ceil(32) as usize;
        let checks = context.options.checks;
        let look = Look { races: checks.shared_races, uninitialised: checks.uninitialised };
        let tracker = Tracker::new(bytes, entry.shared_granule, warps, entry.has_products, look);
        let executed = vec![Executed::default(); entry.opcodes.len() + 1];
        Self {
            context,
            shared: Shared::new(bytes, tracker),
            is_fresh: true,
            tally: Tally { counters: Counters::default(), executed },
        }
    }

    fn run(&mut self, block: u32) -> Result<(), Box<Fault>> {
        if !self.is_fresh {
            self.shared.reset();
        }
        self.is_fresh = false;
        Block::new(self.context, block, &mut self.shared, &mut self.tally).run()
    }

    fn statistics(&self) -> Statistics {
        let mut statistics =
            Statistics { traffic: self.tally.counters.traffic(), ..Statistics::default() };
        let opcodes = self.context.entry.opcodes.iter();
        for (opcode, executed) in opcodes.zip(&self.tally.executed) {
            if *executed != Executed::default() {
                statistics.instructions.add(*executed);
                statistics.opcodes.insert(opcode.clone(), *executed);
            }
        }
        statistics
    }
}

/// Checks a launch against its entry; gives the bytes of the parameters.
fn check(entry: &Entry, launch: &Launch) -> Result<Vec<u8>, LaunchError> {
    let product = |extents: [u32; 3]| {
        extents.iter().try_fold(1_u32, |product, extent| product.checked_mul(*extent))
    };
    let threads = product(launch.block).filter(|threads| (1..=1024).contains(threads));
    let wrong = |expected: String| LaunchError::Threads { found: launch.block, expected };
    if threads.is_none() {
        return Err(wrong("1 to 1024".to_owned()));
    }
    if let Some(required) = entry.required_threads.filter(|required| *required != launch.block) {
        return Err(wrong(format!("{required:?}")));
    }
    if let Some(most) = entry.most_threads
        && threads > product(most)
    {
        return Err(wrong(format!("at most {most:?}")));
    }
    if product(launch.grid).is_none_or(|blocks| blocks == 0 || blocks > MOST_BLOCKS) {
        return Err(LaunchError::Grid(launch.grid));
    }
    let shared = entry.static_shared.saturating_add(launch.dynamic_shared);
    if shared > MOST_SHARED {
        return Err(LaunchError::Shared(shared));
    }
    parameters(entry, launch)
}

fn parameters(entry: &Entry, launch: &Launch) -> Result<Vec<u8>, LaunchError> {
    let (expected, found) = (entry.parameters.len(), launch.arguments.len());
    if expected != found {
        return Err(LaunchError::ArgumentCount { expected, found });
    }
    let mut bytes = vec![0; entry.parameter_bytes];
    for (position, (parameter, argument)) in
        entry.parameters.iter().zip(&launch.arguments).enumerate()
    {
        let value = argument.bytes();
        if value.len() != parameter.bytes {
            return Err(LaunchError::ArgumentSize {
                position,
                name: parameter.name.clone(),
                expected: parameter.bytes,
                found: value.len(),
            });
        }
        bytes[parameter.offset..parameter.offset + value.len()].copy_from_slice(&value);
    }
    Ok(bytes)
}
