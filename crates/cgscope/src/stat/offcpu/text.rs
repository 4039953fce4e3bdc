//! The largest stacks as text.

use std::fmt::Write;

use cgscope_model::units;

use super::Offcpu;
use crate::stat::offcpu::output;

/// Maximum number of stacks to print.
const MOST: usize = 10;

impl Offcpu {
    pub(super) fn text(&self) -> String {
        let (places, total_ns) = (self.stacks.places(), self.stacks.total_ns());
        let mut text =
            format!("Blocked: {}, {}\n{}\n", self.target, units::duration(self.duration_ns), self.measured());
        if places.is_empty() {
            return text;
        }
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "\n{:>9} {:>6} {:>8}  stack, the innermost function first",
            "time", "share", "count"
        );
        for (place, time) in places.iter().take(MOST) {
            let share = units::percent(time.ns, total_ns).unwrap_or_default();
            let count = if time.count == 0 { "-".into() } else { time.count.to_string() };
            let (kind, state) = (output::kind(place, &self.symbols).name(), place.state.name());
            let functions: Vec<&str> = output::functions(place, &self.symbols).collect();
            let stack = if functions.is_empty() { "[no stack]".into() } else { functions.join(" < ") };
            let time = units::duration(time.ns);
            let _ = writeln!(text, "{time:>9} {share:>5.1}% {count:>8}  {}: {kind}, {state}", place.comm);
            let _ = writeln!(text, "{:27}{stack}", "");
        }
        if let Some(rest) = places.get(MOST..).filter(|rest| !rest.is_empty()) {
            let rest_ns = rest.iter().map(|(_, time)| time.ns).sum();
            let share = units::percent(rest_ns, total_ns).unwrap_or_default();
            let rest_of = units::count(rest.len() as u64, "other stack");
            let _ = writeln!(text, "{:>9} {share:>5.1}% {:>8}  {rest_of}", units::duration(rest_ns), "");
        }
        text
    }
}
