//! The parts that we use of Perfetto's `trace_packet.proto` (package `perfetto.protos`).
#![expect(missing_docs, reason = "the names are the published ones, and so are their meanings")]

/// `BUILTIN_CLOCK_REALTIME`.
pub const REALTIME: u32 = 1;
/// `TrackDescriptor.ChildTracksOrdering.LEXICOGRAPHIC`.
pub const LEXICOGRAPHIC: i32 = 1;
/// `TrackEvent.TYPE_INSTANT`.
pub const INSTANT: i32 = 3;
/// `TrackEvent.TYPE_COUNTER`.
pub const COUNTER: i32 = 4;

/// `CounterDescriptor.Unit`.
#[derive(Clone, Copy)]
pub enum CounterUnit {
    TimeNs = 1,
    Count = 2,
}

messages! {
    Trace {
        "1" packet: Vec<TracePacket>, [message, repeated];
    }
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
        "12" sibling_order_rank: Option<i32>, [int32, optional];
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
    CounterDescriptor {
        "3" unit: Option<i32>, [int32, optional];
    }
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
