//! The screen dump: the screen and all figures as text, for example for a ticket.

use crate::{
    app::{App, list::ListKind},
    batch::{self, Asked},
    draw::written,
    text::capital,
};

/// The dump: the screen, findings with advice, and all rows of cgroups and threads. Also returns the end of the interval, ns
/// since 1970. `None` before the first interval.
pub fn text(app: &App) -> Option<(String, u64)> {
    let data = app.data.as_ref()?;
    let interval = &data.interval;
    let mut out = written::plain(&written::buffer(app));
    out += &format!("\n{}", batch::banner(&app.about, data));
    out += &format!("\n{}", batch::summary(data));
    for finding in &data.findings {
        out += &format!("\n{}. {}.\n", finding.headline(), capital(&finding.advice));
    }
    let end_unix_ns = interval.start_unix_ns.saturating_add(interval.duration_ns);
    let time = cgscope_model::units::time_of_day(end_unix_ns);
    for kind in [ListKind::Cgroups, ListKind::Limits, ListKind::Threads] {
        let (sort, reversed) = app.sort_of(kind);
        let asked = Asked { kind, sort, reversed, filter: String::new(), idle: true };
        out += &format!("\n{}", batch::table(data, &asked, &time));
    }
    Some((out, end_unix_ns))
}
