//! The table: root mean square errors of every method against two exact answers.

use std::error::Error;
use std::fmt;

use flashproof_conformance::inputs::{Family, Scores, Values, generate};
use flashproof_oracle::forward::{Options, Oracle};
use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::{Array2, s};

use super::methods::{Head, Method};

/// What is drawn: one head, and its seed.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub queries: usize,
    pub keys: usize,
    pub head_dim: usize,
    pub seed: u64,
}

/// The rows of the table, with the paper's number where it has one.
const ROWS: [(&str, Method, Option<f64>); 7] = [
    ("fp16, dense", Method::DenseF16, Some(3.2e-4)),
    ("fp16, flash", Method::FlashF16, Some(1.9e-4)),
    ("fp8, dense, a scale a tensor", Method::DenseF8 { scaled_weights: false }, Some(2.4e-2)),
    ("fp8, flash", Method::FlashF8 { blocks: true, incoherent: true }, Some(9.1e-3)),
    ("  without block scales", Method::FlashF8 { blocks: false, incoherent: true }, Some(9.3e-3)),
    (
        "  without incoherent processing",
        Method::FlashF8 { blocks: true, incoherent: false },
        Some(2.4e-2),
    ),
    ("fp8, dense, weights scaled too", Method::DenseF8 { scaled_weights: true }, None),
];

/// One line of the table.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    pub name: &'static str,
    pub paper: Option<f64>,
    /// Against the exact answer on the inputs as drawn, in f32.
    pub from_drawn: f64,
    /// Against the exact answer on the inputs in f16.
    pub from_rounded: f64,
}

/// All lines, and what they are measured on.
#[derive(Debug)]
pub struct Table {
    pub size: Size,
    pub lines: Vec<Line>,
}

impl Size {
    fn problem(self, format: Format) -> Problem {
        let key_len = self.keys;
        Problem { key_len, ..Problem::new(format, 1, self.queries, self.head_dim) }
    }
}

/// Draws, computes and compares.
pub fn measure(size: Size) -> Result<Table, Box<dyn Error>> {
    let drawn = size.problem(Format::F32);
    let rounded = size.problem(Format::F16);
    let family = Family { scores: Scores::Outliers, values: Values::Outliers };
    let inputs = generate(&drawn, family, size.seed)?;
    let half = |tensor: &Tensor| Tensor::rounded(Format::F16, tensor.values());
    let halves = Inputs::new(half(&inputs.query), half(&inputs.key), half(&inputs.value));
    let exact = [exact(&drawn, &inputs)?, exact(&rounded, &halves)?];
    let matrix = |tensor: &Tensor| tensor.view4().slice(s![0, 0, .., ..]).to_owned();
    let head = Head {
        query: matrix(&halves.query),
        key: matrix(&halves.key),
        value: matrix(&halves.value),
    };
    let line = |(name, method, paper): (&'static str, Method, Option<f64>)| {
        let output = method.run(&head)?;
        let [from_drawn, from_rounded] =
            [0, 1].map(|reference| root_mean_square(&(&output - &exact[reference])));
        Ok(Line { name, paper, from_drawn, from_rounded })
    };
    let lines = ROWS.into_iter().map(line).collect::<Result<_, Box<dyn Error>>>()?;
    Ok(Table { size, lines })
}

/// The exact output, as near as f64 holds it.
fn exact(problem: &Problem, inputs: &Inputs) -> Result<Array2<f64>, Box<dyn Error>> {
    let oracle = Oracle::new(problem, inputs, Options::new(Format::F32))?;
    let indices: Vec<_> =
        (0..problem.query_len).map(|query| RowIndex { batch: 0, head: 0, query }).collect();
    let rows = oracle.rows(&indices, || ())?;
    let mut output = Array2::zeros((problem.query_len, problem.value_dim));
    for (row, mut output) in rows.iter().zip(output.rows_mut()) {
        for (expected, entry) in row.outputs.iter().zip(&mut output) {
            let exact = expected.exact().ok_or("a finite row without a finite answer")?;
            *entry = exact.enclosure.to_f64().0;
        }
    }
    Ok(output)
}

fn root_mean_square(errors: &Array2<f64>) -> f64 {
    (errors.iter().map(|error| error * error).sum::<f64>() / errors.len() as f64).sqrt()
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Size { queries, keys, head_dim, seed } = self.size;
        writeln!(
            f,
            "FlashAttention-3, Table 3: root mean square error of the output\n\
            one head, {queries} queries, {keys} keys, head dimension {head_dim}, seed {seed}\n"
        )?;
        writeln!(f, "{:34}{:>9}{:>14}{:>14}", "", "paper", "inputs drawn", "inputs in f16")?;
        for line in &self.lines {
            let paper = line.paper.map_or_else(String::new, |paper| format!("{paper:.1e}"));
            let (drawn, rounded) = (line.from_drawn, line.from_rounded);
            writeln!(f, "{:34}{paper:>9}{drawn:>14.1e}{rounded:>14.1e}", line.name)?;
        }
        Ok(())
    }
}
