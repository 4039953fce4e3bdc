//! Measures the running host, without a file.

use std::{sync::Arc, time::Duration};

use cgscope_model::{
    Interval, Sample, Selection, Steps, interval::Appended, selection::SelectionFilter, units,
};
use cgscope_whatif::{answer::without_quota, history::History};
use tokio::sync::oneshot;

use crate::{
    child::Output,
    cli, containers,
    exit::{Error, Exit, Result, spawn},
    feed::{End, ns},
    request::Target,
    session::{Pace, RESTARTED, Ready, Session},
};

const INTERVAL: Duration = Duration::from_secs(1);
/// The least number of intervals: a history leaves the first and the last one out.
const INTERVALS: u32 = 10;

/// Measures the whole host, because a quota applies to all tasks of a cgroup. Ctrl-C ends it early.
pub async fn measure(
    options: &cli::Whatif,
    selection: &Selection,
    filter: &SelectionFilter,
) -> Result<(Measured, Session, End)> {
    let mut session = start(options)?;
    let mut measured = Measured::default();
    loop {
        let (sample, restarted, end) = session.next_sample().await?;
        if restarted {
            return Err(Error::incomplete(format!("{RESTARTED}: measure again")));
        }
        measured.add(*sample, selection, filter)?;
        if let Some(end) = end {
            return Ok((measured, session, end));
        }
    }
}

fn start(options: &cli::Whatif) -> Result<Session> {
    // Messages are printed here, because the coarse mode is an error.
    let target = Target { output: Output::Nowhere, ..Target::whole_host(&options.measure) };
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
pub struct Measured {
    pub history: History,
    whole: Appended,
    steps: Steps,
    is_checked: bool,
}

impl Measured {
    /// Adds the next sample. Fails at the first one that shows that there will be no answer.
    pub fn add(&mut self, sample: Sample, selection: &Selection, filter: &SelectionFilter) -> Result<()> {
        self.history.add(&sample);
        if self.history.has_gaps {
            return Err(Error::could_not_run(
                "the daemon does not show you what cgroups would need, because other users' tasks are a part of that; run it with \
                 privileges (sudo)",
            ));
        }
        if let Some(interval) = self.steps.step(Box::new(without_tasks(sample))) {
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

    /// The whole time as one interval, without tasks.
    pub fn whole(&mut self, paths: bool) -> Interval {
        let mut whole = std::mem::take(&mut self.whole).into_interval();
        if paths {
            Arc::make_mut(&mut whole.names).only_paths = true;
        }
        whole
    }
}

/// A sample without what takes most of its memory: minutes of exited tasks would be kept.
fn without_tasks(sample: Sample) -> Sample {
    Sample {
        tasks: Vec::new(),
        exited: Vec::new(),
        pairs: Vec::new(),
        demand: Vec::new(),
        stacks: Vec::new(),
        ..sample
    }
}

/// The result of `work`, which runs on a thread, unless a signal comes first.
pub async fn unless_interrupted<T: Send + 'static>(
    session: &mut Session,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let (send, done) = oneshot::channel();
    spawn(move || send.send(work()))?;
    tokio::select! {
        biased;
        _ = session.next_or_signal(true) => Err(Error::incomplete("interrupted during the simulation")),
        done = done => {
            done.map_err(|_| Error::incomplete("the simulation panicked; the message is above"))
        }
    }
}

/// The exit code of a measurement.
pub fn exit(whole: &Interval, session: &Session, end: &End) -> Exit {
    Exit::of_losses(&whole.losses).max(session.finish(end))
}

#[cfg(test)]
mod tests;
