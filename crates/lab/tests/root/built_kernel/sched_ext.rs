//! Tests under a BPF scheduler (sched_ext): sums stay exact, no wait is charged to a wrong task, and no finding is about a quota.

use std::{
    fs,
    panic::{self, AssertUnwindSafe},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{Cause, Interval, SchedExt};

use crate::{
    bench::{assert_measured, follow, json_lines, measure, run, stdout},
    files::Dir,
    load::{Cgroup, Load},
    truth::{assert_sums_equal, check},
};

/// Returns the content of a sched_ext file, or an empty text if the file does not exist.
fn line(file: &str) -> String {
    let text = fs::read_to_string(format!("/sys/kernel/sched_ext/{file}"));
    text.unwrap_or_default().trim().to_owned()
}

fn wait_for(state: &str) {
    let begun = Instant::now();
    while line("state") != state {
        assert!(begun.elapsed() < Duration::from_secs(20), "sched_ext is {}, not {state}", line("state"));
        thread::sleep(Duration::from_millis(20));
    }
}

struct Scheduler {
    load: Option<Load>,
    loads: String,
}

impl Scheduler {
    fn start() -> Self {
        wait_for("disabled");
        let load = Load::start("scx_simple", &[], None);
        wait_for("enabled");
        Self { load: Some(load), loads: line("enable_seq") }
    }

    /// Asserts that this scheduler still schedules all tasks. The kernel unloads a scheduler that lets a task wait for too long.
    fn assert_has_all(&self) {
        assert_eq!((&*line("state"), &*line("root/ops"), &*line("switch_all")), ("enabled", "simple", "1"));
        assert_eq!(line("enable_seq"), self.loads, "it was not loaded again");
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.load.take();
        // Wait until the kernel's own scheduler is active again, because the next test needs it.
        let begun = Instant::now();
        while line("state") != "disabled" && begun.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Runs the checks of the module `truth` while this scheduler is loaded.
fn check_scheduled(load: &Load, scheduler: &Scheduler) -> Interval {
    scheduler.assert_has_all();
    let whole = check(load, 3);
    scheduler.assert_has_all();
    assert_eq!(whole.sched_ext, Some(SchedExt { scheduler: Some("simple".into()), takes_all: true }));
    for task in &whole.tasks {
        let wait = &task.wait;
        assert_eq!(wait.by_cause.total(), wait.total_ns, "{}: {:?}", task.reading.comm, wait.by_cause);
    }
    let wait = whole.total().wait;
    println!("{} waits, {:?}", wait.count, wait.by_cause);
    assert_eq!(wait.by_cause.get(Cause::Throttled), 0, "{:?}", wait.by_cause);
    whole
}

#[test]
#[ignore = "all CPUs: loads a scheduler"]
fn sums_are_equal_for_loops_that_may_migrate() {
    let (load, _out) = Load::workload(&["burn", "4", "90", "pair"], None);
    let whole = check_scheduled(&load, &Scheduler::start());
    let total = whole.total();
    let share = total.wait.total_ns as f64 / (whole.duration_ns as f64 * 2.0);
    assert!((0.5..1.5).contains(&share), "half of the tasks must wait: {share}");
}

#[test]
#[ignore = "all CPUs: loads a scheduler"]
fn sums_are_equal_for_loops_that_stay_on_their_cpus() {
    let (load, _out) = Load::workload(&["burn", "6", "90", "pin"], None);
    check_scheduled(&load, &Scheduler::start());
}

#[test]
fn sums_are_equal_for_two_tasks_on_a_pipe() {
    let scheduler = Scheduler::start();
    let load = Load::start("perf", &["bench", "sched", "pipe", "-l", "100000000"], None);
    let is_over = AtomicBool::new(false);
    let whole = thread::scope(|scope| {
        // scx_simple puts a waking task before all tasks in its queue if a CPU is idle. So without these pauses, a kernel thread that
        // is bound to the CPU of the pipe does not run for 30 s, and the kernel unloads the scheduler.
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                thread::sleep(Duration::from_millis(300));
                load.signal(libc::SIGSTOP);
                thread::sleep(Duration::from_millis(20));
                load.signal(libc::SIGCONT);
            }
        });
        thread::sleep(Duration::from_millis(500));
        let checked = panic::catch_unwind(AssertUnwindSafe(|| check_scheduled(&load, &scheduler)));
        is_over.store(true, Relaxed);
        checked.unwrap_or_else(|fault| panic::resume_unwind(fault))
    });
    assert!(whole.total().totals.voluntary > 1_000, "the pipe switches all the time");
}

#[test]
#[ignore = "all CPUs: loads a scheduler"]
fn sums_stay_equal_while_a_scheduler_is_loaded_and_unloaded() {
    let (load, _out) = Load::workload(&["burn", "6", "90", "pin"], None);
    let pids = load.pids();
    let mut collector = follow(&pids);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                thread::sleep(Duration::from_secs(1));
                let scheduler = Scheduler::start();
                thread::sleep(Duration::from_secs(1));
                scheduler.assert_has_all();
            }
        });
        let run = measure(&mut collector, &pids, 6);
        assert_sums_equal(&run);
        assert!(run.whole.sched_ext.is_some_and(|found| found.scheduler.is_some()), "it was loaded");
    });
}

#[test]
#[ignore = "all CPUs: loads a scheduler"]
fn only_cgroups_that_ran_on_the_same_cpu_are_blamed() {
    let mut collector = follow(&[]);
    let scheduler = Scheduler::start();
    let [victim, culprit, far, farther] =
        ["victim", "culprit", "far", "farther"].map(|name| Cgroup::new(&format!("scx-{name}")));
    let loads = [(0, &victim), (0, &culprit), (1, &far), (2, &farther)]
        .map(|(cpu, cgroup)| Load::pinned_loop(cpu, Some(cgroup)));
    thread::sleep(Duration::from_millis(500));
    scheduler.assert_has_all();
    let interval = measure(&mut collector, &[], 4).whole;
    scheduler.assert_has_all();
    let behind = |victim: &Cgroup| -> Vec<(String, u64)> {
        let culprits = interval.culprits_of(&victim.name).into_iter();
        culprits.map(|found| (found.path.as_deref().unwrap_or("unknown").to_owned(), found.ns)).collect()
    };
    println!("victim: {:?}; far: {:?}", behind(&victim), behind(&far));
    let (worst, ns) = behind(&victim).into_iter().max_by_key(|(_, ns)| *ns).expect("a culprit");
    assert_eq!(worst, culprit.name);
    assert!(ns > 1_000_000_000, "half of the time: {ns} ns");
    // No wait is charged to a cgroup on another CPU.
    for (of, others) in [
        (&victim, [&far, &farther].as_slice()),
        (&far, &[&victim, &culprit, &farther]),
        (&farther, &[&victim, &culprit, &far]),
    ] {
        let blamed = behind(of);
        assert!(others.iter().all(|other| blamed.iter().all(|(path, _)| *path != other.name)), "{blamed:?}");
    }
    drop(loads);
}

#[test]
#[ignore = "all CPUs: loads a scheduler"]
fn no_finding_relies_on_a_quota_that_nobody_enforces() {
    let limited = Cgroup::new("scx-limited");
    limited.limit(10_000, 50_000);
    let load = Load::busy_loop(Some(&limited));
    let dir = Dir::new("scx");
    let file = dir.file("a.rec");
    let mut collector = follow(&[load.pid()]);
    // At first, the kernel's own scheduler is active and throttles the loop, so the counters of the quota increase in the first
    // interval.
    let (output, scheduler) = thread::scope(|scope| {
        let recording = scope.spawn(|| run(&["record", "-o", &file, "-d", "20", "-i", "5"]));
        thread::sleep(Duration::from_secs(8));
        let scheduler = Scheduler::start();
        (recording.join().expect("a recording"), scheduler)
    });
    assert_measured(&output);
    scheduler.assert_has_all();
    let whole = measure(&mut collector, &[load.pid()], 3).whole;
    scheduler.assert_has_all();
    let totals = whole.total().totals;
    println!("{totals:?}");
    assert!(totals.on_cpu_ns * 2 > whole.duration_ns, "nobody enforces the quota: {totals:?}");
    assert_eq!(totals.by_cause.get(Cause::Throttled), 0, "{totals:?}");
    let intervals = json_lines(&run(&["report", "--json", &file]));
    let of_quotas = |interval: &serde_json::Value| -> Vec<String> {
        let findings = interval["findings"].as_array().expect("findings").iter();
        let rules = findings.map(|finding| finding["rule"].as_str().expect("a rule").to_owned());
        rules.filter(|rule| rule.contains("throttled") || rule.contains("quota")).collect()
    };
    let (under, before): (Vec<_>, Vec<_>) =
        intervals.iter().partition(|interval| interval["sched_ext"]["scheduler"] == "simple");
    println!("{} intervals under the scheduler, {} before", under.len(), before.len());
    assert!(!under.is_empty() && !before.is_empty());
    assert!(before.iter().any(|interval| !of_quotas(interval).is_empty()), "the quota ran out before");
    let throttled_ns = |interval: &serde_json::Value| -> u64 {
        let cgroups = interval["cgroups"].as_array().expect("cgroups").iter();
        let ours = cgroups.filter(|cgroup| cgroup["path"] == *limited.name);
        ours.filter_map(|cgroup| cgroup["throttled_ns"].as_u64()).sum()
    };
    assert!(
        throttled_ns(under[0]) > 0,
        "the scheduler was loaded during this interval: {}",
        under[0]["cgroups"]
    );
    for interval in &under {
        assert_eq!(of_quotas(interval), [""; 0]);
        assert_eq!(interval["sched_ext"]["takes_all"], true);
    }
    let doctor = stdout(&run(&["doctor"]));
    assert!(doctor.contains("the BPF scheduler simple is loaded"), "{doctor}");
}
