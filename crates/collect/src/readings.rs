//! Plain functions that convert records of the BPF side to readings of a sample.

use std::sync::Arc;

use cgscope_ledger::{
    Cause, Stack,
    task_state::{DEAD, FROZEN, IDLE, INTERRUPTIBLE, PARKED, RTLOCK_WAIT, STOPPED, TRACED, UNINTERRUPTIBLE},
    wire::{AccountsRecord, Exited, Histogram, ON_CPU, ON_RQ, TaskRecord},
};
use cgscope_model::{Accounts, ByCause, ByState, CpuTimes, ExitedReading, Hist, Pending, TaskState, Totals};

/// Converts the figures of a task, and scales user and system time to the run time. No result is less than in `before`.
pub(crate) fn accounts(now: &AccountsRecord, ran_ns: u64, before: Option<&Accounts>) -> Accounts {
    let own = &now.own;
    let before = before.copied().unwrap_or_default();
    let least = before.blocked.unwrap_or_default();
    let blocked = ByState(std::array::from_fn(|at| own.blocked_ns[at].max(least.0[at])));
    Accounts {
        cpu: CpuTimes::scaled(own.user_ns, own.system_ns, own.guest_ns, ran_ns, &before.cpu),
        blocked: Some(blocked),
        exited_threads: now.exited_threads.into(),
    }
}

/// Returns the task's state. A task sets its sleeping state before it stops running, so it may still run, or wait after a
/// preemption. We report such a task as running. A task on a run queue may still sleep: since Linux 6.12, a sleeping task can
/// stay there (DELAY_DEQUEUE).
pub(crate) fn state(record: &TaskRecord) -> TaskState {
    let runs_or_waits = record.flags & ON_CPU != 0 || waits_since_ns(record).is_some();
    if runs_or_waits { TaskState::Running } else { task_state_from_bits(record.state) }
}

/// Converts `__state` as the kernel does for the state letters (`__task_state_index`): the highest bit decides. Other bits
/// (TASK_WAKEKILL, TASK_WAKING, TASK_NEW, TASK_FREEZABLE since 6.1) only describe how the task can be woken.
///
/// There are two differences from the kernel. First, we do not read `exit_state`. Instead, `TASK_DEAD`, the last bit that a task
/// sets, means that the task is dead. Second, a frozen task always has the state D, as in Linux until 6.0 and since 6.14. In the
/// versions in between, the kernel shows R (f718faf3940e).
pub fn task_state_from_bits(state: u32) -> TaskState {
    const HIGHEST_FIRST: [(u32, TaskState); 9] = [
        (DEAD, TaskState::Dead),
        (RTLOCK_WAIT, TaskState::DiskSleep),
        (FROZEN, TaskState::DiskSleep),
        (IDLE, TaskState::Idle),
        (PARKED, TaskState::Parked),
        (TRACED, TaskState::Traced),
        (STOPPED, TaskState::Stopped),
        (UNINTERRUPTIBLE, TaskState::DiskSleep),
        (INTERRUPTIBLE, TaskState::Sleeping),
    ];
    let found = HIGHEST_FIRST.iter().find(|(bits, _)| state & bits == *bits);
    found.map_or(TaskState::Running, |(_, state)| *state)
}

/// Returns the start of the current wait, ns.
pub(crate) fn waits_since_ns(record: &TaskRecord) -> Option<u64> {
    if record.flags & ON_CPU != 0 || record.flags & ON_RQ == 0 {
        return None;
    }
    match (record.last_queued_ns, record.waits.unstamped_since_ns) {
        (0, 0) => None,
        (0, unstamped_ns) => Some(unstamped_ns),
        (queued_ns, _) => Some(queued_ns),
    }
}

/// Returns the current wait: the time on this CPU so far, plus the earlier segments of the wait on other CPUs.
pub(crate) fn pending(record: &TaskRecord, now_ns: u64) -> Option<Pending> {
    let since_ns = waits_since_ns(record)?;
    // Saturate: while the kernel switches the task in, `run_delay` can be too small.
    let booked_ns = record.totals.run_delay_ns.saturating_sub(record.waits.expected_run_delay_ns);
    let ns = booked_ns + now_ns.saturating_sub(since_ns);
    let mut by_cause = ByCause(record.pending);
    // `now_ns` can be up to one tick later than the clock of the task's run queue. The latest cause gets this time.
    let cause = Cause::ALL.get(record.pending_cause as usize).copied().unwrap_or(Cause::Unattributed);
    by_cause.add(&ByCause::only(cause, ns.saturating_sub(by_cause.total())));
    if by_cause.total() != ns {
        by_cause = ByCause::only(cause, ns);
    }
    Some(Pending { ns, booked_ns, by_cause })
}

pub(crate) fn of_wire(histogram: &Histogram) -> Hist {
    let (counts, shares) = histogram.counts_and_shares();
    Hist::from_counts(counts.map(u64::from), shares.map(u64::from))
}

/// Converts the figures of exited tasks. `accounts` says whether the BPF side counts user, system and blocked time.
pub(crate) fn exited_reading(cgroup_id: u64, place: &Exited, accounts: bool) -> ExitedReading {
    let hist = Hist::from_counts(place.counts, place.shares);
    let totals = Totals::of(&place.totals, &hist);
    let accounts = accounts.then(|| {
        let record = AccountsRecord { own: place.accounts, ..AccountsRecord::default() };
        Arc::new(self::accounts(&record, totals.on_cpu_ns, None))
    });
    let (tasks, max_ns) = (place.tasks, place.max_ns);
    ExitedReading { cgroup_id, tasks, max_ns, totals, accounts, hist: Arc::new(hist) }
}

/// Returns the frames of a stack, up to the first 0.
pub(crate) fn frames(stack: &Stack) -> Arc<[u64]> {
    let end = stack.iter().position(|frame| *frame == 0).unwrap_or(stack.len());
    stack[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::{
        task_state::NOLOAD,
        wire::{self, Waits},
    };
    use cgscope_model::Sample;

    #[test]
    fn a_pending_wait_counts_from_its_stamp_and_includes_waits_on_other_cpus() {
        let mut so_far = ByCause::only(Cause::OtherCgroup, 2_500);
        so_far.add(&ByCause::only(Cause::Kernel, 200));
        let record = TaskRecord {
            flags: ON_RQ,
            last_queued_ns: 1_000,
            totals: wire::Totals { run_delay_ns: 700, ..Default::default() },
            pending: so_far.0,
            pending_cause: Cause::OtherCgroup as u64,
            waits: Waits { expected_run_delay_ns: 500, ..Default::default() },
            ..Default::default()
        };
        let mut split = ByCause::only(Cause::OtherCgroup, 3_000);
        split.add(&ByCause::only(Cause::Kernel, 200));
        assert_eq!(pending(&record, 4_000), Some(Pending { ns: 3_200, booked_ns: 200, by_cause: split }));
        assert_eq!(pending(&TaskRecord { flags: ON_CPU | ON_RQ, ..record }, 4_000), None);
        assert_eq!(pending(&TaskRecord { last_queued_ns: 0, ..record }, 4_000), None);
        assert_eq!(pending(&TaskRecord { flags: 0, ..record }, 4_000), None, "asleep");
    }

    #[test]
    fn a_task_preempted_before_it_sleeps_waits_without_a_stamp() {
        let waits = Waits { unstamped_since_ns: 2_000, ..Default::default() };
        let record = TaskRecord {
            flags: ON_RQ,
            waits,
            pending_cause: Cause::Unattributed as u64,
            ..Default::default()
        };
        assert_eq!(
            pending(&record, 5_000),
            Some(Pending { ns: 3_000, booked_ns: 0, by_cause: ByCause::only(Cause::Unattributed, 3_000) })
        );
    }

    #[test]
    fn a_task_that_runs_or_waits_is_runnable_whatever_its_state() {
        let sleeping = TaskRecord { state: 0x1, ..Default::default() };
        assert_eq!(state(&sleeping), TaskState::Sleeping);
        assert_eq!(state(&TaskRecord { flags: ON_RQ, ..sleeping }), TaskState::Sleeping, "not dequeued yet");
        for record in [
            TaskRecord { flags: ON_CPU | ON_RQ, ..sleeping },
            TaskRecord { flags: ON_RQ, last_queued_ns: 7, ..sleeping },
            TaskRecord {
                flags: ON_RQ,
                waits: Waits { unstamped_since_ns: 7, ..Default::default() },
                ..sleeping
            },
            TaskRecord { state: 0, ..sleeping },
        ] {
            assert_eq!(state(&record), TaskState::Running, "{record:?}");
        }
    }

    #[test]
    fn a_freed_entry_keeps_the_sums_and_restarts_from_0() {
        let place = |waits, ns| {
            let mut place = Exited {
                tasks: waits,
                max_ns: ns,
                totals: wire::Totals {
                    by_cause: ByCause::only(Cause::Throttled, waits * ns).0,
                    run_delay_ns: waits * ns,
                    ..wire::Totals::NONE
                },
                ..Exited::NONE
            };
            place.counts[cgscope_ledger::bucket_of(ns)] = waits;
            exited_reading(7, &place, false)
        };
        let sample = |exited| Sample { exited, ..Default::default() };
        let (none, held) = (sample(vec![]), sample(vec![place(3, 5_000)]));
        let waits = |a, b| cgscope_model::Interval::between(a, b).total().wait;
        assert_eq!(waits(&none, &held).total_ns, 15_000);
        assert!(cgscope_model::Interval::between(&held, &held).exited.is_empty());
        assert!(cgscope_model::Interval::between(&held, &none).exited.is_empty());
        assert_eq!(waits(&none, &sample(vec![place(1, 400)])).total_ns, 400, "an entry that appeared late");
    }

    const WAKEKILL: u32 = 0x100;
    const WAKING: u32 = 0x200;
    const NEW: u32 = 0x800;
    const FREEZABLE: u32 = 0x2000;
    const FREEZABLE_UNSAFE: u32 = 0x4000;

    #[test]
    fn states_are_converted_as_the_kernel_does() {
        for (bits, letter) in [
            (0, 'R'),
            (WAKING, 'R'),
            (NEW, 'R'),
            (INTERRUPTIBLE, 'S'),
            (INTERRUPTIBLE | FREEZABLE, 'S'),
            (INTERRUPTIBLE | FREEZABLE | FREEZABLE_UNSAFE, 'S'),
            (UNINTERRUPTIBLE, 'D'),
            // TASK_KILLABLE, the state of the parent of a vfork.
            (UNINTERRUPTIBLE | WAKEKILL, 'D'),
            (UNINTERRUPTIBLE | WAKEKILL | FREEZABLE, 'D'),
            (IDLE, 'I'),
            (IDLE | FREEZABLE, 'I'),
            (RTLOCK_WAIT, 'D'),
            (FROZEN, 'D'),
            // TASK_STOPPED, then TASK_TRACED until 5.18 and TASK_TRACED since then.
            (STOPPED | WAKEKILL, 'T'),
            (TRACED | WAKEKILL, 't'),
            (TRACED, 't'),
            (PARKED, 'P'),
            (DEAD, 'X'),
        ] {
            assert_eq!(task_state_from_bits(bits).letter(), letter, "{bits:#x}");
        }
    }

    /// TASK_NOLOAD alone changes nothing. If two sleep bits are set, the higher bit decides.
    #[test]
    fn the_highest_of_several_bits_decides() {
        assert_eq!(task_state_from_bits(NOLOAD | INTERRUPTIBLE), TaskState::Sleeping);
        assert_eq!(task_state_from_bits(INTERRUPTIBLE | UNINTERRUPTIBLE), TaskState::DiskSleep);
        assert_eq!(task_state_from_bits(STOPPED | TRACED | INTERRUPTIBLE), TaskState::Traced);
        assert_eq!(task_state_from_bits(FROZEN | STOPPED), TaskState::DiskSleep);
    }
}
