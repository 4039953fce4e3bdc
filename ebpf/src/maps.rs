//! The maps.

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
    history::Ring,
    ledger::{NO_CPU, Pairs},
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
    look_back::Work,
    room,
};

/// Task storage, which aya-ebpf 0.2 does not have. The pointers stand for BTF and are never followed.
#[repr(C)]
struct TaskStorageMap {
    r#type: *const [i32; BPF_MAP_TYPE_TASK_STORAGE as usize],
    key: *const i32,
    value: *const TaskStorage,
    max_entries: *const [i32; 0],
    map_flags: *const [i32; BPF_F_NO_PREALLOC as usize],
}

// SAFETY: never read or written as memory; the kernel guards what is behind it.
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

/// By cgroup id. Not preallocated: every host would need memory for 16,384 places of 1 KiB.
#[btf_map]
static EXITED: HashMap<u64, Exited, EXITED_CGROUPS, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// The initial value of a place in EXITED; never written.
#[btf_map]
static NO_EXITED: Array<Exited, 1> = Array::new();

/// The initial storage of a task that existed before us. One reader at a time fills it.
#[btf_map]
static NEW_STORAGE: Array<TaskStorage, 1> = Array::new();

/// The record of `reading`, which is too large for the stack.
#[btf_map]
static RECORD: Array<TaskRecord, 1> = Array::new();

#[btf_map]
static ACCOUNTS: Array<AccountsRecord, 1> = Array::new();

/// The stack for `reading`.
#[btf_map]
static STACK: Array<Stack, 1> = Array::new();

/// The stack for the hook.
#[btf_map]
static STACK_KEY: PerCpuArray<StackKey, 1> = PerCpuArray::new();

/// Preallocated, as the hook fills it. The loader makes one place if stacks are not requested.
#[btf_map]
static STACKS: HashMap<StackKey, StackCount, PLACES_OF_STACKS, 0> = HashMap::new();

#[btf_map]
static SELECTED: HashMap<u64, u64, SELECTED_MAX, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Changes to [`FOLLOWED`](cgscope_layout::wire::FOLLOWED) that the reader makes; user space writes them.
#[btf_map]
static MARKS: Array<Marks, 1> = Array::new();

/// By CPU. The loader sets the number of places to that of possible CPUs.
#[btf_map]
static RINGS: Array<Ring, 1> = Array::new();

/// By CPU, as RINGS.
#[btf_map]
static PAIRS: Array<Pairs, 1> = Array::new();

/// By CPU, as RINGS. User space writes it, also when a CPU comes online.
#[btf_map]
static CPU_NODE: Array<u32, 1> = Array::new();

/// By CPU, as RINGS.
#[btf_map]
static CPUS: Array<CpuCounters, 1> = Array::new();

/// By CPU, as RINGS, if we keep these clocks.
#[btf_map]
static THROTTLE_CLOCKS: Array<ThrottleClocks, 1> = Array::new();

/// [`Work::HOOK`] and [`Work::READER`].
#[btf_map]
static WORK: PerCpuArray<Work, 2> = PerCpuArray::new();

/// Made and removed cgroups. User space drains it with each reading.
#[btf_map]
static CGROUP_EVENTS: RingBuf<CgroupEvent, CGROUP_EVENTS_BYTES> = RingBuf::new();

#[btf_map]
static CGROUP_EVENT: PerCpuArray<CgroupEvent, 1> = PerCpuArray::new();

/// Until when (`rq->clock`, ns) user space has read PAIRS; user space writes it.
#[btf_map]
static PAIRS_READ: Array<u64, 1> = Array::new();

/// How many more storages may be made (signed); user space writes it with each reading.
#[btf_map]
static ROOM: Array<u64, 1> = Array::new();

#[btf_map]
static LOSSES: PerCpuArray<u64, { KERNEL_LOSSES }> = PerCpuArray::new();

#[inline(always)]
fn storage_get(task: Task, initial: *mut c_void, flags: u64) -> Option<&'static mut TaskStorage> {
    // SAFETY: the map and the task are what the helper expects; the storage exists as long as the task, which outlives this run.
    unsafe {
        let map = (&raw const TASKS).cast_mut().cast::<c_void>();
        bpf_task_storage_get(map, task.pointer().cast(), initial, flags).cast::<TaskStorage>().as_mut()
    }
}

/// The storage of a task, if it is followed. Never creates one: an allocation under the run queue lock can deadlock before Linux 6.4
/// (GFP_ATOMIC may wake kswapd).
#[inline(always)]
pub fn storage(task: Task) -> Option<&'static mut TaskStorage> {
    storage_get(task, ptr::null_mut(), 0)
}

/// Creates an empty storage for a new task. Only where allocating is allowed.
#[inline(always)]
pub fn create_storage(task: Task) -> Option<&'static mut TaskStorage> {
    if !is_room_left() {
        return None;
    }
    let storage = created(task, storage_get(task, ptr::null_mut(), BPF_LOCAL_STORAGE_GET_F_CREATE.into()))?;
    storage.left.cpu = NO_CPU;
    Some(storage)
}

/// Creates a storage for a task that has already waited `run_delay_ns`. It must be complete when the hook first sees it, so it is
/// filled first. With `ours` that time counts as one wait: the task started after us. Only the reader calls this.
#[inline(always)]
pub fn create_storage_at(task: Task, run_delay_ns: u64, ours: bool) -> Option<&'static mut TaskStorage> {
    if !is_room_left() {
        return None;
    }
    // SAFETY: a map value of ours; the reader is alone.
    let initial = unsafe { &mut *NEW_STORAGE.get_ptr_mut(0)? };
    initial.waits.expected_run_delay_ns = run_delay_ns;
    let bucket = bucket_of(run_delay_ns);
    let waits = u64::from(ours && run_delay_ns != 0);
    let waited_ns = waits * run_delay_ns;
    (initial.waits.total_ns, initial.waits.max_ns) = (waited_ns, waited_ns);
    initial.waits.count = waits;
    initial.by_cause[Cause::Unattributed as usize] = waited_ns;
    set_new_count(bucket as u64, waits);
    initial.left.cpu = task.run_queue().cpu();
    initial.left.migrations = task.migrations();
    if keeps_accounts() {
        accounts::was_blocked(task, &mut initial.blocked);
    }
    if has_nodes() {
        initial.placement.place = node_place(initial.left.cpu);
        initial.placement.since_ran_ns = task.ran_ns();
    }
    let storage =
        created(task, storage_get(task, (&raw mut *initial).cast(), BPF_LOCAL_STORAGE_GET_F_CREATE.into()));
    set_new_count(bucket as u64, 0);
    storage
}

/// Sets the waits of a bucket in [`NEW_STORAGE`]. Takes only numbers and is exported, so that it is verified by itself: in its caller
/// Linux 6.1 follows a code path on which the bucket is within the bounds after it was not.
#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn set_new_count(bucket: u64, to: u64) -> u32 {
    // SAFETY: a map value of ours; the reader is alone.
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
    // The kernel fails if another program creates it at the same moment: the reader may find a task before `on_new_task` runs.
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

/// Changes the bits of a task as user space requests for all tasks.
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

/// The place of a cgroup in EXITED, if it has one. Never makes one: see [`storage`].
#[inline(always)]
pub fn exited(cgroup_id: u64) -> Option<*mut Exited> {
    EXITED.get_ptr_mut(cgroup_id)
}

/// Makes a place for a cgroup. Only where allocating is allowed. Without room its exited tasks count elsewhere, which is counted.
#[inline(always)]
pub fn make_place(cgroup_id: u64) {
    if exited(cgroup_id).is_some() {
        return;
    }
    let Some(empty) = NO_EXITED.get_ptr(0) else { return };
    // SAFETY: a map value that nobody writes. By reference all the way: a copy would not fit on the stack.
    let empty: &Exited = unsafe { &*empty };
    // It fails if another CPU has just made it.
    let _ = EXITED.insert(cgroup_id, empty, BPF_NOEXIST.into());
}

macro_rules! values {
    ($($(#[$doc:meta])* $name:ident($($key:ident)?) -> $value:ty = $map:ident;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name($($key: u32)?) -> Option<&'static mut $value> {
            // SAFETY: a map value that outlives this run. Each function below says why it is alone, or which words others read.
            $map.get_ptr_mut(0 $(+ $key)?).map(|value| unsafe { &mut *value })
        })*
    };
}

values! {
    /// How many more storages may be made. Read whole, written by atomic additions.
    room() -> u64 = ROOM;
    /// One reader at a time, also for the next two.
    record() -> TaskRecord = RECORD;
    accounts_record() -> AccountsRecord = ACCOUNTS;
    stack() -> Stack = STACK;
    /// One per CPU.
    stack_key() -> StackKey = STACK_KEY;
    /// Only the hook on that CPU writes it, also the next two.
    ring(cpu) -> Ring = RINGS;
    pairs(cpu) -> Pairs = PAIRS;
    cpu_counters(cpu) -> CpuCounters = CPUS;
    /// Used under the run queue lock of that CPU.
    throttle_clocks(cpu) -> ThrottleClocks = THROTTLE_CLOCKS;
    /// One per CPU for the hook, one for the reader.
    work(which) -> Work = WORK;
    /// One event at a time on the whole host: see `cgroups`.
    cgroup_event() -> CgroupEvent = CGROUP_EVENT;
}

/// The count of a stack. It belongs to one task, which switches in on one CPU at a time.
#[inline(always)]
pub fn stack_count(key: &StackKey) -> Option<&'static mut StackCount> {
    // SAFETY: a map value.
    STACKS.get_ptr_mut(key).map(|count| unsafe { &mut *count })
}

/// Begins to count a stack; false without room.
#[inline(always)]
pub fn add_stack(key: &StackKey, count: &StackCount) -> bool {
    STACKS.insert(key, count, BPF_NOEXIST.into()).is_ok()
}

/// The place of a CPU's node plus one; 0: not known.
#[inline(always)]
pub fn node_place(cpu: u32) -> u32 {
    CPU_NODE.get(cpu).copied().unwrap_or(0)
}

#[inline(always)]
pub fn cgroup_events() -> *mut c_void {
    (&raw const CGROUP_EVENTS).cast_mut().cast()
}

/// Copies with a helper: BPF's `memcpy` is slow, and the verifier follows a loop word by word.
#[inline(always)]
pub fn copy<T>(from: &T, to: &mut T) {
    // SAFETY: both are as large as said.
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
        // SAFETY: this CPU's own counter.
        unsafe { *count += 1 };
    }
}
