//! Tests of off-CPU time: its kinds, its shares, the class that `stat` reports for known loads, and a comparison with offcputime.

use std::{
    collections::BTreeMap,
    fs,
    io::Write,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::{Accounting, Collector, KernelSymbols, Options};
use cgscope_lab::{CALL, COMPUTE, PAUSE};
use cgscope_model::{
    BlockedKind, BlockedOn, Interval, Mode, Selection, TaskInterval, Tree,
    class::{Class, Classes},
};

use crate::{
    bench::{is_emulated, patience},
    files::Dir,
    load::Load,
};

fn follow(pids: &[u32]) -> Collector {
    let selection = Selection { pids: pids.to_vec(), ..Selection::default() };
    let accounts = Some(Accounting { stack_every: Some(Duration::from_micros(100)) });
    Collector::start(&Options { selection, accounts, ..Options::default() }, Mode::Bpf)
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Calls `meanwhile`, and returns how the figures of these processes changed during the call.
fn during(pids: &[u32], meanwhile: impl FnOnce()) -> Interval {
    let mut collector = follow(pids);
    let first = collector.sample().expect("a Sample");
    meanwhile();
    Interval::between(&first, &collector.sample().expect("a Sample"))
}

fn over(pids: &[u32], length: Duration) -> Interval {
    during(pids, || thread::sleep(length))
}

fn symbols() -> KernelSymbols {
    let symbols = KernelSymbols::default();
    symbols.load().unwrap_or_else(|failure| panic!("{failure}"));
    symbols
}

fn blocked_on(interval: &Interval, symbols: &KernelSymbols) -> BlockedOn {
    BlockedOn::new(interval, |addr| symbols.caller(addr))
}

fn stacks(interval: &Interval, task: &TaskInterval, symbols: &KernelSymbols) -> Vec<(u64, Vec<String>)> {
    let of_task = interval.stacks.iter().filter(|stack| stack.serial == task.reading.serial);
    let name = |addr: &u64| symbols.caller(*addr).unwrap_or("?").to_owned();
    of_task.map(|stack| (stack.ns, stack.stack.iter().map(name).collect())).collect()
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

#[test]
fn each_blocked_thread_has_the_reason_for_which_it_waits() {
    let (load, _out) = Load::workload(&["blocked", "60"], None);
    thread::sleep(patience(200));
    let interval = over(&[load.pid()], patience(1_000));
    let symbols = symbols();
    let blocked = blocked_on(&interval, &symbols);
    let mut kinds = BTreeMap::new();
    for task in interval.tasks.iter().filter(|task| task.reading.comm.contains('-')) {
        let name = task.reading.comm.split('-').next().expect("a part");
        let kind = BlockedKind::ALL.into_iter().find(|kind| kind.name() == name).expect("a kind");
        let time = blocked.thread(task.reading.serial).expect("its blocked time is known");
        let share = percent(time.get(kind), interval.duration_ns);
        assert!(
            share >= 95.0,
            "{}: {share}: {time:?} {:?}",
            task.reading.comm,
            stacks(&interval, task, &symbols)
        );
        *kinds.entry(kind).or_insert(0) += 1;
    }
    assert_eq!(kinds.values().sum::<u32>(), 13, "{kinds:?}");
}

fn assert_whole(interval: &Interval) {
    for task in &interval.tasks {
        let TaskInterval { reading, totals, wait, .. } = task;
        let blocked = task
            .accounts
            .as_deref()
            .and_then(|accounts| accounts.blocked)
            .expect("blocked time from the hook");
        let pending_ns = reading.pending_ns().unwrap_or(0);
        let sum = totals.on_cpu_ns + wait.total_ns + totals.unstamped_ns + blocked.total();
        // A wait is counted when it ends, so the sum can be wrong by one wait. On an emulated machine, the clock of another CPU
        // can also lag.
        let allowed = interval.duration_ns / if is_emulated() { 20 } else { 100 } + wait.max_ns + pending_ns;
        assert!(
            sum.abs_diff(interval.duration_ns) <= allowed,
            "{sum} of {}: {task:#?}",
            interval.duration_ns
        );
    }
}

#[test]
fn writes_to_a_disk_are_blocked_on_the_disk() {
    let dir = Dir::new("offcpu");
    let file = dir.file("written");
    let done = AtomicBool::new(false);
    let interval = thread::scope(|scope| {
        let writer = thread::Builder::new().name("writer".into());
        let write = || {
            let mut written = fs::File::create(&file).expect("a file of ours");
            while !done.load(Ordering::Relaxed) {
                written.write_all(&[7; 4096]).expect("write to the file");
                written.sync_all().expect("sync to the disk");
            }
        };
        writer.spawn_scoped(scope, write).expect("a thread");
        let interval = over(&[std::process::id()], Duration::from_secs(3));
        done.store(true, Ordering::Relaxed);
        interval
    });
    let symbols = symbols();
    let blocked = blocked_on(&interval, &symbols);
    let task = interval.tasks.iter().find(|task| &*task.reading.comm == "writer").expect("the writer");
    let time = blocked.thread(task.reading.serial).expect("known");
    let share = percent(time.get(BlockedKind::Disk), time.total());
    assert!(time.total() > interval.duration_ns / 100, "the task was blocked for {time:?}");
    assert!(share >= 95.0, "{share}: {time:?} {:?}", stacks(&interval, task, &symbols));
}

/// Returns the off-CPU time of a thread according to offcputime, µs. Sums the times that offcputime prints below the stacks.
fn offcputime(tid: u32, seconds: u64) -> u64 {
    let args = ["-t", &tid.to_string(), &seconds.to_string()];
    let output = Command::new("offcputime").args(args).output().expect("offcputime starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let figures = text.lines().filter_map(|line| line.trim().parse::<u64>().ok());
    figures.sum()
}

mod long {
    use super::*;

    /// Field case 4: workers that compute for 20 % of their time and wait for a remote service for 65 % of it.
    #[test]
    #[ignore = "all CPUs: four workers must hardly wait for a CPU"]
    fn a_pool_that_waits_is_blocked_on_network_its_times_sum_up_and_more_cpu_will_not_help() {
        // Do not use eight workers, which would need 1.6 CPUs. On two CPUs, a little other load would make them wait for CPUs and
        // change the verdict.
        let (load, _out) = Load::workload(&["prefork", "4", "60"], None);
        let workers: Vec<u32> = load.pids().into_iter().skip(1).collect();
        assert_eq!(workers.len(), 4);
        thread::sleep(patience(500));
        let interval = over(&workers, patience(4_000));
        assert_eq!(interval.tasks.len(), 4);
        assert_whole(&interval);
        let symbols = symbols();
        let (blocked, tree) = (blocked_on(&interval, &symbols), Tree::new(&interval));
        let total = blocked.total();
        let on_cpu_ns: u64 = interval.tasks.iter().map(|task| task.totals.on_cpu_ns).sum();
        // Leave out waits for a CPU when computing the shares, because other load can make these waits longer.
        let own_ns = on_cpu_ns + total.total();
        let cycle = (COMPUTE + CALL + PAUSE).as_nanos() as u64;
        for (name, ns, part) in [
            ("on a CPU", on_cpu_ns, COMPUTE),
            ("network", total.get(BlockedKind::Network), CALL),
            ("accept", total.get(BlockedKind::Accept), PAUSE),
        ] {
            let (share, expected) = (percent(ns, own_ns), percent(part.as_nanos() as u64, cycle));
            assert!(
                (share - expected).abs() <= 5.0,
                "{name}: {share:.1} %, expected {expected:.1} %: {total:?}"
            );
        }
        assert!(percent(total.get(BlockedKind::Unknown), own_ns) < 1.0, "{total:?}");
        let verdict = Classes::new(&interval, &tree, &blocked).total();
        println!("{}", verdict.says);
        // If other load uses the CPUs, the verdict can also name a second class.
        assert_eq!(verdict.classes.first(), Some(&Class::IoBound), "{}", verdict.says);
        let waited_ns: u64 = interval.tasks.iter().map(|task| task.wait.total_ns).sum();
        let waited = percent(waited_ns, own_ns + waited_ns);
        let helps_not = verdict.says.contains(": it does not lack CPU, but those for whom it waits may");
        // The verdict includes unfinished waits, which `waited` does not. So accept both texts near the threshold of 10 %.
        assert!(
            if waited < 9.0 { helps_not } else { waited < 11.0 || !helps_not },
            "{waited}: {}",
            verdict.says
        );
        assert!(verdict.says.contains("blocked on network "), "{}", verdict.says);
    }

    #[test]
    #[ignore = "all CPUs: asserts the share of time off the CPU"]
    fn beside_offcputime_the_time_off_the_cpu_is_the_same() {
        // offcputime starts after our measurement begins, and ends before our measurement ends. In a shorter measurement, this
        // alone would cause a difference of 2 %.
        const SECONDS: u64 = 10;
        let (load, _out) = Load::workload(&["prefork", "4", "60"], None);
        let worker = load.pids()[1];
        thread::sleep(Duration::from_millis(500));
        let mut lasted = Duration::ZERO;
        let mut theirs_us = 0;
        let interval = during(&[worker], || {
            let began = Instant::now();
            theirs_us = offcputime(worker, SECONDS);
            lasted = began.elapsed();
        });
        let task = &interval.tasks[0];
        let blocked = task
            .accounts
            .as_deref()
            .and_then(|accounts| accounts.blocked)
            .expect("blocked time from the hook");
        let ours_ns = blocked.total() + task.wait.total_ns + task.totals.unstamped_ns;
        // Compare shares, not times, because our interval includes the time in which offcputime starts and ends.
        let ours = ours_ns as f64 / interval.duration_ns as f64;
        let theirs = theirs_us as f64 / (SECONDS as f64 * 1e6);
        println!("offcputime {theirs:.4} of the time, cgscope {ours:.4}, over {lasted:?}");
        assert!((ours / theirs - 1.0).abs() <= 0.02, "offcputime says {theirs} of the time, cgscope {ours}");
    }
}
