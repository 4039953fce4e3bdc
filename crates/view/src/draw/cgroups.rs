//! The limits of the selected cgroup: its quota and the quotas of its ancestors, their effect, pressure, weight and CPUs.

use super::prelude::*;

/// Used share of a quota from which the share is shown as an alarm.
const NEARLY_ALL: f64 = 0.95;
/// Maximum width of bars in the chain of quotas, in cells.
const BAR: usize = 30;
/// Width of a line of the chain without the path and the bar, in cells.
const FIGURES: usize = 51;
const SIBLINGS: usize = 12;

pub fn lines(pane: &Pane<'_>) -> Lines {
    let Subject::Cgroup(node) = pane.subject else {
        let words = format!("{}: the limits of removed cgroups are not known", pane.title());
        return wrapped(&words, pane.cells).into_iter().map(Line::raw).collect();
    };
    pane.with_histogram(fit(sections(pane, node), pane.room))
}

fn sections(pane: &Pane<'_>, node: &Node) -> Vec<Section> {
    let theme = pane.theme;
    let style = if node.throttled_by.is_empty() { theme.quiet() } else { theme.alarm() };
    let mut head = vec![Line::styled(cut_start(&pane.title(), pane.cells), theme.heading())];
    let verdict = wrapped(&verdict(pane.data, node), pane.cells);
    head.extend(verdict.into_iter().map(|line| Line::styled(line, style)));
    let short = |label: &str, words: Option<String>| {
        let cut = words.as_deref().map(|words| cut_end(words, pane.cells.saturating_sub(width(label))));
        let [short, long] = [cut, words].map(|words| pane.labelled(label, words.as_deref()));
        Section { short, long }
    };
    let if_room = |label, words: Option<String>| Section::if_room(pane.labelled(label, words.as_deref()));
    vec![
        Section::always(head),
        chain(pane, node),
        short("throttled ", throttled(pane.data, node)),
        short("pressure  ", pressure(pane)),
        if_room("averages  ", averages(pane, node)),
        short("use       ", used(pane)),
        short("weight    ", weight(pane, node)),
        if_room("burst     ", burst(pane)),
        if_room("waits     ", causes::line(&node.group.wait.by_cause)),
        Section::if_room(siblings(pane, node)),
    ]
}

/// Returns the cgroup and its ancestors, root first. The short form has only cgroups with a quota.
fn chain(pane: &Pane<'_>, node: &Node) -> Section {
    let (theme, tree) = (pane.theme, &pane.data.tree);
    let Some(at) = tree.find(&node.path) else { return Section::default() };
    let mut down: Vec<usize> = std::iter::once(at).chain(tree.ancestors(at)).collect();
    down.reverse();
    let quota_us = |at: &usize| tree.limits(pane.interval, *at)?.quota_us;
    let limited: Vec<usize> = down.iter().copied().filter(|at| quota_us(at).is_some()).collect();
    if limited.is_empty() {
        return Section::default();
    }
    let rest = pane.cells.saturating_sub(FIGURES);
    let bar = (rest / 3).clamp(4, BAR);
    let name = rest.saturating_sub(bar).max(8);
    let (title, used) = (left("quotas from above", name), left("   % used", bar + 7));
    let heading = format!("  {title} {:>9} {used} {:>8} periods out of quota", "quota", "burst");
    let mark_style = if node.throttled_by.is_empty() { theme.key() } else { theme.alarm() };
    let line = |at: usize| {
        let mark = if node.limited_by == Some(at) { "> " } else { "  " };
        chain_line(pane, &tree.nodes()[at], Span::styled(mark, mark_style), name, bar)
    };
    let [short, long] = [limited, down].map(|shown| {
        let heading = Line::styled(heading.clone(), theme.quiet());
        std::iter::once(heading).chain(shown.into_iter().map(line)).collect()
    });
    Section { short, long }
}

/// Returns a line of the chain: `> /kubepods  2 CPUs  98% ███████▌  none  60 of 70, 85.7%`.
fn chain_line(pane: &Pane<'_>, node: &Node, mark: Span<'static>, name: usize, bar: usize) -> Line<'static> {
    let theme = pane.theme;
    let limits = node.limits.map(|at| &pane.interval.limits[at]);
    let quota = limits.and_then(CgroupReading::quota_cores);
    let mut spans = vec![mark, Span::raw(path(&pane.interval.names.of(&node.path), name))];
    let Some((limits, cores)) = limits.zip(quota) else {
        spans.push(Span::styled(format!(" {:>9}", "none"), theme.quiet()));
        return Line::from(spans);
    };
    spans.push(Span::raw(format!(" {:>9}", units::cpus(cores))));
    let used = cpus_used(node, pane.data).map(|used| used / cores);
    match used.filter(|share| share.is_finite()) {
        Some(share) => {
            let style = if share >= NEARLY_ALL { theme.alarm() } else { theme.busy() };
            let bar = left(&bars::share(share, bar), bar);
            spans.push(Span::styled(format!(" {:>5.0}% {bar}", share * 100.0), style));
        }
        None => spans.push(Span::styled(format!(" {:>6} {}", "n/a", " ".repeat(bar)), theme.quiet())),
    }
    let burst = limits.burst_us.map(|us| if us == 0 { "none".into() } else { micros(us) });
    spans.push(Span::raw(format!(" {} ", right(&or_na(burst), 8))));
    spans.push(match ran_out(limits) {
        Some((out, periods, share)) if out != 0 => {
            Span::styled(format!("{out} of {periods}, {share:.1}%"), theme.alarm())
        }
        Some((_, periods, _)) => Span::raw(format!("0 of {periods}")),
        None => Span::styled("n/a", theme.quiet()),
    });
    Line::from(spans)
}

/// Returns the contention and the time at a limit, or the two figures of `cpu.pressure` (some and full).
fn pressure(pane: &Pane<'_>) -> Option<String> {
    let (limits, length_ns) = (pane.limits()?, pane.interval.duration_ns);
    let share = |ns: Option<u64>| percent(ns?, length_ns);
    let some = share(limits.pressure_some_ns);
    if let Some(words) = text::contention(limits.contention_ns, limits.throttled_pressure_ns, length_ns) {
        let some = some.map(|some| format!(" (psi some {some:.1}%)")).unwrap_or_default();
        return Some(words + &some);
    }
    let full = share(limits.pressure_full_ns);
    let full = full.map(|full| format!(", none ran {full:.1}% (full)")).unwrap_or_default();
    Some(format!("some task waited {:.1}% of the time (psi some){full}", some?))
}

/// Returns averages over 10 s, 60 s and 5 min, the same spans as in the kernel's `cpu.pressure`.
fn averages(pane: &Pane<'_>, node: &Node) -> Option<String> {
    pane.limits()?.contention_ns?;
    let averages = pane.app.history().averages.of(&node.path);
    let said = |shares: [f64; 3]| shares.map(|share| format!("{:.1}%", 100.0 * share)).join(", ");
    let (contention, limit) = (said(averages.contention), said(averages.limit));
    Some(format!("over 10 s, 60 s, 5 min: contention {contention}; at a limit {limit}"))
}

/// Returns the CPU time, its user and kernel shares, and the CPUs that the cgroup may use.
fn used(pane: &Pane<'_>) -> Option<String> {
    let limits = pane.limits();
    let used_ns = limits.and_then(|limits| limits.usage_ns).unwrap_or(pane.subject.totals().on_cpu_ns);
    let used = per_second(used_ns, pane.interval.duration_ns)? / 1e9;
    let mut said = format!("{} on average", units::cpus(used));
    let Some(limits) = limits else { return Some(said) };
    if let Some((user, system)) = limits.user_ns.zip(limits.system_ns)
        && let Some(share) = percent(user, user.saturating_add(system))
    {
        said += &format!("; {share:.0}% of it in user mode, {:.0}% in the kernel", 100.0 - share);
    }
    if let Some(cpus) = limits.cpus {
        let list = limits.cpuset.as_deref().map(|list| format!(" ({list})")).unwrap_or_default();
        said += &format!("; may run on {}{list}", units::count(cpus.into(), "CPU"));
    }
    Some(said)
}

/// Returns the share of CPU time that the cgroup gets if all its siblings want CPU time.
fn weight(pane: &Pane<'_>, node: &Node) -> Option<String> {
    let (own, tree) = (pane.limits()?.weight?, &pane.data.tree);
    let siblings = tree.nodes()[node.parent?].children.iter();
    let weights: Vec<u64> = siblings.filter_map(|at| tree.limits(pane.interval, *at)?.weight).collect();
    let others = weights.len().saturating_sub(1) as u64;
    if others == 0 {
        return Some(format!("{own}: it has no siblings"));
    }
    let all = sum::total(weights);
    let (share, others) = (percent(own, all)?, units::count(others, "sibling"));
    Some(format!("{own} of {all} with {others}: {share:.1}% of their parent's share, if all want to run"))
}

fn burst(pane: &Pane<'_>) -> Option<String> {
    let limits = pane.limits()?;
    let allowed = micros(limits.burst_us.filter(|us| *us != 0)?);
    let periods = units::count(limits.nr_bursts?, "period");
    let used = limits.burst_ns.map(|ns| format!(", {} above the quota", duration(ns)));
    Some(format!("may save {allowed} of unused quota; used it in {periods}{}", used.unwrap_or_default()))
}

fn siblings(pane: &Pane<'_>, node: &Node) -> Lines {
    let Some(parent) = node.parent else { return Vec::new() };
    let (theme, cells, names, nodes) = (pane.theme, pane.cells, &pane.interval.names, pane.data.tree.nodes());
    let children = nodes[parent].children.iter().map(|at| &nodes[*at]);
    let used = |node| cpus_used(node, pane.data).unwrap_or(0.0);
    let beside = children.map(|node| (node, used(node))).sorted_by(|a, b| b.1.total_cmp(&a.1)).collect_vec();
    if beside.len() < 2 {
        return Vec::new();
    }
    let most = beside[0].1.max(f64::MIN_POSITIVE);
    let title = format!("siblings in {}: CPUs used, weight", names.of(&nodes[parent].path));
    let mut lines = vec![Line::styled(cut_start(&title, cells), theme.quiet())];
    let name = (cells / 2).clamp(12, 60);
    let bar = cells.saturating_sub(name + 17);
    lines.extend(beside.iter().take(SIBLINGS).map(|(sibling, used)| {
        let weight = sibling.limits.and_then(|at| pane.interval.limits[at].weight);
        let weight = or_na(weight.map(|weight| weight.to_string()));
        let mark = if sibling.path == node.path { "> " } else { "  " };
        let name = left(&names.leaf(&sibling.path), name);
        let text = format!("{mark}{name} {:>6} {weight:>5} ", number(*used));
        Line::from(vec![Span::raw(text), Span::styled(bars::share(used / most, bar), theme.busy())])
    }));
    let more = beside.len().saturating_sub(SIBLINGS);
    lines.extend((more != 0).then(|| Line::styled(format!("  {more} more use less"), theme.quiet())));
    lines
}

/// Maximum number of quotas named in a sentence.
const NAMED: usize = 3;
/// Width of a path within a sentence, in cells.
const NAME: usize = 40;

/// Returns the number of periods in which the quota ran out, the number of all periods, and the share in percent.
fn ran_out(limits: &CgroupReading) -> Option<(u64, u64, f64)> {
    let (out, all) = limits.nr_throttled.zip(limits.nr_periods)?;
    Some((out, all, percent(out, all).unwrap_or(0.0)))
}

/// Names the quota that limits the cgroup: `held back: the quota of /kubepods (2 CPUs) ran out in 85.7% of 70 periods`.
fn verdict(data: &Data, node: &Node) -> String {
    let is_free = node.throttled_by.is_empty();
    let Some(limit) = node.limited_by.map(|at| &data.tree.nodes()[at]) else {
        return if is_free {
            "no quota applies: neither this cgroup nor an ancestor has a quota".into()
        } else {
            format!("held back by the quota of {UNNAMED}")
        };
    };
    let limits = limit.limits.map(|at| &data.interval.limits[at]);
    let cores = limits.and_then(CgroupReading::quota_cores);
    let cores = cores.map_or_else(String::new, |cores| format!(" ({})", units::cpus(cores)));
    let quota = if limit.path == node.path {
        format!("its own quota{cores}")
    } else {
        format!("the quota of {}{cores}", cut_start(&data.interval.names.of(&limit.path), NAME))
    };
    let periods = limits.and_then(ran_out);
    let periods =
        periods.map(|(_, all, share)| format!("ran out in {share:.1}% of {}", units::count(all, "period")));
    let which = periods.as_ref().map_or_else(String::new, |periods| format!(", which {periods}"));
    match periods {
        _ if is_free => format!("not held back; tightest limit: {quota}{which}"),
        _ if limit.depth > node.depth => {
            format!("tasks in cgroups below are held back, most by {quota}{which}")
        }
        Some(periods) => format!("held back: {quota} {periods}"),
        None => format!("held back by {quota}"),
    }
}

/// Returns the quotas for which tasks waited, and the throttled time of `cpu.stat`. The two are different figures.
fn throttled(data: &Data, node: &Node) -> Option<String> {
    let (interval, nodes) = (&data.interval, data.tree.nodes());
    let mut said = Vec::new();
    let name =
        |at: Option<usize>| cut_start(&causes::name_of(&interval.names, at.map(|at| &nodes[at].path)), NAME);
    let by = &node.throttled_by;
    let total = sum::total(by.iter().map(|(_, ns)| *ns));
    if let [(at, ns)] = by.as_slice() {
        said.push(format!("tasks {} by the quota of {}", duration(*ns), name(*at)));
    } else if !by.is_empty() {
        let parts = by.iter().map(|(at, ns)| {
            format!("{} {} ({:.0}%)", name(*at), duration(*ns), percent(*ns, total).unwrap_or(0.0))
        });
        said.push(format!("tasks {} by the quotas of {}", duration(total), listed(parts, NAMED)));
    }
    let limits = node.limits.map(|at| &interval.limits[at]);
    if let Some(ns) = limits.and_then(|limits| limits.throttled_ns).filter(|ns| *ns != 0) {
        let trap = if ns > interval.duration_ns { ", which is more than the time that passed" } else { "" };
        said.push(format!("cpu.stat {}, summed over CPUs{trap}", duration(ns)));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cgscope_model::{Blame, Interval, PairReading, findings::Host};

    use super::*;

    #[test]
    fn the_chain_has_cgroups_with_a_quota_and_all_cgroups_if_they_fit() {
        let data = data(vec![limited(2, 1_000_000)]);
        let (app, node) = (App::default(), node(&data));
        let (theme, interval, subject) = (app.theme, &data.interval, Subject::Cgroup(node));
        let pane = Pane { app: &app, theme, data: &data, interval, subject, cells: 80, room: 24 };
        let chain = chain(&pane, node);
        assert_eq!((chain.short.len(), chain.long.len()), (3, 4));
        let first = chain.short[1].to_string();
        assert!(first.starts_with("> /kubepods ") && first.ends_with("60 of 70, 85.7%"), "{first}");
        assert!(chain.short[2].to_string().starts_with("  /kubepods/pod"));
        assert!(chain.long.iter().all(|line| line.width() <= 80), "{chain:?}");
    }

    fn limits(id: u64, quota_us: Option<u64>, throttled: u64) -> CgroupReading {
        CgroupReading {
            id,
            quota_us,
            period_us: Some(100_000),
            nr_periods: Some(70),
            nr_throttled: Some(throttled),
            throttled_ns: Some(throttled * 50_000_000),
            weight: Some(100),
            ..CgroupReading::default()
        }
    }

    fn data(pairs: Vec<PairReading>) -> Data {
        let interval = Interval {
            duration_ns: 1_000_000_000,
            cgroups: vec![(1, "/".into()), (2, "/kubepods".into()), (3, "/kubepods/pod".into())],
            limits: vec![limits(2, Some(200_000), 60), limits(3, Some(400_000), 0)],
            pairs,
            ..Interval::default()
        };
        Data::new(Arc::new(interval), &Host::default())
    }

    fn node(data: &Data) -> &Node {
        &data.tree.nodes()[data.tree.find("/kubepods/pod").unwrap()]
    }

    fn limited(culprit: u64, ns: u64) -> PairReading {
        PairReading { victim: 3, culprit, blame: Blame::Limited, tid: 0, comm: "".into(), ns }
    }

    #[test]
    fn the_limiting_quota_is_named_with_its_figures() {
        let held = data(vec![limited(2, 3_000_000_000)]);
        assert_eq!(
            verdict(&held, node(&held)),
            "held back: the quota of /kubepods (2 CPUs) ran out in 85.7% of 70 periods"
        );
        let free = data(Vec::new());
        assert_eq!(
            verdict(&free, node(&free)),
            "not held back; tightest limit: the quota of /kubepods (2 CPUs), which ran out in 85.7% of 70 periods"
        );
        let root = &free.tree.nodes()[0];
        assert_eq!(verdict(&free, root), "no quota applies: neither this cgroup nor an ancestor has a quota");
    }

    #[test]
    fn time_of_tasks_and_time_of_cpus_are_separate() {
        let held = data(vec![limited(2, 1_500_000_000), limited(9, 500_000_000)]);
        let two = format!("tasks 2.00s by the quotas of /kubepods 1.50s (75%), {UNNAMED} 500ms (25%)");
        assert_eq!(throttled(&held, node(&held)), Some(two));
        let one = data(vec![limited(2, 1_500_000_000)]);
        let above = &one.tree.nodes()[one.tree.find("/kubepods").unwrap()];
        assert_eq!(
            throttled(&one, above).as_deref(),
            Some(
                "tasks 1.50s by the quota of /kubepods; cpu.stat 3.00s, summed over CPUs, which is more than the time \
                 that passed"
            )
        );
        let free = data(Vec::new());
        assert_eq!(throttled(&free, node(&free)), None);
    }
}
