//! Writes a profile of waiting in the format of pprof: the stacks of waiting tasks, and the culprits that ran during the waits.

use std::{
    collections::{BTreeMap, HashMap},
    io::Write,
    sync::Arc,
};

use cgscope_model::{Blame, Interval, Losses, Names};
use flate2::{Compression, write::GzEncoder};
use prost::Message;

use crate::{
    About, Out, Result, Sink,
    stacks::{StackOwner, StackTask, Stacks, frames_of_path},
};
use proto::{Function, Label, Line, Location, Profile, Sample, ValueType};

pub(crate) struct Pprof {
    out: Out,
    about: About,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
    losses: Losses,
    stacks: Stacks,
    /// Time that the tasks of a cgroup waited because of a culprit, ns. The key is the cgroup and the culprit.
    behind: BTreeMap<(Option<Arc<str>>, String), u64>,
}

impl Pprof {
    pub(crate) fn new(out: Out, about: About) -> Self {
        let (losses, stacks, behind) = (Losses::default(), Stacks::default(), BTreeMap::new());
        Self { out, about, start_unix_ns: None, duration_ns: 0, losses, stacks, behind }
    }

    fn profile(&self) -> Profile {
        let mut builder = ProfileBuilder::default();
        builder.string("");
        builder.profile = Profile {
            time_nanos: self.start_unix_ns.unwrap_or(self.about.start_unix_ns).cast_signed(),
            duration_nanos: self.duration_ns.cast_signed(),
            // The name and the unit of each value of a sample, in order.
            sample_type: [("waits", "count"), ("wait", "nanoseconds"), ("behind", "nanoseconds")]
                .map(|(name, unit)| ValueType { r#type: builder.string(name), unit: builder.string(unit) })
                .into(),
            default_sample_type: builder.string("wait"),
            comment: vec![
                builder.string(&self.about.measured_by),
                builder.string(&format!("losses: {}", self.losses)),
            ],
            ..builder.profile
        };
        for (owner, frames, waits) in self.stacks.iter() {
            for (cause, waits, ns) in waits.by_cause() {
                let mut sample = builder.sample(&frames, cause.name(), [waits, ns, 0]);
                sample.label = self.labels(&mut builder, owner);
                builder.profile.sample.push(sample);
            }
        }
        for ((victim, culprit), ns) in &self.behind {
            let sample = builder.sample(&frames_of_path(victim.as_deref()), culprit, [0, 0, *ns]);
            builder.profile.sample.push(sample);
        }
        builder.profile
    }

    fn labels(&self, builder: &mut ProfileBuilder, owner: &StackOwner) -> Vec<Label> {
        let mut labels = vec![builder.label("host", &self.about.hostname, 0)];
        if let Some(StackTask { tgid, tid, comm, .. }) = &owner.task {
            labels.push(builder.label("comm", comm, 0));
            labels.push(builder.label("tid", "", *tid));
            labels.push(builder.label("tgid", "", *tgid));
        }
        labels
    }
}

impl Sink for Pprof {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.start_unix_ns.get_or_insert(interval.start_unix_ns);
        self.duration_ns = self.duration_ns.saturating_add(interval.duration_ns);
        self.stacks.add(interval);
        for pair in &interval.pairs {
            let culprit = interval.culprit(pair).words(&Names::paths());
            let culprit = match pair.blame {
                Blame::Ran => format!("behind {culprit}"),
                Blame::Limited => format!("quota of {culprit}"),
            };
            let victim = interval.cgroup_path(pair.victim).cloned();
            *self.behind.entry((victim, culprit)).or_default() += pair.ns;
        }
        self.losses.append(&interval.losses);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let bytes = self.profile().encode_to_vec();
        let mut gzip = GzEncoder::new(self.out, Compression::default());
        gzip.write_all(&bytes)?;
        Ok(gzip.finish()?.flush()?)
    }
}

/// Builds a profile in which each string and each function occurs once.
#[derive(Default)]
struct ProfileBuilder {
    profile: Profile,
    strings: HashMap<String, i64>,
    /// Ids of functions, by the index of their names.
    functions: HashMap<i64, u64>,
}

impl ProfileBuilder {
    fn string(&mut self, text: &str) -> i64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.strings.len() as i64;
        self.profile.string_table.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    /// Builds a label with a text, or with a number and an empty text.
    fn label(&mut self, key: &str, text: &str, number: u32) -> Label {
        Label { key: self.string(key), str: self.string(text), num: number.into() }
    }

    /// Builds a sample. `frames` starts at the root. The list in the sample is reversed, because pprof starts at the leaf.
    fn sample(&mut self, frames: &[String], leaf: &str, values: [u64; 3]) -> Sample {
        let mut location_id = vec![self.location(leaf)];
        location_id.extend(frames.iter().rev().map(|frame| self.location(frame)));
        Sample { location_id, value: values.map(u64::cast_signed).into(), label: Vec::new() }
    }

    /// Returns the id of the location for a frame. The function for the frame has the same id.
    fn location(&mut self, frame: &str) -> u64 {
        let name = self.string(frame);
        let Profile { function, location, .. } = &mut self.profile;
        *self.functions.entry(name).or_insert_with(|| {
            let id = function.len() as u64 + 1;
            function.push(Function { id, name, system_name: name });
            location.push(Location { id, line: vec![Line { function_id: id }] });
            id
        })
    }
}

/// The parts of pprof's `profile.proto` (package `perftools.profiles`) that we use.
///
/// Index 0 of the string table is the empty string. An id of 0 means none.
pub mod proto {
    cgscope_model::messages! {
        Profile {
            "1" sample_type: Vec<ValueType>, [message, repeated];
            "2" sample: Vec<Sample>, [message, repeated];
            "4" location: Vec<Location>, [message, repeated];
            "5" function: Vec<Function>, [message, repeated];
            "6" string_table: Vec<String>, [string, repeated];
            "9" time_nanos: i64, [int64];
            "10" duration_nanos: i64, [int64];
            "13" comment: Vec<i64>, [int64, repeated];
            "14" default_sample_type: i64, [int64];
        }
        ValueType { "1" r#type: i64, [int64]; "2" unit: i64, [int64]; }
        Sample {
            "1" location_id: Vec<u64>, [uint64, repeated];
            "2" value: Vec<i64>, [int64, repeated];
            "3" label: Vec<Label>, [message, repeated];
        }
        Label {
            "1" key: i64, [int64];
            "2" str: i64, [int64];
            "3" num: i64, [int64];
        }
        Location { "1" id: u64, [uint64]; "4" line: Vec<Line>, [message, repeated]; }
        Line { "1" function_id: u64, [uint64]; }
        Function {
            "1" id: u64, [uint64];
            "2" name: i64, [int64];
            "3" system_name: i64, [int64];
        }
    }
}
