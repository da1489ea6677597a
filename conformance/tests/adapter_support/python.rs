//! Python, where it is installed.
#![allow(dead_code)] // each test program uses a part of it

use std::io::Write;
use std::process::{Command, Stdio};

/// A command for `exec:` that runs a script of `worker/` under Python with numpy. Without them it
/// says aloud that the test `test` is not run and gives nothing.
///
/// # Panics
/// When `FLASHPROOF_REQUIRE`, a list separated by commas, names the tool that is missing.
pub fn worker(test: &str, script: &str) -> Option<String> {
    let python = with_packages(test, &["numpy"])?;
    let script = format!("{}/worker/{script}", env!("CARGO_MANIFEST_DIR"));
    let words = [python.as_str(), "-B", script.as_str()];
    Some(shlex::try_join(words).expect("paths without a NUL character"))
}

/// The Python interpreter, where it has these packages; as [`worker`] otherwise.
///
/// # Panics
/// As [`worker`].
pub fn with_packages(test: &str, packages: &[&'static str]) -> Option<String> {
    let python = std::env::var("FLASHPROOF_PYTHON").unwrap_or_else(|_| "python3".to_owned());
    for tool in [&["python"], packages].concat() {
        let program = if tool == "python" { "pass".to_owned() } else { format!("import {tool}") };
        let status = Command::new(&python)
            .args(["-c", &program])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !status.is_ok_and(|status| status.success()) {
            missing(test, tool, &python);
            return None;
        }
    }
    Some(python)
}

fn missing(test: &str, tool: &str, python: &str) {
    let required = std::env::var("FLASHPROOF_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == tool),
        "{tool} is required and missing: FLASHPROOF_PYTHON is '{python}'"
    );
    // Not `eprintln`, which the test harness keeps to itself where a test passes; and in one piece,
    // since other tests write at the same time.
    let message =
        format!("NOT RUN: {test} needs {tool}, and '{python}' (FLASHPROOF_PYTHON) has none\n");
    let _ = std::io::stderr().write_all(message.as_bytes());
}
