//! One measurement of the running host, from its start to whatever ends it first.

mod hidden;

use std::{
    io,
    process::ExitStatus,
    time::{Duration, Instant},
};

use cgscope_collect::{Collector, Options};
use cgscope_model::{Mode, Sample, Selection, findings::Host};

use crate::{
    child::{Ended, Held, Output, Remains, Running},
    cli,
    exit::{self, Error, Exit, Result},
    mode::{self, Coarse, Source},
    request::Target,
    sampler::{Item, Sampler},
    signals::Signals,
};

pub use hidden::hidden;

/// Why a measurement ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// As long as was asked for.
    Finished,
    /// Ctrl-C, SIGTERM or SIGHUP.
    Interrupted,
    /// The command that was started has ended.
    CommandEnded(ExitStatus),
    /// No selected task is left.
    TargetGone,
}

/// What comes next.
pub enum Step {
    /// A Sample.
    Sample(Sample),
    /// A Sample that is not to be compared with those before it: the daemon was started anew.
    Anew(Sample),
    /// Something that the user is to know.
    Said(String),
    /// The last Sample, and why.
    Last(Sample, End),
}

/// What is to be done at once when the command has ended.
pub type AtEnd = Box<dyn FnOnce()>;

/// A measurement under way.
pub struct Session {
    sampler: Sampler,
    child: Option<Running>,
    _remains: Option<Remains>,
    signals: Signals,
    samples_left: Option<u64>,
    watch_target: bool,
    target_seen: bool,
    ending: Option<End>,
    stands_aside: bool,
    at_end: Option<AtEnd>,
    /// The command, once it has ended.
    pub ended: Option<Ended>,
    /// The selection, the started command now among it.
    pub selection: Selection,
    /// What is selected, in words.
    pub title: String,
    /// Why it is measured coarsely, if it is.
    pub coarse: Option<Coarse>,
    /// What findings are judged by.
    pub host: Host,
    verbose: bool,
    /// What the kernel refused of what measuring can do without, in sentences.
    refused: Vec<String>,
}

fn say_refused(refused: &[String]) {
    for refused in refused {
        say!("cgscope: {refused}");
    }
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Between Samples.
    pub interval: Duration,
    /// End after this time.
    pub duration: Option<Duration>,
    /// End after so many intervals.
    pub count: Option<u64>,
}

/// A measurement that is set up: everything asked for is followed, and the command has not been let go yet. Dropped, the
/// command never runs.
pub struct Ready {
    source: Source,
    first: Option<Sample>,
    held: Option<Held>,
    signals: Signals,
    pace: Pace,
    verbose: bool,
    stands_aside: bool,
    /// The first interval is to be as long as the others.
    is_whole: bool,
    /// The selection, the started command now among it.
    pub selection: Selection,
    /// What is selected, in words.
    pub title: String,
    /// Why it is measured coarsely, if it is.
    pub coarse: Option<Coarse>,
}

impl Ready {
    /// Makes the process of the command if there is one, and begins to follow what is asked for.
    pub fn new(target: &Target, pace: Pace) -> Result<Self> {
        let mut selection = target.selection.clone();
        let held = match target.command.as_slice() {
            [] => None,
            command => Some(Held::start(command, target.user.as_deref(), target.output)?),
        };
        // After the fork: a process that is held back must not inherit our way with signals.
        let signals = match &held {
            Some(held) if target.stands_aside => Signals::pass_on(held),
            held => Signals::listen_beside(held.as_ref())?,
        };
        selection.pids.extend(held.as_ref().map(|held| held.pid));
        let started = Instant::now();
        let options = Options {
            selection: selection.clone(),
            by_cpu: target.by_cpu,
            memory: target.memory,
            accounts: target.accounts,
            shared: false,
        };
        let (mut source, coarse) = mode::start(&options, target, pace.interval)?;
        if let Some(coarse) = coarse.as_ref().filter(|_| target.output != Output::Nowhere) {
            coarse.say();
        }
        if target.output != Output::Nowhere {
            say_refused(&limits(&source, &selection));
        }
        if target.verbose {
            let done = if coarse.is_some() { "ready" } else { "attached" };
            say!("cgscope: {done} after {:.0?}, following {}", started.elapsed(), target.words());
        }
        // Of /proc, what a command does is seen only between two readings: the first one comes before it, and its end is read
        // before it is reaped.
        let first = match &mut source {
            Source::Own(collector) if coarse.is_some() && held.is_some() => Some(first(collector)?),
            _ => None,
        };
        let (verbose, title, stands_aside) = (target.verbose, title(&source, target), target.stands_aside);
        let is_whole = target.output != Output::Nowhere;
        Ok(Self {
            source,
            is_whole,
            first,
            held,
            signals,
            pace,
            verbose,
            stands_aside,
            selection,
            title,
            coarse,
        })
    }

    /// Takes the first Sample now, before the command does anything.
    pub fn sample(&mut self) -> Result<()> {
        if let Source::Own(collector) = &mut self.source {
            self.first = Some(first(collector)?);
        }
        Ok(())
    }

    /// The process of the command, which waits to be let go.
    pub fn command_pid(&self) -> Option<u32> {
        self.held.as_ref().map(|held| held.pid)
    }

    /// Lets the command run, and begins to take Samples.
    pub fn go(mut self) -> Session {
        if let (Some(first), Source::Own(collector)) = (&mut self.first, &mut self.source)
            && first.mode == Mode::Bpf
        {
            // Where it fails the next reading does, too, and says so.
            let _ = collector.read_tasks_again(first);
        }
        let refused = limits(&self.source, &self.selection);
        let Pace { interval, duration, count } = self.pace;
        let whole = self.selection.is_whole_host() && shows_all(&self.source);
        let (child, remains) = self.held.map(Held::release).unzip();
        let sampler = match self.source {
            Source::Own(collector) => Sampler::start(*collector, self.first, interval, duration),
            Source::Daemon(daemon) => Sampler::of_daemon(*daemon, duration, self.is_whole),
        };
        Session {
            _remains: remains.filter(|_| self.coarse.is_some()),
            sampler,
            child,
            signals: self.signals,
            samples_left: count.map(|count| count.saturating_add(1)),
            watch_target: !self.selection.follows_all(),
            target_seen: false,
            ending: None,
            stands_aside: self.stands_aside,
            at_end: None,
            ended: None,
            host: Host { cpus: online_cpus(), whole },
            selection: self.selection,
            title: self.title,
            coarse: self.coarse,
            verbose: self.verbose,
            refused,
        }
    }
}

/// Everything is shown that is asked for.
fn shows_all(source: &Source) -> bool {
    match source {
        Source::Own(_) => true,
        Source::Daemon(daemon) => daemon.shows_all,
    }
}

/// What is shown, in words.
fn title(source: &Source, target: &Target) -> String {
    match source {
        Source::Own(_) => target.words(),
        Source::Daemon(daemon) => daemon.title(target),
    }
}

/// How measuring is less than it could be, in sentences.
fn limits(source: &Source, selection: &Selection) -> Vec<String> {
    match source {
        Source::Own(collector) => collector.refused().to_vec(),
        Source::Daemon(daemon) => {
            let is_part = !selection.follows_all() || !daemon.shows_all;
            let ended = "through the daemon, what tasks did that ended between two Samples is told by cgroup, and only of cgroups \
                         that are all yours; use a short interval for short tasks";
            is_part.then(|| ended.to_owned()).into_iter().chain(daemon.said.clone()).collect()
        }
    }
}

impl Session {
    /// Starts the command if there is one, begins to follow what is asked for, and to take Samples.
    pub fn start(target: &Target, pace: Pace) -> Result<Self> {
        Ok(Ready::new(target, pace)?.go())
    }

    /// Says how measuring is less than it could be: for a screen that was not to be disturbed.
    pub fn say_limits(&self) {
        if let Some(coarse) = &self.coarse {
            coarse.say();
        }
        say_refused(&self.refused);
    }

    /// The next Sample. Must not be called after [`Step::Last`].
    pub async fn next(&mut self) -> Result<Step> {
        loop {
            tokio::select! {
                biased;
                item = self.sampler.next() => {
                    let item = item.ok_or_else(|| Error::incomplete("the sampler is gone"))?;
                    return match item.map_err(|failure| Error::incomplete(failure.to_string()))? {
                        Item::Said(sentence) => Ok(Step::Said(sentence)),
                        Item::Sample { sample, last, anew } => {
                            self.must_be_shown(&sample)?;
                            Ok(if anew && !last { Step::Anew(*sample) } else { self.step(*sample, last) })
                        }
                    };
                }
                end = ended(self.ending.is_some(), &mut self.child, &mut self.signals) => match end? {
                    What::Interrupted => self.end(End::Interrupted),
                    What::Ended(ended) => self.command_ended(ended)?,
                },
            }
        }
    }

    /// To be done at once when the command has ended, before anything else is.
    pub fn at_end(&mut self, done: AtEnd) {
        self.at_end = Some(done);
    }

    fn command_ended(&mut self, ended: io::Result<Ended>) -> Result<()> {
        let ended = ended.map_err(|error| match self.stands_aside {
            true => Error::not_executed(&error),
            false => Error::could_not_run(exit::not_executed(&error)),
        })?;
        if let Some(done) = self.at_end.take() {
            done();
        }
        self.ended = Some(ended);
        self.end(End::CommandEnded(ended.status));
        Ok(())
    }

    /// Waits for the end of the command where nothing can be measured any more.
    pub async fn outlast(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let ended = child.wait().await;
        self.child = None;
        self.command_ended(ended)
    }

    /// For a screen that stays after [`Step::Last`]: until then the next step, afterwards `None` at the first signal.
    pub async fn next_or_signal(&mut self, ended: bool) -> Result<Option<Step>> {
        if ended {
            self.signals.any().await;
            return Ok(None);
        }
        self.next().await.map(Some)
    }

    /// One that was never there has not exited, if it is still there.
    fn must_be_shown(&mut self, sample: &Sample) -> Result<()> {
        self.target_seen |= !sample.tasks.is_empty();
        let is_missing =
            self.watch_target && !self.target_seen && self.child.is_none() && self.ending.is_none();
        match is_missing.then(|| hidden(&self.selection)).flatten() {
            Some(sentence) => Err(Error::could_not_run(sentence)),
            None => Ok(()),
        }
    }

    fn step(&mut self, sample: Sample, last: bool) -> Step {
        if let Some(end) = &self.ending {
            // One that was taken before the end may still be on its way.
            return if last { Step::Last(sample, end.clone()) } else { Step::Sample(sample) };
        }
        if last {
            return Step::Last(sample, End::Finished);
        }
        if let Some(left) = &mut self.samples_left {
            *left -= 1;
            if *left == 0 {
                return Step::Last(sample, End::Finished);
            }
        }
        if self.watch_target && self.child.is_none() && sample.tasks.is_empty() {
            // Tasks that are on their way out are not read any more, and not counted before their last switch.
            self.end(End::TargetGone);
        }
        Step::Sample(sample)
    }

    fn end(&mut self, end: End) {
        if self.verbose {
            say!("cgscope: ending ({})", words(&end));
        }
        self.ending = Some(end);
        self.sampler.finish();
    }

    /// Changes the pace while it runs: the next Sample comes a whole new interval after the last one, or at once if that moment
    /// has passed. An interval out of the bounds of what can be typed becomes the nearest within them.
    pub fn set_interval(&mut self, interval: Duration) {
        self.sampler.set_interval(interval.clamp(cli::SHORTEST, cli::LONGEST));
    }

    /// True while a command that was started still runs.
    pub fn command_runs(&self) -> bool {
        self.child.is_some()
    }

    /// True once a signal has asked for the end.
    pub fn is_interrupted(&self) -> bool {
        self.ending == Some(End::Interrupted)
    }

    /// Asks a command that still runs to end.
    pub fn end_command(&mut self, end: &End) {
        if let (Some(child), End::Finished) = (&self.child, end) {
            child.terminate();
            say!("cgscope: the command still ran at the end of the measurement and was sent SIGTERM");
        }
    }
}

fn first(collector: &mut Collector) -> Result<Sample> {
    collector.sample().map_err(|failure| Error::could_not_run(failure.to_string()))
}

fn online_cpus() -> Option<u32> {
    // SAFETY: no preconditions.
    u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) }).ok().filter(|cpus| *cpus != 0)
}

/// An end in words.
pub fn words(end: &End) -> String {
    match end {
        End::Finished => "done".into(),
        End::Interrupted => "interrupted".into(),
        End::CommandEnded(status) if status.success() => "the command has ended".into(),
        End::CommandEnded(status) => format!("the command ended with {status}"),
        End::TargetGone => "the target has exited".into(),
    }
}

/// How an end makes the command end.
pub fn exit(end: &End) -> Exit {
    match end {
        End::TargetGone => Exit::Incomplete,
        _ => Exit::Done,
    }
}

/// What ends a measurement.
enum What {
    /// A signal.
    Interrupted,
    /// The command.
    Ended(io::Result<Ended>),
}

/// Whatever ends the measurement; once it is ending, only a second signal does.
async fn ended(ending: bool, child: &mut Option<Running>, signals: &mut Signals) -> Result<What> {
    if ending {
        signals.any().await;
        return Err(Error::incomplete("interrupted twice: the last interval was given up"));
    }
    tokio::select! {
        ended = async { match child { Some(child) => child.wait().await, None => std::future::pending().await } } => {
            // The thread has its outcome but once.
            *child = None;
            Ok(What::Ended(ended))
        }
        () = signals.any() => Ok(What::Interrupted),
    }
}
