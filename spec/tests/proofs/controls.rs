//! What an audit must reject.

use crate::audit::audit;
use crate::coq;

/// Audits the first files after replacing `old` in `file`, and gives what was found.
fn audited_with(file: &str, old: &str, new: &str) -> Vec<String> {
    let files: Vec<String> = ["Defs.v", "Sums.v", "Online.v"].map(str::to_owned).to_vec();
    let edit = |name: &str, text: String| {
        if name == file {
            assert!(text.contains(old), "{file} has no '{old}' to replace");
            text.replace(old, new)
        } else {
            text
        }
    };
    audit(&files, edit).faults
}

fn assert_rejected(faults: &[String], because: &str) {
    assert!(faults.iter().any(|fault| fault.contains(because)), "{faults:#?}");
}

#[test]
fn a_theorem_without_a_proof_is_rejected() {
    if coq::is_installed("a_theorem_without_a_proof_is_rejected") {
        let proof = "Proof. intro W. rewrite merge_comm. now apply merge_start_left. Qed.";
        let faults = audited_with("Online.v", proof, "Admitted.");
        assert_rejected(&faults, "Online.v: Admitted");
        assert_rejected(&faults, "rests on Online.merge_start_right");
    }
}

#[test]
fn a_weaker_statement_is_rejected() {
    if coq::is_installed("a_weaker_statement_is_rejected") {
        let tree = "Permutation (tree_keys t) row -> tree_state t = dense row.\nProof.\n  intro P.";
        let weaker = tree.replace("Permutation", "row <> [] -> Permutation");
        let weaker = weaker.replace("intro P.", "intros _ P.");
        let faults = audited_with("Online.v", tree, &weaker);
        assert_rejected(&faults, "Online.any_tree_is_dense states another thing");
    }
}

#[test]
fn a_merge_that_does_not_rescale_the_numerator_is_rejected() {
    if coq::is_installed("a_merge_that_does_not_rescale_the_numerator_is_rejected") {
        let old = "fun d => weight m1 m * n1 d + weight m2 m * n2 d).";
        let faults = audited_with("Defs.v", old, "fun d => n1 d + weight m2 m * n2 d).");
        assert_rejected(&faults, "Online.v does not compile");
    }
}

#[test]
fn another_definition_is_rejected_where_every_proof_still_passes() {
    if coq::is_installed("another_definition_is_rejected_where_every_proof_still_passes") {
        // An LSE in base 2, of which the first files say nothing.
        let old = "Some m => Some (m + ln l) end.";
        let faults = audited_with("Defs.v", old, "Some m => Some (m + ln l / ln 2) end.");
        assert_rejected(&faults, "Defs.finish_lse states another thing");
    }
}
