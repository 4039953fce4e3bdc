//! Writes a Perfetto trace. The trace has counters of waiting by cause, running and throttling: for the host, for each cgroup
//! including its descendants, for processes and for busy threads. It also has the busy time of each CPU, and findings as instant
//! events.
//!
//! A counter has the figure of an interval from the start of this interval on. The sum over all intervals is the total.

use std::collections::{BTreeMap, BTreeSet};
use std::{io::Write, mem, sync::Arc};

use cgscope_model::{
    Finding, Group, Interval, Totals, Wait, cgroup_name::UNNAMED, findings::findings,
    path::path_and_ancestors, sum, table::interval::Process,
};
use prost::Message;

use crate::{About, Out, Result, Sink};
use proto::{
    COUNTER, Clock, ClockSnapshot, CounterDescriptor, DebugAnnotation, INSTANT, LEXICOGRAPHIC,
    ProcessDescriptor, REALTIME, ThreadDescriptor, Trace, TracePacket, TrackDescriptor, TrackEvent,
    UNIT_COUNT, UNIT_TIME_NS,
};

/// `SEQ_INCREMENTAL_STATE_CLEARED`: later packets do not depend on earlier packets.
const STATE_CLEARED: u32 = 1;
/// Id of the only packet sequence. All packets come from the same writer.
const SEQUENCE: u32 = 1;

/// A track that contains other tracks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Scope {
    Host,
    Cpus,
    Cgroups,
    Cgroup(Option<Arc<str>>),
    /// Process id and name.
    Process(u32, Arc<str>),
    /// Process id, serial, thread id and name. If a thread id is reused, the new thread gets a new track.
    Thread(u32, u64, u32, Arc<str>),
}

/// Maximum number of removed cgroups whose tracks we keep. If such a cgroup is created again, it gets its old track.
const REMOVED_CGROUPS: usize = 1_000;

struct Track {
    uuid: u64,
    counters: BTreeMap<String, u64>,
}

pub(crate) struct Perfetto {
    out: Out,
    about: About,
    last_uuid: u64,
    scopes: BTreeMap<Scope, Track>,
    /// Tracks of the counters that were not 0 in the previous interval and that this interval has not set yet.
    shown: BTreeSet<u64>,
    /// Tracks of the counters that are not 0 in this interval.
    set: BTreeSet<u64>,
    now_unix_ns: u64,
}

impl Perfetto {
    /// Starts a trace, whose times are wall clock times.
    pub(crate) fn new(out: Out, about: About) -> Result<Self> {
        let now_unix_ns = about.start_unix_ns;
        let (scopes, shown, set) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        let mut trace = Self { out, about, last_uuid: 0, scopes, shown, set, now_unix_ns };
        let clock = Clock { clock_id: Some(REALTIME), timestamp: Some(now_unix_ns) };
        trace.write(TracePacket {
            clock_snapshot: Some(ClockSnapshot { clocks: vec![clock], primary_trace_clock: Some(REALTIME) }),
            sequence_flags: Some(STATE_CLEARED),
            first_packet_on_sequence: Some(true),
            ..TracePacket::default()
        })?;
        Ok(trace)
    }

    fn host(&mut self, interval: &Interval) -> Result<()> {
        self.group(interval, &Scope::Host, &interval.total())?;
        let losses = sum::total(interval.losses.shown().map(|(_, count)| count));
        self.count(&Scope::Host, "losses", UNIT_COUNT, losses)?;
        for cpu in &interval.cpus {
            self.count(&Scope::Cpus, &format!("busy CPU {:>3}", cpu.cpu), UNIT_TIME_NS, cpu.busy_ns)?;
        }
        Ok(())
    }

    fn cgroups(&mut self, interval: &Interval) -> Result<()> {
        for (path, group) in interval.by_cgroup() {
            self.group(interval, &Scope::Cgroup(path), &group)?;
        }
        for limits in interval.limits.iter().filter(|limits| limits.quota_us.is_some()) {
            let Some(path) = interval.cgroup_path(limits.id) else { continue };
            let scope = Scope::Cgroup(Some(path.clone()));
            // As the kernel counts: how long the quota kept each CPU from running the cgroup (summed), and in how many periods.
            self.count(&scope, "cpu.stat throttled", UNIT_TIME_NS, limits.throttled_ns)?;
            self.count(&scope, "cpu.stat periods throttled", UNIT_COUNT, limits.nr_throttled)?;
        }
        Ok(())
    }

    fn group(&mut self, interval: &Interval, scope: &Scope, group: &Group) -> Result<()> {
        for (cause, _) in group.wait.by_cause.iter() {
            let waited_ns = group.wait.by_cause.known(cause, interval.mode);
            self.count(scope, &format!("waited: {}", cause.name()), UNIT_TIME_NS, waited_ns)?;
        }
        self.count(scope, "waiting at the end", UNIT_COUNT, interval.mode.exact(|| group.pending))?;
        self.waits(scope, &group.wait, &group.totals)
    }

    fn waits(&mut self, scope: &Scope, wait: &Wait, totals: &Totals) -> Result<()> {
        self.count(scope, "waited", UNIT_TIME_NS, wait.total_ns)?;
        self.count(scope, "waits", UNIT_COUNT, wait.count)?;
        self.count(scope, "ran", UNIT_TIME_NS, totals.on_cpu_ns)
    }

    /// Writes counters of processes that ran or waited, and of busy threads.
    fn processes(&mut self, interval: &Interval) -> Result<()> {
        let names = interval.naming_tasks();
        let name = |pid: u32| names.get(&pid).map(|task| task.comm.clone());
        let scope = |pid: u32| Scope::Process(pid, name(pid).unwrap_or_default());
        for Process { pid, group, .. } in interval.processes() {
            if group.wait.count != 0 || group.totals.on_cpu_ns != 0 {
                self.waits(&scope(pid), &group.wait, &group.totals)?;
            }
        }
        for task in interval.tasks.iter().filter(|task| task.is_busy(interval.duration_ns)) {
            let reading = &task.reading;
            // Describe the process first, because the descriptor of a thread refers to its process.
            self.scope(&scope(reading.tgid))?;
            let thread = Scope::Thread(reading.tgid, reading.serial, reading.tid, reading.comm.clone());
            self.waits(&thread, &task.wait, &task.totals)?;
        }
        Ok(())
    }

    fn write(&mut self, packet: TracePacket) -> Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        // The packets are the only field of a trace, so the trace can be written packet by packet.
        Ok(self.out.write_all(&Trace { packet: vec![packet] }.encode_to_vec())?)
    }

    fn event(&mut self, event: TrackEvent) -> Result<()> {
        self.write(TracePacket {
            timestamp: Some(self.now_unix_ns),
            timestamp_clock_id: Some(REALTIME),
            track_event: Some(event),
            ..TracePacket::default()
        })
    }

    fn describe(&mut self, descriptor: TrackDescriptor) -> Result<u64> {
        self.last_uuid += 1;
        let uuid = Some(self.last_uuid);
        let track_descriptor = Some(TrackDescriptor { uuid, ..descriptor });
        self.write(TracePacket { track_descriptor, ..TracePacket::default() })?;
        Ok(self.last_uuid)
    }

    /// Returns the track of a scope. At the first use of the scope, writes the descriptors of its parents and of the scope.
    fn scope(&mut self, scope: &Scope) -> Result<u64> {
        if let Some(track) = self.scopes.get(scope) {
            return Ok(track.uuid);
        }
        let parent_uuid = parent(scope).map(|parent| self.scope(&parent)).transpose()?;
        let uuid = self.describe(TrackDescriptor { parent_uuid, ..self.descriptor(scope) })?;
        self.scopes.insert(scope.clone(), Track { uuid, counters: BTreeMap::new() });
        Ok(uuid)
    }

    fn descriptor(&self, scope: &Scope) -> TrackDescriptor {
        let named = |name: &str| TrackDescriptor {
            name: Some(name.to_owned()),
            child_ordering: Some(LEXICOGRAPHIC),
            ..TrackDescriptor::default()
        };
        let id = |number: &u32| i32::try_from(*number).ok();
        match scope {
            Scope::Host => named(&format!("cgscope: host {}", self.about.hostname)),
            Scope::Cpus => named("CPUs"),
            Scope::Cgroups => named("cgroups"),
            Scope::Cgroup(path) => named(path.as_deref().unwrap_or(UNNAMED)),
            Scope::Process(pid, name) => {
                let process = ProcessDescriptor { pid: id(pid), process_name: Some(name.to_string()) };
                TrackDescriptor { process: Some(process), ..TrackDescriptor::default() }
            }
            Scope::Thread(pid, _, tid, name) => {
                let thread_name = Some(name.to_string());
                let thread = ThreadDescriptor { pid: id(pid), tid: id(tid), thread_name };
                TrackDescriptor { thread: Some(thread), ..TrackDescriptor::default() }
            }
        }
    }

    /// Sets a counter from the current time on, if the value is known. While a counter stays at 0, nothing is written.
    fn count(&mut self, scope: &Scope, name: &str, unit: i32, value: impl Into<Option<u64>>) -> Result<()> {
        let Some(value) = value.into() else { return Ok(()) };
        let parent = self.scope(scope)?;
        let known = self.scopes.get(scope).and_then(|track| track.counters.get(name)).copied();
        let uuid = match known {
            Some(uuid) => uuid,
            None if value == 0 => return Ok(()),
            None => {
                let uuid = self.describe(TrackDescriptor {
                    name: Some(name.to_owned()),
                    parent_uuid: Some(parent),
                    counter: Some(CounterDescriptor { unit: Some(unit) }),
                    ..TrackDescriptor::default()
                })?;
                if let Some(track) = self.scopes.get_mut(scope) {
                    track.counters.insert(name.to_owned(), uuid);
                }
                uuid
            }
        };
        let was_shown = self.shown.remove(&uuid) | self.set.remove(&uuid);
        if value != 0 {
            self.set.insert(uuid);
        } else if !was_shown {
            return Ok(());
        }
        self.show(uuid, value)
    }

    fn show(&mut self, uuid: u64, value: u64) -> Result<()> {
        self.event(TrackEvent {
            r#type: Some(COUNTER),
            track_uuid: Some(uuid),
            counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
            ..TrackEvent::default()
        })
    }

    /// Sets counters that this interval did not set to 0. Drops the tracks of exited tasks, and of many removed cgroups.
    fn end_interval(&mut self, is_present: impl Fn(&Scope) -> bool) -> Result<()> {
        for uuid in mem::replace(&mut self.shown, mem::take(&mut self.set)) {
            self.show(uuid, 0)?;
        }
        let is_cgroup = |scope: &Scope| matches!(scope, Scope::Cgroup(_));
        let removed = self.scopes.keys().filter(|scope| is_cgroup(scope) && !is_present(scope));
        let is_full = removed.count() > REMOVED_CGROUPS;
        self.scopes.retain(|scope, _| is_present(scope) || is_cgroup(scope) && !is_full);
        Ok(())
    }
}

impl Sink for Perfetto {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.now_unix_ns = interval.start_unix_ns;
        self.host(interval)?;
        self.cgroups(interval)?;
        self.processes(interval)?;
        for finding in findings(interval, &self.about.host) {
            let cgroup = finding.cgroup.clone().map(|path| Scope::Cgroup(Some(path)));
            let track_uuid = Some(self.scope(&cgroup.unwrap_or(Scope::Host))?);
            self.event(TrackEvent {
                r#type: Some(INSTANT),
                track_uuid,
                categories: vec!["finding".to_owned()],
                name: Some(finding.says.to_string()),
                debug_annotations: annotations(&finding),
                ..TrackEvent::default()
            })?;
        }
        let processes: BTreeSet<u32> = interval.readings().map(|task| task.tgid).collect();
        let threads: BTreeSet<u64> = interval.readings().map(|task| task.serial).collect();
        let cgroups: BTreeSet<&str> =
            interval.cgroups.iter().flat_map(|(_, path)| path_and_ancestors(path)).collect();
        self.end_interval(|scope| match scope {
            Scope::Process(pid, _) => processes.contains(pid),
            Scope::Thread(_, serial, ..) => threads.contains(serial),
            Scope::Cgroup(Some(path)) => cgroups.contains(&**path),
            Scope::Host | Scope::Cpus | Scope::Cgroups | Scope::Cgroup(None) => true,
        })?;
        self.now_unix_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.end_interval(|_| true)?;
        Ok(self.out.flush()?)
    }
}

fn annotations(finding: &Finding) -> Vec<DebugAnnotation> {
    let named = |name: &str| DebugAnnotation { name: Some(name.to_owned()), ..DebugAnnotation::default() };
    let text = |name, text: &str| DebugAnnotation { string_value: Some(text.to_owned()), ..named(name) };
    let mut all = vec![text("rule", finding.rule.name()), text("advice", &finding.advice)];
    all.extend(finding.cgroup.as_deref().map(|path| text("cgroup", path)));
    all.push(DebugAnnotation { uint_value: Some(finding.lost_ns), ..named("lost_ns") });
    all
}

fn parent(scope: &Scope) -> Option<Scope> {
    match scope {
        // A thread has no parent track, because its descriptor refers to its process.
        Scope::Host | Scope::Process(..) | Scope::Thread(..) => None,
        Scope::Cpus | Scope::Cgroups => Some(Scope::Host),
        Scope::Cgroup(path) => {
            let above = path.as_deref().and_then(|path| path_and_ancestors(path).nth(1));
            Some(above.map_or(Scope::Cgroups, |above| Scope::Cgroup(Some(above.into()))))
        }
    }
}

/// The parts of Perfetto's `trace_packet.proto` (package `perfetto.protos`) that we use.
pub mod proto {
    /// `BUILTIN_CLOCK_REALTIME`.
    pub const REALTIME: u32 = 1;
    /// `TrackDescriptor.ChildTracksOrdering.LEXICOGRAPHIC`.
    pub const LEXICOGRAPHIC: i32 = 1;
    /// `TrackEvent.TYPE_INSTANT`.
    pub const INSTANT: i32 = 3;
    /// `TrackEvent.TYPE_COUNTER`.
    pub const COUNTER: i32 = 4;

    /// `CounterDescriptor.UNIT_TIME_NS`.
    pub const UNIT_TIME_NS: i32 = 1;
    /// `CounterDescriptor.UNIT_COUNT`.
    pub const UNIT_COUNT: i32 = 2;

    cgscope_model::messages! {
        Trace { "1" packet: Vec<TracePacket>, [message, repeated]; }
        TracePacket {
            "6" clock_snapshot: Option<ClockSnapshot>, [message, optional];
            "8" timestamp: Option<u64>, [uint64, optional];
            "10" trusted_packet_sequence_id: Option<u32>, [uint32, optional];
            "11" track_event: Option<TrackEvent>, [message, optional];
            "13" sequence_flags: Option<u32>, [uint32, optional];
            "58" timestamp_clock_id: Option<u32>, [uint32, optional];
            "60" track_descriptor: Option<TrackDescriptor>, [message, optional];
            "87" first_packet_on_sequence: Option<bool>, [bool, optional];
        }
        ClockSnapshot {
            "1" clocks: Vec<Clock>, [message, repeated];
            "2" primary_trace_clock: Option<u32>, [uint32, optional];
        }
        Clock {
            "1" clock_id: Option<u32>, [uint32, optional];
            "2" timestamp: Option<u64>, [uint64, optional];
        }
        TrackDescriptor {
            "1" uuid: Option<u64>, [uint64, optional];
            "2" name: Option<String>, [string, optional];
            "3" process: Option<ProcessDescriptor>, [message, optional];
            "4" thread: Option<ThreadDescriptor>, [message, optional];
            "5" parent_uuid: Option<u64>, [uint64, optional];
            "8" counter: Option<CounterDescriptor>, [message, optional];
            "11" child_ordering: Option<i32>, [int32, optional];
        }
        ProcessDescriptor {
            "1" pid: Option<i32>, [int32, optional];
            "6" process_name: Option<String>, [string, optional];
        }
        ThreadDescriptor {
            "1" pid: Option<i32>, [int32, optional];
            "2" tid: Option<i32>, [int32, optional];
            "5" thread_name: Option<String>, [string, optional];
        }
        CounterDescriptor { "3" unit: Option<i32>, [int32, optional]; }
        TrackEvent {
            "4" debug_annotations: Vec<DebugAnnotation>, [message, repeated];
            "9" r#type: Option<i32>, [int32, optional];
            "11" track_uuid: Option<u64>, [uint64, optional];
            "22" categories: Vec<String>, [string, repeated];
            "23" name: Option<String>, [string, optional];
            "30" counter_value: Option<i64>, [int64, optional];
        }
        DebugAnnotation {
            "3" uint_value: Option<u64>, [uint64, optional];
            "6" string_value: Option<String>, [string, optional];
            "10" name: Option<String>, [string, optional];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exited_tasks_lose_their_tracks_and_others_keep_them() {
        let mut tracks =
            Perfetto::new(Box::new(std::io::sink()), About::default()).expect("nothing can fail");
        let stays = Scope::Cgroup(Some("/stays".into()));
        for n in 0..3_000u32 {
            let path = format!("/gone-{n}");
            let present = [
                stays.clone(),
                Scope::Cgroup(Some(path.as_str().into())),
                Scope::Process(n, "p".into()),
                Scope::Thread(n, n.into(), n, "t".into()),
            ];
            for scope in &present {
                tracks.count(scope, "ran", UNIT_TIME_NS, 5).expect("a sink takes all");
            }
            let is_present = |scope: &Scope| {
                let is_parent = matches!(scope, Scope::Host | Scope::Cgroups)
                    || *scope == Scope::Cgroup(Some("/".into()));
                is_parent || present.contains(scope)
            };
            tracks.end_interval(is_present).expect("a sink takes all");
            assert_eq!(tracks.shown.len(), 4, "only counters that this interval set");
            assert!(tracks.scopes.len() <= REMOVED_CGROUPS + 8, "{}", tracks.scopes.len());
        }
        let of = |scope: &Scope| tracks.scopes.get(scope).map(|track| track.counters.len());
        assert_eq!(of(&stays), Some(1));
        assert_eq!(tracks.scopes.keys().filter(|scope| matches!(scope, Scope::Thread(..))).count(), 1);
        assert_eq!(tracks.scopes.keys().filter(|scope| matches!(scope, Scope::Process(..))).count(), 1);
    }
}
