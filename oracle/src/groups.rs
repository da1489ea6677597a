//! The keys of a row in order of falling score, those of equal score together, and the sink among
//! them.
//!
//! Linear scores ([`crate::score`]) are integers times one factor, so their equality and order are
//! exact. A factor of zero makes all scores equal, a negative one reverses the order.
//!
//! Of other scores, those of equal parts are grouped, and groups are ordered by scores that are known
//! to [`ORDER_BITS`]. The first group's score is then the largest to within twice that distance,
//! which is all that its use as the reference of weights needs ([`crate::weights`]).

use std::cmp::Ordering;
use std::ops::Range;

use rug::float::Round;
use rug::{Float, Integer};

use crate::score::{Parts, ScoreRule};

/// Scores are ordered by lower bounds within `2^-ORDER_BITS`.
pub(crate) const ORDER_BITS: u32 = 64;

/// Groups of keys of equal score, the largest score first.
#[derive(Debug)]
pub(crate) struct Groups {
    /// Indices into the list of scores, group after group.
    order: Vec<usize>,
    /// Where each group begins in `order`, and the end.
    starts: Vec<usize>,
    /// The group that the sink is in, alone or with keys of equal score.
    sink: Option<usize>,
}

/// What has a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// A key, by its index into the list of scores.
    Key(usize),
    /// The sink.
    Sink,
}

impl Groups {
    /// Groups the keys with these dot products; `sign` is the scale's.
    pub(crate) fn new(dots: &[Integer], sign: Ordering) -> Self {
        Self::with_sink(dots, None, sign)
    }

    /// Groups the keys and the sink with linear scores of these integers, at least one; `sign` is the
    /// factor's.
    pub(crate) fn with_sink(keys: &[Integer], sink: Option<&Integer>, sign: Ordering) -> Self {
        let at = |index: usize| keys.get(index).or(sink).expect("an index of a key or the sink");
        Self::sorted(keys.len(), sink.is_some(), |&a, &b| match sign {
            Ordering::Greater => at(b).cmp(at(a)),
            Ordering::Less => at(a).cmp(at(b)),
            Ordering::Equal => Ordering::Equal,
        })
    }

    /// Groups the keys and the sink with scores of these parts, at least one, by any rule.
    pub(crate) fn of_scores(rule: &ScoreRule, keys: &[Parts], sink: Option<&Parts>) -> Self {
        let parts: Vec<&Parts> = keys.iter().chain(sink).collect();
        let bounds: Vec<Float> =
            parts.iter().map(|parts| rule.bound(parts, ORDER_BITS, Round::Down)).collect();
        Self::sorted(keys.len(), sink.is_some(), |&a, &b| {
            let by_score = bounds[b].total_cmp(&bounds[a]);
            by_score.then_with(|| parts[a].arbitrary_order(parts[b]))
        })
    }

    /// Groups this many keys, and the sink as the index after them.
    fn sorted(keys: usize, sink: bool, falling: impl Fn(&usize, &usize) -> Ordering) -> Self {
        let mut order: Vec<usize> = (0..keys + usize::from(sink)).collect();
        order.sort_by(&falling);
        let mut starts = vec![0];
        starts.extend((1..order.len()).filter(|&i| falling(&order[i - 1], &order[i]).is_ne()));
        starts.push(order.len());
        let mut groups = Self { order, starts, sink: None };
        if sink {
            groups.take_out_sink(keys);
        }
        groups
    }

    /// Remembers the group of the sink, which stands under this index, instead of its place.
    fn take_out_sink(&mut self, index: usize) {
        let Some(place) = self.order.iter().position(|&member| member == index) else { return };
        self.order.remove(place);
        let group = self.starts.partition_point(|&start| start <= place) - 1;
        self.starts[group + 1..].iter_mut().for_each(|start| *start -= 1);
        self.sink = Some(group);
    }

    /// How many different scores there are.
    pub(crate) fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// The keys of a group, as indices into the list of scores; none in a group of the sink alone.
    pub(crate) fn members(&self, group: usize) -> &[usize] {
        let Range { start, end } = self.starts[group]..self.starts[group + 1];
        &self.order[start..end]
    }

    /// One of a group: a key where it has one.
    pub(crate) fn representative(&self, group: usize) -> Member {
        self.members(group).first().map_or(Member::Sink, |&key| Member::Key(key))
    }

    /// How many terms of the normalizer a group makes: its keys, and the sink.
    pub(crate) fn terms(&self, group: usize) -> usize {
        self.members(group).len() + usize::from(self.sink == Some(group))
    }

    /// The group of the sink.
    pub(crate) const fn sink(&self) -> Option<usize> {
        self.sink
    }

    /// The distance of each group from the first one, as that of the integers behind these linear
    /// scores.
    pub(crate) fn gaps(&self, keys: &[Integer], sink: Option<&Integer>) -> Vec<Integer> {
        let of = |group| match self.representative(group) {
            Member::Key(key) => &keys[key],
            Member::Sink => sink.expect("a group without keys is the sink's"),
        };
        (0..self.len()).map(|group| Integer::from(of(group) - of(0)).abs()).collect()
    }

    /// Every index into the list of scores, with its group.
    pub(crate) fn keys(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        (0..self.len()).flat_map(|group| self.members(group).iter().map(move |&key| (key, group)))
    }
}
