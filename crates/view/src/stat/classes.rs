//! Explains in a sentence what keeps each target from being faster.

use std::cmp::Reverse;

use cgscope_model::class::{Class, Classes, Classified};

use super::{
    Asked, Rows,
    rows::{self, Row},
};
use crate::data::Data;

/// Maximum number of targets that get a line. Targets that ran and waited most come first.
const NAMED: usize = 10;
/// Maximum number of targets to classify. Targets that ran and waited less have little to gain.
const LOOKED_AT: usize = 200;

/// A line for each target that did more than wait for work. Targets that ran and waited most come first.
pub fn lines(data: &Data, asked: &Asked<'_>, classes: &Classes<'_>) -> Vec<String> {
    let all = rows::all(data, asked);
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
        // Do not look up by pid or tid: within an average, several processes or threads may have had the same id.
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
