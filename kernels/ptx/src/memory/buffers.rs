//! Which buffers a launch works on: the host's side of device memory.

use std::sync::atomic::{AtomicU64, Ordering};

use super::address::{Region, buffer, region};

/// An address in device memory, as [`Memory`] hands it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pointer(pub(crate) u64);

impl Pointer {
    /// The number that a kernel sees.
    #[must_use]
    pub const fn address(self) -> u64 {
        self.0
    }
}

/// Buffers of device memory.
///
/// Buffers lie far apart: an access outside the one it was meant for meets no other. Each starts at a
/// multiple of 2^36.
#[derive(Debug, Default)]
pub struct Memory {
    pub(crate) buffers: Vec<Buffer>,
}

/// One buffer: its bytes in words of eight, so that blocks on several threads may share it.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub(crate) name: String,
    pub(crate) bytes: usize,
    pub(crate) words: Vec<AtomicU64>,
    /// One bit a byte that has been written; `None` where all have.
    pub(crate) written: Option<Vec<AtomicU64>>,
}

impl Buffer {
    pub(crate) fn with_contents(name: &str, contents: &[u8]) -> Self {
        let words = contents
            .chunks(8)
            .map(|chunk| {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                AtomicU64::new(u64::from_le_bytes(word))
            })
            .collect();
        Self { name: name.to_owned(), bytes: contents.len(), words, written: None }
    }

    fn contents(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> =
            self.words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        bytes.truncate(self.bytes);
        bytes
    }
}

/// What an uninitialised byte holds: as a float of any width, NaN.
const POISON: u64 = u64::MAX;

impl Memory {
    /// No buffers.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A buffer with these bytes; `name` is what faults call it.
    pub fn upload(&mut self, name: &str, contents: &[u8]) -> Pointer {
        self.push(Buffer::with_contents(name, contents))
    }

    /// A buffer of so many bytes, none of them initialised: a kernel that reads one before it is
    /// written is at fault.
    pub fn allocate(&mut self, name: &str, bytes: usize) -> Pointer {
        let fill = |count: usize, word: u64| (0..count).map(|_| AtomicU64::new(word)).collect();
        self.push(Buffer {
            name: name.to_owned(),
            bytes,
            words: fill(bytes.div_ceil(8), POISON),
            written: Some(fill(bytes.div_ceil(64), 0)),
        })
    }

    fn push(&mut self, new: Buffer) -> Pointer {
        let pointer = Pointer(buffer(self.buffers.len()));
        self.buffers.push(new);
        pointer
    }

    fn at(&self, pointer: Pointer) -> Option<&Buffer> {
        match region(pointer.0) {
            Region::Buffer(index, 0) => self.buffers.get(index),
            _ => None,
        }
    }

    /// The bytes of a buffer; what was never written reads as `0xff`. `None` where no buffer begins.
    #[must_use]
    pub fn read(&self, pointer: Pointer) -> Option<Vec<u8>> {
        self.at(pointer).map(Buffer::contents)
    }

    /// A buffer as `f32` numbers, a rest of less than four bytes left out.
    #[must_use]
    pub fn read_f32(&self, pointer: Pointer) -> Option<Vec<f32>> {
        let bytes = self.read(pointer)?;
        let (numbers, _) = bytes.as_chunks::<4>();
        Some(numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Bytes of a buffer that no launch has written, of those that were uninitialised.
    #[must_use]
    pub fn unwritten(&self, pointer: Pointer) -> Option<usize> {
        let buffer = self.at(pointer)?;
        let written = buffer.written.as_ref().map_or(buffer.bytes, |words| {
            words.iter().map(|word| word.load(Ordering::Relaxed).count_ones() as usize).sum()
        });
        Some(buffer.bytes - written)
    }

    /// Of each byte of a buffer, whether it was there from the start or a launch has written it.
    #[must_use]
    pub fn written(&self, pointer: Pointer) -> Option<Vec<bool>> {
        let buffer = self.at(pointer)?;
        let is_written = |words: &Vec<AtomicU64>, byte: usize| {
            words[byte / 64].load(Ordering::Relaxed) >> (byte % 64) & 1 == 1
        };
        let of = |byte| buffer.written.as_ref().is_none_or(|words| is_written(words, byte));
        Some((0..buffer.bytes).map(of).collect())
    }
}
