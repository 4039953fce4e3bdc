//! Live output and replay use the same code, so figures that are printed during a recording equal the figures from its file.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use cgscope_record::Reason;
use serde_json::Value;

use crate::{
    bench::{assert_measured, json_lines, run, stderr},
    files::Dir,
    load::{Cgroup, Load},
    recording::{read, reason},
    serve::Daemon,
};

const INTERVALS: usize = 12;

/// Several loads: loops and short-lived tasks under a quota that runs out, and sleepers and loops without a quota.
struct Busy {
    // This field is declared first, so that drop ends the tasks before it removes their cgroups.
    loads: Vec<Load>,
    inner: Cgroup,
    limited: Cgroup,
}

/// Shell script that starts one child after the other. Each child computes for a moment and exits, so it has figures of its own.
const COME_AND_GO: &str = "while :; do sh -c 'i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done'; done";

impl Busy {
    /// Starts the loads in a cgroup with this name. Each test needs its own name, because tests run at the same time.
    fn new(name: &str) -> Self {
        let limited = Cgroup::new(name);
        // The quota is small enough to run out even if other programs leave little CPU time. The quota is three of the kernel's
        // time slices of 3 ms. With a quota of one slice, the two other loads in the cgroup would leave hardly any CPU time to
        // the children of the shell.
        limited.limit(9_000, 100_000);
        let inner = limited.child("inner");
        let loads = vec![
            Load::workload(&["sleep", "8", "120"], None).0,
            Load::workload(&["mix", "2", "120"], Some(&inner)).0,
            Load::start("sh", &["-c", COME_AND_GO], Some(&limited)),
            Load::start("sh", &["-c", COME_AND_GO], None),
            Load::busy_loop(Some(&inner)),
            Load::busy_loop(None),
        ];
        Self { loads, inner, limited }
    }

    fn pids(&self) -> String {
        self.loads.iter().map(|load| load.pid().to_string()).collect::<Vec<_>>().join(",")
    }
}

fn first_difference(live: &Value, replayed: &Value) -> Option<String> {
    match (live, replayed) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<_> = a.keys().chain(b.keys()).collect();
            let at = |object: &serde_json::Map<String, Value>, key| object.get(key).cloned();
            keys.into_iter().find_map(|key| match (at(a, key), at(b, key)) {
                (Some(a), Some(b)) => first_difference(&a, &b).map(|rest| format!(".{key}{rest}")),
                (a, b) => Some(format!(".{key}: {a:?}, {b:?}")),
            })
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            let both = (0..).zip(a.iter().zip(b));
            both.into_iter().find_map(|(n, (a, b))| first_difference(a, b).map(|rest| format!("[{n}]{rest}")))
        }
        _ => (live != replayed).then(|| format!(": {live}, {replayed}")),
    }
}

/// Runs `top -b --json --record`, then `report --json`. Checks that both commands print the same objects, and returns these
/// objects.
fn watch_and_report(select: &[&str]) -> Vec<Value> {
    let dir = Dir::new("live");
    let (file, count) = (dir.file("a.rec"), INTERVALS.to_string());
    let top = ["top", "-b", "--json", "-n", &count, "-d", "0.3", "--record", &file];
    let live = run(&[&top[..], select].concat());
    assert_measured(&live);
    let report = run(&["report", "--json", &file]);
    assert_eq!(report.status.code(), live.status.code(), "{select:?}: {}", stderr(&report));
    let (live, replayed) = (json_lines(&live), json_lines(&report));
    assert_eq!((live.len(), replayed.len()), (INTERVALS, INTERVALS), "{select:?}");
    for (n, (live, replayed)) in live.iter().zip(&replayed).enumerate() {
        if live != replayed {
            let difference = first_difference(live, replayed);
            panic!("{select:?}: interval {n} differs at {}", difference.unwrap_or_default());
        }
    }
    assert_eq!(reason(&read(Path::new(&file)).1), Some(&Reason::Finished));
    live
}

fn tids(interval: &Value) -> BTreeSet<u64> {
    let tasks = interval["tasks"].as_array().expect("tasks");
    tasks.iter().map(|task| task["tid"].as_u64().expect("an id")).collect()
}

fn throttled_ns(interval: &Value) -> u64 {
    interval["total"]["by_cause"]["throttled_ns"].as_u64().expect("a sum")
}

/// Checks that tasks started and exited during the recording, and that tasks were throttled.
fn assert_eventful(select: &[&str], intervals: &[Value]) {
    let all: Vec<_> = intervals.iter().map(tids).collect();
    let came_and_went = all.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(came_and_went >= 3, "{select:?}: tasks changed in {came_and_went} intervals");
    let throttled: u64 = intervals.iter().map(throttled_ns).sum();
    assert!(throttled > 500_000_000, "{select:?}: throttled for {throttled} ns");
    let fields = ["tasks", "cgroups", "self", "total"];
    assert!(fields.iter().all(|field| !intervals[0][field].is_null()), "{}", intervals[0]);
}

#[test]
fn live_figures_of_the_whole_host_equal_those_of_the_recording() {
    let _busy = Busy::new("live-host");
    let intervals = watch_and_report(&[]);
    assert_eventful(&[], &intervals);
    let culprits = |interval: &Value| interval["cgroups"].to_string().contains("\"culprits\":[{");
    assert!(intervals.iter().any(culprits), "a task ran during a wait of another");
}

struct Mover {
    load: Load,
    places: [Cgroup; 2],
}

impl Mover {
    fn new() -> Self {
        let places = ["live-moves-limited", "live-moves-free"].map(Cgroup::new);
        places[0].limit(20_000, 100_000);
        Self { load: Load::loop_on_a_cpu(Some(&places[1])), places }
    }

    fn beside<T>(&self, watch: impl FnOnce() -> T) -> T {
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                for place in self.places.iter().cycle() {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    fs::write(place.path.join("cgroup.procs"), self.load.pid().to_string())
                        .expect("the kernel moves it");
                    thread::sleep(Duration::from_millis(20));
                }
            });
            let watched = watch();
            is_over.store(true, Ordering::Relaxed);
            watched
        })
    }

    /// Asserts that in each interval, the times by quota sum to the throttled time. Also asserts that over all intervals, the
    /// waits in the row of the task equal the waits of its cgroups.
    fn assert_complete(&self, intervals: &[Value]) {
        let ns = |value: &Value| value.as_u64().expect("ns");
        let (mut of_cgroups, mut of_rows) = (0, 0);
        for interval in intervals {
            for place in &self.places {
                let groups = interval["cgroups"].as_array().expect("cgroups");
                let group = groups.iter().find(|group| group["path"] == place.name.as_str());
                let Some(group) = group else { continue };
                let by: u64 =
                    group["throttled_by"].as_array().expect("quotas").iter().map(|by| ns(&by["ns"])).sum();
                assert_eq!(by, ns(&group["wait"]["by_cause"]["throttled_ns"]), "{group}");
                of_cgroups += ns(&group["wait"]["total_ns"]);
            }
            let tasks = interval["tasks"].as_array().expect("tasks").iter();
            let rows = tasks.filter(|task| task["tid"] == self.load.pid());
            of_rows += rows.map(|task| ns(&task["wait"]["total_ns"])).sum::<u64>();
        }
        println!("{of_cgroups} ns in its cgroups, {of_rows} ns in its rows");
        assert!(of_cgroups > 1_000_000_000, "{of_cgroups} ns");
        // If the loop moves to another cgroup while the collector reads the tasks, the row of the task includes the last wait
        // only in the next interval.
        assert!(
            of_cgroups.abs_diff(of_rows) < of_cgroups / 20,
            "{of_cgroups} ns in its cgroups, {of_rows} ns in its rows"
        );
    }
}

#[test]
#[ignore = "one CPU: asserts how long the loop waits for its quota"]
fn live_figures_of_a_task_that_moves_equal_those_of_the_recording_and_are_complete_through_the_daemon() {
    let mover = Mover::new();
    mover.assert_complete(&mover.beside(|| watch_and_report(&[])));
    let daemon = Daemon::start();
    let top = ["top", "-b", "--json", "-n", "8", "-d", "0.5"];
    mover.assert_complete(&json_lines(&mover.beside(|| daemon.as_user(0, &[0], &top))));
}

#[test]
fn live_figures_of_processes_equal_those_of_the_recording() {
    let busy = Busy::new("live-processes");
    let select = ["-p", &busy.pids()];
    assert_eventful(&select, &watch_and_report(&select));
    let select = ["-p", &busy.pids(), "--memory"];
    let intervals = watch_and_report(&select);
    assert!(intervals.iter().any(|interval| !interval["memory"].is_null()), "{}", intervals[0]);
}

#[test]
fn live_figures_of_a_cgroup_equal_those_of_the_recording() {
    let busy = Busy::new("live-cgroup");
    let select = ["--cgroup", &busy.limited.name];
    assert_eventful(&select, &watch_and_report(&select));
    watch_and_report(&["--cgroup", &busy.inner.name]);
}

#[test]
fn live_figures_of_a_unit_equal_those_of_the_recording() {
    let busy = Busy::new("live-unit.service");
    let select = ["--unit", &busy.limited.name[1..]];
    let intervals = watch_and_report(&select);
    assert_eventful(&select, &intervals);
    let tasks = intervals.iter().flat_map(|interval| interval["tasks"].as_array().expect("tasks"));
    let is_below =
        |task: &Value| task["cgroup"].as_str().is_some_and(|path| path.starts_with(&busy.limited.name));
    assert!(tasks.clone().all(is_below), "{select:?}");
    assert!(tasks.clone().any(|task| task["cgroup"] == busy.inner.name.as_str()), "{select:?}");
    watch_and_report(&["--mode", "coarse", "--unit", &busy.limited.name[1..]]);
}

mod long {
    use super::*;

    #[test]
    fn live_coarse_figures_equal_those_of_the_recording() {
        let busy = Busy::new("live-coarse");
        let select = ["--mode", "coarse"];
        assert_eventful(&select, &watch_and_report(&select));
        watch_and_report(&["--mode", "coarse", "--cgroup", &busy.limited.name]);
        watch_and_report(&["--mode", "coarse", "-p", &busy.pids()]);
    }

    #[test]
    fn live_figures_of_a_changing_selection_equal_those_of_the_recording() {
        let _busy = Busy::new("live-selection");
        for select in [["--comm", "^sh$"], ["--cpu", "0"], ["--node", "0"]] {
            let intervals = watch_and_report(&select);
            assert!(intervals.iter().any(|interval| !tids(interval).is_empty()), "{select:?}");
        }
    }
}
