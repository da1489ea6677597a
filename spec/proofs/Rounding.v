(* What rounding costs the online recurrence in binary32.

   Rounding to nearest, ties to even, with gradual underflow; overflow is excluded, since Flocq's
   formats have no largest number. For a kernel author: one step x' = fl(fl(a x) + b) with an
   inexact factor a, such as a rescaling by e^(m - m'), multiplies the relative error by
   (1 + eps)(1 + u)^2 and no more, and steps multiply. *)

Require Import Reals Lra Lia List ZArith.
From Flocq Require Import Core Relative Plus_error.
Import ListNotations.
Open Scope R_scope.

Definition fexp32 := FLT_exp (-149) 24.
(* Rounded to binary32. *)
Definition RN (x : R) := round radix2 fexp32 ZnearestE x.
(* Is a binary32 number. *)
Definition F32 (x : R) := generic_format radix2 fexp32 x.
(* The unit roundoff, 2^-24. *)
Definition u := / 16777216.
(* Half the smallest subnormal, 2^-150. *)
Definition eta := / 2 * bpow radix2 (-149).

#[global] Instance prec24 : Prec_gt_0 24. Proof. unfold Prec_gt_0; lia. Qed.

Lemma u_pos : 0 < u. Proof. unfold u; lra. Qed.

Lemma rounding_is_binary32 x : F32 (RN x).
Proof. apply generic_format_round; typeclasses eauto. Qed.

Lemma rounding_errs_by x : exists e h, Rabs e <= u /\ Rabs h <= eta /\ RN x = x * (1 + e) + h.
Proof.
  destruct (error_N_FLT radix2 (-149) 24 (refl_equal _) (fun t => negb (Z.even t)) x)
    as [e [h [He [Hh [_ E]]]]].
  exists e, h. repeat split; auto. revert He. unfold u. simpl. lra.
Qed.

Lemma addition_errs_by x y : F32 x -> F32 y -> exists e, Rabs e <= u /\ RN (x + y) = (x + y) * (1 + e).
Proof.
  intros Hx Hy.
  destruct (FLT_plus_error_N_ex radix2 (-149) 24 (fun t => negb (Z.even t)) x y Hx Hy) as [e [He E]].
  exists e; split; [|exact E]. apply Rle_trans with (1 := He).
  apply Rle_trans with (1 := u_rod1pu_ro_le_u_ro radix2 24). unfold u_ro, u. simpl. lra.
Qed.

(* ---------- products of roundings ---------- *)

Lemma product_deviation p P q Q : Rabs (p - 1) <= P - 1 -> Rabs (q - 1) <= Q - 1 ->
  Rabs (p * q - 1) <= P * Q - 1.
Proof.
  intros Hp Hq. replace (p * q - 1) with ((p - 1) * (q - 1) + (p - 1) + (q - 1)) by ring.
  pose proof (Rabs_triang ((p-1)*(q-1) + (p-1)) (q-1)).
  pose proof (Rabs_triang ((p-1)*(q-1)) (p-1)).
  pose proof (Rabs_mult (p-1) (q-1)).
  pose proof (Rabs_pos (p-1)). pose proof (Rabs_pos (q-1)).
  assert (Rabs (p-1) * Rabs (q-1) <= (P-1)*(Q-1)) by (apply Rmult_le_compat; lra). lra.
Qed.

Lemma deviation_bounds p P : Rabs (p - 1) <= P - 1 -> Rabs p <= P.
Proof. intro H. pose proof (Rabs_triang (p-1) 1). rewrite Rabs_R1 in H0.
  replace (p - 1 + 1) with p in H0 by ring. lra. Qed.

Theorem chain_of_roundings (es : list R) :
  (forall e, In e es -> Rabs e <= u) ->
  Rabs (fold_right (fun e p => (1 + e) * p) 1 es - 1) <= (1 + u) ^ length es - 1.
Proof.
  induction es as [|e es IH]; simpl; intro H.
  - rewrite Rminus_eq_0, Rabs_R0. lra.
  - apply product_deviation; [|auto]. replace (1 + e - 1) with e by ring.
    replace (1 + u - 1) with u by ring. auto.
Qed.

Theorem gamma_bound k : INR k * u < 1 -> (1 + u) ^ k - 1 <= INR k * u / (1 - INR k * u).
Proof.
  pose proof u_pos as Hu. intro H.
  assert (G : forall j, INR j * u < 1 -> (1 + u) ^ j * (1 - INR j * u) <= 1).
  { induction j; intro Hj; [simpl; lra|]. rewrite S_INR in *. simpl pow.
    assert (Hj' : INR j * u < 1) by lra. specialize (IHj Hj').
    assert (0 < (1 + u) ^ j) by (apply pow_lt; lra). pose proof (pos_INR j).
    apply Rle_trans with ((1 + u) ^ j * (1 - INR j * u)); auto.
    replace ((1 + u) * (1 + u) ^ j * (1 - (INR j + 1) * u))
      with ((1 + u) ^ j * ((1 + u) * (1 - (INR j + 1) * u))) by ring.
    apply Rmult_le_compat_l; [lra|].
    assert (0 <= INR j * u * u) by (apply Rmult_le_pos; [apply Rmult_le_pos|]; lra).
    assert (0 <= u * u) by (apply Rmult_le_pos; lra). lra. }
  specialize (G k H). apply Rmult_le_reg_r with (1 - INR k * u); [lra|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

(* Sums one after another. *)
Theorem recursive_sum_error (xs : list R) : (forall x, In x xs -> F32 x) ->
  Rabs (fold_right (fun x s => RN (x + s)) 0 xs - fold_right Rplus 0 xs)
  <= ((1 + u) ^ length xs - 1) * fold_right (fun x s => Rabs x + s) 0 xs.
Proof.
  assert (F0 : F32 0) by apply generic_format_0.
  assert (FS : forall xs, F32 (fold_right (fun x s => RN (x + s)) 0 xs)).
  { intros [|]; simpl; auto using rounding_is_binary32. }
  pose proof u_pos as Hu.
  induction xs as [|x xs IH]; simpl; intro H.
  - rewrite Rminus_0_r, Rabs_R0. lra.
  - assert (Hxs : forall y, In y xs -> F32 y) by auto. specialize (IH Hxs).
    destruct (addition_errs_by x _ (H x (or_introl eq_refl)) (FS xs)) as [e [He ->]].
    set (sh := fold_right (fun x s => RN (x + s)) 0 xs) in *.
    set (s := fold_right Rplus 0 xs) in *.
    set (sa := fold_right (fun x s => Rabs x + s) 0 xs) in *.
    set (G := (1 + u) ^ length xs) in *.
    assert (HG : 1 <= G) by (apply pow_R1_Rle; lra).
    assert (Hs : Rabs s <= sa).
    { unfold s, sa. clear. induction xs; simpl; [rewrite Rabs_R0; lra|].
      eapply Rle_trans; [apply Rabs_triang|]. lra. }
    replace ((x + sh) * (1 + e) - (x + s)) with (x * e + ((sh - s) * (1 + e) + s * e)) by ring.
    eapply Rle_trans; [apply Rabs_triang|].
    eapply Rle_trans; [apply Rplus_le_compat_l, Rabs_triang|].
    rewrite !Rabs_mult.
    assert (Rabs (1 + e) <= 1 + u).
    { eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_R1. lra. }
    pose proof (Rabs_pos x). pose proof (Rabs_pos (sh - s)). pose proof (Rabs_pos s).
    pose proof (Rabs_pos e). pose proof (Rabs_pos (1 + e)).
    assert (Rabs x * Rabs e <= Rabs x * u) by (apply Rmult_le_compat_l; lra).
    assert (Rabs (sh - s) * Rabs (1 + e) <= ((G - 1) * sa) * (1 + u)) by (apply Rmult_le_compat; lra).
    assert (Rabs s * Rabs e <= sa * u) by (apply Rmult_le_compat; lra).
    assert (0 <= Rabs x * (u * (G - 1) + (G - 1))).
    { apply Rmult_le_pos; [lra|]. apply Rplus_le_le_0_compat; [apply Rmult_le_pos|]; lra. }
    nra.
Qed.

(* ---------- one step: fl(fl(ah xh) + bh) beside a x + b ---------- *)

Lemma relative_error a ah eps : 0 <= a -> 0 <= eps -> Rabs (ah - a) <= eps * a ->
  exists d, Rabs d <= eps /\ ah = a * (1 + d).
Proof.
  intros Ha He H. destruct (Req_dec a 0) as [->|Hn].
  - exists 0. rewrite Rabs_R0. split; [lra|].
    rewrite Rmult_0_r, Rminus_0_r in H. pose proof (Rabs_pos ah).
    assert (Rabs ah = 0) by lra. apply Rabs_eq_R0 in H1. lra.
  - exists ((ah - a) / a). split; [|field; auto].
    unfold Rdiv. rewrite Rabs_mult, Rabs_inv, (Rabs_pos_eq a) by auto.
    apply Rmult_le_reg_r with a; [lra|]. rewrite Rmult_assoc, Rinv_l by auto. lra.
Qed.

Theorem rescale_add_step a ah x xh X b bh B E eps kap :
  0 <= a -> 0 <= eps -> 0 <= E -> Rabs (ah - a) <= eps * a ->
  Rabs x <= X -> Rabs (xh - x) <= E * X ->
  Rabs b <= B -> Rabs (bh - b) <= E * B -> F32 bh ->
  eta <= kap * (a * X + B) ->
  Rabs (RN (RN (ah * xh) + bh) - (a * x + b))
  <= ((1 + E) * ((1 + eps) * (1 + u) ^ 2) + kap * (1 + u) - 1) * (a * X + B).
Proof.
  intros Ha Heps HE Hah HX Hx HB Hb Fb Hk.
  pose proof u_pos as Hu.
  destruct (relative_error a ah eps Ha Heps Hah) as [d [Hd Eah]].
  destruct (rounding_errs_by (ah * xh)) as [e1 [h [He1 [Hh E1]]]].
  destruct (addition_errs_by (RN (ah * xh)) bh (rounding_is_binary32 _) Fb) as [e2 [He2 ->]].
  rewrite E1, Eah.
  assert (D : forall z v, Rabs z <= v -> Rabs (1 + z - 1) <= 1 + v - 1).
  { intros z v Hz. replace (1 + z - 1) with z by ring. lra. }
  set (p := (1 + d) * ((1 + e1) * (1 + e2))).
  set (G := (1 + eps) * (1 + u) ^ 2).
  assert (Hp : Rabs (p - 1) <= G - 1).
  { unfold p, G. simpl pow. rewrite Rmult_1_r.
    apply product_deviation; [auto|]. apply product_deviation; auto. }
  pose proof (deviation_bounds _ _ Hp) as Hp'.
  assert (H2 : Rabs (1 + e2) <= 1 + u) by (apply deviation_bounds; auto).
  assert (HX0 : 0 <= X) by (apply Rle_trans with (2 := HX); apply Rabs_pos).
  assert (HB0 : 0 <= B) by (apply Rle_trans with (2 := HB); apply Rabs_pos).
  replace ((a * (1 + d) * xh * (1 + e1) + h + bh) * (1 + e2) - (a * x + b))
    with (a * (p * (xh - x) + (p - 1) * x) + ((bh - b) * (1 + e2) + b * e2) + h * (1 + e2))
    by (unfold p; ring).
  eapply Rle_trans; [apply Rabs_triang|].
  eapply Rle_trans; [apply Rplus_le_compat_r, Rabs_triang|].
  (* part 1 *)
  assert (T1 : Rabs (a * (p * (xh - x) + (p - 1) * x)) <= a * (((1 + E) * G - 1) * X)).
  { rewrite Rabs_mult, (Rabs_pos_eq a) by auto. apply Rmult_le_compat_l; auto.
    eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
    assert (Rabs p * Rabs (xh - x) <= G * (E * X)) by (apply Rmult_le_compat; auto using Rabs_pos).
    assert (Rabs (p - 1) * Rabs x <= (G - 1) * X) by (apply Rmult_le_compat; auto using Rabs_pos).
    lra. }
  assert (HG : 1 + u <= G).
  { unfold G. simpl pow. assert (0 <= u * u) by (apply Rmult_le_pos; lra).
    assert (0 <= eps * (u * u)) by (apply Rmult_le_pos; lra).
    assert (0 <= eps * u) by (apply Rmult_le_pos; lra). lra. }
  assert (T2 : Rabs ((bh - b) * (1 + e2) + b * e2) <= ((1 + E) * G - 1) * B).
  { eapply Rle_trans; [apply Rabs_triang|]. rewrite !Rabs_mult.
    assert (Rabs (bh - b) * Rabs (1 + e2) <= (E * B) * (1 + u)) by (apply Rmult_le_compat; auto using Rabs_pos).
    assert (Rabs b * Rabs e2 <= B * u) by (apply Rmult_le_compat; auto using Rabs_pos).
    assert (0 <= (G - (1 + u)) * ((1 + E) * B)).
    { apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; lra. } lra. }
  assert (T3 : Rabs (h * (1 + e2)) <= kap * (1 + u) * (a * X + B)).
  { rewrite Rabs_mult. assert (Rabs h * Rabs (1 + e2) <= kap * (a * X + B) * (1 + u)).
    { apply Rmult_le_compat; auto using Rabs_pos. lra. } lra. }
  lra.
Qed.

(* ---------- many steps, the newest first ---------- *)

Record step := { s_a : R; s_ah : R; s_eps : R; s_b : R; s_bh : R; s_B : R }.
Fixpoint exact_chain (x0 : R) (ss : list step) :=
  match ss with [] => x0 | s :: r => s_a s * exact_chain x0 r + s_b s end.
Fixpoint magnitude (x0 : R) (ss : list step) :=
  match ss with [] => x0 | s :: r => s_a s * magnitude x0 r + s_B s end.
Fixpoint computed (x0 : R) (ss : list step) :=
  match ss with [] => x0 | s :: r => RN (RN (s_ah s * computed x0 r) + s_bh s) end.
Definition admissible theta (s : step) :=
  0 <= s_a s /\ 0 <= s_eps s /\ Rabs (s_ah s - s_a s) <= s_eps s * s_a s /\ Rabs (s_b s) <= s_B s /\
  Rabs (s_bh s - s_b s) <= theta * s_B s /\ F32 (s_bh s).
Fixpoint underflow_is_small kap (ss : list step) :=
  match ss with [] => True | s :: r => eta <= kap * magnitude 0 ss /\ underflow_is_small kap r end.

Definition step_growth kap (s : step) := (1 + s_eps s) * (1 + u) ^ 2 + kap * (1 + u).
Fixpoint growth kap (ss : list step) :=
  match ss with [] => 1 | s :: r => step_growth kap s * growth kap r end.

Lemma step_growth_at_least_one kap s : 0 <= kap -> 0 <= s_eps s -> 1 <= step_growth kap s.
Proof.
  intros Hk He. pose proof u_pos as Hu. unfold step_growth. simpl pow.
  assert (0 <= u * u) by (apply Rmult_le_pos; lra).
  assert (0 <= s_eps s * (u * u)) by (apply Rmult_le_pos; lra).
  assert (0 <= s_eps s * u) by (apply Rmult_le_pos; lra).
  assert (0 <= kap * u) by (apply Rmult_le_pos; lra). lra.
Qed.

Lemma growth_at_least_one kap ss : 0 <= kap -> (forall s, In s ss -> 0 <= s_eps s) -> 1 <= growth kap ss.
Proof.
  intro Hk. induction ss as [|s ss IH]; simpl; intro H; [lra|].
  pose proof (step_growth_at_least_one kap s Hk (H s (or_introl eq_refl))).
  assert (1 <= growth kap ss) by auto.
  replace 1 with (1 * 1) by ring. apply Rmult_le_compat; lra.
Qed.

Theorem rescale_add_chain theta kap ss :
  0 <= theta -> 0 <= kap ->
  (forall s, In s ss -> admissible theta s) -> underflow_is_small kap ss ->
  Rabs (computed 0 ss - exact_chain 0 ss) <= ((1 + theta) * growth kap ss - 1) * magnitude 0 ss.
Proof.
  intros Hth Hk. pose proof u_pos as Hu.
  induction ss as [|s ss IH]; simpl; intros Hok Hsc.
  - rewrite Rminus_0_r, Rabs_R0. lra.
  - destruct Hsc as [Hs Hsc]. simpl in Hs.
    destruct (Hok s (or_introl eq_refl)) as [Ha [Heps [Hah [HB [Hb Fb]]]]].
    assert (Hok' : forall s, In s ss -> admissible theta s) by auto.
    specialize (IH Hok' Hsc).
    assert (HM : Rabs (exact_chain 0 ss) <= magnitude 0 ss).
    { clear -Hok'. induction ss as [|t ss IH]; simpl; [rewrite Rabs_R0; lra|].
      destruct (Hok' t (or_introl eq_refl)) as [Ha [_ [_ [HB _]]]].
      eapply Rle_trans; [apply Rabs_triang|]. rewrite Rabs_mult, (Rabs_pos_eq (s_a t)) by auto.
      apply Rplus_le_compat; auto. apply Rmult_le_compat_l; auto. apply IH.
      intros; apply Hok'; simpl; auto. }
    assert (Hpow : 1 <= growth kap ss).
    { apply growth_at_least_one; auto. intros t Ht. now destruct (Hok' t Ht) as [_ [? _]]. }
    set (E := (1 + theta) * growth kap ss - 1) in *.
    assert (HE : theta <= E).
    { unfold E. assert (0 <= theta * (growth kap ss - 1)) by (apply Rmult_le_pos; lra). lra. }
    assert (HB0 : 0 <= s_B s) by (apply Rle_trans with (2 := HB); apply Rabs_pos).
    assert (HM0 : 0 <= magnitude 0 ss) by (apply Rle_trans with (2 := HM); apply Rabs_pos).
    eapply Rle_trans.
    + apply (rescale_add_step (s_a s) (s_ah s) _ _ (magnitude 0 ss) (s_b s) (s_bh s) (s_B s) E (s_eps s) kap); auto.
      lra. eapply Rle_trans; [exact Hb|]. apply Rmult_le_compat_r; auto.
    + apply Rmult_le_compat_r.
      apply Rplus_le_le_0_compat; auto. now apply Rmult_le_pos.
      replace ((1 + theta) * (step_growth kap s * growth kap ss)) with ((1 + E) * step_growth kap s) by (unfold E; ring).
      unfold step_growth. assert (0 <= E * (kap * (1 + u))).
      { apply Rmult_le_pos; [lra|]. apply Rmult_le_pos; lra. } lra.
Qed.

Theorem rescale_add_chain_uniform eps theta kap ss :
  0 <= eps -> 0 <= theta -> 0 <= kap ->
  (forall s, In s ss -> admissible theta s /\ s_eps s <= eps) -> underflow_is_small kap ss ->
  Rabs (computed 0 ss - exact_chain 0 ss)
  <= ((1 + theta) * ((1 + eps) * (1 + u) ^ 2 + kap * (1 + u)) ^ length ss - 1) * magnitude 0 ss.
Proof.
  intros He Hth Hk Hok Hsc. pose proof u_pos as Hu.
  assert (HM0 : 0 <= magnitude 0 ss).
  { clear -Hok. induction ss as [|t ss IH]; simpl; [lra|].
    destruct (Hok t (or_introl eq_refl)) as [[Ha [_ [_ [HB _]]]] _].
    assert (0 <= s_B t) by (apply Rle_trans with (2 := HB); apply Rabs_pos).
    assert (0 <= magnitude 0 ss) by (apply IH; intros; apply Hok; simpl; auto).
    apply Rplus_le_le_0_compat; auto. now apply Rmult_le_pos. }
  eapply Rle_trans. apply (rescale_add_chain theta kap); auto. intros; now apply Hok.
  apply Rmult_le_compat_r; auto. apply Rplus_le_compat_r. apply Rmult_le_compat_l; [lra|].
  clear -Hok Hk Hu He. induction ss as [|s ss IH]; simpl; [lra|].
  destruct (Hok s (or_introl eq_refl)) as [[_ [Hs _]] Hse].
  assert (Hg : 1 <= growth kap ss).
  { apply growth_at_least_one; auto. intros t Ht. destruct (Hok t (or_intror Ht)) as [[_ [? _]] _]; auto. }
  pose proof (step_growth_at_least_one kap s Hk Hs).
  apply Rmult_le_compat; try lra.
  - unfold step_growth. simpl pow. apply Rplus_le_compat_r. apply Rmult_le_compat_r; [|lra].
    apply Rmult_le_pos; lra.
  - apply IH. intros; apply Hok; simpl; auto.
Qed.

(* The factor of a rescaling, where m - m' is itself rounded before the exponential. *)
Theorem rescale_factor_error m1 m2 r eps_e : F32 m1 -> F32 m2 -> 0 <= eps_e ->
  Rabs (r - exp (RN (m1 - m2))) <= eps_e * exp (RN (m1 - m2)) ->
  Rabs (r - exp (m1 - m2)) <= ((1 + eps_e) * exp (u * Rabs (m1 - m2)) - 1) * exp (m1 - m2).
Proof.
  intros F1 F2 He H.
  assert (F2' : F32 (- m2)) by now apply generic_format_opp.
  destruct (addition_errs_by m1 (- m2) F1 F2') as [e [He1 E]].
  change (m1 + - m2) with (m1 - m2) in E. rewrite E in H. set (D := m1 - m2) in *.
  destruct (relative_error (exp (D * (1 + e))) r eps_e) as [d [Hd Er]]; auto.
  left; apply exp_pos. rewrite Er.
  replace (D * (1 + e)) with (D + D * e) by ring. rewrite exp_plus.
  replace (exp D * exp (D * e) * (1 + d) - exp D) with ((((1 + d) * exp (D * e)) - 1) * exp D) by ring.
  rewrite Rabs_mult, (Rabs_pos_eq (exp D)) by (left; apply exp_pos).
  apply Rmult_le_compat_r; [left; apply exp_pos|].
  apply product_deviation. replace (1 + d - 1) with d by ring. lra.
  assert (HDe : Rabs (D * e) <= u * Rabs D).
  { rewrite Rabs_mult, Rmult_comm. apply Rmult_le_compat_r; auto using Rabs_pos. }
  set (t := D * e) in *. set (T := u * Rabs D) in *.
  assert (L1 : exp t <= exp T).
  { destruct (Req_dec t T) as [->|]; [lra|]. left. apply exp_increasing.
    pose proof (Rle_abs t). lra. }
  assert (L2 : 2 - exp T <= exp t).
  { (* exp t >= exp(-T) >= 2 - exp T since y + 1/y >= 2 *)
    assert (exp (-T) <= exp t).
    { destruct (Req_dec t (-T)) as [->|]; [lra|]. left. apply exp_increasing.
      pose proof (Rle_abs (-t)). rewrite Rabs_Ropp in H1. lra. }
    rewrite exp_Ropp in H0. pose proof (exp_pos T).
    assert (0 <= (exp T - 1) * (exp T - 1) * / exp T).
    { apply Rmult_le_pos; [apply Rle_0_sqr | left; now apply Rinv_0_lt_compat]. }
    replace ((exp T - 1) * (exp T - 1) * / exp T) with (exp T - 2 + / exp T) in H2 by (field; lra).
    lra. }
  apply Rabs_le. lra.
Qed.
