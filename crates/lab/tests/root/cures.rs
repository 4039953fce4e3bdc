//! Published situations as loads. The first finding names who waits and because of what, and what it advises cures the load.

use std::{fs, process::Command};

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
        let output = run(&["hist", "--json", seconds, "1"]);
        assert_measured(&output);
        Self(json_lines(&output).remove(0))
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
        &["move batch to a cgroup with a low cpu.weight", "/autogroup", "renice has no effect"],
        &["start at most", "start fewer"],
    );
    let lost_ms = found.0["lost_ns"].as_u64().expect("a time") / 5_000_000;
    assert!((850..1_150).contains(&lost_ms), "{lost_ms} ms of each second");
    // What is advised in the second place.
    found.run("echo 19");
    let after = Measured::of("5");
    let again = after.about("/").into_iter().find(|finding| finding.0["rule"] == "sessions");
    let left_ms = again.map_or(0, |finding| finding.0["lost_ns"].as_u64().expect("a time") / 5_000_000);
    assert!(left_ms * 5 <= lost_ms, "{left_ms} ms after echo 19, before {lost_ms}: {pid}");
}

#[test]
#[ignore = "one CPU: asserts the share of throttled time"]
fn bursts_that_no_burst_allowance_covers() {
    let cgroup = Cgroup::new("exporter");
    cgroup.favour();
    cgroup.limit(10_000, 100_000);
    let _load = Load::workload(&["requests", "regular", "30000", "1000000", "60"], Some(&cgroup));
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
#[ignore = "all CPUs: asserts who waits for whom"]
fn jobs_that_start_at_once() {
    let (cron, service) = (Cgroup::new("cron"), Cgroup::new("svc"));
    let start = |args: &[&str]| Load::workload(args, Some(&cron));
    let _service = Load::workload(&["requests", "closed", "2000", "18000", "120"], Some(&service));
    let mut jobs = start(&["jobs", "10", "50000", "4000", "120"]);
    let before = Measured::of("12");
    let found = before.first(&cron.name, "job_bursts");
    found.assert_says(
        &["waited", "for each other", "they start at once"],
        &["start its jobs at different times", "run fewer at once"],
        &["busy threads", "start at most"],
    );
    assert!(before.about(&cron.name).len() == 1, "{}", before.0["findings"]);
    let waited_ms = before.waited_ms(&cron.name, "own_cgroup");
    assert!((350..650).contains(&waited_ms), "{waited_ms}");
    jobs.0.kill();
    let _jobs = start(&["jobs", "1", "50000", "400", "120"]);
    Measured::of("12").assert_cured(&cron.name, &before);
}

#[test]
#[ignore = "all CPUs: one of them must be idle"]
fn two_limits_that_bind_together() {
    let (cgroup, cpuset) = (Cgroup::new("pinned"), Cgroup::of_cpus("pinned", "1"));
    cgroup.limit(100_000, 100_000);
    let start = |threads: &str| {
        let load = Load::workload(&["burn", threads, "60"], Some(&cgroup));
        fs::write(cpuset.path.join("cgroup.procs"), load.0.pid().to_string()).expect("its cpuset");
        load
    };
    let mut load = start("2");
    let before = Measured::of("5");
    let found = before.first(&cgroup.name, "idle_cpus");
    found.assert_says(
        &["cpuset.cpus 1 of"],
        &["start at most 1 thread, or change two limits", "cpuset.cpus 0-1", "raise the quota", "1 CPU"],
        &[],
    );
    // One limit alone gains nothing.
    cgroup.limit(200_000, 100_000);
    assert!(Measured::of("4").waited_ms(&cgroup.name, "") > 900);
    fs::write(cpuset.path.join("cpuset.cpus"), "0-1").expect("its CPUs");
    Measured::of("5").assert_cured(&cgroup.name, &before);
    cgroup.limit(100_000, 100_000);
    assert!(Measured::of("4").waited_ms(&cgroup.name, "") > 800);
    load.0.kill();
    fs::write(cpuset.path.join("cpuset.cpus"), "1").expect("its CPUs");
    let _load = start("1");
    Measured::of("5").assert_cured(&cgroup.name, &before);
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

#[test]
#[ignore = "all CPUs: one of them must be idle"]
fn a_thread_that_polls_beside_its_process() {
    let cgroup = Cgroup::new("ring");
    let load = Load::workload(&["ring", "0", "60"], Some(&cgroup));
    let before = Measured::of("5");
    let found = before.first(&cgroup.name, "idle_cpus");
    let poller = format!("iou-sqp-{}", load.0.pid());
    found.assert_says(
        &[&poller, "polls an io_uring on CPU 0"],
        &["sq_thread_cpu", "sq_thread_idle"],
        &["kernel thread"],
    );
    assert!((450..1_100).contains(&before.waited_ms(&cgroup.name, "own_cgroup")));
    found.run("taskset -acp");
    Measured::of("5").assert_cured(&cgroup.name, &before);
}

#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn a_real_time_policy_that_the_kernel_refused() {
    let (audio, batch) = (Cgroup::new("audio"), Cgroup::new("batch"));
    if !audio.real_time(0) {
        // The kernel has no such limit.
        return;
    }
    audio.weigh_percent(20);
    let _batch = Load::workload(&["burn", "4", "120"], Some(&batch));
    let start = || Load::workload(&["fifo", "2000", "10000", "120"], Some(&audio));
    let mut load = start();
    let before = Measured::of("5");
    before.first(&audio.name, "noisy_neighbour").assert_says(
        &[&batch.name],
        &["higher cpu.weight", "cpu.rt_runtime_us is 0"],
        &["real-time tasks"],
    );
    audio.favour();
    Measured::of("5").assert_cured(&audio.name, &before);
    audio.weigh_percent(20);
    load.0.kill();
    audio.real_time(500_000);
    let _load = start();
    Measured::of("5").assert_cured(&audio.name, &before);
    drop(_load);
    audio.real_time(0);
}

#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn threads_that_feed_a_gpu_beside_a_batch_job() {
    let (serve, transcode) = (Cgroup::new("serve"), Cgroup::new("transcode"));
    serve.weigh_percent(20);
    let feed = || Load::workload(&["requests", "closed", "2000", "1000", "60"], Some(&serve));
    let (_first, _second) = (feed(), feed());
    let _batch = Load::workload(&["burn", "2", "60"], Some(&transcode));
    let before = Measured::of("5");
    before.first(&serve.name, "noisy_neighbour").assert_says(
        &[&format!("behind {}", transcode.name), "within its weight"],
        &["higher cpu.weight", "CPU request"],
        &["throttled", "raise the limit", "limit "],
    );
    assert_eq!(before.waited_ms(&serve.name, "throttled"), 0);
    serve.favour();
    Measured::of("5").assert_cured(&serve.name, &before);
}

/// Asserts the first finding about a cgroup whose threads exceed its quota.
fn assert_too_many(measured: &Measured, cgroup: &Cgroup, says: &str, advice: &str) {
    measured.first(&cgroup.name, "threads_over_quota").assert_says(&[says], &[advice], &[]);
}

/// A Go runtime with a thread for each CPU of the host (goharbor/harbor#19643).
#[test]
#[ignore = "all CPUs: asserts the share of throttled time"]
fn a_runtime_that_counts_the_cpus_of_the_host() {
    let cgroup = Cgroup::new("runtime");
    cgroup.favour();
    cgroup.limit(50_000, 100_000);
    let mut load = Load::workload(&["burn", "2", "60"], Some(&cgroup));
    let before = Measured::of("5");
    assert_too_many(
        &before,
        &cgroup,
        "2 threads of 1 process share a quota of 0.5 CPUs",
        "start at most 1 thread",
    );
    load.0.kill();
    cgroup.limit(200_000, 100_000);
    let _load = Load::workload(&["burn", "2", "60"], Some(&cgroup));
    Measured::of("5").assert_cured(&cgroup.name, &before);
}

/// A build with as many jobs as the host has CPUs, in a container with fewer (moby/moby#42356).
#[test]
#[ignore = "all CPUs: asserts the share of throttled time"]
fn a_build_with_more_jobs_than_its_quota_has_cpus() {
    let cgroup = Cgroup::new("build");
    cgroup.favour();
    cgroup.limit(100_000, 100_000);
    let start = |jobs: &str| Load::workload(&["processes", jobs, "cc1", "60"], Some(&cgroup));
    let mut load = start("8");
    let before = Measured::of("5");
    assert_too_many(
        &before,
        &cgroup,
        "8 threads of 8 processes share a quota of 1 CPU",
        "start at most 1 thread",
    );
    load.0.kill();
    let _load = start("1");
    Measured::of("5").assert_cured(&cgroup.name, &before);
}

/// A numeric library that starts more threads than there are CPUs (scikit-learn/scikit-learn#15824).
#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn a_library_that_starts_too_many_threads() {
    let cgroup = Cgroup::new("blas");
    let mut load = Load::workload(&["burn", "8", "60"], Some(&cgroup));
    let before = Measured::of("5");
    before.first(&cgroup.name, "own_contention").assert_says(
        &["for each other", "8 threads were busy"],
        &["start at most 2 threads"],
        &["throttled", "cpu.weight"],
    );
    assert_eq!(before.0["findings"][0]["rule"], "own_contention", "{}", before.0["findings"]);
    load.0.kill();
    let _load = Load::workload(&["burn", "2", "60"], Some(&cgroup));
    Measured::of("5").assert_cured(&cgroup.name, &before);
}

/// Workers of two containers that are pinned to the same CPU (apache/apisix#8042).
#[test]
#[ignore = "all CPUs: one of them must be idle"]
fn workers_of_two_containers_on_one_cpu() {
    let (one, other) = (Cgroup::new("gateway-1"), Cgroup::new("gateway-2"));
    let (_one, _other) = (Load::pinned_loop(0, Some(&one)), Load::pinned_loop(0, Some(&other)));
    let before = Measured::of("5");
    let found = before.first(&one.name, "idle_cpus");
    found.assert_says(&["may only run on CPU 0 (affinity mask)"], &["taskset -acp 0-1"], &["cpu.weight"]);
    found.run("taskset -acp");
    Measured::of("5").assert_cured(&one.name, &before);
}

/// A pod without a CPU request on a busy node (kubeshop/testkube#8357).
#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn a_pod_without_a_cpu_request() {
    let (pod, neighbour) = (Cgroup::new("besteffort"), Cgroup::new("burstable"));
    pod.slight();
    let _neighbour = Load::workload(&["burn", "4", "60"], Some(&neighbour));
    let _pod = Load::workload(&["requests", "closed", "5000", "20000", "60"], Some(&pod));
    let before = Measured::of("8");
    before.first(&pod.name, "noisy_neighbour").assert_says(
        &[&format!("behind {}", neighbour.name), "within its weight"],
        &["higher cpu.weight", "CPU request"],
        &["throttled"],
    );
    pod.favour();
    Measured::of("5").assert_cured(&pod.name, &before);
}

/// The limit is that of the slice, not that of the container (google/cadvisor#3682).
#[test]
#[ignore = "all CPUs: asserts the share of throttled time"]
fn a_limit_of_the_slice_above() {
    let slice = Cgroup::new("slice");
    slice.favour();
    slice.limit(40_000, 100_000);
    let container = slice.child("container");
    let _load = Load::busy_loop(Some(&container));
    let before = Measured::of("5");
    before.first(&slice.name, "throttled").assert_says(&["0.4 CPUs"], &["raise its limit"], &[]);
    assert!(before.about(&container.name).is_empty(), "{}", before.0["findings"]);
    slice.limit(100_000, 100_000);
    Measured::of("5").assert_cured(&container.name, &before);
}

/// A real-time thread that never sleeps (OE4T/linux-tegra-4.9#37).
#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn a_real_time_loop_on_the_cpu_of_a_service() {
    let (realtime, service) = (Cgroup::new("camera"), Cgroup::new("service"));
    let has_limit = realtime.real_time(800_000);
    let looping = Load::pinned_loop(1, Some(&realtime));
    let _service = Load::pinned_loop(1, Some(&service));
    let chrt =
        Command::new("chrt").args(["-f", "-p", "50", &looping.pid().to_string()]).status().expect("chrt");
    assert!(chrt.success());
    let before = Measured::of("5");
    let found = before.first(&service.name, "noisy_neighbour");
    found.assert_says(
        &[&format!("behind {}", realtime.name)],
        &["SCHED_FIFO", "ordinary policy"],
        &["higher cpu.weight"],
    );
    found.run("chrt -o");
    service.favour();
    Measured::of("5").assert_cured(&service.name, &before);
    drop(looping);
    if has_limit {
        realtime.real_time(0);
    }
}

/// Compilers beside the programs of the desktop (omacom/omarchy#7651).
#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn a_build_beside_a_desktop() {
    let (session, apps) = (Cgroup::new("session"), Cgroup::new("apps"));
    let _build = Load::workload(&["processes", "8", "rustc", "60"], Some(&apps));
    let _desktop = Load::workload(&["requests", "closed", "4000", "4000", "60"], Some(&session));
    let before = Measured::of("5");
    before.first(&session.name, "noisy_neighbour").assert_says(
        &[&format!("behind {}", apps.name)],
        &["cpu.weight"],
        &["renice"],
    );
    session.favour();
    Measured::of("5").assert_cured(&session.name, &before);
}

/// Bursts that a burst allowance covers (kubernetes/kubernetes#104516).
#[test]
#[ignore = "one CPU: asserts the share of throttled time"]
fn bursts_that_a_burst_allowance_covers() {
    let cgroup = Cgroup::new("api");
    cgroup.favour();
    cgroup.limit(20_000, 100_000);
    let _load = Load::workload(&["requests", "regular", "30000", "500000", "60"], Some(&cgroup));
    let before = Measured::of("8");
    before.first(&cgroup.name, "throttled_below_limit").assert_says(
        &["works in bursts"],
        &["allow a burst of up to its quota, 20ms"],
        &[],
    );
    if cgroup.save(20_000) {
        Measured::of("6").assert_cured(&cgroup.name, &before);
    }
    cgroup.limit(60_000, 300_000);
    Measured::of("6").assert_cured(&cgroup.name, &before);
}

/// A service that a signal stopped (thijsvanloef/palworld-server-docker#273).
#[test]
fn a_process_that_a_signal_stopped() {
    let load = Load::busy_loop(None);
    load.signal(libc::SIGSTOP);
    let output = run(&["stat", "-p", &load.pid().to_string(), "2", "1"]);
    let text = crate::bench::stdout(&output);
    assert!(text.contains("kill -CONT"), "{text}");
    load.signal(libc::SIGCONT);
    let text = crate::bench::stdout(&run(&["stat", "-p", &load.pid().to_string(), "2", "1"]));
    assert!(!text.contains("kill -CONT"), "{text}");
}
