//! `cgscope replay`: the screen of `top` for a recording.

mod pass;
mod reader;

use std::{
    sync::mpsc,
    time::{Duration, Instant},
};

use cgscope_model::units;
use cgscope_view::{
    app::{About, App},
    replay::{
        News, Replay,
        player::{Moment, Player},
    },
    settings::Settings,
};
use tokio::{sync::mpsc as channel, time::sleep};

use crate::{
    cli,
    exit::{Error, Exit, Result},
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
    let intervals = Intervals::open(&options.file)?;
    let player = player(options, &recording, intervals.moments())?;
    let (remembered, settings) = Store::open();
    let mouse = settings.mouse;
    let mut app = app(&recording, player, settings);
    app.notice = remembered.notice();
    let mut playback = Playback::start(recording, intervals)?;
    let mut screen = Screen::take(&instead, mouse)?;
    let shown = show(&mut screen, &mut app, &mut playback).await;
    // Messages are visible only after the screen is closed.
    drop(screen);
    remembered.close(&app.settings);
    shown?;
    // Before the pass ends, we do not know whether anything is missing.
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
    let header = recording.header();
    let about = About {
        title: format!("{}: {}", recording.file, subject(header)),
        hostname: header.hostname.clone(),
        kernel: header.kernel_release.clone(),
        host: recording.host,
        coarse: None,
    };
    let theme = screen::theme(&settings);
    let mut app = App::new(about, settings, theme, Duration::from_nanos(header.interval_ns));
    app.replay = Some(Replay::new(player, Instant::now()));
    app
}

/// The source of updates: a thread that reads the intervals that the player requests, and a pass over the whole file.
struct Playback {
    wanted: mpsc::Sender<usize>,
    requested: Option<usize>,
    reads: channel::UnboundedReceiver<Read>,
    news: channel::UnboundedReceiver<pass::PassMessage>,
    is_passing: bool,
    /// Set once the pass has ended.
    recording: Option<Box<Recording>>,
    signals: Signals,
}

impl Playback {
    /// Starts the reader of `intervals` and the pass over `recording`.
    fn start(recording: Recording, intervals: Intervals) -> Result<Self> {
        let signals = Signals::listen()?;
        let (wanted, reads) = reader::start(intervals)?;
        let news = pass::start(recording)?;
        Ok(Self { wanted, requested: None, reads, news, is_passing: true, recording: None, signals })
    }

    fn request(&mut self, n: usize) -> Result<()> {
        match self.requested.replace(n) {
            Some(before) if before == n => Ok(()),
            _ => self.wanted.send(n).map_err(|_| reader_ended()),
        }
    }

    fn on_news(&mut self, app: &mut App, (news, recording): pass::PassMessage) {
        self.is_passing = matches!(news, News::Marks(..));
        if let Some(replay) = &mut app.replay {
            replay.on_news(news);
        }
        self.recording = recording.or(self.recording.take());
    }
}

impl Updates for Playback {
    async fn next(&mut self, app: &mut App) -> Result<Flow> {
        let Some(replay) = &app.replay else { return Ok(Flow::End) };
        if replay.player.intervals() == 0 {
            return Err(Error::incomplete(
                "the recording is damaged before its second sample, so nothing can be shown",
            ));
        }
        let due = replay.due_in();
        self.request(replay.player.position())?;
        tokio::select! {
            () = self.signals.any() => return Ok(Flow::End),
            read = self.reads.recv() => match read.ok_or_else(reader_ended)? {
                Read::Interval(n, interval) => app.on_read(n, interval?),
                Read::Skipped(first, frames) => app.on_skipped(first, frames),
                Read::Before(n, frames) => app.on_read_before(n, frames),
            },
            news = self.news.recv(), if self.is_passing => {
                self.on_news(app, news.ok_or_else(reader_ended)?);
            }
            () = sleep(due.unwrap_or_default()), if due.is_some() => {}
        }
        Ok(Flow::Draw)
    }
}

fn reader_ended() -> Error {
    Error::incomplete("the thread that reads the recording has ended")
}
