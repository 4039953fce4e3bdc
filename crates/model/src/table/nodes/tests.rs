use std::sync::Arc;

use cgscope_ledger::Cause;

use super::*;
use crate::{ByCause, NodeReading, ProcessMemory, Sample, Selection, TaskReading};
use crate::{CpuReading, CpuWaits, Hist, Placement, Totals, placement::TaskPlacement};

const S: u64 = 1_000_000_000;

fn waits(ns: &[u64], came_from: &[(u32, u64)]) -> CpuWaits {
    CpuWaits {
        max_ns: ns.iter().copied().max().unwrap_or(0),
        by_cause: ByCause::only(Cause::OwnCgroup, ns.iter().sum()),
        hist: Arc::new(Hist::of_cause(Cause::OwnCgroup, ns.iter().copied())),
        came_from: came_from.to_vec(),
    }
}

fn cpu(cpu: u32, node: u32, busy_ns: u64, idle_ns: u64) -> CpuReading {
    CpuReading {
        cpu,
        node: Some(node),
        busy_ns: Some(busy_ns),
        idle_ns: Some(idle_ns),
        ..CpuReading::default()
    }
}

fn task(tid: u32, cpu: u32, node: u32, ran_ns: u64, placement: Option<Placement>) -> TaskReading {
    let totals = Totals { on_cpu_ns: ran_ns, wait_ns: ran_ns / 2, waits: 1, ..Totals::default() };
    TaskReading {
        serial: tid.into(),
        tid,
        tgid: tid,
        comm: "a".into(),
        start_ns: 1,
        cgroup_id: 1,
        cpu,
        node: Some(node),
        on_cpu: true,
        placement: placement.map(Arc::new),
        totals,
        ..TaskReading::default()
    }
}

fn sample(mono_ns: u64, cpus: Vec<CpuReading>, tasks: Vec<TaskReading>) -> Sample {
    let node = |node| NodeReading { node, memory_bytes: Some(100), free_bytes: Some(60) };
    let nodes =
        if cpus.iter().any(|cpu| cpu.node == Some(8)) { vec![node(0), node(8)] } else { vec![node(0)] };
    let tasks = tasks.into_iter().map(Arc::new).collect();
    Sample { mono_ns, cpus, tasks, nodes, cgroups: vec![(1, "/".into())], ..Sample::default() }
}

/// Returns nodes 0 and 8, with gaps between their CPU numbers.
fn two_nodes() -> Interval {
    let with = |mut cpu: CpuReading, waits| {
        cpu.waits = Some(waits);
        cpu
    };
    let before = vec![
        with(cpu(0, 0, S, S), waits(&[100], &[(8, 1)])),
        with(cpu(4, 8, S, S), waits(&[], &[])),
        with(cpu(6, 8, 0, 0), waits(&[], &[])),
    ];
    let after = vec![
        with(cpu(0, 0, 2 * S, S), waits(&[100, S / 2, S], &[(8, 3)])),
        with(cpu(4, 8, S, 2 * S), waits(&[7], &[(0, 1)])),
        with(cpu(6, 8, 0, S), waits(&[], &[(0, 4)])),
    ];
    let placed = |moves, ran: &[(u32, u64)]| {
        Some(Placement {
            node_migrations: Some(moves),
            ran_ns: Some(ran.to_vec()),
            preferred_node: Some(8),
            ..Placement::default()
        })
    };
    let before = sample(S, before, vec![task(1, 0, 0, 10, placed(1, &[(0, 10)]))]);
    let born = TaskReading { start_ns: 2 * S, ..task(2, 4, 8, 30, placed(2, &[(8, 30)])) };
    let after = sample(2 * S, after, vec![task(1, 0, 0, 110, placed(6, &[(0, 60), (8, 50)])), born]);
    Interval::between(&before, &after)
}

#[test]
fn a_node_has_the_figures_of_its_cpus_and_the_moves_of_tasks() {
    let nodes = two_nodes().by_node();
    let [first, second] = nodes.as_slice() else { panic!("{nodes:?}") };
    assert_eq!(
        (first.node, first.cpus.as_slice(), second.node, second.cpus.as_slice()),
        (0, &[0][..], 8, &[4, 6][..])
    );
    assert_eq!((first.busy_ns, first.idle_ns, first.busy_percent()), (Some(S), Some(0), Some(100.0)));
    assert_eq!((second.busy_ns, second.idle_ns, second.busy_percent()), (Some(0), Some(2 * S), Some(0.0)));
    assert_eq!((first.wait.count, first.wait.total_ns, first.wait.max_ns), (2, S + S / 2, S));
    assert_eq!(first.runnable_avg, Some(2.5));
    assert_eq!((first.migrations_in, first.migrations_out), (Some(2), Some(5)));
    assert_eq!((second.migrations_in, second.migrations_out), (Some(5), Some(2)));
    assert_eq!((first.used_bytes, first.ran_ns, second.ran_ns), (Some(40), 50, 80));
}

#[test]
fn a_task_has_its_time_on_each_node_since_the_last_reading_or_its_start() {
    let interval = two_nodes();
    assert_eq!(
        interval.tasks[0].placement,
        TaskPlacement { node_migrations: Some(5), ran_ns: Some(vec![(0, 50), (8, 50)]) }
    );
    assert_eq!(
        interval.tasks[1].placement,
        TaskPlacement { node_migrations: Some(2), ran_ns: Some(vec![(8, 30)]) }
    );
}

#[test]
fn appended_intervals_equal_one_interval() {
    let mut whole = two_nodes();
    whole.append(two_nodes());
    let nodes = whole.by_node();
    assert_eq!((nodes[0].busy_ns, nodes[0].wait.count, nodes[0].migrations_in), (Some(2 * S), 4, Some(4)));
    assert_eq!(nodes[0].runnable_avg, Some(2.5));
    assert_eq!(whole.tasks[0].placement.node_migrations, Some(10));
    assert_eq!(whole.tasks[0].placement.ran_ns, Some(vec![(0, 100), (8, 100)]));
}

#[test]
fn in_a_selection_waits_count_for_the_last_node_of_a_task() {
    let mut interval = two_nodes();
    let selection = Selection { cgroup: Some("/".into()), nodes: vec![8], ..Selection::default() };
    interval.select(&selection).unwrap();
    let nodes = interval.by_node();
    assert_eq!((nodes.len(), nodes[0].node), (1, 8));
    assert_eq!((nodes[0].wait.count, nodes[0].wait.total_ns), (1, 15));
    assert_eq!((nodes[0].migrations_in, nodes[0].migrations_out, nodes[0].used_bytes), (None, None, None));
    assert_eq!(nodes[0].runnable_avg, Some((30 + 15) as f64 / S as f64), "only of the selected tasks");
}

#[test]
fn a_host_with_one_node_needs_no_counts_by_node() {
    let before = sample(
        S,
        vec![cpu(0, 0, 0, 0), cpu(1, 0, 0, 0)],
        vec![task(1, 1, 0, 10, None), task(2, 0, 0, 5, None)],
    );
    let after = sample(
        2 * S,
        vec![cpu(0, 0, 5, 5), cpu(1, 0, 7, 3)],
        vec![task(1, 1, 0, 50, None), task(2, 0, 0, 5, None)],
    );
    let interval = Interval::between(&before, &after);
    assert_eq!(
        interval.tasks[0].placement,
        TaskPlacement { node_migrations: Some(0), ran_ns: Some(vec![(0, 40)]) }
    );
    assert_eq!(interval.tasks[1].placement, TaskPlacement { node_migrations: Some(0), ran_ns: Some(vec![]) });
    let nodes = interval.by_node();
    assert_eq!((nodes.len(), nodes[0].node, nodes[0].busy_ns, nodes[0].ran_ns), (1, 0, Some(12), 40));
    assert_eq!((nodes[0].migrations_in, nodes[0].migrations_out), (Some(0), Some(0)));
    assert_eq!(nodes[0].wait, interval.total().wait);
}

#[test]
fn on_several_nodes_moves_that_were_not_counted_are_unknown() {
    let cpus = |n| vec![cpu(0, 0, n, n), cpu(1, 8, n, n)];
    let interval = Interval::between(
        &sample(S, cpus(0), vec![task(1, 1, 8, 10, None)]),
        &sample(2 * S, cpus(5), vec![task(1, 1, 8, 50, None)]),
    );
    assert_eq!(interval.tasks[0].placement, TaskPlacement::default());
    assert_eq!(interval.tasks[0].ran_by_node(), [(8, 40)], "all time goes to the last node");
    let nodes = interval.by_node();
    assert_eq!((nodes[0].migrations_in, nodes[1].migrations_out), (None, None));
    assert_eq!((nodes[0].wait.total_ns, nodes[1].wait.total_ns), (0, 20));
}

#[test]
fn a_decreasing_counter_or_a_changed_set_of_cpus_gives_no_reading() {
    let before = sample(S, vec![cpu(0, 0, 9, 9), cpu(2, 8, 5, 5)], vec![]);
    let fallen = sample(2 * S, vec![cpu(0, 0, 8, 10), cpu(2, 8, 7, 7)], vec![]);
    let interval = Interval::between(&before, &fallen);
    assert_eq!((interval.cpus[0].busy_ns, interval.cpus[0].idle_ns), (None, Some(1)));
    assert_eq!((interval.cpus[1].cpu, interval.cpus[1].busy_ns), (2, Some(2)));
    // It is unknown what CPU 2 did before it went offline.
    let after = sample(2 * S, vec![cpu(0, 0, 10, 10), cpu(3, 8, 7, 7)], vec![]);
    let interval = Interval::between(&before, &after);
    assert_eq!((interval.cpus[0].busy_ns, interval.cpus[0].idle_ns), (None, None));
    let nodes = interval.by_node();
    assert_eq!(
        (nodes[1].cpus.as_slice(), nodes[1].busy_percent(), nodes[1].runnable_avg),
        (&[3][..], None, None)
    );
}

#[test]
fn appended_intervals_sum_only_those_with_an_unchanged_set_of_cpus() {
    let at = |s: u64, cpus| sample(s * S, cpus, vec![]);
    let mut whole = Interval::between(
        &at(1, vec![cpu(0, 0, 0, 0), cpu(1, 0, 0, 0)]),
        &at(2, vec![cpu(0, 0, 1, 2), cpu(1, 0, 3, 4)]),
    );
    whole.append(Interval::between(
        &at(2, vec![cpu(0, 0, 1, 2), cpu(1, 0, 3, 4)]),
        &at(3, vec![cpu(0, 0, 2, 3)]),
    ));
    assert_eq!(whole.by_node()[0].busy_ns, Some(1 + 3));
}

#[test]
fn a_cpu_has_the_waits_that_ended_there_or_those_of_its_last_tasks() {
    let counts = |interval: &Interval| -> Vec<(u32, u64)> {
        interval.by_cpu().into_iter().map(|(cpu, wait)| (cpu.cpu, wait.count)).collect()
    };
    let mut interval = two_nodes();
    assert_eq!(counts(&interval), [(0, 2), (4, 1), (6, 0)]);
    interval.cpus.iter_mut().for_each(|cpu| cpu.wait = None);
    assert_eq!(counts(&interval), [(0, 0), (4, 1), (6, 0)], "the first task waited only before the interval");
}

#[test]
fn without_readings_of_cpus_and_nodes_there_are_no_nodes() {
    assert_eq!(Interval::default().by_node(), []);
}

#[test]
fn memory_of_a_selection_comes_from_its_processes() {
    let mut interval = two_nodes();
    interval.memory = vec![ProcessMemory { tgid: 1, by_node: vec![(8, 7)], ..ProcessMemory::default() }];
    interval.is_selection = true;
    let used: Vec<_> = interval.by_node().iter().map(|node| node.used_bytes).collect();
    assert_eq!(used, [Some(0), Some(7)]);
}

#[test]
fn memory_is_remote_on_nodes_where_the_threads_do_not_run() {
    assert_eq!(remote_share(&[(1, 100)], &[(0, 5)]), Some(1.0));
    assert_eq!(remote_share(&[(0, 100)], &[(0, 5)]), Some(0.0));
    assert_eq!(remote_share(&[(0, 50), (1, 50)], &[(0, 5), (1, 5)]), Some(0.5));
    assert_eq!(remote_share(&[(0, 25), (1, 75)], &[(0, 5)]), Some(0.75));
    assert_eq!(remote_share(&[], &[(0, 5)]), None);
    assert_eq!(remote_share(&[(0, 1)], &[(0, 0)]), None);
}

#[test]
fn the_contention_of_a_node_is_the_mean_over_the_time_in_which_its_cpus_were_not_idle() {
    let at = |n: u64| Sample {
        mono_ns: n * 1_000,
        cpus: [(0, 500, 500), (1, 250, 0), (2, 1_000, 900)]
            .map(|(number, busy_ns, contention_ns)| CpuReading {
                node: Some(number / 2),
                contention_ns: Some(n * contention_ns),
                throttled_pressure_ns: Some(0),
                ..cpu(number, number / 2, n * busy_ns, 0)
            })
            .to_vec(),
        ..Sample::default()
    };
    let nodes = Interval::between(&at(1), &at(2)).by_node();
    // CPU 0 was never idle. CPU 1 was idle for a quarter of the time.
    assert_eq!(nodes.iter().map(|node| node.contention_ns).collect::<Vec<_>>(), [Some(400), Some(900)]);
}

#[test]
fn the_mean_of_the_largest_numbers_does_not_overflow() {
    let largest = |cpu| CpuInterval {
        cpu,
        node: Some(0),
        busy_ns: Some(u64::MAX),
        contention_ns: Some(u64::MAX),
        throttled_pressure_ns: Some(u64::MAX),
        ..CpuInterval::default()
    };
    let interval =
        Interval { duration_ns: u64::MAX, cpus: (0..3).map(largest).collect(), ..Interval::default() };
    let node = &interval.by_node()[0];
    assert!(node.contention_ns >= Some(u64::MAX / 3) && node.throttled_pressure_ns >= Some(u64::MAX / 3));
}
