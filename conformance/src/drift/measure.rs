//! What is kept of the elements of one output while a run goes on.

use std::collections::{BTreeMap, BTreeSet};

use ndarray::Dimension;

use super::digest::Bits;
use super::figure::{Figure, Span};
use super::histogram::Histogram;
use super::moments::{Moments, Signed};
use super::snapshot::{Answers, Elements, Mean, Ratios, Sizes, Values, Worst};
use super::zone::{Zone, Zones};
use crate::run::AnswerTensor;
use crate::verdict::{Compared, Element, Location, Measured, Quantity, Want};

/// The ratios of one output's elements in one case.
#[derive(Clone, Default)]
pub(super) struct Measure {
    histogram: Histogram,
    moments: Moments,
    worst: Option<Element>,
}

impl Measure {
    /// Adds the elements of one row that have a ratio.
    pub(super) fn add_row<'c>(&mut self, row: impl IntoIterator<Item = &'c Compared>) {
        let mut signed = Vec::new();
        for Compared { element, .. } in row {
            if element.bound.is_none() {
                continue;
            }
            signed.push(signed_ratio(element));
            self.histogram.add(element.ratio);
            if self.worst.as_ref().is_none_or(|held| element.worse_than(held)) {
                self.worst = Some(element.clone());
            }
        }
        self.moments.add_row(&signed);
    }
}

/// An element that is its exact answer correctly rounded has an error, but one of its format and in no
/// direction that the kernel chose.
fn signed_ratio(element: &Element) -> Signed {
    let Want::Number(want) = element.want else { return (element.ratio, 0.0) };
    let difference = element.got - want;
    (element.ratio, if difference == 0.0 { 0.0 } else { difference.signum() })
}

/// The bits and the special values of what a kernel gave of one output, by zone.
#[derive(Default)]
pub(super) struct Held {
    bits: Bits,
    zones: BTreeMap<Zone, Bits>,
    values: [u64; 3],
}

impl Held {
    pub(super) fn add(&mut self, given: &AnswerTensor<'_>, zones: &Zones) {
        let AnswerTensor { quantity, tensor, .. } = *given;
        for (indices, &value) in tensor.values().indexed_iter() {
            let zone = zones.of(quantity, Location::of_element(quantity, indices.slice()));
            self.bits.number(value);
            self.zones.entry(zone).or_default().number(value);
            let kinds = [value.is_nan(), value.is_infinite(), value == 0.0];
            for (count, is_kind) in self.values.iter_mut().zip(kinds) {
                *count += u64::from(is_kind);
            }
        }
    }
}

/// One output over the cases of a group.
#[derive(Default)]
pub(super) struct Gathered {
    bits: Bits,
    zones: BTreeMap<Zone, Bits>,
    values: [u64; 3],
    counts: [u64; 4],
    measure: Measure,
    worst: Option<(String, Zone, Element)>,
}

impl Gathered {
    /// Adds what the kernel gave in one case.
    pub(super) fn add_bits(&mut self, case: &str, held: Held) {
        self.bits.of_case(case, held.bits);
        for (zone, bits) in held.zones {
            self.zones.entry(zone).or_default().of_case(case, bits);
        }
        for (sum, count) in self.values.iter_mut().zip(held.values) {
            *sum += count;
        }
    }

    /// Adds how the elements of one case compared.
    pub(super) fn add_counts(&mut self, measured: &Measured) {
        let Measured { elements, wrong, unbounded, not_compared, .. } = *measured;
        for (sum, count) in self.counts.iter_mut().zip([elements, wrong, unbounded, not_compared]) {
            *sum += count as u64;
        }
    }

    /// Adds the ratios of one case.
    pub(super) fn add_measure(
        &mut self,
        case: &str,
        zones: &Zones,
        quantity: Quantity,
        measure: Measure,
    ) {
        self.measure.histogram.merge(&measure.histogram);
        self.measure.moments.merge(&measure.moments);
        if let Some(element) = measure.worst
            && self.worst.as_ref().is_none_or(|(_, _, held)| element.ratio > held.ratio)
        {
            let zone = zones.of(quantity, element.location);
            self.worst = Some((case.to_owned(), zone, element));
        }
    }

    /// What a snapshot keeps.
    pub(super) fn answers(self) -> Answers {
        let [nan, infinite, zero] = self.values.map(Span::of);
        let [compared, wrong, unbounded, unspecified] = self.counts.map(Span::of);
        let digests = |bits: Bits| BTreeSet::from([bits.digest()]);
        let Measure { histogram, moments, .. } = self.measure;
        let ratios = self.worst.map(|(case, zone, element)| {
            // The upper end of a bucket may lie above every number in it.
            let quantile = |per_mille| figure(histogram.quantile(per_mille).min(element.ratio));
            Ratios {
                sizes: Sizes {
                    count: Span::of(histogram.len()),
                    rms: figure(moments.rms()),
                    p50: quantile(500),
                    p99: quantile(990),
                    p999: quantile(999),
                },
                mean: Mean {
                    signed: figure(moments.mean()),
                    deviation: figure(moments.deviation()),
                },
                worst: Worst {
                    ratio: figure(element.ratio),
                    case,
                    at: element.location.to_string(),
                    zone,
                },
            }
        });
        Answers {
            bits: digests(self.bits),
            zones: self.zones.into_iter().map(|(zone, bits)| (zone, digests(bits))).collect(),
            elements: Elements { compared, wrong, unbounded, unspecified },
            values: Values { nan, infinite, zero },
            ratios,
        }
    }
}

fn figure(value: f64) -> Span<Figure> {
    Span::of(Figure::from(value))
}
