//! Interprets the arguments of the command line.

use cgscope_collect::Options;

use crate::{
    child::Output,
    cli::{Measure, Select},
    exit::{Error, Result},
};

#[derive(Clone, Debug, Default)]
pub struct Target {
    pub options: Options,
    pub measure: Measure,
    pub command: Vec<String>,
    pub user: Option<String>,
    pub output: Output,
    /// Behave like `time`: pass signals on to the command, and return 126 or 127 if it could not be executed.
    pub stands_aside: bool,
}

impl Target {
    /// Checks the arguments as far as possible without the host.
    pub fn new(select: &Select) -> Result<Self> {
        let selection = select.selectors.selection().map_err(Error::could_not_run)?;
        if select.memory && selection.follows_all() && select.command.is_empty() {
            return Err(Error::could_not_run(
                "--memory reads only chosen processes: select them with --pid or --tid, or start a command",
            ));
        }
        Ok(Self {
            options: Options { selection, memory: select.memory, demand: true, ..Options::default() },
            command: select.command.clone(),
            user: select.user.clone(),
            ..Self::whole_host(&select.measure)
        })
    }

    pub fn whole_host(measure: &Measure) -> Self {
        Self {
            options: Options { demand: true, ..Options::default() },
            measure: measure.clone(),
            ..Self::default()
        }
    }

    pub fn words(&self) -> String {
        if !self.command.is_empty() {
            return format!("command {}", self.command.join(" "));
        }
        self.options.selection.words()
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
    fn memory_is_read_only_of_chosen_processes() {
        let refused = parsed(&["--memory"]).unwrap_err().to_string();
        assert!(refused.starts_with("--memory reads only chosen processes"), "{refused}");
        assert!(parsed(&["--memory", "-p", "1"]).unwrap().options.memory);
    }
}
