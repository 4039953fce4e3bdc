//! A command behaves in the same way with and without `cgscope stat`: exit code, streams, signals, terminal.

use std::{
    fs,
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    thread,
};

use crate::{
    bench::{cgscope, patience, run, stderr, stdout},
    files::Dir,
    pty::Pty,
    stat_command::{Running, kill, leftovers, wait_until},
    terminal::Terminal,
};

#[test]
fn cgscope_returns_the_exit_code_of_the_command() {
    for (command, code, said) in [
        (&["true"][..], 0, "It succeeded (exit code 0)"),
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
        let child = cgscope()
            .args(&args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command starts");
        let pid = child.id();
        let output = child.wait_with_output().expect("a child of ours");
        assert_eq!(output.status.code(), Some(code), "{command:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(said), "{command:?}: {}", stderr(&output));
        assert_eq!(stdout(&output), "", "{command:?}");
        assert_eq!(leftovers(pid), [""; 0].map(PathBuf::from), "{command:?}");
    }
}

#[test]
fn input_and_output_of_the_command_are_not_changed() {
    let bytes: Vec<u8> = (0..1 << 20).map(|at: u32| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut child = cgscope()
        .args(["stat", "--", "sh", "-c", "echo mine >&2; exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("cgscope starts");
    let mut stdin = child.stdin.take().expect("its input is ours");
    let sent = bytes.clone();
    let writer = thread::spawn(move || stdin.write_all(&sent).expect("the command reads all input"));
    let output = child.wait_with_output().expect("a child of ours");
    writer.join().expect("all was written");
    assert!(output.stdout == bytes, "received {} of {} bytes", output.stdout.len(), bytes.len());
    let said = stderr(&output);
    assert!(said.starts_with("mine\n") && said.contains("\ncgscope stat: sh -c"), "{said}");
}

#[test]
fn the_command_has_the_same_signal_settings_as_without_cgscope() {
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
    let ignoring = |program: &str, before: &str| {
        let script = format!("trap '' HUP USR1; exec {program} {before} grep SigIgn /proc/self/status");
        let output = Command::new("sh").args(["-c", &script]).output().expect("sh runs");
        signals(&String::from_utf8_lossy(&output.stdout))
    };
    let program = cgscope().get_program().to_string_lossy().into_owned();
    assert_eq!(ignoring(&program, "stat --"), ignoring("env", ""));
}

/// Returns the signal sets in `/proc/PID/status`, without signals 32 and 33, which the C library reserves. Each program with
/// threads has handlers for these two signals, and `execve` resets the handlers.
fn signals(status: &str) -> Vec<(String, u64)> {
    let sets = status.lines().filter_map(|line| line.split_once(":\t"));
    let set = |text: &str| u64::from_str_radix(text, 16).expect("a set") & !(0b11 << 31);
    let sets: Vec<_> = sets.map(|(name, text)| (name.to_owned(), set(text))).collect();
    assert!(!sets.is_empty(), "{status}");
    sets
}

#[test]
fn signals_sent_only_to_cgscope_are_passed_on_to_the_command() {
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
fn a_key_that_interrupts_reaches_the_command_once_and_the_summary_is_still_printed() {
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
fn the_terminal_belongs_to_the_command_and_the_job_stops_and_continues_as_one() {
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
    wait_until("the continued job", || terminal_job(shell.trim()).iter().all(|(_, state)| *state != 'T'));
    terminal.line("gold");
    terminal.wait_for("it is gold");
    terminal.wait_for("It ended with exit code 9");
    terminal.line("echo $?");
    terminal.wait_for("\n9");
}

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
