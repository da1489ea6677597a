//! The texts of drift: what is written is read back, and nothing that is read panics.

use std::collections::{BTreeMap, BTreeSet};

use flashproof_conformance::drift::{
    Accepted, Answers, Asked, Digest, Elements, Figure, Group, HISTORY_VERSION, History, Mean,
    Ratios, SNAPSHOT_VERSION, Sizes, Snapshot, Span, Values, Worst, Zone,
};
use flashproof_conformance::suite::Suite;
use flashproof_conformance::verdict::{Quantity, Verdict};
use flashproof_spec::format::Format;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use proptest::sample::{Index, select};

const ZONES: [Zone; 7] =
    [Zone::Whole, Zone::Empty, Zone::Single, Zone::First, Zone::Interior, Zone::Last, Zone::Tail];

fn digest() -> impl Strategy<Value = Digest> {
    any::<String>().prop_map(|text| Digest::of_text(&text))
}

fn figure() -> impl Strategy<Value = Figure> {
    any::<f64>().prop_map(Figure::from)
}

fn span<T: Copy + PartialOrd + std::fmt::Debug>(
    value: impl Strategy<Value = T> + Clone,
) -> impl Strategy<Value = Span<T>> {
    (value.clone(), value).prop_map(|(a, b)| Span::of(a).hull(Span::of(b)))
}

/// TOML's integers have a sign.
fn count() -> impl Strategy<Value = Span<u64>> {
    span(0..=i64::MAX.unsigned_abs())
}

fn number() -> impl Strategy<Value = Span<Figure>> {
    let figure = any::<f64>().prop_map(Figure::from as fn(f64) -> Figure);
    (figure.clone(), figure).prop_map(|(a, b)| Span::of(a).hull(Span::of(b)))
}

fn ratios() -> impl Strategy<Value = Ratios> {
    let worst = (number(), any::<String>(), any::<String>(), select(&ZONES[..]))
        .prop_map(|(ratio, case, at, zone)| Worst { ratio, case, at, zone });
    let sizes = (count(), number(), number(), number(), number())
        .prop_map(|(count, rms, p50, p99, p999)| Sizes { count, rms, p50, p99, p999 });
    let mean = (number(), number()).prop_map(|(signed, deviation)| Mean { signed, deviation });
    (worst, sizes, mean).prop_map(|(worst, sizes, mean)| Ratios { worst, sizes, mean })
}

fn answers() -> impl Strategy<Value = Answers> {
    let elements = [count(), count(), count(), count()].prop_map(|it| {
        let [compared, wrong, unbounded, unspecified] = it;
        Elements { compared, wrong, unbounded, unspecified }
    });
    let values = [count(), count(), count()].prop_map(|[nan, infinite, zero]| Values {
        nan,
        infinite,
        zero,
    });
    let bits = || btree_set(digest(), 1..3);
    let zones = btree_map(select(&ZONES[..]), bits(), 0..3);
    (bits(), zones, elements, values, prop::option::of(ratios())).prop_map(
        |(bits, zones, elements, values, ratios)| Answers { bits, zones, elements, values, ratios },
    )
}

fn verdict() -> impl Strategy<Value = Verdict> {
    select(&Verdict::ALL[..])
}

fn format() -> impl Strategy<Value = Format> {
    select(&Format::ALL[..])
}

fn quantity() -> impl Strategy<Value = Quantity> {
    select(&Quantity::ALL[..])
}

fn group() -> impl Strategy<Value = Group> {
    let verdicts = btree_map(verdict(), count(), 0..3);
    let failures = btree_map(any::<String>(), btree_set(verdict(), 1..3), 0..3);
    let of = btree_map(quantity(), answers(), 0..3);
    let cases = 0..=i64::MAX.unsigned_abs();
    (format(), any::<String>(), cases, digest(), verdicts, failures, of).prop_map(
        |(format, name, cases, inputs, verdicts, failures, of)| Group {
            format,
            name,
            cases,
            inputs,
            verdicts,
            failures,
            of,
        },
    )
}

fn asked() -> impl Strategy<Value = Asked> {
    let suite = select(vec![Suite::Quick, Suite::Full]);
    let formats = btree_set(format(), 0..4);
    (suite, formats, vec(any::<String>(), 0..3), any::<u64>())
        .prop_map(|(suite, formats, only, seed)| Asked { suite, formats, only, seed })
}

fn snapshot() -> impl Strategy<Value = Snapshot> {
    let environment = btree_map(any::<String>(), any::<String>(), 0..4);
    let profiles = btree_map(format(), digest(), 0..4);
    let groups = vec(group(), 0..3);
    (any::<String>(), asked(), any::<u32>(), any::<bool>(), environment, profiles, groups).prop_map(
        |(kernel, asked, runs, deterministic, environment, profiles, groups)| Snapshot {
            version: SNAPSHOT_VERSION,
            kernel,
            asked,
            runs,
            deterministic,
            environment,
            profiles,
            groups,
        },
    )
}

fn history() -> impl Strategy<Value = History> {
    let largest = btree_map(format(), btree_map(quantity(), [figure(), figure()], 0..3), 0..3);
    let texts = (any::<String>(), any::<String>(), any::<String>());
    let entry = (texts, asked(), digest(), digest(), largest).prop_map(
        |((date, kernel, reason), asked, before, after, largest)| Accepted {
            date,
            kernel,
            reason,
            asked,
            before,
            after,
            largest: BTreeMap::from_iter(largest),
        },
    );
    vec(entry, 0..4).prop_map(|accepted| History { version: HISTORY_VERSION, accepted })
}

/// The text with some characters replaced, removed or doubled.
fn mutated(text: &str, changes: &[(Index, u8, char)]) -> String {
    let mut characters: Vec<_> = text.chars().collect();
    for (place, how, character) in changes {
        if characters.is_empty() {
            break;
        }
        let at = place.index(characters.len());
        match how % 4 {
            0 => characters[at] = *character,
            1 => drop(characters.remove(at)),
            2 => characters.insert(at, *character),
            _ => characters.truncate(at),
        }
    }
    characters.into_iter().collect()
}

fn changes() -> impl Strategy<Value = Vec<(Index, u8, char)>> {
    let character =
        prop_oneof![any::<char>(), select("\"\\=[]{},.-0e\n ".chars().collect::<Vec<_>>())];
    vec((any::<Index>(), any::<u8>(), character), 1..6)
}

proptest! {
    #[test]
    fn a_snapshot_reads_back_as_it_was(snapshot in snapshot()) {
        let text = snapshot.to_string();
        prop_assert_eq!(Snapshot::parse(&text, "text").unwrap(), snapshot, "{}", text);
    }

    #[test]
    fn a_history_reads_back_as_it_was(history in history()) {
        let text = history.to_string();
        prop_assert_eq!(History::parse(&text, "text").unwrap(), history, "{}", text);
    }

    #[test]
    fn a_damaged_text_is_read_or_refused(
        snapshot in snapshot(),
        history in history(),
        changes in changes(),
    ) {
        if let Ok(read) = Snapshot::parse(&mutated(&snapshot.to_string(), &changes), "text") {
            let again = Snapshot::parse(&read.to_string(), "text").unwrap();
            prop_assert_eq!(again, read);
        }
        if let Ok(read) = History::parse(&mutated(&history.to_string(), &changes), "text") {
            prop_assert_eq!(History::parse(&read.to_string(), "text").unwrap(), read);
        }
    }

    #[test]
    fn any_text_is_read_or_refused(text in any::<String>()) {
        let _ = Snapshot::parse(&text, "text");
        let _ = History::parse(&text, "text");
    }
}

#[test]
fn a_snapshot_of_nothing_with_the_largest_seed_reads_back() {
    let empty = Snapshot {
        version: SNAPSHOT_VERSION,
        kernel: "kernel".to_owned(),
        asked: Asked {
            suite: Suite::Quick,
            formats: BTreeSet::new(),
            only: Vec::new(),
            seed: u64::MAX,
        },
        runs: 1,
        deterministic: true,
        environment: BTreeMap::new(),
        profiles: BTreeMap::new(),
        groups: Vec::new(),
    };
    let text = empty.to_string();
    assert_eq!(Snapshot::parse(&text, "text").unwrap(), empty);
    assert!(text.contains("seed = \"18446744073709551615\""), "{text}");
}
