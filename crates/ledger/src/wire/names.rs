//! Names of the BPF object's maps, programs and globals, for the loader. Their declarations in `ebpf/src` describe them.

macro_rules! names {
    ($($constant:ident = $name:expr;)*) => {
        $(#[doc = concat!("`", $name, "`")] pub const $constant: &str = $name;)*
    };
}

macro_rules! names_of_statics {
    ($($constant:ident)*) => { names! { $($constant = stringify!($constant);)* } };
}

// Globals (`ebpf/src/kernel/mod.rs`) and maps (`ebpf/src/maps.rs`).
names_of_statics! {
    CONFIG OFFSETS
    TASKS EXITED SELECTED MARKS RINGS PAIRS PRESSURES DEMAND DEMAND_PLACES DEMAND_TURN KEPT_SINCE FIRST_READ CPU_NODE CPUS
    THROTTLE_CLOCKS STACKS CHANGES TURN MEMORY_LEFT LOSSES CGROUP_EVENTS
}

// Programs.
names! {
    ON_SWITCH = "on_switch";
    ON_MOVE = "on_move";
    ON_NEW_TASK = "on_new_task";
    ON_TASK_FREED = "on_task_freed";
    ON_RENAME = "on_rename";
    ON_CGROUP_MADE = "on_cgroup_made";
    ON_CGROUP_REMOVED = "on_cgroup_removed";
    ON_CGROUP_RENAMED = "on_cgroup_renamed";
    ON_CGROUP_ATTACH = "on_cgroup_attach";
    ON_LEAVE_GROUP = "on_leave_group";
    ON_ENTER_GROUP = "on_enter_group";
    ON_THROTTLE = "on_throttle";
    ON_UNTHROTTLE = "on_unthrottle";
    READ_TASKS = "read_tasks";
    READ_CHANGES = "read_changes";
    READ_EXITED = "read_exited";
}
