//! Why something could not be done, in the three parts that a user needs.

use std::fmt;

/// What is missing, what that prevents, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is missing or failed.
    pub what: String,
    /// What cannot be done; empty where that is plain.
    pub effect: String,
    /// What to do; may be empty.
    pub remedy: String,
    /// Who refused.
    pub kind: FailureKind,
}

/// Who refused: decides whether another mode is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureKind {
    /// The request cannot be met in any mode.
    Request,
    /// The host: `cgscope doctor` may know a better sentence.
    Host,
    /// This mode; another one may do it.
    Mode,
}

impl Failure {
    /// A refused request.
    pub fn new(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), effect: effect.into(), remedy: remedy.into(), kind: FailureKind::Request }
    }

    /// A refusal by the host.
    pub fn of_host(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind: FailureKind::Host, ..Self::new(what, effect, remedy) }
    }

    /// A refusal by this mode.
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
