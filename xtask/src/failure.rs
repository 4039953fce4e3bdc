//! The error type of all commands.
use std::fmt;

/// An error. Its message says what is missing or failed, what that prevents, and what to do.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The command line is invalid.
    Usage(String),
    /// This machine lacks something.
    Host(String),
    /// A step ran and failed.
    Step(String),
    /// Tests failed, but something disturbed them, and the machine did not become quiet for a second try.
    Undecided(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Step(_) => 1,
            Self::Usage(_) | Self::Host(_) => 2,
            Self::Undecided(_) => 3,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(words) | Self::Host(words) | Self::Step(words) | Self::Undecided(words)) = self;
        f.write_str(words)
    }
}
