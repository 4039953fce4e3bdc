//! The terminal: taken over, and given back on every way out.

use std::{
    io::{self, IsTerminal, Stdout, stdout},
    sync::atomic::{AtomicBool, Ordering},
};

use crossterm::{
    cursor::{Hide, Show},
    execute,
    terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode},
};
use ratatui::{Terminal, backend::CrosstermBackend};

use crate::exit::{Error, Result};

/// A line that is rewritten stands at the end of standard error.
static STANDS: AtomicBool = AtomicBool::new(false);

/// What is to be written before a line that is rewritten: it takes the place of the one before.
pub fn begin_line() -> &'static str {
    STANDS.store(true, Ordering::Relaxed);
    "\r\x1b[K"
}

/// What is to be written before words that stay: it takes away a line that is rewritten.
pub fn end_line() -> &'static str {
    if STANDS.swap(false, Ordering::Relaxed) { "\r\x1b[K" } else { "" }
}

/// A screen of our own; dropping it gives the terminal back as it was.
pub struct Screen {
    /// For drawing.
    pub terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Refuses where there is no terminal; `instead` is the command that prints text.
    pub fn check(instead: &str) -> Result<()> {
        if stdout().is_terminal() && io::stdin().is_terminal() {
            return Ok(());
        }
        Err(Error::could_not_run(format!(
            "the screen needs a terminal on standard input and output: use `{instead}` for text"
        )))
    }

    /// Takes the terminal over; `instead` as in [`Screen::check`].
    pub fn take(instead: &str) -> Result<Self> {
        Self::check(instead)?;
        give_back_before_panics();
        let taken = enable_raw_mode().and_then(|()| execute!(stdout(), EnterAlternateScreen, Hide));
        let terminal = taken.and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        terminal.map(|terminal| Self { terminal }).map_err(|error| {
            give_back();
            Error::could_not_run(format!(
                "the terminal cannot be taken over ({error}): use `{instead}` for text"
            ))
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

fn give_back() {
    // Nobody is left to tell: the terminal may be gone.
    let _ = execute!(stdout(), LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A message that is printed on the alternate screen is gone with it.
fn give_back_before_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        print(panic);
    }));
}
