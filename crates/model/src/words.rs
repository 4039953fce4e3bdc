//! The text of findings, classes and verdicts on a host. The rules themselves compute only figures.

pub(crate) mod class;
pub(crate) mod doctor;
pub(crate) mod findings;
pub(crate) mod sched_ext;

use crate::units;

/// The files in which a quota is set.
pub const QUOTA_FILE: &str = "cpu.max, in v1 cpu.cfs_quota_us";

/// Formats a share: `85.7%`, or `no share` if `whole` is 0.
fn percent(part: u64, whole: u64) -> String {
    units::percent(part, whole).map_or_else(|| "no share".into(), |percent| format!("{percent:.1}%"))
}

/// Joins words: `a`, `a and b`, `a, b and c`.
fn list<T: AsRef<str>>(parts: &[T]) -> String {
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    match parts[..] {
        [ref first @ .., last] if !first.is_empty() => format!("{} and {last}", first.join(", ")),
        _ => parts.concat(),
    }
}
