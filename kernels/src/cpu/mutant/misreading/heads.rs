//! Heads that are read for others.

use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::Inputs;

use super::drawn;

/// Query head `h` reads key head `h mod key_heads`.
pub(in crate::cpu::mutant) fn modulo(problem: &mut Problem, inputs: &mut Inputs) {
    let key_heads = problem.key_heads;
    problem.key_heads = problem.query_heads;
    for (tensor, shape) in
        [(&mut inputs.key, problem.key_shape()), (&mut inputs.value, problem.value_shape())]
    {
        let values = tensor.view4().to_owned();
        *tensor = drawn(tensor, shape, |(b, h, position, entry)| {
            values[[b, h % key_heads, position, entry]]
        });
    }
}
