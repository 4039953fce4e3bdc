//! Waiting by stack: the cgroups from the root down, the process, the thread, and the cause.
//!
//! One sum over all Intervals: it grows with the number of tasks, not with time.

mod waits;

use std::{collections::BTreeMap, sync::Arc};

use cgscope_model::{
    Interval, TaskInterval, cgroup_name::UNNAMED, interval::ENDED, selection::path_and_ancestors,
};

pub(crate) use waits::Waits;

/// The sums.
#[derive(Default)]
pub(crate) struct Stacks(BTreeMap<Place, Waits>);

/// Who waited. A task that changes its name or its cgroup is somebody else from then on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    path: Option<Arc<str>>,
    pub(crate) task: Option<Task>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Task {
    pub(crate) tgid: u32,
    process: Arc<str>,
    serial: u64,
    pub(crate) tid: u32,
    pub(crate) comm: Arc<str>,
}

impl Stacks {
    /// Adds what waited in an interval.
    pub(crate) fn add(&mut self, interval: &Interval) {
        let processes: BTreeMap<u32, Arc<str>> =
            interval.naming_tasks().into_iter().map(|(pid, task)| (pid, task.comm.clone())).collect();
        for task in interval.tasks.iter().filter(|task| task.wait.count != 0 || task.wait.total_ns != 0) {
            let path = interval.cgroup_path(task.reading.cgroup_id).cloned();
            let place = Place { path, task: Some(task_of(task, &processes)) };
            self.0.entry(place).or_default().add(&task.wait);
        }
        for exited in &interval.exited {
            let place = Place { path: interval.cgroup_path(exited.cgroup_id).cloned(), task: None };
            self.0.entry(place).or_default().add(&exited.wait);
        }
    }

    /// Each who waited, with the frames of the stack from the root down and the waits.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Place, Vec<String>, &Waits)> {
        self.0.iter().map(|(place, waits)| (place, frames_of_place(place), waits))
    }
}

fn task_of(task: &TaskInterval, processes: &BTreeMap<u32, Arc<str>>) -> Task {
    let reading = &task.reading;
    Task {
        tgid: reading.tgid,
        process: processes.get(&reading.tgid).unwrap_or(&reading.comm).clone(),
        serial: reading.serial,
        tid: reading.tid,
        comm: reading.comm.clone(),
    }
}

/// The cgroups from the root down, with their whole paths: their last parts alone are often the same.
pub(crate) fn frames_of_path(path: Option<&str>) -> Vec<String> {
    let Some(path) = path else { return vec![UNNAMED.to_owned()] };
    let mut frames: Vec<String> = path_and_ancestors(path).map(str::to_owned).collect();
    frames.reverse();
    frames
}

fn frames_of_place(place: &Place) -> Vec<String> {
    let mut frames = frames_of_path(place.path.as_deref());
    match &place.task {
        Some(Task { tgid, process, tid, comm, .. }) => {
            frames.push(format!("{process} [{tgid}]"));
            frames.push(format!("{comm} [{tgid}/{tid}]"));
        }
        None => frames.push(ENDED.to_owned()),
    }
    frames
}
