//! Tells the program what it is compiled with, for the environment in drift snapshots.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-env=FLASHPROOF_COMPILER={}", compiler().as_deref().unwrap_or("unknown"));
    println!("cargo::rustc-env=FLASHPROOF_FLAGS={}", flags());
    println!("cargo::rustc-env=FLASHPROOF_TARGET={}", variable("TARGET"));
}

fn compiler() -> Option<String> {
    let output = Command::new(env::var_os("RUSTC")?).arg("--version").output().ok()?;
    Some(String::from_utf8(output.stdout).ok()?.trim().to_owned())
}

/// The optimisation level, and the flags given beside the profile's.
fn flags() -> String {
    let given = variable("CARGO_ENCODED_RUSTFLAGS").replace('\u{1f}', " ");
    format!("opt-level={} {given}", variable("OPT_LEVEL")).trim().to_owned()
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_default()
}
