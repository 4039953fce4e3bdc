//! The columns by which threads are grouped.

cgscope_layout::named! {
    /// A column of the table. Threads that are equal in all columns are one row.
    GroupBy {
        /// Name of the thread, each run of digits as one `*`.
        Comm = "comm",
        /// Process id.
        Tgid = "tgid",
        /// Thread id.
        Tid = "tid",
        /// What it does.
        State = "state",
        /// The system call that it is blocked in.
        Syscall = "syscall",
        /// The function of the kernel that it is blocked in.
        Wchan = "wchan",
        /// Its stack in the kernel.
        Kstack = "kstack",
        /// Its cgroup, in the hierarchy of the cpu controller.
        Cgroup = "cgroup",
        /// The NUMA node of its CPU.
        Node = "node",
        /// The CPU it is on, or was on last.
        Cpu = "cpu",
        /// Its user.
        Username = "username",
        /// The file that its process executes.
        Exe = "exe",
        /// The command line of its process.
        Cmdline = "cmdline",
    }
}

impl GroupBy {
    /// The columns unless others are requested.
    pub const DEFAULT: [Self; 2] = [Self::Comm, Self::State];

    /// The column of this name, or of psn's name for it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "pid" => Some(Self::Tgid),
            "task" => Some(Self::Tid),
            "user" => Some(Self::Username),
            _ => Self::ALL.into_iter().find(|column| column.name() == name),
        }
    }

    /// Numbers are aligned to the right.
    pub(crate) const fn is_number(self) -> bool {
        matches!(self, Self::Tgid | Self::Tid | Self::Node | Self::Cpu)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_their_names() {
        for column in GroupBy::ALL {
            assert_eq!(GroupBy::by_name(column.name()), Some(column));
        }
        assert_eq!(GroupBy::by_name("pid"), Some(GroupBy::Tgid));
        assert_eq!(GroupBy::by_name("nothing"), None);
    }
}
