//! The header of the screen: what is measured, the load of the host, the overhead of cgscope, and losses. Also the lines below
//! the header: the names of the views and the scope of the list.

use super::prelude::*;
use crate::{app::Recorded, data::busy_percent, history::Past, nodes};

/// Width of a sparkline on a narrow and on a wide screen, in cells.
const SPARKLINE: (usize, usize) = (8, 30);
/// Minimum height of a screen with a line about NUMA nodes.
const ROOMY: u16 = 30;
const WIDE: u16 = 120;
/// Letters of a view's name on a narrow screen.
const SHORT: usize = 4;

pub fn height(app: &App) -> u16 {
    let lines = if layout::is_tall(app) { 4 } else { 3 };
    lines + u16::from(nodes_line(app).is_some())
}

pub fn lines(app: &App) -> Lines {
    let mut lines = vec![title(app)];
    let Some(data) = &app.data else { return lines };
    lines.push(load(app, data));
    lines.extend(layout::is_tall(app).then(|| waiting(app, data)));
    lines.extend(nodes_line(app).map(|line| {
        let words = cut_end(&line, usize::from(app.area.width) - 6);
        Line::from(vec![Span::styled("nodes ", app.theme.quiet()), Span::raw(words)])
    }));
    lines.push(own(app, &data.interval));
    lines
}

fn nodes_line(app: &App) -> Option<String> {
    nodes::short_line(&app.data.as_ref().filter(|_| app.area.height >= ROOMY)?.interval)
}

/// Returns the first line. Alarms come first, so that a narrow screen shows them, too.
fn title(app: &App) -> Line<'static> {
    let (theme, about, data) = (app.theme, &app.about, app.data.as_ref());
    let quiet = |words: String| Span::styled(words, theme.quiet());
    let recorded = app.recorded.as_ref().map(|recorded| match recorded {
        Recorded::Recording(written) => quiet(format!("  recording {}", bytes(*written))),
        Recorded::Broken(reason) => Span::styled(format!("  NO LONGER RECORDED: {reason}"), theme.alarm()),
    });
    let mode = match (&about.coarse, data) {
        (Some(_), _) => Some(Span::styled("  COARSE", theme.alarm())),
        (None, data) => data.map(|_| quiet("  BPF".into())),
    };
    let scheduler = data.and_then(|data| data.interval.sched_ext.as_ref()?.scheduler.as_deref());
    let words = [
        Some(Span::styled(app.commands()[0], theme.heading())),
        recorded,
        app.paused.then(|| Span::styled("  PAUSED", theme.alarm())),
        mode,
        scheduler.map(|name| Span::styled(format!("  SCHED_EXT {name}"), theme.alarm())),
        about.coarse.as_ref().map(|because| quiet(format!(": {because}"))),
        Some(Span::raw(format!("  {}", about.title))),
    ];
    let mut spans: Spans = words.into_iter().flatten().collect();
    let tasks = |Data { total, .. }: &Data| {
        let processes = units::count(total.processes, "process");
        format!("{} of {processes}", units::count(total.threads, "thread"))
    };
    let end = data.map(|data| data.interval.start_unix_ns.saturating_add(data.interval.duration_ns));
    let facts = [
        Some(format!("every {}", duration(app.delay.as_nanos() as u64))),
        data.map(tasks),
        end.map(time_of_day),
        (!about.hostname.is_empty()).then(|| about.hostname.clone()),
        (!about.kernel.is_empty()).then(|| format!("Linux {}", about.kernel)),
    ];
    let mut room = usize::from(app.area.width).saturating_sub(spans.iter().map(Span::width).sum());
    for fact in facts.into_iter().flatten() {
        // A fact is shown in full or omitted.
        let cells = width(&fact) + 2;
        if cells <= room {
            spans.push(quiet(format!("  {fact}")));
            room -= cells;
        }
    }
    Line::from(spans)
}

fn sparkline(app: &App, values: &[Option<f64>], most: f64, style: Style) -> Span<'static> {
    let cells = if app.area.width >= WIDE { SPARKLINE.1 } else { SPARKLINE.0 };
    Span::styled(bars::sparkline(values, most, cells), style)
}

fn tasks(app: &App, tasks: fn(&Past) -> f64, style: Style) -> (Span<'static>, f64) {
    let values: Vec<_> = app.history().frames.iter().map(|frame| Some(tasks(&frame.all))).collect();
    let most = values.iter().flatten().copied().fold(1.0, f64::max);
    (sparkline(app, &values, most, style), values.last().copied().flatten().unwrap_or(0.0))
}

fn load(app: &App, data: &Data) -> Line<'static> {
    let theme = app.theme;
    let busy: Vec<_> = app.history().frames.iter().map(|frame| frame.busy_percent).collect();
    let (throttled, now) = tasks(app, Past::throttled, theme.cause(Cause::Throttled));
    let cpus = units::count(data.interval.cpus.len() as u64, "CPU");
    let share = or_na(busy_percent(&data.interval).map(|share| format!("{share:.0}%")));
    let now_style = if now >= 0.05 { theme.alarm() } else { theme.quiet() };
    Line::from(vec![
        Span::styled("CPU  ", theme.quiet()),
        sparkline(app, &busy, 100.0, theme.busy()),
        Span::raw(format!(" {share:>4} of {cpus:<10}")),
        Span::styled(" throttled ", theme.quiet()),
        throttled,
        Span::styled(format!(" {now:.2} tasks on average"), now_style),
    ])
}

fn waiting(app: &App, data: &Data) -> Line<'static> {
    let theme = app.theme;
    let (waiting, now) = tasks(app, Past::waiting, theme.wait());
    let wait = &data.total.wait;
    let rate = per_second(wait.count, data.interval.duration_ns)
        .map_or("-".into(), |rate| format!("{rate:.0} waits/s"));
    let mut parts = vec![
        Span::styled("wait ", theme.quiet()),
        waiting,
        Span::styled(format!(" {now:.2} tasks"), theme.wait()),
    ];
    if app.is_exact() {
        let [p50, p99] = [0.5, 0.99].map(|quantile| or_dash(wait.quantile_ns(quantile)));
        let longest = or_dash((wait.count != 0).then_some(wait.max_ns));
        parts.push(Span::raw(format!("  p50 {p50}  p99 {p99}  max {longest}")));
        parts.push(match data.total.pending {
            0 => Span::styled("  none waiting", theme.quiet()),
            pending => {
                let longest = duration(data.total.pending_max_ns);
                Span::styled(format!("  now {pending} for {longest}"), theme.wait())
            }
        });
        parts.extend(contention(app, data).map(Span::raw));
    }
    parts.push(Span::raw(format!("  {rate}")));
    whole(parts, app.area.width.into())
}

fn contention(app: &App, data: &Data) -> Option<String> {
    data.interval.limits_at("/")?.contention_ns?;
    let [ten, minute, five] = app.history().averages.of("/").contention.map(|share| 100.0 * share);
    Some(format!("  contention {ten:.0}% {minute:.0}% {five:.0}%"))
}

/// Returns the leading parts that fit. Parts are not cut, because a number without its last digits would be another number.
fn whole(parts: Spans, cells: usize) -> Line<'static> {
    let mut room = cells;
    let fitting = parts.into_iter().map_while(|part| {
        room = room.checked_sub(part.width())?;
        Some(part)
    });
    Line::from_iter(fitting)
}

fn own(app: &App, interval: &Interval) -> Line<'static> {
    let (theme, cost) = (app.theme, &interval.cost);
    let share = |ns: Option<u64>| {
        or_na(ns.and_then(|ns| percent(ns, interval.duration_ns)).map(|share| format!("{share:.2}%")))
    };
    let losses = |is_harmless: bool, before: &'static str, style: Style| {
        let losses = interval.losses.shown();
        let losses = losses.filter(move |(loss, _)| loss.leaves_result_whole() == is_harmless);
        losses.map(move |(loss, count)| Span::styled(format!("{before}{} {count}  ", loss.name()), style))
    };
    // Losses that damage the result come first, so that a narrow screen shows them. Other losses are not an alarm.
    let mut spans: Spans = losses(false, "LOST ", theme.alarm()).collect();
    spans.push(Span::styled("cost ", theme.quiet()));
    spans.extend(app.is_exact().then(|| Span::raw(format!("hook {} + ", share(cost.hook_ns)))));
    let memory = or_na(cost.rss_bytes.map(bytes));
    spans.push(Span::raw(format!("collector {} of a CPU, {memory}  ", share(cost.cpu_ns))));
    let has_none = interval.losses.shown().next().is_none();
    spans.extend(has_none.then(|| Span::styled("no losses", theme.quiet())));
    spans.extend(losses(true, "", theme.quiet()));
    whole(spans, app.area.width.into())
}

/// Returns each view with its key and its name. Names are shortened to fit.
fn views(app: &App) -> Vec<(View, [Span<'static>; 4])> {
    let theme = app.theme;
    let named = |letters: usize, help: bool, gap: &'static str| -> Vec<(View, [Span<'static>; 4])> {
        // The What if view is omitted: it is about the selected row, and the help shows its key.
        let views = View::ALL.iter().filter(|view| **view != View::WhatIf).filter_map(|view| {
            let key = app.settings.keymap.first(view.command())?;
            // If space is short, help and findings are shown as keys only.
            let letters = if view.is_over() && !help { 0 } else { letters };
            let name: String = view.title().chars().take(letters).collect();
            let style = if *view == app.view { theme.selected() } else { theme.quiet() };
            let (gap, after) = if name.is_empty() { (" ", "") } else { (gap, " ") };
            let name = Span::styled(name, style);
            Some((*view, [Span::styled(key, theme.key()), Span::raw(gap), name, Span::raw(after)]))
        });
        views.collect()
    };
    let fits = |views: &Vec<(View, [Span<'static>; 4])>| {
        let spans = views.iter().flat_map(|(_, spans)| spans);
        spans.map(Span::width).sum::<usize>() <= usize::from(app.area.width) + 1
    };
    // Without the blank after the key, all names fit a screen of the most common width.
    let forms = [named(usize::MAX, true, " "), named(usize::MAX, false, " "), named(usize::MAX, false, "")];
    forms.into_iter().find(fits).unwrap_or_else(|| named(SHORT, false, " "))
}

pub fn tabs(app: &App) -> Line<'static> {
    Line::from_iter(views(app).into_iter().flat_map(|(_, spans)| spans))
}

pub fn view_at(app: &App, x: usize) -> Option<View> {
    let mut from = 0;
    views(app).into_iter().find_map(|(view, spans)| {
        from += spans.iter().map(Span::width).sum::<usize>();
        (x < from).then_some(view)
    })
}

pub fn crumbs(app: &App, cells: usize) -> Line<'static> {
    let theme = app.theme;
    let mut spans = Vec::new();
    if app.scope != Key::All {
        let subject = app.data.as_ref().and_then(|data| data.subject(&app.scope));
        let title = subject.map_or_else(|| "(exited)".into(), |subject| app.title(&subject));
        spans.push(Span::styled("in ", theme.quiet()));
        spans.push(Span::styled(cut_start(&title, cells / 2), theme.heading()));
        spans.push(Span::styled("  Esc goes back  ", theme.quiet()));
    }
    if !app.filter.is_empty() {
        spans.push(Span::styled("with ", theme.quiet()));
        spans.push(Span::styled(app.filter.clone(), theme.heading()));
        let count = units::count(app.rows.len() as u64, "row");
        spans.push(Span::styled(format!("  {count}"), theme.quiet()));
    }
    Line::from(spans)
}
