//! Threads by name and state, in the style of psn. psn samples the states. Here, the time on CPU and the waits are measured.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_model::{CAUSES, Interval, TaskInterval, TaskState, sum};

use crate::causes;

/// Explains the States view in the help.
pub const MEANING: &str = "threads on average: time that threads of this name spent in a state, divided by the length of the \
    interval. On CPU and runnable are measured; a wait counts in full in the interval in which it ends. The rest of the time, a \
    thread was blocked. Its state is read once, at the end of the interval, and counts for all of this time; if the thread runs \
    then, the state is unknown. Disk sleep (D) is listed with on CPU and runnable; sleeping (S, I, P), stopped (T, t) and exited \
    (Z, X) threads come last";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    OnCpu,
    /// Runnable but waiting. The number is the index of the cause in [`causes::ORDER`].
    Waits(u8),
    /// Not runnable. The state is read at the end of the interval. `None`: unknown, or the thread was not blocked at that moment.
    Blocked(Option<TaskState>),
}

impl State {
    pub fn words(self) -> String {
        match self {
            Self::OnCpu => "on CPU".into(),
            Self::Waits(at) => format!("runnable: {}", causes::shown(causes::ORDER[usize::from(at)]).words),
            Self::Blocked(Some(state)) => format!("blocked: {} ({})", state.name(), state.letter()),
            Self::Blocked(None) => "blocked".into(),
        }
    }

    /// Whether the load average counts the thread: it runs, could run, or is in disk sleep because of a disk or a lock.
    pub fn is_load(self) -> bool {
        !matches!(self, Self::Blocked(state) if state != Some(TaskState::DiskSleep))
    }
}

/// Threads with one name in one state.
#[derive(Clone, Debug, PartialEq)]
pub struct StateRow {
    pub name: Arc<str>,
    pub state: State,
    /// Average number of threads: time in this state / length of the interval.
    pub threads: f64,
    /// Number of different threads.
    pub of: u64,
}

/// Returns the threads of an interval by name and state. States that count as load come first, then states with more time. A wait
/// counts in full in the interval in which it ends. In the time in which a thread neither ran nor waited, it was blocked.
pub fn rows<'a>(interval: &Interval, tasks: impl Iterator<Item = &'a TaskInterval>) -> Vec<StateRow> {
    let length_ns = interval.duration_ns;
    let mut sums: BTreeMap<(Arc<str>, State), (u64, u64)> = BTreeMap::new();
    for task in tasks {
        let mut add = |state, ns: u64| {
            if ns != 0 {
                let sum = sums.entry((task.reading.comm.clone(), state)).or_default();
                *sum = (sum.0.saturating_add(ns), sum.1 + 1);
            }
        };
        let on_cpu_ns = task.all_totals().on_cpu_ns;
        add(State::OnCpu, on_cpu_ns);
        let mut waited_ns = task.all_waits().by_cause.0;
        if let Some(pending) = &task.reading.pending {
            // Count only the part of the wait within the interval.
            let within_ns = pending.by_cause.0.map(|ns| ns.min(length_ns));
            waited_ns.iter_mut().zip(within_ns).for_each(|(sum, ns)| sum::add(sum, ns));
        }
        let waits = causes::ORDER.map(|cause| waited_ns[cause as usize]);
        (0..).zip(waits).for_each(|(at, ns)| add(State::Waits(at), ns));
        let active_ns = on_cpu_ns.saturating_add(sum::total(waited_ns));
        let how = task.reading.state.filter(|state| *state != TaskState::Running);
        add(State::Blocked(how), length_ns.saturating_sub(active_ns));
    }
    let rows = sums.into_iter().map(|((name, state), (ns, of))| {
        let threads = ns as f64 / length_ns.max(1) as f64;
        StateRow { name, state, threads, of }
    });
    let mut rows: Vec<StateRow> = rows.collect();
    rows.sort_by(|a, b| {
        let order = b.state.is_load().cmp(&a.state.is_load()).then_with(|| b.threads.total_cmp(&a.threads));
        order.then_with(|| (&a.name, a.state).cmp(&(&b.name, b.state)))
    });
    rows
}

/// Average number of threads by state.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    pub on_cpu: f64,
    /// Waiting, by cause; same order as [`cgscope_model::ByCause`].
    pub waits: [f64; CAUSES],
    pub disk: f64,
    /// Blocked, but not in disk sleep.
    pub blocked: f64,
}

impl Sums {
    pub fn of<'a>(rows: impl Iterator<Item = &'a StateRow>) -> Self {
        let mut sums = Self::default();
        for row in rows {
            let sum = match row.state {
                State::OnCpu => &mut sums.on_cpu,
                State::Waits(at) => &mut sums.waits[causes::ORDER[usize::from(at)] as usize],
                State::Blocked(Some(TaskState::DiskSleep)) => &mut sums.disk,
                State::Blocked(_) => &mut sums.blocked,
            };
            *sum += row.threads;
        }
        sums
    }

    /// Returns the average number of waiting threads, for any cause.
    pub fn runnable(&self) -> f64 {
        self.waits.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use cgscope_made_up::small;
    use cgscope_model::{Cause, TaskReading};

    use super::*;

    /// Returns the rows of tasks. Each task ran or waited during the whole second, unless its state says otherwise.
    fn rows_of(tasks: Vec<TaskReading>) -> Vec<(String, String, u64, u64)> {
        let interval = small::interval(tasks);
        let rows = rows(&interval, interval.tasks.iter());
        let rows = rows.into_iter().map(|row| {
            (row.name.to_string(), row.state.words(), (row.threads * 1_000.0).round() as u64, row.of)
        });
        rows.collect()
    }

    fn idle(tid: u32, name: &str, state: Option<TaskState>) -> TaskReading {
        let task = small::task(tid, &[]);
        let totals = cgscope_model::Totals { on_cpu_ns: 250_000_000, ..task.totals };
        TaskReading { comm: name.into(), state, totals, ..task }
    }

    #[test]
    fn threads_with_one_name_form_a_row_and_sleeping_threads_come_last() {
        let rows = rows_of(vec![
            idle(10, "db", Some(TaskState::Sleeping)),
            idle(20, "db", Some(TaskState::Sleeping)),
            idle(30, "db", Some(TaskState::DiskSleep)),
            idle(40, "db", Some(TaskState::Running)),
        ]);
        let said: Vec<_> =
            rows.iter().map(|(_, state, threads, of)| (state.as_str(), *threads, *of)).collect();
        assert_eq!(
            said,
            [
                ("on CPU", 1_000, 4),
                ("blocked: disk sleep (D)", 750, 1),
                ("blocked: sleeping (S)", 1_500, 2),
                ("blocked", 750, 1),
            ],
            "the blocked state of a thread that ran at the end is unknown"
        );
    }

    #[test]
    fn the_states_of_threads_add_up_to_the_interval() {
        let interval = small::interval(vec![small::task(11, &[300_000_000]), idle(20, "idle", None)]);
        let rows = rows(&interval, interval.tasks.iter());
        let sums = Sums::of(rows.iter());
        let all = sums.on_cpu + sums.runnable() + sums.disk + sums.blocked;
        assert!((all - 2.0).abs() < 1e-9, "{sums:?}");
        assert!((sums.runnable() - 0.3).abs() < 1e-9);
        assert_eq!((sums.disk, sums.blocked), (0.0, 0.75));
    }

    #[test]
    fn an_unfinished_wait_counts_only_within_the_interval() {
        let pending = cgscope_model::Pending {
            ns: 9_000_000_000,
            booked_ns: 0,
            by_cause: cgscope_model::ByCause::only(Cause::Throttled, 9_000_000_000),
        };
        let task = TaskReading { pending: Some(pending.into()), ..idle(10, "stuck", None) };
        let rows = rows_of(vec![task]);
        assert!(rows.contains(&("stuck".into(), "runnable: throttled".into(), 1_000, 1)), "{rows:?}");
    }
}
