//! Names of the BPF objects' maps, programs and globals, for the loader. Their declarations in `ebpf/src` describe them.

macro_rules! names_of_statics {
    ($($constant:ident)*) => { $(pub const $constant: &str = stringify!($constant);)* };
}

// Globals (`ebpf/src/kernel/mod.rs`) and maps (`ebpf/src/maps.rs`).
names_of_statics! {
    CONFIG OFFSETS
    SLOTS EXITED SELECTED MARKS RINGS PAIRS TASK_NAMES PRESSURES DEMAND DEMAND_PLACES DEMAND_TURN KEPT_SINCE FIRST_READ CPU_NODE CPUS
    THROTTLE_CLOCKS STACKS CHANGES TURN MEMORY_LEFT LOSSES CGROUP_EVENTS THREADS
    CHAINS CHAIN_PAIRS SENDING_CALLS FILE_CALLS
}

// Programs.
pub const ON_SWITCH: &str = "on_switch";
pub const ON_MOVE: &str = "on_move";
pub const ON_WAKING: &str = "on_waking";
pub const ON_NEW_TASK: &str = "on_new_task";
pub const ON_TASK_FREED: &str = "on_task_freed";
pub const ON_RENAME: &str = "on_rename";
pub const ON_CGROUP_MADE: &str = "on_cgroup_made";
pub const ON_CGROUP_REMOVED: &str = "on_cgroup_removed";
pub const ON_CGROUP_RENAMED: &str = "on_cgroup_renamed";
pub const ON_CGROUP_ATTACH: &str = "on_cgroup_attach";
pub const ON_LEAVE_GROUP: &str = "on_leave_group";
pub const ON_ENTER_GROUP: &str = "on_enter_group";
pub const ON_THROTTLE: &str = "on_throttle";
pub const ON_UNTHROTTLE: &str = "on_unthrottle";
pub const READ_TASKS: &str = "read_tasks";
pub const READ_CHANGES: &str = "read_changes";
pub const READ_EXITED: &str = "read_exited";
pub const LOOK_AT_THREADS: &str = "look_at_threads";
