//! A row's problem as a faulty kernel reads it, and the scores that follow.
//!
//! Most faults of masks and score modifications are right answers to another question: a window one
//! key wider, a bias of another head, no softcap.

use std::borrow::Cow;

use flashproof_oracle::row::RowIndex;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};

use super::prediction::{LseForm, Prediction, Term, Weights};
use super::row::{RowModel, site};

/// What a row is taken for.
#[derive(Clone)]
pub(super) struct Reading<'r, 'a> {
    pub(super) row: &'r RowModel<'a>,
    /// The problem; the shapes of its tensors are the row's.
    pub(super) problem: Cow<'r, Problem>,
    /// The row whose query is read, and whose ALiBi and dropout.
    pub(super) query_row: RowIndex,
    /// The key head whose keys and values are read.
    pub(super) key_head: usize,
    /// The row at which the mask is looked up.
    pub(super) mask_row: RowIndex,
    /// The row at which the bias is looked up.
    pub(super) bias_row: RowIndex,
    /// What the bias is multiplied by.
    pub(super) bias_factor: f64,
    /// Whether the ALiBi term of a key after the query's own position is positive.
    pub(super) alibi_signed: bool,
    /// The head whose sink is read.
    pub(super) sink_head: usize,
}

/// A key's score and what its error depends on.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    /// The score, after softcap, bias and ALiBi.
    pub(super) value: f64,
    /// `scale * <q, k>`.
    pub(super) product: f64,
    /// The magnitudes of bias and ALiBi term, added.
    pub(super) addend: f64,
    /// The magnitude of what the softcap is taken of, over the cap; 0 without softcap.
    pub(super) cap_argument: f64,
    /// `|scale| * sum |q_t k_t|`.
    pub(super) mass: f64,
}

impl<'r, 'a> Reading<'r, 'a> {
    /// The row as it should be read.
    pub(super) fn of(row: &'r RowModel<'a>) -> Self {
        Self::of_row(row, row.index)
    }

    /// Another row of the same batch member as it should be read, in place of the row.
    pub(super) fn of_row(row: &'r RowModel<'a>, other: RowIndex) -> Self {
        Self {
            row,
            problem: Cow::Borrowed(row.problem),
            query_row: other,
            key_head: row.problem.key_head_of(other.head),
            mask_row: other,
            bias_row: other,
            bias_factor: 1.0,
            alibi_signed: false,
            sink_head: other.head,
        }
    }

    /// The row as if the problem were another one of the same tensors.
    pub(super) fn with(row: &'r RowModel<'a>, change: impl FnOnce(&mut Problem)) -> Self {
        let mut problem = row.problem.clone();
        change(&mut problem);
        Self { problem: Cow::Owned(problem), ..Self::of(row) }
    }

    /// The keys that take part, ascending.
    pub(super) fn visible(&self) -> Vec<usize> {
        let RowIndex { batch, head, query } = self.mask_row;
        let mut keys = self.problem.visible_keys(batch, head, query);
        keys.retain(|&key| self.bias(key) != f64::NEG_INFINITY);
        keys
    }

    fn bias(&self, key: usize) -> f64 {
        if self.problem.bias.is_none() {
            return 0.0;
        }
        let factor = self.bias_factor;
        let bias = self.row.inputs.bias_at(self.row.problem, site(self.bias_row, key));
        // Minus infinity stays what it is, whatever the factor.
        if bias == f64::NEG_INFINITY { bias } else { factor * bias }
    }

    fn alibi(&self, key: usize) -> f64 {
        let term = self.problem.alibi_at(site(self.query_row, key));
        if self.alibi_signed && self.follows(key) { -term } else { term }
    }

    /// Whether a key stands after the query's own position by ALiBi's alignment.
    fn follows(&self, key: usize) -> bool {
        let RowIndex { batch, query, .. } = self.query_row;
        let lengths = self.problem.used_lengths(batch);
        let alibi = self.problem.alibi.as_ref();
        alibi.is_some_and(|alibi| alibi.alignment.position(query, lengths) < key as i128)
    }

    /// The score of a key.
    pub(super) fn score(&self, key: usize) -> Score {
        let scale = self.problem.scale_f64();
        let (dot, mass) = self.row.dot(self.query_row, self.key_head, key);
        let product = scale * dot;
        let (bias, alibi) = (self.bias(key), self.alibi(key));
        let capped = |x: f64, cap: f64| cap * (x / cap).tanh();
        let sum = product + bias + alibi;
        let (value, cap_argument) = match self.problem.softcap {
            None => (sum, 0.0),
            Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
                (capped(product, cap) + bias + alibi, (product / cap).abs())
            }
            Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
                (capped(sum, cap), (sum / cap).abs())
            }
        };
        let addend = bias.abs() + alibi.abs();
        Score { value, product, addend, cap_argument, mass: scale.abs() * mass }
    }

    /// A key with the weight that its score and dropout give it.
    pub(super) fn term(&self, key: usize) -> Term {
        let factor = self.problem.dropout_at(site(self.query_row, key));
        Term { factor, ..Term::of(key, self.score(key)) }
    }

    /// The visible keys.
    pub(super) fn terms(&self) -> Vec<Term> {
        self.visible().into_iter().map(|key| self.term(key)).collect()
    }

    /// The sink, where the row has one.
    pub(super) fn sink(&self) -> Option<Term> {
        self.problem.sink?;
        self.row.inputs.sink_at(self.row.problem, self.sink_head).map(Term::without_value)
    }

    /// The row that these terms of keys make, with its sink.
    pub(super) fn prediction_of(&self, keys: Vec<Term>) -> Prediction {
        let mut terms = keys;
        terms.extend(self.sink());
        Prediction::Weighted(Weights { head: self.key_head, terms, lse: LseForm::Natural })
    }

    /// The row read so.
    pub(super) fn prediction(&self) -> Prediction {
        self.prediction_of(self.terms())
    }
}
