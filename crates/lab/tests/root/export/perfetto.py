# Parses a trace with Perfetto's published messages, and prints its contents as JSON.
import json
import sys

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


def unknown_fields(message):
    count = len(UnknownFieldSet(message))
    for field, value in message.ListFields():
        if field.message_type is not None:
            values = [value] if hasattr(value, "ListFields") else value
            count += sum(unknown_fields(one) for one in values)
    return count


with open(sys.argv[1], "rb") as file:
    trace = protos.Trace.FromString(file.read())

tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
events = [p for p in trace.packet if p.HasField("track_event")]
host = next(uuid for uuid, track in tracks.items() if track.name.startswith("cgscope: host"))
sums = {}
for packet in events:
    track = tracks[packet.track_event.track_uuid]
    if packet.track_event.type == protos.TrackEvent.TYPE_COUNTER and track.parent_uuid == host:
        assert track.HasField("counter"), track
        sums[track.name] = sums.get(track.name, 0) + packet.track_event.counter_value
print(
    json.dumps(
        {
            "unknown_fields": unknown_fields(trace),
            "first_ns": min(p.timestamp for p in events),
            "host": sums,
            "instants": [
                p.track_event.name for p in events if p.track_event.type == protos.TrackEvent.TYPE_INSTANT
            ],
            "processes": [track.process.process_name for track in tracks.values() if track.HasField("process")],
        }
    )
)
