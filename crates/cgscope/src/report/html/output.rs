//! Where the page goes.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
};

use super::BEGINNING;
use crate::exit::{Error, Result};

/// Where to write.
#[derive(Debug, PartialEq, Eq)]
pub enum Output {
    /// Standard output.
    Standard,
    /// A file that is not there yet, or a former page: replaced as a whole.
    Page(PathBuf),
    /// A pipe or a device.
    Other(PathBuf),
}

impl Output {
    /// Looks at what is there before anything is read: what is no page of ours stays.
    pub fn new(path: &Path) -> Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Standard);
        }
        // Through links: what they point to is replaced, not they.
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::Page(path.to_owned())),
            Err(error) => return Err(cannot_write(path, &error.to_string())),
        };
        let metadata = fs::metadata(&path).map_err(|error| cannot_write(&path, &error.to_string()))?;
        if metadata.is_dir() {
            return Err(cannot_write(&path, "it is a directory"));
        }
        if !metadata.is_file() {
            return Ok(Self::Other(path));
        }
        let is_ours = metadata.len() == 0
            || begins_as_ours(&path).map_err(|error| cannot_write(&path, &error.to_string()))?;
        if is_ours {
            Ok(Self::Page(path))
        } else {
            Err(cannot_write(&path, "it holds something else than a page of cgscope"))
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
            Self::Page(path) => replace(path, page).map_err(|error| cannot_write(path, &error.to_string())),
            Self::Other(path) => {
                let opened = OpenOptions::new().write(true).open(path);
                let done = opened.and_then(|mut file| file.write_all(page.as_bytes()));
                done.map_err(|error| cannot_write(path, &error.to_string()))
            }
        }
    }

    /// The file, where it is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Self::Standard => None,
            Self::Page(path) | Self::Other(path) => Some(path),
        }
    }
}

fn begins_as_ours(path: &Path) -> io::Result<bool> {
    let mut beginning = Vec::new();
    File::open(path)?.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
    Ok(beginning == BEGINNING.as_bytes())
}

/// Beside it first, so that what was there stays whole until the new one is.
fn replace(path: &Path, page: &str) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let mut file = OpenOptions::new().write(true).create_new(true).open(&beside)?;
    let written = file.write_all(page.as_bytes()).and_then(|()| fs::rename(&beside, path));
    if written.is_err() {
        let _ = fs::remove_file(&beside);
    }
    written
}

fn cannot_write(path: &Path, why: &str) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({why}), so there is no page: name another file with --html",
        path.display()
    ))
}
