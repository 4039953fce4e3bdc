//! `cgscope record`: writes samples to a file, to a series of files, or to a ring from which triggers save parts.

mod file;
mod flight;
mod segments;

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use cgscope_collect::{
    clock,
    facts::{self, CgroupMounts},
};
use cgscope_model::{
    Interval, Losses, Sample, Steps,
    units::{self, bytes, duration, per_second},
};
use cgscope_record::{Cpu, Header, Reason};
use cgscope_view::app::Recorded;
use tokio::signal::unix::{Signal, SignalKind};

use crate::cli::{Record, Target, Top};
use crate::exit::{Error, Exit, Result};
use crate::record::{
    file::File,
    flight::Flight,
    segments::{SegmentLimits, SegmentNames, Segments},
};
use crate::session::{self, End, Pace, RESTARTED, Ready, Session};
use crate::{feed::ns, signals::listen, terminal, text};

/// A destination of samples: a series of files, or the flight recorder.
trait Destination {
    /// Writes a sample. An error closes the destination, and says what was saved.
    fn sample(&mut self, sample: Sample) -> Result<()>;

    fn is_done(&self) -> bool {
        false
    }

    fn bytes(&self) -> u64;

    /// Returns the end of the progress line, after the size. May be empty.
    fn state(&self) -> String;

    /// Handles SIGUSR1.
    fn request(&mut self) {}

    fn end(&mut self, reason: Reason) -> Result<Ended>;

    /// Closes the destination early, after measuring failed or a second interrupt.
    fn abandon(&mut self, reason: Reason) {
        // Ignore errors: the caller reports the first failure.
        let _ = self.end(reason);
    }
}

#[derive(Debug)]
struct Ended {
    words: String,
    /// The file that the last message recommends for `cgscope report`.
    report: Option<PathBuf>,
    /// Part of the requested output is missing. A message about it was printed.
    incomplete: bool,
}

pub async fn run(options: &Record) -> Result {
    let target = Target::new(&options.select)?;
    let pace = Pace { interval: options.interval, duration: options.duration, count: None };
    // Checks the file first, so that nothing starts if it cannot be written.
    file::check_writable(&options.output)?;
    if options.keep.is_some() || rotates(options) {
        file::check_base(&options.output)?;
    }
    let ready = Ready::new(&target, pace)?;
    if let Some(trigger) = options.trigger.iter().find(|trigger| trigger.needs_lengths())
        && let Some(coarse) = &ready.session.coarse
    {
        return Err(Error::could_not_run(format!(
            "--trigger '{trigger}' needs the lengths of single waits, which the coarse mode does not measure ({}): use \
             'throttled' or 'waiting' instead",
            coarse.because
        )));
    }
    // Releases the command last, so that it does not run unrecorded.
    let requests = options.keep.is_some().then(|| listen(SignalKind::user_defined1())).transpose()?;
    let destination = create(options, &header(&ready, &target))?;
    if !options.quiet {
        say_start(&ready, &target, options);
    }
    let progress = Progress::new(options.quiet, !target.command.is_empty());
    let (session, quiet) = (ready.go(), options.quiet);
    let (whole, steps) = (Interval::default(), Steps::default());
    Recorder { session, destination, requests, progress, quiet, samples: 0, whole, steps }.run().await
}

fn rotates(options: &Record) -> bool {
    options.rotate_size.is_some() || options.rotate_age.is_some()
}

fn create<'a>(options: &'a Record, header: &Header) -> Result<Box<dyn Destination + 'a>> {
    let output = &options.output;
    if let Some(keep) = options.keep {
        return Ok(Box::new(Flight::create(options, header, keep)?));
    }
    let (size, age_ns) = (options.rotate_size, options.rotate_age.map(ns));
    let count = options.keep_files.map(|files| files as usize);
    let limits = SegmentLimits { size, age_ns, count, ..SegmentLimits::default() };
    let names = if rotates(options) {
        segments::say_foreign(output);
        SegmentNames::Stamped { base: output.clone(), last_unix_ns: 0 }
    } else {
        file::keep_old(output)?;
        SegmentNames::Single(output.clone())
    };
    Ok(Box::new(Segments::create(names, header, limits)?))
}

fn say_start(ready: &Ready, target: &Target, options: &Record) {
    let where_to = match options.keep {
        Some(_) => String::new(),
        None if rotates(options) => {
            format!(" to files named like {}", file::stamped(&options.output, clock::unix_ns()).display())
        }
        None => format!(" to {}", options.output.display()),
    };
    let is_endless = options.duration.is_none() && target.command.is_empty();
    let end = if is_endless { "; Ctrl-C ends" } else { "" };
    say!("cgscope: recording the {}{where_to}{end}", ready.session.title);
}

fn header(ready: &Ready, target: &Target) -> Header {
    let Session { selection, pace, .. } = &ready.session;
    let command = (!target.command.is_empty()).then(|| target.command.clone());
    Header { selection: selection.clone(), command, ..header_of_host(pace.interval) }
}

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

fn restarted() -> String {
    format!("{RESTARTED}, so the recording ended: start another recording")
}

struct Recorder<'a> {
    session: Session,
    destination: Box<dyn Destination + 'a>,
    /// Receives SIGUSR1; `None` without a flight recorder.
    requests: Option<Signal>,
    progress: Progress,
    quiet: bool,
    samples: u64,
    /// The length and cost of the recording, without its events.
    whole: Interval,
    steps: Steps,
}

impl Recorder<'_> {
    async fn run(mut self) -> Result {
        loop {
            let requests = &mut self.requests;
            let next = tokio::select! {
                next = self.session.next_sample() => next,
                Some(()) = async { requests.as_mut()?.recv().await } => {
                    self.destination.request();
                    continue;
                }
            };
            let (sample, end) = match next {
                Ok((sample, false, end)) => (sample, end),
                Ok((_, true, _)) => {
                    self.destination.abandon(Reason::Failed);
                    return Err(Error::incomplete(restarted()));
                }
                Err(error) => {
                    self.destination.abandon(self.session.reason_of_error(&error));
                    return Err(error);
                }
            };
            self.count(&sample);
            if let Err(mut error) = self.destination.sample(*sample) {
                if self.session.child.is_some() {
                    error.sentence += "; the command still runs, but is no longer recorded";
                }
                return Err(error);
            }
            match end {
                Some(end) => return self.close(&end),
                None if self.destination.is_done() => return self.close(&End::Finished),
                None => self.show(),
            }
        }
    }

    fn count(&mut self, sample: &Sample) {
        let Sample { unix_ns, mono_ns, mode, cost, ref losses, .. } = *sample;
        let now = Sample { unix_ns, mono_ns, mode, cost, losses: losses.clone(), ..Sample::default() };
        if let Some(interval) = self.steps.step(Box::new(now)) {
            self.whole.append(interval);
        }
        self.samples += 1;
    }

    fn show(&mut self) {
        let Some(latest) = &self.steps.latest else { return };
        let (destination, whole) = (&self.destination, &self.whole);
        let state = || words(whole.duration_ns, destination.bytes(), &latest.losses, &destination.state());
        self.progress.show(state);
    }

    fn close(mut self, end: &End) -> Result {
        let ended = self.destination.end(session::reason(end))?;
        let losses = self.steps.latest.as_ref().map(|latest| latest.losses.clone()).unwrap_or_default();
        if !self.quiet {
            let report = ended.report.map_or(String::new(), |file| {
                format!("; `cgscope report {}` shows what happened", file.display())
            });
            let (samples, lost) = (units::count(self.samples, "sample"), text::loss_line(&losses));
            let length = units::duration(self.whole.duration_ns);
            say!("cgscope: {samples} in {length}, {}; {lost}{report}", ended.words);
            say!("cgscope: {}", text::cost_line(&self.whole.cost, self.whole.duration_ns, self.whole.mode));
        }
        let exit = if ended.incomplete { Exit::Incomplete } else { Exit::of_losses(&losses) };
        Ok(exit.max(self.session.finish(end)))
    }
}

struct Progress {
    /// Time between two messages; `None`: shows none.
    pause: Option<Duration>,
    /// Whether each message overwrites the last one, on a terminal. A log gets a new line instead.
    is_rewritten: bool,
    latest: Option<Instant>,
}

impl Progress {
    /// `shares` means that a command writes to the same terminal. In a log, the first message is due after the first pause.
    fn new(quiet: bool, shares: bool) -> Self {
        let is_terminal = io::stderr().is_terminal();
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        let is_rewritten = is_terminal && !is_dumb;
        // Long in a log, because a journal keeps lines for weeks. Short enough to show that a run of an hour still works.
        let pause = Duration::from_secs(if is_rewritten { 1 } else { 600 });
        let is_silent = quiet || (is_terminal && shares);
        let latest = (!is_rewritten).then(Instant::now);
        Self { pause: (!is_silent).then_some(pause), is_rewritten, latest }
    }

    fn show(&mut self, state: impl FnOnce() -> String) {
        // The call once a second may be a little early.
        let slack = Duration::from_millis(50);
        let is_due = |pause| self.latest.is_none_or(|latest| latest.elapsed() + slack >= pause);
        if !self.pause.is_some_and(is_due) {
            return;
        }
        self.latest = Some(Instant::now());
        if self.is_rewritten {
            rewrite(&state());
        } else {
            say!("cgscope: {}", state());
        }
    }
}

fn rewrite(line: &str) {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
    let line: String = line.chars().take(columns.max(20) - 1).collect();
    let before = terminal::begin_line();
    // Ignore errors: standard error may be closed.
    let _ = write!(io::stderr(), "{before}{line}");
}

/// Returns the progress as a line. `more` is the state of the destination.
fn words(elapsed_ns: u64, written: u64, losses: &Losses, more: &str) -> String {
    let rate =
        per_second(written, elapsed_ns).map_or(String::new(), |rate| format!(" ({}/s)", bytes(rate as u64)));
    let more = if more.is_empty() { String::new() } else { format!("  {more}") };
    format!("{}  {}{rate}{more}  {}", duration(elapsed_ns), bytes(written), text::loss_line(losses))
}

/// Records the displayed samples if the user named a file. If the recording fails, the command continues.
#[derive(Default)]
pub struct Tee {
    file: Option<File>,
    broken: Option<Reason>,
    has_screen: bool,
    /// The result of the recording, printed after the screen is closed.
    unsaid: Option<String>,
}

impl Tee {
    /// Prepares a measurement, and a recording if the user named a file. If the file cannot be written, fails before anything
    /// starts. With a screen, messages on standard error wait until [`Self::leave_screen`].
    pub fn set_up(options: &Top, target: &Target, pace: Pace) -> Result<(Ready, Self)> {
        let path = options.record.as_deref();
        path.map_or(Ok(()), file::check_writable)?;
        let ready = Ready::new(target, pace)?;
        let file = path.map(|path| File::begin(path, &header(&ready, target))).transpose()?;
        Ok((ready, Self { file, has_screen: !options.batch, ..Self::default() }))
    }

    pub fn sample(&mut self, sample: &Sample) {
        let Some(file) = &mut self.file else { return };
        let Err(failure) = file.sample(sample) else { return };
        let error = file.end_after(&failure);
        self.file = None;
        self.broken = Some(file::reason_of(&failure.error));
        self.say(format!("{error}; from now on nothing is recorded"));
    }

    /// Ends the recording after a restart of the daemon, because the counters start again from 0.
    pub fn begins_anew(&mut self) {
        if self.file.is_some() {
            self.end(Reason::Failed);
            self.broken = Some(Reason::Failed);
            self.say(restarted());
        }
    }

    pub fn end(&mut self, reason: Reason) {
        let Some(mut file) = self.file.take() else { return };
        let (samples, path) = (units::count(file.samples, "sample"), file.writer.path.display());
        let words =
            format!("{samples}, {}; to play the recording, run `cgscope replay {path}`", file.words());
        match file.end(reason) {
            Ok(()) => self.say(words),
            Err(failure) => {
                self.broken = Some(file::reason_of(&failure.error));
                self.say(failure.to_string());
            }
        }
    }

    fn say(&mut self, words: String) {
        if self.has_screen {
            self.unsaid = Some(words);
        } else {
            say!("cgscope: {words}");
        }
    }

    pub fn leave_screen(&mut self) {
        self.has_screen = false;
        if let Some(words) = self.unsaid.take() {
            self.say(words);
        }
    }

    /// Returns the state of the recording; `None` if there is none, or it is complete.
    pub fn state(&self) -> Option<Recorded> {
        let broken = self.broken.as_ref().map(|reason| Recorded::Broken(reason.to_string()));
        broken.or_else(|| self.file.as_ref().map(|file| Recorded::Recording(file.writer.bytes())))
    }

    pub fn exit(&self) -> Exit {
        if self.broken.is_some() { Exit::Incomplete } else { Exit::Done }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::PathBuf};

    use cgscope_ledger::Loss;
    use cgscope_record::{Ending, Header, open};

    use super::*;

    #[test]
    fn the_state_is_one_line() {
        let mut losses = Losses::default();
        let state = |losses: &Losses, more| words(125_000_000_000, 1 << 20, losses, more);
        assert_eq!(state(&losses, ""), "2m05s  1.0MiB (8.2KiB/s)  losses: none");
        losses.add(Loss::IntervalLate, 3);
        assert_eq!(state(&losses, "3 files"), "2m05s  1.0MiB (8.2KiB/s)  3 files  losses: interval_late 3");
        assert_eq!(words(0, 100, &Losses::default(), ""), "0ns  100B  losses: none");
    }

    #[test]
    fn a_log_gets_its_first_line_after_a_pause_and_a_quiet_run_gets_none() {
        let pause = Duration::from_secs(600);
        let log = |latest| Progress { pause: Some(pause), is_rewritten: false, latest };
        for mut progress in [log(Some(Instant::now())), Progress { pause: None, ..log(None) }] {
            progress.show(|| panic!("it prints something at once"));
        }
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        for (seconds, is_due) in [(590, false), (600, true)] {
            let mut shown = false;
            log(ago(seconds)).show(|| {
                shown = true;
                "ten minutes are over".into()
            });
            assert!(shown == is_due || ago(seconds).is_none(), "after {seconds} s");
        }
        let mut progress = log(None);
        let mut said = 0;
        for _ in 0..3 {
            progress.show(|| {
                said += 1;
                "ten minutes are over".into()
            });
        }
        assert_eq!(said, 1);
    }

    struct Teed {
        path: PathBuf,
        tee: Tee,
    }

    impl Teed {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("cgscope-{}-tee-{name}.rec", std::process::id()));
            let file = File::begin(&path, &Header::default()).unwrap();
            // While a screen is shown, nothing is printed.
            Self { path, tee: Tee { file: Some(file), has_screen: true, ..Tee::default() } }
        }

        fn read(&self) -> (usize, Reason) {
            let mut reader = open(&self.path).unwrap();
            let samples = reader.by_ref().filter(|sample| sample.is_ok()).count();
            match reader.ending.as_ref() {
                Some(Ending::Clean(end)) => (samples, end.reason.clone()),
                other => panic!("{other:?}"),
            }
        }
    }

    impl Drop for Teed {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.path);
        }
    }

    fn sample(mono_ns: u64) -> Sample {
        Sample { mono_ns, ..Sample::default() }
    }

    #[test]
    fn the_first_reason_for_an_end_is_recorded() {
        let mut recorded = Teed::new("end");
        let tee = &mut recorded.tee;
        tee.sample(&sample(1));
        assert!(matches!(tee.state(), Some(Recorded::Recording(bytes)) if bytes > 0));
        tee.sample(&sample(2));
        tee.end(Reason::TargetExited);
        tee.end(Reason::Interrupted);
        assert_eq!((tee.state(), tee.exit()), (None, Exit::Done));
        let words = tee.unsaid.as_deref().unwrap();
        assert!(words.starts_with("2 samples, ") && words.contains("`cgscope replay "), "{words}");
        assert_eq!(recorded.read(), (2, Reason::TargetExited));
    }

    #[test]
    fn a_failed_write_ends_only_the_recording() {
        let mut recorded = Teed::new("broken");
        let tee = &mut recorded.tee;
        tee.sample(&sample(1));
        // The cgroups are out of order, so the writer refuses the sample.
        tee.sample(&Sample { cgroups: vec![(2, "/b".into()), (1, "/a".into())], ..sample(2) });
        assert_eq!(
            (tee.state(), tee.exit()),
            (Some(Recorded::Broken(Reason::WriteFailed.to_string())), Exit::Incomplete)
        );
        let said = tee.unsaid.clone().unwrap();
        assert!(said.contains("the 1 sample before the failure is in "), "{said}");
        assert!(said.ends_with("from now on nothing is recorded"), "{said}");
        tee.sample(&sample(3));
        tee.end(Reason::Finished);
        assert_eq!(tee.unsaid.as_ref(), Some(&said), "the message is printed once");
        assert_eq!(recorded.read(), (1, Reason::WriteFailed));
    }

    #[test]
    fn without_a_file_nothing_is_printed() {
        let mut tee = Tee::default();
        tee.sample(&sample(1));
        tee.end(Reason::Finished);
        assert_eq!((tee.state(), tee.exit(), tee.unsaid), (None, Exit::Done, None));
    }
}
