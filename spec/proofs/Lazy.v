(* Any reference in place of the maximum.

   For a kernel author: which number is subtracted from the scores does not matter, as long as
   normalizer and numerator are taken against the same one. So rescaling may be left out, or done
   only when the maximum has risen by more than a threshold; the weights then stay below e^tau. *)

Require Import Reals Lra List Permutation FunctionalExtensionality.
From Flashproof Require Import Defs Sums Online.
Import ListNotations.
Open Scope R_scope.

Section Lazy.
Context {D : Type}.
Implicit Types (xs ys row : list (key D)).

Lemma exponential_nonneg s : 0 <= exponential s.
Proof. destruct s; simpl; [left; apply exp_pos|lra]. Qed.

Lemma mass_nonneg xs : 0 <= mass xs.
Proof. apply sum_nonneg. intros; apply exponential_nonneg. Qed.

Lemma mass_masked xs : greatest xs = None -> mass xs = 0.
Proof.
  intro H. rewrite greatest_none in H. unfold mass.
  rewrite (sum_ext _ (fun _ => 0 * 0)). rewrite sum_scal; ring.
  intros x Hx. rewrite H; simpl; auto. ring.
Qed.

Lemma mass_pos xs : greatest xs <> None -> 0 < mass xs.
Proof.
  induction xs as [|x xs IH]; simpl; [congruence|]. intro H. unfold mass; simpl. fold (mass xs).
  destruct (fst x) as [a|]; simpl.
  - pose proof (exp_pos a). pose proof (mass_nonneg xs). lra.
  - simpl in H. apply IH in H. lra.
Qed.

Lemma normalizer_is_mass r xs : exp r * normalizer (Some r) xs = mass xs.
Proof.
  unfold normalizer, mass. rewrite <- sum_scal. apply sum_ext. intros x _.
  destruct (fst x); simpl; [|ring]. rewrite <- exp_plus. f_equal; ring.
Qed.

Lemma numerator_is_weighted_mass r xs d : exp r * numerator (Some r) xs d = weighted_mass xs d.
Proof.
  unfold numerator, weighted_mass. rewrite <- sum_scal. apply sum_ext. intros x _.
  rewrite <- Rmult_assoc. f_equal.
  destruct (fst x); simpl; [|ring]. rewrite <- exp_plus. f_equal; ring.
Qed.

Lemma attention_is_quotient xs d : attention xs d = weighted_mass xs d / mass xs.
Proof.
  unfold attention, softmax, weighted_mass, Rdiv. rewrite Rmult_comm, <- sum_scal. apply sum_ext.
  intros; ring.
Qed.

Theorem any_reference_output s xs d :
  represents s xs -> greatest xs <> None -> lazy_output s d = attention xs d.
Proof.
  destruct s as [[r l] n]; simpl. intros [-> Hn] H. rewrite attention_is_quotient, Hn.
  rewrite <- (normalizer_is_mass r), <- (numerator_is_weighted_mass r).
  pose proof (mass_pos xs H) as P. rewrite <- (normalizer_is_mass r) in P.
  pose proof (exp_pos r). field. split; [|lra]. intro E. rewrite E in P. lra.
Qed.

Theorem any_reference_lse s xs :
  represents s xs -> greatest xs <> None -> lazy_lse s = ln (mass xs).
Proof.
  destruct s as [[r l] n]; simpl. intros [-> _] H.
  pose proof (mass_pos xs H) as P. rewrite <- (normalizer_is_mass r) in *.
  pose proof (exp_pos r) as E. rewrite ln_mult; auto. now rewrite ln_exp.
  apply Rmult_lt_reg_l with (exp r); auto. now rewrite Rmult_0_r.
Qed.

Theorem absorb_at_represents r' s xs b :
  represents s xs -> represents (absorb_at r' s b) (xs ++ b).
Proof.
  destruct s as [[r l] n]; simpl. intros [-> Hn].
  change (exp (r - r')) with (weight (Some r) (Some r')). split.
  - rewrite normalizer_rebase by discriminate. unfold normalizer. now rewrite sum_app.
  - intro d. rewrite Hn, numerator_rebase by discriminate. unfold numerator. now rewrite sum_app.
Qed.

(* A state moved to any reference stands for the same keys. *)
Theorem rescale_represents r' s xs : represents s xs -> represents (rescale r' s) xs.
Proof.
  intro H. pose proof (absorb_at_represents r' s xs [] H) as A. rewrite app_nil_r in A.
  destruct s as [[r l] n]. unfold absorb_at, rescale, represents, normalizer, numerator in *.
  simpl sum in A. destruct A as [A1 A2]. split.
  - rewrite Rplus_0_r in A1. exact A1.
  - intro d. specialize (A2 d). cbv beta in A2. rewrite Rplus_0_r in A2. exact A2.
Qed.

Theorem merge_at_represents r' s t xs ys :
  represents s xs -> represents t ys -> represents (merge_at r' s t) (xs ++ ys).
Proof.
  destruct s as [[r1 l1] n1], t as [[r2 l2] n2]; simpl. intros [-> H1] [-> H2].
  change (exp (r1 - r')) with (weight (Some r1) (Some r')).
  change (exp (r2 - r')) with (weight (Some r2) (Some r')). split.
  - rewrite !normalizer_rebase by discriminate. unfold normalizer. now rewrite sum_app.
  - intro d. rewrite H1, H2, !numerator_rebase by discriminate.
    unfold numerator. now rewrite sum_app.
Qed.

(* Whatever policy picks the references, the state stands for the keys so far. *)
Theorem lazy_run_represents pol r0 (bs : list (list (key D))) :
  represents (lazy_run pol (r0, 0, fun _ => 0) bs) (concat bs).
Proof.
  assert (G : forall (bs : list (list (key D))) s pre, represents s pre ->
             represents (lazy_run pol s bs) (pre ++ concat bs)).
  { clear. induction bs as [|b bs IH]; intros s pre H; simpl.
    - now rewrite app_nil_r.
    - rewrite app_assoc. apply IH. now apply absorb_at_represents. }
  apply (G bs _ []). simpl. split; auto.
Qed.

Theorem lazy_rescaling_is_exact pol r0 bs row d :
  Permutation (concat bs) row -> greatest row <> None ->
  lazy_output (lazy_run pol (r0, 0, fun _ => 0) bs) d = attention row d /\
  lazy_lse (lazy_run pol (r0, 0, fun _ => 0) bs) = ln (mass row).
Proof.
  intros P H. assert (H' : greatest (concat bs) <> None) by now rewrite (greatest_permutation _ _ P).
  pose proof (lazy_run_represents pol r0 bs) as Rp. split.
  - rewrite (any_reference_output _ _ _ Rp H'), !attention_is_quotient. unfold weighted_mass, mass.
    now rewrite !(sum_permutation _ _ _ P).
  - rewrite (any_reference_lse _ _ Rp H'). unfold mass. now rewrite (sum_permutation _ _ _ P).
Qed.

(* Under the threshold policy no weight exceeds e^tau. *)
Theorem threshold_bounds_exponents tau r0 (bs : list (list (key D))) x a :
  0 <= tau -> In x (concat bs) -> fst x = Some a ->
  a - fst (fst (lazy_run (threshold tau) (r0, 0, fun _ => 0) bs)) <= tau.
Proof.
  intro Ht.
  assert (G : forall (bs : list (list (key D))) s pre,
     (forall x a, In x pre -> fst x = Some a -> a - fst (fst s) <= tau) ->
     forall x a, In x (pre ++ concat bs) -> fst x = Some a ->
       a - fst (fst (lazy_run (threshold tau) s bs)) <= tau).
  { clear x a bs. induction bs as [|b bs IH]; intros s pre H x a; simpl.
    - rewrite app_nil_r. apply H.
    - rewrite app_assoc. apply IH. clear x a. intros x a Hx Ha.
      destruct s as [[r l] n]. cbn [absorb_at threshold fst snd] in *.
      rewrite in_app_iff in Hx. destruct (greatest b) as [mb|] eqn:Eb.
      + destruct Hx as [Hx|Hx].
        * pose proof (H x a Hx Ha) as Hr. destruct (Rle_dec (mb - r) tau); lra.
        * destruct (greatest_ge b x a Hx Ha) as [m [Em Hm]]. rewrite Eb in Em.
          injection Em as <-. destruct (Rle_dec (mb - r) tau); lra.
      + destruct Hx as [Hx|Hx]; [now apply (H x)|].
        rewrite greatest_none in Eb. rewrite (Eb x Hx) in Ha. discriminate. }
  intros Hx Ha. apply (G bs _ []) with (x := x); auto. intros ? ? [].
Qed.

(* While the reference does not pass the greatest score, the normalizer is at least 1. *)
Theorem lazy_normalizer_at_least_one r l n xs m :
  represents (r, l, n) xs -> greatest xs = Some m -> r <= m -> 1 <= l.
Proof.
  intros [-> _] E Hr. destruct (greatest_attained _ _ E) as [x [Hx Ex]].
  apply in_split in Hx. destruct Hx as [l1 [l2 ->]]. unfold normalizer.
  rewrite sum_app. simpl. rewrite Ex. simpl.
  assert (1 <= exp (m - r)).
  { rewrite <- exp_0. destruct (Req_dec m r) as [->|Hn].
    replace (r - r) with 0 by ring. lra. left. apply exp_increasing. lra. }
  assert (P : forall l : list (key D), 0 <= sum (fun x => weight (fst x) (Some r)) l).
  { intro l. apply sum_nonneg. intros y _. destruct (fst y); simpl; [left; apply exp_pos|lra]. }
  pose proof (P l1). pose proof (P l2). lra.
Qed.

End Lazy.
