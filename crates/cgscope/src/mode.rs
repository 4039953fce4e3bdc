//! How it is measured: exactly, or coarsely where that is not available.

use cgscope_collect::{Failure, Kind};
use cgscope_model::doctor::{cause_of_failure, explain_failure};

use crate::{
    cli::ModeChoice,
    doctor,
    exit::{Error, Result},
};

/// Why it is measured coarsely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coarse {
    pub because: String,
    /// What is missing, what that prevents, and what to do. `None`: it was asked for.
    pub sentence: Option<String>,
}

impl Coarse {
    /// Says it, unless it was asked for.
    pub fn say(&self) {
        self.say_with("sums of waits from /proc, no histogram, and of the causes only quotas");
    }

    /// The same where something else is coarse: `what` there is.
    pub fn say_with(&self, what: &str) {
        if let Some(sentence) = &self.sentence {
            say!("cgscope: {sentence}; going on coarse: {what}");
        }
    }
}

/// Begins something in the mode asked for: coarse only where the host, or a limit of the exact mode, leaves no other.
pub fn choose<T>(
    choice: ModeChoice,
    exact: impl FnOnce() -> std::result::Result<T, Failure>,
    coarse: impl FnOnce() -> std::result::Result<T, Failure>,
) -> Result<(T, Option<Coarse>)> {
    let because = match choice {
        ModeChoice::Coarse => Coarse { because: "as asked for".into(), sentence: None },
        ModeChoice::Bpf | ModeChoice::Auto => match exact() {
            Ok(begun) => return Ok((begun, None)),
            Err(failure) if choice == ModeChoice::Bpf || failure.kind == Kind::Request => {
                return Err(could_not_start(&failure));
            }
            Err(failure) => because(&failure),
        },
    };
    let begun = coarse().map_err(|failure| match &because.sentence {
        Some(sentence) if failure.kind != Kind::Request => {
            Error::could_not_run(format!("{sentence}; and {failure}"))
        }
        _ => Error::could_not_run(failure.to_string()),
    })?;
    Ok((begun, Some(because)))
}

/// Where the host refused, what it lacks says more than how it refused.
fn could_not_start(failure: &Failure) -> Error {
    Error::could_not_run(match failure.kind {
        Kind::Host => explain_failure(&doctor::known_facts(), &failure.to_string()),
        Kind::Request | Kind::Mode => failure.to_string(),
    })
}

fn because(failure: &Failure) -> Coarse {
    let cause = || cause_of_failure(&doctor::known_facts(), &failure.to_string());
    match (failure.kind == Kind::Host).then(cause).flatten() {
        Some(cause) => Coarse { sentence: Some(cause.sentence()), because: cause.finding },
        None => Coarse { because: failure.what.clone(), sentence: Some(failure.to_string()) },
    }
}
