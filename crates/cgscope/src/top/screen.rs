//! The loop of the screen, the same for a live host and for a recording: keys and news in, cells out.

use std::{
    io,
    time::{Duration, Instant},
};

use cgscope_view::{
    app::{App, Effect},
    draw::draw,
    settings::Settings,
    theme::{Colours, Theme},
};
use crossterm::event::Event;
use tokio::time::sleep_until;

use crate::{
    exit::{Error, Result},
    signals::{JobControl, Order, Whom},
    terminal::{self, Screen},
    top::{input::Input, screen_dump},
};

/// Where the intervals on the screen come from.
pub trait Updates {
    /// Waits for news and puts them into the state. A key that comes first makes the loop drop the future: what it was
    /// waiting for must then still come at the next call.
    async fn next(&mut self, app: &mut App) -> Result<Flow>;
}

/// What the loop does after news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Draws, and goes on.
    Draw,
    End,
}

/// Between two drawings, unless a key is answered: who drags the edge of a window sees it follow, and no more is drawn than is
/// seen.
const FRAME: Duration = Duration::from_millis(16);

/// Shows `app` until somebody quits, the updates end or the terminal is gone.
pub async fn show(screen: &mut Screen, app: &mut App, updates: &mut impl Updates) -> Result<()> {
    let mut input = Input::start();
    let mut job = JobControl::listen()?;
    let mut frames = Frames::new(Instant::now());
    // Time stopped by a shell: a replay does not go on meanwhile.
    let mut stopped = Duration::ZERO;
    loop {
        app.tick(Instant::now() - stopped);
        if frames.is_due(Instant::now()) {
            match paint(screen, app) {
                Err(error) if is_gone(&error) => return Ok(()),
                painted => painted.map_err(not_drawn)?,
            }
            frames.drawn(Instant::now());
        }
        let order = tokio::select! {
            events = input.next() => match on_events(screen, app, &events, Instant::now() - stopped) {
                Next::Go(when) => {
                    frames.ask(when, Instant::now());
                    continue;
                }
                Next::Stop => Order::Stop(Whom::Job),
                Next::End => return Ok(()),
            },
            order = job.next() => order,
            flow = updates.next(app) => match flow? {
                Flow::Draw => {
                    frames.ask(When::Soon, Instant::now());
                    continue;
                }
                Flow::End => return Ok(()),
            },
            () = frames.wait() => continue,
            () = terminal::panicked() => return Err(Error::incomplete("a part of it has failed, as said above")),
        };
        let since = Instant::now();
        match job.obey(order, screen).await {
            Err(error) if is_gone(&error) => return Ok(()),
            obeyed => obeyed.map_err(not_drawn)?,
        }
        stopped += since.elapsed();
        frames.ask(When::Soon, Instant::now());
    }
}

/// When something is to be drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Nothing has changed.
    Never,
    /// With whatever else comes within a [`FRAME`].
    Soon,
    /// A key is to be answered.
    Now,
}

/// When the screen is drawn.
struct Frames {
    /// Next; `None`: it shows what there is.
    next: Option<Instant>,
    last: Option<Instant>,
}

impl Frames {
    /// The first one at once.
    fn new(now: Instant) -> Self {
        Self { next: Some(now), last: None }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    /// Waits until it is due, however long nothing changes.
    async fn wait(&self) {
        match self.next {
            Some(next) => sleep_until(next.into()).await,
            None => std::future::pending().await,
        }
    }

    fn drawn(&mut self, now: Instant) {
        *self = Self { next: None, last: Some(now) };
    }

    fn ask(&mut self, when: When, now: Instant) {
        let next = match (when, self.last) {
            (When::Never, _) => return,
            (When::Soon, Some(last)) => now.max(last + FRAME),
            (When::Soon, None) | (When::Now, _) => now,
        };
        self.next = Some(self.next.map_or(next, |earlier| earlier.min(next)));
    }
}

fn paint(screen: &mut Screen, app: &mut App) -> io::Result<()> {
    let area = screen.area()?;
    if area != app.area {
        app.on_resize(area.width, area.height);
    }
    screen.draw(|frame| draw(frame, app))
}

/// What the environment and settings make things look like.
pub fn theme(settings: &Settings) -> Theme {
    Theme::new(settings.colours.unwrap_or_else(|| Colours::of_environment(|name| std::env::var(name).ok())))
}

/// True if nobody sees the terminal any more: that ends the screen as SIGHUP does, whichever comes first.
fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EIO) || error.kind() == io::ErrorKind::BrokenPipe
}

fn not_drawn(error: io::Error) -> Error {
    Error::incomplete(format!("the terminal cannot be drawn on ({error})"))
}

/// What the loop does after events.
enum Next {
    Go(When),
    Stop,
    End,
}

/// All that has come, before anything is drawn.
fn on_events(screen: &mut impl Mouse, app: &mut App, events: &[Event], now: Instant) -> Next {
    if events.is_empty() {
        // The terminal is gone.
        return Next::End;
    }
    // A key acts on the moment at which it is pressed.
    app.tick(now);
    let mut next = When::Never;
    for event in events {
        match app.on_event(event) {
            Effect::None => continue,
            Effect::Quit => return Next::End,
            Effect::Suspend => return Next::Stop,
            // The feed sees that it has changed.
            Effect::Draw | Effect::Interval(_) => {}
            Effect::Snapshot => app.notice = Some(screen_dump::write(app)),
            Effect::Mouse(take) => screen.take_mouse(take),
            Effect::Redraw => screen.redraw(),
        }
        next = When::Now;
    }
    Next::Go(next)
}

/// What can have the mouse.
trait Mouse {
    fn take_mouse(&mut self, take: bool);
    fn redraw(&mut self);
}

impl Mouse for Screen {
    fn take_mouse(&mut self, take: bool) {
        // A terminal that is gone is noticed when it is drawn on.
        let _ = self.set_mouse(take);
    }

    fn redraw(&mut self) {
        let _ = Screen::redraw(self);
    }
}

#[cfg(test)]
mod tests;
