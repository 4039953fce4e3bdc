//! Identity of the subject, and where it runs.

use cgscope_model::{Placement, nodes};

use super::TaskView;
use crate::{columns::node_shares, draw::prelude::*};

impl TaskView<'_> {
    pub(super) fn who(&self) -> Lines {
        let theme = self.app.theme;
        let title =
            Span::styled(cut_start(&self.subject.title(&self.interval.names), self.cells), theme.heading());
        let fits = |kin: &String| title.width() + 2 + width(kin) <= self.cells;
        let (beside, below) = match self.kin() {
            Some(kin) if fits(&kin) => (Some(Span::styled(format!("  {kin}"), theme.quiet())), None),
            kin => (None, kin),
        };
        let mut lines = vec![Line::from_iter(std::iter::once(title).chain(beside))];
        lines.extend(self.known("", below));
        let command = self.subject.task().and_then(|task| self.app.command_line(task.reading.tgid));
        lines.extend(self.known("command", command.map(|command| command.to_string())));
        if let Some(path) = self.subject.cgroup(self.interval) {
            let is_title = matches!(self.subject, Subject::Cgroup(_));
            let name = self.interval.names.of(path);
            let said = if name == **path || is_title { path.to_string() } else { format!("{name}, {path}") };
            lines.extend(self.known("cgroup", Some(said)));
        }
        lines
    }

    /// The process of a thread, or the threads and processes of a group.
    fn kin(&self) -> Option<String> {
        let threads = |threads: u64| units::count(threads, "thread");
        Some(match self.subject {
            Subject::Task(task) => {
                let pid = task.reading.tgid;
                let process = self.data.process(pid)?;
                let name = &self.interval.reading(process.named_by).comm;
                let age = self.age(task.reading.start_ns).map_or(String::new(), |age| format!(", {age} old"));
                format!("of process {pid} {name}, {}{age}", threads(process.group.threads))
            }
            Subject::Process(process, _) => threads(process.group.threads),
            _ => {
                let group = self.subject.group()?;
                let processes = units::count(group.processes, "process");
                let ended = match group.exited {
                    0 => String::new(),
                    exited => format!(", {exited} exited in the interval"),
                };
                format!("{} of {processes}{ended}", threads(group.threads))
            }
        })
    }

    /// Age of a task at the end of the interval. Known only in a replay, where the end is a Sample of the recording.
    fn age(&self, start_ns: u64) -> Option<String> {
        let replay = self.app.replay.as_ref()?;
        let end = replay.player.samples().get(replay.shown? + 1)?;
        Some(duration(end.mono_ns.checked_sub(start_ns)?))
    }

    /// Where the subject runs, where it may run, and where its memory is.
    pub(super) fn places(&self) -> Lines {
        let mut lines = Vec::new();
        if let Subject::Task(task) = self.subject {
            let reading = &task.reading;
            let node = reading.node.map_or(String::new(), |node| format!(", on node {node}"));
            lines.extend(self.fact("CPU", &format!("{}{node}", reading.cpu)));
            let ran = task.ran_by_node();
            if ran.len() > 1 {
                lines.extend(self.fact("ran on", &node_shares(&ran)));
            }
            let placement = reading.placement.as_deref().map(may_run_on).filter(|words| !words.is_empty());
            lines.extend(self.known("may run", placement));
        }
        if let Some(task) = self.subject.task() {
            let pid = task.reading.tgid;
            let memory = self.interval.memory.iter().find(|memory| memory.tgid == pid);
            let words = memory.map(|memory| {
                let ran = self.interval.ran_by_node(|task| task.tgid == pid);
                let remote = nodes::remote_share(&memory.by_node, &ran);
                let remote =
                    remote.map(|share| format!("; {:.1}% on another node than its threads", share * 100.0));
                on_nodes(&memory.by_node) + &remote.unwrap_or_default()
            });
            lines.extend(self.known("memory", words));
        }
        lines
    }
}

/// Memory by node: `1.0MiB on node 0, 9.0MiB on node 8`.
pub(super) fn on_nodes(memory: &[(u32, u64)]) -> String {
    let said = memory.iter().map(|(node, there)| format!("{} on node {node}", bytes(*there)));
    said.collect::<Vec<_>>().join(", ")
}

fn may_run_on(placement: &Placement) -> String {
    let words = [
        placement.cpus_allowed.as_ref().map(|cpus| format!("on CPUs {cpus}")),
        placement.cpuset.as_ref().map(|set| format!("its cpuset {} allows {}", set.path, set.cpus)),
        placement.preferred_node.map(|node| format!("the kernel prefers node {node}")),
    ];
    words.into_iter().flatten().collect::<Vec<_>>().join("; ")
}
