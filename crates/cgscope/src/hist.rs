//! `cgscope hist`: prints histograms as text in the format of runqlat, or as JSON interval objects.

use std::io::{self, Write};

use cgscope_model::{
    CpuInterval, Interval, Mode, TaskInterval, Wait,
    findings::Host,
    json::IntervalObject,
    nodes::NodeGroup,
    placement::cpu_list,
    units::{self, duration},
};

use crate::cli::{Hist, HistBy, Target};
use crate::run::{for_each_interval, pace};
use crate::text::{self, NO_HISTOGRAM, Unit};
use crate::{causes, child::Output, exit::Result, nodes, output::json_line, record::Tee, session::Ready};

pub async fn run(options: &Hist) -> Result {
    let mut target = Target::new(&options.select)?;
    target.output = Output::ToStandardError;
    (target.options.by_cpu, target.options.demand) = (options.per_cpu, false);
    let (pace, merge) = (pace(&options.rhythm), options.rhythm.interval.is_none());
    if merge && !options.json && pace.duration.is_none() && target.command.is_empty() {
        say!("cgscope: measuring the waits of the {}; Ctrl-C ends and prints", target.words());
    }
    let session = Ready::new(&target, pace)?.go();
    for_each_interval(session, merge, Tee::default(), |out, interval, host| {
        print(out, interval, host, options)
    })
    .await
}

fn print(out: &mut impl Write, interval: &Interval, host: &Host, options: &Hist) -> io::Result<()> {
    if options.json {
        return json_line(out, &IntervalObject { all: options.all, ..IntervalObject::new(interval, host) });
    }
    if options.timestamp {
        writeln!(out, "{}", units::time_of_day(interval.start_unix_ns + interval.duration_ns))?;
    }
    if interval.mode == Mode::Coarse {
        writeln!(out, "{NO_HISTOGRAM}")?;
    }
    let unit = if options.milliseconds { Unit::Milli } else { Unit::Micro };
    for part in parts(interval, options) {
        if let Some(name) = &part.name {
            writeln!(out, "\n{name}")?;
        }
        write!(out, "{}", text::histogram(&part.wait, unit))?;
        write!(out, "{}\n{}", text::wait_line(&part.wait, interval.mode), part.why)?;
    }
    write!(out, "{}", nodes::memory_lines(interval))?;
    if let Some(pending) = text::pending_line(interval) {
        writeln!(out, "{pending}")?;
    }
    let (length, losses) = (duration(interval.duration_ns), text::loss_line(&interval.losses));
    let cost = text::cost_line(&interval.cost, interval.duration_ns, interval.mode);
    writeln!(out, "over {length}; {cost}; {losses}\n")
}

struct HistPart {
    name: Option<String>,
    wait: Wait,
    why: String,
}

impl HistPart {
    /// Creates a part without culprits, because these are known only for each cgroup. `more` follows the causes.
    fn of_tasks(name: String, wait: Wait, more: &str) -> Self {
        let why = causes::line(&wait.by_cause).map_or_else(String::new, |causes| format!("why: {causes}\n"));
        Self { name: Some(name), wait, why: why + more }
    }

    fn of_cgroup(path: Option<&str>, wait: Wait, interval: &Interval) -> Self {
        let Some(path) = path else { return Self::of_tasks("cgroup = (removed)".into(), wait, "") };
        let mut why = causes::lines(&wait.by_cause, interval, Some(path), &interval.culprits_of(path));
        why.extend(contention_of(path, interval));
        Self { name: Some(format!("cgroup = {}", interval.names.of(path))), wait, why }
    }

    fn of_node(node: NodeGroup, interval: &Interval) -> Self {
        let waited = contention(node.contention_ns, node.throttled_pressure_ns, interval).unwrap_or_default();
        let more = format!("{waited}{}\n", nodes::line(&node));
        Self::of_tasks(format!("node = {} (CPUs {})", node.node, cpu_list(&node.cpus)), node.wait, &more)
    }

    fn of_cpu(cpu: &CpuInterval, wait: Wait) -> Self {
        let node = cpu.node.map_or_else(String::new, |node| format!(" (node {node})"));
        let more = format!("busy {}\n", nodes::busy_words(cpu.busy_ns, cpu.idle_ns));
        Self::of_tasks(format!("cpu = {}{node}", cpu.cpu), wait, &more)
    }
}

fn contention_of(path: &str, interval: &Interval) -> Option<String> {
    let limits = interval.limits_at(path)?;
    contention(limits.contention_ns, limits.throttled_pressure_ns, interval)
}

fn contention(contention_ns: Option<u64>, limit_ns: Option<u64>, interval: &Interval) -> Option<String> {
    let words = text::contention(contention_ns, limit_ns, interval.duration_ns)?;
    Some(format!("contention: {words}\n"))
}

/// Returns the histograms to print. The histogram with the longest total wait is last, next to the prompt.
fn parts(interval: &Interval, options: &Hist) -> Vec<HistPart> {
    let mut parts: Vec<HistPart> = if options.per_thread {
        let name = |task: &TaskInterval| format!("tid = {} {}", task.reading.tid, task.reading.comm);
        let tasks = interval.tasks.iter();
        tasks.map(|task| HistPart::of_tasks(name(task), task.all_waits().clone(), "")).collect()
    } else if options.per_process {
        let processes = interval.processes().into_iter();
        let name = |pid| format!("pid = {pid} {}", interval.process_name(pid));
        processes.map(|process| HistPart::of_tasks(name(process.pid), process.group.wait, "")).collect()
    } else if options.by == Some(HistBy::Cgroup) {
        let groups = interval.by_cgroup().into_iter();
        groups.map(|(path, group)| HistPart::of_cgroup(path.as_deref(), group.wait, interval)).collect()
    } else if options.by == Some(HistBy::Node) {
        // Also shows a node without waits.
        let nodes = interval.by_node().into_iter();
        return nodes.map(|node| HistPart::of_node(node, interval)).collect();
    } else if options.per_cpu {
        interval.by_cpu().into_iter().map(|(cpu, wait)| HistPart::of_cpu(cpu, wait)).collect()
    } else {
        let wait = interval.total().wait;
        let mut why = causes::lines(&wait.by_cause, interval, None, &interval.culprits());
        why.extend(contention_of("/", interval));
        return vec![HistPart { name: None, wait, why }];
    };
    parts.retain(|part| part.wait.count != 0);
    parts.sort_by_key(|part| part.wait.total_ns);
    parts
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    #[test]
    fn every_node_has_a_part_even_without_waits() {
        let cpu = |cpu, node| CpuInterval { cpu, node: Some(node), ..CpuInterval::default() };
        let interval = Interval { cpus: vec![cpu(0, 0), cpu(3, 8)], ..Interval::default() };
        let Command::Hist(options) = Cli::parse_from(["cgscope", "hist", "--by", "node"]).command else {
            panic!()
        };
        let parts = parts(&interval, &options);
        let said: Vec<String> = parts
            .iter()
            .map(|part| format!("{}: {}", part.name.as_deref().unwrap_or(""), part.why))
            .collect();
        assert_eq!(
            said[1],
            "node = 8 (CPUs 3): busy n/a, n/a tasks running or waiting on average; moves between nodes n/a; memory n/a in use \
             of n/a\n"
        );
        assert_eq!(said.len(), 2);
    }
}
