//! An element of a gradient by prefixes of what is summed in it.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use flashproof_oracle::backward::{BiasRowIndex, KeyIndex};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::s;

use super::{Along, Asked, Probe, Scene, Step, Trace, block_of, blocks, levels, violated};
use crate::adapter::{Backward, Failure};
use crate::run::{Given, RunError};
use crate::verdict::{
    Answer, Compared, GradientAnswer, GradientPlaces, Location, Position, Quantity, judge_gradients,
};

/// The element that is followed, and what is summed in it.
struct Followed {
    quantity: Quantity,
    location: Location,
    /// The rows that contribute, in the order in which they are taken; empty for `dQ`, which is followed
    /// along the values.
    rows: Vec<RowIndex>,
}

impl Scene<'_> {
    /// The failing element, block by block of what it sums.
    pub(super) fn gradient(&mut self) -> Result<Option<Trace>, RunError> {
        let (Some(given), Some(cotangents), Some(violation)) = (
            &self.examined.given,
            &self.instance.cotangents,
            self.target.violation(&self.examined.judged),
        ) else {
            return Ok(None);
        };
        let (quantity, location) = (violation.quantity, violation.worst.location);
        let rows = contributors(&given.read, quantity, location);
        let (along, probe, ranges) = if quantity == Quantity::QueryGradient {
            let ranges = blocks(given.read.key_len, block_of(self.profile));
            (Along::Values, Probe::ZeroValues, ranges)
        } else {
            (Along::Rows, Probe::ZeroUpstream, blocks(rows.len(), 1))
        };
        let followed = Followed { quantity, location, rows };
        let levels = levels(ranges, |ranges| {
            ranges
                .iter()
                .map(|range| {
                    let compared = self.prefix_gradient(given, cotangents, &followed, range.end)?;
                    Ok(step(range, compared))
                })
                .collect()
        })?;
        let rows = in_words(&given.read, &followed.rows);
        Ok(Some(Trace { quantity, location, along, rows, probe, levels }))
    }

    /// The element in the answer to what comes before `end`.
    fn prefix_gradient(
        &mut self,
        given: &Given,
        cotangents: &Cotangents,
        followed: &Followed,
        end: usize,
    ) -> Asked<Option<Compared>> {
        let inputs = match followed.quantity {
            Quantity::QueryGradient => before_key(&given.inputs, end),
            _ => given.inputs.clone(),
        };
        let later = followed.rows.get(end..).unwrap_or(&[]);
        let cotangents = without_rows(cotangents, later);
        let problem = &self.instance.problem;
        let Backward { outputs, gradients } =
            match self.subject.backward(problem, &inputs, &cotangents) {
                Ok(backward) => backward,
                Err(Failure::Environment(reason)) => {
                    return Err(RunError::Environment { case: self.name.to_owned(), reason });
                }
                Err(failure) => return Ok(Err(failure.to_string())),
            };
        let choices = self.subject.choices();
        let forward = Answer {
            problem: &given.read,
            inputs: &inputs,
            outputs: &outputs,
            profile: self.profile,
            choices,
        };
        let answer = GradientAnswer {
            forward,
            cotangents: &cotangents,
            gradients: &gradients,
            wrong_rows: &[],
        };
        let found = Mutex::new(None);
        let visit = |elements: &[Compared]| {
            let is_followed = |it: &&Compared| {
                it.quantity == followed.quantity && it.element.location == followed.location
            };
            if let Some(compared) = elements.iter().find(is_followed) {
                *found.lock().unwrap_or_else(PoisonError::into_inner) = Some(compared.clone());
            }
        };
        judge_gradients(&answer, &places(followed.location), visit)
            .map_err(|source| RunError::Oracle { case: self.name.to_owned(), source })?;
        Ok(Ok(found.into_inner().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn step(range: &Range<usize>, compared: Result<Option<Compared>, String>) -> Step {
    let (start, end) = (range.start, range.end);
    let (compared, no_answer) = match compared {
        Ok(compared) => (compared, None),
        Err(reason) => (None, Some(reason)),
    };
    let violates = compared.as_ref().and_then(violated);
    let element = compared.map(|it| it.element);
    Step { start, end, state: None, kernel_l: None, element, beside: None, violates, no_answer }
}

/// The rows that are summed in an element, by head and then by query.
fn contributors(problem: &Problem, quantity: Quantity, at: Location) -> Vec<RowIndex> {
    let group = problem.query_heads / problem.key_heads;
    let of = |batch: Range<usize>, heads: Range<usize>, queries: Range<usize>| {
        let mut rows = Vec::new();
        for batch in batch {
            for head in heads.clone() {
                rows.extend(queries.clone().map(|query| RowIndex { batch, head, query }));
            }
        }
        rows
    };
    let shared = |extent: usize, at: usize, of: usize| if extent == 1 { 0..of } else { at..at + 1 };
    let Problem { batch, query_heads, query_len, .. } = *problem;
    match (quantity, at.position) {
        (Quantity::KeyGradient | Quantity::ValueGradient, _) => {
            of(at.batch..at.batch + 1, at.head * group..(at.head + 1) * group, 0..query_len)
        }
        (Quantity::BiasGradient, Position::Pair { query, .. }) => {
            let [batches, heads, queries, _] = problem.bias.map_or([1; 4], |bias| bias.shape);
            of(
                shared(batches, at.batch, batch),
                shared(heads, at.head, query_heads),
                shared(queries, query, query_len),
            )
        }
        (Quantity::SinkGradient, _) => of(0..batch, at.head..at.head + 1, 0..query_len),
        _ => Vec::new(),
    }
}

/// The rows, each with the parts of its place that differ between them.
fn in_words(problem: &Problem, rows: &[RowIndex]) -> Vec<String> {
    let word = |&RowIndex { batch, head, query }: &RowIndex| {
        let batch = (problem.batch > 1).then(|| format!("b{batch}"));
        let head = (problem.query_heads > 1).then(|| format!("h{head}"));
        let parts = batch.into_iter().chain(head).chain([format!("q{query}")]);
        parts.collect::<Vec<_>>().join(" ")
    };
    rows.iter().map(word).collect()
}

fn places(at: Location) -> GradientPlaces {
    let Location { batch, head, position, .. } = at;
    let mut places = GradientPlaces::default();
    match position {
        Position::Query(query) => places.rows.push(RowIndex { batch, head, query }),
        Position::Key(key) => places.keys.push(KeyIndex { batch, key_head: head, key }),
        Position::Pair { query, .. } => {
            places.bias_rows.push(BiasRowIndex { batch, head, query });
        }
        Position::Head => places.sinks.push(head),
    }
    places
}

/// The inputs with the values from a key on set to 0.
fn before_key(inputs: &Inputs, end: usize) -> Inputs {
    let mut values = inputs.value.view4().to_owned();
    values.slice_mut(s![.., .., end.., ..]).fill(0.0);
    Inputs { value: Tensor::rounded(inputs.value.format(), &values.into_dyn()), ..inputs.clone() }
}

/// The upstream gradients with those of some rows set to 0.
fn without_rows(cotangents: &Cotangents, rows: &[RowIndex]) -> Cotangents {
    let mut output = cotangents.output.view4().to_owned();
    let mut lse = cotangents.lse.as_ref().map(|lse| lse.view3().to_owned());
    for &RowIndex { batch, head, query } in rows {
        output.slice_mut(s![batch, head, query, ..]).fill(0.0);
        if let Some(lse) = &mut lse {
            lse[[batch, head, query]] = 0.0;
        }
    }
    Cotangents {
        output: Tensor::rounded(cotangents.output.format(), &output.into_dyn()),
        lse: cotangents
            .lse
            .as_ref()
            .zip(lse)
            .map(|(of, lse)| Tensor::rounded(of.format(), &lse.into_dyn())),
    }
}
