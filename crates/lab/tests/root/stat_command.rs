//! `cgscope stat -- CMD`: the command is run as if nobody looked, and all that it starts is counted.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::facts::CgroupMounts;
use serde_json::Value;

use crate::{
    bad_input::for_everyone,
    bench::{cgscope, patience, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
    pty::Pty,
    terminal::Terminal,
};

/// Counts as far as it is told.
const BUSY: &str = "busy() { i=0; while [ $i -lt $1 ]; do i=$((i+1)); done; }; ";
const MS: u64 = 1_000_000;

/// The summary of a shell script as an object, and the rest of what came.
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

/// Where the cgroups of commands are.
fn unified() -> Option<PathBuf> {
    let mount = CgroupMounts::read(Path::new("/")).unified?;
    let cgroups = fs::read_to_string("/proc/self/cgroup").expect("our cgroups");
    let ours = cgroups.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
    Some(mount.join(ours.trim_start_matches('/')))
}

/// Where our own cgroup passes controllers on, as a root with processes in it can, commands get no cgroup of their own: then we are
/// in another one as long as this value is there.
struct Home(Option<(PathBuf, PathBuf)>);

impl Home {
    fn new() -> Self {
        let Some(ours) = unified() else { return Self(None) };
        let passed_on =
            fs::read_to_string(ours.join("cgroup.subtree_control")).expect("a file of every cgroup");
        if !passed_on.split_whitespace().any(|one| matches!(one, "cpu" | "io")) {
            return Self(None);
        }
        let home = ours.join(format!("cgscope-test-{}-home", std::process::id()));
        fs::create_dir(&home).expect("a cgroup");
        fs::write(home.join("cgroup.procs"), "0").expect("a cgroup of ours");
        Self(Some((ours, home)))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some((before, home)) = &self.0 else { return };
        for pid in fs::read_to_string(home.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(before.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(home);
    }
}

/// The cgroups that this cgscope has made and not removed.
fn leftovers(pid: u32) -> Vec<PathBuf> {
    let Some(parent) = unified() else { return Vec::new() };
    let entries = fs::read_dir(parent).expect("our cgroup").flatten().map(|entry| entry.path());
    let name = format!("cgscope-stat-{pid}-");
    entries
        .filter(|path| path.file_name().is_some_and(|found| found.to_string_lossy().starts_with(&name)))
        .collect()
}

fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(')').is_some_and(|(_, rest)| !rest.trim_start().starts_with(['Z', 'X']))
}

fn kill(pid: u64, signal: i32) {
    // SAFETY: a process that the test started.
    unsafe { libc::kill(pid as i32, signal) };
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + patience(20_000);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A cgscope that runs a command, whose output can be read line by line. It is killed with its value.
struct Running {
    child: Child,
    out: BufReader<std::process::ChildStdout>,
}

impl Running {
    /// Returns when the script has said `ready`.
    fn start(script: &str) -> Self {
        let mut command = cgscope();
        command.args(["stat", "--", "sh", "-c", script]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.spawn().expect("cgscope is executed");
        let out = BufReader::new(child.stdout.take().expect("its output is ours"));
        let mut running = Self { child, out };
        assert_eq!(running.line(), "ready");
        running
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.out.read_line(&mut line).expect("its output is readable");
        line.trim_end().into()
    }

    /// Its exit code, and the summary.
    fn end(&mut self) -> (Option<i32>, String) {
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
fn the_exit_code_is_the_commands() {
    for (command, code, said) in [
        (&["true"][..], 0, "It ended well (exit code 0)"),
        (&["sh", "-c", "exit 3"], 3, "It ended with exit code 3"),
        (&["sh", "-c", "exit 255"], 255, "exit code 255"),
        (&["sh", "-c", "kill -TERM $$"], 143, "It was killed by signal 15 (exit code 143)"),
        (&["sh", "-c", "kill -KILL $$"], 137, "killed by signal 9"),
        (&["no-such-command"], 127, "no-such-command: the command could not be run: No such file"),
        (&["/etc/passwd"], 126, "/etc/passwd: the command could not be run: Permission denied"),
        (&["/"], 126, "Permission denied"),
    ] {
        let mut args = vec!["stat", "--"];
        args.extend(command);
        let child =
            cgscope().args(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let pid = child.id();
        let output = child.wait_with_output().expect("a child of ours");
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{command:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{command:?}");
        assert_eq!(leftovers(pid), [""; 0].map(PathBuf::from), "{command:?}");
    }
}

#[test]
fn what_goes_through_the_command_is_not_touched() {
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = cgscope()
        .args(["stat", "--", "sh", "-c", "echo mine >&2; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("its input is ours");
    let sent = bytes.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent).expect("it reads all"));
    let output = child.wait_with_output().expect("a child of ours");
    writer.join().expect("all was written");
    assert!(output.stdout == bytes, "{} of {} bytes came", output.stdout.len(), bytes.len());
    let said = stderr(&output);
    assert!(said.starts_with("mine\n") && said.contains("\ncgscope stat: sh -c"), "{said}");
}

#[test]
fn signals_are_to_the_command_as_they_are_without_us() {
    let status = ["-E", "^(SigBlk|SigIgn|SigCgt|ShdPnd|SigPnd)", "/proc/self/status"];
    let plain = Command::new("grep").args(status).output().expect("grep runs");
    let mut args = vec!["stat", "--", "grep"];
    args.extend(status);
    let output = run(&args);
    assert_eq!(
        signals(&stdout(&output)),
        signals(&String::from_utf8_lossy(&plain.stdout)),
        "{}",
        stderr(&output)
    );
    // What is ignored stays so.
    let ignoring = |program: &str, before: &str| {
        let script = format!("trap '' HUP USR1; exec {program} {before} grep SigIgn /proc/self/status");
        let output = Command::new("sh").args(["-c", &script]).output().expect("sh runs");
        signals(&String::from_utf8_lossy(&output.stdout))
    };
    let program = cgscope().get_program().to_string_lossy().into_owned();
    assert_eq!(ignoring(&program, "stat --"), ignoring("env", ""));
}

/// The sets of signals in `/proc/PID/status`, without the two that the C library keeps for itself (32 and 33): any program with
/// threads has handlers of these, which `execve` resets.
fn signals(status: &str) -> Vec<(String, u64)> {
    let sets = status.lines().filter_map(|line| line.split_once(":\t"));
    let set = |text: &str| u64::from_str_radix(text, 16).expect("a set") & !(0b11 << 31);
    let sets: Vec<_> = sets.map(|(name, text)| (name.to_owned(), set(text))).collect();
    assert!(!sets.is_empty(), "{status}");
    sets
}

#[test]
fn what_is_sent_to_cgscope_alone_is_passed_on() {
    let script = "for s in HUP INT QUIT TERM USR1 USR2; do trap \"echo $s\" $s; done; echo ready; \
                  while ! [ -e $STOP ]; do sleep 0.02; done; exit 7";
    let dir = Dir::new("signals");
    let stop = dir.file("stop");
    let mut running = Running::start(&format!("STOP={stop}; {script}"));
    let pid = u64::from(running.child.id());
    for (name, signal) in [
        ("HUP", libc::SIGHUP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("TERM", libc::SIGTERM),
        ("USR1", libc::SIGUSR1),
        ("USR2", libc::SIGUSR2),
    ] {
        kill(pid, signal);
        assert_eq!(running.line(), name);
    }
    fs::write(&stop, "").expect("a file of ours");
    let (code, summary) = running.end();
    assert_eq!(code, Some(7), "{summary}");
    assert!(summary.contains("It ended with exit code 7"), "{summary}");

    let mut running = Running::start("echo ready; exec sleep 60");
    kill(u64::from(running.child.id()), libc::SIGTERM);
    let (code, summary) = running.end();
    assert_eq!(code, Some(143));
    assert!(summary.contains("killed by signal 15"), "{summary}");
    assert!(leftovers(running.child.id()).is_empty());
}

#[test]
fn a_key_that_interrupts_reaches_the_command_once_and_the_summary_still_comes() {
    for (key, name) in [("\x03", "INT"), ("\x1c", "QUIT")] {
        let script = format!(
            "trap 'n=$((n+1)); echo got $n' {name}; echo rea''dy; i=0; while [ $i -lt 20 ] || [ -z \"$n\" ]; do sleep 0.05; \
             i=$((i+1)); done; echo count $n; exit 5"
        );
        let mut pty = Pty::start_in(&["stat", "--", "sh", "-c", &script], [100, 30], true, &[]);
        pty.wait_for("ready");
        pty.press(key);
        assert_eq!(pty.wait(patience(20_000)), Some(5), "{}", pty.text());
        let text = pty.text();
        assert!(text.contains("count 1\r\n"), "{name}: {text}");
        assert!(text.contains("exit code 5") && text.contains("losses:"), "{name}: {text}");
    }
    let mut pty =
        Pty::start_in(&["stat", "--", "sh", "-c", "echo rea''dy; exec sleep 60"], [100, 30], true, &[]);
    pty.wait_for("ready");
    pty.press("\x03");
    assert_eq!(pty.wait(patience(20_000)), Some(130), "{}", pty.text());
    assert!(pty.text().contains("killed by signal 2"), "{}", pty.text());
}

#[test]
fn the_terminal_is_the_commands_and_the_job_is_stopped_and_continued_as_one() {
    let terminal = Terminal::new(110, 50);
    let program = cgscope();
    let program = program.get_program().to_string_lossy();
    terminal.line(&format!(
        "{program} stat -- sh -c 'test -t 0 && test -t 1 && echo is a ter''minal; read answer; echo it is $answer; exit 9'; \
         echo left with $?"
    ));
    terminal.wait_for("is a terminal");
    terminal.press("C-z");
    terminal.wait_for("Stopped");
    let shell = terminal.tmux(&["display-message", "-p", "#{pane_pid}"]);
    let job = terminal_job(shell.trim());
    assert!(job.len() >= 2 && job.iter().all(|(_, state)| *state == 'T'), "{job:?}");
    terminal.line("fg");
    wait_until("it goes on", || terminal_job(shell.trim()).iter().all(|(_, state)| *state != 'T'));
    terminal.line("gold");
    terminal.wait_for("it is gold");
    terminal.wait_for("It ended with exit code 9");
    terminal.line("echo $?");
    terminal.wait_for("\n9");
}

/// The processes below a shell, with their states.
fn terminal_job(shell: &str) -> Vec<(String, char)> {
    let mut found: Vec<(String, char)> = Vec::new();
    let mut next = vec![shell.to_owned()];
    while let Some(pid) = next.pop() {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        for child in children.flat_map(|all| all.split_whitespace().map(String::from).collect::<Vec<_>>()) {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            found.extend(state.map(|state| (child.clone(), state)));
            next.push(child);
        }
    }
    found
}

#[test]
fn children_and_grandchildren_are_counted() {
    let _home = Home::new();
    let script = format!(
        "{BUSY} sh -c '{BUSY} sh -c \"{} busy 400000\" & busy 300000; wait' & busy 200000; wait",
        BUSY.replace('$', "\\$")
    );
    let (summary, output) = stat(&script);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let waited_for = ns(&summary, "/waited_for/user_ns") + ns(&summary, "/waited_for/system_ns");
    let ran = ns(&summary, "/threads_time/on_cpu_ns");
    assert!(waited_for > 200 * MS, "{summary}");
    let about = |a: u64, b: u64| a.abs_diff(b) <= 10 * MS + b / 100;
    assert!(about(ran, waited_for), "{ran} ns ran, {waited_for} ns were waited for");
    if summary["cpu"]["of"] == "own_cgroup" {
        let all = ns(&summary, "/cpu/usage_ns");
        assert!(about(all, waited_for) && about(all, ran), "{all} {waited_for} {ran}");
    }
    assert_eq!(summary["outlived"], serde_json::json!([]));
    assert!(ns(&summary, "/peak_processes") >= 3, "{summary}");
}

#[test]
fn what_outlives_the_command_is_counted_named_and_left_in_peace() {
    let _home = Home::new();
    let script = format!(
        "(setsid sh -c '{BUSY} busy 300000; echo > $DONE; exec sleep 30' > /dev/null 2>&1 &); while ! [ -e $DONE ]; do sleep 0.05; done; sleep 0.1"
    );
    let dir = Dir::new("daemon");
    let (summary, output) = stat(&format!("DONE={}; export DONE; {script}", dir.file("done")));
    let outlived = summary["outlived"].as_array().expect("a list");
    let daemon = outlived.iter().find(|one| one["comm"] == "sleep").and_then(|one| one["pid"].as_u64());
    let daemon = daemon.unwrap_or_else(|| panic!("no daemon in {summary}"));
    let is_alive_after = is_alive(daemon);
    let cgroup = fs::read_to_string(format!("/proc/{daemon}/cgroup"));
    kill(daemon, libc::SIGKILL);
    assert!(is_alive_after, "{}", stderr(&output));
    assert_eq!(outlived.len(), 1, "{summary}");
    let waited_for = ns(&summary, "/waited_for/user_ns") + ns(&summary, "/waited_for/system_ns");
    let ran = ns(&summary, "/threads_time/on_cpu_ns");
    assert!(ran > waited_for + 50 * MS, "its time is counted: {ran}, {waited_for}");
    let all = ns(&summary, "/cpu/usage_ns");
    assert!(all.abs_diff(ran) <= 10 * MS + ran / 100, "{all} {ran}");
    // It is where it would be without us, and the cgroup is gone.
    assert!(!cgroup.expect("its cgroups").contains("cgscope-stat"));
    let own = summary["own_cgroup"].as_str().expect("a cgroup of its own");
    let mount = CgroupMounts::read(Path::new("/")).unified.expect("a v2 hierarchy");
    assert!(!mount.join(own.trim_start_matches('/')).exists());
}

#[test]
fn what_a_killed_cgscope_leaves_is_removed_by_the_next_one() {
    let _home = Home::new();
    let mut running = Running::start("echo ready; echo $$; exec sleep 60");
    let pid: u64 = running.line().parse().expect("a pid");
    let left = leftovers(running.child.id());
    assert_eq!(left.len(), 1);
    running.child.kill().expect("a child of ours");
    running.child.wait().expect("a child of ours");
    assert!(is_alive(pid), "the command goes on");
    run(&["stat", "--", "true"]);
    assert!(left[0].exists(), "it is not empty");
    kill(pid, libc::SIGKILL);
    wait_until("it ends", || !is_alive(pid));
    run(&["stat", "--", "true"]);
    assert!(!left[0].exists());
}

#[test]
fn who_else_is_under_the_quota_is_named_and_the_commands_share_told() {
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
fn the_time_of_one_thread_sums_to_the_clock() {
    let (summary, _) = stat(&format!("{BUSY} busy 300000; exec sleep 0.3"));
    let (wall, whole) = (ns(&summary, "/wall_ns"), ns(&summary, "/threads_time/total_ns"));
    assert!(whole.abs_diff(wall) <= wall / 50 + 10 * MS, "{whole} of {wall} ns: {summary}");
    let blocked = summary["threads_time"]["blocked"].as_object().expect("known");
    let parts = ["throttled", "own_cgroup", "other_cgroup", "kernel", "wakeup", "unattributed"]
        .map(|cause| ns(&summary, &format!("/threads_time/waited/{cause}_ns")));
    let sum = ns(&summary, "/threads_time/on_cpu_ns")
        + parts.iter().sum::<u64>()
        + blocked.values().filter_map(Value::as_u64).sum::<u64>();
    assert_eq!(sum, whole, "{summary}");
    assert!(blocked["sleeping"].as_u64() >= Some(290 * MS), "{summary}");
}

#[test]
fn without_bpf_it_still_runs_and_says_so() {
    let output = run(&["stat", "--mode", "coarse", "--", "sh", "-c", "echo out; exit 4"]);
    assert_eq!(output.status.code(), Some(4));
    assert_eq!(stdout(&output), "out\n");
    let said = stderr(&output);
    assert!(said.contains("Coarse: /proc tells the sum of waits") && said.contains("not known"), "{said}");
    assert!(!said.contains("outlived"), "it has ended itself: {said}");
}

#[test]
fn without_privilege_it_runs_coarsely_and_without_a_cgroup_and_says_both() {
    let (_dir, path) = for_everyone();
    let output = Command::new(&path)
        .args(["stat", "--", "sh", "-c", "id -u; exit 4"])
        .uid(65_534)
        .gid(65_534)
        .output();
    let output = output.expect("it runs");
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(4), "65534\n"), "{}", stderr(&output));
    let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["going on coarse", "No cgroup can be made in", "run it as root", "It ended with exit code 4"]
    {
        assert!(said.contains(part), "{part:?} is not in {said}");
    }
}

#[test]
fn without_a_cgroup_of_its_own_it_is_followed_by_its_forks_and_that_is_said() {
    // As where /sys is mounted read-only, in a mount namespace of its own.
    let dir = Dir::new("readonly");
    let file = dir.file("summary");
    let Some(parent) = unified() else { return assert_eq!(stat("true").0["own_cgroup"], Value::Null) };
    let mount = CgroupMounts::read(Path::new("/")).unified.expect("found above");
    assert!(parent.starts_with(&mount));
    let script = format!(
        "mount --make-rprivate / && mount -o remount,bind,ro {} && exec {} stat --json -o {file} -- sh -c '{BUSY} busy 200000; exit 6'",
        mount.display(),
        cgscope().get_program().to_string_lossy(),
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("unshare runs");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("a summary")).expect("an object");
    assert_eq!((&summary["own_cgroup"], &summary["cpu"]["of"]), (&Value::Null, &Value::from("waited_for")));
    let remark = summary["remarks"][0].as_str().expect("a remark");
    assert!(
        remark.contains("Read-only file system") && remark.contains("followed by their forks alone"),
        "{remark}"
    );
    assert!(ns(&summary, "/threads_time/on_cpu_ns") > 50 * MS, "{summary}");
}

#[test]
fn what_cannot_be_is_said_before_anything_is_run() {
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
    assert_eq!(fs::read_to_string(&letter).expect("it is there"), "dear all");
}
