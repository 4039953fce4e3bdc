//! Keeps the latest report of each followed task. The BPF side reports each change only once, so user space must keep the rest.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    mem,
    sync::Arc,
};

use cgscope_ledger::{
    Cause,
    wire::{self, AccountsRecord, FOLLOWED, ON_CPU, ON_RQ, TaskRecord},
};
use cgscope_model::{BeforeMove, TaskReading, Totals, comm, follower::Followed, sum};

use crate::{
    domain::{cpus::NodePlaces, culprits::Throttled},
    placement::Active,
    readings::{accounts, frames, of_wire, pending, state, waits_since_ns},
    stream::{Reported, TaskReported},
};

/// The tasks of the latest reading, ascending by serial. The kernel reports tasks in this order.
#[derive(Default)]
pub(crate) struct KnownTasks {
    tasks: Vec<KnownTask>,
    pub(crate) turn: u64,
    /// The tasks that the latest reading reported in full.
    pub(crate) active: Vec<Active>,
    pub(crate) throttled: Throttled,
    /// Number of tasks by cgroup.
    cgroups: HashMap<u64, usize>,
    /// The initial reading of a new task. All new tasks share its empty parts.
    empty: Arc<TaskReading>,
}

/// Input of a task reading in addition to the records.
pub(crate) struct Around<'a> {
    pub(crate) nodes: &'a BTreeMap<u32, u32>,
    pub(crate) places: &'a NodePlaces,
    /// Time of the reading, ns of CLOCK_MONOTONIC.
    pub(crate) read_ns: u64,
}

pub(crate) struct Reading<'a> {
    known: &'a mut KnownTasks,
    around: Around<'a>,
    /// Whether the reading visits all tasks. If it does, a known task without a record has exited.
    visits_all: bool,
    /// Index of the known task to which the next record probably belongs.
    next: usize,
    added: Vec<KnownTask>,
    /// Indices in `added`, by serial.
    added_at: HashMap<u64, usize>,
    /// Latest records of the waiting tasks, by serial. A task that is reported twice may have stopped waiting in its second
    /// record.
    waiting: HashMap<u64, TaskRecord>,
    /// CPUs of the tasks that run or wait, by serial. This excludes throttled tasks.
    active: HashMap<u64, u32>,
    /// From the records at the end of each list of changed tasks: the list from which there are more tasks, whether a list is
    /// incomplete, and the number of tasks that run or wait on each CPU.
    more_from: Option<u64>,
    is_incomplete: bool,
    running: HashMap<u64, u64>,
    /// The latest run queue clock, ns. The clock of an idle CPU stands still, so the latest clock is the best estimate of now.
    clock_ns: u64,
}

impl KnownTasks {
    pub(crate) fn begin<'a>(&'a mut self, around: Around<'a>) -> Reading<'a> {
        self.turn += 1;
        self.active.clear();
        self.throttled.0.clear();
        Reading {
            known: self,
            around,
            visits_all: false,
            next: 0,
            added: Vec::new(),
            added_at: HashMap::new(),
            waiting: HashMap::new(),
            active: HashMap::new(),
            more_from: None,
            is_incomplete: false,
            running: HashMap::new(),
            clock_ns: 0,
        }
    }

    pub(crate) fn waiting_cgroups(&self) -> HashSet<u64> {
        let waiting = self.tasks.iter().filter(|task| task.reading.pending.is_some());
        waiting.map(|task| task.reading.cgroup_id).collect()
    }

    pub(crate) fn contains(&self, serial: u64) -> bool {
        self.find(serial).is_ok()
    }

    fn find(&self, serial: u64) -> Result<usize, usize> {
        self.tasks.binary_search_by_key(&serial, |task| task.reading.serial)
    }

    pub(crate) fn readings(&self) -> Vec<Arc<TaskReading>> {
        self.tasks.iter().map(|task| task.reading.clone()).collect()
    }

    pub(crate) fn cgroups(&self) -> HashSet<u64> {
        self.cgroups.keys().copied().collect()
    }

    /// Replaces the readings at these indices.
    pub(crate) fn keep(&mut self, tasks: &[Arc<TaskReading>], places: &[usize]) {
        places.iter().for_each(|place| self.tasks[*place].reading = tasks[*place].clone());
    }

    pub(crate) fn followed(&self) -> impl Iterator<Item = Followed> + '_ {
        self.tasks.iter().map(|task| Followed { serial: task.reading.serial, followers: task.followers })
    }
}

impl Reading<'_> {
    /// Adds a record. Returns the task if the record reports it in full.
    pub(crate) fn take(&mut self, reported: &Reported<'_>) -> Option<&KnownTask> {
        match reported {
            Reported::Same(record) => {
                if let Some(at) = self.seek(record.serial) {
                    let task = &mut self.known.tasks[at];
                    task.is_reported = true;
                    task.followers = record.followed & FOLLOWED;
                }
                None
            }
            Reported::Task(task) => Some(self.take_task(task)),
            Reported::Exited(serial) => {
                if let Some(at) = self.seek(*serial) {
                    self.known.tasks[at].has_exited = true;
                } else if let Some(at) = self.added_at.get(serial) {
                    self.added[*at].has_exited = true;
                }
                self.active.remove(serial);
                None
            }
            Reported::List(list) => {
                self.more_from = self.more_from.or((list.has_more != 0).then_some(list.cpu));
                self.is_incomplete |= list.is_incomplete != 0;
                self.running.insert(list.cpu, list.running);
                None
            }
        }
    }

    pub(crate) fn visit_all(&mut self) {
        self.visits_all = true;
        self.next = 0;
    }

    /// Keeps the tasks without a record, because the reading was cut short. If they were dropped, their waits would begin at 0 again:
    /// the BPF side reports each wait only once.
    pub(crate) fn keep_others(&mut self) {
        self.visits_all = false;
    }

    /// Returns the list from which there are more entries, and forgets it.
    pub(crate) fn more_from(&mut self) -> Option<u64> {
        self.more_from.take()
    }

    /// Returns whether changed tasks may be missing from the lists: no list was reported, a list overflowed, or more tasks run or
    /// wait on a CPU than the lists reported. For example, a task that woke up and has not run yet is on no list.
    pub(crate) fn misses_tasks(&self) -> bool {
        let reported = sum::tally(self.active.values().map(|cpu| (u64::from(*cpu), 1)));
        let is_reported = |(cpu, running): (&u64, &u64)| reported.get(cpu).copied().unwrap_or(0) >= *running;
        self.running.is_empty() || self.is_incomplete || !self.running.iter().all(is_reported)
    }

    fn take_task(&mut self, reported: &TaskReported<'_>) -> &KnownTask {
        let record = reported.record;
        self.clock_ns = self.clock_ns.max(record.rq_clock_ns);
        if waits_since_ns(record).is_some() {
            self.waiting.insert(record.serial, *record);
        } else {
            self.waiting.remove(&record.serial);
        }
        if record.flags & (ON_CPU | ON_RQ) != 0 && record.pending_cause != Cause::Throttled as u64 {
            self.active.insert(record.serial, record.cpu);
        } else {
            self.active.remove(&record.serial);
        }
        let base = reported.base.map(|base| {
            let before = match self.known.find(base.serial) {
                Ok(at) => Some(&self.known.tasks[at]),
                Err(_) => self.added_at.get(&base.serial).map(|at| &self.added[*at]),
            };
            Box::new(Base::new(reported, *base, before.map(|task| &*task.reading), self.around.read_ns))
        });
        let task = match self.seek(record.serial) {
            Some(at) => {
                let task = &mut self.known.tasks[at];
                if task.reading.cgroup_id != record.cgroup_id {
                    leave(&mut self.known.cgroups, task.reading.cgroup_id);
                    enter(&mut self.known.cgroups, record.cgroup_id);
                }
                task
            }
            None => {
                // The kernel reports a task again if its record did not fit into the buffer. Only the later record is complete.
                let at = *self.added_at.entry(record.serial).or_insert(self.added.len());
                if at == self.added.len() {
                    let reading = match self.added.last() {
                        // Most threads have the same name as the previous thread.
                        Some(last) if has_name(&last.reading, record) => {
                            let comm = last.reading.comm.clone();
                            Arc::new(TaskReading { comm, ..(*self.known.empty).clone() })
                        }
                        _ => self.known.empty.clone(),
                    };
                    self.added.push(KnownTask { reading, ..KnownTask::default() });
                }
                &mut self.added[at]
            }
        };
        let before = task.reading.totals.by_cause;
        if base.is_some() {
            task.more.get_or_insert_default().base = base;
        }
        let active = task.update(reported, &self.around);
        self.known.active.push(active);
        self.known.throttled.add(record.cgroup_id, &before, &task.reading.totals.by_cause);
        task
    }

    /// Finds a known task. Records ascend by serial, except after `execve` in a thread, which gets the id of its process.
    fn seek(&mut self, serial: u64) -> Option<usize> {
        let tasks = &self.known.tasks;
        let at = |place: usize| tasks.get(place).map(|task| task.reading.serial);
        if at(self.next) != Some(serial) {
            let found = self.known.find(serial);
            let (Ok(place) | Err(place)) = found;
            self.next = place;
            found.ok()?;
        }
        self.next += 1;
        Some(self.next - 1)
    }

    /// Ends the reading. Returns the latest run queue clock, ns.
    pub(crate) fn end(self) -> u64 {
        let Self { known, mut added, waiting, clock_ns, visits_all, .. } = self;
        // A thread id belongs to one living task. If a new task has the thread id of a known task, the known task has exited, or
        // has got a new serial by moving to another cgroup.
        for task in &added {
            let (Ok(at) | Err(at)) = known.find(task.reading.serial);
            for other in known.tasks[at.saturating_sub(1)..].iter_mut().take(2) {
                other.has_exited |= other.reading.tid == task.reading.tid;
            }
        }
        if let Some(first) = added.iter().map(|task| task.reading.serial).min() {
            added.iter().for_each(|task| enter(&mut known.cgroups, task.reading.cgroup_id));
            // New tasks mostly have the highest serials, so few known tasks come after them.
            let (Ok(from) | Err(from)) = known.find(first);
            known.tasks.append(&mut added);
            known.tasks[from..].sort_by_key(|task| task.reading.serial);
        }
        known.tasks.retain_mut(|task| {
            // Keep each reported task in this sample, even if the task has exited: the BPF side reports it only once.
            let is_there = mem::take(&mut task.is_reported) || !visits_all && !task.has_exited;
            if !is_there {
                leave(&mut known.cgroups, task.reading.cgroup_id);
            }
            is_there
        });
        for record in waiting.values() {
            if let Ok(at) = known.find(record.serial) {
                Arc::make_mut(&mut known.tasks[at].reading).pending = pending(record, clock_ns).map(Arc::new);
            }
        }
        clock_ns
    }
}

fn enter(cgroups: &mut HashMap<u64, usize>, id: u64) {
    *cgroups.entry(id).or_default() += 1;
}

fn leave(cgroups: &mut HashMap<u64, usize>, id: u64) {
    if let Entry::Occupied(mut tasks) = cgroups.entry(id) {
        *tasks.get_mut() -= 1;
        if *tasks.get() == 0 {
            tasks.remove();
        }
    }
}

/// Returns whether both have the same name; false if the name contains characters that we do not show.
fn has_name(reading: &TaskReading, record: &TaskRecord) -> bool {
    let name = reading.comm.as_bytes();
    record.comm.strip_prefix(name).is_some_and(|rest| rest.first().is_none_or(|byte| *byte == 0))
}

#[derive(Default)]
pub(crate) struct KnownTask {
    pub(crate) reading: Arc<TaskReading>,
    /// Boxed, because few tasks have any of it.
    pub(crate) more: Option<Box<More>>,
    /// Bits of the viewers that follow the task.
    followers: u64,
    /// Whether the current reading has reported the task.
    is_reported: bool,
    /// Whether the task has exited. The latest sample is then the last sample with this task.
    has_exited: bool,
}

#[derive(Default)]
pub(crate) struct More {
    /// Figures of the task at its move to its current cgroup; `None` if it has not moved.
    base: Option<Box<Base>>,
    pub(crate) stack: Option<Arc<[u64]>>,
}

impl KnownTask {
    /// Replaces the reading. The new reading shares unchanged parts with the previous one.
    fn update(&mut self, reported: &TaskReported<'_>, around: &Around<'_>) -> Active {
        let record = reported.record;
        self.is_reported = true;
        self.followers = record.followed & FOLLOWED;
        if let Some(stack) = reported.stack {
            self.more.get_or_insert_default().stack = Some(frames(stack));
        }
        let (before, base) = (&self.reading, self.more.as_ref().and_then(|more| more.base.as_deref()));
        let comm = if has_name(before, record) { before.comm.clone() } else { comm(&record.comm) };
        let mut hist = before.hist.clone();
        if let Some(waits) = reported.histogram {
            Arc::make_mut(&mut hist).add(&of_wire(waits));
        }
        let raw = base.map_or(record.totals, |base| record.totals.since(&base.reported.totals));
        let totals = Totals::of(&raw, &hist);
        let own = reported.accounts.map(|now| base.map_or(*now, |base| base.accounts(now)));
        let own = own.map(|now| Arc::new(accounts(&now, raw.on_cpu_ns, before.accounts.as_deref())));
        let placement = reported.placement.map(|now| {
            let since = |base: &Base| now.since(&base.placement, base.reported.totals.on_cpu_ns);
            Arc::new(around.places.placement(&base.map_or(*now, since), raw.on_cpu_ns))
        });
        let reading = TaskReading {
            scheduling: before.scheduling,
            moved_ns: base.map(|base| base.found_ns),
            before_move: base.map(|base| base.before_move.clone()),
            accounts: own,
            serial: record.serial,
            tid: record.tid,
            tgid: record.tgid,
            comm,
            start_ns: record.start_ns,
            cgroup_id: record.cgroup_id,
            cpu: record.cpu,
            node: around.nodes.get(&record.cpu).copied(),
            on_cpu: record.flags & ON_CPU != 0,
            state: Some(state(record)),
            placement,
            max_ns: record.waits.max_ns,
            totals,
            hist,
            ..TaskReading::default()
        };
        let is_known = before.serial != 0;
        let active = Active::between(is_known.then_some(&**before), &reading);
        self.reading = Arc::new(reading);
        active
    }
}

/// Figures of a task at its move to its current cgroup. They belong to the previous cgroup, so we subtract them.
struct Base {
    found_ns: u64,
    before_move: Arc<BeforeMove>,
    reported: wire::Reported,
    placement: wire::Placement,
    exited_threads: wire::ExitedThreads,
}

impl Base {
    /// `before` is the task's reading in its previous cgroup, if the task was reported there.
    fn new(
        reported: &TaskReported<'_>,
        base: wire::Reported,
        before: Option<&TaskReading>,
        found_ns: u64,
    ) -> Self {
        let placement = reported.placement.copied().unwrap_or_default();
        // The kernel does not count exited threads by cgroup, so use the current figures.
        let exited_threads = reported.accounts.map(|accounts| accounts.exited_threads).unwrap_or_default();
        let mut hist = reported.base_histogram.map(of_wire).unwrap_or_default();
        if let Some(before) = before {
            before.before_move.iter().for_each(|before| hist.add(&before.hist));
            hist.add(&before.hist);
        }
        let totals = Totals::of(&base.totals, &hist);
        let accounts = reported.accounts.map(|now| {
            let before = AccountsRecord { own: base.accounts, exited_threads, ..*now };
            Arc::new(accounts(&before, base.totals.on_cpu_ns, None))
        });
        let before_move = Arc::new(BeforeMove { totals, accounts, hist: Arc::new(hist) });
        Self { found_ns, before_move, reported: base, placement, exited_threads }
    }

    fn accounts(&self, now: &AccountsRecord) -> AccountsRecord {
        AccountsRecord {
            own: now.own.since(&self.reported.accounts),
            exited_threads: now.exited_threads.since(&self.exited_threads),
            ..*now
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::wire::{LIST, ListRecord, SAME, SameRecord, serial};

    fn record(tid: u32, cgroup_id: u64, run_ns: u64) -> TaskRecord {
        let totals = wire::Totals { on_cpu_ns: run_ns, ..wire::Totals::default() };
        let pending_cause = Cause::Unattributed as u64;
        TaskRecord {
            serial: serial(tid, 7),
            tid,
            tgid: tid,
            cgroup_id,
            totals,
            pending_cause,
            ..TaskRecord::default()
        }
    }

    fn reported(record: &TaskRecord) -> Reported<'_> {
        Reported::Task(TaskReported {
            record,
            base: None,
            base_histogram: None,
            placement: None,
            accounts: None,
            stack: None,
            histogram: None,
        })
    }

    /// Reads these records. Returns the id and the run time (ns) of each task.
    fn read(known: &mut KnownTasks, is_whole: bool, records: &[Reported<'_>]) -> Vec<(u32, u64)> {
        let (nodes, places) = (BTreeMap::new(), NodePlaces::new(&BTreeMap::new()));
        let mut reading = known.begin(Around { nodes: &nodes, places: &places, read_ns: 0 });
        if is_whole {
            reading.visit_all();
        }
        for reported in records {
            reading.take(reported);
        }
        reading.end();
        known.readings().iter().map(|task| (task.tid, task.totals.on_cpu_ns)).collect()
    }

    fn same(tid: u32) -> SameRecord {
        SameRecord { len: 0, flags: SAME, serial: serial(tid, 7), followed: 0 }
    }

    /// A stream that is opened again begins with the list that was not finished.
    #[test]
    fn lists_are_read_on_from_the_first_one_that_has_more() {
        let mut known = KnownTasks::default();
        let (nodes, places) = (BTreeMap::new(), NodePlaces::new(&BTreeMap::new()));
        let mut reading = known.begin(Around { nodes: &nodes, places: &places, read_ns: 0 });
        for (cpu, has_more) in [(0, 0), (1, 1)] {
            let list = ListRecord { cpu, has_more, flags: LIST, ..ListRecord::default() };
            reading.take(&Reported::List(&list));
        }
        assert_eq!((reading.more_from(), reading.more_from()), (Some(1), None));
    }

    #[test]
    fn a_reading_of_changes_keeps_the_other_tasks_and_drops_exited_ones() {
        let mut known = KnownTasks::default();
        let first = [record(1, 5, 10), record(2, 5, 20), record(3, 6, 30)];
        let first: Vec<Reported<'_>> = first.iter().map(reported).collect();
        assert_eq!(read(&mut known, true, &first), [(1, 10), (2, 20), (3, 30)]);
        let before = known.readings();

        let (changed, added) = (record(2, 5, 25), record(4, 8, 1));
        let changes = [reported(&added), Reported::Exited(serial(3, 7)), reported(&changed)];
        assert_eq!(read(&mut known, false, &changes), [(1, 10), (2, 25), (4, 1)]);
        assert!(Arc::ptr_eq(&before[0], &known.readings()[0]), "an unchanged reading is shared");
        assert_eq!(known.cgroups(), HashSet::from([5, 8]));
        let active: Vec<(u64, u64)> = known.active.iter().map(|task| (task.serial, task.since_ns)).collect();
        assert_eq!(active, [(serial(4, 7), 1), (serial(2, 7), 5)]);

        let (same, same_2) = (same(1), same(2));
        assert_eq!(
            read(&mut known, true, &[Reported::Same(&same), Reported::Same(&same_2)]),
            [(1, 10), (2, 25)]
        );
        assert_eq!(
            known.cgroups(),
            HashSet::from([5]),
            "a reading of all tasks misses task 4: it has exited"
        );
    }

    #[test]
    fn a_reading_that_was_cut_short_keeps_the_tasks_that_it_did_not_reach() {
        let mut known = KnownTasks::default();
        let records = [record(1, 5, 10), record(2, 5, 20)];
        read(&mut known, true, &records.each_ref().map(reported));
        let (nodes, places) = (BTreeMap::new(), NodePlaces::new(&BTreeMap::new()));
        let mut reading = known.begin(Around { nodes: &nodes, places: &places, read_ns: 0 });
        reading.visit_all();
        reading.take(&reported(&records[0]));
        reading.keep_others();
        reading.end();
        assert_eq!(known.readings().len(), 2);
    }

    #[test]
    fn new_tasks_are_in_order_among_the_known_ones() {
        let mut known = KnownTasks::default();
        let records = [8, 2, 6, 1, 7, 3].map(|tid| record(tid, 5, u64::from(tid)));
        let mut read =
            |part: &[TaskRecord]| read(&mut known, false, &part.iter().map(reported).collect::<Vec<_>>());
        assert_eq!(read(&records[..2]), [(2, 2), (8, 8)]);
        assert_eq!(read(&records[2..]), [(1, 1), (2, 2), (3, 3), (6, 6), (7, 7), (8, 8)]);
    }

    #[test]
    fn a_task_has_the_name_that_was_reported_last() {
        let mut known = KnownTasks::default();
        let names =
            ["", "loop", "loop-2", "loo", "sixteen-is-a-lot", "a\u{1b}[2J", "a\u{fffd}[2J", "\0after"];
        for name in names.map(str::as_bytes).into_iter().chain([&b"a\xff"[..], b"a"]) {
            let mut record = record(2, 5, 20);
            record.comm[..name.len()].copy_from_slice(name);
            for _ in 0..2 {
                read(&mut known, false, &[reported(&record)]);
                assert_eq!(known.readings()[0].comm, comm(&record.comm), "{name:?}");
            }
        }
    }

    #[test]
    fn a_moved_task_replaces_the_one_with_the_same_id() {
        let mut known = KnownTasks::default();
        let (before, mut after) = (record(2, 5, 20), record(2, 6, 21));
        read(&mut known, true, &[reported(&before)]);
        after.serial = wire::next_serial(before.serial);
        assert_eq!(read(&mut known, false, &[reported(&after)]), [(2, 21)]);
        assert_eq!(known.cgroups(), HashSet::from([6]));
        assert!(known.contains(after.serial) && !known.contains(before.serial));
    }

    #[test]
    fn what_was_reported_of_a_task_is_in_one_sample_even_if_the_task_exits() {
        let (first, later) = (record(2, 5, 20), record(2, 5, 30));
        let mut known = KnownTasks::default();
        assert_eq!(read(&mut known, true, &[reported(&first)]), [(2, 20)]);
        assert_eq!(read(&mut known, true, &[]), []);
        for exit in [Some(Reported::Exited(first.serial)), None] {
            let mut known = KnownTasks::default();
            read(&mut known, true, &[reported(&first)]);
            // If there is no exit record, the next reading visits all tasks and does not find this task.
            let records: Vec<Reported<'_>> = [reported(&later)].into_iter().chain(exit).collect();
            assert_eq!(read(&mut known, exit.is_none(), &records), [(2, 30)]);
            assert_eq!(read(&mut known, exit.is_none(), &[]), []);
            assert!(known.cgroups().is_empty());
        }
    }

    #[test]
    fn a_task_that_is_reported_again_after_its_wait_does_not_wait() {
        let mut known = KnownTasks::default();
        let waits = TaskRecord { flags: ON_RQ, last_queued_ns: 5, ..record(2, 5, 20) };
        read(&mut known, true, &[reported(&waits)]);
        assert!(known.readings()[0].pending.is_some());
        read(&mut known, false, &[reported(&waits), reported(&record(2, 5, 30))]);
        assert!(known.readings()[0].pending.is_none());
    }

    #[test]
    fn a_task_that_was_woken_but_never_listed_is_missed() {
        let (nodes, places) = (BTreeMap::new(), NodePlaces::new(&BTreeMap::new()));
        let misses = |running: u64, is_incomplete: u64, records: &[TaskRecord]| {
            let mut known = KnownTasks::default();
            let mut reading = known.begin(Around { nodes: &nodes, places: &places, read_ns: 0 });
            for record in records {
                reading.take(&reported(record));
            }
            let list = ListRecord { cpu: 3, running, is_incomplete, flags: LIST, ..ListRecord::default() };
            reading.take(&Reported::List(&list));
            reading.misses_tasks()
        };
        let waits = |tid| TaskRecord { cpu: 3, flags: ON_RQ, ..record(tid, 5, 1) };
        let throttled = TaskRecord { pending_cause: Cause::Throttled as u64, ..waits(3) };
        assert!(!misses(2, 0, &[waits(1), waits(2)]));
        assert!(misses(3, 0, &[waits(1), waits(2)]));
        assert!(misses(3, 0, &[waits(1), waits(2), throttled]), "a throttled task is on no queue");
        assert!(misses(3, 0, &[waits(1), waits(2), TaskRecord { cpu: 1, ..waits(4) }]), "on another CPU");
        assert!(misses(0, 1, &[]), "a list overflowed");
    }
}
