//! How far a kernel's probabilities and score gradients of a row can be off.

use flashproof_oracle::backward::{
    Backward, ConditionRequest, ConditionedRow, LseKnowledge, Options,
};
use flashproof_oracle::error::OracleError;
use flashproof_oracle::row::RowIndex;
use flashproof_spec::bound::Bound;
use flashproof_spec::bound::gradient::GradientRow;
use flashproof_spec::bound::strict::StrictRow;

use super::GradientAnswer;
use crate::adapter::{Choices, LseBase, LseSign};
use crate::verdict::convention::Convention;
use crate::verdict::rows::Answer;
use crate::verdict::substitute::{Oracles, Substitute};

/// An answer, and what the errors behind its gradients are computed from.
pub(super) struct Errors<'a> {
    pub(super) answer: &'a GradientAnswer<'a>,
    pub(super) backward: Backward<'a>,
    forward: Oracles<'a>,
}

/// How far a kernel's probabilities and score gradients of one row can be off.
pub(super) struct RowErrors {
    /// The keys covered, ascending.
    pub(super) keys: Vec<usize>,
    pub(super) errors: GradientRow,
    /// Its numbers as they are rounded, where the strict gate applies.
    pub(super) strict: Option<StrictRow>,
}

impl<'a> Errors<'a> {
    pub(super) fn new(
        answer: &'a GradientAnswer<'a>,
        without_sink: Option<&'a Substitute>,
    ) -> Result<Self, OracleError> {
        let Answer { problem, inputs, profile, .. } = answer.forward;
        let options = Options::new(profile.lse_format);
        let backward = Backward::new(problem, inputs, answer.cotangents, options)?;
        let forward = Oracles::new(&answer.forward, None, without_sink, None)?;
        Ok(Self { answer, backward, forward })
    }

    /// The errors of a row over some keys, or all that it sees; `None` where it has no visible keys
    /// and no sink, or no real numbers, and where nothing bounds the LSE that the kernel works with.
    pub(super) fn of_row(
        &self,
        index: RowIndex,
        keys: Option<&[usize]>,
    ) -> Result<Option<RowErrors>, OracleError> {
        let Answer { problem, profile, outputs, .. } = self.answer.forward;
        let Some(lse) = self.lse_knowledge(index)? else { return Ok(None) };
        let request = ConditionRequest { index, lse, keys };
        let conditioned = self.backward.condition(outputs, request)?;
        let strict = |it: &ConditionedRow| {
            let wrong = self.answer.wrong_rows.binary_search(&index).is_ok();
            (!wrong).then(|| StrictRow::new(problem, profile, &it.condition, &it.centre)).flatten()
        };
        Ok(conditioned.map(|it| RowErrors {
            errors: GradientRow::new(problem, profile, &it.condition),
            strict: strict(&it),
            keys: it.keys,
        }))
    }

    /// What is known of the LSE that the kernel works with: one in nats, with its usual sign and all
    /// its terms, is measured as it stands; one in base two or negated, in nats; and one that is not
    /// given lies within its forward bound.
    fn lse_knowledge(&self, index: RowIndex) -> Result<Option<LseKnowledge>, OracleError> {
        let answer = &self.answer.forward;
        let Choices { lse_base, lse_sign, .. } = answer.choices;
        let plain = lse_base == LseBase::Natural && lse_sign == LseSign::Plus;
        let given = answer.outputs.lse.as_ref().map(|lse| {
            let RowIndex { batch, head, query } = index;
            lse.view3()[[batch, head, query]]
        });
        if given.is_some() && plain && !self.forward.leaves_sink_out() {
            return Ok(Some(LseKnowledge::Measured));
        }
        let rows = self.forward.rows(index)?;
        if rows.asked.lse.exact().is_none() {
            return Ok(None);
        }
        let forward_bound = || match answer.bounds(&rows.asked).lse {
            Bound::Within(bound) => Some(bound),
            Bound::None(_) => None,
        };
        let row = rows.without_sink.as_ref().unwrap_or(&rows.asked);
        let measured = given.zip(row.lse.exact()).map(|(got, exact)| {
            Convention::of_lse(answer.choices).most_error(got, &exact.enclosure)
        });
        let within = match (measured, &rows.without_sink) {
            (Some(measured), None) => Some(measured),
            // The sink is added to the LSE that is given, whose error that can only diminish, or to
            // the normalizer.
            (Some(measured), Some(_)) => forward_bound().map(|bound| (measured + bound).next_up()),
            (None, _) => forward_bound(),
        };
        Ok(within.map(LseKnowledge::Within))
    }
}
