(* The block theorem over any commutative ring, and the exact model as an instance of it.

   The algebra of online softmax never uses more of the exponential than e^(a+b) = e^a e^b. So it
   holds for any weight with w(m, m') w(a, m) = w(a, m'): for the real exponential, and for powers
   of two with integer scores, where every quantity is a rational number that a program can compute
   and compare with ==. That instance is spec/src/arithmetic/exact.rs, and the numbers that
   Vectors.v computes here are data that the Rust must reproduce. *)

Require Import List Ring ZArith QArith Qpower Qcanon Reals Lra Lia Permutation FunctionalExtensionality.
Import ListNotations.

Section Gen.
Variables (F : Type) (f0 f1 : F) (fadd fmul fsub : F -> F -> F) (fopp : F -> F).
Hypothesis FR : ring_theory f0 f1 fadd fmul fsub fopp (@eq F).
Add Ring Fr : FR.
Infix "+" := fadd. Infix "*" := fmul.
Variables (S : Type) (smax : S -> S -> S) (w : S -> S -> F).
Hypothesis smax_comm : forall a b, smax a b = smax b a.
Hypothesis smax_assoc : forall a b c, smax a (smax b c) = smax (smax a b) c.
Hypothesis w_cocycle : forall a m m', w m m' * w a m = w a m'.
Hypothesis w_refl : forall m, w m m = f1.
Variable D : Type.

Definition ring_state := (option S * F * (D -> F))%type.
Definition ring_key := (option S * (D -> F))%type.
Definition ring_weight (a m : option S) := match a, m with Some a, Some m => w a m | _, _ => f0 end.
Definition ring_greater (a b : option S) :=
  match a, b with None, _ => b | _, None => a | Some a, Some b => Some (smax a b) end.
Definition ring_start : ring_state := (None, f0, fun _ => f0).
Definition ring_merge (a b : ring_state) : ring_state :=
  let '(m1, l1, n1) := a in let '(m2, l2, n2) := b in
  let m := ring_greater m1 m2 in
  (m, ring_weight m1 m * l1 + ring_weight m2 m * l2, fun d => ring_weight m1 m * n1 d + ring_weight m2 m * n2 d).
Fixpoint ring_sum {A} (f : A -> F) (xs : list A) : F :=
  match xs with [] => f0 | x :: r => f x + ring_sum f r end.
Fixpoint ring_greatest (xs : list ring_key) := match xs with [] => None | x :: r => ring_greater (fst x) (ring_greatest r) end.
Definition ring_dense (xs : list ring_key) : ring_state :=
  let m := ring_greatest xs in
  (m, ring_sum (fun x => ring_weight (fst x) m) xs, fun d => ring_sum (fun x => ring_weight (fst x) m * snd x d) xs).

Lemma ring_greater_assoc a b c : ring_greater a (ring_greater b c) = ring_greater (ring_greater a b) c.
Proof. destruct a, b, c; simpl; try reflexivity. now rewrite smax_assoc. Qed.

Lemma ring_greater_None a b : ring_greater a b = None -> a = None /\ b = None.
Proof. destruct a, b; simpl; intro H; try discriminate; auto. Qed.

Lemma ring_weight_rebase a m m' : (m = None -> a = None) -> (m' = None -> m = None) ->
  ring_weight m m' * ring_weight a m = ring_weight a m'.
Proof.
  intros H1 H2. destruct a, m, m'; simpl; try ring. apply w_cocycle.
  discriminate (H1 eq_refl).
Qed.

Lemma ring_sum_app {A} (f : A -> F) xs ys : ring_sum f (xs ++ ys) = ring_sum f xs + ring_sum f ys.
Proof. induction xs; simpl; [ring|]. rewrite IHxs. ring. Qed.

Lemma ring_sum_scal_ext {A} c (f g : A -> F) xs :
  (forall x, In x xs -> c * f x = g x) -> c * ring_sum f xs = ring_sum g xs.
Proof.
  induction xs as [|x xs IH]; simpl; intro H; [ring|].
  rewrite <- (H x), <- IH by auto. ring.
Qed.

Lemma ring_greatest_app xs ys : ring_greatest (xs ++ ys) = ring_greater (ring_greatest xs) (ring_greatest ys).
Proof. induction xs; simpl; [reflexivity|]. now rewrite IHxs, ring_greater_assoc. Qed.

Lemma ring_greatest_None xs x : ring_greatest xs = None -> In x xs -> fst x = None.
Proof.
  induction xs as [|y xs IH]; simpl; [tauto|]. intro H. apply ring_greater_None in H.
  intros [->|]; tauto.
Qed.

Theorem ring_merge_comm a b : ring_merge a b = ring_merge b a.
Proof.
  destruct a as [[m1 l1] n1], b as [[m2 l2] n2]. unfold ring_merge.
  replace (ring_greater m2 m1) with (ring_greater m1 m2)
    by (destruct m1, m2; simpl; try reflexivity; now rewrite smax_comm).
  f_equal; [f_equal; ring|]. apply functional_extensionality; intro; ring.
Qed.

Theorem ring_merge_assoc a b c : ring_merge a (ring_merge b c) = ring_merge (ring_merge a b) c.
Proof.
  destruct a as [[m1 l1] n1], b as [[m2 l2] n2], c as [[m3 l3] n3]. unfold ring_merge.
  rewrite <- ring_greater_assoc. set (M := ring_greater m1 (ring_greater m2 m3)).
  assert (HM : M = None -> m1 = None /\ m2 = None /\ m3 = None).
  { intro H. apply ring_greater_None in H. destruct H as [? H]. apply ring_greater_None in H. tauto. }
  assert (E : forall x y z, (ring_greater x y = None -> z = None) -> (M = None -> ring_greater x y = None) ->
              ring_weight (ring_greater x y) M * ring_weight z (ring_greater x y) = ring_weight z M).
  { intros. now apply ring_weight_rebase. }
  pose proof (ring_greater_None m1 m2) as N12. pose proof (ring_greater_None m2 m3) as N23.
  assert (M12 : M = None -> ring_greater m1 m2 = None) by (intro H; destruct (HM H) as [-> [-> _]]; reflexivity).
  assert (M23 : M = None -> ring_greater m2 m3 = None) by (intro H; destruct (HM H) as [_ [-> ->]]; reflexivity).
  pose proof (E m1 m2 m1 (fun H => proj1 (N12 H)) M12) as A1.
  pose proof (E m1 m2 m2 (fun H => proj2 (N12 H)) M12) as A2.
  pose proof (E m2 m3 m2 (fun H => proj1 (N23 H)) M23) as A3.
  pose proof (E m2 m3 m3 (fun H => proj2 (N23 H)) M23) as A4.
  f_equal; [f_equal|apply functional_extensionality; intro d].
  - transitivity (ring_weight m1 M * l1 + ring_weight m2 M * l2 + ring_weight m3 M * l3).
    rewrite <- A3, <- A4; ring. rewrite <- A1, <- A2; ring.
  - transitivity (ring_weight m1 M * n1 d + ring_weight m2 M * n2 d + ring_weight m3 M * n3 d).
    rewrite <- A3, <- A4; ring. rewrite <- A1, <- A2; ring.
Qed.

Theorem ring_merge_dense xs ys : ring_merge (ring_dense xs) (ring_dense ys) = ring_dense (xs ++ ys).
Proof.
  unfold ring_merge, ring_dense. rewrite <- ring_greatest_app.
  assert (HN : ring_greatest (xs ++ ys) = None -> ring_greatest xs = None /\ ring_greatest ys = None)
    by (rewrite ring_greatest_app; apply ring_greater_None).
  assert (R : forall zs x, (ring_greatest (xs ++ ys) = None -> ring_greatest zs = None) -> In x zs ->
     ring_weight (ring_greatest zs) (ring_greatest (xs ++ ys)) * ring_weight (fst x) (ring_greatest zs) = ring_weight (fst x) (ring_greatest (xs ++ ys))).
  { intros zs x H Hx. apply ring_weight_rebase; auto. intro E. now apply (ring_greatest_None zs). }
  f_equal; [f_equal|apply functional_extensionality; intro d]; rewrite ring_sum_app; f_equal;
    apply ring_sum_scal_ext; intros x Hx.
  - apply R; tauto.
  - apply R; tauto.
  - rewrite <- (R xs x) by tauto. ring.
  - rewrite <- (R ys x) by tauto. ring.
Qed.

Theorem merging_blocks_is_dense_in_a_ring blocks :
  fold_left ring_merge (map ring_dense blocks) (ring_dense []) = ring_dense (concat blocks).
Proof.
  assert (G : forall bs pre, fold_left ring_merge (map ring_dense bs) (ring_dense pre) = ring_dense (pre ++ concat bs)).
  { induction bs as [|b bs IH]; intro pre; cbn [map fold_left concat]; [now rewrite app_nil_r|].
    now rewrite ring_merge_dense, IH, app_assoc. }
  apply (G blocks []).
Qed.

End Gen.

(* ---------- the real exponential ---------- *)

Theorem merging_blocks_is_dense_in_the_reals D (blocks : list (list (ring_key R R D))) :
  let mg := ring_merge R R0 Rplus Rmult R Rmax (fun a m => exp (a - m)) D in
  let dn := ring_dense R R0 Rplus Rmult R Rmax (fun a m => exp (a - m)) D in
  fold_left mg (map dn blocks) (dn []) = dn (concat blocks).
Proof.
  apply merging_blocks_is_dense_in_a_ring with (f1 := R1) (fsub := Rminus) (fopp := Ropp).
  - exact RTheory.
  - intros; apply Rmax_assoc.
  - intros; rewrite <- exp_plus; f_equal; lra.
Qed.

(* ---------- the exact model: integer scores, e = 2, rational numbers ---------- *)

Definition power_weight (a m : Z) : Qc := Q2Qc (Qpower (2#1) (a - m)).
Lemma power_weight_cocycle a m m' : (power_weight m m' * power_weight a m = power_weight a m')%Qc.
Proof.
  unfold power_weight. apply Qc_is_canon. cbn [this Q2Qc Qcmult]. rewrite !Qred_correct.
  rewrite <- Qpower_plus by discriminate. now replace (m - m' + (a - m))%Z with (a - m')%Z by lia.
Qed.


Definition exact_merge := ring_merge Qc 0%Qc Qcplus Qcmult Z Z.max power_weight nat.
Definition exact_dense := ring_dense Qc 0%Qc Qcplus Qcmult Z Z.max power_weight nat.
Theorem merging_blocks_is_dense_in_the_exact_model (blocks : list (list (ring_key Qc Z nat))) :
  fold_left exact_merge (map exact_dense blocks) (exact_dense []) = exact_dense (concat blocks).
Proof.
  apply merging_blocks_is_dense_in_a_ring with (f1 := 1%Qc) (fsub := Qcminus) (fopp := Qcopp).
  - exact Qcrt.
  - intros; apply Z.max_assoc.
  - apply power_weight_cocycle.
Qed.


(* ---------- finished rows and gradients of the exact model ---------- *)

(* Two entries of a value; enough to tell entries from each other. *)
Definition entries (n : nat -> Qc) : list Qc := [n 0%nat; n 1%nat].

(* 2^score *)
Definition power (s : Z) : Qc := power_weight s 0.

(* Output n / l, and 2^L = 2^m l, of which L is the binary logarithm. *)
Definition exact_finish (s : ring_state Qc Z nat) : option ((nat -> Qc) * Qc) :=
  let '(m, l, n) := s in
  match m with
  | None => None
  | Some m => Some (fun d => (n d / l)%Qc, (power m * l)%Qc)
  end.

(* o = sum_k 2^(L_k) o_k / sum_k 2^(L_k), over the parts that see a key. *)
Definition exact_merge_parts (parts : list (option ((nat -> Qc) * Qc))) : option ((nat -> Qc) * Qc) :=
  let seen := flat_map (fun p => match p with Some p => [p] | None => [] end) parts in
  match seen with
  | [] => None
  | _ =>
    let l := ring_sum Qc 0%Qc Qcplus (fun p => snd p) seen in
    Some (fun d => (ring_sum Qc 0%Qc Qcplus (fun p => snd p * fst p d) seen / l)%Qc, l)
  end.

(* A key of the backward pass: score, key and value, two entries each. *)
Record exact_pair := { pair_score : option Z; pair_key : nat -> Qc; pair_value : nat -> Qc }.

Section ExactGradient.
Variables (query d_output : nat -> Qc) (d_lse scale : Qc) (pairs : list exact_pair).

Definition exact_dot (a b : nat -> Qc) : Qc := (a 0%nat * b 0%nat + a 1%nat * b 1%nat)%Qc.

Definition exact_row : option ((nat -> Qc) * Qc) :=
  exact_finish (exact_dense (map (fun p => (pair_score p, pair_value p)) pairs)).

(* p_i = 2^(s_i) / 2^L *)
Definition exact_probability (p : exact_pair) : Qc :=
  match pair_score p, exact_row with
  | Some s, Some (_, mass) => (power s / mass)%Qc
  | _, _ => 0%Qc
  end.

(* D = <dO, o> *)
Definition exact_delta : Qc :=
  match exact_row with Some (o, _) => exact_dot d_output o | None => 0%Qc end.

(* dS_i = p_i (dP_i - D + g) *)
Definition exact_score_gradient (p : exact_pair) : Qc :=
  (exact_probability p * (exact_dot d_output (pair_value p) - exact_delta + d_lse))%Qc.

(* dQ = scale sum_i dS_i k_i *)
Definition exact_query_gradient (d : nat) : Qc :=
  (scale * ring_sum Qc 0%Qc Qcplus (fun p => exact_score_gradient p * pair_key p d) pairs)%Qc.

(* What the row brings to dK_i and dV_i. *)
Definition exact_key_gradient (p : exact_pair) (d : nat) : Qc :=
  (scale * (exact_score_gradient p * query d))%Qc.

Definition exact_value_gradient (p : exact_pair) (d : nat) : Qc :=
  (exact_probability p * d_output d)%Qc.

End ExactGradient.
