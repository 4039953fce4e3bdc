//! Pressure: how long at least one task of a cgroup waited for a CPU. The time in which tasks were at a limit (out of quota or
//! runtime) is counted separately.
//!
//! Pressure is the length of the union of all waits, for each cgroup and CPU. The union of a parent cannot be computed from the
//! unions of its children, so each wait counts for its cgroup and all ancestors. The waits on a CPU are counted in the order of
//! their ends, under the CPU's run queue lock. When a wait ends, the ledger has already split it: first the time at a limit, then
//! the time for which other tasks ran.
//!
//! A [`Batch`] combines the waits of up to 4 ms, so that most switches update no union. Waits can be combined if they do not
//! overlap. On a busy CPU, waits can also overlap, if each wait began while another task of the cgroup waited without a gap.

use crate::{
    Loss,
    host::{Host, IDLE},
    verifier::{add_atomic, get, set, wrapped},
};

/// Number of entries in the table of a CPU, one for each cgroup. It is a power of two.
pub const ENTRIES: usize = 128;
/// Number of entries that a cgroup may use, starting at the entry of its hash.
pub const PROBES: usize = 8;
/// Number of [`Limited`] in the table of a CPU, a power of two.
pub const LIMITED: usize = 32;
/// Maximum number of levels for which a wait counts: the cgroup and its nearest ancestors.
pub const LEVELS: usize = 16;
/// Binary logarithm of the maximum length of a batch, ns (4 ms). A reading misses at most this much waiting time on a CPU, and
/// nothing while tasks wait there.
const BATCH_SHIFT: u32 = 22;
/// Binary logarithm of a time, ns. A batch that one wait extends by more is counted at once, because the next wait may end much
/// later.
const LONG_SHIFT: u32 = 20;

pub trait PressureHost: Host {
    fn pressures(cpu: u32) -> Option<&'static mut Pressures>;
    fn batch(cpu: u32) -> Option<&'static mut Batch>;
    /// Calls [`count_batch`] from a separate function, so that the verifier checks it only once. The parameters of such a
    /// function must be numbers.
    fn count_batch(cpu: u32);
    /// Adds `more` to the sums of a cgroup in the table of exited tasks. Returns false if the table has no entry for the cgroup.
    fn keep(cgroup_id: u64, more: KeptPressure) -> bool;
    /// Returns whether no other task waits on the run queue of the task with this handle.
    fn is_alone(task: u64) -> bool;
    /// Returns the handle of the cgroup of the task with this handle.
    fn cgroup_of(task: u64) -> u64;
    /// Returns the handle of the cgroup that owns the task's queue. It differs from [`Self::cgroup_of`] while the task moves.
    fn cgroup_of_queue(task: u64) -> u64;
    /// Returns the id of the cgroup with this handle; for the handle 0, the id of the root.
    fn id_of(cgroup: u64) -> u64;
    /// Returns the handle of the parent of the cgroup with this handle; 0 if it has no parent.
    fn above(cgroup: u64) -> u64;
}

/// The latest waits on a CPU, as long as they belong to one cgroup and none was at a limit.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Batch {
    /// Id of the cgroup; [`IDLE`] if no wait can be added.
    pub who: u64,
    /// Start of the batch, ns of `rq->clock`. Time before the start is already counted.
    pub start_ns: u64,
    /// End of the latest wait, ns of `rq->clock`.
    pub end_ns: u64,
    /// Length of the union of the batch's waits, ns; 0 if the batch is already counted.
    pub len_ns: u64,
    /// From `solid_ns` to `end_ns`, at least one task of the cgroup waited at any time. Waits of earlier batches count too.
    pub solid_ns: u64,
    /// From `filled_ns` to `start_ns`, at least one task of the cgroup waited at any time.
    pub filled_ns: u64,
}

impl Batch {
    /// Adds a wait to the batch. Returns false if the wait does not fit. All conditions are combined in one number, so that there
    /// is a single comparison. With separate comparisons, the verifier would narrow value ranges after each of them and follow
    /// every combination.
    #[inline(always)]
    pub fn add(&mut self, who: u64, queued_ns: u64, clock_ns: u64) -> bool {
        let (end_ns, solid_ns) = (get(&mut self.end_ns), get(&mut self.solid_ns));
        let after_ns = queued_ns.wrapping_sub(end_ns);
        // All bits are set if the wait began before the previous wait ended.
        let overlaps = ((after_ns as i64) >> (u64::BITS - 1)) as u64;
        let new_ns = clock_ns.wrapping_sub(end_ns).wrapping_sub(after_ns & !overlaps);
        let since_solid_ns = queued_ns.wrapping_sub(solid_ns);
        let is_before = since_solid_ns >> (u64::BITS - 1);
        let is_old = clock_ns.wrapping_sub(get(&mut self.start_ns)) >> BATCH_SHIFT;
        if (get(&mut self.who) ^ who) | is_before | is_old | (new_ns >> LONG_SHIFT) != 0 {
            return false;
        }
        self.end_ns = clock_ns;
        self.len_ns = get(&mut self.len_ns) + new_ns;
        self.solid_ns = solid_ns.wrapping_add(since_solid_ns & !overlaps);
        true
    }

    /// Adds a wait that covers the whole batch, so that gaps within the batch do not matter. Returns false for other waits.
    #[inline(always)]
    fn cover(&mut self, ended: &Ended) -> bool {
        let Ended { who, queued_ns, clock_ns, limit_ns, .. } = *ended;
        let (start_ns, filled_ns) = (get(&mut self.start_ns), get(&mut self.filled_ns));
        if get(&mut self.who) != who
            || limit_ns != 0
            || queued_ns > start_ns
            || get(&mut self.end_ns) > clock_ns
        {
            return false;
        }
        // If there may be gaps before the batch, the batch now begins with this wait. [`Union::add`] finds out which part is
        // already counted.
        let from_ns = if queued_ns < filled_ns { queued_ns } else { start_ns };
        let len_ns = clock_ns.wrapping_sub(from_ns);
        if len_ns >> (if queued_ns < filled_ns { LONG_SHIFT } else { BATCH_SHIFT }) != 0 {
            return false;
        }
        let solid_ns = if queued_ns < filled_ns { queued_ns } else { filled_ns };
        set(&mut self.start_ns, from_ns);
        set(&mut self.end_ns, clock_ns);
        set(&mut self.len_ns, len_ns);
        set(&mut self.solid_ns, solid_ns);
        set(&mut self.filled_ns, solid_ns);
        true
    }
}

/// The pressure of one cgroup on one CPU.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Id of the cgroup; 0 if the entry is empty.
    pub id: u64,
    /// Id of the parent cgroup; 0 if there is none.
    pub parent: u64,
    /// When the cgroup got the entry, ns of `rq->clock`. If this time changes, the entry was evicted and used again.
    pub born_ns: u64,
    /// When the latest wait ended, ns of `rq->clock`.
    pub last_ns: u64,
    /// Index of the cgroup's [`Limited`], plus one; 0 if it has none.
    pub limited: u64,
    /// Time at a limit that was counted in no [`Limited`], or in a former one, ns.
    pub apart_ns: u64,
    /// Union of the waits, without their time at a limit.
    pub contention: Union,
}

impl Entry {
    /// Clears the entry for use by another cgroup. The id is written last, so that a reader without the lock does not confuse two
    /// cgroups. Each word is written separately, because the compiler would turn a single write into a slow `memset` call.
    #[inline(always)]
    fn begin(&mut self, id: u64, parent: u64, clock_ns: u64) {
        set(&mut self.id, 0);
        set(&mut self.contention.total_ns, 0);
        set(&mut self.contention.uncertain_ns, 0);
        self.contention.spans.iter_mut().for_each(|span| set(&mut span.len_ns, 0));
        set(&mut self.limited, 0);
        set(&mut self.apart_ns, 0);
        set(&mut self.born_ns, clock_ns);
        set(&mut self.parent, parent);
        set(&mut self.id, id);
    }
}

/// The union of the whole waits of a cgroup. A cgroup gets it at a wait at a limit. Until then, this union would equal
/// [`Entry::contention`].
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Limited {
    /// Index of the cgroup's entry.
    place: u64,
    /// When the latest wait at a limit ended, ns of `rq->clock`.
    last_ns: u64,
    whole: Union,
}

/// Pressure of a cgroup that has no entry in the tables of the CPUs. It is the sum of its waits on all CPUs, as if they never
/// overlapped.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeptPressure {
    /// Sum of the waits without their time at a limit, ns.
    pub contention_ns: u64,
    /// Sum of the whole waits, ns.
    pub whole_ns: u64,
    /// Maximum amount by which these sums are too large, ns.
    pub uncertain_ns: u64,
}

impl KeptPressure {
    /// Adds to the sums. Several CPUs may call this at the same time.
    #[inline(always)]
    pub fn add(&mut self, more: Self) {
        add_atomic(&mut self.contention_ns, more.contention_ns);
        add_atomic(&mut self.whole_ns, more.whole_ns);
        add_atomic(&mut self.uncertain_ns, more.uncertain_ns);
    }
}

/// The table of pressures of one CPU. Only programs that hold the CPU's run queue lock write this table.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Pressures {
    /// The [handle](crate::host::Task::handle) of the task whose wait is being counted.
    pub task: u64,
    /// All waits that are not counted yet began at or after this time, ns of `rq->clock`.
    quiet_ns: u64,
    /// Not 0 if no other task waited when the batch began.
    is_alone: u64,
    /// How long the first wait of the batch was at a limit, ns.
    limit_ns: u64,
    /// Time of the latest search for entries, ns of `rq->clock`.
    clock_ns: u64,
    /// Id of the cgroup that is the next level. [`add_level`] also needs its handle.
    id: u64,
    handle: u64,
    is_missing: u64,
    levels: u64,
    /// Number of levels for which the batch is not counted yet. The topmost levels are counted first.
    uncounted: u64,
    /// Indices of the entries for the batch's cgroup and its ancestors, or [`NOWHERE`].
    places: [u64; LEVELS],
    /// Ids of the cgroups whose index is [`NOWHERE`].
    ids: [u64; LEVELS],
    pub entries: [Entry; ENTRIES],
    limited: [Limited; LIMITED],
}

impl Pressures {
    /// Returns the union of the whole waits of an entry. Its length includes time at a limit that is in no union.
    pub fn whole(&self, entry: &Entry) -> Union {
        let limited = (entry.limited as usize).checked_sub(1).map(|at| &self.limited[at % LIMITED]);
        // Without the lock, a reader may see the union of another cgroup.
        let own = limited.filter(|limited| self.entries[limited.place as usize % ENTRIES].id == entry.id);
        let mut whole = own.map_or(entry.contention, |limited| limited.whole);
        whole.total_ns += entry.apart_ns;
        whole
    }

    #[inline(always)]
    fn at(&mut self, place: u64) -> &mut Entry {
        wrapped(&mut self.entries, place)
    }

    /// Adds the entry at index `place` as the next level of the batch.
    #[inline(always)]
    fn add_place(&mut self, place: u64) {
        let clock_ns = get(&mut self.clock_ns);
        set(&mut self.at(place).last_ns, clock_ns);
        self.add_level(place);
    }

    #[inline(always)]
    fn add_without_place(&mut self, id: u64) {
        let level = get(&mut self.levels);
        set(wrapped(&mut self.ids, level), id);
        self.add_level(NOWHERE);
    }

    #[inline(always)]
    fn add_level(&mut self, place: u64) {
        let level = get(&mut self.levels);
        set(wrapped(&mut self.places, level), place);
        set(&mut self.levels, level + 1);
    }

    #[inline(always)]
    fn find(&mut self, id: u64) -> u64 {
        let first = first_place(id);
        let mut found = NOWHERE;
        for probe in 0..PROBES as u64 {
            if get(&mut self.at(first + probe).id) == id {
                found = first + probe;
                break;
            }
        }
        found
    }

    /// Gives a [`Limited`] to the entry at index `place`, unless all of them are in use. The entry that had it keeps its time at a
    /// limit.
    #[inline(always)]
    fn limit<H: PressureHost>(&mut self, place: u64) {
        let id = get(&mut self.at(place).id);
        let at = oldest(&mut self.limited, id, |limited| get(&mut limited.last_ns)) & (LIMITED as u64 - 1);
        let limited = wrapped(&mut self.limited, at);
        if get(&mut limited.last_ns) > H::kept_since_ns() {
            return;
        }
        let before = wrapped(&mut self.entries, get(&mut limited.place));
        if get(&mut before.limited) == at + 1 {
            let Union { total_ns, uncertain_ns, .. } = before.contention;
            before.apart_ns += limited.whole.total_ns.saturating_sub(total_ns);
            set(&mut before.contention.uncertain_ns, sorted(uncertain_ns, limited.whole.uncertain_ns).1);
            set(&mut before.limited, 0);
        }
        set(&mut limited.place, place);
        let entry = wrapped(&mut self.entries, place);
        limited.whole = entry.contention;
        set(&mut entry.limited, at + 1);
    }
}

/// Returns the index at which a new cgroup may be entered: an empty entry, or else the least recently used one.
#[inline(always)]
fn oldest<T, const N: usize>(entries: &mut [T; N], id: u64, last_ns: impl Fn(&mut T) -> u64) -> u64 {
    let first = first_place(id);
    let (mut oldest, mut oldest_ns) = (first, u64::MAX);
    for probe in 0..PROBES as u64 {
        let last_ns = last_ns(wrapped(entries, first + probe));
        if last_ns < oldest_ns {
            (oldest, oldest_ns) = (first + probe, last_ns);
        }
    }
    oldest
}

/// Used instead of an index: the cgroup has no entry.
const NOWHERE: u64 = u64::MAX;

#[inline(always)]
const fn first_place(id: u64) -> u64 {
    // Fibonacci hashing: the factor is 2^64 divided by the golden ratio.
    id.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32
}

/// A wait or wait segment that does not fit into the batch.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    pub cpu: u32,
    /// Id of the task's cgroup.
    pub who: u64,
    /// When the wait began, ns of `rq->clock`.
    pub queued_ns: u64,
    /// When the wait ended, ns of `rq->clock`.
    pub clock_ns: u64,
    /// How long the wait was at a limit, ns. This time is at the start of the wait.
    pub limit_ns: u64,
}

/// Counts a wait that does not fit into the batch: counts the old batch, and begins a new batch with this wait.
#[inline(always)]
pub fn press<H: PressureHost>(ended: Ended) {
    let Some(batch) = H::batch(ended.cpu) else { return };
    if batch.cover(&ended) {
        return;
    }
    H::count_batch(ended.cpu);
    let Some(table) = H::pressures(ended.cpu) else { return };
    let task = get(&mut table.task);
    // A wait that overlaps the previous wait was not the only one. `is_alone` is the slowest check, so it is called last.
    let is_overlapping = ended.queued_ns < get(&mut batch.end_ns);
    let is_alone = u64::from(!is_overlapping && H::is_alone(task));
    set(&mut table.is_alone, is_alone);
    if is_alone != 0 {
        set(&mut table.quiet_ns, ended.queued_ns);
    }
    set(&mut table.limit_ns, ended.limit_ns);
    set(&mut table.clock_ns, ended.clock_ns);
    let is_same = get(&mut batch.who) == ended.who;
    if !is_same {
        find_places::<H>(table, task, ended);
    }
    if get(&mut table.id) != 0 {
        // The cgroup has more than `LEVELS` levels.
        H::lost(Loss::PressureForgotten);
    }
    let (end_ns, solid_ns) = (get(&mut batch.end_ns), get(&mut batch.solid_ns));
    let is_limited = ended.limit_ns != 0;
    let is_solid = (solid_ns..end_ns).contains(&ended.queued_ns) && end_ns <= ended.clock_ns;
    let goes_on = is_same && is_solid && !is_limited;
    let from_ns = if goes_on { end_ns } else { ended.queued_ns };
    let new_ns = ended.clock_ns.wrapping_sub(from_ns);
    set(&mut batch.start_ns, from_ns);
    set(&mut batch.end_ns, ended.clock_ns);
    set(&mut batch.len_ns, new_ns);
    let solid_ns = if goes_on { solid_ns } else { ended.queued_ns };
    set(&mut batch.solid_ns, solid_ns);
    set(&mut batch.filled_ns, solid_ns);
    set(&mut batch.who, if is_limited { IDLE } else { ended.who });
    if (new_ns >> LONG_SHIFT) | u64::from(is_limited) != 0 {
        H::count_batch(ended.cpu);
        if get(&mut table.is_alone) != 0 {
            set(&mut table.quiet_ns, ended.clock_ns);
        }
    }
}

/// Finds or adds the entries for the cgroup of `task` and the cgroup's ancestors.
#[inline(always)]
fn find_places<H: PressureHost>(table: &mut Pressures, task: u64, ended: Ended) {
    set(&mut table.levels, 0);
    set(&mut table.is_missing, 0);
    set(&mut table.id, ended.who);
    H::repeat(LEVELS as u32, |cpu| find_level::<H>(*cpu), &mut { ended.cpu });
    if get(&mut table.is_missing) != 0 {
        set(&mut table.levels, 0);
        let mut cgroup = H::cgroup_of(task);
        if H::id_of(cgroup) != ended.who {
            // The task is moving to that cgroup, but it waited in another cgroup.
            cgroup = H::cgroup_of_queue(task);
        }
        set(&mut table.handle, cgroup);
        // `ended.who` cannot be used here, because that cgroup may lack the cpu controller. In that case only an ancestor has a
        // queue.
        set(&mut table.id, H::id_of(cgroup));
        H::repeat(LEVELS as u32, |cpu| add_level::<H>(*cpu), &mut { ended.cpu });
    }
}

/// Finds the entry of the next level. Returns true if there is no next level, or if the next level has no entry.
#[inline(always)]
pub fn find_level<H: PressureHost>(cpu: u32) -> bool {
    let Some(table) = H::pressures(cpu) else { return true };
    let id = get(&mut table.id);
    if id == 0 {
        return true;
    }
    let place = table.find(id);
    if place == NOWHERE {
        set(&mut table.is_missing, 1);
        return true;
    }
    let parent = get(&mut table.at(place).parent);
    set(&mut table.id, parent);
    table.add_place(place);
    false
}

/// Finds or adds the entry of the next level. Returns true if there is no further level.
#[inline(always)]
pub fn add_level<H: PressureHost>(cpu: u32) -> bool {
    let Some(table) = H::pressures(cpu) else { return true };
    let (id, handle) = (get(&mut table.id), get(&mut table.handle));
    if id == 0 {
        return true;
    }
    let above = H::above(handle);
    let parent = if above == 0 { 0 } else { H::id_of(above) };
    set(&mut table.id, parent);
    set(&mut table.handle, above);
    let mut place = table.find(id);
    if place == NOWHERE {
        place = oldest(&mut table.entries, id, |entry| get(&mut entry.last_ns));
        let clock_ns = get(&mut table.clock_ns);
        let entry = table.at(place);
        if get(&mut entry.last_ns) > H::kept_since_ns() {
            table.add_without_place(id);
            return false;
        }
        entry.begin(id, parent, clock_ns);
    }
    table.add_place(place);
    false
}

/// Counts the batch of a CPU, unless it is already counted. After that, further waits can be added to the batch.
#[inline(always)]
pub fn count_batch<H: PressureHost>(cpu: u32) {
    let Some(batch) = H::batch(cpu) else { return };
    let Some(table) = H::pressures(cpu) else { return };
    if get(&mut batch.len_ns) == 0 {
        return;
    }
    // `count_level` decrements this number.
    let levels = get(&mut table.levels);
    set(&mut table.uncounted, levels);
    H::repeat(levels as u32, |cpu| count_level::<H>(*cpu), &mut { cpu });
    set(&mut batch.len_ns, 0);
    let (end_ns, solid_ns) = (get(&mut batch.end_ns), get(&mut batch.solid_ns));
    set(&mut batch.start_ns, end_ns);
    set(&mut batch.filled_ns, solid_ns);
}

/// Counts the batch for one cgroup: its own or an ancestor. Returns true if all levels are counted.
#[inline(always)]
pub fn count_level<H: PressureHost>(cpu: u32) -> bool {
    let Some(batch) = H::batch(cpu) else { return true };
    let Some(table) = H::pressures(cpu) else { return true };
    let left = get(&mut table.uncounted);
    if left == 0 {
        return true;
    }
    set(&mut table.uncounted, left - 1);
    let (start_ns, end_ns, len_ns) =
        (get(&mut batch.start_ns), get(&mut batch.end_ns), get(&mut batch.len_ns));
    let (limit_ns, quiet_ns) = (get(&mut table.limit_ns), get(&mut table.quiet_ns));
    let place = get(wrapped(&mut table.places, left - 1));
    let behind_ns = len_ns.saturating_sub(limit_ns);
    if place == NOWHERE {
        let id = get(wrapped(&mut table.ids, left - 1));
        // Other waits may have covered all of this wait.
        let more = KeptPressure { contention_ns: behind_ns, whole_ns: len_ns, uncertain_ns: len_ns };
        if !H::keep(id, more) {
            H::lost(Loss::PressureForgotten);
        }
        return false;
    }
    if limit_ns != 0 && get(&mut table.at(place).limited) == 0 {
        table.limit::<H>(place);
    }
    let entry = wrapped(&mut table.entries, place);
    set(&mut entry.last_ns, end_ns);
    let limited = get(&mut entry.limited);
    if limited != 0 {
        let limited = wrapped(&mut table.limited, limited - 1);
        if limit_ns != 0 {
            set(&mut limited.last_ns, end_ns);
        }
        // A task at a limit is not on the run queue, so it is unknown when no task waited.
        limited.whole.add(start_ns, end_ns, len_ns, 0);
    } else if limit_ns != 0 {
        // As above.
        entry.apart_ns += len_ns - behind_ns;
        entry.contention.uncertain_ns += len_ns - behind_ns;
    }
    if behind_ns != 0 {
        entry.contention.add(start_ns + limit_ns, end_ns, behind_ns, quiet_ns);
        if !H::throttles_tasks() {
            // This kernel throttles whole queues, so the quota may have run out at any time during the wait, even several times.
            let uncertain_ns = get(&mut entry.contention.uncertain_ns);
            set(&mut entry.contention.uncertain_ns, uncertain_ns + limit_ns.min(behind_ns));
        }
    }
    false
}

#[cfg(test)]
pub(crate) mod tests;

/// Number of spans that a union stores separately. Older spans are merged into one.
pub const SPANS: usize = 4;

/// A span of time. If it was merged, only `len_ns` of it belong to the union. The rest are gaps at unknown times.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// Start, ns of `rq->clock`.
    pub start_ns: u64,
    /// End, ns of `rq->clock`.
    pub end_ns: u64,
    /// Length without the gaps, ns; 0 if there is no span.
    pub len_ns: u64,
}

/// A union of time spans. It stores its length and the latest spans. Spans are added in the order of their ends, except after a
/// switch that the hook did not see.
///
/// The verifier requires that all state is read and written as volatile, see [`look_back`](crate::look_back).
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Union {
    /// Length of the union, ns.
    pub total_ns: u64,
    /// Maximum error of `total_ns`, ns. It grows when a new span begins within a merged span, whose gaps are at unknown times.
    pub uncertain_ns: u64,
    /// The latest spans, newest first. These spans neither overlap nor touch. The oldest span may be several spans that were
    /// merged.
    pub spans: [Span; SPANS],
}

impl Union {
    /// Adds a span. `quiet_ns` is a time: this span and all later ones begin at or after it.
    #[inline(always)]
    pub fn add(&mut self, start_ns: u64, end_ns: u64, len_ns: u64, quiet_ns: u64) {
        let mut new = Span { start_ns, end_ns, len_ns };
        if get(&mut self.spans[0].end_ns) <= quiet_ns {
            self.spans.iter_mut().for_each(|span| set(&mut span.len_ns, 0));
        }
        let mut known_ns = 0;
        for _ in 0..SPANS {
            let Some(old) = self.overlapped(new.start_ns) else { break };
            known_ns += old.len_ns;
            new = self.joined(old, new);
            self.drop_newest();
        }
        self.push(new);
        self.total_ns = get(&mut self.total_ns) + new.len_ns - known_ns;
    }

    /// Returns the newest span if it ends at or after `start_ns`.
    #[inline(always)]
    fn overlapped(&mut self, start_ns: u64) -> Option<Span> {
        let old = read(&mut self.spans[0]);
        (old.len_ns != 0 && old.end_ns >= start_ns).then_some(old)
    }

    /// Joins two spans that overlap or touch. If a gap may lie in the overlap, the overlap is taken as the mean of its minimum
    /// and maximum.
    #[inline(always)]
    fn joined(&mut self, old: Span, new: Span) -> Span {
        let (start_ns, from_ns) = sorted(old.start_ns, new.start_ns);
        let (to_ns, end_ns) = sorted(old.end_ns, new.end_ns);
        let shared_ns = to_ns.saturating_sub(from_ns);
        let (least_of_old, most_of_old) = old.part(shared_ns);
        let (least_of_new, most_of_new) = new.part(shared_ns);
        let least_ns = (least_of_old + least_of_new).saturating_sub(shared_ns);
        let (most_ns, _) = sorted(most_of_old, most_of_new);
        let overlap_ns = least_ns.midpoint(most_ns);
        self.uncertain_ns = get(&mut self.uncertain_ns) + most_ns - overlap_ns;
        Span { start_ns, end_ns, len_ns: old.len_ns + new.len_ns - overlap_ns }
    }

    #[inline(always)]
    fn drop_newest(&mut self) {
        for at in 1..SPANS {
            let span = read(&mut self.spans[at]);
            write(&mut self.spans[at - 1], span);
        }
        set(&mut self.spans[SPANS - 1].len_ns, 0);
    }

    /// Makes `new` the newest span. Merges the two oldest spans if all entries are in use.
    #[inline(always)]
    fn push(&mut self, new: Span) {
        let last = SPANS - 1;
        let (mut before, oldest) = (read(&mut self.spans[last - 1]), read(&mut self.spans[last]));
        if oldest.len_ns != 0 {
            before = Span { start_ns: oldest.start_ns, len_ns: before.len_ns + oldest.len_ns, ..before };
        }
        write(&mut self.spans[last], before);
        for at in (1..last).rev() {
            let span = read(&mut self.spans[at - 1]);
            write(&mut self.spans[at], span);
        }
        write(&mut self.spans[0], new);
    }
}

impl Span {
    /// Returns how much of a part of this span belongs to the union, ns: the minimum and the maximum. The part is `shared_ns`
    /// long.
    #[inline(always)]
    fn part(&self, shared_ns: u64) -> (u64, u64) {
        // A reader without the lock may see the start of one span with the end of another.
        let gaps_ns = self.end_ns.wrapping_sub(self.start_ns).saturating_sub(self.len_ns);
        let (most_ns, _) = sorted(self.len_ns, shared_ns);
        (shared_ns.saturating_sub(gaps_ns), most_ns)
    }
}

#[inline(always)]
fn sorted(a: u64, b: u64) -> (u64, u64) {
    if a < b { (a, b) } else { (b, a) }
}

#[inline(always)]
fn read(span: &mut Span) -> Span {
    Span { start_ns: get(&mut span.start_ns), end_ns: get(&mut span.end_ns), len_ns: get(&mut span.len_ns) }
}

#[inline(always)]
fn write(span: &mut Span, new: Span) {
    set(&mut span.start_ns, new.start_ns);
    set(&mut span.end_ns, new.end_ns);
    set(&mut span.len_ns, new.len_ns);
}
