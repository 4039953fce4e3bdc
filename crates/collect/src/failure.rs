//! Why something could not be done, in the three parts that a user needs.

use std::fmt;

/// What is missing, what that prevents, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What is missing or went wrong.
    pub what: String,
    /// What cannot be done because of it; may be empty where that is plain.
    pub effect: String,
    /// What to do.
    pub remedy: String,
    /// Who is to blame.
    pub kind: Kind,
}

/// Who is to blame for a [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// What was asked for is not to be had in any mode.
    Request,
    /// The host refused: `cgscope doctor` may know a better sentence.
    Host,
    /// This mode cannot do it here, as the sentence says.
    Mode,
}

impl Failure {
    /// All three parts; `effect` and `remedy` may be empty.
    pub fn new(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), effect: effect.into(), remedy: remedy.into(), kind: Kind::Request }
    }

    /// The same, where it is the host that refused.
    pub fn of_host(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind: Kind::Host, ..Self::new(what, effect, remedy) }
    }

    /// The same, where another mode may do.
    pub fn of_mode(what: impl Into<String>, effect: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { kind: Kind::Mode, ..Self::new(what, effect, remedy) }
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
