//! Describes why an action failed, in the three parts that a user needs.

use std::fmt;

/// A failure: what is missing, what that prevents, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is missing or failed.
    pub what: String,
    /// What cannot be done without it; empty if that is obvious.
    pub effect: String,
    /// What the user can do; can be empty.
    pub remedy: String,
    /// Who refused: the request itself, the host, or this mode.
    pub kind: FailureKind,
}

/// Who refused. This decides whether cgscope tries another mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// No mode can satisfy the request.
    Request,
    /// The host refused. `cgscope doctor` may explain more.
    Host,
    /// This mode refused; another mode may succeed.
    Mode,
}

impl Failure {
    /// Creates a refusal of a request.
    pub fn new(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), effect: effect.into(), remedy: remedy.into(), kind: FailureKind::Request }
    }

    /// Creates a refusal by the host.
    pub fn of_host(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind: FailureKind::Host, ..Self::new(what, effect, remedy) }
    }

    /// Creates a refusal by this mode.
    pub fn of_mode(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind: FailureKind::Mode, ..Self::new(what, effect, remedy) }
    }

    pub(crate) fn of_interval(what: &str, error: &std::io::Error) -> Self {
        Self::new(format!("{what} could not be read ({error})"), "this interval has no figures", "")
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        if !self.effect.is_empty() {
            write!(f, ", so {}", self.effect)?;
        }
        if !self.remedy.is_empty() {
            write!(f, ": {}", self.remedy)?;
        }
        Ok(())
    }
}

impl std::error::Error for Failure {}
