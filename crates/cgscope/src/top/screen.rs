//! The loop of the screen, the same for a live host and for a recording: keys and news in, cells out.

use std::{io, time::Instant};

use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use ratatui::layout::Rect;

use crate::{
    exit::{Error, Result},
    terminal::Screen,
    top::{
        draw::{draw, table_height},
        state::{Action, App},
        theme::Theme,
    },
};

/// Where the intervals on the screen come from.
pub trait Feed {
    /// Waits for news and puts them into the state. A key that comes first makes the loop drop the future: what it was
    /// waiting for must then still come at the next call.
    async fn next(&mut self, app: &mut App) -> Result<Flow>;
}

/// What the loop does after news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Draws, and goes on.
    Draw,
    /// Ends.
    End,
}

/// Shows `app` until somebody quits, the feed ends or the terminal is gone.
pub async fn show(screen: &mut Screen, app: &mut App, feed: &mut impl Feed) -> Result<()> {
    let theme = Theme::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
    let mut keys = EventStream::new();
    loop {
        app.tick(Instant::now());
        paint(screen, app, theme)?;
        if app.interval.is_some() && std::env::var_os("CGSCOPE_TEST_PANIC").is_some() {
            // For the test that a panic gives the terminal back; what else would panic in the middle of drawing?
            panic!("a panic that was asked for");
        }
        tokio::select! {
            key = keys.next() => match key {
                Some(Ok(event)) => {
                    // A key acts on the moment at which it is pressed.
                    app.tick(Instant::now());
                    if on_event(app, &event) == Action::Quit {
                        return Ok(());
                    }
                }
                // The terminal is gone.
                Some(Err(_)) | None => return Ok(()),
            },
            flow = feed.next(app) => if flow? == Flow::End { return Ok(()) },
        }
    }
}

fn paint(screen: &mut Screen, app: &mut App, theme: Theme) -> Result<()> {
    let gone = |error: io::Error| Error::incomplete(format!("the terminal cannot be drawn on ({error})"));
    let size = screen.terminal.size().map_err(gone)?;
    let height = table_height(Rect::new(0, 0, size.width, size.height), app);
    app.scroll_to_selected(height);
    screen.terminal.draw(|frame| draw(frame, app, theme)).map_err(gone)?;
    Ok(())
}

fn on_event(app: &mut App, event: &Event) -> Action {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => app.on_key(*key),
        Event::Resize(..) => Action::Draw,
        _ => Action::None,
    }
}
