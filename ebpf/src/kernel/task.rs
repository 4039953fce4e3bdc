//! Reads of a task.

use core::ffi::c_void;

use aya_ebpf::helpers::generated::{bpf_get_current_task_btf, bpf_get_task_stack, bpf_task_pt_regs};
use cgscope_ledger::{
    ABSENT, BIT_SHIFT,
    host::Task as _,
    verifier::set,
    wire::{Accounts, ExitedThreads, Face, TaskStorage, Totals, Waits},
};

use super::{
    Base, CfsRunQueue, Cgroup, RunQueue, cgroup_id_at, cgroup_of, is_v2, kernels_throttled_ns_rarely,
    levels_out_of_quota_at, load_at, peek, peek_apart, queue, root_cgroup_id, throttles_tasks,
};

/// The lowest `prio` of fair tasks. Real-time and deadline tasks have a lower `prio` (MAX_RT_PRIO, the same in all versions).
const FIRST_FAIR_PRIO: i32 = 100;
/// Maximum number of levels that are searched for a quota or a runtime that is used up.
const LEVELS: usize = 16;
/// PF_EXITING (the same in all versions). `do_exit` sets this flag early.
const EXITING: u32 = 0x4;
/// PF_IO_WORKER (Linux 5.12, commit 46fe18b16c46). A thread with this flag was never in user space.
const IO_WORKER: u32 = 0x10;
/// PF_KTHREAD (the same in all versions). Kernel threads that work for a process (io_uring, vhost) do not have this flag. They
/// count for the cgroup of that process.
const KERNEL_THREAD: u32 = 0x20_0000;

/// A `struct task_struct *`. The verifier trusts it, or it is just a number (`Task<false>`). The latter can be taken from memory, so
/// exported functions use it; they read the task by [`peek_apart`].
#[derive(Clone, Copy)]
pub struct Task<const IS_TRUSTED: bool = true>(*const c_void);

/// Loads a field of a task: Usage: as of `field!`.
macro_rules! of_task {
    ($task:expr, $field:ident) => {
        of_task!($task, $field: _)
    };
    ($task:expr, $field:ident: $type:ty) => {
        if IS_TRUSTED { field!($task.base(), $field: $type) } else { peek_apart($task.handle(), offset!($field)) as $type }
    };
}

impl<const IS_TRUSTED: bool> cgscope_ledger::host::Task for Task<IS_TRUSTED> {
    inlined! {
        fn handle(self) -> u64 { self.0 as u64 }
        fn switches(self) -> u64 {
            u64::wrapping_add(of_task!(self, task_nvcsw), of_task!(self, task_nivcsw))
        }
        fn run_delay_ns(self) -> u64 { of_task!(self, task_run_delay) }
        fn last_queued_ns(self) -> u64 { of_task!(self, task_last_queued) }
        fn cpu(self) -> u32 { peek(self.run_queue_rarely(), offset!(rq_cpu)) as u32 }
        fn clock_ns(self) -> u64 { peek(self.run_queue_rarely(), offset!(rq_clock)) }
        fn group(self) -> u64 { of_task!(self, task_sched_group) }
        fn group_ran_ns(self) -> u64 {
            if IS_TRUSTED {
                field!(self.base(), task_parent: Option<Base>).map_or(0, |parent| field!(parent, entity_run_ns))
            } else {
                self.group_ran_ns_rarely()
            }
        }
        fn is_real_time(self) -> bool { self.prio() < FIRST_FAIR_PRIO }
        fn is_deadline(self) -> bool { self.prio() < 0 }
        fn is_of_bpf_scheduler(self) -> bool { peek(self.handle(), offset!(task_scx_flags)) & 1 != 0 }
        fn is_throttled(self) -> bool { of_task!(self, task_throttled: u8) != 0 }
        fn sleeps_on_queue(self) -> bool { of_task!(self, task_delayed: u8) != 0 }
        // Only the lowest byte is read, because the field is an `int` before Linux 7.2 and one byte since then.
        fn is_on_queue(self) -> bool { of_task!(self, task_on_rq: u8) != 0 }
        fn queue(self) -> u64 { of_task!(self, task_cfs_rq) }
        fn queue_rarely(self) -> u64 { peek(self.handle(), offset!(task_cfs_rq)) }
        fn group_rarely(self) -> u64 { peek(self.handle(), offset!(task_sched_group)) }
        fn group_ran_ns_rarely(self) -> u64 { peek(peek(self.handle(), offset!(task_parent)), offset!(entity_run_ns)) }
        fn left_throttled_ns(self, queue: u64, group: u64, clock_ns: u64) -> u64 {
            queue::left_throttled_ns(queue, group, clock_ns)
        }
    }

    #[inline(always)]
    fn far_group_ran_ns(self, cpu: u32) -> u64 {
        let entities = peek(self.group_rarely(), offset!(task_group_entities));
        let entity = peek(entities, cpu * size_of::<u64>() as u32);
        let queue = peek(entity, offset!(entity_cfs_rq));
        let its_cpu = peek(peek(queue, offset!(cfs_rq_rq)), offset!(rq_cpu)) as u32;
        if entity != 0 && queue != 0 && its_cpu == cpu { peek(entity, offset!(entity_run_ns)) } else { 0 }
    }

    // A deadline task has its own runtime. A real-time task shares the runtime of its group and of each ancestor. The kernel sets
    // these flags before it takes such a task off its CPU.
    #[inline(never)]
    fn is_out_of_runtime(self) -> bool {
        if self.is_deadline() {
            return self.has_bit(offset!(task_dl_throttled));
        }
        if offset!(task_rt_rq) == ABSENT {
            return peek(self.run_queue_rarely(), offset!(rq_rt_throttled)) as u32 != 0;
        }
        let mut queue = peek(self.handle(), offset!(task_rt_rq));
        let mut parent = peek(self.handle(), offset!(task_rt_parent));
        for _ in 0..LEVELS {
            if peek(queue, offset!(rt_rq_throttled)) as u32 != 0 {
                return true;
            }
            if parent == 0 {
                return false;
            }
            queue = peek(parent, offset!(rt_entity_rt_rq));
            parent = peek(parent, offset!(rt_entity_parent));
        }
        false
    }

    // Before Linux 6.18, the cgroup whose quota ran out may already have quota again. So the nearest cgroup that has a quota is
    // used. The function returns nothing, because the verifier would follow each result as a separate code path.
    #[inline(never)]
    fn find_limit(self, limit: &mut u64) {
        let mut level = peek(self.handle(), offset!(task_cfs_rq));
        let mut parent = peek(self.handle(), offset!(task_parent));
        let mut levels = levels_out_of_quota_at(level);
        for _ in 0..LEVELS {
            let above = if parent == 0 { 0 } else { peek(parent, offset!(entity_cfs_rq)) };
            let levels_above = if above == 0 { 0 } else { levels_out_of_quota_at(above) };
            let has_quota = peek(level, offset!(cfs_rq_runtime_enabled)) as u32 != 0;
            if if throttles_tasks() { levels != levels_above } else { has_quota } {
                let cgroup = peek(peek(level, offset!(cfs_rq_group)), offset!(task_group_cgroup));
                *limit = peek(peek(cgroup, offset!(cgroup_kn)), offset!(kernfs_id));
                return;
            }
            if parent == 0 {
                return;
            }
            (level, levels) = (above, levels_above);
            parent = peek(parent, offset!(entity_parent));
        }
    }
}

impl<const IS_TRUSTED: bool> Task<IS_TRUSTED> {
    inlined! {
        /// Returns the thread id; 0 for the idle task of every CPU.
        pub fn tid(self) -> u32 { of_task!(self, task_pid) }
        pub fn tgid(self) -> u32 { of_task!(self, task_tgid) }
        pub fn start_ns(self) -> u64 { of_task!(self, task_start_time) }
        pub fn state(self) -> u32 { of_task!(self, task_state) }
        /// Returns EXIT_ZOMBIE or EXIT_DEAD; 0 until the task has exited.
        pub fn exit_state(self) -> u32 { of_task!(self, task_exit_state) }
        pub fn is_kernel_thread(self) -> bool { of_task!(self, task_flags: u32) & KERNEL_THREAD != 0 }
        pub fn is_exiting(self) -> bool { of_task!(self, task_flags: u32) & EXITING != 0 }
        /// Returns whether the task can be in a system call. Kernel threads and io_uring workers never are.
        pub fn has_user_space(self) -> bool {
            !self.is_kernel_thread() && of_task!(self, task_flags: u32) & IO_WORKER == 0
        }
        /// Returns whether the task is on a CPU. Only the lowest byte is read, as in [`Self::is_on_queue`].
        pub fn on_cpu(self) -> bool { of_task!(self, task_on_cpu: u8) != 0 }
        /// Returns whether the task runs, waits to run, or is about to leave its CPU. This includes a task that [sleeps on a
        /// queue](Self::sleeps_on_queue).
        pub fn is_active(self) -> bool { self.on_cpu() || self.is_on_queue() }
        /// Returns whether the task is being moved to another run queue (TASK_ON_RQ_MIGRATING, 2 in all versions).
        pub fn moves(self) -> bool { of_task!(self, task_on_rq: u8) == 2 }
        /// Returns when the task last switched in, ns of `rq->clock`; 0 for the idle task.
        pub fn last_arrival_ns(self) -> u64 { of_task!(self, task_last_arrival) }
        /// Returns the time up to which the task's run time is counted, ns of `rq->clock_task`. For a task on a CPU, this is the
        /// time of the switch in or of the last tick, whichever is later. For other tasks, this is the time of the last switch
        /// out.
        pub fn counted_until_ns(self) -> u64 { of_task!(self, task_counted_until) }
        /// Returns the effective priority. A lower number means a higher priority. Deadline tasks have numbers below 0.
        fn prio(self) -> i32 { of_task!(self, task_prio) }
        /// Returns whether the task waits for a device, is about to wait for one, or has not run since such a wait. Returns false
        /// if the kernel lacks the field.
        pub fn in_iowait(self) -> bool { self.has_bit(offset!(task_in_iowait)) }
        /// Returns whether the last sleep of the task was uninterruptible, but not TASK_IDLE. Returns false if the kernel lacks
        /// the field.
        pub fn contributes_to_load(self) -> bool { self.has_bit(offset!(task_contributes_to_load)) }
        fn has_bit(self, at: u32) -> bool {
            at != ABSENT && self.byte(at & ((1 << BIT_SHIFT) - 1)) & (1 << (at >> BIT_SHIFT)) != 0
        }
        fn byte(self, at: u32) -> u8 {
            if IS_TRUSTED { load_at(self.base(), at) } else { peek_apart(self.handle(), at) as u8 }
        }
        /// Returns how long the task has run, ns. The value is up to date when the task has just switched in.
        pub fn ran_ns(self) -> u64 { of_task!(self, task_run_ns) }
        /// Returns the NUMA node that the kernel's balancing prefers for the task; -1 if there is none.
        pub fn preferred_node(self) -> i32 {
            if has_field!(task_preferred_node) { of_task!(self, task_preferred_node) } else { -1 }
        }
        /// The address of a trusted task, which is never null.
        fn base(self) -> Base {
            // SAFETY: only trusted tasks are read through this address, and they come from [`Task::new`].
            unsafe { Base::known(self.0) }
        }
        /// Returns this task, which is a trusted one.
        pub fn trusted(self) -> Task { Task(self.0) }
        /// Returns how long the task's queue had been in a hierarchy out of quota at the time `clock_ns`, ns, by the kernel's own
        /// clock.
        pub fn kernels_throttled_ns(self, clock_ns: u64) -> u64 {
            if IS_TRUSTED {
                self.trusted().cfs_rq().map_or(0, |queue| queue.kernels_throttled_ns(clock_ns))
            } else {
                kernels_throttled_ns_rarely(self.queue_rarely(), clock_ns)
            }
        }
        /// Returns the address of the task's run queue. For rare code paths, see [`peek`].
        pub fn run_queue_rarely(self) -> u64 { peek(self.queue_rarely(), offset!(cfs_rq_rq)) }
    }

    #[inline(always)]
    pub fn comm_words(self) -> [u64; 2] {
        let at = offset!(task_comm);
        if IS_TRUSTED {
            [load_at(self.base(), at), load_at(self.base(), at + 8)]
        } else {
            [peek_apart(self.handle(), at), peek_apart(self.handle(), at + 8)]
        }
    }

    #[inline(always)]
    pub fn comm(self) -> [u8; 16] {
        // SAFETY: both types have the same size, and every bit pattern is valid.
        unsafe { core::mem::transmute(self.comm_words()) }
    }

    /// Returns the properties of the task that can change while it sleeps.
    #[inline(always)]
    pub fn face(self) -> Face {
        let group = if is_v2() { peek(self.handle(), offset!(task_cgroups)) } else { self.group_rarely() };
        Face { comm: self.comm_words(), group, state: self.state().into() }
    }

    /// Returns the times that the kernel counts at ticks. The blocked times are set to 0.
    #[inline(always)]
    pub fn accounts(self) -> Accounts {
        Accounts {
            user_ns: of_task!(self, task_utime),
            system_ns: of_task!(self, task_stime),
            guest_ns: of_task!(self, task_gtime),
            ..Accounts::default()
        }
    }

    /// Returns the same as [`Self::cgroup_id`]. For rare code paths, see [`peek`].
    #[inline(never)]
    pub fn cgroup_id_rarely(self) -> u64 {
        cgroup_id_at(cgroup_of(self.handle()))
    }

    /// Returns the address of the queue that the task's group has on `cpu`; 0 if unknown. In Linux 7.2, the field is no array of
    /// pointers.
    #[inline(always)]
    pub fn queue_address_on(self, cpu: u32) -> u64 {
        let queues = peek(self.group_rarely(), offset!(task_group_cfs_rqs));
        let queue = peek(queues, cpu * size_of::<u64>() as u32);
        let its_cpu = peek(peek(queue, offset!(cfs_rq_rq)), offset!(rq_cpu)) as u32;
        if queues != 0 && queue != 0 && its_cpu == cpu { queue } else { 0 }
    }

    /// Returns the readings that the kernel keeps for the task. The readings that the hook keeps are set to 0.
    #[inline(always)]
    pub fn totals(self) -> Totals {
        Totals {
            run_delay_ns: self.run_delay_ns(),
            on_cpu_ns: self.ran_ns(),
            voluntary: of_task!(self, task_nvcsw),
            involuntary: of_task!(self, task_nivcsw),
            migrations: of_task!(self, task_migrations),
            ..Totals::default()
        }
    }

    /// Writes the readings that the kernel and the hook keep for the task to a map value. `waits` is the caller's copy of
    /// `storage.waits`. Each word is written separately, because a copy on the stack would be too large.
    #[inline(always)]
    pub fn put_totals(self, waits: &Waits, storage: &TaskStorage, into: &mut Totals) {
        let Totals { run_delay_ns, on_cpu_ns, voluntary, involuntary, migrations, .. } = self.totals();
        // The kernel has not yet added a wait that the ledger has already counted, see `waits::leave_group`.
        let lags = (run_delay_ns.wrapping_sub(waits.expected_run_delay_ns) as i64) < 0;
        let run_delay_ns = if lags { waits.expected_run_delay_ns } else { run_delay_ns };
        set(&mut into.run_delay_ns, run_delay_ns);
        set(&mut into.unstamped, storage.unstamped_count);
        set(&mut into.unstamped_ns, storage.unstamped_ns);
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

impl Task {
    inlined! {
        pub fn new(task: Base) -> Self { Self(task.pointer()) }
        pub fn pointer(self) -> *mut c_void { self.0.cast_mut() }
        pub fn uid(self) -> u32 { field!(self.base(), task_cred: Option<Base>).map_or(0, |cred| field!(cred, cred_uid)) }
        /// Returns the queue that the task's group has on the task's CPU. The kernel sets it for tasks of every scheduling class.
        pub fn cfs_rq(self) -> Option<CfsRunQueue> { field!(self.base(), task_cfs_rq: Option<Base>).map(CfsRunQueue) }
        /// Returns the run queue of the CPU on which the task runs, waits, or last ran.
        pub fn run_queue(self) -> Option<RunQueue> { self.cfs_rq().and_then(CfsRunQueue::run_queue) }
    }

    #[inline(always)]
    pub fn current() -> Self {
        // SAFETY: the helper has no preconditions, and the kernel never returns null.
        Self::new(unsafe { Base::known(bpf_get_current_task_btf().cast()) })
    }

    /// Returns the sums for the exited threads of the task's process.
    #[inline(always)]
    pub fn exited_threads(self) -> ExitedThreads {
        let Some(signal) = field!(self.base(), task_signal: Option<Base>) else {
            return ExitedThreads::default();
        };
        ExitedThreads {
            user_ns: field!(signal, signal_utime),
            system_ns: field!(signal, signal_stime),
            guest_ns: field!(signal, signal_gtime),
            on_cpu_ns: field!(signal, signal_ran_ns),
            voluntary: field!(signal, signal_nvcsw),
            involuntary: field!(signal, signal_nivcsw),
        }
    }

    /// Returns the id of the task's cgroup in the chosen hierarchy. For a task in an autogroup, this is the root.
    #[inline(always)]
    pub fn cgroup_id(self) -> u64 {
        let cgroup = if is_v2() {
            field!(self.base(), task_cgroups: Option<Base>)
                .and_then(|set| field!(set, css_set_cgroup: Option<Base>))
        } else {
            let group = field!(self.base(), task_sched_group: Option<Base>);
            group.and_then(|group| field!(group, task_group_cgroup: Option<Base>))
        };
        match cgroup.map_or(0, |cgroup| Cgroup::new(cgroup).id()) {
            0 => root_cgroup_id(),
            id => id,
        }
    }

    /// Returns the number of the system call of a blocked task; negative if the task is in no system call.
    #[inline(always)]
    pub fn system_call(self) -> i32 {
        self.registers().system_call()
    }

    #[inline(always)]
    pub fn registers(self) -> Registers {
        // SAFETY: the verifier trusts this task.
        Registers(unsafe { Base::known(bpf_task_pt_regs(self.pointer().cast()) as *const c_void) })
    }

    /// Returns the address of a file that the task has open; 0 if it could not be read.
    #[inline(always)]
    pub fn file_at(self, descriptor: u64) -> u64 {
        let files = field!(self.base(), task_files: Option<Base>);
        let Some(table) = files.and_then(|files| field!(files, files_fdt: Option<Base>)) else { return 0 };
        let files: u64 = field!(table, fdt_fd);
        if descriptor >= u64::from(field!(table, fdt_max: u32)) { 0 } else { peek(files + 8 * descriptor, 0) }
    }

    /// Walks the stack of a task that is off its CPU. Writes at most `bytes` of return addresses. Returns the number of bytes
    /// that were written.
    ///
    /// # Safety
    /// `into` must be valid for writes of `bytes`.
    #[inline(always)]
    pub unsafe fn stack(self, into: *mut u64, bytes: u32) -> u32 {
        // SAFETY: the caller guarantees that `into` is valid.
        let taken = unsafe { bpf_get_task_stack(self.pointer().cast(), into.cast(), bytes, 0) };
        if taken < 0 { 0 } else { taken as u32 }
    }

    /// Returns whether the task cannot run because a quota is used up. Before Linux 6.18, the kernel takes whole queues off their
    /// CPU.
    #[inline(always)]
    pub fn is_out_of_quota(self) -> bool {
        if throttles_tasks() {
            return self.is_throttled();
        }
        self.is_on_queue()
            && !self.is_real_time()
            && self.cfs_rq().is_some_and(|queue| queue.levels_out_of_quota() != 0)
    }
}

impl Task<false> {
    inlined! {
        /// Returns the task to which a storage belongs.
        pub fn of(storage: &TaskStorage) -> Self { Self(storage.task as *const c_void) }
    }
}

/// The registers of a task in user space.
#[derive(Clone, Copy)]
pub struct Registers(Base);

impl Registers {
    inlined! {
        /// Returns the number of the system call that the task executes; negative if it is in none. The field is an `s32`, or a
        /// `long` of which only the lower half is needed.
        pub fn system_call(self) -> i32 { field!(self.0, regs_syscall: u32) as i32 }
        pub fn first_argument(self) -> u64 { field!(self.0, regs_first) }
    }
}
