//! Figures in sentences.

use crate::units;
pub(super) use crate::units::{as_long, cpus, number};

/// `85.7%`, or no figure of nothing.
pub(super) fn percent(part: u64, whole: u64) -> String {
    units::percent(part, whole).map_or_else(|| "no share".into(), |percent| format!("{percent:.1}%"))
}

/// Microseconds as a duration.
pub(super) fn micros(us: u64) -> String {
    units::duration(us.saturating_mul(1_000))
}

/// `a`, `a and b`, `a, b and c`.
pub(crate) fn list(parts: &[String]) -> String {
    match parts {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

/// True if `part` is at least so many percent of `whole`; nothing is a share of nothing.
pub(crate) fn is_share(part: u64, whole: u64, percent: u64) -> bool {
    whole != 0 && u128::from(part) * 100 >= u128::from(whole) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_begins_at_its_percentage_and_not_below() {
        assert!(is_share(5, 100, 5) && !is_share(4_999, 100_000, 5));
        assert!(!is_share(0, 0, 5));
        assert!(is_share(u64::MAX, u64::MAX, 100));
    }
}
