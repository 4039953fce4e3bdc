//! Reads threads from `/proc`: `stat` of each thread, and further files if their fields are requested.

use std::{
    os::fd::{AsFd, BorrowedFd},
    path::Path,
};

use cgscope_model::Selection;

use super::{ChosenProcesses, Each, KernelPlaces, RoundRead, WantedFields};
use crate::{GroupBy, ThreadReading, ThreadState};
use cgscope_collect::shared_parts::{CgroupIds, Follow, text};
use cgscope_collect::{Failure, facts::CgroupMounts};

pub(super) struct ProcWalk {
    chosen: ChosenProcesses,
    pub cgroups: Option<CgroupIds>,
    wanted: WantedFields,
}

impl ProcWalk {
    pub fn start(
        selection: &Selection,
        wanted: WantedFields,
        mounts: &CgroupMounts,
    ) -> Result<Self, Failure> {
        let chosen = ChosenProcesses::new(selection).map_err(|error| {
            let what = format!("/proc cannot be read ({error})");
            Failure::of_mode(what, "no thread can be read", "mount -t proc proc /proc")
        })?;
        Ok(Self { chosen, cgroups: CgroupIds::new(Path::new("/"), mounts), wanted })
    }

    pub fn read(&mut self, places: &mut KernelPlaces, each: Each<'_>) -> Result<RoundRead, Failure> {
        self.cgroups.iter_mut().for_each(CgroupIds::begin);
        // The list of all processes is read in each round: this costs little compared with reading the files of the processes.
        let pids = match self.chosen.follow {
            Follow::All => self.chosen.files.processes(),
            Follow::Chosen(_) => self.chosen.update().map(|_| self.chosen.pids.clone()),
        };
        let pids =
            pids.map_err(|error| Failure::new(format!("/proc could not be read ({error})"), "", ""))?;
        let mut read = RoundRead { is_whole: true, ..RoundRead::default() };
        let own_pid = std::process::id();
        for pid in pids.into_iter().filter(|pid| *pid != own_pid) {
            let Some((threads, tids)) = self.chosen.files.threads(pid) else { continue };
            for tid in tids {
                if self.chosen.follow.wants(pid, tid) {
                    read.threads += 1;
                    self.read_thread(threads.as_fd(), pid, tid, places).iter().for_each(&mut *each);
                }
            }
        }
        read.has_target_exited = self.chosen.has_exited;
        Ok(read)
    }

    /// Reads a thread. `None` if the thread has exited, or its state is not requested.
    fn read_thread(
        &mut self,
        threads: BorrowedFd<'_>,
        pid: u32,
        tid: u32,
        places: &mut KernelPlaces,
    ) -> Option<ThreadReading> {
        let (files, wanted) = (&mut self.chosen.files, self.wanted);
        let stat = files.of_thread(threads, tid, "stat").and_then(text::stat)?;
        let state = ThreadState::of_letter(stat.state);
        if !wanted.all_states && !state.is_active() {
            return None;
        }
        let (comm, cpu) = (comm(stat.comm), Some(stat.cpu));
        let mut reading = ThreadReading { tid, tgid: pid, comm, state, cpu, ..ThreadReading::default() };
        if wanted.has(GroupBy::Syscall) && state.is_blocked() {
            reading.syscall = files.of_thread(threads, tid, "syscall").and_then(syscall);
        }
        let mut text = |is_wanted: bool, name| {
            is_wanted.then(|| files.of_thread(threads, tid, name)).flatten().unwrap_or_default().to_vec()
        };
        let wchan = text(wanted.has(GroupBy::Wchan) && state.is_blocked(), "wchan");
        reading.place = places.of_text(&wchan, &text(wanted.has(GroupBy::Kstack), "stack"));
        if wanted.has(GroupBy::Username) {
            reading.uid = files.of_thread(threads, tid, "status").and_then(text::real_uid);
        }
        if wanted.has(GroupBy::Cgroup)
            && let Some(cgroups) = &mut self.cgroups
        {
            reading.cgroup_id = files.of_thread(threads, tid, "cgroup").and_then(|text| cgroups.id(text));
        }
        Some(reading)
    }
}

/// Returns the name as the BPF program reports it: at most 15 bytes, and no kworker suffix of `/proc` (`wq_worker_comm`).
fn comm(name: &[u8]) -> [u8; 16] {
    let is_worker = name.starts_with(b"kworker/") && !name.starts_with(b"kworker/R");
    let end = if is_worker { name.iter().position(|byte| b"-+".contains(byte)) } else { None };
    let name = &name[..end.unwrap_or(name.len()).min(15)];
    let mut comm = [0; 16];
    comm[..name.len()].copy_from_slice(name);
    comm
}

/// Parses `/proc/PID/task/TID/syscall`, and returns the number of the system call. The file has the number and its arguments,
/// `-1` outside of a system call, or `running`. For a kernel thread, all values are 0. For a user process, at least the stack
/// pointer near the end is not 0.
fn syscall(text: &[u8]) -> Option<i32> {
    let text = std::str::from_utf8(text).ok()?;
    let mut words = text.split_ascii_whitespace();
    let number: i32 = words.next()?.parse().ok()?;
    (number >= 0 && words.any(|word| word != "0x0")).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_the_same_as_on_the_kernel_side() {
        for (name, expected) in [
            (&b"kworker/0:1-events"[..], &b"kworker/0:1"[..]),
            (b"kworker/u8:2+flush-254:0", b"kworker/u8:2"),
            (b"kworker/R-slub_flushwq", b"kworker/R-slub_"),
            (b"a-b", b"a-b"),
        ] {
            let comm = comm(name);
            assert_eq!(comm.split(|byte| *byte == 0).next(), Some(expected));
        }
    }

    #[test]
    fn the_first_number_is_the_system_call() {
        assert_eq!(syscall(b"202 0x1 0x80 0x0 0x0 0x0 0x0 0x7ffd 0x7f12\n"), Some(202));
        assert_eq!(syscall(b"0 0x0 0x7f 0x10 0x0 0x0 0x0 0x7ffd 0x7f12\n"), Some(0), "read");
        assert_eq!(syscall(b"0 0x0 0x0 0x0 0x0 0x0 0x0 0x0 0x0\n"), None, "a kernel thread");
        for text in [&b"running\n"[..], b"-1 0x7ffd 0x7f12\n", b""] {
            assert_eq!(syscall(text), None);
        }
    }
}
