//! Maps kernel functions to the reason why a task sleeps in them. Names are those of Linux 6.1 to 7.2. A compiler's variant
//! (`.constprop.0`, `.isra.0`, `.part.0`) counts as the same function.

use super::BlockedKind::{self, *};

/// The kind of a function. `None` for unknown functions, and for functions in which tasks sleep for any reason, like those of the
/// scheduler.
pub(super) fn of_function(name: &str) -> Option<BlockedKind> {
    let name = name.split([' ', '.']).next().unwrap_or(name);
    // The longest matching rule wins: `oom_reaper` also matches `oom_*`.
    let rules = RULES.iter().filter(|(rule, _)| match rule.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *rule,
    });
    rules.max_by_key(|(rule, _)| rule.len()).map(|(_, kind)| *kind)
}

/// True for the functions in which only kernel threads start. Threads that io_uring creates in a process start elsewhere.
pub(super) fn is_of_kernel_threads(name: &str) -> bool {
    matches!(name.split([' ', '.']).next(), Some("kthread" | "kthreadd"))
}

/// Rules: a function name, or with a star all names with this prefix.
#[rustfmt::skip]
pub(super) const RULES: &[(&str, BlockedKind)] = &[
    // Sockets. accept waits in the function that also waits for datagrams, so the callers of that function are named here.
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
    // Block devices, and data that is written to them.
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
