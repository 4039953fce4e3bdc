//! Prints the table of results and its ratios. Some figures have a bound.

use anyhow::{Context, Result};

use crate::subject::{CHAINS, Counted, EMPTY_HOOK, HIST, NOTHING, Runs};

/// The results of a subject, one entry per round.
pub struct SubjectResults {
    pub subject: &'static str,
    /// Duration of the load in runs without the kernel's counting, seconds.
    pub seconds: Vec<f64>,
    pub counted: Vec<Counted>,
}

impl SubjectResults {
    pub fn new(subject: &'static str) -> Self {
        Self { subject, seconds: Vec::new(), counted: Vec::new() }
    }

    fn median(&self, figure: impl Fn(&Counted) -> f64) -> f64 {
        median(self.counted.iter().map(figure))
    }

    /// Returns the time of all programs per switch, including programs at wakeups, ns.
    fn gross_ns(&self) -> f64 {
        self.median(|counted| counted.per_switch(counted.all.ns as f64))
    }

    /// Returns [`Self::gross_ns`] minus the cost of empty programs at the same hooks.
    fn net_ns(&self, empty: &Self) -> f64 {
        let rounds = self.counted.iter().zip(&empty.counted);
        median(rounds.map(|(counted, empty)| {
            let Runs { ns, count } = counted.all;
            counted.per_switch(ns as f64 - count as f64 * empty.switches.each_ns())
        }))
    }

    /// Returns the duration of the load relative to another subject: the median ratio of all rounds.
    fn slowdown(&self, other: &Self) -> f64 {
        median(self.seconds.iter().zip(&other.seconds).map(|(ours, theirs)| ours / theirs))
    }
}

/// Pairs of one of our subjects and another tool that does the same work.
const PEERS: [(&str, &str); 3] =
    [(HIST, "runqlat 1"), (HIST, "runqlat -P 1"), ("cgscope stat --offcpu 1", "offcputime")];

/// Maximum cost of our subject relative to the other tool. Both costs exclude the cost of empty programs.
const MOST_OF_PEER: f64 = 0.25;

/// Maximum cost of all programs with `--chains` relative to the empty hook, and to offcputime; maximum time of a wakeup, ns.
const MOST_WITH_CHAINS: f64 = 5.5;
const MOST_OF_OFFCPUTIME: f64 = 0.2;
const MOST_OF_WAKEUP_NS: f64 = 250.0;

/// Maximum cost of the hook relative to an empty hook, on the pipe.
const MOST_OF_EMPTY: f64 = 2.0;

/// Maximum by which messages take longer than under runqlat, relative to their time without a tool, with a certainty of 95 %; and the
/// number of rounds from which this is judged.
const MOST_OVER_RUNQLAT: f64 = 0.02;
const ROUNDS_TO_JUDGE: usize = 21;

/// Prints the results. Adds missed bounds to `missed`.
pub fn print(rows: &[SubjectResults], is_pipe: bool, missed: &mut Vec<String>) -> Result<()> {
    let row = |subject: &str| {
        let found = rows.iter().find(|row| row.subject == subject);
        found.with_context(|| format!("{subject} was not measured"))
    };
    // Prints a figure and its maximum. A larger value or NaN misses the bound.
    let mut at_most = |figure: String, value: f64, most: f64| {
        println!("{figure} (at most {most})");
        if value.is_nan() || value > most {
            missed.push(format!("{figure} (at most {most})"));
        }
    };
    let (nothing, empty, cgscope) = (row(NOTHING)?, row(EMPTY_HOOK)?, row(HIST)?);
    println!("\nmedians of {} rounds", nothing.seconds.len());
    println!(
        "{:<24} {:>11} {:>11} {:>14} {:>12} {:>10}",
        "", "ns/switch", "ns/wakeup", "all/switch", "net/switch", "load"
    );
    for row in rows {
        println!(
            "{:<24} {:>11.1} {:>11.1} {:>14.1} {:>12.1} {:>9.3}x",
            row.subject,
            row.median(|counted| counted.switches.each_ns()),
            row.median(|counted| counted.wakeups.each_ns()),
            row.gross_ns(),
            row.net_ns(empty),
            row.slowdown(nothing)
        );
    }
    println!(
        "all/switch: time of all BPF programs of the tool per switch; net: without the time of empty programs at the same hooks\n"
    );
    let of_empty = cgscope.gross_ns() / empty.gross_ns();
    let figure = format!("cgscope against the empty hook, gross: {of_empty:.2} x");
    if is_pipe {
        at_most(figure, of_empty, MOST_OF_EMPTY);
    } else {
        // No bound: the storages of 160 tasks are rarely in the cache of the CPU.
        println!("{figure}");
    }
    println!(
        "cgscope hist 1: {:.2} moves and wakeups on another CPU per 100 switches, {:.1} ns each, {:.2} ns per switch",
        cgscope.median(|counted| counted.per_switch(100.0 * counted.moves.count as f64)),
        cgscope.median(|counted| counted.moves.each_ns()),
        cgscope.median(|counted| counted.per_switch(counted.moves.ns as f64)),
    );
    for (ours, peer) in PEERS {
        // A load may run under fewer subjects.
        let (Ok(ours), Ok(peer)) = (row(ours), row(peer)) else { continue };
        let names = format!("{} against {}", ours.subject, peer.subject);
        let part = ours.net_ns(empty) / peer.net_ns(empty);
        at_most(format!("{names}, net: {part:.3} x"), part, MOST_OF_PEER);
        println!("{names}, time of the load: {:.3} x", ours.slowdown(peer));
        if !is_pipe && nothing.seconds.len() >= ROUNDS_TO_JUDGE {
            let rounds = ours.seconds.iter().zip(&peer.seconds).zip(&nothing.seconds);
            let most = upper_bound(rounds.map(|((ours, peer), alone)| (ours - peer) / alone));
            let figure = format!("{names}, more of the load's time, 95 % sure: {most:+.3}");
            at_most(figure, most, MOST_OVER_RUNQLAT);
        }
    }
    if let (Ok(chains), true) = (row(CHAINS), is_pipe) {
        let wakeup_ns = chains.median(|counted| counted.wakeups.each_ns());
        at_most(format!("{CHAINS}: {wakeup_ns:.0} ns at a wakeup"), wakeup_ns, MOST_OF_WAKEUP_NS);
        let times = chains.gross_ns() / empty.gross_ns();
        at_most(format!("{CHAINS} against {HIST}, gross: {times:.2} x"), times, MOST_WITH_CHAINS);
        if let Ok(offcputime) = row("offcputime") {
            let part = chains.net_ns(empty) / offcputime.net_ns(empty);
            at_most(format!("{CHAINS} against offcputime, net: {part:.3} x"), part, MOST_OF_OFFCPUTIME);
        }
    }
    println!();
    Ok(())
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

/// Returns a number that the median of the values' distribution exceeds with a probability of at most 5 %; NaN for fewer than five
/// values. If the median exceeds a value, so do half of all values: the number of smaller ones has a binomial distribution.
fn upper_bound(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let n = values.len() as f64;
    let (mut exactly, mut at_most) = (0.5f64.powf(n), 0.0);
    for (below, value) in values.iter().enumerate() {
        at_most += exactly;
        exactly *= (n - below as f64) / (below as f64 + 1.0);
        if at_most >= 0.95 {
            return *value;
        }
    }
    f64::NAN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::subject::ALL;

    /// Table of the sign test: of 21 values, the 15th is an upper bound of the median; of 5, the largest.
    #[test]
    fn the_upper_bound_of_a_median_is_one_of_the_values() {
        let bound = |n: u32| upper_bound((1..=n).rev().map(f64::from));
        assert_eq!((bound(21), bound(5), bound(24)), (15.0, 5.0, 17.0));
        assert!(bound(4).is_nan());
    }

    #[test]
    fn the_table_needs_results_of_cgscope_and_of_the_empty_hook() {
        let missed = &mut Vec::new();
        assert!(print(&ALL.map(SubjectResults::new), true, missed).is_ok());
        let hist_only = [NOTHING, EMPTY_HOOK, HIST];
        assert!(print(&hist_only.map(SubjectResults::new), true, missed).is_ok());
        assert!(print(&[SubjectResults::new(NOTHING)], true, missed).is_err());
    }

    #[test]
    fn a_missed_bound_is_returned_and_only_the_pipe_has_one() {
        let row = |subject, ns| {
            let mut row = SubjectResults::new(subject);
            row.seconds.push(1.0);
            let switches = Runs { ns, count: 10 };
            row.counted.push(Counted { switches, all: switches, ..Counted::default() });
            row
        };
        let missed = |ours, is_pipe| {
            let mut missed = Vec::new();
            let rows = [row(NOTHING, 0), row(EMPTY_HOOK, 500), row(HIST, ours)];
            print(&rows, is_pipe, &mut missed).expect("all rows");
            missed
        };
        assert!(missed(1_000, true).is_empty() && missed(1_010, false).is_empty());
        assert_eq!(missed(1_010, true), ["cgscope against the empty hook, gross: 2.02 x (at most 2)"]);
    }
}
