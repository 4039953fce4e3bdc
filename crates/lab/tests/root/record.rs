//! Recordings: written, killed, truncated, and read back.

use std::fs;

use serde_json::Value;

use crate::{
    bench::{json_lines, run, stderr, stdout},
    files::Dir,
    load::Load,
};

/// Names of fields that the documentation of the format guarantees.
const INTERVAL: [&str; 11] = [
    "schema",
    "start_unix_ns",
    "duration_ns",
    "tasks",
    "idle_tasks",
    "cgroups",
    "cpus",
    "nodes",
    "losses",
    "self",
    "total",
];
const WAIT: [&str; 9] =
    ["count", "total_ns", "max_ns", "p50_ns", "p90_ns", "p99_ns", "p999_ns", "by_cause", "hist"];
const CAUSES: [&str; 6] =
    ["throttled_ns", "own_cgroup_ns", "other_cgroup_ns", "kernel_ns", "wakeup_ns", "unattributed_ns"];
const TASK: [&str; 14] = [
    "tid",
    "tgid",
    "comm",
    "cgroup",
    "cpu",
    "node",
    "wait",
    "pending_ns",
    "on_cpu_ns",
    "voluntary",
    "involuntary",
    "migrations",
    "node_migrations",
    "run_delay_ns",
];
const CGROUP: [&str; 16] = [
    "path",
    "id",
    "wait",
    "usage_ns",
    "tasks",
    "threads",
    "quota_us",
    "period_us",
    "burst_us",
    "effective_cores",
    "limited_by",
    "nr_periods",
    "nr_throttled",
    "throttled_ns",
    "culprits",
    "pending",
];
const COST: [&str; 4] = ["hook_ns", "hook_runs", "cpu_ns", "rss_bytes"];

fn assert_has(object: &Value, keys: &[&str]) {
    for key in keys {
        assert!(object.get(key).is_some(), "{key} is not in {object}");
    }
}

fn assert_is_of_the_contract(interval: &Value) {
    assert_has(interval, &INTERVAL);
    assert_eq!(interval["schema"], "cgscope.interval/1");
    assert_has(&interval["self"], &COST);
    assert_has(&interval["total"], &WAIT);
    assert_has(&interval["total"]["by_cause"], &CAUSES);
    for task in interval["tasks"].as_array().expect("tasks") {
        assert_has(task, &TASK);
        assert_has(&task["wait"], &WAIT);
    }
    for cgroup in interval["cgroups"].as_array().expect("cgroups") {
        assert_has(cgroup, &CGROUP);
        assert_has(&cgroup["wait"], &WAIT);
    }
}

#[test]
fn a_recording_is_reported_in_words_and_as_intervals() {
    let dir = Dir::new("words");
    let file = dir.file("a.rec");
    let (load, _out) = Load::workload(&["burn", "4", "30", "pin"], None);
    let output = run(&["record", "-o", &file, "-d", "3", "-p", &load.pid().to_string()]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(stdout(&output), "");

    let report = run(&["report", &file]);
    assert_eq!(report.status.code(), Some(0), "{}", stderr(&report));
    let words = stdout(&report);
    for said in
        ["ran", "waited", "The kernel's own sum of", "distribution", "workload", "losses: ", "own cost"]
    {
        assert!(words.contains(said), "{said:?} is not in:\n{words}");
    }

    let intervals = json_lines(&run(&["report", "--json", &file]));
    assert_eq!(intervals.len(), 3, "one for each two Samples; the last Sample is taken at the end");
    intervals.iter().for_each(assert_is_of_the_contract);
    let waited: u64 =
        intervals.iter().map(|interval| interval["total"]["total_ns"].as_u64().expect("a sum")).sum();
    // If other tests run at the same time, all four loops can wait for most of the time.
    assert!((4_000_000_000..13_000_000_000).contains(&waited), "two of four loops always wait: {waited}");
}

#[test]
fn live_intervals_also_have_all_documented_fields() {
    json_lines(&run(&["hist", "--json", "0.3", "2"])).iter().for_each(assert_is_of_the_contract);
    json_lines(&run(&["top", "-b", "--json", "-n", "2", "-d", "0.3"]))
        .iter()
        .for_each(assert_is_of_the_contract);
}

#[test]
#[ignore = "all CPUs: asserts CPU time of the command"]
fn a_command_is_recorded_with_its_children_until_its_end() {
    let dir = Dir::new("command");
    let file = dir.file("a.rec");
    let script = "for i in 1 2 3 4; do timeout 2 sh -c 'while :; do :; done' & done; wait; exit 7";
    let output = run(&["record", "-o", &file, "--", "sh", "-c", script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stderr(&output).contains("exit status: 7"), "{}", stderr(&output));
    let words = stdout(&run(&["report", &file]));
    assert!(words.contains("exit status 7"), "{words}");
    let intervals = json_lines(&run(&["report", "--json", &file]));
    // Tasks that exit between two samples count only for their cgroup, so use the root cgroup, which includes the figures of all
    // cgroups.
    let ran = |interval: &Value| {
        let root = interval["cgroups"].as_array().expect("cgroups").iter().find(|group| group["path"] == "/");
        root.and_then(|root| root["usage_ns"].as_u64()).unwrap_or(0)
    };
    let ran: u64 = intervals.iter().map(ran).sum();
    assert!(ran > 2_000_000_000, "four loops had two CPUs for two seconds: {ran}");
}

#[test]
fn a_full_disk_leaves_a_readable_file() {
    let dir = Dir::small("full", 64);
    let file = dir.file("a.rec");
    let output = run(&["record", "-o", &file, "-i", "10ms", "-d", "20s"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stderr(&output).contains("the disk is full"), "{}", stderr(&output));
    let report = run(&["report", &file]);
    assert_eq!(report.status.code(), Some(1), "{}", stderr(&report));
    assert!(stdout(&report).contains("distribution"), "{}", stdout(&report));
}

#[test]
fn a_file_that_cannot_be_written_is_refused_before_the_measurement_starts() {
    let dir = Dir::new("unwritable");
    for (file, said) in
        [(dir.file("no/such/a.rec"), "No such file"), (dir.path().display().to_string(), "directory")]
    {
        let output = run(&["record", "-o", &file, "--", "touch", &dir.file("started")]);
        assert_eq!(output.status.code(), Some(2));
        let words = stderr(&output);
        assert!(
            words.contains(said) && words.contains("cannot be written") && words.lines().count() == 1,
            "{words}"
        );
    }
    assert!(!dir.path().join("started").exists());
}

#[test]
fn an_existing_file_is_kept_under_another_name() {
    let dir = Dir::new("kept");
    let file = dir.file("a.rec");
    fs::write(&file, "yesterday").expect("a file of ours");
    let output = run(&["record", "-o", &file, "-d", "0.3", "-i", "0.1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert_eq!(fs::read_to_string(dir.file("a.rec.old")).expect("the older file"), "yesterday");
    assert_eq!(run(&["report", &file]).status.code(), Some(0));
}

#[test]
fn a_file_that_is_not_a_recording_is_refused_in_one_sentence() {
    let dir = Dir::new("foreign");
    let good = dir.file("good.rec");
    assert!(run(&["record", "-o", &good, "-d", "0.4", "-i", "0.1"]).status.success());
    let bytes = fs::read(&good).expect("a recording");
    let mut newer = bytes.clone();
    newer[8] = 200;
    for (name, content, said) in [
        ("empty", &[][..], "empty"),
        ("foreign", &b"#!/bin/sh\necho no recording at all\n"[..], "not a"),
        ("newer", &newer, "newer"),
        ("head", &bytes[..20], "header"),
    ] {
        let file = dir.file(name);
        fs::write(&file, content).expect("a file of ours");
        let report = run(&["report", &file]);
        let words = stderr(&report);
        assert_eq!(report.status.code(), Some(2), "{name}: {words}");
        assert!(
            words.contains(said) && words.lines().count() == 1 && stdout(&report).is_empty(),
            "{name}: {words}"
        );
    }
    let missing = run(&["report", &dir.file("missing")]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("No such file"), "{}", stderr(&missing));
}

#[test]
fn a_truncated_recording_gives_its_complete_samples() {
    let dir = Dir::new("truncated");
    let file = dir.file("a.rec");
    assert!(run(&["record", "-o", &file, "-d", "1", "-i", "0.1"]).status.success());
    let bytes = fs::read(&file).expect("a recording");
    // Cut off the end marker and a part of the last sample.
    fs::write(&file, &bytes[..bytes.len() - 200]).expect("a file of ours");
    let report = run(&["report", &file]);
    assert_eq!(report.status.code(), Some(1), "{}", stderr(&report));
    assert!(stderr(&report).contains("breaks off"), "{}", stderr(&report));
    assert!(stdout(&report).contains("distribution"), "{}", stdout(&report));
}
