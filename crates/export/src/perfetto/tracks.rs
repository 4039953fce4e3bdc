//! Tracks, described when they are first used, and what counters show.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    sync::Arc,
};

use cgscope_model::{cgroup_name::UNNAMED, selection::path_and_ancestors};
use prost::Message;

use super::proto::{
    BuiltinClock, ChildTracksOrdering, Clock, ClockSnapshot, CounterDescriptor, CounterUnit, DebugAnnotation,
    EventType, ProcessDescriptor, ThreadDescriptor, TracePacket, TrackDescriptor, TrackEvent,
};
use crate::{Out, Result};

/// The field `packet` of the message `Trace`: a length and that many bytes follow.
const PACKET_KEY: u8 = 1 << 3 | 2;
/// All packets are of one writer.
const SEQUENCE: u32 = 1;
/// `SEQ_INCREMENTAL_STATE_CLEARED`: what follows depends on nothing before.
const STATE_CLEARED: u32 = 1;

/// Tracks that hold others.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Scope {
    Host,
    Cpus,
    Cgroups,
    /// Under the track of its parent.
    Cgroup(Option<Arc<str>>),
    /// A process and its name.
    Process(u32, Arc<str>),
    /// A thread: process, serial, thread, name. Where a tid is reused it is another track.
    Thread(u32, u64, u32, Arc<str>),
}

/// So many cgroups that are gone keep their tracks, lest one that comes again has two.
const GONE_CGROUPS: usize = 1_000;

/// The track of a scope, and those of its counters by name.
#[derive(Debug)]
struct Track {
    uuid: u64,
    counters: BTreeMap<String, u64>,
}

/// What was there in an interval: who was not is forgotten.
#[derive(Debug, Default)]
pub(super) struct There<'a> {
    pub processes: BTreeSet<u32>,
    /// Serials.
    pub threads: BTreeSet<u64>,
    /// Paths, with those above them.
    pub cgroups: BTreeSet<&'a str>,
}

/// Writes packets.
pub(super) struct Tracks {
    out: Out,
    buffer: Vec<u8>,
    host: String,
    last_uuid: u64,
    scopes: BTreeMap<Scope, Track>,
    /// Counters that do not show 0, and the interval in which each was set last.
    shown: BTreeMap<u64, u64>,
    interval: u64,
}

impl Tracks {
    /// Begins the trace, whose clock is the wall clock.
    pub(super) fn new(out: Out, host: String, start_unix_ns: u64) -> Result<Self> {
        let mut tracks = Self {
            out,
            buffer: Vec::new(),
            host,
            last_uuid: 0,
            scopes: BTreeMap::new(),
            shown: BTreeMap::new(),
            interval: 0,
        };
        let realtime = BuiltinClock::Realtime as i32;
        tracks.write(TracePacket {
            clock_snapshot: Some(ClockSnapshot {
                clocks: vec![Clock {
                    clock_id: Some(realtime.cast_unsigned()),
                    timestamp: Some(start_unix_ns),
                }],
                primary_trace_clock: Some(realtime),
            }),
            sequence_flags: Some(STATE_CLEARED),
            first_packet_on_sequence: Some(true),
            ..TracePacket::default()
        })?;
        Ok(tracks)
    }

    fn write(&mut self, packet: TracePacket) -> Result<()> {
        let packet = TracePacket { trusted_packet_sequence_id: Some(SEQUENCE), ..packet };
        self.buffer.clear();
        self.buffer.push(PACKET_KEY);
        // It fails for want of room alone, and a Vec grows.
        let _ = packet.encode_length_delimited(&mut self.buffer);
        Ok(self.out.write_all(&self.buffer)?)
    }

    fn event(&mut self, unix_ns: u64, event: TrackEvent) -> Result<()> {
        self.write(TracePacket {
            timestamp: Some(unix_ns),
            timestamp_clock_id: Some((BuiltinClock::Realtime as i32).cast_unsigned()),
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

    /// Sees to it that the track of a scope is described.
    pub(super) fn describe_scope(&mut self, scope: &Scope) -> Result<()> {
        self.scope(scope).map(drop)
    }

    /// The track of a scope, described with those above it where that was not done yet.
    fn scope(&mut self, scope: &Scope) -> Result<u64> {
        if let Some(track) = self.scopes.get(scope) {
            return Ok(track.uuid);
        }
        let parent_uuid = match parent(scope) {
            Some(parent) => Some(self.scope(&parent)?),
            None => None,
        };
        let uuid = self.describe(TrackDescriptor { parent_uuid, ..self.descriptor(scope) })?;
        self.scopes.insert(scope.clone(), Track { uuid, counters: BTreeMap::new() });
        Ok(uuid)
    }

    fn descriptor(&self, scope: &Scope) -> TrackDescriptor {
        let named = |name: &str| TrackDescriptor {
            name: Some(name.to_owned()),
            child_ordering: Some(ChildTracksOrdering::Lexicographic as i32),
            ..TrackDescriptor::default()
        };
        let id = |number: &u32| i32::try_from(*number).ok();
        match scope {
            Scope::Host => named(&format!("cgscope: host {}", self.host)),
            Scope::Cpus => named("CPUs"),
            Scope::Cgroups => named("cgroups"),
            Scope::Cgroup(path) => named(path.as_deref().unwrap_or(UNNAMED)),
            Scope::Process(pid, name) => TrackDescriptor {
                process: Some(ProcessDescriptor { pid: id(pid), process_name: Some(name.to_string()) }),
                ..TrackDescriptor::default()
            },
            Scope::Thread(pid, _, tid, name) => TrackDescriptor {
                thread: Some(ThreadDescriptor {
                    pid: id(pid),
                    tid: id(tid),
                    thread_name: Some(name.to_string()),
                }),
                ..TrackDescriptor::default()
            },
        }
    }

    /// From here on counters are of the next interval.
    pub(super) fn begin_interval(&mut self) {
        self.interval += 1;
    }

    /// Shows a value from `unix_ns` on. What stays at 0 is not written.
    pub(super) fn count(
        &mut self,
        scope: &Scope,
        name: &str,
        unit: CounterUnit,
        unix_ns: u64,
        value: u64,
    ) -> Result<()> {
        let parent = self.scope(scope)?;
        let known = self.scopes.get(scope).and_then(|track| track.counters.get(name)).copied();
        let uuid = match known {
            Some(uuid) => uuid,
            None if value == 0 => return Ok(()),
            None => {
                let uuid = self.counter(parent, name, unit)?;
                if let Some(track) = self.scopes.get_mut(scope) {
                    track.counters.insert(name.to_owned(), uuid);
                }
                uuid
            }
        };
        if value != 0 {
            self.shown.insert(uuid, self.interval);
        } else if self.shown.remove(&uuid).is_none() {
            return Ok(());
        }
        self.show(uuid, unix_ns, value)
    }

    fn counter(&mut self, parent: u64, name: &str, unit: CounterUnit) -> Result<u64> {
        self.describe(TrackDescriptor {
            name: Some(name.to_owned()),
            parent_uuid: Some(parent),
            counter: Some(CounterDescriptor { unit: Some(unit as i32) }),
            ..TrackDescriptor::default()
        })
    }

    fn show(&mut self, uuid: u64, unix_ns: u64, value: u64) -> Result<()> {
        self.event(
            unix_ns,
            TrackEvent {
                r#type: Some(EventType::Counter as i32),
                track_uuid: Some(uuid),
                counter_value: Some(i64::try_from(value).unwrap_or(i64::MAX)),
                ..TrackEvent::default()
            },
        )
    }

    /// Sets to 0 what this interval did not set: who is gone, or did nothing. Who is gone is forgotten.
    pub(super) fn end_interval(&mut self, unix_ns: u64, there: &There) -> Result<()> {
        let interval = self.interval;
        let mut late = Vec::new();
        self.shown.retain(|uuid, set| {
            let is_now = *set == interval;
            late.extend((!is_now).then_some(*uuid));
            is_now
        });
        late.into_iter().try_for_each(|uuid| self.show(uuid, unix_ns, 0))?;
        self.forget(there);
        Ok(())
    }

    fn forget(&mut self, there: &There) {
        let is_gone = |scope: &Scope| match scope {
            Scope::Cgroup(Some(path)) => !there.cgroups.contains(&**path),
            _ => false,
        };
        let forgets_cgroups = self.scopes.keys().filter(|scope| is_gone(scope)).count() > GONE_CGROUPS;
        self.scopes.retain(|scope, _| match scope {
            Scope::Process(pid, _) => there.processes.contains(pid),
            Scope::Thread(_, serial, ..) => there.threads.contains(serial),
            scope => !(forgets_cgroups && is_gone(scope)),
        });
    }

    /// Something that is said at a moment, on the track of `scope`.
    pub(super) fn say(
        &mut self,
        scope: &Scope,
        unix_ns: u64,
        category: &str,
        says: &str,
        about: Vec<DebugAnnotation>,
    ) -> Result<()> {
        let track_uuid = Some(self.scope(scope)?);
        self.event(
            unix_ns,
            TrackEvent {
                r#type: Some(EventType::Instant as i32),
                track_uuid,
                categories: vec![category.to_owned()],
                name: Some(says.to_owned()),
                debug_annotations: about,
                ..TrackEvent::default()
            },
        )
    }

    /// Ends all counters.
    pub(super) fn finish(mut self, unix_ns: u64) -> Result<()> {
        let shown: Vec<u64> = std::mem::take(&mut self.shown).into_keys().collect();
        shown.into_iter().try_for_each(|uuid| self.show(uuid, unix_ns, 0))?;
        Ok(self.out.flush()?)
    }
}

fn parent(scope: &Scope) -> Option<Scope> {
    match scope {
        Scope::Host | Scope::Process(..) => None,
        Scope::Cpus | Scope::Cgroups => Some(Scope::Host),
        Scope::Cgroup(path) => {
            let above = path.as_deref().and_then(|path| path_and_ancestors(path).nth(1));
            Some(above.map_or(Scope::Cgroups, |above| Scope::Cgroup(Some(above.into()))))
        }
        // The thread's own descriptor says whose it is.
        Scope::Thread(..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_gone_is_forgotten_and_the_rest_keeps_its_track() {
        let mut tracks = Tracks::new(Box::new(std::io::sink()), "host".into(), 0).expect("nothing can fail");
        let stays = Scope::Cgroup(Some("/stays".into()));
        for n in 0..3_000u32 {
            tracks.begin_interval();
            let path = format!("/gone-{n}");
            let there = There {
                processes: BTreeSet::from([n]),
                threads: BTreeSet::from([n.into()]),
                cgroups: BTreeSet::from(["/", "/stays", &*path]),
            };
            for scope in [
                stays.clone(),
                Scope::Cgroup(Some(path.as_str().into())),
                Scope::Process(n, "p".into()),
                Scope::Thread(n, n.into(), n, "t".into()),
            ] {
                tracks.count(&scope, "ran", CounterUnit::TimeNs, n.into(), 5).expect("a sink takes all");
            }
            tracks.end_interval(n.into(), &there).expect("a sink takes all");
            assert_eq!(tracks.shown.len(), 4, "what was set in this interval alone");
            assert!(tracks.scopes.len() <= GONE_CGROUPS + 8, "{}", tracks.scopes.len());
        }
        let of = |scope: &Scope| tracks.scopes.get(scope).map(|track| track.counters.len());
        assert_eq!(of(&stays), Some(1));
        assert_eq!(tracks.scopes.keys().filter(|scope| matches!(scope, Scope::Thread(..))).count(), 1);
        assert_eq!(tracks.scopes.keys().filter(|scope| matches!(scope, Scope::Process(..))).count(), 1);
    }
}
