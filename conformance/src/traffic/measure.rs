//! One problem through a kernel, and what its launches counted.

use flashproof_ptx::Space;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use serde::Serialize;

use crate::adapter::compiled::{Compiled, Counts};
use crate::adapter::{Failure, Subject};
use crate::inputs::upstream::cotangents;
use crate::inputs::{Family, Scores, Upstream, generate};

/// A pass of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[allow(missing_docs)] // the variants are passes
pub enum Pass {
    Forward,
    Backward,
}

impl Pass {
    /// Its name, as in a manifest.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Forward => "forward",
            Self::Backward => "backward",
        }
    }
}

/// One head of as many queries as keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The format of its tensors.
    pub format: Format,
    /// Queries, and keys.
    pub length: usize,
    /// Entries of a query, key or value.
    pub head_dim: usize,
    /// Whether a query sees no later key.
    pub causal: bool,
}

impl Shape {
    /// The problem of this shape.
    #[must_use]
    pub fn problem(self) -> Problem {
        let Self { format, length, head_dim, causal } = self;
        let rules = if causal { vec![Rule::CausalBottomRight] } else { Vec::new() };
        Problem { mask: Mask { rules }, ..Problem::new(format, 1, length, head_dim) }
    }
}

/// What a pass over one length did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Point {
    /// Queries, and keys.
    pub length: usize,
    /// Bytes read from global memory.
    pub read: u64,
    /// Bytes written to it.
    pub written: u64,
    /// Bytes of the manifest's scratch buffers, those of both passes.
    pub scratch: u64,
    /// Bytes of all buffers: inputs, outputs and scratch.
    pub held: u64,
    /// Bytes of shared memory of a block, in the launch that has most.
    pub shared: u64,
    /// Instructions, once for each warp that executes one.
    pub warp_instructions: u64,
}

impl Point {
    /// Bytes read and written.
    #[must_use]
    pub const fn total(&self) -> u64 {
        self.read + self.written
    }
}

/// Puts a problem to the kernel and takes what one pass counted, and the format of its LSE.
pub(super) fn measure(
    kernel: &mut Compiled,
    shape: Shape,
    pass: Pass,
    seed: u64,
) -> Result<(Point, Format), Failure> {
    let problem = shape.problem();
    let environment = |error: String| Failure::Environment(error);
    problem.validate().map_err(|error| environment(error.to_string()))?;
    let lse_format = kernel.profile(shape.format)?.lse_format;
    let inputs = generate(&problem, Family::of(Scores::Normal), seed)
        .map_err(|error| environment(error.to_string()))?;
    kernel.begin(0, seed);
    match pass {
        Pass::Forward => {
            kernel.forward(&problem, &inputs)?;
        }
        Pass::Backward => {
            let cotangents = cotangents(&problem, Upstream::Output, lse_format, seed);
            kernel.backward(&problem, &inputs, &cotangents)?;
        }
    }
    let counted = kernel.counts().zip(kernel.scratch_bytes());
    let (counts, scratch) =
        counted.ok_or_else(|| environment("the machine does not count".to_owned()))?;
    Ok((point(shape.length, pass, counts, scratch as u64), lse_format))
}

fn point(length: usize, pass: Pass, counts: &Counts, scratch: u64) -> Point {
    let held = counts.buffers.values().sum::<usize>() as u64;
    let (read, written, shared, warp_instructions) = (0, 0, 0, 0);
    let mut point = Point { length, read, written, scratch, held, shared, warp_instructions };
    for launch in counts.launches.iter().filter(|launch| launch.key.starts_with(pass.name())) {
        let moved = launch.statistics.traffic_of(Space::Global);
        point.read += moved.read;
        point.written += moved.written;
        point.shared = point.shared.max(launch.shared as u64);
        point.warp_instructions += launch.statistics.instructions.warps;
    }
    point
}
