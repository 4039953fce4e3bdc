//! Recorders that are killed. The file of such a recorder contains all samples from before the kill.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant, SystemTime},
};

use cgscope_record::open;

use crate::{
    bench::{cgscope, json_lines, run, stderr, stdout},
    files::Dir,
    hour::Numbers,
};

/// Starts a recorder, kills it when its file has existed for the time `lived`, and checks the file. Returns how much time before
/// the kill is missing in the recording, or `None` if the recording has no interval.
fn kill_after(lived: Duration, interval_ms: u64, mode: &str, file: &str, in_words: bool) -> Option<Duration> {
    let interval = format!("{interval_ms}ms");
    let mut child = cgscope()
        .args(["record", "-o", file, "-i", &interval, "--mode", mode])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("cgscope starts");
    let begun = Instant::now();
    while !fs::exists(file).expect("a directory of ours") {
        assert!(begun.elapsed() < Duration::from_secs(30), "the recorder did not create its file");
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(lived);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock");
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    let report = run(&["report", "--json", file]);
    assert_eq!(report.status.code(), Some(1), "{lived:?}: {}", stderr(&report));
    let says_so = |said: &str| said.contains("cgscope was killed");
    assert!(says_so(&stderr(&report)), "{lived:?}: {}", stderr(&report));
    if in_words {
        let words = stdout(&run(&["report", file]));
        assert!(says_so(&words), "{lived:?}: {words}");
    }
    let intervals = json_lines(&report);
    let last = intervals.last()?;
    let end = last["start_unix_ns"].as_u64()? + last["duration_ns"].as_u64()?;
    Some(now.saturating_sub(Duration::from_nanos(end)))
}

/// Kills recorders at random moments: during the first sample, during a key frame, during a write, or between samples.
fn kill_at_random(times: u64, within_ms: u64, interval_ms: u64, mode: &str) {
    let dir = Dir::new("kill");
    let mut numbers = Numbers(times);
    let (mut with_intervals, mut late) = (0, 0);
    for i in 0..times {
        let lived = Duration::from_micros(numbers.below(within_ms * 1_000));
        let file = dir.file(&format!("{i}.rec"));
        // The text report depends only on the file, so it is enough to check the report for one file in ten.
        let Some(missing) = kill_after(lived, interval_ms, mode, &file, i % 10 == 0) else { continue };
        with_intervals += 1;
        // At most one interval and the duration of one sample can be missing. On a busy machine, more can be missing, because the
        // sample can be late.
        late += u64::from(missing > Duration::from_millis(2 * interval_ms + 20));
        assert!(
            missing < Duration::from_millis(2 * interval_ms + 500),
            "{missing:?} are missing after {lived:?}"
        );
    }
    assert!(with_intervals >= times * 2 / 3, "{with_intervals} of {times} files had an interval");
    assert!(late <= times / 10, "{late} of {times} files lacked more than the last interval");
}

#[test]
#[ignore = "all CPUs: asserts how late a sample is"]
fn a_kill_with_bpf_at_any_instant_loses_at_most_the_last_interval() {
    kill_at_random(9, 1_000, 100, "bpf");
}

mod long {
    #[test]
    #[ignore = "all CPUs: asserts how late a sample is"]
    fn a_hundred_kills_each_lose_at_most_the_last_interval() {
        super::kill_at_random(100, 400, 20, "coarse");
        super::kill_at_random(30, 1_000, 100, "bpf");
    }
}

fn time_to_begin(file: &str) -> Duration {
    let begun = Instant::now();
    let mut child = start(file);
    while !fs::exists(file).expect("a directory of ours") {
        assert!(begun.elapsed() < Duration::from_secs(30), "the recorder did not create its file");
        thread::sleep(Duration::from_micros(200));
    }
    let took = begun.elapsed();
    child.kill().expect("a child of ours");
    child.wait().expect("a child of ours");
    took
}

fn start(file: &str) -> Child {
    let mut command = cgscope();
    command.args(["record", "-o", file, "-i", "20ms", "--mode", "coarse"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the command starts")
}

#[test]
fn a_kill_while_the_file_is_created_leaves_no_file_or_a_readable_one() {
    let dir = Dir::new("begun");
    let within_us = (1..=3).map(|i| time_to_begin(&dir.file(&format!("first-{i}.rec"))).as_micros()).max();
    let mut within_us = within_us.expect("three times") as u64 * 3 / 2;
    let mut numbers = Numbers(40);
    let mut begun = 0;
    for i in 0..40 {
        let file = dir.file(&format!("{i}.rec"));
        let there = (i % 2 == 0).then_some("yesterday");
        if let Some(there) = there {
            fs::write(&file, there).expect("a directory of ours");
        }
        let mut child = start(&file);
        let lived = Duration::from_micros(numbers.below(within_us));
        thread::sleep(lived);
        child.kill().expect("a child of ours");
        child.wait().expect("a child of ours");

        let old = fs::read_to_string(format!("{file}.old")).ok();
        let kept = fs::read(&file).is_ok_and(|bytes| Some(&bytes[..]) == there.map(str::as_bytes));
        assert!(
            there.is_none() || kept != (old.as_deref() == there),
            "{lived:?}: the older file exists exactly once"
        );
        if fs::exists(&file).expect("a directory of ours") && !kept {
            begun += 1;
            let opened = open(&file).map(drop);
            assert!(opened.is_ok(), "{lived:?}: {opened:?}");
            within_us = within_us * 9 / 10;
        } else {
            // Adapt the time until the kill, because a recorder creates its file later if the machine is busy.
            within_us = within_us * 11 / 10 + 1;
        }
    }
    assert!(
        (4..=36).contains(&begun),
        "{begun} of 40 recorders had created their file, the last ones within {within_us} us"
    );
}
