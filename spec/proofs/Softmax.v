(* The finished row is softmax attention, and what the LSE is worth.

   For a kernel author: output and LSE of a row do not depend on how its keys were divided; the LSE
   is all that a backward pass needs to have the probabilities back; a sink is a key without a
   value; and a constant added to every score of a row changes nothing but the LSE. *)

Require Import Reals Lra List Permutation FunctionalExtensionality.
From Flashproof Require Import Defs Sums Online Lazy.
Import ListNotations.
Open Scope R_scope.

Section Softmax.
Context {D : Type}.
Implicit Types (xs ys row : list (key D)) (blocks : list (list (key D))).

Lemma dense_represents xs m : greatest xs = Some m ->
  represents (m, normalizer (Some m) xs, numerator (Some m) xs) xs.
Proof. simpl; auto. Qed.

Theorem output_of_dense xs d : finish_output (dense xs) d = attention xs d.
Proof.
  destruct (greatest xs) as [m|] eqn:E.
  - unfold dense, finish_output. rewrite E.
    apply (any_reference_output (m, normalizer (Some m) xs, numerator (Some m) xs));
    [now apply dense_represents | congruence].
  - unfold dense, finish_output. rewrite E, attention_is_quotient, mass_masked by auto.
    assert (HN : weighted_mass xs d = 0).
    { unfold weighted_mass. rewrite (sum_ext _ (fun _ => 0 * 0)). rewrite sum_scal; ring.
      intros [s v] Hx. pose proof (proj1 (greatest_none xs) E _ Hx) as Es.
      simpl in Es |- *. rewrite Es. simpl. ring. }
    rewrite HN. unfold Rdiv. ring.
Qed.

Theorem online_softmax_is_attention blocks row d :
  Permutation (concat blocks) row ->
  finish_output (fold_left absorb blocks start) d = attention row d.
Proof. intro P. rewrite (any_partition_is_dense _ _ P). apply output_of_dense. Qed.

Theorem normalizer_at_least_one xs m : greatest xs = Some m -> 1 <= normalizer (Some m) xs.
Proof.
  intro E. destruct (greatest_attained _ _ E) as [x [Hx Ex]].
  apply in_split in Hx. destruct Hx as [l1 [l2 ->]]. unfold normalizer.
  rewrite sum_app. simpl. rewrite Ex. simpl. replace (m - m) with 0 by ring. rewrite exp_0.
  assert (forall l : list (key D), 0 <= sum (fun x => weight (fst x) (Some m)) l).
  { intro l. apply sum_nonneg. intros y _. destruct (fst y); simpl; [left; apply exp_pos|lra]. }
  pose proof (H l1). pose proof (H l2). lra.
Qed.

Theorem lse_of_dense xs : greatest xs <> None -> finish_lse (dense xs) = Some (ln (mass xs)).
Proof.
  intro H. unfold dense, finish_lse. destruct (greatest xs) as [m|] eqn:E; [|congruence].
  f_equal. apply (any_reference_lse (m, normalizer (Some m) xs, numerator (Some m) xs)).
  now apply dense_represents. congruence.
Qed.

(* Nor does the LSE depend on how the keys were divided. *)
Theorem lse_of_any_partition blocks row : Permutation (concat blocks) row ->
  finish_lse (fold_left absorb blocks start) = finish_lse (dense row).
Proof. intro P. now rewrite (any_partition_is_dense _ _ P). Qed.

(* The LSE gives a probability back, whatever the keys were: what a backward pass relies on. *)
Theorem softmax_from_lse xs s L : finish_lse (dense xs) = Some L ->
  softmax xs (Some s) = exp (s - L).
Proof.
  intro H. assert (Hm : greatest xs <> None).
  { intro E. unfold dense, finish_lse in H. rewrite E in H. discriminate. }
  rewrite lse_of_dense in H by auto. injection H as <-.
  unfold softmax, Rminus. simpl. rewrite exp_plus, exp_Ropp, exp_ln. reflexivity.
  now apply mass_pos.
Qed.

(* A sink absorbed at the end adds its weight to the normalizer and nothing to the numerator. *)
Theorem sink_is_a_key_without_value xs s d :
  finish_output (absorb (dense xs) [(Some s, fun _ => 0)]) d = weighted_mass xs d / (mass xs + exp s).
Proof.
  rewrite absorb_is_merge, merge_dense, output_of_dense, attention_is_quotient. unfold weighted_mass, mass.
  rewrite !sum_app. simpl. f_equal; ring.
Qed.

(* A constant added to every score changes no probability. *)
Theorem softmax_ignores_shifts xs c s : greatest xs <> None ->
  softmax (shift c xs) (Some (s + c)) = softmax xs (Some s).
Proof.
  intro H. assert (E : mass (shift c xs) = exp c * mass xs).
  { unfold mass, shift. rewrite sum_map, <- sum_scal. apply sum_ext.
    intros [[a|] v] _; simpl; [rewrite exp_plus|]; ring. }
  unfold softmax. rewrite E. unfold exponential. rewrite exp_plus.
  pose proof (mass_pos xs H). pose proof (exp_pos c). field. split; lra.
Qed.

(* A row that sees no key: output 0, LSE minus infinity. *)
Theorem row_without_keys xs d : (forall k, In k xs -> fst k = None) ->
  finish_output (dense xs) d = 0 /\ finish_lse (dense xs) = None.
Proof. intro H. rewrite dense_masked by auto. split; reflexivity. Qed.

(* A constant added to every score adds itself to the LSE. *)
Theorem lse_of_shifted_scores xs c : greatest xs <> None ->
  ln (mass (shift c xs)) = c + ln (mass xs).
Proof.
  intro H. assert (E : mass (shift c xs) = exp c * mass xs).
  { unfold mass, shift. rewrite sum_map, <- sum_scal. apply sum_ext.
    intros [[a|] v] _; simpl; [rewrite exp_plus|]; ring. }
  rewrite E, ln_mult, ln_exp; auto using exp_pos. now apply mass_pos.
Qed.

(* exp2(x / ln 2), which devices compute, is e^x. *)
Theorem exponential_in_base_two x : Rpower 2 (x * / ln 2) = exp x.
Proof.
  unfold Rpower. f_equal. field.
  assert (0 < ln 2) by (rewrite <- ln_1; apply ln_increasing; lra). lra.
Qed.

End Softmax.
