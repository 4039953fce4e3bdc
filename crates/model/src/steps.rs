//! From Sample to Sample: the one place that keeps the earlier Sample.

use crate::{Interval, Sample, Selection, selection::SelectionFilter};
use std::sync::Arc;

/// Makes the interval to each Sample from the one before.
#[derive(Clone, Debug, Default)]
pub struct Steps {
    filter: SelectionFilter,
    /// Cgroups are called by their paths alone.
    only_paths: bool,
    earlier: Option<Box<Sample>>,
}

impl Steps {
    /// Begins without a Sample. Intervals have what is selected. The default is the whole host.
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
    pub fn step(&mut self, sample: Box<Sample>) -> Option<Interval> {
        let earlier = self.earlier.replace(sample)?;
        let mut interval = Interval::between(&earlier, self.earlier.as_deref()?);
        self.select(&mut interval);
        Some(interval)
    }

    /// Removes from an interval what is not selected.
    pub fn select(&self, interval: &mut Interval) {
        self.filter.apply(interval);
        if self.only_paths {
            Arc::make_mut(&mut interval.names).only_paths = true;
        }
    }

    /// The latest Sample.
    pub fn latest(&self) -> Option<&Sample> {
        self.earlier.as_deref()
    }

    /// Takes a Sample without an interval.
    pub fn skip(&mut self, sample: Box<Sample>) {
        self.earlier = Some(sample);
    }

    /// Takes the latest Sample away: the next one is a first one.
    pub fn restart(&mut self) -> Option<Box<Sample>> {
        self.earlier.take()
    }
}
