//! Texts drawn at random and fixtures changed at random: refused or run, and never a panic.

mod kernel;
mod support;

use flashproof_ptx::{Argument, Launch, Memory, Module, Options, run};
use proptest::prelude::*;
use proptest::test_runner::{FileFailurePersistence, RngSeed};
use support::{BACKWARD, FORWARD, text};

/// The seed of every property test, unless `PROPTEST_RNG_SEED` gives another.
const SEED: u64 = 6;
/// How many texts are tried, unless `PROPTEST_CASES` gives another number.
const CASES: u32 = 256;

/// A printed seed, and a committed file for the seeds of failures.
fn settings() -> ProptestConfig {
    let mut config = ProptestConfig::default();
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(SEED);
    }
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = CASES;
    }
    let (seed, cases) = (config.rng_seed, config.cases);
    let command = "cargo test -p flashproof-ptx --test fuzz";
    eprintln!("reproduce: PROPTEST_RNG_SEED={seed} PROPTEST_CASES={cases} {command}");
    let failures = "tests/proptest-regressions/fuzz.txt";
    config.failure_persistence = Some(Box::new(FileFailurePersistence::Direct(failures)));
    config
}

/// Runs a text for a short while, whatever it is; faults and refusals are fine.
fn survive(text: &str) {
    let Ok(module) = Module::parse(text) else { return };
    for entry in module.entries() {
        let mut memory = Memory::new();
        let arguments = entry
            .parameters()
            .iter()
            .map(|parameter| match parameter.bytes {
                8 => Argument::Pointer(memory.upload("buffer", &vec![0x3c; 1 << 15])),
                // Of numbers, 64: the rows of one tile.
                bytes => {
                    Argument::Bytes((0..bytes).map(|at| if at == 0 { 64 } else { 0 }).collect())
                }
            })
            .collect();
        let block = entry.required_threads().unwrap_or([128, 1, 1]);
        let launch = Launch { grid: [2, 1, 1], block, dynamic_shared: 65536, arguments };
        let options = Options { seed: Some(1), instruction_limit: 20_000, ..Options::default() };
        let result = run(&module, entry.name(), &launch, &memory, &options);
        if let Err(error) = result {
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Words that texts are made of.
fn words() -> Vec<&'static str> {
    "add sub mul.lo mad.wide .u32 .s64 .f32 .pred .b8 .rn .sat .ftz setp.lt.and selp cvt.rni ld.global
     st.shared.v4 mov @%p1 @!%p2 bra bar.sync shfl.sync.bfly mma.sync.aligned wgmma.mma_async { } ( ) [ ]
     , ; : | ! - + < > = _ %r1 %rd2 %tid.x %ntid %p1 $L1 s p 0 1 0x10 0f3f800000 0d0 1.5 0fzz 99999999999999999999
     .reg .shared .local .entry .visible .extern .global .align .param .version .target .address_size
     .pragma .loc .section .maxntid .func call \"x\" // /* */ %r<9>"
        .split_whitespace()
        .collect()
}

proptest! {
    #![proptest_config(settings())]

    #[test]
    fn random_text_is_refused_without_a_panic(text in ".{0,400}") {
        if let Err(error) = Module::parse(&text) {
            prop_assert!(error.line >= 1 && error.line <= text.lines().count().max(1));
        }
    }

    #[test]
    fn random_words_are_refused_without_a_panic(
        words in prop::collection::vec(prop::sample::select(words()), 0..60),
        inside in any::<bool>(),
    ) {
        let words = words.join(" ");
        survive(&if inside { kernel::Kernel::new(&words).text() } else { words });
    }
}

proptest! {
    #![proptest_config(settings())]

    /// A line gone, doubled, exchanged for another, or a number or a word in it changed.
    #[test]
    fn mutated_fixtures_do_not_panic(
        file in 0..FORWARD.len() + BACKWARD.len(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), 0..5_u8), 1..6),
    ) {
        let files: Vec<&str> = FORWARD.map(|kernel| kernel.file).into_iter().chain(BACKWARD).collect();
        let text = text(files[file]);
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        for (at, other, kind) in changes {
            let (at, other) = (at.index(lines.len()), other.index(lines.len()));
            match kind {
                0 => { lines.remove(at); }
                1 => { let line = lines[at].clone(); lines.insert(at, line); }
                2 => lines.swap(at, other),
                3 => lines[at] = lines[at].replace(['1', '6'], "7"),
                _ => {
                    let word = words()[other % words().len()];
                    let place = lines[at].char_indices().map(|(place, _)| place).nth(other % 20).unwrap_or(0);
                    lines[at].insert_str(place, word);
                }
            }
        }
        survive(&lines.join("\n"));
    }
}
