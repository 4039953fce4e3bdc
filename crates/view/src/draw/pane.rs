//! What is told of the selected row: figures, causes, quota, culprits, and its histogram.

use cgscope_model::{
    CAUSES, CgroupReading, Mode, Wait,
    hist::Row,
    units::{self, duration, per_second, percent},
};
use ratatui::{
    layout::Rect,
    text::{Line, Span},
};

use super::bars;
use crate::{
    app::App,
    causes,
    data::Data,
    settings::Span as Time,
    subject::Subject,
    text::{NO_HISTOGRAM, micros, or_dash},
    theme::Theme,
    width::{cut_end, wrapped},
};

/// Lines of a histogram below everything else, at least.
const HISTOGRAM: usize = 6;
/// Of a row before its bar: `32768 -> 65535  1234567 `.
const LABEL: usize = 29;

/// The lines, at most as many as the area has.
pub fn lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let (Some(data), Some(subject)) = (&app.data, app.subject()) else { return Vec::new() };
    let cells = usize::from(area.width);
    let mut lines = vec![heading(app, &subject, cells)];
    lines.extend(facts(app, data, &subject, cells));
    if data.interval.mode == Mode::Coarse {
        lines.extend(quiet(app.theme, NO_HISTOGRAM, cells));
    } else {
        // The histogram has at least half of the room.
        lines.truncate(usize::from(area.height).div_ceil(2).max(3));
        let room = usize::from(area.height).saturating_sub(lines.len());
        let (wait, _) = app.focused();
        lines.extend(histogram(app, wait, cells, room));
    }
    lines.truncate(area.height.into());
    lines
}

/// Words that explain, in lines of at most so many cells.
pub fn quiet(theme: Theme, words: &str, cells: usize) -> Vec<Line<'static>> {
    wrapped(words, cells).into_iter().map(|line| Line::styled(line, theme.quiet())).collect()
}

/// Lines, and where enough of the room is left a histogram below them.
pub fn with_histogram(
    app: &App,
    mut lines: Vec<Line<'static>>,
    cells: usize,
    room: usize,
) -> Vec<Line<'static>> {
    if let Some(left) = room.checked_sub(lines.len() + 1).filter(|left| *left >= HISTOGRAM)
        && app.data.as_ref().is_some_and(|data| data.interval.mode == Mode::Bpf)
    {
        let title = format!("how long all its waits were, {}", span_words(app, app.settings.span));
        lines.push(Line::styled(title, app.theme.quiet()));
        lines.extend(histogram(app, app.focused().0, cells, left));
    }
    lines
}

/// Of which time a histogram is.
pub fn span_words(app: &App, span: Time) -> String {
    let length = duration(app.span(span).1);
    match span {
        Time::Interval => format!("this interval, {length}"),
        Time::Minute => format!("the last {length}"),
        Time::Start if app.replay.is_some() => format!("{length} that were shown"),
        // What threads had waited that have ended is with their cgroup.
        Time::Start if matches!(app.subject(), Some(Subject::Process(..))) => {
            format!("since the start, {length}, living")
        }
        Time::Start => format!("since the start, {length}"),
    }
}

/// What it is of, how many waits, and of which time.
pub fn heading(app: &App, subject: &Subject<'_>, cells: usize) -> Line<'static> {
    let of = span_words(app, app.settings.span);
    let (wait, _) = app.focused();
    let after = format!("  {}, {of}", units::count(wait.count, "wait"));
    let title = crate::width::cut_start(&subject.title(), cells.saturating_sub(after.len()).max(12));
    Line::from(vec![Span::styled(title, app.theme.heading()), Span::styled(after, app.theme.quiet())])
}

/// Quantiles, causes, quota, culprits: a line each, those that there are.
fn facts(app: &App, data: &Data, subject: &Subject<'_>, cells: usize) -> Vec<Line<'static>> {
    let (wait, _) = app.focused();
    let mut lines = Vec::new();
    if data.interval.mode == Mode::Bpf {
        lines.push(fact(app, "", &quantiles(wait), cells));
    }
    lines.extend(causes::line(&wait.by_cause).map(|why| fact(app, "why", &why, cells)));
    // These are of the interval whatever the others are of.
    let of = match app.settings.span {
        Time::Interval => String::new(),
        Time::Minute | Time::Start => format!("in {}: ", duration(data.interval.duration_ns)),
    };
    let mut of_interval = |label, text: Option<String>| {
        lines.extend(text.map(|text| fact(app, label, &format!("{of}{text}"), cells)));
    };
    of_interval("quota", quota(data, subject));
    of_interval("behind", causes::culprits_line(&subject.culprits(&data.interval)));
    lines
}

/// A fact in one line, after a word that says of what it is, or none.
pub fn fact(app: &App, label: &'static str, text: &str, cells: usize) -> Line<'static> {
    let label = if label.is_empty() { String::new() } else { format!("{label:<7}") };
    let room = cells.saturating_sub(label.len());
    Line::from(vec![Span::styled(label, app.theme.quiet()), Span::raw(cut_end(text, room))])
}

/// `p50 4.10ms p90 ...`
pub fn quantiles(wait: &Wait) -> String {
    let quantile = |q| or_dash(wait.quantile_ns(q));
    format!(
        "p50 {} p90 {} p99 {} p99.9 {} max {}",
        quantile(0.5),
        quantile(0.9),
        quantile(0.99),
        quantile(0.999),
        if wait.count == 0 { "-".into() } else { duration(wait.max_ns) }
    )
}

/// Who waits at the end of the interval, how long so far, and why; `None`: nobody.
pub fn now(subject: &Subject<'_>) -> Option<String> {
    let longest = duration(subject.pending_ns()?);
    let (said, by_cause) = match (subject.group(), subject.task()) {
        (Some(group), _) => {
            let said = match group.pending {
                1 => format!("1 task waits, for {longest} so far"),
                tasks => format!("{tasks} tasks wait, the longest for {longest} so far"),
            };
            (said, group.pending_by_cause)
        }
        (None, task) => (format!("waiting for {longest} so far"), task?.reading.pending?.by_cause),
    };
    Some(causes::line(&by_cause).map_or(said.clone(), |why| format!("{said}: {why}")))
}

/// What a cgroup may use and uses, in words; `None` without a quota that holds for it.
pub fn quota(data: &Data, subject: &Subject<'_>) -> Option<String> {
    let Subject::Cgroup(node) = subject else { return None };
    let interval = &*data.interval;
    let limits = subject.limits(interval).filter(|limits| limits.quota_us.is_some());
    let Some(limits) = limits else {
        let limit = node.effective.as_ref()?;
        return Some(format!("{} of {}", units::cpus(limit.cores), data.tree.nodes()[limit.node].path));
    };
    quota_words(limits, data.used_ns(subject), interval.duration_ns)
}

/// A quota, how often it ran out, and how much of it was used; `None` where there is none.
pub fn quota_words(limits: &CgroupReading, used_ns: u64, duration_ns: u64) -> Option<String> {
    let mut said = format!("{} of every {}", micros(limits.quota_us?), micros(limits.period_us?));
    if let Some((periods, throttled)) =
        limits.nr_periods.zip(limits.nr_throttled).filter(|(all, _)| *all != 0)
    {
        let share = percent(throttled, periods).unwrap_or(0.0);
        said += &format!(", ran out in {throttled} of {periods} periods ({share:.0}%)");
    }
    if let Some((cores, used)) = limits.quota_cores().zip(per_second(used_ns, duration_ns)) {
        said += &format!(", {:.0}% used", used / 1e9 / cores * 100.0);
    }
    Some(said)
}

/// What the bars of rows are made of.
pub fn parts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> [f64; CAUSES] {
    let mut sum = [0.0; CAUSES];
    for row in rows {
        sum.iter_mut().zip(row.by_cause).for_each(|(sum, part)| *sum += part);
    }
    sum
}

/// At most so many rows, at least one: where not all fit, as many doublings are taken together in each, the shortest perhaps
/// fewer.
pub fn fitted(mut rows: Vec<Row>, shown: usize) -> Vec<Row> {
    if rows.len() > shown {
        // Room is for what there is.
        let empty = rows.iter().take_while(|row| row.count == 0).count();
        rows.drain(..empty);
    }
    let together = rows.len().div_ceil(shown.max(1)).max(1);
    let mut fitted: Vec<Row> = rows.rchunks(together).map(joined).collect();
    fitted.reverse();
    fitted
}

/// Rows that follow each other as one.
fn joined(rows: &[Row]) -> Row {
    let mut all = rows[0];
    for row in &rows[1..] {
        all.high = row.high;
        all.count = all.count.saturating_add(row.count);
        all.by_cause.iter_mut().zip(row.by_cause).for_each(|(sum, count)| *sum += count);
    }
    all
}

/// Rows in the manner of runqlat. Where not all fit, several doublings are taken together.
pub fn histogram(app: &App, wait: &Wait, cells: usize, room: usize) -> Vec<Line<'static>> {
    let theme = app.theme;
    let mut rows = wait.hist.rows(app.settings.unit.ns());
    let shown = room.saturating_sub(1);
    if rows.is_empty() || shown == 0 {
        return vec![Line::styled("no wait ended in this time", theme.quiet())];
    }
    rows = fitted(rows, shown);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let bar_cells = cells.saturating_sub(LABEL).max(1);
    let head = format!("{:>19} {:>8} ", app.settings.unit.title(), "count");
    let mut heading = vec![Span::styled(head.clone(), theme.quiet())];
    heading.extend(bars::legend_within(
        &parts(&rows),
        theme,
        cells.saturating_sub(crate::width::width(&head)),
    ));
    let mut lines = vec![Line::from(heading)];
    lines.extend(rows.iter().map(|row| {
        let label = format!("{:>8} -> {:<7} {:>8} ", row.low, row.high, row.count);
        let mut spans = vec![Span::raw(label)];
        spans.extend(bars::stacked(&row.by_cause, bars::length(row.count, most, bar_cells), theme));
        Line::from(spans)
    }));
    lines
}
