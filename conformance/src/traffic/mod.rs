//! What compiled kernels move through global memory and hold in it, counted in the emulator: bytes that
//! the program asks for, the same on every run and machine. Caches and time are in none of them.

mod error;
pub mod judge;
pub mod markdown;
pub mod measure;
pub mod plot;
pub mod text;
mod words;

use flashproof_spec::format::Format;
use serde::Serialize;

use crate::adapter::compiled::Compiled;
use crate::adapter::{Failure, Subject};
use crate::report::Outcome;
pub use error::TrafficError;
use judge::Judgement;
use measure::{Pass, Point, Shape};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Kernels, as `ptx:MANIFEST`.
    pub kernels: Vec<String>,
    /// Number formats, each once.
    pub formats: Vec<Format>,
    /// Lengths, in any order.
    pub lengths: Vec<usize>,
    /// Entries of a query, key or value.
    pub head_dim: usize,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// Whether the backward pass is measured, too.
    pub backward: bool,
    /// Seed of the inputs.
    pub seed: u64,
}

/// The longest length: longer ones take minutes to emulate.
pub const MOST_LENGTH: usize = 8192;
/// Growth is seen over this many lengths.
pub const LEAST_LENGTHS: usize = 3;

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Survey {
    /// The kernels, as they are reached.
    pub kernels: Vec<String>,
    /// The formats asked for.
    pub formats: Vec<Format>,
    /// Entries of a query, key or value.
    pub head_dim: usize,
    /// Whether a query sees no later key.
    pub causal: bool,
    /// The lengths, ascending.
    pub lengths: Vec<usize>,
    /// Seed of the inputs.
    pub seed: u64,
    /// Kernels, formats and passes that were measured.
    pub series: Vec<Series>,
    /// Those that were not.
    pub skipped: Vec<Skipped>,
}

/// One pass of a kernel in one format.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Series {
    /// The kernel, as it is reached.
    pub kernel: String,
    /// What it says it is.
    pub description: String,
    /// The format of its inputs.
    pub format: Format,
    /// The format of its LSE.
    pub lse_format: Format,
    /// Which pass.
    pub pass: Pass,
    /// A point for each length, ascending.
    pub points: Vec<Point>,
    /// What they come to.
    pub judgement: Judgement,
}

/// What a kernel does not offer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Skipped {
    /// The kernel, as it is reached.
    pub kernel: String,
    /// The format asked for.
    pub format: Format,
    /// The pass asked for.
    pub pass: Pass,
    /// Why.
    pub reason: String,
}

impl Survey {
    /// Passed where something was measured and nothing is violated.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        if self.series.is_empty() {
            Outcome::NothingChecked
        } else if self.series.iter().any(|series| series.judgement.is_violated()) {
            Outcome::Failed
        } else {
            Outcome::Passed
        }
    }
}

/// Measures every kernel in every format that it takes; `done` is called for each pass of each length.
///
/// # Errors
/// Where a kernel can not be reached or fails, and where lengths are too few, too long or repeated.
pub fn run(plan: &Plan, done: &dyn Fn()) -> Result<Survey, TrafficError> {
    let Plan { kernels, formats, head_dim, causal, seed, .. } = plan.clone();
    let lengths = checked(&plan.lengths)?;
    let mut survey = Survey {
        kernels,
        formats,
        head_dim,
        causal,
        lengths,
        seed,
        series: Vec::new(),
        skipped: Vec::new(),
    };
    for spec in &plan.kernels {
        let manifest = spec
            .strip_prefix("ptx:")
            .ok_or_else(|| TrafficError::NotCompiled { kernel: spec.clone() })?;
        let mut kernel = Compiled::emulated(manifest)?;
        for &format in &plan.formats {
            for &pass in plan.passes() {
                survey.add(&mut kernel, spec, format, pass, done)?;
            }
        }
    }
    Ok(survey)
}

impl Plan {
    /// The passes that are measured.
    #[must_use]
    pub const fn passes(&self) -> &'static [Pass] {
        if self.backward { &[Pass::Forward, Pass::Backward] } else { &[Pass::Forward] }
    }
}

impl Survey {
    /// Measures one pass of a kernel at every length.
    fn add(
        &mut self,
        subject: &mut Compiled,
        spec: &str,
        format: Format,
        pass: Pass,
        done: &dyn Fn(),
    ) -> Result<(), TrafficError> {
        let kernel = spec.to_owned();
        let shape = |length| Shape { format, length, head_dim: self.head_dim, causal: self.causal };
        let mut lse_format = Format::F32;
        let mut points = Vec::with_capacity(self.lengths.len());
        for &length in &self.lengths {
            match measure::measure(subject, shape(length), pass, self.seed) {
                Ok((point, format)) => {
                    points.push(point);
                    lse_format = format;
                }
                Err(Failure::Unsupported(reason)) => {
                    self.lengths[points.len()..].iter().for_each(|_| done());
                    self.skipped.push(Skipped { kernel, format, pass, reason });
                    return Ok(());
                }
                Err(failure) => {
                    return Err(TrafficError::Kernel { kernel, format, length, failure });
                }
            }
            done();
        }
        let judgement = judge::judge(pass, shape(0), lse_format, &points);
        let description = subject.description().to_owned();
        self.series.push(Series {
            kernel,
            description,
            format,
            lse_format,
            pass,
            points,
            judgement,
        });
        Ok(())
    }
}

fn checked(lengths: &[usize]) -> Result<Vec<usize>, TrafficError> {
    let mut ascending = lengths.to_vec();
    ascending.sort_unstable();
    if let Some(&found) = ascending.iter().find(|length| !(1..=MOST_LENGTH).contains(*length)) {
        return Err(TrafficError::Length { found });
    }
    if let Some(pair) = ascending.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(TrafficError::Repeated { length: pair[0] });
    }
    if ascending.len() < LEAST_LENGTHS {
        return Err(TrafficError::TooFew { found: ascending.len() });
    }
    Ok(ascending)
}
