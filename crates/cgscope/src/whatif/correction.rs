//! What is known about how far the bounds of a simulation are off.

use cgscope_whatif::{Check, Figures};

/// What widens the bounds of a simulation.
#[derive(Clone, Copy, Debug, Default)]
pub struct Correction {
    /// How the limit in force came out.
    pub check: Option<Check>,
    /// Several tasks could run at once, and are no busy loops: a CPU whose tasks all sleep does not count as throttled.
    pub do_tasks_sleep: bool,
}

impl Correction {
    pub fn apply(&self, figures: Figures) -> Figures {
        let mut figures = self.check.map_or(figures, |check| check.widened(figures));
        if self.do_tasks_sleep {
            let throttled = &mut figures.throttled_ns_per_s;
            throttled.low = throttled.low.min(figures.limited_ns_per_s.low);
        }
        figures
    }
}
