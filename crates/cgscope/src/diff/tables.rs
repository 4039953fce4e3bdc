//! The tables of changes, and of what waited most.

use std::fmt::{Result, Write as _};

use cgscope_model::diff::{Change, Diff, DiffSubject, FigureUnit, Ranked};

use super::figures;

/// Maximum number of rows for changes that are more than noise, and for other changes.
const CALLED: usize = 30;
const OTHERS: usize = 15;
/// Changes whose values differ by at most this fraction share one row.
const SAME: f64 = 0.02;

const HEADINGS: &str =
    "    before      after    change                  99% interval  verdict                  what";

/// Prints changes that are more than noise, then other changes, each by size. With `all`, prints every change in its own row.
pub fn changes(out: &mut String, diff: &Diff, all: bool) -> Result {
    let (called, others): (Vec<&Change>, _) = diff.changes.iter().partition(|change| change.is_called());
    for (title, changes, most) in [("More", called, CALLED), ("Not more", others, OTHERS)] {
        if changes.is_empty() {
            continue;
        }
        writeln!(out, "\n{title} than noise, the largest change first\n{HEADINGS}")?;
        if all {
            changes.iter().try_for_each(|change| row(out, change, &[]))?;
            continue;
        }
        let rows = folded(&changes);
        rows.iter().take(most).try_for_each(|(change, same)| row(out, change, same))?;
        if rows.len() > most {
            writeln!(out, "{:>10} more with a smaller change: --all shows all", rows.len() - most)?;
        }
    }
    Ok(())
}

fn row(out: &mut String, change: &Change, same: &[&DiffSubject]) -> Result {
    write!(
        out,
        "{:>10} {:>10} {:>9} {:>29}  {:<23}  {}: {}{}",
        figures::value(change.figure.unit, change.before),
        figures::value(change.figure.unit, change.after),
        figures::relative(change),
        figures::interval(change),
        figures::verdict(change),
        change.figure.words,
        figures::subject(&change.subject),
        figures::presence(change.presence),
    )?;
    if !same.is_empty() {
        let names: Vec<String> = same.iter().map(|subject| figures::subject(subject)).collect();
        write!(out, "; the same change in {}", names.join(", "))?;
    }
    writeln!(out)
}

/// Joins equal changes of a cgroup, the program in it and the whole recording into one row.
fn folded<'a>(changes: &[&'a Change]) -> Vec<(&'a Change, Vec<&'a DiffSubject>)> {
    let mut rows: Vec<(&Change, Vec<&DiffSubject>)> = Vec::new();
    for change in changes {
        match rows.iter_mut().find(|(row, _)| is_same(row, change)) {
            Some((row, same)) if rank(&change.subject) < rank(&row.subject) => {
                same.push(&row.subject);
                *row = change;
            }
            Some((_, same)) => same.push(&change.subject),
            None => rows.push((change, Vec::new())),
        }
    }
    rows
}

/// Rank of a subject. The subject with the lowest rank shows best where a change is.
fn rank(subject: &DiffSubject) -> u8 {
    match subject {
        DiffSubject::Cgroup { .. } => 0,
        DiffSubject::Behind { .. } => 1,
        DiffSubject::Program { .. } => 2,
        DiffSubject::Own => 3,
        DiffSubject::All => 4,
    }
}

fn is_same(a: &Change, b: &Change) -> bool {
    let near = |a: Option<f64>, b: Option<f64>| match (a, b) {
        (Some(a), Some(b)) => (a - b).abs() <= SAME * f64::max(a.abs(), b.abs()),
        (a, b) => a == b,
    };
    a.figure == b.figure
        && a.verdict == b.verdict
        && a.presence == b.presence
        && near(a.before, b.before)
        && near(a.after, b.after)
        && near(a.change, b.change)
}

pub fn ranked(out: &mut String, title: &str, sides: &[Vec<Ranked>; 2]) -> Result {
    let rows = sides[0].len().max(sides[1].len());
    if rows == 0 {
        return Ok(());
    }
    let cell = |side: usize, i: usize| {
        sides[side].get(i).map_or_else(String::new, |ranked| {
            let share = |share| figures::value(FigureUnit::WallShare, Some(share));
            let (DiffSubject::Cgroup { path: name } | DiffSubject::Program { comm: name }) = &ranked.subject
            else {
                return String::new();
            };
            format!("{:>8} {:>8}  {name}", share(ranked.wait), share(ranked.on_cpu))
        })
    };
    let before: Vec<String> = (0..rows).map(|i| cell(0, i)).collect();
    let heading = format!("{:>8} {:>8}  {title}", "waiting", "on CPU");
    let headings = format!("{heading}, before");
    let width = before.iter().chain([&headings]).map(|cell| cell.chars().count()).max().unwrap_or(0);
    writeln!(out, "\n    {:<width$}   {heading}, after", headings)?;
    for (i, before) in before.iter().enumerate() {
        let line = format!("{:>2}. {before:<width$}   {}", i + 1, cell(1, i));
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
