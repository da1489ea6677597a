//! The least departure under which no case fails.

use std::mem::discriminant;

use flashproof_oracle::error::OracleError;
use flashproof_spec::profile::Profile;

use super::departure::Departure;
use super::ladder::{Ladder, ladders};
use super::{Found, Kept};
use crate::verdict::Verdict;

/// The least departure, or pair of them, under which none of the cases fails and one passes.
pub(super) fn least<K: Kept>(declared: &Profile, failing: &[K]) -> Result<Found, OracleError> {
    let mut search = Search::new(declared, failing);
    let ladders = ladders(declared);
    for ladder in &ladders {
        if let Some(rung) = search.least_of(ladder, &[])?
            && let Some(found) = search.explained(vec![ladder[rung]])?
        {
            return Ok(found);
        }
    }
    for (index, first) in ladders.iter().enumerate() {
        let mut least: Option<(usize, Found)> = None;
        for second in ladders[index + 1..].iter().filter(|second| differ(first, second)) {
            // Another second departure counts as less where it asks less of the first.
            let below = least.as_ref().map_or(first.len(), |(rung, _)| *rung);
            if let Some((rung, pair)) = search.least_pair(&first[..below], second)?
                && let Some(found) = search.explained(pair)?
            {
                least = Some((rung, found));
            }
        }
        if let Some((_, found)) = least {
            return Ok(found);
        }
    }
    Ok(Found::Nothing { case: search.always_fails().map(str::to_owned) })
}

struct Search<'a, K> {
    declared: &'a Profile,
    /// The case that refused a departure last is asked first: most departures are refused, and by the
    /// same case.
    order: Vec<&'a K>,
    refusals: usize,
    refused_by: Vec<(&'a K, usize)>,
}

impl<'a, K: Kept> Search<'a, K> {
    fn new(declared: &'a Profile, failing: &'a [K]) -> Self {
        let mut order: Vec<_> = failing.iter().collect();
        order.sort_by_key(|kept| kept.size());
        Self { declared, order, refusals: 0, refused_by: Vec::new() }
    }

    /// The least rung that suffices beside `others`, if the last one does.
    fn least_of(
        &mut self,
        ladder: &[Departure],
        others: &[Departure],
    ) -> Result<Option<usize>, OracleError> {
        let Some(mut suffices) = ladder.len().checked_sub(1) else { return Ok(None) };
        let mut fails = 0;
        if !self.suffices(&with(others, ladder[suffices]))? {
            return Ok(None);
        }
        while fails < suffices {
            let middle = fails.midpoint(suffices);
            if self.suffices(&with(others, ladder[middle]))? {
                suffices = middle;
            } else {
                fails = middle + 1;
            }
        }
        Ok(Some(suffices))
    }

    /// The least rung of the first ladder beside all of the second, and with it the least of the second.
    fn least_pair(
        &mut self,
        first: &[Departure],
        second: &Ladder,
    ) -> Result<Option<(usize, Vec<Departure>)>, OracleError> {
        let Some(&whole) = second.last() else { return Ok(None) };
        let Some(rung) = self.least_of(first, &[whole])? else { return Ok(None) };
        let one = first[rung];
        let other = self.least_of(second, &[one])?.map_or(whole, |rung| second[rung]);
        Ok(Some((rung, vec![one, other])))
    }

    /// Whether no case fails under the declared profile with these departures.
    fn suffices(&mut self, departures: &[Departure]) -> Result<bool, OracleError> {
        let Some(profile) = departed(self.declared, departures) else { return Ok(false) };
        for index in 0..self.order.len() {
            let kept = self.order[index];
            if is_refused(kept.verdict_under(&profile)?) {
                self.order.remove(index);
                self.order.insert(0, kept);
                self.refuse(kept);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn refuse(&mut self, kept: &'a K) {
        self.refusals += 1;
        match self.refused_by.iter_mut().find(|(it, _)| std::ptr::eq(*it, kept)) {
            Some((_, count)) => *count += 1,
            None => self.refused_by.push((kept, 1)),
        }
    }

    /// The case that refused every departure that was tried, if it was one.
    fn always_fails(&self) -> Option<&str> {
        self.refused_by
            .iter()
            .find(|(_, count)| *count == self.refusals)
            .map(|(kept, _)| kept.case())
    }

    /// The departures, and what they leave without a bound; nothing is explained where that is every
    /// case.
    fn explained(&self, departures: Vec<Departure>) -> Result<Option<Found>, OracleError> {
        let profile = departed(self.declared, &departures).unwrap_or_else(|| self.declared.clone());
        let mut unbounded = 0;
        for kept in &self.order {
            unbounded += usize::from(kept.verdict_under(&profile)? == Verdict::NoBound);
        }
        let explains = unbounded < self.order.len();
        Ok(explains.then_some(Found::PassesIf { departures, unbounded }))
    }
}

/// The profile with all departures; `None` where one of them is none after the others.
fn departed(declared: &Profile, departures: &[Departure]) -> Option<Profile> {
    departures.iter().try_fold(declared.clone(), |profile, departure| departure.from(&profile))
}

/// A case without a bound is not refused: it is told apart in the end.
const fn is_refused(verdict: Verdict) -> bool {
    !matches!(verdict, Verdict::Pass | Verdict::NoBound)
}

/// Whether two ladders depart in different things: one that departs further in the same was tried.
fn differ(first: &Ladder, second: &Ladder) -> bool {
    match (first.first(), second.first()) {
        (
            Some(Departure::CarriedGradient(first, _)),
            Some(Departure::CarriedGradient(second, _)),
        ) => first != second,
        (first, second) => first.map(discriminant) != second.map(discriminant),
    }
}

fn with(others: &[Departure], departure: Departure) -> Vec<Departure> {
    let mut all = others.to_vec();
    all.push(departure);
    all
}
