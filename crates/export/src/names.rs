//! Names of processes.

use std::collections::BTreeMap;

use cgscope_model::{Interval, TaskReading};

/// The name of each process of the interval: its main thread's, or where that has gone that of another.
pub(crate) fn process_names(interval: &Interval) -> BTreeMap<u32, &str> {
    let mut names: BTreeMap<u32, &TaskReading> = BTreeMap::new();
    for task in interval.tasks.iter().map(|task| &task.reading) {
        let name = names.entry(task.tgid).or_insert(task);
        if task.tid == task.tgid {
            *name = task;
        }
    }
    names.into_iter().map(|(pid, task)| (pid, &*task.comm)).collect()
}
