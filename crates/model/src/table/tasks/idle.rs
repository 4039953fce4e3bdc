//! Tasks that were not active in an interval. Most tasks of a large host sleep, so their cost must be close to zero.

use std::{borrow::Cow, cmp::Ordering, sync::Arc};

use itertools::EitherOrBoth::{Both, Left, Right};
use itertools::Itertools;

use super::{Interval, TaskInterval, same_task, task_between};
use crate::TaskReading;

/// Returns the active tasks and the idle tasks of the later Sample, both ascending by serial.
pub(super) fn split<'a>(
    all: &'a [Arc<TaskReading>],
    now: impl IntoIterator<Item = &'a Arc<TaskReading>>,
    since_ns: u64,
    one_node: Option<u32>,
) -> (Vec<TaskInterval>, Vec<Arc<TaskReading>>) {
    let now = now.into_iter();
    let (mut tasks, mut idle) = (Vec::new(), Vec::with_capacity(now.size_hint().0));
    let mut earlier = same_task(all);
    for now in now {
        match earlier(now) {
            Some(before) if did_nothing(before, now) => idle.push(now.clone()),
            Some(before) => tasks.extend(task_between(Some(before), now, since_ns, one_node)),
            None => {
                let mut task = task_between(None, now, since_ns, one_node);
                if let Some(task) = &mut task {
                    let earlier = before_it_moved(all, now);
                    if earlier.is_some() || now.start_ns >= since_ns {
                        task.find_before_move(earlier);
                    }
                }
                tasks.extend(task);
            }
        }
    }
    (tasks, idle)
}

/// Returns the reading of the same task in its previous cgroup. Each move adds one to the serial.
pub(super) fn before_it_moved<'a>(all: &'a [Arc<TaskReading>], now: &TaskReading) -> Option<&'a TaskReading> {
    let at = all.partition_point(|task| task.serial < now.serial);
    all[..at].last().map(AsRef::as_ref).filter(|task| has_moved(task, now))
}

/// True if the later reading is of the same task after a move to another cgroup.
pub(super) fn has_moved(earlier: &TaskReading, later: &TaskReading) -> bool {
    later.moved_ns.is_some() && (earlier.tid, earlier.start_ns) == (later.tid, later.start_ns)
}

/// True if no figure increased, and the task neither runs nor waits. With accounts it is always active: its sleep time grows.
fn did_nothing(before: &Arc<TaskReading>, now: &Arc<TaskReading>) -> bool {
    let placed = |task: &TaskReading| {
        let placement = task.placement.as_deref()?;
        Some((placement.node_migrations, placement.ran_ns.clone()))
    };
    let has_same_figures = || {
        before.totals == now.totals
            && (Arc::ptr_eq(&before.hist, &now.hist) || before.hist == now.hist)
            && (before.placement == now.placement || placed(before) == placed(now))
    };
    let is_still = now.pending.is_none() && !now.on_cpu && now.accounts.is_none();
    is_still && (Arc::ptr_eq(before, now) || has_same_figures())
}

fn figures(idle: &TaskReading, one_node: Option<u32>) -> Option<TaskInterval> {
    task_between(Some(idle), idle, 0, one_node)
}

impl Interval {
    /// Returns the place of each task that existed at the end, ascending by serial. A place is the index in [`Self::tasks`], or
    /// for an idle task the length of [`Self::tasks`] plus the index in [`Self::idle`].
    pub fn places(&self) -> impl Iterator<Item = usize> {
        let tasks = (0..).zip(self.tasks.iter().map(|task| task.reading.serial));
        let idle = (self.tasks.len()..).zip(self.idle.iter().map(|idle| idle.serial));
        tasks.merge_by(idle, |(_, task), (_, idle)| task < idle).map(|(place, _)| place)
    }

    /// Returns the last reading of the task at a [place](Self::places).
    pub fn reading(&self, place: usize) -> &TaskReading {
        self.tasks.get(place).map_or_else(|| &*self.idle[place - self.tasks.len()], |task| &task.reading)
    }

    /// Returns the last readings of all tasks that existed at the end, ascending by serial.
    pub fn readings(&self) -> impl Iterator<Item = &TaskReading> {
        self.places().map(|place| self.reading(place))
    }

    /// Returns the [place](Self::places) of a task.
    pub fn place_of(&self, serial: u64) -> Option<usize> {
        let idle = || self.idle.binary_search_by_key(&serial, |idle| idle.serial);
        let task = self.tasks.binary_search_by_key(&serial, |task| task.reading.serial);
        task.or_else(|_| idle().map(|at| self.tasks.len() + at)).ok()
    }

    /// Returns the last readings in `before`, the earlier interval, of tasks that do not exist at the end of this interval.
    pub fn removed_since<'a>(&self, before: &'a Self) -> impl Iterator<Item = &'a TaskReading> {
        let mut still_idle = same_task(&self.idle);
        let idle = before.idle.iter().filter(move |task| still_idle(task).is_none()).map(AsRef::as_ref);
        let all = before.tasks.iter().map(|task| &task.reading).chain(idle);
        all.filter(|task| self.place_of(task.serial).is_none())
    }

    /// Returns the figures of the idle tasks, which are all zero. They are large, so use this only for displayed tasks.
    pub fn idle_figures(&self) -> impl Iterator<Item = TaskInterval> {
        self.idle.iter().filter_map(|idle| figures(idle, self.one_node))
    }

    /// Returns the same interval with all tasks in [`Self::tasks`] and none in [`Self::idle`].
    pub fn with_idle(&self) -> Cow<'_, Self> {
        if self.idle.is_empty() {
            return Cow::Borrowed(self);
        }
        let mut all = Self { idle: Vec::new(), ..self.clone() };
        all.tasks.extend(self.idle_figures());
        all.tasks.sort_by_key(|task| task.reading.serial);
        Cow::Owned(all)
    }

    /// Moves those idle tasks that are also in `busy` to [`Self::tasks`].
    pub(super) fn wake(&mut self, busy: &[TaskInterval]) {
        let place = |task: &TaskInterval| {
            self.idle.binary_search_by_key(&task.reading.serial, |idle| idle.serial).ok()
        };
        let places: Vec<usize> = busy.iter().filter_map(place).collect();
        if places.is_empty() {
            return;
        }
        let mut at = 0;
        let mut next = places.into_iter().peekable();
        let woken = self.idle.extract_if(.., |_| {
            at += 1;
            next.next_if_eq(&(at - 1)).is_some()
        });
        self.tasks.extend(woken.filter_map(|idle| figures(&idle, self.one_node)));
        self.tasks.sort_by_key(|task| task.reading.serial);
    }

    /// Appends the idle tasks of the next interval. Idle tasks in neither of its lists have exited, and have no state.
    pub(super) fn append_idle(&mut self, next: Vec<Arc<TaskReading>>) {
        let idle = std::mem::take(&mut self.idle).into_iter();
        // A reading that both lists share is found without access to its memory.
        let both = idle.merge_join_by(next, |old, new| {
            if Arc::ptr_eq(old, new) { Ordering::Equal } else { old.serial.cmp(&new.serial) }
        });
        let later = both.map(|task| match task {
            Left(mut old) => {
                if old.state.is_some() {
                    Arc::make_mut(&mut old).state = None;
                }
                old
            }
            Right(new) | Both(_, new) => new,
        });
        self.idle = later.collect();
    }
}
