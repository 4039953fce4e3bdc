//! One measurement of the running host, from start to end.

use std::{
    fs, io,
    os::unix::process::ExitStatusExt,
    time::{Duration, Instant},
};

use cgscope_collect::shared_parts::text;
use cgscope_model::{
    Interval, Mode, Names, Sample, Selection, Steps, doctor::parse_version, findings::Host, printable,
};
use cgscope_record::Reason;
use cgscope_view::app::About;

use crate::child::{Ended, Held, Output, Running, Unreaped};
use crate::cli::{self, Target};
use crate::exit::{Error, Exit, Result};
pub use crate::feed::{End, Pace};
use crate::feed::{Event, Events, Source};
use crate::{containers, mode::Coarse, recording, signals::Signals};

pub struct Session {
    events: Option<Events>,
    /// The command, while it runs.
    pub child: Option<Running>,
    _remains: Option<Unreaped>,
    signals: Signals,
    pub pace: Pace,
    samples_left: Option<u64>,
    target_seen: bool,
    names_checked: bool,
    steps: Steps,
    ending: Option<End>,
    /// Runs at once when the command ends.
    pub at_end: Option<Box<dyn FnOnce()>>,
    pub ended: Option<Ended>,
    pub selection: Selection,
    pub title: String,
    pub coarse: Option<Coarse>,
    pub host: Host,
    wants_chains: bool,
    verbose: bool,
    refused: Vec<String>,
}

/// What happened, without the consequence for the command. Each command appends its own consequence.
pub const RESTARTED: &str = "the daemon was restarted and its counters begin at 0 again";

#[derive(Debug)]
pub struct Step {
    /// What happened since the previous sample; `None` for the first sample, and after a restart.
    pub interval: Option<Interval>,
    pub restarted: bool,
    /// Why the sample is the last one; `None` if others follow.
    pub end: Option<End>,
}

/// A prepared measurement: the target is followed, and the command is still held. Dropping it ends the command before it runs.
pub struct Ready {
    source: Source,
    first: Option<Sample>,
    pub held: Option<Held>,
    pub session: Session,
}

impl Ready {
    /// Forks for the command, if there is one, and begins to follow the target.
    pub fn new(target: &Target, pace: Pace) -> Result<Self> {
        let mut options = target.options.clone();
        let held = Held::start(&target.command, target.user.as_deref(), target.output)?;
        // Must follow the fork, so that the command does not inherit our signal handlers.
        let signals = match &held {
            Some(held) if target.stands_aside => Signals::pass_on(held),
            held => Signals::listen_beside(held.as_ref())?,
        };
        options.selection.pids.extend(held.as_ref().map(|held| held.pid));
        let started = Instant::now();
        let (source, coarse) = Source::open(&options, target, pace.interval)?;
        let selection = options.selection;
        let (title, shows_all) = match &source {
            Source::Own(..) => (target.words(), true),
            Source::Daemon(daemon) => (daemon.title(target), daemon.shows_all),
        };
        // SAFETY: sysconf has no preconditions.
        let cpus = u32::try_from(unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) });
        let cpus = cpus.ok().filter(|cpus| *cpus != 0);
        let session = Session {
            events: None,
            child: None,
            _remains: None,
            signals,
            pace,
            samples_left: pace.count.map(|count| count.saturating_add(1)),
            target_seen: false,
            names_checked: false,
            steps: recording::steps(&selection)?.with_paths(target.measure.paths),
            ending: None,
            at_end: None,
            ended: None,
            title,
            coarse,
            host: Host {
                cpus,
                whole: selection.is_whole_host() && shows_all,
                kernel: parse_version(&rustix::system::uname().release().to_string_lossy()),
            },
            wants_chains: target.options.chains,
            verbose: target.measure.verbose,
            refused: source.limits(&selection),
            selection,
        };
        if target.output != Output::Nowhere {
            session.say_limits();
        }
        if target.measure.verbose {
            let done = if session.coarse.is_some() { "ready" } else { "attached" };
            say!("cgscope: {done} after {:.0?}, following {}", started.elapsed(), target.words());
        }
        let mut ready = Self { source, first: None, held, session };
        // /proc only shows changes between two readings. So the first reading precedes the command, and the last precedes its
        // reap.
        if ready.session.coarse.is_some() && ready.held.is_some() {
            ready.sample()?;
        }
        Ok(ready)
    }

    pub fn sample(&mut self) -> Result<()> {
        if let Source::Own(collector, _) = &mut self.source {
            self.first = Some(collector.sample().map_err(Error::could_not_run)?);
        }
        Ok(())
    }

    pub fn go(mut self) -> Session {
        if let (Some(first), Source::Own(collector, _)) = (&mut self.first, &mut self.source)
            && first.mode == Mode::Bpf
        {
            // Ignore an error: the next reading fails as well and reports it.
            let _ = collector.read_tasks_again(first);
        }
        let mut session = self.session;
        session.refused = self.source.limits(&session.selection);
        let (child, remains) = self.held.map(Held::release).unzip();
        session.events = Some(self.source.start(self.first, session.pace));
        session.child = child;
        session._remains = remains.filter(|_| session.coarse.is_some());
        session
    }
}

impl Session {
    /// Prints the limits of this measurement. A screen prints them when it ends.
    pub fn say_limits(&self) {
        if let Some(coarse) = &self.coarse {
            coarse.say("sums of waits from /proc, no histograms, and throttling as the only cause");
        }
        self.refused.iter().for_each(|refused| say!("cgscope: {refused}"));
    }

    pub async fn next(&mut self) -> Result<Event> {
        loop {
            let Some(events) = &mut self.events else { return Err(Error::incomplete("nothing is measured")) };
            let child = &mut self.child;
            tokio::select! {
                biased;
                event = events.next() => return self.on(event?),
                Some(ended) = async { Some(child.as_mut()?.wait().await) }, if self.ending.is_none() => {
                    self.command_ended(ended)?;
                }
                _ = self.signals.any() => {
                    if self.ending.is_some() {
                        return Err(Error::incomplete("interrupted twice: the last interval is not measured"));
                    }
                    self.end(End::Interrupted);
                }
            }
        }
    }

    /// Returns the next sample, whether it must not be compared with earlier ones, and why it is the last one. Prints messages.
    pub async fn next_sample(&mut self) -> Result<(Box<Sample>, bool, Option<End>)> {
        loop {
            match self.next().await? {
                Event::Sample { sample, anew, end } => return Ok((sample, anew, end)),
                Event::Message(sentence) => say!("cgscope: {sentence}"),
            }
        }
    }

    /// Returns the next sample as a step from the previous one. Prints messages.
    pub async fn next_step(&mut self) -> Result<Step> {
        let (sample, restarted, end) = self.next_sample().await?;
        Ok(self.step(sample, restarted, end))
    }

    pub fn step(&mut self, sample: Box<Sample>, restarted: bool, end: Option<End>) -> Step {
        if restarted {
            self.steps.latest = None;
        }
        Step { interval: self.steps.step(sample), restarted, end }
    }

    pub fn latest(&self) -> Option<&Sample> {
        self.steps.latest.as_deref()
    }

    fn on(&mut self, event: Event) -> Result<Event> {
        let Event::Sample { sample, anew, end } = event else { return Ok(event) };
        self.target_seen |= !sample.tasks.is_empty();
        let is_missing = self.watches_target() && !self.target_seen && self.ending.is_none();
        // A target that was never seen but still exists is hidden from us; it has not exited.
        if let Some(sentence) = is_missing.then(|| hidden(&self.selection)).flatten() {
            return Err(Error::could_not_run(sentence));
        }
        // The first sample contains the names of containers, so it shows whether the selected names exist.
        if !std::mem::replace(&mut self.names_checked, true) {
            let names = Names::new(&sample.cgroups, &sample.containers);
            containers::check(&names, &self.selection, &sample.cgroups)?;
            if self.wants_chains && !sample.has_chains {
                return Err(Error::could_not_run(match self.coarse {
                    Some(_) => "--chains needs the exact mode: `cgscope doctor` shows what this host lacks",
                    None => {
                        "the daemon does not count for whom tasks sleep: set `chains = true` in [collect] and restart it"
                    }
                }));
            }
        }
        let end = if anew && end.is_none() { None } else { self.last(&sample, end) };
        Ok(Event::Sample { sample, anew, end })
    }

    fn command_ended(&mut self, ended: io::Result<Ended>) -> Result<()> {
        self.child = None;
        let stands_aside = matches!(self.signals, Signals::PassedOn);
        let ended = ended.map_err(|error| Error::not_executed(&error, stands_aside))?;
        if let Some(done) = self.at_end.take() {
            done();
        }
        self.ended = Some(ended);
        self.end(End::CommandEnded(ended.status));
        Ok(())
    }

    pub async fn outlast(&mut self) -> Result<()> {
        let Some(child) = &mut self.child else { return Ok(()) };
        let ended = child.wait().await;
        self.command_ended(ended)
    }

    /// Returns the next event, for a screen that stays open. After the last sample (`ended`), waits for a signal: `None`.
    pub async fn next_or_signal(&mut self, ended: bool) -> Result<Option<Event>> {
        if ended {
            self.signals.any().await;
            return Ok(None);
        }
        self.next().await.map(Some)
    }

    /// Returns the reason why a sample is the last one, or `None` if others follow. `end` is the reason that the feed reports.
    fn last(&mut self, sample: &Sample, end: Option<End>) -> Option<End> {
        if end.is_some() || self.ending.is_some() {
            return end.map(|end| self.ending.clone().unwrap_or(end));
        }
        if let Some(left) = &mut self.samples_left {
            *left -= 1;
            if *left == 0 {
                return Some(End::Finished);
            }
        }
        if self.watches_target() && sample.tasks.is_empty() {
            // Takes one more sample: exiting tasks are missing from a reading, and are counted only after their last switch.
            self.end(End::TargetExited);
        }
        None
    }

    /// Returns whether the measurement ends when its target exits. A running command is not watched in its readings.
    fn watches_target(&self) -> bool {
        !self.selection.follows_all() && self.child.is_none()
    }

    fn end(&mut self, end: End) {
        if self.verbose {
            say!("cgscope: ending ({})", words(&end));
        }
        self.ending = Some(end);
        if let Some(events) = &mut self.events {
            events.finish();
        }
    }

    /// Changes the interval (see [`Events::set_interval`]). The interval is clamped to the limits of the command line.
    pub fn set_interval(&mut self, interval: Duration) {
        self.pace.interval = interval;
        if let Some(events) = &mut self.events {
            events.set_interval(interval.clamp(cli::SHORTEST, cli::LONGEST));
        }
    }

    /// Terminates a command that still runs, and prints why the measurement ended early.
    pub fn finish(&self, end: &End) -> Exit {
        if let (Some(child), End::Finished) = (&self.child, end) {
            child.terminate();
            say!("cgscope: the command still ran at the end of the measurement and was sent SIGTERM");
        }
        match end {
            End::TargetExited => {
                say!("cgscope: {}: {}; the figures end at that moment", self.title, words(end));
            }
            End::CommandEnded(status) if !status.success() => say!("cgscope: {}", words(end)),
            _ => {}
        }
        exit(end)
    }

    /// Returns why a recording ended after an error. Exit code 0 means that the reader of the output closed the pipe.
    pub fn reason_of_error(&self, error: &Error) -> Reason {
        let is_interrupted = self.ending == Some(End::Interrupted) || error.exit == Exit::Done;
        if is_interrupted { Reason::Interrupted } else { Reason::Failed }
    }
}

pub fn about() -> About {
    let uname = rustix::system::uname();
    let [hostname, kernel] =
        [uname.nodename(), uname.release()].map(|name| printable(&name.to_string_lossy()).to_string());
    About { hostname, kernel, ..About::default() }
}

pub fn words(end: &End) -> String {
    match end {
        End::Finished => "done".into(),
        End::Interrupted => "interrupted".into(),
        End::CommandEnded(status) if status.success() => "the command has ended".into(),
        End::CommandEnded(status) => format!("the command ended with {status}"),
        End::TargetExited => "the target has exited".into(),
    }
}

pub fn exit(end: &End) -> Exit {
    if *end == End::TargetExited { Exit::Incomplete } else { Exit::Done }
}

pub fn reason(end: &End) -> Reason {
    match end {
        End::Finished => Reason::Finished,
        End::Interrupted => Reason::Interrupted,
        End::TargetExited => Reason::TargetExited,
        End::CommandEnded(status) => match (status.code(), status.signal()) {
            (Some(code), _) => Reason::CommandExited(code),
            (None, signal) => Reason::CommandKilled(signal.unwrap_or_default()),
        },
    }
}

/// Returns a sentence if a chosen process or thread still exists. Call this if the readings show no target.
pub fn hidden(selection: &Selection) -> Option<String> {
    let process = selection.pids.iter().map(|pid| ("process", pid));
    let mut chosen = process.chain(selection.tids.iter().map(|tid| ("thread", tid)));
    let (what, id) =
        chosen.find(|(_, id)| fs::read(format!("/proc/{id}/stat")).is_ok_and(|stat| lives(&stat)))?;
    Some(format!(
        "{what} {id} exists but is not visible to BPF: this kernel hides it; to read it from /proc, use --mode coarse"
    ))
}

/// Returns whether the task with this `/proc/PID/stat` has not begun to exit.
fn lives(stat: &[u8]) -> bool {
    const PF_EXITING: u64 = 0x4;
    text::stat(stat).is_some_and(|stat| !stat.is_dead() && stat.flags & PF_EXITING == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exiting_task_does_not_count_as_existing() {
        let stat = |state: &str, flags: u64| {
            format!("7 (a) b) {state} 1 7 7 0 -1 {flags}{}", " 0".repeat(43)).into_bytes()
        };
        assert!(lives(&stat("S", 4_194_560)) && lives(&stat("R", 0x40)));
        assert!(!lives(&stat("Z", 0)) && !lives(&stat("X", 0)) && !lives(&stat("R", 0x44)));
        assert!(!lives(b"") && !lives(b"7 (a) S"));
    }

    #[test]
    fn an_existing_target_that_was_not_seen_is_hidden_and_has_not_exited() {
        let of = |pids: Vec<u32>, tids: Vec<u32>| hidden(&Selection { pids, tids, ..Selection::default() });
        let (own, no_one) = (std::process::id(), u32::MAX);
        let said = of(vec![no_one, own], Vec::new()).unwrap();
        assert!(
            said.starts_with(&format!(
                "process {own} exists but is not visible to BPF: this kernel hides it"
            )),
            "{said}"
        );
        assert!(of(Vec::new(), vec![own]).unwrap().starts_with(&format!("thread {own} exists but is not")));
        assert_eq!(of(vec![no_one], vec![no_one]), None);
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = child.id();
        while of(vec![pid], Vec::new()).is_some() {
            std::thread::yield_now();
        }
        assert!(std::path::Path::new(&format!("/proc/{pid}")).exists(), "a zombie has exited");
        child.wait().unwrap();
    }
}
