//! A profile of waiting in pprof's format: the stack is the cgroups from the root down, the process, the thread, and the cause.
//!
//! One sum over all Intervals: it grows with the number of tasks, not with time.

pub mod proto;
mod tables;
mod waits;

use std::{collections::BTreeMap, io::Write, sync::Arc};

use cgscope_model::{
    Blame, Interval, Losses, TaskInterval, cgroup_name::UNNAMED, selection::path_and_ancestors,
};
use flate2::{Compression, write::GzEncoder};
use prost::Message;

use crate::{About, Error, Out, Result, Sink};
use proto::Profile;
use tables::Tables;
use waits::Waits;

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
    waits: BTreeMap<Place, Waits>,
    behind: BTreeMap<Behind, u64>,
}

/// Who waited. A task that changes its name or its cgroup is somebody else from then on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    path: Option<Arc<str>>,
    task: Option<Task>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Task {
    tgid: u32,
    process: Arc<str>,
    serial: u64,
    tid: u32,
    comm: Arc<str>,
}

/// Whose tasks waited because of whom.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Behind {
    victim: Option<Arc<str>>,
    culprit: String,
}

impl Pprof {
    pub(crate) fn new(out: Out, about: About) -> Self {
        Self {
            out,
            about,
            start_unix_ns: None,
            duration_ns: 0,
            losses: Losses::default(),
            waits: BTreeMap::new(),
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
            *self.behind.entry(Behind { victim, culprit }).or_default() += pair.ns;
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
        for (place, waits) in &self.waits {
            let frames = frames_of_place(place);
            for (cause, waits, ns) in waits.by_cause() {
                let values = [waits, ns, 0];
                let mut sample = tables.sample(frames.iter().map(String::as_str), cause.name(), values);
                sample.label = self.labels(&mut tables, place);
                profile.sample.push(sample);
            }
        }
        for (Behind { victim, culprit }, ns) in &self.behind {
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
        let processes: BTreeMap<u32, Arc<str>> =
            interval.naming_tasks().into_iter().map(|(pid, task)| (pid, task.comm.clone())).collect();
        for task in interval.tasks.iter().filter(|task| task.wait.count != 0 || task.wait.total_ns != 0) {
            let place = Place {
                path: interval.cgroup_path(task.reading.cgroup_id).cloned(),
                task: Some(task_of(task, &processes)),
            };
            self.waits.entry(place).or_default().add(&task.wait);
        }
        for exited in &interval.exited {
            let place = Place { path: interval.cgroup_path(exited.cgroup_id).cloned(), task: None };
            self.waits.entry(place).or_default().add(&exited.wait);
        }
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

fn task_of(task: &TaskInterval, processes: &BTreeMap<u32, Arc<str>>) -> Task {
    let reading = &task.reading;
    Task {
        tgid: reading.tgid,
        process: processes.get(&reading.tgid).unwrap_or(&reading.comm).clone(),
        serial: reading.serial,
        tid: reading.tid,
        comm: reading.comm.clone(),
    }
}

/// The cgroups from the root down, with their whole paths: their last parts alone are often the same.
fn frames_of_path(path: Option<&str>) -> Vec<String> {
    let Some(path) = path else { return vec![UNNAMED.to_owned()] };
    let mut frames: Vec<String> = path_and_ancestors(path).map(str::to_owned).collect();
    frames.reverse();
    frames
}

fn frames_of_place(place: &Place) -> Vec<String> {
    let mut frames = frames_of_path(place.path.as_deref());
    match &place.task {
        Some(Task { tgid, process, tid, comm, .. }) => {
            frames.push(format!("{process} [{tgid}]"));
            frames.push(format!("{comm} [{tgid}/{tid}]"));
        }
        None => frames.push(ENDED.to_owned()),
    }
    frames
}
