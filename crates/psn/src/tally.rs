//! Readings of threads, counted by group.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use cgscope_model::comm;

use crate::{GroupBy, ThreadState};

/// What one thread does at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ThreadReading {
    pub tid: u32,
    pub tgid: u32,
    /// NUL-padded.
    pub comm: [u8; 16],
    pub state: ThreadState,
    /// The CPU it is on, or was on last.
    pub cpu: Option<u32>,
    pub cgroup_id: Option<u64>,
    /// Real.
    pub uid: Option<u32>,
    /// The number of the system call that it is blocked in.
    pub syscall: Option<i32>,
    /// The reader's number for where it is in the kernel; 0: not known.
    pub place: u32,
}

/// Names for the numbers in readings. `None`: not known.
pub trait ThreadNames {
    /// The name of a reading's system call, place, cgroup, user or process, by column.
    fn name(&self, column: GroupBy, reading: &ThreadReading) -> Option<Arc<str>>;
    fn node(&self, cpu: u32) -> Option<u32>;
}

/// Counts readings in groups.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Each once.
    pub(crate) columns: Vec<GroupBy>,
    counts: HashMap<ThreadReading, u64>,
    threads: HashSet<u32>,
    processes: HashSet<u32>,
    pub(crate) rounds: u64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct GroupTable {
    pub columns: Vec<GroupBy>,
    /// Those with the most samples first.
    pub rows: Vec<GroupRow>,
    /// Times that all threads were read.
    pub rounds: u64,
    /// Different threads among the samples.
    pub threads: usize,
    /// Different processes among the samples.
    pub processes: usize,
}

/// Threads that are equal in all columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// Times that one of them was seen.
    pub samples: u64,
    /// By column; `None`: not known, or no such thing.
    pub cells: Vec<Option<GroupCell>>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupCell {
    Number(u64),
    State(ThreadState),
    Text(Arc<str>),
}

impl GroupTable {
    /// The average of a sum over all rounds.
    pub fn per_round(&self, sum: u64) -> f64 {
        if self.rounds == 0 { 0.0 } else { sum as f64 / self.rounds as f64 }
    }
}

impl Tally {
    /// Groups by these columns, each once.
    pub fn new(columns: &[GroupBy]) -> Self {
        let mut unique = Vec::new();
        for column in columns {
            if !unique.contains(column) {
                unique.push(*column);
            }
        }
        Self { columns: unique, ..Self::default() }
    }

    /// Counts a thread of the current round.
    pub(crate) fn add(&mut self, reading: &ThreadReading) {
        self.threads.insert(reading.tid);
        self.processes.insert(reading.tgid);
        *self.counts.entry(self.group(reading)).or_default() += 1;
    }

    pub(crate) fn end_round(&mut self) {
        self.rounds += 1;
    }

    /// The reading without columns that are not requested. The state stays: without it the place would mean nothing.
    fn group(&self, reading: &ThreadReading) -> ThreadReading {
        use GroupBy::*;
        let has = |columns: &[GroupBy]| columns.iter().any(|column| self.columns.contains(column));
        let at_place = has(&[Kstack]) || has(&[Wchan]) && reading.state.is_blocked();
        ThreadReading {
            tid: if has(&[Tid]) { reading.tid } else { 0 },
            tgid: if has(&[Tgid, Exe, Cmdline]) { reading.tgid } else { 0 },
            comm: if has(&[Comm]) { folded(reading.comm) } else { [0; 16] },
            state: reading.state,
            cpu: reading.cpu.filter(|_| has(&[Cpu, Node])),
            cgroup_id: reading.cgroup_id.filter(|_| has(&[Cgroup])),
            uid: reading.uid.filter(|_| has(&[Username])),
            syscall: reading.syscall.filter(|_| has(&[Syscall])),
            place: if at_place { reading.place } else { 0 },
        }
    }

    /// The counts so far. Groups with different numbers but the same names become one row.
    pub(crate) fn table(&self, names: &impl ThreadNames) -> GroupTable {
        let mut groups: BTreeMap<Vec<Option<GroupCell>>, u64> = BTreeMap::new();
        for (reading, samples) in &self.counts {
            let cells = self.columns.iter().map(|column| cell(*column, reading, names)).collect();
            *groups.entry(cells).or_default() += samples;
        }
        let mut rows: Vec<GroupRow> =
            groups.into_iter().map(|(cells, samples)| GroupRow { samples, cells }).collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.samples));
        GroupTable {
            columns: self.columns.clone(),
            rows,
            rounds: self.rounds,
            threads: self.threads.len(),
            processes: self.processes.len(),
        }
    }
}

fn cell(column: GroupBy, reading: &ThreadReading, names: &impl ThreadNames) -> Option<GroupCell> {
    let number = |number: u32| Some(GroupCell::Number(number.into()));
    match column {
        GroupBy::Comm => Some(GroupCell::Text(comm(&reading.comm))),
        GroupBy::Tgid => number(reading.tgid),
        GroupBy::Tid => number(reading.tid),
        GroupBy::State => Some(GroupCell::State(reading.state)),
        GroupBy::Node => number(names.node(reading.cpu?)?),
        GroupBy::Cpu => number(reading.cpu?),
        GroupBy::Wchan if !reading.state.is_blocked() => None,
        _ => names.name(column, reading).map(GroupCell::Text),
    }
}

/// A NUL-padded name with each run of digits as one `*`, as psn prints it, so that threads of a pool are one row.
fn folded(comm: [u8; 16]) -> [u8; 16] {
    let mut folded = [0; 16];
    let mut length = 0;
    let mut in_number = false;
    for byte in comm.into_iter().take_while(|byte| *byte != 0) {
        let is_digit = byte.is_ascii_digit();
        if !(is_digit && in_number) {
            folded[length] = if is_digit { b'*' } else { byte };
            length += 1;
        }
        in_number = is_digit;
    }
    folded
}

#[cfg(test)]
mod tests;
