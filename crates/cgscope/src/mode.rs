//! The mode of measurement: exact, or coarse if the exact mode is not available.

use cgscope_collect::{Failure, FailureKind};
use cgscope_model::doctor::{cause_of_failure, explain_failure};

use crate::{
    cli::ModeChoice,
    doctor,
    exit::{Error, Result},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coarse {
    pub because: String,
    /// What is missing, what that prevents, and what to do about it. `None` if the user requested the coarse mode.
    pub sentence: Option<String>,
}

impl Coarse {
    /// `what` is what the coarse mode measures.
    pub fn say(&self, what: &str) {
        if let Some(sentence) = &self.sentence {
            say!("cgscope: {sentence}; continuing in the coarse mode: {what}");
        }
    }
}

/// Starts in the requested mode. `Auto` chooses the coarse mode only if the host or a limit of the exact mode requires it.
pub fn choose<T>(
    choice: ModeChoice,
    exact: impl FnOnce() -> Result<T, Failure>,
    coarse: impl FnOnce() -> Result<T, Failure>,
) -> Result<(T, Option<Coarse>)> {
    let because = match choice {
        ModeChoice::Coarse => Coarse { because: "as requested".into(), sentence: None },
        ModeChoice::Bpf | ModeChoice::Auto => match exact() {
            Ok(begun) => return Ok((begun, None)),
            Err(failure) if choice == ModeChoice::Bpf || failure.kind == FailureKind::Request => {
                return Err(could_not_start(&failure));
            }
            Err(failure) => because(&failure),
        },
    };
    let begun = coarse().map_err(|failure| match &because.sentence {
        Some(sentence) if failure.kind != FailureKind::Request => {
            Error::could_not_run(format!("{sentence}; the coarse mode failed, too: {failure}"))
        }
        _ => Error::could_not_run(failure),
    })?;
    Ok((begun, Some(because)))
}

/// Returns the error of a failed start. If the host refused, the error names what the host lacks.
pub fn could_not_start(failure: &Failure) -> Error {
    Error::could_not_run(match failure.kind {
        FailureKind::Host => explain_failure(&doctor::known_facts(), &failure.to_string()),
        FailureKind::Request | FailureKind::Mode => failure.to_string(),
    })
}

fn because(failure: &Failure) -> Coarse {
    let cause = || cause_of_failure(&doctor::known_facts(), &failure.to_string());
    match (failure.kind == FailureKind::Host).then(cause).flatten() {
        Some(cause) => Coarse { sentence: Some(cause.sentence()), because: cause.finding },
        None => Coarse { because: failure.what.clone(), sentence: Some(failure.to_string()) },
    }
}
