//! What this host offers: facts, and verdicts by a pure function.
//!
//! A verdict has what was found; where something is off, also what that prevents and how to fix it. Whether cgscope starts, what an
//! output omits and what `cgscope doctor` prints come from the same facts.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use cgscope_layout::Feature;
use serde::{Deserialize, Serialize};

pub use crate::words::doctor::{explain_failure, judge};
use crate::{Mode, named::by_name};

/// The oldest kernel that the exact mode supports: see [`Feature::LoopHelper`].
pub const OLDEST_KERNEL: (u32, u32) = (5, 17);

/// The facts about a host. `None`: not read, or unreadable.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the other names are self-explanatory")]
pub struct Facts {
    /// `uname -r`.
    pub kernel_release: Option<String>,
    /// As Rust names it: `x86_64`, `aarch64`.
    pub architecture: Option<String>,
    /// The program, for remedies that name it.
    pub program: Option<String>,
    /// The effective one.
    pub uid: Option<u32>,
    /// The effective capabilities, as `CAP_BPF`.
    pub capabilities: Option<BTreeSet<String>>,
    pub initial_user_namespace: Option<bool>,
    pub initial_pid_namespace: Option<bool>,
    /// A sign of a container.
    pub container: Option<String>,
    /// The kernel's description of its structures.
    pub btf: Option<Btf>,
    /// Features that the kernel lacks; known once the collector has looked them up.
    pub features_off: Option<Vec<FeatureOff>>,
    /// The kernel stamps waits (CONFIG_SCHED_INFO, live).
    pub sched_info: Option<bool>,
    pub lockdown: Option<Lockdown>,
    pub cgroups: Option<CgroupFacts>,
    pub cpus_online: Option<Vec<u32>>,
    pub cpus_possible: Option<Vec<u32>>,
    /// NUMA nodes; empty: the kernel has no NUMA support.
    pub numa_nodes: Option<Vec<u32>>,
    /// PREEMPT_RT.
    pub realtime: Option<bool>,
    /// The state of sched_ext: `disabled`, `enabled`, ...; `None`: the kernel has none.
    pub sched_ext: Option<String>,
    /// CONFIG_SCHED_PROXY_EXEC.
    pub proxy_exec: Option<bool>,
    /// `kernel.sched_autogroup_enabled`.
    pub autogroup: Option<bool>,
    /// `/proc` may hide other users' processes (`hidepid=`).
    pub hides_processes: Option<bool>,
    /// `kernel.bpf_stats_enabled`.
    pub bpf_stats: Option<bool>,
    /// Loading, attaching and one reading; `None`: not tried.
    pub trial: Option<Result<Trial, String>>,
}

impl Facts {
    /// Major and minor version of the kernel.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        parse_release(self.kernel_release.as_deref()?)
    }

    /// Whether a capability is held; `None`: not known.
    pub fn holds(&self, capability: &str) -> Option<bool> {
        Some(self.capabilities.as_ref()?.contains(capability))
    }
}

/// `6.12.9-amd64` is 6.12.
pub fn parse_release(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.trim().split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// `/sys/kernel/btf/vmlinux`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Btf {
    /// Missing.
    Absent,
    /// The error of reading it.
    Unreadable(String),
    /// Its size in bytes.
    Present(u64),
}

/// A feature that the kernel lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureOff {
    /// The feature.
    pub feature: Feature,
    /// The missing parts, such as `task_struct.throttled` or `BPF_FUNC_loop`.
    pub missing: Vec<String>,
}

/// `/sys/kernel/security/lockdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// Off.
    None,
    /// The kernel may not be changed.
    Integrity,
    /// Nor may its memory be read.
    Confidentiality,
}

/// Which hierarchies of cgroups a host has mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Only v1 hierarchies.
    V1,
    /// Only the unified one.
    V2,
    /// Both.
    Hybrid,
    /// None at all.
    #[default]
    None,
}

/// Where cgroups are mounted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Which hierarchies there are.
    pub layout: CgroupLayout,
    /// The mount point of the hierarchy with the cpu controller.
    pub cpu_mount: Option<String>,
    /// That hierarchy is v2.
    pub cpu_is_v2: bool,
}

/// The result of loading, attaching and one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// From the start of loading until everything is attached.
    pub attach_ms: u64,
    /// Time of the first reading of all tasks.
    pub read_us: u64,
    /// Tasks in it.
    pub tasks: u64,
    /// Optional things that the kernel refused, in sentences.
    pub refused: Vec<String>,
}

cgscope_layout::named! {
    /// The severity of a verdict.
    Level {
        /// As it should be.
        Ok = "ok",
        /// Good to know; nothing is off.
        Note = "note",
        /// A feature is off or a figure can be misread.
        Degraded = "degraded",
        /// The exact mode cannot run.
        Missing = "missing",
    }
}
by_name!(Level);

/// A verdict on one topic; with `--json` an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The topic in one word.
    pub topic: &'static str,
    /// Its severity.
    pub level: Level,
    /// What was found.
    pub finding: String,
    /// What that prevents.
    pub effect: Option<String>,
    /// How to fix it.
    pub remedy: Option<String>,
}

impl Verdict {
    /// The verdict in one sentence: `finding: effect; remedy`.
    pub fn sentence(&self) -> String {
        let effect = self.effect.iter().map(|effect| format!(": {effect}"));
        let remedy = self.remedy.iter().map(|remedy| format!("; {remedy}"));
        std::iter::once(self.finding.clone()).chain(effect).chain(remedy).collect()
    }
}

/// The worst level of the verdicts.
pub fn worst(verdicts: &[Verdict]) -> Level {
    verdicts.iter().map(|verdict| verdict.level).max().unwrap_or(Level::Ok)
}

/// The default mode on such a host; `None`: neither works.
pub fn mode(facts: &Facts, verdicts: &[Verdict]) -> Option<Mode> {
    match worst(verdicts) {
        // The coarse mode reads the kernel's own sums.
        Level::Missing => (facts.sched_info == Some(true)).then_some(Mode::Coarse),
        _ => Some(Mode::Bpf),
    }
}

/// Why the exact mode could not start: the first missing thing. `None` if nothing is known to be missing.
pub fn cause_of_failure(facts: &Facts, error: &str) -> Option<Verdict> {
    // A rule may judge more strictly once it is known that something fails.
    let facts = Facts { trial: Some(Err(error.into())), ..facts.clone() };
    judge(&facts).into_iter().find(|verdict| verdict.level == Level::Missing)
}
