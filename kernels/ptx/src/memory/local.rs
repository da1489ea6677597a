//! Memory of each thread of a warp.

/// Local memory of the 32 lanes of a warp.
pub(crate) struct Local {
    bytes: Vec<u8>,
    written: Vec<bool>,
    size: usize,
}

/// What is wrong with an access.
pub(crate) enum Wrong {
    Misaligned,
    OutOfBounds,
    Uninitialised,
}

impl Local {
    pub(crate) fn new(size: usize) -> Self {
        Self { bytes: vec![0xff; size * 32], written: vec![false; size * 32], size }
    }

    fn locate(&self, lane: usize, address: u64, bytes: usize) -> Result<usize, Wrong> {
        if !address.is_multiple_of(bytes as u64) {
            return Err(Wrong::Misaligned);
        }
        if address > self.size as u64 || address + bytes as u64 > self.size as u64 {
            return Err(Wrong::OutOfBounds);
        }
        Ok(lane * self.size + address as usize)
    }

    pub(crate) fn load(
        &self,
        lane: usize,
        address: u64,
        bytes: usize,
        check_written: bool,
    ) -> Result<[u8; 16], Wrong> {
        let at = self.locate(lane, address, bytes)?;
        if check_written && !self.written[at..at + bytes].iter().all(|written| *written) {
            return Err(Wrong::Uninitialised);
        }
        let mut value = [0; 16];
        value[..bytes].copy_from_slice(&self.bytes[at..at + bytes]);
        Ok(value)
    }

    pub(crate) fn store(
        &mut self,
        lane: usize,
        address: u64,
        bytes: usize,
        value: &[u8; 16],
    ) -> Result<(), Wrong> {
        let at = self.locate(lane, address, bytes)?;
        self.bytes[at..at + bytes].copy_from_slice(&value[..bytes]);
        self.written[at..at + bytes].fill(true);
        Ok(())
    }
}
