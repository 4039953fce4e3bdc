//! What was typed, turned into what it means.

use std::path::PathBuf;

use cgscope_collect::Accounting;
use cgscope_model::Selection;

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
        let selection = select.selectors.selection().map_err(Error::could_not_run)?;
        if select.memory && selection.follows_all() && select.command.is_empty() {
            return Err(Error::could_not_run(
                "--memory looks at chosen processes: name them with --pid or --tid, or start a command",
            ));
        }
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
        self.selection.words()
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args, Command, FromArgMatches};

    use super::*;

    fn parsed(words: &[&str]) -> Result<Target> {
        let command = Select::augment_args(Command::new("cgscope").no_binary_name(true));
        Target::new(&Select::from_arg_matches(&command.get_matches_from(words)).unwrap())
    }

    #[test]
    fn a_bad_regular_expression_is_one_sentence() {
        let error = parsed(&["--comm", "a("]).unwrap_err();
        assert_eq!(error.to_string(), "--comm \"a(\" is not a regular expression: unclosed group");
    }

    #[test]
    fn memory_is_read_of_chosen_processes_only() {
        let refused = parsed(&["--memory"]).unwrap_err().to_string();
        assert!(refused.starts_with("--memory looks at chosen processes"), "{refused}");
        assert!(parsed(&["--memory", "-p", "1"]).unwrap().memory);
    }
}
