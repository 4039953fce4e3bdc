//! The tables of the report.

use std::fmt::{Result, Write as _};

use cgscope_model::{
    Cause, Mode,
    units::{duration, percent},
};

use crate::{
    causes,
    report::rows::{Pair, Row},
};

/// Rows of each table.
const ROWS: usize = 15;
/// Pairs of victim and culprit.
const PAIRS: usize = 20;

const HEADINGS: &str =
    "      wait why        throt    waits      p50      p99  longest    on-cpu     vol   invol";
const WHY: usize = 10;

/// A table of rows, those that waited longest.
pub fn table(out: &mut String, title: &str, last: &str, mode: Mode, rows: &[Row]) -> Result {
    let waited: Vec<&Row> = rows.iter().filter(|row| row.wait.count != 0).collect();
    if waited.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{title}:\n{HEADINGS}  {last}")?;
    for row in waited.iter().take(ROWS) {
        line(out, row, mode)?;
    }
    more(out, waited.len().saturating_sub(ROWS))
}

fn line(out: &mut String, row: &Row, mode: Mode) -> Result {
    let quantile = |q| row.wait.quantile_ns(q).map_or("-".into(), duration);
    let throttled = percent(row.wait.by_cause.get(Cause::Throttled), row.wait.total_ns);
    writeln!(
        out,
        "{:>10} {:<WHY$} {:>5} {:>8} {:>8} {:>8} {:>8} {:>9} {:>7} {:>7}  {}",
        duration(row.wait.total_ns),
        causes::bar(&causes::parts(&row.wait.by_cause), WHY),
        throttled.map_or("-".into(), |share| format!("{share:.0}%")),
        row.wait.count,
        quantile(0.5),
        quantile(0.99),
        if mode == Mode::Coarse { "-".into() } else { duration(row.wait.max_ns) },
        duration(row.totals.on_cpu_ns),
        row.totals.voluntary,
        row.totals.involuntary,
        named(row),
    )
}

/// `/a.service  (a.service)`, `12 sh  /a`, `13 worker of 12  /a`
fn named(row: &Row) -> String {
    let id = row.id.map_or(String::new(), |id| format!("{id} "));
    let of = row.process.filter(|process| row.id != Some(*process));
    let of = of.map_or(String::new(), |process| format!(" of {process}"));
    let cgroup = row.cgroup.as_deref().map_or(String::new(), |path| format!("  {path}"));
    let whose = row.whose.as_deref().map_or(String::new(), |whose| format!("  ({whose})"));
    format!("{id}{}{of}{cgroup}{whose}", row.name)
}

fn more(out: &mut String, left_out: usize) -> Result {
    if left_out == 0 { Ok(()) } else { writeln!(out, "{left_out:>10} more with less waiting") }
}

/// Victims and culprits: who waited, behind whom, how long.
pub fn culprits(out: &mut String, pairs: &[Pair]) -> Result {
    if pairs.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nWho waited behind whom; the share is that of all the victim's waiting behind others:")?;
    writeln!(out, "    waited share  victim  <-  who ran")?;
    for pair in pairs.iter().take(PAIRS) {
        let share = percent(pair.ns, pair.of_ns).map_or("-".into(), |share| format!("{share:.0}%"));
        writeln!(out, "{:>10} {share:>5}  {}  <-  {}", duration(pair.ns), pair.victim, pair.culprit)?;
    }
    more(out, pairs.len().saturating_sub(PAIRS))
}
