//! A forward pass in `f64` with one fault, written from the equations: scores, softmax and weights of
//! each row, a hook for everything that a kernel can get wrong.

use flashproof_oracle::row::RowIndex;
use flashproof_spec::format::Format;
use flashproof_spec::mask::Site;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use flashproof_spec::tensor::{Inputs, Outputs, Tensor};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Random inputs of a problem: bias and sinks of the size of scores.
pub fn inputs(problem: &Problem, seed: u64) -> Inputs {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = |format, shape: &[usize]| {
        let count = shape.iter().product();
        let values = (0..count).map(|_| rng.random_range(-2.0..2.0)).collect();
        Tensor::rounded_from(format, shape, values).expect("a full tensor")
    };
    let format = problem.format;
    let query = draw(format, &problem.query_shape());
    let key = draw(format, &problem.key_shape());
    let value = draw(format, &problem.value_shape());
    let bias = problem.bias.map(|bias| draw(bias.format, &bias.shape));
    let sink = match problem.sink {
        Some(flashproof_spec::score::Sink::Logits(format)) => {
            Some(draw(format, &problem.sink_shape()))
        }
        _ => None,
    };
    Inputs { bias, sink, ..Inputs::new(query, key, value) }
}

/// One key's part in a row.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Which key.
    pub key: usize,
    /// Its score.
    pub score: f64,
    /// What its weight is multiplied by in the numerator: dropout's factor.
    pub kept: f64,
    /// Whether its weight counts in the normalizer.
    pub counts: bool,
}

/// What goes into a score.
#[derive(Clone, Copy, Debug)]
pub struct Parts {
    /// `<q, k>`.
    pub dot: f64,
    pub scale: f64,
    pub bias: f64,
    pub alibi: f64,
    pub softcap: Option<Softcap>,
}

impl Parts {
    /// The score as the specification has it.
    pub fn score(self) -> f64 {
        let Self { dot, scale, bias, alibi, softcap } = self;
        match softcap {
            None => scale * dot + bias + alibi,
            Some(Softcap { cap, order: SoftcapOrder::BeforeBias }) => {
                cap * (scale * dot / cap).tanh() + bias + alibi
            }
            Some(Softcap { cap, order: SoftcapOrder::AfterBias }) => {
                cap * ((scale * dot + bias + alibi) / cap).tanh()
            }
        }
    }
}

/// A row's output and LSE from its entries, in key order, the logits of its sinks, its values and
/// their width.
pub type Row = fn(&[Entry], &[f64], &dyn Fn(usize, usize) -> f64, usize) -> (Vec<f64>, f64);

pub fn right(
    row: &[Entry],
    sinks: &[f64],
    value: &dyn Fn(usize, usize) -> f64,
    d_v: usize,
) -> (Vec<f64>, f64) {
    let counted = row.iter().filter(|it| it.counts).map(|it| it.score);
    let logits: Vec<f64> = counted.chain(sinks.iter().copied()).collect();
    let m = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if m == f64::NEG_INFINITY {
        return (vec![0.0; d_v], m);
    }
    let l: f64 = logits.iter().map(|s| (s - m).exp()).sum();
    let weighted = |j| move |it: &Entry| it.kept * (it.score - m).exp() * value(it.key, j);
    let output = |j| row.iter().map(weighted(j)).sum::<f64>() / l;
    ((0..d_v).map(output).collect(), m + l.ln())
}

/// What a kernel does differently.
#[derive(Clone, Copy)]
pub struct Committed {
    /// Whether the mask admits a key.
    pub sees: fn(&Problem, Site) -> bool,
    /// The key head that a query head reads.
    pub key_head: fn(&Problem, usize) -> usize,
    /// Where the bias of a site is looked up.
    pub bias_site: fn(&Problem, Site) -> Site,
    /// The ALiBi term of a site.
    pub alibi: fn(&Problem, Site) -> f64,
    /// The score.
    pub score: fn(Parts) -> f64,
    /// The score of a key that is hidden, where it takes part all the same.
    pub hidden: fn(&Problem) -> Option<f64>,
    /// The logits of a row's sinks.
    pub sinks: fn(Option<f64>) -> Vec<f64>,
    /// What dropout makes of a key: its factor, and whether it counts in the normalizer.
    pub kept: fn(&Problem, Site) -> (f64, bool),
    /// The row.
    pub row: Row,
    /// What becomes of the LSE.
    pub lse: fn(f64) -> f64,
    /// Output and LSE of a row without keys and sink.
    pub empty: (f64, f64),
}

/// Nothing.
pub const NONE: Committed = Committed {
    sees: Problem::sees,
    key_head: Problem::key_head_of,
    bias_site: |_, site| site,
    alibi: Problem::alibi_at,
    score: Parts::score,
    hidden: |_| None,
    sinks: |sink| sink.into_iter().collect(),
    kept: |problem, site| (problem.dropout_at(site), true),
    row: right,
    lse: |lse| lse,
    empty: (0.0, f64::NEG_INFINITY),
};

impl Committed {
    /// The outputs of a kernel with this fault, the LSE in `f32`.
    pub fn forward(self, problem: &Problem, inputs: &Inputs) -> Outputs {
        let values = inputs.value.view4();
        let mut output = Vec::new();
        let mut lses = Vec::new();
        for row in every_row(problem) {
            let h = (self.key_head)(problem, row.head);
            let entries = self.entries(problem, inputs, row);
            let sinks = (self.sinks)(inputs.sink_at(problem, row.head));
            if entries.is_empty() && sinks.is_empty() {
                output.extend(std::iter::repeat_n(self.empty.0, problem.value_dim));
                lses.push(self.empty.1);
                continue;
            }
            let value = |key, j| values[[row.batch, h, key, j]];
            let (o, lse) = (self.row)(&entries, &sinks, &value, problem.value_dim);
            output.extend(o);
            lses.push((self.lse)(lse));
        }
        let tensor = |format, shape: &[usize], values| {
            Tensor::rounded_from(format, shape, values).expect("a full tensor")
        };
        Outputs {
            output: tensor(problem.format, &problem.output_shape(), output),
            lse: Some(tensor(Format::F32, &problem.lse_shape(), lses)),
        }
    }

    fn entries(self, problem: &Problem, inputs: &Inputs, row: RowIndex) -> Vec<Entry> {
        let RowIndex { batch, head, query } = row;
        let (q, k) = (inputs.query.view4(), inputs.key.view4());
        let h = (self.key_head)(problem, head);
        let entry = |key| {
            let site = Site { batch, head, query, key };
            let bias = match problem.bias {
                Some(_) => inputs.bias_at(problem, (self.bias_site)(problem, site)),
                None => 0.0,
            };
            let is_hidden = !(self.sees)(problem, site) || bias == f64::NEG_INFINITY;
            let products =
                (0..problem.head_dim).map(|t| q[[batch, head, query, t]] * k[[batch, h, key, t]]);
            let parts = Parts {
                dot: products.sum(),
                scale: problem.scale_f64(),
                bias,
                alibi: (self.alibi)(problem, site),
                softcap: problem.softcap,
            };
            let score = if is_hidden { (self.hidden)(problem)? } else { (self.score)(parts) };
            let (kept, counts) = (self.kept)(problem, site);
            Some(Entry { key, score, kept, counts })
        };
        (0..problem.key_len).filter_map(entry).collect()
    }
}

/// Every row of the problem.
pub fn every_row(problem: &Problem) -> Vec<RowIndex> {
    let mut rows = Vec::new();
    for batch in 0..problem.batch {
        for head in 0..problem.query_heads {
            rows.extend((0..problem.query_len).map(|query| RowIndex { batch, head, query }));
        }
    }
    rows
}

/// Whether a row is another in the two answers.
pub fn differs(a: &Outputs, b: &Outputs, RowIndex { batch, head, query }: RowIndex) -> bool {
    let row = |outputs: &Outputs| {
        let output = outputs.output.view4();
        let mut row: Vec<u64> =
            (0..output.dim().3).map(|j| output[[batch, head, query, j]].to_bits()).collect();
        row.extend(outputs.lse.as_ref().map(|lse| lse.view3()[[batch, head, query]].to_bits()));
        row
    };
    row(a) != row(b)
}
