//! The sentence of a class.

use std::cmp::Reverse;

use crate::{
    BlockedKind, Cause,
    class::{Activity, Class, MORE_CPU_PERCENT, NAMED_PERCENT, Quota},
    findings::{BUSY_THREAD_PERCENT, REALTIME_PERCENT, is_share},
    units,
    words::{list, raise},
};

/// Maximum number of named parts besides the time on a CPU.
const MOST: usize = 4;

pub(crate) const TOO_SHORT: &str = "too short to judge";
const MORE_CPUS: &str = "more CPUs help";

/// The classes, their figures and the advice.
pub(crate) fn sentence(classes: &[Class], activity: &Activity, quota: Option<&Quota>) -> String {
    let names: Vec<String> = classes.iter().map(|class| class.name().into()).collect();
    if classes == [Class::Idle] && activity.threads == 0 && activity.is_partial() {
        return format!(
            "idle: no thread ran or waited for a CPU for at least {BUSY_THREAD_PERCENT} % of the time"
        );
    }
    let parts = parts(classes, activity, quota);
    let name = match &names[..] {
        [] if activity.time_ns() == 0 => return "did not run, wait or sleep".into(),
        [] => return format!("{} (what it was blocked on is not known)", listed(&parts, activity)),
        [name] => name.clone(),
        [idle, lost @ ..] if classes[0] == Class::Idle => format!("{idle}, and {} when it runs", list(lost)),
        _ => format!("mixed, {}", list(&names)),
    };
    let advice =
        advice(classes, activity, quota, &parts).map_or_else(String::new, |advice| format!(": {advice}"));
    format!("{name}: {}{advice}", listed(&parts, activity))
}

/// The parts of the time: first the parts of `classes`, and within both groups by size.
fn parts(classes: &[Class], activity: &Activity, quota: Option<&Quota>) -> Vec<Spent> {
    let (queued_ns, wakeup_ns) = (activity.queued_ns(), activity.wakeup_ns());
    let mut parts = blocked_parts(activity);
    let is_waking = (wakeup_ns > queued_ns).then_some(Class::Contended);
    parts.extend([
        Spent::new(Some(Class::QuotaBound), activity.throttled_ns(), "throttled", quota_words(quota)),
        Spent::new(Some(Class::Contended), queued_ns, "queued for a CPU", behind_words(activity)),
        Spent::new(is_waking, wakeup_ns, "waking up", ""),
        Spent::new(None, activity.by_cause.get(Cause::RtThrottled), "out of real-time runtime", ""),
    ]);
    let is_main = |part: &Spent| part.about.is_some_and(|class| classes.contains(&class));
    parts.sort_by_key(|part| (!is_main(part), Reverse(part.ns)));
    parts.retain(|part| {
        let is_waiting = matches!(part.about, Some(Class::QuotaBound | Class::Contended));
        is_share(part.ns, activity.time_ns(), NAMED_PERCENT) || is_waiting && is_main(part) && part.ns != 0
    });
    parts.truncate(MOST);
    let on_cpu = Spent::new(None, activity.on_cpu_ns, "on a CPU", "");
    let is_before = |part: &&Spent| is_main(part) || part.ns > on_cpu.ns;
    let at = if classes == [Class::CpuBound] { 0 } else { parts.iter().take_while(is_before).count() };
    parts.insert(at, on_cpu);
    parts
}

fn listed(parts: &[Spent], activity: &Activity) -> String {
    let of_the_time = match (activity.is_partial(), activity.blocked.total()) {
        (false, _) => " of the time",
        (true, 0) => " of the time that it ran or wanted to run",
        (true, _) => " of the time that is known",
    };
    let parts = parts.iter().enumerate().map(|(at, Spent { ns, is, more, .. })| {
        let of_the_time = if at == 0 { of_the_time } else { "" };
        format!("{is} {}{of_the_time}{more}", share(*ns, activity.time_ns()))
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// A part of the time, with text before and after its figure.
struct Spent {
    /// The class that this part of the time supports.
    about: Option<Class>,
    ns: u64,
    is: String,
    more: String,
}

impl Spent {
    fn new(about: Option<Class>, ns: u64, is: impl Into<String>, more: impl Into<String>) -> Self {
        Self { about, ns, is: is.into(), more: more.into() }
    }
}

fn blocked_parts(activity: &Activity) -> Vec<Spent> {
    let (for_work, needed): (Vec<_>, Vec<_>) =
        activity.blocked.iter().partition(|(kind, _)| kind.is_for_work());
    let blocked = |(kind, ns): (BlockedKind, u64)| {
        let (is, more) = match kind {
            BlockedKind::Unknown => ("blocked".into(), " (the reason is not known)"),
            BlockedKind::Other => ("blocked on something else".into(), ""),
            BlockedKind::Lock => ("blocked on a futex".into(), " (a lock, or a pool that waits for work)"),
            _ => (format!("blocked on {}", kind.name()), ""),
        };
        Spent::new(Some(Class::blocked_on(kind)), ns, is, more)
    };
    let mut parts: Vec<_> = needed.into_iter().map(blocked).collect();
    let poll_ns = activity.blocked.get(BlockedKind::Poll);
    let for_work_ns = activity.blocked.for_work() - poll_ns;
    let mut kinds = for_work;
    kinds.retain(|(kind, ns)| *kind != BlockedKind::Poll && is_share(*ns, for_work_ns, NAMED_PERCENT));
    kinds.sort_by_key(|(_, ns)| Reverse(*ns));
    let names: Vec<&str> = kinds.iter().map(|(kind, _)| kind.name()).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    parts.push(Spent::new(Some(Class::Idle), for_work_ns, "waiting for work", names));
    parts.push(Spent::new(Some(Class::Idle), poll_ns, "waiting in poll", " (for work or for answers)"));
    parts
}

fn quota_words(quota: Option<&Quota>) -> String {
    quota.map_or_else(String::new, |Quota { path, cores, .. }| {
        let cores = cores.map_or_else(String::new, |cores| format!(" ({})", units::cpus(cores)));
        format!(" by {path}{cores}")
    })
}

/// The groups of tasks that ran while the target was queued, for how long (ns), and what helps against each.
fn behind(activity: &Activity) -> [(&'static str, u64, &'static str); 6] {
    let [own_ns, others_ns, kernel_ns, irq_ns, stolen_ns] =
        [Cause::OwnCgroup, Cause::OtherCgroup, Cause::Kernel, Cause::Irq, Cause::Stolen]
            .map(|cause| activity.by_cause.get(cause));
    let fewer = if activity.threads > 1 { "more CPUs or fewer threads help" } else { MORE_CPUS };
    let against_others = if is_share(activity.realtime_ns, others_ns, REALTIME_PERCENT) {
        "raise its priority (chrt), add CPUs, pin it to other CPUs, or move the neighbours away; cpu.weight does not apply to \
         real-time tasks"
    } else {
        "raise its cpu.weight (in v1 cpu.shares), add CPUs, pin it to other CPUs, or move the neighbours away"
    };
    let against_kernel =
        "add CPUs, pin it to other CPUs, or move the neighbours whose work keeps the kernel busy";
    [
        ("its own cgroup", own_ns.saturating_sub(activity.behind_root_ns), fewer),
        ("other tasks in / or its own threads", activity.behind_root_ns, MORE_CPUS),
        ("other cgroups", others_ns, against_others),
        ("the kernel", kernel_ns, against_kernel),
        ("interrupts", irq_ns, "add CPUs, or move the interrupts to other CPUs"),
        ("the hypervisor", stolen_ns, "move the virtual machine to a less busy host"),
    ]
}

fn behind_words(activity: &Activity) -> String {
    let all_ns = activity.time_ns();
    let behind = behind(activity).into_iter().filter(|(_, ns, _)| is_share(*ns, all_ns, NAMED_PERCENT));
    let behind: Vec<_> = behind.map(|(who, ns, _)| format!("{who} {}", share(ns, all_ns))).collect();
    if behind.is_empty() { String::new() } else { format!(" (behind {})", list(&behind)) }
}

/// The advice; `None` if the parts do not include the figure that the advice is about.
fn advice(classes: &[Class], activity: &Activity, quota: Option<&Quota>, parts: &[Spent]) -> Option<String> {
    let is_named = |class| parts.iter().any(|part| part.about == Some(class));
    match classes {
        [Class::Idle | Class::CpuBound] => None,
        [Class::QuotaBound, ..] | [Class::Idle, Class::QuotaBound, ..] => {
            is_named(Class::QuotaBound).then(|| quota_advice(activity, quota))
        }
        [Class::Contended, ..] | [Class::Idle, Class::Contended, ..] => {
            let most = behind(activity).into_iter().max_by_key(|(_, ns, _)| *ns);
            let advice = most.filter(|(_, ns, _)| *ns != 0).map_or(MORE_CPUS, |(.., advice)| advice);
            // More CPUs do not make an idle CPU wake up faster.
            let is_queued = is_named(Class::Contended) && activity.queued_ns() >= activity.wakeup_ns();
            is_queued.then(|| advice.into())
        }
        _ if classes.contains(&Class::CpuBound) || activity.has_unread => None,
        _ => Some(match (activity.by_cause.total(), activity.time_ns()) {
            (saved_ns, all_ns) if is_share(saved_ns, all_ns, MORE_CPU_PERCENT) => {
                format!("more CPU saves at most {}", share(saved_ns, all_ns))
            }
            _ => "more CPU will not help".into(),
        }),
    }
}

fn quota_advice(activity: &Activity, quota: Option<&Quota>) -> String {
    let cores = quota.and_then(|quota| quota.cores).map_or(1.0, f64::ceil);
    let fewer = if activity.threads as f64 > cores { " or use fewer threads" } else { "" };
    let (_, how) = quota.map_or_else(|| raise("", None), |quota| raise(&quota.path, quota.cores));
    format!("raise the limit{how}{fewer}")
}

/// Formats a share: `65 %`, or `<1 %` if it rounds to 0.
fn share(ns: u64, all_ns: u64) -> String {
    let percent = units::percent(ns, all_ns).unwrap_or_default();
    if ns != 0 && percent < 0.5 { "<1 %".into() } else { format!("{percent:.0} %") }
}
