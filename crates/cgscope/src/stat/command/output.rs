//! The output of the summary.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use cgscope_record::Place;
use cgscope_view::stat_command::BEGINNING;

use crate::exit::{Error, Result};

/// The beginning of a JSON summary.
const OBJECT: &str = r#"{"schema":"cgscope.stat/1""#;

#[derive(Debug)]
pub enum Output {
    /// As with `time`: standard output belongs to the command.
    StandardError,
    /// A new file, an earlier summary (replaced as a whole), a pipe or a device.
    Place(Place),
}

impl Output {
    /// Checks an existing file before the command runs. A file that is not our summary is refused.
    pub fn new(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::StandardError) };
        let place = Place::of(path).map_err(|error| cannot_write(path, &error.to_string()))?;
        let is_ours = place.holds_something().and_then(|holds| match holds {
            true => begins_as_ours(&place),
            false => can_be_made(&place),
        });
        if is_ours.map_err(|error| cannot_write(place.path(), &error.to_string()))? {
            Ok(Self::Place(place))
        } else {
            Err(cannot_write(place.path(), "it holds something other than a summary of cgscope"))
        }
    }

    /// Writes the summary. A file gets either all of it or nothing. If writing fails, prints the summary on standard error,
    /// because the user cannot repeat the run.
    pub fn write(&self, summary: &str) {
        if let Self::Place(place) = self {
            let Err(error) = replace(place, summary) else { return };
            say!(
                "cgscope: the summary could not be written to {} ({error}), so here it is:",
                place.path().display()
            );
        }
        // Ignore errors: if standard error is closed, nobody can be notified.
        let _ = io::stderr().lock().write_all(summary.as_bytes());
    }
}

fn begins_as_ours(place: &Place) -> io::Result<bool> {
    let mut beginning = Vec::new();
    let longest = BEGINNING.len().max(OBJECT.len()) as u64;
    place.open()?.take(longest).read_to_end(&mut beginning)?;
    Ok([BEGINNING, OBJECT].iter().any(|ours| beginning.starts_with(ours.as_bytes())))
}

/// Creates and removes a temporary file. Does not open a pipe: its reader would mistake our close for the end of the summary.
fn can_be_made(place: &Place) -> io::Result<bool> {
    if place.is_direct() { Ok(true) } else { place.create().map(|_| true) }
}

fn replace(place: &Place, summary: &str) -> io::Result<()> {
    let (mut file, beside) = place.create()?;
    file.write_all(summary.as_bytes())?;
    beside.keep()
}

fn cannot_write(path: &Path, why: &str) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({why}), so the command is not run: name another file with -o",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn an_earlier_summary_is_replaced_and_other_files_stay() {
        let dir = std::env::temp_dir().join(format!("cgscope-summary-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("a");
        for content in ["", "cgscope stat: make", r#"{"schema":"cgscope.stat/1","command""#] {
            fs::write(&path, content).unwrap();
            Output::new(Some(&path)).unwrap().write("cgscope stat: new");
            assert_eq!(fs::read_to_string(&path).unwrap(), "cgscope stat: new");
        }
        fs::write(&path, "a letter").unwrap();
        let error = Output::new(Some(&path)).unwrap_err().to_string();
        assert!(
            error.contains("holds something other") && error.contains("the command is not run"),
            "{error}"
        );
        assert!(Output::new(Some(&dir.join("no/where"))).is_err());
        assert!(Output::new(Some(&dir.join("b"))).is_ok());
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1, "no temporary file remains");
        fs::remove_dir_all(&dir).unwrap();
    }
}
