(* The backward pass is the derivative of the forward pass.

   For a kernel author: with D = <dO, O> and dS = P (dP - D + g), the sums that a backward kernel
   computes are the partial derivatives of a loss that depends on output and LSE, with softmax
   scale, additive bias and mask; g is the gradient of the LSE. A mask enters as a factor 0 or 1 of
   each exponential, so nothing flows to a key that is not seen. *)

Require Import Reals Lra Lia Arith.
From Coquelicot Require Import Coquelicot.
From Flashproof Require Import Defs.
Open Scope R_scope.

(* ---------- finite sums and their derivatives ---------- *)

Lemma sum_below_ext n f g : (forall j, (j < n)%nat -> f j = g j) -> sum_below n f = sum_below n g.
Proof. induction n; simpl; intro H; [reflexivity|]. rewrite IHn, H; auto. Qed.

Lemma sum_below_scal n c f : sum_below n (fun j => c * f j) = c * sum_below n f.
Proof. induction n; simpl; [ring|rewrite IHn; ring]. Qed.

Lemma sum_below_scal_right n c f : sum_below n (fun j => f j * c) = sum_below n f * c.
Proof. induction n; simpl; [ring|rewrite IHn; ring]. Qed.

Lemma sum_below_plus n f g : sum_below n (fun j => f j + g j) = sum_below n f + sum_below n g.
Proof. induction n; simpl; [ring|rewrite IHn; ring]. Qed.

Lemma sum_below_minus n f g : sum_below n (fun j => f j - g j) = sum_below n f - sum_below n g.
Proof. induction n; simpl; [ring|rewrite IHn; ring]. Qed.

Lemma sum_below_zero n : sum_below n (fun _ => 0) = 0.
Proof. induction n; simpl; lra. Qed.

Lemma sum_below_swap n m f : sum_below n (fun i => sum_below m (fun j => f i j)) = sum_below m (fun j => sum_below n (fun i => f i j)).
Proof.
  induction n; simpl. now rewrite sum_below_zero. now rewrite IHn, sum_below_plus.
Qed.

Lemma sum_below_single n k f : (k < n)%nat ->
  sum_below n (fun j => if Nat.eqb j k then f j else 0) = f k.
Proof.
  induction n; simpl; intro H; [lia|].
  destruct (Nat.eqb_spec n k) as [->|Hn].
  - rewrite (sum_below_ext _ _ (fun _ => 0)). rewrite sum_below_zero; ring.
    intros j Hj. destruct (Nat.eqb_spec j k); [lia|reflexivity].
  - rewrite IHn by lia. ring.
Qed.

Lemma sum_below_derive n (f : R -> nat -> R) (d : nat -> R) t :
  (forall j, (j < n)%nat -> is_derive (fun t => f t j) t (d j)) ->
  is_derive (fun t => sum_below n (f t)) t (sum_below n d).
Proof.
  induction n; simpl; intro H.
  - apply (is_derive_const 0).
  - apply (is_derive_plus (fun t => sum_below n (f t)) (fun t => f t n)); auto.
Qed.

Lemma d_cexp (f : R -> R) d c t : is_derive f t d ->
  is_derive (fun t => c * exp (f t)) t (c * exp (f t) * d).
Proof.
  intro H. auto_derive. now exists d.
  rewrite (is_derive_unique (fun x : R => f x) _ _ H : Derive (fun x : R => f x) t = _). ring.
Qed.

Lemma d_quot (f g : R -> R) df dg c t : g t <> 0 -> is_derive f t df -> is_derive g t dg ->
  is_derive (fun t => c * exp (f t) / g t) t (c * exp (f t) / g t * (df - dg / g t)).
Proof.
  intros Hg Hf Hd. auto_derive.
  - repeat split; trivial; [now exists df | now exists dg].
  - rewrite (is_derive_unique (fun x : R => f x) _ _ Hf : Derive (fun x : R => f x) t = _), (is_derive_unique (fun x : R => g x) _ _ Hd : Derive (fun x : R => g x) t = _). field. auto.
Qed.

Lemma d_affine (f : R -> R) d c b t : is_derive f t d ->
  is_derive (fun t => c * f t + b) t (c * d).
Proof.
  intro H. auto_derive. now exists d.
  rewrite (is_derive_unique (fun x : R => f x) _ _ H : Derive (fun x : R => f x) t = _). ring.
Qed.

Lemma d_mulr (f : R -> R) d c t : is_derive f t d -> is_derive (fun t => f t * c) t (d * c).
Proof.
  intro H. auto_derive. now exists d.
  rewrite (is_derive_unique (fun x : R => f x) _ _ H : Derive (fun x : R => f x) t = _). ring.
Qed.

Lemma d_mull (f : R -> R) d c t : is_derive f t d -> is_derive (fun t => c * f t) t (c * d).
Proof.
  intro H. auto_derive. now exists d.
  rewrite (is_derive_unique (fun x : R => f x) _ _ H : Derive (fun x : R => f x) t = _). ring.
Qed.

Lemma d_ln (g : R -> R) dg t : 0 < g t -> is_derive g t dg ->
  is_derive (fun t => ln (g t)) t (dg / g t).
Proof.
  intros Hg Hd. auto_derive.
  - repeat split; trivial. now exists dg.
  - rewrite (is_derive_unique (fun x : R => g x) _ _ Hd : Derive (fun x : R => g x) t = _). field. lra.
Qed.

(* ---------- one row ---------- *)

Section Row.
Variable n : nat.
Variable seen : nat -> R.

Notation Zr := (row_mass n seen).
Notation P := (probability n seen).

Lemma probabilities_sum_to_one s : Zr s <> 0 -> sum_below n (P s) = 1.
Proof.
  intro H. unfold probability, Rdiv. rewrite sum_below_scal_right. fold (Zr s). now field.
Qed.

Lemma row_mass_derive (s : R -> nat -> R) ds t :
  (forall j, (j < n)%nat -> is_derive (fun t => s t j) t (ds j)) ->
  is_derive (fun t => Zr (s t)) t (sum_below n (fun j => seen j * exp (s t j) * ds j)).
Proof.
  intro H. unfold row_mass. apply (sum_below_derive n (fun t j => seen j * exp (s t j))).
  intros j Hj. apply (d_cexp (fun t => s t j)). auto.
Qed.

(* softmax along any differentiable curve of scores *)
Theorem softmax_along_a_curve (s : R -> nat -> R) ds t i :
  (i < n)%nat -> Zr (s t) <> 0 ->
  (forall j, (j < n)%nat -> is_derive (fun t => s t j) t (ds j)) ->
  is_derive (fun t => P (s t) i) t
            (P (s t) i * (ds i - sum_below n (fun j => P (s t) j * ds j))).
Proof.
  intros Hi HZ H.
  assert (E : sum_below n (fun j => P (s t) j * ds j)
              = sum_below n (fun j => seen j * exp (s t j) * ds j) / Zr (s t)).
  { unfold Rdiv. rewrite <- sum_below_scal_right. apply sum_below_ext. intros; unfold probability; field; auto. }
  rewrite E. apply (d_quot (fun t => s t i) (fun t => Zr (s t))); auto.
  now apply row_mass_derive.
Qed.

Lemma replace_entry_same s k j : replace_entry s k (s k) j = s j.
Proof. unfold replace_entry. destruct (Nat.eqb_spec j k); now subst. Qed.

Lemma replace_entry_derive s k j x :
  is_derive (fun x => replace_entry s k x j) x (if Nat.eqb j k then 1 else 0).
Proof.
  unfold replace_entry. destruct (Nat.eqb j k).
  apply (is_derive_id x). apply (is_derive_const (s j)).
Qed.

Lemma row_mass_ext s s' : (forall j, s j = s' j) -> Zr s = Zr s'.
Proof. intro H. apply sum_below_ext. intros; now rewrite H. Qed.

Lemma probability_ext s s' i : (forall j, s j = s' j) -> P s i = P s' i.
Proof. intro H. unfold probability. now rewrite (row_mass_ext s s' H), H. Qed.

(* d p_i / d s_k = p_i (delta_ik - p_k) *)
Theorem softmax_derivative s i k : (i < n)%nat -> (k < n)%nat -> Zr s <> 0 ->
  is_derive (fun x => P (replace_entry s k x) i) (s k)
            (P s i * ((if Nat.eqb i k then 1 else 0) - P s k)).
Proof.
  intros Hi Hk HZ.
  pose proof (softmax_along_a_curve (replace_entry s k) (fun j => if Nat.eqb j k then 1 else 0) (s k) i Hi) as T.
  rewrite (row_mass_ext _ s) in T by apply replace_entry_same.
  specialize (T HZ (fun j _ => replace_entry_derive s k j (s k))).
  rewrite (probability_ext _ s) in T by apply replace_entry_same.
  rewrite (sum_below_ext _ _ (fun j => if Nat.eqb j k then P s j else 0)) in T.
  - rewrite sum_below_single in T by auto. exact T.
  - intros j _. rewrite (probability_ext _ s) by apply replace_entry_same. destruct (Nat.eqb j k); ring.
Qed.

(* d LSE / d s_k = p_k *)
Theorem lse_along_a_curve (s : R -> nat -> R) ds t : 0 < Zr (s t) ->
  (forall j, (j < n)%nat -> is_derive (fun t => s t j) t (ds j)) ->
  is_derive (fun t => ln (Zr (s t))) t (sum_below n (fun j => P (s t) j * ds j)).
Proof.
  intros HZ H.
  replace (sum_below n (fun j => P (s t) j * ds j))
    with (sum_below n (fun j => seen j * exp (s t j) * ds j) / Zr (s t)).
  - apply (d_ln (fun t => Zr (s t))); auto. now apply row_mass_derive.
  - unfold Rdiv. rewrite <- sum_below_scal_right. apply sum_below_ext. intros; unfold probability; field; lra.
Qed.

Theorem lse_derivative s k : (k < n)%nat -> 0 < Zr s ->
  is_derive (fun x => ln (Zr (replace_entry s k x))) (s k) (P s k).
Proof.
  intros Hk HZ.
  pose proof (lse_along_a_curve (replace_entry s k) (fun j => if Nat.eqb j k then 1 else 0) (s k)) as T.
  rewrite (row_mass_ext _ s) in T by apply replace_entry_same.
  specialize (T HZ (fun j _ => replace_entry_derive s k j (s k))).
  rewrite (sum_below_ext _ _ (fun j => if Nat.eqb j k then P s j else 0)) in T.
  - rewrite sum_below_single in T by auto. exact T.
  - intros j _. rewrite (probability_ext _ s) by apply replace_entry_same. destruct (Nat.eqb j k); ring.
Qed.

Variable dv : nat.
Variable dO : nat -> R.
Variable g : R.

Notation Out := (row_output n seen).
Notation dP := (probability_gradient dv dO).
Notation Drow := (delta n seen dv dO).
Notation dS := (score_gradient n seen dv dO g).
Notation Lrow := (row_loss n seen dv dO g).

(* D = sum_i p_i dP_i = <dO, o>: one dot product a row stands for a sum over its keys. *)
Theorem delta_is_rowsum s V : Drow s V = sum_below dv (fun c => dO c * Out s V c).
Proof.
  unfold delta, probability_gradient, row_output.
  rewrite (sum_below_ext dv _ (fun c => sum_below n (fun j => P s j * (dO c * V j c)))).
  - rewrite sum_below_swap. apply sum_below_ext. intros j _. now rewrite sum_below_scal.
  - intros c _. rewrite <- sum_below_scal. apply sum_below_ext. intros; ring.
Qed.

(* Without a gradient of the LSE the score gradients of a row sum to zero. *)
Theorem score_gradients_sum_to_lse_gradient s V : Zr s <> 0 -> sum_below n (dS s V) = g.
Proof.
  intro H. unfold score_gradient.
  rewrite (sum_below_ext _ _ (fun j => (P s j * dP V j - P s j * Drow s V) + P s j * g))
    by (intros; ring).
  rewrite sum_below_plus, sum_below_minus, !sum_below_scal_right, probabilities_sum_to_one by auto.
  unfold delta. ring.
Qed.

(* The part of the row's loss that goes through its output, along any curve of scores and values. *)
Lemma output_loss_along_a_curve (s : R -> nat -> R) (V : R -> nat -> nat -> R) ds dV t :
  Zr (s t) <> 0 ->
  (forall j, (j < n)%nat -> is_derive (fun t => s t j) t (ds j)) ->
  (forall j c, (j < n)%nat -> (c < dv)%nat -> is_derive (fun t => V t j c) t (dV j c)) ->
  is_derive (fun t => sum_below dv (fun c => dO c * Out (s t) (V t) c)) t
    (sum_below n (fun j => P (s t) j * (dP (V t) j - Drow (s t) (V t)) * ds j)
     + sum_below n (fun j => sum_below dv (fun c => P (s t) j * dO c * dV j c))).
Proof.
  intros HZ Hs HV.
  set (m := sum_below n (fun j => P (s t) j * ds j)).
  evar_last.
  - apply (sum_below_derive dv (fun t c => dO c * Out (s t) (V t) c)). intros c Hc.
    apply (is_derive_scal (fun t => Out (s t) (V t) c)). unfold row_output.
    apply (sum_below_derive n (fun t j => P (s t) j * V t j c)
             (fun j => P (s t) j * (ds j - m) * V t j c + P (s t) j * dV j c)). intros j Hj.
    apply (is_derive_mult (fun t => P (s t) j) (fun t => V t j c)).
    + now apply softmax_along_a_curve.
    + now apply HV.
    + intros; apply Rmult_comm.
  - rewrite (sum_below_ext dv _ (fun c =>
       sum_below n (fun j => P (s t) j * (ds j - m) * (dO c * V t j c))
       + sum_below n (fun j => P (s t) j * dO c * dV j c))).
    2:{ intros c _. rewrite <- sum_below_plus. unfold scal; simpl; unfold mult; simpl.
        rewrite <- sum_below_scal. apply sum_below_ext. intros; ring. }
    rewrite sum_below_plus, (sum_below_swap dv n (fun c j => P (s t) j * dO c * dV j c)). f_equal.
    rewrite sum_below_swap.
    rewrite (sum_below_ext n _ (fun j => P (s t) j * dP (V t) j * ds j - P (s t) j * dP (V t) j * m)).
    2:{ intros j _. rewrite sum_below_scal. fold (dP (V t) j). ring. }
    rewrite sum_below_minus, sum_below_scal_right. fold (Drow (s t) (V t)). unfold m.
    rewrite <- sum_below_scal, <- sum_below_minus. apply sum_below_ext. intros; ring.
Qed.

Theorem row_loss_along_a_curve (s : R -> nat -> R) (V : R -> nat -> nat -> R) ds dV t :
  0 < Zr (s t) ->
  (forall j, (j < n)%nat -> is_derive (fun t => s t j) t (ds j)) ->
  (forall j c, (j < n)%nat -> (c < dv)%nat -> is_derive (fun t => V t j c) t (dV j c)) ->
  is_derive (fun t => Lrow (s t) (V t)) t
    (sum_below n (fun j => dS (s t) (V t) j * ds j)
     + sum_below n (fun j => sum_below dv (fun c => P (s t) j * dO c * dV j c))).
Proof.
  intros HZ Hs HV. unfold row_loss, row_lse. evar_last.
  - apply (is_derive_plus (fun t => sum_below dv (fun c => dO c * Out (s t) (V t) c))
                          (fun t => g * ln (Zr (s t)))).
    + apply output_loss_along_a_curve; eauto. lra.
    + apply (is_derive_scal (fun t => ln (Zr (s t)))). exact (lse_along_a_curve s ds t HZ Hs).
  - unfold plus; simpl. unfold scal; simpl; unfold mult; simpl.
    set (via_values := sum_below n (fun j => sum_below dv _)).
    replace (sum_below n (fun j => dS (s t) (V t) j * ds j))
      with (sum_below n (fun j => P (s t) j * (dP (V t) j - Drow (s t) (V t)) * ds j)
            + g * sum_below n (fun j => P (s t) j * ds j)); [ring|].
    rewrite <- sum_below_scal, <- sum_below_plus. apply sum_below_ext. intros.
    unfold score_gradient. ring.
Qed.

(* dS_i = p_i (dP_i - D + g) *)
Theorem score_gradient_is_derivative s V k : (k < n)%nat -> 0 < Zr s ->
  is_derive (fun x => Lrow (replace_entry s k x) V) (s k) (dS s V k).
Proof.
  intros Hk HZ.
  pose proof (row_loss_along_a_curve (replace_entry s k) (fun _ => V)
     (fun j => if Nat.eqb j k then 1 else 0) (fun _ _ => 0) (s k)) as T.
  rewrite (row_mass_ext _ s) in T by apply replace_entry_same.
  specialize (T HZ (fun j _ => replace_entry_derive s k j (s k))).
  evar_last. apply T. intros j c _ _. apply (is_derive_const (V j c)).
  rewrite (sum_below_ext n (fun j => sum_below dv _) (fun _ => 0)), sum_below_zero.
  2:{ intros j _. rewrite (sum_below_ext _ _ (fun _ => 0)). apply sum_below_zero. intros; ring. }
  assert (ED : Drow (replace_entry s k (s k)) V = Drow s V).
  { unfold delta. apply sum_below_ext. intros. rewrite (probability_ext _ s) by apply replace_entry_same. reflexivity. }
  rewrite (sum_below_ext n _ (fun j => if Nat.eqb j k then dS s V j else 0)).
  rewrite sum_below_single by auto. ring.
  intros j _. unfold score_gradient. rewrite ED, (probability_ext _ s) by apply replace_entry_same.
  destruct (Nat.eqb j k); ring.
Qed.
End Row.

(* ---------- one head ---------- *)

Section Head.
Variables M n dk dv : nat.
Variable scale : R.
Variable bias seen dO : matrix.
Variable g : nat -> R.

Notation Sc := (score dk scale bias).
Notation Loss := (loss M n dk dv scale bias seen dO g).
Notation DS := (head_score_gradient n dk dv scale bias seen dO g).
Notation dQ := (query_gradient n dk dv scale bias seen dO g).
Notation dK := (key_gradient M n dk dv scale bias seen dO g).
Notation dV := (value_gradient M n dk scale bias seen dO).
Notation live := (every_row_sees_a_key M n dk scale bias seen).

Theorem loss_along_a_curve (Q K V : R -> matrix) dSc dVt t :
  live (Q t) (K t) ->
  (forall i j, (i < M)%nat -> (j < n)%nat -> is_derive (fun t => Sc (Q t) (K t) i j) t (dSc i j)) ->
  (forall j c, (j < n)%nat -> (c < dv)%nat -> is_derive (fun t => V t j c) t (dVt j c)) ->
  is_derive (fun t => Loss (Q t) (K t) (V t)) t
    (sum_below M (fun i => sum_below n (fun j => DS (Q t) (K t) (V t) i j * dSc i j))
     + sum_below n (fun j => sum_below dv (fun c => dV (Q t) (K t) j c * dVt j c))).
Proof.
  intros HL HS HV. evar_last.
  - unfold loss. apply (sum_below_derive M (fun t i => row_loss n (seen i) dv (dO i) (g i) (Sc (Q t) (K t) i) (V t))).
    intros i Hi. apply (row_loss_along_a_curve n (seen i) dv (dO i) (g i) (fun t => Sc (Q t) (K t) i) V
       (dSc i) dVt t). now apply HL. now intros; apply HS. exact HV.
  - simpl. rewrite sum_below_plus. f_equal. rewrite sum_below_swap. apply sum_below_ext. intros j _.
    rewrite sum_below_swap. apply sum_below_ext. intros c _. unfold value_gradient. rewrite <- sum_below_scal_right.
    apply sum_below_ext. intros; unfold head_probability; ring.
Qed.

Lemma replace_cell_derive A p q i c x :
  is_derive (fun x => replace_cell A p q x i c) x (if (Nat.eqb i p && Nat.eqb c q)%bool then 1 else 0).
Proof.
  unfold replace_cell. destruct (_ && _)%bool.
  apply (is_derive_id x). apply (is_derive_const (A i c)).
Qed.

Lemma replace_cell_same A p q : replace_cell A p q (A p q) = A.
Proof.
  apply FunctionalExtensionality.functional_extensionality; intro i.
  apply FunctionalExtensionality.functional_extensionality; intro c. unfold replace_cell.
  destruct (Nat.eqb_spec i p), (Nat.eqb_spec c q); simpl; now subst.
Qed.

Lemma sum_below_twice_zero k m (f : nat -> nat -> R) :
  (forall i j, f i j = 0) -> sum_below k (fun i => sum_below m (f i)) = 0.
Proof.
  intro H. rewrite (sum_below_ext _ _ (fun _ => 0)). apply sum_below_zero.
  intros. rewrite (sum_below_ext _ _ (fun _ => 0)). apply sum_below_zero. intros; apply H.
Qed.

Theorem query_gradient_is_derivative Q K V p q : (p < M)%nat -> (q < dk)%nat -> live Q K ->
  is_derive (fun x => Loss (replace_cell Q p q x) K V) (Q p q) (dQ Q K V p q).
Proof.
  intros Hp Hq HL. evar_last.
  - apply (loss_along_a_curve (replace_cell Q p q) (fun _ => K) (fun _ => V)
      (fun i j => if Nat.eqb i p then scale * K j q else 0) (fun _ _ => 0)).
    + now rewrite replace_cell_same.
    + intros i j Hi Hj. unfold score. evar_last.
      * apply (d_affine (fun x => sum_below dk (fun c => replace_cell Q p q x i c * K j c))).
        apply (sum_below_derive dk (fun x c => replace_cell Q p q x i c * K j c)).
        intros c Hc. apply (d_mulr (fun x => replace_cell Q p q x i c)). apply replace_cell_derive.
      * rewrite (sum_below_ext _ _ (fun c => if Nat.eqb c q then (if Nat.eqb i p then K j c else 0) else 0)).
        rewrite sum_below_single by auto. destruct (Nat.eqb i p); ring.
        intros c _. destruct (Nat.eqb i p), (Nat.eqb c q); simpl; ring.
    + intros; apply (is_derive_const (V j c)).
  - rewrite replace_cell_same.
    rewrite (sum_below_twice_zero n dv) by (intros; ring).
    rewrite (sum_below_ext M _ (fun i => if Nat.eqb i p then dQ Q K V i q else 0)).
    rewrite sum_below_single by auto. ring.
    intros i _. destruct (Nat.eqb i p).
    + unfold query_gradient. rewrite <- sum_below_scal. apply sum_below_ext. intros; ring.
    + rewrite (sum_below_ext _ _ (fun _ => 0)). apply sum_below_zero. intros; ring.
Qed.

Theorem key_gradient_is_derivative Q K V p q : (p < n)%nat -> (q < dk)%nat -> live Q K ->
  is_derive (fun x => Loss Q (replace_cell K p q x) V) (K p q) (dK Q K V p q).
Proof.
  intros Hp Hq HL. evar_last.
  - apply (loss_along_a_curve (fun _ => Q) (replace_cell K p q) (fun _ => V)
      (fun i j => if Nat.eqb j p then scale * Q i q else 0) (fun _ _ => 0)).
    + now rewrite replace_cell_same.
    + intros i j Hi Hj. unfold score. evar_last.
      * apply (d_affine (fun x => sum_below dk (fun c => Q i c * replace_cell K p q x j c))).
        apply (sum_below_derive dk (fun x c => Q i c * replace_cell K p q x j c)).
        intros c Hc. apply (d_mull (fun x => replace_cell K p q x j c)). apply replace_cell_derive.
      * rewrite (sum_below_ext _ _ (fun c => if Nat.eqb c q then (if Nat.eqb j p then Q i c else 0) else 0)).
        rewrite sum_below_single by auto. destruct (Nat.eqb j p); ring.
        intros c _. destruct (Nat.eqb j p), (Nat.eqb c q); simpl; ring.
    + intros; apply (is_derive_const (V j c)).
  - rewrite replace_cell_same.
    rewrite (sum_below_twice_zero n dv) by (intros; ring).
    rewrite sum_below_swap.
    rewrite (sum_below_ext n _ (fun j => if Nat.eqb j p then dK Q K V j q else 0)).
    rewrite sum_below_single by auto. ring.
    intros j _. destruct (Nat.eqb j p).
    + unfold key_gradient. rewrite <- sum_below_scal. apply sum_below_ext. intros; ring.
    + rewrite (sum_below_ext _ _ (fun _ => 0)). apply sum_below_zero. intros; ring.
Qed.

Theorem value_gradient_is_derivative Q K V p q : (p < n)%nat -> (q < dv)%nat -> live Q K ->
  is_derive (fun x => Loss Q K (replace_cell V p q x)) (V p q) (dV Q K p q).
Proof.
  intros Hp Hq HL. evar_last.
  - apply (loss_along_a_curve (fun _ => Q) (fun _ => K) (replace_cell V p q) (fun _ _ => 0)
      (fun j c => if (Nat.eqb j p && Nat.eqb c q)%bool then 1 else 0)).
    + exact HL.
    + intros. apply (is_derive_const (Sc Q K i j)).
    + intros. apply replace_cell_derive.
  - rewrite (sum_below_twice_zero M n) by (intros; ring).
    rewrite (sum_below_ext n _ (fun j => if Nat.eqb j p then dV Q K j q else 0)).
    rewrite sum_below_single by auto. ring.
    intros j _. destruct (Nat.eqb j p); simpl.
    + rewrite (sum_below_ext _ _ (fun c => if Nat.eqb c q then dV Q K j c else 0)).
      now rewrite sum_below_single. intros c _. destruct (Nat.eqb c q); ring.
    + rewrite (sum_below_ext _ _ (fun _ => 0)). apply sum_below_zero. intros; ring.
Qed.
End Head.
