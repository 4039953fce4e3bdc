//! The BPF maps, and safe access to them.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST},
    btf_maps::{Array, HashMap, PerCpuArray, RingBuf},
    helpers::generated::bpf_probe_read_kernel,
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};
use cgscope_ledger::{
    Cause, KERNEL_LOSSES, Loss, Stack, bucket_of,
    changes::Changes,
    culprits::{Pairs, TaskNames},
    demand::Slots,
    history::Ring,
    host::Task as _,
    pressure::Pressures,
    segment::NO_CPU,
    split::Work,
    verifier::{add_atomic, get, set},
    waits::log,
    wire::{
        AccountsRecord, CGROUP_EVENTS_BYTES, CHAIN_BYTES, CgroupEvent, CpuCounters,
        DEMAND_PLACES as DEMAND_PLACES_MAX, EXITED_CGROUPS, Exited, FOLLOWED, HISTOGRAM_BYTES, Histogram,
        ListRecord, MOVED as MOVED_MAX, Marks, PLACEMENT_BYTES, Placement, SELECT_PROCESS, SELECTED_MAX,
        SLEEPER_BYTES, STACKS as PLACES_OF_STACKS, SameRecord, Sleeper, StackCount, StackKey, TASK_BYTES,
        TaskRecord, TaskStorage, Totals, serial,
    },
};

use crate::{
    accounts, chains, changes,
    kernel::{Task, argument, has_nodes, hook_allocates, is_shared, keeps_accounts, keeps_chains},
    slots::{self, storage},
    task_storage::TaskStorageMap,
    throttle::ThrottleClocks,
};

/// The waits of each task that are neither reported nor in its log. If the hook may create storage, only tasks that fill their log
/// between two readings have a histogram; otherwise all tasks have one from the start.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static HISTOGRAMS: TaskStorageMap<Histogram> = TaskStorageMap::NEW;

/// The nodes on which the tasks with a [storage] ran, if there are several nodes.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static PLACEMENTS: TaskStorageMap<Placement> = TaskStorageMap::NEW;

/// Entries of all followed tasks without a [storage]. When a task gets a storage, its entry here remains.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static SLEEPERS: TaskStorageMap<Sleeper> = TaskStorageMap::NEW;

/// Declares maps, each with a function that returns a value. The comment of a map says who accesses its values.
macro_rules! maps {
    ($($(#[$doc:meta])* $map:ident: $kind:ident[$type:ty; $size:expr] = $name:ident($($key:ident)?);)*) => {$(
        $(#[$doc])*
        #[btf_map]
        static $map: $kind<$type, { $size }> = $kind::new();

        #[inline(always)]
        pub fn $name($($key: u32)?) -> Option<&'static mut $type> {
            // SAFETY: the map value exists until this program returns.
            $map.get_ptr_mut(0 $(+ $key)?).map(|value| unsafe { &mut *value })
        }
    )*};
}

maps! {
    /// The initial value of an entry in [`EXITED`]. No program writes this value.
    NO_EXITED: Array[Exited; 1] = no_exited();
    /// The initial value of an entry in [`MOVED`], and the histogram of a task that has none. No program writes this value.
    NO_WAITS: Array[Histogram; 1] = no_waits();
    /// The initial storage of a task that started before cgscope. Only the reader fills this value, and only one reader runs at a
    /// time.
    NEW_STORAGE: Array[TaskStorage; 1] = new_storage();
    /// The initial storage of a task that switches in for the first time. Only the hook on this CPU fills this value.
    WOKEN_STORAGE: PerCpuArray[TaskStorage; 1] = woken_storage();
    /// The waits that the reader has taken to report them. Only the reader uses this value.
    UNREPORTED: Array[Histogram; 1] = unreported();
    /// The initial value of an entry in [`SLEEPERS`]. Only the reader uses this value and the next five.
    NEW_SLEEPER: Array[Sleeper; 1] = new_sleeper();
    /// The task record of [`crate::reading`]. It is in a map, because it is too large for the stack.
    RECORD: Array[TaskRecord; 1] = record();
    SAME_RECORD: Array[SameRecord; 1] = same_record();
    LIST_RECORD: Array[ListRecord; 1] = list_record();
    ACCOUNTS: Array[AccountsRecord; 1] = accounts_record();
    /// The kernel stack that [`crate::reading`] walks.
    STACK: Array[Stack; 1] = stack();
    /// The kernel stack that the hook on this CPU walks.
    STACK_KEY: PerCpuArray[StackKey; 1] = stack_key();
    /// Changes to the [`FOLLOWED`] bits of all tasks. User space writes them, and the reader applies them.
    MARKS: Array[Marks; 1] = marks();
    /// The history of each CPU. Only the hook on that CPU writes this value and the next four values. The loader sets the number
    /// of entries to the number of possible CPUs.
    RINGS: Array[Ring; 1] = ring(cpu);
    /// The table of culprits of each CPU, with as many entries as [`RINGS`].
    PAIRS: Array[Pairs; 1] = pairs(cpu);
    /// The names of culprits on each CPU, with as many entries as [`RINGS`], if culprits are single tasks.
    TASK_NAMES: Array[TaskNames; 1] = task_names(cpu);
    /// The table of pressure of each CPU, with as many entries as [`RINGS`].
    PRESSURES: Array[Pressures; 1] = pressures(cpu);
    /// The counters of each CPU, with as many entries as [`RINGS`].
    CPUS: Array[CpuCounters; 1] = cpu_counters(cpu);
    /// The table of clocks of each CPU, with as many entries as [`RINGS`], if cgscope keeps such clocks. Programs use it under
    /// the run queue lock of that CPU.
    THROTTLE_CLOCKS: Array[ThrottleClocks; 1] = throttle_clocks(cpu);
    /// The slots of demand, by the place of the cgroup. No cgroup has place 0. The loader sets the number of entries. All CPUs
    /// add to the slots by atomic additions.
    DEMAND: Array[Slots; 1] = demand(place);
    /// The list of changed tasks of each CPU, with as many entries as [`RINGS`], and one more list for the reader. Only the hook
    /// on that CPU appends entries, and only the reader removes entries.
    CHANGES: Array[Changes; 2] = list(cpu);
    /// 1 if the next reading must visit all tasks. All programs exchange this word atomically.
    INCOMPLETE: Array[u64; 1] = incomplete();
    /// The working memory of each CPU: one for [`Work::HOOK`] and one for [`Work::READER`].
    WORK: PerCpuArray[Work; 2] = work(which);
    /// Only one event is written at a time on the whole host, see [`crate::cgroups`].
    CGROUP_EVENT: PerCpuArray[CgroupEvent; 1] = cgroup_event();
    /// How much memory tasks may still take, bytes, as a signed number. User space writes this number in each reading, and all
    /// programs change it by atomic additions.
    MEMORY_LEFT: Array[u64; 1] = memory_left();
    /// Only programs on this CPU write the counters.
    LOSSES: PerCpuArray[u64; KERNEL_LOSSES] = loss_count(loss);
}

/// Declares maps of words that user space writes, each with a function that returns a word; 0 if it is not set.
macro_rules! words {
    ($($(#[$doc:meta])* $map:ident: $word:ty = $name:ident($($key:ident)?);)*) => {$(
        $(#[$doc])*
        #[btf_map]
        static $map: Array<$word, 1> = Array::new();

        #[inline(always)]
        pub fn $name($($key: u32)?) -> $word {
            $map.get(0 $(+ $key)?).copied().unwrap_or(0)
        }
    )*};
}

words! {
    /// Number of the latest change of [`DEMAND_PLACES`]; 0 if no cgroup has a place.
    DEMAND_TURN: u32 = demand_turn();
    /// Number of the current reading of [`CHANGES`] times 2^[`TURN_SHIFT`](cgscope_ledger::changes::TURN_SHIFT), and the first list
    /// that a stream reports.
    TURN: u64 = turn();
    /// The index of each CPU's NUMA node plus one; 0 if unknown. The map has as many entries as [`RINGS`]. User space writes it
    /// at the start and when a CPU comes online.
    CPU_NODE: u32 = node_place(cpu);
    /// Entries of [`PAIRS`] and [`PRESSURES`] that were used after this time must not be replaced, ns of `rq->clock`. User space
    /// has read the older entries.
    KEPT_SINCE: u64 = kept_since_ns();
    /// When user space had first read all tasks that it can see, ns of CLOCK_MONOTONIC; 0 before that.
    FIRST_READ: u64 = first_read_ns();
}

/// Figures of exited tasks, by cgroup id. The map is not preallocated, because that would take 16,384 entries of 4 KiB on every
/// host.
#[btf_map]
static EXITED: HashMap<u64, Exited, EXITED_CGROUPS, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The waits of tasks between their last report and their latest move to another cgroup, by the serial in their last report.
#[btf_map]
static MOVED: HashMap<u64, Histogram, MOVED_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The map is preallocated, because the hook fills it. The loader creates only one entry if stacks are not requested.
#[btf_map]
static STACKS: HashMap<StackKey, StackCount, PLACES_OF_STACKS, 0> = HashMap::new();

#[btf_map]
static SELECTED: HashMap<u64, u64, SELECTED_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Places of cgroups in [`DEMAND`], by cgroup id. User space writes them.
#[btf_map]
static DEMAND_PLACES: HashMap<u64, u32, DEMAND_PLACES_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Events about created, removed and renamed cgroups. User space drains the buffer in each reading.
#[btf_map]
static CGROUP_EVENTS: RingBuf<CgroupEvent, CGROUP_EVENTS_BYTES> = RingBuf::new();

/// Returns the histogram of a task, if it has one.
#[inline(always)]
pub fn histogram(task: Task) -> Option<&'static mut Histogram> {
    HISTOGRAMS.get(task.pointer(), ptr::null_mut(), 0)
}

/// Returns the histogram of a task. Creates it if it does not exist and the hook may create storage.
#[inline(always)]
pub fn make_histogram(task: Task) -> Option<&'static mut Histogram> {
    let found = histogram(task);
    if found.is_some() || !hook_allocates() || !has_memory_left(HISTOGRAM_BYTES) {
        return found;
    }
    let made = HISTOGRAMS.get(task.pointer(), ptr::null_mut(), CREATE);
    match made {
        Some(_) => take_memory(HISTOGRAM_BYTES),
        None => lost(Loss::StorageNotCreated),
    }
    made
}

/// Returns the entry of a task in [`MOVED`]. Creates it if it does not exist.
#[inline(always)]
pub fn make_moved(serial: u64) -> Option<&'static mut Histogram> {
    if moved(serial).is_none() {
        let _ = MOVED.insert(serial, no_waits()?, BPF_NOEXIST.into());
    }
    moved(serial)
}

#[inline(always)]
pub fn moved(serial: u64) -> Option<&'static mut Histogram> {
    // SAFETY: the entry is a map value, and its users hold the lock of the task's storage.
    MOVED.get_ptr_mut(serial).map(|waits| unsafe { &mut *waits })
}

#[inline(always)]
pub fn remove_moved(serial: u64) {
    let _ = MOVED.remove(serial);
}

/// Returns the entry of a task in [`SLEEPERS`], if the task has not run since cgscope began to follow it.
#[inline(always)]
pub fn sleeper(task: Task) -> Option<&'static mut Sleeper> {
    SLEEPERS.get(task.pointer(), ptr::null_mut(), 0)
}

/// Returns the [flags](cgscope_ledger::wire::Waits::flags) of a task; 0 if the task is not followed.
#[inline(always)]
pub fn flags(task: Task) -> u64 {
    match storage(task) {
        Some(storage) => storage.flags,
        None => sleeper(task).map_or(0, |sleeper| sleeper.flags),
    }
}

/// Creates an empty storage for a new task. Call this function only where memory may be allocated.
#[inline(always)]
pub fn create_storage(task: Task) -> Option<&'static mut TaskStorage> {
    if !has_memory_left(task_bytes()) {
        return None;
    }
    let storage = created(task, None)?;
    storage.start.ran_on = NO_CPU;
    Some(storage)
}

/// Creates the storage of a task that started after cgscope and has no storage. This can happen since Linux 7.0: while a program
/// at a fork is preempted, the kernel runs no program for other forks on that CPU.
#[inline(always)]
pub fn create_missing(task: Task) -> bool {
    let Some(storage) = create_storage(task) else { return false };
    storage.waits.expected_run_delay_ns = task.run_delay_ns();
    true
}

/// Creates a storage for a task that has already waited `run_delay_ns`. Only the reader calls this function. The storage is
/// filled before it is created, because the hook may use it at once. If the task started after cgscope (`ours`), `run_delay_ns`
/// counts as a wait.
#[inline(always)]
pub fn create_storage_at(task: Task, run_delay_ns: u64, ours: bool) -> Option<&'static mut TaskStorage> {
    if !has_memory_left(task_bytes()) {
        return None;
    }
    let initial = new_storage()?;
    slots::identify(task, initial);
    initial.flags = 0;
    copy_zeroes(&mut initial.face);
    copy_zeroes(&mut initial.reported.totals);
    initial.waits.expected_run_delay_ns = run_delay_ns;
    let waits = u64::from(ours && run_delay_ns != 0);
    let waited_ns = waits * run_delay_ns;
    (initial.waits.max_ns, initial.logged) = (waited_ns, waits as u32);
    initial.by_cause[Cause::Unattributed as usize] = waited_ns;
    initial.log[0] = log::first(log::entry_of(bucket_of(run_delay_ns), Cause::Unattributed));
    if keeps_accounts() {
        accounts::was_blocked(task, &mut initial.blocked);
    }
    initial.start.ran_on = task.cpu();
    created(task, Some(initial))
}

/// Creates the storage of a task from its entry in [`SLEEPERS`]. `initial` is working memory for the new storage. The figures
/// that the entry has from the task's sleep count as reported.
#[inline(always)]
fn create_storage_of(task: Task, sleeper: &Sleeper, initial: &mut TaskStorage) {
    if !has_memory_left(task_bytes()) {
        return;
    }
    (initial.waits.expected_run_delay_ns, initial.flags) = (sleeper.run_delay_ns, sleeper.flags);
    (initial.serial, initial.reported.serial) = (sleeper.serial, sleeper.reported_serial);
    initial.cgroup_id = sleeper.cgroup_id;
    initial.face = sleeper.face;
    put_totals_asleep(task, sleeper, &mut initial.reported.totals);
    initial.start.ran_on = task.cpu();
    begin_placement(task, initial.start.ran_on);
    if slots::create(task, Some(initial)) != 0 {
        take_memory(task_bytes());
    }
}

/// Writes the readings of a task that has no storage to a map value.
#[inline(always)]
pub fn put_totals_asleep(task: Task, sleeper: &Sleeper, into: &mut Totals) {
    let Totals { on_cpu_ns, voluntary, involuntary, .. } = task.totals();
    copy_zeroes(into);
    set(&mut into.run_delay_ns, sleeper.run_delay_ns);
    set(&mut into.on_cpu_ns, on_cpu_ns);
    set(&mut into.voluntary, voluntary);
    set(&mut into.involuntary, involuntary);
    set(&mut into.migrations, sleeper.migrations);
}

/// Begins to record on which nodes a task runs, before the task gets a storage: from then on, the hook changes the record. The task
/// has last run on the CPU `ran_on`.
#[inline(always)]
fn begin_placement(task: Task, ran_on: u32) {
    if has_nodes()
        && placement(task).is_none()
        && let Some(placement) = PLACEMENTS.get(task.pointer(), ptr::null_mut(), CREATE)
    {
        placement.place = node_place(ran_on);
        placement.since_ran_ns = task.ran_ns();
    }
}

#[inline(always)]
pub fn placement(task: Task) -> Option<&'static mut Placement> {
    PLACEMENTS.get(task.pointer(), ptr::null_mut(), 0)
}

/// Creates the storage of a followed task that the hook sees for the first time. If this fails, the next switch in tries it
/// again.
#[inline(always)]
pub fn wake(task: Task) {
    if hook_allocates()
        && let Some(sleeper) = sleeper(task)
        && let Some(initial) = woken_storage()
    {
        create_storage_of(task, sleeper, initial);
    }
}

/// Does the same as [`wake`], but is called by the reader.
#[inline(always)]
pub fn wake_for_reader(task: Task, sleeper: &Sleeper) {
    let Some(initial) = new_storage() else { return };
    (initial.waits.max_ns, initial.logged, initial.log[0]) = (0, 0, 0);
    initial.by_cause[Cause::Unattributed as usize] = 0;
    create_storage_of(task, sleeper, initial);
}

/// Creates the entry in [`SLEEPERS`] of a task that sleeps. Only the reader calls this function.
#[inline(always)]
pub fn create_sleeper(task: Task, flags: u64) -> Option<&'static mut Sleeper> {
    if !has_memory_left(SLEEPER_BYTES) {
        return None;
    }
    let initial = new_sleeper()?;
    initial.serial = serial(task.tid(), task.start_ns());
    initial.reported_serial = initial.serial;
    initial.cgroup_id = task.cgroup_id_rarely();
    initial.flags = flags;
    initial.face = task.face();
    let totals = task.totals();
    (initial.run_delay_ns, initial.migrations) = (totals.run_delay_ns, totals.migrations);
    let sleeper = SLEEPERS.get(task.pointer(), initial, CREATE);
    if sleeper.is_some() {
        make_place(initial.cgroup_id);
        take_memory(SLEEPER_BYTES);
    } else {
        lost(Loss::StorageNotCreated);
    }
    sleeper
}

/// Returns whether there is enough memory for another task storage. The kernel charges the storage to the memory cgroup of the
/// map's owner, even if that exceeds the cgroup's limit (`GFP_ATOMIC`). Without a limit of our own, anybody could start threads
/// until the kernel kills user space's process.
#[inline(always)]
fn has_memory_left(bytes: u64) -> bool {
    let is_left = memory_left().is_none_or(|memory_left| get(memory_left) as i64 >= bytes as i64);
    if !is_left {
        lost(Loss::NoRoomForTask);
        // The next reading tries this again.
        changes::all_may_have_changed();
    }
    is_left
}

#[inline(always)]
fn created(task: Task, initial: Option<&mut TaskStorage>) -> Option<&'static mut TaskStorage> {
    begin_placement(task, initial.as_ref().map_or(NO_CPU, |initial| initial.start.ran_on));
    let is_new = slots::create(task, initial) != 0;
    // This fails if another program is creating the storage: a reader may find the task before `on_new_task` runs.
    let Some(storage) = storage(task) else {
        lost(Loss::StorageNotCreated);
        changes::all_may_have_changed();
        return None;
    };
    if is_new {
        make_place(storage.cgroup_id);
        take_memory(task_bytes());
        if !hook_allocates() && HISTOGRAMS.get(task.pointer(), ptr::null_mut(), CREATE).is_none() {
            lost(Loss::StorageNotCreated);
        }
        chains::begin(task, storage);
    }
    Some(storage)
}

const CREATE: u64 = BPF_LOCAL_STORAGE_GET_F_CREATE as u64;

#[inline(always)]
pub fn selected(key: u64) -> bool {
    SELECTED.get_ptr(key).is_some()
}

/// Changes the [`FOLLOWED`] bits in a task's flags as user space has requested in [`MARKS`].
#[inline(always)]
pub fn mark(task: Task, flags: &mut u64) {
    if !is_shared() {
        return;
    }
    let Some(marks) = marks() else { return };
    if marks.clear != 0 {
        *flags &= !(marks.clear & FOLLOWED);
    }
    if marks.look != 0
        && let Some(bits) = SELECTED.get_ptr(SELECT_PROCESS | u64::from(task.tgid()))
    {
        // SAFETY: the word is a map value.
        *flags |= unsafe { *bits } & FOLLOWED;
    }
}

/// Returns the entry of a cgroup in [`EXITED`] if it exists. This function never creates an entry, because callers may hold the
/// run queue lock.
#[inline(always)]
pub fn exited(cgroup_id: u64) -> Option<&'static mut Exited> {
    // SAFETY: the entry is a map value. Each write to the entry is atomic, under the entry's lock, or harmless if it is lost.
    EXITED.get_ptr_mut(cgroup_id).map(|place| unsafe { &mut *place })
}

/// Creates the entry of a cgroup in [`EXITED`]. Call this function only where memory may be allocated. If the map is full, the
/// cgroup's exited tasks will count for another cgroup, and a loss is counted.
#[inline(always)]
pub fn make_place(cgroup_id: u64) {
    if exited(cgroup_id).is_some() {
        return;
    }
    // The value is passed by reference, because a copy would not fit on the stack.
    let Some(empty) = no_exited() else { return };
    // This fails if another CPU has just created the entry.
    let _ = EXITED.insert(cgroup_id, empty, BPF_NOEXIST.into());
}

/// Returns the entry that counts the time of a stack. A stack belongs to one task, and a task switches in on only one CPU at a
/// time.
#[inline(always)]
pub fn stack_count(key: &StackKey) -> Option<&'static mut StackCount> {
    // SAFETY: the result is a map value.
    STACKS.get_ptr_mut(key).map(|count| unsafe { &mut *count })
}

/// Adds a stack to the map. Returns false if the map is full.
#[inline(always)]
pub fn add_stack(key: &StackKey, count: &StackCount) -> bool {
    STACKS.insert(key, count, BPF_NOEXIST.into()).is_ok()
}

#[inline(always)]
pub fn cgroup_events() -> *mut c_void {
    (&raw const CGROUP_EVENTS).cast_mut().cast()
}

/// Copies a value with a BPF helper. BPF's `memcpy` is slow, and the verifier would follow each word of a copying loop.
#[inline(always)]
pub fn copy<T>(from: &T, to: &mut T) {
    // SAFETY: both values have the given size.
    unsafe {
        bpf_probe_read_kernel(ptr::from_mut(to).cast(), size_of::<T>() as u32, ptr::from_ref(from).cast())
    };
}

/// Fills a value with zeroes, which [`NO_EXITED`] has.
#[inline(always)]
pub fn copy_zeroes<T>(to: &mut T) {
    const { assert!(size_of::<T>() <= size_of::<Exited>()) };
    if let Some(none) = no_exited() {
        // SAFETY: both values have at least the given size.
        unsafe {
            bpf_probe_read_kernel(ptr::from_mut(to).cast(), size_of::<T>() as u32, ptr::from_ref(none).cast())
        };
    }
}

/// Returns the place of a cgroup in [`DEMAND`]; 0 if the cgroup has none.
#[inline(always)]
pub fn demand_place(cgroup_id: u64) -> u32 {
    // SAFETY: the word is a map value.
    DEMAND_PLACES.get_ptr(cgroup_id).map_or(0, |place| unsafe { *place })
}

#[inline(always)]
pub fn lost(loss: Loss) {
    lost_times(loss, 1);
}

#[inline(always)]
pub fn lost_times(loss: Loss, times: u64) {
    if let Some(count) = loss_count(loss as u32) {
        *count += times;
    }
}

/// Returns the memory of a task, bytes, without a histogram that the hook creates.
#[inline(always)]
fn task_bytes() -> u64 {
    let histogram = if hook_allocates() { 0 } else { HISTOGRAM_BYTES };
    let chain = if keeps_chains() { CHAIN_BYTES } else { 0 };
    let placement = if has_nodes() { PLACEMENT_BYTES } else { 0 };
    TASK_BYTES + histogram + chain + placement
}

#[inline(always)]
fn take_memory(bytes: u64) {
    if let Some(memory_left) = memory_left() {
        add_atomic(memory_left, bytes.wrapping_neg());
    }
}

/// Frees the memory of a task's storage when the kernel frees the task, after its last switch. The kernel keeps an exited task
/// until its parent collects its exit status. (`delayed_put_task_struct`, which runs after all programs that found the task before
/// it exited; Linux 5.8 to 7.2.)
#[btf_tracepoint(function = "sched_process_free")]
pub fn on_task_freed(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(argument(&ctx, 0));
    let mut bytes = 0u64;
    if storage(task).is_some() {
        bytes += task_bytes();
    }
    if hook_allocates() && histogram(task).is_some() {
        bytes += HISTOGRAM_BYTES;
    }
    if sleeper(task).is_some() {
        bytes += SLEEPER_BYTES;
    }
    take_memory(bytes.wrapping_neg());
    slots::free(task);
    0
}
