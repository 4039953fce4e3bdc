//! The pane of the selected row (figures, causes, quota, culprits, histogram), and lines that several views share.

use super::prelude::*;

/// Minimum number of lines for a histogram below other lines.
const HISTOGRAM: usize = 6;
/// Width of a histogram row before its bar, in cells: `32768 -> 65535  1234567 `.
const LABEL: usize = 29;
/// Minimum width of a title, in cells.
pub const TITLE: usize = 12;

/// A subject of the current interval, and the area that shows it, `cells` wide and `room` high.
#[derive(Clone, Copy)]
pub struct Pane<'a> {
    pub app: &'a App,
    pub theme: Theme,
    pub data: &'a Data,
    pub interval: &'a Interval,
    pub subject: Subject<'a>,
    pub cells: usize,
    pub room: usize,
}

impl<'a> Pane<'a> {
    /// Returns the pane of the selected subject; `None` if nothing is selected.
    pub fn new(app: &'a App, area: Rect) -> Option<Self> {
        let (data, subject) = (app.data.as_ref()?, app.subject()?);
        let (cells, room) = (area.width.into(), area.height.into());
        Some(Self { app, theme: app.theme, data, interval: &data.interval, subject, cells, room })
    }

    pub fn draw(app: &App, area: Rect, lines: fn(&Pane<'_>) -> Lines) -> Lines {
        Pane::new(app, area).map_or_else(Vec::new, |pane| lines(&pane))
    }

    pub fn title(&self) -> String {
        self.subject.title(&self.interval.names)
    }

    pub fn limits(&self) -> Option<&'a CgroupReading> {
        self.subject.limits(self.interval)
    }

    /// Returns the time that a histogram covers, in words.
    pub fn span_words(&self, span: Time) -> String {
        let length = duration(self.app.span(span).1);
        match span {
            Time::Interval => format!("this interval, {length}"),
            Time::Minute => format!("the last {length}"),
            Time::Start if self.app.replay.is_some() => format!("the {length} shown"),
            // The waits of exited threads are counted with their cgroup, not with their process.
            Time::Start if matches!(self.subject, Subject::Process(..)) => {
                format!("since the start, {length}, living")
            }
            Time::Start => format!("since the start, {length}"),
        }
    }

    /// Returns a line with the subject, its number of waits, and the time that the waits cover.
    pub fn heading(&self) -> Line<'static> {
        let waits = units::count(self.app.focused().0.count, "wait");
        self.titled(&format!("{waits}, {}", self.span_words(self.app.settings.span)))
    }

    pub fn titled(&self, words: &str) -> Line<'static> {
        let title = cut_start(&self.title(), self.cells.saturating_sub(words.len() + 2).max(TITLE));
        let words = Span::styled(format!("  {words}"), self.theme.quiet());
        Line::from(vec![Span::styled(title, self.theme.heading()), words])
    }

    /// Returns a fact in one line, after its label if the label is not empty.
    pub fn fact(&self, label: &str, text: &str) -> Line<'static> {
        let label = if label.is_empty() { String::new() } else { format!("{label:<7}") };
        let room = self.cells.saturating_sub(label.len());
        Line::from(vec![Span::styled(label, self.theme.quiet()), Span::raw(cut_end(text, room))])
    }

    /// Returns a text after its label, in as many lines as needed; empty for an unknown text.
    pub fn labelled(&self, label: &str, text: Option<&str>) -> Lines {
        let words = text.map(|text| wrapped(text, self.cells.saturating_sub(width(label))));
        hanging(Span::styled(label.to_owned(), self.theme.quiet()), words.unwrap_or_default(), Style::new())
    }

    pub fn why(&self, by_cause: &ByCause) -> Option<Line<'static>> {
        causes::line(by_cause).map(|why| self.fact("why", &why))
    }

    pub fn quota_and_culprits(&self) -> impl Iterator<Item = (&'static str, String)> {
        let behind = causes::culprits_line(&self.interval.names, &self.subject.culprits(self.data));
        let facts = [("quota", quota(self)), ("behind", behind)];
        facts.into_iter().filter_map(|(label, text)| Some((label, text?)))
    }

    /// Returns the tasks that wait at the end of the interval, the time so far, and the causes; `None` if no task waits.
    pub fn now(&self) -> Option<String> {
        let longest = duration(self.subject.pending_ns()?);
        let said = match self.subject.group().map(|group| group.pending) {
            Some(1) => format!("1 task waits, for {longest} so far"),
            Some(tasks) => format!("{tasks} tasks wait, the longest for {longest} so far"),
            None => format!("waiting for {longest} so far"),
        };
        let by_cause = match self.subject.group() {
            Some(group) => group.pending_by_cause,
            None => self.subject.task()?.reading.pending.as_ref()?.by_cause,
        };
        let why = causes::line(&by_cause);
        Some(said + &why.map_or(String::new(), |why| format!(": {why}")))
    }

    pub fn with_histogram(&self, mut lines: Lines) -> Lines {
        let left = self.room.saturating_sub(lines.len() + 1);
        if left >= HISTOGRAM && self.app.is_exact() {
            let title = format!("lengths of all its waits, {}", self.span_words(self.app.settings.span));
            lines.push(Line::styled(title, self.theme.quiet()));
            lines.extend(self.histogram(left));
        }
        lines
    }

    fn histogram(&self, room: usize) -> Lines {
        let (theme, unit) = (self.theme, self.app.settings.unit);
        let rows = self.app.focused().0.hist.rows(unit.ns());
        let shown = room.saturating_sub(1);
        if rows.is_empty() || shown == 0 {
            return vec![Line::styled("no wait ended in this time", theme.quiet())];
        }
        let rows = fitted(rows, shown);
        let most = rows.iter().map(|row| row.count).max().unwrap_or(0);
        let bar_cells = self.cells.saturating_sub(LABEL).max(1);
        let head = Span::styled(format!("{:>19} {:>8} ", unit.title(), "count"), theme.quiet());
        let legend = bars::legend_within(&parts(&rows), theme, self.cells.saturating_sub(head.width()));
        let mut lines = vec![Line::from_iter(std::iter::once(head).chain(legend))];
        lines.extend(rows.iter().map(|row| {
            let figures = Span::raw(format!("{:>8} -> {:<7} {:>8} ", row.low, row.high, row.count));
            let bar = bars::stacked(&row.by_cause, bar_length(row.count, most, bar_cells), theme);
            Line::from_iter(std::iter::once(figures).chain(bar))
        }));
        lines
    }
}

pub fn lines(pane: &Pane<'_>) -> Lines {
    let mut lines = vec![pane.heading()];
    lines.extend(facts(pane));
    if pane.app.is_exact() {
        // The histogram gets at least half of the height.
        lines.truncate(pane.room.div_ceil(2).max(3));
        lines.extend(pane.histogram(pane.room.saturating_sub(lines.len())));
    } else {
        lines.extend(quiet(pane.theme, NO_HISTOGRAM, pane.cells));
    }
    lines.truncate(pane.room);
    lines
}

fn facts(pane: &Pane<'_>) -> Lines {
    let (wait, _) = pane.app.focused();
    let exact = pane.app.is_exact().then(|| pane.fact("", &quantiles(wait)));
    let mut lines: Lines = exact.into_iter().chain(pane.why(&wait.by_cause)).collect();
    // The quota and the culprits always cover the interval, even if the user has chosen another span.
    let is_other = pane.app.settings.span != Time::Interval;
    let of = if is_other { format!("in {}: ", duration(pane.interval.duration_ns)) } else { String::new() };
    lines.extend(pane.quota_and_culprits().map(|(label, text)| pane.fact(label, &format!("{of}{text}"))));
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

/// Converts a time in the interval to time per second.
pub fn a_second(interval: &Interval, ns: u64) -> String {
    or_dash(per_second(ns, interval.duration_ns).map(|ns| ns as u64))
}

/// Returns the quantiles as text: `p50 4.10ms p90 ...`.
pub fn quantiles(wait: &Wait) -> String {
    let [p50, p90, p99, p999] = [0.5, 0.9, 0.99, 0.999].map(|quantile| or_dash(wait.quantile_ns(quantile)));
    let max = or_dash((wait.count != 0).then_some(wait.max_ns));
    format!("p50 {p50} p90 {p90} p99 {p99} p99.9 {p999} max {max}")
}

/// Returns the quota of a cgroup and its use; `None` if no quota applies.
fn quota(pane: &Pane<'_>) -> Option<String> {
    let Subject::Cgroup(node) = pane.subject else { return None };
    let Some(limits) = pane.limits().filter(|limits| limits.quota_us.is_some()) else {
        let limit = node.effective.as_ref()?;
        let name = pane.interval.names.of(&pane.data.tree.nodes()[limit.node].path);
        return Some(format!("{} of {name}", units::cpus(limit.cores)));
    };
    quota_words(limits, pane.data.used_ns(&pane.subject), pane.interval.duration_ns)
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
    let joined = rows.rchunks(together).rev().map(|rows| Row {
        low: rows[0].low,
        high: rows[rows.len() - 1].high,
        count: sum::total(rows.iter().map(|row| row.count)),
        by_cause: parts(rows),
    });
    joined.collect()
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
    let chosen = sections.into_iter().map(|Section { short, long }| {
        let more = long.len().checked_sub(short.len()).filter(|more| used + more <= room);
        used += more.unwrap_or(0);
        if more.is_some() { long } else { short }
    });
    let chosen: Vec<Lines> = chosen.filter(|lines| !lines.is_empty()).collect();
    let is_airy = used + chosen.len().saturating_sub(1) <= room;
    let between = if is_airy { vec![Line::default()] } else { Vec::new() };
    let mut lines = chosen.join(&between[..]);
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
