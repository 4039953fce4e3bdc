//! What feeds the screen of a replay: a thread that reads the intervals the player asks for, and the pass over the file.

use std::{
    sync::{Arc, mpsc},
    thread,
};

use cgscope_model::Interval;
use tokio::{sync::mpsc as channel, time::sleep};

use crate::{
    exit::{Error, Result},
    recording::Recording,
    replay::{
        pass::{self, News},
        source::{Intervals, Source},
    },
    signals::Signals,
    top::{
        screen::{Feed, Flow},
        state::App,
    },
};

/// An interval by its number; `None` where damage is in the way.
type Read = (usize, Result<Option<Interval>>);

/// A recording that feeds a screen.
pub struct Playback {
    wanted: mpsc::Sender<usize>,
    /// What the reader was asked for last.
    asked: Option<usize>,
    reads: channel::UnboundedReceiver<Read>,
    news: channel::UnboundedReceiver<News>,
    is_passing: bool,
    recording: Option<Box<Recording>>,
    signals: Signals,
}

impl Playback {
    /// Starts the reader over `source`, and the pass over `recording`, of which nothing was read yet.
    pub fn start(recording: Recording, source: impl Source + Send + 'static) -> Result<Self> {
        let signals = Signals::listen()?;
        let mut intervals = Intervals::new(source, recording.header().selection.clone());
        let (wanted, receive) = mpsc::channel::<usize>();
        let (send, reads) = channel::unbounded_channel();
        thread::spawn(move || {
            while let Ok(first) = receive.recv() {
                // Whoever holds a key down wants to see where it leads, not each interval on the way.
                let n = receive.try_iter().last().unwrap_or(first);
                if send.send((n, intervals.read(n))).is_err() {
                    return;
                }
            }
        });
        let news = pass::start(recording);
        Ok(Self { wanted, asked: None, reads, news, is_passing: true, recording: None, signals })
    }

    /// The recording after the pass over it; `None` before.
    pub fn recording(&self) -> Option<&Recording> {
        self.recording.as_deref()
    }

    fn ask(&mut self, n: usize) -> Result<()> {
        if self.asked == Some(n) {
            return Ok(());
        }
        self.asked = Some(n);
        self.wanted.send(n).map_err(|_| gone())
    }

    fn on_news(&mut self, app: &mut App, news: News) {
        if let Some(replay) = &mut app.replay {
            replay.on_news(&news);
        }
        self.is_passing = matches!(news, News::Marks(..));
        if let News::Over(recording) = news {
            self.recording = Some(recording);
        }
    }
}

impl Feed for Playback {
    async fn next(&mut self, app: &mut App) -> Result<Flow> {
        let Some(replay) = &app.replay else { return Ok(Flow::End) };
        if replay.player.intervals() == 0 {
            return Err(Error::incomplete(
                "the recording is damaged before its second Sample: nothing of it can be shown",
            ));
        }
        let due = replay.due_in();
        self.ask(replay.player.position())?;
        tokio::select! {
            () = self.signals.any() => return Ok(Flow::End),
            read = self.reads.recv() => {
                let (n, interval) = read.ok_or_else(gone)?;
                app.on_read(n, interval?.map(Arc::new));
            }
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
