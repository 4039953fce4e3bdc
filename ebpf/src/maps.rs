//! The BPF maps, and safe access to them.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{
        BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST,
        bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE,
    },
    btf_maps::{Array, HashMap, PerCpuArray, RingBuf},
    helpers::generated::{bpf_probe_read_kernel, bpf_task_storage_get},
    macros::{btf_map, btf_tracepoint},
    programs::BtfTracePointContext,
};
use cgscope_ledger::{
    Cause, KERNEL_LOSSES, Loss, Stack, bucket_of,
    changes::Changes,
    culprits::Pairs,
    demand::Slots,
    history::Ring,
    pressure::Pressures,
    segment::NO_CPU,
    split::Work,
    throttle::ThrottleClocks,
    verifier::{add_atomic, opaque},
    wire::{
        AccountsRecord, CGROUP_EVENTS_BYTES, CgroupEvent, CpuCounters, DEMAND_PLACES as DEMAND_PLACES_MAX,
        EXITED_CGROUPS, Exited, FOLLOWED, Face, ListRecord, Marks, SELECT_PROCESS, SELECTED_MAX,
        SLEEPER_BYTES, STACKS as PLACES_OF_STACKS, SameRecord, Sleeper, StackCount, StackKey, TASK_BYTES,
        TaskRecord, TaskStorage, Totals, serial,
    },
};

use crate::{
    accounts, changes,
    kernel::{Task, has_nodes, hook_allocates, keeps_accounts},
};

/// A BPF map for task storage, which aya-ebpf 0.2 lacks. The pointers only describe types to BTF and are never dereferenced.
#[repr(C)]
struct TaskStorageMap<T> {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const T,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: no code reads or writes this value as memory. The kernel protects the map itself.
unsafe impl<T> Sync for TaskStorageMap<T> {}

impl<T> TaskStorageMap<T> {
    const NEW: Self = Self {
        r#type: ptr::null(),
        key: ptr::null(),
        value: ptr::null(),
        max_entries: ptr::null(),
        map_flags: ptr::null(),
    };
}

/// Returns the value that a task has in one of the two maps below.
#[inline(always)]
fn value<T>(
    map: *const TaskStorageMap<T>,
    task: Task,
    initial: *mut c_void,
    flags: u64,
) -> Option<&'static mut T> {
    // SAFETY: the helper expects this map and this task. The value exists as long as the task, and the task exists until this
    // program returns.
    unsafe {
        bpf_task_storage_get(map.cast_mut().cast(), task.pointer().cast(), initial, flags)
            .cast::<T>()
            .as_mut()
    }
}

/// Figures of each task that has run or waited since cgscope began to follow it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static TASKS: TaskStorageMap<TaskStorage> = TaskStorageMap::NEW;

/// Entries of all other followed tasks. When a task gets an entry in [`TASKS`], its entry here remains.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static SLEEPERS: TaskStorageMap<Sleeper> = TaskStorageMap::NEW;

/// Figures of exited tasks, by cgroup id. The map is not preallocated, because that would take 16,384 entries of 4 KiB on every
/// host.
#[btf_map]
static EXITED: HashMap<u64, Exited, EXITED_CGROUPS, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The initial value of an entry in [`EXITED`]. No program writes this value.
#[btf_map]
static NO_EXITED: Array<Exited, 1> = Array::new();

/// The initial storage of a task that started before cgscope. Only the reader fills this value, and only one reader runs at a
/// time.
#[btf_map]
static NEW_STORAGE: Array<TaskStorage, 1> = Array::new();

/// The initial storage of a task that switches in for the first time. Only the hook on this CPU fills this value.
#[btf_map]
static WOKEN_STORAGE: PerCpuArray<TaskStorage, 1> = PerCpuArray::new();

/// The initial value of an entry in [`SLEEPERS`]. Only the reader fills this value.
#[btf_map]
static NEW_SLEEPER: Array<Sleeper, 1> = Array::new();

/// The task record of [`crate::reading`]. It is in a map, because it is too large for the stack.
#[btf_map]
static RECORD: Array<TaskRecord, 1> = Array::new();

#[btf_map]
static SAME_RECORD: Array<SameRecord, 1> = Array::new();

#[btf_map]
static LIST_RECORD: Array<ListRecord, 1> = Array::new();

#[btf_map]
static ACCOUNTS: Array<AccountsRecord, 1> = Array::new();

/// The kernel stack that [`crate::reading`] walks.
#[btf_map]
static STACK: Array<Stack, 1> = Array::new();

/// The kernel stack that the hook walks.
#[btf_map]
static STACK_KEY: PerCpuArray<StackKey, 1> = PerCpuArray::new();

/// The map is preallocated, because the hook fills it. The loader creates only one entry if stacks are not requested.
#[btf_map]
static STACKS: HashMap<StackKey, StackCount, PLACES_OF_STACKS, 0> = HashMap::new();

#[btf_map]
static SELECTED: HashMap<u64, u64, SELECTED_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Changes to the [`FOLLOWED`] bits of all tasks. User space writes them, and the reader applies them.
#[btf_map]
static MARKS: Array<Marks, 1> = Array::new();

/// The history of each CPU. The loader sets the number of entries to the number of possible CPUs.
#[btf_map]
static RINGS: Array<Ring, 1> = Array::new();

/// The table of culprits of each CPU, with as many entries as [`RINGS`].
#[btf_map]
static PAIRS: Array<Pairs, 1> = Array::new();

/// The table of pressure of each CPU, with as many entries as [`RINGS`].
#[btf_map]
static PRESSURES: Array<Pressures, 1> = Array::new();

/// The slots of demand, by the place of the cgroup. No cgroup has place 0. The loader sets the number of entries.
#[btf_map]
static DEMAND: Array<Slots, 1> = Array::new();

/// Places of cgroups in [`DEMAND`], by cgroup id. User space writes them.
#[btf_map]
static DEMAND_PLACES: HashMap<u64, u32, DEMAND_PLACES_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Number of the latest change of [`DEMAND_PLACES`]; 0 if no cgroup has a place. User space writes this number.
#[btf_map]
static DEMAND_TURN: Array<u32, 1> = Array::new();

/// The list of changed tasks of each CPU, with as many entries as [`RINGS`], and one more list for the reader.
#[btf_map]
static CHANGES: Array<Changes, 2> = Array::new();

/// Number of the current reading of [`CHANGES`]. User space writes this number.
#[btf_map]
static TURN: Array<u64, 1> = Array::new();

/// 1 if the next reading must visit all tasks.
#[btf_map]
static INCOMPLETE: Array<u64, 1> = Array::new();

/// The NUMA node of each CPU, with as many entries as [`RINGS`]. User space writes the map at the start and when a CPU comes
/// online.
#[btf_map]
static CPU_NODE: Array<u32, 1> = Array::new();

/// The counters of each CPU, with as many entries as [`RINGS`].
#[btf_map]
static CPUS: Array<CpuCounters, 1> = Array::new();

/// The table of clocks of each CPU, with as many entries as [`RINGS`], if cgscope keeps such clocks.
#[btf_map]
static THROTTLE_CLOCKS: Array<ThrottleClocks, 1> = Array::new();

/// The working memory of each CPU: one for [`Work::HOOK`] and one for [`Work::READER`].
#[btf_map]
static WORK: PerCpuArray<Work, 2> = PerCpuArray::new();

/// Events about created, removed and renamed cgroups. User space drains the buffer in each reading.
#[btf_map]
static CGROUP_EVENTS: RingBuf<CgroupEvent, CGROUP_EVENTS_BYTES> = RingBuf::new();

#[btf_map]
static CGROUP_EVENT: PerCpuArray<CgroupEvent, 1> = PerCpuArray::new();

/// Entries of [`PAIRS`] and [`PRESSURES`] that were used after this time must not be replaced, ns of `rq->clock`. User space
/// writes this time when it has read the older entries.
#[btf_map]
static KEPT_SINCE: Array<u64, 1> = Array::new();

/// When user space had first read all tasks that it can see, ns of CLOCK_MONOTONIC; 0 before that.
#[btf_map]
static FIRST_READ: Array<u64, 1> = Array::new();

/// How much memory tasks may still take, bytes, as a signed number. User space writes this number in each reading.
#[btf_map]
static MEMORY_LEFT: Array<u64, 1> = Array::new();

#[btf_map]
static LOSSES: PerCpuArray<u64, { KERNEL_LOSSES }> = PerCpuArray::new();

/// Returns the storage of a task, if the task has run or waited since cgscope began to follow it. This function never creates a
/// storage.
#[inline(always)]
pub fn storage(task: Task) -> Option<&'static mut TaskStorage> {
    value(&raw const TASKS, task, ptr::null_mut(), 0)
}

/// Returns the entry of a task in [`SLEEPERS`], if the task has not run since cgscope began to follow it.
#[inline(always)]
pub fn sleeper(task: Task) -> Option<&'static mut Sleeper> {
    value(&raw const SLEEPERS, task, ptr::null_mut(), 0)
}

/// Returns the [flags](cgscope_ledger::wire::Waits::flags) of a task; 0 if the task is not followed.
#[inline(always)]
pub fn flags(task: Task) -> u64 {
    match storage(task) {
        Some(storage) => storage.waits.flags,
        None => sleeper(task).map_or(0, |sleeper| sleeper.flags),
    }
}

/// Creates an empty storage for a new task. Call this function only where memory may be allocated.
#[inline(always)]
pub fn create_storage(task: Task) -> Option<&'static mut TaskStorage> {
    if !has_memory_left(TASK_BYTES) {
        return None;
    }
    let storage = created(task, value(&raw const TASKS, task, ptr::null_mut(), CREATE))?;
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
    if !has_memory_left(TASK_BYTES) {
        return None;
    }
    // SAFETY: only the reader uses this map value.
    let initial = unsafe { &mut *NEW_STORAGE.get_ptr_mut(0)? };
    initial.waits.expected_run_delay_ns = run_delay_ns;
    let bucket = bucket_of(run_delay_ns);
    let waits = u64::from(ours && run_delay_ns != 0);
    let waited_ns = waits * run_delay_ns;
    (initial.waits.total_ns, initial.waits.max_ns) = (waited_ns, waited_ns);
    initial.waits.count = waits;
    initial.by_cause[Cause::Unattributed as usize] = waited_ns;
    set_new_count(bucket as u64, waits);
    initial.start.ran_on = task.run_queue().cpu();
    if keeps_accounts() {
        accounts::was_blocked(task, &mut initial.blocked);
    }
    if has_nodes() {
        initial.placement.place = node_place(initial.start.ran_on);
        initial.placement.since_ran_ns = task.ran_ns();
    }
    let storage = created(task, value(&raw const TASKS, task, (&raw mut *initial).cast(), CREATE));
    set_new_count(bucket as u64, 0);
    storage
}

/// Creates the storage of a task from its entry in [`SLEEPERS`]. `initial` is working memory for the new storage. The figures
/// that the entry has from the task's sleep count as reported.
#[inline(always)]
fn create_storage_of(task: Task, sleeper: &Sleeper, initial: &mut TaskStorage) {
    if !has_memory_left(TASK_BYTES) {
        return;
    }
    let waits = &mut initial.waits;
    (waits.expected_run_delay_ns, waits.flags) = (sleeper.run_delay_ns, sleeper.flags);
    (initial.serial, initial.reported_serial) = (sleeper.serial, sleeper.reported_serial);
    initial.cgroup_id = sleeper.cgroup_id;
    initial.face = sleeper.face;
    initial.reported.totals =
        Totals { run_delay_ns: sleeper.run_delay_ns, migrations: sleeper.migrations, ..task.totals() };
    initial.start.ran_on = task.run_queue().cpu();
    if has_nodes() {
        initial.placement.place = node_place(initial.start.ran_on);
        initial.placement.since_ran_ns = task.ran_ns();
    }
    if value(&raw const TASKS, task, ptr::from_mut(initial).cast(), CREATE).is_some() {
        take_memory(TASK_BYTES);
    }
}

/// Creates the storage of a followed task that the hook sees for the first time. If this fails, the next switch in tries it
/// again.
#[inline(always)]
pub fn wake(task: Task) {
    if hook_allocates()
        && let Some(sleeper) = sleeper(task)
        // SAFETY: only the hook on this CPU uses this map value.
        && let Some(initial) = WOKEN_STORAGE.get_ptr_mut(0).map(|initial| unsafe { &mut *initial })
    {
        create_storage_of(task, sleeper, initial);
    }
}

/// Does the same as [`wake`], but is called by the reader.
#[inline(always)]
pub fn wake_for_reader(task: Task, sleeper: &Sleeper) {
    // SAFETY: only the reader uses this map value.
    let Some(initial) = NEW_STORAGE.get_ptr_mut(0).map(|initial| unsafe { &mut *initial }) else { return };
    (initial.waits.total_ns, initial.waits.max_ns, initial.waits.count) = (0, 0, 0);
    initial.by_cause[Cause::Unattributed as usize] = 0;
    create_storage_of(task, sleeper, initial);
    // The next task that uses this value has not been reported yet. Its identity is set when its storage exists.
    (initial.serial, initial.reported_serial, initial.waits.flags) = (0, 0, 0);
    (initial.cgroup_id, initial.face) = (0, Face::default());
    initial.reported.totals = Totals::NONE;
}

/// Creates the entry in [`SLEEPERS`] of a task that sleeps. Only the reader calls this function.
#[inline(always)]
pub fn create_sleeper(task: Task, flags: u64) -> Option<&'static mut Sleeper> {
    if !has_memory_left(SLEEPER_BYTES) {
        return None;
    }
    // SAFETY: only the reader uses this map value.
    let initial = unsafe { &mut *NEW_SLEEPER.get_ptr_mut(0)? };
    initial.serial = serial(task.tid(), task.start_ns());
    initial.reported_serial = initial.serial;
    initial.cgroup_id = task.cgroup_id_rarely();
    initial.flags = flags;
    initial.face = task.face();
    let totals = task.totals();
    (initial.run_delay_ns, initial.migrations) = (totals.run_delay_ns, totals.migrations);
    let sleeper = value(&raw const SLEEPERS, task, (&raw mut *initial).cast(), CREATE);
    if sleeper.is_some() {
        make_place(initial.cgroup_id);
        take_memory(SLEEPER_BYTES);
    } else {
        lost(Loss::StorageNotCreated);
    }
    sleeper
}

/// Sets the number of waits of one bucket in [`NEW_STORAGE`]. The function is exported and its parameters are numbers, so that
/// the verifier checks it separately. If this code were in the caller, Linux 6.1 would follow an impossible code path, on which
/// the bucket is out of bounds and then within bounds.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn set_new_count(bucket: u64, to: u64) -> u32 {
    // SAFETY: only the reader uses this map value.
    let Some(initial) = NEW_STORAGE.get_ptr_mut(0).map(|initial| unsafe { &mut *initial }) else { return 0 };
    if let Some(count) = initial.histogram.counts.get_mut(opaque(bucket as usize)) {
        *count = to as u32;
    }
    0
}

#[inline(always)]
fn has_memory_left(bytes: u64) -> bool {
    let is_left = is_memory_left(bytes);
    if !is_left {
        lost(Loss::NoRoomForTask);
        // The next reading tries this again.
        changes::all_may_have_changed();
    }
    is_left
}

#[inline(always)]
fn created(task: Task, storage: Option<&'static mut TaskStorage>) -> Option<&'static mut TaskStorage> {
    // This fails if another program is creating the storage: a reader may find the task before `on_new_task` runs.
    match storage.or_else(|| self::storage(task)) {
        None => {
            lost(Loss::StorageNotCreated);
            changes::all_may_have_changed();
            None
        }
        Some(storage) => {
            if storage.serial == 0 {
                storage.serial = serial(task.tid(), task.start_ns());
                storage.reported_serial = storage.serial;
                storage.cgroup_id = task.cgroup_id_rarely();
                make_place(storage.cgroup_id);
                take_memory(TASK_BYTES);
            }
            Some(storage)
        }
    }
}

const CREATE: u64 = BPF_LOCAL_STORAGE_GET_F_CREATE as u64;

#[inline(always)]
pub fn selected(key: u64) -> bool {
    SELECTED.get_ptr(key).is_some()
}

#[inline(always)]
fn bits_for(key: u64) -> u64 {
    // SAFETY: `storage` is a map value.
    SELECTED.get_ptr(key).map_or(0, |bits| unsafe { *bits })
}

/// Changes the [`FOLLOWED`] bits in a task's flags as user space has requested in [`MARKS`].
#[inline(always)]
pub fn mark(task: Task, flags: &mut u64) {
    // SAFETY: the words are in map values.
    let Some(marks) = MARKS.get_ptr(0).map(|marks| unsafe { *marks }) else { return };
    if marks.clear != 0 {
        *flags &= !(marks.clear & FOLLOWED);
    }
    if marks.look != 0 {
        *flags |= bits_for(SELECT_PROCESS | u64::from(task.tgid())) & FOLLOWED;
    }
}

/// Returns the entry of a cgroup in [`EXITED`] if it exists. This function never creates an entry, because callers may hold the
/// run queue lock.
#[inline(always)]
pub fn exited(cgroup_id: u64) -> Option<*mut Exited> {
    EXITED.get_ptr_mut(cgroup_id)
}

/// Creates the entry of a cgroup in [`EXITED`]. Call this function only where memory may be allocated. If the map is full, the
/// cgroup's exited tasks will count for another cgroup, and a loss is counted.
#[inline(always)]
pub fn make_place(cgroup_id: u64) {
    if exited(cgroup_id).is_some() {
        return;
    }
    let Some(empty) = NO_EXITED.get_ptr(0) else { return };
    // SAFETY: no program writes this map value. The value is passed by reference, because a copy would not fit on the stack.
    let empty: &Exited = unsafe { &*empty };
    // This fails if another CPU has just created the entry.
    let _ = EXITED.insert(cgroup_id, empty, BPF_NOEXIST.into());
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($($key:ident)?) -> $value:ty = $map:ident;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name($($key: u32)?) -> Option<&'static mut $value> {
            // SAFETY: the map value exists until this program returns. The comment of each function below says who accesses the
            // value.
            $map.get_ptr_mut(0 $(+ $key)?).map(|value| unsafe { &mut *value })
        })*
    };
}

values! {
    /// How much memory tasks may still take, bytes. The number is one word, and all programs change it by atomic additions.
    memory_left() -> u64 = MEMORY_LEFT;
    /// Only the reader uses this value and the next three, and only one reader runs at a time.
    record() -> TaskRecord = RECORD;
    same_record() -> SameRecord = SAME_RECORD;
    accounts_record() -> AccountsRecord = ACCOUNTS;
    stack() -> Stack = STACK;
    list_record() -> ListRecord = LIST_RECORD;
    incomplete() -> u64 = INCOMPLETE;
    /// Only the hook on that CPU appends entries, and only the reader removes entries.
    list(cpu) -> Changes = CHANGES;
    stack_key() -> StackKey = STACK_KEY;
    /// Only the hook on that CPU writes this value and the next three values.
    ring(cpu) -> Ring = RINGS;
    pairs(cpu) -> Pairs = PAIRS;
    pressures(cpu) -> Pressures = PRESSURES;
    cpu_counters(cpu) -> CpuCounters = CPUS;
    /// All CPUs add to the slots by atomic additions.
    demand(place) -> Slots = DEMAND;
    /// Programs use this value under the run queue lock of that CPU.
    throttle_clocks(cpu) -> ThrottleClocks = THROTTLE_CLOCKS;
    /// Each CPU has one value for the hook and one for the reader.
    work(which) -> Work = WORK;
    /// Only one event is written at a time on the whole host, see [`crate::cgroups`].
    cgroup_event() -> CgroupEvent = CGROUP_EVENT;
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

/// Returns the index of a CPU's NUMA node plus one; 0 if unknown.
#[inline(always)]
pub fn node_place(cpu: u32) -> u32 {
    CPU_NODE.get(cpu).copied().unwrap_or(0)
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

#[inline(always)]
pub fn turn() -> u64 {
    TURN.get(0).copied().unwrap_or(0)
}

#[inline(always)]
pub fn demand_turn() -> u32 {
    DEMAND_TURN.get(0).copied().unwrap_or(0)
}

/// Returns the place of a cgroup in [`DEMAND`]; 0 if the cgroup has none.
#[inline(always)]
pub fn demand_place(cgroup_id: u64) -> u32 {
    // SAFETY: the word is a map value.
    DEMAND_PLACES.get_ptr(cgroup_id).map_or(0, |place| unsafe { *place })
}

#[inline(always)]
pub fn kept_since_ns() -> u64 {
    KEPT_SINCE.get(0).copied().unwrap_or(0)
}

#[inline(always)]
pub fn first_read_ns() -> u64 {
    FIRST_READ.get(0).copied().unwrap_or(0)
}

#[inline(always)]
pub fn lost(loss: Loss) {
    if let Some(count) = LOSSES.get_ptr_mut(loss as u32) {
        // SAFETY: only this CPU writes this counter.
        unsafe { *count += 1 };
    }
}

/// Returns whether there is enough memory for another task storage. The kernel charges the storage to the memory cgroup of the
/// map's owner, even if that exceeds the cgroup's limit (`GFP_ATOMIC`). Without a limit of our own, anybody could start threads
/// until the kernel kills user space's process.
#[inline(always)]
fn is_memory_left(bytes: u64) -> bool {
    // SAFETY: the word is in a map value. Other programs may write the word at the same time.
    memory_left()
        .is_none_or(|memory_left| unsafe { core::ptr::read_volatile(memory_left) } as i64 >= bytes as i64)
}

#[inline(always)]
fn take_memory(bytes: u64) {
    if let Some(memory_left) = memory_left() {
        add_atomic(memory_left, bytes.wrapping_neg());
    }
}

/// Adds the memory of a task's storage to the free memory when the kernel frees the task. The kernel keeps an exited task until
/// its parent collects its exit status.
#[btf_tracepoint(function = "sched_process_free")]
pub fn on_task_freed(ctx: BtfTracePointContext) -> i32 {
    let task = Task::new(ctx.arg::<*const c_void>(0));
    let mut bytes = 0;
    if storage(task).is_some() {
        bytes += TASK_BYTES;
    }
    if sleeper(task).is_some() {
        bytes += SLEEPER_BYTES;
    }
    if let Some(memory_left) = memory_left() {
        add_atomic(memory_left, bytes);
    }
    0
}
