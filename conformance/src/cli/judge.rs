//! `flashproof judge`: tensors dumped from a real run.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use flashproof_conformance::adapter::{Choices, EmptyRow, LseBase, LseSign, LseSink};
use flashproof_conformance::judge::{self, AxisOrder, Described, Names, Origin, Request};
use flashproof_conformance::report::Outcome;
use flashproof_conformance::run::quoted;
use flashproof_conformance::suite::DEFAULT_SEED;
use flashproof_spec::mask::Rule;

use super::error::CliError;
use super::{Limits, output};

/// Judge tensors dumped from a real run, element by element
///
/// INPUTS is a safetensors file with query [batch, heads, queries, dim], key and value, and with a
/// bias or mask [batch, heads, queries, keys] (1 where it is broadcast) and sinks, one a head, where the
/// problem has them; output and LSE [batch, heads, queries] stand in the same file or in OUTPUTS, or
/// are computed by --kernel. Gradients are judged too where the files have them, or where there is a
/// gradient of the output for --kernel to start from. What the shapes do not tell of the problem is
/// taken from the options below, or else from the file's metadata: `problem`, JSON with any fields of
/// a problem, of which `flashproof cases --long` shows examples; `scale`, as text; and `profile`, JSON
/// in the form that a worker declares one, beside the output. `flashproof explain --out` writes such files.
#[derive(clap::Args)]
pub struct Args {
    /// A safetensors file with query, key and value
    inputs: PathBuf,

    /// A safetensors file with output and LSE, and perhaps gradients [default: INPUTS]
    #[arg(conflicts_with = "kernel")]
    outputs: Option<PathBuf>,

    /// Run this kernel on the inputs, and judge what it gives
    #[arg(long, value_name = "KERNEL")]
    kernel: Option<String>,

    #[arg(long, help = all_rows_help())]
    all_rows: bool,

    /// Seed of the sample of rows, and of that of keys
    #[arg(long, default_value_t = DEFAULT_SEED)]
    seed: u64,

    /// Write error, bound and ratio of each element to this safetensors file
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,

    /// Write the report as JSON to this file, or to standard output for -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    names: NameArgs,

    #[command(flatten)]
    problem: ProblemArgs,

    #[command(flatten)]
    contract: ContractArgs,
}

fn all_rows_help() -> String {
    let pairs = judge::sample::MOST_PAIRS;
    format!(
        "Judge every row, and every key by its gradients. Without it, rows and keys are sampled when \
         the pairs of a row and a key are more than {pairs}"
    )
}

#[derive(clap::Args)]
#[command(next_help_heading = "Names of tensors")]
struct NameArgs {
    /// The query [default: query or q]
    #[arg(long, value_name = "NAME")]
    query: Option<String>,

    /// The key [default: key or k]
    #[arg(long, value_name = "NAME")]
    key: Option<String>,

    /// The value [default: value or v]
    #[arg(long, value_name = "NAME")]
    value: Option<String>,

    /// The output [default: output, out or o]
    #[arg(long, value_name = "NAME", conflicts_with = "kernel")]
    output: Option<String>,

    /// The LSE [default: lse]
    #[arg(long, value_name = "NAME", conflicts_with = "kernel")]
    lse: Option<String>,

    #[arg(long, value_name = "NAME", help = BIAS_HELP)]
    bias: Option<String>,

    /// The logits of sinks [default: sink or sinks]
    #[arg(long, value_name = "NAME")]
    sink: Option<String>,

    #[arg(long, value_name = "NAME", help = MASK_HELP)]
    mask_tensor: Option<String>,

    #[arg(long, value_name = "NAME", help = OUTPUT_GRADIENT_HELP)]
    output_gradient: Option<String>,

    #[arg(long, value_name = "NAME", help = LSE_GRADIENT_HELP)]
    lse_gradient: Option<String>,

    #[arg(long, value_name = "NAME", help = QUERY_GRADIENT_HELP, conflicts_with = "kernel")]
    query_gradient: Option<String>,

    #[arg(long, value_name = "NAME", help = KEY_GRADIENT_HELP, conflicts_with = "kernel")]
    key_gradient: Option<String>,

    #[arg(long, value_name = "NAME", help = VALUE_GRADIENT_HELP, conflicts_with = "kernel")]
    value_gradient: Option<String>,

    #[arg(long, value_name = "NAME", help = BIAS_GRADIENT_HELP, conflicts_with = "kernel")]
    bias_gradient: Option<String>,

    #[arg(long, value_name = "NAME", help = SINK_GRADIENT_HELP, conflicts_with = "kernel")]
    sink_gradient: Option<String>,
}

const BIAS_HELP: &str = "The additive bias [default: bias or attn_bias]";
const MASK_HELP: &str = "A mask: boolean, true where a key is seen, or a number to add to the score \
[default: mask or attn_mask]";
const OUTPUT_GRADIENT_HELP: &str =
    "The gradient of the output [default: output_gradient, do or dO]";
const LSE_GRADIENT_HELP: &str =
    "The gradient of the LSE in nats; without one, zero [default: lse_gradient, dlse or dLSE]";
const QUERY_GRADIENT_HELP: &str = "The gradient of the query [default: query_gradient, dq or dQ]";
const KEY_GRADIENT_HELP: &str = "The gradient of the key [default: key_gradient, dk or dK]";
const VALUE_GRADIENT_HELP: &str = "The gradient of the value [default: value_gradient, dv or dV]";
const BIAS_GRADIENT_HELP: &str =
    "The gradient of the bias [default: bias_gradient, dbias or dBias]";
const SINK_GRADIENT_HELP: &str =
    "The gradient of the sinks [default: sink_gradient, dsink or dSink]";

impl NameArgs {
    fn names(&self) -> Names {
        Names {
            query: self.query.clone(),
            key: self.key.clone(),
            value: self.value.clone(),
            output: self.output.clone(),
            lse: self.lse.clone(),
            bias: self.bias.clone(),
            sink: self.sink.clone(),
            mask: self.mask_tensor.clone(),
            output_gradient: self.output_gradient.clone(),
            lse_gradient: self.lse_gradient.clone(),
            query_gradient: self.query_gradient.clone(),
            key_gradient: self.key_gradient.clone(),
            value_gradient: self.value_gradient.clone(),
            bias_gradient: self.bias_gradient.clone(),
            sink_gradient: self.sink_gradient.clone(),
        }
    }
}

#[derive(clap::Args)]
#[command(next_help_heading = "The problem")]
struct ProblemArgs {
    /// Any fields of a problem as JSON, in place of the file's metadata
    #[arg(long, value_name = "JSON")]
    problem: Option<String>,

    /// The mask as JSON: a list of rules, such as ["causal-bottom-right", {"window": {"left": 7}}]
    #[arg(long, value_name = "JSON")]
    mask: Option<String>,

    /// Causal mask: the first query sees the first key alone, or the last query sees every key
    #[arg(long, value_name = "ALIGNMENT", value_parser = alignment())]
    causal: Option<Rule>,

    /// Softmax scale: a number, or 1/sqrt(d) [default: 1/sqrt(d)]
    #[arg(long)]
    scale: Option<String>,

    /// Keys in use of each batch member: a list such as 7,5, or the name of an integer tensor
    #[arg(long)]
    lengths: Option<String>,

    /// Order of the axes of query, key, value, output and their gradients: batch, head, sequence,
    /// dimension
    #[arg(long, default_value = "bhsd", value_parser = axis_order())]
    layout: AxisOrder,
}

#[derive(clap::Args)]
#[command(next_help_heading = "The kernel's contract")]
struct ContractArgs {
    /// Precision profile: standard, dense, or a JSON file in the form that a worker declares one
    /// [default: the kernel's, that of the metadata, or standard]
    #[arg(long)]
    profile: Option<String>,

    /// Base of the logarithm in the LSE
    #[arg(long, default_value = "natural", value_parser = lse_base(), conflicts_with = "kernel")]
    lse_base: LseBase,

    /// Sign of the LSE
    #[arg(long, default_value = "plus", value_parser = lse_sign(), conflicts_with = "kernel")]
    lse_sign: LseSign,

    /// Whether the LSE counts a sink
    #[arg(long, default_value = "included", value_parser = lse_sink(), conflicts_with = "kernel")]
    lse_sink: LseSink,

    /// Output of a row that sees no key: the mean is that of the values of the keys in use
    #[arg(long, default_value = "zero", value_parser = empty_row(), conflicts_with = "kernel")]
    empty_row: EmptyRow,

    /// Output of a row whose every key has a bias of minus infinity
    #[arg(long, default_value = "zero", value_parser = empty_row(), conflicts_with = "kernel")]
    masked_row: EmptyRow,
}

pub fn run(args: &Args) -> Result<Outcome, CliError> {
    let bar = output::progress(0, "rows");
    let judged = judge::judge(&request(args), &bar);
    bar.finish_and_clear();
    output::report(&judged?, args.json.as_deref())
}

fn request(args: &Args) -> Request {
    let ProblemArgs { problem, mask, causal, scale, lengths, layout } = &args.problem;
    let contract = &args.contract;
    Request {
        inputs: args.inputs.clone(),
        from: match &args.kernel {
            Some(kernel) => {
                Origin::Kernel { kernel: kernel.clone(), options: args.limits.options() }
            }
            None => Origin::File {
                outputs: args.outputs.clone(),
                choices: Choices {
                    lse_base: contract.lse_base,
                    lse_sign: contract.lse_sign,
                    lse_sink: contract.lse_sink,
                    empty_row: contract.empty_row,
                    masked_row: contract.masked_row,
                    ..Choices::default()
                },
            },
        },
        names: args.names.names(),
        order: *layout,
        described: Described {
            problem: problem.clone(),
            mask: mask.clone(),
            causal: causal.clone(),
            scale: scale.clone(),
            lengths: lengths.clone(),
        },
        profile: args.contract.profile.clone(),
        most_pairs: if args.all_rows { usize::MAX } else { judge::sample::MOST_PAIRS },
        seed: args.seed,
        elements: args.out.clone(),
        command: command_line(),
    }
}

fn alignment() -> impl TypedValueParser<Value = Rule> {
    PossibleValuesParser::new(["top-left", "bottom-right"]).map(|name| match name.as_str() {
        "top-left" => Rule::CausalTopLeft,
        _ => Rule::CausalBottomRight,
    })
}

fn lse_base() -> impl TypedValueParser<Value = LseBase> {
    PossibleValuesParser::new(["natural", "two"]).map(|name| match name.as_str() {
        "natural" => LseBase::Natural,
        _ => LseBase::Two,
    })
}

fn lse_sign() -> impl TypedValueParser<Value = LseSign> {
    PossibleValuesParser::new(["plus", "minus"]).map(|name| match name.as_str() {
        "plus" => LseSign::Plus,
        _ => LseSign::Minus,
    })
}

fn lse_sink() -> impl TypedValueParser<Value = LseSink> {
    PossibleValuesParser::new(["included", "excluded"]).map(|name| match name.as_str() {
        "included" => LseSink::Included,
        _ => LseSink::Excluded,
    })
}

fn axis_order() -> impl TypedValueParser<Value = AxisOrder> {
    PossibleValuesParser::new(["bhsd", "bshd"]).map(|name| match name.as_str() {
        "bhsd" => AxisOrder::Bhsd,
        _ => AxisOrder::Bshd,
    })
}

fn empty_row() -> impl TypedValueParser<Value = EmptyRow> {
    PossibleValuesParser::new(["zero", "nan", "mean"]).map(|name| match name.as_str() {
        "zero" => EmptyRow::Zero,
        "nan" => EmptyRow::Nan,
        _ => EmptyRow::Mean,
    })
}

/// The command line of this process, as a shell takes it.
fn command_line() -> String {
    let words = std::env::args_os().skip(1).map(|word| quoted(&word.to_string_lossy()));
    std::iter::once("flashproof".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}
