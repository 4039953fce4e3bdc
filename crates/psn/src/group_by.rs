//! The columns by which threads are grouped.

cgscope_layout::named! {
    /// A column of the table. Threads that are equal in all columns form one row.
    GroupBy {
        /// The thread's name, with each run of digits as one `*`.
        Comm = "comm",
        /// The process id.
        Tgid = "tgid",
        /// The thread id.
        Tid = "tid",
        /// The thread's state.
        State = "state",
        /// The system call that the thread is blocked in.
        Syscall = "syscall",
        /// The kernel function that the thread is blocked in.
        Wchan = "wchan",
        /// The thread's kernel stack.
        Kstack = "kstack",
        /// The thread's cgroup, in the hierarchy of the cpu controller.
        Cgroup = "cgroup",
        /// The NUMA node of the thread's CPU.
        Node = "node",
        /// The thread's current or last CPU.
        Cpu = "cpu",
        /// The thread's user.
        Username = "username",
        /// The file that the process executes.
        Exe = "exe",
        /// The command line of the process.
        Cmdline = "cmdline",
    }
}

impl GroupBy {
    /// The default columns.
    pub const DEFAULT: [Self; 2] = [Self::Comm, Self::State];

    /// Returns the column with this name, or with psn's name for it.
    pub fn by_name(name: &str) -> Option<Self> {
        match name {
            "pid" => Some(Self::Tgid),
            "task" => Some(Self::Tid),
            "user" => Some(Self::Username),
            _ => Self::ALL.into_iter().find(|column| column.name() == name),
        }
    }

    /// Whether the column holds numbers, which are aligned to the right.
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
