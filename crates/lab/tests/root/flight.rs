//! The flight recorder: its ring of recent samples, triggers, saved parts of the ring, and the files that remain if the recorder
//! is killed.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use cgscope_model::{Interval, Wait};
use cgscope_record::{Ending, Reason};
use serde_json::Value;

use crate::{
    bench::{OF_THE_HOST, assert_ended, assert_measured, json_lines, patience, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
    recording::{Recording, read, reason, recordings},
};

/// Returns the throttled time of a cgroup as a share of the time in which its tasks ran or waited.
fn throttled_share(interval: &Value, cgroup: &str) -> f64 {
    let groups = interval["cgroups"].as_array().expect("cgroups");
    let Some(group) = groups.iter().find(|group| group["path"] == cgroup) else { return 0.0 };
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let waited = number(&group["wait"]["total_ns"]);
    number(&group["wait"]["by_cause"]["throttled_ns"]) / (waited + number(&group["usage_ns"])).max(1.0)
}

fn ns(interval: &Value, name: &str) -> u64 {
    interval[name].as_u64().expect("a time")
}

#[test]
fn a_throttled_loop_fires_a_trigger_and_the_time_around_it_is_saved() {
    let dir = Dir::new("throttled");
    let cgroup = Cgroup::new("flight");
    // Give the cgroup a high weight, so that only the quota stops the load, even on a busy machine.
    cgroup.favour();
    cgroup.limit(10_000, 100_000);
    let (file, trigger) = (dir.file("f.rec"), format!("throttled({})>20%", cgroup.name));
    let mut recording = Recording::start(&[
        "-o",
        &file,
        "-i",
        "200ms",
        "--keep",
        "3",
        "--after",
        "2",
        "--triggers",
        "1",
        "--trigger",
        &trigger,
    ]);
    recording.wait_for("the trigger works once a task enters it");
    thread::sleep(patience(5_000));
    let load = Load::busy_loop(Some(&cgroup));
    recording.wait_for("saving the 3.00s before and the 2.00s after");
    let (code, said) = recording.wait();
    drop(load);
    assert_ended(code, &said, OF_THE_HOST);
    assert!(said.contains(&format!("{trigger}: ")) && said.contains("tasks were throttled"), "{said}");
    assert!(!Path::new(&dir.file("f.rec.ring")).exists(), "the ring is removed: {said}");

    let (samples, ending) = read(Path::new(&file));
    assert!(samples.is_sorted_by(|a, b| a.mono_ns < b.mono_ns), "each Sample occurs once");
    let Some(Reason::Triggered(words)) = reason(&ending) else { panic!("{ending}") };
    assert!(words.starts_with(&trigger), "{words}");

    let report = run(&["report", &file]);
    assert_measured(&report);
    let text = stdout(&report);
    assert!(text.contains("a trigger saved this part") && text.contains(&trigger), "{text}");
    let findings = text.split("finding").nth(1).expect("a finding");
    assert!(findings.contains(&cgroup.name) && findings.contains("throttled"), "{text}");

    let intervals = json_lines(&run(&["report", "--json", &file]));
    let at = intervals.iter().position(|interval| throttled_share(interval, &cgroup.name) > 0.2);
    let (at, last) = (at.expect("the interval that triggered"), intervals.len() - 1);
    let before = ns(&intervals[at], "start_unix_ns") - ns(&intervals[0], "start_unix_ns");
    let ends = |at: usize| ns(&intervals[at], "start_unix_ns") + ns(&intervals[at], "duration_ns");
    let after = ends(last) - ends(at);
    // The bounds are wide, because these are times of the wall clock, which can be adjusted during the test.
    assert!(before >= 2_990_000_000 && after >= 1_990_000_000, "{before} ns before, {after} ns after");
    assert!(before <= 4_500_000_000 && after <= 3_500_000_000, "{before} ns before, {after} ns after");
}

/// Returns the p99 of a cgroup's waits in an interval, or `None` for fewer than a hundred waits. The result is never above the
/// true p99.
fn p99_ns(interval: &Interval, cgroup: &str) -> Option<u64> {
    let (id, _) = interval.cgroups.iter().find(|(_, path)| **path == *cgroup)?;
    let tasks = interval.tasks.iter().filter(|task| task.reading.cgroup_id == *id).map(|task| &task.wait);
    let exited = interval.exited.iter().filter(|exited| exited.cgroup_id == *id).map(|exited| &exited.wait);
    let mut sum = Wait::default();
    tasks.chain(exited).for_each(|wait| sum.add(wait));
    (sum.count >= 100).then(|| sum.hist.quantile_low_ns(0.99)).flatten()
}

#[test]
fn long_waits_fire_a_trigger_and_short_ones_do_not() {
    const LIMIT_NS: u64 = 50_000_000;
    let dir = Dir::new("p99");
    let cgroup = Cgroup::new("p99");
    cgroup.favour();
    let (file, trigger) = (dir.file("f.rec"), format!("p99({})>50ms", cgroup.name));
    let (short, _out) = Load::workload(&["blink", "2", "60"], Some(&cgroup));
    let args = ["-o", &file, "-i", "500ms", "--keep", "1m", "--after", "1", "--triggers", "1"];
    let mut recording = Recording::start(&[&args[..], &["--trigger", &trigger]].concat());
    recording.wait_for("the first sample takes");
    thread::sleep(patience(3_000));
    // The trigger fires only if half a second has enough waits of 80 ms or more, so start twice as many loops.
    cgroup.limit(20_000, 100_000);
    let (long, _out) = Load::workload(&["burn", "40", "60"], Some(&cgroup));
    recording.wait_for("saving the 1m00s before and the 1.00s after");
    let (code, said) = recording.wait();
    drop((short, long));
    assert_ended(code, &said, OF_THE_HOST);

    let (samples, ending) = read(Path::new(&file));
    let Some(Reason::Triggered(words)) = reason(&ending) else { panic!("{ending}") };
    assert!(words.starts_with(&format!("{trigger}: p99 of ")), "{words}");
    let intervals = samples.windows(2).map(|two| Interval::between(&two[0], &two[1]));
    let p99s: Vec<_> = intervals.map(|interval| p99_ns(&interval, &cgroup.name)).collect();
    let at = p99s.iter().position(|p99| p99.is_some_and(|ns| ns > LIMIT_NS));
    let at = at.unwrap_or_else(|| panic!("no interval is above the limit: {p99s:?}: {said}"));
    assert!(
        p99s[..at].iter().flatten().count() >= 2,
        "intervals before the trigger have waits too: {p99s:?}"
    );
    // The part after the trigger is one second long, so it has at least two more intervals.
    assert!((at + 2..=at + 5).contains(&(p99s.len() - 1)), "triggered at {at}: {p99s:?}: {said}");
}

#[test]
fn sigusr1_saves_the_ring_and_the_recorder_continues() {
    let dir = Dir::new("usr1");
    let file = dir.file("f.rec");
    let mut recording = Recording::start(&["-o", &file, "-i", "100ms", "--keep", "2", "--after", "500ms"]);
    recording.wait_for("the first sample takes");
    thread::sleep(patience(3_000));
    for _ in 0..2 {
        recording.signal(libc::SIGUSR1);
        recording.wait_for("SIGUSR1; saving");
        recording.signal(libc::SIGUSR1);
        recording.wait_for("the part that is being saved already covers this moment");
        recording.wait_for("cgscope: saved ");
    }
    recording.signal(libc::SIGINT);
    let (code, said) = recording.wait();
    assert_ended(code, &said, OF_THE_HOST);
    assert!(said.contains("2 parts saved"), "{said}");
    let files = recordings(dir.path());
    assert_eq!(files.len(), 2, "{files:?}: {said}");
    for file in files {
        let (samples, ending) = read(&file);
        assert_eq!(reason(&ending), Some(&Reason::Triggered("SIGUSR1".into())));
        let length = samples[samples.len() - 1].mono_ns - samples[0].mono_ns;
        assert!((2_500_000_000..4_500_000_000).contains(&length), "{length} ns");
    }
    assert!(!Path::new(&dir.file("f.rec.ring")).exists(), "{said}");
}

#[test]
fn a_part_that_is_incomplete_at_the_end_is_saved_up_to_the_end() {
    let dir = Dir::new("early");
    let file = dir.file("f.rec");
    let mut recording =
        Recording::start(&["-o", &file, "-i", "100ms", "--keep", "1m", "--after", "1h", "--triggers", "1"]);
    recording.wait_for("the first sample takes");
    thread::sleep(patience(500));
    recording.signal(libc::SIGUSR1);
    recording.wait_for("SIGUSR1; saving");
    thread::sleep(patience(500));
    recording.signal(libc::SIGTERM);
    let (code, said) = recording.wait();
    assert_ended(code, &said, OF_THE_HOST);
    let (samples, ending) = read(Path::new(&file));
    assert!(samples.len() >= 8, "{} Samples: {said}", samples.len());
    assert_eq!(reason(&ending), Some(&Reason::Triggered("SIGUSR1".into())));
    assert!(!Path::new(&dir.file("f.rec.ring")).exists(), "{said}");
}

/// Returns the total size of the files in a directory at one moment, bytes. Lists the directory until two successive lists are
/// equal.
fn size(directory: &Path) -> u64 {
    let walk = || -> BTreeMap<OsString, u64> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((entry.file_name(), entry.metadata().ok()?.len()))).collect()
    };
    let mut before = walk();
    loop {
        let now = walk();
        if now == before {
            return now.values().sum();
        }
        before = now;
    }
}

#[test]
fn a_ring_stays_within_its_size_and_time_limits() {
    for (keep, limit) in [("1h", "256K"), ("1s", "1G")] {
        let dir = Dir::new("bounded");
        let file = dir.file("f.rec");
        let mut recording =
            Recording::start(&["-o", &file, "-i", "10ms", "--keep", keep, "--ring-size", limit]);
        let ring = PathBuf::from(dir.file("f.rec.ring"));
        recording.wait_for("the first sample takes");
        if limit == "256K" {
            recording.wait_for("use --ring-size");
        }
        let (end, mut sizes, mut files) = (Instant::now() + patience(3_000), Vec::new(), 0);
        while Instant::now() < end {
            sizes.push(size(&ring));
            files = files.max(recordings(&ring).len());
            thread::sleep(Duration::from_millis(10));
        }
        let segments = recordings(&ring);
        let (oldest, newest) = (read(&segments[0]).0, read(&segments[segments.len() - 1]).0);
        let held = newest[newest.len() - 1].mono_ns - oldest[0].mono_ns;
        recording.signal(libc::SIGTERM);
        let (code, said) = recording.wait();
        assert_ended(code, &said, OF_THE_HOST);
        assert!(said.contains("no trigger fired, so nothing is saved"), "{said}");
        assert!(!ring.exists() && recordings(dir.path()).is_empty(), "{said}");
        if limit == "256K" {
            let most = sizes.iter().max().expect("at least one size");
            assert!((128 << 10..=256 << 10).contains(most), "{most} bytes: {said}");
        } else {
            assert!((900_000_000..1_600_000_000).contains(&held), "the ring holds {held} ns");
            assert!(files <= 11, "{files} segments");
        }
    }
}

#[test]
fn a_kill_leaves_readable_segments_and_the_next_run_keeps_them() {
    let dir = Dir::new("killed");
    let file = dir.file("f.rec");
    let args = ["-o", &file, "-i", "100ms", "--keep", "2"];
    let mut recording = Recording::start(&args);
    recording.wait_for("the first sample takes");
    thread::sleep(patience(2_500));

    let second = run(&[&["record"], &args[..], &["-d", "1"]].concat());
    assert_eq!(second.status.code(), Some(2), "{}", stderr(&second));
    assert!(stderr(&second).contains("another cgscope that is running"), "{}", stderr(&second));

    recording.kill();
    let ring = PathBuf::from(dir.file("f.rec.ring"));
    let segments = recordings(&ring);
    assert!(segments.len() >= 4, "{segments:?}");
    for (at, segment) in (1..).zip(&segments) {
        let (samples, ending) = read(segment);
        assert!(!samples.is_empty());
        let expected = if at < segments.len() { Some(&Reason::Continued) } else { None };
        assert_eq!(reason(&ending), expected, "segment {at} of {}", segments.len());
    }
    assert_eq!(read(&segments[segments.len() - 1]).1, Ending::Killed);
    let report = run(&["report", &segments[0].display().to_string()]);
    assert!(stdout(&report).contains("it continues in the next file"), "{}", stdout(&report));

    let again = run(&[&["record"], &args[..], &["-d", "1"]].concat());
    let said = stderr(&again);
    assert_ended(again.status.code(), &said, OF_THE_HOST);
    assert!(said.contains("an earlier run was killed and left its ring"), "{said}");
    let kept: Vec<_> =
        fs::read_dir(dir.path()).expect("ours").map(|entry| entry.expect("one").path()).collect();
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(said.contains(&kept.display().to_string()), "{said}");
    assert_eq!(recordings(kept).len(), segments.len());
}

#[test]
fn a_full_disk_does_not_damage_the_ring() {
    let dir = Dir::small("full-ring", 96);
    let output = run(&["record", "-o", &dir.file("f.rec"), "-i", "10ms", "-d", "60s", "--keep", "1h"]);
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("the disk is full") && said.contains("the ring remains in"), "{said}");
    let segments = recordings(&dir.path().join("f.rec.ring"));
    let (last, _) = segments.split_last().expect("segments");
    let (samples, ending) = read(last);
    assert!(!samples.is_empty());
    assert_eq!(reason(&ending), Some(&Reason::DiskFull));
}

#[test]
fn a_part_that_does_not_fit_on_the_disk_is_reported_and_the_ring_stays() {
    let dir = Dir::small("full-frozen", 384);
    let args =
        ["-o", &dir.file("f.rec"), "-i", "10ms", "--keep", "1h", "--after", "20ms", "--ring-size", "256K"];
    let mut recording = Recording::start(&args);
    recording.wait_for("use --ring-size");
    // After the failure to save, the ring is still complete, so the recorder continues.
    for _ in 0..2 {
        recording.signal(libc::SIGUSR1);
        recording.wait_for("the disk is full");
        thread::sleep(patience(200));
    }
    recording.signal(libc::SIGTERM);
    let (code, said) = recording.wait();
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("2 parts could not be saved; the ring remains in"), "{said}");
    assert!(recordings(dir.path()).is_empty(), "no copy remains");
    let ring = recordings(&dir.path().join("f.rec.ring"));
    assert!(ring.iter().all(|segment| !read(segment).0.is_empty()) && ring.len() >= 4, "{ring:?}");
}

mod long {
    use super::*;

    #[test]
    fn a_second_interrupt_stops_the_copy_and_leaves_no_incomplete_file() {
        let dir = Dir::new("hurry");
        let file = dir.file("f.rec");
        for wait_us in (0..10).map(|n| n * 500) {
            let mut recording = Recording::start(&[
                "-o",
                &file,
                "-i",
                "10ms",
                "--keep",
                "1h",
                "--after",
                "10ms",
                "--triggers",
                "1",
            ]);
            recording.wait_for("the first sample takes");
            thread::sleep(patience(500));
            recording.signal(libc::SIGUSR1);
            recording.wait_for("SIGUSR1; saving");
            recording.signal(libc::SIGINT);
            thread::sleep(Duration::from_micros(wait_us));
            recording.signal(libc::SIGINT);
            let (_, said) = recording.wait();
            let frozen = fs::exists(&file).expect("a directory of ours");
            if frozen {
                let ending = read(Path::new(&file)).1;
                assert_eq!(reason(&ending), Some(&Reason::Triggered("SIGUSR1".into())), "{said}");
                fs::remove_file(&file).expect("a file of ours");
            }
            let ring = PathBuf::from(dir.file("f.rec.ring"));
            assert!(frozen || ring.exists(), "the part is in the file or in the ring: {said}");
            let _ = fs::remove_dir_all(&ring);
            assert_eq!(fs::read_dir(dir.path()).expect("ours").count(), 0, "{said}");
        }
    }
}
