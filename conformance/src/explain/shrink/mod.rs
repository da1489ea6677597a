//! The smallest input that still shows a failure, by delta debugging (Zeller and Hildebrandt,
//! "Simplifying and isolating failure-inducing input", 2002) over typed simplifications.
//!
//! | file | what it takes away |
//! |---|---|
//! | `rule` | layouts, passes, modifications of scores, rules of the mask |
//! | `select` | positions of an axis: members, heads, queries, keys, entries |
//! | `value` | digits |
//!
//! Each candidate is put to the kernel and its answer judged; one that still fails in the same way
//! ([`Target`]) is kept. Every simplification makes the input strictly simpler, so this ends; a limit on
//! questions and time ends it sooner. Candidates come in a fixed order, so that the same kernel,
//! input and number of questions give the same result.

mod axis;
mod rule;
mod select;
mod value;

use std::time::{Duration, Instant};

use flashproof_spec::profile::Profile;
use serde::Serialize;

pub use select::{Axis, laid_out, select};
pub use value::Part;
use value::{Plainer, plainer};

use super::target::Target;
use crate::adapter::Subject;
use crate::inputs::LayoutKind;
use crate::run::{Examined, Instance, RunError, examine};

/// When to stop looking for a smaller input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most questions to the kernel; none leaves the input as it is.
    pub questions: usize,
    /// Most time.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { questions: 4000, time: Duration::from_secs(60) }
    }
}

/// Why there may be a smaller input than the one found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stopped {
    /// [`Limits::questions`].
    Questions,
    /// [`Limits::time`].
    Time,
}

/// The smallest input found.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The input.
    pub instance: Instance,
    /// The kernel's answer to it.
    pub examined: Examined,
    /// Candidates put to the kernel.
    pub questions: usize,
    /// Those of them that still failed in the same way.
    pub kept: usize,
    /// The limit that ended the search, if one did.
    pub stopped: Option<Stopped>,
}

/// Looks for a smaller instance that fails in the same way as this one, of which `examined` is the
/// kernel's answer; `name` is the case's, for errors. `progress` is called once a question.
///
/// # Errors
/// [`RunError`] where a candidate could not be put to the kernel or to the oracle.
pub fn shrink(
    subject: &mut dyn Subject,
    profile: &Profile,
    target: &Target,
    (instance, examined): (Instance, Examined),
    limits: Limits,
    name: &str,
    progress: &dyn Fn(),
) -> Result<Shrunk, RunError> {
    let layout = LayoutKind::recognise(&instance.problem);
    let mut search = Search {
        subject,
        profile,
        target,
        limits,
        started: Instant::now(),
        name,
        progress,
        layout,
        found: Shrunk { instance, examined, questions: 0, kept: 0, stopped: None },
    };
    match search.run() {
        Ok(()) => {}
        Err(Halt::Limit(stopped)) => search.found.stopped = Some(stopped),
        Err(Halt::Error(error)) => return Err(error),
    }
    Ok(search.found)
}

/// Why a search ends before there is nothing left to try.
enum Halt {
    Limit(Stopped),
    Error(RunError),
}

struct Search<'s> {
    subject: &'s mut dyn Subject,
    profile: &'s Profile,
    target: &'s Target,
    limits: Limits,
    started: Instant,
    name: &'s str,
    progress: &'s dyn Fn(),
    /// The layout that the input still has.
    layout: Option<LayoutKind>,
    found: Shrunk,
}

impl Search<'_> {
    fn run(&mut self) -> Result<(), Halt> {
        self.dense()?;
        loop {
            let before = self.found.kept;
            self.simplest(rule::without_one)?;
            for axis in Axis::ALL {
                self.cut(axis)?;
            }
            self.simplest(|instance, _| rule::simpler_rules(instance))?;
            for part in Part::ALL {
                self.plainer(part)?;
            }
            if self.found.kept == before {
                return Ok(());
            }
        }
    }

    /// Puts a candidate to the kernel, and keeps it where it fails in the same way.
    fn keeps(&mut self, candidate: Instance) -> Result<bool, Halt> {
        let Some(candidate) = laid_out(candidate, self.layout) else { return Ok(false) };
        let Instance { problem, inputs, .. } = &candidate;
        if problem.validate().is_err() || inputs.check(problem).is_err() {
            return Ok(false);
        }
        if self.found.questions >= self.limits.questions {
            return Err(Halt::Limit(Stopped::Questions));
        }
        if self.started.elapsed() >= self.limits.time {
            return Err(Halt::Limit(Stopped::Time));
        }
        self.found.questions += 1;
        (self.progress)();
        let examined =
            examine(self.subject, self.profile, &candidate, self.name).map_err(Halt::Error)?;
        let shown = self.target.is_shown(&examined.judged);
        if shown {
            self.found.kept += 1;
            (self.found.instance, self.found.examined) = (candidate, examined);
        }
        Ok(shown)
    }

    /// Drops the layout, where the failure does not need it.
    fn dense(&mut self) -> Result<(), Halt> {
        if self.layout.is_some()
            && let Some(layout) = self.layout.take()
            && !self.keeps(self.found.instance.clone())?
        {
            self.layout = Some(layout);
        }
        Ok(())
    }

    /// Takes simpler instances for as long as there are any that fail.
    fn simplest(&mut self, simpler: fn(&Instance, bool) -> Vec<Instance>) -> Result<(), Halt> {
        let is_forward = self.target.is_forward();
        loop {
            let mut found = false;
            for candidate in simpler(&self.found.instance, is_forward) {
                if self.keeps(candidate)? {
                    found = true;
                    break;
                }
            }
            if !found {
                return Ok(());
            }
        }
    }

    /// Makes the values of a tensor plainer: all at once, half of them, and so on down to one.
    fn plainer(&mut self, part: Part) -> Result<(), Halt> {
        for how in Plainer::ALL {
            let len = part.of(&self.found.instance).map_or(0, |tensor| tensor.values().len());
            let mut chunk = len;
            while chunk > 0 {
                for start in (0..len).step_by(chunk) {
                    let instance = &self.found.instance;
                    let tensor = part.of(instance);
                    let end = (start + chunk).min(len);
                    let new = tensor.and_then(|tensor| plainer(tensor, start..end, how));
                    if let Some(new) = new {
                        let candidate = part.replaced(instance, new);
                        self.keeps(candidate)?;
                    }
                }
                chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
            }
        }
        Ok(())
    }
}
