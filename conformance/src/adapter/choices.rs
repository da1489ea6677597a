//! The options that a kernel declares, and the problem as a kernel with such options reads it.

use flashproof_spec::mask::{Mask, Rule, Site, Window};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::Problem;
use flashproof_spec::score::{Softcap, SoftcapOrder};
use serde::{Deserialize, Serialize};

/// The options that a kernel declares where honest kernels differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Choices {
    /// Base of the LSE output (`FAS:choice.lse.base`).
    pub lse_base: LseBase,
    /// Output of a row without visible keys (`FAS:choice.empty-row.output`); its LSE is minus infinity.
    pub empty_row: EmptyRow,
    /// Output of a row whose every key has a bias of minus infinity (`FAS:choice.masked-row.output`).
    pub masked_row: EmptyRow,
    /// Sign of the LSE output (`FAS:choice.lse.sign`).
    pub lse_sign: LseSign,
    /// Whether the LSE output counts a sink (`FAS:choice.lse.sink`).
    pub lse_sink: LseSink,
    /// How a causal mask is read (`FAS:choice.causal.alignment`).
    pub causal: CausalAlignment,
    /// How the bounds of a window are read (`FAS:choice.window.convention`).
    pub window: WindowConvention,
    /// When a softcap is applied (`FAS:choice.softcap.order`).
    pub softcap: SoftcapChoice,
}

/// What an LSE output counts of a sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LseSink {
    /// The sink is one of its terms: `ln(sum e^(s_i) + e^(sink))`.
    #[default]
    Included,
    /// `ln sum e^(s_i)`.
    Excluded,
}

/// Sign of an LSE output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LseSign {
    /// `m + ln sum e^(s - m)`.
    #[default]
    Plus,
    /// The same, negated.
    Minus,
}

/// How a kernel reads a causal mask (`FAS:choice.causal.alignment`). Other rules say themselves how they
/// are aligned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CausalAlignment {
    /// As the problem says; what it does not offer it reports as unsupported.
    #[default]
    AsAsked,
    /// Top-left, whatever the problem says: judged by the answer to that.
    TopLeft,
    /// Bottom-right, whatever the problem says.
    BottomRight,
}

/// How a kernel reads the bounds of a window (`FAS:choice.window.convention`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowConvention {
    /// `position - left <= key <= position + right`.
    #[default]
    Inclusive,
    /// `position - left < key < position + right`: a bound counts the query's own position. A count of 0
    /// leaves out that position too, so that with 0 on both sides no key is seen.
    Count,
}

/// When a kernel applies a softcap (`FAS:choice.softcap.order`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SoftcapChoice {
    /// As the problem says.
    #[default]
    AsAsked,
    /// Before bias and ALiBi, whatever the problem says.
    BeforeBias,
    /// After bias and ALiBi, whatever the problem says.
    AfterBias,
}

/// Base of the logarithm and exponential behind an LSE output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LseBase {
    /// `m + ln sum e^(s - m)`.
    #[default]
    Natural,
    /// The same divided by `ln 2`.
    Two,
}

/// Output of a row without visible keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EmptyRow {
    /// Every entry is zero.
    #[default]
    Zero,
    /// Every entry is NaN.
    Nan,
    /// The mean of the values of the keys in use, as of equal weights.
    Mean,
}

impl Choices {
    /// The problem as the kernel reads it, by which it is judged. What a choice is about an output
    /// (base, sign and sink of the LSE; rows without keys) is undone where outputs are compared.
    ///
    /// A window is read as inclusive bounds; where a count of 0 leaves out the query's own position,
    /// which no inclusive bound does, as a boolean mask of the same keys.
    ///
    /// Clauses: `FAS:choice.causal.alignment`, `FAS:choice.window.convention`,
    /// `FAS:choice.softcap.order`.
    #[must_use]
    pub fn read(&self, problem: &Problem) -> Problem {
        let rules = problem.mask.rules.iter().map(|rule| self.read_rule(problem, rule)).collect();
        let softcap = problem.softcap.map(|softcap| self.read_softcap(softcap));
        Problem { mask: Mask { rules }, softcap, ..problem.clone() }
    }

    fn read_rule(self, problem: &Problem, rule: &Rule) -> Rule {
        match (rule, self.causal, self.window) {
            (Rule::CausalBottomRight, CausalAlignment::TopLeft, _) => Rule::CausalTopLeft,
            (Rule::CausalTopLeft, CausalAlignment::BottomRight, _) => Rule::CausalBottomRight,
            (Rule::Window(window), _, WindowConvention::Count) => counted(problem, *window),
            _ => rule.clone(),
        }
    }

    const fn read_softcap(self, softcap: Softcap) -> Softcap {
        let order = match self.softcap {
            SoftcapChoice::AsAsked => softcap.order,
            SoftcapChoice::BeforeBias => SoftcapOrder::BeforeBias,
            SoftcapChoice::AfterBias => SoftcapOrder::AfterBias,
        };
        Softcap { order, ..softcap }
    }
}

/// The rule that admits what a window admits whose bounds count the query's own position.
fn counted(problem: &Problem, window: Window) -> Rule {
    let Window { left, right, alignment } = window;
    match (left, right) {
        (Some(0), _) | (_, Some(0)) => {
            let shape = [problem.batch, 1, problem.query_len, problem.key_len];
            Rule::Boolean(Pattern::from_fn(shape, |[batch, head, query, key]| {
                counts(problem, window, Site { batch, head, query, key })
            }))
        }
        _ => {
            let inclusive = |count: Option<usize>| count.map(|count| count - 1);
            Rule::Window(Window { left: inclusive(left), right: inclusive(right), alignment })
        }
    }
}

fn counts(problem: &Problem, window: Window, site: Site) -> bool {
    let Window { left, right, alignment } = window;
    let before =
        alignment.position(site.query, problem.used_lengths(site.batch)) - site.key as i128;
    left.is_none_or(|left| before < left as i128)
        && right.is_none_or(|right| -before < right as i128)
}
