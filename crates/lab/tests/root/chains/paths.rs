//! The paths on which a wakeup gets from one task to another one.

use std::process::Command;

use super::*;

const ROUNDS: u64 = 100;
const WORK_US: u64 = 5_000;

/// Two network namespaces with an address each, connected by a pair of virtual devices. Removed on drop.
struct Namespaces([String; 2]);

impl Namespaces {
    const ADDRESSES: [&str; 2] = ["10.255.77.1", "10.255.77.2"];

    fn new() -> Self {
        let names = ["a", "b"].map(|end| format!("cgscope-test-{}-{end}", std::process::id()));
        let made = Self(names);
        for name in &made.0 {
            ip(&["netns", "add", name]);
        }
        let [a, b] = &made.0;
        ip(&["-n", a, "link", "add", "veth0", "type", "veth", "peer", "name", "veth0", "netns", b]);
        for (name, address) in made.0.iter().zip(Self::ADDRESSES) {
            ip(&["-n", name, "address", "add", &format!("{address}/24"), "dev", "veth0"]);
            ip(&["-n", name, "link", "set", "veth0", "up"]);
        }
        made
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in &self.0 {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(words: &[&str]) {
    let output = Command::new("ip").args(words).output().expect("ip");
    assert!(output.status.success(), "ip {words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// `kinds`: in what the first process sleeps for the second one, and the other way round.
fn assert_path(how: &str, kinds: [BlockedKind; 2], apart: &[&str]) {
    let mut collector = collector(false);
    let [sleeper, waker] = ["sleeper", "waker"].map(Cgroup::new);
    let numbers = [ROUNDS, WORK_US, 60].map(|number| number.to_string());
    let mut words = vec!["wakes", how];
    words.extend(numbers.iter().map(String::as_str));
    words.extend([directory(&sleeper), directory(&waker)]);
    words.extend(apart);
    let measured = Measured::of(&mut collector, &words);
    let row = measured.row(&sleeper, kinds[0], &waker);
    let (work_ns, mut rows) = (ROUNDS * WORK_US * 1_000, measured.in_rounds(&sleeper));
    // Some kernels read through a thread of io_uring in the same cgroup, which sleeps for its next request.
    rows.retain(|row| how != "ring" || row.waker_cgroup != row.sleeper);
    let slept_ns = sum::total(rows.iter().map(|row| row.slept_ns));
    println!("{how}: {rows:#?}");
    match how {
        // When the waker reads, it also wakes the sender, for which there is space again.
        "unix" => assert!((ROUNDS..=2 * ROUNDS).contains(&row.count), "{row:?}"),
        _ => near(row.count, ROUNDS, 5.0, "sleeps, against rounds"),
    }
    let for_waker = rows.iter().filter(|row| (row.waker, row.waker_cgroup) == (Waker::Task, id(&waker)));
    let for_waker_ns = sum::total(for_waker.map(|row| row.slept_ns));
    // There, that thread ends some sleeps by an interrupt: 6 to 8 % of the sleep on 6.1.
    let percent = if how == "ring" && is_emulated() { 5.0 } else { 2.0 };
    near(for_waker_ns, slept_ns, percent, "slept for the waker, against all sleep");
    // While the sleeper itself waits for a CPU, the waker may already work. A child also starts and exits.
    let own_ns = measured.task(measured.pids[0]).wait.total_ns;
    let (ran_ns, share) = (row.ran_ns, if how == "child" { 0.1 } else { 0.05 });
    let (off_ns, allowed_ns) = (ran_ns.abs_diff(work_ns) as f64, work_ns as f64 * share + own_ns as f64);
    println!("ran {ran_ns}, {:.2}% off its work", off(ran_ns, work_ns));
    assert!(is_within(off_ns, allowed_ns), "{ran_ns}, but the waker works for {work_ns}: {row:?}");
    assert_sums(&row);
    let is_there = |task: &&TaskInterval| task.reading.cgroup_id == id(&sleeper);
    if measured.interval.tasks.iter().filter(is_there).count() == 1 {
        measured.assert_is_whole(&sleeper, 0);
    } else {
        assert_eq!(how, "ring");
    }
    let marks = measured.marks[0];
    let off_ns = marks.waited_ns as f64 - slept_ns as f64;
    println!("slept {slept_ns}, the load measured {}, its own waits {own_ns}", marks.waited_ns);
    assert!(is_within(off_ns.abs(), own_ns as f64 + 0.02 * slept_ns as f64), "{off_ns}");
    if how == "child" {
        return;
    }
    // The waker usually finds the next request when it asks. If it sleeps, then for the sleeper. A waker that is not seen (it came
    // before the sleep began, or the kernel hides it) ends only short sleeps.
    let back = measured.in_rounds(&waker);
    let is_for_sleeper = |row: &&ChainReading| {
        let is_kind = [kinds[1], BlockedKind::Unknown].contains(&row.kind);
        is_kind && (row.waker, row.waker_cgroup) == (Waker::Task, id(&sleeper))
    };
    let (own, others): (Vec<_>, Vec<_>) = back.into_iter().partition(is_for_sleeper);
    let own = sum::total(own.iter().map(|row| row.slept_ns));
    let others_ns = sum::total(others.iter().map(|row| row.slept_ns));
    println!("back: {own} ns for the sleeper, {others_ns} ns for others");
    assert!(others_ns <= slept_ns / 100, "{others:#?}");
}

#[test]
fn a_sleep_in_a_pipe_is_for_the_writer() {
    assert_path("pipe", [BlockedKind::Pipe; 2], &[]);
}

#[test]
fn a_sleep_in_a_unix_socket_is_for_the_sender() {
    assert_path("unix", [BlockedKind::Network; 2], &[]);
}

#[test]
fn a_sleep_in_an_eventfd_is_for_the_writer() {
    assert_path("eventfd", [BlockedKind::Poll; 2], &[]);
}

#[test]
fn a_sleep_in_a_shared_futex_is_for_the_process_that_wakes_it() {
    assert_path("futex", [BlockedKind::Lock; 2], &[]);
}

#[test]
fn a_sleep_in_flock_is_for_the_process_that_unlocks() {
    assert_path("flock", [BlockedKind::FileLock, BlockedKind::Pipe], &[]);
}

#[test]
fn a_sleep_in_waitpid_is_for_the_child() {
    assert_path("child", [BlockedKind::Child; 2], &[]);
}

#[test]
fn a_sleep_in_io_uring_is_for_the_writer_of_the_pipe_that_it_reads() {
    assert_path("ring", [BlockedKind::IoUring, BlockedKind::Pipe], &[]);
}

/// A soft interrupt delivers the bytes, on top of the sender.
#[test]
fn a_sleep_in_a_tcp_socket_on_this_host_is_for_the_sender() {
    assert_path("tcp", [BlockedKind::Network; 2], &[]);
}

#[test]
fn a_sleep_in_a_tcp_socket_between_two_namespaces_is_for_the_sender() {
    let namespaces = Namespaces::new();
    let paths = namespaces.0.each_ref().map(|name| format!("/run/netns/{name}"));
    assert_path("tcp", [BlockedKind::Network; 2], &[&paths[0], &paths[1], Namespaces::ADDRESSES[1]]);
}
