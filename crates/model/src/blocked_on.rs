//! What tasks are blocked on, derived from the names of the functions in which they sleep.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};

use cgscope_ledger::BlockedState;

use crate::{
    ByState, Interval, StackReading, TaskInterval,
    blocked_on::BlockedKind::*,
    named::by_name,
    sum::{self, by},
};

cgscope_ledger::named! {
    /// What a task is blocked on, in the order of every output. From [`BlockedKind::Accept`] on, the task waits for work.
    BlockedKind {
        /// Data of a socket, a connection being opened, or a network file system.
        Network = "network",
        /// A block device, or data being written to one: page cache, journals, fsync.
        Disk = "disk",
        /// A pipe, a fifo or a message queue.
        Pipe = "pipe",
        /// Completions of io_uring.
        IoUring = "io_uring",
        /// A futex or a System V semaphore: mutexes, condition variables, joins. A thread pool may also wait for work this way.
        Lock = "lock",
        /// A lock on a file: flock, fcntl, leases.
        FileLock = "file lock",
        /// A lock or grace period in the kernel: mutexes, semaphores, RCU.
        KernelLock = "kernel lock",
        /// Memory: reclaim, compaction, limits, pages under migration.
        Memory = "memory",
        /// A stack whose functions match no rule.
        Other = "other",
        /// No stack, or a stack without function names.
        Unknown = "unknown",
        /// A new connection.
        Accept = "accept",
        /// Events: poll, select, epoll, eventfd, inotify, signalfd.
        Poll = "poll",
        /// A point in time.
        Timer = "timer",
        /// The exit of a child.
        Child = "child",
        /// A signal.
        Signal = "signal",
        /// Input or output of a terminal.
        Terminal = "terminal",
        /// Resumption after a signal or a tracer stopped the task.
        Stopped = "stopped",
        /// Thawing: the task's cgroup is frozen, or the host suspends.
        Frozen = "frozen",
        /// Work for a kernel thread.
        KernelWorker = "kernel worker",
    }
}
by_name!(BlockedKind);

/// Number of kinds.
pub const KINDS: usize = BlockedKind::ALL.len();

impl BlockedKind {
    /// True if the task has nothing to do: it waits for work, for a point in time, or to be resumed. A task in `poll` may instead
    /// wait for a reply. The kernel cannot distinguish the two.
    pub const fn is_for_work(self) -> bool {
        self as usize >= Self::Accept as usize
    }

    /// Returns the kind of a stack, from the names of its functions, innermost first. The first function that matches a rule
    /// decides: its callers explain the sleep, and its callees implement the sleep.
    pub fn of<'a>(state: BlockedState, innermost_first: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut any = false;
        for name in innermost_first.into_iter().flatten() {
            any = true;
            if let Some(kind) = of_function(name) {
                return kind;
            }
        }
        Self::of_state(state).unwrap_or(if any { Self::Other } else { Self::Unknown })
    }

    /// Returns the kind if the state alone implies it.
    pub fn of_state(state: BlockedState) -> Option<Self> {
        match state {
            // The kernel sets `in_iowait` for waits on a block device. Besides them, only io_uring can set it.
            BlockedState::Iowait => Some(Self::Disk),
            BlockedState::Idle => Some(Self::KernelWorker),
            BlockedState::Stopped => Some(Self::Stopped),
            BlockedState::Sleeping | BlockedState::Uninterruptible => None,
        }
    }
}

by! {
    /// Blocked time by kind, ns.
    BlockedTime: BlockedKind, KINDS
}

impl BlockedTime {
    /// Returns the time in which threads waited for work ([`BlockedKind::is_for_work`]), ns.
    pub fn for_work(&self) -> u64 {
        sum::total(self.iter().filter(|(kind, _)| kind.is_for_work()).map(|(_, ns)| ns))
    }
}

/// What the threads of an interval were blocked on. Time without a stack gets the kind of its state, or `Unknown`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockedOn {
    /// Blocked time by thread serial; only threads whose blocked time is known.
    threads: BTreeMap<u64, ThreadBlocked>,
    /// Blocked time of exited threads that has stacks; `None`: no exited thread has a stack.
    exited: Option<BlockedTime>,
}

impl BlockedOn {
    /// Computes the blocked time of an interval. `name` returns the function at a return address.
    pub fn new<'a>(interval: &Interval, name: impl Fn(u64) -> Option<&'a str>) -> Self {
        // Threads of a pool share stacks, so each stack is looked up once.
        let mut known: HashMap<(BlockedState, &[u64]), (BlockedKind, bool)> = HashMap::new();
        let mut of_stacks: BTreeMap<u64, ThreadBlocked> = BTreeMap::new();
        for stack in &interval.stacks {
            let (kind, is_kernel) = *known.entry((stack.state, &*stack.stack)).or_insert_with(|| {
                let names = || stack.stack.iter().map(|addr| name(*addr));
                let is_kernel = names().flatten().any(is_of_kernel_threads);
                (BlockedKind::of(stack.state, names()), is_kernel)
            });
            of_stacks.entry(stack.serial).or_default().add(stack, kind, is_kernel);
        }
        let mut threads = BTreeMap::new();
        for task in &interval.tasks {
            let serial = task.reading.serial;
            let Some(by_state) = task.accounts.as_deref().and_then(|accounts| accounts.blocked) else {
                of_stacks.remove(&serial);
                continue;
            };
            let thread = match of_stacks.get_mut(&serial) {
                // In an appended interval, the stacks of an exited thread cover the thread's time until it exited. Its blocked
                // time covers only the time until its last reading. The excess counts for exited threads.
                Some(stacks)
                    if task.reading.state.is_none() && stacks.by_state.total() > by_state.total() =>
                {
                    ThreadBlocked { time: stacks.take(by_state.total()), ..*stacks }
                }
                _ => of_stacks.remove(&serial).unwrap_or_default().whole(&by_state),
            };
            threads.insert(serial, thread);
        }
        let exited = (!of_stacks.is_empty()).then(|| total(of_stacks.values().map(|thread| &thread.time)));
        Self { threads, exited }
    }

    /// Returns the blocked time of a thread by its serial; `None` if unknown.
    pub fn thread(&self, serial: u64) -> Option<&BlockedTime> {
        self.threads.get(&serial).map(|thread| &thread.time)
    }

    /// Returns the sum over all threads whose blocked time is known. For exited threads, only time with a stack counts.
    pub fn total(&self) -> BlockedTime {
        total(self.threads.values().map(|thread| &thread.time).chain(&self.exited))
    }

    /// Returns the blocked time of exited threads that has stacks.
    pub fn exited(&self) -> BlockedTime {
        self.exited.unwrap_or_default()
    }

    /// Returns the sum over the tasks at these indexes; `None` if there are tasks but no blocked time is known.
    pub(crate) fn known_of_tasks(&self, interval: &Interval, places: &[usize]) -> Option<BlockedTime> {
        let known = || places.iter().filter_map(|place| self.of_task(&interval.tasks[*place]));
        (places.is_empty() || known().next().is_some()).then(|| total(known()))
    }

    /// Like [`Self::total`], but `None` if there are tasks but no blocked time is known.
    pub(crate) fn known_total(&self, interval: &Interval) -> Option<BlockedTime> {
        let is_known = !self.threads.is_empty() || self.exited.is_some() || interval.tasks.is_empty();
        is_known.then(|| self.total())
    }

    /// Returns the time in iowait or uninterruptible sleep in which the thread waited for work, ns, from its stacks. See
    /// [`BlockedKind::is_for_work`]. An example is the parent of a vfork, which waits for its child.
    pub fn stuck_for_work_ns(&self, serial: u64) -> u64 {
        self.threads.get(&serial).map_or(0, |thread| thread.stuck_for_work_ns)
    }

    /// True if the thread's stacks are those of a kernel thread.
    pub fn is_kernel_thread(&self, serial: u64) -> bool {
        self.threads.get(&serial).is_some_and(|thread| thread.is_kernel)
    }

    pub(crate) fn of_task(&self, task: &TaskInterval) -> Option<&BlockedTime> {
        self.thread(task.reading.serial)
    }
}

fn total<'a>(times: impl Iterator<Item = &'a BlockedTime>) -> BlockedTime {
    times.fold(BlockedTime::default(), |mut sum, time| {
        sum.add(time);
        sum
    })
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ThreadBlocked {
    time: BlockedTime,
    /// The part of `time` that has stacks, by state.
    by_state: ByState,
    /// Time in iowait or uninterruptible sleep in which the thread waited for work, ns.
    stuck_for_work_ns: u64,
    is_kernel: bool,
}

impl ThreadBlocked {
    fn add(&mut self, stack: &StackReading, kind: BlockedKind, is_kernel: bool) {
        self.time.add_ns(kind, stack.ns);
        sum::add(&mut self.by_state.0[stack.state as usize], stack.ns);
        self.is_kernel |= is_kernel;
        if kind.is_for_work() && matches!(stack.state, BlockedState::Iowait | BlockedState::Uninterruptible) {
            sum::add(&mut self.stuck_for_work_ns, stack.ns);
        }
    }

    /// Removes `ns` from the time, from each kind in proportion, and returns the removed part.
    fn take(&mut self, ns: u64) -> BlockedTime {
        let taken = self.time.at_most(ns);
        self.time.0.iter_mut().zip(taken.0).for_each(|(left, taken)| *left -= taken);
        taken
    }

    /// Adds the time without a stack. `all` is the total blocked time by state.
    fn whole(mut self, all: &ByState) -> Self {
        for (state, ns) in without_stack(all, &self.by_state).iter() {
            self.time.add_ns(BlockedKind::of_state(state).unwrap_or(BlockedKind::Unknown), ns);
        }
        self
    }
}

/// Returns the part of a thread's blocked time that has no stack. Each stack stands for the time since the previous stack. So the
/// stacks of one state may cover more time than the thread spent in that state, and the stacks of another state less.
pub fn without_stack(blocked: &ByState, stacks: &ByState) -> ByState {
    let mut rest_ns = blocked.total().saturating_sub(stacks.total());
    let mut without = blocked.since(stacks);
    for ns in &mut without.0 {
        *ns = (*ns).min(rest_ns);
        rest_ns -= *ns;
    }
    without
}

/// Returns the kind of a function; `None`: unknown, or a function that every sleep passes through, like the scheduler's.
pub(crate) fn of_function(name: &str) -> Option<BlockedKind> {
    let name = name.split([' ', '.']).next().unwrap_or(name);
    // The longest matching rule wins: `oom_reaper` also matches `oom_*`.
    let rules = RULES.iter().filter(|(rule, _)| match rule.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *rule,
    });
    rules.max_by_key(|(rule, _)| rule.len()).map(|(_, kind)| *kind)
}

/// True for functions in which only kernel threads start. Threads that io_uring creates in a process start elsewhere.
pub(crate) fn is_of_kernel_threads(name: &str) -> bool {
    matches!(name.split([' ', '.']).next(), Some("kthread" | "kthreadd"))
}

/// Rules: a function name, or a prefix of function names followed by a star.
#[rustfmt::skip]
pub(crate) const RULES: &[(&str, BlockedKind)] = &[
    // Sockets. accept sleeps in a function that also waits for datagrams, so the rules name the callers of that function.
    ("inet_csk_accept", Accept), ("unix_accept", Accept), ("vsock_accept", Accept), ("do_accept", Accept), ("__sys_accept4", Accept),
    ("sctp_accept", Accept), ("smc_accept", Accept),
    ("sk_wait_data", Network), ("sk_stream_wait*", Network), ("sock_alloc_send_pskb", Network), 
    ("inet_stream_connect", Network), ("__inet_stream_connect", Network), ("inet_wait_for_connect", Network),
    ("unix_stream_*", Network), ("unix_dgram_*", Network), ("__unix_dgram_recvmsg", Network), ("unix_wait_for_peer", Network),
    ("unix_seqpacket_*", Network), ("tcp_*", Network), ("__tcp_close", Network), ("udp_*", Network), ("__skb_recv_udp", Network),
    ("raw_recvmsg", Network), ("raw_sendmsg", Network), ("packet_recvmsg", Network), ("packet_sendmsg", Network),
    ("netlink_recvmsg", Network), ("netlink_sendmsg", Network), ("vsock_*", Network), ("tls_*", Network), ("mptcp_*", Network),
    ("sctp_*", Network), ("smc_*", Network), ("sock_recvmsg", Network), ("sock_sendmsg", Network), ("__sock_sendmsg", Network),
    ("sock_read_iter", Network), ("sock_write_iter", Network), ("sock_splice_read", Network), ("__sys_recvfrom", Network),
    ("__sys_sendto", Network), ("____sys_recvmsg", Network), ("____sys_sendmsg", Network), ("__sys_connect", Network),
    ("__sock_release", Network), ("inet_shutdown", Network),
    ("rpc_*", Network), ("nfs_*", Network), ("nfs4_*", Network), ("cifs_*", Network), ("smb2_*", Network), ("ceph_*", Network),
    ("p9_client_rpc", Network), ("__lock_sock", KernelLock),
    // Events.
    ("do_select", Poll), ("core_sys_select", Poll), ("do_poll", Poll), ("do_sys_poll", Poll), ("poll_schedule_timeout", Poll),
    ("ep_poll", Poll), ("do_epoll_wait", Poll), ("eventfd_read", Poll), ("eventfd_write", Poll), ("inotify_read", Poll),
    ("fanotify_read", Poll), ("signalfd_*", Poll), ("perf_read", Poll), ("evdev_read", Poll), ("binder_thread_read", Poll),
    ("userfaultfd_read*", Poll), ("kvm_vcpu_block", Poll), ("kvm_vcpu_halt", Poll),
    // Block devices, and data being written to them.
    ("io_schedule*", Disk), ("blk_io_schedule", Disk), ("wait_for_completion_io*", Disk), ("bit_wait_io", Disk),
    ("submit_bio_wait", Disk), ("bio_await*", Disk), ("blk_execute_rq", Disk), ("__blkdev_direct_IO*", Disk), ("blkdev_*", Disk),
    ("blk_mq_get_tag", Disk), ("blk_mq_freeze_queue_wait", Disk), ("rq_qos_wait", Disk), ("wbt_wait", Disk), ("blkcg_maybe_throttle_current", Disk),
    ("__blk_throtl_bio", Disk), ("__iomap_dio_rw", Disk), ("iomap_*", Disk), ("__wait_on_buffer", Disk),
    ("folio_wait_*", Disk), ("wait_on_page_*", Disk), ("__filemap_fdatawait_range", Disk), ("filemap_fdatawait*", Disk), ("__folio_lock*", Disk),
    ("balance_dirty_pages*", Disk), ("wb_wait_for_completion", Disk), ("sync_inodes_sb", Disk), ("vfs_fsync_range", Disk),
    ("do_fsync", Disk), ("ksys_sync", Disk), ("sync_filesystem", Disk), ("read_events", Disk), ("do_io_getevents", Disk), ("exit_aio", Disk),
    ("jbd2_*", Disk), ("wait_transaction_locked", Disk), ("add_transaction_credits", Disk), ("start_this_handle", Disk), ("do_get_write_access", Disk),
    ("ext4_*", Disk), ("xlog_*", Disk), ("xfs_*", Disk), ("btrfs_*", Disk), ("f2fs_*", Disk), ("dm_*", Disk), ("md_handle_request", Disk), ("nvme_*", Disk), ("scsi_*", Disk),
    ("__fuse_simple_request", Disk), ("request_wait_answer", Disk),
    // Communication between processes.
    ("pipe_read", Pipe), ("pipe_write", Pipe), ("anon_pipe_read", Pipe), ("anon_pipe_write", Pipe), ("fifo_pipe_*", Pipe), ("pipe_wait_*", Pipe),
    ("wait_for_partner", Pipe), ("fifo_open", Pipe), ("ipipe_prep*", Pipe), ("opipe_prep*", Pipe), ("wait_for_space", Pipe),
    ("do_msgrcv", Pipe), ("do_msgsnd", Pipe), ("wq_sleep", Pipe), ("do_mq_timed*", Pipe),
    ("io_cqring_*", IoUring), ("io_uring_*", IoUring), ("__do_sys_io_uring_enter", IoUring), ("io_sq_thread", KernelWorker),
    ("io_wq_worker", KernelWorker), ("io_sqd_*", KernelWorker),
    // Locks.
    ("futex_*", Lock), ("__futex_wait", Lock), ("do_futex", Lock), ("rt_mutex_wait_proxy_lock", Lock),
    ("do_semtimedop", Lock), ("__do_semtimedop", Lock),
    ("locks_lock_inode_wait", FileLock), ("flock_lock_inode_wait", FileLock), ("posix_lock_inode_wait", FileLock), ("fcntl_setlk*", FileLock),
    ("do_lock_file_wait", FileLock), ("__break_lease", FileLock), ("fcntl_getlk*", FileLock), ("nlmclnt_*", FileLock), ("__do_sys_flock", FileLock),
    ("mutex_lock*", KernelLock), ("__mutex_lock*", KernelLock), ("ww_mutex_lock*", KernelLock), ("__ww_mutex_lock*", KernelLock),
    ("down", KernelLock), ("down_*", KernelLock), ("__down*", KernelLock), ("rwsem_down_*", KernelLock), ("__rwsem_down*", KernelLock),
    ("percpu_down_*", KernelLock), ("__percpu_down_*", KernelLock), ("percpu_rwsem_wait", KernelLock), ("rt_mutex_lock*", KernelLock),
    ("rtlock_slowlock*", KernelLock), ("__rt_mutex_*", KernelLock), ("rt_spin_lock*", KernelLock), ("synchronize_*", KernelLock), ("__wait_rcu_gp", KernelLock),
    ("rcu_barrier*", KernelLock), ("wait_rcu_exp_gp", KernelLock), ("__synchronize_srcu", KernelLock), ("inode_sleep_on_writeback", Disk),
    ("__wait_on_freeing_inode", KernelLock), ("d_alloc_parallel", KernelLock), ("d_wait_lookup", KernelLock), ("flush_work", KernelLock),
    ("__flush_work", KernelLock), ("__flush_workqueue", KernelLock),
    // Memory.
    ("throttle_direct_reclaim", Memory), ("reclaim_throttle", Memory), ("try_to_free_pages", Memory), ("shrink_*", Memory), ("do_try_to_free_pages", Memory),
    ("__alloc_pages_slowpath*", Memory), ("__alloc_pages_direct_*", Memory), ("compact_*", Memory), ("try_to_compact_pages", Memory),
    ("congestion_wait", Memory), ("mem_cgroup_handle_over_high", Memory), ("__mem_cgroup_handle_over_high", Memory), ("try_to_free_mem_cgroup_pages", Memory),
    ("mem_cgroup_oom*", Memory), ("migration_entry_wait*", Memory), ("softleaf_entry_wait*", Memory), ("handle_userfault", Memory),
    ("out_of_memory", Memory), ("oom_*", Memory), ("swap_*", Memory), ("do_swap_page", Memory), ("migrate_pages*", Memory), ("lru_add_drain_all", Memory),
    // Waits for time, children, signals or terminals; stopped and frozen tasks; idle kernel threads.
    ("do_nanosleep", Timer), ("hrtimer_nanosleep*", Timer), ("common_nsleep*", Timer), ("alarm_timer_nsleep", Timer), ("timerfd_read*", Timer),
    ("usleep_range_state", Timer), ("msleep*", Timer),
    ("do_wait", Child), ("__do_wait", Child), ("kernel_wait4", Child), ("kernel_waitid", Child), ("wait_for_vfork_done", Child), ("kernel_clone", Child),
    ("sigsuspend", Signal), ("__do_sys_pause", Signal), ("__x64_sys_pause", Signal), ("do_sigtimedwait", Signal),
    ("n_tty_*", Terminal), ("tty_*", Terminal), ("ldsem_down_*", Terminal), ("hvc_*", Terminal), ("uart_*", Terminal),
    ("do_signal_stop", Stopped), ("ptrace_stop", Stopped), ("do_jobctl_trap", Stopped), ("get_signal", Stopped),
    ("__refrigerator", Frozen), ("do_freezer_trap", Frozen), ("cgroup_enter_frozen", Frozen),
    ("worker_thread", KernelWorker), ("rescuer_thread", KernelWorker), ("kthread_worker_fn", KernelWorker), ("kthreadd", KernelWorker),
    ("smpboot_thread_fn", KernelWorker), ("kswapd", KernelWorker), ("kcompactd", KernelWorker), ("khugepaged*", KernelWorker), ("ksm_scan_thread", KernelWorker),
    ("rcu_gp_*", KernelWorker), ("rcu_tasks_*", KernelWorker), ("rcu_nocb_*", KernelWorker), ("nocb_*", KernelWorker), ("kauditd_thread", KernelWorker), ("kjournald2", KernelWorker),
    ("oom_reaper", KernelWorker), ("watchdog", KernelWorker), ("irq_thread", KernelWorker), ("irq_wait_for_interrupt", KernelWorker),
    ("kthread", KernelWorker), ("vhost_task_fn", KernelWorker), ("devtmpfsd", KernelWorker),
    ("devtmpfs_work_loop", KernelWorker), ("xfsaild*", KernelWorker), ("cleaner_kthread", KernelWorker), ("transaction_kthread", KernelWorker),
    ("svc_recv", KernelWorker), ("nfsd", KernelWorker), ("scsi_error_handler", KernelWorker), ("hwrng_fillfn", KernelWorker),
];
