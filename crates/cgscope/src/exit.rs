//! Exit codes and errors of commands.

use std::{
    fmt, io,
    process::ExitCode,
    thread::{self, JoinHandle},
};

use cgscope_model::Losses;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Done,
    /// Done, but incomplete: data was lost, or the target exited.
    Incomplete,
    CouldNotRun,
    AsCommand(u8),
}

impl Exit {
    pub fn of_losses(losses: &Losses) -> Self {
        let is_whole = losses.nonzero().all(|(loss, _)| loss.leaves_result_whole());
        if is_whole { Self::Done } else { Self::Incomplete }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Done => 0,
            Exit::Incomplete => 1,
            Exit::CouldNotRun => 2,
            Exit::AsCommand(code) => code,
        })
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{sentence}")]
pub struct Error {
    pub sentence: String,
    pub exit: Exit,
}

pub type Result<T = Exit, E = Error> = std::result::Result<T, E>;

impl Error {
    pub fn could_not_run(sentence: impl fmt::Display) -> Self {
        Self { sentence: sentence.to_string(), exit: Exit::CouldNotRun }
    }

    /// Creates an error after part of the work was done. The results so far are valid.
    pub fn incomplete(sentence: impl fmt::Display) -> Self {
        Self { sentence: sentence.to_string(), exit: Exit::Incomplete }
    }

    /// Creates the error of a command that was not executed. With `stands_aside`, the exit code is that of `env`: 127 if the
    /// command does not exist, else 126.
    pub fn not_executed(error: &io::Error, stands_aside: bool) -> Self {
        let exit = match error.kind() {
            _ if !stands_aside => Exit::CouldNotRun,
            io::ErrorKind::NotFound => Exit::AsCommand(127),
            _ => Exit::AsCommand(126),
        };
        Self { exit, ..Self::could_not_run(format!("the command could not be run: {error}")) }
    }

    pub fn no_thread(error: io::Error) -> Self {
        Self::could_not_run(format!(
            "cannot start a thread ({error}); check the limits on memory and on processes"
        ))
    }

    /// Creates the error of a failed write to standard output. A closed pipe counts as success.
    pub fn output(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { sentence: String::new(), exit: Exit::Done };
        }
        Self::incomplete(format!("the result could not be written to standard output ({error})"))
    }
}

/// Starts a thread. If that fails, returns an error, where [`std::thread::spawn`] panics.
pub fn spawn<R: Send + 'static>(run: impl FnOnce() -> R + Send + 'static) -> Result<JoinHandle<R>> {
    thread::Builder::new().spawn(run).map_err(Error::no_thread)
}
