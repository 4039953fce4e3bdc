//! The coarse mode, which reads only `/proc` and has the same sums as the exact mode.

use std::{
    collections::BTreeMap,
    fs, thread,
    time::{Duration, Instant},
};

use cgscope_model::{Cause, Interval, Losses, Mode, Sample, TaskInterval, Tree};
use serde_json::Value;

use crate::{
    bench::{
        all_tasks, follow, follow_coarsely, json_lines, kernel_figures, measure, own_cpu_percent, run,
        stderr, stdout,
    },
    files::Dir,
    load::{Cgroup, Load},
};

/// Tolerance, percent. A tolerance is needed because the two modes do not read at the same instant.
const PERCENT: f64 = 2.0;
/// Maximum total time of the two readings.
const TOGETHER: Duration = Duration::from_millis(15);

fn assert_near(what: &str, coarse: u64, exact: u64, slack: u64) -> f64 {
    let off = coarse.abs_diff(exact);
    let allowed = (exact as f64 * PERCENT / 100.0) as u64 + slack;
    assert!(off <= allowed, "{what}: {coarse} coarse, {exact} exact");
    100.0 * off as f64 / exact.max(1) as f64
}

/// Returns, for each thread id, the part of unfinished waits that the kernel's sum already includes, ns. This part is the waiting
/// time on another CPU before a migration. The sum of the coarse mode includes this part, too.
fn booked(samples: [&Sample; 2]) -> BTreeMap<u32, u64> {
    let mut booked = BTreeMap::new();
    for task in samples.into_iter().flat_map(|sample| &sample.tasks) {
        *booked.entry(task.tid).or_default() += task.pending.as_ref().map_or(0, |pending| pending.booked_ns);
    }
    booked
}

/// Asserts that all figures that both modes have are nearly equal. Returns the largest difference between totals, percent.
fn assert_agree(coarse: &Interval, exact: &Interval, booked: &BTreeMap<u32, u64>) -> f64 {
    let all_booked: u64 = booked.values().sum();
    let (coarse, exact) = (coarse.with_idle(), exact.with_idle());
    let tasks: BTreeMap<u32, &TaskInterval> =
        exact.tasks.iter().map(|task| (task.reading.tid, task)).collect();
    assert!(coarse.tasks.len() > 10, "{} tasks", coarse.tasks.len());
    for task in &coarse.tasks {
        let tid = task.reading.tid;
        let exact = tasks.get(&tid).unwrap_or_else(|| panic!("only the coarse mode has {tid}"));
        let pairs = [
            ("run delay", task.totals.run_delay_ns, exact.totals.run_delay_ns, 20_000_000),
            ("wait", task.wait.total_ns, exact.wait.total_ns, 20_000_000 + booked[&tid]),
            ("on CPU", task.totals.on_cpu_ns, exact.totals.on_cpu_ns, 20_000_000),
            ("waits", task.wait.count, exact.wait.count, 10),
            ("voluntary", task.totals.voluntary, exact.totals.voluntary, 10),
            ("involuntary", task.totals.involuntary, exact.totals.involuntary, 10),
        ];
        for (what, ours, theirs, slack) in pairs {
            assert_near(&format!("{what} of {tid} {}", task.reading.comm), ours, theirs, slack);
        }
        assert_eq!(task.reading.tgid, exact.reading.tgid);
        assert_eq!(coarse.cgroup_path(task.reading.cgroup_id), exact_path(exact, &coarse));
    }
    let groups = exact.by_cgroup();
    for (path, group) in coarse.by_cgroup() {
        let exact = &groups[&path];
        let name = path.as_deref().unwrap_or("?");
        let (ours, theirs) = (group.wait.total_ns, exact.wait.total_ns);
        assert_near(&format!("wait of {name}"), ours, theirs, 20_000_000 + all_booked);
        assert_near(&format!("usage of {name}"), group.totals.on_cpu_ns, exact.totals.on_cpu_ns, 20_000_000);
    }
    let (coarse, exact) = (coarse.total(), exact.total());
    let off = [
        assert_near("wait", coarse.wait.total_ns, exact.wait.total_ns, all_booked),
        assert_near("run delay", coarse.totals.run_delay_ns, exact.totals.run_delay_ns, 0),
        assert_near("on CPU", coarse.totals.on_cpu_ns, exact.totals.on_cpu_ns, 0),
        assert_near("waits", coarse.wait.count, exact.wait.count, 0),
        assert_near("voluntary", coarse.totals.voluntary, exact.totals.voluntary, 0),
        assert_near("involuntary", coarse.totals.involuntary, exact.totals.involuntary, 0),
    ];
    off.into_iter().fold(0.0, f64::max)
}

/// Returns the path of a task's cgroup. `names` can be from either mode, because both modes use the same cgroup ids.
fn exact_path<'a>(task: &TaskInterval, names: &'a Interval) -> Option<&'a std::sync::Arc<str>> {
    names.cgroup_path(task.reading.cgroup_id)
}

#[test]
fn the_sums_equal_those_of_the_exact_mode() {
    let limited = Cgroup::new("coarse");
    limited.limit(50_000, 100_000);
    let loads = [
        Load::workload(&["burn", "4", "60"], None),
        Load::workload(&["burn", "2", "60"], Some(&limited)),
        Load::workload(&["blink", "4", "60"], None),
        Load::workload(&["sleep", "20", "60"], None),
    ];
    let pids: Vec<u32> = loads.iter().map(|(load, _)| load.pid()).collect();
    let mut exact = follow(&pids);
    let mut coarse = follow_coarsely(&pids);
    assert_eq!((exact.mode(), coarse.mode()), (Mode::Bpf, Mode::Coarse));
    // Wait until the first period of the quota has ended.
    thread::sleep(Duration::from_millis(300));
    // Retry until both readings are from nearly the same moment. Only the elapsed time, not the figures, decides which readings
    // the test uses.
    let mut both = || {
        (0..200)
            .find_map(|_| {
                let started = Instant::now();
                let both = (coarse.sample().expect("a sample"), exact.sample().expect("a sample"));
                (started.elapsed() < TOGETHER).then_some(both)
            })
            .expect("two readings at nearly the same moment")
    };
    let first = both();
    thread::sleep(Duration::from_secs(6));
    let last = both();
    let booked = booked([&first.1, &last.1]);
    let (coarse, exact) = (Interval::between(&first.0, &last.0), Interval::between(&first.1, &last.1));
    let off = assert_agree(&coarse, &exact, &booked);
    println!("the totals differ by at most {off:.3} %");
    assert_eq!(coarse.losses, Losses::default());
    assert_eq!(coarse.total().wait.by_cause.total(), coarse.total().wait.total_ns);
}

#[test]
fn each_sample_lies_between_two_readings_of_the_kernels_files() {
    let (load, _out) = Load::workload(&["blink", "6", "30"], None);
    let pids = load.pids();
    let run = measure(&mut follow_coarsely(&pids), &pids, 3);
    // The main thread sleeps, so it counts as an idle task.
    let whole = run.whole.with_idle();
    assert_eq!(whole.tasks.len(), 7);
    for task in &whole.tasks {
        let at = |figures: &BTreeMap<_, _>| figures[&task.reading.tid];
        let ([a, b], [c, d]) = (run.at_first.each_ref().map(at), run.at_last.each_ref().map(at));
        let ours = (task.totals.run_delay_ns, task.totals.voluntary, task.totals.involuntary);
        assert!((c.run_delay_ns - b.run_delay_ns..=d.run_delay_ns - a.run_delay_ns).contains(&ours.0));
        assert!((c.voluntary - b.voluntary..=d.voluntary - a.voluntary).contains(&ours.1));
        assert!((c.involuntary - b.involuntary..=d.involuntary - a.involuntary).contains(&ours.2));
    }
    assert!(!kernel_figures(&pids).is_empty());
}

#[test]
fn one_loop_at_half_a_cpu_is_throttled_for_as_long_as_cpu_stat_says() {
    let outer = Cgroup::new("coarse-half");
    let inner = outer.child("inner");
    outer.limit(50_000, 100_000);
    outer.favour();
    let (_load, _out) = Load::workload(&["burn", "1", "60"], Some(&inner));
    thread::sleep(Duration::from_millis(300));
    let mut collector = follow_coarsely(&[]);
    let before = collector.sample().expect("a sample");
    let stat_before = outer.throttled_ns();
    thread::sleep(Duration::from_secs(6));
    let after = collector.sample().expect("a sample");
    let said = outer.throttled_ns() - stat_before;
    let interval = Interval::between(&before, &after);
    let group = &interval.by_cgroup()[&Some(inner.name.as_str().into())];
    let throttled = group.wait.by_cause.get(Cause::Throttled);
    assert!(throttled <= said + 100_000_000, "{throttled}, and cpu.stat {said}");
    // Allow for time in which the loop waited for other tasks.
    assert_near("throttled", throttled, said, 100_000_000);
    assert!(throttled * 100 >= group.wait.total_ns * 80, "{:?}", group.wait.by_cause);
    let limits = interval.limits_of(&inner.name);
    assert_eq!(limits.len(), 1, "{limits:?}");
    assert_eq!((limits[0].0.as_deref(), limits[0].1), (Some(outer.name.as_str()), throttled));
    let tree = Tree::new(&interval);
    let node = &tree.nodes()[tree.find(&inner.name).expect("the cgroup")];
    assert_eq!(node.limited_by, tree.find(&outer.name));
}

#[test]
fn a_quota_that_ran_out_is_also_a_finding_in_the_coarse_mode() {
    let limited = Cgroup::new("coarse-finding");
    limited.limit(25_000, 100_000);
    // Without priority, ten loops of other programs would keep the cgroup below its quota. There are
    // more loops than needed, so that they wait for each other even if the cgroup gets less than its quota.
    limited.favour();
    let (_load, _out) = Load::workload(&["burn", "6", "30"], Some(&limited));
    let output = run(&["hist", "--mode", "coarse", "--json", "--cgroup", &limited.name, "3", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let interval = json_lines(&output).remove(0);
    let findings = interval["findings"].as_array().expect("findings");
    let rules: Vec<&Value> = findings.iter().map(|finding| &finding["rule"]).collect();
    assert!(rules.iter().any(|rule| *rule == "throttled"), "{rules:?}");
    assert!(rules.iter().any(|rule| *rule == "threads_over_quota"), "{interval:#}");
    assert!(!rules.iter().any(|rule| *rule == "unattributed"), "{rules:?}");
}

fn assert_is_coarse(interval: &Value) {
    assert_eq!(interval["mode"], "coarse");
    for key in ["pending", "culprits"] {
        assert!(interval[key].is_null(), "{key}: {}", interval[key]);
    }
    for key in ["hook_ns", "hook_runs"] {
        assert!(interval["self"][key].is_null(), "{key}");
    }
    let lists = ["tasks", "cgroups"].map(|key| interval[key].as_array().expect("a list"));
    let all = lists.into_iter().flatten();
    for wait in all.clone().map(|one| &one["wait"]).chain([&interval["total"]]) {
        for key in ["max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "hist", "hist_by_cause"] {
            assert!(wait.get(key).is_some_and(Value::is_null), "{key}: {}", wait[key]);
        }
        let cause = |name: &str| wait["by_cause"][name].as_u64();
        let known = cause("throttled_ns").zip(cause("unattributed_ns")).map(|(a, b)| a + b);
        assert_eq!(known, wait["total_ns"].as_u64());
        assert_eq!(cause("wakeup_ns").or(cause("other_cgroup_ns")), None);
    }
    for task in lists[0] {
        for key in ["pending_ns", "migrations", "unstamped"] {
            assert!(task.get(key).is_some_and(Value::is_null), "{key}");
        }
    }
    assert!(!lists[0].is_empty() && !lists[1].is_empty());
}

#[test]
fn every_command_works_in_the_coarse_mode() {
    let (load, _out) = Load::workload(&["burn", "4", "120", "pin"], None);
    let pid = load.pid().to_string();
    for args in [
        &["hist", "0.5", "2"][..],
        &["hist", "0.5", "2", "-P"],
        &["hist", "0.5", "2", "-L", "--pid", &pid],
        &["hist", "0.5", "2", "--tid", &pid],
        &["hist", "0.5", "2", "--by", "cgroup"],
        &["hist", "0.5", "2", "--comm", "workload"],
        &["hist", "0.5", "2", "--cpu", "0"],
        &["hist", "0.5", "2", "--cgroup", "/", "-m", "-T"],
        &["top", "-b", "-n", "2", "-d", "0.5"],
    ] {
        let output = run(&[args, &["--mode", "coarse"]].concat());
        let text = stdout(&output);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{args:?}: no message if the options choose the coarse mode");
        assert_eq!(text.matches("coarse: /proc reports").count(), 2, "{args:?}:\n{text}");
        assert!(!text.contains("distribution") && !text.contains("p99.9"), "{args:?}:\n{text}");
    }
    for args in
        [&["hist", "--json", "0.5", "2"][..], &["top", "-b", "--json", "-n", "2", "-d", "0.5", "-p", &pid]]
    {
        let intervals = json_lines(&run(&[args, &["--mode", "coarse"]].concat()));
        assert_eq!(intervals.len(), 2);
        intervals.iter().for_each(assert_is_coarse);
    }
}

#[test]
fn a_coarse_recording_is_reported_as_coarse() {
    let dir = Dir::new("coarse");
    let file = dir.file("a.rec");
    let (load, _out) = Load::workload(&["burn", "4", "30", "pin"], None);
    let pid = load.pid().to_string();
    let output = run(&["record", "--mode", "coarse", "-o", &file, "-d", "3", "-p", &pid]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let report = run(&["report", &file]);
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
    let words = stdout(&report);
    for said in ["Coarse: /proc reports", "ran", "waited", "workload", "losses: none", "own cost"] {
        assert!(words.contains(said), "{said:?} is not in:\n{words}");
    }
    assert!(!words.contains("The kernel's own sum") && !words.contains("distribution"), "{words}");
    let intervals = json_lines(&run(&["report", "--json", &file]));
    assert_eq!(intervals.len(), 3);
    intervals.iter().for_each(assert_is_coarse);
    let waited: u64 = intervals.iter().filter_map(|interval| interval["total"]["total_ns"].as_u64()).sum();
    // At any time, two of the four loops wait. On a busy machine, more of them wait.
    assert!((4_000_000_000..13_000_000_000).contains(&waited), "{waited}");
}

#[test]
fn a_command_is_followed_with_its_children_to_its_end() {
    // cgscope sees the children because they run for longer than an interval.
    let workload = env!("CARGO_BIN_EXE_workload");
    let script = format!("{workload} burn 2 2 >&2 & {workload} burn 2 2 >&2 & wait; exit 7");
    let output = run(&["hist", "--mode", "coarse", "--json", "0.5", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("exit status: 7"), "{}", stderr(&output));
    let intervals = json_lines(&output);
    let sum = |key: &str| -> u64 {
        let tasks = intervals.iter().flat_map(|interval| interval["tasks"].as_array().expect("tasks"));
        tasks.filter_map(|task| task[key].as_u64()).sum()
    };
    // The load is four loops that run for two seconds. cgscope misses their last interval, and other programs can use the CPUs.
    let ran = sum("on_cpu_ns");
    assert!(ran > 200_000_000, "{ran}");
    let lost: u64 =
        intervals.iter().filter_map(|interval| interval["losses"]["task_end_unseen"].as_u64()).sum();
    assert!(lost >= 4, "loss counter of tasks whose end was missed: {lost}");
}

#[test]
fn the_last_figures_of_a_command_are_read_before_it_is_reaped() {
    // The command ends within the first interval, so cgscope reads its figures only once: when the command ends.
    let workload = env!("CARGO_BIN_EXE_workload");
    let output = run(&["hist", "--mode", "coarse", "--json", "--", workload, "fork", "0"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let interval = json_lines(&output).remove(0);
    let tasks = interval["tasks"].as_array().expect("tasks");
    assert_eq!(tasks.len(), 1, "{tasks:?}");
    assert!(tasks[0]["on_cpu_ns"].as_u64().expect("a sum") > 0, "{tasks:?}");
    assert_eq!(interval["losses"], serde_json::json!({}));
}

#[test]
fn a_coarse_measurement_ends_with_status_1_if_the_target_exits() {
    let (mut load, _out) = Load::workload(&["burn", "2", "60"], None);
    let pid = load.pid().to_string();
    let output = thread::scope(|scope| {
        let run = scope.spawn(|| run(&["hist", "--mode", "coarse", "-p", &pid]));
        thread::sleep(Duration::from_millis(2_500));
        load.kill();
        run.join().expect("a result")
    });
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the target has exited"), "{}", stderr(&output));
}

fn forks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let line = stat.lines().find_map(|line| line.strip_prefix("processes ")).expect("processes");
    line.parse().expect("a number")
}

#[test]
fn tasks_that_start_and_exit_between_two_readings_are_counted_as_not_seen() {
    let mut collector = follow_coarsely(&[]);
    let first = collector.sample().expect("a sample");
    let (load, _out) = Load::workload(&["fork", "500"], None);
    load.wait();
    let before = forks();
    let last = collector.sample().expect("a sample");
    // The walk of `/proc` can find tasks that start during the walk. The forks of these tasks count only in the next reading.
    let early = forks() - before;
    let losses = Interval::between(&first, &last).losses;
    let unseen = losses.get(cgscope_ledger::Loss::TaskUnseen);
    assert!((501..5_000).contains(&(unseen + early)), "500 children and their parent: {unseen} and {early}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: asserts CPU time for each task of the host"]
    fn five_thousand_sleeping_threads_cost_little_in_the_coarse_mode() {
        let (_load, _out) = Load::workload(&["sleep", "5000", "120"], None);
        thread::sleep(Duration::from_secs(1));
        let intervals = json_lines(&run(&["hist", "--mode", "coarse", "--json", "1", "7"]));
        assert!(intervals.iter().all(|interval| all_tasks(interval) > 5_000));
        let rss = intervals.last().expect("seven")["self"]["rss_bytes"].as_u64().expect("memory");
        assert!(rss <= 30 << 20, "{rss} bytes are resident");
        let percent = own_cpu_percent(&intervals);
        println!(
            "{percent:.2} % of a core, {:.1} us per thread and reading, JSON included",
            percent * 1e4 / 5_080.0
        );
        assert!(percent <= 8.0, "{percent:.2} % of a core");
    }
}
