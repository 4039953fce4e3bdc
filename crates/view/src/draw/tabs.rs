//! The names of the views, and what the list is of.

use cgscope_model::units;
use ratatui::text::{Line, Span};

use crate::{
    app::{App, view::View},
    subject::Key,
    width::{cut_start, width},
};

/// Letters of a name on a narrow screen.
const SHORT: usize = 4;

/// Each view with its key and its name, as far as there is room.
fn names(app: &App) -> Vec<(View, String, String)> {
    let named = |letters: usize, help: bool| -> Vec<(View, String, String)> {
        let views = View::ALL.iter().filter_map(|view| {
            let key = app.settings.keymap.first(view.command())?;
            // Its key says enough.
            let letters = if view.is_over() && !help { 0 } else { letters };
            Some((*view, key, view.title().chars().take(letters).collect()))
        });
        views.collect()
    };
    let fits = |names: &Vec<(View, String, String)>| {
        names.iter().map(|(_, key, name)| cells(key, name)).sum::<usize>() <= usize::from(app.area.width) + 1
    };
    let forms = [named(usize::MAX, true), named(usize::MAX, false)];
    forms.into_iter().find(fits).unwrap_or_else(|| named(SHORT, false))
}

/// Cells of one, with the blanks after it.
fn cells(key: &str, name: &str) -> usize {
    width(key) + 1 + if name.is_empty() { 0 } else { width(name) + 1 }
}

/// The names of the views in a line.
pub fn line(app: &App) -> Line<'static> {
    let theme = app.theme;
    Line::from_iter(names(app).into_iter().flat_map(|(view, key, name)| {
        let (key_style, style) =
            if view == app.view { (theme.key(), theme.selected()) } else { (theme.key(), theme.quiet()) };
        let after = if name.is_empty() { "" } else { " " };
        [Span::styled(key, key_style), Span::raw(" "), Span::styled(name, style), Span::raw(after)]
    }))
}

/// The view whose name is at a place of the line.
pub fn view_at(app: &App, x: usize) -> Option<View> {
    let mut from = 0;
    names(app).into_iter().find_map(|(view, key, name)| {
        from += cells(&key, &name);
        (x < from).then_some(view)
    })
}

/// What the list is of, and the filter.
pub fn crumbs(app: &App, cells: usize) -> Line<'static> {
    let theme = app.theme;
    let mut spans = Vec::new();
    if app.scope != Key::All {
        let subject = app.data.as_ref().and_then(|data| data.subject(&app.scope));
        let title = subject.map_or_else(|| "what is gone".into(), |subject| subject.title());
        spans.push(Span::styled("in ", theme.quiet()));
        spans.push(Span::styled(cut_start(&title, cells / 2), theme.heading()));
        spans.push(Span::styled("  Esc goes back  ", theme.quiet()));
    }
    if !app.filter.is_empty() {
        spans.push(Span::styled("with ", theme.quiet()));
        spans.push(Span::styled(app.filter.clone(), theme.heading()));
        let count = units::count(app.rows.len() as u64, "row");
        spans.push(Span::styled(format!("  {count}"), theme.quiet()));
    }
    Line::from(spans)
}
