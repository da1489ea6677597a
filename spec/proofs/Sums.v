(* Finite sums over lists, and the two operations on scores.

   Nothing here is about attention: lemmas that the other files share. *)

Require Import Reals Lra List Permutation FunctionalExtensionality.
From Flashproof Require Import Defs.
Import ListNotations.
Open Scope R_scope.

Lemma sum_app {A} (f : A -> R) xs ys : sum f (xs ++ ys) = sum f xs + sum f ys.
Proof. induction xs as [|x xs IH]; simpl; [ring|rewrite IH; ring]. Qed.

Lemma sum_ext {A} (f g : A -> R) xs :
  (forall x, In x xs -> f x = g x) -> sum f xs = sum g xs.
Proof.
  induction xs as [|x xs IH]; simpl; intro H; [reflexivity|].
  rewrite (H x) by auto. rewrite IH; auto.
Qed.

Lemma sum_scal {A} c (f : A -> R) xs : sum (fun x => c * f x) xs = c * sum f xs.
Proof. induction xs as [|x xs IH]; simpl; [ring|rewrite IH; ring]. Qed.

Lemma sum_permutation {A} (f : A -> R) xs ys : Permutation xs ys -> sum f xs = sum f ys.
Proof. induction 1; simpl; lra. Qed.

Lemma sum_map {A B} (f : B -> R) (g : A -> B) xs :
  sum f (map g xs) = sum (fun x => f (g x)) xs.
Proof. induction xs; simpl; [reflexivity|now rewrite IHxs]. Qed.

Lemma sum_concat {A} (f : A -> R) xss : sum f (concat xss) = sum (sum f) xss.
Proof. induction xss; simpl; [reflexivity|now rewrite sum_app, IHxss]. Qed.

Lemma sum_nonneg {A} (f : A -> R) xs : (forall x, In x xs -> 0 <= f x) -> 0 <= sum f xs.
Proof.
  induction xs as [|x xs IH]; simpl; intro H; [lra|].
  pose proof (H x (or_introl eq_refl)).
  assert (0 <= sum f xs) by (apply IH; auto). lra.
Qed.

Lemma greater_comm a b : greater a b = greater b a.
Proof. destruct a, b; simpl; try reflexivity. now rewrite Rmax_comm. Qed.

Lemma greater_assoc a b c : greater a (greater b c) = greater (greater a b) c.
Proof. destruct a, b, c; simpl; try reflexivity. now rewrite Rmax_assoc. Qed.

Lemma greater_none a b : greater a b = None -> a = None /\ b = None.
Proof. destruct a, b; simpl; intros H; try discriminate; auto. Qed.

Lemma weight_rebase a m m' :
  (m = None -> a = None) -> (m' = None -> m = None) ->
  weight m m' * weight a m = weight a m'.
Proof.
  intros H1 H2. destruct a as [a|], m as [m|], m' as [m'|]; simpl; try ring.
  - rewrite <- exp_plus. f_equal. ring.
  - specialize (H1 eq_refl). discriminate.
Qed.

Lemma weight_self m : m <> None -> weight m m = 1.
Proof.
  destruct m; simpl; intros H; [|congruence].
  replace (r - r) with 0 by ring. apply exp_0.
Qed.
