//! The progress line on standard error during a recording.

use std::{
    io::{self, IsTerminal, Write},
    time::{Duration, Instant},
};

use cgscope_model::{
    Losses,
    units::{bytes, duration, per_second},
};

use crate::{terminal, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    Silent,
    /// On a terminal: one line, which is overwritten each time.
    Rewritten,
    /// In a log: a new line every ten minutes.
    Logged,
}

impl Manner {
    /// Selects how progress is shown. `shares` is true if a command writes to the same terminal.
    pub fn of(quiet: bool, shares: bool) -> Self {
        let is_dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
        match io::stderr().is_terminal() {
            _ if quiet => Self::Silent,
            true if shares => Self::Silent,
            true if !is_dumb => Self::Rewritten,
            _ => Self::Logged,
        }
    }

    fn pause(self) -> Duration {
        match self {
            Self::Rewritten => Duration::from_secs(1),
            // Rare, because a journal keeps weeks of lines, but often enough to show that a run of an hour is still working.
            Self::Silent | Self::Logged => Duration::from_secs(600),
        }
    }
}

pub struct Progress {
    manner: Manner,
    latest: Option<Instant>,
}

impl Progress {
    /// In a log, the first line is due only after the first pause.
    pub fn new(manner: Manner) -> Self {
        Self { manner, latest: (manner != Manner::Rewritten).then(Instant::now) }
    }

    /// Shows the state if a line is due.
    pub fn show(&mut self, state: impl FnOnce() -> String) {
        // The once-a-second call may come a little early.
        let slack = Duration::from_millis(50);
        let is_due = self.latest.is_none_or(|latest| latest.elapsed() + slack >= self.manner.pause());
        if self.manner == Manner::Silent || !is_due {
            return;
        }
        self.latest = Some(Instant::now());
        match self.manner {
            Manner::Rewritten => rewrite(&state()),
            _ => say!("cgscope: {}", state()),
        }
    }
}

fn rewrite(line: &str) {
    let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(80, |size| usize::from(size.ws_col));
    let line: String = line.chars().take(columns.max(20) - 1).collect();
    let before = terminal::begin_line();
    // Ignore errors: standard error may be closed.
    let _ = write!(io::stderr(), "{before}{line}");
}

/// The progress in one line. `more` is the state of the destination.
pub fn words(elapsed_ns: u64, written: u64, losses: &Losses, more: &str) -> String {
    let rate =
        per_second(written, elapsed_ns).map_or(String::new(), |rate| format!(" ({}/s)", bytes(rate as u64)));
    let more = if more.is_empty() { String::new() } else { format!("  {more}") };
    format!("{}  {}{rate}{more}  {}", duration(elapsed_ns), bytes(written), text::loss_line(losses))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_ledger::Loss;

    #[test]
    fn the_state_is_one_line() {
        let mut losses = Losses::default();
        let state = |losses: &Losses, more| words(125_000_000_000, 1 << 20, losses, more);
        assert_eq!(state(&losses, ""), "2m05s  1.0MiB (8.2KiB/s)  losses: none");
        losses.add(Loss::IntervalLate, 3);
        assert_eq!(state(&losses, "3 files"), "2m05s  1.0MiB (8.2KiB/s)  3 files  losses: interval_late 3");
        assert_eq!(words(0, 100, &Losses::default(), ""), "0ns  100B  losses: none");
    }

    #[test]
    fn a_log_gets_its_first_line_after_a_pause_and_a_quiet_run_gets_none() {
        for manner in [Manner::Logged, Manner::Silent] {
            Progress::new(manner).show(|| panic!("{manner:?} prints something at once"));
        }
        let ago = |seconds| Instant::now().checked_sub(Duration::from_secs(seconds));
        for (seconds, is_due) in [(590, false), (600, true)] {
            let mut shown = false;
            Progress { manner: Manner::Logged, latest: ago(seconds) }.show(|| {
                shown = true;
                "ten minutes are over".into()
            });
            assert!(shown == is_due || ago(seconds).is_none(), "after {seconds} s");
        }
        let mut progress = Progress { manner: Manner::Logged, latest: None };
        let mut said = 0;
        for _ in 0..3 {
            progress.show(|| {
                said += 1;
                "ten minutes are over".into()
            });
        }
        assert_eq!(said, 1);
    }
}
