//! Where rows stand: the address arithmetic of the kernels here.
//!
//! Written from the layouts' statements, and not from the specification's own function, which it is
//! checked against. All of it is in `usize`: an offset in 32 bits wraps where strides are large.

use flashproof_spec::layout::{Layout, Paged, Placed, Ragged, Strides};
use flashproof_spec::mask::Rule;
use flashproof_spec::problem::Problem;

/// The rows of one tensor: entry `e` of head `h` at a position stands at the position's start plus
/// `h` times the distance of heads plus `e` times that of entries.
pub(super) struct Rows {
    /// `[batch, head, position, entry]`.
    pub(super) shape: [usize; 4],
    /// Elements in the buffer.
    pub(super) elements: usize,
    /// The start of each position of each batch member, where it stands anywhere.
    starts: Vec<Option<usize>>,
    head_distance: usize,
    entry_distance: usize,
}

impl Rows {
    /// The rows of a tensor under the problem's layout.
    pub(super) fn of(problem: &Problem, placed: Placed) -> Self {
        let shape = shape(problem, placed);
        // Which gradients can not stand as their tensor does is the problem's to say.
        if problem.stands_contiguous(placed) {
            return Self::contiguous(shape);
        }
        let keys = matches!(
            placed,
            Placed::Key | Placed::Value | Placed::KeyGradient | Placed::ValueGradient
        );
        match &problem.layout {
            Layout::Contiguous => Self::contiguous(shape),
            Layout::Strided(strided) => match placed {
                Placed::Query | Placed::QueryGradient => Self::strided(shape, &strided.query),
                Placed::Key | Placed::KeyGradient => Self::strided(shape, &strided.key),
                Placed::Value | Placed::ValueGradient => Self::strided(shape, &strided.value),
                Placed::Output => Self::strided(shape, &strided.output),
                Placed::Lse => Self::contiguous(shape),
            },
            Layout::Ragged(Ragged { query_starts, query_rows, key_starts, key_rows }) => {
                let (starts, rows) =
                    if keys { (key_starts, *key_rows) } else { (query_starts, *query_rows) };
                let used = |member| used(problem, keys, member);
                if placed == Placed::Lse {
                    // heads outside, and one entry a row
                    return Self::ragged(shape, starts, rows, used, (1, rows));
                }
                let [_, heads, _, entries] = shape;
                Self::ragged(shape, starts, rows, used, (heads * entries, entries))
            }
            Layout::Paged(paged) => Self::paged(shape, paged),
        }
    }

    /// The first entry of a row; `None` where it stands nowhere.
    pub(super) fn start(&self, batch: usize, head: usize, position: usize) -> Option<usize> {
        let [_, _, positions, _] = self.shape;
        Some(self.starts[batch * positions + position]? + head * self.head_distance)
    }

    /// Another entry of the row that starts there.
    pub(super) const fn entry(&self, start: usize, entry: usize) -> usize {
        start + entry * self.entry_distance
    }

    fn contiguous(shape: [usize; 4]) -> Self {
        let [batch, heads, positions, entries] = shape;
        let head = positions * entries;
        let starts = each_position(shape, |b, p| Some(b * heads * head + p * entries));
        let elements = batch * heads * head;
        Self { shape, elements, starts, head_distance: head, entry_distance: 1 }
    }

    fn strided(shape: [usize; 4], strides: &Strides) -> Self {
        let &Strides { elements, offset, strides: [batch, head, position, entry] } = strides;
        let starts = each_position(shape, |b, p| Some(offset + b * batch + p * position));
        Self { shape, elements, starts, head_distance: head, entry_distance: entry }
    }

    fn ragged(
        shape: [usize; 4],
        first_rows: &[usize],
        rows: usize,
        used: impl Fn(usize) -> usize,
        (row_distance, head_distance): (usize, usize),
    ) -> Self {
        let starts =
            each_position(shape, |b, p| (p < used(b)).then(|| (first_rows[b] + p) * row_distance));
        let [_, heads, _, entries] = shape;
        let elements = rows * heads * entries;
        Self { shape, elements, starts, head_distance, entry_distance: 1 }
    }

    fn paged(shape: [usize; 4], paged: &Paged) -> Self {
        let &Paged { page_size, pages, ref block_table } = paged;
        let [_, heads, _, entries] = shape;
        let slot_distance = heads * entries;
        let starts = each_position(shape, |b, p| {
            let page = block_table[b].get(p / page_size)?;
            Some((page * page_size + p % page_size) * slot_distance)
        });
        let elements = pages * page_size * slot_distance;
        Self { shape, elements, starts, head_distance: entries, entry_distance: 1 }
    }
}

fn each_position(
    [batch, _, positions, _]: [usize; 4],
    start: impl Fn(usize, usize) -> Option<usize>,
) -> Vec<Option<usize>> {
    let start = &start;
    (0..batch).flat_map(|b| (0..positions).map(move |p| start(b, p))).collect()
}

fn shape(problem: &Problem, placed: Placed) -> [usize; 4] {
    match placed {
        Placed::Query | Placed::QueryGradient => problem.query_shape(),
        Placed::Key | Placed::KeyGradient => problem.key_shape(),
        Placed::Value | Placed::ValueGradient => problem.value_shape(),
        Placed::Output => problem.output_shape(),
        Placed::Lse => [problem.batch, problem.query_heads, problem.query_len, 1],
    }
}

/// Positions of a batch member that are in use: those that no length rule cuts off.
fn used(problem: &Problem, keys: bool, member: usize) -> usize {
    let all = if keys { problem.key_len } else { problem.query_len };
    problem.mask.rules.iter().fold(all, |used, rule| match rule {
        Rule::KeyLengths(lengths) if keys => used.min(lengths[member]),
        Rule::QueryLengths(lengths) if !keys => used.min(lengths[member]),
        _ => used,
    })
}
