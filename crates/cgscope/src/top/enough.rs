//! Answers which quota would have been enough for the cgroup that the screen asks about, on a separate thread: a simulation may take
//! seconds.

use std::{
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use cgscope_model::{Interval, Sample};
use cgscope_view::app::App;
use cgscope_whatif::watch::{Job, Lines, Watch};
use tokio::sync::mpsc as channel;

use crate::exit::{Result, spawn};

/// Minimum time between two answers.
const PAUSE: Duration = Duration::from_secs(3);
/// The pause after a simulation, in times of its length, so that simulations run for at most a tenth of the time.
const REST: u32 = 9;

/// The simulating thread, which ends when this value is dropped, and the demand that it needs.
pub struct Enough {
    jobs: mpsc::Sender<(u64, Job, usize)>,
    answers: channel::UnboundedReceiver<Answer>,
    watch: Option<Watch>,
    /// The number of the question.
    question: u64,
    /// When the next simulation may start; `None` during one.
    due: Option<Instant>,
}

pub struct Answer {
    question: u64,
    answer: Lines,
    took: Duration,
}

impl Enough {
    pub fn start() -> Result<Self> {
        let (jobs, receive) = mpsc::channel::<(u64, Job, usize)>();
        let (send, answers) = channel::unbounded_channel();
        spawn(move || {
            for (question, job, cells) in receive {
                let begin = Instant::now();
                let answer = job.lines(cells);
                if send.send(Answer { question, answer, took: begin.elapsed() }).is_err() {
                    return;
                }
            }
        })?;
        Ok(Self { jobs, answers, watch: None, question: 0, due: Some(Instant::now()) })
    }

    /// Begins to collect what the screen wants, and drops what it no longer wants.
    pub fn follow(&mut self, app: &App) {
        let wanted = app.wanted_enough();
        if self.watch.as_ref().map(Watch::path) != wanted {
            self.watch = wanted.cloned().map(Watch::new);
            self.question += 1;
        }
    }

    /// Adds the next sample, and simulates if it is time.
    pub fn add(&mut self, sample: &Sample, interval: &Arc<Interval>, cells: usize) {
        let Some(watch) = &mut self.watch else { return };
        watch.add(sample, interval);
        if self.due.is_some_and(|due| due <= Instant::now()) {
            // Ignore errors: without the thread, there is no answer.
            let _ = self.jobs.send((self.question, watch.job(interval.clone()), cells));
            self.due = None;
        }
    }

    /// The next sample must not be compared with earlier ones.
    pub fn restart(&mut self) {
        if let Some(watch) = &mut self.watch {
            watch.restart();
        }
    }

    pub async fn next(&mut self) -> Answer {
        match self.answers.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }

    /// Shows an answer, unless the question has changed.
    pub fn show(&mut self, Answer { question, answer, took }: Answer, app: &mut App) {
        let pause = if answer.is_short { Duration::ZERO } else { PAUSE.max(took * REST) };
        self.due = Some(Instant::now() + pause);
        if let Some(watch) = self.watch.as_ref().filter(|_| question == self.question) {
            app.on_enough(watch.path(), answer.lines);
        }
    }
}

#[cfg(test)]
mod tests;
