//! The exact model obeys, with `==`, the laws that the executable clauses rest on.

mod support;

use flashproof_spec::arithmetic::{Arithmetic, ExactModel, F64, Logarithm, NotPositive};
use proptest::prelude::*;
use rug::Rational;
use support::{number, reference, settings};

const A: ExactModel = ExactModel;

proptest! {
    #![proptest_config(settings("arithmetic", "tests/proptest-regressions/arithmetic.txt"))]

    #[test]
    fn weights_compose(s in reference(), r in reference(), t in reference()) {
        prop_assert_eq!(A.mul(&A.weight(&s, &r), &A.weight(&r, &t)), A.weight(&s, &t));
        prop_assert_eq!(A.weight(&s, &s), 1);
    }

    #[test]
    fn weights_grow_with_the_score(s in reference(), t in reference(), r in reference()) {
        prop_assert_eq!(s < t, A.weight(&s, &r) < A.weight(&t, &r));
    }

    #[test]
    fn shifts_multiply_the_weight(s in reference(), c in reference(), r in reference()) {
        let zero = Logarithm::from(0);
        let expected = A.mul(&A.weight(&s, &r), &A.weight(&c, &zero));
        prop_assert_eq!(A.weight(&A.shift(&s, &c), &r), expected);
        prop_assert_eq!(A.shift(&s, &zero), s);
    }

    #[test]
    fn an_lse_weighs_as_much_as_its_normalizer(r in reference(), mass in (1..=9, 1..=4)) {
        let mass = Rational::from(mass);
        prop_assert_eq!(A.weight(&A.lse(&r, &mass), &r), mass);
    }

    #[test]
    fn integer_scores_add_and_compare_as_integers(a in -300_i16..=300, b in -300_i16..=300) {
        let (x, y) = (Logarithm::from(a), Logarithm::from(b));
        prop_assert_eq!(x < y, a < b);
        prop_assert_eq!(A.shift(&x, &y), Logarithm::from(a + b));
    }

    #[test]
    fn numbers_are_a_field(a in number(), b in number(), c in number()) {
        prop_assert_eq!(A.mul(&a, &A.add(&b, &c)), A.add(&A.mul(&a, &b), &A.mul(&a, &c)));
        prop_assert_eq!(A.add(&A.sub(&a, &b), &b), a.clone());
        prop_assert_eq!(A.add(&a, &A.zero()), a.clone());
        if b != 0 {
            prop_assert_eq!(A.mul(&A.div(&a, &b), &b), a);
        }
    }
}

#[test]
fn the_widest_integer_scores_are_exact() {
    let (low, high) = (Logarithm::from(i16::MIN), Logarithm::from(i16::MAX));
    assert_eq!(A.weight(&Logarithm::from(3), &Logarithm::from(-4)), 128);
    assert_eq!(A.shift(&low, &high), Logarithm::from(-1));
}

#[test]
fn only_positive_numbers_have_a_logarithm() {
    for number in [Rational::new(), Rational::from((-1, 2))] {
        let error = Logarithm::of(number.clone()).expect_err("not positive");
        assert_eq!(error, NotPositive(number.clone()));
        let message = format!("{number} has no real logarithm: expected a positive rational");
        assert_eq!(error.to_string(), message);
    }
}

#[test]
fn binary64_weighs_minus_infinity_as_nothing() {
    for reference in [0.0, -800.0, f64::INFINITY, f64::NEG_INFINITY] {
        assert_eq!(F64.weight(&f64::NEG_INFINITY, &reference), 0.0);
    }
    assert_eq!(F64.weight(&-800.0, &-800.0), 1.0);
}
