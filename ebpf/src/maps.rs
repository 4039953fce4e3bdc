//! The BPF maps, and safe access to them.

use core::{ffi::c_void, ptr};

use aya_ebpf::{
    bindings::{
        BPF_F_NO_PREALLOC, BPF_LOCAL_STORAGE_GET_F_CREATE, BPF_NOEXIST,
        bpf_map_type::BPF_MAP_TYPE_TASK_STORAGE,
    },
    btf_maps::{Array, HashMap, PerCpuArray, RingBuf},
    helpers::generated::{bpf_probe_read_kernel, bpf_task_storage_get},
    macros::btf_map,
};
use cgscope_layout::{
    Cause, KERNEL_LOSSES, Loss, Stack, bucket_of,
    culprits::Pairs,
    history::Ring,
    segment::NO_CPU,
    split::Work,
    throttle::ThrottleClocks,
    verifier::opaque,
    wire::{
        AccountsRecord, CGROUP_EVENTS_BYTES, CgroupEvent, CpuCounters, EXITED_CGROUPS, Exited, FOLLOWED,
        Marks, SELECT_PROCESS, SELECTED_MAX, STACKS as PLACES_OF_STACKS, StackCount, StackKey, TaskRecord,
        TaskStorage, serial,
    },
};

use crate::{
    accounts,
    kernel::{Task, has_nodes, keeps_accounts},
    room,
};

/// A map of type task storage, which aya-ebpf 0.2 does not have. The pointers only describe types to BTF and are never followed.
#[repr(C)]
struct TaskStorageMap {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const TaskStorage,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: never read or written as memory; the kernel protects the map itself.
unsafe impl Sync for TaskStorageMap {}

#[unsafe(no_mangle)]
#[unsafe(link_section = ".maps")]
static TASKS: TaskStorageMap = TaskStorageMap {
    r#type: ptr::null(),
    key: ptr::null(),
    value: ptr::null(),
    max_entries: ptr::null(),
    map_flags: ptr::null(),
};

/// Figures of exited tasks, by cgroup id. Not preallocated: that would cost every host memory for 16,384 entries of 1 KiB.
#[btf_map]
static EXITED: HashMap<u64, Exited, EXITED_CGROUPS, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The initial value of an entry in EXITED; never written.
#[btf_map]
static NO_EXITED: Array<Exited, 1> = Array::new();

/// The initial storage of a task that existed before us. Only the reader fills it, and one reader runs at a time.
#[btf_map]
static NEW_STORAGE: Array<TaskStorage, 1> = Array::new();

/// The task record of [`crate::reading`], which is too large for the stack.
#[btf_map]
static RECORD: Array<TaskRecord, 1> = Array::new();

#[btf_map]
static ACCOUNTS: Array<AccountsRecord, 1> = Array::new();

/// The kernel stack that [`crate::reading`] takes.
#[btf_map]
static STACK: Array<Stack, 1> = Array::new();

/// The kernel stack that the hook takes.
#[btf_map]
static STACK_KEY: PerCpuArray<StackKey, 1> = PerCpuArray::new();

/// Preallocated, because the hook fills it. The loader creates only one entry if stacks are not requested.
#[btf_map]
static STACKS: HashMap<StackKey, StackCount, PLACES_OF_STACKS, 0> = HashMap::new();

#[btf_map]
static SELECTED: HashMap<u64, u64, SELECTED_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Changes to the bits [`FOLLOWED`](cgscope_layout::wire::FOLLOWED) of all tasks. User space writes them, the reader applies
/// them.
#[btf_map]
static MARKS: Array<Marks, 1> = Array::new();

/// One history per CPU. The loader sets the number of entries to the number of possible CPUs.
#[btf_map]
static RINGS: Array<Ring, 1> = Array::new();

/// One table of culprits per CPU, sized as RINGS.
#[btf_map]
static PAIRS: Array<Pairs, 1> = Array::new();

/// The node of each CPU, sized as RINGS. User space writes it, also when a CPU comes online.
#[btf_map]
static CPU_NODE: Array<u32, 1> = Array::new();

/// Counters per CPU, sized as RINGS.
#[btf_map]
static CPUS: Array<CpuCounters, 1> = Array::new();

/// One table of clocks per CPU, sized as RINGS, if we keep these clocks.
#[btf_map]
static THROTTLE_CLOCKS: Array<ThrottleClocks, 1> = Array::new();

/// Working memory per CPU: [`Work::HOOK`] and [`Work::READER`].
#[btf_map]
static WORK: PerCpuArray<Work, 2> = PerCpuArray::new();

/// Events for created, removed and renamed cgroups. User space drains the buffer with each reading.
#[btf_map]
static CGROUP_EVENTS: RingBuf<CgroupEvent, CGROUP_EVENTS_BYTES> = RingBuf::new();

#[btf_map]
static CGROUP_EVENT: PerCpuArray<CgroupEvent, 1> = PerCpuArray::new();

/// The time (`rq->clock`, ns) up to which user space has read PAIRS; user space writes it.
#[btf_map]
static PAIRS_READ: Array<u64, 1> = Array::new();

/// How many more storages may be created (signed); user space writes it with each reading.
#[btf_map]
static ROOM: Array<u64, 1> = Array::new();

#[btf_map]
static LOSSES: PerCpuArray<u64, { KERNEL_LOSSES }> = PerCpuArray::new();

#[inline(always)]
fn storage_get(task: Task, initial: *mut c_void, flags: u64) -> Option<&'static mut TaskStorage> {
    // SAFETY: the map and the task are what the helper expects. The storage exists as long as the task, which outlives this
    // program run.
    unsafe {
        let map = (&raw const TASKS).cast_mut().cast::<c_void>();
        bpf_task_storage_get(map, task.pointer().cast(), initial, flags).cast::<TaskStorage>().as_mut()
    }
}

/// Returns the storage of a task, if the task is followed. Never creates one: before Linux 6.4 an allocation under the run queue
/// lock can deadlock (GFP_ATOMIC may wake kswapd).
#[inline(always)]
pub fn storage(task: Task) -> Option<&'static mut TaskStorage> {
    storage_get(task, ptr::null_mut(), 0)
}

/// Creates an empty storage for a new task. Call it only where allocating is allowed.
#[inline(always)]
pub fn create_storage(task: Task) -> Option<&'static mut TaskStorage> {
    if !is_room_left() {
        return None;
    }
    let storage = created(task, storage_get(task, ptr::null_mut(), BPF_LOCAL_STORAGE_GET_F_CREATE.into()))?;
    storage.start.ran_on = NO_CPU;
    Some(storage)
}

/// Creates a storage for a task that has already waited `run_delay_ns`. Only the reader calls this. The storage is filled before
/// it is created, because the hook may use it at once. If the task started after us (`ours`), the time counts as one wait.
#[inline(always)]
pub fn create_storage_at(task: Task, run_delay_ns: u64, ours: bool) -> Option<&'static mut TaskStorage> {
    if !is_room_left() {
        return None;
    }
    // SAFETY: a map value of ours, which only the one reader uses.
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
    let storage =
        created(task, storage_get(task, (&raw mut *initial).cast(), BPF_LOCAL_STORAGE_GET_F_CREATE.into()));
    set_new_count(bucket as u64, 0);
    storage
}

/// Sets the number of waits of one bucket in [`NEW_STORAGE`]. It takes only numbers and is exported, so that the verifier checks
/// it on its own. In its caller, Linux 6.1 would follow an impossible code path: a bucket first out of bounds, then within them.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn set_new_count(bucket: u64, to: u64) -> u32 {
    // SAFETY: a map value of ours, which only the one reader uses.
    let Some(initial) = NEW_STORAGE.get_ptr_mut(0).map(|initial| unsafe { &mut *initial }) else { return 0 };
    if let Some(count) = initial.histogram.counts.get_mut(opaque(bucket as usize)) {
        *count = to as u32;
    }
    0
}

#[inline(always)]
fn is_room_left() -> bool {
    let is_left = room::is_left();
    if !is_left {
        lost(Loss::NoRoomForTask);
    }
    is_left
}

#[inline(always)]
fn created(task: Task, storage: Option<&'static mut TaskStorage>) -> Option<&'static mut TaskStorage> {
    // Creation fails if another program creates the storage at the same moment: the reader may find a task before `on_new_task`
    // runs.
    match storage.or_else(|| self::storage(task)) {
        None => {
            lost(Loss::StorageNotCreated);
            None
        }
        Some(storage) => {
            if storage.serial == 0 {
                storage.serial = serial(task.tid(), task.start_ns());
                storage.told_serial = storage.serial;
                storage.cgroup_id = task.cgroup_id_rarely();
                make_place(storage.cgroup_id);
                room::take();
            }
            Some(storage)
        }
    }
}

#[inline(always)]
pub fn selected(key: u64) -> bool {
    SELECTED.get_ptr(key).is_some()
}

#[inline(always)]
fn bits_for(key: u64) -> u64 {
    // SAFETY: a map value.
    SELECTED.get_ptr(key).map_or(0, |bits| unsafe { *bits })
}

/// Changes the [`FOLLOWED`] bits of a task as user space requests in [`MARKS`].
#[inline(always)]
pub fn mark(task: Task, storage: &mut TaskStorage) {
    // SAFETY: a map value.
    let Some(marks) = MARKS.get_ptr(0).map(|marks| unsafe { *marks }) else { return };
    if marks.clear != 0 {
        storage.waits.flags &= !(marks.clear & FOLLOWED);
    }
    if marks.look != 0 {
        storage.waits.flags |= bits_for(SELECT_PROCESS | u64::from(task.tgid())) & FOLLOWED;
    }
}

/// Returns the entry of a cgroup in EXITED, if it has one. Never creates one, for the reason given at [`storage`].
#[inline(always)]
pub fn exited(cgroup_id: u64) -> Option<*mut Exited> {
    EXITED.get_ptr_mut(cgroup_id)
}

/// Creates the entry of a cgroup in EXITED. Call it only where allocating is allowed. If the map is full, the cgroup's exited
/// tasks count for another cgroup, and a loss is counted.
#[inline(always)]
pub fn make_place(cgroup_id: u64) {
    if exited(cgroup_id).is_some() {
        return;
    }
    let Some(empty) = NO_EXITED.get_ptr(0) else { return };
    // SAFETY: a map value that nobody writes. Passed by reference: a copy would not fit on the stack.
    let empty: &Exited = unsafe { &*empty };
    // This fails if another CPU has just created the entry.
    let _ = EXITED.insert(cgroup_id, empty, BPF_NOEXIST.into());
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($($key:ident)?) -> $value:ty = $map:ident;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name($($key: u32)?) -> Option<&'static mut $value> {
            // SAFETY: a map value that outlives this run. The comment of each function below says who accesses the value.
            $map.get_ptr_mut(0 $(+ $key)?).map(|value| unsafe { &mut *value })
        })*
    };
}

values! {
    /// How many more storages may be created. Read as one word; all programs change it by atomic additions.
    room() -> u64 = ROOM;
    /// Only the reader uses it, and one reader runs at a time. The same holds for the next two.
    record() -> TaskRecord = RECORD;
    accounts_record() -> AccountsRecord = ACCOUNTS;
    stack() -> Stack = STACK;
    /// One per CPU.
    stack_key() -> StackKey = STACK_KEY;
    /// Only the hook on that CPU writes it. The same holds for the next two.
    ring(cpu) -> Ring = RINGS;
    pairs(cpu) -> Pairs = PAIRS;
    cpu_counters(cpu) -> CpuCounters = CPUS;
    /// Used under the run queue lock of that CPU.
    throttle_clocks(cpu) -> ThrottleClocks = THROTTLE_CLOCKS;
    /// On each CPU one value for the hook and one for the reader.
    work(which) -> Work = WORK;
    /// Only one event at a time is written on the whole host: see [`crate::cgroups`].
    cgroup_event() -> CgroupEvent = CGROUP_EVENT;
}

/// Returns the count of a stack. It belongs to one task, and a task switches in on only one CPU at a time.
#[inline(always)]
pub fn stack_count(key: &StackKey) -> Option<&'static mut StackCount> {
    // SAFETY: a map value.
    STACKS.get_ptr_mut(key).map(|count| unsafe { &mut *count })
}

/// Adds a stack to the map; returns false if the map is full.
#[inline(always)]
pub fn add_stack(key: &StackKey, count: &StackCount) -> bool {
    STACKS.insert(key, count, BPF_NOEXIST.into()).is_ok()
}

/// Returns the index of a CPU's node plus one; 0: unknown.
#[inline(always)]
pub fn node_place(cpu: u32) -> u32 {
    CPU_NODE.get(cpu).copied().unwrap_or(0)
}

#[inline(always)]
pub fn cgroup_events() -> *mut c_void {
    (&raw const CGROUP_EVENTS).cast_mut().cast()
}

/// Copies a value with a helper: BPF's `memcpy` is slow, and the verifier would follow a copying loop word by word.
#[inline(always)]
pub fn copy<T>(from: &T, to: &mut T) {
    // SAFETY: both have the given size.
    unsafe {
        bpf_probe_read_kernel(ptr::from_mut(to).cast(), size_of::<T>() as u32, ptr::from_ref(from).cast())
    };
}

#[inline(always)]
pub fn pairs_read_ns() -> u64 {
    PAIRS_READ.get(0).copied().unwrap_or(0)
}

#[inline(always)]
pub fn lost(loss: Loss) {
    if let Some(count) = LOSSES.get_ptr_mut(loss as u32) {
        // SAFETY: a counter that belongs to this CPU alone.
        unsafe { *count += 1 };
    }
}
