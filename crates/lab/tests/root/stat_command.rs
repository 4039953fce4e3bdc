//! Tests of `cgscope stat -- CMD`: its summary, and which parts of the summary are missing if the host refuses a feature.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::facts::CgroupMounts;
use cgscope_ledger::Cause;
use serde_json::Value;

use crate::{
    bad_input::for_everyone,
    bench::{cgscope, patience, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
    stat_command_cgroup::Home,
};

pub(crate) const BUSY: &str = "busy() { i=0; while [ $i -lt $1 ]; do i=$((i+1)); done; }; ";
pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn stat(script: &str) -> (Value, Output) {
    let dir = Dir::new("stat");
    let file = dir.file("summary");
    let output = run(&["stat", "--json", "-o", &file, "--", "sh", "-c", script]);
    let text = fs::read_to_string(&file).unwrap_or_else(|error| panic!("{error}: {}", stderr(&output)));
    (serde_json::from_str(&text).expect("one object"), output)
}

pub(crate) fn ns(object: &Value, path: &str) -> u64 {
    object.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {object}"))
}

/// Returns the directory of the v2 cgroup of this process, in which `cgscope stat` creates the cgroups for commands.
pub(crate) fn unified() -> Option<PathBuf> {
    let mount = CgroupMounts::read(Path::new("/")).unified?;
    let cgroups = fs::read_to_string("/proc/self/cgroup").expect("our cgroups");
    let ours = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    Some(mount.join(ours.trim_start_matches('/')))
}

pub(crate) fn leftovers(pid: u32) -> Vec<PathBuf> {
    let Some(parent) = unified() else { return Vec::new() };
    let entries = fs::read_dir(parent).expect("our cgroup").flatten().map(|entry| entry.path());
    let name = format!("cgscope-stat-{pid}-");
    entries
        .filter(|path| path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&name)))
        .collect()
}

pub(crate) fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

pub(crate) fn kill(pid: u64, signal: i32) {
    // SAFETY: the test started this process.
    unsafe { libc::kill(pid as i32, signal) };
}

pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + patience(20_000);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A running `cgscope stat -- CMD`, from which tests read line by line. Drop kills the process.
pub(crate) struct Running {
    pub(crate) child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Starts `script` under `cgscope stat`, and returns when the script has printed `ready`.
    pub(crate) fn start(script: &str) -> Self {
        let mut command = cgscope();
        command.args(["stat", "--", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        // Reset SIGHUP, which the test runner can ignore, as under `nohup`. A shell cannot trap a signal that was ignored when
        // the shell started. SAFETY: between fork and exec, the closure makes one system call.
        unsafe {
            command.pre_exec(|| {
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                Ok(())
            })
        };
        let mut child = command.spawn().expect("cgscope starts");
        let out = BufReader::new(child.stdout.take().expect("its output is ours"));
        let mut running = Self { child, out };
        assert_eq!(running.line(), "ready");
        running
    }

    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("its output is readable");
        line.trim_end().into()
    }

    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let mut summary = String::new();
        let mut said = self.child.stderr.take().expect("standard error is ours");
        said.read_to_string(&mut summary).expect("text");
        (self.child.wait().expect("a child of ours").code(), summary)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn other_cgroups_under_the_quota_and_the_share_of_the_command_are_reported() {
    let cgroup = Cgroup::new("shared");
    cgroup.limit(50_000, 100_000);
    cgroup.favour();
    let load = Load::busy_loop(Some(&cgroup));
    let (summary, output) =
        stat(&format!("{BUSY} echo 0 > {}/cgroup.procs; busy 100000", cgroup.path.display()));
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let quota = &summary["quotas"][0];
    assert_eq!(quota["path"], cgroup.name.as_str(), "{summary}");
    let others: Vec<_> = quota["others"].as_array().expect("a list").iter().map(|one| &one["pid"]).collect();
    assert_eq!(others, [&Value::from(load.pid())], "{quota}");
    assert!(ns(quota, "/delta/nr_throttled") > 0 && ns(quota, "/threads_held_ns") > 0, "{quota}");
    let throttled = ns(&summary, "/threads_time/waited/throttled_ns");
    assert!(throttled.abs_diff(ns(quota, "/threads_held_ns")) <= throttled / 20 + MS, "{throttled}: {quota}");
}

#[test]
fn the_times_of_one_thread_sum_to_the_elapsed_time() {
    let (summary, _) = stat(&format!("{BUSY} busy 300000; exec sleep 0.3"));
    let (wall, whole) = (ns(&summary, "/wall_ns"), ns(&summary, "/threads_time/total_ns"));
    assert!(whole.abs_diff(wall) <= wall / 50 + 10 * MS, "{whole} of {wall} ns: {summary}");
    let blocked = summary["threads_time"]["blocked"].as_object().expect("known");
    let sum = ns(&summary, "/threads_time/on_cpu_ns")
        + Cause::ALL
            .iter()
            .map(|cause| ns(&summary, &format!("/threads_time/waited/{}_ns", cause.name())))
            .sum::<u64>()
        + blocked.values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(sum, whole, "{summary}");
    assert!(blocked["sleeping"].as_u64() >= Some(290 * MS), "{summary}");
}

#[test]
fn without_bpf_the_command_runs_and_the_summary_says_so() {
    let output = run(&["stat", "--mode", "coarse", "--", "sh", "-c", "echo out; exit 4"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(stdout(&output), "out\n");
    let said = stderr(&output);
    assert!(said.contains("Coarse: /proc reports the sum of waits") && said.contains("not known"), "{said}");
    assert!(!said.contains("outlived"), "the command itself has ended: {said}");
}

#[test]
#[ignore = "all CPUs: may move all tests to another cgroup"]
fn without_privileges_the_command_runs_coarsely_without_a_cgroup_and_the_summary_says_both() {
    let _home = Home::new();
    let (_dir, path) = for_everyone();
    let output = Command::new(&path)
        .args(["stat", "--", "sh", "-c", "id -u; exit 4"])
        .uid(65_534)
        .gid(65_534)
        .output();
    let output = output.expect("cgscope starts");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(4), "65534\n"), "{}", stderr(&output));
    let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "continuing in the coarse mode",
        "create a cgroup in",
        "run cgscope as root",
        "It ended with exit code 4",
    ] {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn impossible_options_are_refused_before_the_command_runs() {
    let dir = Dir::new("refused");
    let (letter, ran) = (dir.file("letter"), dir.file("ran"));
    fs::write(&letter, "dear all").expect("a file of ours");
    for args in [&["-o", &letter][..], &["-o", "/no/such/folder/x"], &["1"], &["--by", "cgroup"]] {
        let mut all = vec!["stat"];
        all.extend(args);
        all.extend(["--", "touch", &ran]);
        let output = run(&all);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert_eq!(stderr(&output).lines().count(), 1, "{args:?}: {}", stderr(&output));
        assert!(!Path::new(&ran).exists(), "{args:?}");
    }
    assert_eq!(fs::read_to_string(&letter).expect("the file still exists"), "dear all");
}

#[test]
fn results_that_cannot_be_written_to_a_file_go_to_standard_error() {
    let words = |output: &Output| stderr(output).split_whitespace().collect::<Vec<_>>().join(" ");
    let run_full = |args: &[&str]| {
        let output = run(&[&["stat"], args, &["--", "sh", "-c", "sleep 0.1; exit 3"]].concat());
        assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
        words(&output)
    };
    let full = "could not be written to /dev/full (No space left on device (os error 28))";
    let said = run_full(&["-o", "/dev/full"]);
    assert!(said.contains(&format!("the summary {full}, so here it is: cgscope stat: sh -c")), "{said}");
    let said = run_full(&["--json", "-o", "/dev/full"]);
    assert!(said.contains(r#"so here it is: {"schema":"cgscope.stat/1""#), "{said}");
    let said = run_full(&["--offcpu=/dev/full"]);
    assert!(said.contains(&format!("the stacks {full}, so only the largest are printed")), "{said}");
    assert!(said.contains("nanosleep") && said.contains("It ended with exit code 3"), "{said}");

    let output = run(&["stat", "--offcpu=/dev/full", "1", "1"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(words(&output).contains(&format!("the stacks {full}")), "{}", stderr(&output));
    assert!(stdout(&output).contains("Average:"), "{}", stdout(&output));
}
