//! Generates cgroups with names as in Kubernetes and systemd, their limits, and pairs of victim and culprit.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_ledger::history::KERNEL;
use cgscope_model::{Blame, CgroupReading, PairReading, path::path_and_ancestors};

use crate::{CPUS, Chance};

/// Id of the root. The ids of the other cgroups follow.
pub(crate) const ROOT: u64 = 1;
/// One of this many cgroups has a quota.
const WITH_QUOTA: u64 = 8;
/// One of this many quotas runs out.
const RAN_OUT: u64 = 4;

pub(crate) struct CgroupNames {
    /// Paths by cgroup id.
    pub paths: BTreeMap<u64, Arc<str>>,
    /// Ids of cgroups with tasks.
    pub leaves: Vec<u64>,
}

impl CgroupNames {
    pub fn new(leaves: u32) -> Self {
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

pub(crate) fn limits(names: &CgroupNames, round: u64) -> Vec<CgroupReading> {
    names.paths.keys().map(|id| limits_of(*id, round)).collect()
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
pub(crate) fn pairs(names: &CgroupNames, round: u64) -> Vec<PairReading> {
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
