//! Small problems, each of which shows some fault.

use flashproof_spec::format::Format;
use flashproof_spec::layout::{Layout, Paged, Ragged, Strided, Strides};
use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Mask, Prefix, Rule, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Inputs, Tensor};

use crate::support::{inputs, products, uniform, with_bias};

/// A problem with inputs.
pub struct Shown {
    pub name: String,
    pub problem: Problem,
    pub inputs: Inputs,
}

const ALIGNED: Alignment = Alignment::BottomRight;

/// Two members, three query heads a key head, more keys than queries, and values of their own length.
fn small(format: Format) -> Problem {
    Problem {
        batch: 2,
        query_heads: 6,
        key_heads: 2,
        query_len: 9,
        key_len: 20,
        value_dim: 4,
        ..Problem::new(format, 6, 9, 8)
    }
}

/// More queries, keys and entries than a tile has.
fn long(format: Format) -> Problem {
    Problem { query_len: 70, key_len: 70, value_dim: 8, ..Problem::new(format, 1, 70, 72) }
}

/// Every problem.
pub fn shown() -> Vec<Shown> {
    let drawn = [masked(), modified(), placed()].into_iter().flatten().enumerate();
    let drawn = drawn.map(|(seed, (name, problem))| {
        let inputs = uniform(&problem, seed as u64);
        Shown { name: name.to_owned(), problem, inputs }
    });
    drawn.chain(extreme()).collect()
}

fn masked() -> Vec<(&'static str, Problem)> {
    let small = || small(Format::Bf16);
    let [batch, heads, queries, keys] = small().score_shape();
    let scattered = |[b, h, q, k]: [usize; 4]| !(3 * b + 5 * h + 7 * q + 11 * k).is_multiple_of(3);
    let patterned = |shape| Pattern::from_fn(shape, scattered);
    let window = |left, right| Window { left, right, alignment: ALIGNED };
    let documents = |len: usize| (0..len as u32).map(|position| position / 5).collect::<Vec<_>>();
    let rules = vec![
        ("causal, aligned at the last key", Rule::CausalBottomRight),
        ("causal, aligned at the first key", Rule::CausalTopLeft),
        ("window", Rule::Window(window(Some(3), Some(1)))),
        ("prefix", Rule::Prefix(Prefix { lengths: vec![14, 3], alignment: Alignment::TopLeft })),
        ("chunks", Rule::Chunked(Chunked { size: 4, alignment: ALIGNED })),
        ("dilated", Rule::Dilated(Dilated { step: 3, alignment: ALIGNED })),
        (
            "documents",
            Rule::Documents(Documents {
                query: vec![documents(queries); batch],
                key: vec![documents(keys); batch],
            }),
        ),
        ("left padding", Rule::KeyStarts(vec![3, 0])),
        ("key lengths", Rule::KeyLengths(vec![17, 5])),
        ("query lengths", Rule::QueryLengths(vec![9, 0])),
        ("mask of each head", Rule::Boolean(patterned([batch, heads, queries, keys]))),
        ("mask for all heads", Rule::Boolean(patterned([batch, 1, queries, keys]))),
        (
            "blocks",
            Rule::BlockSparse(BlockSparse {
                query_block: 3,
                key_block: 4,
                pattern: patterned([1, heads, 3, 5]),
            }),
        ),
    ];
    let masked =
        rules.into_iter().map(|(name, rule)| (name, Problem { mask: Mask::only(rule), ..small() }));
    let longer = [
        ("long, window", Rule::Window(window(Some(3), Some(0)))),
        ("long, causal", Rule::CausalTopLeft),
    ];
    let longer = longer
        .into_iter()
        .map(|(name, rule)| (name, Problem { mask: Mask::only(rule), ..long(Format::Bf16) }));
    let plain = [("long, f32", long(Format::F32)), ("long, bf16", long(Format::Bf16))];
    masked.chain(longer).chain(plain).chain([("small, f32", self::small(Format::F32))]).collect()
}

fn modified() -> Vec<(&'static str, Problem)> {
    let small = || small(Format::F32);
    let [batch, heads, queries, keys] = small().score_shape();
    let bias = |shape| Some(Bias { shape, format: Format::F32 });
    let softcap = |order| Some(Softcap { cap: 2.0, order });
    let keep = Pattern::from_fn([batch, heads, queries, keys], |[b, h, q, k]| {
        !(b + 2 * h + 3 * q + 5 * k).is_multiple_of(4)
    });
    let alibi = Some(Alibi { slopes: Slopes::Standard, alignment: ALIGNED });
    vec![
        ("bias", Problem { bias: bias([batch, heads, queries, keys]), ..small() }),
        ("shared bias", Problem { bias: bias([1, heads, 1, keys]), ..small() }),
        ("alibi", Problem { alibi, ..small() }),
        (
            "softcap before a bias, under a mask",
            Problem {
                softcap: softcap(SoftcapOrder::BeforeBias),
                bias: bias([batch, heads, queries, keys]),
                mask: Mask::only(Rule::CausalBottomRight),
                ..small()
            },
        ),
        (
            "softcap under a mask",
            Problem {
                softcap: softcap(SoftcapOrder::BeforeBias),
                mask: Mask::only(Rule::CausalBottomRight),
                ..small()
            },
        ),
        ("sinks", Problem { sink: Some(Sink::Logits(Format::F32)), ..small() }),
        ("dropout", Problem { dropout: Some(Dropout { scale: 2.0, keep }), ..small() }),
    ]
}

fn placed() -> Vec<(&'static str, Problem)> {
    let small = || small(Format::F32);
    let strided = |strided| Problem { layout: Layout::Strided(strided), ..small() };
    let dense = Strided::bshd(&small());
    let far = Strides::dense(small().key_shape(), [0, 1, 2, 3]);
    let far = far.spread(small().key_shape(), 0, 1 << 32);
    let ragged =
        Ragged { query_starts: vec![1, 12], query_rows: 25, key_starts: vec![0, 22], key_rows: 45 };
    let paged = Paged {
        page_size: 4,
        pages: 10,
        block_table: vec![vec![0, 2, 4, 6, 8], vec![1, 3, 5, 7, 9]],
    };
    vec![
        ("strided", strided(dense.clone())),
        ("far apart", strided(Strided { key: far, ..dense })),
        ("ragged", Problem { layout: Layout::Ragged(ragged), ..small() }),
        ("paged", Problem { layout: Layout::Paged(paged), ..small() }),
    ]
}

/// Scores that underflow, overflow or tie.
fn extreme() -> Vec<Shown> {
    let of = |name: &str, problem: Problem, query: &[f64], key: &[f64]| {
        let value: Vec<f64> = (0..problem.key_len).map(|index| 1.0 + index as f64).collect();
        let inputs = inputs(&problem, query, key, &value);
        Shown { name: name.to_owned(), problem, inputs }
    };
    let f32 = |queries, keys| products(Format::F32, queries, keys, 1);
    let low = of(
        "low scores after a block without keys",
        Problem {
            mask: Mask::only(Rule::Window(Window {
                left: Some(1),
                right: Some(0),
                alignment: ALIGNED,
            })),
            ..f32(70, 70)
        },
        &[-200.0; 70],
        &[1.0; 70],
    );
    let lowest = {
        let problem =
            Problem { bias: Some(Bias { shape: [1, 1, 1, 2], format: Format::F32 }), ..f32(1, 2) };
        let shown = of("lowest biases", problem.clone(), &[0.0], &[0.0; 2]);
        let inputs = with_bias(&problem, shown.inputs, &[f64::from(f32::MIN); 2]);
        Shown { inputs, ..shown }
    };
    let steep: Vec<f64> = (0..70).map(|index| Format::F32.round(0.05 * f64::from(index))).collect();
    let nan = {
        let problem = small(Format::F32);
        let drawn = uniform(&problem, 99);
        let mut values = drawn.query.values().clone();
        values[[0, 0, 0, 0]] = f64::NAN;
        let query = Tensor::rounded(problem.format, &values);
        Shown { name: "NaN".to_owned(), problem, inputs: Inputs { query, ..drawn } }
    };
    let hidden = {
        let problem = Problem {
            mask: Mask::only(Rule::KeyLengths(vec![1])),
            ..products(Format::F32, 1, 2, 1)
        };
        let inputs = inputs(&problem, &[1.0], &[1.0; 2], &[1.0, f64::NAN]);
        Shown { name: "NaN in a hidden value".to_owned(), problem, inputs }
    };
    let scaled = Problem { scale: Scale::Value(0.3), ..products(Format::Bf16, 1, 1, 1) };
    vec![
        low,
        lowest,
        nan,
        hidden,
        of("ties at 200", f32(1, 3), &[200.0], &[1.0; 3]),
        of("rows far apart", f32(2, 2), &[300.0, 1.0], &[1.0, 0.5]),
        of("rising scores", f32(1, 70), &[1.0], &steep),
        of("scores that are not exact", scaled, &[133_120.0], &[133_120.0]),
        of("products past f16", f32(1, 2), &[300.0], &[300.0, 299.0]),
        of("scores below -88", f32(2, 3), &[-120.0, -119.0], &[1.0, 1.0, 1.0]),
        of("LSEs past the largest exponential", f32(1, 8), &[100.0], &[1.0; 8]),
    ]
}
