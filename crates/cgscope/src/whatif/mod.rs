//! `cgscope whatif`: which quota would have been enough.

mod answer;
mod history;
mod json;
#[cfg(test)]
mod tests;
mod words;

use std::{
    collections::BTreeSet,
    io::{self, Write},
    path::Path,
};

use cgscope_model::{
    CgroupReading, Interval, Mode,
    interval::Appended,
    selection::{SelectionFilter, is_at_or_below},
};

use crate::{
    cli,
    exit::{Error, Exit, Result},
    recording::Recording,
    report::json_line,
};
use answer::{Answer, Question, Target, answer};
use history::History;

/// Maximum number of cgroups to simulate if none is selected: those that were throttled longest.
const MOST: usize = 5;

pub fn run(options: &cli::Whatif) -> Result {
    let mut recording = Recording::open(&options.file)?;
    let whole = overview(&mut recording)?;
    let filter = filter(options)?;
    let (targets, left) = targets(&whole, &filter, &recording.file)?;
    let history = history(&options.file, &targets)?;
    if history.has_gaps {
        return Err(Error::could_not_run(format!(
            "{} has no demand of cgroups: it is of an older version of cgscope, of the coarse mode, or of a user who sees only a \
             part of the host; record again with `sudo cgscope record`",
            recording.file
        )));
    }
    let question = question(options);
    let answers: Vec<Answer> =
        targets.iter().filter_map(|target| answer(&history, target, &question)).collect();
    print(options, &answers, &whole, &question, left).map_err(|error| Error::output(&error))?;
    let is_refused = answers.iter().any(|answer| answer.refusal.is_some());
    Ok(recording.finish().max(if is_refused { Exit::Incomplete } else { Exit::Done }))
}

fn question(options: &cli::Whatif) -> Question {
    Question {
        quotas: options.quota.as_ref().map(|quotas| quotas.0.clone()).unwrap_or_default(),
        threads: options.threads,
        burst_ns: options.burst.map(|us| us.saturating_mul(1_000)),
        period_ns: options.period.map(|us| us * 1_000),
        target: options.target,
    }
}

fn print(
    options: &cli::Whatif,
    answers: &[Answer],
    whole: &Interval,
    question: &Question,
    left: usize,
) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if options.json {
        answers.iter().try_for_each(|answer| json_line(&mut out, &json::object(answer, whole, question)))?;
    } else {
        out.write_all(words::text(answers, whole, question, left).as_bytes())?;
    }
    out.flush()
}

/// The whole recording as one interval, without its selection: the CPU time of cgroups is that of all their tasks.
fn overview(recording: &mut Recording) -> Result<Interval> {
    recording.at_most(1)?;
    let mut whole = Appended::default();
    while let Some(interval) = recording.next_interval()? {
        whole.push(interval);
    }
    Ok(whole.into_interval())
}

fn filter(options: &cli::Whatif) -> Result<SelectionFilter> {
    let selection = options.selectors.selection().map_err(Error::could_not_run)?;
    let filter = SelectionFilter::new(&selection).map_err(|error| Error::could_not_run(error.to_string()))?;
    if filter.is_by_task() || !selection.pids.is_empty() || !selection.tids.is_empty() {
        return Err(Error::could_not_run(
            "whatif selects cgroups: a quota applies to all tasks of one; use --cgroup, --unit, --pod or --container",
        ));
    }
    Ok(filter)
}

/// The cgroups to simulate, and how many others were throttled.
fn targets(whole: &Interval, filter: &SelectionFilter, file: &str) -> Result<(Vec<Target>, usize)> {
    if whole.mode == Mode::Coarse {
        return Err(Error::could_not_run(format!(
            "{file} was recorded in the coarse mode, which does not see when tasks run; record with the exact mode"
        )));
    }
    let mut limited = limited(whole);
    limited.sort_by_key(|(path, reading)| (std::cmp::Reverse(reading.throttled_ns), *path));
    let chosen: Vec<_> = limited
        .iter()
        .filter(|(path, reading)| {
            filter.wants_cgroup(path, &whole.names)
                && (filter.is_by_cgroup() || reading.nr_throttled.is_some_and(|periods| periods != 0))
        })
        .collect();
    if chosen.is_empty() {
        let why = if limited.is_empty() {
            "no cgroup had a quota"
        } else if filter.is_by_cgroup() {
            "the selected cgroups had no quota of their own"
        } else {
            "no quota ran out; select a cgroup (--cgroup, --unit, --pod, --container) to see what a lower one would have done"
        };
        return Err(Error::could_not_run(format!("{file}: {why}")));
    }
    let left = chosen.len().saturating_sub(MOST);
    Ok((chosen.into_iter().take(MOST).map(|(path, _)| target(path, &limited)).collect(), left))
}

/// The cgroups that had a quota, with their counters.
fn limited(whole: &Interval) -> Vec<(&str, &CgroupReading)> {
    let path =
        |id| whole.cgroups.binary_search_by_key(&id, |(id, _)| *id).ok().map(|at| &*whole.cgroups[at].1);
    let with_quota = whole.limits.iter().filter(|reading| reading.quota_us.is_some());
    with_quota.filter_map(|reading| Some((path(reading.id)?, reading))).collect()
}

/// A cgroup, with all others that share a quota with it.
fn target(path: &str, limited: &[(&str, &CgroupReading)]) -> Target {
    let root = above(path, limited).min_by_key(|path| path.len()).unwrap_or(path);
    let mut members: Vec<_> = limited.iter().filter(|(path, _)| is_at_or_below(path, root)).collect();
    members.sort_by_key(|(path, _)| (path.len(), *path));
    let place = |wanted: &str| members.iter().position(|(path, _)| *path == wanted);
    let parent = |path: &str| above(path, limited).max_by_key(|path| path.len()).and_then(place);
    Target {
        path: path.to_owned(),
        family: members.iter().map(|(path, reading)| (reading.id, parent(path))).collect(),
        at: place(path).unwrap_or(0),
    }
}

/// The cgroups with a quota above one.
fn above<'l>(path: &'l str, limited: &'l [(&str, &CgroupReading)]) -> impl Iterator<Item = &'l str> {
    let paths = limited.iter().map(|(path, _)| *path);
    paths.filter(move |other| *other != path && is_at_or_below(path, other))
}

fn history(file: &Path, targets: &[Target]) -> Result<History> {
    let ids: BTreeSet<u64> =
        targets.iter().flat_map(|target| target.family.iter().map(|(id, _)| *id)).collect();
    let mut history = History::of(ids);
    let mut recording = Recording::open(file)?;
    while let Some(sample) = recording.next_without_tasks()? {
        history.add(&sample);
    }
    Ok(history)
}
