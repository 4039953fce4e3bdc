//! The simple reference, with which the ledger is compared. It uses the true time, records who ran and when queues were
//! throttled, and splits a segment run by run.

extern crate std;

use std::{
    collections::{BTreeMap, BTreeSet},
    vec::Vec,
};

use super::{
    host::CPUS,
    kernel::{ROOT, existed_before},
};
use crate::{
    ByCause, Cause, Loss,
    culprits::kind,
    history::{BLOCK, IDLE},
    look_back::{KNOWN, LOOK_BACK, cause_of},
    split::LONGEST_WAKEUP_NS,
};

/// A span of true time, ns.
pub(super) type Span = (u64, u64);

fn shared((a, b): Span, (c, d): Span) -> u64 {
    b.min(d).saturating_sub(a.max(c))
}

fn union_ns(mut spans: Vec<Span>) -> u64 {
    spans.sort_unstable();
    let (mut sum_ns, mut covered_ns) = (0, 0);
    for (from_ns, to_ns) in spans {
        sum_ns += to_ns.saturating_sub(from_ns.max(covered_ns));
        covered_ns = covered_ns.max(to_ns);
    }
    sum_ns
}

#[derive(Default)]
pub(super) struct Log {
    /// For each CPU, the start of each run and who ran, in ascending order.
    runs: [Vec<(u64, u64)>; CPUS],
    /// Run time of each cgroup on each CPU without the CPU's latest run, ns.
    sums: BTreeMap<(u64, u32), u64>,
    /// Throttled phases of the queues, by group and CPU. The last phase may not have ended.
    throttled: BTreeMap<(u64, u32), Vec<Span>>,
    /// Charges by victim, culprit and kind.
    pub(super) charges: BTreeMap<(u64, u64, u32), u64>,
    /// Cgroups that no longer exist.
    removed: BTreeSet<u64>,
    /// Time that is charged to removed cgroups, ns.
    pub(super) behind_removed: u64,
    /// Number of losses by name, in segments of more than 0 ns and in segments of 0 ns. The ledger need not split the latter.
    pub(super) losses: BTreeMap<&'static str, (u64, u64)>,
    /// Completed wait segments: the victim, the CPU, the time span, and how long the task was at a limit from the start on.
    pressed: Vec<(u64, u32, Span, u64)>,
}

pub(super) struct Segment {
    pub(super) victim: u64,
    pub(super) cpu: u32,
    pub(super) span: Span,
    /// The cgroup whose quota was used up.
    pub(super) limit: u64,
    /// Time from which throttled phases count; `None` if no throttled time counts.
    pub(super) throttled_since_ns: Option<u64>,
    /// Whether `last_queued` is not the start of a wait.
    pub(super) is_phantom: bool,
    /// Whether the task was throttled when the segment began, but the kernel's clock stood still.
    pub(super) has_no_clock: bool,
    /// Whether the task had no runtime left when the segment began. Then the whole segment counts as out of runtime, even if the
    /// task got new runtime.
    pub(super) began_out_of_runtime: bool,
    /// Whether it is unknown if the task had runtime left when the segment began.
    pub(super) is_doubtful: bool,
    /// Whether the hook saw the segment begin, and the cgroup had run on the CPU before. The ledger treats a sum of 0 as unknown.
    pub(super) is_seen: bool,
}

impl Log {
    pub(super) fn ran(&mut self, cpu: u32, since_ns: u64, who: u64) {
        let runs = &mut self.runs[cpu as usize];
        if let Some((from_ns, before)) = runs.last() {
            *self.sums.entry((*before, cpu)).or_default() += since_ns - from_ns;
        }
        runs.push((since_ns, who));
    }

    /// Returns how long a cgroup has run on a CPU, ns. Returns 0 for the root, because the kernel has no sum for it. If the
    /// cgroup existed before the schedule, the result includes some time from before the schedule.
    pub(super) fn ran_ns(&self, cgroup: u64, cpu: u32, now_ns: u64) -> u64 {
        if cgroup == ROOT {
            return 0;
        }
        let latest = self.runs[cpu as usize].last().filter(|run| run.1 == cgroup);
        let latest_ns = latest.map_or(0, |run| now_ns - run.0);
        let before_ns = u64::from(existed_before(cgroup));
        before_ns + self.sums.get(&(cgroup, cpu)).copied().unwrap_or(0) + latest_ns
    }

    pub(super) fn throttle(&mut self, cgroup: u64, cpu: u32, now_ns: u64) {
        self.throttled.entry((cgroup, cpu)).or_default().push((now_ns, u64::MAX));
    }

    pub(super) fn unthrottle(&mut self, cgroup: u64, cpu: u32, now_ns: u64) {
        let phases = self.throttled.get_mut(&(cgroup, cpu)).expect("it is throttled");
        phases.last_mut().expect("a phase").1 = now_ns;
    }

    /// Removes a cgroup, which must not be throttled.
    pub(super) fn remove(&mut self, cgroup: u64) {
        self.removed.insert(cgroup);
    }

    /// Returns the runs on a CPU, beginning with the run at `from_ns`.
    fn runs_since(&self, cpu: u32, from_ns: u64) -> &[(u64, u64)] {
        let runs = &self.runs[cpu as usize];
        &runs[runs.partition_point(|run| run.0 <= from_ns).saturating_sub(1)..]
    }

    fn throttled_ns(&self, cgroup: u64, cpu: u32, span: Span) -> u64 {
        self.throttled.get(&(cgroup, cpu)).into_iter().flatten().map(|phase| shared(*phase, span)).sum()
    }

    /// Returns the maximum error of the ledger for a segment, ns. If the history has all slices of the segment, the error is 0.
    /// Otherwise the error is the time from the start of the segment to the end of the block in which the segment began. If the
    /// segment began before the history and [`Segment::is_seen`] is false, the error is the whole segment.
    pub(super) fn uncertain_ns(&self, segment: &Segment) -> u64 {
        let (from_ns, to_ns) = segment.span;
        let mut later = self.runs_since(segment.cpu, from_ns).to_vec();
        later.dedup_by_key(|run| run.1);
        if self.is_beyond_history(segment) && !segment.is_seen {
            return to_ns - from_ns;
        }
        let has_blocks = later.len() > LOOK_BACK / 2;
        if has_blocks { later[BLOCK + 1].0.min(to_ns) - from_ns } else { 0 }
    }

    pub(super) fn is_beyond_history(&self, segment: &Segment) -> bool {
        self.runs_since(segment.cpu, segment.span.0).len() > KNOWN
    }

    /// Adds a segment with these parts by cause to the spans from which the pressure is computed.
    pub(super) fn press(&mut self, segment: &Segment, parts: &ByCause) {
        let limit_ns = parts[Cause::Throttled as usize] + parts[Cause::RtThrottled as usize];
        if !segment.is_phantom {
            self.pressed.push((segment.victim, segment.cpu, segment.span, limit_ns));
        }
    }

    /// Returns the pressure of a cgroup on a CPU, ns: first the contention, then the whole waits.
    pub(super) fn pressure(&self, cgroup: u64, cpu: u32) -> (u64, u64) {
        let counts = |victim: u64| cgroup == ROOT || cgroup == victim;
        let of = self.pressed.iter().filter(|(victim, on, ..)| counts(*victim) && *on == cpu);
        let (behind, whole) = of
            .map(|(.., (from_ns, to_ns), limit_ns)| ((from_ns + limit_ns, *to_ns), (*from_ns, *to_ns)))
            .unzip();
        (union_ns(behind), union_ns(whole))
    }

    pub(super) fn latest(&self, cpu: u32) -> u64 {
        self.runs[cpu as usize].last().map_or(IDLE, |run| run.1)
    }

    fn lose(&mut self, counts: bool, loss: Loss, (from_ns, to_ns): Span) {
        let (split, empty) = self.losses.entry(loss.name()).or_default();
        *(if from_ns < to_ns { split } else { empty }) += u64::from(counts);
    }

    /// Splits a segment. Charges the culprits only if `charge` is true.
    pub(super) fn split(&mut self, segment: &Segment, charge: bool) -> ByCause {
        let (mut parts, (from_ns, to_ns), victim) = (ByCause::default(), segment.span, segment.victim);
        if segment.is_phantom {
            self.lose(charge, Loss::MovedAsleep, segment.span);
            parts[Cause::Unattributed as usize] = to_ns - from_ns;
            return parts;
        }
        if segment.began_out_of_runtime {
            parts[Cause::RtThrottled as usize] = to_ns - from_ns;
            return parts;
        }
        if segment.has_no_clock {
            return self.split_without_clock(segment, charge);
        }
        let throttled_ns = segment
            .throttled_since_ns
            .map_or(0, |since_ns| self.throttled_ns(victim, segment.cpu, (since_ns, to_ns)))
            .min(to_ns - from_ns);
        parts[Cause::Throttled as usize] = throttled_ns;
        let mut charges = Vec::new();
        charges.push((victim, kind::LIMITED, throttled_ns));
        let runs = self.runs_since(segment.cpu, from_ns);
        for (at, (since_ns, who)) in runs.iter().enumerate() {
            let until_ns = runs.get(at + 1).map_or(u64::MAX, |next| next.0);
            let ns = shared((*since_ns, until_ns), (from_ns + throttled_ns, to_ns));
            let cause = cause_of(*who, victim);
            parts[cause as usize] += ns;
            if cause == Cause::OtherCgroup {
                charges.push((*who, kind::RAN, ns));
            }
        }
        let idle_ns = parts[Cause::Wakeup as usize];
        if segment.is_doubtful && idle_ns > LONGEST_WAKEUP_NS {
            self.lose(charge, Loss::OutOfRuntime, segment.span);
            parts[Cause::Wakeup as usize] = 0;
            parts[Cause::Unattributed as usize] += idle_ns;
        }
        for (who, kind, ns) in charges.into_iter().filter(|(.., ns)| charge && *ns != 0) {
            assert_ne!(who, IDLE);
            self.behind_removed += u64::from(self.removed.contains(&who));
            *self.charges.entry((victim, who, kind)).or_default() += ns;
        }
        parts
    }

    /// Splits a segment of a task that was throttled while the kernel's clock stood still. The task was throttled while no task
    /// ran.
    fn split_without_clock(&mut self, segment: &Segment, charge: bool) -> ByCause {
        let (mut parts, (from_ns, to_ns), victim) = (ByCause::default(), segment.span, segment.victim);
        let runs = self.runs[segment.cpu as usize].windows(2);
        let last = self.runs[segment.cpu as usize].last().expect("the first run");
        let idle = runs
            .filter(|pair| pair[0].1 == IDLE)
            .map(|pair| (pair[0].0, pair[1].0))
            .chain((last.1 == IDLE).then_some((last.0, u64::MAX)));
        let idle_ns = idle.map(|span| shared(span, segment.span)).sum();
        parts[Cause::Throttled as usize] = idle_ns;
        parts[Cause::Unattributed as usize] = to_ns - from_ns - idle_ns;
        self.lose(charge, Loss::MovedThrottled, segment.span);
        if charge && idle_ns != 0 {
            *self.charges.entry((victim, segment.limit, kind::LIMITED)).or_default() += idle_ns;
        }
        parts
    }
}
