//! Timers and devices wake tasks while some other task is on the CPU.

use std::{thread, time::Duration};

use super::*;
use crate::{files::Dir, load::Cpu};

/// Returns the rows of the cgroup during `time`, beside a busy loop on the same CPU, which must be in none of them.
fn beside_loop(sleeper: &Cgroup, start: impl FnOnce(u32) -> Load, time: Duration) -> Vec<ChainReading> {
    let mut collector = collector(false);
    let beside = Cgroup::new("loop");
    let cpu = Cpu::one();
    let loads = [Load::pinned_loop(cpu, Some(&beside)), start(cpu)];
    thread::sleep(Duration::from_millis(300));
    let first = collector.sample().expect("a sample");
    thread::sleep(time);
    let interval = Interval::between(&first, &collector.sample().expect("a sample"));
    let mut rows = interval.chains.expect("chains are counted");
    rows.retain(|row| row.sleeper == id(sleeper));
    let blamed: Vec<_> = rows.iter().filter(|row| row.waker_cgroup == id(&beside)).collect();
    assert!(blamed.is_empty(), "{blamed:#?}");
    drop(loads);
    rows
}

fn count(rows: &[ChainReading], is_it: impl Fn(&ChainReading) -> bool) -> u64 {
    sum::total(rows.iter().filter(|row| is_it(row)).map(|row| row.count))
}

#[test]
#[ignore = "one CPU: the loop must be on the CPU when the timer expires"]
fn a_sleep_that_a_timer_ends_is_for_nobody() {
    let sleeper = Cgroup::new("sleeper");
    let start = |cpu: u32| Load::workload(&["doze", &cpu.to_string(), "60"], Some(&sleeper)).0;
    let rows = beside_loop(&sleeper, start, Duration::from_secs(3));
    println!("{rows:#?}");
    // A hardened kernel may hide a process that the timer interrupts, or that a sleep ends.
    let by_timer = count(&rows, |row| {
        let is_kind = [BlockedKind::Timer, BlockedKind::Unknown].contains(&row.kind);
        is_kind && [Waker::Interrupt, Waker::Unknown].contains(&row.waker)
    });
    let unknown = count(&rows, |row| row.kind == BlockedKind::Unknown || row.waker == Waker::Unknown);
    let all = count(&rows, |_| true);
    assert!(all > 100, "{all}");
    assert_eq!(by_timer, all, "{rows:#?}");
    assert!(unknown <= all / 50, "{rows:#?}");
}

#[test]
#[ignore = "one CPU: the loop must be on the CPU when the disk is ready"]
fn a_sleep_that_a_disk_ends_is_not_for_the_task_that_it_interrupts() {
    let dir = Dir::new("chains");
    let path = dir.file("written");
    let sleeper = Cgroup::new("writer");
    let script = format!("while :; do dd if=/dev/zero of={path} bs=64k count=1 oflag=sync; done");
    let start =
        |cpu: u32| Load::start("taskset", &["-c", &cpu.to_string(), "sh", "-c", &script], Some(&sleeper));
    let rows = beside_loop(&sleeper, start, Duration::from_secs(3));
    println!("{rows:#?}");
    assert!(count(&rows, |row| row.waker == Waker::Disk) > 10, "{rows:#?}");
}
