//! Tools of CUDA that a test needs.
#![allow(dead_code)] // each test program uses a part of it

use std::fmt::Display;
use std::io::Write as _;

/// What was opened. Where it is missing, says aloud that the test `test` is not run, and gives nothing.
///
/// # Panics
/// When `FLASHPROOF_REQUIRE`, a list separated by commas, names the tool that is missing.
pub fn needed<T>(test: &str, tool: &str, opened: Result<T, impl Display>) -> Option<T> {
    let reason = match opened {
        Ok(found) => return Some(found),
        Err(reason) => reason,
    };
    let required = std::env::var("FLASHPROOF_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == tool),
        "{tool} is required and missing: {reason}"
    );
    // Not `eprintln`, which the test harness keeps to itself where a test passes; and in one piece,
    // since other tests write at the same time.
    let message = format!("NOT RUN: {test} needs {tool}: {reason}\n");
    let _ = std::io::stderr().write_all(message.as_bytes());
    None
}
