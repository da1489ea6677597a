//! What launches run on: the emulator, or a device.

use std::path::Path;

use super::counts::Counts;
use crate::adapter::Failure;

/// What a byte holds that nothing has written: NaN in every format that is made of such bytes alone.
pub(super) const UNWRITTEN: u8 = 0xff;

/// A device with memory of its own, or what stands for one.
pub trait Machine: Send {
    /// The ways in which it computes what the PTX ISA leaves open, by name; none where there is one
    /// way, the device's own.
    fn policies(&self) -> Vec<String>;

    /// Prepares for a case: until the next call, launches run under that policy, and in an order that
    /// is drawn from the seed.
    fn begin(&mut self, policy: usize, seed: u64);

    /// Bytes that a buffer may have.
    fn most_bytes(&self) -> usize;

    /// Reads the text of a module, and keeps it.
    ///
    /// # Errors
    /// [`Failure::Unsupported`] where it holds something that this machine does not run, others where
    /// it can not be read.
    fn load(&mut self, file: &Path) -> Result<(), Failure>;

    /// Frees every buffer.
    fn clear(&mut self);

    /// A buffer with these bytes, at an address that is a multiple of 256.
    ///
    /// # Errors
    /// Where the machine has no room.
    fn upload(&mut self, name: &str, contents: &[u8]) -> Result<u64, Failure>;

    /// A buffer that the kernel has to write before it reads it. Every byte of it is [`UNWRITTEN`].
    ///
    /// # Errors
    /// Where the machine has no room.
    fn allocate(&mut self, name: &str, bytes: usize) -> Result<u64, Failure>;

    /// Launches an entry and waits for its end.
    ///
    /// # Errors
    /// [`Failure::Device`] where the kernel is seen at fault, [`Failure::Reported`] where the launch
    /// does not fit the entry, others as the machine finds.
    fn launch(&mut self, launch: &Launch<'_>) -> Result<(), Failure>;

    /// What the buffer that begins at the address holds.
    ///
    /// # Errors
    /// Where none does.
    fn read(&self, address: u64) -> Result<Contents, Failure>;

    /// What was done since buffers were last freed; `None` where the machine does not count it.
    fn counts(&self) -> Option<&Counts> {
        None
    }
}

/// A launch, ready to go.
#[derive(Debug)]
pub struct Launch<'a> {
    /// Which launch of the manifest it is, for messages.
    pub key: &'a str,
    /// The text of the module.
    pub file: &'a Path,
    /// The entry's name.
    pub entry: &'a str,
    /// Blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y and z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The bytes of each argument.
    pub arguments: Vec<Vec<u8>>,
}

/// What a buffer holds.
#[derive(Debug)]
pub struct Contents {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Of each byte, whether it has been written; `None` where the machine does not follow it.
    pub written: Option<Vec<bool>>,
}
