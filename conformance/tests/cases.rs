//! The suite's cases before any kernel sees them: they can be posed, they differ, they reproduce, and
//! together they ask what they are meant to ask.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::LazyLock;

use flashproof_conformance::case::{Case, FORMATS};
use flashproof_conformance::inputs::poison::Poison;
use flashproof_conformance::inputs::{
    BiasValues, LayoutKind, Scores, SinkValues, Upstream, Values,
};
use flashproof_conformance::suite::{
    DEFAULT_SEED, Direction, Feature, Suite, cases, is_match, matching, with_features,
};
use flashproof_spec::clause;
use flashproof_spec::format::Format;
use flashproof_spec::layout::StoredInputs;
use flashproof_spec::mask::{Mask, Rule, Site};
use flashproof_spec::pattern::Pattern;
use flashproof_spec::problem::{Problem, Scale};
use flashproof_spec::score::{Sink, Slopes, SoftcapOrder};
use proptest::prelude::*;

const DIRECTIONS: [Direction; 2] = [Direction::Forward, Direction::Backward];

static QUICK: LazyLock<Vec<Case>> = LazyLock::new(|| cases(Suite::Quick, &FORMATS, DEFAULT_SEED));

/// The cases of the quick suite in each format, of each pass.
static PARTS: LazyLock<Vec<(Format, Direction, Vec<Case>)>> = LazyLock::new(|| {
    let part = |format, direction: Direction| {
        let is = |case: &&Case| case.problem.format == format && direction.includes(case);
        QUICK.iter().filter(is).cloned().collect()
    };
    let each = |format| DIRECTIONS.map(|direction| (format, direction, part(format, direction)));
    FORMATS.into_iter().flat_map(each).collect()
});

/// Whether every format and pass has a case like that.
fn everywhere(is: impl Fn(&Case) -> bool) -> bool {
    PARTS.iter().all(|(_, _, part)| part.iter().any(&is))
}

#[test]
fn cases_can_be_drawn_and_cite_clauses_that_exist() {
    for case in QUICK.iter().chain(&cases(Suite::Full, &FORMATS, DEFAULT_SEED)) {
        let name = &case.name;
        assert_eq!(case.problem.validate(), Ok(()), "{name}");
        assert_eq!(case.family.fits(&case.problem), Ok(()), "{name}");
        assert!(!case.why.is_empty(), "{name} says not why");
        assert!(!name.contains(char::is_whitespace), "{name}");
        for id in case.clauses() {
            assert!(clause::find(id).is_some(), "{name} cites unknown clause {id}");
        }
    }
}

#[test]
fn inputs_are_those_of_the_problem_and_its_layout_holds_them() {
    for case in &*QUICK {
        let (name, problem) = (&case.name, &case.problem);
        let inputs = case.inputs().unwrap();
        assert_eq!(inputs.check(problem), Ok(()), "{name}");
        assert!(StoredInputs::store(problem, &inputs).is_ok(), "{name}");
        if let Some(cotangents) = case.cotangents(Format::F32) {
            assert_eq!(cotangents.check(problem, Format::F32), Ok(()), "{name}");
        }
        let Some(poison) = case.poison else { continue };
        let places = poison.places(problem, &inputs);
        assert!(!places.is_empty(), "{name} poisons nothing");
        let poisoned = places.inputs(&inputs);
        assert_eq!(poisoned.check(problem), Ok(()), "{name}");
        assert!(StoredInputs::store(problem, &poisoned).is_ok(), "{name}");
    }
}

#[test]
fn poison_is_seen_by_some_rows_where_it_is_partly_seen_and_by_none_elsewhere() {
    for case in &*QUICK {
        let Some(poison) = case.poison else { continue };
        let (problem, inputs) = (&case.problem, case.inputs().unwrap());
        let places = poison.places(problem, &inputs);
        let [batch, heads, queries] = problem.lse_shape();
        let seeing = ndarray::indices((batch, heads, queries))
            .into_iter()
            .filter(|&(batch, head, query)| places.seen_by(problem, &inputs, [batch, head, query]))
            .count();
        let some = 0 < seeing && seeing < batch * heads * queries;
        assert_eq!(some, poison == Poison::PartlySeen, "{}: {seeing}", case.name);
    }
}

#[test]
fn names_are_unique_and_find_their_case() {
    for all in [QUICK.clone(), cases(Suite::Full, &FORMATS, DEFAULT_SEED)] {
        let names: HashSet<_> = all.iter().map(|case| &case.name).collect();
        assert_eq!(names.len(), all.len());
        for case in &all {
            assert!(is_match(case, &case.name), "{}", case.name);
        }
        assert_eq!(matching(all.clone(), &[all[7].name.clone()]), [all[7].clone()]);
    }
}

/// The seed is that of the inputs alone: a name is the same problem in every run.
#[test]
fn problems_do_not_depend_on_the_seed_and_inputs_do() {
    let others = cases(Suite::Quick, &FORMATS, DEFAULT_SEED.wrapping_add(1));
    assert_eq!(QUICK.len(), others.len());
    for (ours, other) in QUICK.iter().zip(&others) {
        assert_eq!((&ours.name, &ours.problem), (&other.name, &other.problem));
        assert_ne!(ours.input_seed(), other.input_seed(), "{}", ours.name);
    }
}

#[test]
fn every_level_of_every_dimension_occurs_in_every_format() {
    for format in FORMATS {
        let cases = cases(Suite::Full, &[format], DEFAULT_SEED);
        let seen = |of: fn(&Case) -> usize| cases.iter().map(of).collect::<BTreeSet<_>>();
        let lengths = BTreeSet::from([1, 2, 3, 5, 17, 63, 64, 65, 127, 257]);
        assert!(seen(|case| case.problem.query_len).is_superset(&lengths), "{format}");
        assert!(seen(|case| case.problem.key_len).is_superset(&lengths), "{format}");
        let dims = BTreeSet::from([1, 8, 40, 64, 72, 112, 128, 256]);
        assert!(seen(|case| case.problem.head_dim).is_superset(&dims), "{format}");
        assert!(cases.iter().any(|it| it.problem.value_dim < it.problem.head_dim));
        assert!(cases.iter().any(|it| it.problem.value_dim > it.problem.head_dim));
        assert!(cases.iter().any(|it| it.problem.query_heads == 6 && it.problem.key_heads == 2));
        assert!(cases.iter().any(|it| it.problem.batch > 1));
        for scores in Scores::ALL {
            let fits = cases.iter().any(|case| case.family.scores == scores);
            let beyond = matches!(scores, Scores::All133120 | Scores::One133120);
            // For weights in 8 bits, and among the cases of those alone.
            let narrow = scores == Scores::Peak;
            assert_eq!(fits, !narrow && (format != Format::F16 || !beyond), "{format} {scores:?}");
        }
        for values in Values::ALL {
            assert!(cases.iter().any(|case| case.family.values == values), "{format} {values:?}");
        }
    }
}

#[test]
fn every_feature_occurs_in_every_format_and_pass() {
    for (format, direction, part) in &*PARTS {
        // Descales are in cases of their own formats (tests/quantized.rs).
        let counts: BTreeMap<_, _> = Feature::ALL
            .into_iter()
            .filter(|&feature| feature != Feature::Descale)
            .map(|feature| (feature, with_features(part.clone(), &[feature]).len()))
            .collect();
        println!("{format} {direction}: {} cases, {counts:?}", part.len());
        for (feature, count) in counts {
            assert!(count > 0, "{format} {direction}: no case has {feature}");
        }
        for (first, second) in pairs_of_features() {
            let both = |case: &&Case| first.occurs_in(case) && second.occurs_in(case);
            assert!(part.iter().any(|case| both(&case)), "{format} {direction}: {first}, {second}");
        }
    }
}

fn pairs_of_features() -> impl Iterator<Item = (Feature, Feature)> {
    let features = || Feature::ALL.into_iter().filter(|&feature| feature != Feature::Descale);
    features().flat_map(move |first| {
        features().filter(move |&second| first < second).map(move |it| (first, it))
    })
}

#[test]
fn every_kind_of_each_feature_occurs_in_every_format_and_pass() {
    for values in BiasValues::ALL {
        // Gradients through entries that are no number are unspecified.
        let no_number = matches!(values, BiasValues::Infinity | BiasValues::Nan);
        // As are, without a bound, those of rows whose LSE is the lowest number of a format.
        let lowest = matches!(values, BiasValues::LowestRows | BiasValues::AllLowest);
        let has = |case: &Case| case.problem.bias.is_some() && case.modifiers.bias == values;
        assert!(no_number || lowest || everywhere(has), "{values:?}");
        assert!(QUICK.iter().any(has), "{values:?}");
    }
    for values in SinkValues::ALL {
        let logits = |case: &Case| matches!(case.problem.sink, Some(Sink::Logits(_)));
        assert!(everywhere(|case| logits(case) && case.modifiers.sink == values), "{values:?}");
    }
    assert!(everywhere(|case| case.problem.sink == Some(Sink::Zero)));
    for kind in LayoutKind::ALL {
        assert!(everywhere(|case| LayoutKind::recognise(&case.problem) == Some(kind)), "{kind:?}");
    }
    for heads in [3, 6, 8, 12] {
        let standard = |problem: &Problem| {
            problem.alibi.as_ref().is_some_and(|alibi| alibi.slopes == Slopes::Standard)
        };
        let of = |case: &Case| standard(&case.problem) && case.problem.query_heads == heads;
        assert!(everywhere(of), "ALiBi of {heads} heads");
    }
    for order in [SoftcapOrder::BeforeBias, SoftcapOrder::AfterBias] {
        let of = |case: &Case| {
            let Problem { softcap, bias, .. } = &case.problem;
            bias.is_some() && softcap.is_some_and(|softcap| softcap.order == order)
        };
        assert!(everywhere(of), "{order:?}");
    }
    for scale in [0.0, -0.5] {
        assert!(everywhere(|case| case.problem.scale == Scale::Value(scale)), "scale {scale}");
    }
    assert!(everywhere(|case| case.poison == Some(Poison::Unseen)));
    for upstream in Upstream::ALL {
        let of = |case: &Case| Feature::ALL.iter().any(|feature| feature.occurs_in(case));
        let is = |case: &Case| of(case) && case.upstream == Some(upstream);
        assert!(QUICK.iter().any(is), "{upstream:?}");
    }
    assert!(everywhere(|case| case.problem.query_len == 0));
    assert!(QUICK.iter().any(|case| case.problem.key_len == 0));
}

/// The rule's kind, by the number of its variant.
const fn kind(rule: &Rule) -> usize {
    match rule {
        Rule::CausalTopLeft => 0,
        Rule::CausalBottomRight => 1,
        Rule::KeyLengths(_) => 2,
        Rule::KeyStarts(_) => 3,
        Rule::QueryLengths(_) => 4,
        Rule::Window(_) => 5,
        Rule::Prefix(_) => 6,
        Rule::Chunked(_) => 7,
        Rule::Dilated(_) => 8,
        Rule::Documents(_) => 9,
        Rule::Boolean(_) => 10,
        Rule::BlockSparse(_) => 11,
    }
}

const KINDS: usize = 12;

/// Sites that the mask admits, and all.
fn admitted(problem: &Problem) -> (usize, usize) {
    let [batch, heads, queries, keys] = problem.score_shape();
    let sites = ndarray::indices((batch, heads, queries, keys)).into_iter();
    let seen = |&(batch, head, query, key): &_| problem.sees(Site { batch, head, query, key });
    (sites.filter(seen).count(), batch * heads * queries * keys)
}

/// A rule that hides nothing, or all, asks nothing: in each format and pass, each kind of rule has
/// a case in which it alone decides about some site.
#[test]
fn every_rule_hides_something_that_the_rest_of_its_mask_admits() {
    for (format, direction, part) in &*PARTS {
        let mut deciding = [0; KINDS];
        for case in part {
            let (seen, _) = admitted(&case.problem);
            for (left_out, rule) in case.problem.mask.rules.iter().enumerate() {
                let mut rules = case.problem.mask.rules.clone();
                rules.remove(left_out);
                let without = Problem { mask: Mask { rules }, ..case.problem.clone() };
                deciding[kind(rule)] += usize::from(seen > 0 && admitted(&without).0 > seen);
            }
        }
        println!("{format} {direction}: cases that each kind of rule decides {deciding:?}");
        assert!(!deciding.contains(&0), "{format} {direction}: {deciding:?}");
    }
}

/// Rows without keys are asked for beside rows with some, but for the cases that are about nothing
/// else.
#[test]
fn some_query_sees_some_key_in_every_generated_case() {
    for case in QUICK.iter().filter(|case| case.bug.is_none() && case.problem.query_len > 0) {
        let alone = case.problem.batch == 1 && Feature::ALL.iter().all(|it| !it.occurs_in(case));
        assert!(admitted(&case.problem).0 > 0 || alone, "{}", case.name);
    }
}

fn share(pattern: &Pattern) -> f64 {
    let held = pattern.bits().iter().filter(|&&bit| bit).count();
    held as f64 / pattern.bits().len() as f64
}

/// Testers have drawn masks that were almost surely all true.
#[test]
fn patterns_are_neither_all_true_nor_all_false() {
    let generated = |case: &Case| case.bug.is_none();
    for case in QUICK.iter().filter(|case| generated(case)) {
        let patterns = case.problem.mask.rules.iter().filter_map(|rule| match rule {
            Rule::Boolean(pattern) => Some(pattern),
            Rule::BlockSparse(blocks) => Some(&blocks.pattern),
            _ => None,
        });
        let keep = case.problem.dropout.as_ref().map(|dropout| &dropout.keep);
        for pattern in patterns.chain(keep).filter(|pattern| pattern.bits().len() >= 8) {
            let share = share(pattern);
            // Half, three fifths and seven tenths, less a row that is emptied.
            assert!((0.3..0.75).contains(&share), "{}: {share}", case.name);
        }
    }
}

#[test]
fn biases_and_sinks_vary() {
    for case in &*QUICK {
        let inputs = case.inputs().unwrap();
        let constant = case.modifiers.bias == BiasValues::AllLowest;
        let drawn = [inputs.bias.filter(|_| !constant), inputs.sink];
        for tensor in drawn.iter().flatten().filter(|tensor| tensor.values().len() > 1) {
            let distinct: HashSet<_> =
                tensor.values().iter().map(|value| value.to_bits()).collect();
            assert!(distinct.len() > 1, "{}", case.name);
        }
    }
}

/// Time goes with the products of the exact answer, and the number of cases with what people read.
#[test]
fn the_quick_suite_stays_small() {
    /// Cases of a format.
    const CASES: usize = 1_500;
    /// Products of the forward cases of a format.
    const FORWARD: usize = 150_000_000;
    /// Products of the backward cases of a format: a gradient costs several times what an output does.
    const BACKWARD: usize = 40_000_000;
    let mut of_format = BTreeMap::<Format, usize>::new();
    for (format, direction, part) in &*PARTS {
        // The exact answer is not asked for in the others.
        let exact = part.iter().filter(|case| case.check.is_none());
        let products: usize = exact.map(|case| products(&case.problem)).sum();
        let limit = if *direction == Direction::Forward { FORWARD } else { BACKWARD };
        println!("{format} {direction}: {} cases, {products} products", part.len());
        assert!(products < limit, "{format} {direction}: {products} products");
        *of_format.entry(*format).or_default() += part.len();
    }
    assert!(of_format.values().all(|&cases| cases < CASES), "{of_format:?}");
}

fn products(problem: &Problem) -> usize {
    let sites: usize = problem.score_shape().iter().product();
    sites * (problem.head_dim + problem.value_dim)
}

proptest! {
    #[test]
    fn patterns_never_panic(pattern in ".{0,30}") {
        let _ = matching(QUICK.clone(), &[pattern]);
    }
}
