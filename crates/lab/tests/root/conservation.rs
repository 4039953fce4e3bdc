//! No wait is lost: each wait of a short-lived task is counted for the task, for the exited tasks of its cgroup, or by a loss
//! counter.

use std::{thread, time::Duration};

use cgscope_collect::Collector;
use cgscope_ledger::Loss;
use cgscope_model::{Interval, Losses, Sample};

use crate::{
    bench::{follow, is_emulated, scaled},
    load::{Cgroup, Load, result},
};

/// Takes samples while the load runs, and one more sample after all tasks of the load have exited. Returns the sum of the
/// intervals since `earlier`, and the number that the load prints.
fn measure_to_the_end(
    collector: &mut Collector,
    mut earlier: Sample,
    load: Load,
    out: &mut (impl std::io::Read + Send),
) -> (Interval, u64) {
    let mut whole = Interval::default();
    let mut add = |collector: &mut Collector| {
        let sample = collector.sample().expect("a sample");
        whole.append(Interval::between(&earlier, &sample));
        earlier = sample;
    };
    let kernel = thread::scope(|scope| {
        let ended = scope.spawn(|| {
            let kernel = result(out);
            load.wait();
            kernel
        });
        while !ended.is_finished() {
            thread::sleep(Duration::from_millis(200));
            add(collector);
        }
        ended.join().expect("a result")
    });
    // Wait for the last switch of each process. A parent can reap a process a moment before that switch.
    thread::sleep(Duration::from_millis(100));
    add(collector);
    (whole, kernel)
}

/// Asserts that hardly anything was lost. In rare cases, a task is preempted while it creates its storage, and then the storage
/// of another task is not created. A loss counter counts the task without storage, and the sum still includes the waits of this
/// task.
fn assert_hardly_lost(losses: &Losses) {
    for (loss, count) in losses.nonzero() {
        let allowed = match loss {
            Loss::StorageNotCreated => 50,
            // Each task without storage can switch several times.
            Loss::SwitchWithoutStorage => 500,
            // Two programs need the same task at the same time. It is rare, except on a slow machine.
            Loss::ReadingOvertaken if is_emulated() => 20,
            _ if loss.leaves_result_whole() => u64::MAX,
            _ => 0,
        };
        assert!(count <= allowed, "{} {count}", loss.name());
    }
}

#[test]
#[ignore = "all CPUs: counts what is lost on the host"]
fn ten_thousand_short_lived_processes_lose_no_wait() {
    let cgroup = Cgroup::new("forks");
    let mut collector = follow(&[]);
    let before = collector.sample().expect("a sample");
    let count = scaled(10_000);
    let (load, mut out) = Load::workload(&["fork", &count.to_string()], Some(&cgroup));
    let (whole, kernel_ns) = measure_to_the_end(&mut collector, before, load, &mut out);

    assert_hardly_lost(&whole.losses);
    let group = whole.by_cgroup().remove(&Some(cgroup.name.as_str().into())).expect("the load's cgroup");
    assert!(group.exited >= count, "{} exited", group.exited);
    assert_eq!(group.wait.hist.count(), group.wait.count);
    assert!(group.wait.count >= 2 * count, "each task waits before its first run and after a yield");
    // All tasks have exited. Our sum must equal, to the nanosecond, the sum of the run delays that the tasks had when they
    // exited.
    assert_eq!(group.wait.total_ns, group.totals.run_delay_ns, "{:?}", group.totals);
    // Also compare with the run delays that the load read from /proc. The load read the run delay of each child when the child
    // was a zombie, and its own run delay shortly before it exited.
    let on_top_ns =
        group.wait.total_ns.checked_sub(kernel_ns).expect("at least the figure in the kernel's files");
    assert!(on_top_ns < 50_000_000, "{on_top_ns} ns more than the {kernel_ns} ns of the kernel's files");
}

#[test]
#[ignore = "all CPUs: counts what is lost on the host"]
fn ten_thousand_short_lived_threads_lose_no_wait() {
    let cgroup = Cgroup::new("threads");
    let mut collector = follow(&[]);
    let before = collector.sample().expect("a sample");
    let count = scaled(10_000);
    let (load, mut out) = Load::workload(&["threads", &count.to_string()], Some(&cgroup));
    let (whole, threads_ns) = measure_to_the_end(&mut collector, before, load, &mut out);

    assert_hardly_lost(&whole.losses);
    let group = whole.by_cgroup().remove(&Some(cgroup.name.as_str().into())).expect("the load's cgroup");
    assert!(group.exited >= count, "{} exited", group.exited);
    assert_eq!(group.wait.hist.count(), group.wait.count);
    assert!(group.wait.count >= 2 * count, "each task waits before its first run and after a yield");
    assert_eq!(group.wait.total_ns, group.totals.run_delay_ns, "{:?}", group.totals);
    assert!(group.wait.total_ns >= threads_ns, "each thread read at least this figure before its end");
}

#[test]
#[ignore = "all CPUs: counts what is lost on the host"]
fn the_waits_of_children_stay_with_a_selected_process() {
    let count = if is_emulated() { 5_000 } else { 12_000 };
    let (load, mut out) = Load::workload(&["threads", &count.to_string()], None);
    // Stop the load, because on a fast host its threads would otherwise end before cgscope has attached.
    load.signal(libc::SIGSTOP);
    let mut collector = follow(&[load.pid()]);
    let before = collector.sample().expect("a sample");
    // At this sample, the kernel's sum already includes parts of unfinished waits. cgscope counts a wait only when the wait ends.
    let pending = before.tasks.iter().filter_map(|task| task.pending.as_deref());
    let booked_ns: u64 = pending.map(|pending| pending.booked_ns).sum();
    load.signal(libc::SIGCONT);
    let (whole, _) = measure_to_the_end(&mut collector, before, load, &mut out);
    let total = whole.total();
    assert!(total.exited > scaled(1_000), "{}", total.exited);
    assert_eq!(total.wait.total_ns, total.totals.run_delay_ns + booked_ns, "{:?}", total.totals);
    assert_hardly_lost(&whole.losses);
}
