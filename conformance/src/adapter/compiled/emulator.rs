//! The emulator as a machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use flashproof_ptx::{
    Approximation, Argument, Memory, Module, Options, Pointer, Policy, Reason, RunError,
    TensorCore, run,
};

use super::counts::{Counts, LaunchCounts};
use super::fault::failure_of;
use super::machine::{Contents, Launch, Machine};
use crate::adapter::Failure;

/// Bytes of a buffer: as many as a test machine has to spare, and its shadow beside it.
const MOST_BYTES: usize = 256 << 20;

/// Instructions of one warp: some seconds of emulation, and hundreds of times what a warp of flash
/// attention takes of the longest rows that are worth emulating.
const MOST_INSTRUCTIONS: u64 = 1 << 26;

/// How the emulator computes what the PTX ISA leaves open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numerics {
    approximation: Approximation,
    tensor_core: TensorCore,
}

const APPROXIMATIONS: [(&str, Approximation); 3] = [
    ("accurate", Approximation::Accurate),
    ("highest", Approximation::Highest),
    ("lowest", Approximation::Lowest),
];
const TENSOR_CORES: [(&str, TensorCore); 3] = [
    ("rounded", TensorCore::Rounded),
    ("ampere", TensorCore::AMPERE),
    ("hopper", TensorCore::HOPPER),
];

/// The policies of a manifest that names none.
pub(super) const USUAL_POLICIES: [&str; 3] =
    ["accurate-rounded", "highest-hopper", "lowest-ampere"];

impl Numerics {
    /// The policy of a name such as `highest-hopper`.
    pub(super) fn find(name: &str) -> Option<Self> {
        let (approximation, tensor_core) = name.split_once('-')?;
        let (_, approximation) = APPROXIMATIONS.into_iter().find(|(it, _)| *it == approximation)?;
        let (_, tensor_core) = TENSOR_CORES.into_iter().find(|(it, _)| *it == tensor_core)?;
        Some(Self { approximation, tensor_core })
    }

    /// The names of all policies.
    pub(super) fn names() -> Vec<String> {
        let of = |(first, _)| TENSOR_CORES.map(|(second, _)| format!("{first}-{second}"));
        APPROXIMATIONS.into_iter().flat_map(of).collect()
    }
}

/// The emulator, with the modules that it has read and the buffers of a case.
pub(super) struct Emulator {
    policies: Vec<(String, Numerics)>,
    policy: usize,
    seed: u64,
    /// Launches since the case began: each takes its turns in another order.
    launches: u64,
    modules: BTreeMap<PathBuf, Module>,
    memory: Memory,
    pointers: BTreeMap<u64, Pointer>,
    counts: Counts,
}

impl Emulator {
    /// An emulator that computes in these ways; at least one.
    pub(super) fn new(policies: Vec<(String, Numerics)>) -> Self {
        Self {
            policies,
            policy: 0,
            seed: 0,
            launches: 0,
            modules: BTreeMap::new(),
            memory: Memory::new(),
            pointers: BTreeMap::new(),
            counts: Counts::default(),
        }
    }

    fn options(&self) -> Options {
        let chosen = self.policies.get(self.policy).map(|(_, numerics)| *numerics);
        let policy =
            chosen.map_or_else(Policy::default, |Numerics { approximation, tensor_core }| Policy {
                approximation,
                tensor_core,
            });
        let seed = Some(self.seed.wrapping_add(self.launches));
        Options { policy, seed, instruction_limit: MOST_INSTRUCTIONS, ..Options::default() }
    }

    fn hold(&mut self, name: &str, bytes: usize, pointer: Pointer) -> u64 {
        self.counts.buffers.insert(name.to_owned(), bytes);
        self.pointers.insert(pointer.address(), pointer);
        pointer.address()
    }
}

impl Machine for Emulator {
    fn policies(&self) -> Vec<String> {
        self.policies.iter().map(|(name, _)| name.clone()).collect()
    }

    fn begin(&mut self, policy: usize, seed: u64) {
        (self.policy, self.seed, self.launches) = (policy, seed, 0);
    }

    fn most_bytes(&self) -> usize {
        MOST_BYTES
    }

    fn load(&mut self, file: &Path) -> Result<(), Failure> {
        if self.modules.contains_key(file) {
            return Ok(());
        }
        let name = file.display();
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::Reported(format!("cannot read '{name}': {error}")))?;
        let module = Module::parse(&text).map_err(|error| {
            let refused = matches!(
                error.reason,
                Reason::Instruction(_)
                    | Reason::Directive(_)
                    | Reason::Modifier { .. }
                    | Reason::Unsupported(_)
                    | Reason::TooLarge { .. }
            );
            if refused {
                Failure::Unsupported(format!("by the emulator, in '{name}': {error}"))
            } else {
                Failure::Reported(format!("'{name}' is no PTX text: {error}"))
            }
        })?;
        self.modules.insert(file.to_owned(), module);
        Ok(())
    }

    fn clear(&mut self) {
        self.memory = Memory::new();
        self.pointers.clear();
        self.counts = Counts::default();
    }

    fn upload(&mut self, name: &str, contents: &[u8]) -> Result<u64, Failure> {
        let pointer = self.memory.upload(name, contents);
        Ok(self.hold(name, contents.len(), pointer))
    }

    fn allocate(&mut self, name: &str, bytes: usize) -> Result<u64, Failure> {
        let pointer = self.memory.allocate(name, bytes);
        Ok(self.hold(name, bytes, pointer))
    }

    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), Failure> {
        self.load(launch.file)?;
        let options = self.options();
        self.launches += 1;
        let Launch { key, file, entry, grid, block, shared, ref arguments } = *launch;
        let called = || format!("{key}, entry '{entry}' of '{}'", file.display());
        let Some(module) = self.modules.get(file) else {
            return Err(Failure::Environment(format!("{}: not loaded", called())));
        };
        let launch = flashproof_ptx::Launch {
            grid,
            block,
            dynamic_shared: shared as usize,
            arguments: arguments.iter().cloned().map(Argument::Bytes).collect(),
        };
        match run(module, entry, &launch, &self.memory, &options) {
            Ok(statistics) => {
                let fixed = module.entry(entry).map_or(0, flashproof_ptx::Entry::static_shared);
                let shared = fixed + shared as usize;
                self.counts.launches.push(LaunchCounts { key: key.to_owned(), shared, statistics });
                Ok(())
            }
            Err(RunError::Launch(error)) => {
                Err(Failure::Reported(format!("{}: {error}", called())))
            }
            Err(RunError::Fault(fault)) => Err(failure_of(called(), &fault)),
        }
    }

    fn read(&self, address: u64) -> Result<Contents, Failure> {
        let pointer = self.pointers.get(&address);
        let read = pointer.and_then(|&it| Some((self.memory.read(it)?, self.memory.written(it)?)));
        let nothing = || Failure::Environment(format!("no buffer begins at {address:#x}"));
        let (bytes, written) = read.ok_or_else(nothing)?;
        Ok(Contents { bytes, written: Some(written) })
    }

    fn counts(&self) -> Option<&Counts> {
        Some(&self.counts)
    }
}
