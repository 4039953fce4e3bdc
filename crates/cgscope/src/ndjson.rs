//! NDJSON: one object per line.

use std::io::{self, Write};

use serde::Serialize;

pub fn json_line(out: &mut impl Write, object: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, object)?;
    writeln!(out)
}
