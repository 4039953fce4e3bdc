//! Samples to record, and functions to write and read them.

use std::{collections::BTreeMap, io::Cursor, sync::Arc};

use cgscope_ledger::{BUCKETS, CAUSES, Cause, Loss, cause::CELLS, chains::Waker};
use cgscope_model::{
    BeforeMove, Blame, BlockedKind, ByCause, CgroupReading, ChainReading, ContainerReading, Cost, CpuReading,
    CpuWaits, Cpuset, DemandReading, ExitedReading, Hist, Losses, Mode, NodeReading, PairReading, Pending,
    Placement, ProcessMemory, Sample, SchedExt, Scheduling, Selection, TaskReading, TaskState, Totals,
    doctor::CgroupLayout,
};
use cgscope_record::{Cpu, Ending, Gap, Header, ReadError, Reader, Reason, Writer};
use proptest::prelude::*;

pub(crate) fn header() -> Header {
    Header {
        cgscope_version: "0.1.0".into(),
        hostname: "host".into(),
        kernel_release: "6.12.1".into(),
        architecture: "x86_64".into(),
        cpus: vec![Cpu { cpu: 0, node: Some(0) }, Cpu { cpu: 1, node: None }],
        cgroups: CgroupLayout::V2,
        selection: Selection { pids: vec![4711], ..Selection::default() },
        command: Some(vec!["sleep".into(), "1".into()]),
        interval_ns: 1_000_000_000,
        start_unix_ns: 1_700_000_000_000_000_000,
    }
}

pub(crate) fn task(serial: u64, waits_ns: &[u64]) -> TaskReading {
    let totals = Totals { waits: waits_ns.len() as u64, wait_ns: waits_ns.iter().sum(), ..Totals::default() };
    TaskReading {
        accounts: None,
        serial,
        tid: serial as u32,
        tgid: serial as u32,
        comm: "worker".into(),
        start_ns: 5,
        moved_ns: None,
        before_move: None,
        cgroup_id: 42,
        cpu: 1,
        node: None,
        on_cpu: false,
        state: None,
        pending: Some(Pending { ns: 12, booked_ns: 3, by_cause: ByCause::only(Cause::Throttled, 12) }.into()),
        scheduling: None,
        placement: Some(Arc::new(Placement {
            parent: None,
            autogroup: None,
            node_migrations: Some(2),
            ran_ns: Some(vec![(0, 4_000)]),
            preferred_node: None,
            cpus_allowed: Some("0-3".into()),
            cpuset: Some(Arc::new(Cpuset { path: "/a".into(), cpus: "0-3".into() })),
        })),
        max_ns: waits_ns.iter().copied().max().unwrap_or(0),
        totals,
        hist: Arc::new(Hist::from_waits_ns(waits_ns.iter().copied())),
    }
}

fn cpu(cpu: u32, n: u64) -> CpuReading {
    let waits = CpuWaits {
        max_ns: n,
        by_cause: ByCause::only(Cause::Kernel, n),
        hist: Arc::new(Hist::of_cause(Cause::Kernel, [n])),
        came_from: vec![(1, n)],
    };
    CpuReading { cpu, node: Some(0), busy_ns: Some(n), waits: Some(waits), ..CpuReading::default() }
}

fn memory(tgid: u32, n: u64) -> ProcessMemory {
    ProcessMemory { tgid, by_node: vec![(0, n), (1, 2)], policies: vec![("bind:1".into(), n)] }
}

/// Returns a container. If its id is even, the container is in a pod.
fn container(cgroup_id: u64, name: &str) -> ContainerReading {
    let pod = cgroup_id.is_multiple_of(2).then(|| name.into());
    ContainerReading { cgroup_id, container: Some(name.into()), namespace: pod.clone(), pod }
}

/// Returns the demand of a cgroup, with different slots in each sample.
pub(crate) fn demand(cgroup_id: u64, n: u64) -> DemandReading {
    let slots = (0..n % 70)
        .map(|slot| [slot * (n % 64) % 64, slot * (cgroup_id % 64) % 64, n % 3, slot % 5, slot % 2]);
    let reading = DemandReading::new(cgroup_id, 22 + (n % 3) as u32, n, &slots.collect::<Vec<_>>());
    reading.unwrap_or(DemandReading { cgroup_id, ..DemandReading::default() })
}

fn chain(sleeper: u64, waker_cgroup: u64, n: u64) -> ChainReading {
    ChainReading {
        sleeper,
        sleeper_tid: n as u32,
        kind: BlockedKind::ALL[(n % BlockedKind::ALL.len() as u64) as usize],
        waker: Waker::ALL[(n % Waker::ALL.len() as u64) as usize],
        waker_cgroup,
        waker_tid: 7,
        comm: "waker".into(),
        count: n,
        slept_ns: n,
        ran_ns: n / 2,
        by_cause: ByCause::only(Cause::Throttled, n / 3),
        waker_slept_ns: n / 4,
        unknown_ns: 0,
        estimated_ns: n / 5,
    }
}

fn pair(victim: u64, culprit: u64, ns: u64) -> PairReading {
    PairReading { victim, culprit, blame: Blame::Ran, tid: 5, comm: "hog".into(), ns }
}

/// Returns a BPF scheduler that is loaded in every other sample.
fn scheduler(n: u64) -> SchedExt {
    let is_loaded = n.is_multiple_of(2);
    SchedExt { scheduler: is_loaded.then(|| "simple".into()), takes_all: is_loaded }
}

pub(crate) fn sample(n: u64) -> Sample {
    let mut losses = Losses::default();
    losses.add(Loss::ReadingCutShort, n);
    Sample {
        stacks: Vec::new(),
        unix_ns: 1_700_000_000_000_000_000 + n,
        mono_ns: 1_000_000_000 * n,
        mode: Mode::Bpf,
        sched_ext: None,
        tasks: [task(7, &[1_000, 70_000]), task(9, &vec![3_000; n as usize])].map(Arc::new).to_vec(),
        exited: vec![ExitedReading {
            accounts: None,
            cgroup_id: 42,
            tasks: n,
            max_ns: 9_000,
            totals: Totals { waits: 1, ..Totals::default() },
            hist: Arc::new(Hist::of_cause(Cause::OtherCgroup, [9_000])),
        }],
        pairs: vec![pair(42, 43, n)],
        has_chains: false,
        chains: Vec::new(),
        limits: vec![CgroupReading {
            id: 42,
            quota_us: Some(50_000),
            period_us: Some(100_000),
            cpuset: Some("0-3".into()),
            memory_by_node: vec![(0, n), (8, 2)],
            ..Default::default()
        }],
        containers: Vec::new(),
        demand_until_ns: None,
        demand: Vec::new(),
        cgroups: vec![(1, "/".into()), (42, "/a/b".into())],
        cpus: vec![cpu(0, n), cpu(3, n)],
        nodes: vec![NodeReading { node: 0, memory_bytes: Some(1 << 30), free_bytes: None }],
        memory: vec![memory(7, n)],
        losses,
        cost: Cost { switches: Some(n), hook_ns_per_run: Some(55.5), cpu_ns: None, rss_bytes: Some(4096) },
    }
}

pub(crate) fn samples(n: u64) -> Vec<Sample> {
    (0..n).map(sample).collect()
}

/// Returns a file with these samples, and the end offset of the header and of each frame.
pub(crate) fn file(samples: &[Sample]) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::create(Vec::new(), &header()).unwrap();
    let mut ends = vec![writer.bytes as usize];
    for sample in samples {
        writer.sample(sample).unwrap();
        ends.push(writer.bytes as usize);
    }
    let file = writer.end(99, Reason::Finished).unwrap();
    ends.push(file.len());
    (file, ends)
}

pub(crate) fn reader(file: &[u8]) -> Result<Reader<Cursor<&[u8]>>, ReadError> {
    Reader::new(Cursor::new(file))
}

pub(crate) fn read(file: &[u8]) -> Result<(Vec<Sample>, Ending), ReadError> {
    let mut reader = reader(file)?;
    let samples = reader.by_ref().collect::<Result<_, _>>()?;
    Ok((samples, reader.ending.as_ref().expect("the iteration is over").clone()))
}

/// Returns the number of bytes that the reader could not use.
pub(crate) fn lost_bytes(ending: &Ending) -> u64 {
    match ending {
        Ending::Clean(_) | Ending::Killed => 0,
        Ending::Torn { lost_bytes } | Ending::Corrupt(Gap { lost_bytes, .. }) => *lost_bytes,
    }
}

pub(crate) fn any_hist() -> impl Strategy<Value = Arc<Hist>> {
    let cells = |n: usize| prop::collection::btree_map(0..n, 0..u64::MAX, 0..20);
    (cells(BUCKETS), cells(CELLS)).prop_map(|(counts, shares)| {
        let all = |n: usize, counts: BTreeMap<usize, u64>| {
            (0..n).map(move |cell| counts.get(&cell).copied().unwrap_or(0))
        };
        Arc::new(Hist::from_counts(all(BUCKETS, counts), all(CELLS, shares)))
    })
}

fn any_totals() -> impl Strategy<Value = Totals> {
    (any::<[u64; 5]>(), any::<[u64; 5]>(), any::<[u64; CAUSES]>()).prop_map(
        |(
            [waits, wait_ns, run_delay_ns, unstamped, unstamped_ns],
            [on_cpu_ns, voluntary, involuntary, migrations, throttled_waits],
            by_cause,
        )| {
            Totals {
                waits,
                wait_ns,
                run_delay_ns,
                unstamped,
                unstamped_ns,
                on_cpu_ns,
                voluntary,
                involuntary,
                migrations,
                throttled_waits,
                by_cause: ByCause(by_cause),
            }
        },
    )
}

/// Replaces terminal control characters in a name, as readers do.
fn name(pattern: &'static str) -> impl Strategy<Value = String> {
    pattern.prop_map(|name| cgscope_model::printable(&name).to_string())
}

fn any_task() -> impl Strategy<Value = TaskReading> {
    let ids = (any::<[u32; 3]>(), any::<[u64; 3]>(), any::<Option<u32>>(), any::<bool>());
    let pending = prop::option::of((0..u64::MAX, 0..u64::MAX));
    (ids, name("\\PC{0,16}"), pending, any_totals(), any_hist()).prop_map(
        |(([tid, tgid, cpu], [start_ns, cgroup_id, max_ns], node, on_cpu), comm, pending, totals, hist)| {
            TaskReading {
                accounts: None,
                serial: 0,
                tid,
                tgid,
                comm: comm.into(),
                start_ns,
                moved_ns: (max_ns % 3 == 0).then_some(start_ns / 2),
                before_move: (max_ns % 6 == 0)
                    .then(|| BeforeMove { totals, accounts: None, hist: hist.clone() }.into()),
                cgroup_id,
                cpu,
                node,
                on_cpu,
                state: TaskState::ALL.get(max_ns as usize % 10).copied(),
                pending: pending.map(|(ns, booked_ns)| {
                    let by_cause = ByCause([ns; CAUSES]);
                    Pending { ns, booked_ns, by_cause }.into()
                }),
                placement: pending.map(|(ns, moves)| {
                    Arc::new(Placement {
                        node_migrations: Some(moves),
                        ran_ns: node.map(|node| vec![(node, ns)]),
                        ..Placement::default()
                    })
                }),
                scheduling: pending
                    .map(|(ns, moves)| Scheduling { policy: ns as u8, is_bound: moves % 2 == 0 }),
                max_ns,
                totals,
                hist,
            }
        },
    )
}

fn any_exited() -> impl Strategy<Value = ExitedReading> {
    (any::<[u64; 2]>(), any_totals(), any_hist()).prop_map(|([tasks, max_ns], totals, hist)| ExitedReading {
        accounts: None,
        cgroup_id: 0,
        tasks,
        max_ns,
        totals,
        hist,
    })
}

/// Generates only values that a file can hold: see `ColumnKind::Optional`.
fn any_optional() -> impl Strategy<Value = Option<u64>> {
    prop::option::of(0..u64::MAX)
}

fn any_cost() -> impl Strategy<Value = Cost> {
    let ns = prop::option::of(0.0..1e9f64);
    (prop::array::uniform3(any_optional()), ns).prop_map(
        |([switches, cpu_ns, rss_bytes], hook_ns_per_run)| Cost {
            switches,
            hook_ns_per_run,
            cpu_ns,
            rss_bytes,
        },
    )
}

fn any_losses() -> impl Strategy<Value = Losses> {
    prop::collection::vec((0..Loss::ALL.len(), 0..u64::MAX / 4), 0..4).prop_map(|counts| {
        let mut losses = Losses::default();
        for (loss, count) in counts {
            losses.add(Loss::ALL[loss], count);
        }
        losses
    })
}

pub(crate) fn any_sample() -> impl Strategy<Value = Sample> {
    let tasks = prop::collection::btree_map(any::<u64>(), any_task(), 0..6);
    let exited = prop::collection::btree_map(any::<u64>(), any_exited(), 0..3);
    let cgroups = prop::collection::btree_map(any::<u64>(), name("(/\\PC{0,12}){1,3}"), 0..4);
    let pairs = prop::collection::btree_map(any::<[u64; 2]>(), any::<u64>(), 0..4);
    let limits = prop::collection::btree_map(any::<u64>(), prop::array::uniform3(any_optional()), 0..4);
    let cpus = prop::collection::btree_map(any::<u32>(), 1..u64::MAX, 0..4);
    let coarse = any::<bool>();
    let whens = (any::<[u64; 2]>(), coarse);
    (whens, tasks, exited, (cgroups, pairs, limits), cpus, any_losses(), any_cost()).prop_map(
        |(([unix_ns, mono_ns], coarse), tasks, exited, (cgroups, pairs, limits), cpus, losses, cost)| {
            Sample {
                stacks: Vec::new(),
                mode: if coarse { Mode::Coarse } else { Mode::Bpf },
                sched_ext: (unix_ns % 3 != 0).then(|| scheduler(unix_ns)),
                cpus: cpus.iter().map(|(number, n)| cpu(*number, *n)).collect(),
                nodes: cpus
                    .iter()
                    .map(|(node, n)| NodeReading { node: *node, memory_bytes: None, free_bytes: Some(*n) })
                    .collect(),
                memory: cpus.iter().map(|(tgid, n)| memory(*tgid, *n)).collect(),
                has_chains: mono_ns % 3 == 0,
                chains: {
                    let chains = pairs.iter().map(|([sleeper, waker], ns)| chain(*sleeper, *waker, *ns));
                    let by_key: BTreeMap<_, _> = chains.map(|row| (row.key(), row)).collect();
                    by_key.into_values().collect()
                },
                pairs: pairs.into_iter().map(|([victim, culprit], ns)| pair(victim, culprit, ns)).collect(),
                limits: limits
                    .into_iter()
                    .map(|(id, [quota_us, nr_periods, usage_ns])| CgroupReading {
                        id,
                        quota_us,
                        nr_periods,
                        usage_ns,
                        memory_by_node: quota_us.iter().map(|bytes| (1, *bytes)).collect(),
                        ..CgroupReading::default()
                    })
                    .collect(),
                unix_ns,
                mono_ns,
                tasks: tasks
                    .into_iter()
                    .map(|(serial, task)| Arc::new(TaskReading { serial, ..task }))
                    .collect(),
                exited: exited.into_iter().map(|(cgroup_id, e)| ExitedReading { cgroup_id, ..e }).collect(),
                demand_until_ns: (unix_ns % 5 != 0).then_some(mono_ns),
                demand: cgroups.keys().map(|id| demand(*id, unix_ns)).collect(),
                containers: cgroups.iter().map(|(id, path)| container(*id, path)).collect(),
                cgroups: cgroups.into_iter().map(|(id, path)| (id, path.into())).collect(),
                losses,
                cost,
            }
        },
    )
}
