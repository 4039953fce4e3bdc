//! The replay of a recording on the screen: the position, its movement, and the lines that show both.

pub(crate) mod draw;
pub mod player;

use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use player::{Mark, Player, When};

const BIG_STEP: isize = 10;
/// Delay before the screen shows that it is reading. With a shorter delay, the screen would flicker.
const SHOWN_AFTER: Duration = Duration::from_millis(300);
/// Maximum number of characters of a typed time.
const LONGEST_TIME: usize = 12;

/// The keys of a replay and their actions. Other keys do the same as on the live screen.
pub const KEYS: [(&str, &str); 9] = [
    ("space", "plays or pauses; at the end, plays from the start"),
    ("← →", "goes one interval back or forward, and pauses"),
    ("shift ← →", "ten intervals back or forward"),
    ("Home End", "to the first or last interval"),
    ("[ ]", "half or double the speed (0.25x to 64x)"),
    ("n N", "pauses at the next or previous interval in which a finding begins"),
    (":", "to a time: 14:03:20 (UTC, as shown), or a time after the start: 90s, 5m, 2m05s"),
    ("< > s", "sort by another column (arrow keys move in time)"),
    ("g G", "to the first or last row"),
];

#[derive(Debug)]
pub struct Replay {
    pub player: Player,
    /// The interval on the screen. It differs from the player's position while the interval at that position is being read.
    pub(crate) shown: Option<usize>,
    searched: usize,
    /// Why the search stopped early.
    failed: Option<String>,
    /// How the recording ended; set when all intervals have been searched.
    ending: Option<EndSummary>,
    /// The time that the user is typing.
    pub prompt: Option<String>,
    /// A message that is shown until the next key.
    pub notice: Option<String>,
    /// The last time at which the screen showed the interval at the player's position.
    caught_up: Instant,
}

/// A message from the search for findings in the recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// The number of intervals searched so far, and the new marks.
    Marks(usize, Vec<Mark>),
    Over {
        samples: usize,
        ending: EndSummary,
    },
    /// The file cannot be read further; the reason.
    Failed(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndSummary {
    /// How the recording ended, and its losses.
    pub words: String,
    pub is_whole: bool,
}

impl Replay {
    pub fn new(player: Player, now: Instant) -> Self {
        let (shown, failed, ending, prompt, notice) = Default::default();
        Self { player, shown, searched: 0, failed, ending, prompt, notice, caught_up: now }
    }

    pub(crate) fn tick(&mut self, now: Instant) {
        self.player.tick(now);
        if self.shown == Some(self.player.position) {
            self.caught_up = now;
        }
    }

    /// Whether reading an interval takes so long that the screen must show it.
    fn is_reading(&self) -> bool {
        self.player.now.saturating_duration_since(self.caught_up) >= SHOWN_AFTER
    }

    /// Returns the time until the screen changes without a key or newly read data.
    pub fn due_in(&self) -> Option<Duration> {
        let is_behind = self.shown != Some(self.player.position) && !self.is_reading();
        let said_in = is_behind
            .then(|| SHOWN_AFTER.saturating_sub(self.player.now.saturating_duration_since(self.caught_up)));
        self.player.due_in().into_iter().chain(said_in).min()
    }

    /// Handles a key. Returns false if the replay does not use this key.
    pub(crate) fn on_key(&mut self, key: KeyEvent) -> bool {
        self.notice = None;
        let is_ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        if let Some(typed) = self.prompt.take() {
            let out = is_ctrl && key.code == KeyCode::Char('c');
            self.on_key_of_prompt(typed, if out { KeyCode::Esc } else { key.code });
            return true;
        }
        let player = &mut self.player;
        let is_big = key.modifiers.contains(KeyModifiers::SHIFT);
        let step = if is_big { BIG_STEP } else { 1 };
        match key.code {
            _ if is_ctrl => return false,
            KeyCode::Char(' ') if player.is_playing => player.pause(),
            KeyCode::Char(' ') => player.play(),
            KeyCode::Left | KeyCode::Right => {
                player.step(if key.code == KeyCode::Left { -step } else { step });
                if !is_big {
                    player.pause();
                }
            }
            KeyCode::Home => player.jump(0),
            KeyCode::End => player.jump(usize::MAX),
            KeyCode::Char('[') => player.set_speed(player.speed / 2.0),
            KeyCode::Char(']') => player.set_speed(player.speed * 2.0),
            KeyCode::Char('n') if !player.go_to_mark(true) => self.notice = Some(self.no_mark("after")),
            KeyCode::Char('N') if !player.go_to_mark(false) => self.notice = Some(self.no_mark("before")),
            KeyCode::Char('n' | 'N') => {}
            KeyCode::Char(':') => self.prompt = Some(String::new()),
            _ => return false,
        }
        true
    }

    fn no_mark(&self, side: &str) -> String {
        let is_searching = self.ending.is_none() && self.failed.is_none();
        let so_far = if is_searching && side == "after" { " yet" } else { "" };
        format!("no finding begins {side} this interval{so_far}")
    }

    fn on_key_of_prompt(&mut self, mut typed: String, key: KeyCode) {
        match key {
            KeyCode::Esc => return,
            KeyCode::Enter => {
                return match typed.parse::<When>().and_then(|when| when.find(&self.player.samples)) {
                    Ok(interval) => self.player.jump(interval),
                    Err(why) => self.notice = Some(format!("{typed:?}: {why}")),
                };
            }
            KeyCode::Backspace => _ = typed.pop(),
            KeyCode::Char(letter) if letter.is_ascii_graphic() => typed.push(letter),
            _ => {}
        }
        typed.truncate(LONGEST_TIME);
        self.prompt = Some(typed);
    }

    pub fn on_news(&mut self, news: News) {
        match news {
            News::Marks(intervals, marks) => {
                self.searched = intervals;
                marks.into_iter().for_each(|mark| self.player.add_mark(mark));
            }
            News::Over { samples, mut ending } => {
                if samples > self.player.samples.len() {
                    ending.words += "; the file has grown since it was opened: open it again for the rest";
                    ending.is_whole = false;
                }
                self.player.shorten(samples.saturating_sub(1));
                self.ending = Some(ending);
            }
            News::Failed(why) => self.failed = Some(why),
        }
    }
}

#[cfg(test)]
mod tests;
