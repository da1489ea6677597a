//! What a kernel ran on, and what it and this program were made with.

use std::collections::BTreeMap;
use std::fs;
use std::hint::black_box;

use super::digest::{Bits, Digest};

/// What can be found out, by name. A kernel in another process was made by a compiler that nobody can
/// ask here: that is for notes to say.
pub(super) fn environment(kernel: &str, description: &str) -> BTreeMap<String, String> {
    let mut found = vec![
        ("flashproof", Some(env!("CARGO_PKG_VERSION").to_owned())),
        ("description", Some(description.to_owned())),
        ("target", Some(env!("FLASHPROOF_TARGET").to_owned())),
        ("cpu", cpu()),
        ("cpu-features", Some(cpu_features())),
        ("os", os()),
        ("driver", driver()),
        ("math", Some(math_digest().to_string())),
    ];
    if kernel.starts_with("builtin:") {
        found.push(("compiler", Some(env!("FLASHPROOF_COMPILER").to_owned())));
        found.push(("compiler-flags", Some(env!("FLASHPROOF_FLAGS").to_owned())));
    }
    let known = |(name, value): (&str, Option<String>)| Some((name.to_owned(), value?));
    found.into_iter().filter_map(known).collect()
}

fn cpu() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

/// Those that make a C library choose another version of its functions.
fn cpu_features() -> String {
    #[cfg(target_arch = "x86_64")]
    let named = [
        ("fma", is_x86_feature_detected!("fma")),
        ("avx2", is_x86_feature_detected!("avx2")),
        ("avx512f", is_x86_feature_detected!("avx512f")),
    ];
    #[cfg(not(target_arch = "x86_64"))]
    let named: [(&str, bool); 0] = [];
    let present: Vec<_> =
        named.into_iter().filter(|(_, present)| *present).map(|(name, _)| name).collect();
    present.join(" ")
}

fn os() -> Option<String> {
    let release = fs::read_to_string("/etc/os-release").ok()?;
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(name.trim_matches('"').to_owned())
}

/// Of an NVIDIA GPU.
fn driver() -> Option<String> {
    let text = fs::read_to_string("/proc/driver/nvidia/version").ok()?;
    Some(text.lines().next()?.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Points at which each function is asked.
const POINTS: i32 = 4096;

/// Of what this machine's `exp`, `exp2`, `ln`, `log2`, `ln_1p` and `tanh` give, in `f32` and in `f64`,
/// at 4096 points each.
///
/// Rust takes these functions from the C library of the machine, which may choose among several by the
/// instructions that the processor has, and does not promise the last bit. Where this digest is
/// another, so may be the bits of every kernel that uses them, and of the inputs drawn with them;
/// where it is the same, they were the same at these points, which is no proof for others.
#[must_use]
pub fn math_digest() -> Digest {
    let mut bits = Bits::default();
    for k in 1..=POINTS {
        // Negative arguments of `exp` down to -64, as in a softmax; positive ones of `ln` up to 64.
        let double = black_box(f64::from(k) / 64.0);
        let single = black_box(k as f32 / 64.0);
        for value in [(-double).exp(), (-double).exp2(), double.ln(), double.log2()] {
            bits.number(value);
        }
        for value in [(-single).exp(), (-single).exp2(), single.ln(), single.log2()] {
            bits.number(f64::from(value));
        }
        bits.number(double.ln_1p());
        bits.number((double / 16.0).tanh());
        bits.number(f64::from(single.ln_1p()));
        bits.number(f64::from((single / 16.0).tanh()));
    }
    bits.digest()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found_is_named_once_and_in_one_line() {
        let found = environment("builtin:tiled", "tiles");
        for name in ["flashproof", "compiler", "compiler-flags", "target", "math"] {
            assert!(found.contains_key(name), "{name} in {found:?}");
        }
        assert!(found.values().all(|value| !value.contains('\n')), "{found:?}");
        assert!(!environment("exec:worker", "").contains_key("compiler"));
    }

    #[test]
    fn the_functions_of_one_machine_have_one_digest() {
        assert_eq!(math_digest(), math_digest());
    }
}
