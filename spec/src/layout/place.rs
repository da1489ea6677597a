//! Where an element stands.

use super::{Layout, Paged, Ragged, Strides};
use crate::problem::Problem;

/// A tensor that a layout places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Placed {
    /// The query.
    Query,
    /// The key.
    Key,
    /// The value.
    Value,
    /// The output, and the upstream gradient of it.
    Output,
    /// The LSE, `[batch, query_heads, query_len, 1]`, and the upstream gradient of it.
    Lse,
    /// The gradient with respect to the query.
    QueryGradient,
    /// The gradient with respect to the key.
    KeyGradient,
    /// The gradient with respect to the value.
    ValueGradient,
}

impl Placed {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Query,
        Self::Key,
        Self::Value,
        Self::Output,
        Self::Lse,
        Self::QueryGradient,
        Self::KeyGradient,
        Self::ValueGradient,
    ];

    /// The name by which messages speak of it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Key => "key",
            Self::Value => "value",
            Self::Output => "output",
            Self::Lse => "lse",
            Self::QueryGradient => "query_gradient",
            Self::KeyGradient => "key_gradient",
            Self::ValueGradient => "value_gradient",
        }
    }

    const fn is_gradient(self) -> bool {
        matches!(self, Self::QueryGradient | Self::KeyGradient | Self::ValueGradient)
    }

    /// Whether its positions are those of keys.
    const fn runs_over_keys(self) -> bool {
        matches!(self, Self::Key | Self::Value | Self::KeyGradient | Self::ValueGradient)
    }
}

/// How one tensor stands.
enum Stand<'a> {
    Contiguous,
    Strided(&'a Strides),
    Ragged { starts: &'a [usize], rows: usize },
    Paged(&'a Paged),
}

impl Problem {
    /// Extents of a tensor that the layout places, as `[batch, head, position, entry]`.
    #[must_use]
    pub const fn placed_shape(&self, tensor: Placed) -> [usize; 4] {
        match tensor {
            Placed::Query | Placed::QueryGradient => self.query_shape(),
            Placed::Key | Placed::KeyGradient => self.key_shape(),
            Placed::Value | Placed::ValueGradient => self.value_shape(),
            Placed::Output => self.output_shape(),
            Placed::Lse => [self.batch, self.query_heads, self.query_len, 1],
        }
    }

    /// Where element `[batch, head, position, entry]` of a tensor stands in its buffer; `None` where
    /// it has no storage: outside of the tensor, in a ragged row past the used length, or in a page
    /// that the block table does not map.
    ///
    /// Clauses: `FAS:layout.strided`, `FAS:layout.ragged`, `FAS:layout.paged`.
    #[must_use]
    pub fn offset_of(&self, tensor: Placed, place: [usize; 4]) -> Option<usize> {
        let shape @ [_, heads, _, entries] = self.placed_shape(tensor);
        if place.iter().zip(&shape).any(|(index, extent)| index >= extent) {
            return None;
        }
        let [batch, head, position, entry] = place;
        match self.stand(tensor) {
            Stand::Contiguous => row_major(shape, place),
            Stand::Strided(strides) => strides.offset_of(place),
            Stand::Ragged { starts, rows } => {
                if position >= self.used_positions(tensor, batch) {
                    return None;
                }
                let row = starts.get(batch)?.checked_add(position)?;
                match tensor {
                    Placed::Lse => row_major([1, 1, heads, rows], [0, 0, head, row]),
                    _ => row_major([1, rows, heads, entries], [0, row, head, entry]),
                }
            }
            Stand::Paged(Paged { page_size, pages, block_table }) => {
                let page = block_table.get(batch)?.get(position.checked_div(*page_size)?)?;
                let slot = position % page_size;
                row_major([*pages, *page_size, heads, entries], [*page, slot, head, entry])
            }
        }
    }

    /// Elements in a tensor's buffer.
    ///
    /// # Panics
    /// When that is more than can be addressed: [`Problem::validate`] the problem first.
    #[must_use]
    pub fn buffer_len(&self, tensor: Placed) -> usize {
        self.checked_buffer_len(tensor).expect("a buffer that can be addressed")
    }

    pub(super) fn checked_buffer_len(&self, tensor: Placed) -> Option<usize> {
        let shape @ [_, heads, _, entries] = self.placed_shape(tensor);
        let extents = match self.stand(tensor) {
            Stand::Contiguous => shape,
            Stand::Strided(strides) => [strides.elements, 1, 1, 1],
            Stand::Ragged { rows, .. } => [1, rows, heads, entries],
            Stand::Paged(Paged { page_size, pages, .. }) => [*pages, *page_size, heads, entries],
        };
        extents.iter().try_fold(1_usize, |product, &extent| product.checked_mul(extent))
    }

    /// Whether a tensor is dense and row-major under the problem's layout.
    #[must_use]
    pub fn stands_contiguous(&self, tensor: Placed) -> bool {
        matches!(self.stand(tensor), Stand::Contiguous)
    }

    /// Whether a query has storage: only in ragged rows past the used length it has none.
    #[must_use]
    pub fn has_query_row(&self, batch: usize, query: usize) -> bool {
        self.offset_of(Placed::Lse, [batch, 0, query, 0]).is_some()
    }

    /// Whether a key has storage: not in ragged rows past the used length, nor where no page is
    /// mapped.
    #[must_use]
    pub fn has_key_row(&self, batch: usize, key: usize) -> bool {
        self.offset_of(Placed::Key, [batch, 0, key, 0]).is_some()
    }

    /// Every place of a tensor that has storage, row-major, with its offset.
    pub fn owned(&self, tensor: Placed) -> impl Iterator<Item = ([usize; 4], usize)> {
        let [batch, heads, positions, entries] = self.placed_shape(tensor);
        let places = (0..batch).flat_map(move |b| {
            (0..heads).flat_map(move |h| {
                (0..positions).flat_map(move |p| (0..entries).map(move |e| [b, h, p, e]))
            })
        });
        places.filter_map(move |place| Some((place, self.offset_of(tensor, place)?)))
    }

    fn used_positions(&self, tensor: Placed, batch: usize) -> usize {
        let used = self.used_lengths(batch);
        if tensor.runs_over_keys() { used.keys } else { used.queries }
    }

    fn stand(&self, tensor: Placed) -> Stand<'_> {
        match &self.layout {
            Layout::Contiguous => Stand::Contiguous,
            Layout::Strided(strided) => {
                let strides = match tensor {
                    Placed::Query | Placed::QueryGradient => &strided.query,
                    Placed::Key | Placed::KeyGradient => &strided.key,
                    Placed::Value | Placed::ValueGradient => &strided.value,
                    Placed::Output => &strided.output,
                    Placed::Lse => return Stand::Contiguous,
                };
                if tensor.is_gradient() && !strides.separates(self.placed_shape(tensor)) {
                    Stand::Contiguous
                } else {
                    Stand::Strided(strides)
                }
            }
            Layout::Ragged(Ragged { query_starts, query_rows, key_starts, key_rows }) => {
                if tensor.runs_over_keys() {
                    Stand::Ragged { starts: key_starts, rows: *key_rows }
                } else {
                    Stand::Ragged { starts: query_starts, rows: *query_rows }
                }
            }
            Layout::Paged(paged) => match tensor {
                Placed::Key | Placed::Value => Stand::Paged(paged),
                _ => Stand::Contiguous,
            },
        }
    }
}

impl Strides {
    /// `offset + sum index * stride`; `None` past what can be addressed.
    fn offset_of(&self, place: [usize; 4]) -> Option<usize> {
        place.iter().zip(&self.strides).try_fold(self.offset, |offset, (index, stride)| {
            offset.checked_add(index.checked_mul(*stride)?)
        })
    }

    /// Whether each stride exceeds the reach of all shorter ones, so that no two elements of this
    /// shape share a place.
    #[must_use]
    pub fn separates(&self, shape: [usize; 4]) -> bool {
        let mut axes: Vec<_> = self.strides.into_iter().zip(shape).collect();
        if shape.contains(&0) {
            return true;
        }
        axes.retain(|&(_, extent)| extent > 1);
        axes.sort_unstable();
        let mut reach = 0_u128;
        axes.into_iter().all(|(stride, extent)| {
            let exceeds = stride as u128 > reach;
            reach = reach.saturating_add((stride as u128).saturating_mul(extent as u128 - 1));
            exceeds
        })
    }

    /// Where the last element of this shape stands; `None` past what can be addressed.
    pub(super) fn last(&self, shape: [usize; 4]) -> Option<usize> {
        self.offset_of(shape.map(|extent| extent.saturating_sub(1)))
    }
}

/// The offset of a place in a dense row-major tensor; `None` outside of it or past what can be
/// addressed.
fn row_major(shape: [usize; 4], place: [usize; 4]) -> Option<usize> {
    shape.iter().zip(place).try_fold(0_usize, |offset, (&extent, index)| {
        (index < extent).then_some(())?;
        offset.checked_mul(extent)?.checked_add(index)
    })
}
