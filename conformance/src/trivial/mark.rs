//! Cases that do not tell a trivial answer from the right one, and why.

use std::fmt;

use flashproof_oracle::row::RowIndex;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;
use ndarray::s;
use serde::Serialize;

use super::Answer;

/// A trivial answer that a case would let pass.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The answer.
    pub answer: Answer,
    /// Why it is right there, or near enough.
    pub reason: Reason,
    /// The largest error over bound among its elements; 0 where each is what it should be.
    pub largest_ratio: f64,
}

/// Why a case lets an answer pass. The case is there for something else, which its purpose says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// There are no elements.
    NothingToAnswer,
    /// No row sees a key: the output is zero.
    NoKeys,
    /// No row sees more than one key, and there is no sink: its weight is 1 whatever the score.
    OneKey,
    /// The values that a row sees are equal, so weights and scores do not matter.
    ConstantValues,
    /// The scores that a row sees are equal, so the weights are.
    EqualScores,
    /// The softmax scale is zero: scores do not depend on queries and keys, so `dQ` and `dK` are zero.
    ZeroScale,
    /// A sink or dropout is there, and leaves keys next to no weight: the output is zero but for less
    /// than the bound.
    LittleWeight,
    /// The right answer is NaN or not specified throughout.
    NoNumbers,
    /// The case compares a kernel's answers with each other, and these agree.
    Consistent,
    /// It differs from the right answer by less than the bound.
    WithinBound,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::NothingToAnswer,
        Self::NoKeys,
        Self::OneKey,
        Self::ConstantValues,
        Self::EqualScores,
        Self::ZeroScale,
        Self::LittleWeight,
        Self::NoNumbers,
        Self::Consistent,
        Self::WithinBound,
    ];

    /// The reason in a few words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::NothingToAnswer => "there is nothing to answer",
            Self::NoKeys => "no row sees a key",
            Self::OneKey => "no row sees more than one key, whose weight is 1",
            Self::ConstantValues => "the values that a row sees are equal",
            Self::EqualScores => "the scores of a row are equal",
            Self::ZeroScale => "the softmax scale is zero",
            Self::LittleWeight => "a sink or dropout leaves keys next to no weight",
            Self::NoNumbers => "the right answer is NaN or unspecified throughout",
            Self::Consistent => "answers are compared with each other, and these agree",
            Self::WithinBound => "it differs by less than the bound",
        }
    }

    /// Whether it explains why the answer is right.
    const fn explains(self, answer: Answer) -> bool {
        match self {
            Self::NothingToAnswer | Self::Consistent | Self::WithinBound => true,
            Self::NoNumbers => matches!(answer, Answer::Nan | Answer::NanGradients),
            Self::NoKeys => !matches!(
                answer,
                Answer::Noise
                    | Answer::Nan
                    | Answer::CopiedValue
                    | Answer::CopiedQuery
                    | Answer::NoiseGradients
                    | Answer::NanGradients
                    | Answer::CopiedInputs
                    | Answer::CopiedUpstream
            ),
            Self::OneKey => matches!(
                answer,
                Answer::MeanOfVisible
                    | Answer::MeanOfAll
                    | Answer::Uniform
                    | Answer::CopiedValue
                    | Answer::ZeroQueryAndKey
            ),
            Self::ConstantValues => matches!(
                answer,
                Answer::MeanOfVisible
                    | Answer::MeanOfAll
                    | Answer::CopiedValue
                    | Answer::ZeroQueryAndKey
            ),
            Self::ZeroScale => matches!(answer, Answer::ZeroQueryAndKey),
            Self::LittleWeight => matches!(
                answer,
                Answer::ZeroOutput | Answer::ZeroGradients | Answer::ZeroQueryAndKey
            ),
            Self::EqualScores => {
                matches!(answer, Answer::MeanOfVisible | Answer::MeanOfAll | Answer::Uniform)
            }
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.words())
    }
}

/// The first reason that holds of the data and explains the answer.
pub(super) fn reason(
    answer: Answer,
    rows: &[RowIndex],
    problem: &Problem,
    inputs: &Inputs,
) -> Reason {
    let data = Data { rows, problem, inputs };
    let holds = |reason: Reason| match reason {
        Reason::NothingToAnswer => rows.is_empty(),
        Reason::NoKeys => data.each(|row| data.keys(row).is_empty()),
        Reason::OneKey => problem.sink.is_none() && data.each(|row| data.keys(row).len() < 2),
        Reason::ConstantValues => {
            problem.sink.is_none()
                && problem.dropout.is_none()
                && data.each(|row| data.has_equal_values(row))
        }
        Reason::EqualScores => data.each(|row| data.has_equal_scores(row)),
        Reason::ZeroScale => problem.scale_f64() == 0.0,
        Reason::LittleWeight => problem.sink.is_some() || problem.dropout.is_some(),
        Reason::NoNumbers | Reason::WithinBound => true,
        Reason::Consistent => false,
    };
    let ordered = [
        Reason::NothingToAnswer,
        Reason::NoKeys,
        Reason::OneKey,
        Reason::ConstantValues,
        Reason::EqualScores,
        Reason::ZeroScale,
        Reason::LittleWeight,
        Reason::NoNumbers,
    ];
    ordered.into_iter().find(|&it| it.explains(answer) && holds(it)).unwrap_or(Reason::WithinBound)
}

struct Data<'a> {
    rows: &'a [RowIndex],
    problem: &'a Problem,
    inputs: &'a Inputs,
}

impl Data<'_> {
    fn each(&self, holds: impl Fn(RowIndex) -> bool) -> bool {
        self.rows.iter().all(|&row| holds(row))
    }

    fn keys(&self, RowIndex { batch, head, query }: RowIndex) -> Vec<usize> {
        self.inputs.visible_keys(self.problem, batch, head, query)
    }

    fn has_equal_values(&self, row: RowIndex) -> bool {
        let values = self.inputs.value.view4();
        let head = self.problem.key_head_of(row.head);
        let keys = self.keys(row);
        let value = |key: usize| values.slice(s![row.batch, head, key, ..]);
        keys.first().is_none_or(|&first| keys.iter().all(|&key| value(key) == value(first)))
    }

    /// Equal as they are computed in `f64`, in one order, before a softcap.
    fn has_equal_scores(&self, row: RowIndex) -> bool {
        let RowIndex { batch, head, query } = row;
        let (queries, keys) = (self.inputs.query.view4(), self.inputs.key.view4());
        let key_head = self.problem.key_head_of(head);
        let score = |key: usize| {
            let q = queries.slice(s![batch, head, query, ..]);
            let product =
                self.problem.scale_f64() * q.dot(&keys.slice(s![batch, key_head, key, ..]));
            let addends = self.inputs.addends_at(self.problem, Site { batch, head, query, key });
            product + addends.bias + addends.alibi
        };
        let mut scores = self.keys(row).into_iter().map(score);
        scores
            .next()
            .is_none_or(|first: f64| scores.all(|score| score.to_bits() == first.to_bits()))
    }
}
