//! `cgscope top`: the live screen, or text with `-b`.

pub mod draw;
#[cfg(test)]
pub mod fixtures;
mod header;
mod histogram;
pub mod state;
#[cfg(test)]
mod tests;
mod theme;

use std::{
    io::{self, Write},
    sync::Arc,
};

use cgscope_model::{
    Interval, Mode, Sample,
    findings::{Host, findings},
    json::IntervalObject,
};
use crossterm::event::{Event, EventStream, KeyEventKind};
use futures_util::StreamExt;
use ratatui::layout::Rect;

use crate::{
    causes,
    child::Output,
    cli::Top,
    columns::{Column, fit, sorted},
    exit::{Error, Exit, Result},
    mode::NO_HISTOGRAM,
    nodes,
    request::Target,
    run::{Plan, finish, for_each_interval, losses, select},
    session::{self, Pace, Session, Step},
    terminal::Screen,
    text,
    top::{
        draw::{draw, table_height},
        state::{Action, App},
        theme::Theme,
    },
};

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
        return for_each_interval(&target, plan, |interval, host| {
            print(&mut out, interval, host, options.json).map_err(|error| Error::output(&error))
        })
        .await;
    }
    screen(&target, pace).await
}

/// The loop of the screen: keys, Samples, signals; drawing where something changed.
async fn screen(target: &Target, pace: Pace) -> Result {
    let mut screen = Screen::take()?;
    let theme = Theme::new(std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()));
    let mut session = Session::start(target, pace)?;
    let mut app = App::new(session.title.clone(), pace.interval);
    app.host = session.host;
    app.coarse = session.coarse.as_ref().map(|coarse| coarse.because.clone());
    let mut keys = EventStream::new();
    let mut earlier: Option<Sample> = None;
    let mut worst = Exit::Done;
    let mut end = None;
    loop {
        paint(&mut screen, &mut app, theme)?;
        if app.interval.is_some() && std::env::var_os("CGSCOPE_TEST_PANIC").is_some() {
            // For the test that a panic gives the terminal back; what else would panic in the middle of drawing?
            panic!("a panic that was asked for");
        }
        tokio::select! {
            key = keys.next() => match key {
                Some(Ok(event)) => if on_event(&mut app, &event) == Action::Quit { break },
                // The terminal is gone.
                Some(Err(_)) | None => break,
            },
            step = session.next_or_signal(end.is_some()) => {
                let (sample, ended) = match step? {
                    Some(Step::Sample(sample)) => (sample, None),
                    Some(Step::Last(sample, ended)) => (sample, Some(ended)),
                    None => break,
                };
                if let Some(earlier) = &earlier {
                    let mut interval = Interval::between(earlier, &sample);
                    select(&session, &mut interval)?;
                    worst = worst.max(losses(&interval));
                    app.on_interval(Arc::new(interval));
                }
                earlier = Some(sample);
                match ended {
                    None => {}
                    Some(session::End::Interrupted | session::End::Finished) => { end = ended; break }
                    Some(_) => {
                        app.ended = ended.as_ref().map(session::words);
                        end = ended;
                    }
                }
            }
        }
    }
    // Only what is printed after this is seen.
    drop(screen);
    session.say_limits();
    // Whoever quits has seen enough: a command that still runs is ended, too.
    let end = end.unwrap_or(session::End::Finished);
    Ok(worst.max(finish(&mut session, &end)))
}

fn paint(screen: &mut Screen, app: &mut App, theme: Theme) -> Result<()> {
    let gone = |error: io::Error| Error::incomplete(format!("the terminal cannot be drawn on ({error})"));
    let size = screen.terminal.size().map_err(gone)?;
    let height = table_height(Rect::new(0, 0, size.width, size.height), app);
    app.scroll_to_selected(height);
    screen.terminal.draw(|frame| draw(frame, app, theme)).map_err(gone)?;
    Ok(())
}

fn on_event(app: &mut App, event: &Event) -> Action {
    match event {
        Event::Key(key) if key.kind != KeyEventKind::Release => app.on_key(*key),
        Event::Resize(..) => Action::Draw,
        _ => Action::None,
    }
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
