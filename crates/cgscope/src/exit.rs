//! How commands end.

use std::{io, process::ExitCode};

use cgscope_model::Losses;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    Done,
    /// Done but incomplete: something was lost, or the target exited.
    Incomplete,
    CouldNotRun,
    /// The code of a command that ran in our place.
    AsCommand(u8),
}

impl Exit {
    /// Incomplete if something that the host shows was lost.
    pub fn of_losses(losses: &Losses) -> Self {
        if losses.nonzero().any(|(loss, _)| !loss.leaves_result_whole()) {
            Self::Incomplete
        } else {
            Self::Done
        }
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

pub type Result<T = Exit> = std::result::Result<T, Error>;

impl Error {
    pub fn could_not_run(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), exit: Exit::CouldNotRun }
    }

    /// Something was done and remains valid.
    pub fn incomplete(sentence: impl Into<String>) -> Self {
        Self { sentence: sentence.into(), exit: Exit::Incomplete }
    }

    /// The program of a command could not be executed: 127 if it does not exist, else 126, as with `env`, `nohup` and shells.
    pub fn not_executed(error: &io::Error) -> Self {
        let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
        Self { exit: Exit::AsCommand(code), ..Self::could_not_run(not_executed(error)) }
    }

    /// A result could not be written to standard output. A closed pipe is success.
    pub fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self { sentence: String::new(), exit: Exit::Done };
        }
        Self::incomplete(format!("the result could not be written to standard output ({error})"))
    }
}

pub fn not_executed(error: &io::Error) -> String {
    format!("the command could not be run: {error}")
}
