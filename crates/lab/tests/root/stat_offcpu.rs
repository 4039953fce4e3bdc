//! The output files of `cgscope stat --offcpu`.

use std::fs;

use serde_json::Value;

use crate::{
    bad_input::assert_one_sentence,
    bench::{json_lines, run, stderr},
    files::Dir,
    load::{Cgroup, Load},
    realtime::allow_realtime,
    stat_command::ns,
};

fn pool() -> (Load, String) {
    let (load, _out) = Load::workload(&["prefork", "4", "60"], None);
    let pids = load.pids().iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    (load, pids)
}

fn folded(path: &str) -> Vec<(String, u64)> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    let line = |line: &str| {
        let (stack, ns) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line}"));
        (stack.to_owned(), ns.parse().unwrap_or_else(|_| panic!("{line}")))
    };
    text.lines().map(line).collect()
}

fn sum(lines: &[(String, u64)]) -> u64 {
    lines.iter().map(|(_, ns)| ns).sum()
}

fn all(object: &Value) -> u64 {
    let parts = object.as_object().unwrap_or_else(|| panic!("{object}"));
    parts.values().map(|part| part.as_u64().expect("ns")).sum()
}

fn assert_near(ours: u64, expected: u64) {
    assert!(ours.abs_diff(expected) <= expected / 20, "{ours} ns by stack, {expected} ns by state");
}

#[test]
fn the_flame_graph_has_the_functions_in_which_the_load_sleeps() {
    let (_load, pids) = pool();
    let dir = Dir::new("offcpu-svg");
    let file = dir.file("blocked.svg");
    // The second run must replace the file of the first run.
    for _ in 0..2 {
        let output = run(&["stat", &format!("--offcpu={file}"), "-p", &pids, "2", "1"]);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert!(stderr(&output).contains("written"), "{}", stderr(&output));
    }
    let svg = fs::read_to_string(&file).expect("the flame graph");
    assert!(svg.starts_with("<?xml ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    for frame in ["hrtimer_nanosleep", "unix_stream_read_generic", "[timer, sleeping]", "[network, sleeping]"]
    {
        assert!(svg.contains(&format!("<title>{frame} (")), "no {frame}: {svg}");
    }
}

#[test]
fn folded_stacks_sum_to_the_blocked_time() {
    let (_load, pids) = pool();
    let dir = Dir::new("offcpu-folded");
    let file = dir.file("blocked.folded");
    let output = run(&["stat", &format!("--offcpu={file}"), "--json", "-p", &pids, "1", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let (lines, objects) = (folded(&file), json_lines(&output));
    assert_eq!(objects.len(), 2);
    assert_near(sum(&lines), objects.iter().map(|object| all(&object["blocked"])).sum());
    let of =
        |part: &str| lines.iter().filter(|(stack, _)| stack.contains(part)).map(|(_, ns)| ns).sum::<u64>();
    // The remote service sleeps in a timer, and the worker waits for this service on the network.
    assert!(of("remote;[timer, sleeping];") > 0 && of("workload;[network, sleeping];") > 0, "{lines:?}");
    assert!(of("[no stack]") <= sum(&lines) / 20, "{lines:?}");
}

#[test]
fn the_stacks_of_a_command_sum_to_the_blocked_time_in_its_summary() {
    let dir = Dir::new("offcpu-command");
    let (file, summary) = (dir.file("blocked.folded"), dir.file("summary"));
    let offcpu = format!("--offcpu={file}");
    let output = run(&["stat", &offcpu, "--json", "-o", &summary, "--", "sh", "-c", "sleep 0.5; exit 3"]);
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let text = fs::read_to_string(&summary).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("an object");
    let lines = folded(&file);
    assert_near(sum(&lines), all(&summary["threads_time"]["blocked"]));
    let slept = lines.iter().find(|(stack, _)| stack.starts_with("sleep;[timer, sleeping];"));
    let (stack, slept_ns) = slept.unwrap_or_else(|| panic!("no stack of a sleep: {lines:?}"));
    assert!(stack.contains("nanosleep"), "{stack}");
    assert_near(*slept_ns, ns(&summary, "/threads_time/blocked_on/timer"));
}

/// When a sample is taken, a task can have woken up but still wait for a CPU. The sample must already contain the stack of this
/// task's sleep, because otherwise the sleep would count again when the task runs.
#[test]
#[ignore = "all CPUs: a real-time loop leaves 5 % of its CPU to others"]
fn a_sleep_counts_once_for_its_stack_if_the_task_then_waits_for_a_cpu() {
    let culprit = Cgroup::new("offcpu-fifo");
    // Request less than half of the available runtime, because the kernel might not have freed the runtime of another test's
    // cgroup yet.
    allow_realtime(&culprit, 450_000);
    let fifo = ["-c", "1", "chrt", "-f", "1", "sh", "-c", "while :; do :; done"];
    let _runs = Load::start("taskset", &fifo, Some(&culprit));
    let dir = Dir::new("offcpu-queued");
    let summary = dir.file("summary");
    let command = ["taskset", "-c", "1", "sh", "-c", "for n in 1 2 3; do sleep 0.3; done; exit 3"];
    let output = run(&[&["stat", "--json", "-o", &summary, "--"][..], &command].concat());
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
    let text = fs::read_to_string(&summary).expect("a summary");
    let summary: Value = serde_json::from_str(&text).expect("an object");
    let times = &summary["threads_time"];
    let queued_ns = all(&summary["wait"]["by_cause"]);
    assert!(queued_ns > 100_000_000, "it had to wait: {queued_ns} ns");
    assert_near(all(&times["blocked_on"]), all(&times["blocked"]));
}

#[test]
fn a_file_with_other_content_is_not_overwritten() {
    let dir = Dir::new("offcpu-foreign");
    let ran = dir.file("ran");
    for name in ["letter.svg", "letter.folded"] {
        let file = dir.file(name);
        fs::write(&file, "dear all\n").expect("a file of ours");
        let offcpu = format!("--offcpu={file}");
        for rest in [&["1", "1"][..], &["--", "touch", &ran]] {
            let output = run(&[&["stat", &offcpu], rest].concat());
            assert_one_sentence(&output, &[name, "something other than stacks of cgscope", "another file"]);
            assert_eq!(fs::read_to_string(&file).expect("the file still exists"), "dear all\n");
        }
    }
    assert!(fs::metadata(&ran).is_err(), "the command was run");
}
