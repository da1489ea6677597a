//! Online softmax: a row's running state, block by block (the chapter, equation 26.2).
//!
//! The state of the keys seen so far is `(m, l, n)`: a reference score, the normalizer
//! `l = sum_i e^(s_i - m)` and the numerator `n_j = sum_i e^(s_i - m) v_ij`. Absorbing more keys
//! moves `m` and rescales `l` and `n` alike; the output `n / l` is divided out once, at the end.
//! The form is that of Milakov and Gimelshein (arXiv 1805.02867, algorithm 3), carried over to
//! attention by `FlashAttention` (arXiv 2205.14135, algorithm 1; 2307.08691, algorithm 1).
//!
//! A key without a score is invisible: it is never looked at (`FAS:fwd.special.invisible`).

use crate::arithmetic::{Arithmetic, greater};

/// A key as one row meets it.
#[derive(Clone, Debug, PartialEq)]
pub struct Key<S, N> {
    /// Its score; `None`: the row does not see it.
    pub score: Option<S>,
    /// Its value row, `value_dim` entries.
    pub value: Vec<N>,
}

/// The keys of an arithmetic.
pub type KeyOf<A> = Key<<A as Arithmetic>::Score, <A as Arithmetic>::Number>;

/// Running state of one row: what a tiled kernel carries from block to block.
///
/// Its size does not depend on the number of keys absorbed (`FAS:fwd.memory.row-state`).
#[derive(Clone, Debug, PartialEq)]
pub struct State<S, N> {
    /// `m`, the score that weights are taken against, the maximum so far in the usual algorithm;
    /// `None`, standing for minus infinity, until a visible key is absorbed.
    pub reference: Option<S>,
    /// `l = sum_i e^(s_i - m)`; 0 while there is no reference.
    pub normalizer: N,
    /// `n_j = sum_i e^(s_i - m) v_ij`, `value_dim` entries; 0 while there is no reference.
    pub numerator: Vec<N>,
}

/// The states of an arithmetic.
pub type StateOf<A> = State<<A as Arithmetic>::Score, <A as Arithmetic>::Number>;

/// A finished row.
#[derive(Clone, Debug, PartialEq)]
pub struct Row<S, N> {
    /// `o_j = n_j / l`, `value_dim` entries.
    pub output: Vec<N>,
    /// `L = m + ln l`.
    pub lse: S,
}

/// The finished rows of an arithmetic.
pub type RowOf<A> = Row<<A as Arithmetic>::Score, <A as Arithmetic>::Number>;

/// The state of no keys, which is the identity of [`merge`] (`FAS:fwd.online.identity`).
///
/// ```text
/// m = -inf    l = 0    n = 0
/// ```
pub fn start<A: Arithmetic>(a: &A, value_dim: usize) -> StateOf<A> {
    State { reference: None, normalizer: a.zero(), numerator: vec![a.zero(); value_dim] }
}

/// The same state against another reference (`FAS:fwd.online.rescale`).
///
/// ```text
/// l' = e^(m - m') l    n' = e^(m - m') n
/// ```
///
/// The state of no keys has no reference to change and is returned as it is.
pub fn rescale<A: Arithmetic>(a: &A, state: StateOf<A>, reference: &A::Score) -> StateOf<A> {
    let Some(old) = &state.reference else { return state };
    let factor = a.weight(old, reference);
    State {
        reference: Some(reference.clone()),
        normalizer: a.mul(&factor, &state.normalizer),
        numerator: state.numerator.iter().map(|n| a.mul(&factor, n)).collect(),
    }
}

/// The state after a further block of keys, with the greatest score so far as its reference
/// (`FAS:fwd.online.absorb`; the chapter, equation 26.2).
///
/// ```text
/// m' = max(m, max_i s_i)
/// l' = e^(m - m') l + sum_i e^(s_i - m')
/// n' = e^(m - m') n + sum_i e^(s_i - m') v_i
/// ```
///
/// A block without a visible key changes nothing (`FAS:fwd.online.masked-block`).
///
/// # Panics
/// When the value row of a visible key has not as many entries as the state's numerator.
pub fn absorb<A: Arithmetic>(a: &A, state: StateOf<A>, block: &[KeyOf<A>]) -> StateOf<A> {
    let reference = block
        .iter()
        .fold(state.reference.clone(), |m, key| greater(m.as_ref(), key.score.as_ref()));
    match reference {
        None => state,
        Some(reference) => absorb_at(a, state, block, &reference),
    }
}

/// The state after a further block of keys, against any reference whatever
/// (`FAS:fwd.softmax.shift`): the old one, under lazy or conditional rescaling, or one known
/// beforehand.
///
/// A block without a visible key changes nothing.
///
/// # Panics
/// When the value row of a visible key has not as many entries as the state's numerator.
pub fn absorb_at<A: Arithmetic>(
    a: &A,
    state: StateOf<A>,
    block: &[KeyOf<A>],
    reference: &A::Score,
) -> StateOf<A> {
    if block.iter().all(|key| key.score.is_none()) {
        return state;
    }
    let mut state = rescale(a, state, reference);
    state.reference = Some(reference.clone());
    for Key { score, value } in block {
        let Some(score) = score else { continue };
        assert_eq!(value.len(), state.numerator.len(), "entries of a value row");
        let weight = a.weight(score, reference);
        state.normalizer = a.add(&state.normalizer, &weight);
        for (n, v) in state.numerator.iter_mut().zip(value) {
            *n = a.add(n, &a.mul(&weight, v));
        }
    }
    state
}

/// The state of two disjoint sets of keys together (`FAS:fwd.online.merge`).
///
/// ```text
/// m = max(m1, m2)
/// l = e^(m1 - m) l1 + e^(m2 - m) l2
/// n = e^(m1 - m) n1 + e^(m2 - m) n2
/// ```
///
/// # Panics
/// When the numerators have not the same number of entries.
pub fn merge<A: Arithmetic>(a: &A, left: StateOf<A>, right: StateOf<A>) -> StateOf<A> {
    assert_eq!(left.numerator.len(), right.numerator.len(), "entries of two numerators");
    let Some(reference) = greater(left.reference.as_ref(), right.reference.as_ref()) else {
        return left;
    };
    let (left, right) = (rescale(a, left, &reference), rescale(a, right, &reference));
    State {
        reference: Some(reference),
        normalizer: a.add(&left.normalizer, &right.normalizer),
        numerator: left.numerator.iter().zip(&right.numerator).map(|(l, r)| a.add(l, r)).collect(),
    }
}

/// Output and LSE of the keys absorbed; `None` for a row that saw none
/// (`FAS:fwd.softmax.empty-row`).
///
/// ```text
/// o_j = n_j / l    L = m + ln l
/// ```
pub fn finish<A: Arithmetic>(a: &A, state: &StateOf<A>) -> Option<RowOf<A>> {
    let reference = state.reference.as_ref()?;
    Some(Row {
        output: state.numerator.iter().map(|n| a.div(n, &state.normalizer)).collect(),
        lse: a.lse(reference, &state.normalizer),
    })
}
