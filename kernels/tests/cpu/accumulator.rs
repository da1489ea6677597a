//! Loading and storing: exact where it must be, correctly rounded elsewhere.

use flashproof_kernels::cpu::element::Element;
use half::{bf16, f16};
use proptest::prelude::*;

fn every<E: Element>(from_bits: fn(u16) -> E) -> impl Iterator<Item = E> {
    (0..=u16::MAX).map(from_bits)
}

fn same(a: f64, b: f64) -> bool {
    a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
}

fn loads_and_stores_exactly<E: Element<Accumulator = f32>>(element: E) {
    let value = element.to_exact();
    assert!(same(f64::from(element.load()), value), "{value:e} loaded");
    assert!(same(E::store(element.load()).to_exact(), value), "{value:e} stored");
    assert!(same(E::from_exact(value).to_exact(), value), "{value:e} converted");
}

#[test]
fn every_half_survives_a_round_trip() {
    every(f16::from_bits).for_each(loads_and_stores_exactly);
    every(bf16::from_bits).for_each(loads_and_stores_exactly);
}

fn stores_as_the_format_rounds<E: Element<Accumulator = f32>>(value: f32) {
    let expected = E::FORMAT.round(f64::from(value));
    let stored = E::store(value).to_exact();
    assert!(same(stored, expected), "{value:e} as {}: {stored:e}, not {expected:e}", E::FORMAT);
}

/// The numbers at which rounding turns: midway between neighbours, and to either side of that.
fn stores_ties_and_their_neighbours<E: Element<Accumulator = f32>>(from_bits: fn(u16) -> E) {
    for (low, high) in every(from_bits).zip(every(from_bits).skip(1)) {
        let midway = low.load() / 2.0 + high.load() / 2.0;
        for value in [midway.next_down(), midway, midway.next_up()] {
            stores_as_the_format_rounds::<E>(value);
        }
    }
}

#[test]
fn halves_round_ties_to_even() {
    stores_ties_and_their_neighbours(f16::from_bits);
    stores_ties_and_their_neighbours(bf16::from_bits);
}

proptest! {
    #[test]
    fn every_accumulator_is_stored_as_its_format_rounds(bits: u32) {
        let value = f32::from_bits(bits);
        stores_as_the_format_rounds::<f16>(value);
        stores_as_the_format_rounds::<bf16>(value);
        stores_as_the_format_rounds::<f32>(value);
    }

    #[test]
    fn f64_is_kept_as_it_is(bits: u64) {
        let value = f64::from_bits(bits);
        prop_assert_eq!(f64::store(value).load().to_bits(), bits);
        prop_assert_eq!(f64::from_exact(value).to_exact().to_bits(), bits);
    }
}
