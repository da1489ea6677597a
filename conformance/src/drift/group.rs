//! Which cases are told of together.

use flashproof_spec::mask::Rule;

use crate::case::{Case, Check};
use crate::suite::Feature;

/// The group of a case: its pass and what it is about, such as `forward/causal`, `backward/sink`. Some
/// tens in a suite, whatever the number of cases.
pub(super) fn of(case: &Case) -> String {
    let pass = if case.upstream.is_some() { "backward" } else { "forward" };
    format!("{pass}/{}", subject(case))
}

fn subject(case: &Case) -> &'static str {
    if case.bug.is_some() {
        return "reported";
    }
    match case.check {
        Some(Check::Related(_)) => return "related",
        Some(Check::Closed(_)) => return "formula",
        Some(Check::Merge(_)) => return "merge",
        None => {}
    }
    if case.poison.is_some() {
        return "poison";
    }
    if Feature::Layout.occurs_in(case) {
        return "layout";
    }
    modification(case).unwrap_or_else(|| mask(&case.problem.mask.rules))
}

/// What happens to scores and weights, if anything does.
fn modification(case: &Case) -> Option<&'static str> {
    let named = [
        (Feature::Bias, "bias"),
        (Feature::Alibi, "alibi"),
        (Feature::Softcap, "softcap"),
        (Feature::Sink, "sink"),
        (Feature::Dropout, "dropout"),
    ];
    let mut present = named.iter().filter(|(feature, _)| feature.occurs_in(case));
    let (_, first) = present.next()?;
    Some(if present.next().is_some() { "modified" } else { first })
}

fn mask(rules: &[Rule]) -> &'static str {
    match rules {
        [] => "full",
        [rule] => match rule {
            Rule::CausalTopLeft | Rule::CausalBottomRight => "causal",
            Rule::KeyLengths(_) => "lengths",
            Rule::KeyStarts(_) => "left-padding",
            Rule::QueryLengths(_) => "query-lengths",
            Rule::Window(_) => "window",
            Rule::Prefix(_) => "prefix",
            Rule::Chunked(_) => "chunked",
            Rule::Dilated(_) => "dilated",
            Rule::Documents(_) => "documents",
            Rule::Boolean(_) => "boolean",
            Rule::BlockSparse(_) => "block-sparse",
        },
        _ => "masks",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use flashproof_spec::format::Format;

    use super::*;
    use crate::suite::{self, DEFAULT_SEED, Suite};

    #[test]
    fn there_are_tens_of_groups_and_each_has_several_cases() {
        let cases = suite::cases(Suite::Quick, &[Format::Bf16], DEFAULT_SEED);
        let groups: BTreeSet<_> = cases.iter().map(of).collect();
        assert!((20..80).contains(&groups.len()), "{groups:?}");
        for name in ["forward/full", "forward/causal", "backward/bias", "forward/merge"] {
            assert!(groups.contains(name), "{name} in {groups:?}");
        }
    }
}
