//! The rows of the tables, and their figures.

use std::cmp::Reverse;

use cgscope_model::class::{Class, Classes, Classified};
use cgscope_model::table::{exited::ENDED, interval::Process};
use cgscope_model::{
    Cause, Counter, CpuTimes, ExitedThreads, Interval, Mode, Names, TaskReading, Wait, counters::COUNTERS,
    sum,
};
use itertools::Itertools;

use crate::{
    data::Data,
    stat::{Asked, Rows},
    subject::Subject,
};

#[derive(Debug)]
pub struct Row<'a> {
    pub figures: Figures,
    pub data: &'a Data,
    /// The subject; `None` for all exited tasks.
    pub subject: Option<Subject<'a>>,
    /// Whether the row is a thread below the row of its process.
    pub is_below: bool,
    /// Whether the row covers all intervals. The last CPU and node are then meaningless.
    pub is_average: bool,
}

impl<'a> Row<'a> {
    /// Returns the task that provides names, ids and CPU: a thread, or the thread that a process is named after.
    pub fn task(&self) -> Option<&'a TaskReading> {
        Some(&self.subject?.task()?.reading)
    }

    pub fn name(&self) -> String {
        let mark = if self.is_below { "|__" } else { "" };
        match (self.task(), self.subject) {
            (Some(task), _) => format!("{mark}{}", task.comm),
            (None, Some(subject)) => subject.title(&self.data.interval.names),
            (None, None) => ENDED.into(),
        }
    }
}

/// Returns the rows to print, sorted by id or by path.
pub fn all<'a>(data: &'a Data, asked: &Asked) -> Vec<Row<'a>> {
    let processes = || data.processes().iter();
    let subjects: Vec<Subject<'_>> = match asked.rows {
        Rows::Cgroups => {
            let unknown = data.tree.unknown.as_ref().map(Subject::Unknown);
            data.tree.nodes().iter().map(Subject::Cgroup).chain(unknown).collect()
        }
        Rows::Processes => processes().filter_map(|process| data.of_process(process)).collect(),
        Rows::Threads => threads(data, data.interval.places()),
        Rows::ThreadsOfProcesses => {
            let threads = |process: &'a Process| threads(data, process.threads.iter().copied());
            processes()
                .flat_map(|process| data.of_process(process).into_iter().chain(threads(process)))
                .collect()
        }
    };
    let rows = subjects.into_iter().map(|subject| {
        let is_below = asked.rows == Rows::ThreadsOfProcesses && matches!(subject, Subject::Task(_));
        let figures = Figures::new(&subject, &data.interval);
        Row { figures, data, subject: Some(subject), is_below, is_average: false }
    });
    let active = rows.filter(|row| asked.all || row.figures.is_active());
    let ended = if asked.rows == Rows::Cgroups { None } else { ended(data, asked.rows) };
    active.chain(ended).collect()
}

fn threads(data: &Data, places: impl Iterator<Item = usize>) -> Vec<Subject<'_>> {
    let tasks = places.filter_map(|place| data.task_at(place)).sorted_by_key(|task| task.reading.tid);
    tasks.map(Subject::Task).collect()
}

/// Returns one row for all exited tasks, so that nothing is missing. It leaves out figures that the rows of processes have.
fn ended(data: &Data, rows: Rows) -> Option<Row<'_>> {
    let mut figures = Figures::new(&Subject::All(&data.interval.ended()), &data.interval);
    if rows != Rows::Threads
        && let Some(accounts) = &data.total.accounts
    {
        figures.subtract(accounts.exited_threads);
    }
    figures.is_active().then_some(Row { figures, data, subject: None, is_below: false, is_average: false })
}

/// Maximum number of targets with a line. Targets that ran and waited most come first.
const NAMED: usize = 10;
/// Maximum number of targets to classify. Other targets ran and waited less, so they have little to gain.
const LOOKED_AT: usize = 200;

/// Returns a line for each target that did more than wait for work. Targets that ran and waited most come first.
pub fn lines(data: &Data, asked: &Asked<'_>, classes: &Classes<'_>) -> Vec<String> {
    let active = all(data, asked);
    // A stopped process is not active, but its line says why.
    let rows = if active.is_empty() { all(data, &Asked { all: true, ..*asked }) } else { active };
    let known = rows.into_iter().filter_map(|row| Some((row.figures.busy_ns(), row.subject?)));
    let known = known.filter(|(_, subject)| !matches!(subject, Subject::Unknown(_)));
    let targets = known.sorted_by_key(|(busy_ns, _)| Reverse(*busy_ns));
    let is_one = targets.len() == 1;
    let reported = targets.take(LOOKED_AT).filter_map(|(_, subject)| {
        let verdict = verdict(subject, data, classes)?;
        let is_said = is_one || verdict.classes != [Class::Idle];
        is_said.then(|| format!("{}: {}", name(subject, &data.interval.names), verdict.says))
    });
    reported.take(NAMED).collect()
}

fn verdict(subject: Subject<'_>, data: &Data, classes: &Classes<'_>) -> Option<Classified> {
    Some(match subject {
        Subject::Cgroup(node) => classes.cgroup(data.tree.find(&node.path)?),
        // Do not look up by pid or tid: within an average, several processes or threads can have had the same id.
        Subject::Process(process, _) => {
            let threads = process.threads.iter().filter_map(|place| data.task_at(*place));
            classes.threads(&threads.collect::<Vec<_>>())
        }
        Subject::Task(task) => classes.threads(&[task]),
        Subject::All(_) | Subject::Unknown(_) => return None,
    })
}

fn name(subject: Subject<'_>, names: &Names) -> String {
    match subject {
        Subject::Task(task) => format!("thread {} {}", task.reading.tid, task.reading.comm),
        Subject::Process(process, task) => format!("process {} {}", process.pid, task.reading.comm),
        subject => subject.title(names),
    }
}

/// Hundredths of a percent. As in pidstat, percentages are printed with two decimal places.
pub type Hundredths = u64;

/// The figures of a row in an interval. `None` marks a figure that was not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Figures {
    pub wait: Split,
    counters: [Option<u64>; COUNTERS],
    pub p99_ns: Option<u64>,
    pub is_waiting: bool,
}

/// Completed waits in three parts, ns: `throttled_ns + queue_ns + wake_ns = total_ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// Length of the waits. The kernel adds this time to `run_delay`.
    pub total_ns: u64,
    /// Time in which the cgroup or an ancestor was out of quota.
    pub throttled_ns: u64,
    /// Time in which other tasks ran: tasks of the same cgroup, of other cgroups, or of the kernel. Includes unknown causes.
    pub queue_ns: u64,
    /// Time in which no task ran: idle exit, rescheduling interrupt, switch. `None` in coarse mode, because `queue_ns` has it.
    pub wake_ns: Option<u64>,
}

impl Split {
    pub fn new(wait: &Wait, mode: Mode) -> Self {
        let total_ns = wait.total_ns;
        let throttled_ns = wait.by_cause.get(Cause::Throttled).min(total_ns);
        let wake_ns = wait.by_cause.known(Cause::Wakeup, mode).map(|ns| ns.min(total_ns - throttled_ns));
        let queue_ns = total_ns - throttled_ns - wake_ns.unwrap_or(0);
        Self { total_ns, throttled_ns, queue_ns, wake_ns }
    }

    /// Returns the total and its three parts, as shares of the time. `None` if no time passed. The printed parts sum to the
    /// printed total: rounding down leaves a remainder, which goes to the parts that lost most.
    pub fn percent(&self, duration_ns: u64) -> Option<[Hundredths; 4]> {
        let whole = percent(self.total_ns, duration_ns)?;
        let exact = [self.throttled_ns, self.queue_ns, self.wake_ns.unwrap_or(0)]
            .map(|ns| u128::from(ns) * 10_000)
            .map(|scaled| (scaled / u128::from(duration_ns), scaled % u128::from(duration_ns)));
        let mut parts = exact.map(|(down, _)| u64::try_from(down).unwrap_or(u64::MAX));
        let left = whole.saturating_sub(sum::total(parts));
        let mut most = [0, 1, 2];
        most.sort_by_key(|at| Reverse(exact[*at].1));
        most.into_iter().take(left as usize).for_each(|at| parts[at] += 1);
        let [throttled, queue, wake] = parts;
        Some([whole, throttled, queue, wake])
    }
}

/// Returns a share of the time, rounded; `None` if no time passed. The share exceeds 100 % if several threads ran.
pub fn percent(ns: u64, duration_ns: u64) -> Option<Hundredths> {
    let duration = u128::from(duration_ns);
    let rounded = (u128::from(ns) * 10_000 + duration / 2).checked_div(duration)?;
    Some(u64::try_from(rounded).unwrap_or(u64::MAX))
}

impl Figures {
    /// Returns the figures of a subject. Those of a process include exited threads without their waits, which are known only per
    /// cgroup.
    pub fn new(subject: &Subject<'_>, interval: &Interval) -> Self {
        let (wait, observed) = (subject.wait(), subject.observed(interval));
        let mut figures = Self {
            wait: Split::new(wait, interval.mode),
            counters: Counter::ALL.map(|counter| counter.of(&observed)),
            p99_ns: wait.quantile_ns(0.99),
            is_waiting: subject.pending_ns().is_some(),
        };
        if let (Subject::Process(..), Some(accounts)) = (subject, observed.accounts) {
            figures.change(accounts.exited_threads, u64::saturating_add);
        }
        figures
    }

    pub fn counter(&self, counter: Counter) -> Option<u64> {
        self.counters[counter as usize]
    }

    /// Returns the time in user space without time in guests, ns.
    pub fn user_ns(&self) -> Option<u64> {
        Some(self.counter(Counter::User)?.saturating_sub(self.counter(Counter::Guest)?))
    }

    /// Returns the time on a CPU, as counted by the scheduler, ns.
    pub fn on_cpu_ns(&self) -> u64 {
        self.counter(Counter::OnCpu).unwrap_or(0)
    }

    /// Returns the time that the row ran or waited for a CPU, ns.
    pub fn busy_ns(&self) -> u64 {
        self.on_cpu_ns().saturating_add(self.wait.total_ns)
    }

    /// Whether the row ran, waited or switched, or waits now.
    pub fn is_active(&self) -> bool {
        let mut counters = Counter::of_stat().filter_map(|(counter, _)| self.counter(counter));
        self.busy_ns() != 0 || self.is_waiting || counters.any(|count| count != 0)
    }

    /// Subtracts the figures of exited threads that the rows of processes already have.
    fn subtract(&mut self, exited: ExitedThreads) {
        self.change(exited, u64::saturating_sub);
        let modes = [Counter::User, Counter::System, Counter::Guest];
        if let [Some(user_ns), Some(system_ns), Some(guest_ns)] = modes.map(|mode| self.counter(mode)) {
            let cpu = CpuTimes { user_ns, system_ns, guest_ns }.scaled_to(self.on_cpu_ns());
            for (mode, ns) in modes.into_iter().zip([cpu.user_ns, cpu.system_ns, cpu.guest_ns]) {
                self.counters[mode as usize] = Some(ns);
            }
        }
    }

    fn change(&mut self, exited: ExitedThreads, change: impl Fn(u64, u64) -> u64) {
        for (counter, known) in Counter::ALL.into_iter().zip(&mut self.counters) {
            if let (Some(known), Some(of_exited)) = (known, counter.info().exited_threads) {
                *known = change(*known, of_exited(&exited));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use cgscope_model::ByCause;
    use proptest::prelude::*;

    use super::*;

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
