//! Tables as text, in the style of pidstat. Each interval has a heading and rows, and each row begins with the time. All other
//! lines have a `#` after the time.

use std::collections::BTreeSet;

use cgscope_model::{
    Finding, Mode,
    units::{self, time_of_day},
};

pub use crate::app::list::Asked;
use crate::app::{
    About,
    list::{ListKind, Question},
};
use crate::data::{Data, Key, Subject};
use crate::text::{self, NO_HISTOGRAM};
use crate::{causes, columns::Column, nodes, width::width};

/// Width of the time column, in cells.
const TIME: usize = 12;
/// Maximum width of a path or name, in cells. Longer texts are cut.
const LONGEST: usize = 200;

pub fn banner(about: &About, data: &Data) -> String {
    let or_unknown = |text: &String| if text.is_empty() { "unknown".to_owned() } else { text.clone() };
    let [kernel, hostname] = [&about.kernel, &about.hostname].map(or_unknown);
    let (date, title) = (units::date(data.interval.start_unix_ns), &about.title);
    let cpus = units::count(data.interval.cpus.len() as u64, "CPU");
    format!("Linux {kernel} ({hostname})  {date}  ({cpus})  {title}\n")
}

/// Returns the text of one interval: lines about all tasks, then the rows.
pub fn interval(data: &Data, asked: &Asked) -> String {
    let interval = &data.interval;
    let end = time_of_day(interval.start_unix_ns.saturating_add(interval.duration_ns));
    let mut out = String::from("\n");
    out.extend(summary(data).lines().map(|line| format!("{end}  # {line}\n")));
    out += &table(data, asked, &end);
    if asked.kind == ListKind::Cgroups {
        let limits = Asked { kind: ListKind::Limits, sort: ListKind::Limits.sorted_by(), ..asked.clone() };
        out += &format!("\n{}", table(data, &limits, &end));
    }
    out
}

pub fn average(data: &Data, asked: &Asked) -> String {
    format!("\n{}", table(data, asked, "Average:"))
}

pub fn summary(data: &Data) -> String {
    let interval = &*data.interval;
    let total = &data.total;
    let note = (interval.mode == Mode::Coarse).then(|| format!("{NO_HISTOGRAM}\n"));
    let mut text = note.unwrap_or_default();
    text += &format!("{}\n", text::wait_line(&total.wait, interval.mode));
    text += &causes::lines(&total.wait.by_cause, interval, None, &interval.culprits());
    let finding = |finding: &Finding| format!("finding: {}\n  {}\n", finding.headline(), finding.says);
    text.extend(data.findings.iter().map(finding));
    text.extend(nodes::short_line(interval).map(|line| line + "\n"));
    text.extend(text::pending_line(interval).map(|line| line + "\n"));
    text.extend(text::closing_lines(interval).map(|line| line + "\n"));
    text
}

/// Returns a table of the subjects with activity, in the style of pidstat.
pub fn table(data: &Data, asked: &Asked, time: &str) -> String {
    let question =
        Question { asked, scope: &Key::All, tree: false, folded: &BTreeSet::new(), command_line: &|_| None };
    let mut subjects = question.subjects(data);
    subjects.retain(|subject| asked.idle || is_active(subject, asked.kind));
    // Make a column of paths or names as wide as its longest cell, so that nothing is cut.
    let longest = |column: Column| {
        let cells = subjects.iter().map(|subject| width(&column.cell(subject, data))).max().unwrap_or(0);
        cells.clamp(column.title().len(), LONGEST)
    };
    let cells = |column: Column| match column {
        Column::Name | Column::Cgroup | Column::Command | Column::LimitedBy => longest(column),
        _ => column.width(),
    };
    let columns: Vec<(Column, usize)> =
        in_text(asked.kind).into_iter().map(|column| (column, cells(column))).collect();
    let line = |time: &str, cell: &dyn Fn(Column, usize) -> String| {
        let cells = columns.iter().map(|(column, cells)| format!(" {}", cell(*column, *cells)));
        format!("{}\n", (format!("{time:<TIME$}") + &cells.collect::<String>()).trim_end())
    };
    let mut out = line(time, &|column, cells| column.fit()(column.title(), cells));
    for subject in &subjects {
        out += &line(time, &|column, cells| {
            let text = column.cell(subject, data);
            // Programs count the words of a line, so an empty cell becomes `-`.
            column.fit()(if text.is_empty() { "-" } else { &text }, cells)
        });
    }
    out
}

fn is_active(subject: &Subject<'_>, kind: ListKind) -> bool {
    if kind == ListKind::Limits {
        return matches!(subject, Subject::Cgroup(node) if node.limits.is_some());
    }
    let (wait, totals) = (subject.wait(), subject.totals());
    wait.count != 0 || wait.total_ns != 0 || totals.on_cpu_ns != 0 || subject.pending_ns().is_some()
}

/// Returns the columns of a text table. Long columns come last. Names can contain blanks, so they come at the very end.
fn in_text(kind: ListKind) -> Vec<Column> {
    let last: &[Column] = match kind {
        ListKind::Cgroups | ListKind::Limits | ListKind::Victims | ListKind::Sleepers => &[Column::Name],
        _ => &[Column::Cgroup, Column::Command],
    };
    let first = kind.columns().iter().filter(|column| !last.contains(column) && **column != Column::Behind);
    first.chain(last).copied().collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cgscope_model::{Interval, findings::Host};

    use super::*;

    fn data(round: u64) -> Data {
        let sample = |round| cgscope_made_up::host(60, 8, round);
        Data::new(Arc::new(Interval::between(&sample(round), &sample(round + 1))), &Host::default())
    }

    fn asked(kind: ListKind) -> Asked {
        Asked { kind, sort: kind.sorted_by(), reversed: false, filter: String::new(), idle: false }
    }

    #[test]
    fn an_interval_is_a_table_as_in_pidstat() {
        let text = interval(&data(3), &asked(ListKind::Threads));
        let mut lines = text.lines().filter(|line| !line.is_empty() && !line.contains("UTC  # "));
        let heading: Vec<&str> = lines.next().unwrap().split_whitespace().collect();
        assert_eq!(heading[..4], ["22:13:24", "UTC", "tid", "pid"]);
        assert_eq!(heading[heading.len() - 2..], ["cgroup", "command"]);
        let mut rows = 0;
        for line in lines {
            assert!(line.starts_with("22:13:24 UTC "), "{line}");
            assert!(line.split_whitespace().count() >= heading.len(), "a word for each column: {line}");
            rows += 1;
        }
        assert!(rows >= 40, "{rows}");
        assert!(text.contains("# why: ") && text.contains("# losses: none") && !text.contains('\x1b'));
        assert!(average(&data(3), &asked(ListKind::Threads)).starts_with("\nAverage:"));
    }

    #[test]
    fn cgroups_also_have_a_table_of_limits() {
        let text = interval(&data(3), &asked(ListKind::Cgroups));
        assert!(text.contains("limited by") && text.contains("nvcswch/s"), "{text}");
        let banner = banner(&About { title: "whole host".into(), ..About::default() }, &data(3));
        assert!(banner.starts_with("Linux unknown (unknown)  2023-11-14  (64 CPUs)  whole host"), "{banner}");
    }
}
