//! The problems that rules are tried on with inputs drawn as their projects draw them.

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};

use crate::inputs::{LayoutKind, pattern};

/// A problem with a name.
#[derive(Clone, Debug)]
pub struct Posed {
    /// In a word or two.
    pub name: &'static str,
    /// What is computed.
    pub problem: Problem,
}

/// Problems such as the projects' tests have, at extents past one tile of 64 by 64, one feature at a
/// time: more than most projects test.
#[must_use]
pub fn battery(format: Format) -> Vec<Posed> {
    let full = |heads, len, dim| Problem::new(format, heads, len, dim);
    let mut problems = vec![
        Posed { name: "full", problem: full(1, 80, 24) },
        Posed { name: "causal", problem: masked(full(1, 96, 16), vec![Rule::CausalBottomRight]) },
        Posed { name: "grouped heads, causal, more keys", problem: grouped(format) },
        Posed { name: "window", problem: masked(full(1, 80, 16), vec![Rule::Window(WINDOW)]) },
        Posed { name: "key lengths", problem: padded(format) },
        Posed { name: "boolean mask", problem: boolean(full(2, 66, 16)) },
        Posed { name: "ALiBi, causal", problem: sloped(full(3, 66, 8)) },
        Posed { name: "bias, 112 entries", problem: biased(full(2, 34, 112)) },
        Posed { name: "softcap", problem: capped(full(1, 66, 16)) },
        Posed { name: "sinks", problem: sunk(full(2, 66, 8)) },
        Posed { name: "dropout", problem: dropped(full(1, 66, 16)) },
        Posed { name: "one query", problem: decoding(format) },
    ];
    let strided = full(2, 66, 8);
    let layout = LayoutKind::Bshd.of(&strided).unwrap_or_default();
    problems.push(Posed { name: "heads inside positions", problem: Problem { layout, ..strided } });
    problems
}

const WINDOW: Window = Window { left: Some(20), right: Some(0), alignment: Alignment::BottomRight };

fn masked(problem: Problem, rules: Vec<Rule>) -> Problem {
    Problem { mask: Mask { rules }, ..problem }
}

fn grouped(format: Format) -> Problem {
    let problem = Problem { key_heads: 2, query_len: 40, ..Problem::new(format, 6, 80, 8) };
    masked(problem, vec![Rule::CausalBottomRight])
}

fn padded(format: Format) -> Problem {
    let problem = Problem { batch: 2, query_len: 24, ..Problem::new(format, 1, 80, 16) };
    masked(problem, vec![Rule::KeyLengths(vec![57, 80])])
}

fn boolean(problem: Problem) -> Problem {
    /// Half of the pairs, in every head others.
    const KEPT: f64 = 0.5;
    let shape = [1, problem.query_heads, problem.query_len, problem.key_len];
    masked(problem, vec![Rule::Boolean(pattern::balanced("boolean", shape, KEPT))])
}

fn sloped(problem: Problem) -> Problem {
    let alibi = Alibi { slopes: Slopes::Standard, alignment: Alignment::BottomRight };
    masked(Problem { alibi: Some(alibi), ..problem }, vec![Rule::CausalBottomRight])
}

fn biased(problem: Problem) -> Problem {
    let shape = [1, 1, problem.query_len, problem.key_len];
    Problem { bias: Some(Bias { shape, format: problem.format }), ..problem }
}

fn capped(problem: Problem) -> Problem {
    // Gemma 2 caps its scores at 50; at normal scores a lower cap shows more.
    Problem { softcap: Some(Softcap { cap: 5.0, order: SoftcapOrder::BeforeBias }), ..problem }
}

fn sunk(problem: Problem) -> Problem {
    Problem { sink: Some(Sink::Logits(problem.format)), ..problem }
}

fn dropped(problem: Problem) -> Problem {
    /// Three weights of four, each times 4/3; in `f64`, where a scale must be a power of two, times 2.
    const KEPT: f64 = 0.75;
    let keep = pattern::balanced("keep", problem.score_shape(), KEPT);
    let scale = match problem.format {
        Format::F64 => (1.0 / KEPT).log2().ceil().exp2(),
        _ => Format::F32.round(1.0 / KEPT),
    };
    Problem { dropout: Some(Dropout { scale, keep }), ..problem }
}

fn decoding(format: Format) -> Problem {
    Problem { batch: 2, key_heads: 2, query_len: 1, ..Problem::new(format, 6, 150, 16) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_can_be_posed_in_every_format() {
        for format in crate::case::FORMATS {
            for posed in battery(format) {
                assert_eq!(posed.problem.validate(), Ok(()), "{} in {format}", posed.name);
            }
        }
    }
}
