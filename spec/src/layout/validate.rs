//! Which layouts can not be posed.

use super::{Layout, Paged, Placed, Ragged, Strided, Strides};
use crate::problem::Problem;

/// A layout that does not fit its problem, or that no memory could have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)] // each variant's message is its documentation
pub enum LayoutError {
    #[error(
        "the last element of {tensor} stands at {}: expected it within a buffer of {elements} elements",
        at.map_or_else(|| "no offset of 64 bits".to_owned(), |at| format!("offset {at}"))
    )]
    Reach { tensor: &'static str, at: Option<usize>, elements: usize },
    #[error(
        "elements of {tensor} could share a place under strides {strides:?}: expected each stride to \
         exceed the reach of the shorter ones"
    )]
    Overlap { tensor: &'static str, strides: [usize; 4] },
    #[error("the buffer of {tensor} has more elements than can be addressed")]
    TooLarge { tensor: &'static str },
    #[error("{found} starts of {what} for a batch of {batch}: expected one each")]
    StartCount { what: &'static str, found: usize, batch: usize },
    #[error(
        "{length} {what} of batch member {member} from row {start}: expected them within {rows} rows"
    )]
    Rows { what: &'static str, member: usize, start: usize, length: usize, rows: usize },
    #[error("{what} of batch members {first} and {second} share row {row}")]
    SharedRow { what: &'static str, first: usize, second: usize, row: usize },
    #[error("the page size is 0: expected at least 1")]
    PageSize,
    #[error("{found} rows of the block table for a batch of {batch}: expected one each")]
    TableCount { found: usize, batch: usize },
    #[error(
        "{found} pages for the {keys} keys in use of batch member {member}: expected at least {expected}"
    )]
    TableShort { member: usize, found: usize, keys: usize, expected: usize },
    #[error(
        "entry {entry} of batch member {member}'s block table is page {page}: there are {pages}"
    )]
    Page { member: usize, entry: usize, page: usize, pages: usize },
}

impl Problem {
    /// Checks the layout of a problem whose shapes and mask are valid.
    pub(crate) fn validate_layout(&self) -> Result<(), LayoutError> {
        match &self.layout {
            Layout::Contiguous => {}
            Layout::Strided(strided) => self.validate_strided(strided)?,
            Layout::Ragged(ragged) => self.validate_ragged(ragged)?,
            Layout::Paged(paged) => self.validate_paged(paged)?,
        }
        // 8 bytes each is the most that any format takes
        let addressable =
            |len: usize| len.checked_mul(8).is_some_and(|bytes| isize::try_from(bytes).is_ok());
        match Placed::ALL
            .into_iter()
            .find(|&tensor| !self.checked_buffer_len(tensor).is_some_and(addressable))
        {
            None => Ok(()),
            Some(tensor) => Err(LayoutError::TooLarge { tensor: tensor.name() }),
        }
    }

    fn validate_strided(&self, strided: &Strided) -> Result<(), LayoutError> {
        let Strided { query, key, value, output } = strided;
        for (tensor, strides) in [
            (Placed::Query, query),
            (Placed::Key, key),
            (Placed::Value, value),
            (Placed::Output, output),
        ] {
            self.validate_reach(tensor, strides)?;
        }
        if output.separates(self.output_shape()) {
            Ok(())
        } else {
            Err(LayoutError::Overlap { tensor: Placed::Output.name(), strides: output.strides })
        }
    }

    fn validate_reach(&self, tensor: Placed, strides: &Strides) -> Result<(), LayoutError> {
        let shape = self.placed_shape(tensor);
        if shape.contains(&0) {
            return Ok(());
        }
        let elements = strides.elements;
        match strides.last(shape) {
            Some(at) if at < elements => Ok(()),
            at => Err(LayoutError::Reach { tensor: tensor.name(), at, elements }),
        }
    }

    fn validate_ragged(&self, ragged: &Ragged) -> Result<(), LayoutError> {
        let Ragged { query_starts, query_rows, key_starts, key_rows } = ragged;
        let used: Vec<_> = (0..self.batch).map(|member| self.used_lengths(member)).collect();
        let queries: Vec<_> = used.iter().map(|used| used.queries).collect();
        let keys: Vec<_> = used.iter().map(|used| used.keys).collect();
        validate_rows("queries", query_starts, &queries, *query_rows)?;
        validate_rows("keys", key_starts, &keys, *key_rows)
    }

    fn validate_paged(&self, paged: &Paged) -> Result<(), LayoutError> {
        let Paged { page_size, pages, block_table } = paged;
        if *page_size == 0 {
            return Err(LayoutError::PageSize);
        }
        if block_table.len() != self.batch {
            return Err(LayoutError::TableCount { found: block_table.len(), batch: self.batch });
        }
        for (member, table) in block_table.iter().enumerate() {
            let keys = self.used_lengths(member).keys;
            let (found, expected) = (table.len(), keys.div_ceil(*page_size));
            if found < expected {
                return Err(LayoutError::TableShort { member, found, keys, expected });
            }
            if let Some((entry, &page)) =
                table.iter().enumerate().find(|(_, page)| **page >= *pages)
            {
                return Err(LayoutError::Page { member, entry, page, pages: *pages });
            }
        }
        Ok(())
    }
}

/// Checks that the rows of each member exist, and that no two members share one.
fn validate_rows(
    what: &'static str,
    starts: &[usize],
    lengths: &[usize],
    rows: usize,
) -> Result<(), LayoutError> {
    if starts.len() != lengths.len() {
        let (found, batch) = (starts.len(), lengths.len());
        return Err(LayoutError::StartCount { what, found, batch });
    }
    let mut members: Vec<_> = starts.iter().zip(lengths).enumerate().collect();
    for &(member, (&start, &length)) in &members {
        if start.checked_add(length).is_none_or(|end| end > rows) {
            return Err(LayoutError::Rows { what, member, start, length, rows });
        }
    }
    members.retain(|&(_, (_, length))| *length > 0);
    members.sort_by_key(|&(_, (start, _))| *start);
    let shared = members.iter().zip(members.iter().skip(1)).find(|(first, second)| {
        let (start, length) = first.1;
        start + length > *second.1.0
    });
    match shared {
        None => Ok(()),
        Some((first, second)) => {
            Err(LayoutError::SharedRow { what, first: first.0, second: second.0, row: *second.1.0 })
        }
    }
}
