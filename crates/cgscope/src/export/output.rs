//! The output file of an export. A temporary file beside it is renamed when it is complete.

use std::{
    io::{self, BufWriter, IsTerminal},
    path::Path,
};

use cgscope_export::{Format, Out};
use cgscope_record::{Beside, Place};

use crate::exit::{Error, Result};

const BUFFER: usize = 1 << 16;

pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// The output of an export; `None` is standard output. Dropping it deletes an unfinished file.
pub struct ExportFile(Option<(Place, Beside)>);

impl ExportFile {
    pub fn open(path: &Path, format: Format) -> Result<(Self, Out)> {
        if is_stdout(path) {
            if format.is_binary() && io::stdout().is_terminal() {
                return Err(Error::could_not_run(
                    "this format is not text, and standard output is a terminal, so nothing is exported: name a file \
                     with -o, or send the output to another program",
                ));
            }
            let out = BufWriter::with_capacity(BUFFER, io::stdout());
            return Ok((Self(None), Box::new(out)));
        }
        let place = place(path)?;
        let (file, beside) = place.create().map_err(|error| cannot_write(path, &error))?;
        Ok((Self(Some((place, beside))), Box::new(BufWriter::with_capacity(BUFFER, file))))
    }

    pub fn keep(self) -> Result<()> {
        let Some((place, beside)) = self.0 else { return Ok(()) };
        beside.keep().map_err(|error| cannot_write(place.path(), &error))
    }

    pub fn failed(&self, error: &io::Error) -> Error {
        let is_broken_pipe = error.kind() == io::ErrorKind::BrokenPipe;
        match &self.0 {
            Some((place, _)) if !(place.is_direct() && is_broken_pipe) => cannot_write(place.path(), error),
            _ => Error::output(error),
        }
    }
}

/// Checks the output. A file that is not empty is never overwritten: it may be an older export.
fn place(path: &Path) -> Result<Place> {
    let place = Place::of(path).map_err(|error| cannot_write(path, &error))?;
    match place.holds_something() {
        Ok(true) => Err(Error::could_not_run(format!(
            "{} exists and is not empty, so nothing is exported: move or remove the file, or name another file with -o",
            place.path().display()
        ))),
        _ => Ok(place),
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({error}), so nothing is exported: name another file with -o",
        path.display()
    ))
}
