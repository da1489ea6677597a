//! Which clauses a problem puts to the test, besides the bounds.

use flashproof_spec::layout::Layout;
use flashproof_spec::mask::{Rule, Site};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::quantization::{Descale, Quantization};
use flashproof_spec::score::{Sink, Slopes};

/// The clauses that any inputs of the problem put to the test, besides the bounds.
#[must_use]
pub fn problem_clauses(problem: &Problem) -> Vec<&'static str> {
    let mut clauses = vec!["FAS:fwd.score.scale"];
    clauses.extend(problem.mask.rules.iter().map(rule_clause));
    match problem.mask.rules.len() {
        0 => clauses.push("FAS:mask.full"),
        1 => {}
        _ => clauses.push("FAS:mask.intersection"),
    }
    if problem.key_heads < problem.query_heads {
        clauses.push("FAS:head.group.block");
    }
    if has_empty_rows(problem) {
        clauses.push("FAS:fwd.softmax.empty-row");
    }
    clauses.extend(score_clauses(problem));
    clauses.extend(quantization_clauses(problem));
    clauses.extend(layout_clauses(&problem.layout));
    clauses
}

/// The clauses of what happens to scores and weights.
fn score_clauses(problem: &Problem) -> Vec<&'static str> {
    let Problem { bias, alibi, softcap, sink, dropout, mask, .. } = problem;
    let signed = matches!(problem.scale, Scale::Value(scale) if scale <= 0.0);
    let standard = alibi.as_ref().is_some_and(|alibi| alibi.slopes == Slopes::Standard);
    let added = bias.is_some() || alibi.is_some();
    chosen(&[
        (signed, "FAS:score.scale.sign"),
        (bias.is_some(), "FAS:score.bias.add"),
        (broadcasts_bias(problem), "FAS:score.bias.broadcast"),
        (alibi.is_some(), "FAS:score.alibi.distance"),
        (standard, "FAS:score.alibi.slopes"),
        (softcap.is_some(), "FAS:score.softcap.tanh"),
        (softcap.is_some() && !mask.rules.is_empty(), "FAS:score.softcap.before-mask"),
        (softcap.is_some() && added, "FAS:choice.softcap.order"),
        (sink.is_some(), "FAS:score.sink.normalizer"),
        (sink.is_some(), "FAS:score.sink.once"),
        (dropout.is_some(), "FAS:score.dropout.keep"),
    ])
}

/// The clauses of inputs in 8 bits.
fn quantization_clauses(problem: &Problem) -> Vec<&'static str> {
    let Some(Quantization { query, key, value, .. }) = problem.quantization else {
        return Vec::new();
    };
    let of_head = |descale: &Descale| *descale == Descale::Head;
    let descales = [query, key, value];
    chosen(&[
        (descales.iter().any(of_head), "FAS:num.descale.head"),
        (!descales.iter().all(of_head), "FAS:num.descale.block"),
        (true, "FAS:num.weight-scale"),
    ])
}

/// The clauses of the layout.
fn layout_clauses(layout: &Layout) -> Vec<&'static str> {
    match layout {
        Layout::Contiguous => vec![],
        Layout::Strided(strided) => {
            let wraps = strided.query.elements > u32::MAX as usize;
            let clauses = ["FAS:layout.strided", "FAS:layout.ownership"];
            [&clauses[..], &chosen(&[(wraps, "FAS:layout.offset")])].concat()
        }
        Layout::Ragged(_) => vec!["FAS:layout.ragged", "FAS:layout.ownership"],
        Layout::Paged(_) => vec!["FAS:layout.paged"],
    }
}

/// The clauses that a backward pass of the problem puts to the test, besides the bounds.
#[must_use]
pub fn gradient_clauses(problem: &Problem, has_lse_gradient: bool) -> Vec<&'static str> {
    let mut clauses = vec![
        "FAS:bwd.probability.recompute",
        "FAS:bwd.delta.rowsum",
        "FAS:bwd.score.gradient",
        "FAS:bwd.query.gradient",
        "FAS:bwd.query.scale",
        "FAS:bwd.key.scale",
        "FAS:bwd.value.gradient",
        "FAS:bwd.output.written",
    ];
    clauses.extend(chosen(&[
        (has_lse_gradient, "FAS:bwd.lse.gradient"),
        (!problem.mask.rules.is_empty(), "FAS:bwd.probability.mask"),
        (problem.key_heads < problem.query_heads, "FAS:bwd.head.group-sum"),
        (has_empty_rows(problem), "FAS:bwd.empty-row.zero"),
        (problem.bias.is_some(), "FAS:bwd.bias.gradient"),
        (broadcasts_bias(problem), "FAS:bwd.bias.reduce"),
        (matches!(problem.sink, Some(Sink::Logits(_))), "FAS:bwd.sink.gradient"),
        (problem.softcap.is_some(), "FAS:bwd.softcap.slope"),
        (problem.dropout.is_some(), "FAS:bwd.dropout.keep"),
    ]));
    clauses
}

fn chosen(clauses: &[(bool, &'static str)]) -> Vec<&'static str> {
    clauses.iter().filter(|(put_to_the_test, _)| *put_to_the_test).map(|(_, id)| *id).collect()
}

fn broadcasts_bias(problem: &Problem) -> bool {
    problem.bias.is_some_and(|bias| bias.shape != problem.score_shape())
}

/// Whether the mask leaves some query, in some head, without keys.
fn has_empty_rows(problem: &Problem) -> bool {
    let sees_any = |batch, head, query| {
        (0..problem.key_len).any(|key| problem.sees(Site { batch, head, query, key }))
    };
    let Problem { batch, query_heads, query_len, .. } = *problem;
    ndarray::indices((batch, query_heads, query_len))
        .into_iter()
        .any(|(batch, head, query)| !sees_any(batch, head, query))
}

/// The clause that a mask rule states.
const fn rule_clause(rule: &Rule) -> &'static str {
    match rule {
        Rule::CausalTopLeft => "FAS:mask.causal.top-left",
        Rule::CausalBottomRight => "FAS:mask.causal.bottom-right",
        Rule::KeyLengths(_) => "FAS:mask.length.padding",
        Rule::KeyStarts(_) => "FAS:mask.length.left-padding",
        Rule::QueryLengths(_) => "FAS:mask.length.queries",
        Rule::Window(_) => "FAS:mask.window.inclusive",
        Rule::Prefix(_) => "FAS:mask.prefix.bidirectional",
        Rule::Chunked(_) => "FAS:mask.chunk.local",
        Rule::Dilated(_) => "FAS:mask.dilated.step",
        Rule::Documents(_) => "FAS:mask.document.same",
        Rule::Boolean(_) => "FAS:mask.boolean.broadcast",
        Rule::BlockSparse(_) => "FAS:mask.block-sparse.pattern",
    }
}
