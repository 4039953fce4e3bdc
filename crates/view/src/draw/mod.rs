//! Drawing: the state in, cells out. Nothing is changed here.

pub mod bars;
mod cgroups;
mod culprits;
mod findings;
mod footer;
mod header;
mod heatmap;
mod help;
mod histogram;
pub mod layout;
mod numa;
mod pane;
mod sections;
mod states;
pub mod svg;
mod table;
mod tabs;
mod task;
#[cfg(test)]
mod tests;
pub mod written;

use ratatui::{
    Frame,
    layout::Rect,
    text::Line,
    widgets::{Paragraph, Wrap},
};

use crate::{
    app::{App, view::View},
    replay,
};

/// Draws everything on the screen, [`App::area`].
pub fn draw(frame: &mut Frame<'_>, app: &App) {
    let Some(regions) = layout::regions(app) else { return too_small(frame, app) };
    lines(frame, regions.header, header::lines(app));
    lines(frame, regions.tabs, vec![tabs::line(app)]);
    if app.data.is_none() && app.view != View::Help {
        let first = if app.replay.is_some() { "reading" } else { "measuring" };
        let words = format!("{first} the first interval ...");
        lines(frame, regions.body, vec![Line::styled(words, app.theme.quiet())]);
    } else {
        view(frame, app, &regions);
    }
    if let Some(replay) = &app.replay {
        let position = replay::draw::position(replay, app.theme, regions.replay.width.into());
        lines(frame, regions.replay, vec![position, replay::draw::status(replay, app.theme)]);
    }
    lines(frame, regions.footer, vec![footer::line(app)]);
    footer::popup(frame, app, regions.body);
}

fn view(frame: &mut Frame<'_>, app: &App, regions: &layout::Regions) {
    if let Some(title) = app.gone() {
        let words = format!("{title} has ended, or is not among what is shown any more: Esc goes back");
        return lines(frame, regions.body, vec![Line::styled(words, app.theme.alarm())]);
    }
    match app.view {
        View::Overview => {
            lines(frame, regions.findings, findings::lines(app, regions.findings));
            list(frame, app, regions);
            lines(frame, regions.pane, pane::lines(app, regions.pane));
        }
        View::Histogram => lines(frame, regions.body, histogram::lines(app, regions.body)),
        View::Heatmap => lines(frame, regions.body, heatmap::lines(app, regions.body)),
        View::Cgroups => {
            list(frame, app, regions);
            lines(frame, regions.pane, cgroups::lines(app, regions.pane));
        }
        View::Culprits => {
            list(frame, app, regions);
            lines(frame, regions.beside, culprits::matrix::lines(app, regions.beside));
            lines(frame, regions.pane, culprits::lines(app, regions));
        }
        View::Numa => {
            lines(frame, regions.above, numa::lines(app, regions.body));
            list(frame, app, regions);
        }
        View::States => {
            crumbs(frame, app, regions.crumbs);
            lines(frame, regions.above, states::sums(app, regions.above));
            lines(frame, regions.table, states::lines(app, regions.table));
        }
        View::Task => scrolled(frame, app, regions.body, task::lines(app, regions.body)),
        View::Findings => scrolled(frame, app, regions.body, findings::all(app, regions.body)),
        View::Help => scrolled(frame, app, regions.body, help::lines(app)),
    }
}

fn list(frame: &mut Frame<'_>, app: &App, regions: &layout::Regions) {
    crumbs(frame, app, regions.crumbs);
    lines(frame, regions.table, table::lines(app, regions.table));
}

fn crumbs(frame: &mut Frame<'_>, app: &App, area: Rect) {
    lines(frame, area, vec![tabs::crumbs(app, area.width.into())]);
}

fn lines(frame: &mut Frame<'_>, area: Rect, lines: Vec<Line<'static>>) {
    if area.height != 0 {
        frame.render_widget(Paragraph::new(lines), area);
    }
}

fn scrolled(frame: &mut Frame<'_>, app: &App, area: Rect, all: Vec<Line<'static>>) {
    let first = app.scrolled.min(all.len().saturating_sub(area.height.into()));
    lines(frame, area, all.into_iter().skip(first).take(area.height.into()).collect());
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
