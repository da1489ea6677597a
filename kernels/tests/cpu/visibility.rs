//! Which keys a query sees, drawn by hand.
//!
//! Scores are all zero and the value matrix is the identity, so entry `j` of an output is `1/n`
//! where the query sees key `j`, among `n` that it sees, and 0 where it does not. The gradients are
//! held to the same pictures.

use flashproof_kernels::Kernel;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Mask, Rule};
use flashproof_spec::problem::Problem;

use crate::support::{
    FORMATS, cotangents, differentiate, inputs, kernels, ln, lse, output, outputs, products, run,
    values,
};

/// One picture a batch member; a row a query, `#` a key that it sees.
fn sees(rules: &[Rule], key_len: usize, pictures: &[&[&str]]) {
    for format in FORMATS {
        for kernel in kernels() {
            let problem = Problem {
                batch: pictures.len(),
                mask: Mask { rules: rules.to_vec() },
                ..products(format, pictures[0].len(), key_len, key_len)
            };
            let (drawn, sums) = draw(kernel.as_ref(), &problem);
            assert_eq!(drawn, pictures.concat(), "{} {format}", kernel.name());
            let counts = drawn.iter().map(|row| row.matches('#').count());
            let expected: Vec<f64> =
                counts.map(|count| ln(kernel.as_ref(), format, count as f32)).collect();
            assert_eq!(sums, expected, "{} {format}", kernel.name());
            let problem = Problem { value_dim: problem.query_len, ..problem };
            let drawn = draw_gradients(kernel.as_ref(), &problem);
            assert_eq!(drawn, pictures.concat(), "gradients of {} {format}", kernel.name());
        }
    }
}

/// Pictures of the rows, and their LSE.
fn draw(kernel: &dyn Kernel, problem: &Problem) -> (Vec<String>, Vec<f64>) {
    let keys = problem.key_len;
    let identity = identity(keys).repeat(problem.batch);
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
    let identity = identity(queries).repeat(problem.batch);
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
