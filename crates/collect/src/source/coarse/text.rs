//! Parses files of `/proc`. These functions never access a live system. A format that the kernel does not write gives `None`.

use cgscope_model::TaskState;

/// Figures of `/proc/PID/task/TID/schedstat` (`proc_pid_schedstat`). Some kernels have zeros there, or no such file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Schedstat {
    /// Time on a CPU, ns: `se.sum_exec_runtime`.
    pub on_cpu_ns: u64,
    /// Completed waits, ns: `sched_info.run_delay`.
    pub run_delay_ns: u64,
    /// Switches in: `sched_info.pcount`. Since Linux 5.14 this counts only switches in after a wait for which the kernel recorded
    /// a start, as the hook does.
    pub waits: u64,
}

pub(crate) fn schedstat(text: &[u8]) -> Option<Schedstat> {
    let mut fields = words(text).map(number);
    let (on_cpu_ns, run_delay_ns, waits) = (fields.next()??, fields.next()??, fields.next()??);
    Some(Schedstat { on_cpu_ns, run_delay_ns, waits })
}

/// The used fields of `/proc/PID/stat` and `/proc/PID/task/TID/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stat<'a> {
    /// The name. It can contain anything, even `)` and newlines.
    pub comm: &'a [u8],
    /// The state; `None` for an unknown letter.
    pub state: Option<TaskState>,
    /// The parent's id; 0 if the parent is outside this PID namespace.
    pub ppid: u32,
    /// The `PF_` flags.
    pub flags: u64,
    /// User time including guest time, in clock ticks. The kernel scales user time to the run time.
    pub user_ticks: u64,
    /// System time, in clock ticks.
    pub system_ticks: u64,
    /// Time of a guest, which is part of the user time, in clock ticks.
    pub guest_ticks: u64,
    /// Niceness, -20 to 19.
    pub nice: i32,
    /// Start of the task, in clock ticks since boot (CLOCK_BOOTTIME).
    pub start_ticks: u64,
    /// The current or last CPU.
    pub cpu: u32,
}

impl Stat<'_> {
    /// Whether the task is a zombie or is exiting.
    pub fn is_dead(&self) -> bool {
        matches!(self.state, Some(TaskState::Zombie | TaskState::Dead))
    }
}

/// Parses a `stat` file.
pub fn stat(text: &[u8]) -> Option<Stat<'_>> {
    let start = text.iter().position(|byte| *byte == b'(')?;
    let end = text.iter().rposition(|byte| *byte == b')').filter(|end| *end > start)?;
    // Fields of proc(5): 3 state, 4 parent, 9 flags, 14 and 15 user and system time, 19 nice, 22 start, 39 CPU, 43 guest time.
    let mut fields = words(&text[end + 1..]);
    let state = match fields.next()? {
        // A dead task before 3.14.
        b"x" => Some(TaskState::Dead),
        [letter] => TaskState::from_letter(char::from(*letter)),
        _ => None,
    };
    let ppid = number(fields.next()?)?.try_into().ok()?;
    let flags = number(fields.nth(9 - 5)?)?;
    let user_ticks = number(fields.nth(14 - 10)?)?;
    let system_ticks = number(fields.next()?)?;
    let nice = std::str::from_utf8(fields.nth(19 - 16)?).ok()?.parse().ok()?;
    let start_ticks = number(fields.nth(22 - 20)?)?;
    let cpu = number(fields.nth(39 - 23)?)?.try_into().ok()?;
    let guest_ticks = number(fields.nth(43 - 40)?)?;
    let comm = &text[start + 1..end];
    Some(Stat { comm, state, ppid, flags, user_ticks, system_ticks, guest_ticks, nice, start_ticks, cpu })
}

pub(crate) fn switches(status: &[u8]) -> Option<(u64, u64)> {
    Some((value(status, b"voluntary_ctxt_switches:")?, value(status, b"nonvoluntary_ctxt_switches:")?))
}

/// Returns the real user id in a `status` file, the first of four.
pub fn real_uid(status: &[u8]) -> Option<u32> {
    let line = status.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b"Uid:"))?;
    number(words(line).next()?)?.try_into().ok()
}

/// Returns the number and path of the v1 hierarchy with `controller` (`4:cpu,cpuacct:/path`), or of v2 (`0::/path`).
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

/// Returns the path in the cpu controller's hierarchy. `None` if the cgroup was removed (` (deleted)`) or is outside the root of
/// our cgroup namespace.
pub(crate) fn cgroup_path(text: &[u8], is_v2: bool) -> Option<&[u8]> {
    let (_, path) = hierarchy(text, (!is_v2).then_some("cpu"))?;
    let is_outside = path.split(|byte| *byte == b'/').any(|name| name == b"..");
    (path.starts_with(b"/") && !is_outside && !path.ends_with(b" (deleted)")).then_some(path)
}

/// Returns the number of forks since boot in all PID namespaces, including threads: `processes` in `/proc/stat` (`total_forks`).
pub fn forks(stat: &[u8]) -> Option<u64> {
    value(stat, b"processes ")
}

pub(crate) fn resident_pages(statm: &[u8]) -> Option<u64> {
    words(statm).nth(1).and_then(number)
}

/// Returns the number on the last line that begins with `name`. The kernel escapes newlines, so no task name can fake a line.
pub(crate) fn value(text: &[u8], name: &[u8]) -> Option<u64> {
    number(text.rsplit(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(name))?)
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

    /// Encodes a `stat` line as 6.18 writes it, with this name and state.
    fn stat_of(comm: &str, state: char) -> Vec<u8> {
        let rest = "1 7 7 0 -1 4194560 90 0 0 0 3 4 0 0 20 0 1 0 2362061 3133440 436 18446744073709551615 1 1 0 0 0 0 0 0 0 \
                    0 0 0 17 1 0 0 0 2 0 0 0 0 0 0 0 0 0";
        format!("23884 ({comm}) {state} {rest}\n").into_bytes()
    }

    #[test]
    fn a_task_name_may_contain_anything() {
        for comm in ["cat", "a) R 1 (b", "two\nlines", ""] {
            let text = stat_of(comm, 'S');
            let stat = stat(&text).unwrap();
            assert_eq!((stat.comm, stat.is_dead(), stat.ppid), (comm.as_bytes(), false, 1));
            assert_eq!(stat.state, Some(TaskState::Sleeping));
            assert_eq!((stat.start_ticks, stat.cpu), (2_362_061, 1));
            assert_eq!((stat.user_ticks, stat.system_ticks, stat.guest_ticks), (3, 4, 2));
        }
        for state in TaskState::ALL.iter().copied() {
            assert_eq!(stat(&stat_of("cat", state.letter())).unwrap().state, Some(state));
        }
        for dead in ['Z', 'X', 'x'] {
            assert!(stat(&stat_of("cat", dead)).unwrap().is_dead(), "{dead}");
        }
        for other in ['W', 'K', '\u{ff}'] {
            assert_eq!(stat(&stat_of("cat", other)).unwrap().state, None, "a letter of old kernels");
        }
        assert_eq!(stat(b"7 (cat) S 1 7"), None);
        assert_eq!(stat(b"7 )cat( S 1 7"), None);
        assert_eq!(stat(b""), None);
    }

    #[test]
    fn voluntary_and_involuntary_switches_are_distinguished() {
        let status = b"Name:\tvoluntary_ctxt_switches:\nvoluntary_ctxt_switches:\t12\nnonvoluntary_ctxt_switches:\t3\n";
        assert_eq!(switches(status), Some((12, 3)));
        assert_eq!(switches(b"Name:\tcat\n"), None);
    }

    #[test]
    fn the_real_user_id_is_the_first_one() {
        assert_eq!(real_uid(b"Name:\tUid: 7\nUid:\t1000\t0\t0\t0\n"), Some(1000));
        assert_eq!(real_uid(b"Name:\ta\n"), None);
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

    #[test]
    fn resident_pages_are_the_second_figure() {
        assert_eq!(resident_pages(b"900 321 5 1 0 8 0\n"), Some(321));
        assert_eq!(resident_pages(b""), None);
    }
}
