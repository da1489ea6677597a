//! `flashproof drift`: what it prints, which files it writes, and with which exit status.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

const ONE_CASE: [&str; 4] = ["--case", "*/reported/11-unequal-lengths", "--format", "f32"];

fn drift(directory: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_flashproof"));
    command.current_dir(directory).arg("drift").args(arguments).output().unwrap()
}

/// Runs the program, expects this status, and gives what it says.
fn says(directory: &Path, status: i32, arguments: &[&str]) -> String {
    let output = drift(directory, arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (said, erred) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(status), "{arguments:?}: {said}{erred}");
    if status == 2 { erred } else { said }
}

fn record(directory: &Path, kernel: &str, out: &str) -> String {
    let options = ["record", kernel, "--out", out, "--as", "kernel"];
    says(directory, 0, &[&options[..], &ONE_CASE].concat())
}

#[test]
fn a_snapshot_is_recorded_compared_and_accepted() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    let summary = record(at, "builtin:tiled", "a.toml");
    assert!(summary.contains("1 pass") && summary.contains("drift compare a.toml builtin:tiled"));
    record(at, "builtin:naive", "b.toml");

    let same = says(at, 0, &["compare", "a.toml", "builtin:tiled", "--as", "kernel"]);
    assert!(same.contains("bits         the same") && same.contains("nothing to do"), "{same}");
    assert!(!same.contains('\u{1b}'), "colours in a pipe");

    let changed = says(at, 0, &["compare", "a.toml", "b.toml"]);
    for part in
        ["bits         changed", "verdicts     the same: 1 pass", "drift accept a.toml b.toml"]
    {
        assert!(changed.contains(part), "no '{part}' in {changed}");
    }
    let strict = says(at, 1, &["compare", "a.toml", "b.toml", "--bits"]);
    assert_eq!(strict, changed);

    let accepted = says(at, 0, &["accept", "a.toml", "b.toml", "--reason", "another algorithm"]);
    assert!(accepted.contains("drift-history.toml"), "{accepted}");
    let history = fs::read_to_string(at.join("drift-history.toml")).unwrap();
    assert!(history.contains("reason = \"another algorithm\""), "{history}");
    let trend = says(at, 0, &["compare", "b.toml", "builtin:naive", "--as", "kernel"]);
    assert!(trend.contains("headroom over 1 accepted change"), "{trend}");
}

#[test]
fn without_a_file_the_snapshot_goes_to_standard_output() {
    let directory = tempfile::tempdir().unwrap();
    let arguments = [&["record", "builtin:tiled"][..], &ONE_CASE].concat();
    let text = says(directory.path(), 0, &arguments);
    assert!(
        text.starts_with("flashproof-drift-snapshot = 1\nkernel = \"builtin:tiled\"\n"),
        "{text}"
    );
}

#[test]
fn a_verdict_that_got_worse_exits_with_1_and_names_the_case() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    record(at, "builtin:tiled", "a.toml");
    let worse = says(at, 1, &["compare", "a.toml", "builtin:mutant:drop-key", "--as", "kernel"]);
    for part in ["bits         changed", "verdicts     worse", "no longer passes: f32/reported/11-"]
    {
        assert!(worse.contains(part), "no '{part}' in {worse}");
    }
    assert!(worse.contains("flashproof check builtin:mutant:drop-key --case f32/reported/11-"));
}

#[test]
fn what_is_wrong_with_the_command_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path();
    record(at, "builtin:tiled", "a.toml");
    for (arguments, named) in [
        (&["compare", "none.toml", "a.toml"][..], "none.toml"),
        (&["compare", "a.toml", "builtin:nothing"], "nothing"),
        (&["compare", "a.toml", "builtin:tiled"], "--as 'kernel'"),
        (&["compare", "a.toml", "a.toml", "--runs", "2"], "--runs"),
        (&["record", "builtin:tiled", "--case", "nothing"], "'nothing'"),
        (&["record", "builtin:tiled", "--note", "x"], "'x' is no note"),
        (&["accept", "a.toml", "a.toml", "--reason", "x"], "nothing to accept"),
    ] {
        let error = says(at, 2, arguments);
        assert!(error.contains(named), "{arguments:?}: {error}");
    }
}
