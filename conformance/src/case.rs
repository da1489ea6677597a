//! Cases: a problem with concrete inputs, a name that stays, and the reason it exists.

use std::fmt::Write as _;

use flashproof_spec::format::Format;
use flashproof_spec::mask::{Rule, Site};
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::tensor::{Cotangents, Inputs};
use sha2::{Digest, Sha256};

use crate::inputs::poison::Poison;
use crate::inputs::{self, Family, Misfit, Scores, Upstream, Values, upstream};

/// A problem, how its inputs are drawn, and why it is worth running.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// `FORMAT/MASK/SHAPE/FAMILY`, or `FORMAT/reported/FAULT` for a case that reproduces a fault
    /// reported in public. A poisoned case has the kind of poison appended, and one of the backward
    /// pass, last, the kind of its upstream gradients. Contains no blank.
    pub name: String,
    /// What is computed.
    pub problem: Problem,
    /// How the inputs are drawn.
    pub family: Family,
    /// Where given, the case runs the kernel on clean and on poisoned inputs, and compares the two
    /// bit for bit, instead of comparing the clean run with the exact answer. A case of the backward
    /// pass has the poisoned run alone, which is compared with the exact answer.
    pub poison: Option<Poison>,
    /// Where given, the case is one of the backward pass, from these upstream gradients.
    pub upstream: Option<Upstream>,
    /// The seed of the run; the inputs' own seed is [`Case::input_seed`].
    pub seed: u64,
    /// What the case is for.
    pub why: String,
    /// The reports of the fault it reproduces, as `project#issue`; empty where it reproduces none.
    pub source: Vec<String>,
    /// The fault's number in `cases/reported.toml`.
    pub bug: Option<u32>,
}

impl Case {
    /// A case named after its problem, family and poison.
    #[must_use]
    pub fn new(problem: Problem, family: Family, poison: Option<Poison>, seed: u64) -> Self {
        let mut name =
            format!("{}/{}/{}/{family}", problem.format, mask_name(&problem), shape_name(&problem));
        if let Some(poison) = poison {
            let _ = write!(name, "/{}", poison.name());
        }
        Self {
            name,
            problem,
            family,
            poison,
            upstream: None,
            seed,
            why: family.purpose(),
            source: Vec::new(),
            bug: None,
        }
    }

    /// The case of the backward pass on such inputs.
    #[must_use]
    pub fn with_upstream(mut self, upstream: Upstream) -> Self {
        let _ = write!(self.name, "/{}", upstream.name());
        self.why = format!("{} {}", self.why, upstream.purpose());
        self.upstream = Some(upstream);
        self
    }

    /// The seed of the inputs: a hash of the run's seed and the case's name, so that no two cases
    /// of a run draw the same numbers and each can be drawn alone.
    #[must_use]
    pub fn input_seed(&self) -> u64 {
        let digest = Sha256::digest(format!("{}/{}", self.seed, self.name));
        digest.iter().take(8).fold(0, |seed, &byte| (seed << 8) | u64::from(byte))
    }

    /// The case's inputs, without poison.
    ///
    /// # Errors
    /// [`Misfit`] when the family does not fit the problem.
    pub fn inputs(&self) -> Result<Inputs, Misfit> {
        inputs::generate(&self.problem, self.family, self.input_seed())
    }

    /// The case's upstream gradients, where it is one of the backward pass; that of the LSE in
    /// `lse_format`.
    #[must_use]
    pub fn cotangents(&self, lse_format: Format) -> Option<Cotangents> {
        let draw = |it| upstream::cotangents(&self.problem, it, lse_format, self.input_seed());
        self.upstream.map(draw)
    }

    /// Whether the case reproduces the fault of that number, or the one reported as `project#issue`.
    #[must_use]
    pub fn reproduces(&self, fault: &str) -> bool {
        self.source.iter().any(|source| source == fault)
            || self.bug.is_some_and(|bug| bug.to_string() == fault)
    }

    /// The clauses that the case puts to the test, besides the bounds.
    #[must_use]
    pub fn clauses(&self) -> Vec<&'static str> {
        let mut clauses = problem_clauses(&self.problem);
        if self.poison.is_some() {
            clauses.push("FAS:fwd.special.invisible");
        }
        clauses.extend(family_clause(self.family));
        if let Some(upstream) = self.upstream {
            clauses.extend(gradient_clauses(&self.problem, upstream.has_lse()));
        }
        clauses
    }
}

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
    clauses
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
    for (put_to_the_test, clause) in [
        (has_lse_gradient, "FAS:bwd.lse.gradient"),
        (!problem.mask.rules.is_empty(), "FAS:bwd.probability.mask"),
        (problem.key_heads < problem.query_heads, "FAS:bwd.head.group-sum"),
        (has_empty_rows(problem), "FAS:bwd.empty-row.zero"),
    ] {
        clauses.extend(put_to_the_test.then_some(clause));
    }
    clauses
}

/// Whether some query sees no key.
fn has_empty_rows(problem: &Problem) -> bool {
    let sees_any = |batch, query| {
        (0..problem.key_len).any(|key| problem.sees(Site { batch, head: 0, query, key }))
    };
    problem.query_len > 0
        && (0..problem.batch)
            .any(|batch| (0..problem.query_len).any(|query| !sees_any(batch, query)))
}

/// The clause that a mask rule states.
const fn rule_clause(rule: &Rule) -> &'static str {
    match rule {
        Rule::CausalTopLeft => "FAS:mask.causal.top-left",
        Rule::CausalBottomRight => "FAS:mask.causal.bottom-right",
        Rule::KeyLengths(_) => "FAS:mask.length.padding",
    }
}

const fn family_clause(family: Family) -> Option<&'static str> {
    match (family.scores, family.values) {
        (Scores::NanQuery | Scores::NanKey, _) | (_, Values::Nan) => Some("FAS:fwd.special.nan"),
        (_, Values::Infinity) => Some("FAS:fwd.special.infinity"),
        (Scores::Rising | Scores::Falling, _) => Some("FAS:fwd.online.rescale"),
        _ => None,
    }
}

fn mask_name(problem: &Problem) -> String {
    let names: Vec<_> = problem
        .mask
        .rules
        .iter()
        .map(|rule| match rule {
            Rule::CausalTopLeft => "causal-tl",
            Rule::CausalBottomRight => "causal-br",
            Rule::KeyLengths(_) => "lengths",
        })
        .collect();
    if names.is_empty() { "full".to_owned() } else { names.join("-") }
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

/// The formats that cases are generated for, in the order that they run.
pub const FORMATS: [Format; 4] = [Format::F64, Format::F32, Format::F16, Format::Bf16];

#[cfg(test)]
mod tests {
    use flashproof_spec::mask::Mask;

    use super::*;

    fn example() -> Problem {
        let mut problem = Problem::new(Format::Bf16, 6, 5, 64);
        (problem.batch, problem.key_heads, problem.key_len, problem.value_dim) = (2, 2, 2, 32);
        problem.mask = Mask { rules: vec![Rule::KeyLengths(vec![1, 2]), Rule::CausalBottomRight] };
        problem
    }

    #[test]
    fn names_say_what_is_computed() {
        let family = Family { scores: Scores::Ties, values: Values::Ones };
        let case = Case::new(example(), family, Some(Poison::Unseen), 1);
        assert_eq!(
            case.name,
            "bf16/lengths-causal-br/b2-h6g2-q5-k2-d64-v32/ties+ones/poison-unseen"
        );
        let plain = Problem::new(Format::F32, 1, 3, 8);
        assert_eq!(
            Case::new(plain, Family::of(Scores::Normal), None, 1).name,
            "f32/full/q3-k3-d8/normal"
        );
    }

    #[test]
    fn inputs_depend_on_the_seed_and_the_name() {
        let case = Case::new(example(), Family::of(Scores::Normal), None, 1);
        let reseeded = Case { seed: 2, ..case.clone() };
        let renamed = Case { name: "another".to_owned(), ..case.clone() };
        assert_eq!(case.inputs(), case.inputs());
        assert_ne!(case.inputs(), reseeded.inputs());
        assert_ne!(case.inputs(), renamed.inputs());
    }

    #[test]
    fn clauses_follow_from_mask_heads_and_empty_rows() {
        let case = Case::new(example(), Family::of(Scores::Normal), None, 1);
        assert_eq!(
            case.clauses(),
            [
                "FAS:fwd.score.scale",
                "FAS:mask.length.padding",
                "FAS:mask.causal.bottom-right",
                "FAS:mask.intersection",
                "FAS:head.group.block",
                "FAS:fwd.softmax.empty-row",
            ]
        );
    }
}
