//! Drawing: turns the state into cells of the screen, and never changes the state.

mod bars;
mod cgroups;
mod chains;
mod culprits;
mod findings;
mod footer;
mod header;
mod heatmap;
mod histogram;
pub(crate) mod layout;
mod numa;
mod pane;
mod states;
mod table;
mod task;

use ratatui::{
    Frame,
    widgets::{Paragraph, Wrap},
};

use crate::{keys::Command, replay};

use prelude::*;

mod prelude {
    pub(super) use cgscope_model::{
        ByCause, CAUSES, Cause, CgroupReading, Interval, Mode, Wait,
        hist::Row,
        sum,
        tree::Node,
        units::{self, bytes, duration, number, per_second, percent, time_of_day},
    };
    pub(super) use itertools::Itertools;
    pub(super) use ratatui::{
        layout::Rect,
        style::{Modifier, Style},
        text::{Line, Span},
    };

    pub(super) use super::{
        bars, layout,
        pane::{self, Pane, Section, a_second, cpus_used, fit},
    };
    pub(super) use crate::{
        app::{App, View},
        causes::{self, UNNAMED},
        columns::Column,
        data::{Data, Key, Subject},
        settings::Span as Time,
        text::{self, NO_HISTOGRAM, eighths, listed, micros, or_dash, or_na, wait_line},
        theme::Theme,
        width::{bar_length, cut_end, cut_start, left, path, right, width, wrapped},
    };

    pub(super) type Lines = Vec<Line<'static>>;
    pub(super) type Spans = Vec<Span<'static>>;
}

pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let Some(regions) = layout::regions(app) else { return too_small(frame, app) };
    let theme = app.theme;
    let mut parts = vec![(regions.header, header::lines(app)), (regions.tabs, vec![header::tabs(app)])];
    if app.data.is_none() && app.view != View::Help {
        let first = if app.replay.is_some() { "reading" } else { "measuring" };
        let words = format!("{first} the first interval ...");
        parts.push((regions.body, vec![Line::styled(words, theme.quiet())]));
    } else if let Some(title) = app.exited_title() {
        let words = format!("{title} has ended, or is no longer shown: Esc goes back");
        parts.push((regions.body, vec![Line::styled(words, theme.alarm())]));
    } else {
        parts.extend(view(app, &regions));
    }
    if let Some(replay) = &app.replay {
        let position = replay::position(replay, theme, regions.replay.width.into());
        parts.push((regions.replay, vec![position, replay::status(replay, theme)]));
    }
    parts.push((regions.footer, vec![footer::line(app)]));
    let shown = parts.into_iter().filter(|(area, _)| area.height != 0);
    shown.for_each(|(area, lines)| frame.render_widget(Paragraph::new(lines), area));
    footer::popup(frame, app, regions.body);
}

fn view(app: &App, regions: &layout::Regions) -> Vec<(Rect, Lines)> {
    let layout::Regions { body, above, pane, beside, .. } = *regions;
    let with_list = |parts: Vec<(Rect, Lines)>| {
        let crumbs = vec![header::crumbs(app, regions.crumbs.width.into())];
        let lines = if app.view == View::States { states::lines } else { table::lines };
        let list = lines(app, regions.table);
        [(regions.crumbs, crumbs), (regions.table, list)].into_iter().chain(parts).collect()
    };
    match app.view {
        View::Overview => with_list(vec![
            (regions.findings, findings::lines(app, regions.findings)),
            (pane, Pane::draw(app, pane, pane::lines)),
        ]),
        View::Histogram => vec![(body, Pane::draw(app, body, histogram::lines))],
        View::Heatmap => vec![(body, Pane::draw(app, body, heatmap::lines))],
        View::Cgroups => with_list(vec![(pane, Pane::draw(app, pane, cgroups::lines))]),
        View::Culprits => {
            with_list(vec![(beside, culprits::matrix(app, beside)), (pane, culprits::lines(app, regions))])
        }
        View::Chains => with_list(vec![(pane, Pane::draw(app, pane, chains::lines))]),
        View::Numa => with_list(vec![(above, numa::lines(app, body))]),
        View::States => with_list(vec![(above, states::sums(app, above))]),
        View::Task | View::WhatIf | View::Findings | View::Help => {
            let lines = text(app, body);
            let first = app.scrolled.min(lines.len().saturating_sub(body.height.into()));
            vec![(body, lines.into_iter().skip(first).take(body.height.into()).collect())]
        }
    }
}

/// Returns all lines of a view that scrolls; empty for other views.
fn text(app: &App, body: Rect) -> Lines {
    match app.view {
        View::Task => Pane::draw(app, body, task::lines),
        View::WhatIf => what_if(app, body),
        View::Findings => findings::all(app, body),
        View::Help => footer::lines(app),
        _ => Vec::new(),
    }
}

fn too_small(frame: &mut Frame<'_>, app: &App) {
    let ((width, height), area) = (layout::SMALLEST, app.area);
    let [command, instead] = app.commands();
    let sentence = format!(
        "{command} needs a terminal of at least {width}x{height}, this one is {}x{}: enlarge it, or use `{instead}`.",
        area.width, area.height
    );
    frame.render_widget(Paragraph::new(sentence).wrap(Wrap { trim: true }), area);
}

const INDENT: usize = 4;

/// Returns the lines of the What if view, wrapped to the width of the area. The simulator writes the text.
fn what_if(app: &App, area: Rect) -> Lines {
    let (theme, cells) = (app.theme, usize::from(area.width));
    let Some(enough) = &app.enough else {
        let key = app.settings.keymap.first(Command::WhatIf).unwrap_or_default();
        let words = format!("select a cgroup with a quota in another view, then press {key}");
        return vec![Line::styled(cut_end(&words, cells), theme.quiet())];
    };
    let title = format!("What would have been enough for {}", enough.title);
    let mut lines = vec![Line::styled(cut_end(&title, cells), theme.heading())];
    let is_unknown = enough.lines.is_empty();
    lines.extend(is_unknown.then(|| Line::styled("collecting what it needs ...", theme.quiet())));
    lines.extend(enough.lines.iter().flat_map(|text| fitted(text, cells)));
    lines
}

fn fitted(text: &str, cells: usize) -> Lines {
    if width(text) <= cells {
        return vec![Line::raw(text.to_owned())];
    }
    let words = text.trim_start();
    let first = text.len() - words.len();
    let indents = std::iter::once(first).chain(std::iter::repeat(INDENT));
    let wrapped = wrapped(words, cells.saturating_sub(INDENT.max(first)));
    indents.zip(wrapped).map(|(indent, words)| Line::raw(" ".repeat(indent) + &words)).collect()
}

#[cfg(test)]
mod tests;
