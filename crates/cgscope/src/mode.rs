//! How it is measured: exactly, or where that is not to be had, through the daemon, or coarsely.

use std::{path::Path, time::Duration};

use cgscope_collect::{Collector, Failure, Kind, Options};

use crate::{
    cli::ModeChoice,
    doctor,
    exit::{Error, Result},
    remote::{self, Daemon},
    request::Target,
};

/// Why it is measured coarsely.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coarse {
    /// What is missing, in a few words.
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

/// Where Samples come from.
pub enum Source {
    /// We take them.
    Own(Box<Collector>),
    /// The daemon shows us its own.
    Daemon(Box<Daemon>),
}

/// Begins to measure in the mode asked for. Of itself it is through the daemon, or coarse, only where the host, or a limit of the
/// exact mode, leaves no other.
pub fn start(options: &Options, target: &Target, interval: Duration) -> Result<(Source, Option<Coarse>)> {
    let connect =
        |path: &Path| Daemon::connect(path, &options.selection, interval, options.accounts.is_some());
    let daemon = |daemon| Source::Daemon(Box::new(daemon));
    if let Some(path) = &target.connect {
        remote::check(target)?;
        let connected = connect(path).map_err(|error| Error::could_not_run(error.to_string()))?;
        return Ok((daemon(connected), None));
    }
    let own = |collector| Source::Own(Box::new(collector));
    let exact = || Collector::start(options).map(own);
    let mut refused = None;
    let chosen = choose(
        target.mode,
        || {
            exact().or_else(|failure| {
                let may_help =
                    target.mode == ModeChoice::Auto && failure.kind == Kind::Host && !target.stands_aside;
                let Some(path) = remote::usual().filter(|_| may_help) else { return Err(failure) };
                let connected = remote::check(target).map_err(|error| error.sentence);
                match connected.and_then(|()| connect(path).map_err(|error| error.to_string())) {
                    Ok(connected) => Ok(daemon(connected)),
                    Err(sentence) => {
                        refused = Some(sentence);
                        Err(failure)
                    }
                }
            })
        },
        || Collector::start_coarse(options).map(own),
    )?;
    let (source, mut coarse) = chosen;
    if let (Some(coarse), Some(refused)) = (&mut coarse, refused) {
        coarse.sentence = coarse.sentence.take().map(|sentence| format!("{sentence}; {refused}"));
    }
    Ok((source, coarse))
}

/// The same of anything that can be begun in both ways.
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
        Kind::Host => doctor::explain(failure),
        Kind::Request | Kind::Mode => failure.to_string(),
    })
}

fn because(failure: &Failure) -> Coarse {
    let cause = (failure.kind == Kind::Host).then(|| doctor::cause(failure)).flatten();
    match cause {
        Some(cause) => Coarse { sentence: Some(cause.sentence()), because: cause.finding },
        None => Coarse { because: failure.what.clone(), sentence: Some(failure.to_string()) },
    }
}
