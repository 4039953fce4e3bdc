//! Published situations that are not in the short run.

use std::{fs, process::Command, thread, time::Duration};

use super::{Finding, Measured};
use crate::{
    bench::{run, stdout},
    files::Dir,
    load::{Cgroup, Load},
};

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
    let start = |threads: &str| Load::workload(&["burn", threads, "60"], Some(&cgroup));
    let mut load = start("8");
    let before = Measured::of("5");
    assert_too_many(
        &before,
        &cgroup,
        "8 threads of 1 process share a quota of 0.5 CPUs",
        "start at most 1 thread",
    );
    load.0.kill();
    let _load = start("1");
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
    // No CPU is idle, so another mask does not help.
    let _other = Load::pinned_loop(0, None);
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
    session.weigh_percent(40);
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

/// More programs than CPUs, in one session.
#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn more_tasks_than_the_host_has_cpus() {
    let start = |tasks: &str| Load::session(0, &["processes", tasks, "loop", "60"]);
    let load = start("8");
    let before = Measured::of("5");
    let found = &before.0["findings"][0];
    assert_eq!(found["rule"], "cpu_oversubscription", "{}", before.0["findings"]);
    assert!(found["advice"].as_str().is_some_and(|advice| advice.contains("run fewer tasks at once")));
    drop(load);
    let _load = start("2");
    Measured::of("5").assert_cured("/", &before);
}

/// A thread that gets no CPU time for seconds, because others have a much higher priority.
#[test]
#[ignore = "all CPUs: one of them must be idle"]
fn a_thread_of_low_priority_that_gets_no_cpu_time() {
    let cgroup = Cgroup::new("starving");
    let pinned = |nice: &str| {
        let program = ["-n", nice, "taskset", "-c", "1", "sh", "-c", "while :; do :; done"];
        Load::start("nice", &program, Some(&cgroup))
    };
    let _loops = [pinned("-20"), pinned("-20"), pinned("-20")];
    let starved = pinned("19");
    let before = Measured::of("6");
    let is_starved = |found: &Finding<'_>| found.0["rule"] == "starved";
    let about = before.about(&cgroup.name);
    let found = about.iter().find(|found| is_starved(found));
    let found = found.unwrap_or_else(|| panic!("{}", before.0["findings"]));
    let pid = starved.pid().to_string();
    found.assert_says(
        &[&format!("its thread {pid}"), "still waits", "ran most there"],
        &[&format!("taskset -cp LIST {pid}"), &format!("renice -n -5 -p {pid}")],
        &[],
    );
    let moved = Command::new("taskset").args(["-cp", "0", &pid]).output().expect("taskset");
    assert!(moved.status.success());
    let after = Measured::of("5");
    assert!(!after.about(&cgroup.name).iter().any(is_starved), "{}", after.0["findings"]);
    let waited_ms = |measured: &Measured| {
        let mut tasks = measured.0["tasks"].as_array().expect("tasks").iter();
        let task = tasks.find(|task| task["tid"] == starved.pid()).expect("the thread");
        let [wait, pending] = [&task["wait"]["total_ns"], &task["pending_ns"]];
        (wait.as_u64().unwrap_or(0) + pending.as_u64().unwrap_or(0)) / 1_000_000
    };
    let [then, now] = [&before, &after].map(waited_ms);
    assert!(then > 3_000 && now * 5 <= then, "{now} ms, before {then}");
}

/// A real-time thread that uses up the runtime of its cgroup (ros-realtime/ros-realtime-rpi4-image#28).
#[test]
#[ignore = "all CPUs: a real-time loop leaves 10 % of its CPU to others"]
fn a_real_time_thread_out_of_runtime() {
    let cgroup = Cgroup::new("sensor");
    if !cgroup.real_time(300_000) {
        // The kernel has no such limit.
        return;
    }
    let load = Load::workload(&["fifo", "500000", "500000", "60"], Some(&cgroup));
    let before = Measured::of("6");
    before.first(&cgroup.name, "real_time_limit").assert_says(
        &["because they had used up their runtime"],
        &["cpu.rt_runtime_us"],
        &["cpu.weight"],
    );
    cgroup.real_time(900_000);
    // A wait for the old runtime may still last.
    thread::sleep(Duration::from_secs(2));
    Measured::of("6").assert_cured(&cgroup.name, &before);
    drop(load);
    cgroup.real_time(0);
}

/// Bursts that a burst allowance covers (kubernetes/kubernetes#104516).
#[test]
#[ignore = "one CPU: asserts the share of throttled time"]
fn bursts_that_a_burst_allowance_covers() {
    let cgroup = Cgroup::new("api");
    cgroup.favour();
    cgroup.limit(20_000, 100_000);
    // Requests at the same point of each period might never exceed the quota.
    let _load = Load::workload(&["requests", "regular", "30000", "530000", "60"], Some(&cgroup));
    let before = Measured::of("8");
    before.first(&cgroup.name, "throttled_below_limit").assert_says(
        &["works in bursts"],
        &["allow a burst of up to its quota, 20.0ms"],
        &[],
    );
    if cgroup.save(20_000) {
        Measured::of("6").assert_cured(&cgroup.name, &before);
    }
    cgroup.limit(60_000, 300_000);
    Measured::of("6").assert_cured(&cgroup.name, &before);
}

/// Returns what `cgscope stat` says about a process.
fn said_of(load: &Load, options: &[&str]) -> String {
    let pid = load.pid().to_string();
    stdout(&run(&[&["stat", "-p", &pid, "4", "1"], options].concat()))
}

/// A service whose sidecar has a low limit (istio/istio#33283). The service itself does not wait for CPUs.
#[test]
#[ignore = "all CPUs: asserts the share of throttled time"]
fn a_service_that_sleeps_for_a_throttled_sidecar() {
    let (app, proxy, dir) = (Cgroup::new("app"), Cgroup::new("proxy"), Dir::new("sidecar"));
    proxy.favour();
    proxy.limit(20_000, 100_000);
    let [ask, answer] = ["ask", "answer"].map(|name| dir.fifo(name));
    let shell = |script: &str, cgroup| Load::start("sh", &["-c", script, "sh", &ask, &answer], Some(cgroup));
    let _proxy = shell(
        "exec 3<>$1 4<>$2; while read -r line <&3; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; echo $line >&4; done",
        &proxy,
    );
    let app_load = shell("exec 3<>$1 4<>$2; while echo x >&3; do read -r line <&4; done", &app);
    let before = Measured::of("5");
    assert!(before.about(&app.name).is_empty(), "{}", before.0["findings"]);
    before.first(&proxy.name, "throttled").assert_says(&["0.2 CPUs"], &["raise its limit"], &[]);
    let said = said_of(&app_load, &[]);
    assert!(said.contains("blocked on pipe") && !said.contains("will not help"), "{said}");
    let chains = Measured::with_chains("5");
    chains.assert_first(
        &app.name,
        &[&format!("for {}, which was throttled for", proxy.name), "0.2 CPUs"],
        "raise the limit",
    );
    let said = said_of(&app_load, &["--chains"]);
    assert!(said.contains("it sleeps ") && said.contains("which was throttled for"), "{said}");
    proxy.limit(200_000, 100_000);
    Measured::of("5").assert_cured(&proxy.name, &before);
    assert!(Measured::with_chains("5").about(&app.name).is_empty());
}

/// A lock whose holder gets only what others leave (sched-ext/scx#779). The waiting thread itself does not wait for CPUs.
#[test]
#[ignore = "all CPUs: asserts who waits for whom"]
fn a_thread_that_sleeps_for_the_lock_of_a_thread_that_gets_no_cpu() {
    let (front, back, hog) = (Cgroup::new("front"), Cgroup::new("back"), Cgroup::new("hog"));
    let dir = Dir::new("lock");
    let lock = |work_ms: &str, sleep_ms: &str, cgroup| {
        let script = "import fcntl, sys, time\n\
                      file = open(sys.argv[1], 'w')\n\
                      while True:\n\
                      \x20   fcntl.flock(file, fcntl.LOCK_EX)\n\
                      \x20   end = time.thread_time_ns() + int(sys.argv[2]) * 1000\n\
                      \x20   while time.thread_time_ns() < end: pass\n\
                      \x20   fcntl.flock(file, fcntl.LOCK_UN)\n\
                      \x20   time.sleep(int(sys.argv[3]) / 1e6)";
        Load::start("python3", &["-c", script, &dir.file("lock"), work_ms, sleep_ms], Some(cgroup))
    };
    let (_back, front_load) = (lock("5000", "1000", &back), lock("200", "10000", &front));
    // What others leave would not be enough for their start.
    thread::sleep(Duration::from_secs(1));
    back.set_idle(true);
    let _hog = Load::workload(&["burn", "4", "60"], Some(&hog));
    let measured = Measured::of("6");
    assert!(measured.about(&front.name).is_empty(), "{}", measured.0["findings"]);
    measured.first(&back.name, "noisy_neighbour").assert_says(
        &[&format!("behind {}", hog.name)],
        &[&format!("set cpu.idle of {}", back.name), "to 0", "give it a higher cpu.weight"],
        &[],
    );
    let said = said_of(&front_load, &[]);
    assert!(said.contains("blocked on file lock") && !said.contains("will not help"), "{said}");
    let chains = Measured::with_chains("6");
    let holder = format!("for a file lock of {}, which waited", back.name);
    let advice = format!("set cpu.idle of {}", back.name);
    chains.assert_first(&front.name, &[&holder, &format!("behind {}", hog.name)], &advice);
    back.set_idle(false);
    back.favour();
    Measured::of("5").assert_cured(&back.name, &measured);
    assert!(Measured::with_chains("5").about(&front.name).is_empty());
}
