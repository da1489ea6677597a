(* Numbers: how far 512 blocks can move the normalizer in binary32.

   The rescaling factors of a row multiply to e^(first maximum - last), so what their rounded
   arguments cost depends on how far the maximum travels in all, not on how often it moves. *)

Require Import Reals Lra Lia List.
From Interval Require Import Tactic.
From Flashproof Require Import Rounding.
Import ListNotations.
Open Scope R_scope.

Fixpoint magnitudes_at_least_one (ss : list step) :=
  match ss with [] => True | _ :: r => 1 <= magnitude 0 ss /\ magnitudes_at_least_one r end.
Lemma eta_pos : 0 < eta.
Proof. unfold eta. apply Rmult_lt_0_compat; [lra|apply Flocq.Core.Raux.bpow_gt_0]. Qed.

Lemma underflow_is_small_from_one ss : magnitudes_at_least_one ss -> underflow_is_small eta ss.
Proof.
  pose proof eta_pos. induction ss as [|s ss IH]; cbn [magnitudes_at_least_one underflow_is_small]; [tauto|].
  intros [H1 H2]. split; auto. apply Rle_trans with (eta * 1); [lra|].
  apply Rmult_le_compat_l; lra.
Qed.

Definition total_drop (del : step -> R) ss := fold_right (fun s x => del s + x) 0 ss.
Theorem drops_telescope kap eps_e del ss : 0 <= kap -> 0 <= eps_e ->
  (forall s, In s ss -> 0 <= del s /\ s_eps s = (1 + eps_e) * exp (u * del s) - 1) ->
  growth kap ss <= ((1 + eps_e) * ((1 + u) ^ 2 + kap * (1 + u))) ^ length ss * exp (u * total_drop del ss).
Proof.
  intros Hk He. pose proof u_pos as Hu. induction ss as [|s ss IH]; simpl; intro H.
  - rewrite Rmult_0_r, exp_0. lra.
  - destruct (H s (or_introl eq_refl)) as [Hd Hs].
    assert (Hx : 1 <= exp (u * del s)).
    { rewrite <- exp_0. destruct (Req_dec (u * del s) 0) as [->|]; [lra|]. left.
      apply exp_increasing. assert (0 <= u * del s) by (apply Rmult_le_pos; lra). lra. }
    assert (Hs0 : forall t, In t (s :: ss) -> 0 <= s_eps t).
    { intros t Ht. destruct (H t Ht) as [Hdt ->].
      assert (1 <= exp (u * del t)).
      { rewrite <- exp_0. destruct (Req_dec (u * del t) 0) as [->|]; [lra|]. left.
        apply exp_increasing. assert (0 <= u * del t) by (apply Rmult_le_pos; lra). lra. }
      assert (0 <= eps_e * exp (u * del t)) by (apply Rmult_le_pos; lra). lra. }
    assert (Hg : 1 <= growth kap ss) by (apply growth_at_least_one; auto; intros; apply Hs0; simpl; auto).
    specialize (IH (fun t Ht => H t (or_intror Ht))).
    set (q := (1 + eps_e) * ((1 + u) * ((1 + u) * 1) + kap * (1 + u))) in *.
    assert (Hr : step_growth kap s <= q * exp (u * del s)).
    { unfold step_growth, q. rewrite Hs. simpl pow. set (x := exp (u * del s)) in *.
      assert (0 <= kap * (1 + u)) by (apply Rmult_le_pos; lra).
      assert (0 <= (kap * (1 + u)) * ((1 + eps_e) * x - 1)).
      { apply Rmult_le_pos; auto. assert (0 <= eps_e * x) by (apply Rmult_le_pos; lra). lra. }
      lra. }
    rewrite Rmult_plus_distr_l, exp_plus.
    apply Rle_trans with ((q * exp (u * del s)) * (q ^ length ss * exp (u * total_drop del ss))).
    + apply Rmult_le_compat; auto; [|lra].
      pose proof (step_growth_at_least_one kap s Hk (Hs0 s (or_introl eq_refl))). lra.
    + right. ring.
Qed.

(* 512 blocks, a maximum that travels by at most 88, an exponential good to 2^-22, block sums good
   to 2^-18. *)
Theorem growth_of_512_steps :
  (1 + / 262144) * (((1 + / 4194304) * ((1 + u) ^ 2 + eta * (1 + u))) ^ 512 * exp (u * 88)) - 1 <= 1.93e-4.
Proof.
  unfold u, eta. simpl (Flocq.Core.Raux.bpow _ _). interval with (i_prec 80).
Qed.

Theorem normalizer_of_512_blocks del ss :
  (length ss <= 512)%nat -> magnitudes_at_least_one ss -> 0 <= total_drop del ss <= 88 ->
  (forall s, In s ss -> admissible (/ 262144) s /\ 0 <= del s /\
                        s_eps s = (1 + / 4194304) * exp (u * del s) - 1) ->
  Rabs (computed 0 ss - exact_chain 0 ss) <= 1.93e-4 * magnitude 0 ss.
Proof.
  intros Hl Hge [Hd0 Hd] Hok. pose proof u_pos as Hu. pose proof eta_pos as He.
  assert (HM : 0 <= magnitude 0 ss) by (destruct ss as [|s r]; [simpl; lra|]; destruct Hge; lra).
  eapply Rle_trans.
  { apply (rescale_add_chain (/ 262144) eta); [lra|lra|intros; now apply Hok|now apply underflow_is_small_from_one]. }
  apply Rmult_le_compat_r; auto.
  apply Rle_trans with (2 := growth_of_512_steps). apply Rplus_le_compat_r, Rmult_le_compat_l; [lra|].
  eapply Rle_trans.
  { apply (drops_telescope eta (/ 4194304) del); [lra|lra|intros s Hs; now apply Hok]. }
  assert (Hq : 1 <= (1 + / 4194304) * ((1 + u) ^ 2 + eta * (1 + u))).
  { simpl pow. assert (0 <= eta * (1 + u)) by (apply Rmult_le_pos; lra).
    assert (0 <= u * u) by (apply Rmult_le_pos; lra).
    set (z := (1 + u) * ((1 + u) * 1) + eta * (1 + u)).
    assert (1 <= z) by (unfold z; lra). lra. }
  apply Rmult_le_compat.
  - apply pow_le; lra.
  - left; apply exp_pos.
  - now apply Rle_pow.
  - assert (H : u * total_drop del ss <= u * 88) by (apply Rmult_le_compat_l; lra).
    destruct H as [H| ->]; [left; now apply exp_increasing | lra].
Qed.
