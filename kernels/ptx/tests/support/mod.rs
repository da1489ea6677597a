//! Attention kernels among the fixtures: how each is launched, and what it must give.

#![allow(dead_code)] // each test uses a part

pub mod reference;

use flashproof_ptx::{
    Argument, Launch, Memory, Module, Options, Pointer, RunError, Statistics, run,
};
use half::{bf16, f16};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Entries of a head, as all fixtures have it.
pub const HEAD_DIM: usize = 64;
/// Rows and columns of a tile.
pub const TILE: usize = 64;
/// Softmax scale.
pub const SCALE: f32 = 0.125;

/// Format of the inputs of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Format {
    F16,
    Bf16,
    F32,
}

impl Format {
    fn round(self, x: f32) -> f32 {
        match self {
            Self::F16 => f16::from_f32(x).to_f32(),
            Self::Bf16 => bf16::from_f32(x).to_f32(),
            Self::F32 => x,
        }
    }

    fn bytes(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F16 => values.iter().flat_map(|x| f16::from_f32(*x).to_le_bytes()).collect(),
            Self::Bf16 => values.iter().flat_map(|x| bf16::from_f32(*x).to_le_bytes()).collect(),
            Self::F32 => values.iter().flat_map(|x| x.to_le_bytes()).collect(),
        }
    }
}

/// A forward kernel among the fixtures.
#[derive(Clone, Copy, Debug)]
pub struct Forward {
    pub file: &'static str,
    pub entry: &'static str,
    pub format: Format,
}

/// All forward kernels that the emulator runs.
pub const FORWARD: [Forward; 5] = [
    Forward { file: "nvrtc_fwd_bf16_sm80", entry: "flash_fwd_bf16_d64", format: Format::Bf16 },
    Forward { file: "triton_fwd_bf16_sm80", entry: "fa_fwd", format: Format::Bf16 },
    Forward { file: "triton_fwd_f16_sm80", entry: "fa_fwd", format: Format::F16 },
    Forward { file: "triton_fwd_f32_sm80", entry: "fa_fwd", format: Format::F32 },
    Forward { file: "triton_fwd_bf16_sm90", entry: "fa_fwd", format: Format::Bf16 },
];

/// All backward kernels.
pub const BACKWARD: [&str; 2] = ["triton_bwd_bf16_sm80", "triton_bwd_bf16_sm90"];

/// The text of a fixture.
pub fn text(file: &str) -> String {
    let path = format!("{}/tests/data/{file}.ptx", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A fixture, parsed.
pub fn module(file: &str) -> Module {
    Module::parse(&text(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Inputs of causal attention of one head: `rows` rows of [`HEAD_DIM`] numbers of a format.
pub struct Inputs {
    pub rows: usize,
    pub format: Format,
    pub query: Vec<f32>,
    pub key: Vec<f32>,
    pub value: Vec<f32>,
    pub output_gradient: Vec<f32>,
}

impl Inputs {
    /// Numbers drawn evenly from `[-2, 2]` and rounded.
    pub fn new(rows: usize, format: Format, seed: u64) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = || -> Vec<f32> {
            (0..rows * HEAD_DIM)
                .map(|_| format.round(random.random_range(-2.0_f32..=2.0)))
                .collect()
        };
        let (query, key, value, output_gradient) = (draw(), draw(), draw(), draw());
        Self { rows, format, query, key, value, output_gradient }
    }
}

/// What a forward kernel gave.
pub struct Outputs {
    pub output: Vec<f32>,
    pub lse: Vec<f32>,
    pub statistics: Statistics,
}

/// Runs a forward kernel of a module.
pub fn forward(
    module: &Module,
    kernel: Forward,
    inputs: &Inputs,
    options: &Options,
) -> Result<Outputs, RunError> {
    let (mut memory, rows) = (Memory::new(), inputs.rows);
    let query = memory.upload("query", &inputs.format.bytes(&inputs.query));
    let key = memory.upload("key", &inputs.format.bytes(&inputs.key));
    let value = memory.upload("value", &inputs.format.bytes(&inputs.value));
    let output = memory.allocate("output", rows * HEAD_DIM * 4);
    let lse = memory.allocate("lse", rows * 4);
    let mut arguments: Vec<Argument> =
        [query, key, value, output, lse].map(Argument::Pointer).into();
    arguments.extend([Argument::U32(rows as u32), Argument::F32(SCALE)]);
    if kernel.entry == "fa_fwd" {
        // Elements between heads, and two pointers to scratch memory that is not used.
        let stride = (rows * HEAD_DIM) as u32;
        arguments.extend([Argument::U32(stride), Argument::U64(0), Argument::U64(0)]);
    } else {
        arguments.push(Argument::U32(1)); // causal
    }
    let launch = Launch {
        grid: [rows.div_ceil(TILE) as u32, 1, 1],
        block: [128, 1, 1],
        dynamic_shared: 64 << 10,
        arguments,
    };
    let statistics = run(module, kernel.entry, &launch, &memory, options)?;
    let read = |pointer: Pointer| memory.read_f32(pointer).expect("a buffer");
    assert_eq!(memory.unwritten(output), Some(0));
    Ok(Outputs { output: read(output), lse: read(lse), statistics })
}

/// What a backward kernel gave.
pub struct Gradients {
    pub query: Vec<f32>,
    pub key: Vec<f32>,
    pub value: Vec<f32>,
    pub statistics: Statistics,
}

/// Runs a backward kernel on the LSE and the row sums `D` given.
pub fn backward(
    module: &Module,
    inputs: &Inputs,
    (lse, delta): (&[f32], &[f32]),
    options: &Options,
) -> Result<Gradients, RunError> {
    let (mut memory, rows) = (Memory::new(), inputs.rows);
    let single = |values: &[f32]| Format::F32.bytes(values);
    let tensors = [
        memory.upload("query", &inputs.format.bytes(&inputs.query)),
        memory.upload("key", &inputs.format.bytes(&inputs.key)),
        memory.upload("value", &inputs.format.bytes(&inputs.value)),
        memory.upload("output gradient", &inputs.format.bytes(&inputs.output_gradient)),
        memory.upload("lse", &single(lse)),
        memory.upload("delta", &single(delta)),
        // The kernel adds to it.
        memory.upload("query gradient", &vec![0; rows * HEAD_DIM * 4]),
        memory.allocate("key gradient", rows * HEAD_DIM * 2),
        memory.allocate("value gradient", rows * HEAD_DIM * 2),
    ];
    let mut arguments: Vec<Argument> = tensors.map(Argument::Pointer).into();
    arguments.extend([Argument::U32(rows as u32), Argument::F32(SCALE)]);
    arguments.extend([Argument::U64(0), Argument::U64(0)]);
    let launch = Launch {
        grid: [rows.div_ceil(TILE) as u32, 1, 1],
        block: [128, 1, 1],
        dynamic_shared: 100 << 10,
        arguments,
    };
    let statistics = run(module, "fa_bwd", &launch, &memory, options)?;
    let halves = |pointer: Pointer| -> Vec<f32> {
        let bytes = memory.read(pointer).expect("a buffer");
        let (pairs, _) = bytes.as_chunks::<2>();
        pairs.iter().map(|pair| bf16::from_le_bytes(*pair).to_f32()).collect()
    };
    Ok(Gradients {
        query: memory.read_f32(tensors[6]).expect("a buffer"),
        key: halves(tensors[7]),
        value: halves(tensors[8]),
        statistics,
    })
}
