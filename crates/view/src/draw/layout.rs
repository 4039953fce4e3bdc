//! Regions of the screen, for drawing, scrolling and the mouse.

use ratatui::layout::{Constraint, Layout};

use super::{findings, header, numa, prelude::*, states, table};
use crate::replay;

/// The smallest supported screen: width, height.
pub const SMALLEST: (u16, u16) = (60, 12);
/// Minimum width of a screen with the pane beside the list.
const WIDE: u16 = 140;
/// Minimum height of a screen that shows more than the most important lines.
const TALL: u16 = 20;

/// The regions of a screen. A region that is not shown has height 0.
#[derive(Clone, Copy, Debug, Default)]
pub struct Regions {
    pub header: Rect,
    pub tabs: Rect,
    pub findings: Rect,
    /// The scope of the list, and the filter.
    pub crumbs: Rect,
    /// Other lines above the list.
    pub above: Rect,
    pub table: Rect,
    /// Columns to the right of the list that continue its rows.
    pub beside: Rect,
    pub pane: Rect,
    /// Everything between tabs and footer, for views without a list.
    pub body: Rect,
    pub replay: Rect,
    pub footer: Rect,
}

/// Minimum lines of a pane below a list.
const SMALLEST_PANE: u16 = 4;
/// Minimum number of rows of a list above its pane. The pane's own minimum has precedence.
const ROWS: u16 = 6;

pub fn is_tall(app: &App) -> bool {
    app.area.height >= TALL
}

/// Returns the regions of the screen; `None` if the screen is too small.
pub fn regions(app: &App) -> Option<Regions> {
    let area = app.area;
    if area.width < SMALLEST.0 || area.height < SMALLEST.1 {
        return None;
    }
    let replay_height = match app.replay {
        None => 0,
        Some(_) if is_tall(app) => replay::HEIGHT,
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
    Some(if app.view.is_text() || app.view.is_of_one() { regions } else { with_list(app, regions) })
}

fn with_list(app: &App, regions: Regions) -> Regions {
    let has_crumbs = app.scope != Key::All || !app.filter.is_empty();
    let (findings_height, above_height) = match app.view {
        View::Overview => (findings::lines(app, regions.body).len() as u16, 0),
        View::Numa => (0, numa::lines(app, regions.body).len() as u16),
        View::States => (0, states::height(app, regions.body)),
        _ => (0, 0),
    };
    let [findings, crumbs, above, rest] = Layout::vertical([
        Constraint::Length(findings_height),
        Constraint::Length(u16::from(has_crumbs)),
        Constraint::Length(above_height),
        Constraint::Min(0),
    ])
    .areas(regions.body);
    let [table, pane] = match app.view {
        View::Overview | View::Cgroups if app.area.width >= WIDE => {
            let pane = (rest.width * 2 / 5).clamp(58, 90);
            Layout::horizontal([Constraint::Fill(1), Constraint::Length(pane)]).spacing(2).areas(rest)
        }
        View::Overview | View::Cgroups | View::Culprits | View::Chains => split_below(app, rest),
        _ => [rest, Rect::default()],
    };
    let [table, beside] = match app.view {
        View::Culprits => {
            let list = (table.width * 2 / 5).clamp(34, 90);
            Layout::horizontal([Constraint::Length(list), Constraint::Fill(1)]).areas(table)
        }
        _ => [table, Rect::default()],
    };
    Regions { findings, crumbs, above, table, beside, pane, ..regions }
}

/// Splits an area into a list and a pane. The pane gets a bit more than half, and the lines that a short list does not use.
fn split_below(app: &App, area: Rect) -> [Rect; 2] {
    let half = (area.height * 11 / 20).min(area.height.saturating_sub(ROWS + 1).max(SMALLEST_PANE));
    let lines = u16::try_from(app.rows.len().max(1) + 1).unwrap_or(u16::MAX);
    let left = area.height.saturating_sub(lines.saturating_add(1));
    Layout::vertical([Constraint::Fill(1), Constraint::Length(half.max(left))]).areas(area)
}

pub fn rows(app: &App) -> usize {
    regions(app).map_or(0, |regions| regions.table.height.saturating_sub(1).into())
}

pub fn page(app: &App) -> usize {
    if app.view.is_text() { regions(app).map_or(0, |regions| regions.body.height.into()) } else { rows(app) }
}

pub fn most_scrolled(app: &App) -> usize {
    regions(app)
        .map_or(0, |Regions { body, .. }| super::text(app, body).len().saturating_sub(body.height.into()))
}

/// The target of a mouse click: the name of a view, a heading of the list, or a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    View(View),
    Column(Column),
    Row(usize),
}

pub fn target(app: &App, x: u16, y: u16) -> Option<Target> {
    let Regions { tabs, table, beside, .. } = regions(app)?;
    let at = (x, y).into();
    match usize::from(y.saturating_sub(table.y)).checked_sub(1) {
        _ if tabs.contains(at) => header::view_at(app, usize::from(x - tabs.x)).map(Target::View),
        Some(line) if table.contains(at) || beside.contains(at) => {
            Some(app.first_row + line).filter(|row| *row < app.rows.len()).map(Target::Row)
        }
        None if table.contains(at) => {
            table::column_at(app, table, usize::from(x - table.x)).map(Target::Column)
        }
        _ => None,
    }
}
