//! A lock that eight processes need, compared with the kernel's trace events.

use std::collections::BTreeMap;

use super::*;
use crate::sched_trace::{Change, Does, SchedTrace};

/// Returns how far the ends of a sleep may be off, ns. The trace has a resolution of 1 µs, and the scheduler reads its clock before
/// it writes the event. In between, an emulated CPU may itself wait for a CPU.
fn clocks_ns() -> u64 {
    if is_emulated() { 10_000_000 } else { 20_000 }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    count: u64,
    slept_ns: u64,
    ran_ns: u64,
    waited_ns: u64,
    waker_slept_ns: u64,
}

/// Returns what a thread did from `from_ns` to `to_ns`: it ran, waited and slept, ns.
fn did(changes: &[Change], from_ns: u64, to_ns: u64) -> [u64; 3] {
    let mut did = [0; 3];
    for (at, change) in changes.iter().enumerate() {
        let end_ns = changes.get(at + 1).map_or(u64::MAX, |next| next.at_ns);
        let ns = end_ns.min(to_ns).saturating_sub(change.at_ns.max(from_ns));
        let place = match change.does {
            Does::Run => 0,
            Does::Wait { .. } => 1,
            Does::Sleep => 2,
        };
        did[place] += ns;
    }
    did
}

/// Returns the pairs of sleeper and waker.
fn pairs(past: &BTreeMap<u32, Vec<Change>>) -> BTreeMap<(u32, u32), Pair> {
    let mut pairs: BTreeMap<(u32, u32), Pair> = BTreeMap::new();
    for (sleeper, changes) in past {
        for two in changes.windows(2) {
            let [Change { at_ns: from_ns, does: Does::Sleep }, Change { at_ns: to_ns, does }] = *two else {
                continue;
            };
            let Does::Wait { waker: Some(waker) } = does else { continue };
            let Some(of_waker) = past.get(&waker) else { continue };
            let [ran_ns, waited_ns, slept_ns] = did(of_waker, from_ns, to_ns);
            let pair = pairs.entry((*sleeper, waker)).or_default();
            pair.count += 1;
            pair.slept_ns += to_ns - from_ns;
            pair.ran_ns += ran_ns;
            pair.waited_ns += waited_ns;
            pair.waker_slept_ns += slept_ns;
        }
    }
    pairs
}

#[test]
fn the_pairs_of_eight_processes_that_need_one_lock_equal_those_of_the_kernels_trace() {
    let mut collector = collector(true);
    let cgroup = Cgroup::new("convoy");
    // Some kernels do not trace the switches from an idle CPU. These loops run only where nothing else does.
    let cpus = ["0", "1"];
    let loops = cpus.map(|cpu| {
        let words = ["-i", "0", "taskset", "-c", cpu, "sh", "-c", "while :; do :; done"];
        Load::start("chrt", &words, None)
    });
    let mut trace = None;
    let words = ["queue", "8", "60", "1000", "3000", "60", directory(&cgroup)];
    let measured = Measured::of_followed(&mut collector, &words, |collector, pids| {
        collector.changes.follow(Follower::all().next().expect("one"), pids);
        trace = Some(SchedTrace::start_of_wakers(pids));
    });
    let trace = trace.expect("it was started");
    trace.stop();
    drop(loops);
    let past = trace.read_past(&measured.pids);
    for (tid, changes) in &past {
        let [ran_ns, ..] = did(changes, 0, measured.last.mono_ns);
        near(ran_ns, measured.task(*tid).totals.on_cpu_ns, 5.0, "the trace is whole: its CPU time");
    }
    let theirs = pairs(&past);
    // A hardened kernel may hide that a sleep ends: then its kind is unknown.
    let is_ours = |row: &&ChainReading| {
        [BlockedKind::Lock, BlockedKind::Unknown].contains(&row.kind)
            && [row.sleeper_tid, row.waker_tid].iter().all(|tid| measured.pids.contains(tid))
    };
    let mut ours: BTreeMap<(u32, u32), ChainReading> = BTreeMap::new();
    for row in measured.rows().iter().filter(is_ours) {
        let pair = ours.entry((row.sleeper_tid, row.waker_tid));
        pair.and_modify(|sum| sum.append(row.clone())).or_insert_with(|| row.clone());
    }
    println!("{} pairs in the trace, {} rows; {}", theirs.len(), ours.len(), measured.interval.losses);
    assert!(theirs.len() >= 8, "{theirs:?}");
    let mut worst = 0.0_f64;
    for (pair, theirs) in &theirs {
        let ours = ours.get(pair).unwrap_or_else(|| panic!("{pair:?} is missing: {theirs:?}"));
        assert_eq!(ours.count, theirs.count, "{pair:?}: {ours:?}, {theirs:?}");
        // A hardened kernel may hide that the waker switches in.
        let uncertain_ns = ours.estimated_ns + ours.unknown_ns + ours.by_cause.get(Cause::Unattributed);
        assert!(uncertain_ns <= ours.slept_ns / 2 || ours.count < 20, "{ours:?}");
        for (ours_ns, theirs_ns) in [
            (ours.slept_ns, theirs.slept_ns),
            (ours.ran_ns, theirs.ran_ns),
            (ours.waited_ns(), theirs.waited_ns),
            (ours.waker_slept_ns, theirs.waker_slept_ns),
        ] {
            let off = ours_ns.abs_diff(theirs_ns) as f64 / theirs.slept_ns as f64;
            if uncertain_ns == 0 {
                worst = worst.max(off);
            }
            let allowed_ns =
                0.05 * theirs.slept_ns as f64 + (clocks_ns() * theirs.count + uncertain_ns) as f64;
            assert!(ours_ns.abs_diff(theirs_ns) as f64 <= allowed_ns, "{pair:?}: {ours:#?}, {theirs:#?}");
        }
    }
    println!("at most {:.3}% of a pair's sleep off", 100.0 * worst);
    assert_eq!(ours.len(), theirs.len(), "{ours:?}");
}
