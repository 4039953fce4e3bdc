//! The lines of a replay at the bottom of the screen: position and status.

use cgscope_model::units::{self, duration, time_of_day};
use ratatui::text::{Line, Span};

use crate::{
    replay::{EndSummary, KEYS, Replay},
    theme::Theme,
};

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
