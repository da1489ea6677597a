//! Gradients of attention by recomputation: from the inputs, and from each row's output and LSE.
//!
//! A loss depends on the outputs `o` and the LSEs `L` of a head's rows; `dO_j` and `g` are its
//! derivatives by one row's `o_j` and `L`. No forward pass stores the probabilities, so a backward
//! pass forms them again (Dao et al., arXiv 2205.14135, algorithm 4; 2307.08691, algorithm 2):
//!
//! ```text
//! D    = sum_j dO_j o_j                        once for each row
//! P_i  = e^(s_i - L)
//! dP_i = sum_j dO_j v_ij
//! dS_i = P_i (dP_i - D + g)
//! dQ_r = scale sum_i dS_ri k_i    dK_i = scale sum_r dS_ri q_r    dV_i = sum_r P_ri dO_r
//! ```
//!
//! `dS_i` follows from `d o_j / d s_i = P_i (v_ij - o_j)` and `d L / d s_i = P_i`. A key without a
//! score is invisible: it has `P = 0` and `dS = 0`, and neither its key nor its value row is looked
//! at (`FAS:bwd.probability.mask`).
//!
//! In the exact model `e` is 2, and the derivative of `2^s` is `ln 2` times `2^s`. Scores and LSEs
//! there are binary logarithms; `dS_i` and `g` are derivatives by scores and LSE in nats, `ln 2`
//! times as large. So `dS`, `dQ` and `dK` are the derivatives by the model's own scores, queries and
//! keys in units of `ln 2`, and no irrational number is needed. `dV` has no such factor.

pub mod modified;
pub mod tiled;

use crate::arithmetic::Arithmetic;
use crate::online::Row;

/// A query as the backward pass meets it: the query, what the forward pass stored of its row, and
/// the upstream gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct Query<S, N> {
    /// The query, `head_dim` entries.
    pub query: Vec<N>,
    /// Its score against each key of the head; `None`: the row does not see it.
    pub scores: Vec<Option<S>>,
    /// Its output and LSE; `None` for a row without visible keys.
    pub row: Option<Row<S, N>>,
    /// `dO_j`, `value_dim` entries.
    pub output_gradient: Vec<N>,
    /// `g`, the upstream gradient of the LSE in nats; 0 where the loss does not use the LSE.
    pub lse_gradient: N,
}

/// The queries of an arithmetic.
pub type QueryOf<A> = Query<<A as Arithmetic>::Score, <A as Arithmetic>::Number>;

/// A key with its value; or the gradients of both.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyValue<N> {
    /// `head_dim` entries.
    pub key: Vec<N>,
    /// `value_dim` entries.
    pub value: Vec<N>,
}

/// A key head and the queries that read it, those of every query head of its group
/// (`FAS:bwd.head.group-sum`).
#[derive(Clone, Debug, PartialEq)]
pub struct Head<S, N> {
    /// The softmax scale: the derivative of a score by the dot product that it comes from.
    pub scale: N,
    /// The queries, each with one score for each of `keys`.
    pub queries: Vec<Query<S, N>>,
    /// The keys and values.
    pub keys: Vec<KeyValue<N>>,
}

/// The heads of an arithmetic.
pub type HeadOf<A> = Head<<A as Arithmetic>::Score, <A as Arithmetic>::Number>;

/// The gradients of a head's inputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Gradient<N> {
    /// `dQ_r`, `head_dim` entries for each query.
    pub query: Vec<Vec<N>>,
    /// `dK_i` and `dV_i` for each key.
    pub keys: Vec<KeyValue<N>>,
}

/// The gradients of an arithmetic.
pub type GradientOf<A> = Gradient<<A as Arithmetic>::Number>;

/// `P` and `dS` of one query and one key that it sees.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair<N> {
    /// `P_i = e^(s_i - L)`.
    pub probability: N,
    /// `dS_i = P_i (dP_i - D + g)`.
    pub score_gradient: N,
}

/// `D = sum_j dO_j o_j` (`FAS:bwd.delta.rowsum`), of one row's own output.
///
/// # Panics
/// When the two have not the same number of entries.
pub fn delta<A: Arithmetic>(
    a: &A,
    output_gradient: &[A::Number],
    output: &[A::Number],
) -> A::Number {
    dot(a, output_gradient, output)
}

/// `P_i = e^(s_i - L)`, and 0 for a key that the row does not see (`FAS:bwd.probability.recompute`,
/// `FAS:bwd.probability.mask`).
pub fn probability<A: Arithmetic>(a: &A, score: Option<&A::Score>, lse: &A::Score) -> A::Number {
    score.map_or_else(|| a.zero(), |score| a.weight(score, lse))
}

/// `dS_i = P_i (dP_i - D + g)` (`FAS:bwd.score.gradient`, `FAS:bwd.lse.gradient`).
pub fn score_gradient<A: Arithmetic>(
    a: &A,
    probability: &A::Number,
    probability_gradient: &A::Number,
    delta: &A::Number,
    lse_gradient: &A::Number,
) -> A::Number {
    let centred = a.sub(probability_gradient, delta);
    a.mul(probability, &a.add(&centred, lse_gradient))
}

/// `P` and `dS` of a query and every key of its head; `None` where it does not see the key.
///
/// # Panics
/// When the query has not one score for each key, sees a key without having a row, or when rows of
/// values, outputs and output gradients differ in length.
pub fn row_pairs<A: Arithmetic>(
    a: &A,
    query: &QueryOf<A>,
    keys: &[KeyValue<A::Number>],
) -> Vec<Option<Pair<A::Number>>> {
    assert_eq!(query.scores.len(), keys.len(), "one score for each key");
    let delta = query.row.as_ref().map(|row| delta(a, &query.output_gradient, &row.output));
    (0..keys.len()).map(|i| pair(a, query, delta.as_ref(), i, &keys[i])).collect()
}

/// `P` and `dS` of a query and its key number `index`, given the row's `D`.
fn pair<A: Arithmetic>(
    a: &A,
    query: &QueryOf<A>,
    delta: Option<&A::Number>,
    index: usize,
    key: &KeyValue<A::Number>,
) -> Option<Pair<A::Number>> {
    let score = query.scores[index].as_ref()?;
    let (row, delta) = query.row.as_ref().zip(delta).expect("a query that sees a key has a row");
    let probability = probability(a, Some(score), &row.lse);
    let probability_gradient = dot(a, &query.output_gradient, &key.value);
    let score_gradient =
        score_gradient(a, &probability, &probability_gradient, delta, &query.lse_gradient);
    Some(Pair { probability, score_gradient })
}

/// `dQ_r = scale sum_i dS_ri k_i`, `head_dim` entries (`FAS:bwd.query.gradient`,
/// `FAS:bwd.query.scale`), from the pairs of query `r`.
///
/// # Panics
/// When a visible key has not as many entries as the query.
pub fn query_gradient<A: Arithmetic>(
    a: &A,
    head: &HeadOf<A>,
    r: usize,
    pairs: &[Option<Pair<A::Number>>],
) -> Vec<A::Number> {
    let terms = pairs.iter().zip(&head.keys).filter_map(|(pair, key)| {
        let pair = pair.as_ref()?;
        Some((&pair.score_gradient, &key.key[..]))
    });
    scaled(a, &head.scale, &combination(a, head.queries[r].query.len(), terms))
}

/// `dK_i = scale sum_r dS_ri q_r`, `head_dim` entries (`FAS:bwd.key.scale`), from the pairs of every
/// query, `pairs[query][key]`.
///
/// # Panics
/// When a query that sees the key has not as many entries as the key.
pub fn key_gradient<A: Arithmetic>(
    a: &A,
    head: &HeadOf<A>,
    i: usize,
    pairs: &[Vec<Option<Pair<A::Number>>>],
) -> Vec<A::Number> {
    let terms = pairs.iter().zip(&head.queries).filter_map(|(row, query)| {
        let pair = row[i].as_ref()?;
        Some((&pair.score_gradient, &query.query[..]))
    });
    scaled(a, &head.scale, &combination(a, head.keys[i].key.len(), terms))
}

/// `dV_i = sum_r P_ri dO_r`, `value_dim` entries (`FAS:bwd.value.gradient`), from the pairs of every
/// query, `pairs[query][key]`.
///
/// # Panics
/// When a query that sees the key has not as many output gradients as the value has entries.
pub fn value_gradient<A: Arithmetic>(
    a: &A,
    head: &HeadOf<A>,
    i: usize,
    pairs: &[Vec<Option<Pair<A::Number>>>],
) -> Vec<A::Number> {
    let terms = pairs.iter().zip(&head.queries).filter_map(|(row, query)| {
        let pair = row[i].as_ref()?;
        Some((&pair.probability, &query.output_gradient[..]))
    });
    combination(a, head.keys[i].value.len(), terms)
}

/// The gradients of a head from all pairs at once.
///
/// Every entry is given, those of rows without visible keys and of keys that no query sees as
/// zeros (`FAS:bwd.empty-row.zero`, `FAS:bwd.output.written`).
///
/// # Panics
/// As [`row_pairs`], [`query_gradient`], [`key_gradient`] and [`value_gradient`] do.
pub fn attention_gradient<A: Arithmetic>(a: &A, head: &HeadOf<A>) -> GradientOf<A> {
    let pairs: Vec<_> = head.queries.iter().map(|query| row_pairs(a, query, &head.keys)).collect();
    let query = pairs.iter().enumerate().map(|(r, row)| query_gradient(a, head, r, row)).collect();
    let keys = (0..head.keys.len())
        .map(|i| KeyValue {
            key: key_gradient(a, head, i, &pairs),
            value: value_gradient(a, head, i, &pairs),
        })
        .collect();
    Gradient { query, keys }
}

/// The gradients of keys and values that several query heads read: entry by entry the sum of what
/// each head brings (`FAS:bwd.head.group-sum`). `None` for no heads.
///
/// # Panics
/// When two heads differ in the number of keys or of entries.
pub fn group_sum<A: Arithmetic>(
    a: &A,
    heads: impl IntoIterator<Item = Vec<KeyValue<A::Number>>>,
) -> Option<Vec<KeyValue<A::Number>>> {
    heads.into_iter().reduce(|sum, head| {
        assert_eq!(sum.len(), head.len(), "keys of two heads");
        let pairs = sum.iter().zip(&head);
        pairs
            .map(|(x, y)| KeyValue {
                key: add(a, &x.key, &y.key),
                value: add(a, &x.value, &y.value),
            })
            .collect()
    })
}

/// `sum_j x_j y_j`.
fn dot<A: Arithmetic>(a: &A, x: &[A::Number], y: &[A::Number]) -> A::Number {
    assert_eq!(x.len(), y.len(), "entries of the two factors of a dot product");
    a.sum(x.iter().zip(y).map(|(x, y)| a.mul(x, y)))
}

/// `x + y`, entry by entry.
fn add<A: Arithmetic>(a: &A, x: &[A::Number], y: &[A::Number]) -> Vec<A::Number> {
    assert_eq!(x.len(), y.len(), "entries of the two terms of a sum");
    x.iter().zip(y).map(|(x, y)| a.add(x, y)).collect()
}

/// `scale * x`, entry by entry.
fn scaled<A: Arithmetic>(a: &A, scale: &A::Number, x: &[A::Number]) -> Vec<A::Number> {
    x.iter().map(|x| a.mul(scale, x)).collect()
}

/// `sum_n c_n x_n`, entry by entry.
fn combination<'n, A: Arithmetic>(
    a: &A,
    entries: usize,
    terms: impl IntoIterator<Item = (&'n A::Number, &'n [A::Number])>,
) -> Vec<A::Number>
where
    A::Number: 'n,
{
    let mut sum = vec![a.zero(); entries];
    for (coefficient, vector) in terms {
        add_multiple(a, &mut sum, coefficient, vector);
    }
    sum
}

/// `sum += coefficient * vector`.
fn add_multiple<A: Arithmetic>(
    a: &A,
    sum: &mut [A::Number],
    coefficient: &A::Number,
    vector: &[A::Number],
) {
    assert_eq!(sum.len(), vector.len(), "entries of a vector and of the sum it is added to");
    for (entry, x) in sum.iter_mut().zip(vector) {
        *entry = a.add(entry, &a.mul(coefficient, x));
    }
}
