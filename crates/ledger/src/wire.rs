//! The records that the kernel side sends to user space, and the storage from which it reads them.
//!
//! All types are `repr(C)` without padding. Both sides are built together, so there is no version number.

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

/// Maximum number of NUMA nodes that are kept separate. User space gives each node an index, because node numbers can have gaps.
pub const NODES: usize = 16;

/// Number of waits per bucket. The counters only rise, and wrap at 2^32.
pub type Counts = [u32; BUCKETS];

/// The hook's figures about the waits of one task. All only rise, except `expected_run_delay_ns` (which follows the kernel's sum)
/// and `unstamped_since_ns`. They fill one cache line, so the hook touches two: this one and the line of a bucket.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    /// The `sched_info.run_delay` that the task has at its next switch in, if it does not migrate while it waits.
    pub expected_run_delay_ns: u64,
    /// Sum of completed waits, ns.
    pub total_ns: u64,
    /// Number of completed waits.
    pub count: u64,
    /// The longest completed wait since cgscope follows the task, ns.
    pub max_ns: u64,
    /// Since when the task waits after a preemption with its state already set, ns of `rq->clock`; 0: there is no such wait.
    pub unstamped_since_ns: u64,
    /// Sum of the waits after a preemption with the state already set, ns. The kernel does not count such waits.
    pub unstamped_ns: u64,
    /// Number of waits in `unstamped_ns`.
    pub unstamped_count: u64,
    /// [`INHERIT`] and [`FOLLOWED`]. Written when the task starts; after that, only by the reader.
    pub flags: u64,
}

/// In [`Waits::flags`]: the children of this task are followed, too.
pub const INHERIT: u64 = 1;

/// In [`Waits::flags`]: one bit for each of [`FOLLOWERS`], if readings are [shared](Config::shared). Children inherit the bits.
pub const FOLLOWED: u64 = !0 << FOLLOWED_SHIFT;
/// Number of the lowest bit of [`FOLLOWED`].
pub const FOLLOWED_SHIFT: u32 = 8;
/// Maximum number of viewers that can follow processes and their descendants at the same time.
pub const FOLLOWERS: u32 = u64::BITS - FOLLOWED_SHIFT;

/// Changes that the reader makes to the [`FOLLOWED`] bits of every task.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Bits to clear.
    pub clear: u64,
    /// Not 0: each process in the table of selected ids gets the bits of its entry.
    pub look: u64,
}

/// Returns a number that identifies a task within this boot. A tid alone is reused. The number is computed once, when cgscope
/// starts to follow the task: `execve` in a thread gives the thread the tid and start time of its process (`de_thread`).
#[inline(always)]
pub const fn serial(tid: u32, start_ns: u64) -> u64 {
    // A tid has at most 22 bits (PID_MAX_LIMIT). Tasks collide only if they have the same tid and start 2^42 ns (73 minutes)
    // apart, to the nanosecond.
    ((tid as u64) << START_BITS) | (start_ns & ((1 << START_BITS) - 1))
}

/// Returns the serial of the same task after a move to another cgroup.
#[inline(always)]
pub const fn next_serial(serial: u64) -> u64 {
    // Adds one nanosecond: no other task with that tid starts so close to it.
    (serial & !((1 << START_BITS) - 1)) | (serial.wrapping_add(1) & ((1 << START_BITS) - 1))
}

const START_BITS: u32 = 42;

/// Calls a macro with the summable readings of a task, in the order of their columns in recordings. This is the only list of
/// them. [`Totals::by_cause`] is separate.
#[macro_export]
macro_rules! totals {
    ($with:ident) => {
        $with! {
            /// Completed waits on a run queue.
            waits,
            /// Sum of completed waits, ns, including the parts on other CPUs before a migration.
            wait_ns,
            /// The kernel's own sum of waits, ns (`/proc/PID/schedstat`, second field).
            run_delay_ns,
            /// Waits after a preemption with the state already set. The kernel does not count these.
            unstamped,
            /// Sum of the waits in `unstamped`, ns.
            unstamped_ns,
            /// Time on a CPU, ns.
            on_cpu_ns,
            /// Voluntary switches.
            voluntary,
            /// Involuntary switches.
            involuntary,
            /// Migrations between CPUs.
            migrations,
            /// Completed waits during which the task was out of quota for part of the time.
            throttled_waits,
        }
    };
}

macro_rules! wire_totals {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// The readings of a task that can be summed over the tasks of a cgroup and over exited tasks.
        #[repr(C)]
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Totals {
            $($(#[$doc])* pub $name: u64,)*
            /// Sums of completed waits by cause, ns. They sum to `wait_ns`.
            pub by_cause: ByCause,
        }

        impl Totals {
            /// All zero.
            pub const NONE: Self = Self { $($name: 0,)* by_cause: [0; CAUSES] };

            /// Calls `add` for each reading with the increase from `base` to `now`, modulo 2^64.
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

/// The storage of a task that has not run since cgscope follows it. When the task first switches in, the hook creates its
/// [`TaskStorage`] from these figures. Used only if the hook may allocate, see
/// [`Feature::StorageCache`](crate::Feature::StorageCache).
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Sleeper {
    /// See [`serial`].
    pub serial: u64,
    /// The serial that was last reported to user space.
    pub reported_serial: u64,
    /// Id of the task's cgroup.
    pub cgroup_id: u64,
    /// `sched_info.run_delay` of the task, ns.
    pub run_delay_ns: u64,
    /// See [`Waits::flags`].
    pub flags: u64,
    /// Number of the task's migrations. A wakeup on another CPU counts one before the task switches in.
    pub migrations: u64,
    /// What the reader last reported.
    pub face: Face,
}

/// Properties of a task that can change while it sleeps, without a switch.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Face {
    /// NUL-padded name.
    pub comm: [u64; 2],
    /// Address of an object that the kernel replaces when it moves the task to another cgroup.
    pub group: u64,
    /// See [`TaskRecord::state`]. The kernel can freeze a sleeping task.
    pub state: u64,
}

/// The value of the task storage map. The members that every switch needs come first, to take few cache lines.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TaskStorage {
    /// Waits, written by the hook.
    pub waits: Waits,
    /// Id of the cgroup for which figures after `reported` count. It has an entry in the table of exited tasks.
    pub cgroup_id: u64,
    /// [`UNCHANGED`], [`LISTED`] or [`ACTIVE`].
    pub has_changed: u64,
    /// The task's part of the demand of a cgroup with a quota.
    pub demand: Demand,
    /// Sums of completed waits by cause, ns, written by the hook.
    pub by_cause: ByCause,
    /// How the current wait segment began.
    pub start: Start,
    /// Completed waits during which the task was out of quota for part of the time, written by the hook.
    pub throttled_waits: u64,
    /// The completed segments of the current wait.
    pub moved: Moved,
    /// The nodes on which the task ran.
    pub placement: Placement,
    /// How the task is blocked.
    pub blocked: Blocked,
    /// See [`serial`]. It changes with each move to another cgroup ([`next_serial`]).
    pub serial: u64,
    /// The serial that user space received last.
    pub reported_serial: u64,
    /// Not 0: a program changes `reported`, `cgroup_id` and `serial`, or reads them together. Taken and released atomically.
    pub lock: u64,
    /// Not 0: the task has exited, and its unreported figures are added to its cgroup.
    pub is_handed_over: u64,
    /// What the reader last reported.
    pub face: Face,
    /// Completed waits, written by the hook.
    pub histogram: Histogram,
    /// The figures that were last reported to user space or added to a cgroup's entry. At an exit and at a move to another
    /// cgroup, newer figures are added to the cgroup's entry.
    pub reported: Reported,
}

/// Size of `struct bpf_local_storage`, one for each task, rounded up, bytes (Linux 6.18).
const OF_TASK: usize = 256;

/// Returns the kernel memory of a storage value, bytes, rounded up: `bpf_local_storage_elem` precedes the value; the list node of
/// the cache and the charged cgroup follow it (Linux 6.18).
const fn in_kernel(value: usize) -> usize {
    (72 + value + 16).next_power_of_two()
}

/// Memory of a task with a [`TaskStorage`], bytes. 3 KiB are in user space, for a few samples and for comparing and encoding
/// them.
pub const TASK_BYTES: u64 = (in_kernel(size_of::<TaskStorage>()) + OF_TASK + (3 << 10)) as u64;

/// Memory of a [`Sleeper`], bytes. 1 KiB of it is in user space, for one reading.
pub const SLEEPER_BYTES: u64 = (in_kernel(size_of::<Sleeper>()) + OF_TASK + (1 << 10)) as u64;

/// In [`TaskStorage::has_changed`]: the task did nothing since its last report.
pub const UNCHANGED: u64 = 0;
/// In [`TaskStorage::has_changed`]: the task has switched in since its last report, and is on the list of its CPU.
pub const LISTED: u64 = 1;
/// In [`TaskStorage::has_changed`]: the task was active at its last report, so the reader has it on its own list. The hook does
/// nothing when this task goes to sleep.
pub const ACTIVE: u64 = 2;

/// Cumulative readings of a task.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reported {
    /// Sums of the task's waits, run time and switches.
    pub totals: Totals,
    /// The task's time besides waits.
    pub accounts: Accounts,
    /// The task's completed waits.
    pub histogram: Histogram,
}

/// Completed waits by length and by cause. The counters only rise, and wrap at 2^32.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram {
    /// Number of waits by bucket.
    pub counts: Counts,
    /// Shares of waits by row and cause.
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

/// The nodes on which a task ran. Kept if there are several nodes, see [`Config::nodes`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Placement {
    /// Index of the node on which the task last ran, plus one; 0: it has not run on a known node.
    pub place: u32,
    /// `task_struct.numa_preferred_nid` at the time of the reading; -1: none.
    pub preferred_node: i32,
    /// Number of times that the task switched in on another node than the one on which it last ran.
    pub node_migrations: u64,
    /// The task's run time when it last switched in from another node, ns.
    pub since_ran_ns: u64,
    /// The task's run time by node index, ns, without the time since `since_ran_ns`.
    pub ran_ns: [u64; NODES],
}

impl Placement {
    /// Returns the placement since the run time was `base_ns`. `base` is newer than that; time on other nodes in between is
    /// unknown.
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

/// Counters of one CPU, kept if [`Config::count_by_cpu`] is set. Only that CPU's hook writes them.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CpuCounters {
    /// The longest completed wait, ns.
    pub max_ns: u64,
    /// Sums of completed waits by cause, ns.
    pub by_cause: ByCause,
    /// Completed waits.
    pub histogram: Histogram,
    /// Number of switches in by the index of the node on which the task had last run.
    pub came_from: [u64; NODES],
}

/// The record of one task that the iterator reports. In the stream, these parts follow, each if its flag is set: a [`Reported`]
/// ([`HAS_BASE`]), the [`Placement`] ([`HAS_PLACEMENT`]), the [`AccountsRecord`] ([`HAS_ACCOUNTS`]), the [`Stack`](crate::Stack)
/// ([`HAS_STACK`]), the [`Histogram`] ([`HAS_HISTOGRAM`]).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskRecord {
    /// Bytes of this record and the parts that follow it.
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
    /// Id of the task's cgroup in the hierarchy that [`Config::cgroup_v2`] selects.
    pub cgroup_id: u64,
    /// The CPU on which the task runs, last ran, or is queued.
    pub cpu: u32,
    /// `task_struct.__state`: 0 if the task runs or is runnable.
    pub state: u32,
    /// `sched_info.last_queued`: since when the task waits, ns; 0: it does not wait.
    pub last_queued_ns: u64,
    /// The clock of the task's run queue, ns. The clock of an idle CPU stands still.
    pub rq_clock_ns: u64,
    /// Sums that the kernel and the hook keep.
    pub totals: Totals,
    /// The waits that the hook has counted.
    pub waits: Waits,
    /// The current wait by cause, from its start to `rq_clock_ns`, ns.
    pub pending: ByCause,
    /// The [`crate::Cause`] of the wait at this moment. Waiting time after `rq_clock_ns` counts for this cause.
    pub pending_cause: u64,
}

/// The record of a task that did nothing since its last report. It replaces a [`TaskRecord`], and has the flag [`SAME`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SameRecord {
    /// Bytes of this record.
    pub len: u32,
    /// [`SAME`].
    pub flags: u32,
    /// See [`serial`].
    pub serial: u64,
    /// See [`Waits::flags`]. User space itself changes [`FOLLOWED`].
    pub followed: u64,
}

/// In [`SameRecord::flags`]: the task did nothing since its last report.
pub const SAME: u32 = 128;
/// In [`SameRecord::flags`]: the task has exited.
pub const HAS_EXITED: u32 = 256;

/// The record at the end of a CPU's list of changed tasks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListRecord {
    /// Bytes of this record.
    pub len: u32,
    /// [`LIST`].
    pub flags: u32,
    /// The CPU. For the reader's own list, the number of possible CPUs.
    pub cpu: u64,
    /// Number of tasks that run or wait on the CPU (`rq->nr_running`).
    pub running: u64,
    /// 1: the list has more entries.
    pub has_more: u64,
    /// 1: the lists are incomplete, so the reader must visit all tasks of the host.
    pub is_incomplete: u64,
}

/// In [`ListRecord::flags`]: the only flag.
pub const LIST: u32 = 512;
/// In [`TaskRecord::flags`]: the histogram follows.
pub const HAS_HISTOGRAM: u32 = 1;
/// In [`TaskRecord::flags`]: the task is on a CPU.
pub const ON_CPU: u32 = 2;
/// In [`TaskRecord::flags`]: the task is on a run queue (it runs or waits).
pub const ON_RQ: u32 = 4;
/// In [`TaskRecord::flags`]: the placement follows.
pub const HAS_PLACEMENT: u32 = 8;
/// In [`TaskRecord::flags`]: the accounts follow.
pub const HAS_ACCOUNTS: u32 = 16;
/// In [`TaskRecord::flags`]: the task is blocked, and its stack follows. Set once each time the task blocks.
pub const HAS_STACK: u32 = 32;
/// In [`TaskRecord::flags`]: the task has moved to another cgroup since its last report. Its figures until the latest move
/// follow; they count for other cgroups.
pub const HAS_BASE: u32 = 64;

/// The value of the table of exited tasks, by cgroup id: unreported figures, and figures that found no entry in a CPU's tables.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Exited {
    /// Number of exited tasks.
    pub tasks: u64,
    /// The longest wait of any exited task, over the whole life of the task, ns.
    pub max_ns: u64,
    /// Sums of the exited tasks.
    pub totals: Totals,
    /// Time of the exited tasks besides waits.
    pub accounts: Accounts,
    /// Waits of the exited tasks by bucket.
    pub counts: [u64; BUCKETS],
    /// Waits of the exited tasks by row and cause.
    pub shares: [u64; CELLS],
    /// Pairs whose victim is the cgroup.
    pub kept: Kept,
    /// Waits of the cgroup's tasks and of its descendants' tasks.
    pub pressure: KeptPressure,
    /// Number of completed additions to this entry. Each addition writes this number last.
    pub complete: u64,
    /// The values of `complete` at the last two reports of the entry, see [`Self::is_reported`].
    pub reported: [u64; 2],
}

impl Exited {
    /// Adds the pressure of waits without an entry in the table of their CPU.
    #[inline(always)]
    pub fn keep_pressure(&mut self, more: KeptPressure) {
        self.pressure.add(more);
        add_atomic(&mut self.complete, 1);
    }

    /// An entry without tasks.
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

    /// Returns whether nothing was added since the entry was reported twice. One report is not enough, because another CPU may
    /// see the writes in another order. By the next reading, it sees all of them.
    #[inline(always)]
    pub const fn is_reported(complete: u64, reported: [u64; 2]) -> bool {
        complete == reported[0] && complete == reported[1]
    }
}

/// A hash table element with this value must fit into the largest object of the kernel's BPF allocator, together with a head of
/// 48 bytes and the key (`alloc_htab_elem`, `bpf_mem_alloc_size_check`; Linux 6.1 to 7.2).
const _: () = assert!(size_of::<Exited>() + 48 + 8 <= 4096 - 8);

/// The record of an entry in the table of exited tasks that the iterator reports.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExitedRecord {
    /// Id of the cgroup.
    pub cgroup_id: u64,
    /// 1: an [`Exited`] follows; 0: the entry has not changed since the last report, or no task has exited.
    pub follows: u64,
}

/// Maximum number of cgroups with a quota whose demand is counted.
pub const DEMAND_PLACES: usize = 256;

/// Maximum number of entries in the table of exited tasks: one for each cgroup that has or had a followed task, until its
/// release.
pub const EXITED_CGROUPS: usize = 16_384;
/// Maximum number of entries in the table of stacks, if stacks are counted: about 10 MiB.
pub const STACKS: usize = 16_384;
/// Maximum number of selected processes and threads.
pub const SELECTED_MAX: usize = 65_536;

/// The event that a cgroup was created, removed or renamed. It is sent only up to the end of the path.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CgroupEvent {
    /// See [`cgroup_event`].
    pub kind: u32,
    /// 1: the path is too long for this event, or could not be read.
    pub is_cut: u32,
    /// Id of the cgroup.
    pub id: u64,
    /// The path from the root of the hierarchy, with a final NUL; only if the cgroup was created.
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
    /// The cgroup was renamed, so it and its descendants have new paths.
    pub const RENAMED: u32 = 3;
}

/// Maximum size of a path in an event, including its NUL, bytes.
pub const CGROUP_PATH: usize = 256;
/// Size of the event buffer, bytes. It holds about 5,000 created and removed cgroups between two readings. User space maps the
/// buffer twice, and both mappings count as its memory.
pub const CGROUP_EVENTS_BYTES: usize = 512 << 10;

/// Added to a process id to form its key in the table of selected ids.
pub const SELECT_PROCESS: u64 = 1 << 32;
/// Added to a thread id to form its key in the table of selected ids.
pub const SELECT_THREAD: u64 = 2 << 32;

/// Settings that user space writes before it loads the programs.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// 1: follow every task. 0: follow the tasks in the table of selected ids, and the children of the processes in it.
    pub follow_all: u64,
    /// Time of the start, ns of CLOCK_MONOTONIC. For tasks that start later, all waits are counted.
    pub born_after_ns: u64,
    /// 1: a task's cgroup is the one in the default hierarchy (v2), even where the cpu controller is not enabled so deep. 0: it
    /// is the one in the cpu controller's own hierarchy (v1 and hybrid hosts).
    pub cgroup_v2: u64,
    /// Id of the root cgroup of that hierarchy. A task in an autogroup (`kernel.sched_autogroup_enabled`, v1 and hybrid hosts) is
    /// in the root cgroup, but its scheduler group belongs to no cgroup.
    pub root_cgroup_id: u64,
    /// A process or thread that starts later is not the selected one, even if its id is the same, ns of CLOCK_MONOTONIC.
    pub select_born_before_ns: u64,
    /// 1: culprits are single tasks, not only cgroups. Only for a selected target, because a whole host has too many tasks.
    pub blame_tasks: u64,
    /// Number of the hierarchy of [`Self::cgroup_v2`], as in /proc/self/cgroup; the ids of different hierarchies collide.
    /// `u64::MAX`: user space requests no events about cgroups.
    pub cgroup_hierarchy: u64,
    /// Number of NUMA nodes that have CPUs, at most [`NODES`]. With one node, no placement is reported.
    pub nodes: u64,
    /// 1: count waits by CPU, too.
    pub count_by_cpu: u64,
    /// 1: the programs keep a clock of throttled time, because the kernel has none.
    pub keep_throttle_clock: u64,
    /// 1: report [`crate::wire::Accounts`].
    pub accounts: u64,
    /// Blocked time of a task between two readings of its stack, ns; 0: read no stacks. Needs `accounts`.
    pub stack_every_ns: u64,
    /// 1: the readings serve several viewers, so processes are followed for each viewer separately.
    pub shared: u64,
    /// Number of possible CPUs.
    pub cpus: u64,
    /// 1: count the [demand](crate::demand) of cgroups with a quota.
    pub demand: u64,
}

/// How the current wait segment of a task began: with a switch out, or with a move to this CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Start {
    /// Id of the cgroup whose quota had run out; [`RUNTIME`](crate::segment::RUNTIME); [`ASLEEP`](crate::segment::ASLEEP); or 0:
    /// none of these.
    pub limit: u64,
    /// 0: the hook did not see the segment begin, because the task went to sleep or was preempted on its way. Otherwise 1 or
    /// [`NO_CLOCK`](crate::segment::NO_CLOCK).
    pub is_seen: u64,
    /// The task's number of switches at the start. If the number differs now, the current wait is a later one.
    pub switches: u64,
    /// Throttled time of the task's queue at the start, ns. After a move, the new CPU's clock is not known yet. Then a throttled
    /// queue has a negative number (as `i64`), to which the time when the task was queued must be added.
    pub throttle_ns: u64,
    /// Address of that queue (`struct cfs_rq`).
    pub queue: u64,
    /// Address of the task's group.
    pub group: u64,
    /// [`Ring::kernel_ns`](crate::history::Ring::kernel_ns) of the CPU at the start. To a negative number (as `i64`), the time
    /// when the task was queued must be added, as for `throttle_ns`.
    pub kernel_ns: u64,
    /// [`Ring::idle_ns`](crate::history::Ring::idle_ns) of the CPU at the start, in the same form.
    pub idle_ns: u64,
    /// [`Ring::taken`](crate::history::Ring::taken) of the CPU at the start.
    pub taken: Taken,
    /// How long the task's group had run on the CPU at the start, ns; 0: unknown.
    pub group_ran_ns: u64,
    /// When cgscope found the waiting task in another group, ns of the CPU's clock, if no program saw the move. Valid only within
    /// the current segment.
    pub left_ns: u64,
    /// The CPU on which the segment began.
    pub cpu: u32,
    /// The CPU on which the task last ran, or [`NO_CPU`](crate::segment::NO_CPU). Kept if there are several NUMA nodes.
    pub ran_on: u32,
}

/// The segments of the current wait that ended with a move to another CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Length of these segments, ns; 0: the task has not moved during this wait.
    pub ns: u64,
    /// Parts of these segments by cause, ns. They sum to `ns`.
    pub parts: ByCause,
}

/// Time in which a CPU ran no task although it was not idle, ns. The scheduler's clock runs on during that time.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Time in interrupts, if the kernel accounts for them.
    pub irq_ns: u64,
    /// Time in which the hypervisor had the CPU, as far as the hypervisor reports it.
    pub stolen_ns: u64,
}

/// Time that tasks of one cgroup waited because of another.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pair {
    /// Id of the cgroup that waited.
    pub victim: u64,
    /// Id of the cgroup that ran or was out of quota; or [`KERNEL`](crate::history::KERNEL).
    pub culprit: u64,
    /// See [`kind`](crate::culprits::kind); 0: an empty entry.
    pub kind: u32,
    /// Id of the thread that ran, if culprits are single tasks.
    pub tid: u32,
    /// Sum of the time that the victim waited, ns.
    pub ns: u64,
    /// When time was last added, ns of `rq->clock`.
    pub last_ns: u64,
    /// When time was first added, ns of `rq->clock`. If this changes, the pair was evicted and added again.
    pub born_ns: u64,
    /// Name of the thread that ran.
    pub comm: [u8; 16],
}

/// Number of pairs that are kept with a victim. A power of two.
pub const KEPT: usize = 8;

/// The pairs of a victim that found no entry in the table of their CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// Not 0: a CPU is writing `pairs`.
    pub(crate) lock: u64,
    /// The pairs.
    pub pairs: [Pair; KEPT],
    /// Time that no pair names, ns, by [`kind`](crate::culprits::kind) minus 1.
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
