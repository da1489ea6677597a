//! The theorems: they compile, state what they stated, and rest on nothing but allowed axioms; and
//! what must be rejected is.
//!
//! `statements.pinned` is never written by a test. Where a statement changes on purpose, the audit
//! leaves the new text in the folder for temporary files of the build and says where.

mod audit;
mod claims;
mod controls;
mod coq;
mod vectors;

use std::fs;
use std::path::Path;

#[test]
fn theorems_are_proved_as_claimed_and_pinned() {
    if !coq::is_installed("theorems_are_proved_as_claimed_and_pinned") {
        return;
    }
    let files = coq::project_files();
    let found = audit::audit(&files, |_, text| text);
    let committed =
        fs::read_to_string(coq::sources().join("statements.pinned")).unwrap_or_default();
    if found.faults.is_empty() && found.pinned == committed {
        return;
    }
    let new = Path::new(env!("CARGO_TARGET_TMPDIR")).join("statements.pinned");
    fs::write(&new, &found.pinned).expect("a writable folder for temporary files");
    panic!(
        "{}\nwhat the proofs state now is in {}: compare it with spec/proofs/statements.pinned, and \
         copy it there if the change is meant",
        found.faults.join("\n"),
        new.display()
    );
}
