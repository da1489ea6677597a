(* Parts of a row that are finished by themselves.

   For a kernel author: split-KV decoding writes an output and an LSE for each part. Merging those
   is attention again, with LSEs for scores and outputs for values, so parts may be merged in any
   order, in a tree, and with parts that see nothing. *)

Require Import Reals Lra List Permutation FunctionalExtensionality.
From Flashproof Require Import Defs Sums Online Lazy Softmax.
Import ListNotations.
Open Scope R_scope.

Section Split.
Context {D : Type}.
Implicit Types (xs ys row : list (key D)) (splits : list (list (key D))).

Lemma partial_weighs_its_mass xs : exponential (fst (partial xs)) = mass xs.
Proof.
  unfold partial. cbn [fst]. destruct (greatest xs) as [m|] eqn:E.
  - rewrite lse_of_dense by congruence. simpl. apply exp_ln. apply mass_pos. congruence.
  - rewrite mass_masked by auto. unfold dense, finish_lse. now rewrite E.
Qed.

Lemma partial_brings_its_weighted_mass xs d : exponential (fst (partial xs)) * snd (partial xs) d = weighted_mass xs d.
Proof.
  rewrite partial_weighs_its_mass. unfold partial. cbn [snd]. rewrite output_of_dense, attention_is_quotient.
  destruct (greatest xs) as [m|] eqn:E.
  - assert (0 < mass xs) by (apply mass_pos; congruence). field. lra.
  - rewrite mass_masked by auto. unfold weighted_mass.
    rewrite (sum_ext (fun x => exponential (fst x) * snd x d) (fun _ => 0 * 0)).
    rewrite sum_scal; unfold Rdiv; ring.
    intros [s v] Hx. pose proof (proj1 (greatest_none xs) E _ Hx) as Es.
      simpl in Es |- *. rewrite Es. simpl. ring.
Qed.

Lemma partial_depends_on_masses xs ys : mass xs = mass ys -> (forall d, weighted_mass xs d = weighted_mass ys d) -> partial xs = partial ys.
Proof.
  intros HZ HN. unfold partial. f_equal.
  - destruct (greatest xs) eqn:E1, (greatest ys) eqn:E2.
    + rewrite !lse_of_dense by congruence. now rewrite HZ.
    + assert (0 < mass xs) by (apply mass_pos; congruence). rewrite (mass_masked ys) in HZ by auto. lra.
    + assert (0 < mass ys) by (apply mass_pos; congruence). rewrite (mass_masked xs) in HZ by auto. lra.
    + unfold dense, finish_lse. now rewrite E1, E2.
  - apply functional_extensionality; intro d.
    now rewrite !output_of_dense, !attention_is_quotient, HZ, HN.
Qed.

Theorem partials_merge_like_keys splits row :
  Permutation (concat splits) row -> partial (map partial splits) = partial row.
Proof.
  intro P. apply partial_depends_on_masses.
  - unfold mass at 1. rewrite sum_map.
    rewrite (sum_ext _ mass) by (intros; apply partial_weighs_its_mass).
    change (sum (sum (fun x => exponential (fst x))) splits = mass row).
    rewrite <- sum_concat. now apply sum_permutation.
  - intro d. unfold weighted_mass at 1. rewrite sum_map.
    rewrite (sum_ext _ (fun xs => weighted_mass xs d)) by (intros; apply partial_brings_its_weighted_mass).
    change (sum (sum (fun x => exponential (fst x) * snd x d)) splits = weighted_mass row d).
    rewrite <- sum_concat. now apply sum_permutation.
Qed.

(* the same, written as the usual formula over the (O_i, LSE_i) pairs:
   LSE = ln sum_i e^{LSE_i}, O = sum_i e^{LSE_i - LSE} O_i *)

Theorem merge_of_partials splits d L :
  finish_lse (dense (concat splits)) = Some L ->
  attention (concat splits) d
    = sum (fun xs => match finish_lse (dense xs) with
                      | None => 0 | Some Li => exp (Li - L) * attention xs d end) splits
  /\ L = ln (sum (fun xs => exponential (finish_lse (dense xs))) splits).
Proof.
  intro H. set (row := concat splits) in *.
  assert (Hm : greatest row <> None).
  { intro E. unfold dense, finish_lse in H. rewrite E in H. discriminate. }
  rewrite lse_of_dense in H by auto. injection H as HL. pose proof (mass_pos row Hm) as ZP. split.
  - rewrite attention_is_quotient. unfold Rdiv, row, weighted_mass at 1. rewrite sum_concat, Rmult_comm.
    fold row. rewrite <- sum_scal. apply sum_ext. intros xs _.
    change (/ mass row * weighted_mass xs d = match finish_lse (dense xs) with
                      | None => 0 | Some Li => exp (Li - L) * attention xs d end).
    rewrite <- partial_brings_its_weighted_mass. unfold partial. cbn [fst snd]. rewrite output_of_dense.
    destruct (finish_lse (dense xs)) as [Li|]; simpl; [|ring].
    unfold Rminus. rewrite exp_plus, exp_Ropp, <- HL, exp_ln by auto. field. lra.
  - rewrite <- HL. f_equal. unfold row, mass. rewrite sum_concat. apply sum_ext.
    intros xs _. symmetry. apply (partial_weighs_its_mass xs).
Qed.

End Split.
