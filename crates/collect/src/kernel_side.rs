//! The BPF side: loaded, told what to follow, attached, read.

mod marks;

use std::{
    fs::File,
    io::Read,
    os::fd::{AsFd, OwnedFd},
};

use aya::{
    Btf, Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, MapData, MapError, PerCpuArray, RingBuf},
    programs::{BtfTracePoint, FEntry, Iter},
    sys::{Stats, enable_stats},
};
use cgscope_layout::{
    Loss, Offsets,
    ledger::Pairs,
    wire::{Config, CpuCounters, Exited, SELECT_PROCESS, SELECT_THREAD, STACKS, StackCount, StackKey, names},
};

use crate::{Failure, batch, table_reading::TableReading};

/// The compiled BPF side.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_BPF_OBJECT"));

/// The hook with an empty body: what `cargo xtask overhead` measures cgscope against.
pub static EMPTY_HOOK_OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_EMPTY_HOOK_OBJECT"));
/// The task iterator of `cgscope sample`, compiled.
pub static SAMPLE_OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_SAMPLE_OBJECT"));

/// `Exited` as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct ExitedPod(Exited);

// SAFETY: integers without padding.
unsafe impl Pod for ExitedPod {}

/// `Pairs` as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct PairsPod(Pairs);

// SAFETY: integers without padding.
unsafe impl Pod for PairsPod {}

/// `CpuCounters` as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct CpuCountersPod(CpuCounters);

// SAFETY: integers without padding.
unsafe impl Pod for CpuCountersPod {}

/// `StackKey` as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct StackKeyPod(StackKey);

// SAFETY: integers without padding.
unsafe impl Pod for StackKeyPod {}

/// `StackCount` as aya wants it.
#[repr(transparent)]
#[derive(Clone, Copy)]
struct StackCountPod(StackCount);

// SAFETY: integers without padding.
unsafe impl Pod for StackCountPod {}

/// The BPF side, attached. Dropping it detaches and unloads everything.
pub(crate) struct KernelSide {
    bpf: Ebpf,
    cgroup_events: RingBuf<MapData>,
    exited: TableReading,
    refused: Vec<String>,
}

/// What to load, and what to tell it.
pub(crate) struct Plan<'a> {
    pub(crate) offsets: Offsets,
    pub(crate) config: Config,
    /// CPUs that there can be.
    pub(crate) cpus: u32,
    /// See [`KernelSide::set_nodes`].
    pub(crate) nodes: &'a [(u32, u32)],
    pub(crate) pids: &'a [u32],
    pub(crate) tids: &'a [u32],
    /// See [`KernelSide::set_room`]; `None`: as many as there are.
    pub(crate) room: Option<i64>,
}

impl KernelSide {
    /// Loads and attaches. On return every switch of every CPU runs the hook; tasks are followed from the first
    /// [`read_tasks`](Self::read_tasks) on.
    pub(crate) fn start(plan: &Plan<'_>) -> Result<Self, Failure> {
        let btf = Btf::from_sys_fs().map_err(failed("read the kernel's type information"))?;
        let Plan { config, cpus, .. } = plan;
        let (offsets, words) = (plan.offsets.words(), config.words());
        // What is not asked for takes no memory.
        let by_cpu_if = |asked: u64| if asked == 0 { 1 } else { *cpus };
        let mut loader = EbpfLoader::new();
        loader
            .btf(Some(&btf))
            .override_global(names::OFFSETS, &offsets[..], true)
            .override_global(names::CONFIG, &words[..], true)
            .map_max_entries(names::RINGS, *cpus)
            .map_max_entries(names::PAIRS, *cpus)
            .map_max_entries(names::CPU_NODE, *cpus)
            .map_max_entries(names::CPUS, by_cpu_if(config.count_by_cpu))
            .map_max_entries(names::STACKS, if config.stack_every_ns == 0 { 1 } else { STACKS as u32 })
            .map_max_entries(names::THROTTLE_CLOCKS, by_cpu_if(config.keep_throttle_clock))
            // Task storage: the kernel knows it, aya 0.14 has no type for it.
            .allow_unsupported_maps();
        let mut bpf = loader.load(OBJECT).map_err(failed("create the BPF maps"))?;
        let cgroup_events = take_ring(&mut bpf).map_err(failed("map a BPF ring buffer"))?;
        let exited = load_reading(&mut bpf, names::READ_EXITED, names::EXITED, &btf)
            .map_err(failed("load the reading of the exited tasks"))?;
        let mut side = Self { bpf, cgroup_events, exited, refused: Vec::new() };
        side.prepare(config.root_cgroup_id, plan.pids, plan.tids).map_err(failed("fill the BPF maps"))?;
        side.set_nodes(plan.nodes.iter().copied())?;
        side.set_room(plan.room.unwrap_or(i64::MAX))?;
        side.attach_helpful(config, &btf);
        if plan.room.is_some() {
            // Before a storage is made.
            let freed = [(names::ON_TASK_FREED, "sched_process_free")];
            side.attach_to(&freed, &btf).map_err(failed("load and attach the BPF programs"))?;
        }
        side.attach(&btf).map_err(failed("load and attach the BPF programs"))?;
        Ok(side)
    }

    /// What the kernel refused of what measuring can do without, in sentences.
    pub(crate) fn refused(&self) -> &[String] {
        &self.refused
    }

    /// Attaches what measuring can do without.
    fn attach_helpful(&mut self, config: &Config, btf: &Btf) {
        if config.cgroup_hierarchy != u64::MAX
            && let Err(error) = self.attach_to(&CGROUP_TRACEPOINTS, btf)
        {
            self.refused.push(format!(
                "cgroups that come and go are not heard of ({}): one that lives between two readings has no name",
                reasons(&*error)
            ));
        }
        if config.keep_throttle_clock != 0
            && let Err(error) = self.attach_throttle_clock(btf)
        {
            self.refused.push(format!(
                "no clock of throttled time can be kept ({}): `throttled` is 0, and that time is with the other causes",
                reasons(&*error)
            ));
        }
    }

    fn attach_throttle_clock(&mut self, btf: &Btf) -> AyaResult<()> {
        // The end before the beginning: a clock that is begun and never ended would call every wait throttled.
        let functions =
            [(names::ON_UNTHROTTLE, "tg_unthrottle_up"), (names::ON_THROTTLE, "tg_throttle_down")];
        for (name, function) in functions {
            let program: &mut FEntry = self.program_mut(name)?.try_into()?;
            program.load(function, btf)?;
            program.attach()?;
        }
        Ok(())
    }

    fn prepare(&mut self, root_cgroup_id: u64, pids: &[u32], tids: &[u32]) -> AyaResult<()> {
        // The last resort for the dead of cgroups without a place.
        let mut exited: HashMap<&mut MapData, u64, ExitedPod> =
            HashMap::try_from(self.map_mut(names::EXITED)?)?;
        exited.insert(root_cgroup_id, ExitedPod(Exited::NONE), 0)?;
        let mut selected: HashMap<&mut MapData, u64, u64> =
            HashMap::try_from(self.map_mut(names::SELECTED)?)?;
        for pid in pids {
            selected.insert(SELECT_PROCESS | u64::from(*pid), 1, 0)?;
        }
        for tid in tids {
            selected.insert(SELECT_THREAD | u64::from(*tid), 1, 0)?;
        }
        Ok(())
    }

    fn attach(&mut self, btf: &Btf) -> AyaResult<()> {
        // Births before switches: a task born in between has its storage when it first switches.
        self.attach_to(&[(names::ON_NEW_TASK, "task_newtask"), (names::ON_SWITCH, "sched_switch")], btf)?;
        let reading: &mut Iter = self.program_mut(names::READ_TASKS)?.try_into()?;
        reading.load("task", btf)?;
        Ok(())
    }

    fn attach_to(&mut self, tracepoints: &[(&'static str, &str)], btf: &Btf) -> AyaResult<()> {
        for (name, tracepoint) in tracepoints {
            let program: &mut BtfTracePoint = self.program_mut(name)?.try_into()?;
            program.load(tracepoint, btf)?;
            program.attach()?;
        }
        Ok(())
    }

    /// A stream of task records; begins to follow tasks that are not followed yet.
    pub(crate) fn read_tasks(&mut self) -> Result<impl Read + use<>, Failure> {
        self.open_reading().map_err(failed("read the tasks"))
    }

    fn open_reading(&mut self) -> AyaResult<File> {
        let reading: &mut Iter = self.program_mut(names::READ_TASKS)?.try_into()?;
        let id = reading.attach()?;
        Ok(reading.take_link(id)?.into_file()?)
    }

    /// A stream of the cgroups that had a followed task, with what exited there that was not read before.
    pub(crate) fn read_exited(&self) -> Result<impl Read + use<>, Failure> {
        self.exited.open().map_err(failed("read the exited tasks"))
    }

    /// Gives back the places of cgroups among those that [`read_exited`](Self::read_exited) tells. Nothing may be entered there any
    /// more: the kernel may give the memory to another place at once (`bpf_mem_alloc`, Linux 6.1).
    pub(crate) fn give_back(&mut self, cgroups: impl IntoIterator<Item = u64>) -> Result<(), Failure> {
        let give_back = || -> AyaResult<()> {
            let mut exited: HashMap<&mut MapData, u64, ExitedPod> =
                HashMap::try_from(self.map_mut(names::EXITED)?)?;
            for id in cgroups {
                match exited.remove(&id) {
                    Ok(()) | Err(MapError::KeyNotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        give_back().map_err(failed("forget cgroups that are gone"))
    }

    /// Gives back the places of cgroups that are there, and calls `each` with what they held. What exits there between the two system
    /// calls for a cgroup, within microseconds, is lost.
    pub(crate) fn take_back(
        &mut self,
        cgroups: impl IntoIterator<Item = u64>,
        mut each: impl FnMut(u64, &Exited),
    ) -> Result<(), Failure> {
        let take_back = || -> AyaResult<()> {
            let mut exited: HashMap<&mut MapData, u64, ExitedPod> =
                HashMap::try_from(self.map_mut(names::EXITED)?)?;
            for id in cgroups {
                match exited.get(&id, 0).and_then(|place| exited.remove(&id).map(|()| place)) {
                    Ok(place) => each(id, &place.0),
                    Err(MapError::KeyNotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        take_back().map_err(failed("forget cgroups in which nothing exits"))
    }

    /// Makes places for cgroups that have none, as far as there is room.
    pub(crate) fn make_places(&mut self, cgroups: impl IntoIterator<Item = u64>) -> Result<(), Failure> {
        let make = || -> AyaResult<()> {
            let mut exited: HashMap<&mut MapData, u64, ExitedPod> =
                HashMap::try_from(self.map_mut(names::EXITED)?)?;
            for id in cgroups {
                // It may have been made meanwhile. Where there is no room, whoever dies there is counted elsewhere, and that is a loss.
                let _ = exited.insert(id, ExitedPod(Exited::NONE), BPF_NOEXIST);
            }
            Ok(())
        };
        make().map_err(failed("make places for cgroups"))
    }

    /// Calls `each` with every event of a cgroup since the last call.
    pub(crate) fn cgroup_events(&mut self, mut each: impl FnMut(&[u8])) {
        while let Some(event) = self.cgroup_events.next() {
            each(&event);
        }
    }

    /// Calls `each` with the table of culprits of every CPU.
    pub(crate) fn pairs(&self, mut each: impl FnMut(u32, &Pairs)) -> Result<(), Failure> {
        let mut read = || -> AyaResult<()> {
            let tables: Array<&MapData, PairsPod> = Array::try_from(self.map(names::PAIRS)?)?;
            for cpu in 0..tables.len() {
                each(cpu, &tables.get(&cpu, 0)?.0);
            }
            Ok(())
        };
        read().map_err(failed("read the culprits"))
    }

    /// Calls `each` with every stack that was counted.
    pub(crate) fn stacks(&self, each: impl FnMut(&StackKey, &StackCount)) -> Result<(), Failure> {
        let read = || -> AyaResult<()> {
            let aya::maps::Map::HashMap(map) = self.map(names::STACKS)? else {
                return Err(format!("{} is no hash table", names::STACKS).into());
            };
            Ok(batch::entries(map.fd().as_fd(), each)?)
        };
        read().map_err(failed("read the stacks"))
    }

    /// Forgets stacks: those of tasks that are gone.
    pub(crate) fn forget_stacks(&mut self, keys: &[StackKey]) -> Result<(), Failure> {
        let mut forget = || -> AyaResult<()> {
            let mut stacks: HashMap<&mut MapData, StackKeyPod, StackCountPod> =
                HashMap::try_from(self.map_mut(names::STACKS)?)?;
            for key in keys {
                match stacks.remove(&StackKeyPod(*key)) {
                    Ok(()) | Err(MapError::KeyNotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(())
        };
        forget().map_err(failed("forget the stacks of tasks that are gone"))
    }

    /// Tells the BPF side the place of each CPU's node, plus one. CPUs beyond those that there can be are left out.
    pub(crate) fn set_nodes(&mut self, places: impl IntoIterator<Item = (u32, u32)>) -> Result<(), Failure> {
        let write = || -> AyaResult<()> {
            let mut nodes: Array<&mut MapData, u32> = Array::try_from(self.map_mut(names::CPU_NODE)?)?;
            for (cpu, place) in places {
                if cpu < nodes.len() {
                    nodes.set(cpu, place, 0)?;
                }
            }
            Ok(())
        };
        write().map_err(failed("tell which node a CPU is on"))
    }

    /// Calls `each` with what is counted on every CPU that there can be.
    pub(crate) fn cpus(&self, mut each: impl FnMut(u32, &CpuCounters)) -> Result<(), Failure> {
        let mut read = || -> AyaResult<()> {
            let counters: Array<&MapData, CpuCountersPod> = Array::try_from(self.map(names::CPUS)?)?;
            for cpu in 0..counters.len() {
                each(cpu, &counters.get(&cpu, 0)?.0);
            }
            Ok(())
        };
        read().map_err(failed("read what is counted by CPU"))
    }

    /// Tells the BPF side that what it charged until `clock_ns` has been read: those places may be taken.
    pub(crate) fn pairs_were_read(&mut self, clock_ns: u64) -> Result<(), Failure> {
        let mut write = || -> AyaResult<()> {
            let mut word: Array<&mut MapData, u64> = Array::try_from(self.map_mut(names::PAIRS_READ)?)?;
            Ok(word.set(0, clock_ns, 0)?)
        };
        write().map_err(failed("tell that the culprits were read"))
    }

    /// Tells the BPF side how many tasks more it may follow.
    pub(crate) fn set_room(&mut self, tasks: i64) -> Result<(), Failure> {
        let mut write = || -> AyaResult<()> {
            let mut word: Array<&mut MapData, u64> = Array::try_from(self.map_mut(names::ROOM)?)?;
            Ok(word.set(0, tasks as u64, 0)?)
        };
        write().map_err(failed("tell how many tasks may be followed"))
    }

    /// Loss counters of the BPF side since the start.
    pub(crate) fn losses(&self) -> Result<Vec<(Loss, u64)>, Failure> {
        let read = || -> AyaResult<Vec<(Loss, u64)>> {
            let counters: PerCpuArray<&MapData, u64> = PerCpuArray::try_from(self.map(names::LOSSES)?)?;
            let kernel = Loss::ALL.iter().take(cgscope_layout::KERNEL_LOSSES);
            kernel.map(|loss| Ok((*loss, counters.get(&(*loss as u32), 0)?.iter().sum()))).collect()
        };
        read().map_err(failed("read the loss counters"))
    }

    /// Time in the hook (ns) and its runs, counted by the kernel while [`measure`] is on.
    pub(crate) fn hook_time(&self) -> Option<(u64, u64)> {
        let program: &BtfTracePoint = self.bpf.program(names::ON_SWITCH)?.try_into().ok()?;
        let info = program.info().ok()?;
        Some((info.run_time().as_nanos() as u64, info.run_count()))
    }

    fn map(&self, name: &'static str) -> AyaResult<&aya::maps::Map> {
        self.bpf.map(name).ok_or_else(|| format!("the object has no map {name}").into())
    }

    fn map_mut(&mut self, name: &'static str) -> AyaResult<&mut aya::maps::Map> {
        self.bpf.map_mut(name).ok_or_else(|| format!("the object has no map {name}").into())
    }

    fn program_mut(&mut self, name: &'static str) -> AyaResult<&mut aya::programs::Program> {
        self.bpf.program_mut(name).ok_or_else(|| format!("the object has no program {name}").into())
    }
}

const CGROUP_TRACEPOINTS: [(&str, &str); 4] = [
    (names::ON_CGROUP_MADE, "cgroup_mkdir"),
    (names::ON_CGROUP_REMOVED, "cgroup_rmdir"),
    (names::ON_CGROUP_RENAMED, "cgroup_rename"),
    (names::ON_CGROUP_ATTACH, "cgroup_attach_task"),
];

/// Loads the program `name`, a reading of `table`.
fn load_reading(
    bpf: &mut Ebpf,
    name: &'static str,
    table: &'static str,
    btf: &Btf,
) -> AyaResult<TableReading> {
    let no = |kind: &str, name: &str| format!("the object has no {kind} {name}");
    let program: &mut Iter = bpf.program_mut(name).ok_or_else(|| no("program", name))?.try_into()?;
    program.load("bpf_map_elem", btf)?;
    let program = program.fd()?.try_clone()?;
    let aya::maps::Map::HashMap(map) = bpf.map(table).ok_or_else(|| no("map", table))? else {
        return Err(no("hash table", table).into());
    };
    Ok(TableReading::new(program.as_fd(), map.fd().as_fd())?)
}

fn take_ring(bpf: &mut Ebpf) -> AyaResult<RingBuf<MapData>> {
    let name = names::CGROUP_EVENTS;
    let map = bpf.take_map(name).ok_or_else(|| format!("the object has no map {name}"))?;
    Ok(RingBuf::try_from(map)?)
}

/// Only where there is none.
const BPF_NOEXIST: u64 = 1;

/// Lets the kernel count the run time of BPF programs for as long as the result lives (Linux 5.8).
pub(crate) fn measure() -> Option<OwnedFd> {
    enable_stats(Stats::RunTime).ok()
}

/// Errors of aya in one type, before they become a [`Failure`].
pub type AyaResult<T> = Result<T, Box<dyn std::error::Error>>;

/// Makes a [`Failure`] of what a step of the kernel side failed with.
pub fn failed<E: Into<Box<dyn std::error::Error>>>(doing: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| {
        let reasons = reasons(&*error.into());
        Failure::of_host(
            format!("the kernel did not let cgscope {doing} ({reasons})"),
            "nothing can be measured",
            "`cgscope doctor` says what this host lacks",
        )
    }
}

/// An error with all that it came from.
fn reasons(error: &dyn std::error::Error) -> String {
    let mut reasons = brief(&error.to_string());
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = brief(&inner.to_string());
        if !reasons.contains(&inner_text) {
            reasons = format!("{reasons}: {inner_text}");
        }
        source = inner.source();
    }
    reasons
}

/// What the verifier says at the end of all that it saw and of why it refused.
const STATISTICS: [&str; 5] =
    ["verification time", "stack depth", "insns processed", "processed ", "max_states_per_insn"];

/// The first line and the last ones: between them the verifier may tell everything that it saw.
fn brief(text: &str) -> String {
    let is_statistics = |line: &&str| STATISTICS.iter().any(|name| line.starts_with(name));
    let lines: Vec<&str> = text.lines().filter(|line| !is_statistics(line)).collect();
    if lines.len() <= 6 {
        return lines.join("\n");
    }
    format!("{} [...] {}", lines[0], lines[lines.len() - 3..].join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_all_that_the_verifier_says_the_reason_is_left() {
        let log = "0: R1=ctx()\n1: a\n2: b\n3: c\n4: d\n5: e\n6: (61) r1 = *(u32 *)(r2 +0)\naccess beyond the end of member \
                   on_cpu\nverification time 12 usec\nstack depth 8+0\nprocessed 7 insns (limit 1000000)";
        assert_eq!(
            brief(log),
            "0: R1=ctx() [...] 5: e; 6: (61) r1 = *(u32 *)(r2 +0); access beyond the end of member on_cpu"
        );
    }
}
