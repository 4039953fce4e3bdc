//! The records that the kernel side sends to user space, and the storage behind them.
//!
//! All are `repr(C)` without padding. Both sides are built together, so there is no version number.

mod accounts;
pub mod names;

use crate::{
    bucket::BUCKETS,
    cause::{ByCause, CAUSES, CELLS, Shares},
    demand::Demand,
    pressure::KeptPressure,
    verifier::add_atomic,
};
pub use accounts::{Accounts, AccountsRecord, Blocked, ExitedThreads, StackCount, StackKey};

/// Maximum number of NUMA nodes that are kept separate. User space gives each node an index, because node numbers may have gaps.
pub const NODES: usize = 16;

/// Number of waits per bucket. The counters only rise, and wrap at 2^32.
pub type Counts = [u32; BUCKETS];

/// The figures that the hook keeps about the waits of one task. All only rise, except `expected_run_delay_ns` (which follows the
/// kernel's sum) and `unstamped_since_ns`. They fill one cache line, so the hook touches two: this one and that of a bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The `sched_info.run_delay` that the task will have at its next switch in, if it does not migrate while it waits.
    pub expected_run_delay_ns: u64,
    /// Sum of completed waits.
    pub total_ns: u64,
    /// Number of completed waits.
    pub count: u64,
    /// The longest completed wait since we follow the task.
    pub max_ns: u64,
    /// Since when (`rq->clock`) the task waits after a preemption with its state already set; 0: it does not wait like that.
    pub unstamped_since_ns: u64,
    /// Sum of the waits that the kernel does not count: after a preemption with the state already set.
    pub unstamped_ns: u64,
    /// Number of these waits.
    pub unstamped_count: u64,
    /// [`INHERIT`] and [`FOLLOWED`]. Written when the task starts, and then only by the reader.
    pub flags: u64,
}

/// In [`Waits::flags`]: children of this task are followed, too.
pub const INHERIT: u64 = 1;

/// In [`Waits::flags`], if readings are [shared](Config::shared): one bit for each of [`FOLLOWERS`], inherited by children.
pub const FOLLOWED: u64 = !0 << FOLLOWED_SHIFT;
/// The lowest bit of [`FOLLOWED`].
pub const FOLLOWED_SHIFT: u32 = 8;
/// Maximum number of viewers for whom processes and their descendants can be followed at a time.
pub const FOLLOWERS: u32 = u64::BITS - FOLLOWED_SHIFT;

/// Changes that the reader makes to the [`FOLLOWED`] bits of every task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Bits to clear.
    pub clear: u64,
    /// If not 0, each process in the table of selected ids gets the bits of its entry.
    pub look: u64,
}

/// Returns a number that identifies a task within this boot; a tid alone is reused. It is taken once, when we start to follow the
/// task: `execve` in a thread gives the thread the tid and start time of its process (`de_thread`).
#[inline(always)]
pub const fn serial(tid: u32, start_ns: u64) -> u64 {
    // A tid has at most 22 bits (PID_MAX_LIMIT). Two tasks collide only if they have the same tid and start 2^42 ns (73 minutes)
    // apart, to the nanosecond.
    ((tid as u64) << START_BITS) | (start_ns & ((1 << START_BITS) - 1))
}

/// Returns the number that the same task has after a move to another cgroup.
#[inline(always)]
pub const fn next_serial(serial: u64) -> u64 {
    // One nanosecond later: no other task with that tid starts so close to it.
    (serial & !((1 << START_BITS) - 1)) | (serial.wrapping_add(1) & ((1 << START_BITS) - 1))
}

const START_BITS: u32 = 42;

/// Calls a macro with the readings of a task that can be summed, in the order of their columns in recordings. This is the only
/// list of them; [`Totals::by_cause`] is separate.
#[macro_export]
macro_rules! totals {
    ($with:ident) => {
        $with! {
            /// Completed waits on a run queue.
            waits,
            /// Sum of completed waits, including the parts on other CPUs before a migration.
            wait_ns,
            /// The kernel's own sum of waits (`/proc/PID/schedstat`, second field).
            run_delay_ns,
            /// Waits that the kernel does not count: after a preemption with the state already set.
            unstamped,
            /// Sum of these waits.
            unstamped_ns,
            /// Time on a CPU.
            on_cpu_ns,
            /// Voluntary switches.
            voluntary,
            /// Involuntary switches.
            involuntary,
            /// Migrations between CPUs.
            migrations,
            /// Completed waits in which the task was out of quota for a part of the time.
            throttled_waits,
        }
    };
}

macro_rules! wire_totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The readings of a task that can be summed over the tasks of a cgroup, and over exited tasks.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Sums of completed waits by cause; together they are `wait_ns`.
            pub by_cause: ByCause,
        }

        impl Totals {
            /// All zero.
            pub const NONE: Self = Self { $($name: 0,)* by_cause: [0; CAUSES] };

            /// Calls `add` for each reading with its increase from `base` to `now`, modulo 2^64.
            #[inline(always)]
            pub fn add_since(&mut self, now: &Self, base: &Self, add: impl Fn(&mut u64, u64)) {
                $(add(&mut self.$name, now.$name.wrapping_sub(base.$name));)*
                for cause in 0..CAUSES {
                    add(&mut self.by_cause[cause], now.by_cause[cause].wrapping_sub(base.by_cause[cause]));
                }
            }
        }
    };
}
totals!(wire_totals);

impl Totals {
    /// Returns the increase since `base`, modulo 2^64.
    pub fn since(&self, base: &Self) -> Self {
        let mut since = Self::NONE;
        since.add_since(self, base, |since, more| *since = more);
        since
    }
}

/// What the kernel side keeps about a task that has not run since cgscope follows it. When the task first switches in, the hook
/// creates its [`TaskStorage`], which begins with these figures. Only where the hook may allocate, see
/// [`Feature::StorageCache`](crate::Feature::StorageCache).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    /// See [`serial`].
    pub serial: u64,
    /// The serial that was last reported to user space.
    pub reported_serial: u64,
    /// The cgroup of the task.
    pub cgroup_id: u64,
    /// The `sched_info.run_delay` of the task.
    pub run_delay_ns: u64,
    /// See [`Waits::flags`].
    pub flags: u64,
    /// Number of its migrations: a wakeup on another CPU counts one before the task switches in.
    pub migrations: u64,
    /// What the reader last reported.
    pub face: Face,
}

/// What shows without a switch that a task is not the same as before: its name and its cgroup can change while it sleeps.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// NUL-padded name.
    pub comm: [u64; 2],
    /// Address of an object that the kernel replaces when it moves the task to another cgroup.
    pub group: u64,
    /// See [`TaskRecord::state`]: the kernel freezes a task that sleeps.
    pub state: u64,
}

/// The value of the task storage map. What every switch needs comes first, so that it takes few cache lines.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskStorage {
    /// Kept by the hook.
    pub waits: Waits,
    /// The cgroup for which figures after `reported` count. It has an entry in the table of exited tasks.
    pub cgroup_id: u64,
    /// [`UNCHANGED`], [`LISTED`] or [`ACTIVE`].
    pub has_changed: u64,
    /// Its part in the demand of a cgroup with a quota.
    pub demand: Demand,
    /// Sums of completed waits by cause, kept by the hook.
    pub by_cause: ByCause,
    /// How the current wait segment began.
    pub start: Start,
    /// Completed waits in which the task was out of quota for a part of the time, kept by the hook.
    pub throttled_waits: u64,
    /// The earlier segments of the current wait.
    pub moved: Moved,
    /// On which nodes the task ran.
    pub placement: Placement,
    /// How the task is blocked.
    pub blocked: Blocked,
    /// See [`serial`]; changes with each move to another cgroup ([`next_serial`]).
    pub serial: u64,
    /// The serial that was last reported to user space.
    pub reported_serial: u64,
    /// Not 0: a program changes `reported`, `cgroup_id` and `serial`, or reads them together. Acquired and released atomically.
    pub lock: u64,
    /// Not 0: the task has exited, and its unreported figures were added to its cgroup.
    pub is_handed_over: u64,
    /// What the reader last reported.
    pub face: Face,
    /// Kept by the hook.
    pub histogram: Histogram,
    /// The figures that were last reported to user space, or handed over since. At an exit and at a move to another cgroup, newer
    /// figures are added to the cgroup's entry.
    pub reported: Reported,
}

/// Size of `struct bpf_local_storage`, one per task, rounded up, bytes (Linux 6.18).
const OF_TASK: usize = 256;

/// Memory of a storage value in the kernel, bytes, rounded up: `bpf_local_storage_elem` before it, the list node of the cache and the
/// charged cgroup after it (Linux 6.18).
const fn in_kernel(value: usize) -> usize {
    (72 + value + 16).next_power_of_two()
}

/// Memory of a task with a [`TaskStorage`], bytes. User space keeps it in a few samples, and needs more while it compares and encodes
/// them: 3 KiB in all.
pub const TASK_BYTES: u64 = (in_kernel(size_of::<TaskStorage>()) + OF_TASK + (3 << 10)) as u64;

/// Memory of a [`Sleeper`], bytes. User space keeps one reading of it.
pub const SLEEPER_BYTES: u64 = (in_kernel(size_of::<Sleeper>()) + OF_TASK + (1 << 10)) as u64;

/// In [`TaskStorage::has_changed`]: nothing happened since the last report.
pub const UNCHANGED: u64 = 0;
/// In [`TaskStorage::has_changed`]: the task has switched in since the last report, and the hook has put it on the list of its CPU.
pub const LISTED: u64 = 1;
/// In [`TaskStorage::has_changed`]: the task was active at the last report, and the reader has put it on its own list. When the task
/// goes to sleep, the hook does nothing about it.
pub const ACTIVE: u64 = 2;

/// Cumulative readings of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Sums of the task.
    pub totals: Totals,
    /// Its time besides waits.
    pub accounts: Accounts,
    /// Its waits.
    pub histogram: Histogram,
}

/// Completed waits by length and by cause; the counters only rise, and wrap at 2^32.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// By bucket.
    pub counts: Counts,
    /// By row and cause.
    pub shares: Shares,
}

impl Histogram {
    /// Returns the increase since `base`, modulo 2^32.
    pub fn since(&self, base: &Self) -> Self {
        let mut since = *self;
        let counters = since.counts.iter_mut().chain(&mut since.shares);
        for (now, base) in counters.zip(base.counts.iter().chain(&base.shares)) {
            *now = now.wrapping_sub(*base);
        }
        since
    }

    /// All zero.
    pub const NONE: Self = Self { counts: [0; BUCKETS], shares: [0; CELLS] };
}

/// On which nodes a task ran. Kept if there are several nodes, see [`Config::nodes`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// The index of the node on which it last ran, plus one; 0: it has not run on a known node.
    pub place: u32,
    /// `task_struct.numa_preferred_nid` at the reading; -1: none.
    pub preferred_node: i32,
    /// Number of times that it switched in on another node than the one on which it last ran.
    pub node_migrations: u64,
    /// Its time on CPUs when it last switched in from another node, ns.
    pub since_ran_ns: u64,
    /// Its time on CPUs by node index, ns, without the time since `since_ran_ns`.
    pub ran_ns: [u64; NODES],
}

impl Placement {
    /// Returns where the task ran since its time on CPUs was `base_ns`. `base` was reported later than that; time on other nodes
    /// in between is unknown.
    pub fn since(&self, base: &Self, base_ns: u64) -> Self {
        let mut ran_ns = self.ran_ns;
        for (now, base) in ran_ns.iter_mut().zip(base.ran_ns) {
            *now = now.saturating_sub(base);
        }
        Self {
            node_migrations: self.node_migrations.saturating_sub(base.node_migrations),
            since_ran_ns: self.since_ran_ns.saturating_sub(base_ns),
            ran_ns,
            ..*self
        }
    }
}

/// Counters of one CPU, if [`Config::count_by_cpu`] is set. Only that CPU's hook writes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpuCounters {
    /// The longest completed wait.
    pub max_ns: u64,
    /// Sums of completed waits by cause.
    pub by_cause: ByCause,
    /// Completed waits.
    pub histogram: Histogram,
    /// Number of times that a task switched in which had last run on the node with this index.
    pub came_from: [u64; NODES],
}

/// One task, as the iterator reports it. In the stream these parts follow, each if its flag is set: a [`Reported`] ([`HAS_BASE`]),
/// the [`Placement`] ([`HAS_PLACEMENT`]), the [`AccountsRecord`] ([`HAS_ACCOUNTS`]), the [`Stack`](crate::Stack) ([`HAS_STACK`]),
/// the [`Histogram`] ([`HAS_HISTOGRAM`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    /// Bytes of this record and all parts that follow it.
    pub len: u32,
    /// [`HAS_HISTOGRAM`], [`HAS_PLACEMENT`], [`HAS_ACCOUNTS`], [`HAS_STACK`], [`HAS_BASE`], [`ON_CPU`], [`ON_RQ`].
    pub flags: u32,
    /// See [`serial`].
    pub serial: u64,
    /// Thread id.
    pub tid: u32,
    /// Process id.
    pub tgid: u32,
    /// NUL-padded name.
    pub comm: [u8; 16],
    /// Start time, ns of CLOCK_MONOTONIC.
    pub start_ns: u64,
    /// The task's cgroup in the hierarchy that [`Config::cgroup_v2`] names.
    pub cgroup_id: u64,
    /// The CPU on which the task runs, last ran, or is queued.
    pub cpu: u32,
    /// `task_struct.__state`: 0 running or runnable.
    pub state: u32,
    /// `sched_info.last_queued`: since when the task waits; 0 if it does not.
    pub last_queued_ns: u64,
    /// The clock of the task's run queue. The clock of an idle CPU stands still.
    pub rq_clock_ns: u64,
    /// Sums of the kernel and of the hook.
    pub totals: Totals,
    /// The waits that the hook has counted.
    pub waits: Waits,
    /// The current wait by cause, from its beginning to `rq_clock_ns`.
    pub pending: ByCause,
    /// The cause of the wait at this moment, a [`crate::Cause`]. Waiting time after `rq_clock_ns` counts for this cause.
    pub pending_cause: u64,
}

/// A task that did nothing since its last report, as the iterator reports it: in place of a [`TaskRecord`], with the flag [`SAME`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SameRecord {
    /// Bytes of this record.
    pub len: u32,
    /// [`SAME`].
    pub flags: u32,
    /// See [`serial`].
    pub serial: u64,
    /// See [`Waits::flags`]: user space itself changes [`FOLLOWED`].
    pub followed: u64,
}

/// In [`SameRecord::flags`]: nothing changed since the last report of this task.
pub const SAME: u32 = 128;
/// In [`SameRecord::flags`]: the task has exited.
pub const HAS_EXITED: u32 = 256;

/// The end of a CPU's list of changed tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListRecord {
    /// Bytes of this record.
    pub len: u32,
    /// [`LIST`].
    pub flags: u32,
    /// The CPU; the number of possible CPUs for the reader's own list.
    pub cpu: u64,
    /// Tasks that run or wait on the CPU (`rq->nr_running`).
    pub running: u64,
    /// 1: the list has more entries.
    pub has_more: u64,
    /// 1: the lists are not complete, so all tasks of the host must be visited.
    pub is_incomplete: u64,
}

/// In [`ListRecord::flags`]: the only flag.
pub const LIST: u32 = 512;
/// In [`TaskRecord::flags`]: the histogram follows.
pub const HAS_HISTOGRAM: u32 = 1;
/// In [`TaskRecord::flags`]: on a CPU at this moment.
pub const ON_CPU: u32 = 2;
/// In [`TaskRecord::flags`]: on a run queue (running or waiting).
pub const ON_RQ: u32 = 4;
/// In [`TaskRecord::flags`]: the placement follows.
pub const HAS_PLACEMENT: u32 = 8;
/// In [`TaskRecord::flags`]: the accounts follow.
pub const HAS_ACCOUNTS: u32 = 16;
/// In [`TaskRecord::flags`]: the task is blocked, and its stack follows. Set once for each time that it is blocked.
pub const HAS_STACK: u32 = 32;
/// In [`TaskRecord::flags`]: the task has moved to another cgroup since its last report. Its figures until the latest move
/// follow; they count for other cgroups.
pub const HAS_BASE: u32 = 64;

/// The value of the table of exited tasks, by cgroup id: figures that were not reported to user space, and what found no entry in the
/// tables of a CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exited {
    /// Number of exited tasks.
    pub tasks: u64,
    /// The longest wait in the whole life of any of them.
    pub max_ns: u64,
    /// Sums of these tasks.
    pub totals: Totals,
    /// Their time besides waits.
    pub accounts: Accounts,
    /// Their waits by bucket.
    pub counts: [u64; BUCKETS],
    /// Their waits by row and cause.
    pub shares: [u64; CELLS],
    /// Pairs whose victim is the cgroup.
    pub kept: Kept,
    /// Waits of its tasks and of those below it.
    pub pressure: KeptPressure,
    /// Number of complete additions of figures. An addition writes it last.
    pub complete: u64,
    /// The values of `complete` when the entry was reported the last two times: see [`Self::is_reported`].
    pub reported: [u64; 2],
}

impl Exited {
    /// Adds the pressure of waits without an entry in the table of their CPU.
    #[inline(always)]
    pub fn keep_pressure(&mut self, more: KeptPressure) {
        self.pressure.add(more);
        add_atomic(&mut self.complete, 1);
    }

    /// The initial value, without tasks.
    pub const NONE: Self = Self {
        tasks: 0,
        max_ns: 0,
        totals: Totals::NONE,
        accounts: Accounts::NONE,
        counts: [0; BUCKETS],
        shares: [0; CELLS],
        kept: Kept::NONE,
        pressure: KeptPressure { contention_ns: 0, whole_ns: 0, uncertain_ns: 0 },
        complete: 0,
        reported: [0; 2],
    };

    /// Returns whether nothing was added since the entry was reported twice. Once is not enough, because another CPU may see the
    /// writes in another order. By the next reading it sees all of them.
    #[inline(always)]
    pub const fn is_reported(complete: u64, reported: [u64; 2]) -> bool {
        complete == reported[0] && complete == reported[1]
    }
}

/// An element of a hash table with this value has to fit into the largest object of the kernel's allocator for BPF, with a head of 48
/// bytes and the key (`alloc_htab_elem`, `bpf_mem_alloc_size_check`; Linux 6.1 to 7.2).
const _: () = assert!(size_of::<Exited>() + 48 + 8 <= 4096 - 8);

/// What the iterator reports of an entry in the table of exited tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitedRecord {
    /// Id of the cgroup.
    pub cgroup_id: u64,
    /// 1: an [`Exited`] follows; 0: the entry has not changed since the last report, or no task has exited.
    pub follows: u64,
}

/// Maximum number of cgroups with a quota whose demand is kept.
pub const DEMAND_PLACES: usize = 256;

/// Entries in the table of exited tasks: cgroups that have a followed task, or had one and are not released yet.
pub const EXITED_CGROUPS: usize = 16_384;
/// Entries in the table of stacks, if stacks are counted: about 10 MiB.
pub const STACKS: usize = 16_384;
/// Entries in the table of selected processes and threads.
pub const SELECTED_MAX: usize = 65_536;

/// A cgroup was created, removed or renamed. Sent only up to the end of the path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CgroupEvent {
    /// See [`cgroup_event`].
    pub kind: u32,
    /// 1: the path is longer than this, or could not be read.
    pub is_cut: u32,
    /// Id of the cgroup.
    pub id: u64,
    /// The path from the root of the hierarchy, with its NUL; only if the cgroup was created.
    pub path: [u8; CGROUP_PATH],
}

impl CgroupEvent {
    /// Size of the event without its path, bytes.
    pub const HEAD: usize = size_of::<Self>() - CGROUP_PATH;
}

/// The values of [`CgroupEvent::kind`].
pub mod cgroup_event {
    /// The cgroup was created.
    pub const MADE: u32 = 1;
    /// The cgroup was removed.
    pub const REMOVED: u32 = 2;
    /// The cgroup was renamed: it and all cgroups below it have new paths.
    pub const RENAMED: u32 = 3;
}

/// Maximum size of a path in an event, including its NUL, bytes.
pub const CGROUP_PATH: usize = 256;
/// Size of the event buffer, bytes: enough for about 5,000 cgroups created and removed between two readings. User space maps it
/// twice, which counts as its memory.
pub const CGROUP_EVENTS_BYTES: usize = 512 << 10;

/// Key of the table of selected ids: added to a process id.
pub const SELECT_PROCESS: u64 = 1 << 32;
/// Key of the table of selected ids: added to a thread id.
pub const SELECT_THREAD: u64 = 2 << 32;

/// Settings that user space writes before the programs are loaded.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// 1: follow every task. 0: follow the tasks in the table of selected ids, and the children of processes in it.
    pub follow_all: u64,
    /// Time of the start, ns of CLOCK_MONOTONIC. All waits of a task that starts later are counted.
    pub born_after_ns: u64,
    /// 1: a task's cgroup is that of the default hierarchy (v2), even where the cpu controller is not enabled that deep. 0: that
    /// of the cpu controller's own hierarchy (v1 and hybrid hosts).
    pub cgroup_v2: u64,
    /// Id of the root cgroup of that hierarchy. A task in an autogroup (`kernel.sched_autogroup_enabled`, v1 and hybrid hosts) is
    /// in the root cgroup, but its scheduler group belongs to no cgroup.
    pub root_cgroup_id: u64,
    /// ns of CLOCK_MONOTONIC: a process or thread that starts later is not the selected one, even if its id is the same.
    pub select_born_before_ns: u64,
    /// 1: culprits are single tasks, not only cgroups. Only for a selected target: a whole host would have too many.
    pub blame_tasks: u64,
    /// The number of the hierarchy of [`Self::cgroup_v2`], as in /proc/self/cgroup: ids of different hierarchies collide.
    /// `u64::MAX`: user space requests no events of created and removed cgroups.
    pub cgroup_hierarchy: u64,
    /// Number of NUMA nodes that have CPUs, at most [`crate::wire::NODES`]. With one node no placement is reported.
    pub nodes: u64,
    /// 1: waits are also counted by CPU.
    pub count_by_cpu: u64,
    /// 1: we keep a clock of throttled time, because the kernel has none.
    pub keep_throttle_clock: u64,
    /// 1: report [`crate::wire::Accounts`].
    pub accounts: u64,
    /// If not 0, and `accounts` is set: take a task's stack each time it has been blocked for this long since the last time, ns.
    pub stack_every_ns: u64,
    /// 1: the readings serve several viewers, and processes are followed for each viewer.
    pub shared: u64,
    /// Number of possible CPUs.
    pub cpus: u64,
    /// 1: count the [demand](crate::demand) of cgroups with a quota.
    pub demand: u64,
}

/// How the current wait segment of a task began: with a switch out or with a move to this CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Id of the cgroup whose quota had run out, or [`RUNTIME`], or [`ASLEEP`]; 0: none of them.
    pub limit: u64,
    /// 0: the hook did not see the segment begin: the task went to sleep, or was preempted on its way to sleep. Otherwise 1, or
    /// [`NO_CLOCK`].
    pub is_seen: u64,
    /// The task's number of switches at that time. If it has changed since, the current wait is a later one.
    pub switches: u64,
    /// [`Throttled time`](Self::throttled_ns) of the task's queue at the start, ns. After a move the clock of the new CPU is not
    /// known yet: negative (as `i64`) if the queue is throttled; then the time at which the task was queued must be added.
    pub throttle_ns: u64,
    /// Address of that queue (`struct cfs_rq`).
    pub queue: u64,
    /// Address of the task's group.
    pub group: u64,
    /// [`Ring::kernel_ns`](crate::history::Ring::kernel_ns) of the CPU at the start. If it is negative (as `i64`), the time at which
    /// the task was queued must be added, as for `throttle_ns`.
    pub kernel_ns: u64,
    /// [`Ring::idle_ns`](crate::history::Ring::idle_ns) of the CPU at the start, likewise.
    pub idle_ns: u64,
    /// [`Ring::taken`](crate::history::Ring::taken) of the CPU at the start.
    pub taken: Taken,
    /// How long the task's group had run on the CPU at the start, ns; 0: unknown.
    pub group_ran_ns: u64,
    /// When the task was found in another group while it waited, ns of the clock of its CPU, if no program saw the move itself. It belongs to
    /// the current segment only if it lies in it.
    pub left_ns: u64,
    /// The CPU on which the segment began.
    pub cpu: u32,
    /// The CPU on which the task last ran, or [`NO_CPU`]. Kept if there are several nodes.
    pub ran_on: u32,
}

/// The segments of the current wait that ended with a move to another CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Their length, ns. 0: the task has not moved during this wait.
    pub ns: u64,
    /// Their parts by cause, which sum to `ns`.
    pub parts: ByCause,
}

/// Time in which a CPU ran no task although it was not idle, ns. The scheduler's clock goes on meanwhile.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// In interrupts, if the kernel accounts for them.
    pub irq_ns: u64,
    /// The hypervisor had the CPU, as far as it says so.
    pub stolen_ns: u64,
}

/// Time that tasks of one cgroup waited because of another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Id of the cgroup that waited.
    pub victim: u64,
    /// Id of the cgroup that ran or was out of quota, or [`KERNEL`](crate::history::KERNEL).
    pub culprit: u64,
    /// See [`kind`]; 0: an empty entry.
    pub kind: u32,
    /// The task that ran, if culprits are single tasks.
    pub tid: u32,
    /// Sum, ns.
    pub ns: u64,
    /// ns of `rq->clock` at the latest addition.
    pub last_ns: u64,
    /// ns of `rq->clock` at the first addition. If it changes, the pair was evicted and added again.
    pub born_ns: u64,
    /// Name of the task.
    pub comm: [u8; 16],
}

/// Pairs that are kept with a victim. A power of two.
pub const KEPT: usize = 8;

/// The pairs of a victim that found no entry in the table of their CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Not 0: a CPU writes `pairs`.
    pub(crate) lock: u64,
    /// The pairs.
    pub pairs: [Pair; KEPT],
    /// Time that none of them names, ns by [`kind`] minus 1.
    pub unnamed_ns: [u64; 2],
}

impl Kept {
    /// No pairs.
    pub const NONE: Self = Self {
        lock: 0,
        pairs: [Pair { victim: 0, culprit: 0, kind: 0, tid: 0, ns: 0, last_ns: 0, born_ns: 0, comm: [0; 16] };
            KEPT],
        unnamed_ns: [0; 2],
    };
}
