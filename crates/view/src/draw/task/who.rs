//! Who it is, and where it runs.

use cgscope_model::{
    CgroupName, Placement, nodes,
    units::{self, bytes, duration},
};
use ratatui::text::{Line, Span};

use super::TaskView;
use crate::{
    columns::node_shares,
    subject::Subject,
    width::{cut_start, width},
};

impl TaskView<'_> {
    pub(super) fn who(&self) -> Vec<Line<'static>> {
        let theme = self.app.theme;
        let title = cut_start(&self.subject.title(), self.cells);
        let mut spans = vec![Span::styled(title, theme.heading())];
        let used = spans[0].width();
        let (beside, below) = match self.kin() {
            Some(kin) if used + 2 + width(&kin) <= self.cells => (Some(kin), None),
            kin => (None, kin),
        };
        spans.extend(beside.map(|kin| Span::styled(format!("  {kin}"), theme.quiet())));
        let mut lines = vec![Line::from(spans)];
        lines.extend(below.into_iter().flat_map(|kin| self.fact("", &kin)));
        if let Some(task) = self.subject.task() {
            let command = self.app.command_line(task.reading.tgid);
            lines.extend(command.into_iter().flat_map(|command| self.fact("command", &command)));
        }
        if let Some(path) = self.subject.cgroup(self.interval) {
            let is_title = matches!(self.subject, Subject::Cgroup(_));
            let words = CgroupName::of(path).words();
            let said = match (is_title, words) {
                (true, Some(words)) => Some(words),
                (true, None) => None,
                (false, Some(words)) => Some(format!("{path} ({words})")),
                (false, None) => Some(path.to_string()),
            };
            lines.extend(said.into_iter().flat_map(|said| self.fact("cgroup", &said)));
        }
        lines
    }

    /// Its process, or its threads and processes.
    fn kin(&self) -> Option<String> {
        let threads = |threads: u64| units::count(threads, "thread");
        Some(match self.subject {
            Subject::Task(task) => {
                let pid = task.reading.tgid;
                let process = self.data.process(pid)?;
                let name = &self.interval.tasks[process.named_by].reading.comm;
                let age = self.age(task.reading.start_ns).map_or(String::new(), |age| format!(", {age} old"));
                format!("of process {pid} {name}, {}{age}", threads(process.group.threads))
            }
            Subject::Process(process, _) => threads(process.group.threads),
            _ => {
                let group = self.subject.group()?;
                let processes = units::count(group.processes, "process");
                let ended = match group.exited {
                    0 => String::new(),
                    exited => format!(", {exited} ended in the interval"),
                };
                format!("{} of {processes}{ended}", threads(group.threads))
            }
        })
    }

    /// How long it had lived at the end of the interval: known where that is a Sample of a recording.
    fn age(&self, start_ns: u64) -> Option<String> {
        let replay = self.app.replay.as_ref()?;
        let end = replay.player.samples().get(replay.shown? + 1)?;
        Some(duration(end.mono_ns.checked_sub(start_ns)?))
    }

    /// Where it runs, where it may, and where its memory is.
    pub(super) fn places(&self) -> Vec<Line<'static>> {
        let mut lines = Vec::new();
        if let Subject::Task(task) = self.subject {
            let reading = &task.reading;
            let mut words = reading.cpu.to_string();
            words += &reading.node.map_or(String::new(), |node| format!(", of node {node}"));
            lines.extend(self.fact("CPU", &words));
            let ran = task.ran_by_node();
            if ran.len() > 1 {
                lines.extend(self.fact("ran on", &node_shares(&ran)));
            }
            let placement = reading.placement.as_deref().map(may_run_on).filter(|words| !words.is_empty());
            lines.extend(placement.into_iter().flat_map(|words| self.fact("may run", &words)));
        }
        if let Some(task) = self.subject.task() {
            let pid = task.reading.tgid;
            let memory = self.interval.memory.iter().find(|memory| memory.tgid == pid);
            lines.extend(memory.into_iter().flat_map(|memory| {
                let ran = self.interval.ran_by_node(|task| task.tgid == pid);
                let mut words = on_nodes(&memory.by_node);
                if let Some(remote) = nodes::remote_share(&memory.by_node, &ran) {
                    words += &format!("; {:.1}% on another node than its threads", remote * 100.0);
                }
                self.fact("memory", &words)
            }));
        }
        lines
    }
}

/// `1.0MiB on node 0, 9.0MiB on node 8`
pub(super) fn on_nodes(memory: &[(u32, u64)]) -> String {
    let said = memory.iter().map(|(node, there)| format!("{} on node {node}", bytes(*there)));
    said.collect::<Vec<_>>().join(", ")
}

fn may_run_on(placement: &Placement) -> String {
    let mut words = Vec::new();
    words.extend(placement.cpus_allowed.as_ref().map(|cpus| format!("on CPUs {cpus}")));
    words.extend(
        placement.cpuset.as_ref().map(|set| format!("its cpuset {} leaves it {}", set.path, set.cpus)),
    );
    words.extend(placement.preferred_node.map(|node| format!("the kernel prefers node {node} for it")));
    words.join("; ")
}
