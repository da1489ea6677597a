//! `check-on-device`, with stand-ins (`data/device`) for `nvidia-smi`, `flashproof` and Python.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// A folder as it is taken to a device: the script, the program, manifests.
struct Folder(TempDir);

impl Folder {
    fn new(driver: &str, python: &str) -> Self {
        let it = Self(tempfile::tempdir().expect("a temporary folder"));
        for folder in ["manifests", "bin"] {
            fs::create_dir(it.path(folder)).expect("a folder");
        }
        for kernel in ["forward", "backward"] {
            fs::write(it.path(&format!("manifests/{kernel}.toml")), "").expect("a file");
        }
        fs::write(it.path("COMMIT"), "0123abcd\n").expect("a file");
        // Not copies: a program that another thread's child still has open for writing does not start.
        for (of, name) in [
            ("check-on-device", "check-on-device"),
            ("tests/data/device/program", "flashproof"),
            (&format!("tests/data/device/{driver}"), "bin/nvidia-smi"),
            (&format!("tests/data/device/{python}"), "bin/python3"),
        ] {
            let of = Path::new(env!("CARGO_MANIFEST_DIR")).join(of);
            symlink(of, it.path(name)).expect("a link");
        }
        it
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Output {
        let path = std::env::var("PATH").expect("a path");
        Command::new(self.path("check-on-device"))
            .args(arguments)
            .current_dir(self.0.path())
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .env("GIT_CEILING_DIRECTORIES", self.0.path().parent().expect("a parent"))
            .envs(environment.iter().copied())
            .output()
            .expect("bash")
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

fn status(output: &Output) -> i32 {
    output.status.code().expect("no signal")
}

fn errors(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("UTF-8")
}

#[test]
fn without_a_driver_nothing_is_run_and_it_says_so() {
    let folder = Folder::new("no-driver", "no-torch");
    let output = folder.run(&["--results", "results.md"], &[]);
    assert_eq!(status(&output), 2);
    assert!(errors(&output).contains("no CUDA driver: nothing was run"), "{output:?}");
    assert_eq!(folder.read("asked"), "");
    assert_eq!(folder.read("results.md"), "");
}

#[test]
fn what_is_missing_or_unknown_is_named() {
    let folder = Folder::new("driver", "no-torch");
    for (arguments, expected) in [
        (["--program", "absent"].as_slice(), "no program: nothing was run ('absent' is not there"),
        (&["--only", "sideways"], "no manifests: nothing was run"),
        (&["--results", "COMMIT"], "'COMMIT' exists"),
        (&["--results"], "--results needs a value"),
        (&["--sideways"], "unknown option '--sideways'"),
    ] {
        let output = folder.run(arguments, &[]);
        assert_eq!(status(&output), 2, "{arguments:?}: {output:?}");
        assert!(errors(&output).contains(expected), "{arguments:?}: {output:?}");
    }
    assert!(!folder.read("asked").contains("check"), "{}", folder.read("asked"));

    let help = folder.run(&["--help"], &[]);
    assert_eq!(status(&help), 0);
    assert!(String::from_utf8_lossy(&help.stdout).contains("exit status: 0 all passed"));
}

#[test]
fn every_manifest_is_checked_and_compared_and_written_down() {
    let folder = Folder::new("driver", "no-torch");
    let output = folder.run(&["--results", "results.md", "--policy", "highest"], &[("BITS", "1")]);
    assert_eq!(status(&output), 0, "{output:?}");

    let manifests = folder.path("manifests");
    for name in ["forward", "backward"] {
        let manifest = manifests.join(format!("{name}.toml"));
        let manifest = manifest.display();
        let how = format!("--suite quick --case=*/reported/* --as {name} --out");
        for expected in [
            format!("check --suite quick cuda:{manifest}\n"),
            format!("drift record ptx:{manifest}?policy=highest {how} "),
            format!("drift record cuda:{manifest} {how} "),
        ] {
            assert!(
                folder.read("asked").contains(&expected),
                "{expected}: {}",
                folder.read("asked")
            );
        }
    }

    let results = folder.read("results.md");
    for expected in [
        "| device, driver, compute capability | NVIDIA H100, 580.1, 9.0 |\n",
        "| commit | 0123abcd |\n",
        "| program | flashproof 0.1.0 |\n",
        "checked\n```\nexit status 0\n",
        "PyTorch: not timed",
        "These kernels: not timed",
        "| forward | passed | not worse | others |\n",
        "| backward | passed | not worse | others |\n",
    ] {
        assert!(results.contains(expected), "{expected}: {results}");
    }
}

#[test]
fn what_does_not_pass_is_the_exit_status_and_in_the_summary() {
    let whole = ["--results", "results.md", "--only", "forward", "--no-time"];
    for (environment, expected) in [
        (("CHECK", "1"), "| forward | FAILED | not worse | the same |"),
        (("CHECK", "2"), "| forward | NOT CHECKED | not worse | the same |"),
        (("COMPARE", "1"), "| forward | passed | WORSE | see above |"),
        (("COMPARE", "2"), "| forward | passed | NOT COMPARED | NOT COMPARED |"),
    ] {
        let folder = Folder::new("driver", "no-torch");
        let output = folder.run(&whole, &[environment]);
        assert_eq!(status(&output), 1, "{environment:?}: {output:?}");
        let results = folder.read("results.md");
        assert!(results.contains(expected), "{environment:?}: {results}");
        assert!(!results.contains("backward"), "{results}");
    }
}

#[test]
fn the_emulator_and_the_times_can_be_left_out() {
    let folder = Folder::new("driver", "no-torch");
    let output = folder.run(&["--results", "results.md", "--no-compare", "--no-time"], &[]);
    assert_eq!(status(&output), 0, "{output:?}");
    assert!(!folder.read("asked").contains("drift"), "{}", folder.read("asked"));
    let results = folder.read("results.md");
    assert!(results.contains("| forward | passed | not asked | not asked |"), "{results}");
    assert!(!results.contains("PyTorch"), "{results}");
}

#[test]
fn pytorch_is_timed_where_it_is() {
    let folder = Folder::new("driver", "torch");
    let output = folder.run(&["--results", "results.md", "--no-compare"], &[]);
    assert_eq!(status(&output), 0, "{output:?}");
    let expected = format!("timed by -B {}/time_sdpa.py\n", folder.0.path().display());
    assert!(folder.read("results.md").contains(&expected), "{}", folder.read("results.md"));
}
