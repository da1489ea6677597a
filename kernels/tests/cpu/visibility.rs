//! Which keys a query sees: drawn by hand, and against the words of the rules.
//!
//! Scores are all zero and the value matrix is the identity, so entry `j` of an output is `1/n`
//! where the query sees key `j`, among `n` that it sees, and 0 where it does not. The gradients are
//! held to the same pictures.

use flashproof_kernels::Kernel;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Mask, Prefix, Rule, Site, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use proptest::prelude::*;

use crate::support::problems::problems;
use crate::support::sight;
use crate::support::{
    FORMATS, cotangents, differentiate, inputs, kernels, ln, lse, output, outputs, products, run,
    values,
};

const TOP_LEFT: Alignment = Alignment::TopLeft;
const BOTTOM_RIGHT: Alignment = Alignment::BottomRight;

/// One picture a batch member, of one head; a row a query, `#` a key that it sees.
fn sees(rules: &[Rule], key_len: usize, pictures: &[&[&str]]) {
    heads_see(rules, key_len, 1, pictures);
}

/// One picture a batch member and head, heads of a member next to each other.
fn heads_see(rules: &[Rule], key_len: usize, heads: usize, pictures: &[&[&str]]) {
    for format in FORMATS {
        let problem = Problem {
            batch: pictures.len() / heads,
            query_heads: heads,
            key_heads: heads,
            mask: Mask { rules: rules.to_vec() },
            ..products(format, pictures[0].len(), key_len, key_len)
        };
        for kernel in kernels() {
            let case = format!("{} {format}", kernel.name());
            let (drawn, sums) = draw(kernel.as_ref(), &problem);
            assert_eq!(drawn, pictures.concat(), "{case}");
            let counts = drawn.iter().map(|row| row.matches('#').count());
            let expected: Vec<f64> =
                counts.map(|count| ln(kernel.as_ref(), format, count as f32)).collect();
            assert_eq!(sums, expected, "{case}");
            let problem = Problem { value_dim: problem.query_len, ..problem.clone() };
            let drawn = draw_gradients(kernel.as_ref(), &problem);
            assert_eq!(drawn, pictures.concat(), "gradients of {case}");
        }
    }
}

/// Pictures of the rows, and their LSE.
fn draw(kernel: &dyn Kernel, problem: &Problem) -> (Vec<String>, Vec<f64>) {
    let keys = problem.key_len;
    let identity = identity(keys).repeat(problem.batch * problem.key_heads);
    let inputs =
        inputs(problem, &zeros(&problem.query_shape()), &zeros(&problem.key_shape()), &identity);
    let outputs = run(kernel, problem, &inputs);
    let rows = output(&outputs).chunks(keys).map(|row| picture(row, problem.format)).collect();
    (rows, lse(&outputs))
}

/// Pictures of the columns of the value gradient. Scores and LSE are all zero, so that a visible
/// key weighs 1, and the gradient of the output is the identity: entry `i` of the gradient of value
/// `j` is 1 where query `i` sees key `j`, and 0 where it does not.
fn draw_gradients(kernel: &dyn Kernel, problem: &Problem) -> Vec<String> {
    let queries = problem.query_len;
    let [query, key, value, output, lse] = [
        zeros(&problem.query_shape()),
        zeros(&problem.key_shape()),
        zeros(&problem.value_shape()),
        zeros(&problem.output_shape()),
        zeros(&problem.lse_shape()),
    ];
    let identity = identity(queries).repeat(problem.batch * problem.query_heads);
    let gradients = differentiate(
        kernel,
        problem,
        &inputs(problem, &query, &key, &value),
        &outputs(problem, &output, &lse),
        &cotangents(problem, &identity, None),
    );
    let sign = |&entry: &f64| match entry {
        0.0 => '.',
        1.0 => '#',
        _ => '?',
    };
    let columns = values(&gradients.value);
    let member = |entries: &[f64]| -> Vec<String> {
        (0..queries)
            .map(|query| entries.iter().skip(query).step_by(queries).map(sign).collect())
            .collect()
    };
    columns.chunks(problem.key_len * queries).flat_map(member).collect()
}

/// The identity matrix, row-major.
fn identity(size: usize) -> Vec<f64> {
    (0..size * size).map(|flat| f64::from(u8::from(flat / size == flat % size))).collect()
}

fn zeros(shape: &[usize]) -> Vec<f64> {
    vec![0.0; shape.iter().product()]
}

fn picture(row: &[f64], format: Format) -> String {
    let seen = row.iter().filter(|&&entry| entry != 0.0).count();
    let share = match format {
        Format::F64 => 1.0 / seen as f64,
        _ => format.round(f64::from(1.0 / seen as f32)),
    };
    let sign = |&entry: &f64| match entry {
        0.0 => '.',
        entry if entry == share => '#',
        _ => '?',
    };
    row.iter().map(sign).collect()
}

#[test]
fn without_a_rule_every_query_sees_every_key() {
    sees(&[], 5, &[&["#####", "#####"]]);
    sees(&[], 1, &[&["#", "#", "#"]]);
}

#[test]
fn causal_top_left_aligns_the_first_query_with_the_first_key() {
    let rules = [Rule::CausalTopLeft];
    sees(&rules, 5, &[&["#....", "##..."]]);
    sees(&rules, 2, &[&["#.", "##", "##", "##", "##"]]);
    sees(&rules, 4, &[&["#...", "##..", "###.", "####"]]);
}

#[test]
fn causal_bottom_right_aligns_the_last_query_with_the_last_key() {
    let rules = [Rule::CausalBottomRight];
    sees(&rules, 5, &[&["####.", "#####"]]);
    sees(&rules, 2, &[&["..", "..", "..", "#.", "##"]]);
    sees(&rules, 4, &[&["#...", "##..", "###.", "####"]]);
}

#[test]
fn key_lengths_end_each_batch_member() {
    let rules = [Rule::KeyLengths(vec![3, 0, 4])];
    sees(&rules, 4, &[&["###.", "###."], &["....", "...."], &["####", "####"]]);
}

#[test]
fn causal_top_left_and_key_lengths_intersect() {
    let rules = [Rule::CausalTopLeft, Rule::KeyLengths(vec![2, 5])];
    sees(&rules, 5, &[&["#....", "##...", "##..."], &["#....", "##...", "###.."]]);
}

#[test]
fn causal_bottom_right_aligns_with_the_last_key_in_use() {
    let rules = [Rule::KeyLengths(vec![3, 1]), Rule::CausalBottomRight];
    sees(&rules, 5, &[&["##...", "###.."], &[".....", "#...."]]);
}

#[test]
fn both_causal_rules_intersect() {
    let rules = [Rule::CausalTopLeft, Rule::CausalBottomRight];
    sees(&rules, 3, &[&["#..", "##."]]);
    sees(&rules, 2, &[&["..", "#.", "##"]]);
}

#[test]
fn the_shortest_of_several_key_lengths_counts() {
    for [first, second] in [[3, 2], [2, 3]] {
        let rules = [Rule::KeyLengths(vec![first]), Rule::KeyLengths(vec![second])];
        sees(&rules, 4, &[&["##.."]]);
    }
}

#[test]
fn no_keys_at_all_give_zero_and_minus_infinity() {
    for format in FORMATS {
        for kernel in kernels() {
            let problem = products(format, 2, 0, 3);
            let outputs =
                run(kernel.as_ref(), &problem, &inputs(&problem, &[1.0, f64::NAN], &[], &[]));
            assert_eq!(output(&outputs), [0.0; 6]);
            assert_eq!(lse(&outputs), [f64::NEG_INFINITY; 2]);
        }
    }
}

#[test]
fn no_queries_give_empty_outputs() {
    for format in FORMATS {
        for kernel in kernels() {
            let problem = products(format, 0, 2, 1);
            let outputs =
                run(kernel.as_ref(), &problem, &inputs(&problem, &[], &[1.0, 2.0], &[1.0, 2.0]));
            assert!(output(&outputs).is_empty() && lse(&outputs).is_empty());
        }
    }
}

#[test]
fn key_starts_begin_each_batch_member() {
    let rules = [Rule::KeyStarts(vec![1, 0, 4])];
    sees(&rules, 4, &[&[".###", ".###"], &["####", "####"], &["....", "...."]]);
    // The latest of several starts counts, and alignment does not.
    let rules = [Rule::KeyStarts(vec![1]), Rule::CausalBottomRight, Rule::KeyStarts(vec![2])];
    sees(&rules, 5, &[&["..##.", "..###"]]);
    let rules = [Rule::KeyStarts(vec![3]), Rule::KeyLengths(vec![2])];
    sees(&rules, 4, &[&["....", "...."]]);
}

#[test]
fn query_lengths_leave_padding_queries_without_keys() {
    sees(&[Rule::QueryLengths(vec![1, 0])], 2, &[&["##", ".."], &["..", ".."]]);
    // The last query in use sees the last key in use.
    let rules = [Rule::QueryLengths(vec![2, 3]), Rule::CausalBottomRight];
    sees(&rules, 4, &[&["###.", "####", "...."], &["##..", "###.", "####"]]);
    let rules = [Rule::CausalBottomRight, Rule::KeyLengths(vec![3]), Rule::QueryLengths(vec![2])];
    sees(&rules, 5, &[&["##...", "###..", "....."]]);
}

fn window(left: Option<usize>, right: Option<usize>, alignment: Alignment) -> [Rule; 1] {
    [Rule::Window(Window { left, right, alignment })]
}

#[test]
fn windows_include_both_bounds() {
    sees(&window(Some(1), Some(0), TOP_LEFT), 4, &[&["#...", "##..", ".##.", "..##"]]);
    sees(&window(Some(0), Some(2), TOP_LEFT), 4, &[&["###.", ".###", "..##", "...#"]]);
    sees(&window(Some(0), Some(0), TOP_LEFT), 3, &[&["#..", ".#.", "..#", "..."]]);
    sees(&window(Some(1), Some(1), BOTTOM_RIGHT), 5, &[&[".###.", "..###", "...##"]]);
    sees(&window(Some(1), Some(0), BOTTOM_RIGHT), 2, &[&["..", "..", "#.", "##"]]);
}

#[test]
fn windows_may_have_one_bound_or_none() {
    sees(&window(None, Some(0), TOP_LEFT), 3, &[&["#..", "##.", "###"]]);
    sees(&window(Some(1), None, TOP_LEFT), 4, &[&["####", "####", ".###", "..##"]]);
    sees(&window(None, None, BOTTOM_RIGHT), 3, &[&["###", "###"]]);
}

#[test]
fn windows_may_be_larger_than_the_sequence() {
    for large in [9, usize::MAX] {
        sees(&window(Some(large), Some(0), TOP_LEFT), 3, &[&["#..", "##.", "###"]]);
        sees(&window(Some(0), Some(large), BOTTOM_RIGHT), 3, &[&[".##", "..#"]]);
        sees(&window(Some(large), Some(large), BOTTOM_RIGHT), 2, &[&["##", "##", "##"]]);
    }
}

fn prefix(length: usize, alignment: Alignment) -> [Rule; 1] {
    [Rule::Prefix(Prefix { lengths: vec![length], alignment })]
}

#[test]
fn a_prefix_is_seen_by_every_query_and_the_rest_causally() {
    sees(&prefix(2, TOP_LEFT), 4, &[&["##..", "##..", "###.", "####"]]);
    sees(&prefix(0, TOP_LEFT), 3, &[&["#..", "##.", "###"]]);
    sees(&prefix(3, TOP_LEFT), 3, &[&["###", "###"]]);
    sees(&prefix(1, BOTTOM_RIGHT), 2, &[&["#.", "#.", "#.", "##"]]);
    let rules = [prefix(3, TOP_LEFT), window(Some(1), None, TOP_LEFT)].concat();
    sees(&rules, 4, &[&["###.", "###.", ".##.", "..##"]]);
}

#[test]
fn chunks_divide_positions_from_the_first_key_on() {
    let chunked = |size, alignment| [Rule::Chunked(Chunked { size, alignment })];
    sees(&chunked(2, TOP_LEFT), 5, &[&["##...", "##...", "..##.", "..##.", "....#"]]);
    // Own positions 2, 3 and 4.
    sees(&chunked(3, BOTTOM_RIGHT), 5, &[&["###..", "...##", "...##"]]);
    // Own positions -2, -1, 0 and 1: those before the first key have chunks of their own.
    sees(&chunked(2, BOTTOM_RIGHT), 2, &[&["..", "..", "##", "##"]]);
    sees(&chunked(3, BOTTOM_RIGHT), 2, &[&["..", "..", "##", "##"]]);
    sees(&chunked(1, TOP_LEFT), 2, &[&["#.", ".#", ".."]]);
    for large in [5, usize::MAX] {
        sees(&chunked(large, TOP_LEFT), 3, &[&["###", "###"]]);
    }
}

#[test]
fn dilation_sees_every_so_many_keys() {
    let dilated = |step, alignment| [Rule::Dilated(Dilated { step, alignment })];
    sees(&dilated(2, TOP_LEFT), 5, &[&["#.#.#", ".#.#."]]);
    sees(&dilated(3, BOTTOM_RIGHT), 5, &[&["#..#.", ".#..#"]]);
    // Own positions -2, -1, 0, 1 and 2.
    sees(&dilated(3, BOTTOM_RIGHT), 3, &[&[".#.", "..#", "#..", ".#.", "..#"]]);
    sees(&dilated(1, TOP_LEFT), 2, &[&["##", "##"]]);
    sees(&dilated(usize::MAX, TOP_LEFT), 3, &[&["#..", ".#.", "..#", "..."]]);
    let rules = [&dilated(2, TOP_LEFT)[..], &window(Some(2), Some(0), TOP_LEFT)].concat();
    sees(&rules, 5, &[&["#....", ".#...", "#.#..", ".#.#.", "..#.#"]]);
}

#[test]
fn documents_see_themselves() {
    let rules = [Rule::Documents(Documents {
        query: vec![vec![7, 7, 3], vec![0, 1, 2]],
        key: vec![vec![7, 3, 3, 7], vec![1, 1, 1, 0]],
    })];
    sees(&rules, 4, &[&["#..#", "#..#", ".##."], &["...#", "###.", "...."]]);
}

fn pattern(shape: [usize; 4], rows: &[&str]) -> Pattern {
    let bits = rows.concat().chars().map(|sign| sign == '#').collect();
    Pattern::new(shape, bits).expect("a sign for each place")
}

#[test]
fn boolean_masks_are_shared_along_axes_of_extent_one() {
    let boolean = |shape, rows: &[&str]| [Rule::Boolean(pattern(shape, rows))];
    let all = ["#..", "##.", ".#.", "...", "###", "..#", ".##", "#.#"];
    let pictures: Vec<&[&str]> = all.chunks(2).collect();
    heads_see(&boolean([2, 2, 2, 3], &all), 3, 2, &pictures);
    let [a, b, c, d] = [pictures[0], pictures[1], pictures[2], pictures[3]];
    heads_see(&boolean([1, 2, 2, 3], &all[..4]), 3, 2, &[a, b, a, b]);
    heads_see(&boolean([2, 1, 2, 3], &[c, d].concat()), 3, 2, &[c, c, d, d]);
    heads_see(&boolean([1, 1, 2, 3], a), 3, 2, &[a; 4]);
    heads_see(&boolean([1, 1, 1, 3], &["#.#"]), 3, 2, &[&["#.#", "#.#"][..]; 4]);
    heads_see(
        &boolean([1, 2, 2, 1], &["#", ".", ".", "#"]),
        3,
        2,
        &[&["###", "..."], &["...", "###"], &["###", "..."], &["...", "###"]],
    );
    heads_see(&boolean([1; 4], &["."]), 3, 2, &[&["...", "..."][..]; 4]);
}

#[test]
fn blocks_are_seen_or_not_as_a_whole() {
    let blocks = |query_block, key_block, shape, rows: &[&str]| {
        let pattern = pattern(shape, rows);
        [Rule::BlockSparse(BlockSparse { query_block, key_block, pattern })]
    };
    // The last blocks are shorter.
    sees(&blocks(2, 2, [1, 1, 2, 3], &["#.#", ".#."]), 5, &[&["##..#", "##..#", "..##."]]);
    sees(&blocks(1, 3, [1, 1, 2, 2], &[".#", "#."]), 4, &[&["...#", "###."]]);
    heads_see(&blocks(2, 3, [1, 2, 1, 1], &["#", "."]), 3, 2, &[&["###", "###"], &["...", "..."]]);
    let rules = [&blocks(2, 2, [1, 1, 2, 2], &["#.", "##"])[..], &[Rule::CausalTopLeft]].concat();
    sees(&rules, 4, &[&["#...", "##..", "###.", "####"]]);
}

proptest! {
    /// Every intersection of rules, in every head.
    #[test]
    fn the_pictures_are_those_of_the_rules(problem in problems()) {
        let &Problem { batch, query_heads, query_len, key_len, .. } = &problem;
        prop_assume!(query_len > 0 && key_len > 0);
        let problem = Problem {
            key_heads: query_heads,
            value_dim: key_len,
            format: Format::F32,
            ..problem
        };
        let mut expected = Vec::new();
        for row in 0..batch * query_heads * query_len {
            let (row, query) = (row / query_len, row % query_len);
            let (batch, head) = (row / query_heads, row % query_heads);
            let sign = |key| {
                if sight::sees(&problem, Site { batch, head, query, key }) { '#' } else { '.' }
            };
            expected.push((0..key_len).map(sign).collect::<String>());
        }
        for kernel in kernels() {
            let (drawn, _) = draw(kernel.as_ref(), &problem);
            prop_assert_eq!(&drawn, &expected, "{}", kernel.name());
            let problem = Problem { value_dim: query_len, ..problem.clone() };
            let drawn = draw_gradients(kernel.as_ref(), &problem);
            prop_assert_eq!(&drawn, &expected, "gradients of {}", kernel.name());
        }
    }
}
