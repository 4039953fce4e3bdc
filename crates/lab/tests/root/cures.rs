//! Published situations as loads. The first finding names who waits and because of what, and what it advises cures the load.

mod long;

use std::{fs, process::Command, thread, time::Duration};

use serde_json::Value;

use crate::{
    bench::{assert_measured, json_lines, run},
    load::{Cgroup, Load},
};

/// Waiting falls at least to this share, percent.
const CURED_PERCENT: u64 = 20;

/// A measurement of the whole host.
struct Measured(Value);

impl Measured {
    fn of(seconds: &str) -> Self {
        Self::by(&["hist", "--json", seconds, "1"])
    }

    fn with_chains(seconds: &str) -> Self {
        Self::by(&["hist", "--chains", "--json", seconds, "1"])
    }

    fn by(arguments: &[&str]) -> Self {
        let output = run(arguments);
        assert_measured(&output);
        Self(json_lines(&output).remove(0))
    }

    /// Asserts that the first finding of the host is about for whom this cgroup sleeps.
    fn assert_first(&self, cgroup: &str, says: &[&str], advice: &str) {
        let first = Finding(&self.0["findings"][0]);
        assert_eq!(
            (&first.0["rule"], &first.0["cgroup"]),
            (&"waits_for".into(), &cgroup.into()),
            "{}",
            self.0["findings"]
        );
        first.assert_says(says, &[advice], &[]);
    }

    /// Returns the findings about a cgroup, in the order of the screen.
    fn about(&self, cgroup: &str) -> Vec<Finding<'_>> {
        let all = self.0["findings"].as_array().expect("findings").iter();
        all.filter(|finding| finding["cgroup"] == cgroup).map(Finding).collect()
    }

    /// Returns the first finding about the cgroup, after checking its rule.
    fn first(&self, cgroup: &str, rule: &str) -> Finding<'_> {
        let about = self.about(cgroup);
        let first = about.first().unwrap_or_else(|| panic!("nothing about {cgroup}: {}", self.0["findings"]));
        assert_eq!(first.0["rule"], rule, "{}", self.0["findings"]);
        Finding(first.0)
    }

    /// Returns the time that tasks of the cgroup waited, of each second, ms.
    fn waited_ms(&self, cgroup: &str, cause: &str) -> u64 {
        let groups = self.0["cgroups"].as_array().expect("cgroups").iter();
        let waits = groups.filter(|group| group["path"] == cgroup).map(|group| &group["wait"]);
        let ns: u64 = waits
            .filter_map(|wait| match cause {
                "" => wait["total_ns"].as_u64(),
                cause => wait["by_cause"][format!("{cause}_ns")].as_u64(),
            })
            .sum();
        ns * 1_000 / self.0["duration_ns"].as_u64().expect("a duration")
    }

    /// Asserts that the cgroup waits for at most a fifth as long as before.
    fn assert_cured(&self, cgroup: &str, before: &Self) {
        let [now, then] = [self, before].map(|measured| measured.waited_ms(cgroup, ""));
        assert!(
            now * 100 <= then * CURED_PERCENT,
            "{now} ms of each second, before {then}: {}",
            self.0["findings"]
        );
    }
}

struct Finding<'v>(&'v Value);

impl Finding<'_> {
    fn text(&self, name: &str) -> &str {
        self.0[name].as_str().expect("a text")
    }

    fn assert_says(&self, says: &[&str], advice: &[&str], never: &[&str]) {
        for (name, parts) in [("says", says), ("advice", advice)] {
            for part in parts {
                assert!(self.text(name).contains(part), "{part:?} is not in: {}", self.text(name));
            }
        }
        for part in never {
            let is_said = self.text("says").contains(part) || self.text("advice").contains(part);
            assert!(!is_said, "{part:?} is in: {} - {}", self.text("says"), self.text("advice"));
        }
    }

    /// Runs the first command in parentheses of the advice that starts with these words.
    fn run(&self, start: &str) {
        let advice = self.text("advice");
        let from =
            advice.find(&format!("({start}")).unwrap_or_else(|| panic!("no {start:?} in: {advice}")) + 1;
        let command = &advice[from..from + advice[from..].find(')').expect("its end")];
        let output = Command::new("sh").args(["-c", command]).output().expect("sh");
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn nice_between_sessions() {
    // It is removed after the load that moves there.
    let cgroup = Cgroup::new("batch");
    cgroup.slight();
    let (_web, batch) = (
        Load::session(0, &["processes", "2", "web", "60"]),
        Load::session(19, &["processes", "4", "batch", "60"]),
    );
    let before = Measured::of("5");
    let found = before.first("/", "sessions");
    assert_eq!(before.0["findings"][0]["rule"], "sessions", "{}", before.0["findings"]);
    let pid = batch.pid();
    found.assert_says(
        &["2 processes (web", "4 processes (batch", "of another session", "0 and 19"],
        &[
            "all processes of the session of batch to a cgroup with a low",
            "/autogroup",
            "renice has no effect",
        ],
        &["start at most", "start fewer"],
    );
    let lost_ms = found.0["lost_ns"].as_u64().expect("a time") / 5_000_000;
    assert!((850..1_150).contains(&lost_ms), "{lost_ms} ms of each second");
    let waited_ms = |measured: &Measured| {
        let tasks = measured.0["tasks"].as_array().expect("tasks").iter();
        let web = tasks.filter(|task| task["comm"] == "web");
        web.map(|task| task["wait"]["total_ns"].as_u64().expect("a time")).sum::<u64>() / 5_000_000
    };
    assert!(waited_ms(&before).abs_diff(lost_ms) < 50, "{} {lost_ms}", waited_ms(&before));
    // What is advised in the second place.
    found.run("echo 19");
    let left_ms = waited_ms(&Measured::of("5"));
    assert!(left_ms * 5 <= lost_ms, "{left_ms} ms after echo 19, before {lost_ms}: {pid}");
    fs::write(format!("/proc/{pid}/autogroup"), "0").expect("its weight");
    for pid in batch.pids() {
        fs::write(cgroup.path.join("cgroup.procs"), pid.to_string()).expect("its process");
    }
    let left_ms = waited_ms(&Measured::of("5"));
    assert!(left_ms * 5 <= lost_ms, "{left_ms} ms beside the cgroup, before {lost_ms}");
}

#[test]
#[ignore = "one CPU: asserts the share of throttled time"]
fn bursts_that_no_burst_allowance_covers() {
    let cgroup = Cgroup::new("exporter");
    cgroup.favour();
    cgroup.limit(10_000, 100_000);
    let _load = Load::workload(&["requests", "regular", "30000", "1000000", "60"], Some(&cgroup));
    // A burst takes the first 0.3 of each second. The measurement cuts none, or the average is too short.
    thread::sleep(Duration::from_millis(500));
    let before = Measured::of("8");
    let found = before.first(&cgroup.name, "throttled_below_limit");
    found.assert_says(
        &["it used 0.03 of 0.1 CPUs on average"],
        &["raise its limit to 0.3", "make the period longer"],
        &["allow a burst", "cpu.max.burst"],
    );
    cgroup.limit(32_000, 100_000);
    Measured::of("6").assert_cured(&cgroup.name, &before);
    cgroup.limit(32_000, 320_000);
    Measured::of("6").assert_cured(&cgroup.name, &before);
}

#[test]
#[ignore = "all CPUs: one of them must be idle"]
fn a_mask_that_processes_inherited() {
    let cgroup = Cgroup::new("train");
    let workload = env!("CARGO_BIN_EXE_workload");
    let load =
        Load::start("taskset", &["-c", "0", workload, "processes", "4", "worker", "60"], Some(&cgroup));
    let before = Measured::of("5");
    let found = before.first(&cgroup.name, "idle_cpus");
    let pids: Vec<String> = load.pids()[1..].iter().map(u32::to_string).collect();
    found.assert_says(
        &["4 busy threads may only run on CPU 0 (affinity mask)"],
        &[
            "all 4 processes",
            &format!("for pid in {}; do", pids.join(" ")),
            &format!("taskset -cp {}", load.pid()),
        ],
        &["start at most", "isolated"],
    );
    assert!((2_800..3_100).contains(&before.waited_ms(&cgroup.name, "own_cgroup")));
    found.run("for pid");
    // Four loops share two CPUs.
    let left_ms = Measured::of("5").waited_ms(&cgroup.name, "own_cgroup");
    assert!(left_ms < 2_150, "{left_ms}");
}

#[test]
#[ignore = "all CPUs: asserts the share of throttled time"]
fn threads_that_spin_for_each_other() {
    let cgroup = Cgroup::new("pool");
    cgroup.favour();
    cgroup.limit(150_000, 100_000);
    let mut load = Load::workload(&["pool", "6", "1000", "60"], Some(&cgroup));
    let before = Measured::of("5");
    let found = before.first(&cgroup.name, "threads_over_quota");
    found.assert_says(
        &["6 threads of 1 process share a quota of 1.5 CPUs", "for each other"],
        &["start at most 2 threads", "if they spin meanwhile, their CPU time is not work"],
        &["or raise the limit"],
    );
    assert!((2_500..3_200).contains(&before.waited_ms(&cgroup.name, "own_cgroup")));
    load.0.kill();
    let _load = Load::workload(&["pool", "2", "1000", "60"], Some(&cgroup));
    Measured::of("5").assert_cured(&cgroup.name, &before);
}
