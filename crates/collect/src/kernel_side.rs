//! Loads, configures, attaches and reads the BPF side.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{ErrorKind, Read},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    process,
    sync::{Mutex, PoisonError},
    thread::{self, JoinHandle},
};

use aya::{
    Btf, Ebpf, EbpfLoader, Pod,
    maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray, RingBuf},
    programs::{BtfTracePoint, Iter, Program, ProgramError},
    sys::{Stats, enable_stats},
};
use cgscope_ledger::{
    ABSENT, Loss,
    feature::KERNEL_CALLS,
    wire::{Config, Exited, Marks, SELECT_PROCESS, SELECT_THREAD, names},
};
use cgscope_model::{Losses, Selection};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::{
    Failure,
    bpf_calls::{self, Plain, Raw, TableReading},
    offsets::{PROGRAMS, Resolved},
    patch::patched,
};

/// The compiled BPF side.
pub static OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_BPF_OBJECT"));
/// A hook with an empty body. `cargo xtask overhead` compares the real hook with this one.
pub static EMPTY_HOOK_OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_EMPTY_HOOK_OBJECT"));
/// The reference program with which `cargo xtask overhead --check` compares the hook.
pub static YARDSTICK_OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_YARDSTICK_OBJECT"));
/// The compiled task iterator of `cgscope sample`.
pub static SAMPLE_OBJECT: &[u8] = aya::include_bytes_aligned!(env!("CGSCOPE_SAMPLE_OBJECT"));

/// The attached BPF side. Dropping it detaches and unloads everything.
pub(crate) struct KernelSide {
    bpf: Ebpf,
    /// `None` if the kernel refuses iterators over the entries of a map.
    exited: Option<TableReading>,
    /// `None` if each reading visits all tasks.
    pub(crate) changes: Option<TableReading>,
    pub(crate) refused: Vec<String>,
}

pub(crate) struct Plan<'a> {
    pub(crate) resolved: &'a Resolved,
    pub(crate) config: Config,
    /// BTF ids of [`TASK_BY_ID`](cgscope_ledger::feature::TASK_BY_ID), if the hook lists changed tasks.
    pub(crate) task_by_id: Option<[u32; 2]>,
    pub(crate) cpus: u32,
    pub(crate) nodes: &'a [(u32, u32)],
    pub(crate) selection: &'a Selection,
    pub(crate) room: Option<i64>,
    /// Number of entries of each map, by map name.
    pub(crate) maps: &'a [(&'static str, u32)],
    /// The system calls in which a task sends, and those whose first argument is a file.
    pub(crate) calls: [[u64; 8]; 2],
}

/// A loader that another thread creates, to save time: aya parses all kernel types, although no program needs them.
/// `None` if the system refuses another thread.
pub(crate) type Loading = Option<JoinHandle<EbpfLoader<'static>>>;

pub(crate) fn begin_loading() -> Loading {
    // By default the C library gives each thread its own arena, and would keep the 2.3 MiB that this thread frees. With a single
    // arena, all threads reuse this memory. Programs that only read recordings keep several arenas, because their parser threads
    // would wait for each other.
    #[cfg(target_env = "gnu")]
    // SAFETY: mallopt has no preconditions; if it fails, nothing changes.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
    thread::Builder::new().spawn(loader).ok()
}

/// Creates a loader without the kernel's types.
pub fn loader() -> EbpfLoader<'static> {
    let mut loader = EbpfLoader::new();
    loader.btf(None);
    loader
}

impl KernelSide {
    /// Loads and attaches the BPF side. From then on, every switch runs the hook. Tasks are followed from the first call of
    /// [`read_tasks`](Self::read_tasks) on.
    pub(crate) fn start(loading: Loading, plan: &Plan<'_>) -> Result<Self, Failure> {
        let Plan { config, cpus, resolved, .. } = plan;
        let globals = (Raw(resolved.offsets), Raw(*config));
        let [sending, file] = plan.calls.map(Raw);
        let mut loader = loading.and_then(|thread| thread.join().ok()).unwrap_or_else(loader);
        loader
            .override_global(names::OFFSETS, &globals.0, true)
            .override_global(names::CONFIG, &globals.1, true)
            .override_global(names::SENDING_CALLS, &sending, true)
            .override_global(names::FILE_CALLS, &file, true)
            .map_max_entries(names::RINGS, *cpus)
            .map_max_entries(names::CHANGES, plan.task_by_id.map_or(1, |_| *cpus + 1))
            .map_max_entries(names::CPU_NODE, *cpus)
            .map_max_entries(names::SLOTS, config.last_slot as u32 + 1)
            .map_max_entries(names::THROTTLE_CLOCKS, if config.keep_throttle_clock == 0 { 1 } else { *cpus })
            .map_max_entries(names::TASK_NAMES, if config.blame_tasks == 0 { 1 } else { *cpus })
            // Task storage needs this option, because aya 0.14 does not support its map type.
            .allow_unsupported_maps();
        for (map, entries) in plan.maps {
            loader.map_max_entries(map, *entries);
        }
        let object = patched(OBJECT, &resolved.offsets, config).map_err(failed("load the BPF programs"))?;
        let object = with_kernel_calls(object, plan.task_by_id);
        let types = || resolved.attach_types();
        let (bpf, btf) = thread::scope(|scope| {
            let beside = thread::Builder::new().spawn_scoped(scope, types).ok();
            let bpf = loader.load(&object);
            (bpf, beside.and_then(|thread| thread.join().ok()).unwrap_or_else(types))
        });
        let mut bpf = bpf.map_err(failed("create the BPF maps"))?;
        let btf = btf.map_err(failed("read the kernel's type information"))?;
        let is_wanted = |name: &str| match name {
            _ if CGROUP_PROGRAMS.contains(&name) => config.cgroup_hierarchy != u64::MAX,
            names::ON_THROTTLE | names::ON_UNTHROTTLE => config.keep_throttle_clock != 0,
            names::ON_WAKING => config.chains != 0,
            names::ON_RENAME | names::READ_CHANGES => plan.task_by_id.is_some(),
            _ => true,
        };
        let mut unloaded = load(&mut bpf, &btf, is_wanted);
        let exited = exited_reading(&mut bpf, &mut unloaded);
        let exited = exited.map_err(failed("load the reading of the exited tasks"))?;
        let mut side = Self { bpf, exited, changes: None, refused: Vec::new() };
        side.prepare(config.root_cgroup_id, plan.selection).map_err(failed("fill the BPF maps"))?;
        side.set_nodes(plan.nodes.iter().copied())?;
        side.set_room(plan.room.unwrap_or(i64::MAX))?;
        side.attach_helpful(plan, &mut unloaded);
        // Attach to forks before switches. A task that is forked in between gets its storage at its first switch in.
        let required = [
            names::ON_TASK_FREED,
            names::ON_RENAME,
            names::ON_NEW_TASK,
            names::ON_MOVE,
            names::ON_WAKING,
            names::ON_SWITCH,
        ];
        let required: Vec<_> = required.into_iter().filter(|name| is_wanted(name)).collect();
        let attached = side.attach(&required, &mut unloaded);
        let attached = attached.and_then(|()| Ok(unloaded.check(names::READ_TASKS)?));
        attached.map_err(failed("load and attach the BPF programs"))?;
        if plan.task_by_id.is_some() {
            let loaded = unloaded.check(names::READ_CHANGES).map_err(Into::into);
            // Our main thread exists as long as we do.
            let changes =
                loaded.and_then(|()| table_reading(&mut side.bpf, names::READ_CHANGES, process::id()));
            side.changes = Some(changes.map_err(failed("load the reading of changed tasks"))?);
        }
        Ok(side)
    }

    fn attach_helpful(&mut self, plan: &Plan<'_>, unloaded: &mut Unloaded) {
        let config = plan.config;
        if config.cgroup_hierarchy != u64::MAX {
            let attached = self.attach(&CGROUP_PROGRAMS, unloaded);
            let effect = "a cgroup that exists only between two readings has no name";
            self.note_refused(attached, "created and removed cgroups are not reported", effect);
        }
        // These programs are optional: if the kernel throttles single tasks, the hook notices a move when the wait ends.
        let attached = self.attach(&[names::ON_LEAVE_GROUP, names::ON_ENTER_GROUP], unloaded);
        if plan.resolved.offsets.task_throttled == ABSENT {
            let effect = "throttled time of such a wait counts under other causes";
            self.note_refused(attached, "moves of waiting tasks to another cgroup are noticed late", effect);
        }
        if config.keep_throttle_clock != 0 {
            // Attach to the end of throttling first. If the clock never stopped, every wait would count as throttling.
            let attached = self.attach(&[names::ON_UNTHROTTLE, names::ON_THROTTLE], unloaded);
            let effect = "`throttled` is 0, and this time counts under other causes";
            self.note_refused(attached, "throttled time cannot be measured", effect);
        }
    }

    fn note_refused(&mut self, attached: AyaResult<()>, what: &str, effect: &str) {
        if let Err(error) = attached {
            self.refused.push(format!("{what} ({}): {effect}", reasons(&*error)));
        }
    }

    fn prepare(&mut self, root_cgroup_id: u64, selection: &Selection) -> AyaResult<()> {
        // Exited tasks whose cgroup has no entry count in the root's entry.
        self.hash_table(names::EXITED)?.insert(root_cgroup_id, Raw(Exited::NONE), 0)?;
        let mut selected: HashMap<_, u64, u64> = self.hash_table(names::SELECTED)?;
        let pids = selection.pids.iter().map(|pid| SELECT_PROCESS | u64::from(*pid));
        let tids = selection.tids.iter().map(|tid| SELECT_THREAD | u64::from(*tid));
        pids.chain(tids).try_for_each(|key| Ok(selected.insert(key, 1, 0)?))
    }

    fn attach(&mut self, programs: &[&'static str], unloaded: &mut Unloaded) -> AyaResult<()> {
        // Attach all programs or none, because one program of a pair alone would count wrongly.
        programs.iter().try_for_each(|name| unloaded.check(name))?;
        let attached = programs.iter().try_for_each(|name| self.attach_one(name));
        attached.inspect_err(|_| programs.iter().for_each(|name| self.unload(name)))
    }

    fn unload(&mut self, name: &str) {
        let _ = match program_of(&mut self.bpf, name) {
            Ok(Program::BtfTracePoint(program)) => program.unload(),
            Ok(Program::FEntry(program)) => program.unload(),
            Ok(Program::FExit(program)) => program.unload(),
            _ => Ok(()),
        };
    }

    fn attach_one(&mut self, name: &str) -> AyaResult<()> {
        match program_of(&mut self.bpf, name)? {
            Program::BtfTracePoint(program) => _ = program.attach()?,
            Program::FEntry(program) => _ = program.attach()?,
            Program::FExit(program) => _ = program.attach()?,
            _ => return Err(format!("{name} is attached nowhere").into()),
        }
        Ok(())
    }

    pub(crate) fn read_tasks(&mut self) -> Result<impl Read + use<>, Failure> {
        read_iterator(&mut self.bpf, names::READ_TASKS).map_err(failed("read the tasks"))
    }

    /// Opens a stream of the changed tasks. Call this again for the same turn while a list has more tasks.
    pub(crate) fn read_changes(&self) -> Result<Option<impl Read + use<>>, Failure> {
        let stream = self.changes.as_ref().map(TableReading::open).transpose();
        stream.map_err(failed("read the changed tasks"))
    }

    /// Opens a stream of the table of exited tasks. The stream has every cgroup that has had a followed task, with the figures of
    /// its exited tasks if they may be new. Returns `None` if the kernel has no such stream.
    pub(crate) fn read_exited(&self) -> Result<Option<impl Read + use<>>, Failure> {
        self.exited.as_ref().map(TableReading::open).transpose().map_err(failed("read the exited tasks"))
    }

    /// Passes the cgroup events since the last call to `each`. Maps the ring buffer only if it has events, and only during the call:
    /// it is mapped twice in a row, so it would add 1 MiB to our resident memory.
    pub(crate) fn cgroup_events(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), Failure> {
        step("map a BPF ring buffer", || {
            let map = map_mut(&mut self.bpf, names::CGROUP_EVENTS)?;
            if let Map::RingBuf(ring) = &map {
                let mut ring = [PollFd::from_borrowed_fd(ring.fd().as_fd(), PollFlags::IN)];
                if poll(&mut ring, Some(&Timespec::default())) == Ok(0) {
                    return Ok(());
                }
            }
            let mut events = RingBuf::try_from(map)?;
            while let Some(event) = events.next() {
                each(&event);
            }
            Ok(())
        })
    }

    /// Sets the node of each CPU. A node is given by its index plus one. Skips CPUs beyond the possible CPUs.
    pub(crate) fn set_nodes(&mut self, places: impl IntoIterator<Item = (u32, u32)>) -> Result<(), Failure> {
        step("set the node of each CPU", || {
            let mut nodes: Array<_, u32> = self.array_mut(names::CPU_NODE)?;
            for (cpu, place) in places {
                if cpu < nodes.len() {
                    nodes.set(cpu, place, 0)?;
                }
            }
            Ok(())
        })
    }

    pub(crate) fn set_room(&mut self, bytes: i64) -> Result<(), Failure> {
        self.set_first("set the maximum memory of tasks", names::MEMORY_LEFT, bytes as u64)
    }

    /// At the next reading, clears the bits of `clear` in every task, and sets `bits` in all threads of these processes. After
    /// that reading, call this with empty arguments. Otherwise a new process with the same id would also get the bits.
    pub(crate) fn mark(&mut self, clear: u64, bits: &BTreeMap<u32, u64>) -> Result<(), Failure> {
        step("select the processes to follow", || {
            let mut selected: HashMap<_, u64, u64> = self.hash_table(names::SELECTED)?;
            let before: Vec<u64> = selected.keys().collect::<Result<_, _>>()?;
            before.iter().try_for_each(|key| selected.remove(key))?;
            for (pid, bits) in bits {
                selected.insert(SELECT_PROCESS | u64::from(*pid), bits, 0)?;
            }
            let marks = Raw(Marks { clear, look: u64::from(!bits.is_empty()) });
            Ok(self.array_mut(names::MARKS)?.set(0, marks, 0)?)
        })
    }

    pub(crate) fn losses(&self) -> Result<Losses, Failure> {
        step("read the loss counters", || {
            let counters: PerCpuArray<_, u64> = PerCpuArray::try_from(map(&self.bpf, names::LOSSES)?)?;
            let mut losses = Losses::default();
            for loss in Loss::ALL.iter().take(cgscope_ledger::KERNEL_LOSSES) {
                losses.add(*loss, counters.get(&(*loss as u32), 0)?.iter().sum());
            }
            Ok(losses)
        })
    }

    /// Returns the total time of all runs of the hook (ns), and their number. The kernel counts only during [`measure`]. The time
    /// at wakeups is included.
    pub(crate) fn hook_time(&self) -> Option<(u64, u64)> {
        let of = |name| {
            let program: &BtfTracePoint = self.bpf.program(name)?.try_into().ok()?;
            let info = program.info().ok()?;
            Some((info.run_time().as_nanos() as u64, info.run_count()))
        };
        let (ns, runs) = of(names::ON_SWITCH)?;
        let (wakeups_ns, _) = of(names::ON_WAKING).unwrap_or_default();
        Some((ns.saturating_add(wakeups_ns), runs))
    }

    pub(crate) fn each_cpu<T: Plain + 'static>(
        &self,
        doing: &'static str,
        name: &str,
        mut each: impl FnMut(u32, &T),
    ) -> Result<(), Failure> {
        step(doing, || {
            let tables = self.array::<Raw<T>>(name)?;
            for cpu in 0..tables.len() {
                each(cpu, &tables.get(&cpu, 0)?.0);
            }
            Ok(())
        })
    }

    pub(crate) fn each_entry<K: Plain, V: Plain>(
        &self,
        doing: &'static str,
        name: &str,
        each: impl FnMut(&K, &V),
    ) -> Result<(), Failure> {
        step(doing, || Ok(bpf_calls::entries(table(&self.bpf, name)?, each)?))
    }

    pub(crate) fn set_first(
        &mut self,
        doing: &'static str,
        name: &str,
        value: impl Pod,
    ) -> Result<(), Failure> {
        step(doing, || Ok(self.array_mut(name)?.set(0, value, 0)?))
    }

    pub(crate) fn array<T: Pod>(&self, name: &str) -> AyaResult<Array<&MapData, T>> {
        Ok(Array::try_from(map(&self.bpf, name)?)?)
    }

    pub(crate) fn array_mut<T: Pod>(&mut self, name: &str) -> AyaResult<Array<&mut MapData, T>> {
        Ok(Array::try_from(map_mut(&mut self.bpf, name)?)?)
    }

    pub(crate) fn hash_table<K: Pod, V: Pod>(
        &mut self,
        name: &str,
    ) -> AyaResult<HashMap<&mut MapData, K, V>> {
        hash_table(&mut self.bpf, name)
    }
}

fn map<'b>(bpf: &'b Ebpf, name: &str) -> AyaResult<&'b Map> {
    bpf.map(name).ok_or_else(|| format!("the object has no map {name}").into())
}

fn map_mut<'b>(bpf: &'b mut Ebpf, name: &str) -> AyaResult<&'b mut Map> {
    bpf.map_mut(name).ok_or_else(|| format!("the object has no map {name}").into())
}

fn table<'b>(bpf: &'b Ebpf, name: &str) -> AyaResult<BorrowedFd<'b>> {
    match map(bpf, name)? {
        Map::HashMap(table) | Map::Array(table) => Ok(table.fd().as_fd()),
        _ => Err(format!("{name} is no table").into()),
    }
}

/// Returns a hash map of a loaded object.
pub fn hash_table<'b, K: Pod, V: Pod>(
    bpf: &'b mut Ebpf,
    name: &str,
) -> AyaResult<HashMap<&'b mut MapData, K, V>> {
    Ok(HashMap::try_from(map_mut(bpf, name)?)?)
}

/// Returns a program of a loaded object.
pub fn program<'b, P>(bpf: &'b mut Ebpf, name: &str) -> AyaResult<&'b mut P>
where
    &'b mut P: TryFrom<&'b mut Program, Error = ProgramError>,
{
    Ok(program_of(bpf, name)?.try_into()?)
}

fn program_of<'b>(bpf: &'b mut Ebpf, name: &str) -> AyaResult<&'b mut Program> {
    Ok(bpf.program_mut(name).ok_or_else(|| format!("the object has no program {name}"))?)
}

/// Opens a stream of the output of a loaded task iterator.
pub fn read_iterator(bpf: &mut Ebpf, name: &str) -> AyaResult<File> {
    let iterator: &mut Iter = program(bpf, name)?;
    let id = iterator.attach()?;
    Ok(iterator.take_link(id)?.into_file()?)
}

/// Converts the error for a missing entry to `None`. aya has two such errors: one of lookups, and one of removals.
pub(crate) fn if_there<T>(result: Result<T, MapError>) -> Result<Option<T>, MapError> {
    match result {
        Err(MapError::KeyNotFound) => Ok(None),
        Err(MapError::SyscallError(error)) if error.io_error.kind() == ErrorKind::NotFound => Ok(None),
        other => other.map(Some),
    }
}

pub(crate) fn step<T>(doing: &'static str, step: impl FnOnce() -> AyaResult<T>) -> Result<T, Failure> {
    step().map_err(failed(doing))
}

const CGROUP_PROGRAMS: [&str; 4] =
    [names::ON_CGROUP_MADE, names::ON_CGROUP_REMOVED, names::ON_CGROUP_RENAMED, names::ON_CGROUP_ATTACH];

/// Maximum number of threads that load programs. More threads would not help, because two programs take most of the time.
const LOADERS: usize = 4;

/// Errors of the programs that the kernel refused to load, by program name.
struct Unloaded(BTreeMap<&'static str, ProgramError>);

impl Unloaded {
    fn check(&mut self, name: &str) -> Result<(), ProgramError> {
        self.0.remove(name).map_or(Ok(()), Err)
    }
}

/// Loads the wanted programs on several CPUs, because the verifier takes up to 50 ms for one program.
fn load(bpf: &mut Ebpf, btf: &Btf, is_wanted: impl Fn(&str) -> bool) -> Unloaded {
    let mut of_object: BTreeMap<_, _> = bpf.programs_mut().collect();
    let wanted = PROGRAMS.into_iter().filter(|(name, _)| is_wanted(name));
    let programs: Vec<_> =
        wanted.filter_map(|(name, of)| Some((name, of, of_object.remove(name)?))).collect();
    let loaders = thread::available_parallelism().map_or(1, usize::from).min(LOADERS);
    let (queue, unloaded) = (Mutex::new(programs.into_iter()), Mutex::new(BTreeMap::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        while let Some((name, of, program)) = next() {
            if let Err(error) = load_one(program, of, btf) {
                unloaded.lock().unwrap_or_else(PoisonError::into_inner).insert(name, error);
            }
        }
    };
    thread::scope(|scope| {
        // If the system refuses more threads, this thread loads all programs.
        (1..loaders).for_each(|_| drop(thread::Builder::new().spawn_scoped(scope, work)));
        work();
    });
    Unloaded(unloaded.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn load_one(program: &mut Program, of: &str, btf: &Btf) -> Result<(), ProgramError> {
    match program {
        Program::BtfTracePoint(program) => program.load(of, btf),
        Program::FEntry(program) => program.load(of, btf),
        Program::FExit(program) => program.load(of, btf),
        Program::Iter(program) => program.load(of, btf),
        _ => Err(ProgramError::UnexpectedProgramType),
    }
}

/// Returns `None` if the kernel refuses all iterators over the entries of a map (EPERM before it verifies them), as hardened
/// kernels do.
fn exited_reading(bpf: &mut Ebpf, unloaded: &mut Unloaded) -> AyaResult<Option<TableReading>> {
    match unloaded.check(names::READ_EXITED) {
        Err(ProgramError::LoadError { io_error, .. }) if io_error.raw_os_error() == Some(libc::EPERM) => {
            return Ok(None);
        }
        checked => checked?,
    }
    let target = table(bpf, names::EXITED)?.as_raw_fd() as u32;
    table_reading(bpf, names::READ_EXITED, target).map(Some)
}

fn table_reading(bpf: &mut Ebpf, name: &str, target: u32) -> AyaResult<TableReading> {
    let reading: &mut Iter = program(bpf, name)?;
    let reading = reading.fd()?.try_clone()?;
    Ok(TableReading::new(reading.as_fd(), target)?)
}

/// The first half of a BPF call instruction. The second half holds the number of the function.
const CALL: [u8; 4] = [0x85, 0, 0, 0];
/// The first half of a call of a kernel function (BPF_PSEUDO_KFUNC_CALL, Linux 5.13). The second half holds its BTF id.
const CALL_KERNEL: [u8; 4] = [0x85, 0x20, 0, 0];

/// Converts numbered calls to calls of kernel functions, by BTF id. Neither aya 0.14 nor the compiler can create such calls.
/// Without ids, the kernel refuses the programs that contain these calls.
fn with_kernel_calls(mut object: Vec<u8>, ids: Option<[u32; 2]>) -> Vec<u8> {
    // The file aligns sections with instructions to 8 bytes.
    for instruction in object.chunks_exact_mut(8) {
        for (number, id) in KERNEL_CALLS.iter().zip(ids.unwrap_or_default()) {
            if instruction[..4] == CALL && instruction[4..] == number.to_le_bytes() {
                instruction[..4].copy_from_slice(&CALL_KERNEL);
                instruction[4..].copy_from_slice(&id.to_le_bytes());
            }
        }
    }
    object
}

/// Makes the kernel measure the run time of BPF programs until the returned descriptor is closed (Linux 5.8).
pub(crate) fn measure() -> Option<OwnedFd> {
    enable_stats(Stats::RunTime).ok()
}

/// Result of an aya call. The error is not converted to a [`Failure`] yet.
pub type AyaResult<T> = Result<T, Box<dyn std::error::Error>>;

/// Returns a function that converts an error of the BPF side into a [`Failure`]. `doing` is the step that failed.
pub fn failed<E: Into<Box<dyn std::error::Error>>>(doing: &'static str) -> impl FnOnce(E) -> Failure {
    move |error| {
        let reasons = reasons(&*error.into());
        Failure::of_host(
            format!("the kernel did not let cgscope {doing} ({reasons})"),
            "nothing can be measured",
            "`cgscope doctor` shows what this host lacks",
        )
    }
}

fn reasons(error: &dyn std::error::Error) -> String {
    let errors = std::iter::successors(Some(error), |error| error.source());
    let texts = errors.map(|error| brief(&error.to_string()));
    let joined = texts.reduce(|all, next| if all.contains(&next) { all } else { format!("{all}: {next}") });
    joined.unwrap_or_default()
}

/// Prefixes of the lines with statistics that the verifier writes after the reason for its refusal.
const STATISTICS: [&str; 5] =
    ["verification time", "stack depth", "insns processed", "processed ", "max_states_per_insn"];

/// Returns the first line and the last three lines of a long log. The lines in between may list all processed instructions.
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
    use aya::sys::SyscallError;

    use super::*;

    #[test]
    fn only_the_reason_of_the_verifier_is_shown() {
        let log = "0: R1=ctx()\n1: a\n2: b\n3: c\n4: d\n5: e\n6: (61) r1 = *(u32 *)(r2 +0)\naccess beyond the end of member \
                   on_cpu\nverification time 12 usec\nstack depth 8+0\nprocessed 7 insns (limit 1000000)";
        assert_eq!(
            brief(log),
            "0: R1=ctx() [...] 5: e; 6: (61) r1 = *(u32 *)(r2 +0); access beyond the end of member on_cpu"
        );
    }

    /// If this were an error, removing an already freed entry would end the measurement.
    #[test]
    fn an_entry_that_is_not_there_is_no_error_whether_it_is_looked_up_or_removed() {
        let removed = |kind: ErrorKind| -> Result<(), MapError> {
            Err(SyscallError { call: "bpf_map_delete_elem", io_error: kind.into() }.into())
        };
        assert!(matches!(if_there(removed(ErrorKind::NotFound)), Ok(None)));
        assert!(matches!(if_there::<()>(Err(MapError::KeyNotFound)), Ok(None)));
        assert!(if_there(removed(ErrorKind::PermissionDenied)).is_err());
        assert!(matches!(if_there(Ok(7)), Ok(Some(7))));
    }
}
