//! The feed of the screen of a replay: a thread that reads the intervals that the player requests, and the pass over the file.

use std::sync::mpsc;

use cgscope_view::{app::App, replay::state::News};
use tokio::{sync::mpsc as channel, time::sleep};

use crate::{
    exit::{Error, Result},
    recording::Recording,
    replay::{
        pass,
        reader::{self, Read},
        source::Intervals,
    },
    signals::Signals,
    top::screen::{Flow, Updates},
};

pub struct Playback {
    wanted: mpsc::Sender<usize>,
    requested: Option<usize>,
    reads: channel::UnboundedReceiver<Read>,
    news: channel::UnboundedReceiver<pass::Message>,
    is_passing: bool,
    recording: Option<Box<Recording>>,
    signals: Signals,
}

impl Playback {
    /// Starts the reader of `intervals` and the pass over `recording`.
    pub fn start(recording: Recording, intervals: Intervals) -> Result<Self> {
        let signals = Signals::listen()?;
        let (wanted, reads) = reader::start(intervals);
        let news = pass::start(recording);
        Ok(Self { wanted, requested: None, reads, news, is_passing: true, recording: None, signals })
    }

    /// The recording, once the pass over it has ended.
    pub fn recording(&self) -> Option<&Recording> {
        self.recording.as_deref()
    }

    fn request(&mut self, n: usize) -> Result<()> {
        match self.requested.replace(n) {
            Some(before) if before == n => Ok(()),
            _ => self.wanted.send(n).map_err(|_| gone()),
        }
    }

    fn on_news(&mut self, app: &mut App, (news, recording): pass::Message) {
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
                "the recording is damaged before its second Sample: nothing of it can be shown",
            ));
        }
        let due = replay.due_in();
        self.request(replay.player.position())?;
        tokio::select! {
            () = self.signals.any() => return Ok(Flow::End),
            read = self.reads.recv() => match read.ok_or_else(gone)? {
                Read::Interval(n, interval) => app.on_read(n, interval?),
                Read::Skipped(first, frames) => app.on_skipped(first, frames),
                Read::Before(n, frames) => app.on_read_before(n, frames),
            },
            news = self.news.recv(), if self.is_passing => {
                self.on_news(app, news.ok_or_else(gone)?);
            }
            () = sleep(due.unwrap_or_default()), if due.is_some() => {}
        }
        Ok(Flow::Draw)
    }
}

fn gone() -> Error {
    Error::incomplete("the thread that reads the recording is gone")
}
