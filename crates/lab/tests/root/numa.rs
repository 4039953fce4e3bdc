//! Figures by CPU and NUMA node. On a host with one node, all figures exist and no task moves between nodes. On a host with
//! several nodes, findings name the threads that stay on one node, and the reason.

use std::{io::BufRead, path::Path, thread};

use cgscope_collect::facts;
use cgscope_model::{Interval, placement::cpu_list};
use serde_json::Value;

use crate::{
    bench::{follow, is_emulated, json_lines, run, stderr, stdout},
    load::{Cgroup, Load},
};

pub(crate) fn nodes() -> Vec<(u32, Vec<u32>)> {
    let mut nodes: Vec<(u32, Vec<u32>)> = Vec::new();
    for (cpu, node) in facts::cpu_to_node(Path::new("/")) {
        match nodes.iter_mut().find(|(known, _)| *known == node) {
            Some((_, cpus)) => cpus.push(cpu),
            None => nodes.push((node, vec![cpu])),
        }
    }
    assert!(!nodes.is_empty(), "this kernel does not list CPUs by node");
    nodes.sort_unstable();
    nodes
}

/// Measures intervals of 1 s (2 s if emulated) and returns their JSON objects. The load runs during the whole last interval.
fn measure(args: &[&str], intervals: &str) -> Vec<Value> {
    let length = if is_emulated() { "2" } else { "1" };
    let args: Vec<&str> = ["hist", "--json", length, intervals].iter().chain(args).copied().collect();
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    json_lines(&output)
}

fn said<'a>(interval: &'a Value, rule: &str) -> Option<&'a str> {
    let mut findings = interval["findings"].as_array().expect("findings").iter();
    findings.find(|finding| finding["rule"] == rule)?["says"].as_str()
}

/// Asserts, on a host with one node, that this node has all figures.
fn assert_all_is_on(node: u32, interval: &Value) {
    let nodes = interval["nodes"].as_array().expect("nodes");
    assert_eq!(nodes.len(), 1, "{nodes:?}");
    assert_eq!(nodes[0]["node"], node);
    assert_eq!((&nodes[0]["migrations_in"], &nodes[0]["migrations_out"]), (&Value::from(0), &Value::from(0)));
    assert_eq!(nodes[0]["wait"]["count"], interval["total"]["count"]);
    assert_eq!(nodes[0]["wait"]["total_ns"], interval["total"]["total_ns"]);
    for task in interval["tasks"].as_array().expect("tasks") {
        assert_eq!(
            (&task["node"], &task["node_migrations"]),
            (&Value::from(node), &Value::from(0)),
            "{task}"
        );
        let ran: u64 = task["ran_by_node"]
            .as_array()
            .expect("the nodes where it ran")
            .iter()
            .map(|ran| ran[1].as_u64().unwrap_or(0))
            .sum();
        assert_eq!(task["on_cpu_ns"], ran, "{task}");
    }
    assert_eq!(said(interval, "node_skew"), None);
}

/// Asserts that a finding says that eight busy threads stay on the first node, and names this reason.
fn assert_skew_is_reported(interval: &Value, reason: &str) {
    let nodes = nodes();
    let [(full, cpus), (idle, _), ..] = nodes.as_slice() else {
        return assert_all_is_on(nodes[0].0, interval);
    };
    let says =
        said(interval, "node_skew").unwrap_or_else(|| panic!("no finding about {:#}", interval["nodes"]));
    for part in [
        format!("node {full} (CPUs {}) was busy ", cpu_list(cpus)),
        "(workload)".into(),
        " has 8 busy threads".into(),
        format!("{reason} leaves out node {idle}"),
    ] {
        assert!(says.contains(&part), "{part:?} is not in {says:?}");
    }
    let node = interval["nodes"].as_array().expect("nodes").iter().find(|node| node["node"] == *full);
    let runnable = node.expect("the node")["runnable_avg"].as_f64().expect("a number");
    assert!((6.0..12.0).contains(&runnable), "{runnable} tasks running or waiting");
}

#[test]
#[ignore = "all CPUs: where there are two nodes, one must be idle"]
fn threads_that_a_mask_keeps_on_one_node_are_reported() {
    let cpus = cpu_list(&nodes()[0].1);
    let (load, _out) = Load::workload(&["bound", &cpus, "8", "60"], None);
    let reason = format!("the affinity mask {cpus} of the threads");
    thread::scope(|scope| {
        scope.spawn(|| assert_skew_is_reported(&measure(&[], "2")[1], &reason));
        assert_skew_is_reported(&measure(&["--pid", &load.pid().to_string()], "2")[1], &reason);
    });
}

#[test]
#[ignore = "all CPUs: where there are two nodes, one must be idle"]
fn threads_that_a_cpuset_keeps_on_one_node_are_reported() {
    let cpus = cpu_list(&nodes()[0].1);
    let cgroup = Cgroup::of_cpus("node", &cpus);
    let (_load, _out) = Load::workload(&["burn", "8", "60"], Some(&cgroup));
    let intervals = measure(&[], "2");
    assert_skew_is_reported(&intervals[1], &format!("the cpuset of {} (cpuset.cpus {cpus})", cgroup.name));
}

#[test]
#[ignore = "all CPUs: where there are two nodes, other load could fill one"]
fn threads_that_nothing_keeps_on_one_node_are_not_reported() {
    let (_load, _out) = Load::workload(&["burn", "8", "60"], None);
    for interval in measure(&[], "3") {
        assert_eq!(said(&interval, "node_skew"), None);
        assert_eq!(interval["nodes"].as_array().map(Vec::len), Some(nodes().len()));
    }
}

#[test]
fn memory_on_another_node_than_its_threads_is_remote() {
    let nodes = nodes();
    let (first, last) = (&nodes[0], &nodes[nodes.len() - 1]);
    let node = last.0.to_string();
    let (load, _out) = Load::workload(&["far", &cpu_list(&first.1), &node, "64", "60"], None);
    let intervals = measure(&["--pid", &load.pid().to_string(), "--memory"], "2");
    let memory = &intervals[1]["memory"][0];
    assert_eq!(memory["tgid"], load.pid());
    let remote = memory["remote_share"].as_f64().expect("a share");
    let policies = memory["policies"].as_array().expect("policies");
    assert!(
        policies
            .iter()
            .any(|policy| policy[0] == format!("bind:{node}") && policy[1].as_u64() >= Some(64 << 20))
    );
    if nodes.len() == 1 {
        assert!(remote == 0.0, "{remote}");
        assert_eq!(said(&intervals[1], "remote_memory"), None);
        return assert_all_is_on(first.0, &intervals[1]);
    }
    assert!(remote > 0.9, "{remote}: {memory}");
    let says = said(&intervals[1], "remote_memory").expect("a finding");
    assert!(says.contains(&format!("is on node {node}")) && says.contains(&format!("bind:{node}")), "{says}");
}

#[test]
fn every_move_between_nodes_is_counted() {
    const MOVES: u64 = 101;
    let nodes = nodes();
    let from = nodes[0].1[0];
    let to = *nodes[nodes.len() - 1].1.last().expect("CPUs");
    assert_ne!(from, to, "this test needs two CPUs");
    let args = ["hop", &from.to_string(), &to.to_string(), &MOVES.to_string(), "60"];
    let (load, mut out) = Load::workload(&args, None);
    let mut collector = follow(&[load.pid()]);
    let before = collector.sample().expect("a sample");
    // SAFETY: the child is ours, has not been reaped, and waits for this signal.
    unsafe { libc::kill(load.pid() as i32, libc::SIGUSR1) };
    let mut line = String::new();
    out.read_line(&mut line).expect("its output is readable");
    assert_eq!(line, format!("{MOVES}\n"));
    let interval = Interval::between(&before, &collector.sample().expect("a sample"));
    let task = interval.tasks.first().expect("the thread");
    assert_eq!(task.reading.cpu, to);
    assert!(task.totals.migrations >= MOVES, "{:?}", task.totals);
    let expected = if nodes.len() == 1 { 0 } else { MOVES };
    assert_eq!(task.placement.node_migrations, Some(expected));
    let by_node = interval.by_node();
    if nodes.len() == 1 {
        assert_eq!(task.placement.ran_ns, Some(vec![(nodes[0].0, task.totals.on_cpu_ns)]));
        assert_eq!(by_node[0].migrations_in, Some(0));
        return;
    }
    let ran = task.placement.ran_ns.as_ref().expect("counted by node");
    assert_eq!(ran.iter().map(|(_, ns)| ns).sum::<u64>(), task.totals.on_cpu_ns, "{ran:?}");
    assert!(ran.len() == 2, "{ran:?}");
    let came: u64 = by_node.iter().filter_map(|node| node.migrations_in).sum();
    assert_eq!(came, MOVES, "each move to a node leaves another node");
}

#[test]
fn cpus_and_nodes_are_listed_selected_and_have_histograms() {
    let (_load, _out) = Load::workload(&["burn", "1", "60", "pin"], None);
    thread::scope(|scope| {
        scope.spawn(assert_times_of_online_cpus_sum_to_the_elapsed_time);
        scope.spawn(assert_histograms_by_node_say_how_busy_each_is);
        scope.spawn(assert_histograms_by_cpu_name_their_node);
        assert_a_selected_node_shows_only_its_cpus();
    });
}

fn assert_times_of_online_cpus_sum_to_the_elapsed_time() {
    let interval = measure(&["-C"], "1").remove(0);
    let online: Vec<u32> = facts::cpu_to_node(Path::new("/")).into_keys().collect();
    let cpus = interval["cpus"].as_array().expect("CPUs");
    let numbers: Vec<u64> = cpus.iter().filter_map(|cpu| cpu["cpu"].as_u64()).collect();
    assert_eq!(numbers, online.iter().map(|cpu| u64::from(*cpu)).collect::<Vec<_>>());
    let duration = interval["duration_ns"].as_f64().expect("ns");
    for cpu in cpus {
        let ns = |name: &str| cpu[name].as_f64().unwrap_or_else(|| panic!("{name} of {cpu}"));
        // Allow a wide tolerance, because both figures increase in steps of 10 ms, and neither includes stolen time.
        let all = ns("busy_ns") + ns("idle_ns");
        assert!(all <= duration * 1.1 && all >= duration * 0.3, "{cpu} of {duration}");
        assert!(cpu["wait"]["count"].is_u64(), "not counted: {cpu}");
    }
    assert!(cpus[0]["busy_ns"].as_f64() > Some(duration * 0.5), "{}", cpus[0]);
}

fn assert_histograms_by_node_say_how_busy_each_is() {
    let output = run(&["hist", "1", "1", "--by", "node"]);
    let text = stdout(&output);
    for (node, cpus) in nodes() {
        assert!(text.contains(&format!("node = {node} (CPUs {})", cpu_list(&cpus))), "{text}");
    }
    assert!(
        text.contains(" tasks running or waiting on average; ") && text.contains(" in use of "),
        "{text}"
    );
}

fn assert_histograms_by_cpu_name_their_node() {
    let (first, cpus) = &nodes()[0];
    let text = stdout(&run(&["hist", "1", "1", "-C"]));
    assert!(cpus.iter().any(|cpu| text.contains(&format!("cpu = {cpu} (node {first})"))), "{text}");
}

fn assert_a_selected_node_shows_only_its_cpus() {
    let (node, cpus) = nodes().pop().expect("a node");
    let interval = measure(&["--node", &node.to_string()], "1").remove(0);
    let selected = interval["nodes"].as_array().expect("nodes");
    assert_eq!((selected.len(), &selected[0]["node"]), (1, &Value::from(node)));
    assert_eq!(selected[0]["cpus"], Value::from(cpus));
    assert!(interval["tasks"].as_array().expect("tasks").iter().all(|task| task["node"] == node));
}
