//! The terminal: taken over, and given back on every way out.

use std::{
    io::{self, IsTerminal, Write, stdout},
    mem,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crossterm::{
    cursor::{Hide, Show},
    event::{DisableBracketedPaste, DisableMouseCapture},
    execute, queue,
    style::Print,
    terminal::{
        BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
        disable_raw_mode, enable_raw_mode,
    },
};
use ratatui::{Frame, Terminal, backend::CrosstermBackend, layout::Rect};
use tokio::sync::Notify;

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

/// Presses, the wheel and drags, with coordinates of any size. Not each move of the mouse, as crossterm would have it: nobody
/// asks for that, and it floods a slow line.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";

/// The terminal is ours. Held while it is written to: whoever gives it back waits for the end of a sequence, and nothing is drawn
/// afterwards.
static OURS: Mutex<bool> = Mutex::new(false);

/// A part of cgscope panicked: the terminal has been given back.
static PANIC: Notify = Notify::const_new();

fn ours() -> MutexGuard<'static, bool> {
    OURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A screen of our own; dropping it gives the terminal back as it was.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Drawn>>,
    mouse: bool,
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

    /// Takes the terminal over, and with `mouse` the mouse, with which text is selected otherwise; `instead` as in
    /// [`Screen::check`].
    pub fn take(instead: &str, mouse: bool) -> Result<Self> {
        Self::check(instead)?;
        give_back_before_panics();
        let terminal = take_over().and_then(|()| Terminal::new(CrosstermBackend::new(Drawn::default())));
        let screen = terminal.and_then(|terminal| {
            let mut screen = Self { terminal, mouse: false };
            screen.set_mouse(mouse).map(|()| screen)
        });
        screen.map_err(|error| {
            give_back();
            Error::could_not_run(format!(
                "the terminal cannot be taken over ({error}): use `{instead}` for text"
            ))
        })
    }

    /// Takes the mouse, or leaves it to the terminal, where text is selected with it.
    pub fn set_mouse(&mut self, mouse: bool) -> io::Result<()> {
        self.mouse = mouse;
        let backend = self.terminal.backend_mut();
        if mouse { execute!(backend, Print(MOUSE_ON)) } else { execute!(backend, DisableMouseCapture) }
    }

    /// How large it is now, cells.
    pub fn area(&self) -> io::Result<Rect> {
        Ok(Rect::from((ratatui::layout::Position::ORIGIN, self.terminal.size()?)))
    }

    /// Draws, seen all at once. While the terminal is not ours nothing is drawn.
    pub fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        if !*ours() {
            return Ok(());
        }
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// All of it is drawn anew, whatever has been written on it.
    pub fn redraw(&mut self) -> io::Result<()> {
        // Not `clear`: see below.
        self.terminal.resize(self.area()?)
    }

    /// Gives the terminal back for a while.
    pub fn leave(&mut self) {
        give_back();
    }

    /// Takes the terminal over again, whatever was done to it meanwhile; all of it is to be drawn anew.
    pub fn retake(&mut self) -> io::Result<()> {
        take_over()?;
        self.set_mouse(self.mouse)?;
        // Not `clear`: it asks the terminal where the cursor is, and the answer would go to whoever reads the keys.
        self.terminal.resize(self.area()?)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// What is drawn, sent in one piece, and only while the terminal is ours.
#[derive(Default)]
struct Drawn(Vec<u8>);

impl Write for Drawn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let ours = ours();
        let mut out = stdout().lock();
        let sent = if *ours { out.write_all(&self.0).and_then(|()| out.flush()) } else { Ok(()) };
        self.0.clear();
        sent
    }
}

/// True unless the terminal is another job's at this moment. Where the kernel does not say, there is no job control.
pub fn in_foreground() -> bool {
    let group = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
    group.map_or(true, |group| group == rustix::process::getpgrp())
}

/// Waits until a part of cgscope has panicked: the terminal has been given back, and the message printed.
pub async fn panicked() {
    PANIC.notified().await;
}

fn take_over() -> io::Result<()> {
    let mut ours = ours();
    // First: should we be in the background, the kernel stops us here, and nothing has been written to another's screen. Off
    // before on: a shell may have changed modes that crossterm takes for its own.
    disable_raw_mode()?;
    enable_raw_mode()?;
    *ours = true;
    execute!(stdout(), EnterAlternateScreen, Hide, DisableBracketedPaste)
}

fn give_back() {
    let mut ours = ours();
    if !mem::take(&mut *ours) {
        return;
    }
    // Nobody is left to tell: the terminal may be gone.
    let _ = execute!(stdout(), EndSynchronizedUpdate, DisableMouseCapture, LeaveAlternateScreen, Show);
    // In the background the kernel would stop us for it, and the modes are the shell's already.
    if in_foreground() {
        let _ = disable_raw_mode();
    }
}

/// A message that is printed on the alternate screen is gone with it.
fn give_back_before_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        print(panic);
        PANIC.notify_one();
    }));
}
