//! Samples of a host that does not exist, as large as asked for: for tests and benches. The same arguments give the same
//! Sample, everywhere.

mod accounts;
mod cgroups;
mod machine;
pub mod small;
mod tasks;

use std::sync::Arc;

use cgscope_layout::Loss;
use cgscope_model::{Cost, Losses, Mode, Sample};

pub use accounts::with_accounts;

/// Length of a round, ns: readings are a second apart.
pub const ROUND_NS: u64 = 1_000_000_000;
/// CPUs of the host, half of them on each of two nodes.
pub const CPUS: u32 = 64;

/// The reading after `round` rounds of a host with `tasks` tasks in `cgroups` cgroups, at least 1. Their ancestors come on top,
/// and a part of the tasks are kernel threads in the root. Nothing has happened in round 0; in each later one every task runs
/// and waits, and the same is added to every figure.
///
/// Cgroups are those of Kubernetes' pods (two containers each, one of them a `pause`), of services and of users, with quotas at
/// some. Processes have up to ten threads. There are as many pairs of victim and culprit as cgroups, and those of the quotas that
/// ran out.
pub fn host(tasks: u32, cgroups: u32, round: u64) -> Sample {
    let names = cgroups::Names::new(cgroups.max(1));
    Sample {
        stacks: Vec::new(),
        unix_ns: 1_700_000_000 * 1_000_000_000 + round * ROUND_NS,
        mono_ns: machine::BOOTED_NS + round * ROUND_NS,
        mode: Mode::Bpf,
        tasks: tasks::all(tasks, &names, round),
        exited: tasks::exited(&names, round),
        pairs: cgroups::pairs(&names, round),
        limits: cgroups::limits(&names, round),
        cgroups: names.all(),
        cpus: machine::cpus(round),
        nodes: machine::nodes(),
        memory: Vec::new(),
        losses: Losses::from_iter([(Loss::ALL[0].name(), 0)]),
        cost: Cost {
            switches: Some(round * 400_000),
            hook_ns_per_run: Some(60.0),
            cpu_ns: Some(round * 9_000_000),
            rss_bytes: Some(30 << 20),
        },
    }
}

/// Numbers that look like chance: of a number always the same one (splitmix64).
#[derive(Clone, Debug)]
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

    /// From 0 to below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }
}

/// Names that many tasks share, each allocated once.
fn shared(names: &[&str]) -> Vec<Arc<str>> {
    names.iter().map(|name| Arc::from(*name)).collect()
}
