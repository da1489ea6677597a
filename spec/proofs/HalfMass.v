(* The half-mass lemma, the root of every stated error bound: however n numbers are added, in
   whatever order and along whatever tree, rounding moves the sum by at most
   ((1 + u)^(n-1) - 1) H, with H = (sum |x_i| + |sum x_i|) / 2; and where no number passes through
   more than h additions, by at most ((1 + u)^h - 1) sum |x_i|.

   The model: a rounded sum of two numbers of the format is (a + b)(1 + e) with |e| <= u. It is
   stated first for any such rounding, then shown of binary32 and binary64 with gradual underflow
   and without overflow. For a kernel author: no summation order, warp shuffle or split of a
   normalizer, dot product or gradient can leave this bound; what exceeds it is no rounding.
   Products that are rounded before they are added, and fused ones, are not part of it. *)

Require Import Reals Lra Lia List Permutation.
From Flocq Require Import Core Relative Plus_error.
From Flashproof Require Import Defs Sums.
Import ListNotations.
Open Scope R_scope.

(* A way to add the numbers at its leaves. *)
Inductive addition := Number (x : R) | Add (left right : addition).

Fixpoint numbers (t : addition) : list R :=
  match t with Number x => [x] | Add l r => numbers l ++ numbers r end.

(* The longest chain of additions that a number passes through. *)
Fixpoint depth (t : addition) : nat :=
  match t with Number _ => O | Add l r => S (Nat.max (depth l) (depth r)) end.

Definition total (xs : list R) : R := sum (fun x => x) xs.
Definition absolute_total (xs : list R) : R := sum Rabs xs.
Definition half_mass (xs : list R) : R := (absolute_total xs + Rabs (total xs)) / 2.

(* Every partial sum that the tree forms, exactly. *)
Fixpoint partial_sums_within (c : R) (t : addition) : Prop :=
  Rabs (total (numbers t)) <= c /\
  match t with Number _ => True | Add l r => partial_sums_within c l /\ partial_sums_within c r end.

Lemma total_app xs ys : total (xs ++ ys) = total xs + total ys.
Proof. apply sum_app. Qed.

Lemma absolute_total_app xs ys : absolute_total (xs ++ ys) = absolute_total xs + absolute_total ys.
Proof. apply sum_app. Qed.

Lemma total_within_absolute xs : Rabs (total xs) <= absolute_total xs.
Proof.
  induction xs as [|x xs IH]; unfold total, absolute_total in *; simpl; [rewrite Rabs_R0; lra|].
  eapply Rle_trans; [apply Rabs_triang|]. lra.
Qed.

(* The sum of any of the numbers is at most H: what is left out can cancel it only as far as the
   whole sum allows. *)
Theorem subset_sum_within_half_mass chosen rest :
  Rabs (total chosen) <= half_mass (chosen ++ rest).
Proof.
  unfold half_mass. rewrite total_app, absolute_total_app.
  pose proof (total_within_absolute chosen). pose proof (total_within_absolute rest).
  pose proof (Rabs_triang (total chosen + total rest) (- total rest)).
  rewrite Rabs_Ropp in H1. replace (total chosen + total rest + - total rest) with (total chosen) in H1
    by ring. lra.
Qed.

Lemma half_mass_permutation xs ys : Permutation xs ys -> half_mass xs = half_mass ys.
Proof.
  intro P. unfold half_mass, absolute_total, total. now rewrite !(sum_permutation _ _ _ P).
Qed.

Theorem partial_sums_within_half_mass t : partial_sums_within (half_mass (numbers t)) t.
Proof.
  assert (G : forall t rest, partial_sums_within (half_mass (numbers t ++ rest)) t).
  { clear t. induction t as [x|l IHl r IHr]; intro rest; simpl.
    - split; [|exact I]. exact (subset_sum_within_half_mass [x] rest).
    - repeat split.
      + apply subset_sum_within_half_mass.
      + rewrite <- app_assoc. apply IHl.
      + rewrite (half_mass_permutation _ (numbers r ++ (numbers l ++ rest))); [apply IHr|].
        rewrite <- app_assoc. rewrite !app_assoc. apply Permutation_app_tail, Permutation_app_comm. }
  rewrite <- (app_nil_r (numbers t)) at 1. apply G.
Qed.

(* ---------- any rounding of the standard model ---------- *)

Section StandardModel.
Variable u : R.
Variable representable : R -> Prop.
Variable rounded : R -> R.
Hypothesis u_nonneg : 0 <= u.
Hypothesis rounded_representable : forall x, representable (rounded x).
Hypothesis addition_model : forall a b, representable a -> representable b ->
  exists e, Rabs e <= u /\ rounded (a + b) = (a + b) * (1 + e).

Fixpoint computed_sum (t : addition) : R :=
  match t with Number x => x | Add l r => rounded (computed_sum l + computed_sum r) end.

Lemma computed_sum_representable t :
  (forall x, In x (numbers t) -> representable x) -> representable (computed_sum t).
Proof. destruct t; simpl; intro H; [apply H; now left | apply rounded_representable]. Qed.

Lemma numbers_nonempty t : (1 <= length (numbers t))%nat.
Proof. induction t; simpl; [lia|]. rewrite app_length. lia. Qed.

Lemma computed_sum_error c t : 0 <= c -> partial_sums_within c t ->
  (forall x, In x (numbers t) -> representable x) ->
  Rabs (computed_sum t - total (numbers t)) <= ((1 + u) ^ (length (numbers t) - 1) - 1) * c.
Proof.
  intro Hc. induction t as [x|l IHl r IHr]; simpl; intros Hp Hr.
  - unfold total; simpl. replace (x - (x + 0)) with 0 by ring. rewrite Rabs_R0. lra.
  - destruct Hp as [Hs [Hl Hrr]].
    assert (Rl : forall x, In x (numbers l) -> representable x) by (intros; apply Hr, in_app_iff; tauto).
    assert (Rr : forall x, In x (numbers r) -> representable x) by (intros; apply Hr, in_app_iff; tauto).
    specialize (IHl Hl Rl). specialize (IHr Hrr Rr).
    destruct (addition_model _ _ (computed_sum_representable l Rl) (computed_sum_representable r Rr))
      as [e [He ->]].
    rewrite app_length. pose proof (numbers_nonempty l). pose proof (numbers_nonempty r).
    set (a := (length (numbers l) - 1)%nat) in *. set (b := (length (numbers r) - 1)%nat) in *.
    replace (length (numbers l) + length (numbers r) - 1)%nat with (S (a + b)) by (unfold a, b; lia).
    rewrite total_app in *. set (L := total (numbers l)) in *. set (R0 := total (numbers r)) in *.
    set (El := computed_sum l - L) in *. set (Er := computed_sum r - R0) in *.
    replace ((computed_sum l + computed_sum r) * (1 + e) - (L + R0))
      with ((El + Er) * (1 + e) + (L + R0) * e) by (unfold El, Er; ring).
    simpl pow. rewrite pow_add.
    set (A := (1 + u) ^ a) in *. set (B := (1 + u) ^ b) in *.
    assert (HA : 1 <= A) by (apply pow_R1_Rle; lra).
    assert (HB : 1 <= B) by (apply pow_R1_Rle; lra).
    assert (H1e : Rabs (1 + e) <= 1 + u).
    { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_R1. lra. }
    eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
    assert (T1 : Rabs (El + Er) * Rabs (1 + e) <= ((A - 1) * c + (B - 1) * c) * (1 + u)).
    { apply Rmult_le_compat; auto using Rabs_pos.
      eapply Rle_trans; [apply Rabs_triang|]. lra. }
    assert (T2 : Rabs (L + R0) * Rabs e <= c * u) by (apply Rmult_le_compat; auto using Rabs_pos).
    assert (0 <= (A - 1) * (B - 1) * ((1 + u) * c)).
    { apply Rmult_le_pos; apply Rmult_le_pos; lra. }
    lra.
Qed.

Theorem half_mass_bound t :
  (forall x, In x (numbers t) -> representable x) ->
  Rabs (computed_sum t - total (numbers t))
  <= ((1 + u) ^ (length (numbers t) - 1) - 1) * half_mass (numbers t).
Proof.
  intro Hr. apply computed_sum_error; auto using partial_sums_within_half_mass.
  unfold half_mass, absolute_total.
  pose proof (Rabs_pos (total (numbers t))).
  pose proof (sum_nonneg Rabs (numbers t) (fun x _ => Rabs_pos x)). lra.
Qed.

(* The other bound: a tree of few additions in a chain, such as a warp's reduction. *)
Theorem depth_bound t :
  (forall x, In x (numbers t) -> representable x) ->
  Rabs (computed_sum t - total (numbers t))
  <= ((1 + u) ^ depth t - 1) * absolute_total (numbers t).
Proof.
  induction t as [x|l IHl r IHr]; simpl; intro Hr.
  - unfold total; simpl. replace (x - (x + 0)) with 0 by ring. rewrite Rabs_R0. lra.
  - assert (Rl : forall x, In x (numbers l) -> representable x) by (intros; apply Hr, in_app_iff; tauto).
    assert (Rr : forall x, In x (numbers r) -> representable x) by (intros; apply Hr, in_app_iff; tauto).
    specialize (IHl Rl). specialize (IHr Rr).
    destruct (addition_model _ _ (computed_sum_representable l Rl) (computed_sum_representable r Rr))
      as [e [He ->]].
    rewrite total_app, absolute_total_app.
    pose proof (total_within_absolute (numbers l)) as Tl.
    pose proof (total_within_absolute (numbers r)) as Tr.
    assert (Pl : (1 + u) ^ depth l <= (1 + u) ^ Nat.max (depth l) (depth r))
      by (apply Rle_pow; [lra | apply Nat.le_max_l]).
    assert (Pr : (1 + u) ^ depth r <= (1 + u) ^ Nat.max (depth l) (depth r))
      by (apply Rle_pow; [lra | apply Nat.le_max_r]).
    set (G := (1 + u) ^ Nat.max (depth l) (depth r)) in *.
    assert (HG : 1 <= G) by (apply pow_R1_Rle; lra).
    set (L := total (numbers l)) in *. set (R0 := total (numbers r)) in *.
    set (al := absolute_total (numbers l)) in *. set (ar := absolute_total (numbers r)) in *.
    assert (0 <= al) by (eapply Rle_trans; [apply Rabs_pos | exact Tl]).
    assert (0 <= ar) by (eapply Rle_trans; [apply Rabs_pos | exact Tr]).
    assert (IHl' : Rabs (computed_sum l - L) <= (G - 1) * al).
    { eapply Rle_trans; [exact IHl|]. apply Rmult_le_compat_r; lra. }
    assert (IHr' : Rabs (computed_sum r - R0) <= (G - 1) * ar).
    { eapply Rle_trans; [exact IHr|]. apply Rmult_le_compat_r; lra. }
    set (El := computed_sum l - L) in *. set (Er := computed_sum r - R0) in *.
    replace ((computed_sum l + computed_sum r) * (1 + e) - (L + R0))
      with ((El + Er) * (1 + e) + (L + R0) * e) by (unfold El, Er; ring).
    assert (H1e : Rabs (1 + e) <= 1 + u).
    { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_R1. lra. }
    eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
    assert (T1 : Rabs (El + Er) * Rabs (1 + e) <= ((G - 1) * al + (G - 1) * ar) * (1 + u)).
    { apply Rmult_le_compat; auto using Rabs_pos.
      eapply Rle_trans; [apply Rabs_triang|]. lra. }
    assert (T2 : Rabs (L + R0) * Rabs e <= (al + ar) * u).
    { apply Rmult_le_compat; auto using Rabs_pos.
      eapply Rle_trans; [apply Rabs_triang|]. lra. }
    lra.
Qed.

End StandardModel.

(* ---------- binary32 and binary64 ---------- *)

Section Binary.
(* The smallest exponent and the precision of a format with gradual underflow. *)
Variables emin prec : Z.
Context {precision_positive : Prec_gt_0 prec}.

Definition rounded_to (x : R) : R := round radix2 (FLT_exp emin prec) ZnearestE x.
Definition is_number (x : R) : Prop := generic_format radix2 (FLT_exp emin prec) x.
Definition unit_roundoff : R := / 2 * bpow radix2 (- prec + 1).

Lemma addition_within_unit_roundoff a b : is_number a -> is_number b ->
  exists e, Rabs e <= unit_roundoff /\ rounded_to (a + b) = (a + b) * (1 + e).
Proof.
  intros Ha Hb.
  destruct (FLT_plus_error_N_ex radix2 emin prec (fun t => negb (Z.even t)) a b Ha Hb) as [e [He E]].
  exists e; split; [|exact E]. apply Rle_trans with (1 := He).
  apply u_rod1pu_ro_le_u_ro.
Qed.

Theorem half_mass_bound_binary t :
  (forall x, In x (numbers t) -> is_number x) ->
  Rabs (computed_sum rounded_to t - total (numbers t))
  <= ((1 + unit_roundoff) ^ (length (numbers t) - 1) - 1) * half_mass (numbers t).
Proof.
  apply (half_mass_bound unit_roundoff is_number rounded_to).
  - unfold unit_roundoff. pose proof (bpow_ge_0 radix2 (- prec + 1)). lra.
  - intro x. apply generic_format_round; typeclasses eauto.
  - exact addition_within_unit_roundoff.
Qed.

End Binary.

Theorem half_mass_binary32 t :
  (forall x, In x (numbers t) -> is_number (-149) 24 x) ->
  Rabs (computed_sum (rounded_to (-149) 24) t - total (numbers t))
  <= ((1 + / 2 ^ 24) ^ (length (numbers t) - 1) - 1) * half_mass (numbers t).
Proof.
  intro H. pose proof (@half_mass_bound_binary (-149) 24 eq_refl t H) as T.
  unfold unit_roundoff in T. replace (/ 2 ^ 24) with (/ 2 * bpow radix2 (-24 + 1)); [exact T|].
  simpl. lra.
Qed.

Theorem half_mass_binary64 t :
  (forall x, In x (numbers t) -> is_number (-1074) 53 x) ->
  Rabs (computed_sum (rounded_to (-1074) 53) t - total (numbers t))
  <= ((1 + / 2 ^ 53) ^ (length (numbers t) - 1) - 1) * half_mass (numbers t).
Proof.
  intro H. pose proof (@half_mass_bound_binary (-1074) 53 eq_refl t H) as T.
  unfold unit_roundoff in T. replace (/ 2 ^ 53) with (/ 2 * bpow radix2 (-53 + 1)); [exact T|].
  simpl. lra.
Qed.
