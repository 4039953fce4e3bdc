//! The only reads of kernel memory: plain loads through BTF pointers, at offsets that are constants to the verifier.
//!
//! A load through a pointer that turns out to be null or gone yields 0; the kernel guards it (`PROBE_MEM`). So a
//! chain of pointers needs no checks.

use core::{
    ffi::c_void,
    ptr::{self, addr_of, read_volatile},
};

use aya_ebpf::helpers::generated::{bpf_probe_read_kernel, bpf_seq_write};
use cgscope_layout::{
    ABSENT, BIT_SHIFT, Offsets,
    wire::{Accounts, Config, Gone, TaskStorage, Totals, Waits},
};

/// Set by user space before loading. Read as volatile: to the compiler they are constants of this very file.
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
};

/// Real-time and deadline tasks have a smaller `prio` (MAX_RT_PRIO, in all versions).
const FIRST_FAIR_PRIO: i32 = 100;

/// The offset of a field, a constant to the verifier.
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
pub use queue::{CfsRunQueue, Cgroup, RunQueue, Throttled};

/// A setting, a constant to the verifier.
macro_rules! setting {
    ($field:ident) => {
        // SAFETY: a static of ours.
        unsafe { read_volatile(addr_of!(CONFIG.$field)) }
    };
}

/// Functions that return whether a setting holds, or what it is.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident() -> $type:ty { $value:expr })*) => {
        $($(#[$doc])* #[inline(always)] pub fn $name() -> $type { $value })*
    };
}

settings! {
    /// Every task is followed.
    follow_all() -> bool { setting!(follow_all) != 0 }
    /// Culprits are single tasks.
    blame_tasks() -> bool { setting!(blame_tasks) != 0 }
    /// There is more than one NUMA node with CPUs.
    has_nodes() -> bool { setting!(nodes) > 1 }
    /// Waits are also counted by CPU.
    counts_by_cpu() -> bool { setting!(count_by_cpu) != 0 }
    /// The kernel keeps no clock of throttled time, and we do.
    keeps_throttle_clock() -> bool { setting!(keep_throttle_clock) != 0 }
    /// Time blocked and time by mode are recorded beside waits.
    keeps_accounts() -> bool { setting!(accounts) != 0 }
    /// The readings serve viewers of several users.
    is_shared() -> bool { setting!(shared) != 0 }
    /// A stack is taken per this much time blocked, ns; 0: never.
    stack_every_ns() -> u64 { setting!(stack_every_ns) }
    /// This kernel throttles tasks one by one, when they return to user space, and marks each (Linux 6.18).
    throttles_tasks() -> bool { offset!(task_throttled) != ABSENT }
    /// ns of CLOCK_MONOTONIC: all waits of a task that started later are ours to count.
    born_after_ns() -> u64 { setting!(born_after_ns) }
    /// ns of CLOCK_MONOTONIC: tasks that started later are not selected by their ids.
    select_born_before_ns() -> u64 { setting!(select_born_before_ns) }
    /// The root of the cgroup hierarchy that user space chose.
    root_cgroup_id() -> u64 { setting!(root_cgroup_id) }
    /// The number of that hierarchy.
    cgroup_hierarchy() -> u64 { setting!(cgroup_hierarchy) }
}

#[inline(always)]
fn load<T: Copy + Default>(base: *const c_void, offset: u32) -> T {
    if offset == ABSENT {
        return T::default();
    }
    // SAFETY: the verifier admits the load only at an offset that BTF has for this type, and the kernel turns a fault into 0.
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

/// What lies at `address + offset`, copied by a helper; 0 where the kernel has no such field or cannot read it. For ways that are
/// rarely gone: at each load of a pointer that it knows the type of, the verifier looks for two type names among all of the
/// kernel's (`btf_nested_type_is_trusted`, Linux 6.2 to 7.3), which takes longer than all else that it does.
#[inline(always)]
fn peek(address: u64, offset: u32) -> u64 {
    let mut value = 0u64;
    if offset != ABSENT {
        let from = address.wrapping_add(u64::from(offset)) as *const c_void;
        // SAFETY: 8 bytes of ours; the helper checks where it reads from.
        unsafe { bpf_probe_read_kernel((&raw mut value).cast(), 8, from) };
    }
    value
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

    /// 0 for the idle task of every CPU.
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
        // SAFETY: same size, any bits are valid.
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

    /// PF_KTHREAD (0x200000 in all versions). Not the threads that the kernel makes for a process (io_uring, vhost): they
    /// work for their cgroup.
    #[inline(always)]
    pub fn is_kernel_thread(self) -> bool {
        load::<u32>(self.0, offset!(task_flags)) & 0x20_0000 != 0
    }

    /// On its way out: PF_EXITING, set early in `do_exit` (0x4 in all versions).
    #[inline(always)]
    pub fn is_exiting(self) -> bool {
        load::<u32>(self.0, offset!(task_flags)) & 4 != 0
    }

    /// One byte since Linux 7.2, an `int` of the same value before: its lowest byte tells.
    #[inline(always)]
    pub fn on_cpu(self) -> bool {
        load::<u8>(self.0, offset!(task_on_cpu)) != 0
    }

    /// As above.
    #[inline(always)]
    pub fn on_rq(self) -> bool {
        load::<u8>(self.0, offset!(task_on_rq)) != 0
    }

    #[inline(always)]
    pub fn run_delay_ns(self) -> u64 {
        load(self.0, offset!(task_run_delay))
    }

    #[inline(always)]
    pub fn last_queued_ns(self) -> u64 {
        load(self.0, offset!(task_last_queued))
    }

    /// Since when it has been on its CPU, ns of `rq->clock`; 0 for the idle task.
    #[inline(always)]
    pub fn last_arrival_ns(self) -> u64 {
        load(self.0, offset!(task_last_arrival))
    }

    /// Up to when its run time has been counted, ns of `rq->clock_task`: on its CPU since it came there or since the last tick, off it
    /// since it left.
    #[inline(always)]
    pub fn counted_until_ns(self) -> u64 {
        load(self.0, offset!(task_counted_until))
    }

    /// Its effective priority, the smaller the higher; below 0 for a deadline task.
    #[inline(always)]
    pub fn prio(self) -> i32 {
        load(self.0, offset!(task_prio))
    }

    /// It has a real-time or deadline class: quotas do not apply to it, but a runtime may.
    #[inline(always)]
    pub fn is_real_time(self) -> bool {
        self.prio() < FIRST_FAIR_PRIO
    }

    /// It was taken off its CPU because a quota had run out; always false where the kernel does not say.
    #[inline(always)]
    pub fn is_throttled(self) -> bool {
        load::<u8>(self.0, offset!(task_throttled)) != 0
    }

    /// It waits for a device, or just begins to, or has been woken from that and not run since; false where the kernel does not say.
    #[inline(always)]
    pub fn in_iowait(self) -> bool {
        self.has_bit(offset!(task_in_iowait))
    }

    /// When it blocked last it was uninterruptible, and not a kernel thread without work; false where the kernel does not say.
    #[inline(always)]
    pub fn contributes_to_load(self) -> bool {
        self.has_bit(offset!(task_contributes_to_load))
    }

    /// A bit whose place is a constant to the verifier.
    #[inline(always)]
    fn has_bit(self, at: u32) -> bool {
        at != ABSENT && load::<u8>(self.0, at & ((1 << BIT_SHIFT) - 1)) & (1 << (at >> BIT_SHIFT)) != 0
    }

    /// Its time by the kernel's ticks; how long it was blocked is left 0.
    #[inline(always)]
    pub fn accounts(self) -> Accounts {
        Accounts {
            user_ns: load(self.0, offset!(task_utime)),
            system_ns: load(self.0, offset!(task_stime)),
            guest_ns: load(self.0, offset!(task_gtime)),
            ..Accounts::NONE
        }
    }

    /// What threads of its process had done when they exited.
    #[inline(always)]
    pub fn gone(self) -> Gone {
        let signal = follow(self.0, offset!(task_signal));
        Gone {
            user_ns: load(signal, offset!(signal_utime)),
            system_ns: load(signal, offset!(signal_stime)),
            guest_ns: load(signal, offset!(signal_gtime)),
            on_cpu_ns: load(signal, offset!(signal_ran_ns)),
            voluntary: load(signal, offset!(signal_nvcsw)),
            involuntary: load(signal, offset!(signal_nivcsw)),
        }
    }

    /// Times that it changed its CPU, cut to 32 bits.
    #[inline(always)]
    pub fn migrations(self) -> u32 {
        load::<u64>(self.0, offset!(task_migrations)) as u32
    }

    /// Time on CPUs so far, ns; up to date wherever the task has just come on a CPU.
    #[inline(always)]
    pub fn ran_ns(self) -> u64 {
        load(self.0, offset!(task_run_ns))
    }

    /// The node that the kernel's balancing prefers, -1: none.
    #[inline(always)]
    pub fn preferred_node(self) -> i32 {
        if offset!(task_preferred_node) == ABSENT { -1 } else { load(self.0, offset!(task_preferred_node)) }
    }

    /// Address of its task group: to compare with, never to follow.
    #[inline(always)]
    pub fn group_address(self) -> u64 {
        load(self.0, offset!(task_sched_group))
    }

    /// The queue of its group on its CPU. Kept right for tasks of every class.
    #[inline(always)]
    pub fn cfs_rq(self) -> CfsRunQueue {
        CfsRunQueue(follow(self.0, offset!(task_cfs_rq)))
    }

    /// The run queue that the task is on, or was on last.
    #[inline(always)]
    pub fn run_queue(self) -> RunQueue {
        self.cfs_rq().run_queue()
    }

    /// Id of the task's cgroup in the hierarchy that user space chose; that of the root for a task in an autogroup.
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

    /// The same where it is rarely asked for.
    #[inline(never)]
    pub fn cgroup_id_rarely(self) -> u64 {
        let task = self.0 as u64;
        let cgroup = if setting!(cgroup_v2) != 0 {
            peek(peek(task, offset!(task_cgroups)), offset!(css_set_cgroup))
        } else {
            peek(peek(task, offset!(task_sched_group)), offset!(task_group_cgroup))
        };
        match peek(peek(cgroup, offset!(cgroup_kn)), offset!(kernfs_id)) {
            0 => root_cgroup_id(),
            id => id,
        }
    }

    /// Times that it left a CPU; already counted at the hook.
    #[inline(always)]
    pub fn switches(self) -> u64 {
        let voluntary: u64 = load(self.0, offset!(task_nvcsw));
        voluntary.wrapping_add(load(self.0, offset!(task_nivcsw)))
    }

    /// The kernel's own readings; those of the hook are left 0.
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

    /// The kernel's own readings and those of the hook. `waits`: those of the storage, as they were when the caller looked.
    #[inline(always)]
    pub fn all_totals(self, waits: &Waits, storage: &TaskStorage) -> Totals {
        Totals {
            waits: waits.count,
            wait_ns: waits.total_ns,
            unstamped: waits.unstamped_count,
            unstamped_ns: waits.unstamped_ns,
            by_cause: storage.by_cause,
            throttled_waits: storage.throttled_waits,
            ..self.totals()
        }
    }
}

/// A `struct seq_file *`: what an iterator writes to.
#[derive(Clone, Copy)]
pub struct SeqFile(*mut c_void);

impl SeqFile {
    #[inline(always)]
    pub fn new(pointer: *mut c_void) -> Self {
        Self(pointer)
    }

    /// Writes a value of a map; the kernel shows the task again where it does not fit.
    #[inline(always)]
    pub fn write<T>(self, value: &mut T) {
        // SAFETY: readable in its size. Written as a whole or not at all.
        unsafe { bpf_seq_write(self.0.cast(), ptr::from_mut(value).cast(), size_of::<T>() as u32) };
    }

    #[inline(always)]
    pub fn pointer(self) -> *mut c_void {
        self.0
    }

    /// Bytes that can still be written before the kernel hands the buffer to user space.
    #[inline(always)]
    pub fn room(self) -> u64 {
        load::<u64>(self.0, offset!(seq_size)).wrapping_sub(load::<u64>(self.0, offset!(seq_count)))
    }
}
