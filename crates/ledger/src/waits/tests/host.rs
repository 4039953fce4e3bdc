//! The maps of a simulated host, and the task fields that the ledger reads.

extern crate std;

use std::{boxed::Box, cell::RefCell, collections::BTreeMap, vec::Vec};

use crate::{
    Loss,
    demand::{self, DemandHost, Running, Slots},
    host::{FarQueue, Host, Task},
    pressure::{self, Batch, Ended, KeptPressure, PressureHost, Pressures},
    waits::{
        WaitHost,
        culprits::{self, PAIRS, Pairs, TaskNames, kind},
        enter_composed,
        history::{Ring, tests::empty},
        log, look_back, segment,
        split::{self, Work},
    },
    wire::{CpuCounters, Exited, Histogram, Pair, TaskStorage},
};

use super::kernel::ROOT;

pub(super) const CPUS: usize = 3;
/// The parent of a cgroup with this id or a larger id is the cgroup with the previous id. The parent of all other cgroups is the
/// root.
pub(crate) const NESTED: u64 = 1_000_001;

/// Factor of the old cgroup's id in the handle of a task that moves to another cgroup.
pub(crate) const MOVING: u64 = 1 << 32;

/// The id of a cgroup that no schedule uses.
const STRANGER: u64 = u64::MAX - 1;

/// Pointers to the maps of the schedule that runs on this thread. Each pointer comes from a box of [`Maps`]. As in the kernel,
/// each call returns a reference to a map, and the ledger never uses two references to the same entry at once.
struct Pointers {
    rings: Vec<*mut Ring>,
    pairs: Vec<*mut Pairs>,
    task_names: Vec<*mut TaskNames>,
    pressures: Vec<*mut Pressures>,
    exited: BTreeMap<u64, *mut Exited>,
    /// The histograms of tasks, by serial.
    histograms: BTreeMap<u64, Histogram>,
    slots: *mut Slots,
    work: [*mut Work; 2],
    throttles_tasks: bool,
    blames_tasks: bool,
    /// Entries that were used after this time must not be replaced, ns.
    kept_since_ns: u64,
    is_crowded: bool,
    losses: BTreeMap<&'static str, u64>,
}

std::thread_local! {
    static MAPS: RefCell<Pointers> = const {
        RefCell::new(Pointers {
            rings: Vec::new(),
            pairs: Vec::new(),
            task_names: Vec::new(),
            pressures: Vec::new(),
            exited: BTreeMap::new(),
            histograms: BTreeMap::new(),
            slots: core::ptr::null_mut(),
            work: [core::ptr::null_mut(); 2],
            throttles_tasks: false,
            blames_tasks: false,
            kept_since_ns: 0,
            is_crowded: false,
            losses: BTreeMap::new(),
        })
    };
}

pub(crate) struct Maps {
    rings: Vec<*mut Ring>,
    pairs: Vec<*mut Pairs>,
    task_names: Vec<*mut TaskNames>,
    pressures: Vec<*mut Pressures>,
    slots: *mut Slots,
    work: [*mut Work; 2],
}

/// # Safety
/// Zero must be valid for all members of the type.
unsafe fn zeroed<T>() -> *mut T {
    // SAFETY: the caller guarantees this.
    Box::into_raw(unsafe { Box::new_zeroed().assume_init() })
}

impl Maps {
    pub(crate) fn new(throttles_tasks: bool) -> Self {
        let maps = Self {
            rings: (0..CPUS).map(|_| Box::into_raw(empty())).collect(),
            // SAFETY: the types hold only integers.
            pairs: (0..CPUS).map(|_| unsafe { zeroed() }).collect(),
            // SAFETY: as above.
            task_names: (0..CPUS).map(|_| unsafe { zeroed() }).collect(),
            // SAFETY: as above.
            pressures: (0..CPUS).map(|_| unsafe { zeroed() }).collect(),
            slots: Box::into_raw(Box::new(Slots::new(0))),
            work: [(); 2].map(|()| Box::into_raw(Box::default())),
        };
        MAPS.replace(Pointers {
            rings: maps.rings.clone(),
            pairs: maps.pairs.clone(),
            task_names: maps.task_names.clone(),
            pressures: maps.pressures.clone(),
            exited: BTreeMap::new(),
            histograms: BTreeMap::new(),
            slots: maps.slots,
            work: maps.work,
            throttles_tasks,
            blames_tasks: false,
            kept_since_ns: 0,
            is_crowded: false,
            losses: BTreeMap::new(),
        });
        maps
    }

    pub(crate) fn blame_tasks(&self) {
        MAPS.with_borrow_mut(|maps| maps.blames_tasks = true);
    }

    /// From now on, no entry that was used after `since_ns` may be replaced.
    pub(crate) fn keep_since(since_ns: u64) {
        MAPS.with_borrow_mut(|maps| maps.kept_since_ns = since_ns);
    }

    pub(crate) fn make_place(&self, cgroup_id: u64) {
        let place = Box::into_raw(Box::new(Exited::NONE));
        let before = MAPS.with_borrow_mut(|maps| maps.exited.insert(cgroup_id, place));
        assert!(before.is_none(), "it has one already");
    }

    /// Fills the tables of culprits with pairs that must not be replaced. Each victim also gets an entry in the table of exited
    /// tasks.
    pub(super) fn crowd(&self) {
        for pairs in &self.pairs {
            let stranger = Pair { victim: STRANGER, kind: kind::RAN, last_ns: u64::MAX, ..Pair::default() };
            // SAFETY: see `Pointers`.
            unsafe { (**pairs).pairs = [stranger; PAIRS] };
        }
        MAPS.with_borrow_mut(|maps| maps.is_crowded = true);
    }

    /// Returns all charges by victim, culprit and kind. A charge without a culprit has culprit 0.
    pub(super) fn charges() -> BTreeMap<(u64, u64, u32), u64> {
        let mut sums = BTreeMap::new();
        let mut add = |pair: &Pair| {
            if pair.ns != 0 {
                *sums.entry((pair.victim, pair.culprit, pair.kind)).or_default() += pair.ns;
            }
        };
        (0..CPUS as u32)
            .for_each(|cpu| Simulated::pairs(cpu).expect("a CPU").pairs.iter().for_each(&mut add));
        let places: Vec<u64> = MAPS.with_borrow(|maps| maps.exited.keys().copied().collect());
        for victim in places {
            let kept = &Simulated::exited(victim).expect("its place").kept;
            kept.pairs.iter().for_each(&mut add);
            for kind in [kind::RAN, kind::LIMITED] {
                add(&Pair { victim, kind, ns: kept.unnamed_ns[kind as usize - 1], ..Pair::default() });
            }
        }
        sums
    }

    /// Returns the histogram of the task with this serial.
    pub(crate) fn histogram(serial: u64) -> Histogram {
        MAPS.with_borrow(|maps| maps.histograms.get(&serial).copied().unwrap_or(Histogram::NONE))
    }

    pub(crate) fn losses() -> BTreeMap<&'static str, u64> {
        MAPS.with_borrow(|maps| maps.losses.clone())
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        // SAFETY: the pointers come from our boxes, and nobody uses them any more.
        unsafe {
            self.rings.drain(..).for_each(|ring| drop(Box::from_raw(ring)));
            self.pairs.drain(..).for_each(|pairs| drop(Box::from_raw(pairs)));
            self.task_names.drain(..).for_each(|names| drop(Box::from_raw(names)));
            self.pressures.drain(..).for_each(|pressures| drop(Box::from_raw(pressures)));
            drop(Box::from_raw(self.slots));
            self.work.iter().for_each(|work| drop(Box::from_raw(*work)));
            let exited = MAPS.with_borrow_mut(|maps| core::mem::take(&mut maps.exited));
            exited.into_values().for_each(|place| drop(Box::from_raw(place)));
        }
    }
}

/// The host of the schedule that runs on this thread.
pub(crate) enum Simulated {}

impl Host for Simulated {
    fn throttles_tasks() -> bool {
        MAPS.with_borrow(|maps| maps.throttles_tasks)
    }

    fn kept_since_ns() -> u64 {
        MAPS.with_borrow(|maps| maps.kept_since_ns)
    }

    fn lost(loss: Loss) {
        MAPS.with_borrow_mut(|maps| *maps.losses.entry(loss.name()).or_default() += 1);
    }

    fn repeat<C, F: Fn(&mut C) -> bool>(times: u32, step: F, context: &mut C) {
        let _ = (0..times).any(|_| step(context));
    }
}

impl PressureHost for Simulated {
    fn pressures(cpu: u32) -> Option<&'static mut Pressures> {
        // SAFETY: see `Pointers`.
        MAPS.with_borrow(|maps| maps.pressures.get(cpu as usize).map(|table| unsafe { &mut **table }))
    }

    fn batch(cpu: u32) -> Option<&'static mut Batch> {
        Self::ring(cpu).map(|ring| &mut ring.batch)
    }

    fn count_batch(cpu: u32) {
        pressure::count_batch::<Self>(cpu);
    }

    fn keep(cgroup_id: u64, more: KeptPressure) -> bool {
        let place = Self::exited(cgroup_id);
        place.map(|place| place.keep_pressure(more)).is_some()
    }

    fn is_alone(task: u64) -> bool {
        task & 1 != 0
    }

    fn cgroup_of(task: u64) -> u64 {
        (task & (MOVING - 1)) >> 1
    }

    fn cgroup_of_queue(task: u64) -> u64 {
        if task < MOVING { Self::cgroup_of(task) } else { task / MOVING }
    }

    fn id_of(cgroup: u64) -> u64 {
        cgroup
    }

    fn above(cgroup: u64) -> u64 {
        match cgroup {
            ROOT => 0,
            NESTED.. => cgroup - 1,
            _ => ROOT,
        }
    }
}

impl DemandHost for Simulated {
    fn running(cpu: u32) -> Option<&'static mut Running> {
        Self::ring(cpu).map(|ring| &mut ring.running)
    }

    fn slots(place: u64) -> Option<&'static mut Slots> {
        // SAFETY: see `Pointers`.
        (place == 1).then(|| MAPS.with_borrow(|maps| unsafe { &mut *maps.slots }))
    }

    fn count_demand_wait(cpu: u32, clock_ns: u64) {
        demand::count_wait::<Self>(cpu, clock_ns);
    }

    fn count_demand_run(cpu: u32, clock_ns: u64) {
        demand::count_run::<Self>(cpu, clock_ns);
    }

    fn spread(cpu: u32) {
        demand::spread_all::<Self>(cpu);
    }
}

impl WaitHost for Simulated {
    type Task = Facts;

    fn throttled_ns(task: Facts, of: &u64, cpu: u32, clock_ns: u64) -> u64 {
        assert_eq!((*of, cpu), (task.queue(), task.cpu), "only the queue of its own CPU is locked");
        match task.queues[cpu as usize] {
            (sum_ns, 0) => sum_ns,
            (sum_ns, since_ns) => sum_ns + clock_ns.saturating_sub(since_ns),
        }
    }

    fn far_queue(task: Facts, cpu: u32) -> FarQueue {
        let (sum_ns, since_ns) = task.queues[cpu as usize];
        FarQueue {
            address: address(task.cgroup, cpu),
            is_throttled: since_ns != 0 || task.stopped[cpu as usize],
            throttled_ns_at_0: sum_ns.wrapping_sub(since_ns),
        }
    }

    fn near_queue(task: Facts) -> FarQueue {
        Self::far_queue(task, task.cpu)
    }

    fn blames_tasks() -> bool {
        MAPS.with_borrow(|maps| maps.blames_tasks)
    }

    fn counts_by_cpu() -> bool {
        false
    }

    fn ring(cpu: u32) -> Option<&'static mut Ring> {
        // SAFETY: see `Pointers`.
        MAPS.with_borrow(|maps| maps.rings.get(cpu as usize).map(|ring| unsafe { &mut **ring }))
    }

    fn pairs(cpu: u32) -> Option<&'static mut Pairs> {
        // SAFETY: see `Pointers`.
        MAPS.with_borrow(|maps| maps.pairs.get(cpu as usize).map(|pairs| unsafe { &mut **pairs }))
    }

    fn task_names(cpu: u32) -> Option<&'static mut TaskNames> {
        // SAFETY: see `Pointers`.
        MAPS.with_borrow(|maps| maps.task_names.get(cpu as usize).map(|names| unsafe { &mut **names }))
    }

    fn exited(cgroup_id: u64) -> Option<&'static mut Exited> {
        let new = || Box::into_raw(Box::new(Exited::NONE));
        let place = MAPS.with_borrow_mut(|maps| match maps.exited.get(&cgroup_id) {
            None if maps.is_crowded => Some(*maps.exited.entry(cgroup_id).or_insert_with(new)),
            place => place.copied(),
        });
        // SAFETY: see `Pointers`.
        place.map(|place| unsafe { &mut *place })
    }

    fn cpu_counters(_: u32) -> Option<&'static mut CpuCounters> {
        None
    }

    fn histogram(task: Facts) -> Option<&'static mut Histogram> {
        MAPS.with_borrow_mut(|maps| {
            let histogram: *mut Histogram = maps.histograms.entry(task.serial).or_insert(Histogram::NONE);
            // SAFETY: see `Pointers`. The caller uses the reference before the next call.
            Some(unsafe { &mut *histogram })
        })
    }

    fn count(storage: &mut TaskStorage, histogram: Option<&mut Histogram>, place: Option<&mut Exited>) {
        log::count::<Self>(storage, histogram, place);
    }

    fn leave_limited(task: Facts, storage: &mut TaskStorage, cpu: u32, clock_ns: u64) {
        segment::leave_limited::<Self>(task, &mut storage.start, cpu, clock_ns);
    }

    fn enter_composed(task: Facts, storage: &mut TaskStorage) {
        enter_composed::<Self>(task, storage, Self::work(Work::HOOK).expect("working memory"));
    }

    fn work(which: u32) -> Option<&'static mut Work> {
        // SAFETY: see `Pointers`.
        MAPS.with_borrow(|maps| maps.work.get(which as usize).map(|work| unsafe { &mut **work }))
    }

    fn look_back(which: u32) {
        look_back::look_back::<Self>(which);
    }

    fn charge(victim: u64, who: u64, ns: u64, clock_ns: u64, packed: u64) {
        culprits::enter::<Self>(victim, who, ns, clock_ns, packed);
    }

    fn press(task: u64, ended: Ended) {
        Self::pressures(ended.cpu).expect("a CPU").task = task;
        pressure::press::<Self>(ended);
    }

    fn press_split() {
        split::press_split::<Self>();
    }
}

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    pub(super) serial: u64,
    pub(super) switches: u64,
    pub(super) run_delay_ns: u64,
    pub(super) last_queued_ns: u64,
    pub(super) cpu: u32,
    pub(super) clock_ns: u64,
    pub(super) cgroup: u64,
    /// Id of the cgroup to which the task is moving while it still has the queue of `cgroup`; 0 if it is not moving.
    pub(super) bound_for: u64,
    pub(super) is_real_time: bool,
    pub(super) is_deadline: bool,
    pub(super) is_of_bpf_scheduler: bool,
    pub(super) is_out_of_runtime: bool,
    pub(super) is_throttled: bool,
    pub(super) sleeps_on_queue: bool,
    /// Whether the task is on a queue: it runs, waits, or sleeps on the queue (`sleeps_on_queue`).
    pub(super) is_on_queue: bool,
    /// Whether the task is the only one on its run queue.
    pub(super) is_alone: bool,
    /// For the queue of the task's group on each CPU: the total of past throttled phases, and the start of the current phase or
    /// 0.
    pub(super) queues: [(u64, u64); CPUS],
    /// A throttled queue that the task has left: its group, the total of past throttled phases, and the start of the current
    /// phase.
    pub(super) left_queue: (u64, u64, u64),
    /// For each CPU, whether the queue is throttled although its clock stands still.
    pub(super) stopped: [bool; CPUS],
    /// How long the task's group has run, ns, on each CPU.
    pub(super) group_ran_ns: [u64; CPUS],
}

impl Facts {
    /// Creates a task that has waited since `last_queued_ns`.
    pub(crate) fn waiting(run_delay_ns: u64, last_queued_ns: u64) -> Self {
        Self { run_delay_ns, last_queued_ns, ..Self::default() }
    }

    /// Creates a task of `cgroup` that has waited on CPU 0 since `last_queued_ns`.
    pub(crate) fn waiting_in(cgroup: u64, last_queued_ns: u64, clock_ns: u64) -> Self {
        Self { cgroup, clock_ns, last_queued_ns, ..Self::default() }
    }

    /// Creates a task of `cgroup`, whose group has run on each CPU for `group_ran_ns`.
    pub(crate) fn ran(cgroup: u64, group_ran_ns: u64) -> Self {
        Self { cgroup, group_ran_ns: [group_ran_ns; CPUS], ..Self::default() }
    }

    /// Creates a task that has waited on CPU 1 since 500 ns. Its queue was throttled for 100 ns, and has been throttled again
    /// since 450 ns.
    pub(crate) fn throttled() -> Self {
        let mut task = Self { switches: 7, last_queued_ns: 500, cpu: 1, cgroup: 3, ..Self::default() };
        task.queues[1] = (100, 450);
        task
    }
}

fn address(cgroup: u64, cpu: u32) -> u64 {
    0xffff_0000 + cgroup * 256 + u64::from(cpu)
}

impl Task for Facts {
    fn handle(self) -> u64 {
        let from = if self.bound_for == 0 { 0 } else { self.cgroup };
        (from * MOVING) | (self.group() << 1) | u64::from(self.is_alone)
    }

    fn switches(self) -> u64 {
        self.switches
    }

    fn run_delay_ns(self) -> u64 {
        self.run_delay_ns
    }

    fn last_queued_ns(self) -> u64 {
        self.last_queued_ns
    }

    fn cpu(self) -> u32 {
        self.cpu
    }

    fn clock_ns(self) -> u64 {
        self.clock_ns
    }

    fn group(self) -> u64 {
        if self.bound_for == 0 { self.cgroup } else { self.bound_for }
    }

    fn group_ran_ns(self) -> u64 {
        self.far_group_ran_ns(self.cpu)
    }

    fn queue_rarely(self) -> u64 {
        self.queue()
    }

    fn group_rarely(self) -> u64 {
        self.group()
    }

    fn group_ran_ns_rarely(self) -> u64 {
        self.group_ran_ns()
    }

    fn far_group_ran_ns(self, cpu: u32) -> u64 {
        self.group_ran_ns[cpu as usize]
    }

    fn is_real_time(self) -> bool {
        self.is_real_time
    }

    fn is_deadline(self) -> bool {
        self.is_deadline
    }

    fn is_of_bpf_scheduler(self) -> bool {
        self.is_of_bpf_scheduler
    }

    fn is_out_of_runtime(self) -> bool {
        self.is_out_of_runtime
    }

    fn is_throttled(self) -> bool {
        self.is_throttled
    }

    fn sleeps_on_queue(self) -> bool {
        self.sleeps_on_queue
    }

    fn is_on_queue(self) -> bool {
        self.is_on_queue
    }

    fn queue(self) -> u64 {
        address(self.cgroup, self.cpu)
    }

    fn left_throttled_ns(self, _: u64, group: u64, clock_ns: u64) -> u64 {
        match self.left_queue {
            (of, sum_ns, since_ns) if of == group => sum_ns + clock_ns.saturating_sub(since_ns),
            _ => 0,
        }
    }

    fn find_limit(self, limit: &mut u64) {
        *limit = self.cgroup;
    }
}
