(* The definitions that the theorems speak of, over the real numbers.

   Whoever wants to know what has been proved needs to trust this file, the statements of the
   theorems, Coq and the axioms of its real numbers, and nothing else. Names are those of the Rust
   functions of the specification: start, rescale, absorb, absorb_at, merge and finish are in
   spec/src/online.rs, the dense row in spec/src/attention.rs, gradients in spec/src/gradient.rs.

   A score is an option: None is a key that the row does not see, or minus infinity. *)

Require Import Reals List.
Import ListNotations.
Open Scope R_scope.

(* ---------- rows of keys ---------- *)

Section Row.
(* What indexes the entries of a value row. *)
Variable D : Type.

Definition vec := D -> R.

(* A key as one row meets it: its score and its value. *)
Definition key := (option R * vec)%type.

(* e^(score - reference); nothing is left of a key that is not seen, whatever it is taken
   against. This is also the guard that e^(-inf - -inf) needs. *)
Definition weight (score reference : option R) : R :=
  match score, reference with Some s, Some m => exp (s - m) | _, _ => 0 end.

Definition greater (a b : option R) : option R :=
  match a, b with
  | None, _ => b
  | _, None => a
  | Some a, Some b => Some (Rmax a b)
  end.

Fixpoint sum {A} (f : A -> R) (xs : list A) : R :=
  match xs with [] => 0 | x :: rest => f x + sum f rest end.

(* ---------- attention as equation 26.1 has it ---------- *)

(* e^score, against no reference. *)
Definition exponential (score : option R) : R :=
  match score with Some s => exp s | None => 0 end.

(* sum_i e^(s_i) *)
Definition mass (keys : list key) : R := sum (fun k => exponential (fst k)) keys.

(* sum_i e^(s_i) v_i *)
Definition weighted_mass (keys : list key) : vec :=
  fun d => sum (fun k => exponential (fst k) * snd k d) keys.

Definition softmax (keys : list key) (score : option R) : R := exponential score / mass keys.

(* o = sum_i p_i v_i *)
Definition attention (keys : list key) : vec :=
  fun d => sum (fun k => softmax keys (fst k) * snd k d) keys.

(* ---------- the online state of equation 26.2 ---------- *)

(* Reference m, normalizer l = sum_i e^(s_i - m), numerator n = sum_i e^(s_i - m) v_i. *)
Definition state := (option R * R * vec)%type.

Definition start : state := (None, 0, fun _ => 0).

Definition merge (a b : state) : state :=
  let '(m1, l1, n1) := a in
  let '(m2, l2, n2) := b in
  let m := greater m1 m2 in
  (m, weight m1 m * l1 + weight m2 m * l2, fun d => weight m1 m * n1 d + weight m2 m * n2 d).

Fixpoint greatest (keys : list key) : option R :=
  match keys with [] => None | k :: rest => greater (fst k) (greatest rest) end.

Definition normalizer (m : option R) (keys : list key) : R :=
  sum (fun k => weight (fst k) m) keys.

Definition numerator (m : option R) (keys : list key) : vec :=
  fun d => sum (fun k => weight (fst k) m * snd k d) keys.

(* The state of a row that is held whole: two passes, equation 26.1. *)
Definition dense (keys : list key) : state :=
  (greatest keys, normalizer (greatest keys) keys, numerator (greatest keys) keys).

(* The state after a further block of keys: the running update of every flash kernel. *)
Definition absorb (s : state) (block : list key) : state :=
  let '(m, l, n) := s in
  let m' := greater m (greatest block) in
  (m', weight m m' * l + normalizer m' block, fun d => weight m m' * n d + numerator m' block d).

(* What a kernel writes: output and LSE. A row without keys gives 0 and minus infinity. *)
Definition finish_output (s : state) : vec :=
  let '(m, l, n) := s in match m with None => fun _ => 0 | Some _ => fun d => n d / l end.

Definition finish_lse (s : state) : option R :=
  let '(m, l, n) := s in match m with None => None | Some m => Some (m + ln l) end.

(* Minus infinity as a reference goes with nothing summed. *)
Definition well_formed (s : state) : Prop :=
  let '(m, l, n) := s in m = None -> l = 0 /\ forall d, n d = 0.

(* Any way of merging blocks in pairs. *)
Inductive tree := Leaf (block : list key) | Node (left right : tree).

Fixpoint tree_state (t : tree) : state :=
  match t with Leaf b => dense b | Node l r => merge (tree_state l) (tree_state r) end.

Fixpoint tree_keys (t : tree) : list key :=
  match t with Leaf b => b | Node l r => tree_keys l ++ tree_keys r end.

(* A finished part of a row, as a key: its LSE for a score and its output for a value. *)
Definition partial (keys : list key) : key := (finish_lse (dense keys), finish_output (dense keys)).

(* Every score shifted by c. *)
Definition shift (c : R) (keys : list key) : list key :=
  map (fun k => (option_map (fun s => s + c) (fst k), snd k)) keys.

(* ---------- states against any reference: lazy and conditional rescaling ---------- *)

(* The reference is a real number of the kernel's choice, not the maximum. *)
Definition lazy_state := (R * R * vec)%type.

Definition represents (s : lazy_state) (keys : list key) : Prop :=
  let '(r, l, n) := s in
  l = normalizer (Some r) keys /\ forall d, n d = numerator (Some r) keys d.

Definition rescale (r' : R) (s : lazy_state) : lazy_state :=
  let '(r, l, n) := s in (r', exp (r - r') * l, fun d => exp (r - r') * n d).

Definition absorb_at (r' : R) (s : lazy_state) (block : list key) : lazy_state :=
  let '(r, l, n) := s in
  (r', exp (r - r') * l + normalizer (Some r') block,
   fun d => exp (r - r') * n d + numerator (Some r') block d).

Definition merge_at (r' : R) (s t : lazy_state) : lazy_state :=
  let '(r1, l1, n1) := s in
  let '(r2, l2, n2) := t in
  (r', exp (r1 - r') * l1 + exp (r2 - r') * l2,
   fun d => exp (r1 - r') * n1 d + exp (r2 - r') * n2 d).

Definition lazy_output (s : lazy_state) : vec := let '(r, l, n) := s in fun d => n d / l.
Definition lazy_lse (s : lazy_state) : R := let '(r, l, n) := s in r + ln l.

(* A run in which some policy picks each reference from the state and the block before it. *)
Definition lazy_run (policy : lazy_state -> list key -> R) (s : lazy_state)
    (blocks : list (list key)) : lazy_state :=
  fold_left (fun s block => absorb_at (policy s block) s block) blocks s.

(* Rescale only when the block's greatest score beats the reference by more than tau
   (FlashAttention-4). *)
Definition threshold (tau : R) (s : lazy_state) (block : list key) : R :=
  let '(r, _, _) := s in
  match greatest block with
  | None => r
  | Some m => if Rle_dec (m - r) tau then r else m
  end.

End Row.

Arguments mass {D}.
Arguments weighted_mass {D}.
Arguments softmax {D}.
Arguments attention {D}.
Arguments start {D}.
Arguments merge {D}.
Arguments greatest {D}.
Arguments normalizer {D}.
Arguments numerator {D}.
Arguments dense {D}.
Arguments absorb {D}.
Arguments finish_output {D}.
Arguments finish_lse {D}.
Arguments well_formed {D}.
Arguments Leaf {D}.
Arguments Node {D}.
Arguments tree_state {D}.
Arguments tree_keys {D}.
Arguments partial {D}.
Arguments shift {D}.
Arguments represents {D}.
Arguments rescale {D}.
Arguments absorb_at {D}.
Arguments merge_at {D}.
Arguments lazy_output {D}.
Arguments lazy_lse {D}.
Arguments lazy_run {D}.
Arguments threshold {D}.

(* ---------- gradients of one row ---------- *)

(* sum_(i < n) f i *)
Fixpoint sum_below (n : nat) (f : nat -> R) : R :=
  match n with O => 0 | S k => sum_below k f + f k end.

Definition matrix := nat -> nat -> R.

Section GradientRow.
(* Keys; for each 1 if the row sees it and 0 if not (or how often it counts); entries of a value;
   the upstream gradient of the output and of the LSE. *)
Variable keys : nat.
Variable seen : nat -> R.
Variable value_dim : nat.
Variable d_output : nat -> R.
Variable d_lse : R.

(* sum_i e^(s_i) over the keys that are seen *)
Definition row_mass (s : nat -> R) : R := sum_below keys (fun i => seen i * exp (s i)).

(* p_i *)
Definition probability (s : nat -> R) (i : nat) : R := seen i * exp (s i) / row_mass s.

(* o_j *)
Definition row_output (s : nat -> R) (value : matrix) (j : nat) : R :=
  sum_below keys (fun i => probability s i * value i j).

(* L *)
Definition row_lse (s : nat -> R) : R := ln (row_mass s).

(* dP_i = sum_j dO_j v_ij *)
Definition probability_gradient (value : matrix) (i : nat) : R :=
  sum_below value_dim (fun j => d_output j * value i j).

(* D as the weighted mean of dP, which is what backward kernels need *)
Definition delta (s : nat -> R) (value : matrix) : R :=
  sum_below keys (fun i => probability s i * probability_gradient value i).

(* dS_i = p_i (dP_i - D + g) *)
Definition score_gradient (s : nat -> R) (value : matrix) (i : nat) : R :=
  probability s i * (probability_gradient value i - delta s value + d_lse).

(* The row's part of a loss of which d_output and d_lse are the derivatives. *)
Definition row_loss (s : nat -> R) (value : matrix) : R :=
  sum_below value_dim (fun j => d_output j * row_output s value j) + d_lse * row_lse s.

End GradientRow.

(* s with x in place of its entry k. *)
Definition replace_entry (s : nat -> R) (k : nat) (x : R) : nat -> R :=
  fun i => if Nat.eqb i k then x else s i.

(* ---------- gradients of one head ---------- *)

Section GradientHead.
Variables queries keys head_dim value_dim : nat.
Variable scale : R.
Variable bias : matrix.
Variable seen : matrix.
Variable d_output : matrix.
Variable d_lse : nat -> R.

Definition score (query key : matrix) (r i : nat) : R :=
  scale * sum_below head_dim (fun t => query r t * key i t) + bias r i.

Definition loss (query key value : matrix) : R :=
  sum_below queries (fun r =>
    row_loss keys (seen r) value_dim (d_output r) (d_lse r) (score query key r) value).

Definition head_probability (query key : matrix) (r i : nat) : R :=
  probability keys (seen r) (score query key r) i.

Definition head_score_gradient (query key value : matrix) (r i : nat) : R :=
  score_gradient keys (seen r) value_dim (d_output r) (d_lse r) (score query key r) value i.

(* dQ_r = scale sum_i dS_ri k_i *)
Definition query_gradient (query key value : matrix) (r t : nat) : R :=
  scale * sum_below keys (fun i => head_score_gradient query key value r i * key i t).

(* dK_i = scale sum_r dS_ri q_r *)
Definition key_gradient (query key value : matrix) (i t : nat) : R :=
  scale * sum_below queries (fun r => head_score_gradient query key value r i * query r t).

(* dV_i = sum_r p_ri dO_r *)
Definition value_gradient (query key : matrix) (i j : nat) : R :=
  sum_below queries (fun r => head_probability query key r i * d_output r j).

(* Every row sees a key. *)
Definition every_row_sees_a_key (query key : matrix) : Prop :=
  forall r, (r < queries)%nat -> 0 < row_mass keys (seen r) (score query key r).

End GradientHead.

(* a with x in place of its entry (p, q). *)
Definition replace_cell (a : matrix) (p q : nat) (x : R) : matrix :=
  fun r c => if (Nat.eqb r p && Nat.eqb c q)%bool then x else a r c.
