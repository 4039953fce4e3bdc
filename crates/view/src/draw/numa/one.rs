//! A host with one NUMA node: the node, its memory and its CPUs.

use cgscope_model::CpuInterval;

use super::{FULL, exactly, memory, of_whom, share_bar};
use crate::draw::{pane::a_second, prelude::*};

/// Maximum width of the bar of a CPU, in cells.
const BAR: usize = 30;
/// Width of a CPU in cells: with a bar and its waits, with a bar, or with a figure alone.
const CPU_CELLS: [usize; 3] = [40, 20, 10];

pub fn lines(theme: Theme, data: &Data, cells: usize, room: usize) -> Lines {
    let interval = &*data.interval;
    let mut words = format!("one NUMA node{}", spread(&interval.cpus));
    if let Some(node) = data.nodes().first() {
        words += &format!("; memory {}", memory(node, " in use of "));
    }
    let mut lines: Lines = wrapped(&words, cells).into_iter().map(Line::raw).collect();
    lines.extend(of_whom(theme, interval, cells));
    lines.truncate(room.saturating_sub(1));
    let left = room.saturating_sub(lines.len());
    lines.extend(cpus(theme, interval, cells, left));
    lines
}

fn busy_percent(cpu: &CpuInterval) -> Option<f64> {
    let busy_ns = cpu.busy_ns?;
    percent(busy_ns, busy_ns.saturating_add(cpu.idle_ns?))
}

/// Names the busiest and the idlest CPU.
fn spread(cpus: &[CpuInterval]) -> String {
    let mut known: Vec<(f64, u32)> =
        cpus.iter().filter_map(|cpu| Some((busy_percent(cpu)?, cpu.cpu))).collect();
    known.sort_by(|a, b| a.0.total_cmp(&b.0));
    match known.as_slice() {
        [(least, _), .., (most, _)] if most - least < 1.0 => format!("; each CPU was {most:.0}% busy"),
        [(least, idlest), .., (most, busiest)] => {
            format!("; CPU {busiest} was busiest, {most:.0}%, CPU {idlest} idlest, {least:.0}%")
        }
        _ => String::new(),
    }
}

/// The CPUs, several per line, with as much detail as lets all CPUs fit.
fn cpus(theme: Theme, interval: &Interval, cells: usize, room: usize) -> Lines {
    let all = &interval.cpus;
    if all.is_empty() || room == 0 {
        return Vec::new();
    }
    let fits = |each: usize| all.len().div_ceil((cells / each).max(1)) <= room;
    let Some(each) = CPU_CELLS.into_iter().find(|each| fits(*each)) else {
        return strip(theme, all, cells, room);
    };
    let lines = all.chunks((cells / each).max(1)).map(|line| {
        Line::from_iter(line.iter().flat_map(|cpu| exactly(one_cpu(theme, interval, cpu, each), each)))
    });
    lines.collect()
}

/// One CPU: `  12 ██████▌    78%  wait/s 1.20ms`.
fn one_cpu(theme: Theme, interval: &Interval, cpu: &CpuInterval, cells: usize) -> Spans {
    let mut spans = vec![Span::styled(format!("{:>4} ", cpu.cpu), theme.quiet())];
    let share = busy_percent(cpu);
    let [wide, middle, _] = CPU_CELLS;
    if cells < middle {
        let text = or_na(share.map(|share| format!("{share:.0}%")));
        let style = if share.is_some_and(|share| share >= FULL) { theme.alarm() } else { theme.busy() };
        spans.push(Span::styled(text, style));
        return spans;
    }
    let wait = cpu.wait.as_ref().filter(|_| cells >= wide);
    let after = if wait.is_some() { 28 } else { 12 };
    spans.extend(share_bar(theme, share, (cells - after).min(BAR)));
    if let Some(wait) = wait {
        let throttled_ns = wait.by_cause.get(Cause::Throttled);
        let style = if wait.total_ns > throttled_ns { theme.wait() } else { theme.quiet() };
        spans.push(Span::styled("  wait/s ", theme.quiet()));
        spans.push(Span::styled(a_second(interval, wait.total_ns), style));
    }
    spans
}

/// The CPUs as bars of one cell each.
fn strip(theme: Theme, all: &[CpuInterval], cells: usize, room: usize) -> Lines {
    let each = cells.saturating_sub(12).max(1);
    let line = |cpus: &[CpuInterval]| {
        let busy: Vec<Option<f64>> = cpus.iter().map(busy_percent).collect();
        let range = format!("CPU {:>5}.. ", cpus[0].cpu);
        let bars = bars::sparkline(&busy, 100.0, busy.len());
        Line::from(vec![Span::styled(range, theme.quiet()), Span::styled(bars, theme.busy())])
    };
    let mut lines: Lines = all.chunks(each).take(room).map(line).collect();
    let hidden = all.len().saturating_sub(each * lines.len());
    if hidden != 0
        && let Some(last) = lines.last_mut()
    {
        *last = Line::styled(
            format!("and {hidden} or more CPUs: make the terminal larger to see them"),
            theme.quiet(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cpu: u32, percent: u64) -> CpuInterval {
        let busy_ns = percent * 10_000_000;
        CpuInterval {
            cpu,
            busy_ns: Some(busy_ns),
            idle_ns: Some(1_000_000_000 - busy_ns),
            ..CpuInterval::default()
        }
    }

    fn text(lines: &[Line<'_>]) -> Vec<String> {
        lines.iter().map(|line| line.to_string().trim_end().to_owned()).collect()
    }

    #[test]
    fn all_cpus_are_shown_if_one_cell_for_each_fits() {
        let interval = |count: u32| Interval {
            cpus: (0..count).map(|at| cpu(at, u64::from(at % 101))).collect(),
            ..Interval::default()
        };
        let theme = Theme::default();
        for (count, cells, room) in [(2, 80, 3), (8, 80, 4), (64, 80, 8), (512, 200, 4)] {
            let lines = cpus(theme, &interval(count), cells, room);
            assert!(!lines.is_empty() && lines.len() <= room, "{count} CPUs: {lines:?}");
            assert!(lines.iter().all(|line| line.width() <= cells), "{lines:?}");
            assert!(!text(&lines).concat().contains("more"), "{lines:?}");
        }
        let lines = text(&cpus(theme, &interval(4_000), 60, 2));
        assert_eq!(lines[1], "and 3904 or more CPUs: make the terminal larger to see them");
    }

    #[test]
    fn the_busiest_and_the_idlest_cpu_are_named() {
        let said = spread(&[cpu(0, 40), cpu(1, 99), cpu(2, 3)]);
        assert_eq!(said, "; CPU 1 was busiest, 99%, CPU 2 idlest, 3%");
        assert_eq!(spread(&[cpu(0, 40), cpu(1, 40)]), "; each CPU was 40% busy");
        assert_eq!(spread(&[cpu(0, 40)]), "");
    }
}
