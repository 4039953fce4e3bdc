//! The terminal, which we take over, and give back on every exit.

use std::{
    io::{self, IsTerminal, Write, stdout},
    mem,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use cgscope_serve::lock;
use crossterm::{
    cursor::{Hide, Show},
    event::{DisableBracketedPaste, DisableMouseCapture, EnableBracketedPaste},
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

/// Whether standard error ends with a progress line, which the next output overwrites.
static STANDS: AtomicBool = AtomicBool::new(false);

/// Returns the prefix of a progress line. The prefix erases the previous progress line.
pub fn begin_line() -> &'static str {
    STANDS.store(true, Ordering::Relaxed);
    "\r\x1b[K"
}

/// Returns the prefix of permanent output. The prefix erases a progress line.
pub fn end_line() -> &'static str {
    if STANDS.swap(false, Ordering::Relaxed) { "\r\x1b[K" } else { "" }
}

/// Makes the terminal report presses, the wheel and drags, with coordinates of any size. Other moves are not reported, because
/// nothing uses them and they would fill a slow line.
const MOUSE_ON: &str = "\x1b[?1000h\x1b[?1002h\x1b[?1006h";
/// Whether the terminal is ours. Locked during writes: we give it back only between sequences, and draw nothing on it later.
static OURS: Mutex<bool> = Mutex::new(false);
/// Notified of a panic in any thread, after the terminal was given back and the message was printed.
pub static PANIC: Notify = Notify::const_new();

/// Our screen. Dropping this value restores the terminal.
pub struct Screen {
    terminal: Terminal<CrosstermBackend<Drawn>>,
    mouse: bool,
}

impl Screen {
    /// Fails if there is no terminal. The error recommends the command `instead`, which prints text.
    pub fn check(instead: &str) -> Result<()> {
        if stdout().is_terminal() && io::stdin().is_terminal() {
            return Ok(());
        }
        Err(Error::could_not_run(format!(
            "the screen needs a terminal on standard input and output: use `{instead}` for text"
        )))
    }

    /// Takes over the terminal. With `mouse`, also takes the mouse, which then selects no text. `instead`: see [`Self::check`].
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
                "the terminal cannot be set up for a screen ({error}): use `{instead}` for text"
            ))
        })
    }

    pub fn set_mouse(&mut self, mouse: bool) -> io::Result<()> {
        self.mouse = mouse;
        let backend = self.terminal.backend_mut();
        if mouse { execute!(backend, Print(MOUSE_ON)) } else { execute!(backend, DisableMouseCapture) }
    }

    pub fn area(&self) -> io::Result<Rect> {
        Ok(Rect::from((ratatui::layout::Position::ORIGIN, self.terminal.size()?)))
    }

    pub fn draw(&mut self, render: impl FnOnce(&mut Frame)) -> io::Result<()> {
        if !*lock(&OURS) {
            return Ok(());
        }
        queue!(self.terminal.backend_mut(), BeginSynchronizedUpdate)?;
        self.terminal.draw(render)?;
        execute!(self.terminal.backend_mut(), EndSynchronizedUpdate)
    }

    /// Makes the next draw repaint everything, because other output may have overwritten the screen.
    pub fn redraw(&mut self) -> io::Result<()> {
        // Does not call `clear`, which queries the cursor position: our key reader would receive the reply.
        self.terminal.resize(self.area()?)
    }

    pub fn retake(&mut self) -> io::Result<()> {
        take_over()?;
        self.set_mouse(self.mouse)?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// Buffers a frame, and writes it at once. Writes nothing if the terminal is not ours.
#[derive(Default)]
struct Drawn(Vec<u8>);

impl Write for Drawn {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let ours = lock(&OURS);
        let mut out = stdout().lock();
        let sent = if *ours { out.write_all(&self.0).and_then(|()| out.flush()) } else { Ok(()) };
        self.0.clear();
        sent
    }
}

/// Returns whether our job is in the foreground. Returns true without job control, because the kernel then does not report it.
pub fn in_foreground() -> bool {
    let group = rustix::termios::tcgetpgrp(rustix::stdio::stdin());
    group.map_or(true, |group| group == rustix::process::getpgrp())
}

fn take_over() -> io::Result<()> {
    let mut ours = lock(&OURS);
    // Must come first: if cgscope is in the background, the kernel stops it here, before it writes to another job's screen.
    // Disables raw mode before it enables it, because a shell may have changed the modes that crossterm believes are set.
    disable_raw_mode()?;
    enable_raw_mode()?;
    *ours = true;
    execute!(stdout(), EnterAlternateScreen, Hide, EnableBracketedPaste)
}

pub fn give_back() {
    let mut ours = lock(&OURS);
    if !mem::take(&mut *ours) {
        return;
    }
    let _ = execute!(
        stdout(),
        EndSynchronizedUpdate,
        DisableMouseCapture,
        DisableBracketedPaste,
        LeaveAlternateScreen,
        Show
    );
    // In the background, the kernel would stop us. The shell has already set its own modes.
    if in_foreground() {
        let _ = disable_raw_mode();
    }
}

/// Makes panics restore the terminal before they print. A message on the alternate screen would disappear.
fn give_back_before_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        give_back();
        print(panic);
        PANIC.notify_one();
    }));
}
