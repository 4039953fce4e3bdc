//! Selects the source of samples.

use std::{path::Path, time::Duration};

use cgscope_collect::{Collector, FailureKind, Options};
use cgscope_model::{Sample, Selection};

use super::{
    Events,
    daemon::{self, Daemon},
    local, ns,
};
use crate::{
    child::Output,
    cli::ModeChoice,
    containers,
    exit::{Error, Result},
    mode::{self, Coarse},
    request::Target,
};

pub enum Source {
    Own(Box<Collector>),
    Daemon(Box<Daemon>),
}

impl Source {
    /// Starts to measure in the requested mode. By default, the daemon or the coarse mode is used only if the host refuses exact
    /// measurement.
    pub fn open(options: &Options, target: &Target, interval: Duration) -> Result<(Self, Option<Coarse>)> {
        let is_whole = target.output != Output::Nowhere;
        let connect = |path: &Path| {
            daemon::check(target)?;
            let daemon = Daemon::connect(path, options, ns(interval), is_whole);
            daemon.map(Box::new).map_err(|error| Error::could_not_run(error.to_string()))
        };
        if let Some(path) = &target.connect {
            return Ok((Self::Daemon(connect(path)?), None));
        }
        let runtimes = containers::runtimes(&target.runtime)?;
        let own = |collector| Self::Own(Box::new(collector));
        let mut refused = None;
        let exact = || {
            Collector::start(options).map(own).or_else(|failure| {
                let may_help = target.mode == ModeChoice::Auto
                    && failure.kind == FailureKind::Host
                    && !target.stands_aside;
                let Some(path) = daemon::usual().filter(|_| may_help) else { return Err(failure) };
                connect(path).map(Self::Daemon).map_err(|error| {
                    refused = Some(error.sentence);
                    failure
                })
            })
        };
        let (mut source, mut coarse) =
            mode::choose(target.mode, exact, || Collector::start_coarse(options).map(own))?;
        if let Self::Own(collector) = &mut source {
            collector.name_containers(containers::lookup(runtimes, drop));
        }
        if let (Some(coarse), Some(refused)) = (&mut coarse, refused) {
            coarse.sentence = coarse.sentence.take().map(|sentence| format!("{sentence}; {refused}"));
        }
        Ok((source, coarse))
    }

    pub fn start(self, first: Option<Sample>, interval: Duration, duration: Option<Duration>) -> Events {
        match self {
            Self::Own(collector) => local::start(*collector, first, interval, duration),
            Self::Daemon(daemon) => daemon.start(duration),
        }
    }

    fn daemon(&self) -> Option<&Daemon> {
        match self {
            Self::Own(_) => None,
            Self::Daemon(daemon) => Some(daemon),
        }
    }

    pub fn shows_all(&self) -> bool {
        self.daemon().is_none_or(|daemon| daemon.shows_all)
    }

    pub fn title(&self, target: &Target) -> String {
        self.daemon().map_or_else(|| target.words(), |daemon| daemon.title(target))
    }

    pub fn limits(&self, selection: &Selection) -> Vec<String> {
        match self {
            Self::Own(collector) => collector.refused().to_vec(),
            Self::Daemon(daemon) => daemon.limits(selection),
        }
    }
}
