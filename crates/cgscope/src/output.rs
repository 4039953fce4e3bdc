//! Output of commands: NDJSON, files that are replaced atomically, and files that only we may remove.

use std::{
    fmt::Display,
    fs,
    io::{self, Read, StdoutLock, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use cgscope_model::units;
use cgscope_record::Place;
use serde::Serialize;

use crate::exit::{Error, Result};

/// Returns standard output with a buffer. Without the buffer, standard output is flushed after each line.
pub fn stdout() -> Stdout {
    io::BufWriter::with_capacity(1 << 16, io::stdout().lock())
}

pub type Stdout = io::BufWriter<StdoutLock<'static>>;

/// Writes a result to standard output.
pub fn write(write: impl FnOnce(&mut Stdout) -> io::Result<()>) -> Result<()> {
    let mut out = stdout();
    write(&mut out).and_then(|()| out.flush()).map_err(Error::output)
}

pub fn print(text: &str) -> Result<()> {
    write(|out| out.write_all(text.as_bytes()))
}

pub fn json_line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}

/// Formats a time for a file name, like `20261121T101500` (UTC).
pub fn date_and_time(unix_ns: u64) -> String {
    let digits = |text: String| text.chars().filter(char::is_ascii_digit).collect::<String>();
    format!("{}T{}", digits(units::date(unix_ns)), digits(units::time_of_day(unix_ns)))
}

/// Checks an output file before the work begins. Accepts a new file, a pipe, a device, and an earlier file of the kind `what`,
/// which will be replaced. Refuses a file with other data. Tries to create a new file under a temporary name. Does not open a
/// pipe, because its reader would take our close for the end. `so` is the end of an error: see [`cannot_write`].
pub fn place(
    path: &Path,
    what: &str,
    is_ours: impl FnOnce(&Place) -> io::Result<bool>,
    so: &str,
) -> Result<Place> {
    let place = Place::of(path).map_err(|error| cannot_write(path, error, so))?;
    let is_free = place.holds_something().and_then(|holds| match holds {
        true => is_ours(&place),
        false if place.is_direct() => Ok(true),
        false => place.create().map(|_| true),
    });
    if is_free.map_err(|error| cannot_write(&place.path, error, so))? {
        return Ok(place);
    }
    Err(cannot_write(&place.path, format!("it holds something other than {what} of cgscope"), so))
}

/// Creates the error of a file that cannot be written. `so` is the consequence and the remedy.
pub fn cannot_write(path: &Path, why: impl Display, so: &str) -> Error {
    Error::could_not_run(format!("{} cannot be written ({why}), so {so}", path.display()))
}

/// Returns whether a file begins with one of these texts, which identify our own files.
pub fn begins_with(place: &Place, texts: &[&str]) -> io::Result<bool> {
    let mut beginning = Vec::new();
    let longest = texts.iter().map(|text| text.len() as u64).max().unwrap_or(0);
    place.open()?.take(longest).read_to_end(&mut beginning)?;
    Ok(texts.iter().any(|text| beginning.starts_with(text.as_bytes())))
}

/// Writes either the complete text or nothing.
pub fn replace(place: &Place, text: &str) -> io::Result<()> {
    let (mut file, beside) = place.create()?;
    file.write_all(text.as_bytes())?;
    beside.keep()
}

/// A file that we created. Device and inode distinguish it from a later file of the same name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    pub path: PathBuf,
    inode: Option<(u64, u64)>,
}

impl Made {
    pub fn of(path: &Path) -> Self {
        Self { path: path.to_owned(), inode: inode(path) }
    }

    /// Removes the file. Returns false and removes nothing if the file no longer exists, or another file has its name.
    pub fn remove(&self) -> io::Result<bool> {
        let is_ours = self.inode.is_some() && inode(&self.path) == self.inode;
        if is_ours { fs::remove_file(&self.path).map(|()| true) } else { Ok(false) }
    }
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    fs::symlink_metadata(path).ok().map(|metadata| (metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_file_that_we_created_is_removed() {
        let path = std::env::temp_dir().join(format!("cgscope-{}-made", std::process::id()));
        fs::write(&path, "ours").unwrap();
        let made = Made::of(&path);
        let aside = path.with_extension("aside");
        fs::rename(&path, &aside).unwrap();
        fs::write(&path, "foreign").unwrap();
        assert!(!made.remove().unwrap());
        assert_eq!(fs::read_to_string(&path).unwrap(), "foreign");
        fs::rename(&aside, &path).unwrap();
        assert!(made.remove().unwrap());
        assert!(!path.exists());
        assert!(!made.remove().unwrap());
    }
}
