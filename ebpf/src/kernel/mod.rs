//! All reads of kernel memory. They are plain loads through BTF pointers, at offsets that the verifier knows as constants.
//!
//! A load through a null or stale pointer yields 0 (`PROBE_MEM`), so chains of pointers need no checks.

use core::{
    ffi::c_void,
    ptr::{self, addr_of, read_volatile},
};

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_seq_write};
use cgscope_layout::{
    ABSENT, BIT_SHIFT, Offsets,
    verifier::set,
    wire::{Accounts, Config, ExitedThreads, Face, TaskStorage, Totals, Waits},
};

/// Offsets that user space sets before loading. Reads are volatile: the compiler would otherwise use the values given here.
#[unsafe(no_mangle)]
static OFFSETS: Offsets = Offsets::UNKNOWN;

#[unsafe(no_mangle)]
static CONFIG: Config = Config {
    follow_all: 0,
    born_after_ns: 0,
    cgroup_v2: 0,
    root_cgroup_id: 0,
    select_born_before_ns: 0,
    blame_tasks: 0,
    cgroup_hierarchy: u64::MAX,
    nodes: 0,
    count_by_cpu: 0,
    keep_throttle_clock: 0,
    accounts: 0,
    stack_every_ns: 0,
    shared: 0,
    cpus: 0,
};

/// The lowest `prio` of fair tasks; real-time and deadline tasks have a smaller one (MAX_RT_PRIO, in all versions).
const FIRST_FAIR_PRIO: i32 = 100;

/// Reads the offset of a field, which is a constant to the verifier.
macro_rules! offset {
    ($field:ident) => {
        // SAFETY: a static of ours.
        unsafe { read_volatile(addr_of!(OFFSETS.$field)) }
    };
}

mod iterator;
mod moment;
mod queue;

pub use iterator::{EntryContext, TaskContext};
pub use queue::{
    CfsRunQueue, Cgroup, RunQueue, Throttled, cgroup_above, cgroup_id_at, is_alone,
    kernels_throttled_ns_at_0, levels_out_of_quota_at,
};

/// Reads a setting, which is a constant to the verifier.
macro_rules! setting {
    ($field:ident) => {
        // SAFETY: a static of ours.
        unsafe { read_volatile(addr_of!(CONFIG.$field)) }
    };
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident() -> $type:ty { $value:expr })*) => {
        $($(#[$doc])* #[inline(always)] pub fn $name() -> $type { $value })*
    };
}

settings! {
    follow_all() -> bool { setting!(follow_all) != 0 }
    /// Culprits are single tasks, not only cgroups.
    blame_tasks() -> bool { setting!(blame_tasks) != 0 }
    has_nodes() -> bool { setting!(nodes) > 1 }
    counts_by_cpu() -> bool { setting!(count_by_cpu) != 0 }
    /// We keep a clock of throttled time, because the kernel has none.
    keeps_throttle_clock() -> bool { setting!(keep_throttle_clock) != 0 }
    /// Time blocked, and time in user space and in the kernel, are counted, too.
    keeps_accounts() -> bool { setting!(accounts) != 0 }
    /// The readings serve viewers of several users.
    is_shared() -> bool { setting!(shared) != 0 }
    /// The hook may create storages: the kernel takes them from caches, and no figure of a sleeping task changes.
    hook_allocates() -> bool { offset!(storage_cache) != ABSENT && !keeps_accounts() }
    /// A stack is taken each time a task has been blocked for this long, ns; 0: never.
    stack_every_ns() -> u64 { setting!(stack_every_ns) }
    /// This kernel throttles tasks one by one, when they return to user space, and marks each of them (Linux 6.18).
    throttles_tasks() -> bool { offset!(task_throttled) != ABSENT }
    /// All waits of a task that started later than this are counted. ns of CLOCK_MONOTONIC.
    born_after_ns() -> u64 { setting!(born_after_ns) }
    /// Tasks that started later than this are not selected by their ids. ns of CLOCK_MONOTONIC.
    select_born_before_ns() -> u64 { setting!(select_born_before_ns) }
    /// The id of the root cgroup, in the hierarchy that user space chose.
    root_cgroup_id() -> u64 { setting!(root_cgroup_id) }
    cgroup_hierarchy() -> u64 { setting!(cgroup_hierarchy) }
    /// The place of the reader's own list of changed tasks: the one after those of all possible CPUs.
    readers_list() -> u32 { setting!(cpus) as u32 }
}

#[inline(always)]
fn load<T: Copy + Default>(base: *const c_void, offset: u32) -> T {
    if offset == ABSENT {
        return T::default();
    }
    // SAFETY: the verifier accepts the load only at an offset that BTF has for this type, and the kernel turns a fault into 0.
    unsafe { base.cast::<u8>().add(offset as usize).cast::<T>().read_volatile() }
}

#[inline(always)]
fn follow(base: *const c_void, offset: u32) -> *const c_void {
    if offset == ABSENT {
        return ptr::null();
    }
    // SAFETY: as in `load`.
    unsafe { base.cast::<u8>().add(offset as usize).cast::<*const c_void>().read_volatile() }
}

/// Reads the word at `address + offset` with a helper; 0 if the kernel has no such field or cannot read it. For rare code paths
/// only. At each load of a typed pointer the verifier searches all type names of the kernel twice (`btf_nested_type_is_trusted`,
/// Linux 6.2 to 7.3). That takes longer than the rest of the verification; this helper avoids it.
#[inline(always)]
fn peek(address: u64, offset: u32) -> u64 {
    let mut value = 0u64;
    if offset != ABSENT {
        let from = address.wrapping_add(u64::from(offset)) as *const c_void;
        // SAFETY: writes 8 bytes of ours; the helper checks the address that it reads from.
        unsafe { bpf_probe_read_kernel((&raw mut value).cast(), 8, from) };
    }
    value
}

/// Address of the cgroup of the task at this address, in the hierarchy that user space chose; 0 for a task in an autogroup.
#[inline(always)]
pub fn cgroup_of(task: u64) -> u64 {
    if setting!(cgroup_v2) != 0 {
        peek(peek(task, offset!(task_cgroups)), offset!(css_set_cgroup))
    } else {
        peek(peek(task, offset!(task_sched_group)), offset!(task_group_cgroup))
    }
}

/// A `struct task_struct *` that the verifier trusts.
#[derive(Clone, Copy)]
pub struct Task(*const c_void);

impl Task {
    #[inline(always)]
    pub fn new(pointer: *const c_void) -> Self {
        Self(pointer)
    }

    #[inline(always)]
    pub fn pointer(self) -> *mut c_void {
        self.0.cast_mut()
    }

    /// Thread id; 0 for the idle task of every CPU.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        load(self.0, offset!(task_pid))
    }

    #[inline(always)]
    pub fn tgid(self) -> u32 {
        load(self.0, offset!(task_tgid))
    }

    #[inline(always)]
    pub fn comm(self) -> [u8; 16] {
        let at = offset!(task_comm);
        let mut words = [0u64; 2];
        words[0] = load(self.0, at);
        words[1] = load(self.0, at + 8);
        // SAFETY: both types have the same size, and any bits are valid.
        unsafe { core::mem::transmute(words) }
    }

    #[inline(always)]
    pub fn start_ns(self) -> u64 {
        load(self.0, offset!(task_start_time))
    }

    #[inline(always)]
    pub fn state(self) -> u32 {
        load(self.0, offset!(task_state))
    }

    /// PF_KTHREAD (0x200000 in all versions). Kernel threads that work for a process (io_uring, vhost) lack it: they count for
    /// its cgroup.
    #[inline(always)]
    pub fn is_kernel_thread(self) -> bool {
        load::<u32>(self.0, offset!(task_flags)) & 0x20_0000 != 0
    }

    /// PF_EXITING (0x4 in all versions), set early in `do_exit`.
    #[inline(always)]
    pub fn is_exiting(self) -> bool {
        load::<u32>(self.0, offset!(task_flags)) & 4 != 0
    }

    /// Whether it is on a CPU. One byte since Linux 7.2, before that an `int` of the same value, so the lowest byte is enough.
    #[inline(always)]
    pub fn on_cpu(self) -> bool {
        load::<u8>(self.0, offset!(task_on_cpu)) != 0
    }

    /// Whether it is on a run queue. The lowest byte is enough, as for [`Self::on_cpu`].
    #[inline(always)]
    pub fn on_rq(self) -> bool {
        load::<u8>(self.0, offset!(task_on_rq)) != 0
    }

    /// Whether it runs, or waits to run, or is about to stop. A task that sleeps can be on a queue, too: see
    /// [`Self::sleeps_on_queue`].
    #[inline(always)]
    pub fn is_active(self) -> bool {
        self.on_cpu() || self.on_rq()
    }

    /// Whether it is being moved from one run queue to another (TASK_ON_RQ_MIGRATING, 2 in all versions).
    #[inline(always)]
    pub fn moves(self) -> bool {
        load::<u8>(self.0, offset!(task_on_rq)) == 2
    }

    /// Whether it sleeps although it is still on its queue; false if the kernel has no such field.
    #[inline(always)]
    pub fn sleeps_on_queue(self) -> bool {
        load::<u8>(self.0, offset!(task_delayed)) != 0
    }

    #[inline(always)]
    pub fn run_delay_ns(self) -> u64 {
        load(self.0, offset!(task_run_delay))
    }

    #[inline(always)]
    pub fn last_queued_ns(self) -> u64 {
        load(self.0, offset!(task_last_queued))
    }

    /// When it last switched in, ns of `rq->clock`; 0 for the idle task.
    #[inline(always)]
    pub fn last_arrival_ns(self) -> u64 {
        load(self.0, offset!(task_last_arrival))
    }

    /// The time up to which its run time is counted, ns of `rq->clock_task`. A task on a CPU: when it was switched in, or the last
    /// tick if that is later. Other tasks: when they were last switched out.
    #[inline(always)]
    pub fn counted_until_ns(self) -> u64 {
        load(self.0, offset!(task_counted_until))
    }

    /// Its effective priority: a smaller value is a higher priority; below 0 for a deadline task.
    #[inline(always)]
    pub fn prio(self) -> i32 {
        load(self.0, offset!(task_prio))
    }

    /// Whether it is a real-time or deadline task: quotas do not apply to it, but a runtime may.
    #[inline(always)]
    pub fn is_real_time(self) -> bool {
        self.prio() < FIRST_FAIR_PRIO
    }

    /// Whether it is a deadline task.
    #[inline(always)]
    pub fn is_deadline(self) -> bool {
        self.prio() < 0
    }

    /// Whether an exhausted quota took it off its CPU; false if the kernel has no such field.
    #[inline(always)]
    pub fn is_throttled(self) -> bool {
        load::<u8>(self.0, offset!(task_throttled)) != 0
    }

    /// Whether it waits for a device, is about to, or was woken from that and has not run since; false if the kernel has no such
    /// field.
    #[inline(always)]
    pub fn in_iowait(self) -> bool {
        self.has_bit(offset!(task_in_iowait))
    }

    /// Whether it last blocked uninterruptibly, except as a kernel thread without work; false if the kernel has no such field.
    #[inline(always)]
    pub fn contributes_to_load(self) -> bool {
        self.has_bit(offset!(task_contributes_to_load))
    }

    #[inline(always)]
    fn has_bit(self, at: u32) -> bool {
        at != ABSENT && load::<u8>(self.0, at & ((1 << BIT_SHIFT) - 1)) & (1 << (at >> BIT_SHIFT)) != 0
    }

    /// Its time as the kernel counts it by ticks; time blocked is left at 0.
    #[inline(always)]
    pub fn accounts(self) -> Accounts {
        Accounts {
            user_ns: load(self.0, offset!(task_utime)),
            system_ns: load(self.0, offset!(task_stime)),
            guest_ns: load(self.0, offset!(task_gtime)),
            ..Accounts::NONE
        }
    }

    /// Sums over the exited threads of its process.
    #[inline(always)]
    pub fn exited_threads(self) -> ExitedThreads {
        let signal = follow(self.0, offset!(task_signal));
        ExitedThreads {
            user_ns: load(signal, offset!(signal_utime)),
            system_ns: load(signal, offset!(signal_stime)),
            guest_ns: load(signal, offset!(signal_gtime)),
            on_cpu_ns: load(signal, offset!(signal_ran_ns)),
            voluntary: load(signal, offset!(signal_nvcsw)),
            involuntary: load(signal, offset!(signal_nivcsw)),
        }
    }

    /// Its time on CPUs so far, ns; up to date when the task has just switched in.
    #[inline(always)]
    pub fn ran_ns(self) -> u64 {
        load(self.0, offset!(task_run_ns))
    }

    /// The node that the kernel's NUMA balancing prefers; -1: none.
    #[inline(always)]
    pub fn preferred_node(self) -> i32 {
        if offset!(task_preferred_node) == ABSENT { -1 } else { load(self.0, offset!(task_preferred_node)) }
    }

    /// What shows that it is not the same as before, although it slept.
    #[inline(always)]
    pub fn face(self) -> Face {
        let at = offset!(task_comm);
        let group = if setting!(cgroup_v2) != 0 { offset!(task_cgroups) } else { offset!(task_sched_group) };
        Face {
            comm: [load(self.0, at), load(self.0, at + 8)],
            group: load(self.0, group),
            state: u64::from(self.state()),
        }
    }

    /// Address of its task group, only to compare with others, never to read from.
    #[inline(always)]
    pub fn group_address(self) -> u64 {
        load(self.0, offset!(task_sched_group))
    }

    /// The queue of its group on its CPU. The kernel sets it for tasks of every scheduling class.
    #[inline(always)]
    pub fn cfs_rq(self) -> CfsRunQueue {
        CfsRunQueue(follow(self.0, offset!(task_cfs_rq)))
    }

    /// The run queue that it is on, or was on last.
    #[inline(always)]
    pub fn run_queue(self) -> RunQueue {
        self.cfs_rq().run_queue()
    }

    /// Its cgroup in the hierarchy that user space chose; the root for a task in an autogroup.
    #[inline(always)]
    pub fn cgroup_id(self) -> u64 {
        let cgroup = if setting!(cgroup_v2) != 0 {
            follow(follow(self.0, offset!(task_cgroups)), offset!(css_set_cgroup))
        } else {
            follow(follow(self.0, offset!(task_sched_group)), offset!(task_group_cgroup))
        };
        match load(follow(cgroup, offset!(cgroup_kn)), offset!(kernfs_id)) {
            0 => root_cgroup_id(),
            id => id,
        }
    }

    /// Does the same as [`Self::cgroup_id`], for rare code paths: see [`peek`].
    #[inline(never)]
    pub fn cgroup_id_rarely(self) -> u64 {
        cgroup_id_at(cgroup_of(self.0 as u64))
    }

    /// Number of times that it switched out, including the switch that the hook handles.
    #[inline(always)]
    pub fn switches(self) -> u64 {
        let voluntary: u64 = load(self.0, offset!(task_nvcsw));
        voluntary.wrapping_add(load(self.0, offset!(task_nivcsw)))
    }

    /// The readings that the kernel keeps; those that the hook keeps are left at 0.
    #[inline(always)]
    pub fn totals(self) -> Totals {
        Totals {
            run_delay_ns: self.run_delay_ns(),
            on_cpu_ns: self.ran_ns(),
            voluntary: load(self.0, offset!(task_nvcsw)),
            involuntary: load(self.0, offset!(task_nivcsw)),
            migrations: load(self.0, offset!(task_migrations)),
            ..Totals::default()
        }
    }

    /// The readings of the kernel and of the hook. `waits`: the caller's copy of the storage's `waits`.
    #[inline(always)]
    pub fn all_totals(self, waits: &Waits, storage: &TaskStorage) -> Totals {
        let mut totals = Totals::NONE;
        self.put_totals(waits, storage, &mut totals);
        totals
    }

    /// The same, written to a map value word by word: a copy on the stack would be too large there.
    #[inline(always)]
    pub fn put_totals(self, waits: &Waits, storage: &TaskStorage, into: &mut Totals) {
        let Totals { run_delay_ns, on_cpu_ns, voluntary, involuntary, migrations, .. } = self.totals();
        set(&mut into.waits, waits.count);
        set(&mut into.wait_ns, waits.total_ns);
        set(&mut into.run_delay_ns, run_delay_ns);
        set(&mut into.unstamped, waits.unstamped_count);
        set(&mut into.unstamped_ns, waits.unstamped_ns);
        set(&mut into.on_cpu_ns, on_cpu_ns);
        set(&mut into.voluntary, voluntary);
        set(&mut into.involuntary, involuntary);
        set(&mut into.migrations, migrations);
        set(&mut into.throttled_waits, storage.throttled_waits);
        for (into, ns) in into.by_cause.iter_mut().zip(&storage.by_cause) {
            set(into, *ns);
        }
    }
}

/// A `struct seq_file *`, to which an iterator writes.
#[derive(Clone, Copy)]
pub struct SeqFile(*mut c_void);

impl SeqFile {
    #[inline(always)]
    pub fn new(pointer: *mut c_void) -> Self {
        Self(pointer)
    }

    /// Writes a map value. If it does not fit, the kernel repeats the task.
    #[inline(always)]
    pub fn write<T>(self, value: &mut T) {
        // SAFETY: readable in its size. The helper writes all of it or nothing.
        unsafe { bpf_seq_write(self.0.cast(), ptr::from_mut(value).cast(), size_of::<T>() as u32) };
    }

    #[inline(always)]
    pub fn pointer(self) -> *mut c_void {
        self.0
    }

    /// Bytes that still fit before the kernel passes the buffer to user space.
    #[inline(always)]
    pub fn space_left(self) -> u64 {
        load::<u64>(self.0, offset!(seq_size)).wrapping_sub(load::<u64>(self.0, offset!(seq_count)))
    }
}
