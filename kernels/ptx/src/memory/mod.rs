//! Memories: of the device, of a block and of a thread, and what is known of each of their bytes.

pub(crate) mod address;
mod buffers;
pub(crate) mod device;
pub(crate) mod local;
pub(crate) mod race;
pub(crate) mod shared;

pub use buffers::{Memory, Pointer};

/// A global variable of a module as a buffer of a launch.
pub(crate) fn module_buffer(variable: &crate::module::Variable) -> buffers::Buffer {
    buffers::Buffer::with_contents(&variable.name, &variable.bytes)
}
