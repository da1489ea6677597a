//! Poison: NaN in the data that a row must not depend on (`FAS:fwd.special.invisible`).

use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::s;
use serde::{Deserialize, Serialize};

/// Which keys and values are filled with NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Poison {
    /// Those that no query sees: padding and keys beyond the last diagonal. No output may change.
    Unseen,
    /// The last one that some queries see and others do not. The others' outputs may not change.
    PartlySeen,
}

impl Poison {
    /// Both kinds.
    pub const ALL: [Self; 2] = [Self::Unseen, Self::PartlySeen];

    /// The name, as in a case's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unseen => "poison-unseen",
            Self::PartlySeen => "poison-partly-seen",
        }
    }

    /// The keys to poison, as `(batch, key)`; empty where the mask leaves none of the kind.
    #[must_use]
    pub fn keys(self, problem: &Problem) -> Vec<(usize, usize)> {
        (0..problem.batch).flat_map(|batch| self.keys_of(problem, batch)).collect()
    }

    fn keys_of(self, problem: &Problem, batch: usize) -> Vec<(usize, usize)> {
        let seen_by = |key: usize| {
            (0..problem.query_len)
                .filter(|&query| problem.sees(Site { batch, head: 0, query, key }))
                .count()
        };
        let keys = 0..problem.key_len;
        match self {
            Self::Unseen => keys.filter(|&key| seen_by(key) == 0).map(|key| (batch, key)).collect(),
            Self::PartlySeen => keys
                .rev()
                .find(|&key| (1..problem.query_len).contains(&seen_by(key)))
                .map(|key| (batch, key))
                .into_iter()
                .collect(),
        }
    }
}

/// The inputs with NaN in every entry of the given keys and their values, in every head.
#[must_use]
pub fn poisoned(inputs: &Inputs, keys: &[(usize, usize)]) -> Inputs {
    Inputs {
        query: inputs.query.clone(),
        key: with_nan_at(&inputs.key, keys),
        value: with_nan_at(&inputs.value, keys),
    }
}

fn with_nan_at(tensor: &Tensor, keys: &[(usize, usize)]) -> Tensor {
    let mut values = tensor.view4().to_owned();
    for &(batch, key) in keys {
        values.slice_mut(s![batch, .., key, ..]).fill(f64::NAN);
    }
    Tensor::rounded(tensor.format(), &values.into_dyn())
}

#[cfg(test)]
mod tests {
    use flashproof_spec::format::Format;
    use flashproof_spec::mask::{Mask, Rule};

    use super::*;

    #[test]
    fn unseen_keys_are_padding_and_those_past_the_last_diagonal() {
        let mut problem = Problem::new(Format::F32, 1, 2, 4);
        (problem.batch, problem.key_len) = (2, 5);
        problem.mask = Mask::only(Rule::KeyLengths(vec![3, 5]));
        assert_eq!(Poison::Unseen.keys(&problem), [(0, 3), (0, 4)]);
        problem.mask = Mask::only(Rule::CausalTopLeft);
        let past = [(0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4)];
        assert_eq!(Poison::Unseen.keys(&problem), past);
        problem.mask = Mask::full();
        assert_eq!(Poison::Unseen.keys(&problem), []);
    }

    #[test]
    fn a_partly_seen_key_is_seen_by_some_queries_only() {
        let mut problem = Problem::new(Format::F32, 1, 3, 4);
        assert_eq!(Poison::PartlySeen.keys(&problem), []);
        problem.mask = Mask::only(Rule::CausalBottomRight);
        assert_eq!(Poison::PartlySeen.keys(&problem), [(0, 2)]);
    }

    #[test]
    fn poison_reaches_the_given_keys_alone() {
        let problem = Problem::new(Format::F16, 2, 3, 2);
        let inputs = crate::inputs::generate(
            &problem,
            crate::inputs::Family::of(crate::inputs::Scores::Normal),
            1,
        )
        .unwrap();
        let after = poisoned(&inputs, &[(0, 1)]);
        assert_eq!(after.query, inputs.query);
        for (before, after) in [(&inputs.key, &after.key), (&inputs.value, &after.value)] {
            for ((at, x), y) in before.view4().indexed_iter().zip(after.view4()) {
                assert_eq!(y.is_nan(), at.2 == 1);
                assert!(at.2 == 1 || x.to_bits() == y.to_bits());
            }
        }
    }
}
