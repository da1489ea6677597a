//! From enclosures at a rising precision to rounded entries.

use flashproof_spec::format::Format;
use rug::float::Round;
use rug::{Float, Rational};

use crate::enclosure::Enclosure;
use crate::round::{Decision, decide};
use crate::row::Exact;

/// Where entries are rounded to, and how far to go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub(crate) format: Format,
    pub(crate) max_precision: u32,
}

/// The entries of one row of a gradient, one a column.
pub(crate) trait Entries {
    /// Enclosures of the entries in these columns.
    fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure>;

    /// The entries in these columns, where all of them are rational and known as such.
    fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>>;
}

/// Rounds all entries, of which `first` are the enclosures at `precision`.
///
/// Rational entries are decided exactly. Others are enclosed again at twice the precision until
/// they are decided, or that would exceed the largest precision allowed.
pub(crate) fn settle(
    entries: &impl Entries,
    first: Vec<Enclosure>,
    mut precision: u32,
    target: Target,
) -> Vec<Exact> {
    let mut settled: Vec<Exact> =
        first.into_iter().map(|enclosure| round(enclosure, target.format)).collect();
    let open = |settled: &[Exact]| -> Vec<usize> {
        (0..settled.len()).filter(|&column| settled[column].rounded.is_none()).collect()
    };
    let mut columns = open(&settled);
    if columns.is_empty() {
        return settled;
    }
    if let Some(values) = entries.rational(&columns) {
        for (&column, value) in columns.iter().zip(&values) {
            settled[column] = round_rational(value, precision, target.format);
        }
        return settled;
    }
    while !columns.is_empty() && precision <= target.max_precision / 2 {
        precision *= 2;
        for (&column, enclosure) in columns.iter().zip(entries.enclose(precision, &columns)) {
            settled[column] = round(enclosure, target.format);
        }
        columns = open(&settled);
    }
    settled
}

/// An entry with the value that its enclosure decides on.
fn round(enclosure: Enclosure, format: Format) -> Exact {
    let rounded = match decide(&enclosure, format) {
        // Exactly zero has no sign.
        Decision::Value(_) if *enclosure.lo() == 0 && *enclosure.hi() == 0 => Some(0.0),
        Decision::Value(value) => Some(value),
        Decision::Midpoint(_) | Decision::Open => None,
    };
    Exact { enclosure, rounded }
}

/// A rational number, rounded.
///
/// This ends: a midpoint is a dyadic number, and at a precision that holds all its bits it is its
/// own enclosure, which decides. Any other number is apart from all midpoints.
fn round_rational(value: &Rational, mut precision: u32, format: Format) -> Exact {
    loop {
        let exact = round(enclose_rational(value, precision), format);
        if exact.rounded.is_some() {
            return exact;
        }
        precision *= 2;
    }
}

/// A rational number, with endpoints of so many bits.
pub(crate) fn enclose_rational(x: &Rational, precision: u32) -> Enclosure {
    let end = |round| Float::with_val_round(precision, x, round).0;
    Enclosure::new(end(Round::Down), end(Round::Up))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// Entries of known value, each enclosed `2^-precision` to either side.
    struct Known {
        values: Vec<Rational>,
        are_rational: bool,
        asked: RefCell<Vec<u32>>,
    }

    impl Known {
        fn new(values: Vec<Rational>, are_rational: bool) -> Self {
            Self { values, are_rational, asked: RefCell::default() }
        }

        fn settle(&self, max_precision: u32) -> Vec<Exact> {
            let columns: Vec<usize> = (0..self.values.len()).collect();
            let first = self.enclose(62, &columns);
            settle(self, first, 62, Target { format: Format::E4m3, max_precision })
        }
    }

    impl Entries for Known {
        fn enclose(&self, precision: u32, columns: &[usize]) -> Vec<Enclosure> {
            self.asked.borrow_mut().push(precision);
            let slack = Rational::from(1) >> precision;
            let end = |x: Rational, round| Float::with_val_round(precision + 8, x, round).0;
            let enclose = |&column: &usize| {
                let value = &self.values[column];
                let lo = end(Rational::from(value - &slack), Round::Down);
                let hi = end(Rational::from(value + &slack), Round::Up);
                Enclosure::new(lo, hi)
            };
            columns.iter().map(enclose).collect()
        }

        fn rational(&self, columns: &[usize]) -> Option<Vec<Rational>> {
            let values = || columns.iter().map(|&column| self.values[column].clone()).collect();
            self.are_rational.then(values)
        }
    }

    fn rounded(exact: &[Exact]) -> Vec<Option<f64>> {
        exact.iter().map(|exact| exact.rounded).collect()
    }

    /// Two e4m3 midpoints, zero, and just past a midpoint.
    fn values() -> Vec<Rational> {
        let past = Rational::from(17) + (Rational::from(1) >> 100_u32);
        vec![Rational::from(17), Rational::from(-19), Rational::new(), past]
    }

    #[test]
    fn rational_midpoints_go_to_even_and_zeros_are_exact() {
        let known = Known::new(values(), true);
        let exact = known.settle(1 << 12);
        assert_eq!(rounded(&exact), [Some(16.0), Some(-20.0), Some(0.0), Some(18.0)]);
        for open in [0, 1, 3] {
            assert_eq!(exact[open].enclosure.lo(), &known.values[open]);
        }
        assert_eq!(known.asked.into_inner(), [62], "no second enclosure");
    }

    #[test]
    fn quotients_next_to_a_midpoint_are_decided() {
        let third = Rational::from((1, 3)) >> 200_u32;
        let known = Known::new(vec![Rational::from(17) + &third, Rational::from(17) - third], true);
        assert_eq!(rounded(&known.settle(62)), [Some(18.0), Some(16.0)]);
    }

    #[test]
    fn the_precision_rises_to_the_cap_for_what_is_open() {
        let known = Known::new(values(), false);
        let exact = known.settle(300);
        assert_eq!(rounded(&exact), [None, None, Some(0.0), Some(18.0)]);
        assert_eq!(known.asked.into_inner(), [62, 124, 248]);
        let known = Known::new(values(), false);
        assert_eq!(rounded(&known.settle(0)), [None, None, Some(0.0), None]);
        assert_eq!(known.asked.into_inner(), [62], "the first enclosure is given");
    }
}
