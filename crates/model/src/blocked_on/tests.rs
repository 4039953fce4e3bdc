use std::sync::Arc;

use super::*;
use crate::{Accounts, ByState, Interval, StackReading, TaskInterval, TaskReading, TaskState};

fn kind(stack: &str) -> Kind {
    Kind::of(BlockedState::Sleeping, stack.split(';').map(Some))
}

#[test]
fn a_stack_is_of_the_kind_of_the_first_function_that_tells() {
    let stacks = [
        (
            Kind::Accept,
            "schedule;schedule_timeout;inet_csk_accept;inet_accept;do_accept;__sys_accept4;do_syscall_64",
        ),
        (
            Kind::Accept,
            "__skb_wait_for_more_packets;__skb_recv_datagram;skb_recv_datagram;unix_accept;do_accept",
        ),
        (Kind::Network, "wait_woken;sk_wait_data;tcp_recvmsg_locked;tcp_recvmsg;sock_recvmsg;__sys_recvfrom"),
        (Kind::Network, "unix_stream_read_generic;unix_stream_recvmsg;sock_recvmsg;__sys_recvfrom"),
        (Kind::Network, "__skb_wait_for_more_packets;__skb_recv_udp;udp_recvmsg;sock_recvmsg"),
        (Kind::Network, "sock_alloc_send_pskb;unix_stream_sendmsg;__sys_sendto"),
        (Kind::Network, "unix_wait_for_peer;unix_stream_connect;__sys_connect"),
        (Kind::Poll, "schedule_hrtimeout_range;poll_schedule_timeout.constprop.0;do_sys_poll;__x64_sys_poll"),
        (Kind::Poll, "do_epoll_wait;__x64_sys_epoll_wait"),
        (Kind::Poll, "do_wait_intr_irq;eventfd_read;vfs_read;ksys_read"),
        (Kind::Poll, "wait_woken;inotify_read;vfs_read"),
        (Kind::Lock, "futex_do_wait;__futex_wait;futex_wait;do_futex;__x64_sys_futex"),
        (Kind::Lock, "futex_wait_queue;futex_wait;do_futex"),
        (Kind::Lock, "__do_semtimedop;do_semtimedop;do_syscall_64"),
        (Kind::Lock, "schedule;rt_mutex_slowlock_block.constprop.0;rt_mutex_wait_proxy_lock;futex_lock_pi"),
        (Kind::Pipe, "schedule;anon_pipe_read;vfs_read;ksys_read"),
        (Kind::Pipe, "schedule;pipe_write;vfs_write"),
        (Kind::Pipe, "wait_for_partner;fifo_open;do_dentry_open;vfs_open"),
        (Kind::Pipe, "wq_sleep;do_mq_timedreceive;__x64_sys_mq_timedreceive"),
        (Kind::Disk, "schedule;io_schedule;folio_wait_bit_common;filemap_fault;do_fault"),
        (Kind::Disk, "schedule;jbd2_log_wait_commit;ext4_sync_file;vfs_fsync_range;do_fsync"),
        (Kind::Disk, "wait_for_completion_io;submit_bio_wait;blkdev_issue_flush"),
        (Kind::FileLock, "locks_lock_inode_wait;__do_sys_flock"),
        (Kind::FileLock, "fcntl_setlk;do_fcntl;__x64_sys_fcntl"),
        (Kind::KernelLock, "schedule;rwsem_down_write_slowpath;down_write_killable;vm_mmap_pgoff"),
        (Kind::KernelLock, "schedule_preempt_disabled;__mutex_lock.constprop.0;anon_pipe_read;vfs_read"),
        (Kind::Timer, "do_nanosleep;hrtimer_nanosleep;common_nsleep;__x64_sys_clock_nanosleep"),
        (Kind::Timer, "do_wait_intr_irq;timerfd_read_iter;vfs_read"),
        (Kind::Child, "do_wait;kernel_wait4;do_syscall_64"),
        (Kind::Signal, "do_sigtimedwait.isra.0;__x64_sys_rt_sigtimedwait"),
        (Kind::Signal, "__do_sys_pause;do_syscall_64"),
        (Kind::Terminal, "wait_woken;n_tty_read;tty_read;vfs_read"),
        (Kind::IoUring, "schedule;io_cqring_wait;__do_sys_io_uring_enter"),
        (
            Kind::Memory,
            "schedule_timeout;reclaim_throttle;shrink_node;do_try_to_free_pages;try_to_free_pages",
        ),
        (Kind::Stopped, "do_signal_stop;get_signal;arch_do_signal_or_restart"),
        (Kind::Frozen, "__refrigerator;get_signal"),
        (Kind::KernelWorker, "schedule;worker_thread;kthread;ret_from_fork"),
        (Kind::KernelWorker, "schedule;kjournald2;kthread;ret_from_fork"),
        (Kind::Disk, "io_schedule;bit_wait_io;jbd2_journal_commit_transaction;kjournald2;kthread"),
        (Kind::Network, "wait_woken;vsock_connectible_wait_data [vsock];vsock_stream_recvmsg"),
        (Kind::Other, "schedule;something_new;do_syscall_64"),
    ];
    for (expected, stack) in stacks {
        assert_eq!(kind(stack), expected, "{stack}");
    }
}

#[test]
fn what_has_no_name_is_told_by_its_state_or_unknown() {
    let of = |state, stack: &[Option<&'static str>]| Kind::of(state, stack.iter().copied());
    assert_eq!(of(BlockedState::Sleeping, &[]), Kind::Unknown);
    assert_eq!(of(BlockedState::Sleeping, &[None, None]), Kind::Unknown);
    assert_eq!(of(BlockedState::Uninterruptible, &[Some("schedule"), None]), Kind::Other);
    assert_eq!(of(BlockedState::Iowait, &[]), Kind::Disk);
    assert_eq!(of(BlockedState::Idle, &[Some("schedule")]), Kind::KernelWorker);
    assert_eq!(of(BlockedState::Stopped, &[]), Kind::Stopped);
    assert_eq!(of(BlockedState::Sleeping, &[None, Some("do_wait")]), Kind::Child, "a module without a name");
    assert_eq!(of(BlockedState::Idle, &[Some("down_read")]), Kind::KernelLock, "the stack tells more");
}

#[test]
fn each_rule_can_be_met_and_names_one_thing() {
    for (at, (rule, kind)) in rules::RULES.iter().enumerate() {
        assert!(!rules::RULES[..at].iter().any(|(other, _)| other == rule), "{rule} is there twice");
        assert_eq!(rules::of_function(&rule.replace('*', "")), Some(*kind), "{rule}");
        assert_eq!(rules::of_function(&format!("{}.isra.0 [module]", rule.replace('*', ""))), Some(*kind));
        assert!(!rule.trim_end_matches('*').contains('*'), "{rule}: a star only at the end");
    }
    for generic in
        ["schedule", "schedule_timeout", "wait_woken", "do_wait_intr_irq", "__wait_for_common", "vfs_read"]
    {
        assert_eq!(rules::of_function(generic), None, "{generic}");
    }
    for (at, kind) in Kind::ALL.iter().enumerate() {
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
    let kinds =
        [Kind::Network, Kind::Lock, Kind::Disk, Kind::KernelWorker, Kind::Unknown].map(|kind| one.get(kind));
    assert_eq!(kinds, [60, 30, 20, 3, 10]);
    assert_eq!(blocked.thread(2).unwrap().total(), 70, "a stack may stand for time before the interval");
    assert_eq!(blocked.thread(3), None, "not known");
    assert_eq!(blocked.thread(4).unwrap().get(Kind::Unknown), 9);
    assert_eq!(blocked.thread(4).unwrap().for_work(), 2);
    assert_eq!((blocked.total().total(), blocked.exited().total()), (123 + 70 + 11 + 5, 5));
    assert_eq!(blocked.total().get(Kind::Network), 65);
    let tree = crate::Tree::new(&interval);
    let of = |path: &str| {
        let places = tree.tasks_below(tree.find(path).unwrap());
        blocked.known_of_tasks(&interval, places).unwrap().total()
    };
    assert_eq!((of("/a/b"), of("/a"), of("/")), (81, 204, 204));
}

#[test]
fn a_stack_that_stands_for_another_state_too_is_not_counted_twice() {
    let interval = Interval {
        tasks: vec![task(1, 0, Some([40, 60, 0, 0, 0]))],
        stacks: vec![stack(1, 0, BlockedState::Sleeping, 95)],
        ..Interval::default()
    };
    let blocked = BlockedOn::new(&interval, name);
    let time = blocked.thread(1).unwrap();
    assert_eq!((time.total(), time.get(Kind::Network), time.get(Kind::Disk)), (100, 95, 5));
}

#[test]
fn of_one_that_went_what_it_was_not_read_for_is_with_those_that_exited() {
    let mut went = task(1, 2, Some([100, 0, 0, 0, 0]));
    went.reading.state = None;
    let stacks = vec![stack(1, 0, BlockedState::Sleeping, 150), stack(1, 1, BlockedState::Sleeping, 50)];
    let blocked = BlockedOn::new(&Interval { tasks: vec![went], stacks, ..Interval::default() }, name);
    let (there, exited) = (blocked.thread(1).unwrap(), blocked.exited());
    assert_eq!([Kind::Network, Kind::Lock].map(|kind| there.get(kind)), [75, 25]);
    assert_eq!([Kind::Network, Kind::Lock].map(|kind| exited.get(kind)), [75, 25]);
}
