//! Names of the BPF object's maps, programs and globals, for the loader.

/// `static`: [`super::Config`].
pub const CONFIG: &str = "CONFIG";
/// `static`: [`crate::Offsets`].
pub const OFFSETS: &str = "OFFSETS";
/// Task storage: [`super::TaskStorage`].
pub const TASKS: &str = "TASKS";
/// Hash, cgroup id: [`super::Exited`].
pub const EXITED: &str = "EXITED";
/// Hash, process or thread: the selected ids and their bits.
pub const SELECTED: &str = "SELECTED";
/// Array of one: [`super::Marks`].
pub const MARKS: &str = "MARKS";
/// Array, CPU: [`crate::history::Ring`].
pub const RINGS: &str = "RINGS";
/// Array, CPU: [`crate::culprits::Pairs`].
pub const PAIRS: &str = "PAIRS";
/// Array, CPU: [`crate::pressure::Pressures`].
pub const PRESSURES: &str = "PRESSURES";
/// Array, place: [`crate::demand::Slots`].
pub const DEMAND: &str = "DEMAND";
/// Hash, cgroup id: its place in [`DEMAND`].
pub const DEMAND_PLACES: &str = "DEMAND_PLACES";
/// Array of one word: number of the latest change of [`DEMAND_PLACES`]; 0: no cgroup has a place.
pub const DEMAND_TURN: &str = "DEMAND_TURN";
/// Array of one word: the time up to which user space has read [`PAIRS`] and [`PRESSURES`], ns of `rq->clock`.
pub const KEPT_SINCE: &str = "KEPT_SINCE";
/// Array of one word: when the first reading of tasks ended, ns of CLOCK_MONOTONIC; 0: it has not ended.
pub const FIRST_READ: &str = "FIRST_READ";
/// Array, CPU: index of the CPU's NUMA node plus one; 0: unknown.
pub const CPU_NODE: &str = "CPU_NODE";
/// Array, CPU: [`super::CpuCounters`].
pub const CPUS: &str = "CPUS";
/// Array, CPU: [`crate::throttle::ThrottleClocks`].
pub const THROTTLE_CLOCKS: &str = "THROTTLE_CLOCKS";
/// Hash, [`super::StackKey`]: [`super::StackCount`].
pub const STACKS: &str = "STACKS";
/// Array, CPU, and one more element for the reader: [`crate::changes::Changes`].
pub const CHANGES: &str = "CHANGES";
/// Array of one word: number of the current reading of changes.
pub const TURN: &str = "TURN";
/// The iterator over the lists of changed tasks.
pub const READ_CHANGES: &str = "read_changes";
/// The program that runs when a task is renamed.
pub const ON_RENAME: &str = "on_rename";
/// Array of one word: number of bytes that tasks may still take, signed.
pub const MEMORY_LEFT: &str = "MEMORY_LEFT";
/// Per-CPU array of loss counters.
pub const LOSSES: &str = "LOSSES";
/// Ring buffer: [`super::CgroupEvent`].
pub const CGROUP_EVENTS: &str = "CGROUP_EVENTS";
/// The program that runs at each task switch: the hook.
pub const ON_SWITCH: &str = "on_switch";
/// The program that runs when a task moves to another CPU.
pub const ON_MOVE: &str = "on_move";
/// The program that runs when a new task starts.
pub const ON_NEW_TASK: &str = "on_new_task";
/// The program that runs when the kernel frees a task and the task's value in [`TASKS`].
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
/// The program that runs when a hierarchy runs out of quota, for each of its queues.
pub const ON_THROTTLE: &str = "on_throttle";
/// The program that runs when a hierarchy has quota again, for each of its queues.
pub const ON_UNTHROTTLE: &str = "on_unthrottle";
/// The program that iterates over all tasks.
pub const READ_TASKS: &str = "read_tasks";
/// The program that iterates over [`EXITED`].
pub const READ_EXITED: &str = "read_exited";
