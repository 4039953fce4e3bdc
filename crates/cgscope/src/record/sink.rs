//! Where Samples go: one file, a series of files, or a ring of which parts are kept.

use std::path::PathBuf;

use cgscope_model::Sample;
use cgscope_record::Reason;

use crate::{
    exit::{Error, Result},
    record::file::{Failure, File},
};

pub trait Sink {
    fn sample(&mut self, sample: Sample) -> std::result::Result<Next, Broken>;

    fn bytes(&self) -> u64;

    /// What can be said of it while it is being written, beside its size; may be empty.
    fn state(&self) -> String;

    /// SIGUSR1: freeze what there is.
    fn asked_for(&mut self) {}

    /// Closes it after its last Sample.
    fn end(self: Box<Self>, reason: Reason) -> Result<Ended>;

    /// Closes it after a Sample that could not be written, and says what became of it.
    fn end_after(self: Box<Self>, broken: Broken) -> Error;

    /// Closes it in haste: measuring failed, or was interrupted twice.
    fn abandon(self: Box<Self>, reason: Reason) {
        // What failed first is what is said.
        let _ = self.end(reason);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    GoOn,
    Enough,
}

#[derive(Debug)]
pub struct Ended {
    pub words: String,
    /// What to report on.
    pub report: Option<PathBuf>,
    /// Something that was asked for is not there, as has been said.
    pub incomplete: bool,
}

/// Why nothing more can be written.
#[derive(Debug)]
pub enum Broken {
    Write(Failure),
    Other(Error),
}

impl From<Failure> for Broken {
    fn from(failure: Failure) -> Self {
        Self::Write(failure)
    }
}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

impl Broken {
    /// Closes the file that was being written.
    pub fn end(self, file: File) -> Error {
        match self {
            Self::Write(failure) => file.end_after(&failure),
            Self::Other(error) => {
                // What failed is something else: what is in this file is whole.
                let _ = file.end(Reason::Failed);
                error
            }
        }
    }
}

pub struct Single(pub File);

impl Sink for Single {
    fn sample(&mut self, sample: Sample) -> std::result::Result<Next, Broken> {
        self.0.sample(&sample)?;
        Ok(Next::GoOn)
    }

    fn bytes(&self) -> u64 {
        self.0.bytes()
    }

    fn state(&self) -> String {
        String::new()
    }

    fn end(self: Box<Self>, reason: Reason) -> Result<Ended> {
        let file = self.0.path().to_owned();
        let words = self.0.words();
        self.0.end(reason).map_err(|failure| Error::incomplete(failure.to_string()))?;
        Ok(Ended { words, report: Some(file), incomplete: false })
    }

    fn end_after(self: Box<Self>, broken: Broken) -> Error {
        broken.end(self.0)
    }
}
