//! Kernels read and write the elements of each layout, and nothing else: their address arithmetic
//! against the specification's.

use flashproof_kernels::{Kernel, Unsupported, builtin};
use flashproof_spec::format::Format;
use flashproof_spec::layout::{
    Buffer, Layout, Paged, Placed, Ragged, StoredCotangents, StoredInputs, Strided, Strides,
};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Gradients, Inputs, Outputs, Tensor};
use ndarray::{Array3, Array4};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};

/// The seed, unless `PROPTEST_RNG_SEED` gives another.
const SEED: u64 = 26;

/// Gives back what it reads: entries of the query as output and LSE, and each input as its gradient.
struct Echo;

impl Kernel for Echo {
    fn name(&self) -> &'static str {
        "echo"
    }

    fn summary(&self) -> &'static str {
        "gives back what it reads"
    }

    fn profile(&self, format: Format) -> Profile {
        Profile::standard(format)
    }

    fn forward(&self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Unsupported> {
        inputs.check(problem).expect("tensors of the problem's shapes");
        let query = inputs.query.view4();
        let exact = |values| Tensor::exact(problem.format, values).expect("exact values");
        let output = Array4::from_shape_fn(problem.output_shape(), |(b, h, q, entry)| {
            query[[b, h, q, entry % problem.head_dim]]
        });
        let lse = Array3::from_shape_fn(problem.lse_shape(), |(b, h, q)| query[[b, h, q, 0]]);
        Ok(Outputs { output: exact(output.into_dyn()), lse: Some(exact(lse.into_dyn())) })
    }

    fn backward(
        &self,
        _: &Problem,
        inputs: &Inputs,
        outputs: &Outputs,
        cotangents: &Cotangents,
    ) -> Result<Gradients, Unsupported> {
        let same = |a: &Tensor, b: &Tensor| {
            a.values().iter().zip(b.values()).all(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
        };
        assert!(same(&outputs.output, &cotangents.output), "both stand as the output does");
        let lse = outputs.lse.as_ref().expect("an LSE");
        assert!(same(lse, cotangents.lse.as_ref().expect("its gradient")), "both stand alike");
        Ok(Gradients::new(inputs.query.clone(), inputs.key.clone(), inputs.value.clone()))
    }
}

/// Tensors whose elements are all different.
fn inputs(problem: &Problem) -> Inputs {
    let numbered = |shape: [usize; 4], from: f64| {
        let count: usize = shape.iter().product();
        let values = (0..count).map(|index| from + index as f64).collect();
        Tensor::rounded_from(Format::F32, &shape, values).expect("as many values as places")
    };
    Inputs::new(
        numbered(problem.query_shape(), 0.0),
        numbered(problem.key_shape(), 1000.0),
        numbered(problem.value_shape(), 2000.0),
    )
}

/// Strides of a dense tensor with axes in some order, spread along one axis and guarded.
fn strides(shape: [usize; 4]) -> impl Strategy<Value = Strides> {
    let order = Just([0, 1, 2, 3]).prop_shuffle();
    (order, prop::sample::select(vec![1, 3, 1 << 33]), 0_usize..9).prop_map(
        move |(order, times, guard)| {
            let dense = Strides::dense(shape, order);
            // the slowest axis can go further without meeting another
            let slowest = order[0];
            let spread = dense.spread(shape, slowest, dense.strides[slowest] * times);
            assert!(spread.separates(shape), "{spread:?} of {shape:?}");
            spread.guarded(guard)
        },
    )
}

fn strided(problem: &Problem) -> impl Strategy<Value = Layout> + use<> {
    let shared = any::<bool>();
    let shape = problem.key_shape();
    let of = |shape| strides(shape);
    let tensors = (
        of(problem.query_shape()),
        of(shape),
        of(problem.value_shape()),
        of(problem.output_shape()),
    );
    (tensors, shared).prop_map(move |((query, key, value, output), shared)| {
        let key = if shared { key.spread(shape, 1, 0) } else { key };
        Layout::Strided(Strided { query, key, value, output })
    })
}

/// Rows of members in any order, with gaps.
fn ragged(lengths: [[usize; 2]; 2]) -> impl Strategy<Value = Layout> {
    let gaps = prop::array::uniform6(0_usize..4);
    (gaps, any::<bool>()).prop_map(move |(gaps, swapped)| {
        let place = |[first, second]: [usize; 2], gaps: &[usize]| {
            let (a, b) = if swapped { (second, first) } else { (first, second) };
            let starts = [gaps[0], gaps[0] + a + gaps[1]];
            let starts = if swapped { [starts[1], starts[0]] } else { starts };
            (starts.to_vec(), gaps[0] + a + gaps[1] + b + gaps[2])
        };
        let (query_starts, query_rows) = place(lengths[0], &gaps[..3]);
        let (key_starts, key_rows) = place(lengths[1], &gaps[3..]);
        Layout::Ragged(Ragged { query_starts, query_rows, key_starts, key_rows })
    })
}

/// Shuffled pages, with some to spare.
fn paged(keys: [usize; 2]) -> impl Strategy<Value = Layout> {
    let pages = Just((0..16).collect::<Vec<usize>>()).prop_shuffle();
    (pages, 1_usize..8, 0_usize..2).prop_map(move |(pages, page_size, spare)| {
        let [first, second] = keys.map(|keys| keys.div_ceil(page_size) + spare);
        let block_table = vec![pages[..first].to_vec(), pages[first..first + second].to_vec()];
        Layout::Paged(Paged { page_size, pages: 16, block_table })
    })
}

fn problem() -> impl Strategy<Value = Problem> {
    let extents = (1_usize..4, 1_usize..3, 0_usize..5, 0_usize..6, 1_usize..4, 1_usize..4);
    let cuts = prop::array::uniform4(0_usize..3);
    (extents, cuts).prop_flat_map(|((heads, group, queries, keys, head_dim, value_dim), cuts)| {
        let cut = |len: usize, by: usize| len.saturating_sub(by);
        let lengths = [
            [cut(queries, cuts[0]), cut(queries, cuts[1])],
            [cut(keys, cuts[2]), cut(keys, cuts[3])],
        ];
        let rules =
            vec![Rule::QueryLengths(lengths[0].to_vec()), Rule::KeyLengths(lengths[1].to_vec())];
        let problem = Problem {
            batch: 2,
            query_heads: heads * group,
            key_heads: heads,
            query_len: queries,
            key_len: keys,
            head_dim,
            value_dim,
            mask: Mask { rules },
            ..Problem::new(Format::F32, 1, 1, 1)
        };
        let layouts = prop_oneof![strided(&problem), ragged(lengths), paged(lengths[1])];
        layouts.prop_map(move |layout| Problem { layout, ..problem.clone() })
    })
}

/// A case that was stored by the specification's addresses.
fn stored(problem: &Problem) -> (Inputs, StoredInputs) {
    let Inputs { query, key, value, .. } = inputs(problem);
    let inputs = Inputs::new(
        problem.as_stored(Placed::Query, &query),
        problem.as_stored(Placed::Key, &key),
        problem.as_stored(Placed::Value, &value),
    );
    let stored = StoredInputs::store(problem, &inputs).expect("values that agree");
    (inputs, stored)
}

/// Whether a buffer holds exactly the elements of a tensor, by the specification's addresses.
fn holds(problem: &Problem, placed: Placed, buffer: &Buffer, tensor: &Tensor) -> bool {
    let expected = Buffer::store(problem, placed, tensor).expect("places of their own");
    let bits = |buffer: &Buffer| -> Vec<_> {
        buffer.written().map(|(at, x)| (at, (!x.is_nan()).then_some(x))).collect()
    };
    (buffer.len(), bits(buffer)) == (expected.len(), bits(&expected))
}

fn settings() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(SEED);
    }
    let (seed, cases) = (config.rng_seed, config.cases);
    let command = "cargo test -p flashproof-kernels --test storage";
    eprintln!("reproduce: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} {command}");
    let failures = "tests/proptest-regressions/storage.txt";
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct(failures)));
    config
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn rows_stand_where_the_specification_says(problem in problem()) {
        prop_assert_eq!(problem.validate(), Ok(()));
        let (inputs, stored) = stored(&problem);
        let outputs = Echo.forward_stored(&problem, &stored).expect("an echo");
        let dense = Echo.forward(&problem, &inputs).expect("an echo");
        prop_assert!(holds(&problem, Placed::Output, &outputs.output, &dense.output));
        let lse = dense.lse.expect("an LSE");
        let found = outputs.lse.as_ref().expect("an LSE");
        prop_assert!(holds(&problem, Placed::Lse, found, &lse));
        let cotangents =
            StoredCotangents { output: outputs.output.clone(), lse: outputs.lse.clone() };
        let gradients =
            Echo.backward_stored(&problem, &stored, &outputs, &cotangents).expect("an echo");
        prop_assert!(holds(&problem, Placed::QueryGradient, &gradients.query, &inputs.query));
        prop_assert!(holds(&problem, Placed::KeyGradient, &gradients.key, &inputs.key));
        prop_assert!(holds(&problem, Placed::ValueGradient, &gradients.value, &inputs.value));
    }
}

/// As the dense tensors give it, whichever way they stand.
#[test]
fn a_layout_changes_no_bit() {
    let problem = Problem {
        batch: 2,
        mask: Mask::only(Rule::KeyLengths(vec![5, 3])),
        ..Problem::new(Format::Bf16, 2, 5, 4)
    };
    let rounded = |tensor: &Tensor| {
        let small = tensor.values().mapv(|value| (value % 7.0) / 8.0);
        Tensor::rounded(Format::Bf16, &small)
    };
    let Inputs { query, key, value, .. } = inputs(&problem);
    let inputs = Inputs::new(rounded(&query), rounded(&key), rounded(&value));
    let block_table = vec![vec![4, 1, 0], vec![3, 2]];
    for layout in [
        Layout::Strided(Strided::bshd(&problem)),
        Layout::Strided(Strided::transposed(&problem)),
        Layout::Paged(Paged { page_size: 2, pages: 5, block_table }),
    ] {
        let placed = Problem { layout, ..problem.clone() };
        for name in ["naive", "tiled:2x3", "split:2"] {
            let kernel = builtin(name).expect("a kernel");
            let dense = kernel.forward(&problem, &inputs).expect("an answer");
            let stored = StoredInputs::store(&placed, &inputs).expect("places of their own");
            let outputs = kernel.forward_stored(&placed, &stored).expect("an answer");
            assert_eq!(outputs.gather(&placed), dense, "{name} {:?}", placed.layout);
        }
    }
}
