//! The tables: changes, and what waited most.

use std::fmt::{Result, Write as _};

use cgscope_model::diff::{Change, Diff, DiffSubject, FigureUnit, Ranked};

use super::figures;

/// Changes that are more than noise in a table.
const CALLED: usize = 30;
/// Others.
const OTHERS: usize = 15;
/// Values that differ by less than this share are taken for the same one, seen in several subjects.
const SAME: f64 = 0.02;

const HEADINGS: &str =
    "    before      after    change                  99% interval  verdict                  what";

/// What is more than noise, then what is not, each by size.
pub fn changes(out: &mut String, diff: &Diff, all: bool) -> Result {
    let most = |most: usize| if all { usize::MAX } else { most };
    let (called, others): (Vec<&Change>, Vec<&Change>) =
        diff.changes.iter().partition(|change| change.is_called());
    if !called.is_empty() {
        writeln!(out, "\nMore than noise, the largest change first")?;
        table(out, &called, most(CALLED), all)?;
    }
    if !others.is_empty() {
        writeln!(out, "\nNot more than noise, the largest change first")?;
        table(out, &others, most(OTHERS), all)?;
    }
    Ok(())
}

fn table(out: &mut String, changes: &[&Change], most: usize, all: bool) -> Result {
    let rows =
        if all { changes.iter().map(|change| (*change, Vec::new())).collect() } else { folded(changes) };
    writeln!(out, "{HEADINGS}")?;
    for (change, same) in rows.iter().take(most) {
        row(out, change, same)?;
    }
    let more = rows.len().saturating_sub(most);
    if more != 0 {
        writeln!(out, "{more:>10} more, smaller: --all shows them")?;
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
        write!(out, "; the same of {}", names.join(", "))?;
    }
    writeln!(out)
}

/// A change is one line although it is seen in a cgroup, in the program in it and in the whole.
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

/// A cgroup says most about where a change is, the whole least.
fn rank(subject: &DiffSubject) -> u8 {
    match subject {
        DiffSubject::Cgroup(_) => 0,
        DiffSubject::Behind { .. } => 1,
        DiffSubject::Program(_) => 2,
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

/// The subjects that waited most on each side.
pub fn ranked(out: &mut String, title: &str, sides: &[Vec<Ranked>; 2]) -> Result {
    let rows = sides[0].len().max(sides[1].len());
    if rows == 0 {
        return Ok(());
    }
    let cell = |side: usize, i: usize| {
        sides[side].get(i).map_or_else(String::new, |ranked| {
            let share = |share| figures::value(FigureUnit::WallShare, Some(share));
            let (DiffSubject::Cgroup(name) | DiffSubject::Program(name)) = &ranked.subject else {
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
