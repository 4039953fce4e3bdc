//! The task iterator of `ebpf/src/sample.rs` as a source.

use std::{collections::BTreeSet, path::Path};

use aya::{Btf, Ebpf, EbpfLoader, maps::HashMap, programs::Iter};
use cgscope_layout::{
    FRAMES, Feature,
    threads::{ThreadRecord, ThreadsConfig, names as threads_names},
    wire::{Config, SELECT_PROCESS, SELECT_THREAD, names},
};
use cgscope_model::Selection;

use super::{RoundRead, WantedFields, chosen::ChosenProcesses, places::KernelPlaces, records};
use crate::{GroupBy, ThreadReading};
use cgscope_collect::{
    Failure, SAMPLE_OBJECT,
    cgroups::CgroupTree,
    facts::{self, CgroupMounts},
    offsets::{self, Resolved},
    shared_parts::{AyaResult, Buffer, Raw, failed, hash_table, program, read_iterator},
};

/// Addresses that say where a thread is blocked. The stack of a task that is off its CPU leaves out the scheduler
/// (`stack_trace_consume_entry_nosched`, Linux 5.2), so the first one is enough.
const FRAMES_OF_WCHAN: usize = 1;

/// The loaded iterator. It is attached only while it is read.
pub(super) struct TaskIterator {
    bpf: Ebpf,
    chosen: Option<ChosenProcesses>,
    selected: BTreeSet<u64>,
    wanted: WantedFields,
    has_users: bool,
    /// Sentences on what this kernel does not report.
    pub refused: Vec<String>,
    buffer: Buffer,
}

impl TaskIterator {
    pub fn start(
        selection: &Selection,
        wanted: WantedFields,
        mounts: &CgroupMounts,
        tree: Option<&CgroupTree>,
    ) -> Result<Self, Failure> {
        check_namespace(selection, wanted)?;
        let resolved = offsets::resolve(Path::new(offsets::VMLINUX_BTF))?;
        check_features(&resolved)?;
        let config = Config {
            cgroup_v2: mounts.cpu_is_v2().into(),
            root_cgroup_id: tree.and_then(CgroupTree::root_id).unwrap_or_default(),
            ..Config::default()
        };
        let has_users = wanted.has(GroupBy::Username) && resolved.has(Feature::Credentials);
        let threads = ThreadsConfig {
            all_states: wanted.all_states.into(),
            syscall: (wanted.has(GroupBy::Syscall) && resolved.has(Feature::SyscallNumber)).into(),
            stack_bytes: stack_bytes(wanted),
            selected_only: (!selection.follows_all()).into(),
            uid: has_users.into(),
            cgroup: wanted.has(GroupBy::Cgroup).into(),
        };
        let chosen = (!selection.follows_all()).then(|| ChosenProcesses::new(selection)).transpose();
        let chosen = chosen.map_err(failed("read /proc"))?;
        let bpf = load(&resolved, &config, &threads).map_err(failed("load the task iterator"))?;
        // Reading the kernel's types takes 15 MiB for a moment; without this the C library keeps them.
        // SAFETY: no preconditions.
        unsafe { libc::malloc_trim(0) };
        let refused = refused(&resolved, wanted);
        let (selected, buffer) = (BTreeSet::new(), Buffer::default());
        Ok(Self { bpf, chosen, selected, wanted, has_users, refused, buffer })
    }

    /// Calls `each` with every thread; false if the reading ended early.
    pub fn read(
        &mut self,
        places: &mut KernelPlaces,
        each: &mut impl FnMut(&ThreadReading),
    ) -> Result<(RoundRead, bool), Failure> {
        let is_target_gone = self.update_selected().map_err(failed("choose threads"))?;
        let stream = read_iterator(&mut self.bpf, threads_names::LOOK_AT_THREADS);
        let mut stream = stream.map_err(failed("read the threads"))?;
        let (wanted, has_users) = (self.wanted, self.has_users);
        let looked_at = records::read_records(&mut stream, &mut self.buffer, |record, stack| {
            each(&reading(record, places.of_addresses(stack), wanted, has_users));
        });
        let looked_at = looked_at.map_err(failed("read the threads"))?;
        Ok((RoundRead { threads: looked_at.unwrap_or_default(), is_target_gone }, looked_at.is_some()))
    }

    /// Updates the map of selected processes and threads; true if none of them is left.
    fn update_selected(&mut self) -> AyaResult<bool> {
        let Some(chosen) = &mut self.chosen else { return Ok(false) };
        if !chosen.update()? {
            return Ok(chosen.is_gone);
        }
        let processes = chosen.follow.whole_processes().map(|pid| SELECT_PROCESS | u64::from(pid));
        let threads = chosen.tids.iter().map(|tid| SELECT_THREAD | u64::from(*tid));
        let now: BTreeSet<u64> = processes.chain(threads).collect();
        let mut table: HashMap<_, u64, u64> = hash_table(&mut self.bpf, names::SELECTED)?;
        for gone in self.selected.difference(&now) {
            table.remove(gone)?;
        }
        for new in now.difference(&self.selected) {
            table.insert(new, 1, 0)?;
        }
        self.selected = now;
        Ok(chosen.is_gone)
    }
}

fn load(resolved: &Resolved, config: &Config, threads: &ThreadsConfig) -> AyaResult<Ebpf> {
    let btf = Btf::from_sys_fs()?;
    let (offsets, config, threads) = (Raw(resolved.offsets), Raw(*config), Raw(*threads));
    let mut bpf = EbpfLoader::new()
        .btf(Some(&btf))
        .override_global(names::OFFSETS, &offsets, true)
        .override_global(names::CONFIG, &config, false)
        .override_global(threads_names::THREADS, &threads, true)
        .load(SAMPLE_OBJECT)?;
    let iterator: &mut Iter = program(&mut bpf, threads_names::LOOK_AT_THREADS)?;
    iterator.load("task", &btf)?;
    Ok(bpf)
}

fn stack_bytes(wanted: WantedFields) -> u64 {
    let frames = match (wanted.has(GroupBy::Kstack), wanted.has(GroupBy::Wchan)) {
        (true, _) => FRAMES,
        (false, true) => FRAMES_OF_WCHAN,
        (false, false) => 0,
    };
    (frames * size_of::<u64>()) as u64
}

fn check_namespace(selection: &Selection, wanted: WantedFields) -> Result<(), Failure> {
    let needs_ids = !selection.follows_all() || wanted.has(GroupBy::Exe) || wanted.has(GroupBy::Cmdline);
    if needs_ids && facts::gather(Path::new("/")).initial_pid_namespace == Some(false) {
        return Err(Failure::of_mode(
            "this is not the initial PID namespace, where the kernel side counts ids",
            "processes and threads can neither be selected by id nor be looked up",
            "run cgscope on the host, or select by --cgroup or --comm and group by neither exe nor cmdline",
        ));
    }
    Ok(())
}

/// Fewer than the hook needs: neither storage of tasks nor loops.
fn check_features(resolved: &Resolved) -> Result<(), Failure> {
    let needed = [Feature::RunQueues, Feature::SchedInfo, Feature::TaskIterator];
    let off = resolved.off.iter().filter(|off| needed.contains(&off.feature));
    let missing: Vec<&str> = off.flat_map(|off| &off.missing).map(String::as_str).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(Failure::of_host(
        format!("this kernel does not have {}", missing.join(", ")),
        "threads cannot be looked at from within it",
        "`cgscope doctor` says which kernel option each of them needs",
    ))
}

fn refused(resolved: &Resolved, wanted: WantedFields) -> Vec<String> {
    let mut refused = Vec::new();
    let mut without = |is_asked: bool, feature: Feature, words: &str| {
        if is_asked && !resolved.has(feature) {
            refused.push(format!("this kernel has no {}: {words}", feature.name()));
        }
    };
    without(
        wanted.has(GroupBy::Syscall),
        Feature::SyscallNumber,
        "system calls are not told (`-`); Linux 5.15 or later does",
    );
    without(wanted.has(GroupBy::Username), Feature::Credentials, "users are not told (`-`)");
    without(true, Feature::IoWait, "threads that wait for a device are not told from others in D");
    let is_quota_known = resolved.has(Feature::TaskThrottling) || resolved.has(Feature::ThrottleFunctions);
    if resolved.has(Feature::Quotas) && !is_quota_known {
        refused.push(
            "this kernel does not say which threads are out of quota: they are told as runnable".into(),
        );
    }
    refused
}

fn reading(record: &ThreadRecord, place: u32, wanted: WantedFields, has_users: bool) -> ThreadReading {
    let state = records::state(record);
    ThreadReading {
        tid: record.tid,
        tgid: record.tgid,
        comm: record.comm,
        state,
        cpu: Some(record.cpu),
        cgroup_id: wanted.has(GroupBy::Cgroup).then_some(record.cgroup_id),
        uid: has_users.then_some(record.uid),
        // A thread that has just been woken leaves it.
        syscall: records::syscall(record).filter(|_| state.is_blocked()),
        place,
    }
}
