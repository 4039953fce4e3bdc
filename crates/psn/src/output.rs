//! Output: a table as psn prints it, or one JSON object.

use std::io::{self, Write};

use cgscope_model::{Mode, Names, units::duration};
use cgscope_view::text;
use serde_json::{Map, Value, json};

use crate::{GroupBy, GroupCell, GroupRow, Rounds};

impl Rounds {
    /// Writes the table as psn prints it, followed by figures about the rounds. `names` has the displayed names of cgroups.
    pub fn write_text(&self, names: &Names, out: &mut impl Write) -> io::Result<()> {
        let columns = &self.table.columns;
        let titles = ["samples", "avg_threads"].into_iter().chain(columns.iter().map(|column| column.name()));
        let titles: Vec<String> = titles.map(str::to_owned).collect();
        let is_number = [true; 2].into_iter().chain(columns.iter().map(|column| column.is_number()));
        let is_number: Vec<bool> = is_number.collect();
        let lines: Vec<Vec<String>> = self.table.rows.iter().map(|row| self.cells(row, names)).collect();
        let width_of = |i: usize| lines.iter().chain([&titles]).map(|line| line[i].chars().count()).max();
        let widths: Vec<usize> = (0..titles.len()).filter_map(width_of).collect();
        let width = widths.iter().sum::<usize>() + 3 * (widths.len() - 1) + 2;
        let title = if self.all_states { "Threads" } else { "Active Threads" };
        writeln!(out, "=== {title} {}\n", "=".repeat(width.saturating_sub(title.len() + 5)))?;
        if lines.is_empty() {
            let active = "no active thread was seen; use -a to see all threads";
            writeln!(out, "{}", if self.all_states { "no thread was seen" } else { active })?;
        } else {
            writeln!(out, "{}", line(&titles, &widths, &is_number))?;
            writeln!(out, "{}", "-".repeat(width))?;
            for cells in &lines {
                writeln!(out, "{}", line(cells, &widths, &is_number))?;
            }
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
        let counts = [row.samples.to_string(), format!("{:.2}", self.table.per_round(row.samples))];
        counts.into_iter().chain(self.table.columns.iter().zip(&row.cells).map(cell)).collect()
    }

    fn write_foot(&self, out: &mut impl Write) -> io::Result<()> {
        let rounds = self.table.rounds;
        writeln!(out, "\nsamples: {rounds} (expected: {})", self.expected)?;
        writeln!(
            out,
            "total processes: {}, threads: {}; threads read per sample: {:.0}",
            self.table.processes,
            self.table.threads,
            self.table.per_round(self.looked_at)
        )?;
        writeln!(
            out,
            "runtime: {}, own CPU time: {} per sample; {}; mode: {}",
            duration(self.duration_ns()),
            duration(self.table.per_round(self.cpu_ns) as u64),
            text::loss_line(&self.losses),
            match self.mode {
                Mode::Bpf => "bpf",
                Mode::Coarse => "coarse",
            }
        )
    }

    /// Writes one JSON object with the schema `cgscope.sample/1`.
    pub fn write_json(&self, out: &mut impl Write) -> io::Result<()> {
        let columns: Vec<&str> = self.table.columns.iter().map(|column| column.name()).collect();
        let groups: Vec<Value> = self.table.rows.iter().map(|row| self.group(row)).collect();
        let losses: Map<String, Value> =
            self.losses.nonzero().map(|(loss, count)| (loss.name().to_owned(), json!(count))).collect();
        let object = json!({
            "schema": "cgscope.sample/1",
            "mode": self.mode,
            "start_unix_ns": self.start_unix_ns,
            "duration_ns": self.duration_ns(),
            "rounds": self.table.rounds,
            "rounds_expected": self.expected,
            "all_states": self.all_states,
            "processes": self.table.processes,
            "threads": self.table.threads,
            "threads_looked_at": self.looked_at,
            "columns": columns,
            "groups": groups,
            "losses": losses,
            "self": { "cpu_ns": self.cpu_ns },
        });
        serde_json::to_writer(&mut *out, &object)?;
        writeln!(out)?;
        out.flush()
    }

    fn duration_ns(&self) -> u64 {
        self.took.as_nanos() as u64
    }

    fn group(&self, row: &GroupRow) -> Value {
        let mut group = Map::new();
        group.insert("samples".into(), json!(row.samples));
        group.insert("avg_threads".into(), json!(self.table.per_round(row.samples)));
        for (column, cell) in self.table.columns.iter().zip(&row.cells) {
            let value = match cell {
                None => Value::Null,
                Some(GroupCell::Number(number)) => json!(number),
                Some(GroupCell::State(state)) => json!(state.name()),
                Some(GroupCell::Text(text)) => json!(&**text),
            };
            group.insert(column.name().into(), value);
        }
        Value::Object(group)
    }
}

fn line(cells: &[String], widths: &[usize], is_number: &[bool]) -> String {
    let cells = cells.iter().zip(widths).zip(is_number).map(|((cell, width), is_number)| {
        if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
    });
    format!(" {}", cells.collect::<Vec<_>>().join(" | ")).trim_end().to_owned()
}
