//! Tests how a segment that is older than the history is divided by cause.

use super::{Cause, Start, Work, beyond_history};
use crate::{
    ByCause,
    history::Taken,
    waits::{
        WaitHost,
        tests::host::{Facts, Maps, Simulated},
    },
};

/// Returns the parts of a segment that was queued at 500 us. The task was first throttled for `throttled_ns`. Then 300 us are
/// older than the history, and the history explains the rest. `start` changes the sums that the CPU had when the task was queued.
fn divided(start: impl FnOnce(&mut Start), throttled_ns: u64) -> ByCause {
    let _maps = Maps::new(true);
    let ring = Simulated::ring(0).expect("a CPU");
    ring.push(7, 900_000);
    (ring.kernel_ns, ring.idle_ns) = (10_000 + 50_000 + 40_000, 20_000 + 16_000);
    ring.taken = Taken { irq_ns: 1_000 + 8_000, stolen_ns: 2_000 + 4_000 };
    let work = Simulated::work(Work::HOOK).expect("working memory");
    work.begin(3, Work::NOBODY, 1_200_000);
    work.span(0, 500_000 + throttled_ns, 1_200_000);
    let parts = &mut work.walk.parts;
    parts[Cause::Throttled as usize] = throttled_ns;
    parts[Cause::Unattributed as usize] = 300_000;
    (parts[Cause::Kernel as usize], parts[Cause::OtherCgroup as usize]) = (50_000, 150_000);
    let mut begun = Start {
        group: 3,
        group_ran_ns: 1,
        // After a move, the ledger must add the time when the task was queued to this sum.
        kernel_ns: 10_000u64.wrapping_sub(500_000),
        idle_ns: 20_000,
        taken: Taken { irq_ns: 1_000, stolen_ns: 2_000 },
        ..Start::default()
    };
    start(&mut begun);
    beyond_history::<Simulated>(Facts::ran(3, 80_001), &begun, work);
    work.walk.parts
}

fn parts(of: &[(Cause, u64)]) -> ByCause {
    let mut parts = ByCause::default();
    of.iter().for_each(|(cause, ns)| parts[*cause as usize] = *ns);
    parts
}

/// If the task was also throttled, these times are divided in proportion between the throttled time and the time that is older
/// than the history.
#[test]
fn time_older_than_the_history_has_the_causes_of_what_the_cpu_did_since_the_task_was_queued() {
    for (throttled_ns, [kernel, irq, stolen, idle, own]) in
        [(0, [40_000, 8_000, 4_000, 16_000, 80_000]), (100_000, [30_000, 6_000, 3_000, 12_000, 60_000])]
    {
        let expected = parts(&[
            (Cause::Throttled, throttled_ns),
            (Cause::Kernel, 50_000 + kernel),
            (Cause::Irq, irq),
            (Cause::Stolen, stolen),
            (Cause::Wakeup, idle),
            (Cause::OwnCgroup, own),
            (Cause::OtherCgroup, 150_000 + 300_000 - (kernel + irq + stolen + idle + own)),
        ]);
        assert_eq!(divided(|_| {}, throttled_ns), expected);
    }
}

#[test]
fn without_the_run_time_of_its_own_group_older_time_has_no_cause() {
    let unknown =
        parts(&[(Cause::Unattributed, 300_000), (Cause::Kernel, 50_000), (Cause::OtherCgroup, 150_000)]);
    assert_eq!(divided(|start| start.group_ran_ns = 0, 0), unknown);
    assert_eq!(divided(|start| start.group = 4, 0), unknown, "it was moved to another cgroup");
}
