//! Why a command ended early, and with which exit code.
use std::fmt;
use std::process::ExitCode;

/// A sentence: what is missing or failed, what that prevents, what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line cannot be understood.
    Usage(String),
    /// This machine lacks something.
    Host(String),
    /// A step was tried and failed.
    Step(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> ExitCode {
        match self {
            Self::Step(_) => ExitCode::from(1),
            Self::Usage(_) | Self::Host(_) => ExitCode::from(2),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(words) | Self::Host(words) | Self::Step(words)) = self;
        f.write_str(words)
    }
}
