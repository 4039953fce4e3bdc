//! `cgscope record`: Samples to a file, to a series of files, or to a ring of which what matters is kept.

mod file;
mod flight;
mod freeze;
mod names;
mod progress;
mod ring;
mod rotate;
mod sink;
mod tee;

use std::{path::Path, time::Duration};

use cgscope_collect::{
    clock,
    facts::{self, CgroupMounts},
};
use cgscope_model::{Interval, Sample, units};
use cgscope_record::{Cpu, Header, Reason};
use tokio::signal::unix::{Signal, SignalKind, signal};

pub use tee::Tee;

use crate::{
    cli::Record,
    exit::{Error, Exit, Result},
    feed::ns,
    record::{
        file::File,
        flight::Flight,
        progress::{Manner, Progress, words},
        rotate::Rotating,
        sink::{Next, Single, Sink},
    },
    request::Target,
    session::{self, End, Pace, Ready, Session},
    text,
};

pub async fn run(options: &Record) -> Result {
    let target = Target::new(&options.select)?;
    let pace = Pace { interval: options.interval, duration: options.duration, count: None };
    // The file first: nothing is started for a file that cannot be written.
    file::check_writable(&options.output)?;
    if options.keep.is_some() || options.rotate_size.is_some() || options.rotate_age.is_some() {
        file::check_base(&options.output)?;
    }
    let ready = Ready::new(&target, pace)?;
    if let Some(trigger) = options.trigger.iter().find(|trigger| trigger.needs_lengths())
        && let Some(coarse) = &ready.session.coarse
    {
        return Err(Error::could_not_run(format!(
            "--trigger '{trigger}' needs the lengths of single waits, which the coarse mode does not know ({}): here 'throttled' and \
             'waiting' can trigger",
            coarse.because
        )));
    }
    // The command is let go last: it never runs unrecorded.
    let asked = options.keep.is_some().then(listen).transpose()?;
    let sink = create(options, &header(&ready, &target))?;
    if !options.quiet {
        say_start(&ready, &target, options);
    }
    Recorder::new(ready.go(), sink, asked, options, &target).run().await
}

fn create(options: &Record, header: &Header) -> Result<Box<dyn Sink>> {
    let output = &options.output;
    if let Some(keep) = options.keep {
        let flight = Flight::create(output, header, plan(options, keep))?;
        if !options.quiet {
            say!("cgscope: {}", flight.words());
        }
        return Ok(Box::new(flight));
    }
    let limits = rotate::Limits {
        bytes: options.rotate_size,
        age_ns: options.rotate_age.map(ns),
        files: options.keep_files.map(|files| files as usize),
    };
    if limits.bytes.is_some() || limits.age_ns.is_some() {
        return Ok(Box::new(Rotating::create(output, header, limits)?));
    }
    Ok(Box::new(Single(File::begin(output, header)?)))
}

fn plan(options: &Record, keep: Duration) -> flight::Plan {
    let after = options.after.unwrap_or(keep / 5).max(options.interval);
    flight::Plan {
        keep_ns: ns(keep),
        after_ns: ns(after),
        cool_down_ns: ns(options.cool_down.unwrap_or(keep)),
        most: options.triggers,
        ring_bytes: options.ring_size,
        triggers: options.trigger.clone(),
        to_the_end: !options.select.command.is_empty(),
        quiet: options.quiet,
    }
}

fn say_start(ready: &Ready, target: &Target, options: &Record) {
    let where_to = match options.keep {
        Some(_) => String::new(),
        None if options.rotate_size.is_some() || options.rotate_age.is_some() => {
            format!(" to files named like {}", names::stamped(&options.output, clock::unix_ns()).display())
        }
        None => format!(" to {}", options.output.display()),
    };
    let is_open = options.duration.is_none() && target.command.is_empty();
    say!(
        "cgscope: recording the {}{where_to}{}",
        ready.session.title,
        if is_open { "; Ctrl-C ends" } else { "" }
    );
}

fn header(ready: &Ready, target: &Target) -> Header {
    Header {
        selection: ready.session.selection.clone(),
        command: (!target.command.is_empty()).then(|| target.command.clone()),
        ..header_of_host(ready.session.pace.interval)
    }
}

/// The header of Samples of everything.
pub fn header_of_host(interval: Duration) -> Header {
    let root = Path::new("/");
    let nodes = facts::cpu_to_node(root);
    let cpus = facts::gather(root).cpus_online.unwrap_or_default();
    Header {
        cgscope_version: env!("CARGO_PKG_VERSION").into(),
        hostname: rustix::system::uname().nodename().to_string_lossy().into(),
        kernel_release: rustix::system::uname().release().to_string_lossy().into(),
        architecture: std::env::consts::ARCH.into(),
        cpus: cpus.into_iter().map(|cpu| Cpu { cpu, node: nodes.get(&cpu).copied() }).collect(),
        cgroups: CgroupMounts::read(root).layout(),
        interval_ns: ns(interval),
        start_unix_ns: clock::unix_ns(),
        ..Header::default()
    }
}

fn listen() -> Result<Signal> {
    signal(SignalKind::user_defined1())
        .map_err(|error| Error::could_not_run(format!("SIGUSR1 cannot be received ({error})")))
}

/// Why a recording ends when the daemon was started anew.
pub const BEGINS_ANEW: &str = "the daemon was started anew and counts from there: the recording ends before that; record again for what comes";

struct Recorder {
    session: Session,
    sink: Box<dyn Sink>,
    asked: Option<Signal>,
    progress: Progress,
    quiet: bool,
    samples: u64,
    /// What it cost and how long it is; of what happened nothing.
    whole: Interval,
    latest: Option<Sample>,
}

impl Recorder {
    fn new(
        session: Session,
        sink: Box<dyn Sink>,
        asked: Option<Signal>,
        options: &Record,
        target: &Target,
    ) -> Self {
        let progress = Progress::new(Manner::of(options.quiet, !target.command.is_empty()));
        let (samples, whole, latest) = (0, Interval::default(), None);
        Self { session, sink, asked, progress, quiet: options.quiet, samples, whole, latest }
    }

    async fn run(mut self) -> Result {
        loop {
            let asked = &mut self.asked;
            let next = tokio::select! {
                next = self.session.next_sample() => next,
                Some(()) = async { asked.as_mut()?.recv().await } => {
                    self.sink.asked_for();
                    continue;
                }
            };
            let (sample, end) = match next {
                Ok((sample, false, end)) => (sample, end),
                Ok((_, true, _)) => {
                    self.sink.abandon(Reason::Failed);
                    return Err(Error::incomplete(BEGINS_ANEW));
                }
                Err(error) => {
                    self.sink.abandon(self.session.reason_of_error(&error));
                    return Err(error);
                }
            };
            self.count(&sample);
            match (self.sink.sample(*sample), end) {
                (Err(broken), _) => return Err(self.broken(broken)),
                (Ok(_), Some(end)) => return self.close(&end),
                (Ok(Next::Enough), None) => return self.close(&End::Finished),
                (Ok(Next::GoOn), None) => self.show(),
            }
        }
    }

    fn count(&mut self, sample: &Sample) {
        let now = Sample {
            unix_ns: sample.unix_ns,
            mono_ns: sample.mono_ns,
            mode: sample.mode,
            losses: sample.losses.clone(),
            cost: sample.cost,
            ..Sample::default()
        };
        if let Some(latest) = &self.latest {
            self.whole.append(Interval::between(latest, &now));
        }
        self.latest = Some(now);
        self.samples += 1;
    }

    fn show(&mut self) {
        let Some(latest) = &self.latest else { return };
        let (sink, whole) = (&self.sink, &self.whole);
        self.progress.show(|| words(whole.duration_ns, sink.bytes(), &latest.losses, &sink.state()));
    }

    fn broken(self, broken: sink::Broken) -> Error {
        let mut error = self.sink.end_after(broken);
        if self.session.command_runs() {
            error.sentence += "; the command goes on, and is not recorded any more";
        }
        error
    }

    fn close(self, end: &End) -> Result {
        let ended = self.sink.end(session::reason(end))?;
        let losses = self.latest.map(|latest| latest.losses).unwrap_or_default();
        if !self.quiet {
            let report = ended.report.map_or(String::new(), |file| {
                format!("; `cgscope report {}` says what happened", file.display())
            });
            let (samples, lost) = (units::count(self.samples, "Sample"), text::loss_line(&losses));
            let length = units::duration(self.whole.duration_ns);
            say!("cgscope: {samples} in {length}, {}; {lost}{report}", ended.words);
            say!("cgscope: {}", text::cost_line(&self.whole.cost, self.whole.duration_ns, self.whole.mode));
        }
        let exit = if ended.incomplete { Exit::Incomplete } else { Exit::of_losses(&losses) };
        Ok(exit.max(self.session.finish(end)))
    }
}
