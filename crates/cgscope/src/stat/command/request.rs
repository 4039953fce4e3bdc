//! The arguments for a command. Most options for tables do not apply to its summary.

use cgscope_collect::Accounting;

use super::super::stack_every;
use crate::{
    cli::Stat,
    exit::{Error, Result},
    request::Target,
};

pub fn target(options: &Stat) -> Result<Target> {
    if let Some(option) = meaningless(options) {
        return Err(Error::could_not_run(format!(
            "{option} applies only to tables, but a command has one summary, printed when the command ends: omit {option}, or \
             start the command separately and use `cgscope stat 1 --pid PID`"
        )));
    }
    let mut target = Target::new(&options.select)?;
    (target.stands_aside, target.demand) = (true, false);
    target.accounts = Some(Accounting { stack_every: Some(stack_every(options)) });
    Ok(target)
}

fn meaningless(options: &Stat) -> Option<String> {
    let given = [
        (options.rhythm.interval.is_some(), "an interval"),
        (options.rhythm.duration.is_some(), "--duration"),
        (options.threads, "--threads"),
        (options.by.is_some(), "--by"),
        (options.all, "--all"),
    ];
    let given = given.iter().find(|(is_given, _)| *is_given).map(|(_, option)| (*option).to_owned());
    given.or_else(|| options.select.selectors.0.first().map(|(selector, _)| format!("--{}", selector.name)))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn parsed(words: &str) -> Result<Target> {
        match Cli::parse_from(words.split(' ')).command {
            Command::Stat(options) => target(&options),
            _ => unreachable!("it was typed"),
        }
    }

    #[test]
    fn options_for_tables_are_refused_with_a_command() {
        for option in [
            "1",
            "--duration 5",
            "-t",
            "--by cgroup",
            "-a",
            "--cgroup /a",
            "--unit a",
            "--comm a",
            "--cpu 0",
            "--node 0",
        ] {
            let error = parsed(&format!("cgscope stat {option} -- true")).unwrap_err().to_string();
            assert!(error.contains("applies only to tables"), "{option}: {error}");
        }
    }

    #[test]
    fn with_a_command_cgscope_behaves_like_time() {
        let target = parsed("cgscope stat --json -o x -- true").unwrap();
        assert!(target.stands_aside && target.accounts.is_some());
        assert_eq!(target.output, crate::child::Output::AsOurs);
    }
}
