//! `cgscope replay`: shows a recording on the screen of `top`.

use std::collections::BTreeSet;
use std::sync::{
    Arc,
    mpsc::{self, RecvError, TryRecvError},
};
use std::time::{Duration, Instant};

use cgscope_model::{
    Interval, Sample,
    findings::{Host, Rule, findings},
    units,
};
use cgscope_record::Index;
use cgscope_view::{
    app::{About, App},
    history::Frame,
    replay::{
        EndSummary, News, Replay,
        player::{Mark, Moment, Player},
    },
    settings::Settings,
};
use tokio::{sync::mpsc as channel, time::sleep};

use crate::exit::{Error, Exit, Result, spawn};
use crate::recording::{Recording, subject};
use crate::top::screen::{self, Flow, Updates, show};
use crate::{cli, settings::Store, signals::Signals, terminal::Screen};

pub async fn run(options: &cli::Replay) -> Result {
    let recording = Recording::open(&options.file)?;
    let instead = format!("cgscope report {}", recording.file);
    Screen::check(&instead)?;
    let intervals = Intervals::new(recording.again()?)?;
    let player = player(options, &recording, intervals.moments())?;
    let (remembered, settings) = Store::open();
    let mut app = app(&recording, player, settings);
    app.notice = remembered.notice();
    let signals = Signals::listen()?;
    let (wanted, reads) = start_reader(intervals)?;
    let news = start_pass(recording)?;
    let mut playback =
        Playback { wanted, requested: None, reads, news, is_passing: true, recording: None, signals };
    let screen = Screen::take(&instead, app.settings.mouse)?;
    let shown = show(screen, &mut app, &mut playback).await;
    remembered.close(&app.settings);
    shown?;
    // Before the pass over the file ends, it is unknown whether anything is missing.
    Ok(playback.recording.as_deref().map_or(Exit::Done, Recording::finish))
}

fn player(options: &cli::Replay, recording: &Recording, moments: Vec<Moment>) -> Result<Player> {
    if moments.len() < 2 {
        let count = units::count(moments.len() as u64, "sample");
        return Err(Error::could_not_run(format!(
            "{} holds {count}, but an interval needs two, so there is nothing to replay; if the recording is still \
             running, wait for the next sample",
            recording.file
        )));
    }
    let at = options.at.map_or(Ok(0), |when| when.find(&moments));
    let at = at.map_err(|why| Error::could_not_run(format!("--at: {}: {why}", recording.file)))?;
    let mut player = Player::new(moments, Instant::now());
    player.jump(at);
    player.set_speed(options.speed);
    if !options.paused && !player.is_at_end() {
        player.play();
    }
    Ok(player)
}

fn app(recording: &Recording, player: Player, settings: Settings) -> App {
    let header = &recording.reader.header;
    let title = format!("{}: {}", recording.file, subject(header));
    let (hostname, kernel) = (header.hostname.clone(), header.kernel_release.clone());
    let about = About { title, hostname, kernel, host: recording.host, coarse: None };
    let mut app = screen::app(about, settings, Duration::from_nanos(header.interval_ns));
    app.replay = Some(Replay::new(player, Instant::now()));
    app
}

/// The updates of the screen. One thread reads the intervals that the player requests; another one reads the whole file.
struct Playback {
    wanted: mpsc::Sender<usize>,
    requested: Option<usize>,
    reads: channel::UnboundedReceiver<Read>,
    news: channel::UnboundedReceiver<PassMessage>,
    is_passing: bool,
    /// `None` until the pass over the file has ended.
    recording: Option<Box<Recording>>,
    signals: Signals,
}

impl Updates for Playback {
    async fn next(&mut self, app: &mut App) -> Result<Flow> {
        let Some(replay) = &app.replay else { return Ok(Flow::End) };
        if replay.player.intervals() == 0 {
            return Err(Error::incomplete(
                "the recording is damaged before its second sample, so nothing can be shown",
            ));
        }
        let (due, position) = (replay.due_in(), replay.player.position);
        if self.requested.replace(position) != Some(position) {
            self.wanted.send(position).map_err(|_| reader_ended())?;
        }
        tokio::select! {
            _ = self.signals.any() => return Ok(Flow::End),
            read = self.reads.recv() => match read.ok_or_else(reader_ended)? {
                Read::Interval(n, interval) => app.on_read(n, interval?),
                Read::Skipped(first, frames) => app.on_skipped(first, frames),
                Read::Before(n, frames) => app.on_read_before(n, frames),
            },
            news = self.news.recv(), if self.is_passing => {
                let (news, recording) = news.ok_or_else(reader_ended)?;
                self.is_passing = matches!(news, News::Marks(..));
                if let Some(replay) = &mut app.replay {
                    replay.on_news(news);
                }
                self.recording = recording.or(self.recording.take());
            }
            () = sleep(due.unwrap_or_default()), if due.is_some() => {}
        }
        Ok(Flow::Draw)
    }
}

fn reader_ended() -> Error {
    Error::incomplete("the thread that reads the recording has ended")
}

/// Minimum time between two messages, because each message redraws the screen.
const NEWS_EVERY: Duration = Duration::from_millis(100);

/// A message for the screen. The last message contains the recording, which knows what is missing.
type PassMessage = (News, Option<Box<Recording>>);

/// Starts to search the whole file for findings on a separate thread. Dropping the receiver ends the search.
fn start_pass(recording: Recording) -> Result<channel::UnboundedReceiver<PassMessage>> {
    let (send, news) = channel::unbounded_channel();
    spawn(move || {
        let last = match pass(recording, &send) {
            Ok(Some(recording)) => (over(&recording), Some(Box::new(recording))),
            Ok(None) => return,
            Err(error) => (News::Failed(error.sentence), None),
        };
        // Ignore errors: the receiver may have been dropped.
        let _ = send.send(last);
    })?;
    Ok(news)
}

/// Reads the complete recording and returns it. Returns `None` if the receiver was dropped.
fn pass(mut recording: Recording, send: &channel::UnboundedSender<PassMessage>) -> Result<Option<Recording>> {
    let mut before = BTreeSet::new();
    let (mut intervals, mut marks) = (0, Vec::new());
    let mut sent = Instant::now();
    loop {
        let next = recording.next_interval();
        if let Ok(Some(interval)) = &next {
            let begins = beginnings(&mut before, interval, &recording.host);
            if !begins.is_empty() {
                marks.push(Mark { interval: intervals, begins });
            }
            intervals += 1;
        }
        let is_over = !matches!(next, Ok(Some(_)));
        if is_over || sent.elapsed() >= NEWS_EVERY {
            sent = Instant::now();
            let news = News::Marks(intervals, std::mem::take(&mut marks));
            if send.send((news, None)).is_err() {
                return Ok(None);
            }
        }
        if next?.is_none() {
            return Ok(Some(recording));
        }
    }
}

fn over(recording: &Recording) -> News {
    let skipped = recording.skipped_words().map_or(String::new(), |words| format!("; {words}"));
    let words = recording.ending_words() + &skipped;
    let samples = usize::try_from(recording.samples).unwrap_or(usize::MAX);
    News::Over { samples, ending: EndSummary { words, is_whole: recording.is_whole() } }
}

/// Identifies a finding, without its figures, which change between intervals.
type Subject = (Rule, Option<Arc<str>>);

/// Returns the findings of this interval that the previous interval did not have. `before` has the findings of that interval.
fn beginnings(before: &mut BTreeSet<Subject>, interval: &Interval, host: &Host) -> Vec<Subject> {
    let subjects: Vec<Subject> =
        findings(interval, host).into_iter().map(|finding| (finding.rule, finding.cgroup)).collect();
    let begins = subjects.iter().filter(|subject| !before.contains(subject)).cloned().collect();
    *before = subjects.into_iter().collect();
    begins
}

/// Number of intervals to read before the target of a jump, for figures over time: a minute at the default interval.
const BEFORE: usize = 60;

/// Maximum number of skipped intervals to read: one or two seconds of playback at the highest speed.
const SKIPPED: usize = 128;

pub enum Read {
    /// An interval and its number; `None` if the interval is damaged.
    Interval(usize, Result<Option<Arc<Interval>>>),
    /// Skipped intervals in order, and the number of the first one.
    Skipped(usize, Vec<Frame>),
    /// The intervals before the interval with this number, in order.
    Before(usize, Vec<Frame>),
}

/// Starts a thread that receives interval numbers and reads these intervals, and then earlier ones. The thread ends when either
/// channel is closed.
fn start_reader(intervals: Intervals) -> Result<(mpsc::Sender<usize>, channel::UnboundedReceiver<Read>)> {
    let (wanted, receive) = mpsc::channel();
    let (send, reads) = channel::unbounded_channel();
    // The error of the thread is ignored: it only means that a channel was closed.
    spawn(move || IntervalReader { intervals, receive, send, last: None, before: None }.run())?;
    Ok((wanted, reads))
}

struct IntervalReader {
    intervals: Intervals,
    receive: mpsc::Receiver<usize>,
    send: channel::UnboundedSender<Read>,
    last: Option<usize>,
    before: Option<Before>,
}

/// Progress of reading the intervals before interval `of`.
struct Before {
    of: usize,
    next: usize,
    frames: Vec<Frame>,
}

impl IntervalReader {
    fn run(mut self) -> Result<(), RecvError> {
        loop {
            if let Some(wanted) = self.wanted()? {
                self.read(wanted)?;
            } else if let Some(before) = self.before.take() {
                self.read_before(before)?;
            }
        }
    }

    /// Returns the latest request, because a held key sends many. If there is nothing else to do, waits for a request.
    fn wanted(&mut self) -> Result<Option<usize>, RecvError> {
        let first = match self.receive.try_recv() {
            Ok(first) => first,
            Err(TryRecvError::Empty) if self.before.is_some() => return Ok(None),
            Err(TryRecvError::Empty) => self.receive.recv()?,
            Err(TryRecvError::Disconnected) => return Err(RecvError),
        };
        Ok(Some(self.receive.try_iter().last().unwrap_or(first)))
    }

    fn read(&mut self, n: usize) -> Result<(), RecvError> {
        let last = self.last.replace(n);
        let near = last.filter(|last| *last < n && n - last <= SKIPPED);
        if let Some(last) = near {
            // Also reads skipped intervals, so that figures over time have no gaps at a high speed.
            let skipped = (last + 1..n).map_while(|k| self.intervals.read(k).ok()?);
            let frames: Vec<Frame> = skipped.map(|one| Frame::new(&one)).collect();
            if frames.len() == n - last - 1 && !frames.is_empty() {
                self.send.send(Read::Skipped(last + 1, frames)).map_err(|_| RecvError)?;
            }
        } else {
            let next = n.saturating_sub(BEFORE);
            self.before = (n != 0).then(|| Before { of: n, next, frames: Vec::new() });
        }
        let interval = self.intervals.read(n).map(|interval| interval.map(Arc::new));
        self.send.send(Read::Interval(n, interval)).map_err(|_| RecvError)
    }

    /// Reads one more interval. If it cannot be read, drops all earlier ones.
    fn read_before(&mut self, mut before: Before) -> Result<(), RecvError> {
        match self.intervals.read(before.next) {
            Ok(Some(interval)) => before.frames.push(Frame::new(&interval)),
            Ok(None) | Err(_) => before.frames.clear(),
        }
        before.next += 1;
        if before.next < before.of {
            self.before = Some(before);
            return Ok(());
        }
        self.send.send(Read::Before(before.of, before.frames)).map_err(|_| RecvError)
    }
}

/// The intervals between consecutive samples of a file. If they are read in order, each sample is read only once.
pub struct Intervals {
    recording: Recording,
    index: Index,
    /// The number of the sample that the reader returns next, if known.
    next: Option<usize>,
    /// The number of the latest sample in the recording's `steps`.
    last: Option<usize>,
}

impl Intervals {
    pub fn new(mut recording: Recording) -> Result<Self> {
        let index = recording.reader.index();
        let index = index.map_err(|error| Error::could_not_run(format!("{} {error}", recording.file)))?;
        Ok(Self { recording, index, next: Some(0), last: None })
    }

    pub fn moments(&self) -> Vec<Moment> {
        let entries = self.index.iter();
        entries.map(|entry| Moment { mono_ns: entry.mono_ns, unix_ns: entry.unix_ns }).collect()
    }

    /// Returns the selected part of the interval from sample `n` to the next sample; `None` if one of them is damaged.
    pub fn read(&mut self, n: usize) -> Result<Option<Interval>> {
        if self.last.take() != Some(n) {
            let Some(earlier) = self.sample(n)? else { return Ok(None) };
            self.recording.steps.latest = Some(Box::new(earlier));
        }
        let Some(now) = self.sample(n + 1)? else { return Ok(None) };
        self.last = Some(n + 1);
        Ok(self.recording.steps.step(Box::new(now)))
    }

    /// Returns sample `n`; `None` if it is damaged.
    fn sample(&mut self, n: usize) -> Result<Option<Sample>> {
        let Some(entry) = self.index.get(n) else { return Ok(None) };
        let expected_ns = entry.mono_ns;
        let reader = &mut self.recording.reader;
        let sought = if self.next.take() == Some(n) { Ok(()) } else { reader.seek(&self.index, n) };
        let sample = sought.and_then(|()| reader.next().transpose());
        let sample = sample.map_err(|error| self.recording.error(&error))?;
        // The reader skips a damaged sample, and returns the next one instead.
        let sample = sample.filter(|sample| sample.mono_ns == expected_ns);
        self.next = sample.is_some().then_some(n + 1);
        Ok(sample)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cgscope_made_up::small::{after, interval, task};
    use cgscope_model::Selection;
    use cgscope_record::{FileWriter, Header, Reason};

    use super::*;

    /// Returns an interval in which task 2 waits behind a neighbour for two thirds of the time without throttling.
    fn noisy() -> Arc<Interval> {
        interval(vec![task(2, &[400_000_000])])
    }

    #[test]
    fn a_finding_begins_if_the_previous_interval_did_not_have_it() {
        let host = Host::default();
        let quiet = interval(vec![task(3, &[])]);
        let mut before = BTreeSet::new();
        let mut of = |interval: &Interval| beginnings(&mut before, interval, &host);
        let first = of(&noisy());
        assert!(!first.is_empty(), "every finding of the first interval begins there");
        assert_eq!(of(&noisy()), [], "the finding continues");
        assert_eq!(of(&quiet), []);
        assert_eq!(of(&noisy()), first, "the finding begins again");
    }

    /// Returns a sample whose counters increase with `n`: waits, wait time and time on a CPU.
    fn sample(n: u64) -> Sample {
        let tasks = (1..=4).map(|tid| {
            let mut task = task(tid, &vec![u64::from(tid) * 1_000; n as usize * 3]);
            task.totals.on_cpu_ns = n * 500_000_000;
            task
        });
        let sample = after(tasks.collect());
        let (mono_ns, unix_ns) = (1_000_000_000 * (n + 1), 1_700_000_000_000_000_000 + n);
        Sample { mono_ns, unix_ns, pairs: Vec::new(), ..sample }
    }

    #[test]
    fn intervals_read_in_any_order_equal_those_of_a_report() {
        let path = std::env::temp_dir().join(format!("cgscope-replay-{}.rec", std::process::id()));
        let selection = Selection { comm: Some("task-[123]".into()), ..Selection::default() };
        let header = Header { selection, ..Header::default() };
        let mut writer = FileWriter::create(&path, &header).unwrap();
        (0..6).for_each(|n| writer.sample(&sample(n)).unwrap());
        writer.end(0, Reason::Finished).unwrap();

        let mut recording = Recording::open(&path).unwrap();
        let reported: Vec<Interval> = std::iter::from_fn(|| recording.next_interval().unwrap()).collect();
        let mut intervals = Intervals::new(Recording::open(&path).unwrap()).unwrap();
        assert_eq!(intervals.moments().len(), 6);
        for n in [0, 1, 2, 4, 3, 4, 0, 0] {
            assert_eq!(intervals.read(n).unwrap().as_ref(), Some(&reported[n]), "{n}");
            assert_eq!(reported[n].tasks.len(), 3);
        }
        assert_eq!(intervals.read(5).unwrap(), None);
        fs::remove_file(&path).unwrap();
    }
}
