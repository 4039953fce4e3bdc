//! Tracks, described when they are first used, and what counters show.

use std::{collections::BTreeMap, io::Write, sync::Arc};

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

/// A counter of a track.
#[derive(Clone, Copy, Debug)]
struct Counter {
    uuid: u64,
    last: u64,
    /// The interval in which it was set last.
    interval: u64,
}

/// Writes packets.
pub(super) struct Tracks {
    out: Out,
    buffer: Vec<u8>,
    host: String,
    last_uuid: u64,
    scopes: BTreeMap<Scope, u64>,
    counters: BTreeMap<(u64, String), Counter>,
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
            counters: BTreeMap::new(),
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
        if let Some(uuid) = self.scopes.get(scope) {
            return Ok(*uuid);
        }
        let parent_uuid = match parent(scope) {
            Some(parent) => Some(self.scope(&parent)?),
            None => None,
        };
        let uuid = self.describe(TrackDescriptor { parent_uuid, ..self.descriptor(scope) })?;
        self.scopes.insert(scope.clone(), uuid);
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
        let key = (parent, name.to_owned());
        let uuid = match self.counters.get_mut(&key) {
            Some(counter) => {
                let stays = value == 0 && counter.last == 0;
                (counter.last, counter.interval) = (value, self.interval);
                if stays {
                    return Ok(());
                }
                counter.uuid
            }
            None if value == 0 => return Ok(()),
            None => {
                let uuid = self.counter(parent, name, unit)?;
                self.counters.insert(key, Counter { uuid, last: value, interval: self.interval });
                uuid
            }
        };
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

    /// Sets to 0 what this interval did not set: who is gone, or did nothing.
    pub(super) fn end_interval(&mut self, unix_ns: u64) -> Result<()> {
        self.zero(unix_ns, self.interval)
    }

    fn zero(&mut self, unix_ns: u64, but: u64) -> Result<()> {
        let shown = |counter: &&mut Counter| counter.interval != but && counter.last != 0;
        let mut uuids = Vec::new();
        for counter in self.counters.values_mut().filter(shown) {
            counter.last = 0;
            uuids.push(counter.uuid);
        }
        uuids.into_iter().try_for_each(|uuid| self.show(uuid, unix_ns, 0))
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
        self.zero(unix_ns, self.interval + 1)?;
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
