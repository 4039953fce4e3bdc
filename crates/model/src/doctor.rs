//! Facts about this host, and verdicts on them from a pure function.
//!
//! A verdict says what was found. If something is wrong, the verdict also says what that prevents and how to fix it. The same
//! facts decide whether cgscope starts, what an output omits and what `cgscope doctor` prints.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use cgscope_layout::Feature;
use serde::{Deserialize, Serialize};

pub use crate::words::doctor::{explain_failure, judge};
use crate::{Mode, named::by_name};

/// The oldest kernel that the exact mode supports; see [`Feature::LoopHelper`].
pub const OLDEST_KERNEL: (u32, u32) = (5, 17);

/// The facts about a host. `None`: not read, or unreadable.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(missing_docs, reason = "the other names are self-explanatory")]
pub struct Facts {
    /// The output of `uname -r`.
    pub kernel_release: Option<String>,
    /// The architecture, named as in Rust: `x86_64`, `aarch64`.
    pub architecture: Option<String>,
    /// Path of the cgscope program, for remedies that name it.
    pub program: Option<String>,
    /// The effective user id.
    pub uid: Option<u32>,
    /// The effective capabilities, named like `CAP_BPF`.
    pub capabilities: Option<BTreeSet<String>>,
    pub initial_user_namespace: Option<bool>,
    pub initial_pid_namespace: Option<bool>,
    /// A sign that this is a container.
    pub container: Option<String>,
    /// The number of containers that the runtimes name, or the sentence why they name none; `None`: no runtime was found.
    pub named_containers: Option<Result<usize, String>>,
    /// The state of the kernel's BTF, its type information.
    pub btf: Option<Btf>,
    /// Features that the kernel lacks; known only after the collector has checked them.
    pub features_off: Option<Vec<FeatureOff>>,
    /// True if the kernel can timestamp waits (CONFIG_SCHED_INFO) and does so now.
    pub sched_info: Option<bool>,
    pub lockdown: Option<Lockdown>,
    pub cgroups: Option<CgroupFacts>,
    pub cpus_online: Option<Vec<u32>>,
    pub cpus_possible: Option<Vec<u32>>,
    /// NUMA nodes; empty if the kernel has no NUMA support.
    pub numa_nodes: Option<Vec<u32>>,
    /// True if the kernel has PREEMPT_RT.
    pub realtime: Option<bool>,
    /// State of sched_ext, such as `disabled` or `enabled`; `None`: the kernel has no sched_ext.
    pub sched_ext: Option<String>,
    /// Name of the loaded BPF scheduler.
    pub bpf_scheduler: Option<String>,
    /// True if the kernel has CONFIG_SCHED_PROXY_EXEC.
    pub proxy_exec: Option<bool>,
    /// The value of `kernel.sched_autogroup_enabled`.
    pub autogroup: Option<bool>,
    /// True if `/proc` may hide other users' processes (`hidepid=`).
    pub hides_processes: Option<bool>,
    /// The value of `kernel.bpf_stats_enabled`.
    pub bpf_stats: Option<bool>,
    /// Result of loading, attaching and one reading; `None`: not tried.
    pub trial: Option<Result<Trial, String>>,
}

impl Facts {
    /// Major and minor version of the kernel.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        parse_release(self.kernel_release.as_deref()?)
    }

    /// True if the process holds a capability; `None`: unknown.
    pub fn holds(&self, capability: &str) -> Option<bool> {
        Some(self.capabilities.as_ref()?.contains(capability))
    }
}

/// Parses major and minor version: `6.12.9-amd64` is 6.12.
pub fn parse_release(release: &str) -> Option<(u32, u32)> {
    let (major, rest) = release.trim().split_once('.')?;
    let minor = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// The state of `/sys/kernel/btf/vmlinux`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Btf {
    /// The file does not exist.
    Absent,
    /// Reading failed with this error.
    Unreadable(String),
    /// Size of the file in bytes.
    Present(u64),
}

/// A feature that the kernel lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureOff {
    /// The feature.
    pub feature: Feature,
    /// The missing kernel parts, such as `task_struct.throttled` or `BPF_FUNC_loop`.
    pub missing: Vec<String>,
}

/// The lockdown level in `/sys/kernel/security/lockdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    /// No lockdown.
    None,
    /// Users cannot change the running kernel.
    Integrity,
    /// Users also cannot read kernel memory.
    Confidentiality,
}

/// The cgroup hierarchies that a host has mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    /// Only v1 hierarchies.
    V1,
    /// Only the v2 hierarchy.
    V2,
    /// Both v1 and v2 hierarchies.
    Hybrid,
    /// No hierarchy.
    #[default]
    None,
}

/// The mounted cgroup hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupFacts {
    /// The versions that are mounted.
    pub layout: CgroupLayout,
    /// Mount point of the hierarchy with the cpu controller.
    pub cpu_mount: Option<String>,
    /// True if the hierarchy with the cpu controller is v2.
    pub cpu_is_v2: bool,
}

/// The result of loading, attaching and one reading.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Time from the start of loading until everything is attached, ms.
    pub attach_ms: u64,
    /// Time of the first reading of all tasks, µs.
    pub read_us: u64,
    /// Number of tasks in the reading.
    pub tasks: u64,
    /// Optional features that the kernel refused, one sentence each.
    pub refused: Vec<String>,
}

cgscope_layout::named! {
    /// The severity of a verdict.
    Level {
        /// All is well.
        Ok = "ok",
        /// Worth knowing, but nothing is wrong.
        Note = "note",
        /// A feature is off or a figure can be misread.
        Degraded = "degraded",
        /// The exact mode cannot run.
        Missing = "missing",
    }
}
by_name!(Level);

/// A verdict on one topic; an object in `--json` output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The topic in one word.
    pub topic: &'static str,
    /// Its severity.
    pub level: Level,
    /// The observation.
    pub finding: String,
    /// What the observation prevents.
    pub effect: Option<String>,
    /// How to fix the problem.
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

/// The default mode on this host; `None`: neither mode works.
pub fn mode(facts: &Facts, verdicts: &[Verdict]) -> Option<Mode> {
    match worst(verdicts) {
        // The coarse mode reads the sums that the kernel keeps.
        Level::Missing => (facts.sched_info == Some(true)).then_some(Mode::Coarse),
        _ => Some(Mode::Bpf),
    }
}

/// The first missing requirement that explains why the exact mode could not start. `None` if nothing is known to be missing.
pub fn cause_of_failure(facts: &Facts, error: &str) -> Option<Verdict> {
    // Some rules judge more strictly after a failed trial.
    let facts = Facts { trial: Some(Err(error.into())), ..facts.clone() };
    judge(&facts).into_iter().find(|verdict| verdict.level == Level::Missing)
}
