//! The event loop of the screen, for the live host and for recordings. Receives keys and intervals, and draws.

use std::{
    io,
    time::{Duration, Instant},
};

use cgscope_view::{
    app::{About, App, Effect},
    draw::draw,
    settings::Settings,
    theme::{Colours, Theme},
};
use crossterm::event::Event;
use tokio::time::sleep_until;

use crate::{
    exit::{Error, Result},
    signals::{JobControl, Order},
    terminal::{PANIC, Screen},
    top,
};

pub trait Updates {
    /// Waits for an update, and applies it to `app`. If a key arrives first, the loop drops this future. A dropped future must
    /// not lose an update: the next call must return that update.
    async fn next(&mut self, app: &mut App) -> Result<Flow>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Draw,
    End,
}

/// Minimum time between frames, except after a key press. A window resize looks smooth, and more frames would not be visible.
const FRAME: Duration = Duration::from_millis(16);

/// Shows `app` until the user quits, the updates end or the terminal closes. Then closes the screen, so messages are visible again.
pub async fn show(mut screen: Screen, app: &mut App, updates: &mut impl Updates) -> Result<()> {
    let mut input = top::input()?;
    let mut job = JobControl::listen()?;
    let mut frames = Frames::new(Instant::now());
    // Time during which a shell had stopped us. A replay does not advance in that time.
    let mut stopped = Duration::ZERO;
    loop {
        app.tick(Instant::now() - stopped);
        if frames.is_due(Instant::now()) {
            match paint(&mut screen, app) {
                Err(error) if is_terminal_closed(&error) => return Ok(()),
                painted => painted.map_err(not_drawn)?,
            }
            frames.drawn(Instant::now());
        }
        let (next, mut events) = (frames.next, Vec::new());
        let order = tokio::select! {
            _ = input.recv_many(&mut events, top::MOST_EVENTS) => match on_events(app, &events, Instant::now() - stopped, |effect| apply(&mut screen, effect)) {
                Next::Go(delay) => {
                    delay.into_iter().for_each(|delay| frames.ask(delay, Instant::now()));
                    continue;
                }
                Next::Stop => Order::StopJob,
                Next::End => return Ok(()),
            },
            order = job.next() => order,
            flow = updates.next(app) => match flow? {
                Flow::Draw => {
                    frames.ask(FRAME, Instant::now());
                    continue;
                }
                Flow::End => return Ok(()),
            },
            () = sleep_until(next.unwrap_or_else(Instant::now).into()), if next.is_some() => continue,
            () = PANIC.notified() => return Err(Error::incomplete("a part of cgscope panicked; the message is above")),
        };
        let since = Instant::now();
        match job.obey(order, &mut screen).await {
            Err(error) if is_terminal_closed(&error) => return Ok(()),
            obeyed => obeyed.map_err(not_drawn)?,
        }
        stopped += since.elapsed();
        frames.ask(FRAME, Instant::now());
    }
}

struct Frames {
    /// The time of the next frame; `None` if the screen is up to date.
    next: Option<Instant>,
    last: Instant,
}

impl Frames {
    /// Creates a schedule whose first frame is due at once.
    fn new(now: Instant) -> Self {
        Self { next: Some(now), last: now }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.next.is_some_and(|next| next <= now)
    }

    fn drawn(&mut self, now: Instant) {
        *self = Self { next: None, last: now };
    }

    /// Requests a frame, at least `delay` after the last one: [`FRAME`] to combine changes, or zero after a key press.
    fn ask(&mut self, delay: Duration, now: Instant) {
        let next = now.max(self.last + delay);
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

/// Returns the state of a new screen. Its colours are those of the settings, else of the environment.
pub fn app(about: About, settings: Settings, interval: Duration) -> App {
    let colours = || Colours::of_environment(|name| std::env::var(name).ok());
    let theme = Theme::new(settings.colours.unwrap_or_else(colours));
    App::new(about, settings, theme, interval)
}

/// Returns whether an error means that the terminal has closed. The screen then ends as after SIGHUP, which may arrive later.
/// ENXIO: the terminal closed before crossterm read its size, so that `/dev/tty` could not be opened.
fn is_terminal_closed(error: &io::Error) -> bool {
    let is_gone = matches!(error.raw_os_error(), Some(libc::EIO | libc::ENXIO));
    is_gone || error.kind() == io::ErrorKind::BrokenPipe
}

fn not_drawn(error: io::Error) -> Error {
    Error::incomplete(format!("the terminal cannot be drawn on ({error})"))
}

#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Draw a frame at least this time after the last one; `None`: nothing has changed.
    Go(Option<Duration>),
    Stop,
    End,
}

/// Passes the events to `app`, and effects on the terminal to `apply`. Without events, the terminal has closed.
fn on_events(app: &mut App, events: &[Event], now: Instant, mut apply: impl FnMut(Effect)) -> Next {
    if events.is_empty() {
        return Next::End;
    }
    // A key applies to the moment at which it is pressed.
    app.tick(now);
    let mut next = None;
    for event in events {
        match app.on_event(event) {
            Effect::None => continue,
            Effect::Quit => return Next::End,
            Effect::Suspend => return Next::Stop,
            // The source of updates notices a changed interval.
            Effect::Draw | Effect::Interval(_) => {}
            Effect::Snapshot => app.notice = Some(top::write(app)),
            effect @ (Effect::Mouse(_) | Effect::Redraw) => apply(effect),
        }
        // A window that is resized can change its size a hundred times a second.
        let delay = if matches!(event, Event::Resize(..)) { FRAME } else { Duration::ZERO };
        next = Some(next.unwrap_or(delay).min(delay));
    }
    Next::Go(next)
}

fn apply(screen: &mut Screen, effect: Effect) {
    // Ignore errors: the next frame notices a closed terminal.
    let _ = match effect {
        Effect::Mouse(take) => screen.set_mouse(take),
        Effect::Redraw => screen.redraw(),
        _ => Ok(()),
    };
}

#[cfg(test)]
mod tests;
