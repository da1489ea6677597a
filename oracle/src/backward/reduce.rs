//! Sums over query rows, in parallel, that are the same whatever the number of threads.

use rayon::prelude::*;
use rug::Float;

use crate::enclosure::Enclosure;

/// How many partial sums there are: enough for the cores of a machine, and few enough that they
/// take no more memory than so many rows.
const PARTS: usize = 32;

/// Sums in so many columns, with endpoints of so many bits.
#[derive(Clone, Debug)]
pub(crate) struct Sums {
    columns: Vec<Enclosure>,
    precision: u32,
}

impl Sums {
    fn new(columns: usize, precision: u32) -> Self {
        Self { columns: vec![Enclosure::point(Float::new(precision)); columns], precision }
    }

    /// Adds a term to the sum in a column.
    pub(crate) fn add(&mut self, column: usize, term: &Enclosure) {
        self.columns[column] = self.columns[column].add(term, self.precision);
    }

    fn merge(mut self, other: &Self) -> Self {
        other.columns.iter().enumerate().for_each(|(column, term)| self.add(column, term));
        self
    }
}

/// The sums of what each row adds to them.
pub(crate) fn sum_over<R: Sync>(
    rows: &[R],
    columns: usize,
    precision: u32,
    add: impl Fn(&R, &mut Sums) + Sync,
) -> Vec<Enclosure> {
    let part = |rows: &[R]| {
        let mut sums = Sums::new(columns, precision);
        for row in rows {
            add(row, &mut sums);
        }
        sums
    };
    let parts: Vec<Sums> = rows.par_chunks(rows.len().div_ceil(PARTS).max(1)).map(part).collect();
    let total = Sums::new(columns, precision);
    parts.iter().fold(total, Sums::merge).columns
}
