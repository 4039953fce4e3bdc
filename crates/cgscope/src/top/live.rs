//! The screen of the running host, with intervals from a session.

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use cgscope_collect::command_lines;
use cgscope_model::{Interval, Losses, Sample};
use cgscope_record::Reason;
use cgscope_view::{
    app::{About, App, Begin},
    settings::Settings,
    text,
};
use cgscope_whatif::watch::{self, Watch};
use tokio::sync::mpsc as channel;

use crate::{
    exit::{Error, Exit, Result, spawn},
    feed::Event,
    record::Tee,
    session::{self, End, Ready, Session, Step},
    settings::Store,
    terminal::Screen,
    top::{
        INSTEAD,
        screen::{self, Flow, Updates, show},
    },
};

pub async fn run(ready: Ready, mut tee: Tee, remembered: Store, settings: Settings, begin: Begin) -> Result {
    let started = || Ok((Names::start()?, Enough::start()?, Screen::take(INSTEAD, settings.mouse)?));
    let (names, enough, screen) = started().inspect_err(|_: &Error| tee.end(Reason::Failed))?;
    let session = ready.go();
    let coarse = session.coarse.as_ref().map(|coarse| coarse.because.clone());
    let about = About { title: session.title.clone(), host: session.host, coarse, ..session::about() };
    let mut app = screen::app(about, settings, session.pace.interval);
    app.begin_with(begin);
    app.notice = remembered.notice();
    app.recorded = tee.state();
    let mut live =
        Live { session, tee, names, enough, lost: Losses::default(), worst: Exit::Done, end: None };
    let shown = show(screen, &mut app, &mut live).await;
    remembered.close(&app.settings);
    live.close(shown)
}

struct Live {
    session: Session,
    tee: Tee,
    names: Names,
    enough: Enough,
    lost: Losses,
    worst: Exit,
    end: Option<End>,
}

impl Live {
    fn close(mut self, shown: Result<()>) -> Result {
        // Does nothing if the recording has already ended. Quitting counts as an interrupt.
        self.tee.end(match &shown {
            Ok(()) => Reason::Interrupted,
            Err(error) => self.session.reason_of_error(error),
        });
        self.tee.leave_screen();
        let kept = self.tee.exit();
        shown.map_err(|error| Error { exit: error.exit.max(kept), ..error })?;
        self.session.say_limits();
        let lost = Exit::of_losses(&self.lost);
        if lost == Exit::Incomplete {
            say!("cgscope: some figures on the screen were incomplete: {}", text::loss_line(&self.lost));
        }
        // `End::Finished` also terminates a command that still runs.
        let end = self.end.unwrap_or(End::Finished);
        Ok(self.worst.max(lost).max(kept).max(self.session.finish(&end)))
    }

    fn take(&mut self, interval: Option<Interval>, app: &mut App) {
        let Some(sample) = self.session.latest() else { return };
        self.tee.sample(sample);
        let Some(interval) = interval.map(Arc::new) else { return };
        self.lost.append(&interval.losses);
        app.on_interval(interval.clone());
        self.enough.add(sample, &interval, app.area.width.into());
    }
}

impl Updates for Live {
    async fn next(&mut self, app: &mut App) -> Result<Flow> {
        // A key may have changed the interval.
        if self.session.pace.interval != app.delay {
            self.session.set_interval(app.delay);
        }
        self.names.ask(app);
        self.enough.follow(app);
        let event = tokio::select! {
            event = self.session.next_or_signal(self.end.is_some()) => event?,
            Some(lines) = self.names.next() => {
                app.on_command_lines(lines);
                return Ok(Flow::Draw);
            }
            Some(answer) = self.enough.answers.recv() => {
                self.enough.show(answer, app);
                return Ok(Flow::Draw);
            }
        };
        let Step { interval, restarted, end } = match event {
            Some(Event::Sample { sample, anew, end }) => self.session.step(sample, anew, end),
            Some(Event::Message(sentence)) => {
                app.notice = Some(sentence);
                return Ok(Flow::Draw);
            }
            None => return Ok(Flow::End),
        };
        if restarted {
            self.worst = self.worst.max(Exit::Incomplete);
            self.tee.begins_anew();
            self.enough.watch.iter_mut().for_each(Watch::restart);
        }
        self.take(interval, app);
        if let Some(end) = &end {
            self.tee.end(session::reason(end));
        }
        app.recorded = self.tee.state();
        let Some(end) = end else { return Ok(Flow::Draw) };
        let is_over = matches!(end, End::Interrupted | End::Finished);
        if !is_over {
            app.ended = Some(session::words(&end));
        }
        self.end = Some(end);
        Ok(if is_over { Flow::End } else { Flow::Draw })
    }
}

/// Starts a thread that answers questions in their order. The thread ends when either channel is closed.
fn answering<Q: Send + 'static, A: Send + 'static>(
    answer: impl FnMut(Q) -> A + Send + 'static,
) -> Result<(mpsc::Sender<Q>, channel::UnboundedReceiver<A>)> {
    let (ask, questions) = mpsc::channel();
    let (send, answers) = channel::unbounded_channel();
    spawn(move || questions.into_iter().map(answer).try_for_each(|answer| send.send(answer)).is_ok())?;
    Ok((ask, answers))
}

type Lines = Vec<(u32, Option<Arc<str>>)>;

/// Reads command lines on a thread, which ends when this value is dropped.
struct Names {
    wanted: mpsc::Sender<BTreeSet<u32>>,
    read: channel::UnboundedReceiver<Lines>,
    /// Processes whose command lines were requested and have not arrived yet.
    asked: BTreeSet<u32>,
}

impl Names {
    fn start() -> Result<Self> {
        let (wanted, read) = answering(command_lines)?;
        Ok(Self { wanted, read, asked: BTreeSet::new() })
    }

    fn ask(&mut self, app: &App) {
        let wanted: BTreeSet<u32> =
            app.wanted_command_lines().into_iter().filter(|pid| !self.asked.contains(pid)).collect();
        if !wanted.is_empty() {
            self.asked.extend(&wanted);
            // Ignore errors: without the thread, the screen only shows names.
            let _ = self.wanted.send(wanted);
        }
    }

    async fn next(&mut self) -> Option<Lines> {
        let lines = self.read.recv().await?;
        lines.iter().for_each(|(pid, _)| _ = self.asked.remove(pid));
        Some(lines)
    }
}

/// Minimum time between two answers.
const PAUSE: Duration = Duration::from_secs(3);
/// Pause after a simulation, as a multiple of its length. So simulations run for at most a tenth of the time.
const REST: u32 = 9;

/// Finds out which quota would have been enough for the cgroup that the screen asks about. Collects the demand, and simulates on
/// a thread, because a simulation may take seconds. Dropping this value ends the thread.
struct Enough {
    jobs: mpsc::Sender<(u64, Watch, Arc<Interval>, usize)>,
    /// The number of the question, the answer, and how long the simulation took.
    answers: channel::UnboundedReceiver<(u64, watch::Lines, Duration)>,
    watch: Option<Watch>,
    question: u64,
    /// When the next simulation may start; `None` while one runs.
    due: Option<Instant>,
}

impl Enough {
    fn start() -> Result<Self> {
        let (jobs, answers) = answering(|asked: (u64, Watch, Arc<Interval>, usize)| {
            let (question, watch, interval, cells) = asked;
            let begin = Instant::now();
            (question, watch.lines(&interval, cells), begin.elapsed())
        })?;
        Ok(Self { jobs, answers, watch: None, question: 0, due: Some(Instant::now()) })
    }

    /// Collects demand for the cgroup that the screen asks about. If that cgroup changes, drops the earlier demand.
    fn follow(&mut self, app: &App) {
        let wanted = app.wanted_enough();
        if self.watch.as_ref().map(Watch::path) != wanted {
            self.watch = wanted.cloned().map(Watch::new);
            self.question += 1;
        }
    }

    /// Adds a sample. Also starts a simulation if one is due.
    fn add(&mut self, sample: &Sample, interval: &Arc<Interval>, cells: usize) {
        let Some(watch) = &mut self.watch else { return };
        watch.add(sample, interval);
        if self.due.is_some_and(|due| due <= Instant::now()) {
            // Ignore errors: without the thread, there is no answer.
            let _ = self.jobs.send((self.question, watch.clone(), interval.clone(), cells));
            self.due = None;
        }
    }

    /// Shows an answer, unless the question has changed.
    fn show(&mut self, (question, answer, took): (u64, watch::Lines, Duration), app: &mut App) {
        let pause = if answer.is_short { Duration::ZERO } else { PAUSE.max(took * REST) };
        self.due = Some(Instant::now() + pause);
        if let Some(watch) = self.watch.as_ref().filter(|_| question == self.question) {
            app.on_enough(watch.path(), answer.lines);
        }
    }
}

#[cfg(test)]
mod tests;
