//! Poison: NaN or infinity in the data that a row must not depend on (`FAS:fwd.special.invisible`).
//!
//! A signalling NaN is no kind of its own: tensors hold values, not the bits of a NaN, and pass on
//! no payload.

use std::collections::HashSet;

use flashproof_spec::mask::{Rule, Site};
use flashproof_spec::pattern::broadcast_place;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Inputs, Tensor};
use ndarray::{ArrayD, s};
use serde::{Deserialize, Serialize};

/// Which data is poisoned, and with what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poison {
    /// NaN in what no query sees: keys and values that are padding, beyond the last diagonal or
    /// hidden by a bias of minus infinity; entries of the bias that the mask hides; queries past
    /// their length, and their upstream gradients. No output may change.
    Unseen,
    /// NaN in the last key that some queries see and others do not, and in its value. The others'
    /// outputs may not change.
    PartlySeen,
    /// Infinity where [`Poison::Unseen`] has NaN: no maximum may find it.
    Infinity,
}

impl Poison {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Unseen, Self::PartlySeen, Self::Infinity];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unseen => "poison-unseen",
            Self::PartlySeen => "poison-partly-seen",
            Self::Infinity => "poison-infinity",
        }
    }

    /// What to poison in the problem's inputs; [empty](Places::is_empty) where mask and bias leave
    /// nothing of the kind.
    ///
    /// # Panics
    /// When the inputs are not the problem's: [`Inputs::check`] them first.
    #[must_use]
    pub fn places(self, problem: &Problem, inputs: &Inputs) -> Places {
        let value = match self {
            Self::Unseen | Self::PartlySeen => f64::NAN,
            Self::Infinity => f64::INFINITY,
        };
        let counts = (0..problem.batch).flat_map(|batch| {
            (0..problem.key_heads)
                .map(move |head| (batch, head, rows_seeing(problem, inputs, batch, head)))
        });
        match self {
            Self::PartlySeen => {
                let rows = problem.query_heads / problem.key_heads * problem.query_len;
                let keys = counts.filter_map(|(batch, head, seen)| {
                    let last = seen.iter().rposition(|count| (1..rows).contains(count));
                    last.map(|key| [batch, head, key])
                });
                Places { keys: keys.collect(), ..Places::none(value) }
            }
            Self::Unseen | Self::Infinity => {
                let keys = counts.flat_map(|(batch, head, seen)| {
                    let unseen = seen.into_iter().enumerate().filter(|&(_, count)| count == 0);
                    unseen.map(move |(key, _)| [batch, head, key])
                });
                Places {
                    keys: keys.collect(),
                    bias: hidden_bias(problem),
                    queries: padding_queries(problem),
                    lse_gradient: !matches!(problem.sink, Some(Sink::Logits(_))),
                    value,
                }
            }
        }
    }
}

/// How many rows, of the query heads that read a key head, see each of its keys.
fn rows_seeing(problem: &Problem, inputs: &Inputs, batch: usize, key_head: usize) -> Vec<usize> {
    let mut counts = vec![0; problem.key_len];
    for head in (0..problem.query_heads).filter(|&head| problem.key_head_of(head) == key_head) {
        for query in 0..problem.query_len {
            for key in inputs.visible_keys(problem, batch, head, query) {
                counts[key] += 1;
            }
        }
    }
    counts
}

/// The entries of the bias that the mask hides wherever they are broadcast to.
fn hidden_bias(problem: &Problem) -> Vec<[usize; 4]> {
    let Some(bias) = problem.bias else { return Vec::new() };
    let sites = indices(problem.score_shape());
    let seen: HashSet<_> = sites
        .filter(|&[batch, head, query, key]| problem.sees(Site { batch, head, query, key }))
        .map(|place| broadcast_place(bias.shape, place))
        .collect();
    indices(bias.shape).filter(|entry| !seen.contains(entry)).collect()
}

/// The queries past the lengths that the mask gives, as `[batch, query]`.
fn padding_queries(problem: &Problem) -> Vec<[usize; 2]> {
    let limited = problem.mask.rules.iter().any(|rule| matches!(rule, Rule::QueryLengths(_)));
    let past = |batch| problem.mask.used_queries(batch, problem.query_len)..problem.query_len;
    (0..problem.batch)
        .filter(|_| limited)
        .flat_map(|batch| past(batch).map(move |query| [batch, query]))
        .collect()
}

fn indices(shape: [usize; 4]) -> impl Iterator<Item = [usize; 4]> {
    ndarray::indices(shape).into_iter().map(|(a, b, c, d)| [a, b, c, d])
}

/// What is poisoned, and with what.
#[derive(Clone, Debug, PartialEq)]
pub struct Places {
    /// Keys and their values, as `[batch, key head, key]`.
    pub keys: Vec<[usize; 3]>,
    /// Entries of the bias, by their place in it.
    pub bias: Vec<[usize; 4]>,
    /// Queries and their upstream gradients, as `[batch, query]`, in every head.
    pub queries: Vec<[usize; 2]>,
    /// Whether the upstream gradients of these queries' LSE are poisoned too. They count where a
    /// row without keys still has a sink, whose gradient they reach (`FAS:bwd.sink.gradient`).
    pub lse_gradient: bool,
    /// What is put there.
    pub value: f64,
}

impl Places {
    const fn none(value: f64) -> Self {
        Self { keys: Vec::new(), bias: Vec::new(), queries: Vec::new(), lse_gradient: false, value }
    }

    /// Whether nothing is poisoned.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.bias.is_empty() && self.queries.is_empty()
    }

    /// Whether a row sees poison: one of the keys, since the other places are hidden from all.
    ///
    /// # Panics
    /// When the inputs are not the problem's: [`Inputs::check`] them first.
    #[must_use]
    pub fn seen_by(
        &self,
        problem: &Problem,
        inputs: &Inputs,
        [batch, head, query]: [usize; 3],
    ) -> bool {
        let key_head = problem.key_head_of(head);
        let visible = |key| {
            let site = Site { batch, head, query, key };
            problem.sees(site) && inputs.bias_at(problem, site) != f64::NEG_INFINITY
        };
        let own = |&&[member, owner, _]: &&[usize; 3]| member == batch && owner == key_head;
        self.keys.iter().filter(own).any(|&[_, _, key]| visible(key))
    }

    /// The inputs with the poison in place.
    #[must_use]
    pub fn inputs(&self, inputs: &Inputs) -> Inputs {
        Inputs {
            query: self.with_queries(&inputs.query),
            key: self.with_keys(&inputs.key),
            value: self.with_keys(&inputs.value),
            bias: inputs.bias.as_ref().map(|bias| self.with_bias(bias)),
            sink: inputs.sink.clone(),
            descale: inputs.descale.clone(),
        }
    }

    /// The upstream gradients with the poison in place.
    #[must_use]
    pub fn cotangents(&self, cotangents: &Cotangents) -> Cotangents {
        let lse = cotangents
            .lse
            .as_ref()
            .map(|lse| if self.lse_gradient { self.with_queries(lse) } else { lse.clone() });
        Cotangents { output: self.with_queries(&cotangents.output), lse }
    }

    /// A tensor of `[batch, head, query]`, with or without entries.
    fn with_queries(&self, tensor: &Tensor) -> Tensor {
        changed(tensor, |values| {
            for &[batch, query] in &self.queries {
                let mut member = values.index_axis_mut(ndarray::Axis(0), batch);
                member.index_axis_mut(ndarray::Axis(1), query).fill(self.value);
            }
        })
    }

    fn with_keys(&self, tensor: &Tensor) -> Tensor {
        changed(tensor, |values| {
            for &[batch, head, key] in &self.keys {
                values.slice_mut(s![batch, head, key, ..]).fill(self.value);
            }
        })
    }

    fn with_bias(&self, tensor: &Tensor) -> Tensor {
        changed(tensor, |values| {
            for &entry in &self.bias {
                values[entry] = self.value;
            }
        })
    }
}

fn changed(tensor: &Tensor, change: impl FnOnce(&mut ArrayD<f64>)) -> Tensor {
    let mut values = tensor.values().clone();
    change(&mut values);
    Tensor::rounded(tensor.format(), &values)
}

#[cfg(test)]
mod tests {
    use flashproof_spec::format::Format;
    use flashproof_spec::mask::{Mask, Rule};
    use flashproof_spec::pattern::Pattern;
    use flashproof_spec::score::Bias;

    use super::*;
    use crate::inputs::{Family, Scores, generate};

    fn inputs(problem: &Problem) -> Inputs {
        generate(problem, Family::of(Scores::Normal), 1).unwrap()
    }

    fn keys(poison: Poison, problem: &Problem) -> Vec<[usize; 3]> {
        poison.places(problem, &inputs(problem)).keys
    }

    #[test]
    fn unseen_keys_are_padding_and_those_past_the_last_diagonal() {
        let mut problem = Problem::new(Format::F32, 1, 2, 4);
        (problem.batch, problem.key_len) = (2, 5);
        problem.mask = Mask::only(Rule::KeyLengths(vec![3, 5]));
        assert_eq!(keys(Poison::Unseen, &problem), [[0, 0, 3], [0, 0, 4]]);
        problem.mask = Mask::only(Rule::CausalTopLeft);
        let past =
            [2, 3, 4].map(|key| [0, 0, key]).into_iter().chain([2, 3, 4].map(|key| [1, 0, key]));
        assert_eq!(keys(Poison::Infinity, &problem), past.collect::<Vec<_>>());
        problem.mask = Mask::full();
        assert!(Poison::Unseen.places(&problem, &inputs(&problem)).is_empty());
    }

    #[test]
    fn a_key_is_unseen_where_no_head_of_its_group_sees_it() {
        let mut problem = Problem::new(Format::F32, 4, 1, 4);
        (problem.key_heads, problem.key_len) = (2, 3);
        // Heads 0 and 1 read key head 0 and see one key each; heads 2 and 3 see nothing.
        let pattern = Pattern::from_fn([1, 4, 1, 3], |[_, head, _, key]| head < 2 && key == head);
        problem.mask = Mask::only(Rule::Boolean(pattern));
        let expected = [[0, 0, 2], [0, 1, 0], [0, 1, 1], [0, 1, 2]];
        assert_eq!(keys(Poison::Unseen, &problem), expected);
        assert_eq!(keys(Poison::PartlySeen, &problem), [[0, 0, 1]]);
        let places = Poison::PartlySeen.places(&problem, &inputs(&problem));
        let seen = |head| places.seen_by(&problem, &inputs(&problem), [0, head, 0]);
        assert_eq!([0, 1, 2, 3].map(seen), [false, true, false, false]);
    }

    #[test]
    fn a_partly_seen_key_is_seen_by_some_queries_only() {
        let mut problem = Problem::new(Format::F32, 1, 3, 4);
        assert_eq!(keys(Poison::PartlySeen, &problem), [[0; 3]; 0]);
        problem.mask = Mask::only(Rule::CausalBottomRight);
        assert_eq!(keys(Poison::PartlySeen, &problem), [[0, 0, 2]]);
    }

    #[test]
    fn a_bias_of_minus_infinity_hides_its_keys_and_a_mask_hides_its_bias() {
        let mut problem = Problem::new(Format::F32, 2, 2, 4);
        problem.key_len = 3;
        problem.mask = Mask::only(Rule::KeyLengths(vec![2]));
        problem.bias = Some(Bias { shape: [1, 1, 1, 3], format: Format::F32 });
        let mut inputs = inputs(&problem);
        let bias = vec![f64::NEG_INFINITY, 0.5, 0.25];
        inputs.bias = Some(Tensor::rounded_from(Format::F32, &[1, 1, 1, 3], bias).unwrap());
        let places = Poison::Unseen.places(&problem, &inputs);
        assert_eq!(places.keys, [[0, 0, 0], [0, 0, 2], [0, 1, 0], [0, 1, 2]]);
        assert_eq!(places.bias, [[0, 0, 0, 2]]);
        let after = places.inputs(&inputs).bias.unwrap();
        let after: Vec<_> = after.values().iter().map(|x| x.is_nan()).collect();
        assert_eq!(after, [false, false, true]);
    }

    #[test]
    fn padding_queries_are_poisoned_with_their_upstream_gradients() {
        let mut problem = Problem::new(Format::F32, 2, 3, 2);
        problem.batch = 2;
        problem.mask = Mask::only(Rule::QueryLengths(vec![1, 3]));
        let inputs = inputs(&problem);
        let places = Poison::Infinity.places(&problem, &inputs);
        assert_eq!(places.queries, [[0, 1], [0, 2]]);
        let upstream = crate::inputs::Upstream::OutputAndLse;
        let drawn = crate::inputs::upstream::cotangents(&problem, upstream, Format::F32, 1);
        let after = places.cotangents(&drawn);
        let lse = after.lse.expect("a gradient of the LSE");
        for tensor in [&places.inputs(&inputs).query, &after.output, &lse] {
            for (at, value) in tensor.values().indexed_iter() {
                assert_eq!(value.is_infinite(), at[0] == 0 && at[2] > 0);
            }
        }
    }

    #[test]
    fn poison_reaches_the_given_keys_alone() {
        let problem = Problem::new(Format::F16, 2, 3, 2);
        let inputs = inputs(&problem);
        let places = Places { keys: vec![[0, 1, 1]], ..Places::none(f64::NAN) };
        let after = places.inputs(&inputs);
        assert_eq!(after.query, inputs.query);
        for (before, after) in [(&inputs.key, &after.key), (&inputs.value, &after.value)] {
            for ((at, x), y) in before.view4().indexed_iter().zip(after.view4()) {
                let poisoned = (at.1, at.2) == (1, 1);
                assert_eq!(y.is_nan(), poisoned);
                assert!(poisoned || x.to_bits() == y.to_bits());
            }
        }
    }
}
