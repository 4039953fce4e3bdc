//! `cgscope sample`: the state of each thread, compared with a walk of /proc.

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    bench::{cgscope, median, patience, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
};

/// The script that walks /proc in the same way as psn.
const PSN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/psn.py");

fn sample(options: &[&str]) -> Value {
    let output = run(&[&["sample", "--json"], options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("an object")
}

fn psn(options: &[&str]) -> Command {
    let mut command = Command::new("python3");
    command.arg(PSN).args(options).stdout(Stdio::piped());
    command
}

fn walked(command: &mut Command) -> Value {
    let output = command.output().expect("python3 starts");
    assert!(output.status.success(), "{}", stderr(&output));
    serde_json::from_slice(&output.stdout).expect("an object")
}

fn threads(pid: u32) -> BTreeMap<u32, String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a live process");
    let tids = tasks.flatten().map(|task| task.file_name().to_string_lossy().parse().expect("a thread id"));
    let comm = |tid: u32| fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).expect("a live process");
    tids.map(|tid| (tid, comm(tid).trim().to_owned())).collect()
}

/// Returns the time that a thread has spent on a CPU and the time that it has waited for a CPU so far, according to the kernel,
/// ns.
fn schedstat(pid: u32, tid: u32) -> (f64, f64) {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/schedstat")).expect("a live process");
    let mut fields = text.split(' ').map(|field| field.trim().parse::<f64>().expect("a number"));
    (fields.next().expect("three"), fields.next().expect("three"))
}

type Parts = BTreeMap<String, f64>;

fn parts_of(object: &Value, tid: u32) -> Parts {
    let groups = object["groups"].as_array().expect("groups");
    let of_it = || groups.iter().filter(|group| group["tid"] == tid);
    let all: f64 = of_it().map(|group| group["samples"].as_f64().expect("a count")).sum();
    let mut parts = Parts::new();
    for group in of_it() {
        let state = group["state"].as_str().expect("a state").to_owned();
        *parts.entry(state).or_default() += group["samples"].as_f64().expect("a count") / all;
    }
    parts
}

/// Returns the share of samples that show the right state. If a thread is in several states, returns how much the sampled and the
/// true distribution overlap.
fn agreement(seen: &Parts, truth: &[(&str, f64)]) -> f64 {
    truth.iter().map(|(state, part)| seen.get(*state).copied().unwrap_or(0.0).min(*part)).sum()
}

/// Returns the share of a thread's time in each state, computed from the kernel's figures before and after. Time that is neither
/// on a CPU nor waiting for a CPU counts as `blocked`. The kernel's time on a CPU lacks what the hypervisor took from the CPU
/// (`stolen`, as a multiple of the former), in which a sample still finds the thread there.
fn truth((before, after): (Spent, Spent), ns: f64, stolen: f64, blocked: &str) -> [(&str, f64); 3] {
    let (on_cpu, waited) = ((after.0 - before.0) / ns * (1.0 + stolen), (after.1 - before.1) / ns);
    [("on_cpu", on_cpu), ("runnable", waited), (blocked, (1.0 - on_cpu - waited).max(0.0))]
}

type Spent = (f64, f64);

/// The kernel's figures for a measurement, ns: the times of each thread (at the start and at the end), the throttled time of the
/// cgroup, and the length of the measurement.
struct Kernel {
    threads: BTreeMap<u32, (Spent, Spent)>,
    throttled_ns: u64,
    ns: f64,
}

/// Returns samples of a process by thread and state, and the kernel's figures for the same time. Reads the kernel's figures when
/// cgscope is ready, and again when cgscope prints its result.
fn beside_the_kernel(pid: u32, limited: Option<&Cgroup>, options: &[&str]) -> (Value, Kernel) {
    let all = threads(pid);
    let figures = || all.keys().map(|tid| (*tid, schedstat(pid, *tid))).collect::<BTreeMap<_, _>>();
    let throttled_ns = || limited.map_or(0, Cgroup::throttled_ns);
    let mut command = cgscope();
    command.args(["sample", "-v", "--json", "-a", "-g", "comm,tid,state,syscall,wchan"]);
    command.args(["-p", &pid.to_string()]).args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("cgscope starts");
    let mut said = BufReader::new(child.stderr.take().expect("a pipe to the child"));
    let mut line = String::new();
    said.read_line(&mut line).expect("standard error is readable");
    assert!(line.contains("sampling the threads"), "{line}");
    let (start, before, throttled_before) = (Instant::now(), figures(), throttled_ns());
    let mut object = String::new();
    BufReader::new(child.stdout.take().expect("a pipe to the child"))
        .read_line(&mut object)
        .expect("its output");
    let (took, after, throttled_after) = (start.elapsed(), figures(), throttled_ns());
    assert_eq!(child.wait().expect("a child of ours").code(), Some(0));
    let threads = before.into_iter().map(|(tid, before)| (tid, (before, after[&tid]))).collect();
    let throttled_ns = throttled_after - throttled_before;
    let kernel = Kernel { threads, throttled_ns, ns: took.as_nanos() as f64 };
    (serde_json::from_str(&object).expect("an object"), kernel)
}

/// Threads of the load `blend` that always stay in one state: name, state, system call, wait channel.
const AT_REST: [(&str, &str, &str, &str); 4] = [
    ("sleeper", "sleeping", "clock_nanosleep", "nanosleep"),
    ("pipe", "sleeping", "read", "pipe_read"),
    ("futex", "sleeping", "futex", "futex"),
    ("vfork", "uninterruptible", "clone", "kernel_clone"),
];

fn blend(name: &str) -> (Load, Dir) {
    blend_in(name, None)
}

fn blend_in(name: &str, cgroup: Option<&Cgroup>) -> (Load, Dir) {
    let dir = Dir::new(name);
    let (load, _) = Load::workload(&["blend", &dir.file("blend"), "60"], cgroup);
    thread::sleep(Duration::from_millis(300));
    (load, dir)
}

#[test]
#[ignore = "all CPUs: asserts shares of samples by state"]
fn every_thread_of_a_blend_is_in_the_right_state() {
    // With this weight, most other load does not get the CPUs, but cgscope still runs.
    let cgroup = Cgroup::new("sample-blend");
    cgroup.weigh(4);
    let (load, _dir) = blend_in("sample-blend", Some(&cgroup));
    let (object, kernel) = beside_the_kernel(load.pid(), None, &["-d", "8", "--hz", "150"]);
    println!("{} of {} rounds", object["rounds"], object["rounds_expected"]);
    assert!(object["rounds"].as_u64() > Some(200), "{object}");
    let all = threads(load.pid());
    let (spin, _) = all.iter().find(|(_, name)| *name == "spin").expect("a thread that never sleeps");
    let (before, after) = kernel.threads[spin];
    let stolen = ((kernel.ns - (after.1 - before.1)) / (after.0 - before.0) - 1.0).max(0.0);
    println!("the hypervisor took {stolen:.3} of the CPU time of the thread that never sleeps");
    // With even less run time, the figures of the other threads say nothing. (This is infinite if the thread did not run.)
    assert!(stolen < 1.0, "{stolen}");
    let mut sum = 0.0;
    for (tid, name) in &all {
        let seen = parts_of(&object, *tid);
        let blocked = AT_REST.iter().find(|(thread, ..)| thread == name).map_or("iowait", |rest| rest.1);
        let blocked = if name == "workload" { "sleeping" } else { blocked };
        let truth = truth(kernel.threads[tid], kernel.ns, stolen, blocked);
        let agreement = agreement(&seen, &truth);
        println!("{name} {tid}: {agreement:.3} correct; samples {seen:?}, kernel {truth:?}");
        // If a thread spends half of its time in each of two states, the standard error of 1,200 samples is 1.4 %.
        assert!(agreement >= 0.92, "{name}: {agreement}: {seen:?}, but by the kernel's figures {truth:?}");
        sum += agreement;
    }
    let of_all = sum / all.len() as f64;
    println!("share of all samples in the right state: {of_all:.3}");
    assert!(of_all >= 0.95, "{of_all}");
    let is_there = |name: &str| all.values().any(|thread| thread == name);
    assert!(
        ["spin", "pair", "disk"]
            .iter()
            .chain(AT_REST.iter().map(|(name, ..)| name))
            .all(|name| is_there(name))
    );
}

#[test]
fn blocked_threads_have_their_system_call_and_wait_channel() {
    let (load, _dir) = blend("sample-places");
    let pid = load.pid().to_string();
    for mode in ["bpf", "coarse"] {
        let columns = "comm,state,syscall,wchan,kstack,exe,username";
        let object = sample(&["-a", "-d", "0.5", "-g", columns, "-p", &pid, "--mode", mode]);
        let groups = object["groups"].as_array().expect("groups");
        for (name, state, syscall, place) in AT_REST {
            let group = groups.iter().find(|group| group["comm"] == name && group["state"] == state);
            let group = group.unwrap_or_else(|| panic!("{mode}: no {name}: {groups:?}"));
            let has =
                |column: &str, part: &str| group[column].as_str().is_some_and(|text| text.contains(part));
            assert!(has("syscall", syscall), "{mode}: {group}");
            // The kernel function in which `vfork` waits has another name in some kernel versions.
            assert!(name == "vfork" || has("wchan", place), "{mode}: {group}");
            assert!(has("kstack", "()->") && has("kstack", "syscall"), "{mode}: {group}");
            assert!(has("exe", "workload") && has("username", "root"), "{mode}: {group}");
        }
    }
}

#[test]
fn the_throttled_share_of_a_thread_equals_that_of_its_cgroup() {
    let limited = Cgroup::new("sample");
    limited.favour();
    limited.limit(30_000, 100_000);
    let (load, _out) = Load::workload(&["burn", "1", "60"], Some(&limited));
    thread::sleep(Duration::from_millis(500));
    let (object, kernel) = beside_the_kernel(load.pid(), Some(&limited), &["-d", "10", "--hz", "200"]);
    let ns = kernel.ns;
    let throttled = kernel.throttled_ns as f64 / ns;
    let (tid, ((_, wait_before), (_, wait_after))) = kernel
        .threads
        .into_iter()
        .max_by(|(_, (_, a)), (_, (_, b))| a.0.total_cmp(&b.0))
        .expect("a thread that burns");
    let waited = (wait_after - wait_before) / ns;
    // The kernel counts throttled time as waiting time, too. The thread never sleeps, so it is on a CPU for the rest.
    let truth = [("on_cpu", 1.0 - waited), ("throttled", throttled), ("runnable", waited - throttled)];
    let seen = parts_of(&object, tid);
    let agreement = agreement(&seen, &truth);
    println!("throttled: {agreement:.3} correct; samples {seen:?}, kernel {truth:?}");
    assert!(throttled > 0.4, "the load was not throttled: {truth:?}");
    assert!(agreement >= 0.95, "{agreement}: {seen:?}, but by the kernel's figures {truth:?}");
}

fn node_of(cpu: u32) -> u32 {
    let entries = fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).expect("a CPU").flatten();
    let mut names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find_map(|name| name.strip_prefix("node")?.parse().ok()).unwrap_or(0)
}

#[test]
fn the_coarse_mode_has_the_kernels_letters() {
    let (load, _dir) = blend("sample-coarse");
    let pid = load.pid().to_string();
    let object =
        sample(&["-a", "-d", "3", "--hz", "50", "-g", "comm,tid,state", "-p", &pid, "--mode", "coarse"]);
    assert_eq!(object["mode"], "coarse");
    for (tid, name) in threads(load.pid()) {
        let seen = parts_of(&object, tid);
        let expected: &[&str] = match name.as_str() {
            "spin" | "pair" => &["running"],
            "disk" => &["running", "uninterruptible"],
            "vfork" => &["uninterruptible"],
            _ => &["sleeping"],
        };
        let right: f64 =
            seen.iter().filter(|(state, _)| expected.contains(&state.as_str())).map(|(_, part)| part).sum();
        assert!(right >= 0.95, "{name}: {seen:?}");
    }
}

#[test]
fn a_command_is_sampled_to_its_end_and_an_interrupt_prints_the_result() {
    let output = run(&[
        "sample",
        "--hz",
        "100",
        "-g",
        "comm,state",
        "--",
        "sh",
        "-c",
        "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done",
    ]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let is_running = |line: &str| line.contains("| sh ") && line.contains("| Running (on CPU)");
    assert!(stdout(&output).lines().any(is_running), "{}", stdout(&output));
    let child =
        cgscope().args(["sample", "-d", "60"]).stdout(Stdio::piped()).spawn().expect("the command starts");
    thread::sleep(patience(1_500));
    // SAFETY: the child is ours and has not been reaped.
    unsafe { libc::kill(child.id() as i32, libc::SIGINT) };
    let output = child.wait_with_output().expect("a child of ours");
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("samples: "), "{}", stdout(&output));
}

#[test]
fn a_target_that_exits_makes_the_result_incomplete() {
    let mut load = Load::busy_loop(None);
    let pid = load.pid().to_string();
    let mut command = cgscope();
    command.args(["sample", "-d", "60", "-p", &pid]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("the command starts");
    // Wait for the first sample, which has taken more than 1.5 s while other tests ran.
    thread::sleep(patience(5_000));
    load.kill();
    let output = child.wait_with_output().expect("a child of ours");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the target has exited"), "{}", stderr(&output));
    assert!(stdout(&output).contains("| sh "), "what was sampled is printed: {}", stdout(&output));
    let exited = run(&["sample", "-d", "1", "-p", &pid]);
    assert_eq!(exited.status.code(), Some(2), "{}", stdout(&exited));
}

mod long {
    use super::*;

    /// psn shows only the kernel's state letters, so it has one row for several states of cgscope. For threads that stay in one
    /// state, psn and cgscope must show the same state.
    #[test]
    #[ignore = "all CPUs: asserts shares of samples by state"]
    fn a_walk_of_proc_merges_some_states_and_agrees_otherwise() {
        let (load, dir) = blend("sample-psn");
        let limited = Cgroup::new("sample-psn");
        limited.limit(30_000, 100_000);
        // Run the loop in a copy of the shell, so that it has a unique name.
        let burner = dir.file("quotaloop");
        fs::copy("/bin/sh", &burner).expect("a shell");
        let _burning = Load::start(&burner, &["-c", "while :; do :; done"], Some(&limited));
        let mut walk = psn(&["--seconds", "5", "--hz", "20", "wchan", "syscall"]);
        let walk = walk.spawn().expect("python3 starts");
        let ours = sample(&["-a", "-d", "5", "--hz", "20", "-g", "comm,state"]);
        let walk = walk.wait_with_output().expect("a child of ours");
        let theirs: Value = serde_json::from_slice(&walk.stdout).expect("an object");
        let rounds = theirs["rounds"].as_f64().expect("a count");
        for (name, letters, states) in [
            ("spin", "R", &["on_cpu", "runnable"][..]),
            ("pair", "R", &["on_cpu", "runnable"]),
            ("sleeper", "S", &["sleeping"]),
            ("pipe", "S", &["sleeping"]),
            ("futex", "S", &["sleeping"]),
            ("disk", "RD", &["on_cpu", "runnable", "iowait", "uninterruptible"]),
            ("quotaloop", "R", &["on_cpu", "runnable", "throttled"]),
        ] {
            let groups = ours["groups"].as_array().expect("groups");
            let of_state = |state: &&&str| {
                groups.iter().find(|group| group["comm"] == name && group["state"] == ***state)
            };
            let reported: Vec<&Value> = states.iter().filter_map(|state| of_state(&state)).collect();
            let ours: f64 = reported.iter().map(|group| group["avg_threads"].as_f64().unwrap_or(0.0)).sum();
            let key = |letter: char| theirs["groups"][format!("{name}|{letter}")].as_f64().unwrap_or(0.0);
            let theirs: f64 = letters.chars().map(key).sum::<f64>() / rounds;
            assert!((ours - theirs).abs() < 0.05, "{name}: {ours} threads, but {theirs} in /proc");
            let merged = if name == "quotaloop" { "throttled" } else { "runnable" };
            let is_reported = reported.iter().any(|group| group["state"] == merged);
            assert!(
                is_reported || !["pair", "quotaloop"].contains(&name),
                "psn has one state R, and cgscope has several: {reported:?}"
            );
        }
        drop(load);
    }

    /// cgscope and psn read the state, wait channel and system call of every thread of the host. The test compares CPU time, not
    /// elapsed time, because the machine can be busy.
    #[test]
    fn a_sample_of_5000_threads_costs_at_most_a_twentieth_of_a_walk_of_proc() {
        let (_load, _out) = Load::workload(&["sleep", "5000", "120"], None);
        thread::sleep(patience(1_000));
        let ours = || {
            let object = sample(&["-a", "-d", "1", "--hz", "10", "-G", "syscall,wchan"]);
            assert!(object["threads"].as_u64() >= Some(5_000), "{object}");
            object["self"]["cpu_ns"].as_f64().expect("a time")
                / object["rounds"].as_f64().expect("a count")
                / 1e6
        };
        let theirs = || {
            let object = walked(&mut psn(&["--rounds", "1"]));
            assert!(object["threads"].as_u64() >= Some(5_000), "{object}");
            object["cpu_s"].as_f64().expect("a time") * 1e3
        };
        // Run the two programs alternately, so that other load affects both.
        let pairs: Vec<(f64, f64)> = (0..3).map(|_| (ours(), theirs())).collect();
        let times = median(pairs.iter().map(|(ours_ms, theirs_ms)| theirs_ms / ours_ms));
        println!(
            "a walk of /proc takes {times:.0} times the CPU time of a sample of 5,000 threads: {pairs:.2?} ms"
        );
        assert!(times >= 20.0, "{pairs:?}");
    }

    #[test]
    fn cpu_node_and_command_line_of_a_thread_are_reported_and_can_be_selected() {
        let cgroup = Cgroup::new("sample-columns.service");
        let other = Cgroup::new("sample-other");
        let (here, elsewhere) = (Load::pinned_loop(0, Some(&cgroup)), Load::pinned_loop(1, Some(&other)));
        thread::sleep(patience(300));
        let pids = format!("{},{}", here.pid(), elsewhere.pid());
        let object = sample(&["-d", "1", "-g", "pid", "-G", "cgroup,node,cpu,cmdline", "-p", &pids]);
        for (load, cpu, cgroup) in [(&here, 0, &cgroup), (&elsewhere, 1, &other)] {
            let groups = object["groups"].as_array().expect("groups");
            let group = groups.iter().filter(|group| group["tgid"] == load.pid()).collect::<Vec<_>>();
            // The thread is pinned, so all its samples are in one group.
            let [group] = group.as_slice() else { panic!("{object}") };
            assert_eq!(group["samples"], object["rounds"], "{group}");
            assert_eq!((&group["cpu"], &group["node"]), (&Value::from(cpu), &Value::from(node_of(cpu))));
            assert_eq!(group["cgroup"], cgroup.name.as_str());
            assert_eq!(group["cmdline"], "sh -c while :; do :; done");
        }
        for (filter, is_there) in [
            (["--cgroup", &cgroup.name], [true, false]),
            (["--cgroup", "/"], [true, true]),
            (["--unit", &cgroup.name[1..]], [true, false]),
            (["--unit", cgroup.name[1..].trim_end_matches(".service")], [true, false]),
            (["--cpu", "1"], [false, true]),
            (["--cpu", "0-1"], [true, true]),
            (["--comm", "^sh$"], [true, true]),
            (["--comm", "^dd$"], [false, false]),
        ] {
            let object = sample(&["-d", "0.5", "-g", "pid,comm,cpu,cgroup", filter[0], filter[1]]);
            let groups = object["groups"].as_array().expect("groups");
            let has = |load: &Load| groups.iter().any(|group| group["tgid"] == load.pid());
            assert_eq!([has(&here), has(&elsewhere)], is_there, "{filter:?}: {object}");
            let fits = |group: &Value| match filter[0] {
                "--cgroup" => group["cgroup"].as_str().is_some_and(|path| path.starts_with(filter[1])),
                "--unit" => group["cgroup"] == cgroup.name.as_str(),
                "--cpu" => filter[1] == "0-1" || group["cpu"] == 1,
                _ => format!("^{}$", group["comm"].as_str().unwrap_or_default()) == filter[1],
            };
            assert!(groups.iter().all(fits), "{filter:?}: {object}");
        }
    }
}
