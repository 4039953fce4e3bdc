//! Kinds of sleeps, derived from the names of the functions in which tasks sleep.

use std::{collections::HashMap, sync::LazyLock};

use cgscope_ledger::BlockedState;

cgscope_ledger::named! {
    /// The reason why a target is not faster.
    Class {
        CpuBound = "CPU-bound",
        QuotaBound = "quota-bound",
        Contended = "contended",
        IoBound = "I/O-bound",
        LockBound = "lock-bound",
        /// The target is blocked on something else or on something unknown.
        Blocked = "blocked",
        Idle = "idle",
    }
}
by_name!(Class);

cgscope_ledger::named! {
    /// What a task is blocked on, in the order of every output.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    #[repr(u32)]
    pub enum BlockedKind (name, class, functions) {
        name: &'static str,
        /// The class of a target that is blocked on this.
        class: Class,
        /// The functions in which such a task sleeps: names, or prefixes of names with a star.
        functions: &'static str,
    }

    /// Data of a socket, a connection being opened, or a network file system.
    Network = "network", Class::IoBound, "sk_wait_data sk_stream_wait* sock_alloc_send_pskb inet_stream_connect \
        __inet_stream_connect inet_wait_for_connect unix_stream_* unix_dgram_* __unix_dgram_recvmsg unix_wait_for_peer \
        unix_seqpacket_* tcp_* __tcp_close udp_* __skb_recv_udp raw_recvmsg raw_sendmsg packet_recvmsg packet_sendmsg \
        netlink_recvmsg netlink_sendmsg vsock_* tls_* mptcp_* sctp_* smc_* sock_recvmsg sock_sendmsg __sock_sendmsg \
        sock_read_iter sock_write_iter sock_splice_read __sys_recvfrom __sys_sendto ____sys_recvmsg ____sys_sendmsg \
        __sys_connect __sock_release inet_shutdown rpc_* nfs_* nfs4_* cifs_* smb2_* ceph_* p9_client_rpc";
    /// A block device, or data being written to one: page cache, journals, fsync.
    Disk = "disk", Class::IoBound, "io_schedule* blk_io_schedule wait_for_completion_io* bit_wait_io submit_bio_wait bio_await* \
        blk_execute_rq __blkdev_direct_IO* blkdev_* blk_mq_get_tag blk_mq_freeze_queue_wait rq_qos_wait wbt_wait \
        blkcg_maybe_throttle_current __blk_throtl_bio __iomap_dio_rw iomap_* __wait_on_buffer folio_wait_* wait_on_page_* \
        __filemap_fdatawait_range filemap_fdatawait* __folio_lock* balance_dirty_pages* wb_wait_for_completion sync_inodes_sb \
        vfs_fsync_range do_fsync ksys_sync sync_filesystem read_events do_io_getevents exit_aio jbd2_* wait_transaction_locked \
        add_transaction_credits start_this_handle do_get_write_access ext4_* xlog_* xfs_* btrfs_* f2fs_* dm_* md_handle_request \
        nvme_* scsi_* __fuse_simple_request request_wait_answer inode_sleep_on_writeback";
    /// A pipe, a fifo or a message queue.
    Pipe = "pipe", Class::IoBound, "pipe_read pipe_write anon_pipe_read anon_pipe_write fifo_pipe_* pipe_wait_* wait_for_partner \
        fifo_open ipipe_prep* opipe_prep* wait_for_space do_msgrcv do_msgsnd wq_sleep do_mq_timed*";
    IoUring = "io_uring", Class::IoBound, "io_cqring_* io_uring_* __do_sys_io_uring_enter";
    /// A futex or a System V semaphore: mutexes, condition variables, joins. A thread pool may also wait for work this way.
    Lock = "lock", Class::LockBound, "futex_* __futex_wait do_futex rt_mutex_wait_proxy_lock do_semtimedop __do_semtimedop";
    /// A lock on a file: flock, fcntl, leases.
    FileLock = "file lock", Class::LockBound, "locks_lock_inode_wait flock_lock_inode_wait posix_lock_inode_wait fcntl_setlk* \
        do_lock_file_wait __break_lease fcntl_getlk* nlmclnt_* __do_sys_flock";
    /// A lock or grace period in the kernel: mutexes, semaphores, RCU.
    KernelLock = "kernel lock", Class::LockBound, "__lock_sock mutex_lock* __mutex_lock* ww_mutex_lock* __ww_mutex_lock* down \
        down_* __down* rwsem_down_* __rwsem_down* percpu_down_* __percpu_down_* percpu_rwsem_wait rt_mutex_lock* \
        rtlock_slowlock* __rt_mutex_* rt_spin_lock* synchronize_* __wait_rcu_gp rcu_barrier* wait_rcu_exp_gp __synchronize_srcu \
        __wait_on_freeing_inode d_alloc_parallel d_wait_lookup flush_work __flush_work __flush_workqueue";
    /// Memory: reclaim, compaction, limits, pages under migration.
    Memory = "memory", Class::Blocked, "throttle_direct_reclaim reclaim_throttle try_to_free_pages shrink_* do_try_to_free_pages \
        __alloc_pages_slowpath* __alloc_pages_direct_* compact_* try_to_compact_pages congestion_wait \
        mem_cgroup_handle_over_high __mem_cgroup_handle_over_high try_to_free_mem_cgroup_pages mem_cgroup_oom* \
        migration_entry_wait* softleaf_entry_wait* handle_userfault out_of_memory oom_* swap_* do_swap_page migrate_pages* \
        lru_add_drain_all";
    /// A stack whose functions match no rule.
    Other = "other", Class::Blocked, "";
    /// No stack, or a stack without function names.
    Unknown = "unknown", Class::Blocked, "";
    /// A new connection.
    // accept sleeps in a function that also waits for datagrams, so these are the callers of that function.
    Accept = "accept", Class::Idle, "inet_csk_accept unix_accept vsock_accept do_accept __sys_accept4 sctp_accept smc_accept";
    /// Events: poll, select, epoll, eventfd, inotify, signalfd.
    Poll = "poll", Class::Idle, "do_select core_sys_select do_poll do_sys_poll poll_schedule_timeout ep_poll do_epoll_wait \
        eventfd_read eventfd_write inotify_read fanotify_read signalfd_* perf_read evdev_read binder_thread_read \
        userfaultfd_read* kvm_vcpu_block kvm_vcpu_halt";
    Timer = "timer", Class::Idle, "do_nanosleep hrtimer_nanosleep* common_nsleep* alarm_timer_nsleep timerfd_read* \
        usleep_range_state msleep*";
    /// The exit of a child.
    Child = "child", Class::Idle, "do_wait __do_wait kernel_wait4 kernel_waitid wait_for_vfork_done kernel_clone";
    Signal = "signal", Class::Idle, "sigsuspend __do_sys_pause __x64_sys_pause do_sigtimedwait";
    Terminal = "terminal", Class::Idle, "n_tty_* tty_* ldsem_down_* hvc_* uart_*";
    /// Resumption after a signal or a tracer stopped the task.
    Stopped = "stopped", Class::Idle, "do_signal_stop ptrace_stop do_jobctl_trap get_signal";
    /// Thawing: the task's cgroup is frozen, or the host suspends.
    Frozen = "frozen", Class::Idle, "__refrigerator do_freezer_trap cgroup_enter_frozen";
    KernelWorker = "kernel worker", Class::Idle, "io_sq_thread io_wq_worker io_sqd_* worker_thread rescuer_thread \
        kthread_worker_fn kthreadd smpboot_thread_fn kswapd kcompactd khugepaged* ksm_scan_thread rcu_gp_* rcu_tasks_* \
        rcu_nocb_* nocb_* kauditd_thread kjournald2 oom_reaper watchdog irq_thread irq_wait_for_interrupt kthread vhost_task_fn \
        devtmpfsd devtmpfs_work_loop xfsaild* cleaner_kthread transaction_kthread svc_recv nfsd scsi_error_handler hwrng_fillfn";
}
by_name!(BlockedKind);

impl BlockedKind {
    /// True if the task has nothing to do: it waits for work, for a point in time, or to be resumed. A task in `poll` may instead
    /// wait for a reply. The kernel cannot distinguish the two.
    pub const fn is_for_work(self) -> bool {
        matches!(self.class(), Class::Idle)
    }

    /// Returns the kind of a stack, from the names of its functions, innermost first. The first function that matches a rule
    /// decides: its callers explain the sleep, and its callees implement the sleep.
    pub fn of<'a>(state: BlockedState, innermost_first: impl IntoIterator<Item = Option<&'a str>>) -> Self {
        let mut names = innermost_first.into_iter().flatten().peekable();
        let unknown = if names.peek().is_some() { Self::Other } else { Self::Unknown };
        names.find_map(of_function).or_else(|| Self::of_state(state)).unwrap_or(unknown)
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

/// Returns the kind of a function; `None`: unknown, or a function that every sleep passes through, like the scheduler's.
pub(crate) fn of_function(name: &str) -> Option<BlockedKind> {
    let name = name.split([' ', '.']).next().unwrap_or(name);
    // The longest matching rule wins: `oom_reaper` also matches `oom_*`.
    let prefixes = (0..=name.len()).rev().filter_map(|end| RULES.get(&(name.get(..end)?, true)));
    RULES.get(&(name, false)).into_iter().chain(prefixes).next().copied()
}

pub(crate) fn rules() -> impl Iterator<Item = (&'static str, BlockedKind)> {
    let of = |kind: BlockedKind| kind.functions().split_whitespace().map(move |rule| (rule, kind));
    BlockedKind::ALL.into_iter().flat_map(of)
}

/// The kind of each function, or of each prefix if the flag is true.
static RULES: LazyLock<HashMap<(&str, bool), BlockedKind>> = LazyLock::new(|| {
    rules().map(|(rule, kind)| ((rule.trim_end_matches('*'), rule.ends_with('*')), kind)).collect()
});
