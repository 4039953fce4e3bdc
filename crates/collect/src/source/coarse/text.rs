//! The files of `/proc` as text: plain functions, which never touch a live system. What is not as the kernel writes it is
//! `None`.

use cgscope_model::TaskState;

use crate::task_state;

/// `/proc/PID/task/TID/schedstat` (`proc_pid_schedstat`). All zero, or absent, where the kernel does not keep it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedstat {
    /// Time on a CPU, ns: `se.sum_exec_runtime`.
    pub on_cpu_ns: u64,
    /// Completed waits, ns: `sched_info.run_delay`.
    pub run_delay_ns: u64,
    /// Times that it came on a CPU: `sched_info.pcount`. Since 5.14 those after a stamped wait, as the hook counts waits.
    pub waits: u64,
}

pub(crate) fn schedstat(text: &[u8]) -> Option<Schedstat> {
    let mut fields = words(text).map(number);
    let (on_cpu_ns, run_delay_ns, waits) = (fields.next()??, fields.next()??, fields.next()??);
    Some(Schedstat { on_cpu_ns, run_delay_ns, waits })
}

/// What `/proc/PID/stat` and `/proc/PID/task/TID/stat` tell that is of use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// Its name, as it was set: anything may be in it, `)` and newlines too.
    pub comm: &'a [u8],
    /// What it does at this moment.
    pub state: Option<TaskState>,
    /// The process that started it or adopted it; 0: none in this PID namespace.
    pub ppid: u32,
    /// Time on a CPU in user space, guests included, in clock ticks: scaled to the run time by the kernel.
    pub user_ticks: u64,
    /// The same in the kernel.
    pub system_ticks: u64,
    /// Of the first of these, that in which it ran a guest.
    pub guest_ticks: u64,
    /// Its start, in clock ticks of CLOCK_BOOTTIME.
    pub start_ticks: u64,
    /// The CPU it is on or was on last.
    pub cpu: u32,
}

impl Stat<'_> {
    /// It has ended and is not reaped yet, or just goes.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, Some(TaskState::Zombie | TaskState::Dead))
    }
}

/// Parses it.
pub fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let start = text.iter().position(|byte| *byte == b'(')?;
    let end = text.iter().rposition(|byte| *byte == b')').filter(|end| *end > start)?;
    // Field 3 of proc(5) comes first: 4 is the parent, 14 and 15 the time on a CPU, 22 the start, 39 the CPU, 43 the time of guests.
    let mut fields = words(&text[end + 1..]);
    let state = task_state::from_stat(fields.next()?);
    let ppid = number(fields.next()?)?.try_into().ok()?;
    let user_ticks = number(fields.nth(14 - 5)?)?;
    let system_ticks = number(fields.next()?)?;
    let start_ticks = number(fields.nth(22 - 16)?)?;
    let cpu = number(fields.nth(39 - 23)?)?.try_into().ok()?;
    let guest_ticks = number(fields.nth(43 - 40)?)?;
    let comm = &text[start + 1..end];
    Some(Stat { comm, state, ppid, user_ticks, system_ticks, guest_ticks, start_ticks, cpu })
}

/// Voluntary and involuntary switches of `/proc/PID/task/TID/status`.
pub(crate) fn switches(status: &[u8]) -> Option<(u64, u64)> {
    // The last lines; a name with a newline in it is escaped there.
    let value = |name: &[u8]| {
        let mut lines = status.rsplit(|byte| *byte == b'\n');
        number(lines.find_map(|line| line.strip_prefix(name))?)
    };
    Some((value(b"voluntary_ctxt_switches:")?, value(b"nonvoluntary_ctxt_switches:")?))
}

/// The number and the path of a hierarchy in `/proc/PID/cgroup`: of the v1 hierarchy with `controller` (`4:cpu,cpuacct:/path`), or
/// without one of v2 (`0::/path`).
pub(crate) fn hierarchy<'t>(text: &'t [u8], controller: Option<&str>) -> Option<(&'t [u8], &'t [u8])> {
    text.split(|byte| *byte == b'\n').find_map(|line| {
        let mut fields = line.splitn(3, |byte| *byte == b':');
        let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let is_it = match controller {
            None => number == b"0" && controllers.is_empty(),
            Some(name) => controllers.split(|byte| *byte == b',').any(|one| one == name.as_bytes()),
        };
        is_it.then_some((number, path))
    })
}

/// The path in the hierarchy of the cpu controller, of `/proc/PID/cgroup`. `None` also where the cgroup is gone (` (deleted)`), or
/// not below the root that this process sees.
pub(crate) fn cgroup_path(text: &[u8], is_v2: bool) -> Option<&[u8]> {
    let (_, path) = hierarchy(text, (!is_v2).then_some("cpu"))?;
    let is_outside = path.split(|byte| *byte == b'/').any(|name| name == b"..");
    (path.starts_with(b"/") && !is_outside && !path.ends_with(b" (deleted)")).then_some(path)
}

/// Tasks made since boot, threads included: `processes` of `/proc/stat` (`total_forks`). Of all PID namespaces.
pub fn forks(stat: &[u8]) -> Option<u64> {
    let mut lines = stat.split(|byte| *byte == b'\n');
    number(lines.find_map(|line| line.strip_prefix(b"processes "))?)
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

pub(crate) fn number(text: &[u8]) -> Option<u64> {
    std::str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schedstat_has_three_figures() {
        let all = Schedstat { on_cpu_ns: 632_586, run_delay_ns: 2_245_545, waits: 3 };
        assert_eq!(schedstat(b"632586 2245545 3\n"), Some(all));
        assert_eq!(schedstat(b"0 0 0\n"), Some(Schedstat::default()), "a kernel that does not keep it");
        for text in [&b""[..], b"1 2", b"1 x 3", b"-1 2 3"] {
            assert_eq!(schedstat(text), None);
        }
    }

    /// As 6.18 writes it, with that name and state.
    fn stat_of(comm: &str, state: char) -> Vec<u8> {
        let rest = "1 7 7 0 -1 4194560 90 0 0 0 3 4 0 0 20 0 1 0 2362061 3133440 436 18446744073709551615 1 1 0 0 0 0 0 0 0 \
                    0 0 0 17 1 0 0 0 2 0 0 0 0 0 0 0 0 0";
        format!("23884 ({comm}) {state} {rest}\n").into_bytes()
    }

    #[test]
    fn a_name_may_be_anything() {
        for comm in ["cat", "a) R 1 (b", "two\nlines", ""] {
            let text = stat_of(comm, 'S');
            let stat = stat(&text).unwrap();
            assert_eq!((stat.comm, stat.is_dead(), stat.ppid), (comm.as_bytes(), false, 1));
            assert_eq!(stat.state, Some(TaskState::Sleeping));
            assert_eq!((stat.start_ticks, stat.cpu), (2_362_061, 1));
            assert_eq!((stat.user_ticks, stat.system_ticks, stat.guest_ticks), (3, 4, 2));
        }
        for dead in ['Z', 'X', 'x'] {
            assert!(stat(&stat_of("cat", dead)).unwrap().is_dead(), "{dead}");
        }
        assert_eq!(stat(&stat_of("cat", 'W')).unwrap().state, None, "a letter of old kernels");
        assert_eq!(stat(b"7 (cat) S 1 7"), None);
        assert_eq!(stat(b"7 )cat( S 1 7"), None);
        assert_eq!(stat(b""), None);
    }

    #[test]
    fn switches_are_told_apart() {
        let status = b"Name:\tvoluntary_ctxt_switches:\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), Some((12, 3)));
        assert_eq!(switches(b"Name:\tcat\n"), None);
    }

    #[test]
    fn the_cgroup_is_that_of_the_cpu_controller() {
        let hybrid = b"4:cpu,cpuacct:/docker/a\n3:cpuset:/b\n1:name=systemd:/c\n0::/d:e\n";
        assert_eq!(cgroup_path(hybrid, false), Some(&b"/docker/a"[..]));
        assert_eq!(cgroup_path(hybrid, true), Some(&b"/d:e"[..]));
        assert_eq!(cgroup_path(b"3:cpuset:/b\n", false), None);
        assert_eq!(cgroup_path(b"0::/../../x\n", true), None, "outside of this cgroup namespace");
        assert_eq!(cgroup_path(b"0::/a (deleted)\n", true), None);
    }

    #[test]
    fn forks_are_the_processes_line() {
        assert_eq!(forks(b"cpu 1 2\nctxt 5\nbtime 7\nprocesses 1234\nprocs_running 2\n"), Some(1234));
        assert_eq!(forks(b"cpu 1 2\n"), None);
    }
}
