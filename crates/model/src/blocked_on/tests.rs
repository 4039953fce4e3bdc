use std::sync::Arc;

use super::*;
use crate::blocked_kind::{of_function, rules};
use crate::{Accounts, ByState, Interval, StackReading, TaskInterval, TaskReading, TaskState};

fn kind(stack: &str) -> BlockedKind {
    BlockedKind::of(BlockedState::Sleeping, stack.split(';').map(Some))
}

#[test]
fn the_first_function_with_a_rule_decides_the_kind_of_a_stack() {
    let stacks = [
        (
            BlockedKind::Accept,
            "schedule;schedule_timeout;inet_csk_accept;inet_accept;do_accept;__sys_accept4;do_syscall_64",
        ),
        (
            BlockedKind::Accept,
            "__skb_wait_for_more_packets;__skb_recv_datagram;skb_recv_datagram;unix_accept;do_accept",
        ),
        (
            BlockedKind::Network,
            "wait_woken;sk_wait_data;tcp_recvmsg_locked;tcp_recvmsg;sock_recvmsg;__sys_recvfrom",
        ),
        (BlockedKind::Network, "unix_stream_read_generic;unix_stream_recvmsg;sock_recvmsg;__sys_recvfrom"),
        (BlockedKind::Network, "__skb_wait_for_more_packets;__skb_recv_udp;udp_recvmsg;sock_recvmsg"),
        (BlockedKind::Network, "sock_alloc_send_pskb;unix_stream_sendmsg;__sys_sendto"),
        (BlockedKind::Network, "unix_wait_for_peer;unix_stream_connect;__sys_connect"),
        (
            BlockedKind::Poll,
            "schedule_hrtimeout_range;poll_schedule_timeout.constprop.0;do_sys_poll;__x64_sys_poll",
        ),
        (BlockedKind::Poll, "do_epoll_wait;__x64_sys_epoll_wait"),
        (BlockedKind::Poll, "do_wait_intr_irq;eventfd_read;vfs_read;ksys_read"),
        (BlockedKind::Poll, "wait_woken;inotify_read;vfs_read"),
        (BlockedKind::Lock, "futex_do_wait;__futex_wait;futex_wait;do_futex;__x64_sys_futex"),
        (BlockedKind::Lock, "futex_wait_queue;futex_wait;do_futex"),
        (BlockedKind::Lock, "__do_semtimedop;do_semtimedop;do_syscall_64"),
        (
            BlockedKind::Lock,
            "schedule;rt_mutex_slowlock_block.constprop.0;rt_mutex_wait_proxy_lock;futex_lock_pi",
        ),
        (BlockedKind::Pipe, "schedule;anon_pipe_read;vfs_read;ksys_read"),
        (BlockedKind::Pipe, "schedule;pipe_write;vfs_write"),
        (BlockedKind::Pipe, "wait_for_partner;fifo_open;do_dentry_open;vfs_open"),
        (BlockedKind::Pipe, "wq_sleep;do_mq_timedreceive;__x64_sys_mq_timedreceive"),
        (BlockedKind::Disk, "schedule;io_schedule;folio_wait_bit_common;filemap_fault;do_fault"),
        (BlockedKind::Disk, "schedule;jbd2_log_wait_commit;ext4_sync_file;vfs_fsync_range;do_fsync"),
        (BlockedKind::Disk, "wait_for_completion_io;submit_bio_wait;blkdev_issue_flush"),
        (BlockedKind::FileLock, "locks_lock_inode_wait;__do_sys_flock"),
        (BlockedKind::FileLock, "fcntl_setlk;do_fcntl;__x64_sys_fcntl"),
        (BlockedKind::KernelLock, "schedule;rwsem_down_write_slowpath;down_write_killable;vm_mmap_pgoff"),
        (
            BlockedKind::KernelLock,
            "schedule_preempt_disabled;__mutex_lock.constprop.0;anon_pipe_read;vfs_read",
        ),
        (BlockedKind::Timer, "do_nanosleep;hrtimer_nanosleep;common_nsleep;__x64_sys_clock_nanosleep"),
        (BlockedKind::Timer, "do_wait_intr_irq;timerfd_read_iter;vfs_read"),
        (BlockedKind::Child, "do_wait;kernel_wait4;do_syscall_64"),
        (BlockedKind::Signal, "do_sigtimedwait.isra.0;__x64_sys_rt_sigtimedwait"),
        (BlockedKind::Signal, "__do_sys_pause;do_syscall_64"),
        (BlockedKind::Terminal, "wait_woken;n_tty_read;tty_read;vfs_read"),
        (BlockedKind::IoUring, "schedule;io_cqring_wait;__do_sys_io_uring_enter"),
        (
            BlockedKind::Memory,
            "schedule_timeout;reclaim_throttle;shrink_node;do_try_to_free_pages;try_to_free_pages",
        ),
        (BlockedKind::Stopped, "do_signal_stop;get_signal;arch_do_signal_or_restart"),
        (BlockedKind::Frozen, "__refrigerator;get_signal"),
        (BlockedKind::KernelWorker, "schedule;worker_thread;kthread;ret_from_fork"),
        (BlockedKind::KernelWorker, "schedule;kjournald2;kthread;ret_from_fork"),
        (BlockedKind::Disk, "io_schedule;bit_wait_io;jbd2_journal_commit_transaction;kjournald2;kthread"),
        (BlockedKind::Network, "wait_woken;vsock_connectible_wait_data [vsock];vsock_stream_recvmsg"),
        (BlockedKind::Other, "schedule;something_new;do_syscall_64"),
    ];
    for (expected, stack) in stacks {
        assert_eq!(kind(stack), expected, "{stack}");
    }
}

#[test]
fn a_stack_without_names_has_the_kind_of_its_state_or_is_unknown() {
    let of = |state, stack: &[Option<&'static str>]| BlockedKind::of(state, stack.iter().copied());
    assert_eq!(of(BlockedState::Sleeping, &[]), BlockedKind::Unknown);
    assert_eq!(of(BlockedState::Sleeping, &[None, None]), BlockedKind::Unknown);
    assert_eq!(of(BlockedState::Uninterruptible, &[Some("schedule"), None]), BlockedKind::Other);
    assert_eq!(of(BlockedState::Iowait, &[]), BlockedKind::Disk);
    assert_eq!(of(BlockedState::Idle, &[Some("schedule")]), BlockedKind::KernelWorker);
    assert_eq!(of(BlockedState::Stopped, &[]), BlockedKind::Stopped);
    assert_eq!(
        of(BlockedState::Sleeping, &[None, Some("do_wait")]),
        BlockedKind::Child,
        "a module without a name"
    );
    assert_eq!(
        of(BlockedState::Idle, &[Some("down_read")]),
        BlockedKind::KernelLock,
        "the stack is more precise"
    );
}

#[test]
fn each_rule_can_match_and_occurs_once() {
    for (at, (rule, kind)) in rules().enumerate() {
        assert!(!rules().take(at).any(|(other, _)| other == rule), "{rule} is there twice");
        assert_eq!(of_function(&rule.replace('*', "")), Some(kind), "{rule}");
        assert_eq!(of_function(&format!("{}.isra.0 [module]", rule.replace('*', ""))), Some(kind));
        assert!(!rule.trim_end_matches('*').contains('*'), "{rule}: a star only at the end");
    }
    for generic in
        ["schedule", "schedule_timeout", "wait_woken", "do_wait_intr_irq", "__wait_for_common", "vfs_read"]
    {
        assert_eq!(of_function(generic), None, "{generic}");
    }
    for (at, kind) in BlockedKind::ALL.iter().enumerate() {
        assert_eq!(*kind as usize, at);
    }
}

fn stack(serial: u64, addr: u64, state: BlockedState, ns: u64) -> StackReading {
    let (tid, stack) = (serial as u32, [addr].into());
    StackReading { serial, state, stack, tid, tgid: 7, comm: "a".into(), ns, count: 1 }
}

fn task(serial: u64, cgroup_id: u64, blocked: Option<[u64; 5]>) -> TaskInterval {
    let accounts = blocked.map(|by| Arc::new(Accounts { blocked: Some(ByState(by)), ..Accounts::default() }));
    let reading = TaskReading {
        serial,
        tid: serial as u32,
        tgid: 7,
        comm: "a".into(),
        cgroup_id,
        state: Some(TaskState::Sleeping),
        accounts: accounts.clone(),
        ..TaskReading::default()
    };
    TaskInterval { reading, accounts, ..TaskInterval::default() }
}

fn name(addr: u64) -> Option<&'static str> {
    [Some("tcp_recvmsg"), Some("futex_wait"), Some("no_rule")].get(addr as usize).copied().flatten()
}

#[test]
fn the_kinds_of_a_thread_sum_to_its_blocked_time() {
    let interval = Interval {
        tasks: vec![
            task(1, 2, Some([100, 20, 0, 3, 0])),
            task(2, 3, Some([50, 0, 0, 0, 0])),
            task(3, 3, None),
            task(4, 3, Some([0, 0, 9, 0, 2])),
        ],
        stacks: vec![
            stack(1, 0, BlockedState::Sleeping, 60),
            stack(1, 1, BlockedState::Sleeping, 30),
            stack(2, 1, BlockedState::Sleeping, 70),
            stack(9, 0, BlockedState::Sleeping, 5),
        ],
        cgroups: vec![(1, "/".into()), (2, "/a".into()), (3, "/a/b".into())],
        ..Interval::default()
    };
    let blocked = BlockedOn::new(&interval, name);
    let one = blocked.thread(1).unwrap();
    assert_eq!(one.total(), 123);
    let kinds = [
        BlockedKind::Network,
        BlockedKind::Lock,
        BlockedKind::Disk,
        BlockedKind::KernelWorker,
        BlockedKind::Unknown,
    ]
    .map(|kind| one.get(kind));
    assert_eq!(kinds, [60, 30, 20, 3, 10]);
    assert_eq!(blocked.thread(2).unwrap().total(), 70, "a stack may cover time before the interval");
    assert_eq!(blocked.thread(3), None, "not known");
    assert_eq!(blocked.thread(4).unwrap().get(BlockedKind::Unknown), 9);
    assert_eq!(blocked.thread(4).unwrap().for_work(), 2);
    assert_eq!((blocked.total().total(), blocked.exited.unwrap().total()), (123 + 70 + 11 + 5, 5));
    assert_eq!(blocked.total().get(BlockedKind::Network), 65);
    let tree = crate::Tree::new(&interval);
    let of = |path: &str| {
        let places = tree.tasks_below(tree.find(path).unwrap());
        blocked.known_of_tasks(&interval, places).unwrap().total()
    };
    assert_eq!((of("/a/b"), of("/a"), of("/")), (81, 204, 204));
}

#[test]
fn time_with_a_stack_is_not_counted_again_by_state() {
    let interval = Interval {
        tasks: vec![task(1, 0, Some([40, 60, 0, 0, 0]))],
        stacks: vec![stack(1, 0, BlockedState::Sleeping, 95)],
        ..Interval::default()
    };
    let blocked = BlockedOn::new(&interval, name);
    let time = blocked.thread(1).unwrap();
    assert_eq!((time.total(), time.get(BlockedKind::Network), time.get(BlockedKind::Disk)), (100, 95, 5));
}

#[test]
fn time_after_the_last_reading_of_a_thread_counts_for_exited_threads() {
    let mut went = task(1, 2, Some([100, 0, 0, 0, 0]));
    went.reading.state = None;
    let stacks = vec![stack(1, 0, BlockedState::Sleeping, 150), stack(1, 1, BlockedState::Sleeping, 50)];
    let blocked = BlockedOn::new(&Interval { tasks: vec![went], stacks, ..Interval::default() }, name);
    let (there, exited) = (blocked.thread(1).unwrap(), blocked.exited.unwrap());
    assert_eq!([BlockedKind::Network, BlockedKind::Lock].map(|kind| there.get(kind)), [75, 25]);
    assert_eq!([BlockedKind::Network, BlockedKind::Lock].map(|kind| exited.get(kind)), [75, 25]);
}
