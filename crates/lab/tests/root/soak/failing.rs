//! Commands whose system calls fail, because `strace` injects errors. Each command must end in time. If a command could not do
//! its work, it must print an error message.

use std::{
    fs::{self, File},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use cgscope_made_up::demand::Limited;
use cgscope_record::{FileWriter, Header, Reason};
use oorandom::Rand32;

use crate::{bench::cgscope, files::Dir, serve::Daemon};

/// Maximum run time of a command with failing system calls.
const PATIENCE: Duration = Duration::from_secs(30);
/// Number of test runs for each combination of command and system call. In each run, another call is the first one that fails.
const PLACES: u32 = 4;

const CALLS: [(&str, &[&str]); 5] = [
    ("bpf", &["ENOMEM", "EPERM", "EAGAIN"]),
    ("openat", &["EMFILE", "EACCES", "ENOENT", "EIO"]),
    ("read", &["EIO", "EINTR", "EAGAIN"]),
    ("mmap", &["ENOMEM", "EAGAIN"]),
    ("write", &["ENOSPC", "EPIPE", "EIO"]),
];

/// The exit code of a command, or `None` if a signal ended it, and its output.
struct Ended {
    code: Option<i32>,
    out: String,
    said: String,
}

/// Runs cgscope while calls of the system call `call` fail with `error`. The first failing call is number `first`, and after
/// that, every `step`th call fails. If `step` is 0, only one call fails. Returns `None` if the command does not end.
///
/// A write fails only if it goes to standard output or to the file `out`, never if it wakes a thread of cgscope.
fn run(
    dir: &Dir,
    call: &str,
    error: &str,
    (first, step): (u32, u32),
    args: &[&str],
) -> (Option<Ended>, String) {
    let when = if step == 0 { first.to_string() } else { format!("{first}+{step}") };
    let inject = format!("inject={call}:error={error}:when={when}");
    let [out, said] = ["stdout", "stderr"].map(|name| dir.file(name));
    // Remove the file of the previous run, because an export does not replace a file.
    let _ = fs::remove_file(dir.file("out"));
    let file = |path: &str| File::create(path).expect("a directory of ours");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    if call == "write" {
        command.args(["-P", &out, "-P", &dir.file("out")]);
    }
    command.arg(cgscope().get_program()).args(args);
    command.stdin(Stdio::null()).stdout(file(&out)).stderr(file(&said));
    let what = format!("cgscope {} with {inject}", args.join(" "));
    let mut child = command.spawn().expect("strace starts");
    let begun = Instant::now();
    let status = loop {
        match child.try_wait().expect("a child of ours") {
            Some(status) => break status,
            None if begun.elapsed() > PATIENCE => {
                // SAFETY: the child has not been reaped. When strace ends, the traced processes end too.
                unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
                child.wait().expect("a child of ours");
                return (None, what);
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    let read = |path| String::from_utf8_lossy(&fs::read(path).expect("just written")).into_owned();
    (Some(Ended { code: status.code(), out: read(out), said: read(said) }), what)
}

/// Returns the number of calls of `call` before `main` starts. These calls must not fail, because the runtime of Rust would
/// panic.
fn before_main(dir: &Dir, call: &str) -> u32 {
    let calls = dir.file("calls");
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", &calls, "-e", &format!("trace={call}")]).arg(cgscope().get_program());
    assert!(command.arg("--version").output().expect("strace starts").status.success());
    fs::read_to_string(calls).expect("strace wrote it").lines().count() as u32
}

fn commands(dir: &Dir, recording: &str, socket: &str) -> Vec<Vec<String>> {
    let line = |line: &str| -> Vec<String> {
        let put = |word: &str| match word {
            "OUT" => dir.file("out"),
            "REC" => recording.to_owned(),
            "SOCKET" => socket.to_owned(),
            word => word.to_owned(),
        };
        line.split_whitespace().map(put).collect()
    };
    [
        "hist 0.2 2",
        "stat 0.2 2",
        "top -b -d 0.2 -n 2",
        "sample -d 0.3",
        "record -o OUT -i 0.2 -d 0.6",
        "doctor",
        "hist 0.2 2 --connect SOCKET",
        "report REC",
        "export REC --format csv -o OUT",
        "diff REC REC",
        "whatif REC",
    ]
    .map(line)
    .to_vec()
}

#[test]
#[ignore = "all CPUs: runs a command several hundred times"]
fn a_failing_system_call_gives_a_sentence_and_never_a_panic_or_a_hang() {
    let dir = Dir::new("failing");
    let daemon = Daemon::start();
    // The commands need a recording that contains tasks, and the CPU demand of cgroups with a quota.
    let recording = dir.file("a.rec");
    let mut writer = FileWriter::create(&recording, &Header::default()).expect("a directory of ours");
    Limited::new(5).take(30).for_each(|sample| writer.sample(&sample).expect("a valid sample"));
    writer.end(0, Reason::Finished).expect("a directory of ours");
    let mapped = before_main(&dir, "mmap");
    let mut random = Rand32::new(47);
    let (mut wrong, mut answers) = (Vec::new(), std::collections::BTreeMap::<(String, i32), u32>::new());
    for args in commands(&dir, &recording, &daemon.socket()) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for (call, errors) in CALLS {
            for place in 0..PLACES {
                let error = errors[random.rand_range(0..errors.len() as u32) as usize];
                // Let early and late calls fail, once or repeatedly.
                let first = 1 + random.rand_range(0..[10, 40, 150, 600][place as usize]);
                let step = if random.rand_range(0..2) == 0 { 0 } else { 1 + random.rand_range(0..30) };
                let first = first + if call == "mmap" { mapped } else { 0 };
                let (ended, what) = run(&dir, call, error, (first, step), &args);
                let Some(Ended { code, out, said }) = ended else {
                    wrong.push(format!("{what}: hangs"));
                    continue;
                };
                *answers.entry((args[0].to_owned(), code.unwrap_or(-1))).or_default() += 1;
                let is_killed = !matches!(code, Some(0..=2));
                // `doctor` and `whatif` print findings and refusals to standard output.
                let is_answer = ["doctor", "whatif"].contains(&args[0]) && !out.trim().is_empty();
                let is_silent = said.trim().is_empty() && !is_answer;
                if is_killed || said.contains("panicked") || code != Some(0) && is_silent {
                    wrong.push(format!("{what}: exit code {code:?}: {said}"));
                }
            }
        }
    }
    for ((command, code), count) in &answers {
        println!("{command}: exit code {code}: {count} times");
    }
    // Each command must succeed at least once, because in most runs the failing call is never made or is not essential.
    for args in commands(&dir, &recording, &daemon.socket()) {
        let works = [0, 1].iter().any(|code| answers.contains_key(&(args[0].clone(), *code)));
        assert!(works, "{args:?} never did its work");
    }
    assert!(wrong.is_empty(), "{} of these are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
