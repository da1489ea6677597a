//! Running Coq on a copy of the proofs.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The folder of the proofs.
pub fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("proofs")
}

/// The files that `_CoqProject` lists, in the order that they are compiled.
pub fn project_files() -> Vec<String> {
    let project = fs::read_to_string(sources().join("_CoqProject")).expect("a project file");
    project.lines().filter(|line| is_source(line)).map(str::to_owned).collect()
}

fn is_source(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|extension| extension == "v")
}

/// Whether Coq is installed. Where it is not, says aloud that the test `test` is not run.
///
/// # Panics
/// When `FLASHPROOF_REQUIRE`, a list separated by commas, names coq and it is missing.
pub fn is_installed(test: &str) -> bool {
    let coq = Command::new("coqc").arg("--version").output();
    if coq.is_ok_and(|it| it.status.success()) {
        return true;
    }
    let required = std::env::var("FLASHPROOF_REQUIRE").unwrap_or_default();
    assert!(
        !required.split(',').any(|name| name.trim() == "coq"),
        "coq is required and missing: no coqc runs"
    );
    // Not `eprintln`, which the test harness keeps to itself where a test passes.
    let message =
        format!("NOT RUN: {test} needs coqc, and there is none (Debian: coq, libcoq-*)\n");
    let _ = std::io::stderr().write_all(message.as_bytes());
    false
}

/// A copy of the proofs to compile, so that nothing is written beside the sources.
pub struct Workshop {
    folder: TempDir,
}

impl Workshop {
    /// A copy of all sources, with `edit` applied to the text of each.
    pub fn new(edit: impl Fn(&str, String) -> String) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        for entry in fs::read_dir(sources()).expect("a readable folder") {
            let path = entry.expect("a readable entry").path();
            let name = path.file_name().expect("a file").to_str().expect("a name in UTF-8");
            if is_source(name) {
                let text = fs::read_to_string(&path).expect("a readable source");
                fs::write(folder.path().join(name), edit(name, text)).expect("a writable copy");
            }
        }
        Self { folder }
    }

    /// Compiles one file and gives what Coq printed.
    ///
    /// # Errors
    /// What Coq said against it.
    pub fn compile(&self, file: &str) -> Result<String, String> {
        let output = Command::new("coqc")
            .args(["-q", "-w", "none", "-Q", ".", "Flashproof", file])
            .current_dir(self.folder.path())
            .output()
            .expect("coqc starts");
        if output.status.success() {
            Ok(String::from_utf8(output.stdout).expect("Coq prints UTF-8"))
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
        }
    }

    /// Compiles a file of this text.
    ///
    /// # Errors
    /// As [`Workshop::compile`].
    pub fn compile_text(&self, file: &str, text: &str) -> Result<String, String> {
        fs::write(self.folder.path().join(file), text).expect("a writable folder");
        self.compile(file)
    }
}
