//! The file of an export: written beside its place and moved there when it is whole.

use std::{
    fs::{self, File},
    io::{self, BufWriter, IsTerminal},
    path::{Path, PathBuf},
};

use cgscope_export::{Format, Out};

use crate::exit::{Error, Result};

const BUFFER: usize = 1 << 16;

/// `-`, where a file is named elsewhere.
pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Where an export goes. What was written of a file goes with this value, unless it is kept.
pub struct Output {
    place: Place,
}

enum Place {
    Stdout,
    /// A pipe or a device: nothing to move to it.
    Direct(PathBuf),
    File {
        beside: PathBuf,
        path: PathBuf,
    },
}

impl Output {
    /// Checks that nothing is lost by it, and opens it.
    pub fn open(path: &Path, format: Format) -> Result<(Self, Out)> {
        if is_stdout(path) {
            if format.is_binary() && io::stdout().is_terminal() {
                return Err(Error::could_not_run(
                    "this format is not text, and standard output is a terminal, so nothing is exported: name a file \
                     with -o, or send the output to another program",
                ));
            }
            let out = BufWriter::with_capacity(BUFFER, io::stdout());
            return Ok((Self { place: Place::Stdout }, Box::new(out)));
        }
        let place = place(path)?;
        let opened = match &place {
            Place::File { beside, .. } => File::create(beside),
            _ => fs::OpenOptions::new().write(true).open(path),
        };
        let file = opened.map_err(|error| cannot_write(path, &error))?;
        Ok((Self { place }, Box::new(BufWriter::with_capacity(BUFFER, file))))
    }

    /// It is whole: from now on it has its name.
    pub fn keep(mut self) -> Result<()> {
        let Place::File { beside, path } = &self.place else { return Ok(()) };
        fs::rename(beside, path).map_err(|error| cannot_write(path, &error))?;
        self.place = Place::Stdout;
        Ok(())
    }

    /// It could not be written.
    pub fn failed(&self, error: &io::Error) -> Error {
        match &self.place {
            Place::Stdout => Error::output(error),
            Place::Direct(_) if error.kind() == io::ErrorKind::BrokenPipe => Error::output(error),
            Place::Direct(path) | Place::File { path, .. } => cannot_write(path, error),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Place::File { beside, .. } = &self.place {
            let _ = fs::remove_file(beside);
        }
    }
}

/// A file with something in it is never overwritten: it may be another week's table.
fn place(path: &Path) -> Result<Place> {
    // A link stays a link.
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&path) {
        Ok(there) if there.is_dir() => {
            return Err(cannot_write(&path, &io::Error::from(io::ErrorKind::IsADirectory)));
        }
        Ok(there) if !there.is_file() => return Ok(Place::Direct(path)),
        Ok(there) if there.len() != 0 => {
            return Err(Error::could_not_run(format!(
                "{} is there and holds something, which would be lost, so nothing is exported: move or remove it, or \
                 name another file with -o",
                path.display()
            )));
        }
        _ => {}
    }
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".part-{}", std::process::id()));
    Ok(Place::File { beside: beside.into(), path })
}

fn cannot_write(path: &Path, error: &io::Error) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({error}), so nothing is exported: name another file with -o",
        path.display()
    ))
}
