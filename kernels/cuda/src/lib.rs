//! CUDA flash attention kernels, and what is needed to use them: from source to PTX, from PTX to the
//! resources that it takes, and from PTX to a launch on a device.
//!
//! - [`variants`]: which sources are compiled for which elements and head dims.
//! - [`Compiler`]: CUDA to PTX, by NVRTC. The results are committed, so that nobody else needs it.
//! - [`Assembler`] and [`Report`]: registers, spills and shared memory of each entry, by ptxas.
//! - [`Device`]: a launch on a real device.
//!
//! Nothing of CUDA is linked. Each library is looked for when it is first used, and one that is missing
//! is an error that says so.

mod assemble;
mod compile;
mod device;
mod report;
mod toolkit;
mod variant;

pub use assemble::{ARCHITECTURES, AssembleError, Assembler, NoAssembler, Usage};
pub use compile::{CompileError, Compiled, Compiler, NoCompiler, TARGET};
pub use device::{Buffer, Device, DeviceError, Launch, Module, NoDevice};
pub use report::{Report, ReportError, Row};
pub use toolkit::{BUILD, HOW_TO_INSTALL, Toolkit};
pub use variant::{Element, Variant, variants};

/// Folder of the CUDA sources, in the tree that this crate was built from.
pub const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/source");
/// Folder of the committed PTX, in the tree that this crate was built from.
pub const PTX: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/ptx");
/// The committed [`Report`], in the tree that this crate was built from.
pub const RESOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/RESOURCES.md");
