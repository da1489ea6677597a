//! The part of a buffer's file that is written and read: its elements, and guards around them.

use std::collections::BTreeSet;
use std::io::{Read, Seek};
use std::ops::Range;

use flashproof_spec::format::Format;
use flashproof_spec::layout::{Buffer, Placed};
use flashproof_spec::problem::Problem;

use super::codec::{decode, encode, poison};
use super::{Archive, ReadError, Span, SparseTensor};

/// A buffer of no more bytes is written and read whole.
const WHOLE_BYTES: usize = 1 << 24;

/// Elements on either side of an element that are guarded in a longer buffer.
const GUARD: usize = 64;

/// Where elements of a tensor stand in its buffer, and which places around them are guarded.
///
/// A guarded place holds [poison](super::poison): throughout a buffer of up to 16 MiB, and within 64
/// elements of an element in a longer one, the rest of which is a hole of zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    format: Format,
    len: usize,
    owned: BTreeSet<usize>,
    spans: Vec<Range<usize>>,
}

impl Footprint {
    /// That of a tensor under a problem's layout.
    ///
    /// # Panics
    /// When the problem is not valid: [`Problem::validate`] it first.
    #[must_use]
    pub fn of(problem: &Problem, placed: Placed, format: Format) -> Self {
        let len = problem.buffer_len(placed);
        let owned: BTreeSet<_> = problem.owned(placed).map(|(_, offset)| offset).collect();
        let spans = if len.saturating_mul(format.bytes()) <= WHOLE_BYTES {
            std::iter::once(0..len).collect()
        } else {
            guarded(&owned, len)
        };
        Self { format, len, owned, spans }
    }

    /// The tensor to write for a buffer: what was written to it, among poison.
    #[must_use]
    pub fn tensor(&self, name: &'static str, buffer: &Buffer) -> SparseTensor {
        let size = self.format.bytes();
        let spans = self.spans.iter().map(|span| {
            let mut bytes = poison(self.format).repeat(span.len());
            for (offset, value) in buffer.written_within(span.clone()) {
                let element = encode(self.format, std::iter::once(value));
                let at = (offset - span.start) * size;
                bytes[at..at + size].copy_from_slice(&element);
            }
            Span { start: span.start, bytes }
        });
        SparseTensor { name, format: self.format, shape: vec![self.len], spans: spans.collect() }
    }

    /// The tensor to write for a buffer that is poison throughout.
    #[must_use]
    pub fn poisoned(&self, name: &'static str) -> SparseTensor {
        self.tensor(name, &Buffer::poisoned(self.format, self.len))
    }

    /// Reads the elements that stand in a file's buffer. The first guarded place that no longer holds
    /// poison, where there is one, comes with them.
    ///
    /// # Errors
    /// [`ReadError`] where the file can not be read.
    pub fn read<R: Read + Seek>(
        &self,
        archive: &mut Archive<R>,
        tensor: &str,
    ) -> Result<(Buffer, Option<usize>), ReadError> {
        let mut buffer = Buffer::poisoned(self.format, self.len);
        let mut disturbed = None;
        for span in &self.spans {
            let bytes = archive.span(tensor, span.clone())?;
            let elements = bytes.chunks_exact(self.format.bytes());
            for ((offset, element), value) in
                span.clone().zip(elements).zip(decode(self.format, &bytes))
            {
                if self.owned.contains(&offset) {
                    buffer.write(offset, value);
                } else if disturbed.is_none() && element != poison(self.format) {
                    disturbed = Some(offset);
                }
            }
        }
        Ok((buffer, disturbed))
    }
}

/// The places within [`GUARD`] of an element, as ascending ranges that do not touch.
fn guarded(owned: &BTreeSet<usize>, len: usize) -> Vec<Range<usize>> {
    let mut spans: Vec<Range<usize>> = Vec::new();
    for &offset in owned {
        let span = offset.saturating_sub(GUARD)..offset.saturating_add(GUARD + 1).min(len);
        match spans.last_mut() {
            Some(last) if span.start <= last.end => last.end = span.end,
            _ => spans.push(span),
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guards_reach_from_each_element_and_merge() {
        let owned = [0, 1, 2 * GUARD + 2, 1000, 4999].into();
        let expected = [0..3 * GUARD + 3, 1000 - GUARD..1001 + GUARD, 4999 - GUARD..5000];
        assert_eq!(guarded(&owned, 5000), expected);
        let apart = [0, 2 * GUARD + 2].into();
        assert_eq!(guarded(&apart, 5000), [0..GUARD + 1, GUARD + 2..3 * GUARD + 3]);
        assert_eq!(guarded(&BTreeSet::new(), 5000), []);
    }
}
