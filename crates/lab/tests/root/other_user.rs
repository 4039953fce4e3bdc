//! CMD (after `--`) as another user and as the user of cgscope: which open files CMD inherits, and how it ends.

use std::{
    fs,
    os::fd::{AsRawFd, FromRawFd, OwnedFd},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use crate::{
    bench::{cgscope, patience, stderr, stdout},
    files::Dir,
    pty::Pty,
};

/// Returns, for each subcommand that can run a CMD, the arguments before `--`.
fn commands(file: &str) -> [Vec<&str>; 5] {
    [
        vec!["record", "-q", "-o", file],
        vec!["stat"],
        vec!["top", "-b", "-d", "0.5"],
        vec!["hist"],
        vec!["sample"],
    ]
}

fn open_in(command: &mut Command) -> Vec<u32> {
    let output = command.output().expect("the command starts");
    let mut open: Vec<u32> = stderr(&output).lines().filter_map(|line| line.parse().ok()).collect();
    open.sort_unstable();
    assert!(open.starts_with(&[0, 1, 2]), "{}", stderr(&output));
    open
}

#[test]
fn a_command_inherits_no_descriptor_of_cgscope_and_a_command_of_another_user_none_of_ours() {
    const LIST: [&str; 3] = ["sh", "-c", "exec >&2; ls /proc/$$/fd; :"];
    let dir = Dir::new("descriptors");
    let file = dir.file("a.rec");
    // Open a file that only root can read, with a descriptor that stays open across exec.
    let secret = fs::File::open("/etc/shadow").expect("root");
    // SAFETY: `dup` returns a new descriptor that nothing else owns.
    let _copy = unsafe { OwnedFd::from_raw_fd(libc::dup(secret.as_raw_fd())) };
    let ours = open_in(Command::new(LIST[0]).args(&LIST[1..]));
    assert!(ours.len() > 3, "{ours:?}");
    for before in commands(&file) {
        let open = open_in(cgscope().args(&before).arg("--").args(LIST));
        assert_eq!(open, ours, "{before:?}");
        let open = open_in(cgscope().args(&before).args(["--user", "nobody", "--"]).args(LIST));
        assert_eq!(open, [0, 1, 2], "{before:?}");
    }
}

#[test]
fn another_user_gets_only_harmless_variables_of_our_environment() {
    let output = cgscope()
        .args(["record", "-q", "-o", "/dev/null", "--user", "nobody", "--", "env"])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("LC_ALL", "C.UTF-8")
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .env("LD_LIBRARY_PATH", "/root/lib")
        .env("HOME", "/root")
        .output()
        .expect("cgscope starts");
    let mut names: Vec<_> = stdout(&output)
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, _)| name.to_owned())
        .collect();
    names.sort();
    assert_eq!(names, ["HOME", "LC_ALL", "LOGNAME", "PATH", "SHELL", "USER"], "{}", stderr(&output));
    assert!(stdout(&output).contains("USER=nobody") && !stdout(&output).contains("HOME=/root"));
}

/// Shell script that prints the number of the controlling terminal, the file behind standard input, and the open flags of
/// standard output and standard error.
const TERMINAL: &str = "echo tty=$(cut -d' ' -f7 /proc/self/stat),in=$(readlink /proc/$$/fd/0),\
    out=$(sed -n 's/^flags:.*\\(.\\)$/\\1/p' /proc/$$/fdinfo/1 | tr -d '\\n'),\
    err=$(sed -n 's/^flags:.*\\(.\\)$/\\1/p' /proc/$$/fdinfo/2 | tr -d '\\n'). >&2";

#[test]
fn another_user_cannot_push_characters_into_our_terminal_or_read_from_it() {
    let dir = Dir::new("terminal");
    let file = dir.file("a.rec");
    for before in commands(&file) {
        let mut args = before.clone();
        args.extend(["--user", "nobody", "--", "sh", "-c", TERMINAL]);
        let mut pty = Pty::start_in(&args, [100, 30], true, &[]);
        // CMD must have no controlling terminal (`tty=0`), so that its `TIOCSTI` fails. Its standard output and standard error
        // must be O_WRONLY (1).
        pty.wait_for("tty=0,in=/dev/null,out=1,err=1.");
        pty.wait(patience(10_000));
    }
}

/// Returns whether a process runs. A zombie does not count.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

#[test]
fn ctrl_c_ends_the_command_of_another_user() {
    let dir = Dir::new("ctrl-c");
    let file = dir.file("a.rec");
    for before in commands(&file) {
        let mut args = before.clone();
        // The command line contains `pi'd=` instead of `pid=`, so that an echo of the command line does not match.
        args.extend(["--user", "nobody", "--", "sh", "-c", "echo pi'd='$$. >&2; exec sleep 20"]);
        let mut pty = Pty::start_in(&args, [100, 30], true, &[]);
        pty.wait_for("pid=");
        while !pty.text().ends_with(".\r\n") {
            assert!(pty.take(patience(5_000)), "{}", pty.text());
        }
        let text = pty.text();
        let pid = text.rsplit("pid=").next().and_then(|rest| rest.split('.').next()).expect("a pid");
        assert!(runs(pid), "{text}");
        pty.press("\x03");
        pty.wait(patience(10_000));
        let end = Instant::now() + patience(2_000);
        while runs(pid) {
            assert!(Instant::now() < end, "{before:?}: the command still runs: {}", pty.text());
            thread::sleep(Duration::from_millis(20));
        }
    }
}
