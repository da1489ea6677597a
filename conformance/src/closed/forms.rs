//! The inputs of each pattern, and its formulas.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Inputs, Tensor};
use ndarray::Array4;

use super::{ClosedForm, Posed};

/// By how much one score stands above all others: `e^-1024` is below half the smallest positive number
/// of every format, `2^-1075 = e^-745`, even a million times over.
const PEAK: f64 = 1024.0;

/// The step by which scores fall: `2^-4`, so that weights reach the end of every format's range
/// within 12,000 keys.
const STEP: f64 = 0.0625;

/// Values count up to this and start again, which every format from bf16 up holds.
const PERIOD: usize = 128;

/// Where an exact number lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    lo: f64,
    hi: f64,
}

impl Interval {
    /// `x` with so many units in the last place on either side.
    fn around(x: f64, units: f64) -> Self {
        let slack = units * (x.abs().next_up() - x.abs());
        Self { lo: x - slack, hi: x + slack }
    }

    /// The middle.
    #[must_use]
    pub const fn middle(self) -> f64 {
        f64::midpoint(self.lo, self.hi)
    }

    /// How far a number is from the nearest in the interval, rounded down.
    #[must_use]
    pub fn distance(self, x: f64) -> f64 {
        (self.lo - x).max(x - self.hi).next_down().max(0.0)
    }

    /// The end points.
    #[cfg(test)]
    const fn ends(self) -> (f64, f64) {
        (self.lo, self.hi)
    }
}

/// The exact answer of a row.
pub(super) struct Answer {
    pub(super) output: Vec<Interval>,
    pub(super) lse: Interval,
}

/// The problem with the pattern's inputs. Its mask is full, without modifications.
///
/// - `Uniform`: zero queries, so that every score is 0.
/// - `OneHot`: each row has a target, whose score exceeds all others by 1024 at least. Keys are the
///   bits of their numbers as signs, queries those of the target's number times 512: each bit in
///   which a key differs takes 1024 from its score.
/// - `Geometric`: key `i` has score `-STEP i`.
#[must_use]
pub fn posed(form: ClosedForm, problem: &Problem) -> Posed {
    let problem = Problem { scale: Scale::Value(1.0), ..problem.clone() };
    let tensor = |shape: [usize; 4], entry: &dyn Fn([usize; 4]) -> f64| {
        let values = Array4::from_shape_fn(shape, |(b, h, p, e)| entry([b, h, p, e]));
        Tensor::rounded(problem.format, &values.into_dyn())
    };
    let query = tensor(problem.query_shape(), &|place| query(form, &problem, place));
    let key = tensor(problem.key_shape(), &|place| key(form, place));
    let value = tensor(problem.value_shape(), &value_at);
    Posed { inputs: Inputs::new(query, key, value), problem }
}

/// The value entry at `[batch, head, key, entry]`: a whole number that tells neighbours apart.
fn value_at([batch, head, key, entry]: [usize; 4]) -> f64 {
    ((key + 3 * entry + 5 * head + 7 * batch) % PERIOD) as f64
}

/// The key that a row points at: the first, the last, and others between.
fn target(problem: &Problem, query: usize) -> usize {
    let last = problem.key_len - 1;
    let rows = problem.query_len.max(2) - 1;
    (query * last).div_ceil(rows).min(last)
}

/// Bits of a key's number that its entries hold.
const BITS: usize = 20;

fn bit(number: usize, at: usize) -> f64 {
    if number >> at & 1 == 1 { 1.0 } else { -1.0 }
}

fn query(form: ClosedForm, problem: &Problem, [.., position, entry]: [usize; 4]) -> f64 {
    match form {
        ClosedForm::OneHot if entry < BITS => PEAK / 2.0 * bit(target(problem, position), entry),
        ClosedForm::Uniform | ClosedForm::OneHot => 0.0,
        ClosedForm::Geometric => f64::from(u8::from(entry < 3)),
    }
}

/// For `Geometric`, the entries of key `i` sum to `-STEP i`: seven bits each, in steps of `2^0`,
/// `2^7` and `2^14`.
fn key(form: ClosedForm, [.., position, entry]: [usize; 4]) -> f64 {
    const DIGIT: usize = 7;
    match form {
        ClosedForm::Uniform => 1.0,
        ClosedForm::OneHot if entry < BITS => bit(position, entry),
        ClosedForm::Geometric if entry < 3 => {
            let digit = position >> (DIGIT * entry) & ((1 << DIGIT) - 1);
            -STEP * (digit << (DIGIT * entry)) as f64
        }
        ClosedForm::OneHot | ClosedForm::Geometric => 0.0,
    }
}

/// The row's exact answer.
pub(super) fn answer(
    form: ClosedForm,
    problem: &Problem,
    inputs: &Inputs,
    row: RowIndex,
) -> Answer {
    let head = problem.key_head_of(row.head);
    let values = inputs.value.view4();
    let value = |key: usize, entry: usize| values[[row.batch, head, key, entry]];
    let entries = 0..problem.value_dim;
    let keys = problem.key_len;
    match form {
        ClosedForm::Uniform => {
            // Whole numbers, whose sum is exact; the quotient and the logarithm round once.
            let mean = |entry| {
                let sum: f64 = (0..keys).map(|key| value(key, entry)).sum();
                Interval::around(sum / keys as f64, 1.0)
            };
            let lse = Interval::around((keys as f64).ln(), 1.0);
            Answer { output: entries.map(mean).collect(), lse }
        }
        ClosedForm::OneHot => {
            let target = target(problem, row.query);
            let peak = PEAK / 2.0 * BITS as f64;
            Answer {
                output: entries.map(|entry| Interval::around(value(target, entry), 1.0)).collect(),
                lse: Interval::around(peak, 1.0),
            }
        }
        ClosedForm::Geometric => geometric(problem, row, head),
    }
}

/// `sum_{i < n} r^i = (1 - r^n) / (1 - r)`, with `r = e^-STEP`, and the same over one residue class of
/// the period that values repeat with: the value of residue `a` weighs
///
/// ```text
/// r^a (1 - R^count_a) / (1 - R) / l,   R = r^PERIOD
/// ```
///
/// Each exponential and quotient errs by a unit in the last place at most, the sum of PERIOD positive
/// terms by PERIOD more.
fn geometric(problem: &Problem, row: RowIndex, head: usize) -> Answer {
    /// Units in the last place of a term, of the normalizer and of their quotient.
    const TERM: f64 = 8.0;
    let keys = problem.key_len;
    // 1 - e^-x, without cancellation.
    let rest = |x: f64| -(-x).exp_m1();
    let normalizer = rest(STEP * keys as f64) / rest(STEP);
    let share = |residue: usize| {
        let count = (keys + PERIOD - 1 - residue) / PERIOD;
        let period = STEP * PERIOD as f64;
        let class = (-STEP * residue as f64).exp() * rest(period * count as f64) / rest(period);
        class / normalizer
    };
    let output = (0..problem.value_dim).map(|entry| {
        let residues = 0..PERIOD.min(keys);
        let terms = residues.map(|i| share(i) * value_at([row.batch, head, i, entry]));
        Interval::around(terms.sum(), TERM + PERIOD as f64)
    });
    Answer { output: output.collect(), lse: Interval::around(normalizer.ln(), TERM) }
}

#[cfg(test)]
mod tests {
    use flashproof_oracle::forward::{Options, Oracle};
    use flashproof_spec::format::Format;

    use super::*;

    /// Two ways to every answer: the formulas against the oracle.
    #[test]
    fn formulas_and_oracle_agree() {
        for form in ClosedForm::ALL {
            for keys in [1, 2, 127, 128, 129, 1000] {
                let problem = Problem { query_len: 3, ..Problem::new(Format::Bf16, 2, keys, 32) };
                let Posed { problem, inputs } = posed(form, &problem);
                let options = Options::new(Format::F64);
                let oracle = Oracle::new(&problem, &inputs, options).expect("a problem");
                for query in 0..3 {
                    let row = RowIndex { batch: 0, head: 1, query };
                    let exact = oracle.row(row).expect("a row");
                    let formula = answer(form, &problem, &inputs, row);
                    let pairs = exact.outputs.iter().zip(&formula.output);
                    for (exact, formula) in pairs.chain([(&exact.lse, &formula.lse)]) {
                        let (lo, hi) = exact.exact().expect("a number").enclosure.to_f64();
                        let (from, to) = formula.ends();
                        assert!(
                            lo <= to && from <= hi,
                            "{form}, {keys} keys, query {query}: [{lo:e}, {hi:e}], [{from:e}, {to:e}]"
                        );
                    }
                }
            }
        }
    }

    /// Every input is a number of its format: nothing was rounded, or the formulas would be those of
    /// other inputs.
    #[test]
    fn inputs_are_exact_in_every_format() {
        for form in ClosedForm::ALL {
            for format in [Format::F16, Format::Bf16] {
                let problem = Problem { query_len: 2, ..Problem::new(format, 1, 1 << 17, 32) };
                let narrow = posed(form, &Problem { value_dim: 1, ..problem.clone() });
                let wide = Problem { format: Format::F64, value_dim: 1, ..problem };
                let wide = posed(form, &wide);
                assert_eq!(narrow.inputs.query.values(), wide.inputs.query.values());
                assert_eq!(narrow.inputs.key.values(), wide.inputs.key.values());
                assert_eq!(narrow.inputs.value.values(), wide.inputs.value.values());
            }
        }
    }
}
