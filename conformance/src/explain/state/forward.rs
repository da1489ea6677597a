//! A row of the forward pass by prefixes of its keys.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::{Rule, Site};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Outputs};

use super::exact::ExactRow;
use super::{Along, Asked, Probe, Scene, State, Step, Trace, block_of, blocks, levels, violated};
use crate::adapter::{Failure, LseSink};
use crate::explain::shrink::{Axis, select};
use crate::run::{Given, Instance, RunError};
use crate::verdict::{Answer, Compared, Convention, Element, Position, Quantity, judge_rows};

/// A prefix of a row's keys as a problem of its own.
struct Prefix {
    problem: Problem,
    inputs: Inputs,
}

impl Scene<'_> {
    /// The failing row, key block by key block.
    pub(super) fn forward(&mut self) -> Result<Option<Trace>, RunError> {
        let (Some(given), Some(violation)) =
            (&self.examined.given, self.target.violation(&self.examined.judged))
        else {
            return Ok(None);
        };
        let (quantity, location) = (violation.quantity, violation.worst.location);
        let Position::Query(query) = location.position else { return Ok(None) };
        let row = RowIndex { batch: location.batch, head: location.head, query };
        let Some(probe) = self.probe(given, row)? else { return Ok(None) };
        let entry = location.entry.unwrap_or(0);
        let exact = ExactRow::new(&given.read, &given.inputs, row);
        let count = self.instance.problem.key_len;
        let levels = levels(blocks(count, block_of(self.profile)), |ranges| {
            let before = 0..ranges.first().map_or(0, |range| range.start);
            let from_the_start: Vec<_> = [before].into_iter().chain(ranges.to_vec()).collect();
            let states = exact.as_ref().map(|row| row.states(&from_the_start, entry));
            (ranges.iter().enumerate())
                .map(|(at, range)| {
                    let compared = self.compared(given, row, probe, range.end)?;
                    let state = states.as_ref().map(|states| states[at + 1]);
                    Ok(self.step(range, state, compared, (quantity, entry)))
                })
                .collect()
        })?;
        Ok(Some(Trace { quantity, location, along: Along::Keys, rows: Vec::new(), probe, levels }))
    }

    /// How to ask for the row's state; `None` where the kernel can not be asked without changing more
    /// than the keys.
    fn probe(&mut self, given: &Given, row: RowIndex) -> Result<Option<Probe>, RunError> {
        let key_len = self.instance.problem.key_len;
        let whole = self.prefix(Probe::HiddenKeys, key_len);
        if let Some(Ok(outputs)) = whole.map(|whole| self.ask(&whole)).transpose()?
            && same_row(&outputs, &given.outputs, row)
        {
            return Ok(Some(Probe::HiddenKeys));
        }
        let choices = self.subject.choices();
        let same_sight = |end: usize| {
            self.prefix(Probe::CutKeys, end).is_some_and(|cut| {
                sees_alike(given, &choices.read(&cut.problem), &cut.inputs, row, end)
            })
        };
        Ok((0..=key_len).all(same_sight).then_some(Probe::CutKeys))
    }

    /// The first `end` keys.
    fn prefix(&self, probe: Probe, end: usize) -> Option<Prefix> {
        let Instance { problem, inputs, .. } = self.instance;
        if probe == Probe::CutKeys {
            let keep: Vec<usize> = (0..end).collect();
            let layout = crate::inputs::LayoutKind::recognise(problem);
            let cut = select(self.instance, Axis::Key, &keep, layout)?;
            return cut
                .problem
                .validate()
                .is_ok()
                .then_some(Prefix { problem: cut.problem, inputs: cut.inputs });
        }
        let mut problem = problem.clone();
        let shown = Pattern::from_fn([1, 1, 1, problem.key_len], |[.., key]| key < end);
        problem.mask.rules.push(Rule::Boolean(shown));
        Some(Prefix { problem, inputs: inputs.clone() })
    }

    fn ask(&mut self, prefix: &Prefix) -> Asked<Outputs> {
        match self.subject.forward(&prefix.problem, &prefix.inputs) {
            Ok(outputs) => Ok(Ok(outputs)),
            Err(Failure::Environment(reason)) => {
                Err(RunError::Environment { case: self.name.to_owned(), reason })
            }
            Err(failure) => Ok(Err(failure.to_string())),
        }
    }

    /// The row's elements in the answer to the first `end` keys.
    fn compared(
        &mut self,
        given: &Given,
        row: RowIndex,
        probe: Probe,
        end: usize,
    ) -> Asked<Vec<Compared>> {
        // All keys: the answer that is explained.
        if end == self.instance.problem.key_len {
            return self.judged(&given.read, &given.inputs, &given.outputs, row).map(Ok);
        }
        let Some(prefix) = self.prefix(probe, end) else {
            return Ok(Err("it has no layout of this kind".to_owned()));
        };
        let outputs = match self.ask(&prefix)? {
            Ok(outputs) => outputs,
            Err(reason) => return Ok(Err(reason)),
        };
        let read = self.subject.choices().read(&prefix.problem);
        self.judged(&read, &prefix.inputs, &outputs, row).map(Ok)
    }

    fn judged(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        row: RowIndex,
    ) -> Result<Vec<Compared>, RunError> {
        let choices = self.subject.choices();
        let answer = Answer { problem, inputs, outputs, profile: self.profile, choices };
        let elements = Mutex::new(Vec::new());
        judge_rows(&answer, &[row], |compared| {
            elements.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(compared);
        })
        .map_err(|source| RunError::Oracle { case: self.name.to_owned(), source })?;
        Ok(elements.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    fn step(
        &self,
        range: &Range<usize>,
        state: Option<State>,
        compared: Result<Vec<Compared>, String>,
        (quantity, entry): (Quantity, usize),
    ) -> Step {
        let (start, end) = (range.start, range.end);
        let compared = match compared {
            Ok(compared) => compared,
            Err(reason) => {
                let (element, beside) = (None, None);
                let (kernel_l, violates, no_answer) = (None, None, Some(reason));
                return Step { start, end, state, kernel_l, element, beside, violates, no_answer };
            }
        };
        let of = |quantity: Quantity| {
            let entry = (quantity == Quantity::Output).then_some(entry);
            let found = compared
                .iter()
                .find(|it| it.quantity == quantity && it.element.location.entry == entry);
            found.map(|it| it.element.clone())
        };
        let (output, lse) = (of(Quantity::Output), of(Quantity::Lse));
        let choices = self.subject.choices();
        let counts_alike =
            choices.lse_sink == LseSink::Included || self.instance.problem.sink.is_none();
        let implied = |(state, lse): (State, &Element)| {
            let nats = Convention::of_lse(choices).nats(lse.got);
            if state.m.is_finite() { (nats - state.m).exp() } else { nats.exp() }
        };
        let kernel_l = state.zip(lse.as_ref()).filter(|_| counts_alike).map(implied);
        let (element, beside) =
            if quantity == Quantity::Output { (output, lse) } else { (lse, output) };
        let violates = compared.iter().find_map(violated);
        Step { start, end, state, kernel_l, element, beside, violates, no_answer: None }
    }
}

/// Whether a row of a problem of the first `end` keys sees what it sees of them in the whole problem,
/// with the same added to scores.
fn sees_alike(
    given: &Given,
    cut: &Problem,
    cut_inputs: &Inputs,
    row: RowIndex,
    end: usize,
) -> bool {
    let RowIndex { batch, head, query } = row;
    let mut seen = given.inputs.visible_keys(&given.read, batch, head, query);
    seen.retain(|&key| key < end);
    let same_addends = |&key: &usize| {
        let site = Site { batch, head, query, key };
        cut_inputs.addends_at(cut, site) == given.inputs.addends_at(&given.read, site)
    };
    cut_inputs.visible_keys(cut, batch, head, query) == seen && seen.iter().all(same_addends)
}

/// Whether two answers have the same bits in a row.
fn same_row(one: &Outputs, other: &Outputs, row: RowIndex) -> bool {
    let RowIndex { batch, head, query } = row;
    let bits = |outputs: &Outputs| {
        let output = outputs.output.view4();
        let entries = (0..output.dim().3).map(|j| output[[batch, head, query, j]]);
        let lse = outputs.lse.as_ref().map(|lse| lse.view3()[[batch, head, query]]);
        // Any NaN is as good as another: tensors do not keep their payloads.
        let bits = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
        entries.chain(lse).map(bits).collect::<Vec<_>>()
    };
    bits(one) == bits(other)
}
