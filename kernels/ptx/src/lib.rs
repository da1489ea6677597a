//! A functional emulator of PTX, the assembly language of CUDA and Triton kernels, that checks what it
//! runs.
//!
//! [`Module::parse`] reads a text into a typed instruction set and refuses, with line and statement,
//! whatever it does not know: nothing is ignored. [`run`] executes a launch block by block on CPU
//! threads, and reports as a [`Fault`], with instruction and thread, what a device would let pass or
//! answer at random: accesses out of bounds or misaligned, reads of uninitialised memory, races in
//! shared memory and between blocks, barriers that not all threads reach, deadlocks, and operands of
//! asynchronous copies and matrix products touched before they are waited for.
//!
//! Results are those of the PTX ISA; where it leaves them open, a [`Policy`] chooses: approximate
//! instructions are accurate or as wrong as documented, matrix instructions round once or truncate as
//! tensor cores do.
//!
//! It is not a model of time, caches or power, and knows nothing of clusters, textures, functions,
//! the tensor memory accelerator or tcgen05.
//!
//! ```
//! use flashproof_ptx::{Argument, Launch, Memory, Module, Options, run};
//!
//! let module = Module::parse(
//!     ".version 8.0
//!      .target sm_80
//!      .address_size 64
//!      .visible .entry double(.param .u64 p) {
//!          .reg .b32 %r<3>;
//!          .reg .b64 %rd<4>;
//!          ld.param.u64 %rd1, [p];
//!          mov.u32 %r1, %tid.x;
//!          mul.wide.u32 %rd2, %r1, 4;
//!          add.s64 %rd3, %rd1, %rd2;
//!          ld.global.u32 %r2, [%rd3];
//!          shl.b32 %r2, %r2, 1;
//!          st.global.u32 [%rd3], %r2;
//!          ret;
//!      }",
//! )?;
//! let mut memory = Memory::new();
//! let numbers: Vec<u8> = (0..64_u32).flat_map(u32::to_le_bytes).collect();
//! let pointer = memory.upload("numbers", &numbers);
//! let launch = Launch {
//!     grid: [1, 1, 1],
//!     block: [64, 1, 1],
//!     dynamic_shared: 0,
//!     arguments: vec![Argument::Pointer(pointer)],
//! };
//! run(&module, "double", &launch, &memory, &Options::default())?;
//! let doubled: Vec<u8> = (0..64_u32).flat_map(|n| (2 * n).to_le_bytes()).collect();
//! assert_eq!(memory.read(pointer), Some(doubled));
//!
//! // One thread too many reads past the end.
//! let launch = Launch { block: [65, 1, 1], ..launch };
//! let error = run(&module, "double", &launch, &memory, &Options::default()).unwrap_err();
//! assert!(error.to_string().contains("out of bounds"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod error;
mod exec;
mod fault;
mod flow;
mod isa;
mod launch;
mod memory;
mod module;
mod numerics;
mod parse;
mod statistics;

pub use error::{LONGEST_TEXT, ParseError, Reason};
pub use exec::run;
pub use fault::{Access, Fault, FaultKind, Place, Site, Waiting};
pub use isa::operand::Space;
pub use launch::{
    Argument, Checks, Launch, LaunchError, MOST_BLOCKS, MOST_SHARED, Options, RunError,
};
pub use memory::{Memory, Pointer};
pub use module::{Entry, Module, Parameter};
pub use numerics::{Approximation, Policy, TensorCore};
pub use statistics::{Executed, Statistics, Traffic};
