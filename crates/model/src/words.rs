//! Text for findings, classes and verdicts on a host. The rules themselves compute only figures.

use crate::{cgroup_name::set_property, names::Names, units};

/// The files that set a quota.
pub const QUOTA_FILE: &str = "cpu.max, in v1 cpu.cfs_quota_us";

/// Returns where and how to raise a limit of `cores` CPUs: a file, or for a systemd unit a command that doubles the limit.
pub(crate) fn raise(path: &str, cores: Option<f64>) -> (&'static str, String) {
    match cores.filter(|cores| *cores > 0.0).zip(set_property(path, "CPUQuota")) {
        Some((cores, command)) => {
            ("CPUQuota=", format!(": {command}{}%", units::number(2.0 * 100.0 * cores)))
        }
        None => ("cpu.max", format!(" ({QUOTA_FILE})")),
    }
}

/// Returns the command, setting or file that sets a quota. Kubernetes and container engines overwrite values written to files.
pub fn set_quota(path: &str, names: &Names, quota_us: u64, period_us: u64) -> String {
    let cores = quota_us as f64 / period_us.max(1) as f64;
    if let Some((_, named)) = names.container(path) {
        if named.pod().is_some() {
            return format!("resources: {{limits: {{cpu: {}m}}}}", (cores * 1e3).ceil());
        }
        if let Some(container) = &named.container {
            return format!("docker update --cpus {} {container} (or podman update)", units::number(cores));
        }
    }
    match set_property(path, "CPUQuota") {
        Some(command) => format!("{command}{}%", (cores * 100.0).ceil()),
        None => format!("write \"{quota_us} {period_us}\" to cpu.max of {path} (v1: cpu.cfs_quota_us)"),
    }
}

/// Returns the file that sets a burst. Neither systemd nor Kubernetes has a setting for it.
pub fn set_burst(path: &str, burst_us: u64) -> String {
    format!("write {burst_us} to cpu.max.burst of {path} (v1: cpu.cfs_burst_us; Linux 5.14)")
}

/// Formats a share: `85.7%`, or `no share` if `whole` is 0.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    units::percent(part, whole).map_or_else(|| "no share".into(), |percent| format!("{percent:.1}%"))
}

/// Joins words: `a`, `a and b`, `a, b and c`.
pub(crate) fn list<T: AsRef<str>>(parts: &[T]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        [ref first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}
