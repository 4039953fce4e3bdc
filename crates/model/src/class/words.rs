//! The sentence of a class.

use std::cmp::Reverse;

use super::{Activity, Class, MORE_CPU_PERCENT, Quota, TOLD_PERCENT};
use crate::{
    Cause, Kind,
    findings::{BUSY_THREAD_PERCENT, QUOTA_FILE, REALTIME_PERCENT, is_share, list},
    units,
};

/// So many parts are told at most, beside the time on a CPU.
const MOST: usize = 4;

pub(super) fn sentence(classes: &[Class], activity: &Activity, quota: Option<&Quota>) -> String {
    let names: Vec<String> = classes.iter().map(|class| class.name().into()).collect();
    if classes == [Class::Idle] && activity.threads == 0 && activity.is_partial() {
        return format!("idle: no thread ran or waited for a CPU for {BUSY_THREAD_PERCENT} % of the time");
    }
    let parts = parts(classes, activity, quota);
    let name = match &names[..] {
        [] if activity.time_ns() == 0 => return "did not run, wait or sleep".into(),
        [] => return format!("{} (what it was blocked on is not known)", told(&parts, activity)),
        [name] => name.clone(),
        [idle, lost @ ..] if classes[0] == Class::Idle => format!("{idle}, and {} when it runs", list(lost)),
        _ => format!("mixed, {}", list(&names)),
    };
    let advice =
        advice(classes, activity, quota, &parts).map_or_else(String::new, |advice| format!(": {advice}"));
    format!("{name}: {}{advice}", told(&parts, activity))
}

/// What the time went to, the largest first, but what the class is about before all.
fn parts(classes: &[Class], activity: &Activity, quota: Option<&Quota>) -> Vec<Part> {
    let all_ns = activity.time_ns();
    let is = |class| classes.contains(&class);
    let is_waking = activity.wakeup_ns > activity.queued_ns;
    let mut parts = blocked_parts(activity, classes);
    parts.push(throttled(quota, activity).main(is(Class::QuotaBound)));
    parts.push(queued(activity).main(is(Class::Contended)));
    let waking = Part::new(What::Waking, activity.wakeup_ns, "waking up", "");
    parts.push(waking.main(is(Class::Contended) && is_waking));
    parts.sort_by_key(|part| (!part.is_main, Reverse(part.ns)));
    parts.retain(|part| {
        let is_named = part.is_main && matches!(part.what, What::Throttled | What::Queued | What::Waking);
        is_share(part.ns, all_ns, TOLD_PERCENT) || is_named && part.ns != 0
    });
    parts.truncate(MOST);
    let on_cpu = Part::new(What::OnCpu, activity.on_cpu_ns, "on a CPU", "");
    let at = if classes == [Class::CpuBound] {
        0
    } else {
        parts.iter().take_while(|part| part.is_main || part.ns > on_cpu.ns).count()
    };
    parts.insert(at, on_cpu);
    parts
}

fn told(parts: &[Part], activity: &Activity) -> String {
    let of_the_time = match (activity.is_partial(), activity.blocked.total()) {
        (false, _) => " of the time",
        (true, 0) => " of the time that it ran or wanted to run",
        (true, _) => " of the time that is known",
    };
    let told = parts.iter().enumerate().map(|(at, Part { ns, is, more, .. })| {
        let of_the_time = if at == 0 { of_the_time } else { "" };
        format!("{is} {}{of_the_time}{more}", share(*ns, activity.time_ns()))
    });
    told.collect::<Vec<_>>().join(", ")
}

/// What a part of the time is, as far as advice depends on it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum What {
    OnCpu,
    Throttled,
    Queued,
    Waking,
    Blocked,
}

/// A part of the time: what it is in words, and what is said behind its figure.
struct Part {
    what: What,
    ns: u64,
    /// The class is about it.
    is_main: bool,
    is: String,
    more: String,
}

impl Part {
    fn new(what: What, ns: u64, is: impl Into<String>, more: impl Into<String>) -> Self {
        Self { what, ns, is_main: false, is: is.into(), more: more.into() }
    }

    fn main(self, is_main: bool) -> Self {
        Self { is_main, ..self }
    }
}

fn blocked_parts(activity: &Activity, classes: &[Class]) -> Vec<Part> {
    let needed = activity.blocked.iter().filter(|(kind, _)| !kind.is_for_work());
    let mut parts: Vec<_> =
        needed.map(|(kind, ns)| blocked_part(kind, ns).main(classes.contains(&class_of(kind)))).collect();
    let poll_ns = activity.blocked.get(Kind::Poll);
    let for_work_ns = activity.blocked.for_work() - poll_ns;
    let kinds = activity.blocked.iter().filter(|(kind, ns)| {
        kind.is_for_work() && *kind != Kind::Poll && is_share(*ns, for_work_ns, TOLD_PERCENT)
    });
    let mut kinds: Vec<_> = kinds.collect();
    kinds.sort_by_key(|(_, ns)| Reverse(*ns));
    let names: Vec<String> = kinds.iter().map(|(kind, _)| kind.name().into()).collect();
    let names = if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
    let is_idle = classes.contains(&Class::Idle);
    parts.push(Part::new(What::Blocked, for_work_ns, "waiting for work", names).main(is_idle));
    let in_poll = Part::new(What::Blocked, poll_ns, "waiting in poll", " (for work or for answers)");
    parts.push(in_poll.main(is_idle));
    parts
}

fn blocked_part(kind: Kind, ns: u64) -> Part {
    let part = |is: &str, more: &str| Part::new(What::Blocked, ns, is, more);
    match kind {
        Kind::Unknown => part("blocked", " (on what is not known)"),
        Kind::Other => part("blocked on something else", ""),
        Kind::Lock => part("blocked on a futex", " (a lock, or a pool that waits for work)"),
        _ => part(&format!("blocked on {}", kind.name()), ""),
    }
}

fn class_of(kind: Kind) -> Class {
    match kind {
        Kind::Network | Kind::Disk | Kind::Pipe | Kind::IoUring => Class::IoBound,
        Kind::Lock | Kind::FileLock | Kind::KernelLock => Class::LockBound,
        _ if kind.is_for_work() => Class::Idle,
        _ => Class::Blocked,
    }
}

fn throttled(quota: Option<&Quota>, activity: &Activity) -> Part {
    let by = quota.map_or_else(String::new, |Quota { path, cores, .. }| {
        let cores = cores.map_or_else(String::new, |cores| format!(" ({})", units::cpus(cores)));
        format!(" by {path}{cores}")
    });
    Part::new(What::Throttled, activity.throttled_ns, "throttled", by)
}

/// Who ran while it was queued.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
    Own,
    Root,
    Others,
    Kernel,
}

/// Each and for how long, ns, as far as causes are known.
fn behind(activity: &Activity) -> [(Behind, u64); 4] {
    let own_ns = activity.waited_ns(Cause::OwnCgroup);
    [
        (Behind::Own, own_ns.saturating_sub(activity.behind_root_ns)),
        (Behind::Root, activity.behind_root_ns),
        (Behind::Others, activity.waited_ns(Cause::OtherCgroup)),
        (Behind::Kernel, activity.waited_ns(Cause::Kernel)),
    ]
}

/// Behind whom, where that is known.
fn queued(activity: &Activity) -> Part {
    let all_ns = activity.time_ns();
    let behind = behind(activity).into_iter().filter(|(_, ns)| is_share(*ns, all_ns, TOLD_PERCENT));
    let behind: Vec<String> = behind
        .map(|(who, ns)| {
            let who = match who {
                Behind::Own => "its own cgroup",
                Behind::Root => "others in / or its own threads",
                Behind::Others => "other cgroups",
                Behind::Kernel => "the kernel",
            };
            format!("{who} {}", share(ns, all_ns))
        })
        .collect();
    let more = if behind.is_empty() { String::new() } else { format!(" (behind {})", list(&behind)) };
    Part::new(What::Queued, activity.queued_ns, "queued for a CPU", more)
}

/// What would help; nothing of which the figure is not among these parts.
fn advice(classes: &[Class], activity: &Activity, quota: Option<&Quota>, parts: &[Part]) -> Option<String> {
    let is_told = |what| parts.iter().any(|part| part.what == what);
    match classes {
        [Class::Idle | Class::CpuBound] => None,
        [Class::QuotaBound, ..] | [Class::Idle, Class::QuotaBound, ..] => {
            is_told(What::Throttled).then(|| of_quota(activity, quota))
        }
        [Class::Contended, ..] | [Class::Idle, Class::Contended, ..] => {
            // An idle CPU that takes long to wake up is not made faster by another.
            let is_queued = is_told(What::Queued) && activity.queued_ns >= activity.wakeup_ns;
            is_queued.then(|| of_queue(activity).into())
        }
        _ if classes.contains(&Class::CpuBound) || activity.has_unread => None,
        _ => Some(more_cpu(activity)),
    }
}

fn of_quota(activity: &Activity, quota: Option<&Quota>) -> String {
    let cores = quota.and_then(|quota| quota.cores).map_or(1.0, f64::ceil);
    let fewer = if activity.threads as f64 > cores { " or use fewer threads" } else { "" };
    format!("raise the limit ({QUOTA_FILE}){fewer}")
}

fn of_queue(activity: &Activity) -> &'static str {
    let most = behind(activity).into_iter().max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns != 0);
    match most.map(|(who, _)| who) {
        Some(Behind::Own) if activity.threads > 1 => "more CPUs or fewer threads help",
        Some(Behind::Others)
            if is_share(activity.realtime_ns, activity.waited_ns(Cause::OtherCgroup), REALTIME_PERCENT) =>
        {
            "a higher priority (chrt), pinning, moving the neighbours or more CPUs help; cpu.weight does not apply to real-time tasks"
        }
        Some(Behind::Others) => {
            "a higher cpu.weight (in v1 cpu.shares), pinning, moving the neighbours or more CPUs help"
        }
        Some(Behind::Kernel) => "pinning, moving the neighbours that the kernel works for or more CPUs help",
        Some(Behind::Own | Behind::Root) | None => "more CPUs help",
    }
}

fn more_cpu(activity: &Activity) -> String {
    let (saved_ns, all_ns) = (activity.saved_by_cpu_ns(), activity.time_ns());
    if is_share(saved_ns, all_ns, MORE_CPU_PERCENT) {
        format!("more CPU saves {} at most", share(saved_ns, all_ns))
    } else {
        "more CPU will not help".into()
    }
}

/// `65 %`; what is there and rounds to nothing is `<1 %`.
fn share(ns: u64, all_ns: u64) -> String {
    let percent = units::percent(ns, all_ns).unwrap_or_default();
    if ns != 0 && percent < 0.5 { "<1 %".into() } else { format!("{percent:.0} %") }
}
