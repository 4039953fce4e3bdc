//! Generates samples of a fictitious host of any size, for tests and benchmarks. The same arguments always produce the same
//! samples.
#![allow(missing_docs, reason = "comments say only what names and types do not say")]

mod cgroups;
pub mod demand;
pub mod loads;
pub mod small;
mod tasks;

use std::sync::Arc;

use cgscope_ledger::Loss;
use cgscope_model::{
    Accounts, BLOCKED_STATES, ByCause, ByState, Cause, Cost, CpuReading, CpuTimes, CpuWaits, Hist, Losses,
    Mode, NodeReading, Sample, TaskReading, Totals,
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
    let names = cgroups::CgroupNames::new(cgroups.max(1));
    Sample {
        unix_ns: 1_700_000_000 * 1_000_000_000 + round * ROUND_NS,
        mono_ns: BOOTED_NS + round * ROUND_NS,
        mode: Mode::Bpf,
        tasks: tasks::all(tasks, &names, round),
        exited: tasks::exited(&names, round),
        pairs: cgroups::pairs(&names, round),
        limits: cgroups::limits(&names, round),
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
