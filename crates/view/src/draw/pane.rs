//! The pane of the selected row (figures, causes, quota, culprits, histogram), and lines that several views share.

use cgscope_model::{ByCause, CgroupReading, Wait, hist::Row};

use super::prelude::*;
use crate::{settings::Span as Time, text::micros};

/// Minimum number of lines for a histogram below other lines.
const HISTOGRAM: usize = 6;
/// Width of a histogram row before its bar, in cells: `32768 -> 65535  1234567 `.
const LABEL: usize = 29;
/// Minimum width of a title, in cells.
pub const TITLE: usize = 12;

pub fn lines(app: &App, area: Rect) -> Lines {
    let (Some(data), Some(subject)) = (&app.data, app.subject()) else { return Vec::new() };
    let (cells, height) = (usize::from(area.width), usize::from(area.height));
    let mut lines = vec![heading(app, &subject, cells)];
    lines.extend(facts(app, data, &subject, cells));
    if app.is_exact() {
        // The histogram gets at least half of the height.
        lines.truncate(height.div_ceil(2).max(3));
        let room = height.saturating_sub(lines.len());
        lines.extend(histogram(app, app.focused().0, cells, room));
    } else {
        lines.extend(quiet(app.theme, NO_HISTOGRAM, cells));
    }
    lines.truncate(height);
    lines
}

pub fn quiet(theme: Theme, words: &str, cells: usize) -> Lines {
    wrapped(words, cells).into_iter().map(|line| Line::styled(line, theme.quiet())).collect()
}

/// Returns wrapped words after a label or mark. All lines but the first are indented.
pub fn hanging(label: Span<'static>, words: Vec<String>, style: Style) -> Lines {
    let indent = Span::styled(" ".repeat(label.width()), label.style);
    let labels = std::iter::once(label).chain(std::iter::repeat(indent));
    labels.zip(words).map(|(label, words)| Line::from(vec![label, Span::styled(words, style)])).collect()
}

/// Appends a histogram to the lines if enough lines are left.
pub fn with_histogram(app: &App, mut lines: Lines, cells: usize, room: usize) -> Lines {
    if let Some(left) = room.checked_sub(lines.len() + 1).filter(|left| *left >= HISTOGRAM && app.is_exact())
    {
        let title = format!("lengths of all its waits, {}", span_words(app, app.settings.span));
        lines.push(Line::styled(title, app.theme.quiet()));
        lines.extend(histogram(app, app.focused().0, cells, left));
    }
    lines
}

/// Returns the time that a histogram covers, in words.
pub fn span_words(app: &App, span: Time) -> String {
    let length = duration(app.span(span).1);
    match span {
        Time::Interval => format!("this interval, {length}"),
        Time::Minute => format!("the last {length}"),
        Time::Start if app.replay.is_some() => format!("the {length} shown"),
        // The waits of exited threads are counted with their cgroup, not with their process.
        Time::Start if matches!(app.subject(), Some(Subject::Process(..))) => {
            format!("since the start, {length}, living")
        }
        Time::Start => format!("since the start, {length}"),
    }
}

/// Returns a line with the subject, its number of waits, and the time that the waits cover.
pub fn heading(app: &App, subject: &Subject<'_>, cells: usize) -> Line<'static> {
    let waits = units::count(app.focused().0.count, "wait");
    titled(app, subject, &format!("{waits}, {}", span_words(app, app.settings.span)), cells)
}

pub fn titled(app: &App, subject: &Subject<'_>, words: &str, cells: usize) -> Line<'static> {
    let theme = app.theme;
    let title = cut_start(&app.title(subject), cells.saturating_sub(words.len() + 2).max(TITLE));
    Line::from(vec![Span::styled(title, theme.heading()), Span::styled(format!("  {words}"), theme.quiet())])
}

fn facts(app: &App, data: &Data, subject: &Subject<'_>, cells: usize) -> Lines {
    let (wait, _) = app.focused();
    let mut lines = Vec::new();
    if app.is_exact() {
        lines.push(fact(app, "", &quantiles(wait), cells));
    }
    lines.extend(why(app, &wait.by_cause, cells));
    // The quota and the culprits always cover the interval, even if the user has chosen another span.
    let of = match app.settings.span {
        Time::Interval => String::new(),
        Time::Minute | Time::Start => format!("in {}: ", duration(data.interval.duration_ns)),
    };
    for (label, text) in quota_and_culprits(data, subject) {
        lines.push(fact(app, label, &format!("{of}{text}"), cells));
    }
    lines
}

pub fn quota_and_culprits(data: &Data, subject: &Subject<'_>) -> Vec<(&'static str, String)> {
    let behind = causes::culprits_line(&data.interval.names, &subject.culprits(data));
    let facts = [("quota", quota(data, subject)), ("behind", behind)];
    facts.into_iter().filter_map(|(label, text)| Some((label, text?))).collect()
}

/// Returns a fact in one line, after its label if the label is not empty.
pub fn fact(app: &App, label: &'static str, text: &str, cells: usize) -> Line<'static> {
    let label = if label.is_empty() { String::new() } else { format!("{label:<7}") };
    let room = cells.saturating_sub(label.len());
    Line::from(vec![Span::styled(label, app.theme.quiet()), Span::raw(cut_end(text, room))])
}

/// Converts a time in the interval to time per second.
pub fn a_second(interval: &Interval, ns: u64) -> String {
    or_dash(per_second(ns, interval.duration_ns).map(|ns| ns as u64))
}

pub fn why(app: &App, by_cause: &ByCause, cells: usize) -> Option<Line<'static>> {
    causes::line(by_cause).map(|why| fact(app, "why", &why, cells))
}

/// Returns the quantiles as text: `p50 4.10ms p90 ...`.
pub fn quantiles(wait: &Wait) -> String {
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|quantile| or_dash(wait.quantile_ns(quantile)));
    let max = or_dash((wait.count != 0).then_some(wait.max_ns));
    format!("p50 {p50} p90 {p90} p99 {p99} p99.9 {p999} max {max}")
}

/// Returns the tasks that wait at the end of the interval, the time so far, and the causes; `None` if no task waits.
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
        (None, task) => (format!("waiting for {longest} so far"), task?.reading.pending.as_ref()?.by_cause),
    };
    let why = causes::line(&by_cause).map_or(String::new(), |why| format!(": {why}"));
    Some(said + &why)
}

/// Returns the quota of a cgroup and its use; `None` if no quota applies.
fn quota(data: &Data, subject: &Subject<'_>) -> Option<String> {
    let Subject::Cgroup(node) = subject else { return None };
    let limits = subject.limits(&data.interval).filter(|limits| limits.quota_us.is_some());
    let Some(limits) = limits else {
        let limit = node.effective.as_ref()?;
        return Some(format!(
            "{} of {}",
            units::cpus(limit.cores),
            data.interval.names.of(&data.tree.nodes()[limit.node].path)
        ));
    };
    quota_words(limits, data.used_ns(subject), data.interval.duration_ns)
}

/// Returns a quota, how often the quota ran out, and its used share; `None` if there is no quota.
pub fn quota_words(limits: &CgroupReading, used_ns: u64, duration_ns: u64) -> Option<String> {
    let mut said = format!("{} of every {}", micros(limits.quota_us?), micros(limits.period_us?));
    let periods = limits.nr_periods.zip(limits.nr_throttled);
    if let Some((periods, throttled)) = periods.filter(|(all, _)| *all != 0) {
        let share = percent(throttled, periods).unwrap_or(0.0);
        said += &format!(", ran out in {throttled} of {periods} periods ({share:.0}%)");
    }
    if let Some((cores, used)) = limits.quota_cores().zip(per_second(used_ns, duration_ns)) {
        said += &format!(", {:.0}% used", used / 1e9 / cores * 100.0);
    }
    Some(said)
}

pub fn cpus_used(node: &Node, data: &Data) -> Option<f64> {
    per_second(data.used_ns(&Subject::Cgroup(node)), data.interval.duration_ns).map(|ns| ns / 1e9)
}

pub fn add_parts(sum: &mut [f64; CAUSES], parts: &[f64; CAUSES]) {
    sum.iter_mut().zip(parts).for_each(|(sum, part)| *sum += part);
}

pub fn parts<'a>(rows: impl IntoIterator<Item = &'a Row>) -> [f64; CAUSES] {
    let mut sum = [0.0; CAUSES];
    rows.into_iter().for_each(|row| add_parts(&mut sum, &row.by_cause));
    sum
}

/// Joins rows so that at most `shown` rows are left, but at least one. Each joins the same number, except perhaps the first.
pub fn fitted(mut rows: Vec<Row>, shown: usize) -> Vec<Row> {
    if rows.len() > shown {
        let empty = rows.iter().take_while(|row| row.count == 0).count();
        rows.drain(..empty);
    }
    let together = rows.len().div_ceil(shown.max(1)).max(1);
    let joined = rows.rchunks(together).map(|rows| {
        let mut all = rows[0];
        for row in &rows[1..] {
            all.high = row.high;
            all.count = all.count.saturating_add(row.count);
            add_parts(&mut all.by_cause, &row.by_cause);
        }
        all
    });
    let mut fitted: Vec<Row> = joined.collect();
    fitted.reverse();
    fitted
}

pub fn histogram(app: &App, wait: &Wait, cells: usize, room: usize) -> Lines {
    let theme = app.theme;
    let rows = wait.hist.rows(app.settings.unit.ns());
    let shown = room.saturating_sub(1);
    if rows.is_empty() || shown == 0 {
        return vec![Line::styled("no wait ended in this time", theme.quiet())];
    }
    let rows = fitted(rows, shown);
    let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
    let bar_cells = cells.saturating_sub(LABEL).max(1);
    let head = Span::styled(format!("{:>19} {:>8} ", app.settings.unit.title(), "count"), theme.quiet());
    let legend = bars::legend_within(&parts(&rows), theme, cells.saturating_sub(head.width()));
    let mut lines = vec![Line::from_iter(std::iter::once(head).chain(legend))];
    lines.extend(rows.iter().map(|row| {
        let mut spans = vec![Span::raw(format!("{:>8} -> {:<7} {:>8} ", row.low, row.high, row.count))];
        spans.extend(bars::stacked(&row.by_cause, bar_length(row.count, most, bar_cells), theme));
        Line::from(spans)
    }));
    lines
}

/// A part of a pane in a short and a long form.
#[derive(Clone, Debug, Default)]
pub struct Section {
    pub short: Lines,
    /// The lines that replace the short form, if the short forms of all other sections still fit.
    pub long: Lines,
}

impl Section {
    pub fn always(lines: Lines) -> Self {
        Self { short: lines.clone(), long: lines }
    }

    pub fn if_room(lines: Lines) -> Self {
        Self { short: Vec::new(), long: lines }
    }
}

/// Returns the sections in at most `room` lines. Earlier sections get their long form first. Empty lines are added if they fit.
pub fn fit(sections: Vec<Section>, room: usize) -> Lines {
    let mut used: usize = sections.iter().map(|section| section.short.len()).sum();
    let chosen: Vec<_> = sections
        .into_iter()
        .map(|Section { short, long }| {
            let with_long = used + long.len() - short.len().min(long.len());
            if with_long > room || long.len() < short.len() {
                return short;
            }
            used = with_long;
            long
        })
        .filter(|lines| !lines.is_empty())
        .collect();
    let is_airy = used + chosen.len().saturating_sub(1) <= room;
    let mut lines: Lines = Vec::with_capacity(room);
    for part in chosen {
        if is_airy && !lines.is_empty() {
            lines.push(Line::default());
        }
        lines.extend(part);
    }
    lines.truncate(room);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(short: &[&'static str], long: &[&'static str]) -> Section {
        let lines = |words: &[&'static str]| words.iter().map(|word| Line::raw(*word)).collect();
        Section { short: lines(short), long: lines(long) }
    }

    #[test]
    fn the_first_sections_grow_first_and_none_removes_another() {
        let at = |room| {
            let parts =
                vec![section(&["a"], &["a", "A"]), section(&[], &["b"]), section(&["c"], &["c", "C", "CC"])];
            fit(parts, room).iter().map(|line| line.to_string()).collect::<Vec<_>>().join(",")
        };
        assert_eq!(at(1), "a");
        assert_eq!(at(2), "a,c");
        assert_eq!(at(3), "a,A,c");
        assert_eq!(at(4), "a,A,b,c");
        assert_eq!(at(6), "a,A,b,c,C,CC");
        assert_eq!(at(8), "a,A,,b,,c,C,CC");
        assert_eq!(at(0), "");
    }
}
