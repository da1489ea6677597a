//! Where elements stand, and which layouts can not be posed.

mod support;

use std::collections::BTreeSet;

use flashproof_spec::format::Format;
use flashproof_spec::layout::{
    Buffer, Layout, LayoutError, Paged, Placed, Ragged, StoreError, StoredInputs, Strided, Strides,
    packed_qkv,
};
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::{Problem, ProblemError};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{ArrayD, IxDyn};
use proptest::prelude::*;
use support::settings;

/// Every extent its own, so that none can stand in for another.
fn distinct() -> Problem {
    Problem {
        batch: 2,
        query_heads: 6,
        key_heads: 3,
        query_len: 5,
        key_len: 7,
        head_dim: 11,
        value_dim: 13,
        ..Problem::new(Format::F32, 1, 1, 1)
    }
}

fn with(layout: Layout) -> Problem {
    Problem { layout, ..distinct() }
}

fn ragged() -> Problem {
    let rules = vec![Rule::QueryLengths(vec![5, 2]), Rule::KeyLengths(vec![3, 7])];
    let ragged =
        Ragged { query_starts: vec![4, 1], query_rows: 10, key_starts: vec![0, 4], key_rows: 12 };
    Problem { mask: Mask { rules }, ..with(Layout::Ragged(ragged)) }
}

fn paged() -> Problem {
    let paged = Paged { page_size: 3, pages: 6, block_table: vec![vec![5, 0], vec![2, 4, 1]] };
    Problem { mask: Mask::only(Rule::KeyLengths(vec![4, 7])), ..with(Layout::Paged(paged)) }
}

/// The layouts of every kind, with a name.
fn layouts() -> Vec<(&'static str, Problem)> {
    let problem = distinct();
    let square = Problem { query_len: 7, ..distinct() };
    let packed = packed_qkv(&square).expect("as many queries as keys");
    vec![
        ("contiguous", problem.clone()),
        ("bshd", with(Layout::Strided(Strided::bshd(&problem)))),
        ("transposed", with(Layout::Strided(Strided::transposed(&problem)))),
        ("packed", Problem { layout: Layout::Strided(packed), ..square }),
        ("ragged", ragged()),
        ("paged", paged()),
    ]
}

fn tensor(shape: &[usize], value: impl FnMut(usize) -> f64) -> Tensor {
    let count = shape.iter().product();
    let values = (0..count).map(value).collect();
    Tensor::rounded_from(Format::F32, shape, values).expect("as many values as the shape takes")
}

/// Tensors whose elements are all different.
fn inputs(problem: &Problem) -> Inputs {
    let numbered = |shape: [usize; 4]| tensor(&shape, |index| index as f64);
    Inputs::new(
        numbered(problem.query_shape()),
        numbered(problem.key_shape()),
        numbered(problem.value_shape()),
    )
}

fn rejected(problem: &Problem) -> LayoutError {
    match problem.validate() {
        Err(ProblemError::Layout(error)) => error,
        other => panic!("a layout was to be refused, not {other:?}"),
    }
}

#[test]
fn the_layouts_of_this_file_are_valid() {
    for (name, problem) in layouts() {
        assert_eq!(problem.validate(), Ok(()), "{name}");
    }
}

/// By hand, from the statements of the layouts.
#[test]
fn offsets_are_those_stated() {
    let of = |problem: &Problem, tensor, place| problem.offset_of(tensor, place);
    let contiguous = distinct();
    assert_eq!(of(&contiguous, Placed::Query, [1, 5, 4, 10]), Some(2 * 6 * 5 * 11 - 1));
    assert_eq!(of(&contiguous, Placed::Lse, [1, 2, 3, 0]), Some((6 + 2) * 5 + 3));

    let strides = Strides { elements: 5000, offset: 3, strides: [1000, 100, 10, 2] };
    let strided = Strided { query: strides, ..Strided::bshd(&contiguous) };
    let strided = with(Layout::Strided(strided));
    assert_eq!(of(&strided, Placed::Query, [1, 2, 3, 4]), Some(3 + 1000 + 200 + 30 + 8));
    assert_eq!(of(&strided, Placed::Key, [1, 2, 6, 4]), Some(7 * 3 * 11 + 6 * 3 * 11 + 2 * 11 + 4));
    assert_eq!(of(&strided, Placed::Lse, [1, 2, 3, 0]), Some((6 + 2) * 5 + 3));

    let ragged = ragged();
    assert_eq!(of(&ragged, Placed::Query, [1, 2, 1, 4]), Some((2 * 6 + 2) * 11 + 4));
    assert_eq!(of(&ragged, Placed::Query, [1, 2, 2, 4]), None);
    assert_eq!(of(&ragged, Placed::Output, [0, 5, 4, 12]), Some((8 * 6 + 5) * 13 + 12));
    assert_eq!(of(&ragged, Placed::Lse, [1, 2, 1, 0]), Some(2 * 10 + 2));
    assert_eq!(of(&ragged, Placed::ValueGradient, [1, 2, 6, 0]), Some((10 * 3 + 2) * 13));
    assert_eq!(of(&ragged, Placed::Key, [0, 0, 3, 0]), None);

    let paged = paged();
    assert_eq!(of(&paged, Placed::Key, [0, 1, 2, 4]), Some(((5 * 3 + 2) * 3 + 1) * 11 + 4));
    assert_eq!(of(&paged, Placed::Value, [1, 0, 6, 0]), Some(3 * 3 * 13));
    assert_eq!(of(&paged, Placed::Key, [0, 1, 6, 4]), None);
    assert_eq!(of(&paged, Placed::KeyGradient, [0, 0, 6, 0]), Some(6 * 11));
}

#[test]
fn a_packed_row_holds_query_key_and_value() {
    let problem = Problem { query_len: 7, ..distinct() };
    let row = 6 * 11 + 3 * 11 + 3 * 13;
    let packed = packed_qkv(&problem).expect("as many queries as keys");
    assert_eq!(packed.query.strides, [7 * row, 11, row, 1]);
    assert_eq!((packed.query.offset, packed.key.offset, packed.value.offset), (0, 66, 99));
    assert_eq!(packed.query.elements, 2 * 7 * row);
    let problem = Problem { layout: Layout::Strided(packed), ..problem };
    let offsets = |tensor| problem.owned(tensor).map(|(_, offset)| offset);
    let all: BTreeSet<_> =
        offsets(Placed::Query).chain(offsets(Placed::Key)).chain(offsets(Placed::Value)).collect();
    assert!(all.into_iter().eq(0..2 * 7 * row), "the three fill the buffer, each place once");
    assert_eq!(packed_qkv(&distinct()), None);
}

#[test]
fn elements_have_places_of_their_own() {
    for (name, problem) in layouts() {
        for placed in Placed::ALL {
            let offsets: Vec<_> = problem.owned(placed).map(|(_, offset)| offset).collect();
            let distinct: BTreeSet<_> = offsets.iter().copied().collect();
            assert_eq!(offsets.len(), distinct.len(), "{name} {placed:?}");
            let end = problem.buffer_len(placed);
            assert!(distinct.iter().all(|&offset| offset < end), "{name} {placed:?}");
        }
    }
}

#[test]
fn what_lies_outside_has_no_storage() {
    for (name, problem) in layouts() {
        for placed in Placed::ALL {
            let shape = problem.placed_shape(placed);
            for axis in 0..4 {
                let mut place = [0; 4];
                place[axis] = shape[axis];
                assert_eq!(problem.offset_of(placed, place), None, "{name} {placed:?} {axis}");
            }
        }
    }
}

#[test]
fn rows_without_storage_are_told() {
    let ragged = ragged();
    let queries = |b| (0..5).filter(|&q| ragged.has_query_row(b, q)).count();
    let keys = |b| (0..7).filter(|&k| ragged.has_key_row(b, k)).count();
    assert_eq!([queries(0), queries(1), keys(0), keys(1)], [5, 2, 3, 7]);
    let paged = paged();
    let keys = |b| (0..7).filter(|&k| paged.has_key_row(b, k)).count();
    // two pages hold six keys, of which four are in use
    assert_eq!([keys(0), keys(1)], [6, 7]);
    assert!((0..5).all(|q| paged.has_query_row(1, q)));
}

#[test]
fn storing_and_gathering_changes_nothing() {
    for (name, problem) in layouts() {
        let inputs = inputs(&problem);
        let stored = StoredInputs::store(&problem, &inputs).expect("distinct places");
        for (placed, buffer, tensor) in [
            (Placed::Query, &stored.query, &inputs.query),
            (Placed::Key, &stored.key, &inputs.key),
            (Placed::Value, &stored.value, &inputs.value),
        ] {
            let gathered = buffer.gather(&problem, placed);
            assert_eq!(buffer.len(), problem.buffer_len(placed));
            for (place, value) in gathered.values().indexed_iter() {
                let place = [place[0], place[1], place[2], place[3]];
                match problem.offset_of(placed, place) {
                    None => assert!(value.is_nan(), "{name} {placed:?} {place:?}"),
                    Some(_) => assert_eq!(*value, tensor.view4()[place], "{name} {placed:?}"),
                }
            }
            assert_eq!(buffer.written().count(), problem.owned(placed).count());
            let other = problem.as_stored(placed, tensor);
            assert!(
                other.values().iter().zip(gathered.values()).all(|(a, b)| a == b || a.is_nan())
            );
        }
    }
}

/// A buffer of 2^40 elements takes no more memory than its tensor.
#[test]
fn offsets_go_past_32_bits() {
    let problem = distinct();
    let bshd = Strided::bshd(&problem);
    let far = bshd.key.spread(problem.key_shape(), 0, 1 << 40).guarded(2);
    let problem = Problem { layout: Layout::Strided(Strided { key: far, ..bshd }), ..problem };
    assert_eq!(problem.validate(), Ok(()));
    let last = 2 + (1_usize << 40) + 7 * 3 * 11 - 1;
    assert_eq!(problem.offset_of(Placed::Key, [1, 2, 6, 10]), Some(last));
    assert_eq!(problem.buffer_len(Placed::Key), last + 1 + 2);
    let key = inputs(&problem).key;
    let buffer = Buffer::store(&problem, Placed::Key, &key).expect("distinct places");
    assert_eq!(buffer.gather(&problem, Placed::Key), key);
    assert_eq!(buffer.written().count(), key.values().len());
    // what a 32-bit offset would find
    assert!(buffer.read(last & 0xffff_ffff) != buffer.read(last));
}

#[test]
fn what_was_not_written_reads_as_poison() {
    let mut buffer = Buffer::poisoned(Format::Bf16, 3);
    buffer.write(1, 2.0);
    buffer.write(1, f64::INFINITY);
    assert!(buffer.read(0).is_nan() && buffer.read(2).is_nan());
    assert_eq!(buffer.written().collect::<Vec<_>>(), [(1, f64::INFINITY)]);
    assert!(buffer.is_written(1) && !buffer.is_written(2) && !buffer.is_empty());
}

/// All batch members and heads see one key tensor.
fn shared() -> Problem {
    let problem = distinct();
    let shape = problem.key_shape();
    let bshd = Strided::bshd(&problem);
    let key = bshd.key.spread(shape, 0, 0).spread(shape, 1, 0);
    Problem { layout: Layout::Strided(Strided { key, ..bshd }), ..problem }
}

#[test]
fn what_shares_a_place_must_agree() {
    let problem = shared();
    assert_eq!(problem.validate(), Ok(()));
    let inputs = inputs(&problem);
    let error = StoredInputs::store(&problem, &inputs).expect_err("other values for other heads");
    let expected =
        StoreError { tensor: "key", offset: 0, place: [0, 1, 0, 0], first: 0.0, second: 77.0 };
    assert_eq!(error, expected);
    let key = problem.as_stored(Placed::Key, &inputs.key);
    assert_eq!(key.view4()[[0, 1, 0, 0]], key.view4()[[1, 2, 0, 0]]);
    let agreed = Inputs { key, ..inputs };
    assert!(StoredInputs::store(&problem, &agreed).is_ok());
    let nan = ArrayD::from_elem(IxDyn(&problem.key_shape()), f64::NAN);
    let nan = Tensor::rounded(Format::F32, &nan);
    assert!(Buffer::store(&problem, Placed::Key, &nan).is_ok());
}

#[test]
fn the_gradient_of_what_shares_places_is_contiguous() {
    let problem = shared();
    assert!(!problem.stands_contiguous(Placed::Key));
    assert!(problem.stands_contiguous(Placed::KeyGradient));
    assert!(!problem.stands_contiguous(Placed::ValueGradient));
    assert_eq!(problem.buffer_len(Placed::KeyGradient), 2 * 3 * 7 * 11);
    assert_eq!(problem.offset_of(Placed::KeyGradient, [1, 0, 0, 0]), Some(3 * 7 * 11));
}

#[test]
fn strides_that_leave_the_buffer_are_refused() {
    let problem = distinct();
    let bshd = Strided::bshd(&problem);
    let refused = |strided: Strided| rejected(&with(Layout::Strided(strided)));
    let elements = bshd.value.elements - 1;
    let value = Strides { elements, ..bshd.value };
    assert_eq!(
        refused(Strided { value, ..bshd.clone() }),
        LayoutError::Reach { tensor: "value", at: Some(elements), elements }
    );
    let query = Strides { strides: [usize::MAX, 1, 1, 1], ..bshd.query };
    let error = refused(Strided { query, ..bshd.clone() });
    let elements = query.elements;
    assert_eq!(error, LayoutError::Reach { tensor: "query", at: None, elements });
    assert_eq!(
        error.to_string(),
        "the last element of query stands at no offset of 64 bits: expected it within a buffer of \
         660 elements"
    );
    let key = Strides { elements: usize::MAX, ..bshd.key };
    assert_eq!(refused(Strided { key, ..bshd }), LayoutError::TooLarge { tensor: "key" });
}

#[test]
fn outputs_that_share_places_are_refused() {
    let problem = distinct();
    let bshd = Strided::bshd(&problem);
    let shape = problem.output_shape();
    for axis in 0..4 {
        let output = bshd.output.spread(shape, axis, 0);
        let strided = Strided { output, ..bshd.clone() };
        let expected = LayoutError::Overlap { tensor: "output", strides: output.strides };
        assert_eq!(rejected(&with(Layout::Strided(strided))), expected);
    }
    // an axis of one index needs no stride
    let narrow = Problem { batch: 1, ..problem };
    let bshd = Strided::bshd(&narrow);
    let output = bshd.output.spread(narrow.output_shape(), 0, 0);
    let layout = Layout::Strided(Strided { output, ..bshd });
    assert_eq!(Problem { layout, ..narrow }.validate(), Ok(()));
}

#[test]
fn ragged_rows_that_do_not_fit_are_refused() {
    let changed = |change: fn(&mut Ragged)| {
        let mut problem = ragged();
        let Layout::Ragged(layout) = &mut problem.layout else { panic!("a ragged layout") };
        change(layout);
        rejected(&problem)
    };
    assert_eq!(
        changed(|it| it.query_starts.truncate(1)),
        LayoutError::StartCount { what: "queries", found: 1, batch: 2 }
    );
    let rows =
        |what, member, start, length, rows| LayoutError::Rows { what, member, start, length, rows };
    assert_eq!(changed(|it| it.query_rows = 8), rows("queries", 0, 4, 5, 8));
    assert_eq!(changed(|it| it.key_starts[1] = usize::MAX), rows("keys", 1, usize::MAX, 7, 12));
    assert_eq!(
        changed(|it| it.query_starts[1] = 7),
        LayoutError::SharedRow { what: "queries", first: 0, second: 1, row: 7 }
    );
    assert_eq!(
        changed(|it| it.key_starts = vec![6, 4]),
        LayoutError::SharedRow { what: "keys", first: 1, second: 0, row: 6 }
    );
    assert_eq!(changed(|it| it.key_rows = usize::MAX), LayoutError::TooLarge { tensor: "key" });
}

#[test]
fn a_member_without_rows_takes_none() {
    let mut problem = ragged();
    problem.mask.rules[0] = Rule::QueryLengths(vec![5, 0]);
    let Layout::Ragged(layout) = &mut problem.layout else { panic!("a ragged layout") };
    layout.query_starts = vec![0, 5];
    layout.query_rows = 5;
    assert_eq!(problem.validate(), Ok(()));
    assert!(!problem.has_query_row(1, 0));
}

#[test]
fn pages_that_do_not_fit_are_refused() {
    let changed = |change: fn(&mut Paged)| {
        let mut problem = paged();
        let Layout::Paged(layout) = &mut problem.layout else { panic!("a paged layout") };
        change(layout);
        rejected(&problem)
    };
    assert_eq!(changed(|it| it.page_size = 0), LayoutError::PageSize);
    assert_eq!(
        changed(|it| it.block_table.truncate(1)),
        LayoutError::TableCount { found: 1, batch: 2 }
    );
    assert_eq!(
        changed(|it| it.block_table[1].truncate(2)),
        LayoutError::TableShort { member: 1, found: 2, keys: 7, expected: 3 }
    );
    assert_eq!(
        changed(|it| it.block_table[0][1] = 6),
        LayoutError::Page { member: 0, entry: 1, page: 6, pages: 6 }
    );
    assert_eq!(changed(|it| it.pages = usize::MAX), LayoutError::TooLarge { tensor: "key" });
}

#[test]
fn a_layout_is_written_as_documented() {
    let json = |problem: &Problem| serde_json::to_value(problem).expect("JSON")["layout"].clone();
    assert_eq!(json(&distinct()), serde_json::Value::Null);
    assert_eq!(
        json(&ragged()),
        serde_json::json!({"ragged": {"query_starts": [4, 1], "query_rows": 10,
                                      "key_starts": [0, 4], "key_rows": 12}})
    );
    for (name, problem) in layouts() {
        let text = serde_json::to_string(&problem).expect("JSON");
        assert_eq!(serde_json::from_str::<Problem>(&text).expect("a problem"), problem, "{name}");
    }
}

/// Numbers at which sums and products go wrong.
fn extent() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0_usize..6, 1 => Just(usize::MAX), 1 => Just(1 << 40), 1 => Just(1 << 62)]
}

fn strides() -> impl Strategy<Value = Strides> {
    (extent(), extent(), [extent(), extent(), extent(), extent()])
        .prop_map(|(elements, offset, strides)| Strides { elements, offset, strides })
}

fn layout() -> impl Strategy<Value = Layout> {
    let numbers = || prop::collection::vec(extent(), 0..4);
    prop_oneof![
        Just(Layout::Contiguous),
        (strides(), strides(), strides(), strides()).prop_map(|(query, key, value, output)| {
            Layout::Strided(Strided { query, key, value, output })
        }),
        (numbers(), extent(), numbers(), extent()).prop_map(
            |(query_starts, query_rows, key_starts, key_rows)| {
                Layout::Ragged(Ragged { query_starts, query_rows, key_starts, key_rows })
            }
        ),
        (extent(), extent(), prop::collection::vec(numbers(), 0..4)).prop_map(
            |(page_size, pages, block_table)| {
                Layout::Paged(Paged { page_size, pages, block_table })
            }
        ),
    ]
}

proptest! {
    #![proptest_config(settings("layout", "tests/proptest-regressions/layout.txt"))]

    /// Whatever a layout says, it is refused, or each element with storage stands within its buffer.
    #[test]
    fn any_layout_is_refused_or_holds_its_tensors(
        layout in layout(),
        [batch, query_len, key_len] in [1_usize..3, 0_usize..4, 0_usize..4],
        lengths in prop::collection::vec(0_usize..4, 2),
    ) {
        let lengths = lengths[..batch].iter().map(|&length| length.min(key_len)).collect();
        let mask = Mask::only(Rule::KeyLengths(lengths));
        let problem = Problem { batch, query_len, key_len, mask, layout, ..Problem::new(Format::F32, 2, 1, 2) };
        let valid = problem.validate().is_ok();
        for placed in Placed::ALL {
            for (_, offset) in problem.owned(placed) {
                prop_assert!(!valid || offset < problem.buffer_len(placed));
            }
        }
        if valid {
            let outputs: Vec<_> = problem.owned(Placed::Output).map(|(_, offset)| offset).collect();
            let distinct: BTreeSet<_> = outputs.iter().collect();
            prop_assert_eq!(outputs.len(), distinct.len());
        }
    }
}
