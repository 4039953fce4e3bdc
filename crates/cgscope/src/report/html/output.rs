//! The file of the page.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use cgscope_record::Place;

use super::BEGINNING;
use crate::exit::{Error, Result};

/// Where to write.
#[derive(Debug)]
pub enum Output {
    /// Standard output.
    Standard,
    /// A new file, or an earlier page, which is replaced as a whole; or a pipe or a device.
    Page(Place),
}

impl Output {
    /// Refuses a file that is not a page of ours, before anything is read.
    pub fn new(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        let place = Place::of(path).map_err(|error| cannot_write(path, &error.to_string()))?;
        let is_ours = place.holds_something().and_then(|holds| Ok(!holds || begins_as_ours(&place)?));
        if is_ours.map_err(|error| cannot_write(place.path(), &error.to_string()))? {
            Ok(Self::Page(place))
        } else {
            Err(cannot_write(place.path(), "it holds something else than a page of cgscope"))
        }
    }

    /// Writes the page: into a file whole or not at all.
    pub fn write(&self, page: &str) -> Result<()> {
        match self {
            Self::Standard => {
                let mut out = io::stdout().lock();
                let done = out.write_all(page.as_bytes()).and_then(|()| out.flush());
                done.map_err(|error| Error::output(&error))
            }
            Self::Page(place) => {
                let done = place.create().and_then(|(mut file, beside)| {
                    file.write_all(page.as_bytes())?;
                    beside.keep()
                });
                done.map_err(|error| cannot_write(place.path(), &error.to_string()))
            }
        }
    }

    /// The path, unless it is standard output.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Standard => None,
            Self::Page(place) => Some(place.path()),
        }
    }
}

fn begins_as_ours(place: &Place) -> io::Result<bool> {
    let mut beginning = Vec::new();
    place.open()?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning == BEGINNING.as_bytes())
}

fn cannot_write(path: &Path, why: &str) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({why}), so there is no page: name another file with --html",
        path.display()
    ))
}
