//! Sentences in the output of `cgscope stat`: the class of a load, and the cgroup for which a command waited.

use std::{thread, time::Duration};

use crate::{
    bench::{patience, run, stderr, stdout},
    load::{Cgroup, Cpu, Load},
    stat::{Measuring, half_a_cpu, pids},
    stat_command::{ns, stat},
};

fn said_of(text: &str, pid: u32) -> String {
    let beginning = format!("# process {pid} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&beginning));
    let (_, says) = line.and_then(|line| line.split_once(": ")).unwrap_or_else(|| panic!("{pid}: {text}"));
    says.to_owned()
}

/// Field case 4: the output of `cgscope stat` states the class of the load.
#[test]
fn a_pool_that_waits_for_the_network_is_io_bound() {
    // Give the cgroup priority over other load. A nice value would not suffice, because it has an effect only within a session.
    let cgroup = Cgroup::new("classes-pool");
    cgroup.favour();
    let (load, _out) = Load::workload(&["prefork", "4", "60"], Some(&cgroup));
    let workers: Vec<u32> = load.pids().into_iter().skip(1).collect();
    thread::sleep(patience(500));
    let list = workers.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let text = Measuring::start(&["-p", &list, "2", "1"]).end();
    assert_eq!(workers.len(), 4);
    for worker in workers {
        let says = said_of(&text, worker);
        // If other load uses the CPUs, the sentence can also begin with `mixed`.
        assert!(says.trim_start_matches("mixed, ").starts_with("I/O-bound"), "{says}");
        assert!(says.contains("blocked on network "), "{says}");
    }
}

#[test]
fn a_busy_loop_is_quota_bound_with_a_quota_and_otherwise_cpu_bound() {
    let half = half_a_cpu("classes-half");
    let (limited, free) = (Load::busy_loop(Some(&half)), Load::busy_loop(None));
    thread::sleep(Duration::from_millis(500));
    let text = Measuring::start(&["-p", &pids(&[&limited, &free]), "2", "1"]).end();
    let says = said_of(&text, limited.pid());
    assert!(says.starts_with("quota-bound: ") && says.contains(&half.name), "{says}");
    assert!(says.contains("(0.5 CPUs)"), "{says}");
    let says = said_of(&text, free.pid());
    assert!(says.starts_with("CPU-bound: ") || says.starts_with("contended: "), "{says}");
}

/// A stopped process does nothing, so only its own line tells why.
#[test]
fn a_stopped_process_has_a_line_that_says_how_to_continue_it() {
    let load = Load::busy_loop(None);
    load.signal(libc::SIGSTOP);
    thread::sleep(patience(200));
    let text = Measuring::start(&["-p", &pids(&[&load]), "2", "1"]).end();
    let says = said_of(&text, load.pid());
    assert!(says.starts_with("idle: ") && says.contains("kill -CONT"), "{says}");
    load.signal(libc::SIGCONT);
    let text = Measuring::start(&["-p", &pids(&[&load]), "2", "1"]).end();
    assert!(!said_of(&text, load.pid()).contains("kill -CONT"), "{text}");
}

#[test]
#[ignore = "one CPU: asserts a time"]
fn a_command_that_sleeps_is_blocked_on_a_timer() {
    let (summary, output) = stat("sleep 0.5");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let timer = ns(&summary, "/threads_time/blocked_on/timer");
    assert!(timer.abs_diff(500_000_000) <= 50_000_000, "{timer}: {summary}");
    let output = run(&["stat", "--", "sh", "-c", "sleep 0.5"]);
    let said = stderr(&output);
    let line = said.lines().find(|line| line.trim_start().starts_with("on timer "));
    let time = line.and_then(|line| line.split_whitespace().nth(2)).unwrap_or_else(|| panic!("{said}"));
    let ms = time.strip_suffix("ms").and_then(|ms| ms.parse::<f64>().ok());
    assert!(ms.is_some_and(|ms| (ms - 500.0).abs() <= 50.0), "{said}");
}

/// Blocked time of exited threads must not lead to the verdict that more CPU will not help.
#[test]
#[ignore = "all CPUs: asserts how busy the host is"]
fn sleepers_that_exit_do_not_hide_that_the_cpus_are_busy() {
    let _busy = [Load::busy_loop(None), Load::busy_loop(None)];
    let stat = Measuring::start(&["--by", "cgroup", "2", "1"]);
    let script = "i=0; while [ $i -lt 20 ]; do sleep 1.2 & i=$((i+1)); done; wait";
    let sleepers = Load::start("sh", &["-c", script], None);
    let text = stat.end();
    sleepers.wait();
    let line = text.lines().find(|line| line.starts_with("# /: ")).unwrap_or_else(|| panic!("{text}"));
    assert!(!line.contains("more CPU will not help"), "{line}");
    assert!(["CPU-bound", "contended"].iter().any(|class| line.contains(class)), "{line}");
}

#[test]
#[ignore = "one CPU: the first culprit is the neighbour"]
fn the_summary_names_the_cgroup_that_a_command_was_queued_behind() {
    let cgroup = Cgroup::new("classes-before");
    let load = Load::loop_on_a_cpu(Some(&cgroup));
    thread::sleep(Duration::from_millis(300));
    let busy = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let output = run(&["stat", "--", "taskset", "-c", &Cpu::one().to_string(), "sh", "-c", busy]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(0), ""), "{}", stderr(&output));
    let said = stderr(&output);
    // A long sentence continues on indented lines.
    let at = said.find("queued behind other cgroups").unwrap_or_else(|| panic!("{said}"));
    let end = said[at..].find("queued behind the kernel").unwrap_or_else(|| panic!("{said}"));
    let words = said[at..at + end].split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains(&format!("sh [{}] of {} ", load.pid(), cgroup.name)), "{words}: {said}");
}
