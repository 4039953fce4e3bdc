//! Why a command ended early.
use std::fmt;

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

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(words) | Self::Host(words) | Self::Step(words)) = self;
        f.write_str(words)
    }
}
