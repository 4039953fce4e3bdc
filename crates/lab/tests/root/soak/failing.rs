//! System calls that fail, by `strace`: each command ends in time, with a sentence if it could not do its work.

use std::{
    process::{Command, Output, Stdio},
    time::{Duration, Instant},
};

use oorandom::Rand32;

use crate::{bench::cgscope, files::Dir, serve::Daemon};

/// A command that could not do its work ends within this time.
const PATIENCE: Duration = Duration::from_secs(30);
/// Places at which each call of each command fails.
const PLACES: u32 = 4;

const CALLS: [(&str, &[&str]); 5] = [
    ("bpf", &["ENOMEM", "EPERM", "EAGAIN"]),
    ("openat", &["EMFILE", "EACCES", "ENOENT", "EIO"]),
    ("read", &["EIO", "EINTR", "EAGAIN"]),
    ("mmap", &["ENOMEM", "EAGAIN"]),
    ("write", &["ENOSPC", "EPIPE", "EIO"]),
];

/// Runs cgscope with a call that fails from its `first` time on at every `step`th time; `step` 0: once.
fn run(call: &str, error: &str, first: u32, step: u32, args: &[&str]) -> (Option<Output>, String) {
    let when = if step == 0 { first.to_string() } else { format!("{first}+{step}") };
    let inject = format!("inject={call}:error={error}:when={when}");
    let program = cgscope().get_program().to_owned();
    let mut command = Command::new("strace");
    command.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={call}"), "-e", &inject]);
    command.arg(program).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let what = format!("cgscope {} with {inject}", args.join(" "));
    let child = command.spawn().expect("strace starts");
    let (pid, begun) = (child.id() as i32, Instant::now());
    let waiting = std::thread::spawn(move || child.wait_with_output());
    while !waiting.is_finished() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(10));
    }
    if !waiting.is_finished() {
        // SAFETY: it has not been reaped. strace ends what it traces.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        return (None, what);
    }
    (Some(waiting.join().expect("it does not panic").expect("strace ends")), what)
}

/// Every command, briefly.
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
    let recording = dir.file("a.rec");
    let recorded = cgscope().args(["record", "-o", &recording, "-i", "0.2", "-d", "1"]).output();
    assert!(recorded.expect("cgscope starts").status.code().is_some_and(|code| code <= 1));
    let mut random = Rand32::new(47);
    let (mut wrong, mut answers) = (Vec::new(), std::collections::BTreeMap::<(String, i32), u32>::new());
    for args in commands(&dir, &recording, &daemon.socket()) {
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        for (call, errors) in CALLS {
            for place in 0..PLACES {
                let error = errors[random.rand_range(0..errors.len() as u32) as usize];
                // Early and late calls, once and again and again.
                let first = 1 + random.rand_range(0..[10, 40, 150, 600][place as usize]);
                let step = if random.rand_range(0..2) == 0 { 0 } else { 1 + random.rand_range(0..30) };
                let (output, what) = run(call, error, first, step, &args);
                let Some(output) = output else {
                    wrong.push(format!("{what}: hangs"));
                    continue;
                };
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let code = output.status.code();
                *answers.entry((args[0].to_owned(), code.unwrap_or(-1))).or_default() += 1;
                let is_killed = !matches!(code, Some(0..=2));
                if is_killed || said.contains("panicked") || code != Some(0) && said.trim().is_empty() {
                    wrong.push(format!("{what}: {:?}: {said}", output.status));
                }
            }
        }
    }
    for ((command, code), count) in &answers {
        println!("{command}: exit code {code}: {count} times");
    }
    assert!(wrong.is_empty(), "{} of these are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
