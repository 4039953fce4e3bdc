//! Names of the BPF object's maps, programs and globals, for the loader.

/// The `static` with the settings: [`super::Config`].
pub const CONFIG: &str = "CONFIG";
/// The `static` with the offsets: [`crate::Offsets`].
pub const OFFSETS: &str = "OFFSETS";
/// Task storage with values of the type [`super::TaskStorage`].
pub const TASKS: &str = "TASKS";
/// Hash from cgroup id to [`super::Exited`].
pub const EXITED: &str = "EXITED";
/// Hash from a selected process or thread to its [`FOLLOWED`](super::FOLLOWED) bits.
pub const SELECTED: &str = "SELECTED";
/// Array with one element: [`super::Marks`].
pub const MARKS: &str = "MARKS";
/// Array of [`crate::history::Ring`], indexed by CPU.
pub const RINGS: &str = "RINGS";
/// Array of [`crate::culprits::Pairs`], indexed by CPU.
pub const PAIRS: &str = "PAIRS";
/// Array of [`crate::pressure::Pressures`], indexed by CPU.
pub const PRESSURES: &str = "PRESSURES";
/// Array of [`crate::demand::Slots`], indexed by place.
pub const DEMAND: &str = "DEMAND";
/// Hash from cgroup id to the cgroup's place in [`DEMAND`].
pub const DEMAND_PLACES: &str = "DEMAND_PLACES";
/// Array with one word: number of the latest change of [`DEMAND_PLACES`]; 0 if no cgroup has a place.
pub const DEMAND_TURN: &str = "DEMAND_TURN";
/// Array with one word: the time up to which user space has read [`PAIRS`] and [`PRESSURES`], ns of `rq->clock`.
pub const KEPT_SINCE: &str = "KEPT_SINCE";
/// Array with one word: when the first reading of tasks ended, ns of CLOCK_MONOTONIC; 0 before that.
pub const FIRST_READ: &str = "FIRST_READ";
/// Array of NUMA node indices plus one, indexed by CPU; 0 if the node is unknown.
pub const CPU_NODE: &str = "CPU_NODE";
/// Array of [`super::CpuCounters`], indexed by CPU.
pub const CPUS: &str = "CPUS";
/// Array of [`crate::throttle::ThrottleClocks`], indexed by CPU.
pub const THROTTLE_CLOCKS: &str = "THROTTLE_CLOCKS";
/// Hash from [`super::StackKey`] to [`super::StackCount`].
pub const STACKS: &str = "STACKS";
/// Array of [`crate::changes::Changes`], indexed by CPU. It has one more element, for the reader.
pub const CHANGES: &str = "CHANGES";
/// Array with one word: number of the current reading of changes.
pub const TURN: &str = "TURN";
/// The iterator over the lists of changed tasks.
pub const READ_CHANGES: &str = "read_changes";
/// The program that runs when a task is renamed.
pub const ON_RENAME: &str = "on_rename";
/// Array with one word: how much memory tasks may still take, bytes, as a signed number.
pub const MEMORY_LEFT: &str = "MEMORY_LEFT";
/// Array of loss counters, with separate values for each CPU.
pub const LOSSES: &str = "LOSSES";
/// Ring buffer with events of the type [`super::CgroupEvent`].
pub const CGROUP_EVENTS: &str = "CGROUP_EVENTS";
/// The program that runs at each task switch: the hook.
pub const ON_SWITCH: &str = "on_switch";
/// The program that runs when a task moves to another CPU.
pub const ON_MOVE: &str = "on_move";
/// The program that runs when a new task starts.
pub const ON_NEW_TASK: &str = "on_new_task";
/// The program that runs when the kernel frees a task, and with it the task's value in [`TASKS`].
pub const ON_TASK_FREED: &str = "on_task_freed";
/// The program that runs after a cgroup was created.
pub const ON_CGROUP_MADE: &str = "on_cgroup_made";
/// The program that runs after a cgroup was removed.
pub const ON_CGROUP_REMOVED: &str = "on_cgroup_removed";
/// The program that runs after a cgroup was renamed.
pub const ON_CGROUP_RENAMED: &str = "on_cgroup_renamed";
/// The program that runs after a task or a whole process has moved to another cgroup.
pub const ON_CGROUP_ATTACH: &str = "on_cgroup_attach";
/// The program that runs when a task leaves its scheduler group for another.
pub const ON_LEAVE_GROUP: &str = "on_leave_group";
/// The program that runs after a task has entered its new scheduler group.
pub const ON_ENTER_GROUP: &str = "on_enter_group";
/// The program that runs for each queue of a hierarchy that runs out of quota.
pub const ON_THROTTLE: &str = "on_throttle";
/// The program that runs for each queue of a hierarchy that has quota again.
pub const ON_UNTHROTTLE: &str = "on_unthrottle";
/// The program that iterates over all tasks.
pub const READ_TASKS: &str = "read_tasks";
/// The program that iterates over [`EXITED`].
pub const READ_EXITED: &str = "read_exited";
