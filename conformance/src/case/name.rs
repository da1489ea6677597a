//! How a case is named after what it computes.

use flashproof_spec::mask::{
    Alignment, BlockSparse, Chunked, Dilated, Documents, Prefix, Rule, Window,
};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::quantization::{Descale, Quantization};
use flashproof_spec::score::{Alibi, Bias, Dropout, Sink, Slopes, Softcap, SoftcapOrder};

use crate::inputs::{LayoutKind, Modifiers};
use flashproof_spec::format::Format;
use flashproof_spec::layout::Layout;

/// `MASK/SHAPE`, and `/MODIFICATIONS`, `/DESCALES` and `/LAYOUT` where the problem has any.
pub(super) fn problem_name(problem: &Problem, modifiers: Modifiers) -> String {
    let parts = [
        mask_name(problem),
        shape_name(problem),
        modification_name(problem, modifiers),
        quantization_name(problem),
        layout_name(problem),
    ];
    parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

fn mask_name(problem: &Problem) -> String {
    let names: Vec<_> = problem.mask.rules.iter().map(rule_name).collect();
    if names.is_empty() { "full".to_owned() } else { names.join("-") }
}

fn rule_name(rule: &Rule) -> String {
    match rule {
        Rule::CausalTopLeft => "causal-tl".to_owned(),
        Rule::CausalBottomRight => "causal-br".to_owned(),
        Rule::KeyLengths(_) => "lengths".to_owned(),
        Rule::KeyStarts(_) => "left-padding".to_owned(),
        Rule::QueryLengths(_) => "query-lengths".to_owned(),
        Rule::Window(Window { left, right, alignment }) => {
            let bound = |letter, bound: &Option<usize>| {
                bound.map(|bound| format!("{letter}{bound}")).unwrap_or_default()
            };
            format!("window-{}{}{}", bound('l', left), bound('r', right), corner(*alignment))
        }
        Rule::Prefix(Prefix { alignment, .. }) => format!("prefix{}", corner(*alignment)),
        Rule::Chunked(Chunked { size, alignment }) => {
            format!("chunked{size}{}", corner(*alignment))
        }
        Rule::Dilated(Dilated { step, alignment }) => {
            format!("dilated{step}{}", corner(*alignment))
        }
        Rule::Documents(documents) if all_single(documents) => "documents-single".to_owned(),
        Rule::Documents(_) => "documents".to_owned(),
        Rule::Boolean(pattern) => {
            let dead = if has_dead_row(pattern) { "-dead" } else { "" };
            format!("boolean-{}{dead}", axes(pattern.shape()))
        }
        Rule::BlockSparse(BlockSparse { query_block, key_block, pattern }) => {
            let heads = if pattern.shape()[1] > 1 { "-h" } else { "" };
            format!("block-sparse{query_block}x{key_block}{heads}")
        }
    }
}

const fn corner(alignment: Alignment) -> &'static str {
    match alignment {
        Alignment::TopLeft => "-tl",
        Alignment::BottomRight => "",
    }
}

/// Whether every document has one position, of queries and of keys.
fn all_single(documents: &Documents) -> bool {
    let single = |ids: &Vec<u32>| ids.windows(2).all(|pair| pair[0] != pair[1]);
    documents.query.iter().chain(&documents.key).all(single)
}

/// Whether some row of a pattern holds nowhere.
fn has_dead_row(pattern: &Pattern) -> bool {
    let keys = pattern.shape()[3].max(1);
    pattern.bits().chunks(keys).any(|row| row.iter().all(|&bit| !bit))
}

/// The letters of the axes of `[batch, head, query, key]` that are not broadcast; `1` where all are.
fn axes(shape: [usize; 4]) -> String {
    let letters: String = "bhqk"
        .chars()
        .zip(shape)
        .filter(|&(_, extent)| extent != 1)
        .map(|(letter, _)| letter)
        .collect();
    if letters.is_empty() { "1".to_owned() } else { letters }
}

/// Extents, without those that are 1 or implied: `b2-h6g2-q5-k2-d64-v32-s0.3`.
fn shape_name(problem: &Problem) -> String {
    let mut parts = Vec::new();
    if problem.batch > 1 {
        parts.push(format!("b{}", problem.batch));
    }
    if problem.query_heads != problem.key_heads {
        parts.push(format!("h{}g{}", problem.query_heads, problem.key_heads));
    } else if problem.query_heads > 1 {
        parts.push(format!("h{}", problem.query_heads));
    }
    parts.push(format!("q{}-k{}-d{}", problem.query_len, problem.key_len, problem.head_dim));
    if problem.value_dim != problem.head_dim {
        parts.push(format!("v{}", problem.value_dim));
    }
    if let Scale::Value(scale) = problem.scale {
        parts.push(format!("s{scale}"));
    }
    parts.join("-")
}

/// What happens to scores and weights: `bias-normal-hqk+alibi+softcap30+sink-twenty+dropout-bhqk`.
fn modification_name(problem: &Problem, modifiers: Modifiers) -> String {
    let parts = [
        problem.bias.map(|bias| bias_name(bias, modifiers, problem.format)),
        problem.alibi.as_ref().map(alibi_name),
        problem.softcap.map(softcap_name),
        problem.sink.map(|sink| sink_name(sink, modifiers, problem.format)),
        problem.dropout.as_ref().map(dropout_name),
    ];
    parts.into_iter().flatten().collect::<Vec<_>>().join("+")
}

fn bias_name(bias: Bias, modifiers: Modifiers, own: Format) -> String {
    format!("bias-{}-{}{}", modifiers.bias.name(), axes(bias.shape), unlike(bias.format, own))
}

fn alibi_name(alibi: &Alibi) -> String {
    let slopes = match alibi.slopes {
        Slopes::Standard => "",
        Slopes::Given(_) => "-given",
    };
    format!("alibi{slopes}{}", corner(alibi.alignment))
}

fn softcap_name(Softcap { cap, order }: Softcap) -> String {
    let order = match order {
        SoftcapOrder::BeforeBias => "",
        SoftcapOrder::AfterBias => "-after",
    };
    format!("softcap{cap}{order}")
}

fn sink_name(sink: Sink, modifiers: Modifiers, own: Format) -> String {
    match sink {
        Sink::Zero => "sink-zero".to_owned(),
        Sink::Logits(format) => format!("sink-{}{}", modifiers.sink.name(), unlike(format, own)),
    }
}

/// The format, where it is not the problem's.
fn unlike(format: Format, own: Format) -> String {
    if format == own { String::new() } else { format!("-{format}") }
}

fn dropout_name(Dropout { keep, .. }: &Dropout) -> String {
    let dead = if has_dead_row(keep) { "-dead" } else { "" };
    format!("dropout-{}{dead}", axes(keep.shape()))
}

/// Which positions of query, key and value share a descale, and the output's format:
/// `descale-q64-k64-v-bf16`, without a number where all of a head do.
fn quantization_name(problem: &Problem) -> String {
    let Some(Quantization { query, key, value, output }) = problem.quantization else {
        return String::new();
    };
    let by = |descale: Descale| match descale {
        Descale::Head => String::new(),
        Descale::Block(size) => size.to_string(),
    };
    format!("descale-q{}-k{}-v{}-{output}", by(query), by(key), by(value))
}

fn layout_name(problem: &Problem) -> String {
    let unnamed = match &problem.layout {
        Layout::Contiguous => "",
        Layout::Strided(_) => "strided",
        Layout::Ragged(_) => "ragged",
        Layout::Paged(_) => "paged",
    };
    LayoutKind::recognise(problem).map_or(unnamed, LayoutKind::name).to_owned()
}
