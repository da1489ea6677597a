//! Fewer positions along an axis.

use super::select::{Axis, select};
use super::{Halt, Search};
use crate::run::Instance;
use crate::verdict::{Location, Position, Quantity};

impl Search<'_> {
    /// Cuts an axis: to the place of the failure alone; else by everything, halves, quarters, and so
    /// on down to single positions, later ones first, since masks and blocks count from the front.
    pub(super) fn cut(&mut self, axis: Axis) -> Result<(), Halt> {
        let location = self.target.location(&self.found.examined.judged);
        if let Some(place) = location.and_then(|it| self.place(axis, it))
            && axis.extent(&self.found.instance.problem) > 1
            && self.keeps_only(axis, &[place])?
        {
            return Ok(());
        }
        let mut chunk = axis.extent(&self.found.instance.problem);
        while chunk > 0 {
            let mut end = axis.extent(&self.found.instance.problem);
            while end > 0 {
                let start = end.saturating_sub(chunk);
                let extent = axis.extent(&self.found.instance.problem);
                let keep: Vec<usize> = (0..start).chain(end..extent).collect();
                let possible = !keep.is_empty() || axis.may_be_empty();
                if possible {
                    self.keeps_only(axis, &keep)?;
                }
                end = start;
            }
            chunk = if chunk == 1 { 0 } else { chunk.div_ceil(2) };
        }
        Ok(())
    }

    fn keeps_only(&mut self, axis: Axis, keep: &[usize]) -> Result<bool, Halt> {
        match select(&self.found.instance, axis, keep, self.layout) {
            Some(candidate) => self.keeps(candidate),
            None => Ok(false),
        }
    }

    /// The position along the axis at which the failure stands.
    fn place(&self, axis: Axis, at: Location) -> Option<usize> {
        let Instance { problem, .. } = &self.found.instance;
        let of_key_head =
            matches!(self.target.quantity, Some(Quantity::KeyGradient | Quantity::ValueGradient));
        let of_value =
            matches!(self.target.quantity, Some(Quantity::Output | Quantity::ValueGradient));
        match (axis, at.position) {
            (Axis::Batch, Position::Query(_) | Position::Key(_)) => Some(at.batch),
            (Axis::KeyHead, _) if of_key_head => Some(at.head),
            (Axis::KeyHead, Position::Query(_) | Position::Head) => {
                Some(problem.key_head_of(at.head))
            }
            (Axis::Group, Position::Query(_) | Position::Head) => {
                Some(at.head % Axis::Group.extent(problem))
            }
            (Axis::Query, Position::Query(query)) => Some(query),
            (Axis::Key, Position::Key(key)) => Some(key),
            (Axis::ValueDim, _) if of_value => at.entry,
            (Axis::HeadDim, _) if !of_value => at.entry,
            _ => None,
        }
    }
}
