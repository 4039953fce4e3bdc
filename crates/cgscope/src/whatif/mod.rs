//! `cgscope whatif`: which quota would have been enough.

use std::{io::Write, path::Path, sync::Arc, time::Duration};

use cgscope_model::{
    Interval, Mode, Sample, Selection, Steps, selection::SelectionFilter, table::interval::Appended, units,
};
use cgscope_whatif::{
    Limit,
    answer::{Answer, Question, answers, targets, without_quota},
    history::History,
    json, words,
};
use tokio::sync::oneshot;

use crate::{
    child::Output,
    cli, containers,
    exit::{Error, Exit, Result, spawn},
    feed::ns,
    output::{self, json_line},
    recording::Recording,
    session::{Pace, RESTARTED, Ready, Session},
};

pub async fn run(options: &cli::Whatif) -> Result {
    let (answers, whole, left, exit) = match &options.file {
        Some(file) => of_recording(options, file)?,
        None => of_host(options).await?,
    };
    if answers.is_empty() {
        return Err(Error::could_not_run("the quota is in too few samples; measure for longer"));
    }
    let question = question(options);
    output::write(|out| match options.json {
        true => {
            answers.iter().try_for_each(|answer| json_line(out, &json::object(answer, &whole, &question)))
        }
        false => out.write_all(words::text(&answers, &whole, &question, left).as_bytes()),
    })?;
    let is_refused = answers.iter().any(|answer| answer.refusal.is_some() || answer.is_demand_unknown());
    Ok(exit.max(if is_refused { Exit::Incomplete } else { Exit::Done }))
}

/// The answers, the whole time as one interval, the number of other throttled cgroups, and the exit code so far.
type Answered = (Vec<Answer>, Interval, usize, Exit);

fn of_recording(options: &cli::Whatif, file: &Path) -> Result<Answered> {
    let (_, filter) = selection(options)?;
    let mut recording = Recording::open(file)?;
    recording.reader.only(&["whole", "limits", "cgroups", "containers"], &[]);
    recording.at_most(1)?;
    let mut whole = Appended::default();
    while let Some(interval) = recording.next_interval()? {
        whole.push(interval);
    }
    // Without its selection: the CPU time of cgroups is that of all their tasks.
    let whole = interval(whole, options.measure.paths);
    let file = &recording.file;
    if whole.mode == Mode::Coarse {
        return Err(Error::could_not_run(format!(
            "{file} was recorded in the coarse mode, which does not see when tasks run; record with the exact mode"
        )));
    }
    let targets = targets(&whole, &filter);
    let (targets, left) = targets.map_err(|why| Error::could_not_run(format!("{file}: {why}")))?;
    let history = recording.demand_of(&targets)?;
    if history.has_gaps {
        return Err(Error::could_not_run(format!(
            "{file} has no demand of cgroups: it is of an older version of cgscope, of the coarse mode, or of a user who sees only a \
             part of the host; record again with `sudo cgscope record`"
        )));
    }
    Ok((answers(&history, &targets, &question(options)), whole, left, recording.finish()))
}

/// Measures the whole host, because a quota applies to all tasks of a cgroup. Ctrl-C ends it early.
async fn of_host(options: &cli::Whatif) -> Result<Answered> {
    let (selection, filter) = selection(options)?;
    let (mut session, mut measured) = (start(options)?, Measured::default());
    let end = loop {
        let (sample, restarted, end) = session.next_sample().await?;
        if restarted {
            return Err(Error::incomplete(format!("{RESTARTED}: measure again")));
        }
        measured.add(*sample, &selection, &filter)?;
        if let Some(end) = end {
            break end;
        }
    };
    let whole = interval(measured.whole, options.measure.paths);
    let (targets, left) = targets(&whole, &filter).map_err(|why| {
        Error::could_not_run(format!("during these {}, {why}", units::duration(whole.duration_ns)))
    })?;
    let (history, question) = (measured.history, question(options));
    let (send, done) = oneshot::channel();
    spawn(move || send.send(answers(&history, &targets, &question)))?;
    let answers = tokio::select! {
        biased;
        _ = session.next_or_signal(true) => Err(Error::incomplete("interrupted during the simulation")),
        done = done => done.map_err(|_| Error::incomplete("the simulation panicked; the message is above")),
    }?;
    let exit = Exit::of_losses(&whole.losses).max(session.finish(&end));
    Ok((answers, whole, left, exit))
}

/// The whole time as one interval. `paths`: it names cgroups by their paths.
fn interval(whole: Appended, paths: bool) -> Interval {
    let mut whole = whole.into_interval();
    Arc::make_mut(&mut whole.names).only_paths = paths;
    whole
}

fn question(options: &cli::Whatif) -> Question {
    Question {
        quotas: options.quota.as_ref().map(|quotas| quotas.0.clone()).unwrap_or_default(),
        threads: options.threads,
        burst_ns: options.burst.map(|us| us.min(Limit::MOST_US) * 1_000),
        period_ns: options.period.map(|us| us * 1_000),
        target: options.target,
        arrivals: options.r#loop,
    }
}

fn selection(options: &cli::Whatif) -> Result<(Selection, SelectionFilter)> {
    let selection = options.selectors.selection().map_err(Error::could_not_run)?;
    let filter = SelectionFilter::new(&selection).map_err(Error::could_not_run)?;
    if filter.is_by_task() || !selection.pids.is_empty() || !selection.tids.is_empty() {
        return Err(Error::could_not_run(
            "whatif selects cgroups: a quota applies to all tasks of one; use --cgroup, --unit, --pod or --container",
        ));
    }
    Ok((selection, filter))
}

const INTERVAL: Duration = Duration::from_secs(1);
/// The least number of intervals: a history leaves the first and the last one out.
const INTERVALS: u32 = 10;

fn start(options: &cli::Whatif) -> Result<Session> {
    // Messages are printed here, because the coarse mode is an error.
    let target = cli::Target { output: Output::Nowhere, ..cli::Target::whole_host(&options.measure) };
    let duration = options.duration;
    let interval = (duration / INTERVALS).clamp(cli::SHORTEST, INTERVAL);
    let pace = Pace { interval, duration: Some(duration), count: None };
    let ready = Ready::new(&target, pace)?;
    if let Some(coarse) = &ready.session.coarse {
        let because = coarse.sentence.as_ref().unwrap_or(&coarse.because);
        return Err(Error::could_not_run(format!(
            "whatif needs the exact mode, because the coarse mode does not see when tasks run ({because})"
        )));
    }
    ready.session.say_limits();
    say!("cgscope: measuring for {}; Ctrl-C ends early", units::duration(ns(duration)));
    Ok(ready.go())
}

/// What the samples say about cgroups with a quota.
#[derive(Default)]
struct Measured {
    history: History,
    /// The whole time, without tasks.
    whole: Appended,
    steps: Steps,
    is_checked: bool,
}

impl Measured {
    /// Adds the next sample. Fails at the first one that shows that there will be no answer.
    fn add(&mut self, mut sample: Sample, selection: &Selection, filter: &SelectionFilter) -> Result<()> {
        self.history.add(&sample);
        if self.history.has_gaps {
            return Err(Error::could_not_run(
                "the daemon does not show you what cgroups would need, because other users' tasks are a part of that; run it with \
                 privileges (sudo)",
            ));
        }
        // Drops what takes most of the memory of a sample: minutes of exited tasks would be kept.
        (sample.tasks, sample.exited, sample.pairs) = Default::default();
        (sample.demand, sample.stacks) = Default::default();
        if let Some(interval) = self.steps.step(Box::new(sample)) {
            if !std::mem::replace(&mut self.is_checked, true) {
                containers::check(&interval.names, selection, &interval.cgroups)?;
                if let Some(why) = without_quota(&interval, filter) {
                    return Err(Error::could_not_run(format!("{why} when the measurement began")));
                }
            }
            self.whole.push(interval);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
