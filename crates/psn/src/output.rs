//! Output: a table as psn prints it, or one JSON object.

use std::io::{self, Write};

use cgscope_model::{Mode, Names, units::duration};
use cgscope_view::text;
use serde_json::{Value, json};

use crate::{GroupBy, GroupCell, GroupRow, Rounds};

impl Rounds {
    /// Writes the table as psn prints it, followed by figures about the rounds. `names` has the displayed names of cgroups.
    pub fn write_text(&self, names: &Names, out: &mut impl Write) -> io::Result<()> {
        let columns = &self.tally.columns;
        let titles = ["samples", "avg_threads"].into_iter().chain(columns.iter().map(|column| column.name()));
        let titles = titles.map(str::to_owned).collect();
        let rows = self.rows.iter().map(|row| self.cells(row, names));
        let lines: Vec<Vec<String>> = std::iter::once(titles).chain(rows).collect();
        let width_of = |at: usize| lines.iter().map(|line| line[at].chars().count()).max();
        let widths: Vec<usize> = (0..columns.len() + 2).filter_map(width_of).collect();
        let line = |cells: &Vec<String>| {
            let cells = cells.iter().zip(&widths).enumerate().map(|(at, (cell, width))| {
                let is_number = at.checked_sub(2).is_none_or(|at| columns[at].is_number());
                if is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            format!(" {}", cells.collect::<Vec<_>>().join(" | ")).trim_end().to_owned()
        };
        let width = widths.iter().sum::<usize>() + 3 * (widths.len() - 1) + 2;
        let title = if self.all_states { "Threads" } else { "Active Threads" };
        writeln!(out, "=== {title} {}\n", "=".repeat(width.saturating_sub(title.len() + 5)))?;
        if lines.len() == 1 {
            let active = "no active thread was seen; use -a to see all threads";
            writeln!(out, "{}", if self.all_states { "no thread was seen" } else { active })?;
        } else {
            writeln!(out, "{}\n{}", line(&lines[0]), "-".repeat(width))?;
            lines[1..].iter().try_for_each(|cells| writeln!(out, "{}", line(cells)))?;
        }
        self.write_foot(out)?;
        out.flush()
    }

    fn cells(&self, row: &GroupRow, names: &Names) -> Vec<String> {
        let cell = |(column, cell): (&GroupBy, &Option<GroupCell>)| match cell {
            Some(GroupCell::Text(path)) if *column == GroupBy::Cgroup => names.of(path).into(),
            None => "-".to_owned(),
            Some(GroupCell::Number(number)) => number.to_string(),
            Some(GroupCell::State(state)) => state.words().to_owned(),
            Some(GroupCell::Text(text)) => text.to_string(),
        };
        let counts = [row.samples.to_string(), format!("{:.2}", self.per_round(row.samples))];
        counts.into_iter().chain(self.tally.columns.iter().zip(&row.cells).map(cell)).collect()
    }

    fn write_foot(&self, out: &mut impl Write) -> io::Result<()> {
        let (processes, threads) = (self.tally.processes.len(), self.tally.threads.len());
        let read = self.per_round(self.looked_at);
        let own_time = duration(self.per_round(self.cpu_ns) as u64);
        let mode = if self.mode == Mode::Bpf { "bpf" } else { "coarse" };
        writeln!(out, "\nsamples: {} (expected: {})", self.tally.rounds, self.expected)?;
        writeln!(
            out,
            "total processes: {processes}, threads: {threads}; threads read per sample: {read:.0}"
        )?;
        writeln!(
            out,
            "runtime: {}, own CPU time: {own_time} per sample; {}; mode: {mode}",
            duration(self.took.as_nanos() as u64),
            text::loss_line(&self.losses)
        )
    }

    /// Writes one JSON object with the schema `cgscope.sample/1`.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let columns = self.tally.columns.iter().map(|column| column.name());
        let groups = self.rows.iter().map(|row| self.group(row));
        let losses = self.losses.nonzero().map(|(loss, count)| (loss.name(), count));
        let object = json!({
            "schema": "cgscope.sample/1",
            "mode": self.mode,
            "start_unix_ns": self.start_unix_ns,
            "duration_ns": self.took.as_nanos() as u64,
            "rounds": self.tally.rounds,
            "rounds_expected": self.expected,
            "all_states": self.all_states,
            "processes": self.tally.processes.len(),
            "threads": self.tally.threads.len(),
            "threads_looked_at": self.looked_at,
            "columns": columns.collect::<Vec<_>>(),
            "groups": groups.collect::<Vec<_>>(),
            "losses": losses.collect::<Value>(),
            "self": { "cpu_ns": self.cpu_ns },
        });
        serde_json::to_writer(&mut *out, &object)?;
        writeln!(out)?;
        out.flush()
    }

    fn per_round(&self, sum: u64) -> f64 {
        if self.tally.rounds == 0 { 0.0 } else { sum as f64 / self.tally.rounds as f64 }
    }

    fn group(&self, row: &GroupRow) -> Value {
        let average = self.per_round(row.samples);
        let counts = [("samples", json!(row.samples)), ("avg_threads", json!(average))];
        let cells = row.cells.iter().map(|cell| match cell {
            None => Value::Null,
            Some(GroupCell::Number(number)) => json!(number),
            Some(GroupCell::State(state)) => json!(state.name()),
            Some(GroupCell::Text(text)) => json!(&**text),
        });
        let names = self.tally.columns.iter().map(|column| column.name());
        counts.into_iter().chain(names.zip(cells)).collect()
    }
}
