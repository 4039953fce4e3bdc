//! Screens as text. Also the screen dump: a screen and all its figures as text, such as for a ticket.

use cgscope_model::Finding;
use ratatui::{
    Terminal,
    backend::TestBackend,
    buffer::{Buffer, Cell},
};

use crate::app::{App, list::ListKind};
use crate::batch::{self, Asked};
use crate::{draw::draw, text::capital, width::width};

/// Returns the screen dump: the screen, findings with advice, and all rows of cgroups and threads. Also returns the end of the
/// interval, ns since 1970. `None` before the first interval.
pub fn text(app: &App) -> Option<(String, u64)> {
    let data = app.data.as_ref()?;
    let interval = &data.interval;
    let mut out = plain(&buffer(app));
    out += &format!("\n{}", batch::banner(&app.about, data));
    out += &format!("\n{}", batch::summary(data));
    let advice = |finding: &Finding| format!("\n{}. {}.\n", finding.headline(), capital(&finding.advice));
    out.extend(data.findings.iter().map(advice));
    let end_unix_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
    let time = cgscope_model::units::time_of_day(end_unix_ns);
    for kind in [ListKind::Cgroups, ListKind::Limits, ListKind::Threads] {
        let (sort, reversed) = app.sort_of(kind);
        let asked = Asked { kind, sort, reversed, filter: String::new(), idle: true };
        out += &format!("\n{}", batch::table(data, &asked, &time));
    }
    Some((out, end_unix_ns))
}

pub fn buffer(app: &App) -> Buffer {
    let area = app.area;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(area.width.max(1), area.height.max(1)));
    let Ok(drawn) = terminal.draw(|frame| draw(frame, app));
    drawn.buffer.clone()
}

/// Returns the screen as plain text, one line per row, without trailing blanks.
pub fn plain(buffer: &Buffer) -> String {
    let line = |row: &[Cell]| {
        let (mut text, mut at) = (String::new(), 0);
        while let Some(cell) = row.get(at) {
            text.push_str(cell.symbol());
            // The second cell of a wide character is empty.
            at += width(cell.symbol()).max(1);
        }
        text.trim_end().to_owned() + "\n"
    };
    buffer.content.chunks(usize::from(buffer.area.width).max(1)).map(line).collect()
}
