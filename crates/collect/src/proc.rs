//! Small readings of `/proc`, each a parser and a read.

use std::fs;

/// Switches of all CPUs since boot: the `ctxt` line of `/proc/stat`. The kernel counts one exactly where it runs the
/// `sched_switch` tracepoint.
pub(crate) fn switches() -> Option<u64> {
    parse_switches(&fs::read_to_string("/proc/stat").ok()?)
}

fn parse_switches(stat: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix("ctxt "))?.trim().parse().ok()
}

/// Resident memory of this process, bytes.
pub(crate) fn rss_bytes() -> Option<u64> {
    let pages = parse_resident_pages(&fs::read_to_string("/proc/self/statm").ok()?)?;
    Some(pages * rustix::param::page_size() as u64)
}

fn parse_resident_pages(statm: &str) -> Option<u64> {
    statm.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The process that thread `tid` belongs to, if there is such a thread.
pub fn process_of(tid: u32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{tid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix("Tgid:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_are_the_ctxt_line() {
        assert_eq!(parse_switches("cpu 1 2\nintr 5 6\nctxt 1234\nbtime 9\n"), Some(1234));
        assert_eq!(parse_switches("cpu 1 2\n"), None);
    }

    #[test]
    fn resident_pages_are_the_second_figure() {
        assert_eq!(parse_resident_pages("900 321 5 1 0 8 0\n"), Some(321));
        assert_eq!(parse_resident_pages(""), None);
    }
}
