//! For whom tasks slept: the wakers of the selected sleeper, what they did during the sleep, and their own wakers.

use cgscope_ledger::chains::Waker;
use cgscope_model::{ChainsBySleeper, Doing, Link};

use super::prelude::*;

/// Minimum share of a waker's own waker, percent of all sleep of the selected row.
const NESTED: f64 = 2.0;
/// Width of the figures before the name, in cells: `~ 180ms  36% file lock    `.
const FIGURES: usize = 27;
/// Minimum width of a name, in cells.
const NAME: usize = 16;

pub fn lines(pane: &Pane<'_>) -> Lines {
    let Some(rows) = &pane.interval.chains else { return Vec::new() };
    let chains = ChainsBySleeper::new(rows);
    let links = pane.subject.sleepers(pane.interval).flat_map(|sleeper| chains.links(sleeper));
    let mut links: Vec<Link<'_>> = links.collect();
    let all_ns = sum::total(links.iter().filter(|link| link.depth == 0).map(Link::slept_ns));
    let share = |link: &Link<'_>| percent(link.slept_ns(), all_ns).unwrap_or(0.0);
    links.retain(|link| link.depth == 0 || share(link) >= NESTED);
    if links.is_empty() {
        return Vec::new();
    }
    let named = |link: &Link<'_>| 2 * link.depth + width(&pane.interval.waker_words(link.row));
    let longest = links.iter().filter(|link| link.row.waker == Waker::Task).map(named).max().unwrap_or(0);
    let name = longest.min(pane.cells.saturating_sub(FIGURES) * 3 / 8).max(NAME);
    let head = format!(" sleep/s share {:<12}{} what the waker did", "in", left("woken by", name));
    let slept = a_second(pane.interval, all_ns);
    let mut lines = vec![
        pane.titled(&format!("its tasks slept {slept} a second, in sleeps that ended")),
        Line::styled(cut_end(&head, pane.cells), pane.theme.heading()),
    ];
    let room = pane.room.saturating_sub(lines.len());
    let shown = if links.len() <= room { links.len() } else { room.saturating_sub(1) };
    lines.extend(links.iter().take(shown).map(|link| line(pane, link, share(link), name)));
    if shown < links.len() {
        let words = format!("{:>FIGURES$} more: make the terminal taller", links.len() - shown);
        lines.push(Line::styled(cut_end(&words, pane.cells), pane.theme.quiet()));
    }
    let has_estimates = links[..shown].iter().any(|link| link.depth != 0);
    if has_estimates && lines.len() + 2 <= pane.room {
        let words = "~ the waker above slept for this one: an estimate in proportion to all its sleep";
        lines.push(Line::default());
        lines.push(Line::styled(cut_end(words, pane.cells), pane.theme.quiet()));
    }
    lines
}

/// Returns the line of a waker: ` 500ms  52% file lock    db.service    throttled 78%, ran 20%`.
fn line(pane: &Pane<'_>, link: &Link<'_>, share: f64, name: usize) -> Line<'static> {
    let (interval, theme, row) = (pane.interval, pane.theme, link.row);
    let mark = if link.depth == 0 { ' ' } else { '~' };
    let time = right(&a_second(interval, link.slept_ns()), 7);
    let figures = format!("{mark}{time} {share:>4.0}% {:<12}", row.kind.name());
    let words = interval.waker_words(row);
    let indent = " ".repeat(2 * link.depth);
    let room = pane.cells.saturating_sub(width(&figures));
    let did = did(link, theme, room.saturating_sub(name + 1));
    // A waker that is no task has nothing more to show, so its name gets the whole line.
    let name = if did.is_empty() { room.saturating_sub(1) } else { name };
    let name = format!("{indent}{}", left(&words, name.saturating_sub(indent.len())));
    let style = if link.depth == 0 { Style::new() } else { theme.quiet() };
    let before = [Span::styled(figures, style), Span::raw(name), Span::raw(" ")];
    Line::from_iter(before.into_iter().chain(did))
}

/// Returns what a waker did, the longest first, in short words if the long ones do not fit.
fn did(link: &Link<'_>, theme: Theme, cells: usize) -> Spans {
    let spans = |words: fn(Cause) -> &'static str| -> Spans {
        let parts = causes::doings(link.row, words).enumerate().map(|(at, (doing, words))| {
            let style = match doing {
                Doing::Ran => theme.busy(),
                Doing::Waited(cause) => theme.cause(cause),
                Doing::Slept | Doing::Unknown => theme.quiet(),
            };
            Span::styled(if at == 0 { words } else { format!(", {words}") }, style)
        });
        parts.collect()
    };
    let fits = |spans: &Spans| spans.iter().map(Span::width).sum::<usize>() <= cells;
    let long = spans(|cause| causes::shown(cause).words);
    let mut spans = if fits(&long) { long } else { spans(|cause| causes::shown(cause).word) };
    while !fits(&spans) {
        spans.pop();
    }
    spans
}
