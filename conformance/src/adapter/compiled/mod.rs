//! `ptx:MANIFEST` and `cuda:MANIFEST`: compiled kernels, launched as a manifest tells (`MANIFEST.md`).

mod counts;
mod device;
mod emulator;
mod expression;
mod fault;
mod machine;
mod manifest;
mod pack;
mod padded;
mod pass;
mod reader;
mod text;
mod variables;

use std::path::Path;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};

use super::exec::protocol::Operation;
use super::{Backward, Choices, Failure, Guarantees, Subject, check_case, check_cotangents};
use device::RealDevice;
use emulator::{Emulator, Numerics};
use machine::Machine;
use manifest::Manifest;
use padded::Padding;
use pass::{Pass, file_of};

pub use counts::{Counts, LaunchCounts};
pub use fault::DeviceFault;
pub use manifest::{ManifestError, ManifestFault};

/// A kernel that a manifest describes, on a machine.
pub struct Compiled {
    /// The scheme and the manifest's path.
    reached: String,
    /// The name, with what was chosen.
    name: String,
    manifest: Manifest,
    /// Where there is none, why.
    machine: Result<Box<dyn Machine>, String>,
    /// The number of the policy that answers are given under.
    policy: usize,
    /// The seed asked for, in place of one for each case.
    seed: Option<u64>,
}

/// What stands behind the `?` of a name, as in `ptx:kernel.toml?policy=highest-hopper&seed=7`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Choice {
    policy: Option<String>,
    seed: Option<u64>,
}

impl Choice {
    fn parse(text: &str) -> Result<Self, ManifestFault> {
        let mut choice = Self::default();
        for part in text.split('&') {
            let wrong = |expected: &str| ManifestFault::Value {
                key: "what follows the ?".to_owned(),
                found: part.to_owned(),
                expected: expected.to_owned(),
            };
            match part.split_once('=') {
                Some(("policy", name)) if Numerics::find(name).is_some() => {
                    choice.policy = Some(name.to_owned());
                }
                Some(("policy", _)) => {
                    let names = Numerics::names().join(", ");
                    return Err(wrong(&format!("policy= and one of {names}")));
                }
                Some(("seed", seed)) => {
                    choice.seed = Some(seed.parse().map_err(|_| wrong("seed= and a number"))?);
                }
                _ => return Err(wrong("policy=NAME or seed=NUMBER")),
            }
        }
        Ok(choice)
    }
}

impl Compiled {
    /// Kernels in the emulator: `ptx:` and what `spec` names, a path and choices.
    ///
    /// # Errors
    /// Names the file, the key in it, what it holds and what was expected; and the instruction where
    /// the emulator refuses one.
    pub fn emulated(spec: &str) -> Result<Self, ManifestError> {
        Self::open("ptx", spec, |manifest, choice| {
            let mut policies = manifest.policies.clone();
            if let Some(name) = &choice.policy {
                policies = Numerics::find(name).map(|it| (name.clone(), it)).into_iter().collect();
            }
            let mut machine = Emulator::new(policies);
            machine.begin(0, choice.seed.unwrap_or(0));
            Ok(Box::new(machine))
        })
    }

    /// Kernels on the first device that the CUDA driver shows: `cuda:` and what `spec` names, a path.
    /// Without a driver or a device every case is unsupported, and so is every format.
    ///
    /// # Errors
    /// As [`Compiled::emulated`]; the driver takes the part of the emulator.
    pub fn on_device(spec: &str) -> Result<Self, ManifestError> {
        if let Some((path, choice)) = spec.split_once('?') {
            let fault = ManifestFault::Value {
                key: "what follows the ?".to_owned(),
                found: choice.to_owned(),
                expected: "nothing: a device computes in its own way and order".to_owned(),
            };
            return Err(ManifestError { file: path.to_owned(), fault });
        }
        Self::open("cuda", spec, |_, _| match RealDevice::open() {
            Ok(device) => Ok(Box::new(device)),
            Err(error) => Err(error.to_string()),
        })
    }

    /// What the launches of the last case did; `None` where the machine does not count it.
    #[must_use]
    pub fn counts(&self) -> Option<&Counts> {
        self.machine.as_ref().ok()?.counts()
    }

    /// Bytes of the scratch buffers of the last case; `None` where the machine does not count them.
    #[must_use]
    pub fn scratch_bytes(&self) -> Option<usize> {
        let buffers = &self.counts()?.buffers;
        Some(self.manifest.scratch.iter().filter_map(|(name, _)| buffers.get(name)).sum())
    }

    fn open(
        scheme: &str,
        spec: &str,
        machine: impl FnOnce(&Manifest, &Choice) -> Result<Box<dyn Machine>, String>,
    ) -> Result<Self, ManifestError> {
        let (path, choice) = match spec.split_once('?') {
            None => (spec, Ok(Choice::default())),
            Some((path, choice)) => (path, Choice::parse(choice)),
        };
        let error = |fault| ManifestError { file: path.to_owned(), fault };
        let choice = choice.map_err(error)?;
        let manifest = Manifest::read(Path::new(path))?;
        let mut machine = machine(&manifest, &choice);
        if let Ok(machine) = &mut machine {
            load_constant(&manifest, machine.as_mut()).map_err(error)?;
        }
        Ok(Self {
            reached: format!("{scheme}:{path}"),
            name: format!("{scheme}:{spec}"),
            manifest,
            machine,
            policy: 0,
            seed: choice.seed,
        })
    }

    /// What the manifest declares of a problem's format, once the pass is seen to be offered.
    fn offered(&self, problem: &Problem, operation: Operation) -> Result<Profile, Failure> {
        if !self.manifest.declaration.operations.contains(&operation) {
            let name = operation.name();
            return Err(Failure::Unsupported(format!("{name} is not among its operations")));
        }
        self.declared(problem.format)
    }

    /// How heads are filled up, where they are.
    fn padding(&self, problem: &Problem) -> Result<Option<Padding>, Failure> {
        match self.manifest.padding {
            Some(padding) if !padding.holds(problem) => {
                let Padding { head_dim, value_dim } = padding;
                let what = format!(
                    "heads of more than {head_dim} entries, or values of more than {value_dim}"
                );
                Err(Failure::Unsupported(what))
            }
            padding => Ok(padding),
        }
    }

    fn pass<'a>(
        &'a mut self,
        problem: &'a Problem,
        lse_format: Format,
        cotangents: Option<&Cotangents>,
    ) -> Result<Pass<'a>, Failure> {
        let machine = self.machine.as_mut().map_err(|why| Failure::Unsupported(why.clone()))?;
        Pass::begin(&self.manifest, machine.as_mut(), problem, lse_format, cotangents)
    }

    fn declared(&self, format: Format) -> Result<Profile, Failure> {
        if let Err(why) = &self.machine {
            return Err(Failure::Unsupported(why.clone()));
        }
        let policies = self.policies();
        self.manifest.profile(format, policies.get(self.policy).map(String::as_str))
    }
}

/// Reads the files that every problem needs, at once.
fn load_constant(manifest: &Manifest, machine: &mut dyn Machine) -> Result<(), ManifestFault> {
    for launch in manifest.launches() {
        if let Some(file) = launch.ptx.constant() {
            machine.load(&file_of(manifest, &file)).map_err(|failure| {
                let (key, reason) = (format!("{}.ptx", launch.key), failure.to_string());
                ManifestFault::Module { key, reason }
            })?;
        }
    }
    Ok(())
}

impl Subject for Compiled {
    fn name(&self) -> &str {
        &self.name
    }

    fn description(&self) -> &str {
        &self.manifest.declaration.name
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.declared(format)
    }

    fn choices(&self) -> Choices {
        self.manifest.declaration.choices
    }

    fn guarantees(&self) -> Guarantees {
        self.manifest.declaration.guarantees
    }

    fn policies(&self) -> Vec<String> {
        self.machine.as_ref().map_or_else(|_| Vec::new(), |machine| machine.policies())
    }

    fn begin(&mut self, policy: usize, seed: u64) -> String {
        self.policy = policy;
        let seed = self.seed.unwrap_or(seed);
        if let Ok(machine) = &mut self.machine {
            machine.begin(policy, seed);
        }
        match self.policies().get(policy) {
            Some(policy) => format!("{}?policy={policy}&seed={seed}", self.reached),
            None => self.name.clone(),
        }
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        check_case(problem, inputs)?;
        let Profile { lse_format, .. } = self.offered(problem, Operation::Forward)?;
        let Some(padding) = self.padding(problem)? else {
            return self.pass(problem, lse_format, None)?.forward(inputs);
        };
        let wide = padding.problem(problem);
        let outputs = self.pass(&wide, lse_format, None)?.forward(&padding.inputs(inputs))?;
        Ok(padded::outputs(problem, &outputs))
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        check_case(problem, inputs)?;
        let Profile { lse_format, .. } = self.offered(problem, Operation::Backward)?;
        check_cotangents(problem, cotangents, lse_format)?;
        let Some(padding) = self.padding(problem)? else {
            return self.pass(problem, lse_format, Some(cotangents))?.backward(inputs, cotangents);
        };
        let (wide, cotangents) = (padding.problem(problem), padding.cotangents(cotangents));
        let pass = self.pass(&wide, lse_format, Some(&cotangents))?;
        let passes = pass.backward(&padding.inputs(inputs), &cotangents)?;
        Ok(padded::backward(problem, &passes))
    }
}
