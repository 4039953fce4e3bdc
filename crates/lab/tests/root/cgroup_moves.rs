//! Tasks that move between cgroups. The CPU time and the waits of a task count for the cgroup in which the task was at that time.

use std::{
    collections::BTreeMap,
    fs,
    ops::RangeInclusive,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{Blame, ByCause, Cause, Interval, PairReading, Tree};

use crate::{
    bench::{follow, is_emulated},
    load::{Cgroup, Load},
};

/// A cgroup of the cpu controller. If another v1 hierarchy accounts CPU time, this includes the cgroup with the same name there.
pub(crate) struct Place {
    pub(crate) cgroup: Cgroup,
    account: Option<PathBuf>,
}

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        Self::of(Cgroup::new(name))
    }

    fn child(&self, name: &str) -> Self {
        Self::of(self.cgroup.child(name))
    }

    fn of(cgroup: Cgroup) -> Self {
        let accounts = Path::new("/sys/fs/cgroup/cpuacct");
        let is_apart = !cgroup.path.join("cpuacct.usage").exists() && accounts.join("cpuacct.usage").exists();
        let account = is_apart.then(|| accounts.join(cgroup.name.trim_start_matches('/')));
        account.iter().for_each(|path| fs::create_dir(path).expect("a cgroup"));
        Self { cgroup, account }
    }

    /// Returns the paths of the files with this name in the cgroup. To move a task, a test writes the id of the task to such a
    /// file.
    pub(crate) fn files(&self, name: &str) -> Vec<String> {
        let places = [Some(&self.cgroup.path), self.account.as_ref()];
        places.into_iter().flatten().map(|path| path.join(name).display().to_string()).collect()
    }

    fn put(&self, name: &str, id: &str) {
        self.files(name).iter().for_each(|file| fs::write(file, id).expect("the kernel moves it"));
    }

    /// Returns the CPU time of the cgroup as the kernel accounts it, ms: `cpuacct.usage` (ns), or `usage_usec` of `cpu.stat`.
    pub(crate) fn ran_ms(&self) -> f64 {
        let read = |file: &str| {
            let path = self.account.as_ref().unwrap_or(&self.cgroup.path);
            fs::read_to_string(path.join(file)).ok()
        };
        let v1 = read("cpuacct.usage").map(|text| text.trim().parse::<f64>().expect("ns") / 1e6);
        v1.unwrap_or_else(|| {
            let stat = read("cpu.stat").expect("the kernel's own account");
            let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec ")).expect("its usage");
            us.parse::<f64>().expect("us") / 1e3
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(path) = &self.account else { return };
        // An exiting task stays in the cgroup for a moment.
        for _ in 0..100 {
            if fs::remove_dir(path).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Figures of some cgroups from just before a load to just after it. Only the load runs in these cgroups.
struct Measured {
    interval: Interval,
    /// Minimum and maximum of the kernel's CPU time, ms. The CPU time during the interval is known only within these bounds,
    /// because the files are read before and after each sample.
    ran_ms: Vec<RangeInclusive<f64>>,
}

fn measured(cgroups: &[&Place], load: impl FnOnce()) -> Measured {
    let mut host = follow(&[]);
    // Discard the first sample, because it takes longest.
    host.sample().expect("a sample");
    let ran = || cgroups.iter().map(|cgroup| cgroup.ran_ms()).collect::<Vec<_>>();
    let mut bracketed = || {
        let before = ran();
        let sample = host.sample().expect("a sample");
        (before, sample, ran())
    };
    let (earliest, before, begun) = bracketed();
    load();
    let (ended, after, latest) = bracketed();
    let ran_ms = (0..cgroups.len()).map(|at| ended[at] - begun[at]..=latest[at] - earliest[at]).collect();
    let interval = Interval::between(&before, &after);
    assert_eq!(interval.losses.get(cgscope_ledger::Loss::ExitedInOtherCgroup), 0, "{}", interval.losses);
    Measured { interval, ran_ms }
}

impl Measured {
    /// Checks that the CPU time of each cgroup differs from the kernel's by at most 1 % plus 8 ms (60 ms if emulated). Also
    /// checks that the causes of the waits sum to the waiting time.
    fn assert_as_the_kernel_says(&self, cgroups: &[&Place]) {
        let groups = self.interval.by_cgroup();
        for (cgroup, theirs) in cgroups.iter().zip(&self.ran_ms) {
            let group = groups.get(&Some(cgroup.cgroup.name.as_str().into())).expect("a row of this cgroup");
            let ours = group.totals.on_cpu_ns as f64 / 1e6;
            let name = &cgroup.cgroup.name;
            println!("{name}: {ours:.1} ms, by the kernel {theirs:.1?}; waited {:?}", group.wait.by_cause);
            // The kernel accounts the CPU time of running tasks only at ticks.
            let tolerance = 0.01 * theirs.end() + if is_emulated() { 60.0 } else { 8.0 };
            assert!(
                (theirs.start() - tolerance..=theirs.end() + tolerance).contains(&ours),
                "{name}: {ours:.1} ms, by the kernel {theirs:.1?}"
            );
            assert_eq!(group.wait.by_cause.total(), group.wait.total_ns, "{}", cgroup.cgroup.name);
        }
        let total = self.interval.total();
        assert_eq!(total.wait.by_cause.total(), total.wait.total_ns);
    }

    fn waited(&self, cgroup: &Place) -> ByCause {
        let groups = self.interval.by_cgroup();
        let group = groups.get(&Some(cgroup.cgroup.name.as_str().into())).expect("a row of this cgroup");
        group.wait.by_cause
    }

    fn throttled_ms(&self, cgroup: &Place) -> u64 {
        self.waited(cgroup).get(Cause::Throttled) / 1_000_000
    }

    /// Returns the throttled time of a cgroup, ns. The key is the path of the cgroup whose quota ran out. Leaves out throttled
    /// time for which the quota is unknown.
    fn throttled_by(&self, cgroup: &Place) -> BTreeMap<&str, u64> {
        let path = |id| self.interval.cgroup_path(id).map_or("", |path| &**path);
        let of_cgroup = |pair: &&PairReading| path(pair.victim) == cgroup.cgroup.name;
        let limited =
            self.interval.pairs.iter().filter(|pair| pair.blame == Blame::Limited).filter(of_cgroup);
        limited.map(|pair| (path(pair.culprit), pair.ns)).collect()
    }
}

fn for_ms(ms: u64) {
    thread::sleep(Duration::from_millis(ms));
}

#[test]
fn figures_from_before_a_move_stay_with_the_old_cgroup() {
    let (limited, free) = (Place::new("moved-from"), Place::new("moved-to"));
    limited.cgroup.limit(20_000, 100_000);
    let load = Load::busy_loop(None);
    limited.put("cgroup.procs", &load.pid().to_string());
    for_ms(200);
    let measured = measured(&[&limited, &free], || {
        for_ms(2_500);
        free.put("cgroup.procs", &load.pid().to_string());
        for_ms(700);
    });
    measured.assert_as_the_kernel_says(&[&limited, &free]);
    assert!(measured.throttled_ms(&limited) > 1_000, "its quota was a fifth of a CPU");
    // A wait that began before the move can end after the move.
    assert!(
        measured.throttled_ms(&free) <= 100,
        "the other cgroup has no quota: {}",
        measured.throttled_ms(&free)
    );
    let tree = Tree::new(&measured.interval);
    let node = tree.find(&limited.cgroup.name).expect("the cgroup");
    assert_eq!(tree.nodes()[node].limited_by, Some(node));
}

#[test]
fn a_task_that_moves_every_20_ms_counts_in_each_cgroup_for_its_time_there() {
    let (a, b) = (Place::new("every-20-a"), Place::new("every-20-b"));
    // Two loops share a CPU and wait for each other. The third loop is on another CPU, which it has to itself for some of the
    // time.
    let loads = [0, 0, 1].map(|cpu| Load::pinned_loop(cpu, None));
    loads.iter().for_each(|load| a.put("cgroup.procs", &load.pid().to_string()));
    for_ms(200);
    let measured = measured(&[&a, &b], || {
        let end = Instant::now() + Duration::from_secs(4);
        let mut turn = 0;
        while Instant::now() < end {
            turn += 1;
            for (at, load) in loads.iter().enumerate() {
                [&a, &b][(at + turn) % 2].put("cgroup.procs", &load.pid().to_string());
            }
            for_ms(if turn % 3 == 0 { 40 } else { 20 });
        }
    });
    measured.assert_as_the_kernel_says(&[&a, &b]);
}

/// Moves a running task, as a service manager does. If the new cgroup is out of quota, the kernel switches the task out. If the
/// new cgroup has no quota, the task runs again.
#[test]
#[ignore = "one CPU: asserts shares"]
fn a_task_that_is_moved_into_a_throttled_cgroup_is_throttled_there() {
    let (limited, free) = (Place::new("moved-into"), Place::new("moved-out"));
    limited.cgroup.limit(20_000, 100_000);
    let load = Load::loop_on_a_cpu(None);
    let move_to = |place: &Place| place.put("cgroup.procs", &load.pid().to_string());
    move_to(&free);
    for_ms(200);
    let measured = measured(&[&limited, &free], || {
        let end = Instant::now() + Duration::from_secs(4);
        while Instant::now() < end {
            move_to(&limited);
            for_ms(20);
            move_to(&free);
            for_ms(20);
        }
    });
    let (inside, outside) = (measured.waited(&limited), measured.waited(&free));
    println!("{inside:?} by {:?}; {outside:?}", measured.throttled_by(&limited));
    assert!(
        inside.get(Cause::Throttled) > 500_000_000,
        "out of quota for most of the time in it: {inside:?}"
    );
    assert!(
        // An emulated CPU wakes up slowly: 2.01 % were seen on Linux 6.1.
        inside.get(Cause::Wakeup) < inside.total() / if is_emulated() { 20 } else { 50 },
        "its CPU ran nothing because of the quota: {inside:?}"
    );
    assert!(outside.get(Cause::Throttled) < 1_000_000, "there is no quota: {outside:?}");
    for place in [&limited, &free] {
        let named: u64 = measured.throttled_by(place).values().sum();
        assert_eq!(named, measured.waited(place).get(Cause::Throttled), "{}", place.cgroup.name);
    }
    let task = measured.interval.tasks.iter().find(|task| task.reading.tid == load.pid()).expect("its row");
    let waited_ns = inside.total() + outside.total();
    assert_eq!(task.all_waits().by_cause.total(), waited_ns, "{task:?}");
    assert_eq!(task.all_totals().wait_ns, waited_ns);
    // The kernel accounts CPU time at ticks, so the time between the last tick and a move counts for the new cgroup.
    let ran_ms = task.all_totals().on_cpu_ns / 1_000_000;
    let theirs: f64 = measured.ran_ms.iter().map(|ran| *ran.start()).sum();
    assert!(ran_ms as f64 >= 0.99 * theirs - 8.0, "{ran_ms} of {theirs} ms");
}

/// When a process moves, the kernel reports only the move of the main thread. In this test, the other threads never switch.
#[test]
#[ignore = "all CPUs: the threads must be alone on theirs"]
fn threads_that_are_alone_on_their_cpus_count_in_the_new_cgroup_from_the_next_reading_on() {
    let (a, b) = (Place::new("alone-a"), Place::new("alone-b"));
    // With a higher weight, the loops would delay the collector of this test by up to a minute.
    b.cgroup.weigh(4);
    let (load, _out) = Load::workload(&["burn", "2", "60", "pin"], None);
    a.put("cgroup.procs", &load.pid().to_string());
    let mut host = follow(&[]);
    host.sample().expect("a sample");
    for_ms(500);
    b.put("cgroup.procs", &load.pid().to_string());
    let moved = host.sample().expect("a sample");
    for_ms(1_000);
    let interval = Interval::between(&moved, &host.sample().expect("a sample"));
    let groups = interval.by_cgroup();
    let ran_ns = |place: &Place| {
        groups.get(&Some(place.cgroup.name.as_str().into())).map_or(0, |group| group.totals.on_cpu_ns)
    };
    assert!(ran_ns(&a) < interval.duration_ns / 1_000, "{} ns in the former cgroup", ran_ns(&a));
    assert!(ran_ns(&b) > interval.duration_ns * 3 / 2, "{} ns in the new one", ran_ns(&b));
}

/// A process moves itself into a cgroup, as under a container runtime, works there and exits before the next sample.
#[test]
fn a_process_that_moves_itself_and_exits_counts_in_its_new_cgroup() {
    let cgroup = Place::new("placed");
    cgroup.cgroup.limit(50_000, 100_000);
    cgroup.cgroup.favour();
    let measured = measured(&[&cgroup], || {
        let procs = cgroup.files("cgroup.procs").join("; echo $$ > ");
        // The shell itself must run the loop, because a child of the shell would start in the new cgroup and never move.
        let script = format!("echo $$ > {procs}; while :; do :; done");
        let load = Load::start("timeout", &["3", "sh", "-c", &script], None);
        for_ms(3_500);
        drop(load);
    });
    measured.assert_as_the_kernel_says(&[&cgroup]);
    assert!(*measured.ran_ms[0].start() > 1_000.0, "{:?}", measured.ran_ms);
    let throttled_ms = measured.throttled_ms(&cgroup);
    assert!(throttled_ms > 1_000, "throttled for {throttled_ms} ms in 3 s with half a CPU");
}

/// Moves single threads with the file `tasks` (v1) or `cgroup.threads` (v2).
#[test]
fn threads_that_are_moved_one_by_one_count_in_their_own_cgroups() {
    let parent = Place::new("threaded");
    let (a, b) = (parent.child("a"), parent.child("b"));
    let is_v1 = parent.cgroup.path.join("tasks").exists();
    if !is_v1 {
        [&a, &b].iter().for_each(|cgroup| cgroup.put("cgroup.type", "threaded"));
    }
    let file = if is_v1 { "tasks" } else { "cgroup.threads" };
    let (load, _out) = Load::workload(&["burn", "3", "60"], None);
    if !is_v1 {
        parent.put("cgroup.procs", &load.pid().to_string());
    }
    let tids = || -> Vec<String> {
        let tasks = fs::read_dir(format!("/proc/{}/task", load.pid())).expect("a live process");
        tasks.flatten().map(|task| task.file_name().into_string().expect("a number")).collect()
    };
    let move_all = |cgroup: &Place| {
        tids().iter().for_each(|tid| cgroup.put(file, tid));
    };
    move_all(&a);
    let measured = measured(&[&a, &b], || {
        for turn in 0..60 {
            let tids = tids();
            [&a, &b][turn % 2].put(file, &tids[turn % tids.len()]);
            for_ms(20);
        }
        move_all(&b);
        for_ms(1_000);
    });
    measured.assert_as_the_kernel_says(&[&a, &b]);
}

#[test]
fn a_cgroup_that_is_removed_after_its_task_moved_away_keeps_its_figures() {
    let to = Place::new("left-for");
    let mut host = follow(&[]);
    let before = host.sample().expect("a sample");
    let from = Place::new("left-behind");
    let name = from.cgroup.name.clone();
    let load = Load::busy_loop(None);
    from.put("cgroup.procs", &load.pid().to_string());
    for_ms(1_000);
    to.put("cgroup.procs", &load.pid().to_string());
    let theirs = from.ran_ms();
    drop(from);
    for_ms(500);
    let after = host.sample().expect("a sample");
    let interval = Interval::between(&before, &after);
    let groups = interval.by_cgroup();
    let ours =
        groups.get(&Some(name.as_str().into())).expect("a row of this cgroup").totals.on_cpu_ns as f64 / 1e6;
    println!("{name}: {ours:.1} ms, by the kernel {theirs:.1}");
    assert!((ours - theirs).abs() <= 0.01 * theirs + 8.0, "{ours:.1} ms, by the kernel {theirs:.1}");
}

/// When a process moves, the kernel reports only the move of the main thread. The hook detects the move of another thread when
/// that thread switches in. In this test, two threads share each CPU and switch all the time.
#[test]
fn all_threads_of_a_process_move_with_it() {
    let (a, b) = (Place::new("process-a"), Place::new("process-b"));
    let threads = 2 * thread::available_parallelism().expect("the number of CPUs").get();
    let (load, _out) = Load::workload(&["burn", &threads.to_string(), "60", "pin"], None);
    a.put("cgroup.procs", &load.pid().to_string());
    for_ms(200);
    let measured = measured(&[&a, &b], || {
        for_ms(1_500);
        b.put("cgroup.procs", &load.pid().to_string());
        for_ms(1_500);
    });
    measured.assert_as_the_kernel_says(&[&a, &b]);
}
