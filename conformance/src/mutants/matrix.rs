//! The kill matrix: what is kept of a run.

use std::collections::{BTreeMap, BTreeSet};

use flashproof_spec::format::Format;
use serde::Serialize;

use super::judgement::JudgedCase;
use super::kill::{Kill, Strongest, Way, is_killed};
use super::own::{Miss, SeenTask};
use super::plan::{Extent, Plan, Sample};
use super::specimen::Specimen;
use super::survey::Asked;
use crate::report::Outcome;
use crate::rules::table::RULES;
use crate::rules::{Opinion, Rule};
use crate::suite::{Direction, Suite};

/// Version of the JSON form. It moves when a field is removed or changes its meaning.
pub const SCHEMA_VERSION: u32 = 1;

/// What a run found.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// [`SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the program.
    pub flashproof: &'static str,
    /// The suite that cases are from.
    pub suite: Suite,
    /// Seed of all inputs.
    pub seed: u64,
    /// How much of the suite was run and judged.
    pub extent: Extent,
    /// Cases that were run, of each format.
    pub formats: BTreeMap<Format, CasesRun>,
    /// The rules of others, in the order of each row's.
    pub rules: Vec<RuleColumn>,
    /// The specimens, faults first.
    pub rows: Vec<Row>,
}

/// How many cases were run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CasesRun {
    /// Run.
    pub run: usize,
    /// In the suite.
    pub of: usize,
}

/// A rule, and what it says of the right kernel.
#[derive(Clone, Debug, Serialize)]
pub struct RuleColumn {
    /// Its name.
    pub name: &'static str,
    /// Whose it is.
    pub project: &'static str,
    /// What it requires.
    pub requires: &'static str,
    /// How its own inputs are drawn.
    pub inputs: &'static str,
    /// Whether the project states those.
    pub states_inputs: bool,
    /// The right kernel on the rule's own inputs: rejections are false alarms.
    pub right_on_own: Count,
    /// The right kernel on the cases of ours that were judged.
    pub right_on_ours: Count,
}

/// Answers that a rule looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Looked at.
    pub looked: usize,
    /// Rejected.
    pub rejected: usize,
    /// Accepted, though the bounds prove wrong what the rule looks at; of the right kernel's, none.
    pub missed: usize,
}

/// One specimen.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub name: String,
    /// What it does.
    pub summary: String,
    /// Whether it is wrong.
    pub is_fault: bool,
    /// The pass that differs.
    pub pass: Direction,
    /// The clauses that describe the fault.
    pub clauses: Vec<&'static str>,
    /// What became of it in each format.
    pub kills: BTreeMap<Format, Kill>,
    /// What each rule says of it.
    pub rules: Vec<RuleCell>,
}

/// What one rule says of one specimen, where it accepts the right kernel's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RuleCell {
    /// On the rule's own inputs, where the specimen's answer differs from the right kernel's.
    pub own: Count,
    /// On cases of ours, where what the rule looks at is proven wrong.
    pub ours: Count,
}

/// What a rule makes of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sight {
    /// It rejects some answer.
    Caught,
    /// It accepts every answer that it looks at, and some of them are proven wrong where it looks.
    Missed,
    /// It looks at nothing that is proven wrong.
    Unseen,
}

impl Count {
    /// What it comes to.
    #[must_use]
    pub const fn sight(self) -> Sight {
        match self {
            Self { rejected: 1.., .. } => Sight::Caught,
            Self { missed: 1.., .. } => Sight::Missed,
            _ => Sight::Unseen,
        }
    }

    const fn add(&mut self, opinion: Opinion) {
        match opinion {
            Opinion::DoesNotLook => {}
            Opinion::Accepts => self.looked += 1,
            Opinion::Rejects => {
                self.looked += 1;
                self.rejected += 1;
            }
        }
    }
}

impl Matrix {
    pub(super) fn new(plan: &Plan, suites: &[Sample], specimens: &[Specimen]) -> Self {
        let run = |it: &Sample| (it.format, CasesRun { run: it.cases.len(), of: it.of });
        Self {
            schema_version: SCHEMA_VERSION,
            flashproof: env!("CARGO_PKG_VERSION"),
            suite: Suite::Quick,
            seed: plan.seed,
            extent: plan.extent,
            formats: suites.iter().map(run).collect(),
            rules: RULES.iter().map(RuleColumn::new).collect(),
            rows: specimens.iter().map(Row::new).collect(),
        }
    }

    /// Adds what one specimen's answers to the cases of a format came to.
    pub(super) fn add_kill(
        &mut self,
        specimen: usize,
        format: Format,
        asked: &Asked,
        judged: &[JudgedCase],
    ) {
        let of_it = judged.iter().flat_map(|it| &it.of).filter(|it| it.specimen == specimen);
        self.rows[specimen].kills.insert(format, Kill::new(asked, of_it));
    }

    /// Adds what the rules say of answers to cases of ours.
    pub(super) fn add_ours(&mut self, judged: &[JudgedCase]) {
        for JudgedCase { of_right, of } in judged {
            let Some(of_right) = of_right else { continue };
            for (rule, &opinion) in of_right.iter().enumerate() {
                self.rules[rule].right_on_ours.add(opinion);
            }
            for it in of.iter().filter(|it| is_killed(it)) {
                for (rule, &opinion) in it.opinions.iter().flatten().enumerate() {
                    if of_right[rule] == Opinion::Accepts && it.shows(&RULES[rule]) {
                        let ours = &mut self.rows[it.specimen].rules[rule].ours;
                        ours.add(opinion);
                        ours.missed += usize::from(opinion == Opinion::Accepts);
                    }
                }
            }
        }
    }

    /// Adds what the rules say on their own inputs.
    pub(super) fn add_own(&mut self, seen: &[SeenTask], misses: &[Miss]) {
        for task in seen {
            for &(rule, opinion) in &task.of_right {
                self.rules[rule].right_on_own.add(opinion);
            }
            for (specimen, _) in &task.of {
                for (rule, opinion) in task.opinions(*specimen) {
                    self.rows[*specimen].rules[rule].own.add(opinion);
                }
            }
        }
        for &Miss { specimen, rule } in misses {
            self.rows[specimen].rules[rule].own.missed += 1;
        }
    }

    /// The faults.
    pub fn faults(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| row.is_fault)
    }

    /// The controls.
    pub fn controls(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.is_fault)
    }

    /// How many faults a rule catches, misses and does not see, on its own inputs or on ours.
    #[must_use]
    pub fn sights(&self, rule: usize, of: fn(&RuleCell) -> Count) -> Sights {
        let mut sights = Sights::default();
        for row in self.faults() {
            match of(&row.rules[rule]).sight() {
                Sight::Caught => sights.caught += 1,
                Sight::Missed => sights.missed += 1,
                Sight::Unseen => sights.unseen += 1,
            }
        }
        sights
    }

    /// Answers of faults to cases of ours, proven wrong where a rule looks: how many it looks at, rejects
    /// and accepts.
    #[must_use]
    pub fn wrong_answers(&self, rule: usize) -> Count {
        let sum = |sum: Count, count: Count| Count {
            looked: sum.looked + count.looked,
            rejected: sum.rejected + count.rejected,
            missed: sum.missed + count.missed,
        };
        self.faults().map(|row| row.rules[rule].ours).fold(Count::default(), sum)
    }

    /// Passed where every fault is killed in some format and no control is flagged in any.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        let fails = |row: &Row| row.is_fault != row.is_killed();
        match (self.rows.is_empty(), self.rows.iter().any(fails)) {
            (true, _) => Outcome::NothingChecked,
            (_, true) => Outcome::Failed,
            (_, false) => Outcome::Passed,
        }
    }
}

/// How many faults a rule catches, misses and does not see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sights {
    /// Caught.
    pub caught: usize,
    /// Looked at, and missed.
    pub missed: usize,
    /// Not looked at.
    pub unseen: usize,
}

impl RuleColumn {
    fn new(rule: &Rule) -> Self {
        Self {
            name: rule.name,
            project: rule.project,
            requires: rule.requires,
            inputs: rule.inputs.describe(),
            states_inputs: rule.states_inputs,
            right_on_own: Count::default(),
            right_on_ours: Count::default(),
        }
    }
}

impl Row {
    fn new(specimen: &Specimen) -> Self {
        Self {
            name: specimen.name.clone(),
            summary: specimen.summary.clone(),
            is_fault: specimen.is_fault,
            pass: specimen.pass,
            clauses: specimen.clauses.clone(),
            kills: BTreeMap::new(),
            rules: vec![RuleCell::default(); RULES.len()],
        }
    }

    /// Whether some answer in some format failed.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.kills.values().any(|kill| kill.killed > 0)
    }

    /// The describing clauses that killed it, with the ways that they did.
    #[must_use]
    pub fn described_by(&self) -> BTreeMap<&'static str, BTreeSet<Way>> {
        let mut described: BTreeMap<&'static str, BTreeSet<Way>> = BTreeMap::new();
        for kill in self.kills.values() {
            for (way, clauses) in kill.ways() {
                for clause in clauses.keys().filter(|it| self.clauses.contains(it)) {
                    described.entry(clause).or_default().insert(way);
                }
            }
        }
        described
    }

    /// The strongest kill of all formats.
    #[must_use]
    pub fn strongest(&self) -> Option<&Strongest> {
        let all = self.kills.values().filter_map(|kill| kill.strongest.as_ref());
        all.max_by(|a, b| a.ratio.total_cmp(&b.ratio))
    }
}
