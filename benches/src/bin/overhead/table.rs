//! Prints the table of results and its ratios. Some figures have a bound; the program fails if a bound is missed.

use std::fmt;

use anyhow::{Context, Result, bail};

use crate::subject::{Counted, Subject};

/// The results of a subject, one entry per round.
pub struct SubjectResults {
    pub subject: Subject,
    /// Duration of the load in runs without the kernel's counting, seconds.
    pub seconds: Vec<f64>,
    pub counted: Vec<Counted>,
}

impl SubjectResults {
    pub fn new(subject: Subject) -> Self {
        Self { subject, seconds: Vec::new(), counted: Vec::new() }
    }

    /// Returns the time of all programs per switch, including programs at wakeups, ns.
    fn gross_ns(&self) -> f64 {
        median(self.counted.iter().map(|c| c.total_ns as f64 / c.switches.max(1) as f64))
    }

    /// Returns [`Self::gross_ns`] minus the cost of empty programs at the same hooks.
    fn net_ns(&self, empty: &Self) -> f64 {
        let rounds = self.counted.iter().zip(&empty.counted);
        median(rounds.map(|(c, empty)| {
            (c.total_ns as f64 - c.runs as f64 * empty.switch_ns) / c.switches.max(1) as f64
        }))
    }

    /// Returns the duration of the load relative to another subject: the median ratio of all rounds.
    fn slowdown(&self, other: &Self) -> f64 {
        median(self.seconds.iter().zip(&other.seconds).map(|(ours, theirs)| ours / theirs))
    }
}

/// Pairs of one of our subjects and another tool that does the same work.
const PEERS: [(Subject, Subject); 3] = [
    (Subject::Cgscope, Subject::Runqlat),
    (Subject::Cgscope, Subject::RunqlatPerProcess),
    (Subject::StatOffcpu, Subject::Offcputime),
];

/// Maximum cost of our subject relative to the other tool. Both costs exclude the cost of empty programs.
const MOST_OF_PEER: f64 = 0.25;

/// Maximum cost of the hook relative to an empty hook, on the pipe.
const MOST_OF_EMPTY: f64 = 2.0;

/// Prints the results. Returns the time that `cgscope hist 1` adds to an empty hook at a switch, ns.
pub fn print(rows: &[SubjectResults], is_pipe: bool, bounds: &mut Bounds) -> Result<f64> {
    let row = |subject: Subject| {
        let found = rows.iter().find(|row| row.subject == subject);
        found.with_context(|| format!("{} was not measured", subject.name()))
    };
    let (nothing, empty, cgscope) =
        (row(Subject::Nothing)?, row(Subject::EmptyHook)?, row(Subject::Cgscope)?);
    println!("\nmedians of {} rounds", nothing.seconds.len());
    println!(
        "{:<24} {:>11} {:>11} {:>14} {:>12} {:>10}",
        "", "ns/switch", "ns/wakeup", "all/switch", "net/switch", "load"
    );
    for row in rows {
        let cost = if row.subject == Subject::Nothing {
            format!("{:>11} {:>11} {:>14} {:>12}", "-", "-", "-", "-")
        } else {
            format!(
                "{:>11.1} {:>11.1} {:>14.1} {:>12.1}",
                median(row.counted.iter().map(|counted| counted.switch_ns)),
                median(row.counted.iter().map(|counted| counted.wakeup_ns)),
                row.gross_ns(),
                row.net_ns(empty)
            )
        };
        println!("{:<24} {cost} {:>9.3}x", row.subject.name(), row.slowdown(nothing));
    }
    println!(
        "all/switch: time of all BPF programs of the tool per switch; net: without the time of empty programs at the same hooks"
    );
    let of_empty = cgscope.gross_ns() / empty.gross_ns();
    println!();
    let figure = format!("cgscope against the empty hook, gross: {of_empty:.2} x");
    if is_pipe {
        bounds.at_most(&figure, of_empty, MOST_OF_EMPTY);
    } else {
        // No bound: the storages of 160 tasks are rarely in the cache of the CPU.
        println!("{figure}");
    }
    let per_switch = |of: fn(&Counted) -> u64| {
        median(cgscope.counted.iter().map(|counted| of(counted) as f64 / counted.switches.max(1) as f64))
    };
    let (moves, move_ns) = (per_switch(|counted| counted.moves), per_switch(|counted| counted.move_ns));
    println!(
        "cgscope hist 1: {:.2} moves and wakeups on another CPU per 100 switches, {:.1} ns each, {move_ns:.2} ns per switch",
        100.0 * moves,
        move_ns / moves.max(f64::MIN_POSITIVE),
    );
    if let Ok(before) = row(Subject::Before) {
        let all = |counted: &Counted| counted.total_ns as f64 / counted.switches.max(1) as f64;
        let rounds = || cgscope.counted.iter().zip(&before.counted);
        let of_switch = Ratio::of(rounds().map(|(now, before)| now.switch_ns / before.switch_ns).collect());
        println!(
            "cgscope against before, round by round: {of_switch} at a switch, {:.3} x all programs",
            median(rounds().map(|(now, before)| all(now) / all(before)))
        );
    }
    for (ours, peer) in PEERS {
        // A missing tool cannot be compared.
        let (Ok(ours), Ok(peer)) = (row(ours), row(peer)) else { continue };
        let names = format!("{} against {}", ours.subject.name(), peer.subject.name());
        let part = ours.net_ns(empty) / peer.net_ns(empty);
        bounds.at_most(&format!("{names}, net: {part:.3} x"), part, MOST_OF_PEER);
        println!("{names}, time of the load: {:.3} x", ours.slowdown(peer));
    }
    println!();
    Ok(cgscope.net_ns(empty))
}

/// Time of one hook at a switch relative to another hook: the median and the extremes of several rounds or runs.
pub struct Ratio {
    pub median: f64,
    /// The lowest decile. Other users of the cache raise the ratio, because the larger hook needs more of the cache.
    pub decile: f64,
    least: f64,
    most: f64,
    rounds: usize,
}

impl Ratio {
    pub fn of(ratios: Vec<f64>) -> Self {
        let extremes = |(least, most): (f64, f64), ratio: &f64| (least.min(*ratio), most.max(*ratio));
        let (least, most) = ratios.iter().fold((f64::MAX, 0.0), extremes);
        let mut sorted = ratios.clone();
        sorted.sort_by(f64::total_cmp);
        let decile = sorted.get(sorted.len() / 10).copied().unwrap_or(f64::NAN);
        Self { least, most, decile, rounds: ratios.len(), median: median(ratios.into_iter()) }
    }
}

impl fmt::Display for Ratio {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { median, decile, least, most, rounds } = self;
        write!(f, "{median:.3} x ({least:.3} to {most:.3} in {rounds}; lowest decile {decile:.3})")
    }
}

pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => (values[n / 2 - 1] + values[n / 2]) / 2.0,
    }
}

#[derive(Default)]
pub struct Bounds(Vec<String>);

impl Bounds {
    /// Prints a figure and its maximum. `value` is the number in `figure`; a larger number or NaN misses the bound.
    pub fn at_most(&mut self, figure: &str, value: f64, most: f64) {
        println!("{figure} (at most {most})");
        if value.is_nan() || value > most {
            self.0.push(format!("{figure} (at most {most})"));
        }
    }

    pub fn check(self) -> Result<()> {
        if !self.0.is_empty() {
            bail!("missed: {}", self.0.join("; "));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_needs_results_of_cgscope_and_of_the_empty_hook() {
        let missed = &mut Bounds::default();
        assert!(print(&Subject::ALL.map(SubjectResults::new), true, missed).is_ok());
        let hist_only = [Subject::Nothing, Subject::EmptyHook, Subject::Cgscope];
        assert!(print(&hist_only.map(SubjectResults::new), true, missed).is_ok());
        assert!(print(&[SubjectResults::new(Subject::Nothing)], true, missed).is_err());
    }

    #[test]
    fn a_missed_bound_is_returned_and_only_the_pipe_has_one() {
        let row = |subject, total_ns| {
            let mut row = SubjectResults::new(subject);
            row.seconds.push(1.0);
            row.counted.push(Counted { total_ns, switches: 10, runs: 10, ..Counted::default() });
            row
        };
        let missed = |ours, is_pipe| {
            let mut bounds = Bounds::default();
            let rows = [row(Subject::Nothing, 0), row(Subject::EmptyHook, 500), row(Subject::Cgscope, ours)];
            print(&rows, is_pipe, &mut bounds).expect("all rows");
            bounds.check().is_err()
        };
        assert_eq!((missed(1_000, true), missed(1_001, true), missed(1_001, false)), (false, true, false));
    }
}

#[cfg(test)]
mod bounds_tests {
    use super::Bounds;

    #[test]
    fn a_missed_bound_is_an_error_that_names_it() {
        let mut bounds = Bounds::default();
        bounds.at_most("speed: 2", 2.0, 2.0);
        bounds.at_most("memory: 3", 3.0, 2.5);
        bounds.at_most("nothing: NaN", f64::NAN, 2.0);
        let missed = bounds.check().expect_err("two bounds are missed").to_string();
        assert_eq!(missed, "missed: memory: 3 (at most 2.5); nothing: NaN (at most 2)");
        assert!(Bounds::default().check().is_ok());
    }
}
