//! What was typed, turned into what it means.

use std::path::PathBuf;

use cgscope_collect::{Accounting, facts::parse_cpu_list};
use cgscope_model::{Selection, placement::cpu_list, selection::normal_path};
use regex::Regex;

use crate::{
    child::Output,
    cli::{ModeChoice, Select},
    exit::{Error, Result},
};

/// Whose waits, and what to start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    /// Whose waits, the command not yet among them.
    pub selection: Selection,
    /// The command to start, if any.
    pub command: Vec<String>,
    /// As whom.
    pub user: Option<String>,
    /// Where its output goes.
    pub output: Output,
    /// The command is run as if we were not there: signals are passed on to it instead of ending us, and where it cannot be
    /// executed the exit code says that as a shell does.
    pub stands_aside: bool,
    /// How to measure.
    pub mode: ModeChoice,
    /// The socket of the daemon to look through.
    pub connect: Option<PathBuf>,
    /// Say what is being done.
    pub verbose: bool,
    /// Count waits by CPU.
    pub by_cpu: bool,
    /// Read where the memory of the processes lies.
    pub memory: bool,
    /// Read where time goes beside waits.
    pub accounts: Option<Accounting>,
}

impl Target {
    /// Checks everything that can be checked without the host.
    pub fn new(select: &Select) -> Result<Self> {
        if let Some(comm) = &select.comm {
            Regex::new(comm).map_err(|error| {
                let reason = error.to_string();
                let reason =
                    reason.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
                Error::could_not_run(format!("--comm {comm:?} is not a regular expression: {reason}"))
            })?;
        }
        if select.memory && select.pid.is_empty() && select.tid.is_empty() && select.command.is_empty() {
            return Err(Error::could_not_run(
                "--memory looks at chosen processes: name them with --pid or --tid, or start a command",
            ));
        }
        let selection = Selection {
            pids: select.pid.clone(),
            tids: select.tid.clone(),
            cgroup: select.cgroup.as_deref().map(normal_path),
            comm: select.comm.clone(),
            cpus: list("--cpu", select.cpu.as_deref())?,
            nodes: list("--node", select.node.as_deref())?,
        };
        Ok(Self {
            selection,
            command: select.command.clone(),
            user: select.user.clone(),
            output: Output::default(),
            stands_aside: false,
            mode: select.mode,
            connect: select.connect.clone(),
            verbose: select.verbose,
            by_cpu: false,
            memory: select.memory,
            accounts: None,
        })
    }

    /// The selection in words, for titles.
    pub fn words(&self) -> String {
        if !self.command.is_empty() {
            return format!("command {}", self.command.join(" "));
        }
        selection_words(&self.selection)
    }
}

/// A selection in words.
pub fn selection_words(selection: &Selection) -> String {
    let numbers = |list: &[u32]| list.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    let mut words = Vec::new();
    for (name, list) in [("process", &selection.pids), ("thread", &selection.tids)] {
        if !list.is_empty() {
            words.push(format!("{name} {}", numbers(list)));
        }
    }
    for (name, list) in [("CPU", &selection.cpus), ("node", &selection.nodes)] {
        if !list.is_empty() {
            words.push(format!("tasks on {name} {}", cpu_list(list)));
        }
    }
    if let Some(cgroup) = &selection.cgroup {
        words.push(format!("cgroup {cgroup}"));
    }
    if let Some(comm) = &selection.comm {
        words.push(format!("threads named /{comm}/"));
    }
    if words.is_empty() { "whole host".into() } else { words.join(", ") }
}

fn list(option: &str, text: Option<&str>) -> Result<Vec<u32>> {
    let Some(text) = text else { return Ok(Vec::new()) };
    match parse_cpu_list(text) {
        Some(list) if !list.is_empty() => Ok(list),
        _ => Err(Error::could_not_run(format!("{option} takes a list like 0-3,8, not {text:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_regular_expression_is_one_sentence() {
        let select = Select { comm: Some("a(".into()), ..Select::default() };
        let error = Target::new(&select).unwrap_err();
        assert_eq!(error.to_string(), "--comm \"a(\" is not a regular expression: unclosed group");
    }

    #[test]
    fn memory_is_read_of_chosen_processes_only() {
        let select = Select { memory: true, ..Select::default() };
        assert!(
            Target::new(&select).unwrap_err().to_string().starts_with("--memory looks at chosen processes")
        );
        assert!(Target::new(&Select { pid: vec![1], ..select }).unwrap().memory);
    }

    #[test]
    fn a_selection_is_said_in_words() {
        let selection = Selection { pids: vec![1, 2], cgroup: Some("/a".into()), ..Selection::default() };
        assert_eq!(selection_words(&selection), "process 1,2, cgroup /a");
        assert_eq!(selection_words(&Selection::default()), "whole host");
        let selection = Selection { cpus: vec![0, 1, 2, 8], nodes: vec![1], ..Selection::default() };
        assert_eq!(selection_words(&selection), "tasks on CPU 0-2,8, tasks on node 1");
    }
}
