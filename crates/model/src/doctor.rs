//! Facts about this host, and a pure function that judges them.
//!
//! A verdict says what was found. If something is wrong, the verdict also says what that prevents and how to fix it. The same
//! facts decide whether cgscope starts, what an output omits and what `cgscope doctor` prints.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use cgscope_ledger::Feature;
use serde::{Deserialize, Serialize};

use crate::{Mode, units};

/// Oldest kernel that the exact mode supports; see [`Feature::LoopHelper`].
pub const OLDEST_KERNEL: (u32, u32) = (5, 17);

/// Facts about a host. `None`: not read, or unreadable.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// Output of `uname -r`.
    pub kernel_release: Option<String>,
    /// Architecture, named as in Rust: `x86_64`, `aarch64`.
    pub architecture: Option<String>,
    /// Path of the cgscope program, for remedies that name it.
    pub program: Option<String>,
    pub uid: Option<u32>,
    /// Effective capabilities, named like `CAP_BPF`.
    pub capabilities: Option<BTreeSet<String>>,
    pub initial_user_namespace: Option<bool>,
    pub initial_pid_namespace: Option<bool>,
    /// Evidence that this is a container.
    pub container: Option<String>,
    /// Number of containers that the runtimes name, or a sentence on why they name no container; `None`: no runtime was found.
    pub named_containers: Option<Result<usize, String>>,
    pub btf: Option<Btf>,
    /// Features that the kernel lacks. Known only after the collector checked them.
    pub features_off: Option<Vec<FeatureOff>>,
    /// True if the kernel can timestamp waits (CONFIG_SCHED_INFO) and does it now.
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
    pub bpf_scheduler: Option<String>,
    /// True if the kernel has CONFIG_SCHED_PROXY_EXEC.
    pub proxy_exec: Option<bool>,
    /// Value of `kernel.sched_autogroup_enabled`.
    pub autogroup: Option<bool>,
    /// True if `/proc` may hide other users' processes (`hidepid=`).
    pub hides_processes: Option<bool>,
    /// Value of `kernel.bpf_stats_enabled`.
    pub bpf_stats: Option<bool>,
    /// Result of loading and attaching the programs and of one reading; `None`: not tried.
    pub trial: Option<Result<Trial, String>>,
}

impl Facts {
    pub fn kernel(&self) -> Option<(u32, u32)> {
        parse_release(self.kernel_release.as_deref()?)
    }

    pub fn holds(&self, capability: &str) -> Option<bool> {
        Some(self.capabilities.as_ref()?.contains(capability))
    }
}

/// Parses the major and minor version: `6.12.9-amd64` is 6.12.
pub fn parse_release(release: &str) -> Option<(u32, u32)> {
    parse_version(release).map(|(major, minor, _)| (major, minor))
}

/// Parses the version with the number of the stable update, which is 0 before the first one: `6.12.9-amd64` is 6.12.9.
pub fn parse_version(release: &str) -> Option<(u32, u32, u32)> {
    let (major, rest) = release.trim().split_once('.')?;
    let mut numbers = rest.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((major.parse().ok()?, numbers.next()?.ok()?, numbers.next().and_then(Result::ok).unwrap_or(0)))
}

/// The state of `/sys/kernel/btf/vmlinux`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Btf {
    Absent,
    Unreadable(String),
    /// Size of the file in bytes.
    Present(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FeatureOff {
    pub feature: Feature,
    /// The missing kernel symbols, such as `task_struct.throttled` or `BPF_FUNC_loop`.
    pub missing: Vec<String>,
}

/// The lockdown level in `/sys/kernel/security/lockdown`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lockdown {
    None,
    /// Users cannot change the running kernel.
    Integrity,
    /// Users also cannot read kernel memory.
    Confidentiality,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CgroupLayout {
    V1,
    V2,
    /// Both v1 and v2 hierarchies.
    Hybrid,
    #[default]
    None,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupFacts {
    pub layout: CgroupLayout,
    /// Mount point of the hierarchy with the cpu controller.
    pub cpu_mount: Option<String>,
    pub cpu_is_v2: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trial {
    /// Time from the start of loading until all programs are attached, ms.
    pub attach_ms: u64,
    /// Duration of the first reading of all tasks, µs.
    pub read_us: u64,
    pub tasks: u64,
    /// Optional features that the kernel refused, one sentence each.
    pub refused: Vec<String>,
}

cgscope_ledger::named! {
    Level {
        Ok = "ok",
        /// Worth knowing, but no problem.
        Note = "note",
        /// A feature is off or a figure can be misread.
        Degraded = "degraded",
        /// The exact mode cannot run.
        Missing = "missing",
    }
}
by_name!(Level);

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The topic in one word.
    pub topic: &'static str,
    pub level: Level,
    pub finding: String,
    /// What the observation prevents.
    pub effect: Option<String>,
    pub remedy: Option<String>,
}

impl Verdict {
    /// Returns the verdict as one sentence: `finding: effect; remedy`.
    pub fn sentence(&self) -> String {
        let effect = self.effect.iter().map(|effect| format!(": {effect}"));
        let remedy = self.remedy.iter().map(|remedy| format!("; {remedy}"));
        std::iter::once(self.finding.clone()).chain(effect).chain(remedy).collect()
    }
}

pub fn worst(verdicts: &[Verdict]) -> Level {
    verdicts.iter().map(|verdict| verdict.level).max().unwrap_or(Level::Ok)
}

/// Returns the default mode on this host; `None`: neither mode works.
pub fn mode(facts: &Facts, verdicts: &[Verdict]) -> Option<Mode> {
    match worst(verdicts) {
        // The coarse mode reads sums that the kernel keeps.
        Level::Missing => (facts.sched_info == Some(true)).then_some(Mode::Coarse),
        _ => Some(Mode::Bpf),
    }
}

/// Returns the first missing requirement, which explains why the exact mode could not start; `None`: no requirement is missing.
pub fn cause_of_failure(facts: &Facts, error: &str) -> Option<Verdict> {
    // Some rules are stricter after a failed trial.
    let facts = Facts { trial: Some(Err(error.into())), ..facts.clone() };
    judge(&facts).into_iter().find(|verdict| verdict.level == Level::Missing)
}

type TopicRule = (&'static str, fn(Topic, &Facts) -> Vec<Verdict>);

/// The topic of the rule that quotes the trial's error.
const TRIAL: &str = "trial";

const NOTHING: &str = "the exact mode is off";
const ALL_CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_syslog";

#[derive(Clone, Copy)]
struct Topic(&'static str);

impl Topic {
    fn ok(self, finding: impl Into<String>) -> Vec<Verdict> {
        self.verdict(Level::Ok, finding, None)
    }

    fn note(self, finding: impl Into<String>) -> Vec<Verdict> {
        self.verdict(Level::Note, finding, None)
    }

    fn unknown(self, what: &str) -> Vec<Verdict> {
        self.note(format!("cannot determine {what}: reading failed"))
    }

    fn degraded(self, finding: impl Into<String>, effect: &str, remedy: &str) -> Vec<Verdict> {
        self.verdict(Level::Degraded, finding, Some((effect, remedy)))
    }

    /// `effect` says why the exact mode is off.
    fn missing(self, finding: impl Into<String>, effect: &str, remedy: &str) -> Vec<Verdict> {
        self.verdict(Level::Missing, finding, Some((&format!("{effect}, so {NOTHING}"), remedy)))
    }

    /// `off` holds the effect and the remedy.
    fn verdict(self, level: Level, finding: impl Into<String>, off: Option<(&str, &str)>) -> Vec<Verdict> {
        let (effect, remedy) = off.map(|(effect, remedy)| (effect.into(), remedy.into())).unzip();
        vec![Verdict { topic: self.0, level, finding: finding.into(), effect, remedy }]
    }
}

/// Judges the host. Requirements of the exact mode come first, the most basic first. The working mode comes near the end.
pub fn judge(facts: &Facts) -> Vec<Verdict> {
    let mut verdicts: Vec<_> = RULES.iter().flat_map(|(topic, rule)| rule(Topic(topic), facts)).collect();
    verdicts.extend(measuring(facts, &verdicts));
    verdicts.extend(processes(Topic("processes"), facts));
    verdicts
}

/// Returns one sentence on why the exact mode could not start: the first missing requirement, or the error itself.
pub fn explain_failure(facts: &Facts, error: &str) -> String {
    match cause_of_failure(facts, error) {
        Some(cause) if cause.topic != TRIAL => format!("{} (the error was: {error})", cause.sentence()),
        Some(cause) => cause.sentence(),
        None => error.into(),
    }
}

/// The rules in the order of the output, requirements first.
const RULES: &[TopicRule] = &[
    ("architecture", |topic, facts| match facts.architecture.as_deref() {
        None => topic.unknown("the architecture"),
        Some("x86_64") => topic.ok("x86_64"),
        Some(other @ ("x86" | "arm" | "mips" | "powerpc" | "s390x" | "sparc64")) => topic.missing(
            format!("{other} is 32-bit or big-endian"),
            "the programs for the kernel are built for 64-bit little-endian machines",
            "run cgscope on a 64-bit little-endian host",
        ),
        Some(other) => topic.note(format!("{other}: cgscope's tests run on x86_64 only")),
    }),
    ("kernel", |topic, facts| {
        let Some(release) = facts.kernel_release.as_deref() else {
            return topic.unknown("the kernel's release");
        };
        let (major, minor) = OLDEST_KERNEL;
        match facts.kernel() {
            None => topic.note(format!("kernel {release}: cannot recognise the version in this name")),
            Some(version) if version < OLDEST_KERNEL => topic.missing(
                format!("kernel {release} is too old"),
                "it lacks features that the hook needs (task storage: 5.13, bpf_loop: 5.17)",
                &format!("boot kernel {major}.{minor} or newer"),
            ),
            Some(version) if version < (6, 1) => topic.note(format!(
                "kernel {release} is supported (since {major}.{minor}), but tests cover only 6.1 and newer"
            )),
            Some(_) => topic.ok(format!("kernel {release}")),
        }
    }),
    ("user_namespace", |topic, facts| match facts.initial_user_namespace {
        None => topic.unknown("the user namespace"),
        Some(true) => topic.ok("the initial user namespace"),
        Some(false) => topic.missing(
            "cgscope runs in its own user namespace",
            "BPF needs capabilities in the initial user namespace",
            "run cgscope on the host itself or in a container that is not rootless",
        ),
    }),
    ("capabilities", |topic, facts| {
        let Some(held) = &facts.capabilities else { return topic.unknown("the set of capabilities") };
        if held.contains("CAP_SYS_ADMIN") {
            return topic.ok("CAP_SYS_ADMIN is held, which includes CAP_BPF and CAP_PERFMON");
        }
        let mut absent = vec!["CAP_BPF", "CAP_PERFMON"];
        absent.retain(|name| !held.contains(*name));
        if absent.is_empty() {
            return topic.ok("CAP_BPF and CAP_PERFMON are held");
        }
        let user = facts.uid.map(|uid| format!(" (user id {uid})")).unwrap_or_default();
        let verb = if absent.len() == 1 { "is" } else { "are" };
        topic.missing(
            format!("{} {verb} not held{user}", absent.join(" and ")),
            "the kernel refuses to load and attach the hook",
            &grant(facts, "cap_bpf,cap_perfmon"),
        )
    }),
    ("btf", |topic, facts| {
        const PATH: &str = "/sys/kernel/btf/vmlinux";
        let off = |finding, remedy| {
            topic.missing(finding, "cgscope cannot locate the fields of kernel structures", remedy)
        };
        match &facts.btf {
            None => topic.unknown("whether the kernel has BTF"),
            Some(Btf::Present(size)) => topic.ok(format!("{PATH}, {}", units::bytes(*size))),
            Some(Btf::Absent) => off(
                format!("there is no {PATH}"),
                "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; if /sys is empty: sudo mount -t sysfs \
                 sysfs /sys",
            ),
            Some(Btf::Unreadable(why)) => off(
                format!("{PATH} cannot be read ({why})"),
                "run cgscope with sudo; in a container, mount the host's /sys",
            ),
        }
    }),
    ("features", |_, facts| features(facts)),
    ("sched_info", |topic, facts| match facts.sched_info {
        None => topic.unknown("whether the kernel timestamps waits"),
        Some(true) => topic.ok("the kernel timestamps every wait (/proc/self/schedstat is not zero)"),
        Some(false) => topic.verdict(
            Level::Missing,
            "the kernel does not timestamp waits (/proc/self/schedstat is absent or zero)",
            Some((
                NOTHING,
                "boot a kernel built with CONFIG_TASK_DELAY_ACCT=y or CONFIG_SCHEDSTATS=y, and without \
                 `nodelayacct`",
            )),
        ),
    }),
    ("lockdown", lockdown),
    (TRIAL, |topic, facts| match &facts.trial {
        None => Vec::new(),
        Some(Ok(Trial { attach_ms, read_us, tasks, refused })) => {
            let read = units::duration(read_us.saturating_mul(1_000));
            let mut verdicts =
                topic.ok(format!("loaded and attached in {attach_ms}ms; {tasks} tasks read in {read}"));
            verdicts.extend(refused.iter().flat_map(|what| topic.verdict(Level::Degraded, what, None)));
            verdicts
        }
        Some(Err(error)) => {
            let refused = ["EPERM", "not permitted", "EACCES", "ermission denied", "os error 1)"];
            // Without the capabilities, a program does not reach the verifier.
            let by_verifier = error.contains("Verifier output: 0:");
            let remedy = if !by_verifier && refused.iter().any(|word| error.contains(word)) {
                "the kernel refused although the capabilities are held: look for a seccomp filter \
                 (usual in containers) or a security module (`dmesg` names it)"
            } else {
                "please report this error with the output of `cgscope doctor --json`"
            };
            let finding = format!("a trial of the exact mode failed ({error})");
            topic.verdict(Level::Missing, finding, Some((NOTHING, remedy)))
        }
    }),
    ("proc", |topic, facts| match facts.holds("CAP_SYS_PTRACE") {
        None => topic.unknown("whether CAP_SYS_PTRACE is held"),
        Some(true) => topic.ok("CAP_SYS_PTRACE is held"),
        Some(false) => topic.degraded(
            "CAP_SYS_PTRACE is not held",
            "system calls, wchan and stacks of other users' processes are null",
            &grant(facts, ALL_CAPABILITIES),
        ),
    }),
    ("paths", |topic, facts| {
        let without = "cgroups in directories that this user cannot read have no path";
        optional(topic, facts, "CAP_DAC_READ_SEARCH", without)
    }),
    ("symbols", |topic, facts| {
        optional(topic, facts, "CAP_SYSLOG", "kernel stacks show addresses instead of function names")
    }),
    ("own_cost", |topic, facts| match (facts.bpf_stats, facts.holds("CAP_SYS_ADMIN")) {
        (Some(true), _) => topic.note(
            "kernel.bpf_stats_enabled is 1: the kernel times every BPF program, which costs some tens of ns \
             per switch; to turn this off: sudo sysctl kernel.bpf_stats_enabled=0",
        ),
        (_, Some(true)) => topic.ok("CAP_SYS_ADMIN is held: the cost of the hook is measured"),
        _ => {
            let without = "the cost of the hook is not measured and hook_ns is null";
            optional(topic, facts, "CAP_SYS_ADMIN", without)
        }
    }),
    ("memlock", |topic, facts| match facts.kernel() {
        None => topic.unknown("whether RLIMIT_MEMLOCK matters"),
        Some(version) if version >= (5, 11) => topic
            .ok("RLIMIT_MEMLOCK does not apply: since Linux 5.11, BPF memory counts in the memory cgroup"),
        Some(_) => topic.note(
            "before Linux 5.11, BPF memory counts towards RLIMIT_MEMLOCK; to remove the limit: ulimit -l \
             unlimited",
        ),
    }),
    ("cgroups", cgroups),
    ("autogroup", |topic, facts| match facts.autogroup {
        // Without CONFIG_SCHED_AUTOGROUP, the file does not exist.
        None | Some(false) => topic.ok("sched_autogroup is off"),
        Some(true) => topic.note(
            "kernel.sched_autogroup_enabled is 1: the scheduler treats each session in the root cgroup as a \
             group of its own; cgscope shows them all as the root cgroup",
        ),
    }),
    ("cpus", |topic, facts| match (&facts.cpus_online, &facts.cpus_possible) {
        (Some(online), Some(possible)) => {
            topic.ok(format!("{} of {} possible CPUs are online", online.len(), possible.len()))
        }
        (Some(online), None) => topic.ok(format!("{} CPUs are online", online.len())),
        (None, _) => topic.unknown("which CPUs are online"),
    }),
    ("numa", |topic, facts| match facts.numa_nodes.as_deref() {
        None => topic.unknown("which NUMA nodes exist"),
        Some([]) => topic.ok("this kernel has no NUMA support: all CPUs and all memory are on node 0"),
        Some(nodes) => topic.ok(units::count(nodes.len() as u64, "NUMA node")),
    }),
    ("realtime", |topic, facts| match facts.realtime {
        Some(true) => topic.note(
            "PREEMPT_RT is on: most interrupt work runs in kernel threads, so waits behind interrupt work \
             show as waits behind kernel threads; this kernel has no preferred NUMA node for tasks",
        ),
        // Kernels without PREEMPT_RT lack the file.
        Some(false) | None => topic.ok("PREEMPT_RT is off"),
    }),
    ("sched_ext", |topic, facts| match facts.sched_ext.as_deref() {
        None => topic.ok("this kernel has no sched_ext"),
        Some("disabled") => topic.ok("no BPF scheduler is loaded"),
        Some(state) => topic.degraded(
            match &facts.bpf_scheduler {
                Some(name) => format!("the BPF scheduler {name} is loaded (sched_ext is {state})"),
                None => format!("a BPF scheduler is loaded (sched_ext is {state})"),
            },
            "waits are exact, but they follow the rules of that scheduler, which may ignore the quotas and \
             weights of cgroups",
            "to measure the kernel's own scheduler, stop the BPF scheduler",
        ),
    }),
    ("proxy_exec", |topic, facts| match facts.proxy_exec {
        Some(true) => topic.note(
            "proxy execution is built in: while a task is blocked on a mutex, the owner of the mutex may run \
             in its place; that run time is charged to the blocked task",
        ),
        Some(false) => topic.ok("proxy execution is not built in"),
        // Kernels before 6.17 have no proxy execution, but their configuration is often unreadable.
        None if facts.kernel().is_some_and(|version| version < (6, 17)) => {
            topic.ok("this kernel has no proxy execution")
        }
        None => topic.unknown("whether proxy execution is built in"),
    }),
    ("pid_namespace", |topic, facts| match facts.initial_pid_namespace {
        None => topic.unknown("the PID namespace"),
        Some(true) => topic.ok("the initial PID namespace"),
        Some(false) => topic.degraded(
            "cgscope runs in its own PID namespace",
            "the exact mode uses the process and thread ids of the host, which belong to other processes in \
             this namespace, so -p, -t and `-- CMD` use the coarse mode",
            "start the container with --pid=host, or run cgscope on the host",
        ),
    }),
    ("container", |topic, facts| match &facts.container {
        None => topic.ok("no sign of a container"),
        Some(sign) => topic.note(format!(
            "this looks like a container ({sign}); in a container, cgscope sees all tasks of the host, but \
             only the cgroup paths that are mounted here"
        )),
    }),
    ("container_names", |topic, facts| match &facts.named_containers {
        None => topic.ok("no container runtime was found"),
        Some(Ok(named)) => {
            topic.ok(format!("the runtime names {}", units::count(*named as u64, "container")))
        }
        Some(Err(sentence)) => topic.note(sentence),
    }),
];

/// Returns how to get `capabilities`. `setcap` replaces all capabilities of the file, so the list must be complete.
fn grant(facts: &Facts, capabilities: &str) -> String {
    if facts.uid == Some(0) {
        let options = capabilities.split(',').map(|name| format!(" --cap-add {}", name[4..].to_uppercase()));
        return format!("root lacks them here: start the container with{}", options.collect::<String>());
    }
    let program = facts.program.as_deref().unwrap_or("\"$(command -v cgscope)\"");
    format!("run cgscope with sudo, or run once: sudo setcap {capabilities}+ep {program}")
}

fn optional(topic: Topic, facts: &Facts, capability: &str, without: &str) -> Vec<Verdict> {
    match facts.holds(capability) {
        None => topic.unknown(&format!("whether {capability} is held")),
        Some(true) => topic.ok(format!("{capability} is held")),
        Some(false) => topic.note(format!("{capability} is not held (optional): {without}")),
    }
}

fn lockdown(topic: Topic, facts: &Facts) -> Vec<Verdict> {
    let level = match (facts.lockdown, &facts.trial) {
        // The file exists only if the kernel has lockdown and securityfs is mounted.
        (None | Some(Lockdown::None), _) => return topic.ok("no lockdown was found"),
        (Some(Lockdown::Integrity), _) => return topic.ok("lockdown=integrity, which does not affect BPF"),
        (_, Some(Ok(_))) => return topic.note("lockdown=confidentiality, but the trial succeeded"),
        (_, Some(Err(_))) => Level::Missing,
        (_, None) => Level::Degraded,
    };
    let effect = "the kernel may refuse programs that read its memory";
    let remedy = "boot with lockdown=integrity; if Secure Boot turns the lockdown on, disable Secure Boot";
    topic.verdict(level, "lockdown=confidentiality", Some((effect, remedy)))
}

fn cgroups(topic: Topic, facts: &Facts) -> Vec<Verdict> {
    let off =
        |finding, remedy| topic.degraded(finding, "paths, quotas and throttling of cgroups are null", remedy);
    let Some(found) = &facts.cgroups else { return topic.unknown("where cgroups are mounted") };
    let layout = match found.layout {
        CgroupLayout::V1 => "cgroup v1",
        CgroupLayout::V2 => "cgroup v2",
        CgroupLayout::Hybrid => "cgroup v1 and v2 side by side",
        CgroupLayout::None => {
            return off("no cgroup hierarchy is mounted".into(), "sudo mount -t cgroup2 none /sys/fs/cgroup");
        }
    };
    match &found.cpu_mount {
        Some(mount) => {
            let version = if found.cpu_is_v2 { "v2" } else { "v1" };
            topic.ok(format!("{layout}; the cpu controller is on {version}, at {mount}"))
        }
        None => off(
            format!("{layout}, but no hierarchy with the cpu controller is mounted"),
            "sudo mkdir -p /sys/fs/cgroup/cpu && sudo mount -t cgroup -o cpu none /sys/fs/cgroup/cpu; if \
             that fails, boot a kernel built with CONFIG_CGROUP_SCHED=y",
        ),
    }
}

fn measuring(facts: &Facts, verdicts: &[Verdict]) -> Vec<Verdict> {
    let topic = Topic("mode");
    match mode(facts, verdicts) {
        Some(Mode::Bpf) if facts.trial.is_some() => topic.ok("measuring is exact (--mode bpf)"),
        Some(Mode::Bpf) => topic.note("no known problem prevents exact measuring (--mode bpf)"),
        Some(Mode::Coarse) => {
            let missing = verdicts.iter().find(|verdict| verdict.level == Level::Missing);
            let missing = missing.map_or("", |verdict| &verdict.finding);
            topic.degraded(
                format!("measuring is coarse (--mode coarse), because {missing}"),
                "only sums of waits are known, from /proc: no histograms, longest waits or unfinished waits, \
                 and no causes except quotas",
                "to get the exact mode, fix what is missing above",
            )
        }
        None => topic.verdict(
            Level::Missing,
            "neither the exact nor the coarse mode works, because the kernel does not seem to keep sums of waits",
            Some(("top, hist and record do not run", "see sched_info above")),
        ),
    }
}

fn processes(topic: Topic, facts: &Facts) -> Vec<Verdict> {
    match (facts.hides_processes, facts.holds("CAP_SYS_PTRACE")) {
        (Some(true), Some(false)) => topic.note(
            "/proc is mounted with hidepid, and CAP_SYS_PTRACE is not held: the coarse mode sees only this user's processes",
        ),
        (Some(true), _) => topic.ok("/proc is mounted with hidepid, but CAP_SYS_PTRACE shows every process"),
        (None, _) => topic.unknown("whether /proc hides processes"),
        (Some(false), _) => topic.ok("/proc shows every process"),
    }
}

/// Returns a feature's description with the kernel version or option that adds it, and the level and effect of its absence.
#[rustfmt::skip]
const fn about(feature: Feature) -> (&'static str, Level, &'static str) {
    use Level::{Degraded, Missing, Note, Ok};
    match feature {
        Feature::RunQueues => ("the scheduler's figures of tasks and run queues (CONFIG_FAIR_GROUP_SCHED)",
            Missing, "waits cannot be measured exactly"),
        Feature::SchedInfo => ("the kernel's timestamps of waits (CONFIG_SCHED_INFO)", Missing, "waits cannot be measured"),
        Feature::TaskStorage => ("storage for each task (Linux 5.11; for tracing programs: 5.13)",
            Missing, "the hook has no place for its counters"),
        Feature::StorageCache => ("task storage from caches that work in every context (Linux 6.4)",
            Ok, "every task gets its 4 KiB of storage at the start, also one that sleeps"),
        Feature::TaskById => ("functions that find a task by its id (Linux 6.2)",
            Ok, "each reading visits all tasks of the host"),
        Feature::LoopHelper => ("a helper that repeats a step (Linux 5.17)",
            Missing, "the hook cannot look back over a wait to find its causes"),
        Feature::TaskIterator => ("iterators over tasks (Linux 5.8)", Missing, "the counters of tasks cannot be read"),
        Feature::PrevStateArgument => ("the state of the task that is switched out, as an argument of sched_switch (Linux 5.18)",
            Ok, "the hook reads the same state from the task itself"),
        Feature::Cgroups => ("the cgroup of each task (CONFIG_CGROUPS, CONFIG_CGROUP_SCHED)",
            Degraded, "figures by cgroup, and the quotas and neighbours that made a task wait, are null"),
        Feature::Quotas => ("CPU quotas (CONFIG_CFS_BANDWIDTH)", Note, "nothing is ever throttled"),
        Feature::ThrottleClock => ("a clock of throttled time in each cgroup's queue (Linux 6.6)",
            Note, "cgscope keeps such a clock itself, at the functions that throttle and unthrottle a queue"),
        Feature::ThrottleFunctions => ("tg_throttle_down and tg_unthrottle_up, functions at which cgscope can keep a clock of throttled time",
            Ok, "cgscope does not need these functions"),
        Feature::TaskThrottling => ("throttling of single tasks (Linux 6.18)",
            Note, "run queues are throttled instead: in a wait that begins with a wakeup, `throttled` is an upper bound"),
        Feature::DelayedDequeue => ("the mark of a sleeping task that is still on its run queue (Linux 6.12)",
            Ok, "a task that falls asleep leaves its run queue at once"),
        Feature::SchedExt => ("BPF schedulers (CONFIG_SCHED_CLASS_EXT, Linux 6.12)",
            Ok, "the kernel's own scheduler runs all tasks"),
        Feature::RunnableTasks => ("the number of tasks on a run queue that can run (Linux 6.14)",
            Ok, "a part of the contention may be uncertain (`pressure_uncertain_ns`)"),
        Feature::IdleClock => ("the time at which a CPU became idle (Linux 5.19)",
            Note, "if the kernel hides processes from tracing, idle time after a hidden process counts for that process"),
        Feature::InterruptTime => ("accounting for interrupts (CONFIG_IRQ_TIME_ACCOUNTING)",
            Note, "a wait behind an interrupt counts as a wait behind the interrupted task"),
        Feature::StolenTime => ("accounting for time that a hypervisor takes (CONFIG_PARAVIRT_TIME_ACCOUNTING)",
            Note, "in a virtual machine, a wait while the hypervisor has the CPU counts as a wait behind the interrupted task"),
        Feature::RealTimeLimits => ("limits of real-time runtime for each cgroup (CONFIG_RT_GROUP_SCHED)",
            Ok, "the real-time tasks of a CPU share one limit of their runtime; since Linux 6.12 they have none"),
        Feature::IoWait => ("the flag of a task that waits for a device (`in_iowait`)",
            Note, "time blocked on devices counts as sleeping or uninterruptible"),
        Feature::ProcessTimes => ("the sums over the exited threads of a process (`signal_struct`)",
            Note, "in `stat`, figures of a process cover only its living threads"),
        Feature::Credentials => ("the owner of a task (`cred`)", Note, "`sample -G username` reads the owner from /proc"),
        Feature::SyscallNumber => ("the system call that a task is in (bpf_task_pt_regs, Linux 5.15)",
            Note, "`sample -G syscall` reads the system call from /proc"),
        Feature::OpenFiles => ("the open files of a process", Note, "with --chains, a sleep in a read has the kind `other`"),
        Feature::PreemptCount => ("the preempt count (`__preempt_count` or `pcpu_hot` in the kernel's types; on x86_64 Linux 6.2)",
            Note, "with --chains, all wakers are unknown"),
        Feature::NumaPreference => ("the node that a task's memory prefers (CONFIG_NUMA_BALANCING, not with PREEMPT_RT)",
            Note, "`preferred_node` is null"),
    }
}

fn remedy(feature: Feature) -> String {
    let option = match feature {
        Feature::RunQueues => "CONFIG_FAIR_GROUP_SCHED",
        Feature::SchedInfo => "CONFIG_TASK_DELAY_ACCT",
        Feature::Cgroups => "CONFIG_CGROUP_SCHED",
        _ => return "boot a newer kernel, which has this feature".into(),
    };
    format!("boot a kernel built with {option}=y")
}

pub(crate) fn features(facts: &Facts) -> Vec<Verdict> {
    let Some(all_off) = &facts.features_off else { return Vec::new() };
    Feature::ALL.into_iter().flat_map(|feature| verdict(feature, all_off)).collect()
}

fn verdict(feature: Feature, all_off: &[FeatureOff]) -> Vec<Verdict> {
    let topic = Topic(feature.name());
    let is_off = |feature| all_off.iter().any(|off| off.feature == feature);
    let (what, level, without) = about(feature);
    let Some(FeatureOff { missing, .. }) = all_off.iter().find(|off| off.feature == feature) else {
        return topic.ok(format!("{}: {what}", feature.name()));
    };
    let finding = format!("this kernel lacks {what}: it has no {}", missing.join(", "));
    let keeps_clock = matches!(feature, Feature::ThrottleClock | Feature::ThrottleFunctions);
    if is_off(Feature::Quotas) && (keeps_clock || feature == Feature::TaskThrottling) {
        return topic.ok(format!("{}: not needed, because this kernel has no quotas", feature.name()));
    }
    if keeps_clock && is_off(Feature::ThrottleClock) && is_off(Feature::ThrottleFunctions) {
        return topic.degraded(
            finding,
            "the time that quotas kept tasks from running counts under other causes, and `throttled` is 0",
            "boot a newer kernel, which has this clock; cpu.stat has the sum for each cgroup",
        );
    }
    match level {
        Level::Missing => topic.missing(finding, without, &remedy(feature)),
        Level::Degraded => topic.degraded(finding, without, &remedy(feature)),
        Level::Note | Level::Ok => topic.verdict(level, format!("{finding}; {without}"), None),
    }
}
