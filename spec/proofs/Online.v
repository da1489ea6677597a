(* The online state is a commutative monoid, and any way of going through the keys of a row gives
   the state of the whole row.

   For a kernel author: blocks of any size and number, in any order, skipped where nothing of them
   is seen, absorbed one after another or merged in a tree of any shape, leave the same maximum,
   normalizer and numerator. What differs between such kernels is rounding alone. *)

Require Import Reals Lra List Permutation FunctionalExtensionality.
From Flashproof Require Import Defs Sums.
Import ListNotations.
Open Scope R_scope.

Section Online.
Context {D : Type}.
Implicit Types (xs ys row : list (key D)) (blocks : list (list (key D))).

Lemma state_eq (m m' : option R) (l l' : R) (n n' : vec D) :
  m = m' -> l = l' -> (forall d, n d = n' d) -> (m, l, n) = (m', l', n').
Proof.
  intros -> -> H. f_equal. apply functional_extensionality; intro d. apply H.
Qed.

Theorem merge_comm (a b : state D) : merge a b = merge b a.
Proof.
  destruct a as [[m1 l1] n1], b as [[m2 l2] n2]. unfold merge.
  rewrite (greater_comm m2 m1). apply state_eq; intros; ring || reflexivity.
Qed.

Theorem merge_assoc (a b c : state D) : merge a (merge b c) = merge (merge a b) c.
Proof.
  destruct a as [[m1 l1] n1], b as [[m2 l2] n2], c as [[m3 l3] n3].
  unfold merge. rewrite <- (greater_assoc m1 m2 m3).
  set (M := greater m1 (greater m2 m3)).
  assert (HM : M = None -> m1 = None /\ m2 = None /\ m3 = None).
  { intro H. apply greater_none in H. destruct H as [H1 H].
    apply greater_none in H. tauto. }
  assert (E12 : weight (greater m1 m2) M * weight m1 (greater m1 m2) = weight m1 M).
  { apply weight_rebase; intro H; [apply greater_none in H; tauto|].
    destruct (HM H) as [-> [-> _]]. reflexivity. }
  assert (E12' : weight (greater m1 m2) M * weight m2 (greater m1 m2) = weight m2 M).
  { apply weight_rebase; intro H; [apply greater_none in H; tauto|].
    destruct (HM H) as [-> [-> _]]. reflexivity. }
  assert (E23 : weight (greater m2 m3) M * weight m2 (greater m2 m3) = weight m2 M).
  { apply weight_rebase; intro H; [apply greater_none in H; tauto|].
    destruct (HM H) as [_ [-> ->]]. reflexivity. }
  assert (E23' : weight (greater m2 m3) M * weight m3 (greater m2 m3) = weight m3 M).
  { apply weight_rebase; intro H; [apply greater_none in H; tauto|].
    destruct (HM H) as [_ [-> ->]]. reflexivity. }
  apply state_eq; [reflexivity| |intro d].
  - rewrite !Rmult_plus_distr_l, <- !Rmult_assoc, E12, E12', E23, E23'. ring.
  - rewrite !Rmult_plus_distr_l, <- !Rmult_assoc, E12, E12', E23, E23'. ring.
Qed.

Theorem merge_start_left (s : state D) : well_formed s -> merge start s = s.
Proof.
  destruct s as [[m l] n]; unfold well_formed, merge, start; intro W. destruct m as [m|]; simpl.
  - replace (m - m) with 0 by ring. rewrite exp_0.
    apply state_eq; intros; ring || reflexivity.
  - destruct (W eq_refl) as [-> Hn].
    apply state_eq; intros; rewrite ?Hn; ring || reflexivity.
Qed.

Theorem merge_start_right (s : state D) : well_formed s -> merge s start = s.
Proof. intro W. rewrite merge_comm. now apply merge_start_left. Qed.

Theorem merge_well_formed (a b : state D) : well_formed (merge a b).
Proof.
  destruct a as [[m1 l1] n1], b as [[m2 l2] n2]. unfold merge, well_formed.
  intro H. apply greater_none in H. destruct H as [-> ->]. simpl.
  split; [ring| intro; ring].
Qed.

Lemma greatest_app xs ys : greatest (xs ++ ys) = greater (greatest xs) (greatest ys).
Proof. induction xs; simpl; [reflexivity|]. now rewrite IHxs, greater_assoc. Qed.

Lemma greatest_permutation xs ys : Permutation xs ys -> greatest xs = greatest ys.
Proof.
  induction 1; simpl; try congruence.
  rewrite !greater_assoc. f_equal. apply greater_comm.
Qed.

Lemma greatest_none xs : greatest xs = None <-> (forall x, In x xs -> fst x = None).
Proof.
  induction xs as [|x xs IH]; simpl; [tauto|]. split.
  - intros H y [->|Hy]; apply greater_none in H; [tauto|]. apply IH; tauto.
  - intro H. rewrite (H x) by auto. simpl. apply IH. auto.
Qed.

Lemma greatest_ge xs x a : In x xs -> fst x = Some a ->
  exists m, greatest xs = Some m /\ a <= m.
Proof.
  induction xs as [|y xs IH]; simpl; [tauto|]. intros [->|Hx] Ha.
  - rewrite Ha. destruct (greatest xs) as [r|]; simpl; eexists; split; eauto.
    apply Rmax_l. lra.
  - destruct (IH Hx Ha) as [m [-> Hm]]. destruct (fst y); simpl; eexists; split; eauto.
    apply Rle_trans with m; auto. apply Rmax_r.
Qed.

Lemma greatest_attained xs m : greatest xs = Some m -> exists x, In x xs /\ fst x = Some m.
Proof.
  revert m; induction xs as [|y xs IH]; simpl; [discriminate|]. intros m H.
  destruct (fst y) as [a|] eqn:Ey, (greatest xs) as [b|] eqn:Eb; simpl in H.
  - injection H as <-. unfold Rmax. destruct (Rle_dec a b).
    + destruct (IH b eq_refl) as [x [? ?]]. exists x; auto.
    + exists y; auto.
  - injection H as <-. exists y; auto.
  - injection H as <-. destruct (IH b eq_refl) as [x [? ?]]. exists x; auto.
  - discriminate.
Qed.

Lemma normalizer_rebase m m' xs :
  (m = None -> greatest xs = None) -> (m' = None -> m = None) ->
  weight m m' * normalizer m xs = normalizer m' xs.
Proof.
  intros H1 H2. unfold normalizer. rewrite <- sum_scal. apply sum_ext.
  intros x Hx. apply weight_rebase; auto. intro E. apply (greatest_none xs); auto.
Qed.

Lemma numerator_rebase m m' xs d :
  (m = None -> greatest xs = None) -> (m' = None -> m = None) ->
  weight m m' * numerator m xs d = numerator m' xs d.
Proof.
  intros H1 H2. unfold numerator. rewrite <- sum_scal. apply sum_ext.
  intros x Hx. rewrite <- Rmult_assoc. f_equal.
  apply weight_rebase; auto. intro E. apply (greatest_none xs); auto.
Qed.

Lemma dense_well_formed xs : well_formed (dense xs).
Proof.
  unfold dense, well_formed. intro H. rewrite H. unfold normalizer, numerator. split.
  - rewrite <- (sum_ext (fun _ => 0 * 0)). rewrite sum_scal; ring.
    intros x _. destruct (fst x); simpl; ring.
  - intro d. rewrite <- (sum_ext (fun _ => 0 * 0)). rewrite sum_scal; ring.
    intros x _. destruct (fst x); simpl; ring.
Qed.

Theorem merge_dense xs ys : merge (dense xs) (dense ys) = dense (xs ++ ys).
Proof.
  unfold merge, dense. rewrite <- greatest_app.
  assert (HN : greatest (xs ++ ys) = None -> greatest xs = None /\ greatest ys = None).
  { rewrite greatest_app. apply greater_none. }
  apply state_eq; [reflexivity| |intro d].
  - rewrite !normalizer_rebase by tauto. unfold normalizer. now rewrite sum_app.
  - rewrite !numerator_rebase by tauto. unfold numerator. now rewrite sum_app.
Qed.

Theorem dense_permutation xs ys : Permutation xs ys -> dense xs = dense ys.
Proof.
  intro P. unfold dense. rewrite (greatest_permutation _ _ P). unfold normalizer, numerator.
  apply state_eq; intros; [reflexivity | |]; now apply sum_permutation.
Qed.

Theorem dense_nil : dense ([] : list (key D)) = start.
Proof. reflexivity. Qed.

Theorem dense_masked xs : (forall x, In x xs -> fst x = None) -> dense xs = start.
Proof.
  intro H. pose proof (dense_well_formed xs) as W. apply greatest_none in H.
  unfold dense in *. simpl in W. destruct (W H) as [E1 E2]. unfold start.
  rewrite E1. apply state_eq; auto.
Qed.

Theorem absorb_is_merge (s : state D) (b : list (key D)) : absorb s b = merge s (dense b).
Proof.
  destruct s as [[m l] n]. unfold absorb, merge, dense.
  assert (HN : greater m (greatest b) = None -> greatest b = None).
  { intro H; apply greater_none in H; tauto. }
  apply state_eq; [reflexivity| |intro d].
  - now rewrite normalizer_rebase.
  - now rewrite numerator_rebase.
Qed.

Theorem absorbing_blocks_is_dense blocks : fold_left absorb blocks start = dense (concat blocks).
Proof.
  assert (G : forall (bs : list (list (key D))) s pre, s = dense pre ->
             fold_left absorb bs s = dense (pre ++ concat bs)).
  { induction bs as [|b bs IH]; intros s pre E; simpl.
    - now rewrite app_nil_r.
    - rewrite (IH _ (pre ++ b)). now rewrite app_assoc.
      rewrite absorb_is_merge, E. apply merge_dense. }
  apply (G blocks start []). reflexivity.
Qed.

Theorem any_partition_is_dense blocks row :
  Permutation (concat blocks) row -> fold_left absorb blocks start = dense row.
Proof. intro P. rewrite absorbing_blocks_is_dense. now apply dense_permutation. Qed.

Theorem masked_block_changes_nothing (s : state D) (b : list (key D)) :
  well_formed s -> (forall x, In x b -> fst x = None) -> absorb s b = s.
Proof. intros W H. rewrite absorb_is_merge, dense_masked by auto. now apply merge_start_right. Qed.

Theorem any_tree_is_dense (t : tree D) row : Permutation (tree_keys t) row -> tree_state t = dense row.
Proof.
  intro P. rewrite <- (dense_permutation _ _ P). clear P.
  induction t; simpl; [reflexivity|]. now rewrite IHt1, IHt2, merge_dense.
Qed.

End Online.
