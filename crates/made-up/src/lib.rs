//! Generates samples of a fictitious host of any size, for tests and benchmarks. The same arguments always produce the same
//! samples.
#![allow(missing_docs, reason = "comments say only what names and types do not say")]

pub mod demand;
pub mod loads;
pub mod small;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_ledger::{
    BUCKETS, Loss, bucket_of,
    cause::{CELLS, COLUMNS, WHOLE, cell_of, column_of, row_of},
    high_ns,
    history::KERNEL,
    low_ns,
};
use cgscope_model::{
    Accounts, BLOCKED_STATES, Blame, ByCause, ByState, Cause, CgroupReading, Cost, CpuReading, CpuTimes,
    CpuWaits, ExitedReading, Hist, Losses, Mode, NodeReading, PairReading, Pending, Placement, Sample,
    TaskReading, TaskState, Totals, path::path_and_ancestors,
};

/// Time between the samples of two consecutive rounds, ns.
pub const ROUND_NS: u64 = 1_000_000_000;
/// Number of CPUs of the host. Each of its two NUMA nodes has half of them.
pub const CPUS: u32 = 64;

/// Returns the sample after `round` rounds. The host has `tasks` tasks in `cgroups` leaf cgroups (at least 1) and their
/// ancestors.
///
/// All counters are zero in round 0. In each later round, every counter grows by the same amount as in the round before. The
/// cgroups are Kubernetes pods (two containers each, one of them `pause`), services and users, some with quotas. Some tasks are
/// kernel threads in the root cgroup. Processes have up to ten threads. Each leaf cgroup has one pair of victim and culprit, and
/// a second pair if its quota ran out.
pub fn host(tasks: u32, cgroups: u32, round: u64) -> Sample {
    let names = CgroupNames::new(cgroups.max(1));
    let owners = (FIRST_TID..).zip(owners(tasks, &names));
    Sample {
        unix_ns: 1_700_000_000 * 1_000_000_000 + round * ROUND_NS,
        mono_ns: BOOTED_NS + round * ROUND_NS,
        mode: Mode::Bpf,
        tasks: owners.map(|(tid, owner)| Arc::new(task(tid, owner, round))).collect(),
        exited: exited(&names, round),
        pairs: pairs(&names, round),
        limits: names.paths.keys().map(|id| limits_of(*id, round)).collect(),
        cgroups: names.paths.iter().map(|(id, path)| (*id, path.clone())).collect(),
        cpus: (0..CPUS).map(|cpu| cpu_of(cpu, round)).collect(),
        nodes: vec![node(0), node(1)],
        losses: Losses::from_iter([(Loss::ALL[0].name(), 0)]),
        cost: Cost {
            switches: Some(round * 400_000),
            hook_ns_per_run: Some(60.0),
            cpu_ns: Some(round * 9_000_000),
            rss_bytes: Some(30 << 20),
        },
        ..Sample::default()
    }
}

/// The time of round 0, ns of CLOCK_MONOTONIC.
const BOOTED_NS: u64 = 3_600 * 1_000_000_000;

fn node_of(cpu: u32) -> u32 {
    cpu / (CPUS / 2)
}

fn cpu_of(cpu: u32, round: u64) -> CpuReading {
    let mut chance = Chance::of(u64::from(cpu) | 1 << 40);
    let busy_ns = ROUND_NS / 2 + chance.below(ROUND_NS / 5 * 2);
    let cells = (40..100).map(|bucket| (bucket, (1 + chance.below(20)) * round));
    let hist = Hist::from_cells(cells.filter(|(_, count)| *count != 0), []).unwrap_or_default();
    CpuReading {
        cpu,
        is_isolated: false,
        node: Some(node_of(cpu)),
        busy_ns: Some(busy_ns * round),
        idle_ns: Some((ROUND_NS - busy_ns) * round),
        waits: Some(CpuWaits {
            max_ns: hist.highest_ns().unwrap_or(0),
            by_cause: ByCause::only(Cause::Wakeup, hist.count() * 10_000),
            hist: Arc::new(hist),
            came_from: if round == 0 { Vec::new() } else { vec![(1 - node_of(cpu), 30 * round)] },
        }),
        contention_ns: Some(busy_ns / 8 * round),
        throttled_pressure_ns: Some(busy_ns / 40 * round),
    }
}

fn node(node: u32) -> NodeReading {
    let free_bytes = Some((40 + 20 * u64::from(node)) << 30);
    NodeReading { node, memory_bytes: Some(256 << 30), free_bytes }
}

/// Adds accounts to a sample. A quarter of the CPU time is in the kernel, and a tenth of the blocked time is spent waiting for a
/// device.
pub fn with_accounts(sample: Sample) -> Sample {
    let now_ns = sample.mono_ns;
    let of_task = |task: Arc<TaskReading>| {
        let waited_ns = task.totals.wait_ns + task.pending_ns().unwrap_or(0);
        let off_ns = now_ns.saturating_sub(task.start_ns).saturating_sub(task.totals.on_cpu_ns + waited_ns);
        let accounts = Some(accounts(&task.totals, off_ns));
        Arc::new(TaskReading { accounts, ..Arc::unwrap_or_clone(task) })
    };
    let tasks = sample.tasks.into_iter().map(of_task).collect();
    let mut exited = sample.exited;
    exited.iter_mut().for_each(|exited| exited.accounts = Some(accounts(&exited.totals, 7 * exited.tasks)));
    Sample { tasks, exited, ..sample }
}

fn accounts(totals: &Totals, blocked_ns: u64) -> Arc<Accounts> {
    let system_ns = totals.on_cpu_ns / 4;
    let cpu = CpuTimes { user_ns: totals.on_cpu_ns - system_ns, system_ns, guest_ns: 0 };
    let mut states = [0; BLOCKED_STATES];
    (states[0], states[1]) = (blocked_ns - blocked_ns / 10, blocked_ns / 10);
    Arc::new(Accounts { cpu, blocked: Some(ByState(states)), ..Accounts::default() })
}

/// Id of the root. The ids of the other cgroups follow.
const ROOT: u64 = 1;
/// One of this many cgroups has a quota.
const WITH_QUOTA: u64 = 8;
/// One of this many quotas runs out.
const RAN_OUT: u64 = 4;

struct CgroupNames {
    /// Paths by cgroup id.
    paths: BTreeMap<u64, Arc<str>>,
    /// Ids of cgroups with tasks.
    leaves: Vec<u64>,
}

impl CgroupNames {
    fn new(leaves: u32) -> Self {
        let mut names = Self { paths: BTreeMap::new(), leaves: Vec::new() };
        let mut known: BTreeSet<Arc<str>> = BTreeSet::new();
        for leaf in 0..u64::from(leaves) {
            let path = path_of(leaf);
            let with_ancestors: Vec<&str> = path_and_ancestors(&path).collect();
            for path in with_ancestors.into_iter().rev() {
                if known.insert(path.into()) {
                    names.paths.insert(ROOT + names.paths.len() as u64, path.into());
                }
            }
            names.leaves.push(names.paths.len() as u64);
        }
        names
    }
}

/// Returns the path of a leaf. Most leaves are containers; the others are services, user applications, and virtual machines.
fn path_of(leaf: u64) -> String {
    match leaf % 20 {
        0..16 => pod(leaf),
        16 | 17 => format!("/system.slice/{}-{leaf}.service/main", service(leaf)),
        18 => {
            format!("/user.slice/user-{0}.slice/user@{0}.service/app.slice/app-{leaf}.scope", 1000 + leaf % 7)
        }
        _ => format!("/machine.slice/machine-qemu\\x2d{leaf}.scope/libvirt/vcpu0"),
    }
}

fn service(leaf: u64) -> &'static str {
    ["nginx", "postgresql", "sshd", "cron", "node-exporter", "dbus", "systemd-journald"][leaf as usize % 7]
}

fn pod(leaf: u64) -> String {
    let pod = leaf / 2;
    let class = ["-burstable", "-besteffort", ""][pod as usize % 3];
    let (uid, container) = (hex::<2>(pod), hex::<4>(leaf + (1 << 32)));
    let within = if class.is_empty() { String::new() } else { format!("/kubepods{class}.slice") };
    format!("/kubepods.slice{within}/kubepods{class}-pod{uid}.slice/cri-containerd-{container}.scope")
}

/// Returns an id with 16 digits for each of `N` numbers.
fn hex<const N: usize>(seed: u64) -> String {
    let mut chance = Chance::of(seed);
    [(); N].map(|()| format!("{:016x}", chance.next())).concat()
}

/// Returns the throttled time in each round, ns; `None` if the cgroup has no quota or never uses up its quota.
fn throttled_ns(id: u64) -> Option<u64> {
    let mut chance = Chance::of(id ^ 0x71);
    (has_quota(id) && chance.below(RAN_OUT) == 0).then(|| 5_000_000 + chance.below(200_000_000))
}

fn has_quota(id: u64) -> bool {
    id != ROOT && Chance::of(id ^ 0x70).below(WITH_QUOTA) == 0
}

fn limits_of(id: u64, round: u64) -> CgroupReading {
    let mut chance = Chance::of(id);
    let usage_ns = chance.below(60_000_000) * round;
    let quota_us = has_quota(id).then(|| 50_000 * (1 + chance.below(8)));
    let ran_out_ns = throttled_ns(id);
    let periods = quota_us.map(|_| 10 * round);
    let there = (1 + chance.below(64)) << 20;
    CgroupReading {
        id,
        quota_us,
        period_us: (id != ROOT).then_some(100_000),
        burst_us: quota_us.map(|_| 0),
        weight: (id != ROOT).then(|| chance.one_of(&[20, 79, 100, 157])),
        cpus: Some(CPUS),
        memory_by_node: vec![(0, there), (1, there / 3)],
        usage_ns: Some(usage_ns),
        user_ns: Some(usage_ns / 4 * 3),
        system_ns: Some(usage_ns / 4),
        nr_periods: periods,
        nr_throttled: periods.map(|_| round * ran_out_ns.map_or(0, |ns| 1 + ns / 30_000_000)),
        throttled_ns: periods.map(|_| ran_out_ns.unwrap_or(0) * round),
        nr_bursts: periods.map(|_| 0),
        burst_ns: periods.map(|_| 0),
        pressure_some_ns: Some(usage_ns / 10),
        pressure_full_ns: Some(usage_ns / 20),
        contention_ns: Some(usage_ns / 16),
        throttled_pressure_ns: Some(usage_ns / 32),
        pressure_uncertain_ns: Some(usage_ns / 1_000),
        ..CgroupReading::default()
    }
}

/// Returns one pair for each leaf cgroup, and one more for each quota that ran out.
fn pairs(names: &CgroupNames, round: u64) -> Vec<PairReading> {
    let nobody: Arc<str> = "".into();
    let pair = |victim: u64, culprit: u64, blame: Blame, ns: u64| PairReading {
        victim,
        culprit,
        blame,
        tid: 0,
        comm: nobody.clone(),
        ns: ns * round,
    };
    let mut pairs = Vec::new();
    for victim in &names.leaves {
        let mut chance = Chance::of(victim ^ 0x99);
        // A few culprits make many tasks wait, because the product of two random numbers favours the first cgroups.
        let leaves = names.leaves.len() as u64;
        let square = chance.below(leaves) * chance.below(leaves) / leaves;
        let culprit = if chance.below(10) == 0 { KERNEL } else { names.leaves[square as usize] };
        pairs.push(pair(*victim, culprit, Blame::Ran, 1_000 + chance.below(80_000_000)));
        pairs.extend(throttled_ns(*victim).map(|ns| pair(*victim, *victim, Blame::Limited, ns)));
    }
    pairs.retain(|pair| pair.ns != 0);
    pairs.sort_by_key(PairReading::key);
    pairs
}

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
const KERNEL_THREAD: &[&str] =
    &["kworker/0:1", "ksoftirqd/3", "migration/7", "rcu_preempt", "kswapd0", "jbd2/sda1-8"];

struct TaskOwner {
    cgroup_id: u64,
    tgid: u32,
    comm: Arc<str>,
}

/// Returns the cgroup, process and name of each task, kernel threads first.
///
/// Each pod consists of two leaf cgroups. The first of them has only one task, `pause`.
fn owners(tasks: u32, names: &CgroupNames) -> Vec<TaskOwner> {
    // Tasks with the same name share the string.
    let [main, thread, kernel] = [MAIN, THREAD, KERNEL_THREAD]
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
fn exited(names: &CgroupNames, round: u64) -> Vec<ExitedReading> {
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

/// A generator of pseudo-random numbers (splitmix64). The same seed always produces the same numbers.
#[derive(Clone, Debug, Default)]
struct Chance(u64);

impl Chance {
    fn of(number: u64) -> Self {
        Self(number.wrapping_mul(0xd134_2543_de82_ef95))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Returns a number from 0 to `end` - 1.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}
