//! `cgscope top`: the live screen, or text with `-b`.

pub mod draw;
#[cfg(test)]
pub mod fixtures;
mod header;
mod histogram;
mod live;
pub mod screen;
pub mod state;
#[cfg(test)]
mod tests;
pub mod theme;

use std::io::{self, Write};

use cgscope_model::{
    Interval, Mode,
    findings::{Host, findings},
    json::IntervalObject,
};

use crate::{
    causes,
    child::Output,
    cli::Top,
    columns::{Column, fit, sorted},
    exit::{Error, Result},
    mode::NO_HISTOGRAM,
    nodes,
    record::Tee,
    request::Target,
    run::{Plan, for_each_interval},
    session::{Pace, Ready},
    terminal::Screen,
    text,
};

/// What prints text where there is no terminal.
const INSTEAD: &str = "cgscope top -b";
/// Rows of the table in text.
const BATCH_ROWS: usize = 20;

/// Runs the command.
pub async fn run(options: &Top) -> Result {
    let mut target = Target::new(&options.select)?;
    target.output = if options.batch { Output::ToStandardError } else { Output::Nowhere };
    let pace = Pace { interval: options.delay, duration: None, count: options.iterations };
    if options.batch {
        let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
        let plan = Plan { pace, merge: false };
        let (ready, tee) = set_up(&target, pace, options)?;
        return for_each_interval(ready.go(), plan, tee, |interval, host| {
            print(&mut out, interval, host, options.json).map_err(|error| Error::output(&error))
        })
        .await;
    }
    // First: nothing is started for a terminal that is not there. It is taken over last: until then words on standard error are
    // seen.
    Screen::check(INSTEAD)?;
    let (ready, tee) = set_up(&target, pace, options)?;
    live::run(ready, tee, pace.interval).await
}

fn set_up(target: &Target, pace: Pace, options: &Top) -> Result<(Ready, Tee)> {
    let path = options.record.as_deref();
    Tee::set_up(path, !options.batch, pace.interval, target, || Ready::new(target, pace))
}

fn print(out: &mut impl Write, interval: &Interval, host: &Host, json: bool) -> io::Result<()> {
    if json {
        serde_json::to_writer(&mut *out, &IntervalObject::new(interval, host))?;
        writeln!(out)?;
    } else {
        out.write_all(batch_text(interval, host).as_bytes())?;
    }
    out.flush()
}

/// An interval as text: the header's figures, then the tasks that waited most.
fn batch_text(interval: &Interval, host: &Host) -> String {
    let total = interval.total();
    let mut text = match interval.mode {
        Mode::Bpf => String::new(),
        Mode::Coarse => format!("{NO_HISTOGRAM}\n"),
    };
    text += &format!("{}\n", text::wait_line(&total.wait, interval.mode));
    text += &causes::lines(&total.wait.by_cause, interval, None, &interval.culprits());
    for finding in findings(interval, host) {
        text += &format!("finding: {}\n", finding.says);
    }
    text.extend(nodes::short_line(interval).map(|line| line + "\n"));
    text.extend(text::pending_line(interval).map(|line| line + "\n"));
    text += &format!("{}\n", text::cost_line(&interval.cost, interval.duration_ns, interval.mode));
    text += &format!("{}\n", text::loss_line(&interval.losses));
    let row = |cell: &dyn Fn(Column) -> String| {
        let cells: Vec<String> =
            Column::ALL.iter().map(|column| fit(*column, &cell(*column), width_of(*column))).collect();
        format!("{}\n", cells.join(" ").trim_end())
    };
    text += &row(&|column| column.title().into());
    for task in sorted(interval, Column::WaitShare, false).into_iter().take(BATCH_ROWS) {
        text += &row(&|column| column.cell(task, interval));
    }
    text + "\n"
}

/// Nothing bounds the last column of a text.
fn width_of(column: Column) -> usize {
    if column == Column::Cgroup { 200 } else { column.width().into() }
}
