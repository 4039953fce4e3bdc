//! The text about tasks that wait for busy CPUs while other CPUs are idle.

use super::{Rule, Short, about, finding, rate};
use crate::{
    findings::{Context, Finding, Hold, Kept},
    placement::cpu_list,
    units::{count, duration},
    words::percent,
};

pub(crate) fn idle_cpus(context: &Context, kept: &Kept) -> Finding {
    let Kept { busy, idle, tasks, .. } = kept;
    let named = |cpus: &[u32]| format!("{} {}", if cpus.len() == 1 { "CPU" } else { "CPUs" }, cpu_list(cpus));
    let (on_busy, on_idle) = (named(busy), named(idle));
    let time = |cpus: &[u32]| {
        let cpus = || context.interval.cpus.iter().filter(|cpu| cpus.contains(&cpu.cpu));
        let sum = |part: fn(&crate::CpuInterval) -> Option<u64>| {
            cpus().filter_map(part).fold(0, u64::saturating_add)
        };
        (sum(|cpu| cpu.busy_ns), sum(|cpu| cpu.idle_ns))
    };
    let ((busy_ns, rest_ns), (other_ns, idle_ns)) = (time(busy), time(idle));
    let (was_busy, was_idle) = (
        percent(busy_ns, busy_ns.saturating_add(rest_ns)),
        percent(idle_ns, idle_ns.saturating_add(other_ns)),
    );
    let threads = count(tasks.len() as u64, "busy thread");
    let waited =
        format!("{} ({} of their run and wait time)", duration(kept.ns), percent(kept.ns, kept.active_ns));
    let (were, those) = if idle.len() == 1 { ("was", "CPU") } else { ("were", "CPUs") };
    let mut all: Vec<u32> = busy.iter().chain(*idle).copied().collect();
    all.sort_unstable();
    let all = cpu_list(&all);
    let pid = tasks.iter().max_by_key(|task| task.wait.total_ns).map_or(0, |task| task.reading.tgid);
    let who = format!("process {pid} ({})", context.interval.process_name(pid));
    let may = |by: &str| {
        format!(
            "its {threads} may only run on {on_busy} ({by}), busy {was_busy} of the time, while {on_idle} {were} idle {was_idle} of \
             the time; they waited {waited}"
        )
    };
    let (says, advice, action) = match &kept.hold {
        Hold::Mask => (
            may("affinity mask"),
            format!(
                "let {who} use more CPUs (taskset -acp {all} {pid}), unless {on_idle} {were} kept free on purpose"
            ),
            format!("let it use more CPUs (taskset -acp {all} {pid})"),
        ),
        Hold::Cpuset { path, cpus } => {
            let name = context.interval.names.of(path);
            (
                may(&format!("cpuset.cpus {cpus} of {name}")),
                format!(
                    "let {name} use more CPUs (cpuset.cpus {all}), unless {on_idle} {were} kept free on purpose"
                ),
                format!("let {name} use more CPUs (cpuset.cpus {all})"),
            )
        }
        Hold::Nothing | Hold::Unknown => (
            format!(
                "its {threads} waited {waited} on {on_busy}, busy {was_busy} of the time, although no mask and no cpuset keeps them \
                 from {on_idle}, idle {was_idle} of the time"
            ),
            format!(
                "check whether {on_idle} {} isolated (/sys/devices/system/cpu/isolated, cpuset.cpus.partition), and which tasks \
                 wake the threads",
                if idle.len() == 1 { "is" } else { "are" },
            ),
            format!("check whether the idle {those} are isolated (/sys/devices/system/cpu/isolated)"),
        ),
    };
    let short = Short::new(
        format!("waits for {on_busy} while {on_idle} {were} idle"),
        format!("{threads}, waiting {}", rate(kept.ns, context.interval.duration_ns)),
        action,
    );
    about(context.path(kept.node), finding(Rule::IdleCpus, kept.ns, short, says, advice))
}
