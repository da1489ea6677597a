//! How the inputs of score modifications are drawn.

use flashproof_spec::problem::Problem;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::Tensor;

use super::bias::BiasValues;
use super::sink::{self, SinkValues};

/// How bias and sinks are drawn; of no influence where a problem has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Modifiers {
    /// How the bias is drawn.
    pub bias: BiasValues,
    /// How the logits of the sinks are drawn.
    pub sink: SinkValues,
    /// Whether bias and sinks are `f32` whatever the problem's format.
    pub wide: bool,
}

impl Modifiers {
    /// What they are for in such a problem, in a sentence for each that it has.
    #[must_use]
    pub fn purposes(self, problem: &Problem) -> Vec<&'static str> {
        let bias = problem.bias.map(|_| self.bias.purpose());
        let alibi = problem
            .alibi
            .as_ref()
            .map(|_| "ALiBi: a slope of each head's own by the distance from a query's position.");
        let softcap = problem
            .softcap
            .map(|_| "A softcap: scores saturate, and gradients have its slope for a factor.");
        let sink = problem.sink.map(|sink| match sink {
            Sink::Zero => "A logit of 0 in the normalizer: the off-by-one softmax.",
            Sink::Logits(_) => self.sink.purpose(),
        });
        let dropout = problem.dropout.as_ref().map(|_| {
            "Dropout with the kept weights given: the normalizer and the LSE count the dropped ones."
        });
        [bias, alibi, softcap, sink, dropout].into_iter().flatten().collect()
    }

    pub(super) fn sinks(self, problem: &Problem, seed: u64) -> Option<Tensor> {
        match problem.sink? {
            Sink::Zero => None,
            Sink::Logits(format) => Some(sink::draw(problem.query_heads, format, self.sink, seed)),
        }
    }
}
