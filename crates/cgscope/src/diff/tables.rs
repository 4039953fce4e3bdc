//! The tables: changes, histograms side by side, who waited most.

use std::fmt::{Result, Write as _};

use cgscope_model::{
    diff::{Change, Diff, Distribution, Ranked, Subject},
    hist::Row,
    units::{self, duration},
};

use super::figures;

/// Changes that are more than noise in a table.
const CALLED: usize = 30;
/// Others.
const OTHERS: usize = 15;
/// Distributions that are told and drawn.
const HISTOGRAMS: usize = 3;
/// Characters of a bar.
const BAR: usize = 20;
/// Values that differ by less than this share are taken for the same one, told of several.
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

fn row(out: &mut String, change: &Change, same: &[&Subject]) -> Result {
    let unit = change.figure.unit();
    write!(
        out,
        "{:>10} {:>10} {:>9} {:>29}  {:<23}  {}: {}{}",
        figures::value(unit, change.before),
        figures::value(unit, change.after),
        figures::relative(change),
        figures::interval(change),
        figures::verdict(change),
        figures::name(change.figure),
        figures::whose(&change.subject),
        figures::presence(change.presence),
    )?;
    if !same.is_empty() {
        let names: Vec<String> = same.iter().map(|subject| figures::whose(subject)).collect();
        write!(out, "; the same of {}", names.join(", "))?;
    }
    writeln!(out)
}

/// A change is one line although it is seen in a cgroup, in the program in it and in the whole.
fn folded<'a>(changes: &[&'a Change]) -> Vec<(&'a Change, Vec<&'a Subject>)> {
    let mut rows: Vec<(&Change, Vec<&Subject>)> = Vec::new();
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
fn rank(subject: &Subject) -> u8 {
    match subject {
        Subject::Cgroup(_) => 0,
        Subject::Behind { .. } => 1,
        Subject::Program(_) => 2,
        Subject::Own => 3,
        Subject::All => 4,
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
        && near(a.change(), b.change())
}

/// The distributions that differ by more than noise, as far as they are told. Of a cgroup and the program in it one is enough.
pub fn told_distributions(diff: &Diff) -> impl Iterator<Item = &Distribution> {
    let mut told: Vec<&Distribution> = Vec::new();
    for one in diff.distributions.iter().filter(|one| one.differs) {
        match told.iter_mut().find(|told| told.before == one.before && told.after == one.after) {
            Some(same) if rank(&one.subject) < rank(&same.subject) => *same = one,
            Some(_) => {}
            None => told.push(one),
        }
    }
    told.into_iter().take(HISTOGRAMS)
}

/// Their histograms side by side: the share of waits in each row.
pub fn histograms(out: &mut String, diff: &Diff) -> Result {
    told_distributions(diff).try_for_each(|one| histogram(out, one))
}

fn histogram(out: &mut String, one: &Distribution) -> Result {
    let sides = [&one.before, &one.after];
    writeln!(
        out,
        "\nHow long waits of {} were: {} before, {} after, the longest {} and {}",
        figures::whose(&one.subject),
        units::count(sides[0].count(), "wait"),
        units::count(sides[1].count(), "wait"),
        duration(one.longest_ns[0]),
        duration(one.longest_ns[1]),
    )?;
    let rows = sides.map(|hist| hist.rows(1_000));
    let totals = sides.map(|hist| hist.count().max(1) as f64);
    let count = |side: usize, k: usize| rows[side].get(k).map_or(0, |row: &Row| row.count);
    let last = rows[0].len().max(rows[1].len());
    let first = (0..last).find(|k| count(0, *k) + count(1, *k) != 0).unwrap_or(0);
    writeln!(out, "{:>10}{:14} : {:<28} share after", "usecs", "", "share before")?;
    for k in first..last {
        let row = rows[0].get(k).or(rows[1].get(k));
        let (low, high) = row.map_or((0, 0), |row| (row.low, row.high));
        let cells = [0, 1].map(|side: usize| {
            let share = count(side, k) as f64 / totals[side];
            let length = (share * BAR as f64).round() as usize;
            let length = length.max(usize::from(count(side, k) != 0));
            format!("{:>5.1}% {:<BAR$}", share * 100.0, "*".repeat(length))
        });
        writeln!(out, "{:>10} -> {:<10} : {}  {}", low, high, cells[0], cells[1].trim_end())?;
    }
    Ok(())
}

/// Who waited most on each side.
pub fn ranked(out: &mut String, title: &str, sides: &[Vec<Ranked>; 2]) -> Result {
    let rows = sides[0].len().max(sides[1].len());
    if rows == 0 {
        return Ok(());
    }
    let cell = |side: usize, i: usize| {
        sides[side].get(i).map_or_else(String::new, |ranked| {
            let share = |share| figures::value(cgscope_model::diff::Unit::WallShare, Some(share));
            format!("{:>8} {:>8}  {}", share(ranked.wait), share(ranked.on_cpu), bare(&ranked.subject))
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

fn bare(subject: &Subject) -> String {
    match subject {
        Subject::Program(comm) => comm.to_string(),
        Subject::Cgroup(path) => path.to_string(),
        other => figures::whose(other),
    }
}
