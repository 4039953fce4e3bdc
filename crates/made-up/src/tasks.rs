//! Generates readings of running and exited tasks.

use std::sync::Arc;

use cgscope_ledger::{
    BUCKETS, Cause, bucket_of,
    cause::{CELLS, COLUMNS, WHOLE, cell_of, column_of, row_of},
    high_ns, low_ns,
};
use cgscope_model::{ByCause, ExitedReading, Hist, Pending, Placement, TaskReading, TaskState, Totals};

use crate::{
    BOOTED_NS, CPUS, Chance, ROUND_NS,
    cgroups::{CgroupNames, ROOT},
    node_of,
};

/// One of this many tasks is a kernel thread.
const KERNEL_THREADS: u32 = 50;
const THREADS: u32 = 10;
/// One of this many tasks waits at the time of the reading.
const PENDING: u64 = 97;
const BUSY: u64 = 9;
const FIRST_TID: u32 = 1_000;

const MAIN: &[&str] = &["java", "postgres", "nginx", "envoy", "python3", "node", "redis-server", "kubelet"];
const THREAD: &[&str] = &[
    "GC Thread#0",
    "C2 CompilerThre",
    "http-nio-8080-e",
    "grpc_global_tim",
    "worker-3",
    "tokio-runtime-w",
    "rocksdb:low",
];
const KERNEL: &[&str] =
    &["kworker/0:1", "ksoftirqd/3", "migration/7", "rcu_preempt", "kswapd0", "jbd2/sda1-8"];

struct TaskOwner {
    cgroup_id: u64,
    tgid: u32,
    comm: Arc<str>,
}

pub(crate) fn all(tasks: u32, names: &CgroupNames, round: u64) -> Vec<Arc<TaskReading>> {
    (FIRST_TID..).zip(owners(tasks, names)).map(|(tid, owner)| Arc::new(task(tid, owner, round))).collect()
}

/// Returns the cgroup, process and name of each task, kernel threads first.
///
/// Each pod consists of two leaf cgroups. The first of them has only one task, `pause`.
fn owners(tasks: u32, names: &CgroupNames) -> Vec<TaskOwner> {
    // Tasks with the same name share the string.
    let [main, thread, kernel] = [MAIN, THREAD, KERNEL]
        .map(|names| names.iter().map(|name| Arc::from(*name)).collect::<Vec<Arc<str>>>());
    let pause: Arc<str> = "pause".into();
    let kernel_threads = tasks / KERNEL_THREADS;
    let kernel_thread = |i: u32| {
        let comm = kernel[i as usize % kernel.len()].clone();
        TaskOwner { cgroup_id: ROOT, tgid: FIRST_TID + i, comm }
    };
    let mut owners: Vec<TaskOwner> = (0..kernel_threads).map(kernel_thread).collect();
    let pods: Vec<&[u64]> = names.leaves.chunks(2).collect();
    let of_pods = u64::from(tasks - kernel_threads);
    let until = |pod: usize| kernel_threads + (of_pods * pod as u64 / pods.len() as u64) as u32;
    for (number, pod) in pods.iter().enumerate() {
        let (first, end) = (until(number), until(number + 1));
        for at in first..end {
            let process = if at == first { first } else { at - (at - first - 1) % THREADS };
            let comm = match (at == first, at == process) {
                (true, _) => pause.clone(),
                (_, true) => main[number % main.len()].clone(),
                _ => thread[at as usize % thread.len()].clone(),
            };
            let cgroup_id = if at == first { pod[0] } else { pod[pod.len() - 1] };
            owners.push(TaskOwner { cgroup_id, tgid: FIRST_TID + process, comm });
        }
    }
    owners
}

fn task(tid: u32, owner: TaskOwner, round: u64) -> TaskReading {
    let mut chance = Chance::of(tid.into());
    let cpu = chance.below(CPUS.into()) as u32;
    let busy = chance.below(BUSY) == 0;
    let ran_ns = if busy { 10_000_000 + chance.below(40_000_000) } else { chance.below(3_000_000) };
    let (hist, totals) = waits(&mut chance, round);
    let pending = chance.below(PENDING) == 0;
    let pending_ns = 1 + chance.below(ROUND_NS / 20);
    let away_ns = ran_ns / (2 + chance.below(6));
    let on_cpu = busy && chance.below(2) == 0;
    TaskReading {
        serial: tid.into(),
        tid,
        tgid: owner.tgid,
        comm: owner.comm,
        start_ns: BOOTED_NS - ROUND_NS,
        cgroup_id: owner.cgroup_id,
        cpu,
        node: Some(node_of(cpu)),
        on_cpu,
        // Most tasks that cannot run sleep; some wait for a disk.
        state: Some(match tid % 500 {
            _ if on_cpu || pending => TaskState::Running,
            0 => TaskState::DiskSleep,
            _ => TaskState::Sleeping,
        }),
        pending: pending.then(|| {
            let by_cause = ByCause::only(Cause::OtherCgroup, pending_ns);
            Pending { ns: pending_ns, booked_ns: 0, by_cause }.into()
        }),
        placement: Some(Arc::new(Placement {
            node_migrations: Some(chance.below(4) * round),
            ran_ns: Some(by_node(cpu, ran_ns * round, away_ns * round)),
            preferred_node: Some(node_of(cpu)),
            ..Placement::default()
        })),
        max_ns: hist.highest_ns().unwrap_or(0),
        totals: Totals {
            on_cpu_ns: ran_ns * round,
            voluntary: (20 + chance.below(200)) * round,
            involuntary: chance.below(20) * round,
            migrations: chance.below(30) * round,
            ..totals
        },
        hist: Arc::new(hist),
        ..TaskReading::default()
    }
}

fn by_node(cpu: u32, ran_ns: u64, away_ns: u64) -> Vec<(u32, u64)> {
    let home = node_of(cpu);
    let mut by_node = vec![(home, ran_ns - away_ns), (1 - home, away_ns)];
    by_node.retain(|(_, ns)| *ns != 0);
    by_node.sort_unstable();
    by_node
}

/// Returns the waits after `round` rounds, and their totals. Each round adds the same few waits, in 5 to 15 buckets between
/// microseconds and milliseconds.
fn waits(chance: &mut Chance, round: u64) -> (Hist, Totals) {
    let (mut counts, mut shares, mut by_cause) = ([0; BUCKETS], [0; CELLS], ByCause::default());
    let middle = bucket_of(2_000 << chance.below(8)) as u64;
    for _ in 0..5 + chance.below(11) {
        let bucket = (middle - 8 + chance.below(24)) as usize;
        let waits = (1 + chance.below(3)) * round;
        counts[bucket] += waits;
        let cause = chance.one_of(&Cause::ALL);
        by_cause.0[cause as usize] += waits * low_ns(bucket).midpoint(high_ns(bucket));
        if column_of(cause) < COLUMNS {
            shares[cell_of(row_of(bucket), column_of(cause))] += waits * u64::from(WHOLE);
        }
    }
    let hist = Hist::from_counts(counts, shares);
    let totals = Totals {
        waits: hist.count(),
        wait_ns: by_cause.total(),
        run_delay_ns: by_cause.total(),
        throttled_waits: if by_cause.get(Cause::Throttled) == 0 { 0 } else { round },
        by_cause,
        ..Totals::default()
    };
    (hist, totals)
}

/// Returns readings of exited tasks. Every tenth leaf cgroup has a few exited tasks.
pub(crate) fn exited(names: &CgroupNames, round: u64) -> Vec<ExitedReading> {
    let some = names.leaves.iter().step_by(10).filter(|_| round != 0);
    some.map(|id| {
        let mut chance = Chance::of(*id | 1 << 41);
        let (hist, totals) = waits(&mut chance, round);
        ExitedReading {
            cgroup_id: *id,
            tasks: 3 * round,
            max_ns: hist.highest_ns().unwrap_or(0),
            totals: Totals { on_cpu_ns: chance.below(1_000_000) * round, ..totals },
            hist: Arc::new(hist),
            ..ExitedReading::default()
        }
    })
    .collect()
}
