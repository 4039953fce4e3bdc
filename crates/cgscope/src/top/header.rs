//! The header: the answer for all tasks, what it cost, and what was lost.

use cgscope_model::{
    Group, Interval, Mode,
    findings::findings,
    units::{self, bytes, duration, per_second, percent},
};
use ratatui::text::{Line, Span};

use crate::{
    causes, nodes,
    record::Recorded,
    top::{state::App, theme::Theme},
};

/// In the coarse mode, what only the hook sees.
const UNKNOWN: &str = "not known (coarse)";
/// From this height of the screen on there is room to say why.
const TALL: u16 = 22;

/// A screen of this height has room to say why.
pub fn is_tall(screen: u16) -> bool {
    screen >= TALL
}

/// Lines on a screen of this height.
pub fn height(screen: u16, app: &App) -> u16 {
    let has_nodes = app.interval.as_deref().is_some_and(nodes::has_several);
    if is_tall(screen) { 8 + u16::from(has_nodes) } else { 5 }
}

/// The lines of the header, on a screen of this height.
pub fn lines(app: &App, theme: Theme, screen: u16) -> Vec<Line<'static>> {
    let mut title = vec![Span::styled(app.commands()[0], theme.heading())];
    title.extend(app.recorded.as_ref().map(|recorded| self::recorded(recorded, theme)));
    title.extend([
        Span::raw(format!("  {}", app.title)),
        Span::styled(format!("  every {}", duration(app.delay.as_nanos() as u64)), theme.quiet()),
    ]);
    if let Some(because) = &app.coarse {
        title.push(Span::styled("  COARSE", theme.alarm()));
        title.push(Span::styled(format!(": {because}"), theme.quiet()));
    }
    let Some(interval) = app.interval.as_deref() else { return vec![Line::from(title)] };
    let total = interval.total();
    title.push(Span::styled(
        format!("  {} of {}", units::count(total.threads, "thread"), processes(total.processes)),
        theme.quiet(),
    ));
    let wait = &total.wait;
    let quantile = |q| wait.quantile_ns(q).map_or("-".into(), duration);
    let waiting = wait.total_ns as f64 / interval.duration_ns.max(1) as f64;
    let is_exact = interval.mode == Mode::Bpf;
    let mut lines = vec![
        Line::from(title),
        Line::from(vec![
            Span::styled("waiting  ", theme.quiet()),
            Span::styled(format!("{waiting:.2} tasks on average"), theme.wait()),
            Span::raw(format!(
                "  {}/s  p50 {}  p99 {}  longest {}",
                per_second(wait.count, interval.duration_ns).map_or("-".into(), |rate| format!("{rate:.0}")),
                quantile(0.5),
                quantile(0.99),
                if is_exact && wait.count != 0 { duration(wait.max_ns) } else { "-".into() },
            )),
        ]),
    ];
    if is_tall(screen) {
        lines.extend(why(&total, interval, app, theme));
        lines.extend(
            nodes::short_line(interval)
                .map(|line| Line::from(vec![Span::styled("nodes    ", theme.quiet()), Span::raw(line)])),
        );
    }
    lines.extend([pending(&total, interval.mode, theme), cost(interval, theme), losses(interval, theme)]);
    lines
}

/// Before what may be long, so that it is seen on a narrow screen, too.
fn recorded(recorded: &Recorded, theme: Theme) -> Span<'static> {
    match recorded {
        Recorded::Recording(written) => {
            Span::styled(format!("  recording {}", bytes(*written)), theme.quiet())
        }
        Recorded::Broken(reason) => Span::styled(format!("  NO LONGER RECORDED: {reason}"), theme.alarm()),
    }
}

fn why(total: &Group, interval: &Interval, app: &App, theme: Theme) -> [Line<'static>; 3] {
    [
        Line::from(vec![
            Span::styled("why      ", theme.quiet()),
            Span::raw(causes::line(&total.wait.by_cause).unwrap_or_else(|| "-".into())),
        ]),
        Line::from(vec![
            Span::styled("behind   ", theme.quiet()),
            Span::raw(causes::culprits_line(&interval.culprits()).unwrap_or_else(|| match interval.mode {
                Mode::Bpf => "nobody of another cgroup".into(),
                Mode::Coarse => UNKNOWN.into(),
            })),
        ]),
        finding(interval, app, theme),
    ]
}

/// The worst of the findings; the report has them all.
fn finding(interval: &Interval, app: &App, theme: Theme) -> Line<'static> {
    let label = Span::styled("finding  ", theme.quiet());
    let all = findings(interval, &app.host);
    let Some(worst) = all.first() else { return Line::from(vec![label, Span::raw("none")]) };
    let more = match all.len() - 1 {
        0 => String::new(),
        more => format!(" (and {more} more)"),
    };
    Line::from(vec![label, Span::styled(format!("{}{more}", worst.says), theme.alarm())])
}

fn processes(count: u64) -> String {
    if count == 1 { "1 process".into() } else { format!("{count} processes") }
}

fn pending(total: &Group, mode: Mode, theme: Theme) -> Line<'static> {
    let label = Span::styled("now      ", theme.quiet());
    if mode == Mode::Coarse {
        return Line::from(vec![label, Span::raw(UNKNOWN)]);
    }
    if total.pending == 0 {
        return Line::from(vec![label, Span::raw("nobody is waiting")]);
    }
    let verb = if total.pending == 1 { "is" } else { "are" };
    let now = format!(
        "{} {verb} waiting, the longest for {} so far",
        units::count(total.pending, "task"),
        duration(total.pending_max_ns)
    );
    Line::from(vec![label, Span::styled(now, theme.wait())])
}

fn cost(interval: &Interval, theme: Theme) -> Line<'static> {
    let cost = &interval.cost;
    let length = interval.duration_ns;
    let share =
        |ns: Option<u64>| ns.and_then(|ns| percent(ns, length)).map_or("n/a".into(), |p| format!("{p:.2}%"));
    let runs = cost.hook_runs.and_then(|runs| per_second(runs, length));
    let per_run = cost.hook_ns.zip(cost.hook_runs).filter(|(_, runs)| *runs != 0).map(|(ns, runs)| ns / runs);
    let memory = cost.rss_bytes.map_or("n/a".into(), bytes);
    let label = Span::styled("own cost ", theme.quiet());
    if interval.mode == Mode::Coarse {
        return Line::from(vec![label, Span::raw(format!("{} of one CPU  {memory}", share(cost.cpu_ns)))]);
    }
    Line::from(vec![
        label,
        Span::raw(format!(
            "hook {} of one CPU ({} x {}/s)  collector {}  {}",
            share(cost.hook_ns),
            per_run.map_or("n/a".into(), |ns| format!("{ns}ns")),
            runs.map_or("n/a".into(), |runs| format!("{runs:.0}")),
            share(cost.cpu_ns),
            memory,
        )),
    ])
}

fn losses(interval: &Interval, theme: Theme) -> Line<'static> {
    let label = Span::styled("losses   ", theme.quiet());
    let named: Vec<_> = interval.losses.nonzero().collect();
    if named.is_empty() {
        return Line::from(vec![label, Span::raw("none")]);
    }
    let spans = named.iter().map(|(loss, count)| {
        // What the host never shows is no alarm: nothing went wrong.
        let style = if loss.leaves_result_whole() { theme.quiet() } else { theme.alarm() };
        Span::styled(format!("{} {count}   ", loss.name()), style)
    });
    Line::from_iter(std::iter::once(label).chain(spans))
}
