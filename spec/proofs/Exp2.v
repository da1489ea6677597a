(* The polynomial in place of an exponential unit: FlashAttention-4 computes 2^f for a fraction f by
   a cubic on the multiply-add units. Its relative error is what a profile declares for it. *)

Require Import Reals.
From Interval Require Import Tactic.
Open Scope R_scope.

(* The coefficients, binary32 numbers: 0.69514614, 0.22756439, 0.07711909. *)
Definition c1 := 11662617 / 16777216.
Definition c2 := 3817897 / 16777216.
Definition c3 := 10350749 / 134217728.
Definition cubic (f : R) := ((c3 * f + c2) * f + c1) * f + 1.
Definition exp2 (f : R) := exp (f * ln 2).

Theorem cubic_approximates_exp2 f : 0 <= f <= 1 ->
  Rabs (cubic f / exp2 f - 1) <= 8.77e-5.
Proof.
  intro H. unfold cubic, exp2, c1, c2, c3.
  interval with (i_bisect f, i_taylor f, i_prec 60, i_degree 8).
Qed.
