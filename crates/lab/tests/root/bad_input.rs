//! Error messages and exit codes. For each error, cgscope prints one sentence and returns the documented exit code.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use crate::{
    bench::{NO_SETTINGS, SETTINGS, cgscope, json_lines, patience, run, stderr, stdout},
    files::{Dir, copy_program},
    load::Load,
};

fn programs() -> Vec<String> {
    let output = Command::new("bpftool").args(["prog", "show"]).output().expect("bpftool runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let ids = text
        .lines()
        .filter(|line| line.contains(": tracing"))
        .map(|line| line.split(':').next().unwrap_or(""));
    ids.map(str::to_owned).collect()
}

/// Returns the ids of the BPF programs that any process has open, directly or through a BPF link. Some of these programs can
/// belong to other tests that run at the same time.
fn held() -> Vec<String> {
    let processes = fs::read_dir("/proc").expect("processes").flatten();
    let descriptors = processes.filter_map(|process| fs::read_dir(process.path().join("fdinfo")).ok());
    let texts =
        descriptors.flat_map(Iterator::flatten).filter_map(|file| fs::read_to_string(file.path()).ok());
    texts
        .filter_map(|text| {
            Some(text.lines().find_map(|line| line.strip_prefix("prog_id:"))?.trim().to_owned())
        })
        .collect()
}

/// Waits until all new programs are unloaded. The kernel unloads a BPF program a moment after the last process has closed it.
fn assert_nothing_stays_loaded(before: &[String]) {
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        let held = held();
        let Some(id) = programs().into_iter().find(|id| !before.contains(id) && !held.contains(id)) else {
            return;
        };
        assert!(Instant::now() < end, "program {id} stays loaded");
        thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn assert_refused(output: &Output, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(stdout(output), "", "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
}

pub(crate) fn assert_one_sentence(output: &Output, words: &[&str]) {
    assert_refused(output, words);
    assert_eq!(stderr(output).lines().count(), 1, "{}", stderr(output));
}

/// Runs a shell line, with the command under test as `$0`.
fn shell(line: &str) -> Output {
    let mut shell = Command::new("sh");
    shell.args(["-c", line]).arg(cgscope().get_program()).env(SETTINGS, NO_SETTINGS);
    shell.output().expect("sh runs")
}

#[test]
fn missing_targets_are_named_in_the_error() {
    for (args, words) in [
        (&["--pid", "4194303"][..], &["no process 4194303"][..]),
        (&["--tid", "4194303"], &["no thread 4194303"]),
        (&["--cgroup", "/no/such"], &["no cgroup /no/such", "/sys/fs/cgroup"]),
        (&["--unit", "no-such"], &["no cgroup of unit no-such.service", "/sys/fs/cgroup"]),
        (&["--unit", "/"], &["--unit takes the name of a unit"]),
        (&["--comm", "a("], &["regular expression", "unclosed group"]),
        (&["--cpu", "1-"], &["--cpu takes a list"]),
        (&["--node", "x"], &["--node takes a list"]),
        (&["--cpu", "0,8191"], &["no CPU 8191", "the online CPUs are 0"]),
        (&["--node", "1023"], &["no node 1023", "the nodes with CPUs are 0"]),
        (&["--memory"], &["--memory reads only chosen processes"]),
        (&["--", "/no/such/program"], &["No such file"]),
        (&["--", "/etc/passwd"], &["Permission denied"]),
        (&["--user", "no-such-user", "--", "true"], &["no user", "no-such-user"]),
    ] {
        let args: Vec<&str> = ["hist", "1", "1"].iter().chain(args).copied().collect();
        assert_one_sentence(&run(&args), words);
    }
}

#[test]
fn a_command_that_cannot_be_followed_does_not_stay() {
    let marker = format!("{}.5", 100_000 + std::process::id());
    let output = run(&["hist", "--cgroup", "/no/such", "--", "sleep", &marker]);
    assert_eq!(output.status.code(), Some(2));
    let end = Instant::now() + Duration::from_secs(5);
    let is_left = || {
        let processes = fs::read_dir("/proc").expect("processes").flatten();
        let lines = processes.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.into_iter().any(|line| String::from_utf8_lossy(&line).contains(&marker))
    };
    while is_left() {
        assert!(Instant::now() < end, "the process that should execute the command still waits");
        thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_thread_id_is_not_accepted_as_a_process_id() {
    let (load, _out) = Load::workload(&["sleep", "2", "30"], None);
    let threads = fs::read_dir(format!("/proc/{}/task", load.pid())).expect("threads");
    let ids = threads.flatten().map(|thread| thread.file_name().to_string_lossy().into_owned());
    let tid = ids.into_iter().find(|tid| *tid != load.pid().to_string()).expect("a second thread");
    assert_one_sentence(&run(&["hist", "1", "1", "--pid", &tid]), &["is a thread of process", "--tid"]);
}

#[test]
fn invalid_arguments_are_refused_before_the_measurement_starts() {
    let before = programs();
    for args in [
        &["hist", "0"][..],
        &["hist", "abc"],
        &["hist", "1e99"],
        &["hist", ""],
        &["hist", "--", "--interval"],
        &["hist", "1", "0"],
        &["hist", "1", "-1"],
        &["hist", "--no-such-flag"],
        &["hist", "-p", "x"],
        &["hist", "-p", "1", "--", "true"],
        &["hist", "--user", "root"],
        &["hist", "-P", "-L"],
        &["top", "--json"],
        &["top", "-d", "-3"],
        &["record", "--duration", "never"],
        &["report"],
        &["no-such-command"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{args:?}");
        assert!(!stderr(&output).is_empty(), "{args:?}");
    }
    assert_nothing_stays_loaded(&before);
}

/// Copies the command to a directory where an unprivileged user can execute it.
pub(crate) fn for_everyone() -> (Dir, PathBuf) {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new("everyone");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a directory of ours");
    let path = dir.path().join("cgscope");
    copy_program(cgscope().get_program(), &path);
    (dir, path)
}

#[test]
fn without_root_the_missing_capability_and_the_remedy_are_named() {
    let (_dir, path) = for_everyone();
    let bpf = ["hist", "--mode", "bpf", "1", "1"];
    let output = Command::new(&path).args(bpf).uid(65_534).gid(65_534).output().expect("the command starts");
    assert_one_sentence(&output, &["CAP_BPF and CAP_PERFMON", "sudo", "setcap"]);
    let output = Command::new(&path)
        .args(["doctor", "--json"])
        .uid(65_534)
        .gid(65_534)
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(1), "the coarse mode works without root");
    assert!(json_lines(&output).iter().any(|line| line["level"] == "missing"), "{}", stdout(&output));
}

#[test]
fn each_missing_capability_is_named() {
    for (dropped, named) in [("-bpf,-sys_admin", "CAP_BPF"), ("-perfmon,-sys_admin", "CAP_PERFMON")] {
        let output =
            shell(&format!("setpriv --bounding-set {dropped} --inh-caps -all \"$0\" hist --mode bpf 1 1"));
        assert_one_sentence(&output, &[named, "not held"]);
    }
}

#[test]
fn without_btf_the_kernel_option_is_named() {
    let output = shell(
        "unshare --mount sh -c 'mount -t tmpfs none /sys/kernel/btf && exec \"$0\" hist --mode bpf 1 1' \"$0\"",
    );
    assert_one_sentence(&output, &["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"]);
}

#[test]
fn a_target_that_exits_leaves_its_result_and_exit_1() {
    let (mut load, _out) = Load::workload(&["burn", "3", "60", "pin"], None);
    let pid = load.pid().to_string();
    let output = thread::scope(|scope| {
        let run = scope.spawn(|| run(&["hist", "-p", &pid]));
        thread::sleep(patience(2_500));
        load.kill();
        run.join().expect("a result")
    });
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("distribution"), "{}", stdout(&output));
    assert!(stderr(&output).contains("the target has exited"), "{}", stderr(&output));
}

/// Stops the child before it sends these signals, so that all signals are pending when the child handles the first one.
pub(crate) fn signal_at_once(pid: u32, signals: &[i32]) {
    for signal in [&[libc::SIGSTOP], signals, &[libc::SIGCONT]].concat() {
        // SAFETY: the child is ours and has not been reaped.
        assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
    }
}

fn interrupted(signals: &[i32]) -> Output {
    let child = cgscope()
        .arg("hist")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the command starts");
    // Wait until cgscope is attached and has measured a whole interval.
    thread::sleep(patience(2_500));
    signal_at_once(child.id(), signals);
    child.wait_with_output().expect("a child of ours")
}

#[test]
fn ctrl_c_and_sigterm_print_the_result_so_far() {
    let before = programs();
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let output = interrupted(&[signal]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stdout(&output).contains("distribution"), "{}", stdout(&output));
    }
    assert_nothing_stays_loaded(&before);
}

#[test]
fn a_second_ctrl_c_ends_at_once_and_says_what_is_missing() {
    let before = programs();
    // The second signal is SIGTERM, because the kernel would merge two pending SIGINT. `hist` handles SIGTERM like Ctrl-C.
    let output = interrupted(&[libc::SIGINT, libc::SIGTERM]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("interrupted twice"), "{}", stderr(&output));
    assert!(stdout(&output).contains("distribution"), "the measured part is printed");
    assert_nothing_stays_loaded(&before);
}

#[test]
fn a_closed_pipe_on_standard_output_is_success() {
    let output = shell("{ \"$0\" hist 0.1 30; echo ended with $? >&2; } | head -n 1");
    assert!(stderr(&output).contains("ended with 0"), "{}", stderr(&output));
}

#[test]
fn standard_output_has_only_the_result_and_no_control_codes() {
    let output = run(&["hist", "-v", "--json", "0.2", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(json_lines(&output).len(), 3);
    assert!(stderr(&output).contains("attached after"));
    for args in [&["hist", "0.2", "1"][..], &["top", "-b", "-n", "1", "-d", "0.2"], &["doctor"], &["--help"]]
    {
        let output = run(args);
        assert!(!stdout(&output).contains('\x1b'), "{args:?}");
    }
}

#[test]
fn a_full_disk_on_standard_output_is_an_error() {
    let output = shell("\"$0\" hist 0.2 1 > /dev/full");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("standard output"), "{}", stderr(&output));
}

#[test]
fn the_doctor_finds_no_fault_on_this_host() {
    let output = run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", stdout(&output));
    let findings = json_lines(&run(&["doctor", "--json"]));
    assert!(findings.len() > 10);
    for key in ["topic", "level", "finding", "effect", "remedy"] {
        assert!(findings.iter().all(|finding| finding.get(key).is_some()), "{key}");
    }
}

#[test]
fn a_command_runs_as_the_given_user_and_is_followed_with_its_children() {
    let output =
        run(&["hist", "--json", "--user", "nobody", "--", "sh", "-c", "id -u >&2; (sleep 0.1 & wait)"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("65534"), "{}", stderr(&output));
    let interval = json_lines(&output).remove(0);
    assert!(interval["total"]["count"].as_u64().expect("a count") > 2, "{interval}");
}
