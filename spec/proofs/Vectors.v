(* Golden vectors: rows of the exact model, computed by Coq.

   Each vector prints what it was computed from and what came out, as nested lists of whole
   numbers; a rational is [numerator; denominator]. The committed copy is
   spec/tests/data/proved-vectors.json, which the Rust exact model reproduces with ==, and which a
   test compares with what this file prints. *)

Require Import List ZArith QArith Qcanon.
From Flashproof Require Import Exact.
Import ListNotations.
Open Scope Z_scope.

Set Printing Width 100000.
Set Printing Depth 100000.

Definition rational (q : Qc) : list Z := [Qnum (this q); Zpos (Qden (this q))].
Definition rationals (n : nat -> Qc) : list (list Z) := map rational (entries n).
Definition whole (a b : Z) : nat -> Qc :=
  fun d => match d with O => Q2Qc (inject_Z a) | _ => Q2Qc (inject_Z b) end.

(* A key: whether the row sees it, its score, its value. *)
Definition source := (Z * Z * Z * Z)%type.
Definition key_of (k : source) : ring_key Qc Z nat :=
  let '(seen, s, a, b) := k in ((if seen =? 0 then None else Some s), whole a b).
Definition printed (k : source) : list Z := let '(seen, s, a, b) := k in [seen; s; a; b].

Definition state_numbers (s : ring_state Qc Z nat) : list (list Z) :=
  let '(m, l, n) := s in
  match m with None => [[0]; [0]] | Some m => [[1]; [m]] end ++ [rational l] ++ rationals n.
Definition row_numbers (r : option ((nat -> Qc) * Qc)) : list (list Z) :=
  match r with None => [] | Some (o, mass) => rationals o ++ [rational mass] end.

(* Uneven blocks, one of them and parts of others fully masked. *)
Definition uneven : list (list source) :=
  [[(1, 3, 1, -2); (0, 0, 9, 9); (1, -4, 5, 7)];
   [(0, 7, 1, 1); (0, -2, 2, 2)];
   [(1, 6, 0, 3); (1, 5, -8, 1)];
   [(1, 6, 2, -5)]].
Definition falling : list (list source) :=
  [[(1, 40, 3, -1)]; [(1, 12, 100, 7); (1, -25, 11, -13)]; []; [(1, 39, -6, 0); (1, 40, 1, 1)]].
Definition masked : list (list source) := [[(0, 1, 1, 2)]; []; [(0, 5, 3, 4); (0, -5, 5, 6)]].

Definition online (blocks : list (list source)) : list (list (list Z)) * list (list Z) :=
  let step s b := exact_merge s (exact_dense (map key_of b)) in
  let s := fold_left step blocks (exact_dense []) in
  ([state_numbers s], row_numbers (exact_finish s)).

(* ((b0 b1) (b2 b3)): pairs, then pairs of pairs. *)
Fixpoint pairwise (fuel : nat) (states : list (ring_state Qc Z nat)) : ring_state Qc Z nat :=
  let fix pairs l := match l with a :: b :: r => exact_merge a b :: pairs r | _ => l end in
  match fuel, states with
  | _, [] => exact_dense []
  | _, [s] => s
  | O, s :: _ => s
  | S fuel, _ => pairwise fuel (pairs states)
  end.
Definition tree (blocks : list (list source)) : list (list Z) :=
  state_numbers (pairwise (length blocks) (map (fun b => exact_dense (map key_of b)) blocks)).

(* Each part finished by itself, and the merge of what they wrote. *)
Definition split (parts : list (list source)) : list (list (list Z)) * list (list Z) :=
  let finished := map (fun b => exact_finish (exact_dense (map key_of b))) parts in
  (map row_numbers finished, row_numbers (exact_merge_parts finished)).

(* The three agree with the row held whole, in every vector. *)
Definition whole_row (blocks : list (list source)) := exact_dense (map key_of (concat blocks)).
Example online_agrees : map (fun b => fst (online b)) [uneven; falling; masked]
  = map (fun b => [state_numbers (whole_row b)]) [uneven; falling; masked].
Proof. vm_compute. reflexivity. Qed.
Example tree_agrees : map tree [uneven; falling; masked]
  = map (fun b => state_numbers (whole_row b)) [uneven; falling; masked].
Proof. vm_compute. reflexivity. Qed.
Example split_agrees : map (fun b => snd (split b)) [uneven; falling; masked]
  = map (fun b => row_numbers (exact_finish (whole_row b))) [uneven; falling; masked].
Proof. vm_compute. reflexivity. Qed.

(* A row of the backward pass: whether seen, score, key, value. *)
Definition pair_source := (Z * Z * (Z * Z) * (Z * Z))%type.
Definition pair_of (p : pair_source) : exact_pair :=
  let '(seen, s, (k0, k1), (v0, v1)) := p in
  {| pair_score := if seen =? 0 then None else Some s;
     pair_key := whole k0 k1; pair_value := whole v0 v1 |}.
Definition printed_pair (p : pair_source) : list Z :=
  let '(seen, s, (k0, k1), (v0, v1)) := p in [seen; s; k0; k1; v0; v1].
Definition gradient_source := ((Z * Z) * (Z * Z) * Z * Z * list pair_source)%type.

Definition gradient_numbers (g : gradient_source) : list (list (list Z)) :=
  let '((q0, q1), (d0, d1), dl, scale, pairs) := g in
  let q := whole q0 q1 in
  let d_o := whole d0 d1 in
  let g := whole dl 0 0%nat in
  let scale := whole scale 0 0%nat in
  let ps := map pair_of pairs in
  [row_numbers (exact_row ps);
   map (fun p => rational (exact_score_gradient d_o g ps p)) ps;
   rationals (exact_query_gradient d_o g scale ps)]
  ++ map (fun p => rationals (exact_key_gradient q d_o g scale ps p)
                   ++ rationals (exact_value_gradient d_o ps p)) ps.

Definition gradient_rows : list gradient_source :=
  [((1, -2), (2, -3), 0, 1,
    [(1, 3, (1, 0), (1, 2)); (0, 9, (7, 7), (9, 9)); (1, -2, (-4, 5), (3, -4)); (1, 5, (2, 2), (-5, 6))]);
   ((-3, 4), (1, 1), 5, 3,
    [(1, 0, (1, 2), (7, 8)); (1, 0, (3, -1), (7, 8)); (1, 1, (0, 6), (-7, 2))]);
   ((2, 2), (4, -1), -1, 1, [(1, -7, (5, -5), (3, 11))])].

Definition printed_gradient (g : gradient_source) : list (list Z) :=
  let '((q0, q1), (d0, d1), dl, scale, pairs) := g in
  [[q0; q1]; [d0; d1]; [dl]; [scale]] ++ map printed_pair pairs.

(* Without dLSE the score gradients of a row sum to zero, with it to the gradient itself. *)
Example score_gradients_sum : map (fun g : gradient_source =>
    let '(_, (d0, d1), dl, _, pairs) := g in
    let ps := map pair_of pairs in
    rational (fold_left (fun s p => Qcplus s (exact_score_gradient (whole d0 d1) (whole dl 0 0%nat) ps p))
                        ps 0%Qc)) gradient_rows
  = map (fun g : gradient_source => let '(_, _, dl, _, _) := g in [dl; 1]) gradient_rows.
Proof. vm_compute. reflexivity. Qed.

Goal True. idtac "@@ rows". Abort.
Eval vm_compute in map (map (map printed)) [uneven; falling; masked].
Goal True. idtac "@@ states". Abort.
Eval vm_compute in map (fun b => state_numbers (whole_row b)) [uneven; falling; masked].
Goal True. idtac "@@ outputs". Abort.
Eval vm_compute in map (fun b => row_numbers (exact_finish (whole_row b))) [uneven; falling; masked].
Goal True. idtac "@@ parts". Abort.
Eval vm_compute in map (fun b => fst (split b)) [uneven; falling; masked].
Goal True. idtac "@@ gradient_rows". Abort.
Eval vm_compute in map printed_gradient gradient_rows.
Goal True. idtac "@@ gradients". Abort.
Eval vm_compute in map gradient_numbers gradient_rows.
