//! The output file of the page.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use cgscope_record::Place;

use super::BEGINNING;
use crate::exit::{Error, Result};

/// The output: a new file, an older page, a pipe or a device; `None` is standard output. Refuses any other file.
pub fn place(path: &Path) -> Result<Option<Place>> {
    if path == Path::new("-") {
        return Ok(None);
    }
    let place = Place::of(path).map_err(|error| cannot_write(path, &error.to_string()))?;
    let is_ours = place.holds_something().and_then(|holds| Ok(!holds || begins_as_ours(&place)?));
    if is_ours.map_err(|error| cannot_write(place.path(), &error.to_string()))? {
        Ok(Some(place))
    } else {
        Err(cannot_write(place.path(), "it holds something other than a report page of cgscope"))
    }
}

/// Writes the whole page or nothing.
pub fn write(place: &Place, page: &str) -> Result<()> {
    let done = place.create().and_then(|(mut file, beside)| {
        file.write_all(page.as_bytes())?;
        beside.keep()
    });
    done.map_err(|error| cannot_write(place.path(), &error.to_string()))
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
