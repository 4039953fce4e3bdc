//! The header: what is measured, how the host does, what it costs, and what is lost.

use cgscope_model::{
    Interval, Mode,
    units::{self, bytes, duration, per_second, percent, time_of_day},
};
use ratatui::text::{Line, Span};

use super::{bars, layout};
use crate::{
    app::{App, Recorded},
    data::Data,
    nodes,
    text::or_dash,
    width::{cut_end, width},
};

/// Cells of a sparkline on a narrow screen, and on a wide one.
const SPARKLINE: (usize, usize) = (8, 30);
/// From this height on there is room for a line about NUMA nodes.
const ROOMY: u16 = 30;
/// From this width on a screen is wide.
const WIDE: u16 = 120;

/// Lines of the header.
pub fn height(app: &App) -> u16 {
    let lines = if layout::is_tall(app) { 4 } else { 3 };
    lines + u16::from(nodes_line(app).is_some())
}

/// The lines of the header.
pub fn lines(app: &App) -> Vec<Line<'static>> {
    let mut lines = vec![title(app)];
    let Some(data) = &app.data else { return lines };
    lines.push(load(app, data));
    if layout::is_tall(app) {
        lines.push(waiting(app, data));
    }
    lines.extend(nodes_line(app).map(|line| {
        Line::from(vec![
            Span::styled("nodes ", app.theme.quiet()),
            Span::raw(cut_end(&line, usize::from(app.area.width) - 6)),
        ])
    }));
    lines.push(own(app, &data.interval));
    lines
}

/// The NUMA nodes of a host with several, where there is room.
fn nodes_line(app: &App) -> Option<String> {
    let data = app.data.as_ref().filter(|_| app.area.height >= ROOMY)?;
    nodes::short_line(&data.interval)
}

/// What is an alarm comes first: a narrow screen shows it, too.
fn title(app: &App) -> Line<'static> {
    let theme = app.theme;
    let mut spans = vec![Span::styled(app.commands()[0], theme.heading())];
    match &app.recorded {
        Some(Recorded::Recording(written)) => {
            spans.push(Span::styled(format!("  recording {}", bytes(*written)), theme.quiet()));
        }
        Some(Recorded::Broken(reason)) => {
            spans.push(Span::styled(format!("  NO LONGER RECORDED: {reason}"), theme.alarm()));
        }
        None => {}
    }
    let about = &app.about;
    if app.paused {
        spans.push(Span::styled("  PAUSED", theme.alarm()));
    }
    match &about.coarse {
        Some(because) => {
            spans.push(Span::styled("  COARSE", theme.alarm()));
            spans.push(Span::styled(format!(": {because}"), theme.quiet()));
        }
        None if app.data.is_some() => spans.push(Span::styled("  BPF", theme.quiet())),
        None => {}
    }
    spans.push(Span::raw(format!("  {}", about.title)));
    let mut facts = vec![format!("every {}", duration(app.delay.as_nanos() as u64))];
    if let Some(data) = &app.data {
        let total = &data.total;
        facts.push(format!(
            "{} of {}",
            units::count(total.threads, "thread"),
            units::count(total.processes, "process")
        ));
        let interval = &data.interval;
        facts.push(time_of_day(interval.start_unix_ns.saturating_add(interval.duration_ns)));
    }
    facts.extend((!about.hostname.is_empty()).then(|| about.hostname.clone()));
    facts.extend((!about.kernel.is_empty()).then(|| format!("Linux {}", about.kernel)));
    let mut room = usize::from(app.area.width).saturating_sub(spans.iter().map(Span::width).sum());
    for fact in facts {
        // A fact that is cut tells nothing.
        let cells = width(&fact) + 2;
        if cells <= room {
            spans.push(Span::styled(format!("  {fact}"), theme.quiet()));
            room -= cells;
        }
    }
    Line::from(spans)
}

fn cells(app: &App) -> usize {
    if app.area.width >= WIDE { SPARKLINE.1 } else { SPARKLINE.0 }
}

/// CPUs and throttling, over time and now.
fn load(app: &App, data: &Data) -> Line<'static> {
    let theme = app.theme;
    let busy: Vec<_> = app.history().frames().map(|frame| frame.busy_percent).collect();
    let throttled: Vec<_> = app.history().frames().map(|frame| Some(frame.throttled())).collect();
    let most = throttled.iter().flatten().copied().fold(1.0, f64::max);
    let now = throttled.last().copied().flatten().unwrap_or(0.0);
    let cpus = data.interval.cpus.len();
    let share = data.busy_percent().map_or("n/a".into(), |share| format!("{share:.0}%"));
    let throttled_style = if now >= 0.05 { theme.alarm() } else { theme.quiet() };
    Line::from(vec![
        Span::styled("CPU  ", theme.quiet()),
        Span::styled(bars::sparkline(&busy, 100.0, cells(app)), theme.busy()),
        Span::raw(format!(" {share:>4} of {:<10}", units::count(cpus as u64, "CPU"))),
        Span::styled(" throttled ", theme.quiet()),
        Span::styled(
            bars::sparkline(&throttled, most, cells(app)),
            theme.cause(cgscope_model::Cause::Throttled),
        ),
        Span::styled(format!(" {now:.2} tasks on average"), throttled_style),
    ])
}

/// Waits of all tasks, over time and now.
fn waiting(app: &App, data: &Data) -> Line<'static> {
    let theme = app.theme;
    let waiting: Vec<_> = app.history().frames().map(|frame| Some(frame.waiting())).collect();
    let most = waiting.iter().flatten().copied().fold(1.0, f64::max);
    let now = waiting.last().copied().flatten().unwrap_or(0.0);
    let wait = &data.total.wait;
    let is_exact = data.interval.mode == Mode::Bpf;
    let quantile = |q| or_dash(wait.quantile_ns(q));
    let rate =
        per_second(wait.count, data.interval.duration_ns).map_or("-".into(), |rate| format!("{rate:.0}/s"));
    let mut parts = vec![
        Span::styled("wait ", theme.quiet()),
        Span::styled(bars::sparkline(&waiting, most, cells(app)), theme.wait()),
        Span::styled(format!(" {now:.2} tasks"), theme.wait()),
    ];
    if is_exact {
        let longest = if wait.count == 0 { "-".into() } else { duration(wait.max_ns) };
        parts.push(Span::raw(format!("  p50 {}  p99 {}  max {longest}", quantile(0.5), quantile(0.99))));
        parts.push(match data.total.pending {
            0 => Span::styled("  now nobody", theme.quiet()),
            pending => {
                let longest = duration(data.total.pending_max_ns);
                Span::styled(format!("  now {pending} for {longest}"), theme.wait())
            }
        });
    }
    parts.push(Span::raw(format!("  {rate}")));
    whole(parts, app.area.width.into())
}

/// As many parts as there is room for: half a figure is a wrong one.
fn whole(parts: Vec<Span<'static>>, cells: usize) -> Line<'static> {
    let mut room = cells;
    let fitting = parts.into_iter().map_while(|part| {
        room = room.checked_sub(part.width())?;
        Some(part)
    });
    Line::from_iter(fitting)
}

/// What it costs, and what was lost.
fn own(app: &App, interval: &Interval) -> Line<'static> {
    let theme = app.theme;
    let cost = &interval.cost;
    let length_ns = interval.duration_ns;
    let share = |ns: Option<u64>| {
        ns.and_then(|ns| percent(ns, length_ns)).map_or("n/a".into(), |p| format!("{p:.2}%"))
    };
    let memory = cost.rss_bytes.map_or("n/a".into(), bytes);
    let mut spans: Vec<Span<'static>> = Vec::new();
    let named: Vec<_> = interval.losses.nonzero().collect();
    // What went wrong comes first: a narrow screen shows it, too.
    for (loss, count) in named.iter().filter(|(loss, _)| !loss.leaves_result_whole()) {
        spans.push(Span::styled(format!("LOST {} {count}  ", loss.name()), theme.alarm()));
    }
    spans.push(Span::styled("own  ", theme.quiet()));
    if interval.mode == Mode::Bpf {
        let per_run =
            cost.hook_ns.zip(cost.hook_runs).filter(|(_, runs)| *runs != 0).map(|(ns, runs)| ns / runs);
        let per_run = per_run.map_or("n/a".into(), duration);
        spans.push(Span::raw(format!("{per_run} a switch = {} of a CPU  ", share(cost.hook_ns))));
    }
    spans.push(Span::raw(format!("collector {}  {memory}  ", share(cost.cpu_ns))));
    if named.is_empty() {
        spans.push(Span::styled("losses none", theme.quiet()));
    }
    // What the host never shows is no alarm.
    for (loss, count) in named.iter().filter(|(loss, _)| loss.leaves_result_whole()) {
        spans.push(Span::styled(format!("{} {count}  ", loss.name()), theme.quiet()));
    }
    whole(spans, app.area.width.into())
}
