//! For whom tasks sleep. Loads of `cgscope_lab::wakes`, whose wakers are known, are compared with the rows of the collector, with
//! its other figures, and with what the loads measured themselves.

mod convoy;
mod paths;
mod storm;
mod timers;

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::MetadataExt,
    process::ChildStdout,
};

use cgscope_collect::{Accounting, Collector, Options};
use cgscope_ledger::{Loss, chains::Waker};
use cgscope_model::{
    BlockedKind, Cause, ChainReading, Interval, Mode, Sample, TaskInterval, follower::Follower, sum,
};

use crate::{
    bench::is_emulated,
    ledger::{off, tolerance},
    load::{Cgroup, Load},
};

fn collector(shared: bool) -> Collector {
    let accounts = Some(Accounting::default());
    Collector::start(&Options { accounts, chains: true, shared, ..Options::default() }, Mode::Bpf)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

fn id(cgroup: &Cgroup) -> u64 {
    fs::metadata(&cgroup.path).expect("a cgroup of ours").ino()
}

fn directory(cgroup: &Cgroup) -> &str {
    cgroup.path.to_str().expect("a path of ours")
}

/// What a process of a load measured itself, ns of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug)]
struct Marks {
    begun_ns: u64,
    ended_ns: u64,
    waited_ns: u64,
}

/// All rounds of a load.
struct Measured {
    interval: Interval,
    first: Sample,
    last: Sample,
    /// By process.
    marks: Vec<Marks>,
    pids: Vec<u32>,
    load: Load,
}

impl Measured {
    fn of(collector: &mut Collector, words: &[&str]) -> Self {
        Self::of_followed(collector, words, |_, _| ())
    }

    /// Calls `before` with the collector and the processes before the first sample.
    fn of_followed(
        collector: &mut Collector,
        words: &[&str],
        before: impl FnOnce(&mut Collector, &[u32]),
    ) -> Self {
        let (load, mut out) = Load::workload(words, None);
        let pids = load.pids().split_off(1);
        before(collector, &pids);
        let first = collector.sample().expect("a sample");
        load.signal(libc::SIGUSR1);
        let marks = marks(&mut out);
        let last = collector.sample().expect("a sample");
        let interval = Interval::between(&first, &last);
        Self { interval, first, last, marks, pids, load }
    }

    fn rows(&self) -> &[ChainReading] {
        self.interval.chains.as_deref().expect("chains are counted")
    }

    fn of_sleeper(&self, sleeper: &Cgroup) -> Vec<&ChainReading> {
        let sleeper = id(sleeper);
        self.rows().iter().filter(|row| row.sleeper == sleeper).collect()
    }

    /// Returns the sum of the rows in which a task of another cgroup woke tasks of `sleeper`. A hardened kernel may hide that a
    /// sleep ends: then its kind is unknown.
    fn row(&self, sleeper: &Cgroup, kind: BlockedKind, waker: &Cgroup) -> ChainReading {
        let waker = id(waker);
        let is_it = |row: &&&ChainReading| {
            [kind, BlockedKind::Unknown].contains(&row.kind)
                && (row.waker, row.waker_cgroup) == (Waker::Task, waker)
        };
        let rows = self.of_sleeper(sleeper);
        let mut found = rows.iter().filter(is_it).map(|row| (*row).clone());
        let first = found.next().unwrap_or_else(|| panic!("no such row: {kind:?} {waker}: {rows:#?}"));
        found.fold(first, |mut sum, row| {
            sum.append(row);
            sum
        })
    }

    fn task(&self, pid: u32) -> &TaskInterval {
        self.interval.tasks.iter().find(|task| task.reading.tid == pid).expect("a task of the load")
    }

    /// Returns the sleeps within the rounds: before and after them, a process waits for a signal. A child that enters another
    /// cgroup may sleep while it writes to the file of the cgroup.
    fn in_rounds(&self, sleeper: &Cgroup) -> Vec<&ChainReading> {
        let mut rows = self.of_sleeper(sleeper);
        rows.retain(|row| ![BlockedKind::Signal, BlockedKind::Disk].contains(&row.kind));
        rows
    }

    /// Asserts that the rows of a process, which is alone in its cgroup, sum to its blocked time.
    fn assert_is_whole(&self, sleeper: &Cgroup, member: usize) {
        let slept_ns = sum::total(self.in_rounds(sleeper).iter().map(|row| row.slept_ns));
        let Marks { begun_ns, ended_ns, .. } = self.marks[member];
        let outside_ns = begun_ns.saturating_sub(self.first.mono_ns) + (self.last.mono_ns - ended_ns);
        let accounts = self.task(self.pids[member]).accounts.as_deref().expect("accounts");
        let blocked_ns = accounts.blocked.expect("the hook counts it").total();
        near(slept_ns + outside_ns, blocked_ns, 2.0, "the rows, against the blocked time");
    }
}

fn marks(out: &mut BufReader<ChildStdout>) -> Vec<Marks> {
    let mut line = String::new();
    out.read_line(&mut line).expect("its output is readable");
    let numbers: Vec<u64> = line.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    assert!(!numbers.is_empty(), "the load failed");
    let marks = numbers.chunks_exact(3);
    marks.map(|mark| Marks { begun_ns: mark[0], ended_ns: mark[1], waited_ns: mark[2] }).collect()
}

/// Returns whether a time is exact enough. On an emulated CPU, a task takes milliseconds to wake another one and
/// to go to sleep, so the other one has worked by then. Who woke whom, how often and in what is the same.
fn is_within(off_ns: f64, allowed_ns: f64) -> bool {
    is_emulated() || off_ns <= allowed_ns
}

fn near(ours: u64, theirs: u64, percent: f64, what: &str) {
    let (off, percent) = (off(ours, theirs), tolerance(percent));
    println!("{what}: {ours} against {theirs}, {off:.3}% off");
    assert!(off <= percent, "{what}: {ours} against {theirs}, {off:.2}% off");
}

fn assert_sums(row: &ChainReading) {
    let parts = row.ran_ns + row.waited_ns() + row.waker_slept_ns + row.unknown_ns;
    near(parts, row.slept_ns, 0.1, "the parts, against the sleep");
}

/// A sleeps for B, and B for C, which runs out of its quota in each request.
#[test]
#[ignore = "all CPUs: the sleepers must hardly wait for a CPU"]
fn a_sleep_equals_what_the_waker_ran_waited_and_slept_down_to_the_throttled_end_of_the_chain() {
    let mut collector = collector(false);
    let [a, b, c] = ["first", "middle", "last"].map(Cgroup::new);
    // So that other programs hardly divide the requests into more parts than a task keeps.
    [&a, &b, &c].into_iter().for_each(Cgroup::favour);
    c.limit(20_000, 100_000);
    let before_ns = c.throttled_ns();
    let words = ["line", "40", "10000", "16000", "7000", "60", directory(&a), directory(&b), directory(&c)];
    let measured = Measured::of(&mut collector, &words);
    let throttled_ns = c.throttled_ns() - before_ns;
    let (for_b, for_c) = (measured.row(&a, BlockedKind::Pipe, &b), measured.row(&b, BlockedKind::Poll, &c));
    println!("{:#?}\n{}", [&a, &b, &c].map(|cgroup| measured.of_sleeper(cgroup)), measured.interval.losses);
    [&for_b, &for_c].into_iter().for_each(assert_sums);

    let [task_a, task_b, task_c] = [0, 1, 2].map(|member| measured.task(measured.pids[member]));
    let off_ns = for_b.waker_slept_ns.abs_diff(for_c.slept_ns);
    println!("while B slept: {}, B's sleep for C: {}, {off_ns} ns off", for_b.waker_slept_ns, for_c.slept_ns);
    assert!(off_ns as f64 <= 0.02 * for_c.slept_ns as f64 + for_b.unknown_ns as f64, "{for_b:?} {for_c:?}");
    for (row, waker, sleeper) in [(&for_b, task_b, task_a), (&for_c, task_c, task_b)] {
        // A sleeper that waits for a CPU after its request sleeps later than its waker begins to work.
        let own_ns = sleeper.wait.total_ns;
        for (what, ours, theirs) in
            [("ran", row.ran_ns, waker.totals.on_cpu_ns), ("waited", row.waited_ns(), waker.wait.total_ns)]
        {
            let off_ns = ours.abs_diff(theirs);
            println!("{what}: {ours} against {theirs}, {:.2}% off; own waits {own_ns}", off(ours, theirs));
            // A hardened kernel may hide that the waker switches in. Then its sleep divides this wait differently.
            let unseen_ns = row.by_cause.get(Cause::Unattributed) + row.unknown_ns;
            // The waker may also wait for a CPU while nobody sleeps for it, when it starts.
            let at_start_ns = 200_000;
            let allowed_ns =
                0.02 * row.slept_ns.min(10 * theirs) as f64 + (own_ns + unseen_ns + at_start_ns) as f64;
            assert!(
                is_within(off_ns as f64, allowed_ns),
                "{what}: {ours} against {theirs}, own waits {own_ns}: {row:?}"
            );
        }
    }
    for (row, sleeper, marks) in [(&for_b, task_a, measured.marks[0]), (&for_c, task_b, measured.marks[1])] {
        // The sleeper's own waits for a CPU are in its own time, but not in its sleep.
        let own_ns = sleeper.wait.total_ns;
        let off = marks.waited_ns as f64 - row.slept_ns as f64;
        println!("slept {}, the load measured {}, its own waits {own_ns}", row.slept_ns, marks.waited_ns);
        assert!(off >= 0.0 && is_within(off, own_ns as f64 + 0.02 * row.slept_ns as f64), "{off}");
    }
    let ours_ns = for_c.by_cause.get(Cause::Throttled);
    let group = measured.interval.by_cgroup()[&Some(c.name.as_str().into())].totals;
    let unseen_ns = for_c.by_cause.get(Cause::Unattributed) + for_c.unknown_ns;
    let throttled = [(group.by_cause.get(Cause::Throttled), "the ledger"), (throttled_ns, "cpu.stat")];
    for (theirs_ns, whose) in throttled {
        let off_percent = off(ours_ns, theirs_ns);
        println!("throttled {ours_ns}, {whose} {theirs_ns}, {off_percent:.3}% off; unseen {unseen_ns}");
        let allowed_ns = theirs_ns as f64 * tolerance(0.02) + unseen_ns as f64;
        assert!(
            is_within(ours_ns.abs_diff(theirs_ns) as f64, allowed_ns),
            "{whose}: {off_percent}% off: {for_c:?}"
        );
    }
    assert!(ours_ns > for_c.slept_ns / 2, "the quota holds the chain: {for_c:?}");
    for (member, cgroup) in [&a, &b, &c].into_iter().enumerate() {
        measured.assert_is_whole(cgroup, member);
    }
    let hidden = measured.interval.losses.get(Loss::SwitchOfHiddenTask);
    for count in [for_b.count, for_c.count] {
        // A hidden switch may divide a sleep into two. The kind of one of them is unknown then.
        assert!((40..=40 + hidden).contains(&count), "{count} sleeps, {hidden} hidden switches");
    }
    assert!(for_b.unknown_ns + for_c.unknown_ns == 0 || hidden != 0, "{for_b:?} {for_c:?}");
    drop(measured.load);
}
