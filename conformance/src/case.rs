//! Cases: a problem with concrete inputs, a name that stays, and the reason it exists.

mod check;
mod clauses;
mod name;

use std::fmt::Write as _;

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::Sink;
use flashproof_spec::tensor::{Cotangents, Inputs};
use sha2::{Digest, Sha256};

pub use check::Check;
pub use clauses::{gradient_clauses, problem_clauses};

use crate::closed;
use crate::inputs::poison::Poison;
use crate::inputs::{
    self, BiasValues, Family, LayoutKind, Misfit, Modifiers, Scores, Upstream, Values, upstream,
};
use crate::relation;

/// A problem, how its inputs are drawn, and why it is worth running.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// `FORMAT/MASK/SHAPE/FAMILY`, with `MODIFICATIONS` of the scores and `LAYOUT` before the family
    /// where the problem has any, or `FORMAT/reported/FAULT` for a case that reproduces a fault
    /// reported in public. A poisoned case has the kind of poison appended, and one of the backward
    /// pass, last, the kind of its upstream gradients. Contains no blank.
    pub name: String,
    /// What is computed.
    pub problem: Problem,
    /// How query, key and value are drawn.
    pub family: Family,
    /// How bias and sinks are drawn, where the problem has them.
    pub modifiers: Modifiers,
    /// Where given, the case runs the kernel on clean and on poisoned inputs, and compares the two
    /// bit for bit, instead of comparing the clean run with the exact answer. A case of the backward
    /// pass has the poisoned run alone, which is compared with the exact answer.
    pub poison: Option<Poison>,
    /// Where given, the case is one of the backward pass, from these upstream gradients.
    pub upstream: Option<Upstream>,
    /// Where given, what the answer is compared with in place of the exact answer. The other problems
    /// and the partials that it needs follow from the case's inputs and their seed.
    pub check: Option<Check>,
    /// The seed of the run; the inputs' own seed is [`Case::input_seed`].
    pub seed: u64,
    /// The clause that the fault it reproduces violates.
    pub clause: Option<&'static str>,
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
        let case = Self {
            name: String::new(),
            problem,
            family,
            modifiers: Modifiers::default(),
            poison,
            upstream: None,
            check: None,
            seed,
            clause: None,
            why: String::new(),
            source: Vec::new(),
            bug: None,
        };
        case.named()
    }

    /// The case with bias and sinks drawn this way.
    #[must_use]
    pub fn with_modifiers(self, modifiers: Modifiers) -> Self {
        Self { modifiers, ..self }.named()
    }

    /// A case of a check beside the comparison with the exact answer, on a problem like this one that
    /// has what the check is about.
    #[must_use]
    pub fn checking(check: Check, problem: Problem, seed: u64) -> Self {
        let case = Self::new(check.fitted(problem), relation::FAMILY, None, seed);
        Self { check: Some(check), ..case }.named()
    }

    /// The case of the backward pass on such inputs.
    #[must_use]
    pub fn with_upstream(self, upstream: Upstream) -> Self {
        Self { upstream: Some(upstream), ..self }.named()
    }

    /// The same case in another format; `None` where that format does not hold its inputs.
    ///
    /// Bias and sinks follow the problem's format, unless [`Modifiers::wide`] says that they do not.
    /// A dropout scale that products in `f64` could not hold becomes the next power of two.
    #[must_use]
    pub fn in_format(&self, format: Format) -> Option<Self> {
        // Those come with descales, in cases of their own.
        if QUANTIZED_FORMATS.contains(&format) {
            return None;
        }
        let mut case = self.clone();
        case.problem.format = format;
        let own = if case.modifiers.wide { Format::F32 } else { format };
        if let Some(bias) = &mut case.problem.bias {
            bias.format = own;
        }
        if let Some(Sink::Logits(logits)) = &mut case.problem.sink {
            *logits = own;
        }
        if let (Format::F64, Some(dropout)) = (format, &mut case.problem.dropout) {
            dropout.scale = dropout.scale.log2().ceil().exp2();
        }
        case.family.fits(&case.problem).is_ok().then(|| case.named())
    }

    /// The case with the name and the reason that follow from what it is; one of a reported fault has
    /// its own, but for the format.
    fn named(mut self) -> Self {
        let format = self.problem.format;
        if self.bug.is_some() {
            let fault = self.name.split_once('/').map_or("", |(_, fault)| fault);
            self.name = format!("{format}/{fault}");
            return self;
        }
        let problem = name::problem_name(&self.problem, self.modifiers);
        self.name = format!("{format}/{problem}/{}", self.family);
        for suffix in [
            self.check.map(Check::name),
            self.poison.map(Poison::name),
            self.upstream.map(Upstream::name),
        ] {
            let _ = suffix.map(|suffix| write!(self.name, "/{suffix}"));
        }
        self.why = self.purposes().join(" ");
        self
    }

    /// What each part of the case is for, in a sentence or two each.
    fn purposes(&self) -> Vec<String> {
        let modifications = self.modifiers.purposes(&self.problem);
        let layout = LayoutKind::recognise(&self.problem).map(LayoutKind::purpose);
        let upstream = self.upstream.map(Upstream::purpose);
        let descales = self.problem.quantization.map(|_| DESCALES);
        let rest = modifications
            .into_iter()
            .chain(descales)
            .chain(layout)
            .chain(upstream)
            .map(str::to_owned);
        let first = self.check.map_or_else(|| self.family.purpose(), |it| it.purpose().to_owned());
        [first].into_iter().chain(rest).collect()
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
        if let Some(Check::Closed(form)) = self.check {
            return Ok(closed::posed(form, &self.problem).inputs);
        }
        let seed = self.input_seed();
        let drawn = inputs::generate_modified(&self.problem, self.family, self.modifiers, seed)?;
        Ok(match self.check {
            Some(Check::Related(relation)) => relation::suited(relation, drawn),
            _ => drawn,
        })
    }

    /// The case's upstream gradients, where it is one of the backward pass; that of the LSE in
    /// `lse_format`.
    #[must_use]
    pub fn cotangents(&self, lse_format: Format) -> Option<Cotangents> {
        let draw = |it| upstream::cotangents(&self.problem, it, lse_format, self.input_seed());
        self.upstream.map(draw)
    }

    /// Whether the case is poisoned, and mask and bias leave something to poison.
    #[must_use]
    pub fn poisons_something(&self) -> bool {
        self.poison.is_some_and(|poison| {
            self.inputs().is_ok_and(|inputs| !poison.places(&self.problem, &inputs).is_empty())
        })
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
        if self.problem.bias.is_some() {
            clauses.extend(bias_clause(self.modifiers.bias));
        }
        if let Some(upstream) = self.upstream {
            clauses.extend(gradient_clauses(&self.problem, upstream.has_lse()));
        }
        clauses.extend(self.check.map(Check::clause));
        let pinned = self.clause.filter(|clause| !clauses.contains(clause));
        clauses.extend(pinned);
        clauses
    }
}

const fn bias_clause(bias: BiasValues) -> Option<&'static str> {
    match bias {
        BiasValues::MinusInfinity | BiasValues::Causal | BiasValues::MinusInfinityRows => {
            Some("FAS:score.bias.minus-infinity")
        }
        BiasValues::Lowest | BiasValues::LowestRows | BiasValues::AllLowest => {
            Some("FAS:score.bias.finite")
        }
        BiasValues::Nan => Some("FAS:fwd.special.nan"),
        BiasValues::Infinity => Some("FAS:fwd.special.infinity"),
        BiasValues::Normal | BiasValues::Ramp => None,
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

/// What descales are for in a case.
const DESCALES: &str = "Descales far from each other: exposes one that is dropped, or taken of another head, block or tensor.";

/// The formats that cases are generated for, in the order that they run.
pub const FORMATS: [Format; 4] = [Format::F64, Format::F32, Format::F16, Format::Bf16];

/// The formats that cases with descales are generated for, which run after those.
pub const QUANTIZED_FORMATS: [Format; 2] = [Format::E4m3, Format::E5m2];

/// Every format that cases are generated for.
#[must_use]
pub fn every_format() -> Vec<Format> {
    [&FORMATS[..], &QUANTIZED_FORMATS].concat()
}

#[cfg(test)]
mod tests {
    use flashproof_spec::mask::{Mask, Rule};

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
