//! Problems to draw: every format, mask rule and score modification.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Mask, Prefix, Rule, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

use super::FORMATS;

/// What dropout multiplies by here: nothing is rounded.
pub const KEPT: f64 = 2.0;

/// Small problems of every supported format and intersections of masks, without modifications of
/// scores, grouped heads and unequal lengths included.
pub fn problems() -> impl Strategy<Value = Problem> {
    let shape = (1..=2_usize, 1..=2_usize, 1..=3_usize, 0..=9_usize, 0..=9_usize);
    (select(&FORMATS[..]), shape, 1..=5_usize, 1..=4_usize).prop_flat_map(
        |(format, (batch, key_heads, group, query_len, key_len), head_dim, value_dim)| {
            masked(Problem {
                batch,
                query_heads: key_heads * group,
                key_heads,
                query_len,
                key_len,
                value_dim,
                ..Problem::new(format, 1, query_len, head_dim)
            })
        },
    )
}

/// As [`problems`], with every modification of scores and weights.
pub fn modified_problems() -> impl Strategy<Value = Problem> {
    problems().prop_flat_map(modified)
}

/// The problem under any intersection of up to three rules.
pub fn masked(problem: Problem) -> impl Strategy<Value = Problem> {
    vec(rules(&problem), 0..=3)
        .prop_map(move |rules| Problem { mask: Mask { rules }, ..problem.clone() })
}

/// Any rule, with parameters for this problem.
pub fn rules(problem: &Problem) -> impl Strategy<Value = Rule> + use<> {
    let &Problem { batch, query_heads, query_len, key_len, .. } = problem;
    let lengths = move |limit: usize| vec(0..=limit, batch);
    prop_oneof![
        Just(Rule::CausalTopLeft),
        Just(Rule::CausalBottomRight),
        lengths(key_len).prop_map(Rule::KeyLengths),
        lengths(key_len).prop_map(Rule::KeyStarts),
        lengths(query_len).prop_map(Rule::QueryLengths),
        (option::of(distances()), option::of(distances()), alignments())
            .prop_map(|(left, right, alignment)| Rule::Window(Window { left, right, alignment })),
        (lengths(key_len), alignments())
            .prop_map(|(lengths, alignment)| Rule::Prefix(Prefix { lengths, alignment })),
        (sizes(), alignments())
            .prop_map(|(size, alignment)| Rule::Chunked(Chunked { size, alignment })),
        (sizes(), alignments())
            .prop_map(|(step, alignment)| Rule::Dilated(Dilated { step, alignment })),
        (vec(vec(0..3_u32, query_len), batch), vec(vec(0..3_u32, key_len), batch))
            .prop_map(|(query, key)| Rule::Documents(Documents { query, key })),
        patterns([batch, query_heads, query_len, key_len]).prop_map(Rule::Boolean),
        (1..=4_usize, 1..=4_usize).prop_flat_map(move |(query_block, key_block)| {
            let queries = query_len.div_ceil(query_block);
            let keys = key_len.div_ceil(key_block);
            patterns([batch, query_heads, queries, keys]).prop_map(move |pattern| {
                Rule::BlockSparse(BlockSparse { query_block, key_block, pattern })
            })
        }),
    ]
}

/// The problem with any of the modifications.
pub fn modified(problem: Problem) -> impl Strategy<Value = Problem> {
    let shape = problem.score_shape();
    let slopes = vec((0_u8..=8).prop_map(|eighths| f64::from(eighths) / 8.0), problem.query_heads);
    let slopes = prop_oneof![Just(Slopes::Standard), slopes.prop_map(Slopes::Given)];
    let modifications = (
        option::of(softcaps()),
        option::of(
            (broadcast(shape), select(&Format::ALL[..]))
                .prop_map(|(shape, format)| Bias { shape, format }),
        ),
        option::of(
            (slopes, alignments()).prop_map(|(slopes, alignment)| Alibi { slopes, alignment }),
        ),
        option::of(sinks()),
        option::of(patterns(shape).prop_map(|keep| Dropout { scale: KEPT, keep })),
    );
    modifications.prop_map(move |(softcap, bias, alibi, sink, dropout)| Problem {
        softcap,
        bias,
        alibi,
        sink,
        dropout,
        ..problem.clone()
    })
}

/// One entry a head, so that a key is its score but for a factor, and more keys than elsewhere.
pub fn products_of_one_entry() -> impl Strategy<Value = Problem> {
    let shape = (1..=2_usize, 1..=2_usize, 0..=40_usize, 0..=40_usize, 1..=3_usize);
    (select(&FORMATS[..]), shape).prop_flat_map(
        |(format, (batch, heads, query_len, key_len, value_dim))| {
            masked(Problem {
                batch,
                query_len,
                key_len,
                value_dim,
                scale: Scale::Value(1.0),
                ..Problem::new(format, heads, query_len, 1)
            })
        },
    )
}

fn softcaps() -> impl Strategy<Value = Softcap> {
    (
        select(&[0.5, 2.0, 30.0][..]),
        select(&[SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias][..]),
    )
        .prop_map(|(cap, order)| Softcap { cap, order })
}

fn sinks() -> impl Strategy<Value = Sink> {
    prop_oneof![Just(Sink::Zero), select(&Format::ALL[..]).prop_map(Sink::Logits)]
}

fn alignments() -> impl Strategy<Value = Alignment> {
    select(&[Alignment::TopLeft, Alignment::BottomRight][..])
}

/// Distances within the lengths, past them, and past what a signed number holds.
fn distances() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..=12_usize, 1 => Just(usize::MAX)]
}

fn sizes() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 1..=12_usize, 1 => Just(usize::MAX)]
}

/// Truth values that are shared along any axes.
fn patterns(shape: [usize; 4]) -> impl Strategy<Value = Pattern> {
    broadcast(shape).prop_flat_map(|shape| {
        vec(any::<bool>(), shape.iter().product::<usize>())
            .prop_map(move |bits| Pattern::new(shape, bits).expect("a bit for each place"))
    })
}

/// The shape with any of its axes shared.
pub fn broadcast(shape: [usize; 4]) -> impl Strategy<Value = [usize; 4]> {
    any::<[bool; 4]>().prop_map(move |is_shared| {
        std::array::from_fn(|axis| if is_shared[axis] { 1 } else { shape[axis] })
    })
}
