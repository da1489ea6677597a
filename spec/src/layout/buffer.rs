//! Memory that remembers what was written to it.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::format::Format;

/// A buffer of which some elements were written; the others are poison, and read as NaN.
///
/// It takes the memory of its written elements alone, so that a stride can lead far past 2^32 elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Buffer {
    format: Format,
    len: usize,
    written: BTreeMap<usize, f64>,
}

impl Buffer {
    /// A buffer of `len` elements of poison.
    #[must_use]
    pub const fn poisoned(format: Format, len: usize) -> Self {
        Self { format, len, written: BTreeMap::new() }
    }

    /// The format that every written element is representable in.
    #[must_use]
    pub const fn format(&self) -> Format {
        self.format
    }

    /// Elements, written or not.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The element at an offset: NaN where none was written.
    ///
    /// # Panics
    /// When the offset lies past the end, as that of a slice.
    #[must_use]
    pub fn read(&self, offset: usize) -> f64 {
        assert!(offset < self.len, "read at {offset} of a buffer of {} elements", self.len);
        self.written.get(&offset).copied().unwrap_or(f64::NAN)
    }

    /// Writes an element.
    ///
    /// # Panics
    /// When the offset lies past the end, or the buffer's format does not represent the value.
    pub fn write(&mut self, offset: usize, value: f64) {
        assert!(offset < self.len, "write at {offset} of a buffer of {} elements", self.len);
        assert!(self.format.represents(value), "{value} is no value of {}", self.format);
        self.written.insert(offset, value);
    }

    /// The written elements and their offsets, ascending.
    pub fn written(&self) -> impl Iterator<Item = (usize, f64)> {
        self.written.iter().map(|(&offset, &value)| (offset, value))
    }

    /// Those of them that stand within a range.
    ///
    /// # Panics
    /// When the range ends before it starts.
    pub fn written_within(&self, range: Range<usize>) -> impl Iterator<Item = (usize, f64)> {
        self.written.range(range).map(|(&offset, &value)| (offset, value))
    }

    /// Whether the element at an offset was written.
    #[must_use]
    pub fn is_written(&self, offset: usize) -> bool {
        self.written.contains_key(&offset)
    }
}
