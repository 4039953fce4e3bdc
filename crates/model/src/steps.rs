//! Turns a sequence of Samples into Intervals. Only this type keeps the earlier Sample.

use crate::{Interval, Sample, Selection, Skipped, selection::SelectionFilter};
use std::sync::Arc;

/// Makes an Interval from each Sample and the Sample before it. `S` holds a Sample.
#[derive(Clone, Debug)]
pub struct Steps<S = Box<Sample>> {
    filter: SelectionFilter,
    only_paths: bool,
    /// The latest Sample. `None`: the next Sample counts as the first.
    pub latest: Option<S>,
}

/// Starts without a Sample. Intervals cover the whole host.
impl<S> Default for Steps<S> {
    fn default() -> Self {
        Self { filter: SelectionFilter::default(), only_paths: false, latest: None }
    }
}

impl<S: AsRef<Sample>> Steps<S> {
    /// Starts without a Sample. Intervals cover the selection. Fails if the `comm` of the selection is not a regular expression.
    pub fn new(selection: &Selection) -> Result<Self, regex::Error> {
        Ok(Self { filter: SelectionFilter::new(selection)?, ..Self::default() })
    }

    #[must_use]
    pub fn with_paths(self, only_paths: bool) -> Self {
        Self { only_paths, ..self }
    }

    /// Returns the selected part of the Interval that ends with this Sample; `None` for the first Sample.
    pub fn step(&mut self, sample: S) -> Option<Interval> {
        Some(self.step_over(sample, |_, _| Skipped::default())?.0)
    }

    /// Like [`Self::step`], but also returns the earlier Sample. `skipped` returns the rows that ended between the two Samples.
    pub fn step_over(&mut self, sample: S, skipped: impl FnOnce(&S, &S) -> Skipped) -> Option<(Interval, S)> {
        let earlier = self.latest.replace(sample)?;
        let now = self.latest.as_ref()?;
        let mut interval = Interval::over(earlier.as_ref(), now.as_ref(), &mut skipped(&earlier, now));
        self.select(&mut interval);
        Some((interval, earlier))
    }

    pub fn select(&self, interval: &mut Interval) {
        interval.filter(&self.filter);
        if self.only_paths {
            Arc::make_mut(&mut interval.names).only_paths = true;
        }
    }
}
