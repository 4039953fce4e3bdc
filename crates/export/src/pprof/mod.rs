//! A profile of waiting in pprof's format: the stacks, and who ran during the waits.

pub mod proto;
mod tables;

use std::{collections::BTreeMap, io::Write, sync::Arc};

use cgscope_model::{Blame, Interval, Losses};
use flate2::{Compression, write::GzEncoder};
use prost::Message;

use crate::{
    About, Error, Out, Result, Sink,
    stacks::{Place, Stacks, Task, frames_of_path},
};
use proto::Profile;
use tables::Tables;

/// The values of a sample, in order: name and unit.
pub const SAMPLE_TYPES: [(&str, &str); 3] =
    [("waits", "count"), ("wait", "nanoseconds"), ("behind", "nanoseconds")];
/// The one that is shown where nothing else is asked for.
const DEFAULT_SAMPLE_TYPE: &str = SAMPLE_TYPES[1].0;

/// What tasks did that had ended before they were read: they are known by cgroup alone.
pub use cgscope_model::interval::ENDED;

/// Sums, and writes at the end.
pub(crate) struct Pprof {
    out: Out,
    about: About,
    start_unix_ns: Option<u64>,
    duration_ns: u64,
    losses: Losses,
    stacks: Stacks,
    /// How long tasks of a cgroup waited because of whom, ns.
    behind: BTreeMap<(Option<Arc<str>>, String), u64>,
}

impl Pprof {
    pub(crate) fn new(out: Out, about: About) -> Self {
        Self {
            out,
            about,
            start_unix_ns: None,
            duration_ns: 0,
            losses: Losses::default(),
            stacks: Stacks::default(),
            behind: BTreeMap::new(),
        }
    }

    fn add_pairs(&mut self, interval: &Interval) {
        for pair in &interval.pairs {
            let culprit = interval.culprit(pair);
            let culprit = match pair.blame {
                Blame::Ran => format!("behind {culprit}"),
                Blame::Limited => format!("quota of {culprit}"),
            };
            let victim = interval.cgroup_path(pair.victim).cloned();
            *self.behind.entry((victim, culprit)).or_default() += pair.ns;
        }
    }

    fn profile(&self) -> Profile {
        let mut tables = Tables::default();
        let mut profile = Profile {
            time_nanos: self.start_unix_ns.unwrap_or(self.about.start_unix_ns).cast_signed(),
            duration_nanos: self.duration_ns.cast_signed(),
            sample_type: SAMPLE_TYPES.map(|(name, unit)| tables.value_type(name, unit)).into(),
            default_sample_type: tables.string(DEFAULT_SAMPLE_TYPE),
            comment: vec![
                tables.string(&self.about.words()),
                tables.string(&format!("losses: {}", self.losses)),
            ],
            ..Profile::default()
        };
        for (place, frames, waits) in self.stacks.iter() {
            for (cause, waits, ns) in waits.by_cause() {
                let values = [waits, ns, 0];
                let mut sample = tables.sample(frames.iter().map(String::as_str), cause.name(), values);
                sample.label = self.labels(&mut tables, place);
                profile.sample.push(sample);
            }
        }
        for ((victim, culprit), ns) in &self.behind {
            let frames = frames_of_path(victim.as_deref());
            profile.sample.push(tables.sample(frames.iter().map(String::as_str), culprit, [0, 0, *ns]));
        }
        tables.give_to(&mut profile);
        profile
    }

    fn labels(&self, tables: &mut Tables, place: &Place) -> Vec<proto::Label> {
        let mut labels = vec![tables.text_label("host", &self.about.hostname)];
        if let Some(Task { tgid, tid, comm, .. }) = &place.task {
            labels.push(tables.text_label("comm", comm));
            labels.push(tables.number_label("tid", *tid));
            labels.push(tables.number_label("tgid", *tgid));
        }
        labels
    }
}

impl Sink for Pprof {
    fn interval(&mut self, interval: &Interval) -> Result<()> {
        self.start_unix_ns.get_or_insert(interval.start_unix_ns);
        self.duration_ns = self.duration_ns.saturating_add(interval.duration_ns);
        self.stacks.add(interval);
        self.add_pairs(interval);
        self.losses.append(&interval.losses);
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<()> {
        let bytes = self.profile().encode_to_vec();
        let mut gzip = GzEncoder::new(self.out, Compression::default());
        gzip.write_all(&bytes).map_err(Error::Io)?;
        Ok(gzip.finish()?.flush()?)
    }
}
