//! One function a topic. What could not be read is said to be unknown, and never taken for fine.

use super::{Btf, CgroupLayout, Facts, Level, Lockdown, OLDEST_KERNEL, Trial, Verdict};
use crate::units;

pub(super) mod coarse;
mod features;

type Rule = fn(&Facts) -> Vec<Verdict>;

/// In the order they are shown: first those without which nothing runs.
pub(super) const ALL: &[Rule] = &[
    architecture,
    kernel,
    user_namespace,
    load_capabilities,
    btf,
    features::features,
    sched_info,
    lockdown,
    trial,
    proc_capability,
    path_capability,
    symbol_capability,
    own_cost,
    memlock,
    cgroups,
    autogroup,
    cpus,
    numa,
    realtime,
    sched_ext,
    proxy_exec,
    pid_namespace,
    container,
];

/// The topic of the rule that only repeats an error.
pub(super) const TRIAL: &str = "trial";

const NOTHING: &str = "the exact mode is off";
const ALL_CAPABILITIES: &str = "cap_bpf,cap_perfmon,cap_sys_ptrace,cap_dac_read_search,cap_syslog";

fn ok(topic: &'static str, finding: impl Into<String>) -> Vec<Verdict> {
    vec![Verdict { topic, level: Level::Ok, finding: finding.into(), effect: None, remedy: None }]
}

fn note(topic: &'static str, finding: impl Into<String>) -> Vec<Verdict> {
    vec![Verdict { topic, level: Level::Note, finding: finding.into(), effect: None, remedy: None }]
}

fn unknown(topic: &'static str, what: &str) -> Vec<Verdict> {
    note(topic, format!("{what} is not known: it could not be read"))
}

fn off(
    level: Level,
    topic: &'static str,
    finding: impl Into<String>,
    effect: impl Into<String>,
    remedy: impl Into<String>,
) -> Vec<Verdict> {
    let (finding, effect, remedy) = (finding.into(), Some(effect.into()), Some(remedy.into()));
    vec![Verdict { topic, level, finding, effect, remedy }]
}

fn architecture(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "architecture";
    match facts.architecture.as_deref() {
        None => unknown(TOPIC, "the architecture"),
        Some("x86_64") => ok(TOPIC, "x86_64"),
        Some(other @ ("x86" | "arm" | "mips" | "powerpc" | "s390x" | "sparc64")) => off(
            Level::Missing,
            TOPIC,
            format!("{other} is 32-bit or big-endian"),
            format!("the programs for the kernel are built for 64-bit little-endian machines: {NOTHING}"),
            "run cgscope on a 64-bit little-endian host",
        ),
        Some(other) => note(TOPIC, format!("{other}: cgscope's tests run on x86_64 only")),
    }
}

fn kernel(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "kernel";
    let Some(release) = facts.kernel_release.as_deref() else {
        return unknown(TOPIC, "the kernel's release");
    };
    let (major, minor) = OLDEST_KERNEL;
    match facts.kernel() {
        None => note(TOPIC, format!("kernel {release}, in which no version can be recognised")),
        Some(version) if version < OLDEST_KERNEL => off(
            Level::Missing,
            TOPIC,
            format!("kernel {release} is too old"),
            format!("it lacks what the hook needs (task storage: 5.13, bpf_loop: 5.17): {NOTHING}"),
            format!("boot kernel {major}.{minor} or newer"),
        ),
        Some(version) if version < (6, 1) => note(
            TOPIC,
            format!("kernel {release}: {major}.{minor} is needed; cgscope's tests begin with 6.1"),
        ),
        Some(_) => ok(TOPIC, format!("kernel {release}")),
    }
}

fn user_namespace(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "user_namespace";
    match facts.initial_user_namespace {
        None => unknown(TOPIC, "the user namespace"),
        Some(true) => ok(TOPIC, "the initial user namespace"),
        Some(false) => off(
            Level::Missing,
            TOPIC,
            "this is a user namespace of its own",
            format!("capabilities held here do not count for BPF: {NOTHING}"),
            "run cgscope on the host itself or in a container that is not rootless",
        ),
    }
}

fn load_capabilities(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "capabilities";
    let Some(held) = &facts.capabilities else { return unknown(TOPIC, "the set of capabilities") };
    if held.contains("CAP_SYS_ADMIN") {
        return ok(TOPIC, "CAP_SYS_ADMIN is held, which stands for CAP_BPF and CAP_PERFMON");
    }
    let absent: Vec<_> =
        ["CAP_BPF", "CAP_PERFMON"].into_iter().filter(|name| !held.contains(*name)).collect();
    if absent.is_empty() {
        return ok(TOPIC, "CAP_BPF and CAP_PERFMON are held");
    }
    let user = facts.uid.map(|uid| format!(" (user id {uid})")).unwrap_or_default();
    let verb = if absent.len() == 1 { "is" } else { "are" };
    off(
        Level::Missing,
        TOPIC,
        format!("{} {verb} not held{user}", absent.join(" and ")),
        format!("the kernel refuses to load and attach the hook: {NOTHING}"),
        grant(facts, "cap_bpf,cap_perfmon"),
    )
}

/// How to come by `capabilities`. `setcap` replaces what a file had, so the list is always whole.
fn grant(facts: &Facts, capabilities: &str) -> String {
    if facts.uid == Some(0) {
        let options: Vec<_> = capabilities
            .split(',')
            .map(|name| format!("--cap-add {}", name.trim_start_matches("cap_").to_uppercase()))
            .collect();
        return format!("root lacks them here: start the container with {}", options.join(" "));
    }
    let program = facts.program.as_deref().unwrap_or("\"$(command -v cgscope)\"");
    format!("run it with sudo, or once: sudo setcap {capabilities}+ep {program}")
}

fn btf(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "btf";
    const PATH: &str = "/sys/kernel/btf/vmlinux";
    let effect = format!("the kernel's fields cannot be located: {NOTHING}");
    match &facts.btf {
        None => unknown(TOPIC, "BTF"),
        Some(Btf::Present(size)) => ok(TOPIC, format!("{PATH}, {}", units::bytes(*size))),
        Some(Btf::Absent) => off(
            Level::Missing,
            TOPIC,
            format!("there is no {PATH}"),
            effect,
            "boot a kernel built with CONFIG_DEBUG_INFO_BTF=y; if /sys is empty: sudo mount -t sysfs sysfs /sys",
        ),
        Some(Btf::Unreadable(why)) => off(
            Level::Missing,
            TOPIC,
            format!("{PATH} cannot be read ({why})"),
            effect,
            "run it with sudo; in a container, mount the host's /sys",
        ),
    }
}

fn sched_info(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "sched_info";
    match facts.sched_info {
        None => unknown(TOPIC, "whether the kernel stamps waits"),
        Some(true) => ok(TOPIC, "the kernel stamps every wait (/proc/self/schedstat counts)"),
        Some(false) => off(
            Level::Missing,
            TOPIC,
            "the kernel stamps no waits (/proc/self/schedstat is absent or zero)",
            NOTHING,
            "boot a kernel built with CONFIG_TASK_DELAY_ACCT=y or CONFIG_SCHEDSTATS=y, and without `nodelayacct`",
        ),
    }
}

fn lockdown(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "lockdown";
    match facts.lockdown {
        // The file is there only if the kernel has lockdown and securityfs is mounted.
        None | Some(Lockdown::None) => ok(TOPIC, "no lockdown is on as far as can be seen"),
        Some(Lockdown::Integrity) => ok(TOPIC, "lockdown=integrity, which leaves BPF alone"),
        Some(Lockdown::Confidentiality) => match facts.trial {
            Some(Ok(_)) => note(TOPIC, "lockdown=confidentiality, which let the trial pass"),
            Some(Err(_)) | None => off(
                if facts.trial.is_some() { Level::Missing } else { Level::Degraded },
                TOPIC,
                "lockdown=confidentiality",
                "the kernel may refuse programs that read its memory",
                "boot with lockdown=integrity; where Secure Boot brings the lockdown about, switch that off",
            ),
        },
    }
}

fn trial(facts: &Facts) -> Vec<Verdict> {
    match &facts.trial {
        None => Vec::new(),
        Some(Ok(Trial { attach_ms, read_us, tasks, refused })) => {
            let read = units::duration(read_us.saturating_mul(1_000));
            let passed = format!("loaded and attached in {attach_ms}ms; {tasks} tasks read in {read}");
            let refused = refused.iter().map(|what| Verdict {
                topic: TRIAL,
                level: Level::Degraded,
                finding: what.clone(),
                effect: None,
                remedy: None,
            });
            ok(TRIAL, passed).into_iter().chain(refused).collect()
        }
        Some(Err(error)) => {
            let refused = ["EPERM", "not permitted", "EACCES", "ermission denied", "os error 1)"];
            // Whoever is refused by the verifier was let in as far as that.
            let by_verifier = error.contains("Verifier output: 0:");
            let remedy = if !by_verifier && refused.iter().any(|word| error.contains(word)) {
                "the kernel refused although the capabilities are there: look for a seccomp filter (usual in \
                 containers) or a security module (`dmesg` names it)"
            } else {
                "please report it with the output of `cgscope doctor --json`"
            };
            off(Level::Missing, TRIAL, format!("a trial failed ({error})"), NOTHING, remedy)
        }
    }
}

fn proc_capability(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "proc";
    match facts.holds("CAP_SYS_PTRACE") {
        None => unknown(TOPIC, "CAP_SYS_PTRACE"),
        Some(true) => ok(TOPIC, "CAP_SYS_PTRACE is held"),
        Some(false) => off(
            Level::Degraded,
            TOPIC,
            "CAP_SYS_PTRACE is not held",
            "system calls, wchan and stacks of other users' processes are null",
            grant(facts, ALL_CAPABILITIES),
        ),
    }
}

fn path_capability(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "paths";
    match facts.holds("CAP_DAC_READ_SEARCH") {
        None => unknown(TOPIC, "CAP_DAC_READ_SEARCH"),
        Some(true) => ok(TOPIC, "CAP_DAC_READ_SEARCH is held"),
        Some(false) => note(
            TOPIC,
            "CAP_DAC_READ_SEARCH is not held (optional): cgroups in directories closed to this user have no path",
        ),
    }
}

fn symbol_capability(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "symbols";
    match facts.holds("CAP_SYSLOG") {
        None => unknown(TOPIC, "CAP_SYSLOG"),
        Some(true) => ok(TOPIC, "CAP_SYSLOG is held"),
        Some(false) => {
            note(TOPIC, "CAP_SYSLOG is not held (optional): kernel stacks are addresses without names")
        }
    }
}

fn own_cost(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "own_cost";
    match (facts.bpf_stats, facts.holds("CAP_SYS_ADMIN")) {
        (Some(true), _) => note(
            TOPIC,
            "kernel.bpf_stats_enabled is 1: the kernel times every BPF program, which itself costs some tens of ns \
             a switch; sudo sysctl kernel.bpf_stats_enabled=0 ends that",
        ),
        (_, Some(true)) => ok(TOPIC, "CAP_SYS_ADMIN is held: the cost of the hook is measured"),
        (_, Some(false)) => note(
            TOPIC,
            "CAP_SYS_ADMIN is not held (optional): the cost of the hook is not measured and hook_ns is null",
        ),
        (_, None) => unknown(TOPIC, "CAP_SYS_ADMIN"),
    }
}

fn memlock(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "memlock";
    match facts.kernel() {
        None => unknown(TOPIC, "whether RLIMIT_MEMLOCK matters"),
        Some(version) if version >= (5, 11) => ok(
            TOPIC,
            "RLIMIT_MEMLOCK does not matter: since 5.11 BPF memory counts towards the memory cgroup",
        ),
        Some(_) => note(TOPIC, "before 5.11 BPF memory counts against RLIMIT_MEMLOCK: ulimit -l unlimited"),
    }
}

fn cgroups(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "cgroups";
    const EFFECT: &str = "paths, quotas and throttling of cgroups are null";
    let Some(found) = &facts.cgroups else { return unknown(TOPIC, "where cgroups are mounted") };
    let layout = match found.layout {
        CgroupLayout::V1 => "cgroup v1",
        CgroupLayout::V2 => "cgroup v2",
        CgroupLayout::Hybrid => "cgroup v1 and v2 side by side",
        CgroupLayout::None => {
            let remedy = "sudo mount -t cgroup2 none /sys/fs/cgroup";
            return off(Level::Degraded, TOPIC, "no cgroup hierarchy is mounted", EFFECT, remedy);
        }
    };
    match &found.cpu_mount {
        Some(mount) => {
            let version = if found.cpu_is_v2 { "v2" } else { "v1" };
            ok(TOPIC, format!("{layout}; the cpu controller is on {version}, at {mount}"))
        }
        None => off(
            Level::Degraded,
            TOPIC,
            format!("{layout}, and no hierarchy with the cpu controller is mounted"),
            EFFECT,
            "sudo mkdir -p /sys/fs/cgroup/cpu && sudo mount -t cgroup -o cpu none /sys/fs/cgroup/cpu; if that \
             fails, boot a kernel built with CONFIG_CGROUP_SCHED=y",
        ),
    }
}

fn autogroup(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "autogroup";
    match facts.autogroup {
        // The file is absent without CONFIG_SCHED_AUTOGROUP.
        None | Some(false) => ok(TOPIC, "sched_autogroup is off"),
        Some(true) => note(
            TOPIC,
            "kernel.sched_autogroup_enabled is 1: sessions in the root cgroup compete as groups of their own; all are \
             shown as the root cgroup",
        ),
    }
}

fn cpus(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "cpus";
    match (&facts.cpus_online, &facts.cpus_possible) {
        (Some(online), Some(possible)) => {
            ok(TOPIC, format!("{} of {} possible CPUs are online", online.len(), possible.len()))
        }
        (Some(online), None) => ok(TOPIC, format!("{} CPUs are online", online.len())),
        (None, _) => unknown(TOPIC, "which CPUs are online"),
    }
}

fn numa(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "numa";
    match facts.numa_nodes.as_deref() {
        None => unknown(TOPIC, "which NUMA nodes there are"),
        Some([]) => ok(TOPIC, "this kernel has no NUMA: all is on node 0"),
        Some([_]) => ok(TOPIC, "1 NUMA node"),
        Some(nodes) => ok(TOPIC, format!("{} NUMA nodes", nodes.len())),
    }
}

fn realtime(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "realtime";
    match facts.realtime {
        Some(true) => note(
            TOPIC,
            "PREEMPT_RT is on: most interrupt work runs in kernel threads, so waits for it show as waits for kernel \
             threads; the kernel has no preferred NUMA node for tasks",
        ),
        // The file is absent on every other kernel.
        Some(false) | None => ok(TOPIC, "PREEMPT_RT is off"),
    }
}

fn sched_ext(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "sched_ext";
    match facts.sched_ext.as_deref() {
        None => ok(TOPIC, "this kernel has no sched_ext"),
        Some("disabled") => ok(TOPIC, "no BPF scheduler is loaded"),
        Some(state) => off(
            Level::Degraded,
            TOPIC,
            format!("a BPF scheduler is loaded (sched_ext is {state})"),
            "waits are exact, but they follow that scheduler's rules: cgroup quota and weight may not hold for them",
            "to see the kernel's own scheduler at work, stop the BPF scheduler",
        ),
    }
}

fn proxy_exec(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "proxy_exec";
    match facts.proxy_exec {
        Some(true) => note(
            TOPIC,
            "proxy execution is built in: a task blocked on a mutex lends its turn to the owner, whose run time is \
             then charged to the blocked one",
        ),
        Some(false) => ok(TOPIC, "proxy execution is not built in"),
        // In a kernel that cannot have it, and mostly where the configuration is not there to be read.
        None if facts.kernel().is_some_and(|version| version < (6, 17)) => {
            ok(TOPIC, "this kernel has no proxy execution")
        }
        None => unknown(TOPIC, "whether proxy execution is built in"),
    }
}

fn pid_namespace(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "pid_namespace";
    match facts.initial_pid_namespace {
        None => unknown(TOPIC, "the PID namespace"),
        Some(true) => ok(TOPIC, "the initial PID namespace"),
        Some(false) => off(
            Level::Degraded,
            TOPIC,
            "this is a PID namespace of its own",
            "the exact mode counts process and thread ids of the host, which here are those of other processes: -p, -t and \
             `-- CMD` are measured in the coarse mode",
            "start the container with --pid=host, or run cgscope on the host",
        ),
    }
}

fn container(facts: &Facts) -> Vec<Verdict> {
    const TOPIC: &str = "container";
    match &facts.container {
        None => ok(TOPIC, "no sign of a container"),
        Some(sign) => note(
            TOPIC,
            format!(
                "a sign of a container was found ({sign}): if this is one, tasks of the whole host are still seen, but \
                 cgroup paths only as far as they are mounted"
            ),
        ),
    }
}
