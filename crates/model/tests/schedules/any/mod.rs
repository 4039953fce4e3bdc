//! Generates random Samples that a recording can hold, with any values.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_ledger::{BUCKETS, Loss, cause::CELLS, chains::Waker, history::KERNEL};
use cgscope_model::{
    Autogroup, BeforeMove, Blame, BlockedKind, ByCause, CAUSES, CgroupReading, ChainReading,
    ContainerReading, Cost, CpuReading, CpuWaits, ExitedReading, Hist, Losses, Mode, NodeReading,
    PairReading, Pending, Placement, ProcessMemory, Sample, TaskReading, Totals,
};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
};

/// Generates zero, usual values, any values, and the largest value.
fn amount() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), 0..100_000_000u64, any::<u64>(), Just(u64::MAX)]
}

fn maybe() -> impl Strategy<Value = Option<u64>> {
    option::of(amount())
}

fn hist() -> impl Strategy<Value = Arc<Hist>> {
    let cells = |n: u32| btree_map(0..n, amount().prop_map(|count| count.max(1)), 0..6);
    (cells(BUCKETS as u32), cells(CELLS as u32))
        .prop_map(|(counts, shares)| Arc::new(Hist::from_cells(counts, shares).expect("cells in order")))
}

fn by_cause() -> impl Strategy<Value = ByCause> {
    vec(amount(), CAUSES).prop_map(|ns| ByCause(ns.try_into().expect("one for each")))
}

fn totals() -> impl Strategy<Value = Totals> {
    (vec(amount(), 10), by_cause()).prop_map(|(ns, by_cause)| Totals {
        waits: ns[0],
        wait_ns: ns[1],
        run_delay_ns: ns[2],
        unstamped: ns[3],
        unstamped_ns: ns[4],
        on_cpu_ns: ns[5],
        voluntary: ns[6],
        involuntary: ns[7],
        migrations: ns[8],
        throttled_waits: ns[9],
        by_cause,
    })
}

fn task() -> impl Strategy<Value = TaskReading> {
    let pending = option::of((amount(), amount(), by_cause()));
    let placement = option::of((maybe(), option::of(btree_map(0..2u32, amount(), 0..3))));
    let ids = (0..3u32, 0..6u64, 0..3u32, option::of(0..2u32), any::<bool>());
    let before_move = option::of((totals(), hist()));
    (
        ids,
        "[a-c]{0,2}(-[0-9])?",
        (amount(), maybe(), before_move),
        amount(),
        pending,
        placement,
        totals(),
        hist(),
    )
        .prop_map(
            |(
                (tgid, cgroup_id, cpu, node, on_cpu),
                comm,
                (start_ns, moved_ns, before_move),
                max_ns,
                pending,
                placement,
                totals,
                hist,
            )| {
                TaskReading {
                    accounts: None,
                    serial: 0,
                    tid: tgid,
                    tgid,
                    comm: comm.into(),
                    start_ns,
                    moved_ns,
                    before_move: before_move
                        .map(|(totals, hist)| BeforeMove { totals, accounts: None, hist }.into()),
                    cgroup_id,
                    cpu,
                    node,
                    on_cpu,
                    state: None,
                    pending: pending
                        .map(|(ns, booked_ns, by_cause)| Pending { ns, booked_ns, by_cause }.into()),
                    placement: placement.map(|(node_migrations, ran_ns)| {
                        let ran_ns = ran_ns.map(|ran_ns| ran_ns.into_iter().collect());
                        let cpus_allowed = node_migrations.map(|_| "0-1".into());
                        let autogroup =
                            node_migrations.map(|number| Autogroup { number: number % 3, nice: 0 });
                        Arc::new(Placement {
                            node_migrations,
                            ran_ns,
                            cpus_allowed,
                            autogroup,
                            ..Placement::default()
                        })
                    }),
                    scheduling: None,
                    max_ns,
                    totals,
                    hist,
                }
            },
        )
}

fn exited() -> impl Strategy<Value = ExitedReading> {
    (amount(), amount(), totals(), hist()).prop_map(|(tasks, max_ns, totals, hist)| ExitedReading {
        accounts: None,
        cgroup_id: 0,
        tasks,
        max_ns,
        totals,
        hist,
    })
}

fn limits() -> impl Strategy<Value = CgroupReading> {
    let memory = btree_map(0..2u32, amount(), 0..3);
    (vec(maybe(), 16), memory).prop_map(|(figures, memory)| CgroupReading {
        id: 0,
        quota_us: figures[0],
        period_us: figures[1],
        burst_us: figures[2],
        weight: figures[3],
        cpus: figures[4].map(|cpus| cpus as u32),
        cpuset: None,
        memory_by_node: memory.into_iter().collect(),
        usage_ns: figures[5],
        user_ns: figures[6],
        system_ns: figures[7],
        nr_periods: figures[8],
        nr_throttled: figures[9],
        throttled_ns: figures[10],
        nr_bursts: figures[11],
        burst_ns: figures[12],
        contention_ns: figures[13],
        throttled_pressure_ns: figures[14],
        pressure_uncertain_ns: figures[15],
        ..CgroupReading::default()
    })
}

fn cpu() -> impl Strategy<Value = CpuReading> {
    let came_from = btree_map(0..2u32, amount(), 0..3);
    let waits = option::of((amount(), by_cause(), hist(), came_from));
    (option::of(0..2u32), vec(maybe(), 4), waits).prop_map(|(node, figures, waits)| CpuReading {
        cpu: 0,
        is_isolated: node == Some(1),
        node,
        busy_ns: figures[0],
        idle_ns: figures[1],
        contention_ns: figures[2],
        throttled_pressure_ns: figures[3],
        waits: waits.map(|(max_ns, by_cause, hist, came_from)| CpuWaits {
            max_ns,
            by_cause,
            hist,
            came_from: came_from.into_iter().collect(),
        }),
    })
}

fn chains() -> impl Strategy<Value = Option<Vec<ChainReading>>> {
    let key = (0..6u64, 0..2u32, 0..BlockedKind::ALL.len(), 0..Waker::ALL.len(), 0..6u64, 0..2u32);
    let sums = ([amount(), amount(), amount(), amount(), amount(), amount()], by_cause());
    let rows = vec((key, sums), 0..8).prop_map(|rows| {
        let rows = rows.into_iter().map(
            |((sleeper, sleeper_tid, kind, waker, waker_cgroup, waker_tid), (sums, by_cause))| {
                let [count, slept_ns, ran_ns, waker_slept_ns, unknown_ns, estimated_ns] = sums;
                ChainReading {
                    sleeper,
                    sleeper_tid,
                    kind: BlockedKind::ALL[kind],
                    waker: Waker::ALL[waker],
                    waker_cgroup,
                    waker_tid,
                    comm: "w".into(),
                    count,
                    slept_ns,
                    ran_ns,
                    by_cause,
                    waker_slept_ns,
                    unknown_ns,
                    estimated_ns,
                }
            },
        );
        let by_key: BTreeMap<_, _> = rows.map(|row| (row.key(), row)).collect();
        by_key.into_values().collect()
    });
    option::of(rows)
}

/// Generates a Sample of a host with few elements of each kind. Therefore two Samples have most elements in common.
pub fn sample() -> impl Strategy<Value = Sample> {
    let of_time = (amount(), amount(), any::<bool>(), (maybe(), option::of(0.0..1e12), maybe()));
    let of_cgroups = (
        btree_map(0..6u64, limits(), 0..4),
        btree_map((0..6u64, prop_oneof![0..6u64, Just(KERNEL)], any::<bool>(), 0..2u32), amount(), 0..6),
        btree_map(0..3u64, exited(), 0..3),
    );
    let of_host = (btree_map(0..3u32, cpu(), 0..3), btree_map(0..2u32, (maybe(), maybe()), 0..3), amount());
    let memory = btree_map(0..3u32, btree_map(0..2u32, amount(), 0..3), 0..2);
    (of_time, btree_map(0..6u64, task(), 0..5), of_cgroups, of_host, (memory, chains())).prop_map(
        |(
            (unix_ns, mono_ns, coarse, cost),
            tasks,
            (limits, pairs, exited),
            (cpus, nodes, lost),
            (memory, chains),
        )| {
            let mut losses = Losses::default();
            losses.add(Loss::ALL[0], lost);
            let paths = ["/", "/a", "/a/b", "/a/b-2", "/c"];
            let blame = |limited| if limited { Blame::Limited } else { Blame::Ran };
            let mut pairs: Vec<PairReading> = pairs
                .into_iter()
                .map(|((victim, culprit, limited, tid), ns)| PairReading {
                    victim,
                    culprit,
                    blame: blame(limited),
                    tid,
                    comm: "c".into(),
                    ns,
                })
                .collect();
            pairs.sort_by_key(PairReading::key);
            Sample {
                stacks: Vec::new(),
                has_chains: chains.is_some(),
                chains: chains.unwrap_or_default(),
                unix_ns,
                mono_ns,
                mode: if coarse { Mode::Coarse } else { Mode::Bpf },
                sched_ext: None,
                tasks: tasks
                    .into_iter()
                    .map(|(serial, task)| Arc::new(TaskReading { serial, ..task }))
                    .collect(),
                exited: exited.into_iter().map(|(id, one)| ExitedReading { cgroup_id: id, ..one }).collect(),
                pairs,
                limits: limits.into_iter().map(|(id, one)| CgroupReading { id, ..one }).collect(),
                cgroups: (0..).zip(paths.map(Arc::from)).collect(),
                containers: vec![ContainerReading {
                    cgroup_id: 1,
                    container: Some("c".into()),
                    pod: None,
                    namespace: None,
                }],
                demand_until_ns: None,
                demand: Vec::new(),
                cpus: cpus.into_iter().map(|(cpu, one)| CpuReading { cpu, ..one }).collect(),
                nodes: nodes
                    .into_iter()
                    .map(|(node, (memory_bytes, free_bytes))| NodeReading { node, memory_bytes, free_bytes })
                    .collect(),
                memory: memory
                    .into_iter()
                    .map(|(tgid, by_node)| ProcessMemory {
                        tgid,
                        by_node: by_node.into_iter().collect(),
                        policies: Vec::new(),
                    })
                    .collect(),
                losses,
                cost: Cost { switches: cost.0, hook_ns_per_run: cost.1, cpu_ns: cost.2, rss_bytes: cost.2 },
            }
        },
    )
}

/// Returns an earlier Sample with all counters at 0. The interval between the two Samples has all figures, because no counter
/// decreases.
pub fn nothing_before(sample: &Sample) -> Sample {
    let cpus = sample.cpus.iter().map(|cpu| CpuReading {
        busy_ns: Some(0),
        idle_ns: Some(0),
        waits: Some(CpuWaits::default()),
        ..cpu.clone()
    });
    let limits = sample.limits.iter().map(|limits| CgroupReading {
        id: limits.id,
        usage_ns: Some(0),
        nr_periods: Some(0),
        nr_throttled: Some(0),
        throttled_ns: Some(0),
        ..CgroupReading::default()
    });
    Sample {
        mode: sample.mode,
        mono_ns: 0,
        limits: limits.collect(),
        cpus: cpus.collect(),
        cgroups: sample.cgroups.clone(),
        ..Sample::default()
    }
}
