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
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(words) | Self::Host(words) | Self::Step(words)) = self;
        f.write_str(words)
    }
}
