//! Measures how much other programs use the machine during a test, and decides whether they may be the reason for a failure.
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Other programs disturb a test if they use more than this number of CPUs and more than this percentage of the test's CPUs. The
/// services of an idle machine use less than that. A compiler or a load uses at least one CPU, which is more.
const CPUS: f64 = 0.3;
const PERCENT: f64 = 5.0;
/// Use by other programs is printed from this number of CPUs on.
const LEAST: f64 = 0.01;
/// Time between the two readings that show whether other programs use the machine.
const LOOK: Duration = Duration::from_millis(500);
/// `USER_HZ` of /proc. It is the same on all architectures on which cgscope runs.
const TICKS_A_SECOND: f64 = 100.0;

/// The contents of `/proc/stat` at one moment, and that moment.
pub(crate) struct Reading {
    pub(crate) at: Instant,
    stat: String,
}

impl Reading {
    pub(crate) fn take() -> Self {
        Self { at: Instant::now(), stat: fs::read_to_string("/proc/stat").unwrap_or_default() }
    }

    /// Returns the busy and the stolen ticks of a CPU, or of all CPUs together.
    fn ticks(&self, cpu: Option<u32>) -> [u64; 2] {
        let name = cpu.map_or_else(|| "cpu ".to_owned(), |cpu| format!("cpu{cpu} "));
        self.stat.lines().find(|line| line.starts_with(&name)).map(ticks).unwrap_or_default()
    }

    fn online(&self) -> usize {
        self.stat.lines().filter(|line| line.starts_with("cpu") && !line.starts_with("cpu ")).count().max(1)
    }

    /// Returns by how much the number of runnable tasks exceeds the number of CPUs. The process that reads this number does not
    /// count.
    pub(crate) fn queue(&self) -> u64 {
        let running = self.stat.lines().find_map(|line| line.strip_prefix("procs_running ")?.parse().ok());
        running.unwrap_or(0u64).saturating_sub(1 + self.online() as u64)
    }
}

/// Returns the busy and stolen ticks in a line of `/proc/stat`. Time in idle and iowait counts as neither of them. `user`
/// includes the time of guests.
fn ticks(line: &str) -> [u64; 2] {
    let ticks: Vec<u64> =
        line.split_ascii_whitespace().skip(1).map(|ticks| ticks.parse().unwrap_or(0)).collect();
    let sum = |columns: &[usize]| columns.iter().filter_map(|at| ticks.get(*at)).sum();
    [sum(&[0, 1, 2, 5, 6]), sum(&[7])]
}

/// How much others used the CPUs of a test while the test ran, as an average number of CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Disturbance {
    /// Number of CPUs that the test had.
    pub(crate) cpus: usize,
    /// CPUs that were used by all other processes, including other tests of this run.
    pub(crate) others: f64,
    /// CPUs that the host of this virtual machine took away.
    pub(crate) steal: f64,
    /// By how much the number of runnable tasks exceeded the number of CPUs before the test started.
    pub(crate) queue: u64,
}

impl Disturbance {
    /// Computes the disturbance between two readings. `own_s` is the CPU time of the test, seconds. `cpu` is the test's only CPU,
    /// if the test has only one.
    pub(crate) fn between(before: &Reading, after: &Reading, cpu: Option<u32>, own_s: f64) -> Self {
        let cpus = if cpu.is_some() { 1 } else { before.online() };
        let ([busy, steal], [busy_after, steal_after]) = (before.ticks(cpu), after.ticks(cpu));
        // The kernel counts whole ticks, so the result may be too large by one tick for each CPU.
        let busy_s = busy_after.saturating_sub(busy + cpus as u64) as f64 / TICKS_A_SECOND;
        let steal_s = steal_after.saturating_sub(steal) as f64 / TICKS_A_SECOND;
        let elapsed = (after.at - before.at).as_secs_f64().max(f64::EPSILON);
        let others = (busy_s - own_s).max(0.0) / elapsed;
        Self { cpus, others, steal: steal_s / elapsed, queue: 0 }
    }

    /// Returns why other programs may be the reason for a failure; `None` if they are not.
    pub(crate) fn blame(&self) -> Option<String> {
        let Self { cpus, others, steal, queue } = self;
        let mut why = Vec::new();
        // On a single CPU, two loops that wait for each other miss a bound of 95 % if other programs use 7 % of the CPU.
        let least = if *cpus == 1 { 0.0 } else { CPUS };
        if others + steal > least.max(*cpus as f64 * PERCENT / 100.0) {
            let users = [(others, "other programs and tests"), (steal, "the host of this machine")];
            let users = users.iter().filter(|(cpus, _)| **cpus >= LEAST);
            why.extend(users.map(|(cpus, who)| format!("{who} used {cpus:.2} CPUs")));
        }
        if *queue > 0 {
            why.push(format!("{queue} tasks waited for a CPU before the test started"));
        }
        (!why.is_empty()).then(|| why.join(", "))
    }
}

/// Waits until the machine is quiet, but no longer than `patience`. Returns whether it is quiet, and how long the wait took.
pub(crate) fn becomes_quiet(patience: Duration) -> (bool, Duration) {
    let begun = Instant::now();
    loop {
        let before = Reading::take();
        thread::sleep(LOOK);
        let is_quiet = Disturbance::between(&before, &Reading::take(), None, 0.0).blame().is_none();
        if is_quiet || begun.elapsed() >= patience {
            return (is_quiet, begun.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::{Disturbance, Reading, becomes_quiet, ticks};

    fn reading(at: Instant, cpu0: u64, cpu1: u64, running: u64) -> Reading {
        let all = cpu0 + cpu1;
        let stat = format!(
            "cpu  {all} 0 0 9 9 0 0 40\ncpu0 {cpu0} 0 0 9 9 0 0 40\ncpu1 {cpu1} 0 0 9 9\nintr 5\nprocs_running {running}\n"
        );
        Reading { at, stat }
    }

    #[test]
    fn idle_time_and_guests_are_not_busy() {
        assert_eq!(ticks("cpu  1 2 4 1000 2000 8 16 32 64 128"), [1 + 2 + 4 + 8 + 16, 32]);
    }

    #[test]
    fn cpu_time_that_is_not_the_tests_is_that_of_others() {
        let begun = Instant::now();
        let (before, after) =
            (reading(begun, 0, 0, 1), reading(begun + Duration::from_secs(10), 1_000, 802, 1));
        let all = Disturbance::between(&before, &after, None, 12.0);
        assert_eq!(all, Disturbance { cpus: 2, others: 0.6, ..Disturbance::default() });
        assert_eq!(all.blame().as_deref(), Some("other programs and tests used 0.60 CPUs"));
        // If a test has only one CPU, only that CPU matters.
        let one = Disturbance::between(&before, &after, Some(1), 7.0);
        assert_eq!((one.cpus, (one.others * 100.0).round()), (1, 10.0));
        assert_eq!(one.blame().as_deref(), Some("other programs and tests used 0.10 CPUs"));
        assert_eq!(Disturbance::between(&before, &after, None, 30.0).others, 0.0);
    }

    #[test]
    fn the_limits_are_part_of_a_cpu_or_of_a_large_machine() {
        let others = |cpus, others| Disturbance { cpus, others, ..Disturbance::default() }.blame();
        assert!(others(1, 0.05).is_none() && others(1, 0.06).is_some());
        assert!(others(2, 0.3).is_none() && others(2, 0.31).is_some());
        assert!(others(64, 3.2).is_none() && others(64, 3.3).is_some());
        let steal = Disturbance { others: 0.2, steal: 0.2, ..Disturbance::default() };
        assert_eq!(
            steal.blame().as_deref(),
            Some("other programs and tests used 0.20 CPUs, the host of this machine used 0.20 CPUs")
        );
    }

    #[test]
    fn a_run_queue_before_the_test_may_be_blamed() {
        let now = Instant::now();
        assert_eq!([1, 3, 5].map(|running| reading(now, 0, 0, running).queue()), [0, 0, 2]);
        let blame = Disturbance { queue: 2, ..Disturbance::default() }.blame();
        assert_eq!(blame.as_deref(), Some("2 tasks waited for a CPU before the test started"));
    }

    #[test]
    fn a_busy_machine_is_not_taken_for_a_quiet_one() {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..cpus {
                scope.spawn(|| {
                    while !is_over.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            }
            assert!(!becomes_quiet(Duration::ZERO).0);
            is_over.store(true, Ordering::Relaxed);
        });
    }
}
