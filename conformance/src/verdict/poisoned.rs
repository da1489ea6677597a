//! A run on poisoned inputs against the clean run: data that a row does not see has no influence
//! (`FAS:fwd.special.invisible`), and a NaN that it does see is not lost (`FAS:fwd.special.nan`).

use flashproof_oracle::row::RowIndex;
use flashproof_spec::tensor::{Outputs, Tensor};

use super::element::{Compared, Standing, Want};
use super::place::{Location, Quantity};
use super::rows::Answer;
use super::tally::{Element, Tally};
use crate::inputs::poison::Places;

/// Judges the outputs of a poisoned run against the clean one, `answer`. Rows that see a poisoned key
/// are NaN throughout; the others are those of the clean run, bit for bit.
#[must_use]
pub fn judge_poisoned(
    answer: &Answer<'_>,
    rows: &[RowIndex],
    poison: &Places,
    outputs: &Outputs,
) -> Tally {
    let Answer { problem, inputs, outputs: clean, .. } = *answer;
    rows.iter()
        .map(|&row| {
            let RowIndex { batch, head, query } = row;
            let seen = poison.seen_by(problem, inputs, [batch, head, query]);
            let compared: Vec<_> = pairs(row, clean, outputs)
                .map(|(quantity, location, clean, got)| {
                    compare(seen, quantity, location, clean, got)
                })
                .collect();
            Tally::of_row(row, &compared)
        })
        .fold(Tally::default(), Tally::merged)
}

fn compare(seen: bool, quantity: Quantity, location: Location, clean: f64, got: f64) -> Compared {
    let (want, clause) = if seen {
        (Want::Nan, "FAS:fwd.special.nan")
    } else {
        (Want::Unchanged(clean), "FAS:fwd.special.invisible")
    };
    let right = want.admits(got);
    let ratio = if right { 0.0 } else { f64::INFINITY };
    Compared {
        quantity,
        element: Element { location, got, want, error: None, bound: None, ratio },
        standing: if right { Standing::Right } else { Standing::Wrong(clause) },
        strict: None,
    }
}

/// The row's elements in both runs.
fn pairs(
    row: RowIndex,
    clean: &Outputs,
    outputs: &Outputs,
) -> impl Iterator<Item = (Quantity, Location, f64, f64)> {
    let RowIndex { batch, head, query } = row;
    let entry_of = move |tensor: &Tensor, entry| tensor.view4()[[batch, head, query, entry]];
    let lse_of = move |tensor: &Tensor| tensor.view3()[[batch, head, query]];
    let entries = (0..outputs.output.shape()[3]).map(move |entry| {
        let (clean, got) = (entry_of(&clean.output, entry), entry_of(&outputs.output, entry));
        (Quantity::Output, Location::of_row(row, Some(entry)), clean, got)
    });
    let lse = clean.lse.as_ref().zip(outputs.lse.as_ref()).map(|(clean, got)| {
        (Quantity::Lse, Location::of_row(row, None), lse_of(clean), lse_of(got))
    });
    entries.chain(lse)
}
