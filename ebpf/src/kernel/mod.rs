//! All reads of kernel memory. They are plain loads through BTF pointers, at offsets that are constants for the verifier.
//!
//! A load through a null pointer or a stale pointer returns 0 (`PROBE_MEM`), so chains of pointers need no checks.

use core::{
    ffi::c_void,
    ptr::{self, addr_of, read_volatile},
};

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_seq_write};
use cgscope_ledger::{
    ABSENT, BIT_SHIFT, Offsets,
    verifier::set,
    wire::{Accounts, Config, ExitedThreads, Face, TaskStorage, Totals, Waits},
};

/// The offsets, which user space sets before it loads the programs. All reads are volatile, because otherwise the compiler would
/// use the initial values below.
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
    demand: 0,
};

/// The lowest `prio` of fair tasks. Real-time and deadline tasks have a lower `prio` (MAX_RT_PRIO, the same in all versions).
const FIRST_FAIR_PRIO: i32 = 100;

/// Loads a field of the structure at `$base`: Usage: `field!(base, name)` or `field!(base, name: type)`. The result is 0 if the
/// kernel lacks the field.
macro_rules! field {
    ($base:expr, $field:ident) => {
        field!($base, $field: _)
    };
    ($base:expr, $field:ident: $type:ty) => {
        $crate::kernel::load::load::<$type, { cgscope_ledger::fields::field(core::mem::offset_of!(cgscope_ledger::Offsets, $field)) }>($base)
    };
}

macro_rules! has_field {
    ($field:ident) => {
        load::patched::<{ cgscope_ledger::fields::presence(core::mem::offset_of!(Offsets, $field)) }>() != 0
    };
}

/// Returns the offset of a field. For code that need not be fast.
macro_rules! offset {
    ($field:ident) => {
        // SAFETY: our own static.
        unsafe { read_volatile(addr_of!(OFFSETS.$field)) }
    };
}

mod iterator;
mod load;
mod moment;
mod queue;

pub use iterator::{EntryContext, TaskContext};
pub use queue::{
    CfsRunQueue, Cgroup, RunQueue, Throttled, cgroup_above, cgroup_id_at, is_alone,
    kernels_throttled_ns_at_0, left_throttled_ns, levels_out_of_quota_at,
};

/// Reads a setting of less than 2^31.
macro_rules! small_setting {
    ($field:ident) => {
        load::patched::<{ cgscope_ledger::fields::setting(core::mem::offset_of!(Config, $field)) }>()
    };
}

/// Reads a setting, which the verifier knows as a constant.
macro_rules! setting {
    ($field:ident) => {
        // SAFETY: our own static.
        unsafe { read_volatile(addr_of!(CONFIG.$field)) }
    };
}

macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident() -> $type:ty { $value:expr })*) => {
        $($(#[$doc])* #[inline(always)] pub fn $name() -> $type { $value })*
    };
}

settings! {
    follow_all() -> bool { small_setting!(follow_all) != 0 }
    /// Whether culprits are single tasks and not only cgroups.
    blame_tasks() -> bool { small_setting!(blame_tasks) != 0 }
    has_nodes() -> bool { small_setting!(nodes) > 1 }
    counts_by_cpu() -> bool { small_setting!(count_by_cpu) != 0 }
    /// Whether cgscope keeps a clock of throttled time, because the kernel has none.
    keeps_throttle_clock() -> bool { small_setting!(keep_throttle_clock) != 0 }
    /// Whether to count blocked time, user time and kernel time.
    keeps_accounts() -> bool { small_setting!(accounts) != 0 }
    /// Whether to count the demand of cgroups with a quota.
    counts_demand() -> bool { small_setting!(demand) != 0 }
    /// Whether several viewers share the readings.
    is_shared() -> bool { small_setting!(shared) != 0 }
    /// Whether the hook may create storage: the kernel must have a cache for it, and no figure of a sleeping task may change.
    hook_allocates() -> bool { has_field!(storage_cache) && !keeps_accounts() }
    /// Blocked time after which the stack of a task is walked, ns; 0: stacks are never walked.
    stack_every_ns() -> u64 { setting!(stack_every_ns) }
    /// Whether the kernel throttles each task separately when it returns to user space, and marks the task (Linux 6.18).
    throttles_tasks() -> bool { has_field!(task_throttled) }
    /// If a task starts after this time, all of its waits are counted, ns of CLOCK_MONOTONIC.
    born_after_ns() -> u64 { setting!(born_after_ns) }
    /// If a task starts after this time, it is not selected by its id, ns of CLOCK_MONOTONIC.
    select_born_before_ns() -> u64 { setting!(select_born_before_ns) }
    /// Whether user space has chosen the default hierarchy (v2).
    is_v2() -> bool { small_setting!(cgroup_v2) != 0 }
    /// Id of the root cgroup in the chosen hierarchy.
    root_cgroup_id() -> u64 { setting!(root_cgroup_id) }
    cgroup_hierarchy() -> u64 { setting!(cgroup_hierarchy) }
    /// Index of the reader's own list of changed tasks. It follows the lists of all possible CPUs.
    readers_list() -> u32 { small_setting!(cpus) as u32 }
}

#[inline(always)]
fn load_at<T: Copy>(base: *const c_void, offset: u32) -> T {
    // SAFETY: the verifier accepts this load only at an offset where BTF has this type, and the kernel returns 0 after a fault.
    unsafe { base.cast::<u8>().add(offset as usize).cast::<T>().read_volatile() }
}

/// Reads the word at `address + offset` with a helper. Returns 0 if the kernel lacks the field or cannot read the word. Use this
/// function only on rare code paths. It avoids loads of typed pointers. At each such load, the verifier searches all type names
/// of the kernel twice (`btf_nested_type_is_trusted`, Linux 6.2 to 7.3). These searches would take longer than the rest of the
/// verification.
#[inline(always)]
fn peek(address: u64, offset: u32) -> u64 {
    let mut value = 0u64;
    if offset != ABSENT {
        let from = address.wrapping_add(u64::from(offset)) as *const c_void;
        // SAFETY: the helper writes 8 bytes of `value`, and checks the address that it reads from.
        unsafe { bpf_probe_read_kernel((&raw mut value).cast(), 8, from) };
    }
    value
}

/// Returns the address of the cgroup of a task, in the chosen hierarchy; 0 for an autogroup. `task` is the address of the task.
#[inline(always)]
pub fn cgroup_of(task: u64) -> u64 {
    if is_v2() {
        peek(peek(task, offset!(task_cgroups)), offset!(css_set_cgroup))
    } else {
        peek(peek(task, offset!(task_sched_group)), offset!(task_group_cgroup))
    }
}

/// Returns the address of the cgroup that owns the queue of a task. `task` is the address of the task.
#[inline(always)]
pub fn cgroup_of_queue(task: u64) -> u64 {
    peek(peek(peek(task, offset!(task_cfs_rq)), offset!(cfs_rq_group)), offset!(task_group_cgroup))
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

    /// Returns the thread id; 0 for the idle task of every CPU.
    #[inline(always)]
    pub fn tid(self) -> u32 {
        field!(self.0, task_pid)
    }

    #[inline(always)]
    pub fn tgid(self) -> u32 {
        field!(self.0, task_tgid)
    }

    #[inline(always)]
    pub fn comm(self) -> [u8; 16] {
        let at = offset!(task_comm);
        let mut words = [0u64; 2];
        words[0] = load_at(self.0, at);
        words[1] = load_at(self.0, at + 8);
        // SAFETY: both types have the same size, and every bit pattern is valid.
        unsafe { core::mem::transmute(words) }
    }

    #[inline(always)]
    pub fn start_ns(self) -> u64 {
        field!(self.0, task_start_time)
    }

    #[inline(always)]
    pub fn state(self) -> u32 {
        field!(self.0, task_state)
    }

    /// Returns whether PF_KTHREAD is set (0x200000 in all versions). Kernel threads that work for a process (io_uring, vhost) do
    /// not have this flag. They count for the cgroup of that process.
    #[inline(always)]
    pub fn is_kernel_thread(self) -> bool {
        field!(self.0, task_flags: u32) & 0x20_0000 != 0
    }

    /// Returns whether PF_EXITING is set (0x4 in all versions). `do_exit` sets this flag early.
    #[inline(always)]
    pub fn is_exiting(self) -> bool {
        field!(self.0, task_flags: u32) & 4 != 0
    }

    /// Returns whether the task is on a CPU. Only the lowest byte is read, because the field is an `int` before Linux 7.2 and one
    /// byte since then.
    #[inline(always)]
    pub fn on_cpu(self) -> bool {
        field!(self.0, task_on_cpu: u8) != 0
    }

    /// Returns whether the task is on a run queue. Only the lowest byte is read, as in [`Self::on_cpu`].
    #[inline(always)]
    pub fn on_rq(self) -> bool {
        field!(self.0, task_on_rq: u8) != 0
    }

    /// Returns whether the task runs, waits to run, or is about to leave its CPU. This includes a task that [sleeps on a
    /// queue](Self::sleeps_on_queue).
    #[inline(always)]
    pub fn is_active(self) -> bool {
        self.on_cpu() || self.on_rq()
    }

    /// Returns whether the task is being moved to another run queue (TASK_ON_RQ_MIGRATING, 2 in all versions).
    #[inline(always)]
    pub fn moves(self) -> bool {
        field!(self.0, task_on_rq: u8) == 2
    }

    /// Returns whether the task sleeps although it is still on its queue. Returns false if the kernel lacks the field.
    #[inline(always)]
    pub fn sleeps_on_queue(self) -> bool {
        field!(self.0, task_delayed: u8) != 0
    }

    #[inline(always)]
    pub fn run_delay_ns(self) -> u64 {
        field!(self.0, task_run_delay)
    }

    #[inline(always)]
    pub fn last_queued_ns(self) -> u64 {
        field!(self.0, task_last_queued)
    }

    /// Returns when the task last switched in, ns of `rq->clock`; 0 for the idle task.
    #[inline(always)]
    pub fn last_arrival_ns(self) -> u64 {
        field!(self.0, task_last_arrival)
    }

    /// Returns the time up to which the task's run time is counted, ns of `rq->clock_task`. For a task on a CPU, this is the time
    /// of the switch in or of the last tick, whichever is later. For other tasks, this is the time of the last switch out.
    #[inline(always)]
    pub fn counted_until_ns(self) -> u64 {
        field!(self.0, task_counted_until)
    }

    /// Returns the effective priority. A lower number means a higher priority. Deadline tasks have numbers below 0.
    #[inline(always)]
    pub fn prio(self) -> i32 {
        field!(self.0, task_prio)
    }

    /// Returns whether the task is a real-time or deadline task. No quota applies to such a task, but its runtime may be limited.
    #[inline(always)]
    pub fn is_real_time(self) -> bool {
        self.prio() < FIRST_FAIR_PRIO
    }

    #[inline(always)]
    pub fn is_deadline(self) -> bool {
        self.prio() < 0
    }

    /// Returns whether the task was taken off its CPU because a quota ran out. Returns false if the kernel lacks the field.
    #[inline(always)]
    pub fn is_throttled(self) -> bool {
        field!(self.0, task_throttled: u8) != 0
    }

    /// Returns whether the task waits for a device, is about to wait for one, or has not run since such a wait. Returns false if
    /// the kernel lacks the field.
    #[inline(always)]
    pub fn in_iowait(self) -> bool {
        self.has_bit(offset!(task_in_iowait))
    }

    /// Returns whether the last sleep of the task was uninterruptible, but not TASK_IDLE. Returns false if the kernel lacks the
    /// field.
    #[inline(always)]
    pub fn contributes_to_load(self) -> bool {
        self.has_bit(offset!(task_contributes_to_load))
    }

    #[inline(always)]
    fn has_bit(self, at: u32) -> bool {
        at != ABSENT && load_at::<u8>(self.0, at & ((1 << BIT_SHIFT) - 1)) & (1 << (at >> BIT_SHIFT)) != 0
    }

    /// Returns the times that the kernel counts at ticks. The blocked times are set to 0.
    #[inline(always)]
    pub fn accounts(self) -> Accounts {
        Accounts {
            user_ns: field!(self.0, task_utime),
            system_ns: field!(self.0, task_stime),
            guest_ns: field!(self.0, task_gtime),
            ..Accounts::NONE
        }
    }

    /// Returns the sums for the exited threads of the task's process.
    #[inline(always)]
    pub fn exited_threads(self) -> ExitedThreads {
        let signal = field!(self.0, task_signal: *const c_void);
        ExitedThreads {
            user_ns: field!(signal, signal_utime),
            system_ns: field!(signal, signal_stime),
            guest_ns: field!(signal, signal_gtime),
            on_cpu_ns: field!(signal, signal_ran_ns),
            voluntary: field!(signal, signal_nvcsw),
            involuntary: field!(signal, signal_nivcsw),
        }
    }

    /// Returns how long the task has run, ns. The value is up to date when the task has just switched in.
    #[inline(always)]
    pub fn ran_ns(self) -> u64 {
        field!(self.0, task_run_ns)
    }

    /// Returns the NUMA node that the kernel's balancing prefers for the task; -1 if there is none.
    #[inline(always)]
    pub fn preferred_node(self) -> i32 {
        if has_field!(task_preferred_node) { field!(self.0, task_preferred_node) } else { -1 }
    }

    /// Returns the properties of the task that can change while it sleeps.
    #[inline(always)]
    pub fn face(self) -> Face {
        let at = offset!(task_comm);
        let group = if is_v2() { field!(self.0, task_cgroups) } else { field!(self.0, task_sched_group) };
        Face { comm: [load_at(self.0, at), load_at(self.0, at + 8)], group, state: u64::from(self.state()) }
    }

    /// Returns the address of the task's scheduler group. The address must only be compared, never read from.
    #[inline(always)]
    pub fn group_address(self) -> u64 {
        field!(self.0, task_sched_group)
    }

    /// Returns the queue that the task's group has on the task's CPU. The kernel sets it for tasks of every scheduling class.
    #[inline(always)]
    pub fn cfs_rq(self) -> CfsRunQueue {
        CfsRunQueue(field!(self.0, task_cfs_rq: *const c_void))
    }

    /// Returns the run queue of the CPU on which the task runs, waits, or last ran.
    #[inline(always)]
    pub fn run_queue(self) -> RunQueue {
        self.cfs_rq().run_queue()
    }

    /// Returns the id of the task's cgroup in the chosen hierarchy. For a task in an autogroup, this is the root.
    #[inline(always)]
    pub fn cgroup_id(self) -> u64 {
        let cgroup = if is_v2() {
            field!(field!(self.0, task_cgroups: *const c_void), css_set_cgroup: *const c_void)
        } else {
            field!(field!(self.0, task_sched_group: *const c_void), task_group_cgroup: *const c_void)
        };
        match field!(field!(cgroup, cgroup_kn: *const c_void), kernfs_id) {
            0 => root_cgroup_id(),
            id => id,
        }
    }

    /// Returns the same as [`Self::cgroup_id`]. For rare code paths, see [`peek`].
    #[inline(never)]
    pub fn cgroup_id_rarely(self) -> u64 {
        cgroup_id_at(cgroup_of(self.0 as u64))
    }

    /// Returns how often the task has switched out, including the switch that the hook handles now.
    #[inline(always)]
    pub fn switches(self) -> u64 {
        let voluntary: u64 = field!(self.0, task_nvcsw);
        voluntary.wrapping_add(field!(self.0, task_nivcsw))
    }

    /// Returns the readings that the kernel keeps for the task. The readings that the hook keeps are set to 0.
    #[inline(always)]
    pub fn totals(self) -> Totals {
        Totals {
            run_delay_ns: self.run_delay_ns(),
            on_cpu_ns: self.ran_ns(),
            voluntary: field!(self.0, task_nvcsw),
            involuntary: field!(self.0, task_nivcsw),
            migrations: field!(self.0, task_migrations),
            ..Totals::default()
        }
    }

    /// Returns the readings that the kernel and the hook keep for the task. `waits` is the caller's copy of `storage.waits`.
    #[inline(always)]
    pub fn all_totals(self, waits: &Waits, storage: &TaskStorage) -> Totals {
        let mut totals = Totals::NONE;
        self.put_totals(waits, storage, &mut totals);
        totals
    }

    /// Writes the same readings to a map value. Each word is written separately, because a copy on the stack would be too large.
    #[inline(always)]
    pub fn put_totals(self, waits: &Waits, storage: &TaskStorage, into: &mut Totals) {
        let Totals { run_delay_ns, on_cpu_ns, voluntary, involuntary, migrations, .. } = self.totals();
        // The kernel has not yet added a wait that the ledger has already counted, see `waits::leave_group`.
        let lags = (run_delay_ns.wrapping_sub(waits.expected_run_delay_ns) as i64) < 0;
        let run_delay_ns = if lags { waits.expected_run_delay_ns } else { run_delay_ns };
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

    /// Writes a map value. If the value does not fit, the kernel calls the iterator for the task again.
    #[inline(always)]
    pub fn write<T>(self, value: &mut T) {
        // SAFETY: `value` can be read in its full size. The helper writes all of the value or nothing.
        unsafe { bpf_seq_write(self.0.cast(), ptr::from_mut(value).cast(), size_of::<T>() as u32) };
    }

    #[inline(always)]
    pub fn pointer(self) -> *mut c_void {
        self.0
    }

    /// Returns how many more bytes fit into the buffer before the kernel passes it to user space.
    #[inline(always)]
    pub fn space_left(self) -> u64 {
        field!(self.0, seq_size: u64).wrapping_sub(field!(self.0, seq_count: u64))
    }
}
