//! Reads each format back with an independent library. Tests on real recordings also use these functions.

use std::{collections::BTreeMap, io::Read, time::Duration};

use cgscope_export::{perfetto, pprof};
use hdrhistogram::{
    Histogram,
    serialization::{
        Deserializer,
        interval_log::{IntervalLogIterator, LogEntry},
    },
};
use parquet::{
    file::reader::{FileReader, SerializedFileReader},
    record::Field,
};
use prost::Message;

/// The cells of a row by column name. A null is `None`.
pub(crate) type Row = BTreeMap<String, Option<String>>;

pub(crate) fn csv_rows(bytes: &[u8]) -> Vec<Row> {
    let mut reader = csv::Reader::from_reader(bytes);
    let names = reader.headers().expect("a line of names").clone();
    let row = |record: csv::StringRecord| {
        let cell = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        names.iter().zip(&record).map(|(name, text)| (name.to_owned(), cell(text))).collect()
    };
    reader.records().map(|record| row(record.expect("a record"))).collect()
}

/// Parses Parquet. Returns the same cells as for CSV, except that times are in microseconds since 1970.
pub(crate) fn parquet_rows(bytes: Vec<u8>) -> Vec<Row> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("a Parquet file");
    let cell = |field: &Field| match field {
        Field::Null => None,
        Field::Str(text) => Some(text.clone()),
        Field::Int(number) => Some(number.to_string()),
        Field::Long(number) | Field::TimestampMicros(number) => Some(number.to_string()),
        Field::ULong(number) => Some(number.to_string()),
        other => panic!("no column of ours holds {other:?}"),
    };
    let rows = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row"));
    rows.map(|row| row.get_column_iter().map(|(name, field)| (name.clone(), cell(field))).collect()).collect()
}

pub(crate) fn parquet_metadata(bytes: Vec<u8>) -> BTreeMap<String, String> {
    let reader = SerializedFileReader::new(bytes::Bytes::from(bytes)).expect("a Parquet file");
    let reported = reader.metadata().file_metadata().key_value_metadata().expect("metadata").iter();
    reported.map(|pair| (pair.key.clone(), pair.value.clone().unwrap_or_default())).collect()
}

pub(crate) fn sum(rows: &[Row], column: &str) -> u64 {
    let number = |row: &Row| match row.get(column) {
        Some(cell) => cell.as_ref().map_or(0, |text| text.parse::<u64>().expect("a number")),
        None => panic!("there is no column {column}"),
    };
    rows.iter().map(number).sum()
}

pub(crate) struct Logged {
    pub(crate) tag: Option<String>,
    pub(crate) start: Duration,
    pub(crate) length: Duration,
    pub(crate) histogram: Histogram<u64>,
}

pub(crate) fn hdr_log(bytes: &[u8]) -> Vec<Logged> {
    let intervals = IntervalLogIterator::new(bytes).filter_map(|entry| match entry.expect("an entry") {
        LogEntry::Interval(interval) => Some(interval),
        _ => None,
    });
    let logged = intervals.map(|interval| {
        let base64 =
            base64::Engine::decode(&base64::engine::general_purpose::STANDARD, interval.encoded_histogram());
        let histogram = Deserializer::new().deserialize(&mut &*base64.expect("base64"));
        Logged {
            tag: interval.tag().map(|tag| tag.as_str().to_owned()),
            start: interval.start_timestamp(),
            length: interval.duration(),
            histogram: histogram.expect("a histogram"),
        }
    });
    logged.collect()
}

/// A sample of a profile: frames from the root to the leaf, and values by name.
pub(crate) struct Stack {
    pub(crate) frames: Vec<String>,
    pub(crate) values: BTreeMap<String, u64>,
}

pub(crate) fn pprof_profile(bytes: &[u8]) -> pprof::proto::Profile {
    let mut inflated = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut inflated).expect("gzip");
    pprof::proto::Profile::decode(&*inflated).expect("a profile")
}

pub(crate) fn pprof_stacks(profile: &pprof::proto::Profile) -> Vec<Stack> {
    let text = |index: i64| profile.string_table[index as usize].clone();
    let name = |location: &u64| {
        let location = profile.location.iter().find(|entry| entry.id == *location).expect("a location");
        let function = location.line[0].function_id;
        text(profile.function.iter().find(|entry| entry.id == function).expect("a function").name)
    };
    let types: Vec<String> = profile.sample_type.iter().map(|entry| text(entry.r#type)).collect();
    let stack = |sample: &pprof::proto::Sample| Stack {
        frames: sample.location_id.iter().rev().map(name).collect(),
        values: types.iter().cloned().zip(sample.value.iter().map(|value| *value as u64)).collect(),
    };
    profile.sample.iter().map(stack).collect()
}

/// The contents of a Perfetto trace, by the names of tracks.
#[derive(Default)]
pub(crate) struct Traced {
    /// Sum of the values of each counter. The key consists of the names of all parent tracks from the top down, and then the name
    /// of the counter.
    pub(crate) counters: BTreeMap<Vec<String>, u64>,
    pub(crate) last: BTreeMap<Vec<String>, u64>,
    pub(crate) instants: Vec<(u64, String)>,
}

pub(crate) fn perfetto_trace(bytes: &[u8]) -> Traced {
    let trace = perfetto::proto::Trace::decode(bytes).expect("a trace");
    let mut names: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    let mut traced = Traced::default();
    for packet in trace.packet {
        if let Some(track) = packet.track_descriptor {
            let above = track.parent_uuid.map(|uuid| names.get(&uuid).expect("described before").clone());
            let own = track.name.or_else(|| track.process?.process_name);
            let own = own.or_else(|| track.thread?.thread_name).expect("a name");
            let name = above.unwrap_or_default().into_iter().chain([own]).collect();
            assert!(names.insert(track.uuid.expect("an id"), name).is_none(), "one track, one descriptor");
        }
        let Some(event) = packet.track_event else { continue };
        let track = names[&event.track_uuid.expect("a track")].clone();
        match event.counter_value {
            Some(value) => {
                *traced.counters.entry(track.clone()).or_default() += value as u64;
                traced.last.insert(track, value as u64);
            }
            None => {
                traced.instants.push((packet.timestamp.expect("a moment"), event.name.expect("what is said")))
            }
        }
    }
    traced
}

impl Traced {
    /// Returns the sum of the values of counter `name` on the track of the host.
    pub(crate) fn host(&self, name: &str) -> u64 {
        let of_host = |track: &Vec<String>| track.len() == 2 && track[0].contains("host") && track[1] == name;
        self.counters.iter().filter(|(track, _)| of_host(track)).map(|(_, sum)| sum).sum()
    }
}
