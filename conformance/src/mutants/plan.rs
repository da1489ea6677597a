//! Which cases are run, and how many are judged.

use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use serde::Serialize;

use crate::case::{Case, FORMATS};
use crate::suite::{self, DEFAULT_SEED, Suite};

/// What a run of the kill matrix covers.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The formats that cases and problems are in.
    pub formats: Vec<Format>,
    /// The seed of all inputs.
    pub seed: u64,
    /// How much of the suite.
    pub extent: Extent,
}

/// How much of the suite is run and judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Extent {
    /// Of the cases that reproduce no reported fault and compare with the exact answer, one in so many
    /// is run.
    pub one_in: usize,
    /// Of the cases that reproduce no reported fault, those of more products than this are left out.
    pub most_products: usize,
    /// So many cases at most are judged of a fault in a format, of those where it differs.
    pub judged: usize,
    /// As `judged`, of a control.
    pub controls_judged: usize,
    /// So many answers at most are judged of a fault, in a format and on inputs that rules of others draw
    /// alike, where such rules accept all.
    pub judged_own: usize,
}

impl Extent {
    /// A sample that two cores run in a minute or two.
    pub const SAMPLE: Self =
        Self { one_in: 6, most_products: 1 << 18, judged: 4, controls_judged: 8, judged_own: 3 };
    /// All there is.
    pub const ALL: Self = Self {
        one_in: 1,
        most_products: usize::MAX,
        judged: usize::MAX,
        controls_judged: usize::MAX,
        judged_own: usize::MAX,
    };
}

impl Default for Plan {
    fn default() -> Self {
        let formats = FORMATS.into_iter().chain([Format::E4m3]).collect();
        Self { formats, seed: DEFAULT_SEED, extent: Extent::SAMPLE }
    }
}

/// The cases of one format.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) format: Format,
    pub(super) cases: Vec<Case>,
    /// How many the suite has.
    pub(super) of: usize,
}

impl Plan {
    /// The cases of the quick suite in a format, as far as the extent goes, in the suite's order. Every
    /// case of a reported fault is among them, and every relation, formula and merge that is not too
    /// large.
    pub(super) fn cases(&self, format: Format) -> Sample {
        let all = suite::cases(Suite::Quick, &[format], self.seed);
        let of = all.len();
        let mut plain = 0;
        let mut is_taken = |case: &Case| {
            if case.bug.is_some() {
                return true;
            }
            let is_small = products(&case.problem) <= self.extent.most_products;
            if case.check.is_some() {
                return is_small;
            }
            plain += 1;
            is_small && plain % self.extent.one_in == 0
        };
        Sample { format, cases: all.into_iter().filter(|case| is_taken(case)).collect(), of }
    }
}

/// Products that a forward pass takes.
fn products(problem: &Problem) -> usize {
    let sites = problem.score_shape().iter().product::<usize>();
    sites.saturating_mul(problem.head_dim + problem.value_dim)
}
