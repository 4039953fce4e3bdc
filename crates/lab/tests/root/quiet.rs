//! Tests that assert times or shares of CPU look for a quiet machine themselves.

use std::{
    cell::Cell,
    fs,
    io::{self, Write},
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// CPUs that others may have. More than this many, or than this share of all of them, percent, is a busy machine.
const CPUS: f64 = 0.3;
const PERCENT: f64 = 5.0;
/// How long is looked whether the machine is quiet. A tick of `/proc/stat` is 10 ms.
const LOOK: Duration = Duration::from_millis(200);
/// A quiet machine may be busy in one of these looks: what a test has started may still be ending.
const LOOKS: u32 = 5;
/// How often a test is tried on a busy machine, and how long it waits for a quiet one before each time but the first.
const TRIES: u32 = 3;
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs `test`, which panics if it fails. On a quiet machine a failure counts. On a busy one it is tried again once the machine is
/// quiet; where that does not come to pass, standard error says that nothing was decided. `test` must leave nothing running.
pub(crate) fn quietly(test: impl Fn()) {
    let Err(busy) = tried(test, PATIENCE) else { return };
    // Not with a macro: the words are to be seen although the test does not fail.
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let _ = writeln!(
        io::stderr(),
        "\nNOT DECIDED: {name} failed {TRIES} times, but others used {busy:.1} CPUs beside it; it needs a quiet machine (at most {:.1})",
        allowed()
    );
}

/// Runs a test as above, with so much patience.
///
/// # Errors
/// Nothing was decided: how many CPUs others used.
fn tried(test: impl Fn(), patience: Duration) -> Result<(), f64> {
    let mut busy = 0.0;
    for attempt in 0..TRIES {
        let before = if attempt == 0 { busy_cpus(LOOK) } else { least_busy(patience) };
        let Err(failure) = panic::catch_unwind(AssertUnwindSafe(&test)) else { return Ok(()) };
        let after = least_busy(LOOK * LOOKS);
        busy = before.max(after);
        if busy <= allowed() {
            panic::resume_unwind(failure);
        }
    }
    Err(busy)
}

/// CPUs that were busy in the quietest look of this time; it ends with the first quiet one.
fn least_busy(within: Duration) -> f64 {
    let end = Instant::now() + within;
    let mut least = f64::MAX;
    while least > allowed() && (least == f64::MAX || Instant::now() < end) {
        least = least.min(busy_cpus(LOOK));
    }
    least
}

fn allowed() -> f64 {
    let cpus = thread::available_parallelism().map_or(1, usize::from) as f64;
    CPUS.max(cpus * PERCENT / 100.0)
}

/// CPUs that ran something, or were taken by the host of a virtual machine, on average over this time.
fn busy_cpus(over: Duration) -> f64 {
    let (begun, before) = (Instant::now(), busy_ticks());
    thread::sleep(over);
    // SAFETY: no pointers.
    let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    busy_ticks().saturating_sub(before) as f64 / per_second / begun.elapsed().as_secs_f64()
}

/// The first line of `/proc/stat`: all but what is idle or waits for a disk, and without guests, whose time is in `user` already.
fn busy_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").expect("/proc/stat");
    let all = stat.lines().next().expect("a line of all CPUs");
    let ticks = all.split_ascii_whitespace().skip(1).map(|ticks| ticks.parse::<u64>().expect("ticks"));
    ticks.take(8).enumerate().filter(|(at, _)| ![3, 4].contains(at)).map(|(_, ticks)| ticks).sum()
}

/// A thread that keeps a CPU busy until it is joined by dropping this.
struct Disturbance {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Disturbance {
    fn start() -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = is_over.clone();
        let spin = move || {
            while !seen.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        Self { is_over, thread: Some(thread::spawn(spin)) }
    }
}

impl Drop for Disturbance {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[test]
fn beside_others_a_failure_is_tried_again_and_decides_nothing() {
    let _others = Disturbance::start();
    let tries = Cell::new(0);
    let fails_at_first = || {
        tries.set(tries.get() + 1);
        assert!(tries.get() > 1, "beside others");
    };
    assert_eq!(tried(fails_at_first, Duration::ZERO), Ok(()));
    assert_eq!(tries.get(), 2);
    let busy = tried(|| panic!("beside others"), Duration::ZERO).expect_err("nothing was decided");
    assert!(busy > allowed(), "{busy}");
}

#[test]
fn a_failure_counts_once_the_machine_is_quiet() {
    let failed = || panic::catch_unwind(|| tried(|| panic!("a failure"), LOOK * LOOKS)).is_err();
    // Others may come between; then it is not said that there were none.
    assert!(failed() || least_busy(LOOK * LOOKS) > allowed());
}
