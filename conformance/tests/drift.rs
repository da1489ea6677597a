//! Drift: what two snapshots of a kernel say of what changed between them.

mod support;

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use flashproof_conformance::adapter::builtin::Builtin;
use flashproof_conformance::adapter::{Backward, Choices, Failure, Guarantees, Subject};
use flashproof_conformance::drift::{
    self, Apart, Asked, Bits, Digest, DriftError, Figure, History, Lean, Request, Snapshot, Span,
    Zone, text,
};
use flashproof_conformance::suite::{DEFAULT_SEED, Suite};
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_spec::format::Format;
use flashproof_spec::problem::Problem;
use flashproof_spec::profile::Profile;
use flashproof_spec::tensor::{Cotangents, Inputs, Outputs, Tensor};
use support::{Tampered, map};

/// A kernel that promises the same bits for the same inputs.
struct Promising<S>(S);

impl<S: Subject> Subject for Promising<S> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn description(&self) -> &str {
        self.0.description()
    }

    fn profile(&mut self, format: Format) -> Result<Profile, Failure> {
        self.0.profile(format)
    }

    fn choices(&self) -> Choices {
        self.0.choices()
    }

    fn guarantees(&self) -> Guarantees {
        Guarantees { deterministic: true, batch_invariant: false }
    }

    fn forward(&mut self, problem: &Problem, inputs: &Inputs) -> Result<Outputs, Failure> {
        self.0.forward(problem, inputs)
    }

    fn backward(
        &mut self,
        problem: &Problem,
        inputs: &Inputs,
        cotangents: &Cotangents,
    ) -> Result<Backward, Failure> {
        self.0.backward(problem, inputs, cotangents)
    }
}

fn asked(formats: &[Format], only: &[&str]) -> Asked {
    Asked {
        suite: Suite::Quick,
        formats: formats.iter().copied().collect(),
        only: only.iter().map(|&it| it.to_owned()).collect(),
        seed: DEFAULT_SEED,
    }
}

fn request(formats: &[Format], only: &[&str]) -> Request {
    let asked = asked(formats, only);
    Request { asked, runs: None, name: Some("kernel".to_owned()), notes: Vec::new() }
}

fn recorded(subject: &mut dyn Subject, request: &Request) -> Snapshot {
    drift::record(subject, request, |_| ()).unwrap()
}

fn builtin(name: &str, request: &Request) -> Snapshot {
    recorded(&mut Builtin::open(name).unwrap(), request)
}

fn shown(before: &Snapshot, after: &Snapshot) -> String {
    let mut sink = Vec::new();
    let comparison = drift::compare(before, after).unwrap();
    text::write_comparison(&comparison, &[], &mut sink).unwrap();
    anstream::adapter::strip_str(&String::from_utf8(sink).unwrap()).to_string()
}

/// Rows of one block, of several, and of a last one that the length cuts short, forward and backward.
const BLOCKS: [&str; 2] = ["*/causal-br/q65-k65-d8/*", "*/full/q65-k65-d40/normal/gradient+lse"];

#[test]
fn one_ulp_in_the_exponential_shows_and_where_while_every_verdict_stays_pass() {
    let request = request(&[Format::F32], &BLOCKS);
    let before = builtin("tiled", &request);
    let after = builtin("mutant:exp-one-ulp", &request);
    let comparison = drift::compare(&before, &after).unwrap();

    assert!(comparison.bits_changed());
    let output = (comparison.bits.iter())
        .find(|it| (it.place.group, it.place.quantity) == ("forward/causal", Quantity::Output));
    let zones = &output.unwrap().zones;
    for zone in [Zone::Single, Zone::Tail] {
        assert_eq!(zones.get(&zone), Some(&Bits::Changed), "{zones:?}");
    }
    assert!(comparison.verdicts.is_empty());
    for group in &after.groups {
        assert_eq!(group.count(Verdict::Pass), Span::of(group.cases), "{}", group.name);
    }
    // Every weight is too large, and so is their sum.
    let lse = comparison.headroom.iter().find(|it| it.place.quantity == Quantity::Lse).unwrap();
    assert!(lse.after.mean.signed.max > lse.before.mean.signed.max);

    let text = shown(&before, &after);
    let order = [
        "bits ",
        "changed in",
        "verdicts ",
        "the same",
        "headroom",
        "where",
        "tail block",
        "kind",
        "environment",
    ];
    let places =
        order.map(|word| text.find(word).unwrap_or_else(|| panic!("no '{word}' in {text}")));
    assert!(places.is_sorted(), "{text}");
}

#[test]
fn the_same_kernel_gives_the_same_text_in_any_number_of_threads() {
    let request = request(&[Format::Bf16], &BLOCKS);
    let many = builtin("tiled", &request);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let one = pool.install(|| builtin("tiled", &request));
    assert_eq!(one.to_string(), many.to_string());
    assert_eq!(Snapshot::parse(&many.to_string(), "text").unwrap(), many);
    let text = shown(&one, &many);
    for part in ["bits         the same", "verdicts     the same", "headroom     the same"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
}

fn next_f32(value: f64) -> f64 {
    f64::from((value as f32).next_up())
}

#[test]
fn a_change_of_the_last_row_is_placed_in_the_tail() {
    const LAST: usize = 64;
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/zero"]);
    let tampered = Tampered::new("tiled:8x8", |_, _, outputs: Outputs| {
        let mut values = outputs.output.values().clone();
        values.slice_mut(ndarray::s![.., .., LAST, ..]).mapv_inplace(next_f32);
        Ok(Outputs { output: Tensor::rounded(Format::F32, &values), ..outputs })
    });
    let before = builtin("tiled:8x8", &request);
    let after = recorded(&mut Promising(tampered), &request);
    let comparison = drift::compare(&before, &after).unwrap();
    let by_quantity: BTreeMap<_, _> =
        comparison.bits.iter().map(|it| (it.place.quantity, it)).collect();
    let output = &by_quantity[&Quantity::Output];
    assert_eq!(output.standing, Bits::Changed);
    let expected =
        [(Zone::Single, Bits::Same), (Zone::Interior, Bits::Same), (Zone::Tail, Bits::Changed)];
    assert_eq!(output.zones, BTreeMap::from(expected));
    assert_eq!(by_quantity[&Quantity::Lse].standing, Bits::Same);
    assert!(!comparison.verdicts_worse());
}

#[test]
fn bits_are_compared_whatever_blocks_are_declared_and_places_only_where_they_are_the_same() {
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/zero"]);
    let before = builtin("tiled:64x64", &request);
    let after = builtin("tiled:65x64", &request);
    let comparison = drift::compare(&before, &after).unwrap();
    assert!(!comparison.bits_changed() && comparison.profiles.is_empty());
    let other_blocks = builtin("tiled:64x65", &request);
    let comparison = drift::compare(&before, &other_blocks).unwrap();
    assert_eq!(comparison.profiles, [Format::F32]);
    assert!(comparison.bits.iter().all(|it| it.zones.is_empty()));
}

fn doubled() -> impl Subject {
    Promising(Tampered::new("tiled", |_, _, outputs: Outputs| {
        Ok(Outputs { output: map(&outputs.output, |value| 2.0 * value), ..outputs })
    }))
}

#[test]
fn a_verdict_that_got_worse_is_named_and_not_accepted() {
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/ties*"]);
    let before = builtin("tiled", &request);
    let after = recorded(&mut doubled(), &request);
    let comparison = drift::compare(&before, &after).unwrap();
    assert!(comparison.verdicts_worse());
    let failing = &comparison.verdicts[0].newly_failing;
    assert!(failing.iter().all(|case| case.starts_with("f32/causal-br/q65-k65-d8/ties")));
    assert!(!failing.is_empty());
    let error = drift::accept(&comparison, "it is faster", UNIX_EPOCH).unwrap_err();
    assert!(
        matches!(&error, DriftError::Worse { cases, .. } if cases.contains(failing[0])),
        "{error}"
    );
    let back = drift::compare(&after, &before).unwrap();
    assert!(!back.verdicts_worse() && !back.verdicts.is_empty());
}

#[test]
fn a_kernel_that_promises_nothing_is_asked_thrice_and_its_range_kept() {
    let mut calls = 0;
    let mut wavering = Tampered::new("tiled", move |_, _, outputs: Outputs| {
        calls += 1;
        let output = map(&outputs.output, |it| if calls % 2 == 0 { next_f32(it) } else { it });
        Ok(Outputs { output, ..outputs })
    });
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/ties-low*"]);
    let cases = request.cases().len();
    assert!(cases % 2 == 1, "so that runs differ: {cases}");
    let before = recorded(&mut wavering, &request);
    assert_eq!((before.runs, before.deterministic), (drift::RUNS, false));
    let output = &before.groups[0].of[&Quantity::Output];
    assert_eq!(output.bits.len(), 2);
    let rms = output.ratios.as_ref().unwrap().sizes.rms;
    assert!(rms.min < rms.max);
    assert_eq!(before.groups[0].of[&Quantity::Lse].bits.len(), 1);

    let after = recorded(&mut wavering, &request);
    let comparison = drift::compare(&before, &after).unwrap();
    let standing = |quantity| {
        comparison.bits.iter().find(|it| it.place.quantity == quantity).unwrap().standing
    };
    assert_eq!(standing(Quantity::Output), Bits::Varying);
    assert_eq!(standing(Quantity::Lse), Bits::Same);
    assert!(!comparison.bits_changed());
    assert!(shown(&before, &after).contains("not comparable"));
}

/// The snapshot with the largest ratio of every output moved to this.
fn with_largest(snapshot: &Snapshot, ratio: f64) -> Snapshot {
    let mut snapshot = snapshot.clone();
    for answers in snapshot.groups.iter_mut().flat_map(|group| group.of.values_mut()) {
        if let Some(ratios) = &mut answers.ratios {
            ratios.worst.ratio = Span::of(Figure::from(ratio));
        }
    }
    snapshot
}

#[test]
fn creep_shows_though_every_step_was_accepted() {
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/ties-low*"]);
    let recorded = builtin("tiled", &request);
    let snapshots = [0.2, 0.4, 0.6, 0.75, 0.85].map(|ratio| with_largest(&recorded, ratio));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.toml");
    for (step, pair) in snapshots.windows(2).enumerate() {
        let before = std::fs::read_to_string(&path).unwrap_or_default();
        let comparison = drift::compare(&pair[0], &pair[1]).unwrap();
        let when = UNIX_EPOCH + Duration::from_secs(step as u64);
        let entry = drift::accept(&comparison, &format!("step {step}"), when).unwrap();
        History::append(&path, &entry).unwrap();
        assert!(std::fs::read_to_string(&path).unwrap().starts_with(&before));
    }
    let history = History::read(&path).unwrap();
    assert_eq!(history.accepted.len(), 4);
    assert_eq!(history.accepted[3].reason, "step 3");
    assert_eq!(history.accepted[3].before, Digest::of_text(&snapshots[3].to_string()));

    let now = with_largest(&recorded, 0.9);
    let comparison = drift::compare(&snapshots[4], &now).unwrap();
    let trends = drift::trends(&history, &comparison);
    let output = trends.iter().find(|it| it.quantity == Quantity::Output).unwrap();
    assert_eq!((output.first, output.now), (0.2, 0.9));
    assert_eq!(output.accepted, [0.4, 0.6, 0.75, 0.85]);
    assert!(output.creeps());
    let mut sink = Vec::new();
    text::write_trends(&trends, &mut sink).unwrap();
    let text = String::from_utf8(sink).unwrap();
    assert!(text.contains("0.8000") && text.contains("in steps that each took less"), "{text}");

    // Another kernel has no part in it.
    let other = Snapshot { kernel: "another".to_owned(), ..now.clone() };
    assert!(drift::trends(&history, &drift::compare(&other, &other).unwrap()).is_empty());
}

#[test]
fn a_history_that_is_none_is_left_alone() {
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/zero"]);
    let before = builtin("tiled", &request);
    let after = with_largest(&before, 0.5);
    let comparison = drift::compare(&before, &after).unwrap();
    let entry = drift::accept(&comparison, "because", UNIX_EPOCH).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("history.toml");
    std::fs::write(&path, "shopping = 'milk'").unwrap();
    let error = History::append(&path, &entry).unwrap_err();
    assert!(matches!(error, DriftError::Text { what: "history", .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "shopping = 'milk'");
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_can_not_be_compared_or_accepted_is_refused_by_name() {
    let request = request(&[Format::F32], &["*/causal-br/q65-k65-d8/zero"]);
    let one = builtin("tiled", &request);
    let reason = |other: &Snapshot| drift::compare(&one, other).unwrap_err().to_string();
    let renamed = Snapshot { kernel: "another".to_owned(), ..one.clone() };
    assert!(reason(&renamed).contains("'kernel' and 'another'"));
    let asked_otherwise = |change: fn(&mut Asked)| {
        let mut other = one.clone();
        change(&mut other.asked);
        reason(&other)
    };
    assert!(asked_otherwise(|it| it.suite = Suite::Full).contains("suite: quick before and full"));
    assert!(asked_otherwise(|it| it.seed = 7).contains("seed: 1 before and 7"));
    assert!(asked_otherwise(|it| it.only.clear()).contains("and all after"));
    assert!(asked_otherwise(|it| it.formats = [Format::F16].into()).contains("formats: f32"));

    let mut elsewhere = one.clone();
    elsewhere.groups[0].inputs = Digest::of_text("others");
    assert!(matches!(drift::compare(&one, &elsewhere), Err(DriftError::NothingInCommon)));
    let mut more = one.clone();
    more.groups.push(drift::Group { name: "forward/new".to_owned(), ..one.groups[0].clone() });
    let comparison = drift::compare(&one, &more).unwrap();
    assert_eq!(comparison.apart, [(Format::F32, "forward/new", Apart::OnlyAfter)]);

    let same = drift::compare(&one, &one).unwrap();
    assert!(matches!(
        drift::accept(&same, "why not", UNIX_EPOCH),
        Err(DriftError::NothingToAccept(_))
    ));
    assert!(matches!(drift::accept(&comparison, " \n", UNIX_EPOCH), Err(DriftError::NoReason)));
}

#[test]
fn what_can_not_be_recorded_is_refused_by_name() {
    let mut kernel = Builtin::open("naive").unwrap();
    let mut refused = |request: &Request| drift::record(&mut kernel, request, |_| ()).unwrap_err();
    let some = request(&[Format::F32], &["*/causal-br/q65-k65-d8/zero"]);
    let none = request(&[Format::F32], &["no such case"]);
    assert!(matches!(refused(&none), DriftError::NoCases));
    let never = Request { runs: Some(0), ..some.clone() };
    assert!(matches!(refused(&never), DriftError::NoRuns));
    let notes = vec![("compiler".to_owned(), "mine".to_owned())];
    let noted = Request { notes, ..some };
    assert!(refused(&noted).to_string().contains("'compiler'"));
}

#[test]
fn versions_and_texts_that_are_no_snapshots_are_named() {
    let reason = |text: &str| Snapshot::parse(text, "a.toml").unwrap_err().to_string();
    let other = reason("flashproof-drift-snapshot = 99");
    assert!(other.contains("'a.toml' is a drift snapshot of version 99: expected version 1"));
    assert!(reason("kernel = 'tiled'").contains("no 'flashproof-drift-snapshot'"));
    assert!(reason("flashproof-drift-snapshot = 1").contains("kernel"));
    assert!(reason("= 3").contains("'a.toml' is no drift snapshot"));
}

#[test]
fn errors_that_lean_to_one_side_are_told_from_noise() {
    let request = request(&[Format::F32], &["*/full/q65-k65-d40/normal/gradient+lse"]);
    let before = builtin("tiled", &request);
    let mut moved = before.clone();
    let ratios = moved.groups[0].of.get_mut(&Quantity::Output).unwrap().ratios.as_mut().unwrap();
    let deviation = ratios.mean.deviation.max.get();
    ratios.mean.signed = Span::of(Figure::from(12.0 * deviation));
    let comparison = drift::compare(&before, &moved).unwrap();
    assert_eq!(comparison.headroom[0].kind(), Lean::Bias);
    let back = drift::compare(&before, &before).unwrap();
    assert!(back.headroom.is_empty());
}
