//! The rows of the tables, and their figures.

use std::cmp::Reverse;

use cgscope_model::{
    Cause, Counter, CpuTimes, ExitedThreads, Group, Interval, Mode, Observed, TaskInterval, TaskReading,
    Tree, Wait,
    class::{Class, Classes, Classified},
    counters::COUNTERS,
    sum,
    table::exited::ENDED,
    table::interval::Process,
    tree::Node,
};

use crate::{
    causes::UNNAMED,
    data::Data,
    stat::{Asked, Rows},
};

/// A row of a table.
#[derive(Debug)]
pub struct Row<'a> {
    /// The figures of the row.
    pub figures: Figures,
    /// The interval of the figures.
    pub interval: &'a Interval,
    /// Whether the row covers all intervals. The last CPU and node are then meaningless.
    pub is_average: bool,
    /// The task that provides names, ids and CPU: a thread, or the thread that a process is named after.
    pub task: Option<&'a TaskReading>,
    /// The process, if the row is about one.
    pub process: Option<&'a Process>,
    /// Process id, if it is printed.
    pub tgid: Option<u32>,
    /// Thread id, if it is printed.
    pub tid: Option<u32>,
    /// The cgroup, if the row is about one.
    pub node: Option<(&'a Tree, &'a Node)>,
    /// Number of threads in a cgroup.
    pub threads: Option<u64>,
    /// Name of a task, or path of a cgroup.
    pub name: String,
}

impl Row<'_> {
    /// Returns the path of the task's cgroup.
    pub fn cgroup(&self) -> Option<&str> {
        self.interval.cgroup_path(self.task?.cgroup_id).map(|path| &**path)
    }

    fn new(data: &Data, figures: Figures) -> Row<'_> {
        Row {
            figures,
            interval: &data.interval,
            is_average: false,
            task: None,
            process: None,
            tgid: None,
            tid: None,
            node: None,
            threads: None,
            name: String::new(),
        }
    }
}

/// Returns the rows to print, sorted by id or by path.
pub fn all<'a>(data: &'a Data, asked: &Asked) -> Vec<Row<'a>> {
    let mut rows = match asked.rows {
        Rows::Cgroups => cgroups(data),
        Rows::Processes => data.processes().iter().map(|process| of_process(data, process)).collect(),
        Rows::Threads => threads(data),
        Rows::ThreadsOfProcesses => threads_of_processes(data),
    };
    rows.retain(|row| asked.all || row.figures.is_active());
    if asked.rows != Rows::Cgroups {
        rows.extend(ended(data, asked.rows));
    }
    rows
}

fn of_process<'a>(data: &'a Data, process: &'a Process) -> Row<'a> {
    let task = data.interval.reading(process.named_by);
    let row = Row::new(data, Figures::of_process(&process.group, data.interval.mode));
    let (tgid, process) = (Some(process.pid), Some(process));
    Row { task: Some(task), process, tgid, name: task.comm.to_string(), ..row }
}

fn of_thread<'a>(data: &'a Data, task: &'a TaskInterval) -> Row<'a> {
    let reading = &task.reading;
    let row = Row::new(data, Figures::of_task(task, data.interval.mode));
    let (tgid, tid) = (Some(reading.tgid), Some(reading.tid));
    Row { task: Some(reading), tgid, tid, name: reading.comm.to_string(), ..row }
}

fn threads(data: &Data) -> Vec<Row<'_>> {
    let tasks = data.interval.places().filter_map(|place| data.task_at(place));
    let mut rows: Vec<Row<'_>> = tasks.map(|task| of_thread(data, task)).collect();
    rows.sort_by_key(|row| row.tid);
    rows
}

/// Returns each process, followed by its threads, as in pidstat.
fn threads_of_processes(data: &Data) -> Vec<Row<'_>> {
    let mut rows = Vec::new();
    for process in data.processes() {
        rows.push(of_process(data, process));
        let mut threads: Vec<&TaskInterval> =
            process.threads.iter().filter_map(|place| data.task_at(*place)).collect();
        threads.sort_by_key(|task| task.reading.tid);
        rows.extend(threads.into_iter().map(|task| {
            let thread = of_thread(data, task);
            Row { tgid: None, name: format!("|__{}", thread.name), ..thread }
        }));
    }
    rows
}

fn cgroups(data: &Data) -> Vec<Row<'_>> {
    let mode = data.interval.mode;
    let of_group = |group: &Group| {
        let row = Row::new(data, Figures::of_group(group, mode));
        Row { threads: Some(group.threads), ..row }
    };
    let unknown = data.tree.unknown.iter().map(|group| Row { name: UNNAMED.into(), ..of_group(group) });
    let known = data.tree.nodes().iter().map(|node| {
        let row = of_group(&node.group);
        Row { node: Some((&data.tree, node)), name: data.interval.names.of(&node.path).into(), ..row }
    });
    known.chain(unknown).collect()
}

/// Returns one row for all exited tasks, so that nothing is missing. It leaves out figures that the rows of processes have.
fn ended(data: &Data, rows: Rows) -> Option<Row<'_>> {
    let interval = &*data.interval;
    let mut figures = Figures::of_group(&interval.ended(), interval.mode);
    if rows != Rows::Threads
        && let Some(accounts) = &data.total.accounts
    {
        figures.subtract(accounts.exited_threads);
    }
    figures.is_active().then(|| Row { name: ENDED.into(), ..Row::new(data, figures) })
}

/// Maximum number of targets with a line. Targets that ran and waited most come first.
const NAMED: usize = 10;
/// Maximum number of targets to classify. Other targets ran and waited less, so they have little to gain.
const LOOKED_AT: usize = 200;

/// Returns a line for each target that did more than wait for work. Targets that ran and waited most come first.
pub fn lines(data: &Data, asked: &Asked<'_>, classes: &Classes<'_>) -> Vec<String> {
    let all = all(data, asked);
    let mut targets: Vec<&Row<'_>> =
        all.iter().filter(|row| row.tgid.or(row.tid).is_some() || row.node.is_some()).collect();
    targets.sort_by_key(|row| Reverse(row.figures.busy_ns()));
    let is_one = targets.len() == 1;
    let reported = targets
        .into_iter()
        .take(LOOKED_AT)
        .filter_map(|row| Some((row, verdict(row, data, asked.rows, classes)?)))
        .filter(|(_, verdict)| is_one || verdict.classes != [Class::Idle]);
    reported.take(NAMED).map(|(row, verdict)| format!("{}: {}", name(row), verdict.says)).collect()
}

fn verdict(row: &Row<'_>, data: &Data, rows: Rows, classes: &Classes<'_>) -> Option<Classified> {
    match rows {
        Rows::Cgroups => {
            let (_, node) = row.node?;
            let nodes = data.tree.nodes();
            Some(classes.cgroup(nodes.iter().position(|other| std::ptr::eq(other, node))?))
        }
        // Do not look up by pid or tid: within an average, several processes or threads can have had the same id.
        Rows::Processes | Rows::Threads | Rows::ThreadsOfProcesses => match row.process {
            Some(process) => {
                let threads = process.threads.iter().filter_map(|place| data.task_at(*place));
                Some(classes.threads(&threads.collect::<Vec<_>>()))
            }
            None => Some(classes.thread(data.task(row.task?.serial)?)),
        },
    }
}

fn name(row: &Row<'_>) -> String {
    match (row.tid, row.tgid) {
        (Some(tid), _) => format!("thread {tid} {}", row.name.trim_start_matches("|__")),
        (None, Some(tgid)) => format!("process {tgid} {}", row.name),
        (None, None) => row.name.clone(),
    }
}

/// Hundredths of a percent. As in pidstat, percentages are printed with two decimal places.
pub type Hundredths = u64;

/// The figures of a row in an interval. `None` marks a figure that was not read.
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
    counters: [Option<u64>; COUNTERS],
    /// 99th percentile of the waits, ns.
    pub p99_ns: Option<u64>,
    /// Whether a task of this row waits at the end of the interval.
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
    /// Splits waits by their causes.
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
        most.sort_by_key(|at| std::cmp::Reverse(exact[*at].1));
        for at in most.into_iter().take(left as usize) {
            parts[at] += 1;
        }
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
    /// Returns the figures of a thread.
    pub fn of_task(task: &TaskInterval, mode: Mode) -> Self {
        let figures = Self::new(task.all_waits(), &Observed::task(task, mode));
        Self { is_waiting: task.reading.pending.is_some(), ..figures }
    }

    /// Returns the figures of a process. They include exited threads without their waits, which are known only per cgroup.
    pub fn of_process(group: &Group, mode: Mode) -> Self {
        let mut figures = Self::of_group(group, mode);
        let exited = group.accounts.map(|accounts| accounts.exited_threads).unwrap_or_default();
        figures.change(exited, u64::saturating_add);
        figures
    }

    /// Returns the figures of a cgroup, or of exited tasks.
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

    /// Returns the value of a counter that has a column.
    pub fn counter(&self, counter: Counter) -> Option<u64> {
        self.counters[counter as usize]
    }

    /// Returns the time that the row ran or waited for a CPU, ns.
    pub fn busy_ns(&self) -> u64 {
        self.on_cpu_ns.saturating_add(self.wait.total_ns)
    }

    /// Whether the row ran, waited or switched, or waits now.
    pub fn is_active(&self) -> bool {
        let counters = self.counters.iter().flatten();
        counters.chain([&self.on_cpu_ns, &self.wait.total_ns]).any(|figure| *figure != 0) || self.is_waiting
    }

    /// Subtracts the figures of exited threads that the rows of processes already have.
    fn subtract(&mut self, exited: ExitedThreads) {
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
