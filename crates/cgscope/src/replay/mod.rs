//! `cgscope replay`: shows a recording on the screen of `top`.

mod reader;

use std::{
    collections::BTreeSet,
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use cgscope_model::{
    Interval,
    findings::{Host, Rule, findings},
    units,
};
use cgscope_view::{
    app::{About, App},
    replay::{
        EndSummary, News, Replay,
        player::{Mark, Moment, Player},
    },
    settings::Settings,
};
use tokio::{sync::mpsc as channel, time::sleep};

use crate::{
    cli,
    exit::{Error, Exit, Result, spawn},
    recording::{Recording, subject},
    replay::reader::{Intervals, Read},
    settings::Store,
    signals::Signals,
    terminal::Screen,
    top::screen::{self, Flow, Updates, show},
};

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
    let (wanted, reads) = reader::start(intervals)?;
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

#[cfg(test)]
mod tests {
    use cgscope_made_up::small::{interval, task};

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
}
