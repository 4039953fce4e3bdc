//! Where the parts of the screen are: for drawing, for scrolling, and for the mouse.

use ratatui::layout::{Constraint, Layout, Rect};

use super::{culprits, findings, header, help, numa, states, table, tabs, task};
use crate::{
    app::{App, view::View},
    columns::Column,
    replay,
    subject::Key,
};

/// The smallest screen that shows something.
pub const SMALLEST: (u16, u16) = (60, 12);
/// From this width on the pane is beside the list.
const WIDE: u16 = 140;
/// From this height on there is room for more than the rows.
const TALL: u16 = 20;

/// The parts of a screen. What there is not has no height.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regions {
    /// Host, cost, losses.
    pub header: Rect,
    /// The names of the views.
    pub tabs: Rect,
    /// What is wrong.
    pub findings: Rect,
    /// What the list is of, and the filter.
    pub crumbs: Rect,
    /// What is above the list.
    pub above: Rect,
    /// The list.
    pub table: Rect,
    /// What continues the rows of the list on their right.
    pub beside: Rect,
    /// What is told of the selected row.
    pub pane: Rect,
    /// All between tabs and footer, for views without a list.
    pub body: Rect,
    /// Where a replay is.
    pub replay: Rect,
    /// Keys, prompts, notices.
    pub footer: Rect,
}

/// There is room for more than the rows.
pub fn is_tall(app: &App) -> bool {
    app.area.height >= TALL
}

/// The parts of the screen; `None`: it is too small.
pub fn regions(app: &App) -> Option<Regions> {
    let area = app.area;
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return None;
    }
    let replay_height = match app.replay {
        None => 0,
        Some(_) if is_tall(app) => replay::draw::HEIGHT,
        Some(_) => 1,
    };
    let [header, tabs, body, replay, footer] = Layout::vertical([
        Constraint::Length(header::height(app)),
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(replay_height),
        Constraint::Length(1),
    ])
    .areas(area);
    let regions = Regions { header, tabs, body, replay, footer, ..Regions::default() };
    Some(match app.view {
        View::Histogram | View::Heatmap | View::Task | View::Findings | View::Help => regions,
        View::Overview | View::Cgroups | View::Culprits | View::Numa | View::States => {
            with_list(app, regions)
        }
    })
}

fn with_list(app: &App, regions: Regions) -> Regions {
    let is_overview = app.view == View::Overview;
    let findings_height = if is_overview { findings::height(app, regions.body) } else { 0 };
    let has_crumbs = app.scope != Key::All || !app.filter.is_empty();
    let above_height = match app.view {
        View::Numa => numa::height(app, regions.body),
        View::States => states::height(app, regions.body),
        _ => 0,
    };
    let [findings, crumbs, above, rest] = Layout::vertical([
        Constraint::Length(findings_height),
        Constraint::Length(u16::from(has_crumbs)),
        Constraint::Length(above_height),
        Constraint::Min(0),
    ])
    .areas(regions.body);
    let [table, pane] = match app.view {
        View::Overview | View::Cgroups => split(app, rest),
        View::Culprits => split_below(app, rest),
        _ => [rest, Rect::default()],
    };
    let [table, beside] = match app.view {
        View::Culprits => culprits::split(table),
        _ => [table, Rect::default()],
    };
    Regions { findings, crumbs, above, table, beside, pane, ..regions }
}

/// The list, and beside or below it what is told of the selected row.
fn split(app: &App, area: Rect) -> [Rect; 2] {
    if app.area.width >= WIDE {
        let pane = (area.width * 2 / 5).clamp(58, 90);
        return Layout::horizontal([Constraint::Fill(1), Constraint::Length(pane)]).spacing(2).areas(area);
    }
    split_below(app, area)
}

/// The pane has a bit more than half, and what a short list leaves.
fn split_below(app: &App, area: Rect) -> [Rect; 2] {
    let half = area.height * 11 / 20;
    let lines = u16::try_from(app.rows.len().max(1) + 1).unwrap_or(u16::MAX);
    let left = area.height.saturating_sub(lines.saturating_add(1));
    Layout::vertical([Constraint::Fill(1), Constraint::Length(half.max(left))]).areas(area)
}

/// Rows of the list that are shown at once.
pub fn rows(app: &App) -> usize {
    regions(app).map_or(0, |regions| regions.table.height.saturating_sub(1).into())
}

/// Rows or lines that a page has.
pub fn page(app: &App) -> usize {
    if app.view.is_text() { regions(app).map_or(0, |regions| regions.body.height.into()) } else { rows(app) }
}

/// Lines that can be scrolled away in a view without rows.
pub fn most_scrolled(app: &App) -> usize {
    let Some(regions) = regions(app) else { return 0 };
    let lines = match app.view {
        View::Help => help::lines(app).len(),
        View::Findings => findings::all(app, regions.body).len(),
        View::Task => task::lines(app, regions.body).len(),
        _ => 0,
    };
    lines.saturating_sub(regions.body.height.into())
}

/// What is at a place of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The name of a view.
    View(View),
    /// A heading of the list.
    Column(Column),
    /// A row of the list.
    Row(usize),
}

/// What is at a place of the screen.
pub fn target(app: &App, x: u16, y: u16) -> Option<Target> {
    let regions = regions(app)?;
    let at = (x, y).into();
    if regions.tabs.contains(at) {
        return tabs::view_at(app, usize::from(x - regions.tabs.x)).map(Target::View);
    }
    if !regions.table.contains(at) && !regions.beside.contains(at) {
        return None;
    }
    let line = usize::from(y - regions.table.y);
    let Some(row) = line.checked_sub(1) else {
        if regions.beside.contains(at) {
            return None;
        }
        return table::column_at(app, regions.table, usize::from(x - regions.table.x)).map(Target::Column);
    };
    let row = app.first_row + row;
    (row < app.rows.len()).then_some(Target::Row(row))
}
