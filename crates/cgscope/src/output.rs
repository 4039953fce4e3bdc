//! Output of commands: NDJSON, and files that are replaced atomically.

use std::{
    io::{self, Read, Write},
    path::Path,
};

use cgscope_record::Place;
use serde::Serialize;

use crate::exit::{Error, Result};

pub fn json_line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}

/// Checks an output file before the work begins. Accepts a new file, a pipe, a device, and an earlier file of the kind `what`,
/// which will be replaced. Refuses a file with other data. `failed` creates an error from a path and a reason.
pub fn place(
    path: &Path,
    what: &str,
    is_ours: impl FnOnce(&Place) -> io::Result<bool>,
    failed: fn(&Path, &str) -> Error,
) -> Result<Place> {
    let place = Place::of(path).map_err(|error| failed(path, &error.to_string()))?;
    match place.holds_something().and_then(|holds| Ok(!holds || is_ours(&place)?)) {
        Ok(true) => Ok(place),
        Ok(false) => Err(failed(place.path(), &format!("it holds something other than {what} of cgscope"))),
        Err(error) => Err(failed(place.path(), &error.to_string())),
    }
}

/// Like [`place`], for work that cannot be repeated. Also creates and removes a temporary file in place of a new file. Does not
/// open a pipe, because its reader would take our close for the end.
pub fn tried_place(
    path: &Path,
    what: &str,
    is_ours: impl FnOnce(&Place) -> io::Result<bool>,
    failed: fn(&Path, &str) -> Error,
) -> Result<Place> {
    let place = place(path, what, is_ours, failed)?;
    let tried = place.holds_something().and_then(|holds| match holds || place.is_direct() {
        true => Ok(()),
        false => place.create().map(|_| ()),
    });
    tried.map_err(|error| failed(place.path(), &error.to_string()))?;
    Ok(place)
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
