//! Reads threads with the task iterator of `ebpf/src/sample.rs`.

use std::io::{self, Read};
use std::{collections::BTreeSet, path::Path};

use aya::{Ebpf, maps::HashMap, programs::Iter};
use cgscope_ledger::{
    FRAMES, Feature,
    threads::{DISPLACED, END, HAS_SYSCALL, IOWAIT, ON_CPU, THROTTLED, ThreadRecord, ThreadsConfig},
    wire::{Config, SELECT_PROCESS, SELECT_THREAD, names},
};
use cgscope_model::{Selection, TaskState};

use super::{ChosenProcesses, Each, KernelPlaces, RoundRead, WantedFields};
use crate::{GroupBy, ThreadReading, ThreadState};
use cgscope_collect::facts::{self, CgroupMounts};
use cgscope_collect::offsets::{self, Resolved};
use cgscope_collect::shared_parts::{
    AyaResult, Buffer, Raw, StreamEnd, drain, failed, hash_table, loader, part, program, read_iterator,
    task_state_from_bits,
};
use cgscope_collect::{Failure, SAMPLE_OBJECT, cgroups::CgroupTree, patched};

/// The loaded iterator. It is attached only while it is read.
pub(super) struct TaskIterator {
    bpf: Ebpf,
    chosen: Option<ChosenProcesses>,
    selected: BTreeSet<u64>,
    wanted: WantedFields,
    has_users: bool,
    buffer: Buffer,
}

impl TaskIterator {
    pub fn start(
        selection: &Selection,
        wanted: WantedFields,
        mounts: &CgroupMounts,
        tree: Option<&CgroupTree>,
        refused: &mut Vec<String>,
    ) -> Result<Self, Failure> {
        check_namespace(selection, wanted)?;
        let resolved = offsets::resolve(Path::new(offsets::VMLINUX_BTF))?;
        // The hook needs more: task storage and loops.
        let needed = [Feature::RunQueues, Feature::SchedInfo, Feature::TaskIterator];
        let remedy = "`cgscope doctor` shows which kernel option each missing feature needs";
        resolved.check(|one| needed.contains(&one), "its task iterator cannot read threads", remedy)?;
        let config = Config {
            cgroup_v2: mounts.cpu_is_v2().into(),
            root_cgroup_id: tree.and_then(CgroupTree::root_id).unwrap_or_default(),
            ..Config::default()
        };
        let has_users = wanted.has(GroupBy::Username) && resolved.has(Feature::Credentials);
        // The kernel leaves the scheduler out of the stack of a task that is off its CPU (`stack_trace_consume_entry_nosched`,
        // Linux 5.2), so the first address shows where a thread is blocked.
        let frames = if wanted.has(GroupBy::Kstack) { FRAMES } else { wanted.has(GroupBy::Wchan).into() };
        let threads = ThreadsConfig {
            all_states: wanted.all_states.into(),
            syscall: (wanted.has(GroupBy::Syscall) && resolved.has(Feature::SyscallNumber)).into(),
            stack_bytes: (frames * size_of::<u64>()) as u64,
            selected_only: (!selection.follows_all()).into(),
            uid: has_users.into(),
            cgroup: wanted.has(GroupBy::Cgroup).into(),
        };
        let chosen = (!selection.follows_all()).then(|| ChosenProcesses::new(selection)).transpose();
        let chosen = chosen.map_err(failed("read /proc"))?;
        let bpf = load(&resolved, &config, &threads).map_err(failed("load the task iterator"))?;
        // Reading the kernel's types takes 15 MiB for a moment. Without this call, the C library would keep the memory.
        // SAFETY: no preconditions.
        unsafe { libc::malloc_trim(0) };
        refused.extend(unreported(&resolved, wanted));
        let (selected, buffer) = (BTreeSet::new(), Buffer::default());
        Ok(Self { bpf, chosen, selected, wanted, has_users, buffer })
    }

    pub fn read(&mut self, places: &mut KernelPlaces, each: Each<'_>) -> Result<RoundRead, Failure> {
        let has_target_exited = self.update_selected().map_err(failed("choose threads"))?;
        let stream = read_iterator(&mut self.bpf, names::LOOK_AT_THREADS);
        let mut stream = stream.map_err(failed("read the threads"))?;
        let (wanted, has_users) = (self.wanted, self.has_users);
        let looked_at = read_records(&mut stream, &mut self.buffer, |record, stack| {
            each(&reading(record, places.of_addresses(stack), wanted, has_users));
        });
        let looked_at = looked_at.map_err(failed("read the threads"))?;
        let (threads, is_whole) = (looked_at.unwrap_or_default(), looked_at.is_some());
        Ok(RoundRead { threads, has_target_exited, is_whole })
    }

    /// Updates the map of selected processes and threads. Returns whether all of them have exited.
    fn update_selected(&mut self) -> AyaResult<bool> {
        let Some(chosen) = &mut self.chosen else { return Ok(false) };
        if !chosen.update()? {
            return Ok(chosen.has_exited);
        }
        let processes = chosen.follow.whole_processes().map(|pid| SELECT_PROCESS | u64::from(pid));
        let threads = chosen.tids.iter().map(|tid| SELECT_THREAD | u64::from(*tid));
        let now: BTreeSet<u64> = processes.chain(threads).collect();
        let mut table: HashMap<_, u64, u64> = hash_table(&mut self.bpf, names::SELECTED)?;
        self.selected.difference(&now).try_for_each(|exited| table.remove(exited))?;
        now.difference(&self.selected).try_for_each(|new| table.insert(new, 1, 0))?;
        self.selected = now;
        Ok(chosen.has_exited)
    }
}

fn load(resolved: &Resolved, config: &Config, threads: &ThreadsConfig) -> AyaResult<Ebpf> {
    let object = patched(SAMPLE_OBJECT, &resolved.offsets, config)?;
    let (offsets, config, threads) = (Raw(resolved.offsets), Raw(*config), Raw(*threads));
    let mut bpf = loader()
        .override_global(names::OFFSETS, &offsets, true)
        .override_global(names::CONFIG, &config, false)
        .override_global(names::THREADS, &threads, true)
        .load(&object)?;
    let iterator: &mut Iter = program(&mut bpf, names::LOOK_AT_THREADS)?;
    iterator.load("task", &resolved.attach_types()?)?;
    Ok(bpf)
}

fn check_namespace(selection: &Selection, wanted: WantedFields) -> Result<(), Failure> {
    let needs_ids = !selection.follows_all() || wanted.has(GroupBy::Exe) || wanted.has(GroupBy::Cmdline);
    if needs_ids && facts::gather(Path::new("/")).initial_pid_namespace == Some(false) {
        return Err(Failure::of_mode(
            "this is not the initial PID namespace, but the kernel side uses ids of that namespace",
            "processes and threads can be neither selected by id nor looked up",
            "run cgscope on the host, or select by --cgroup or --comm and do not group by exe or cmdline",
        ));
    }
    Ok(())
}

/// Returns sentences about requested fields that this kernel does not report.
fn unreported(resolved: &Resolved, wanted: WantedFields) -> impl Iterator<Item = String> {
    let without = |is_asked: bool, feature: Feature, words: &str| {
        let name = feature.name();
        (is_asked && !resolved.has(feature)).then(|| format!("this kernel has no {name}: {words}"))
    };
    let is_quota_known = resolved.has(Feature::TaskThrottling) || resolved.has(Feature::ThrottleFunctions);
    let call_words = "system calls are unknown (`-`); they need Linux 5.15";
    let quota_words = "this kernel does not report which threads are out of quota: they count as runnable";
    let sentences = [
        without(wanted.has(GroupBy::Syscall), Feature::SyscallNumber, call_words),
        without(wanted.has(GroupBy::Username), Feature::Credentials, "users are unknown (`-`)"),
        without(true, Feature::IoWait, "threads that wait for a device count like all others in state D"),
        (resolved.has(Feature::Quotas) && !is_quota_known).then(|| quota_words.to_owned()),
    ];
    sentences.into_iter().flatten()
}

fn reading(record: &ThreadRecord, place: u32, wanted: WantedFields, has_users: bool) -> ThreadReading {
    let state = state(record);
    ThreadReading {
        tid: record.tid,
        tgid: record.tgid,
        comm: record.comm,
        state,
        cpu: Some(record.cpu),
        cgroup_id: wanted.has(GroupBy::Cgroup).then_some(record.cgroup_id),
        uid: has_users.then_some(record.uid),
        // A woken thread is about to leave its system call, so it is not blocked there.
        syscall: syscall(record).filter(|_| state.is_blocked()),
        place,
    }
}

// `task_struct.exit_state` (include/linux/sched.h), the same in all versions.
const EXIT_DEAD: u32 = 0x10;
const EXIT_ZOMBIE: u32 = 0x20;

/// Calls `each` with every thread and its addresses. Returns the number of visited threads; `None` if the stream is cut short.
fn read_records(
    stream: &mut impl Read,
    buffer: &mut Buffer,
    mut each: impl FnMut(&ThreadRecord, &[u64]),
) -> io::Result<Option<u64>> {
    let (mut looked_at, mut stack) = (None, [0; FRAMES]);
    let end = drain(stream, buffer, |bytes| {
        let (mut rest, mut left) = (bytes, bytes.len());
        while let Some(record) = part::<ThreadRecord>(&mut rest) {
            let stack = stack.get_mut(..record.frames as usize)?;
            let Some(words) = rest.split_off(..size_of_val(stack)) else { break };
            for (address, word) in stack.iter_mut().zip(words.as_chunks().0) {
                *address = u64::from_ne_bytes(*word);
            }
            match record.flags & END {
                0 => each(record, stack),
                _ => looked_at = Some(record.tid.into()),
            }
            left = rest.len();
        }
        Some(bytes.len() - left)
    })?;
    Ok(looked_at.filter(|_| end == StreamEnd::Complete))
}

/// Returns a thread's state. A thread that was preempted on its way to sleep is reported as asleep. A task on a run queue is not
/// always runnable: since Linux 6.12, a sleeping task can stay there (`DELAY_DEQUEUE`).
fn state(record: &ThreadRecord) -> ThreadState {
    let has = |flag: u32| record.flags & flag != 0;
    match task_state_from_bits(record.state) {
        _ if has(ON_CPU | DISPLACED) => ThreadState::OnCpu,
        _ if record.exit_state & EXIT_ZOMBIE != 0 => ThreadState::Zombie,
        _ if record.exit_state & EXIT_DEAD != 0 => ThreadState::Dead,
        // The thread might have been woken just now, and not be on a run queue yet.
        TaskState::Running if has(THROTTLED) => ThreadState::Throttled,
        TaskState::Running => ThreadState::Runnable,
        TaskState::DiskSleep if has(IOWAIT) => ThreadState::Iowait,
        other => ThreadState::of_letter(Some(other)),
    }
}

fn syscall(record: &ThreadRecord) -> Option<i32> {
    (record.flags & HAS_SYSCALL != 0 && record.syscall >= 0).then_some(record.syscall)
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::threads::ON_RQ;

    const RECORD: usize = size_of::<ThreadRecord>();

    fn bytes_of(record: &ThreadRecord, addresses: &[u64]) -> Vec<u8> {
        // SAFETY: the record consists of integers without padding.
        let head = unsafe { std::slice::from_raw_parts((&raw const *record).cast::<u8>(), RECORD) };
        head.iter().copied().chain(addresses.iter().flat_map(|address| address.to_ne_bytes())).collect()
    }

    /// Encodes threads with 0 to 4 addresses each, and the end record.
    fn stream(threads: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for tid in 0..threads {
            let addresses: Vec<u64> = (0..tid % 5).map(u64::from).collect();
            let record = ThreadRecord { tid, frames: addresses.len() as u32, ..Default::default() };
            bytes.extend(bytes_of(&record, &addresses));
        }
        bytes.extend(bytes_of(&ThreadRecord { flags: END, tid: 2 * threads, ..Default::default() }, &[]));
        bytes
    }

    struct Pieces<'a>(&'a [u8], usize);

    impl Read for Pieces<'_> {
        fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(into.len());
            into[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    #[test]
    fn records_can_be_split_between_reads() {
        let bytes = stream(1000);
        for piece in [1, 7, RECORD, 4096, 1 << 20] {
            let mut seen = Vec::new();
            let looked_at =
                read_records(&mut Pieces(&bytes, piece), &mut Buffer::default(), |record, addresses| {
                    assert!(addresses.iter().copied().eq((0..record.tid % 5).map(u64::from)));
                    seen.push(record.tid);
                });
            assert_eq!(looked_at.unwrap(), Some(2_000));
            assert!(seen.into_iter().eq(0..1000));
        }
    }

    #[test]
    fn a_stream_that_is_cut_off_is_detected() {
        let bytes = stream(10);
        for length in 0..bytes.len() {
            let looked_at =
                read_records(&mut Pieces(&bytes[..length], 4096), &mut Buffer::default(), |_, _| {});
            assert_eq!(looked_at.unwrap(), None, "{length}");
        }
        let none =
            read_records(&mut Pieces(&[0xff; 500], 4096), &mut Buffer::default(), |_, _| panic!("no record"));
        assert_eq!(none.unwrap(), None);
    }

    #[test]
    fn the_state_shows_why_a_thread_is_off_its_cpu() {
        let record = |flags, state| ThreadRecord { flags, state, ..Default::default() };
        for (flags, bits, expected) in [
            (ON_CPU | ON_RQ, 0, ThreadState::OnCpu),
            (ON_CPU | ON_RQ, 1, ThreadState::OnCpu),
            (ON_RQ, 0, ThreadState::Runnable),
            (ON_RQ | DISPLACED, 0, ThreadState::OnCpu),
            (0, 0x200, ThreadState::Runnable),
            (ON_RQ | THROTTLED, 0, ThreadState::Throttled),
            (ON_RQ, 1, ThreadState::Sleeping),
            (ON_RQ | THROTTLED, 1, ThreadState::Sleeping),
            (0, 2, ThreadState::Uninterruptible),
            (IOWAIT, 2, ThreadState::Iowait),
            (IOWAIT, 1, ThreadState::Sleeping),
            (0, 0x402, ThreadState::Idle),
            (0, 4, ThreadState::Stopped),
            (0, 8, ThreadState::Traced),
            (0, 0x40, ThreadState::Parked),
        ] {
            assert_eq!(state(&record(flags, bits)), expected, "{flags:#x} {bits:#x}");
        }
        let exited = |exit_state| state(&ThreadRecord { exit_state, state: 0x80, ..Default::default() });
        assert_eq!((exited(0x20), exited(0x10)), (ThreadState::Zombie, ThreadState::Dead));
    }

    #[test]
    fn a_system_call_is_known_only_if_it_was_read() {
        let record = |flags, syscall| ThreadRecord { flags, syscall, ..Default::default() };
        assert_eq!(syscall(&record(HAS_SYSCALL, 202)), Some(202));
        assert_eq!(syscall(&record(HAS_SYSCALL, -1)), None, "in none");
        assert_eq!(syscall(&record(0, 202)), None, "not read");
    }
}
