//! Where the elements of a problem's tensors stand in memory.
//!
//! Offsets and strides count elements. Bias, sinks and the request's patterns are always dense and
//! row-major; query, key, value, output and their gradients follow the layout, and so does the LSE
//! where rows are [ragged](Ragged).
//!
//! | file | what it answers |
//! |---|---|
//! | `place.rs` | where an element stands, and whether it stands anywhere |
//! | `validate.rs` | which layouts can not be posed |
//! | `strides.rs` | the strides of the layouts that have a name |
//! | `buffer.rs` | the elements of a buffer that were written, and poison everywhere else |
//! | `stored.rs` | tensors in buffers, and back |

mod buffer;
mod place;
mod stored;
mod strides;
mod validate;

use serde::{Deserialize, Serialize};

pub use buffer::Buffer;
pub use place::Placed;
pub use stored::{StoreError, StoredCotangents, StoredGradients, StoredInputs, StoredOutputs};
pub use strides::packed_qkv;
pub use validate::LayoutError;

/// The layout of query, key, value and output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// `[batch, head, position, entry]`, row-major, without gaps.
    #[default]
    Contiguous,
    /// Any strides (`FAS:layout.strided`).
    Strided(Strided),
    /// Batch members one after another, `[row, head, entry]` (`FAS:layout.ragged`).
    Ragged(Ragged),
    /// Keys and values in pages, `[page, slot, head, entry]`; query and output contiguous
    /// (`FAS:layout.paged`).
    Paged(Paged),
}

/// Strides of each tensor. A gradient has those of the tensor it is the gradient of, unless elements
/// of that tensor share a place: then it is contiguous.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strided {
    /// Those of the query.
    pub query: Strides,
    /// Those of the key.
    pub key: Strides,
    /// Those of the value.
    pub value: Strides,
    /// Those of the output; no two of its elements share a place.
    pub output: Strides,
}

/// Element `[batch, head, position, entry]` stands at `offset` plus the sum of index times stride.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strides {
    /// Elements in the buffer.
    pub elements: usize,
    /// Where element 0 stands.
    pub offset: usize,
    /// Distances along `[batch, head, position, entry]`; 0 where an axis shares its elements.
    pub strides: [usize; 4],
}

/// Rows of all batch members in one sequence. A member's position `p` stands in row `starts[b] + p`; it
/// has as many positions as the mask's length rules leave in use, and no two members share a row.
/// Rows between members belong to none. The LSE is `[head, row]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ragged {
    /// The first row of each member's queries.
    pub query_starts: Vec<usize>,
    /// Rows in the buffers of query and output.
    pub query_rows: usize,
    /// The first row of each member's keys.
    pub key_starts: Vec<usize>,
    /// Rows in the buffers of key and value.
    pub key_rows: usize,
}

/// A key's position `p` stands in slot `p % page_size` of page `block_table[b][p / page_size]`.
/// Members may share pages. Gradients of key and value are contiguous.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paged {
    /// Keys in a page.
    pub page_size: usize,
    /// Pages in the buffers of key and value.
    pub pages: usize,
    /// The pages of each batch member, as many as its keys in use need, or more.
    pub block_table: Vec<Vec<usize>>,
}

impl Layout {
    /// Whether the tensors are dense and row-major.
    #[must_use]
    pub fn is_contiguous(&self) -> bool {
        *self == Self::Contiguous
    }
}
