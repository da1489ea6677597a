//! Explanations of failing cases: small inputs that fail in the same way, and where they part from the
//! exact answer.

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Subject};
use flashproof_conformance::case::Case;
use flashproof_conformance::explain::{
    Example, Explanation, Limits, Request, explain, text, write,
};
use flashproof_conformance::io::safetensors;
use flashproof_conformance::judge::Request as JudgeRequest;
use flashproof_conformance::judge::{AxisOrder, Described, Names, Origin, judge};
use flashproof_conformance::suite::{DEFAULT_SEED, Suite, cases};
use flashproof_conformance::verdict::Verdict;
use flashproof_spec::format::Format;
use flashproof_spec::mask::{Alignment, Mask, Rule, Site, Window};
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::{Profile, Schedule};
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs};
use indicatif::ProgressBar;
use proptest::prelude::*;
use support::faulty::{Fault, Faulty};
use support::simulated::{Committed, Entry, NONE};
use support::{Tampered, map};

/// A forward pass with a fault, in blocks of two keys.
struct Simulated(Committed);

/// Keys of a block.
const BLOCK: usize = 2;

impl Subject for Simulated {
    fn name(&self) -> &'static str {
        "builtin:simulated"
    }

    fn description(&self) -> &'static str {
        "a forward pass with a fault"
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        Ok(Profile { schedule: Schedule::Blocks(BLOCK), ..Profile::standard(format) })
    }

    fn choices(&self) -> Choices {
        Choices::default()
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        Ok(self.0.forward(problem, inputs))
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        Builtin::open("naive").expect("a built-in kernel").backward(problem, inputs, cotangents)
    }
}

/// The case of that name in the quick suite.
fn case(name: &str) -> Case {
    let format = name.split('/').next().and_then(|it| it.parse().ok()).expect("a format");
    let all = cases(Suite::Quick, &[format], DEFAULT_SEED);
    all.into_iter().find(|case| case.name == name).expect("a case")
}

/// No limit on time, so that the same questions are asked whatever else the machine does.
const LIMITS: Limits = Limits { questions: 4000, time: Duration::from_secs(3600) };

fn explained_within(subject: &mut dyn Subject, case: &Case, limits: Limits) -> Explanation {
    let request = Request { case, suite: Suite::Quick, limits };
    explain(subject, &request, &|| ()).expect("an explanation")
}

fn explained(subject: &mut dyn Subject, name: &str) -> Explanation {
    explained_within(subject, &case(name), LIMITS)
}

fn example(explanation: &Explanation) -> &Example {
    explanation.example.as_ref().unwrap_or_else(|| panic!("no failing input: {explanation:#?}"))
}

fn problem(explanation: &Explanation) -> &Problem {
    &example(explanation).shrunk.instance.problem
}

/// The failure of the smallest input is that of the case, and it is the smallest there is.
fn assert_alike(explanation: &Explanation) {
    let example = example(explanation);
    let judged = &example.shrunk.examined.judged;
    assert!(example.target.is_shown(judged), "{judged:#?}");
    assert_eq!(example.shrunk.stopped, None);
    let first = explanation.report.diagnosis.first().map(|finding| finding.fault);
    assert_eq!(example.target.fault, first);
    let of_case = explanation.report.violations.iter().map(|it| it.clause);
    let clause = example.target.clause;
    assert!(of_case.into_iter().any(|it| Some(it) == clause), "{clause:?}");
}

/// The first position at which kernel and exact answer part.
fn parting(explanation: &Explanation) -> std::ops::Range<usize> {
    let trace = example(explanation).trace.as_ref().expect("a trace");
    trace.parting().expect("a block where they part").0
}

/// As text without styles.
fn shown(explanation: &Explanation) -> String {
    let mut bytes = Vec::new();
    text::write(explanation, None, &mut bytes).expect("text");
    anstream::adapter::strip_str(&String::from_utf8(bytes).expect("text")).to_string()
}

fn without_last_key(problem: &Problem, site: Site) -> bool {
    problem.sees(site) && (site.key == 0 || site.key + 1 < problem.key_len)
}

/// A causal mask that admits one key more.
fn one_key_more(problem: &Problem, site: Site) -> bool {
    let wider = |rule: &Rule| match rule {
        Rule::CausalTopLeft => {
            Rule::Window(Window { left: None, right: Some(1), alignment: Alignment::TopLeft })
        }
        rule => rule.clone(),
    };
    let rules = problem.mask.rules.iter().map(wider).collect();
    Mask { rules }.admits(site, problem.query_len, problem.key_len)
}

/// In blocks of [`BLOCK`] keys, of which the numerator is not rescaled where the maximum moves.
fn unscaled(
    row: &[Entry],
    _: &[f64],
    value: &dyn Fn(usize, usize) -> f64,
    value_dim: usize,
) -> (Vec<f64>, f64) {
    let (mut m, mut l, mut n) = (f64::NEG_INFINITY, 0.0, vec![0.0; value_dim]);
    for block in row.chunk_by(|a, b| a.key / BLOCK == b.key / BLOCK) {
        let above = block.iter().map(|it| it.score).fold(m, f64::max);
        l *= (m - above).exp();
        m = above;
        for it in block {
            let weight = (it.score - m).exp();
            l += weight;
            n.iter_mut().enumerate().for_each(|(j, n)| *n += weight * value(it.key, j));
        }
    }
    (n.into_iter().map(|n| n / l).collect(), m + l.ln())
}

const DROPPED: Committed = Committed { sees: without_last_key, ..NONE };
const WIDER: Committed = Committed { sees: one_key_more, ..NONE };
const UNSCALED: Committed = Committed { row: unscaled, ..NONE };

#[test]
fn a_dropped_key_needs_two_keys() {
    let explanation = explained(&mut Simulated(DROPPED), "f32/causal-br/q127-k127-d8/negative");
    assert_alike(&explanation);
    let smallest = problem(&explanation);
    assert_eq!((smallest.query_len, smallest.key_len), (1, 2));
    assert_eq!((smallest.head_dim, smallest.value_dim, smallest.mask.rules.len()), (1, 1, 0));
    // The key that is dropped.
    assert_eq!(parting(&explanation), 1..2);
}

#[test]
fn a_mask_too_wide_needs_two_keys() {
    let explanation =
        explained(&mut Simulated(WIDER), "f32/causal-tl/b2-h3-q17-k5-d8-v96-s1/normal+cancelling");
    assert_alike(&explanation);
    let smallest = problem(&explanation);
    assert!(smallest.query_len <= 2 && smallest.key_len <= 2, "{smallest:?}");
    assert_eq!(smallest.mask.rules.len(), 1);
    assert_eq!(parting(&explanation), 1..2);
}

#[test]
fn a_numerator_that_is_not_rescaled_needs_two_blocks() {
    let explanation =
        explained(&mut Simulated(UNSCALED), "f32/lengths-causal-br/q127-k127-d8/rising");
    assert_alike(&explanation);
    let smallest = problem(&explanation);
    assert_eq!((smallest.query_len, smallest.key_len), (1, BLOCK + 1));
    // The block before which the numerator was to be rescaled.
    assert_eq!(parting(&explanation), BLOCK..BLOCK + 1);
    insta::assert_snapshot!(shown(&explanation));
}

#[test]
fn faults_of_gradients_come_down_to_a_few_entries() {
    let gradients = "f32/full/q65-k65-d40/normal/gradient+lse";
    let grouped = "f32/causal-br/h4g1-q65-k5-d128-v16-s0.3/negative+integers/gradient+lse";
    for (fault, name, most) in [
        (Fault::NoDelta, gradients, [1, 1, 1]),
        (Fault::DvBf16, gradients, [1, 1, 1]),
        // An unscaled entry shows where the scale is not 1.
        (Fault::DkUnscaled, gradients, [1, 1, 2]),
        (Fault::Overwrite, grouped, [2, 1, 2]),
    ] {
        let explanation = explained(&mut Faulty::new(fault), name);
        assert_alike(&explanation);
        let smallest = problem(&explanation);
        let Problem { query_heads, query_len, key_len, .. } = *smallest;
        let extents = [query_heads, query_len, key_len];
        assert!(extents.iter().zip(most).all(|(&extent, most)| extent <= most), "{smallest:?}");
        assert_eq!(parting(&explanation), 0..1);
        if fault == Fault::Overwrite {
            insta::assert_snapshot!(shown(&explanation));
        }
    }
}

#[test]
fn a_value_that_leaks_through_a_mask_stays_in_the_input() {
    // 0 x NaN: masked values take part with a weight of 0.
    let leaks = |_: &Problem, inputs: &Inputs, outputs: Outputs| {
        let nothing: f64 = inputs.value.values().iter().map(|value| 0.0 * value).sum();
        Ok(Outputs { output: map(&outputs.output, |value| value + nothing), ..outputs })
    };
    let name = "f32/lengths/q5-k65-d8/normal/poison-unseen";
    let explanation = explained(&mut Tampered::new("naive", leaks), name);
    let example = example(&explanation);
    assert_eq!(example.target.clause, Some("FAS:fwd.output.written"));
    let values = example.shrunk.instance.inputs.value.values();
    // One key that is seen, and the one behind the mask.
    assert_eq!(values.len(), 2, "{values:?}");
    assert_eq!(values.iter().map(|value| value.is_nan()).collect::<Vec<_>>(), [false, true]);
    assert_eq!(problem(&explanation).mask.rules.len(), 1);
}

#[test]
fn a_layout_is_kept_where_the_failure_needs_it() {
    let strided = |problem: &Problem, _: &Inputs, outputs: Outputs| {
        let factor = if problem.layout.is_contiguous() { 1.0 } else { 2.0 };
        Ok(Outputs { output: map(&outputs.output, |value| factor * value), ..outputs })
    };
    let anywhere = |_: &Problem, _: &Inputs, outputs: Outputs| {
        Ok(Outputs { output: map(&outputs.output, |value| 2.0 * value), ..outputs })
    };
    let name = "f32/lengths-causal-br/b3-h4g1-q9-k20-d8/alibi+sink-normal/bshd/rising";
    let kept = explained(&mut Tampered::new("naive", strided), name);
    assert!(!problem(&kept).layout.is_contiguous());
    let dropped = explained(&mut Tampered::new("naive", anywhere), name);
    assert!(problem(&dropped).layout.is_contiguous());
    for explanation in [&kept, &dropped] {
        assert_alike(explanation);
        let smallest = problem(explanation);
        assert_eq!((smallest.batch, smallest.query_heads, smallest.key_len), (1, 1, 1));
        assert_eq!((&smallest.alibi, smallest.sink), (&None, None));
    }
}

#[test]
fn a_crash_is_shrunk_too() {
    let crashes = |problem: &Problem, _: &Inputs, outputs: Outputs| {
        let crash = || Failure::Crashed("more queries than keys".to_owned());
        if problem.query_len > problem.key_len { Err(crash()) } else { Ok(outputs) }
    };
    let explanation = explained(
        &mut Tampered::new("naive", crashes),
        "f32/lengths-causal-br/b2-h4g2-q70-k66-d8/normal+infinity",
    );
    let smallest = problem(&explanation);
    assert_eq!(explanation.report.verdict, Verdict::Crashed);
    assert_eq!((smallest.query_len, smallest.key_len, smallest.batch), (1, 0, 1));
    assert!(shown(&explanation).contains("more queries than keys"));
}

#[test]
fn what_does_not_fail_is_said_so() {
    let name = "f32/full/q65-k65-d40/normal/gradient+lse";
    let explanation = explained(&mut Builtin::open("tiled").unwrap(), name);
    assert!(explanation.example.is_none());
    assert!(shown(&explanation).starts_with("pass  f32/full"), "{}", shown(&explanation));
    let refuses = |_: &Problem, _: &Inputs, _| Err(Failure::Unsupported("anything".to_owned()));
    let explanation = explained(
        &mut Tampered::new("naive", refuses),
        "f32/causal-tl/b2-h3-q17-k5-d8-v96-s1/normal+cancelling",
    );
    assert_eq!(explanation.report.verdict, Verdict::Unsupported);
    assert!(explanation.example.is_none() && shown(&explanation).contains("anything"));
}

#[test]
fn limits_are_kept_and_told() {
    let case = case("f32/causal-br/q127-k127-d8/negative");
    let asked = |questions, time| {
        let limits = Limits { questions, time };
        explained_within(&mut Simulated(DROPPED), &case, limits)
    };
    let some = asked(5, LIMITS.time);
    assert_eq!(example(&some).shrunk.questions, 5);
    assert!(shown(&some).contains("limit on questions"));
    let none = asked(0, LIMITS.time);
    assert_eq!(problem(&none), &case.problem);
    assert!(example(&none).trace.is_some());
    let late = asked(5, Duration::ZERO);
    assert_eq!(example(&late).shrunk.questions, 0);
}

/// To judge a file by itself.
fn request(path: &Path) -> JudgeRequest {
    JudgeRequest {
        inputs: path.to_owned(),
        from: Origin::File { outputs: Some(path.to_owned()), choices: Choices::default() },
        names: Names::default(),
        order: AxisOrder::default(),
        described: Described::default(),
        profile: None,
        most_pairs: usize::MAX,
        seed: DEFAULT_SEED,
        elements: None,
        command: String::new(),
    }
}

#[test]
fn a_written_example_fails_alike_when_it_is_judged() {
    let directory = tempfile::tempdir().unwrap();
    let gradients = "f32/full/q65-k65-d40/normal/gradient+lse";
    let examples = vec![
        explained(&mut Simulated(WIDER), "f32/causal-tl/b2-h3-q17-k5-d8-v96-s1/normal+cancelling"),
        explained(&mut Simulated(UNSCALED), "f32/lengths-causal-br/q127-k127-d8/rising"),
        explained(&mut Faulty::new(Fault::DkUnscaled), gradients),
    ];
    for explanation in examples {
        let path = directory.path().join("example.safetensors");
        write(&explanation, example(&explanation), &path).unwrap();
        let judged = judge(&request(&path), &ProgressBar::hidden()).expect("a report");
        let report = &judged.cases[0];
        assert_eq!(report.verdict, Verdict::Fail);
        let example = example(&explanation);
        assert_eq!(report.violations, example.shrunk.examined.judged.tally.violations);
        assert_eq!(report.problem, *problem(&explanation));
    }
}

#[test]
fn a_profile_in_the_metadata_that_is_none_is_refused() {
    let explanation = explained(&mut Simulated(DROPPED), "f32/causal-br/q127-k127-d8/negative");
    let given = example(&explanation).shrunk.examined.given.as_ref().unwrap();
    let Inputs { query, key, value, .. } = &given.inputs;
    let tensors =
        [("query", query), ("key", key), ("value", value), ("output", &given.outputs.output)];
    let file = tempfile::NamedTempFile::new().unwrap();
    for profile in ["no JSON", "{}", "\"exact\"", r#"{"base": "standard", "exp_ulp": -1}"#] {
        let metadata = BTreeMap::from([("profile".to_owned(), profile.to_owned())]);
        safetensors::write(file.path(), &tensors, &metadata).unwrap();
        let error = judge(&request(file.path()), &ProgressBar::hidden()).unwrap_err().to_string();
        assert!(error.contains("metadata entry 'profile'"), "{error}");
    }
}

fn flashproof(arguments: &[&str]) -> (i32, String) {
    let output =
        Command::new(env!("CARGO_BIN_EXE_flashproof")).args(arguments).output().expect("a program");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().expect("a status"), String::from_utf8(text).expect("text"))
}

#[test]
fn the_program_explains_a_mutant_and_the_file_that_it_writes_fails() {
    let kernel = "builtin:mutant:skip-acc-rescale:1x1";
    let name = "f32/lengths-causal-br/q127-k127-d8/rising";
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("example.safetensors");
    let file = file.to_str().unwrap();
    let (status, text) = flashproof(&["explain", kernel, name, "--out", file]);
    assert_eq!(status, 1, "{text}");
    for part in [
        "queries 1, keys 2",
        "they part at key 1",
        "answers as mutant skip-acc-rescale",
        "FAS:fwd.online.rescale",
        &format!("flashproof explain {kernel} {name} --seed 1"),
        &format!("flashproof judge {file} {file}"),
    ] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    for judge in [vec!["judge", file, file], vec!["judge", file, "--kernel", kernel]] {
        let (status, text) = flashproof(&judge);
        assert!(status == 1 && text.contains("FAS:bound.fwd.output"), "{text}");
    }
    let (status, text) = flashproof(&["explain", kernel, name, "--no-shrink", "--json", "-"]);
    assert!(status == 1 && text.contains("\"questions\": 0"), "{text}");
}

#[test]
fn the_program_says_what_is_not_to_be_explained() {
    let (status, text) = flashproof(&["explain", "builtin:tiled", "f32/reported/1-dead-row"]);
    assert!(status == 0 && text.starts_with("pass"), "{text}");
    let (status, text) = flashproof(&["explain", "builtin:tiled", "f32/reported/1-dead-rows"]);
    assert!(status == 2 && text.contains("did you mean f32/reported/1-dead-row"), "{text}");
}

/// A kernel that is wrong in a way that follows from `seed` and the question.
fn erratic(seed: u64) -> impl Subject {
    Tampered::new("naive", move |problem: &Problem, inputs: &Inputs, outputs: Outputs| {
        let Problem { query_len, key_len, head_dim, .. } = *problem;
        let mixed = [query_len, key_len, head_dim, inputs.value.values().len()]
            .iter()
            .fold(seed, |mixed, &of| (mixed ^ of as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        match mixed >> 61 {
            0 => Err(Failure::Crashed("by chance".to_owned())),
            1 => Err(Failure::Unsupported("by chance".to_owned())),
            2 => Ok(outputs),
            3 => Ok(Outputs { output: map(&outputs.output, |_| f64::NAN), ..outputs }),
            4 => Ok(Outputs { lse: None, ..outputs }),
            _ => Ok(Outputs { output: map(&outputs.output, |value| value + 1.0), ..outputs }),
        }
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, ..ProptestConfig::default() })]

    #[test]
    fn any_wrong_kernel_is_explained_in_the_end(seed in any::<u64>(), at in any::<prop::sample::Index>()) {
        let mut all = cases(Suite::Quick, &[Format::F32], DEFAULT_SEED);
        all.retain(|case| case.problem.score_shape().iter().product::<usize>() < 1 << 10);
        let case = at.get(&all);
        let limits = Limits { questions: 60, ..LIMITS };
        let explanation = explained_within(&mut erratic(seed), case, limits);
        prop_assert!(!shown(&explanation).is_empty());
        if let Some(example) = &explanation.example {
            prop_assert!(example.target.is_shown(&example.shrunk.examined.judged));
            prop_assert!(example.shrunk.questions <= limits.questions);
        }
    }
}
