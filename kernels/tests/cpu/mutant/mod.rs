//! Mutants: each is the tiled kernel with one change that can be seen, and nothing else.

mod seen;
mod shown;

use std::collections::BTreeSet;

use flashproof_kernels::cpu::Tiled;
use flashproof_kernels::mutant::{Kind, Mutant, Pass, mutants};
use flashproof_kernels::{Kernel, UnknownKernel, builtin};
use flashproof_spec::clause;
use flashproof_spec::format::Format;
use flashproof_spec::layout::{StoredCotangents, StoredInputs, Strided};
use flashproof_spec::problem::Problem;
use proptest::prelude::*;

use crate::support::problems::modified_problems;
use crate::support::{
    FORMATS, bits, differentiate, gradient_bits, run, uniform, uniform_cotangents,
};

fn unchanged() -> Box<dyn Kernel> {
    Mutant::find("unchanged").expect("the control without a change").kernel()
}

proptest! {
    /// So a fault that is put into the copy is all that it differs by.
    #[test]
    fn the_copy_is_the_tiled_kernel(
        problem in modified_problems(),
        seed: u64,
        tile in (1..=9_usize, 1..=9_usize),
    ) {
        let name = format!("{}x{}", tile.0, tile.1);
        let tiled = builtin(&format!("tiled:{name}")).expect("a kernel");
        let copy = builtin(&format!("mutant:unchanged:{name}")).expect("a kernel");
        let inputs = uniform(&problem, seed);
        let outputs = run(tiled.as_ref(), &problem, &inputs);
        prop_assert_eq!(bits(&outputs), bits(&run(copy.as_ref(), &problem, &inputs)));
        let cotangents = uniform_cotangents(&problem, seed ^ 1);
        let of = |kernel: &dyn Kernel| {
            gradient_bits(&differentiate(kernel, &problem, &inputs, &outputs, &cotangents))
        };
        prop_assert_eq!(of(tiled.as_ref()), of(copy.as_ref()));
        let parts = [outputs.clone(), outputs];
        let merged = |kernel: &dyn Kernel| bits(&kernel.merge(&problem, &parts).expect("a merge"));
        prop_assert_eq!(merged(tiled.as_ref()), merged(copy.as_ref()));
    }

    /// The same of tensors in memory.
    #[test]
    fn the_copy_of_the_storage_is_the_tiled_kernels(problem in modified_problems(), seed: u64) {
        let order = [[0, 2, 1, 3], [0, 1, 3, 2], [2, 0, 3, 1]][seed as usize % 3];
        let layout = flashproof_spec::layout::Layout::Strided(Strided::dense(&problem, order));
        let problem = Problem { layout, ..problem };
        let inputs = StoredInputs::store(&problem, &uniform(&problem, seed)).expect("inputs");
        let cotangents = StoredCotangents::store(&problem, &uniform_cotangents(&problem, seed));
        let cotangents = cotangents.expect("cotangents");
        let (tiled, copy) = (Tiled::default(), unchanged());
        let outputs = tiled.forward_stored(&problem, &inputs).expect("outputs");
        prop_assert_eq!(&outputs, &copy.forward_stored(&problem, &inputs).expect("outputs"));
        let of = |kernel: &dyn Kernel| {
            kernel.backward_stored(&problem, &inputs, &outputs, &cotangents).expect("gradients")
        };
        prop_assert_eq!(of(&tiled), of(copy.as_ref()));
    }
}

#[test]
fn every_mutant_answers_to_its_name() {
    let names: BTreeSet<_> = mutants().iter().map(|mutant| mutant.name).collect();
    assert_eq!(names.len(), mutants().len(), "no two share a name");
    for mutant in mutants() {
        let name = format!("mutant:{}", mutant.name);
        let kernel = builtin(&name).expect("a mutant");
        assert_eq!((kernel.name(), kernel.summary()), (name.as_str(), mutant.summary));
        let tiled = builtin(&format!("{name}:8x16")).expect("a mutant in other tiles");
        assert_eq!(tiled.name(), format!("{name}:8x16"));
    }
}

#[test]
fn unknown_mutants_are_refused_with_near_ones() {
    let refusal = |name: &str| builtin(name).err().expect("no kernel");
    let message = refusal("mutant:drop-keys").to_string();
    assert!(message.contains("'drop-keys'") && message.contains("drop-key"), "{message}");
    assert!(matches!(refusal("mutant:"), UnknownKernel::Mutant { .. }));
    assert!(matches!(refusal("mutant:drop-key:8"), UnknownKernel::Tile { .. }));
    assert!(matches!(refusal("mutant:drop-key:8x0"), UnknownKernel::BlockSize { .. }));
}

#[test]
fn every_mutant_cites_clauses_that_exist() {
    for mutant in mutants() {
        assert!(!mutant.clauses.is_empty(), "{}", mutant.name);
        for id in mutant.clauses {
            assert!(clause::find(id).is_some(), "{} cites {id}", mutant.name);
        }
    }
}

#[test]
fn faults_come_first_and_declare_what_the_correct_kernel_does() {
    let kinds: Vec<_> = mutants().iter().map(|mutant| mutant.kind).collect();
    assert!(kinds.is_sorted());
    for mutant in mutants().iter().filter(|mutant| mutant.kind == Kind::Fault) {
        if !mutant.kernel().takes(Format::F32) {
            continue;
        }
        let correct = if is_split(mutant) { "split" } else { "tiled" };
        // Where its tiles are its own, so is the schedule.
        let tiles = format!("mutant:{}:64x64", mutant.name);
        for format in FORMATS {
            let declared = builtin(&tiles).expect("a mutant").profile(format);
            assert_eq!(declared, builtin(correct).expect("a kernel").profile(format));
        }
    }
    for pass in [Pass::Forward, Pass::Backward] {
        assert!(mutants().iter().any(|mutant| mutant.pass == pass && mutant.kind == Kind::Control));
    }
}

fn is_split(mutant: &Mutant) -> bool {
    mutant.name.starts_with("merge-") || mutant.name == "sink-per-split"
}
