//! From Sample to Sample: the one place that keeps the earlier Sample.

use crate::{Interval, Sample, Selection, Skipped, selection::SelectionFilter};
use std::sync::Arc;

/// Makes the interval to each Sample from the one before. `S` holds a Sample.
#[derive(Clone, Debug)]
pub struct Steps<S = Box<Sample>> {
    filter: SelectionFilter,
    /// Cgroups are called by their paths alone.
    only_paths: bool,
    earlier: Option<S>,
}

/// Begins without a Sample. Intervals have the whole host.
impl<S> Default for Steps<S> {
    fn default() -> Self {
        Self { filter: SelectionFilter::default(), only_paths: false, earlier: None }
    }
}

impl<S: AsRef<Sample>> Steps<S> {
    /// Begins without a Sample. Intervals have what is selected.
    ///
    /// # Errors
    /// If the `comm` of the selection is not a regular expression.
    pub fn new(selection: &Selection) -> Result<Self, regex::Error> {
        Ok(Self { filter: SelectionFilter::new(selection)?, only_paths: false, earlier: None })
    }

    /// Calls cgroups by their paths alone.
    #[must_use]
    pub fn with_paths(self, only_paths: bool) -> Self {
        Self { only_paths, ..self }
    }

    /// The selected part of the interval that ends with this Sample; `None` for the first one.
    pub fn step(&mut self, sample: S) -> Option<Interval> {
        Some(self.step_over(sample, |_, _| Skipped::default())?.0)
    }

    /// As [`Self::step`], with the earlier Sample. `skipped` returns the rows that ended in the Samples between the two.
    pub fn step_over(&mut self, sample: S, skipped: impl FnOnce(&S, &S) -> Skipped) -> Option<(Interval, S)> {
        let earlier = self.earlier.replace(sample)?;
        let now = self.earlier.as_ref()?;
        let mut interval = Interval::over(earlier.as_ref(), now.as_ref(), &mut skipped(&earlier, now));
        self.select(&mut interval);
        Some((interval, earlier))
    }

    /// Removes from an interval what is not selected.
    pub fn select(&self, interval: &mut Interval) {
        interval.filter(&self.filter);
        if self.only_paths {
            Arc::make_mut(&mut interval.names).only_paths = true;
        }
    }

    /// The latest Sample.
    pub fn latest(&self) -> Option<&S> {
        self.earlier.as_ref()
    }

    /// Takes a Sample without an interval.
    pub fn skip(&mut self, sample: S) {
        self.earlier = Some(sample);
    }

    /// Takes the latest Sample away: the next one is a first one.
    pub fn restart(&mut self) -> Option<S> {
        self.earlier.take()
    }
}
