//! Sums over many terms, their error bounded at once.
//!
//! With terms `x_1 ... x_n`, each added with a relative error of at most `4 u^2`, every partial sum is
//! at most `sum |x_i|` times `(1 + 4 u^2)^n`, so the sum errs by at most `4 u^2 (n + 1) sum |x_i|`; the
//! extra term covers the products behind the `x_i`, each within `2 u^2`, and second order for
//! `n <= 2^20`. The magnitudes are summed in `f64`, by at most `n + 3` roundings too low; one further
//! term covers those.

use ndarray::ArrayView1;

use super::ball::{Ball, SMALL_PRODUCT_RADIUS, SMALLEST_PRODUCT, SUM_ERROR, power_of_two};
use super::word::DoubleWord;

/// Most terms that the bound is stated for.
pub(super) const LONGEST_SUM: usize = 1 << 20;

/// `<query, key>`, whose products of two words are exact.
pub(super) fn dot(query: &ArrayView1<'_, f64>, key: &ArrayView1<'_, f64>) -> Ball {
    let mut value = DoubleWord::ZERO;
    let mut mass = 0.0;
    for (&q, &k) in query.iter().zip(key) {
        let product = DoubleWord::product(q, k);
        value = value.add(product);
        mass += product.hi.abs();
    }
    Ball { value, radius: sum_error(query.len(), mass) }
}

/// A sum of products of weights and values, with what bounds its error.
#[derive(Clone, Copy)]
pub(super) struct Sum {
    value: DoubleWord,
    /// Sum of the products' magnitudes.
    mass: f64,
    /// Sum of the weights' radii times the values' magnitudes, and of products left out.
    radius: f64,
}

impl Sum {
    pub(super) const ZERO: Self = Self { value: DoubleWord::ZERO, mass: 0.0, radius: 0.0 };

    pub(super) fn add_product(&mut self, weight: Ball, value: f64) {
        self.radius += weight.radius * value.abs();
        let product = weight.value.hi * value;
        if product.abs() < SMALLEST_PRODUCT {
            self.radius += SMALL_PRODUCT_RADIUS;
        } else {
            self.value = self.value.add(weight.value.mul_f64(value));
            self.mass += product.abs();
        }
    }

    pub(super) fn ball(self, terms: usize) -> Ball {
        // Two roundings a term, each by at most 2^-53 of what is there or, in a product that
        // underflows, by half the smallest positive number: for 2^20 terms a factor below 1 + 2^-31.
        let radius = (self.radius * (1.0 + power_of_two(-31))).next_up();
        Ball { value: self.value, radius }
            .widened(terms as f64 * f64::from_bits(1))
            .widened(sum_error(terms, self.mass))
    }
}

/// The error of a double-word sum of this many terms; see the module's derivation.
fn sum_error(terms: usize, mass: f64) -> f64 {
    (SUM_ERROR * (terms as f64 + 2.0) * mass).next_up()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rug::Rational;

    fn rational(x: f64) -> Rational {
        Rational::from_f64(x).unwrap()
    }

    fn holds(ball: Ball, x: &Rational) -> bool {
        let enclosure = ball.enclosure();
        enclosure.lo() <= x && x <= enclosure.hi()
    }

    /// A number of any size that double words reach.
    fn entry(exponents: std::ops::Range<i32>) -> impl Strategy<Value = f64> {
        (-2.0..2.0_f64, exponents).prop_map(|(x, exponent)| x * f64::from(exponent).exp2())
    }

    /// A weight, where in its radius the exact one lies, and a value.
    fn term() -> impl Strategy<Value = (Ball, f64, f64)> {
        (entry(-860..0), 0.0..1.0_f64, -1.0..1.0_f64, entry(-390..190)).prop_map(
            |(weight, radius, at, value)| {
                let radius = radius * weight.abs() * power_of_two(-60);
                (Ball { value: DoubleWord::new(weight), radius }, at, value)
            },
        )
    }

    proptest! {
        #[test]
        fn weighted_sums_are_contained(terms in prop::collection::vec(term(), 1..40)) {
            let (mut sum, mut exact) = (Sum::ZERO, Rational::new());
            for &(weight, at, value) in &terms {
                sum.add_product(weight, value);
                let inside = rational(weight.value.hi) + rational(at) * rational(weight.radius);
                exact += inside * rational(value);
            }
            prop_assert!(holds(sum.ball(terms.len()), &exact));
        }

        #[test]
        fn dot_products_are_contained(
            pairs in prop::collection::vec((entry(-390..190), entry(-390..190)), 1..40)
        ) {
            let (x, y): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
            let exact = x.iter().zip(&y).map(|(&x, &y)| rational(x) * rational(y)).sum();
            let ball = dot(&ArrayView1::from(&x), &ArrayView1::from(&y));
            prop_assert!(holds(ball, &exact));
        }
    }

    #[test]
    fn products_left_out_are_in_the_radius() {
        let mut sum = Sum::ZERO;
        sum.add_product(Ball::exact(power_of_two(-600)), power_of_two(-350));
        assert!(holds(sum.ball(1), &(Rational::from(1) >> 950_u32)));
    }
}
