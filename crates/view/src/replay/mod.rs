//! The replay of a recording on the screen: the position, its movement, and the lines that show both.

pub mod player;

use std::time::{Duration, Instant};

use cgscope_model::units::{self, duration, time_of_day};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::text::{Line, Span};

use crate::theme::Theme;
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

pub const HEIGHT: u16 = 2;
/// Minimum width of the timeline, in cells; a shorter timeline shows nothing useful.
const SHORTEST_BAR: usize = 8;
/// Maximum number of findings named. More of them would hide the rest of the line.
const MOST_NAMED: usize = 2;

pub const FOOTER: &str =
    "q quit  space play/pause  ←→ step  [ ] speed  n N findings  : time  ↑↓ select  ? help";

/// Returns the position as figures and on the timeline. Figures have a fixed width, so that the timeline does not move.
pub fn position(replay: &Replay, theme: Theme, width: usize) -> Line<'static> {
    let player = &replay.player;
    let (state, style) = match (player.is_playing, player.is_at_end()) {
        (true, _) => ("PLAYING", theme.heading()),
        (false, true) => ("END", theme.heading()),
        (false, false) => ("PAUSED", theme.alarm()),
    };
    let length = duration(player.offset_ns(player.last()));
    let end_unix_ns = player.samples.get(player.position + 1).map_or(0, |end| end.unix_ns);
    let (time, offset) = (time_of_day(end_unix_ns), duration(player.offset_ns(player.position)));
    let cells = length.len().max("500ms".len());
    let words = format!(" {}x  {time}  +{offset:<cells$} of {length}  ", player.speed);
    let digits = player.intervals().to_string().len();
    let count = if replay.is_reading() {
        format!("{:<1$}", "reading", 2 * digits + 1)
    } else {
        format!("{:>digits$}/{}", player.position + 1, player.intervals())
    };
    let mut spans = vec![
        Span::styled("REPLAY ", theme.heading()),
        Span::styled(format!("{state:<7}"), style),
        Span::raw(words),
        Span::styled(format!("{count}  "), theme.quiet()),
    ];
    // The status line also explains what is missing, but the screen can cut this line.
    spans.extend(incomplete(replay).map(|_| Span::styled("INCOMPLETE  ", theme.alarm())));
    let room = width.saturating_sub(spans.iter().map(Span::width).sum());
    if room >= SHORTEST_BAR {
        spans.extend(timeline(replay, theme, room));
    }
    Line::from(spans)
}

/// Returns the recording as a line: its findings, the part that has been searched for findings, and the position.
fn timeline(replay: &Replay, theme: Theme, width: usize) -> Vec<Span<'static>> {
    let player = &replay.player;
    let last = player.intervals().saturating_sub(1);
    let cell_of = |interval: usize| interval.min(last) * (width - 1) / last.max(1);
    let searched = if replay.ending.is_some() { player.intervals() } else { replay.searched };
    let mut cells = vec![("·", theme.quiet()); width];
    if let Some(known) = searched.checked_sub(1) {
        // A recording with one interval fills the line.
        let end = if known >= last { width } else { cell_of(known) + 1 };
        cells[..end].fill(("─", theme.quiet()));
    }
    player.marks.iter().for_each(|mark| cells[cell_of(mark.interval)] = ("▲", theme.alarm()));
    cells[cell_of(player.position)] = ("█", theme.wait());
    let spans =
        cells.chunk_by(|a, b| a == b).map(|same| Span::styled(same[0].0.repeat(same.len()), same[0].1));
    spans.collect()
}

/// Returns the prompt or the response to a key. Otherwise: findings that begin here, the search result, the recording's end.
pub fn status(replay: &Replay, theme: Theme) -> Line<'static> {
    if let Some(answer) = answer(replay, theme) {
        return answer;
    }
    let mut spans = end_and_begins(replay, theme);
    if !replay.player.is_at_end() {
        spans.push(Span::styled(pass(replay), theme.quiet()));
        let missing = incomplete(replay).map(|ending| format!("; {}", ending.words));
        spans.extend(missing.map(|words| Span::styled(words, theme.alarm())));
    }
    Line::from(spans)
}

/// Returns the part of the status that a small screen shows instead of the keys.
pub fn urgent(replay: &Replay, theme: Theme) -> Option<Line<'static>> {
    answer(replay, theme).or_else(|| {
        let spans = end_and_begins(replay, theme);
        (!spans.is_empty()).then(|| Line::from(spans))
    })
}

fn answer(replay: &Replay, theme: Theme) -> Option<Line<'static>> {
    if let Some(typed) = &replay.prompt {
        let help = "  14:03:20 (UTC), or a time after the start: 90s, 5m; Enter goes there, Esc back";
        return Some(Line::from(vec![
            Span::styled(format!("go to: {typed}█"), theme.heading()),
            Span::styled(help, theme.quiet()),
        ]));
    }
    replay.notice.clone().map(|notice| Line::styled(notice, theme.alarm()))
}

/// Returns the end of the recording and the findings that begin here. At the last interval, the more important end comes first.
fn end_and_begins(replay: &Replay, theme: Theme) -> Vec<Span<'static>> {
    let end = replay.player.is_at_end().then(|| end(replay, theme));
    end.into_iter().chain(begins(replay, theme)).collect()
}

fn incomplete(replay: &Replay) -> Option<&EndSummary> {
    replay.ending.as_ref().filter(|ending| !ending.is_whole)
}

fn begins(replay: &Replay, theme: Theme) -> Option<Span<'static>> {
    let begins = &replay.player.mark_here()?.begins;
    let named = begins.iter().take(MOST_NAMED).map(|(rule, cgroup)| match cgroup {
        Some(cgroup) => format!("{} {cgroup}", rule.name()),
        None => rule.name().into(),
    });
    let named = named.collect::<Vec<_>>().join(", ");
    let more = begins.len().saturating_sub(MOST_NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(Span::styled(format!("begins here: {named}{more}  "), theme.alarm()))
}

fn end(replay: &Replay, theme: Theme) -> Span<'static> {
    match &replay.ending {
        Some(ending) => {
            let style = if ending.is_whole { theme.heading() } else { theme.alarm() };
            Span::styled(format!("the end: {}  ", ending.words), style)
        }
        None => Span::styled(format!("the last interval; {}  ", pass(replay)), theme.quiet()),
    }
}

fn pass(replay: &Replay) -> String {
    let marks = replay.player.marks.len() as u64;
    let begin = format!("begin in {}", units::count(marks, "interval"));
    match (&replay.failed, &replay.ending) {
        (Some(why), _) => format!("findings {begin}; the search stopped: {why}"),
        (None, None) => {
            let percent = units::percent(replay.searched as u64, replay.player.intervals() as u64);
            let percent = percent.map_or(0, |percent| percent.min(100.0) as u64);
            format!("looking for findings {percent}%: they {begin} so far")
        }
        (None, Some(_)) if marks == 0 => "no interval has a finding".into(),
        (None, Some(_)) => format!("findings {begin}: n and N go there"),
    }
}

pub fn help(theme: Theme) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("Keys of a replay", theme.heading())];
    lines.extend(KEYS.iter().map(|(key, does)| Line::raw(format!("{key:>9}  {does}"))));
    lines
}

#[cfg(test)]
mod tests;
