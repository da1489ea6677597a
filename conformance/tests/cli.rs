//! The program: what it prints, where, and with which exit status.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use proptest::prelude::*;
use serde_json::Value;

fn flashproof(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_flashproof")).args(arguments).output().unwrap()
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("an exit status")
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Runs the program, expects it to refuse, and gives the reason.
fn refused(arguments: &[&str]) -> String {
    let output = flashproof(arguments);
    assert_eq!(status(&output), 2, "{arguments:?}: {}", stderr(&output));
    assert_eq!(stdout(&output), "", "{arguments:?}");
    stderr(&output)
}

const ONE_CASE: [&str; 4] =
    ["check", "builtin:tiled", "--case", "bf16/reported/11-unequal-lengths"];

#[test]
fn without_arguments_it_shows_help() {
    let output = flashproof(&[]);
    assert_eq!(status(&output), 2);
    for command in ["check", "judge", "mutants", "kernels", "cases", "spec"] {
        assert!(stderr(&output).contains(command));
    }
}

#[test]
fn a_passing_kernel_exits_with_0_and_says_what_was_compared() {
    let output = flashproof(&ONE_CASE);
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
    let text = stdout(&output);
    for part in ["builtin:tiled", "1 pass", "48 elements", "worst ratio", "headroom"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    assert!(!text.contains('\u{1b}'), "colours in a pipe");
}

#[test]
fn every_kernel_listed_can_be_checked() {
    let listed = stdout(&flashproof(&["kernels"]));
    let names: Vec<_> = listed.lines().filter(|line| line.starts_with("builtin:")).collect();
    assert!(names.len() >= 2, "{listed}");
    for line in names {
        let name = line.split_whitespace().next().unwrap();
        // One case in each format, and every kernel takes four of them but one.
        let passes = if name == "builtin:quantized" { "2 pass" } else { "4 pass" };
        let output = flashproof(&["check", name, "--case", "*/reported/38-*"]);
        assert_eq!(status(&output), 0, "{name}");
        assert!(stdout(&output).contains(passes), "{name}: {}", stdout(&output));
    }
}

#[test]
fn the_json_report_goes_where_it_is_sent() {
    let to_stdout = flashproof(&[&ONE_CASE[..], &["--json", "-"]].concat());
    assert_eq!(status(&to_stdout), 0);
    let report: Value = serde_json::from_str(&stdout(&to_stdout)).unwrap();
    assert_eq!(report["summary"]["verdicts"]["pass"], 1);
    assert!(stderr(&to_stdout).contains("1 pass"));

    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("report.json");
    let to_file = flashproof(&[&ONE_CASE[..], &["--json", file.to_str().unwrap()]].concat());
    assert!(stdout(&to_file).contains("1 pass"));
    // The same run, the same bytes.
    assert_eq!(std::fs::read(&file).unwrap(), to_stdout.stdout);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn a_direction_chooses_the_passes() {
    let with = |direction: &[&str]| {
        let arguments = ["check", "builtin:tiled", "--format", "bf16", "--case", "*/reported/46-*"];
        let output = flashproof(&[&arguments[..], direction].concat());
        assert_eq!(status(&output), 0);
        stdout(&output)
    };
    let (forward, backward) =
        (with(&["--direction", "forward"]), with(&["--direction", "backward"]));
    for part in ["1 pass", "forward alone"] {
        assert!(forward.contains(part), "no '{part}' in {forward}");
    }
    assert!(!forward.contains("dQ"));
    for part in ["1 pass", "backward alone", "dQ", "dK", "dV", "key head"] {
        assert!(backward.contains(part), "no '{part}' in {backward}");
    }
    let both = with(&[]);
    assert_eq!(both, with(&["--direction", "both"]));
    assert!(both.contains("2 pass"), "{both}");
    let reason = refused(&["check", "builtin:tiled", "--direction", "sideways"]);
    assert!(reason.contains("'sideways'") && reason.contains("backward"), "{reason}");
    let reason =
        refused(&["check", "builtin:tiled", "--direction", "forward", "--case", "*/reported/51-*"]);
    assert!(reason.contains("*/reported/51-*"), "{reason}");
}

#[test]
fn gradients_of_reported_faults_are_listed() {
    let listed = stdout(&flashproof(&["cases", "--bug", "43", "--long"]));
    for part in ["43-gradient-one-key", "upstream gradient", "FAS:bwd.empty-row.zero"] {
        assert!(listed.contains(part), "no '{part}' in {listed}");
    }
    for fault in ["44", "45", "46", "47", "51", "27", "28"] {
        let listed = stdout(&flashproof(&["cases", "--bug", fault]));
        assert!(listed.contains("-gradient-"), "{fault}: {listed}");
    }
}

#[test]
fn the_seed_changes_the_inputs_and_is_repeatable() {
    let with_seed = |seed: &str| {
        stdout(&flashproof(&[&ONE_CASE[..], &["--json", "-", "--seed", seed]].concat()))
    };
    assert_eq!(with_seed("5"), with_seed("5"));
    let worst = |json: &str| {
        let report: Value = serde_json::from_str(json).unwrap();
        report["summary"]["output"]["worst"]["got"].clone()
    };
    assert_ne!(worst(&with_seed("5")), worst(&with_seed("6")));
}

#[test]
fn cases_are_listed_with_their_reasons() {
    let all = stdout(&flashproof(&["cases"]));
    assert!(all.lines().count() > 100);
    let fused = stdout(&flashproof(&["cases", "--bug", "31", "--long"]));
    for part in ["bf16/reported/31-", "pytorch#121558", "all-133120", "FAS:fwd.score.scale"] {
        assert!(fused.contains(part), "no '{part}' in {fused}");
    }
    let by_report = stdout(&flashproof(&["cases", "--bug", "pytorch#121558", "--long"]));
    assert_eq!(fused, by_report);
    let bf16 = stdout(&flashproof(&["cases", "--format", "bf16"]));
    assert!(bf16.lines().all(|line| line.starts_with("bf16/")));
    assert_eq!(bf16, stdout(&flashproof(&["cases", "--format", "bf16,bf16"])));
}

#[test]
fn every_reported_fault_is_listed_with_its_cases_clauses_and_sources() {
    let listed = stdout(&flashproof(&["cases", "--bug"]));
    let lines: Vec<_> = listed.lines().collect();
    assert_eq!(lines.len(), 51, "{listed}");
    for (line, bug) in lines.iter().zip(1_usize..) {
        let words: Vec<_> = line.split_whitespace().collect();
        assert_eq!(words[0], bug.to_string(), "{line}");
        assert!(words[1].starts_with(&format!("{bug}-")), "{line}");
        assert!(line.contains("FAS:") && line.contains(['#', '.']), "{line}");
    }
    assert!(lines[14].contains("15-alibi-3-heads") && lines[14].contains("llama.cpp PR#20031"));
    // The same of one fault, case by case.
    let one = stdout(&flashproof(&["cases", "--bug", "15", "--format", "f32", "--long"]));
    assert_eq!(one.matches("violates FAS:score.alibi.slopes").count(), 4, "{one}");
}

#[test]
fn a_feature_chooses_the_cases_that_ask_for_it() {
    let listed = |arguments: &[&str]| {
        stdout(&flashproof(&[&["cases", "--format", "f32"], arguments].concat()))
    };
    let (all, sinks) = (listed(&[]).lines().count(), listed(&["--feature", "sink"]));
    assert!(0 < sinks.lines().count() && sinks.lines().count() < all);
    let named = |line: &str| line.contains("sink-") || line.contains("/reported/42-");
    assert!(sinks.lines().all(named), "{sinks}");
    let both = listed(&["--feature", "sink,alibi"]).lines().count();
    assert!(both > sinks.lines().count());

    let arguments = ["check", "builtin:naive", "--format", "bf16", "--case", "*/reported/42-*"];
    let output = flashproof(&[&arguments[..], &["--feature", "sink"]].concat());
    assert_eq!(status(&output), 0, "{}", stdout(&output));
    for part in ["4 pass", "with sink"] {
        assert!(stdout(&output).contains(part), "{}", stdout(&output));
    }
    let none = refused(&[&arguments[..], &["--feature", "layout"]].concat());
    assert!(none.contains("*/reported/42-*"), "{none}");
    let reason = refused(&["cases", "--feature", "sinks"]);
    assert!(reason.contains("'sinks'") && reason.contains("softcap"), "{reason}");
}

#[test]
fn clauses_are_listed_shown_and_cited() {
    let all = stdout(&flashproof(&["spec"]));
    assert!(all.contains("FAS:fwd.online.rescale"));
    let one = stdout(&flashproof(&["spec", "FAS:fwd.online.rescale"]));
    for part in ["normative", "Equation", "Rationale", "Checked by"] {
        assert!(one.contains(part), "no '{part}' in {one}");
    }
    // From the statement to the equation, the Rust, the Coq and a kernel that violates it.
    let merge = stdout(&flashproof(&["spec", "FAS:fwd.online.merge"]));
    for part in [
        "commutative and associative",
        "n = e^(m1 - m) n1 + e^(m2 - m) n2",
        "flashproof_spec::online::merge",
        "Online.merge_assoc",
        "skip-acc-rescale",
        "flashproof mutants --mutant skip-acc-rescale",
    ] {
        assert!(merge.contains(part), "no '{part}' in {merge}");
    }
    let bibtex = stdout(&flashproof(&["spec", "FAS:fwd.online.rescale", "--cite", "bibtex"]));
    assert!(bibtex.starts_with("@misc{"), "{bibtex}");
    let text = stdout(&flashproof(&["spec", "FAS:fwd.online.rescale", "--cite", "text"]));
    assert!(text.starts_with("FAS:fwd.online.rescale, "), "{text}");
}

#[test]
fn what_is_unknown_is_named_with_what_was_expected() {
    let misspelt = "FAS:fwd.online.rescale".trim_end_matches('e');
    let reason = refused(&["spec", misspelt]);
    assert!(reason.contains(&format!("'{misspelt}'")), "{reason}");
    assert!(reason.contains("did you mean FAS:fwd.online.rescale"), "{reason}");
    for (arguments, parts) in [
        (&["check", "builtin:titled"][..], &["'titled'", "expected naive"][..]),
        (&["check", "tiled"], &["'tiled'", "builtin:NAME"]),
        (&["check", "builtin:tiled", "--format", "f31"], &["f31", "bf16"]),
        (&["check", "builtin:tiled", "--suite", "quik"], &["quik", "quick"]),
        (&["check", "builtin:tiled", "--case", "f32/nothing"], &["'f32/nothing'", "quick"]),
        (&["check", "builtin:tiled", "--seed", "-1"], &["-1"]),
        (&["check", "builtin:tiled", "--time-limit", "0"], &["0", "positive"]),
        (&["check", "exec:/nonexistent/worker"], &["/nonexistent/worker"]),
        (&["cases", "--bug", "9999"], &["'9999'", "#"]),
        (&["judge", "/nonexistent.safetensors"], &["/nonexistent.safetensors"]),
        (&["spec", "--cite", "text"], &["CLAUSE"]),
        (&["mutants", "--mutant", "drop-keys"], &["'drop-keys'", "did you mean drop-key"]),
        (&["nothing"], &["nothing"]),
    ] {
        let reason = refused(arguments);
        for part in parts {
            assert!(reason.contains(part), "{arguments:?}: no '{part}' in {reason}");
        }
    }
}

#[test]
fn a_killed_mutant_is_told_in_text_markdown_html_and_json() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let [markdown, html, json] = [file("m.md"), file("m.html"), file("m.json")];
    let output = flashproof(&[
        "mutants",
        "--mutant",
        "drop-key",
        "--mutant",
        "other-tiles",
        "--format",
        "bf16",
        "--markdown",
        &markdown,
        "--html",
        &html,
        "--json",
        &json,
    ]);
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
    let text = stdout(&output);
    for part in ["killed", "drop-key", "FAS:fwd.softmax.every-key", "0 of 1 controls", "--seed 1"] {
        assert!(text.contains(part), "no '{part}' in {text}");
    }
    let read = |path: &str| std::fs::read_to_string(path).unwrap();
    assert!(read(&markdown).contains("| `drop-key` |"));
    assert!(read(&html).contains("<code>drop-key</code>"));
    let matrix: Value = serde_json::from_str(&read(&json)).unwrap();
    assert_eq!(matrix["rows"][0]["name"], "drop-key");
    assert!(matrix["rows"][0]["kills"]["bf16"]["killed"].as_u64().unwrap() > 0);
}

#[test]
fn a_surviving_fault_exits_with_1() {
    // In f32 weights are not rounded, so that no answer differs.
    let output = flashproof(&["mutants", "--mutant", "lse-from-rounded", "--format", "f32"]);
    assert_eq!(status(&output), 1, "{}", stdout(&output));
    assert!(stdout(&output).contains("survives"), "{}", stdout(&output));
}

#[test]
fn a_report_that_can_not_be_written_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("missing/report.json");
    let output = flashproof(&[&ONE_CASE[..], &["--json", file.to_str().unwrap()]].concat());
    assert_eq!(status(&output), 2);
    assert!(stderr(&output).contains("missing/report.json"));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn statistical_tests_are_made_where_they_are_asked_for() {
    let check = ["check", "builtin:tiled", "--direction", "forward", "--case", "bf16/full/*"];
    let plain = flashproof(&check);
    assert_eq!(status(&plain), 0);
    assert!(!stdout(&plain).contains("statistical"), "{}", stdout(&plain));
    let tested = flashproof(&[&check[..], &["--statistical"]].concat());
    assert_eq!(status(&tested), 0, "{}", stderr(&tested));
    let text = stdout(&tested);
    for said in ["statistical tests in", "0 rejected", "not applicable: "] {
        assert!(text.contains(said), "{said}: {text}");
    }
}

#[test]
fn a_long_list_says_which_trivial_answers_would_pass() {
    let long = stdout(&flashproof(&["cases", "--bug", "8", "--format", "f32", "--long"]));
    assert!(long.contains("  passes   zero-output: no row sees a key"), "{long}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_flashproof"))
        .args(["cases", "--suite", "full", "--long"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut first = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut first).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((status(&output), stderr(&output)), (0, String::new()));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// No words make it panic, whatever they are: a panic exits with 101.
    #[test]
    fn any_words_are_understood_or_refused(words in prop::collection::vec("[ -~]{0,16}", 0..4)) {
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let output = flashproof(&[&["cases"], &words[..]].concat());
        prop_assert!(matches!(status(&output), 0 | 2), "{:?}", words);
    }
}
