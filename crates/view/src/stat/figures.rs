//! The figures of a row.

use cgscope_model::{
    Cause, Counter, CpuTimes, ExitedThreads, Group, Mode, Observed, TaskInterval, Wait, counters::COUNTERS,
};

/// Hundredths of a percent, because percentages are printed with two decimal places as in pidstat.
pub type Hundredths = u64;

/// What a row did in an interval. `None` marks a figure that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    /// Time in user space without time in guests, ns.
    pub user_ns: Option<u64>,
    /// Time in the kernel, ns.
    pub system_ns: Option<u64>,
    /// Time running a guest, ns.
    pub guest_ns: Option<u64>,
    /// Time on a CPU, as counted by the scheduler, ns.
    pub on_cpu_ns: u64,
    /// Completed waits.
    pub wait: Split,
    /// The counters that have a column.
    counters: [Option<u64>; COUNTERS],
    /// 99th percentile of the waits, ns.
    pub p99_ns: Option<u64>,
    /// Whether a task of this row waits at the end of the interval.
    pub is_waiting: bool,
}

/// Completed waits in three parts, ns: `throttled_ns + queue_ns + wake_ns = total_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// The whole time; the kernel adds it to `run_delay`.
    pub total_ns: u64,
    /// Time in which the cgroup or an ancestor was out of quota.
    pub throttled_ns: u64,
    /// Time in which other tasks ran: of the same cgroup, of other cgroups, or of the kernel. Includes unknown causes.
    pub queue_ns: u64,
    /// Time in which nobody ran: idle exit, rescheduling interrupt, switch. `None` in coarse mode, where `queue_ns` includes it.
    pub wake_ns: Option<u64>,
}

impl Split {
    /// Splits waits by their causes.
    pub fn new(wait: &Wait, mode: Mode) -> Self {
        let total_ns = wait.total_ns;
        let throttled_ns = wait.by_cause.get(Cause::Throttled).min(total_ns);
        let wake_ns = wait.by_cause.known(Cause::Wakeup, mode).map(|ns| ns.min(total_ns - throttled_ns));
        let queue_ns = total_ns - throttled_ns - wake_ns.unwrap_or(0);
        Self { total_ns, throttled_ns, queue_ns, wake_ns }
    }

    /// The total and its three parts, as shares of the time. The printed parts sum to the printed total: the remainder of
    /// rounding down goes to the parts that lost most. `None` if no time passed.
    pub fn percent(&self, duration_ns: u64) -> Option<[Hundredths; 4]> {
        let whole = percent(self.total_ns, duration_ns)?;
        let exact = [self.throttled_ns, self.queue_ns, self.wake_ns.unwrap_or(0)]
            .map(|ns| u128::from(ns) * 10_000)
            .map(|scaled| (scaled / u128::from(duration_ns), scaled % u128::from(duration_ns)));
        let mut parts = exact.map(|(down, _)| u64::try_from(down).unwrap_or(u64::MAX));
        let left = whole.saturating_sub(parts.iter().fold(0u64, |sum, part| sum.saturating_add(*part)));
        let mut most = [0, 1, 2];
        most.sort_by_key(|at| std::cmp::Reverse(exact[*at].1));
        for at in most.into_iter().take(left as usize) {
            parts[at] += 1;
        }
        let [throttled, queue, wake] = parts;
        Some([whole, throttled, queue, wake])
    }
}

/// A share of the time, rounded; `None` if no time passed. It exceeds 100 % if several threads ran.
pub fn percent(ns: u64, duration_ns: u64) -> Option<Hundredths> {
    let duration = u128::from(duration_ns);
    let rounded = (u128::from(ns) * 10_000 + duration / 2).checked_div(duration)?;
    Some(u64::try_from(rounded).unwrap_or(u64::MAX))
}

impl Figures {
    /// Figures of a thread.
    pub fn of_task(task: &TaskInterval, mode: Mode) -> Self {
        let figures = Self::new(task.all_waits(), &Observed::task(task, mode));
        Self { is_waiting: task.reading.pending.is_some(), ..figures }
    }

    /// Figures of a process: its threads, and its exited threads without their waits. Waits of exited threads are known only
    /// per cgroup.
    pub fn of_process(group: &Group, mode: Mode) -> Self {
        let mut figures = Self::of_group(group, mode);
        figures.add(group.accounts.map(|accounts| accounts.exited_threads).unwrap_or_default());
        figures
    }

    /// Figures of a cgroup, or of exited tasks.
    pub fn of_group(group: &Group, mode: Mode) -> Self {
        let figures = Self::new(&group.wait, &Observed::group(group, mode));
        Self { is_waiting: group.pending != 0, ..figures }
    }

    fn new(wait: &Wait, observed: &Observed<'_>) -> Self {
        let cpu = observed.accounts.map(|accounts| accounts.cpu);
        let mut counters = [None; COUNTERS];
        for (counter, _) in Counter::of_stat() {
            counters[counter as usize] = counter.of(observed);
        }
        let without_guest = |cpu: CpuTimes| cpu.user_ns.saturating_sub(cpu.guest_ns);
        Self {
            user_ns: cpu.map(without_guest),
            system_ns: cpu.map(|cpu| cpu.system_ns),
            guest_ns: cpu.map(|cpu| cpu.guest_ns),
            on_cpu_ns: Counter::OnCpu.of(observed).unwrap_or(0),
            wait: Split::new(wait, observed.mode),
            counters,
            p99_ns: wait.quantile_ns(0.99),
            is_waiting: false,
        }
    }

    /// The value of a counter that has a column.
    pub fn counter(&self, counter: Counter) -> Option<u64> {
        self.counters[counter as usize]
    }

    /// Time that the row ran or waited for a CPU, ns.
    pub fn busy_ns(&self) -> u64 {
        self.on_cpu_ns.saturating_add(self.wait.total_ns)
    }

    /// Whether the row ran, waited or switched, or waits now.
    pub fn is_active(&self) -> bool {
        let counters = self.counters.iter().flatten();
        counters.chain([&self.on_cpu_ns, &self.wait.total_ns]).any(|figure| *figure != 0) || self.is_waiting
    }

    fn add(&mut self, exited: ExitedThreads) {
        self.change(exited, u64::saturating_add);
    }

    /// Subtracts the figures of exited threads that are already counted with their process.
    pub(super) fn subtract(&mut self, exited: ExitedThreads) {
        self.change(exited, u64::saturating_sub);
        if let (Some(user), Some(system)) = (&mut self.user_ns, &mut self.system_ns) {
            let guest_ns = self.guest_ns.unwrap_or(0);
            let cpu = CpuTimes { user_ns: user.saturating_add(guest_ns), system_ns: *system, guest_ns }
                .scaled_to(self.on_cpu_ns);
            (*user, *system) = (cpu.user_ns - cpu.guest_ns, cpu.system_ns);
            self.guest_ns = Some(cpu.guest_ns);
        }
    }

    fn change(&mut self, exited: ExitedThreads, change: impl Fn(u64, u64) -> u64) {
        let user_ns = exited.user_ns.saturating_sub(exited.guest_ns);
        for (known, ns) in [
            (&mut self.user_ns, user_ns),
            (&mut self.system_ns, exited.system_ns),
            (&mut self.guest_ns, exited.guest_ns),
        ] {
            *known = known.map(|known| change(known, ns));
        }
        self.on_cpu_ns = change(self.on_cpu_ns, exited.on_cpu_ns);
        for (counter, known) in Counter::ALL.into_iter().zip(&mut self.counters) {
            if let (Some(known), Some(of_exited)) = (known, counter.info().exited_threads) {
                *known = change(*known, of_exited(&exited));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_model::ByCause;
    use proptest::prelude::*;

    #[test]
    fn the_remainder_goes_to_the_part_that_rounding_reduced_most() {
        let split = Split { total_ns: 200, throttled_ns: 66, queue_ns: 67, wake_ns: Some(67) };
        // 0.66, 0.67 and 0.67 hundredths of a percent. Together they are two hundredths.
        assert_eq!(split.percent(1_000_000), Some([2, 0, 1, 1]));
        assert_eq!(split.percent(0), None);
        let none = Split { wake_ns: None, total_ns: 500, queue_ns: 500, throttled_ns: 0 };
        assert_eq!(none.percent(1_000), Some([5_000, 0, 5_000, 0]));
    }

    #[test]
    fn the_coarse_mode_counts_wakeups_in_the_queue() {
        let mut by_cause = ByCause::only(Cause::Throttled, 30);
        by_cause.add(&ByCause::only(Cause::Unattributed, 70));
        let wait = Wait { total_ns: 100, by_cause, ..Wait::default() };
        let split = Split::new(&wait, Mode::Coarse);
        assert_eq!((split.throttled_ns, split.queue_ns, split.wake_ns), (30, 70, None));
        assert_eq!(Split::new(&wait, Mode::Bpf).wake_ns, Some(0));
    }

    proptest! {
        #[test]
        fn printed_parts_sum_to_the_printed_whole(
            parts in [0u64..1 << 44, 0u64..1 << 44, 0u64..1 << 44], duration_ns in 1u64..1 << 44
        ) {
            let [throttled_ns, queue_ns, wake] = parts;
            let total_ns = throttled_ns + queue_ns + wake;
            let split = Split { total_ns, throttled_ns, queue_ns, wake_ns: Some(wake) };
            let [whole, printed @ ..] = split.percent(duration_ns).unwrap();
            prop_assert_eq!(whole, percent(total_ns, duration_ns).unwrap());
            prop_assert_eq!(printed.iter().sum::<u64>(), whole);
            for (printed, ns) in printed.into_iter().zip(parts) {
                let exact = ns as f64 * 1e4 / duration_ns as f64;
                prop_assert!((printed as f64 - exact).abs() <= 1.0, "{} for {}", printed, exact);
                prop_assert!(ns != 0 || printed == 0, "nothing is not rounded up");
            }
        }
    }
}
