//! Names of the object's maps, programs and globals, for the loader.

/// `static`: [`super::Config`].
pub const CONFIG: &str = "CONFIG";
/// `static`: [`crate::Offsets`].
pub const OFFSETS: &str = "OFFSETS";
/// Task storage: [`super::TaskStorage`].
pub const TASKS: &str = "TASKS";
/// Hash, cgroup id: [`super::Exited`].
pub const EXITED: &str = "EXITED";
/// Hash, process or thread: what is selected.
pub const SELECTED: &str = "SELECTED";
/// Array of one: [`super::Marks`].
pub const MARKS: &str = "MARKS";
/// Array, CPU: [`crate::ledger::Ring`].
pub const RINGS: &str = "RINGS";
/// Array, CPU: [`crate::ledger::Pairs`].
pub const PAIRS: &str = "PAIRS";
/// Array of one word: until when [`PAIRS`] has been read, ns of `rq->clock`.
pub const PAIRS_READ: &str = "PAIRS_READ";
/// Array, CPU: the place of its node plus one, 0 where it is not known.
pub const CPU_NODE: &str = "CPU_NODE";
/// Array, CPU: [`super::CpuCounters`].
pub const CPUS: &str = "CPUS";
/// Array, CPU: [`crate::throttle::ThrottleClocks`].
pub const THROTTLE_CLOCKS: &str = "THROTTLE_CLOCKS";
/// Hash, [`super::StackKey`]: [`super::StackCount`].
pub const STACKS: &str = "STACKS";
/// Array of one word: how many more values [`TASKS`] may have, signed.
pub const ROOM: &str = "ROOM";
/// Per-CPU array of loss counters.
pub const LOSSES: &str = "LOSSES";
/// Ring buffer: [`super::CgroupEvent`].
pub const CGROUP_EVENTS: &str = "CGROUP_EVENTS";
/// The one hook.
pub const ON_SWITCH: &str = "on_switch";
/// A task was born.
pub const ON_NEW_TASK: &str = "on_new_task";
/// A task is no more, and neither is its value in [`TASKS`].
pub const ON_TASK_FREED: &str = "on_task_freed";
/// A cgroup came.
pub const ON_CGROUP_MADE: &str = "on_cgroup_made";
/// A cgroup went.
pub const ON_CGROUP_REMOVED: &str = "on_cgroup_removed";
/// A cgroup has another name.
pub const ON_CGROUP_RENAMED: &str = "on_cgroup_renamed";
/// A task, or all of a process, has moved to another cgroup.
pub const ON_CGROUP_ATTACH: &str = "on_cgroup_attach";
/// A queue begins to stand in a hierarchy out of quota, where no level above it was out before.
pub const ON_THROTTLE: &str = "on_throttle";
/// It ends.
pub const ON_UNTHROTTLE: &str = "on_unthrottle";
/// The reading of all tasks.
pub const READ_TASKS: &str = "read_tasks";
/// The reading of [`EXITED`].
pub const READ_EXITED: &str = "read_exited";
