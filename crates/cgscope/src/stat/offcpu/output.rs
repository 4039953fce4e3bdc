//! The output file for stacks.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
};

use cgscope_collect::KernelSymbols;
use cgscope_model::{BlockedKind, BlockedState};
use cgscope_record::Place;

use crate::{
    exit::{Error, Result},
    stat::offcpu::stacks::{BlockedAt, Stacks},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Svg,
    Folded,
}

/// A new file, an earlier file of `--offcpu` (replaced as a whole), a pipe or a device.
#[derive(Debug)]
pub struct Output {
    place: Place,
    format: Format,
}

/// The beginning of our flame graphs, by which we recognize them. An XML comment must not contain two hyphens.
const BEGINNING: &str = "<?xml version=\"1.0\" standalone=\"no\"?>\n<!-- cgscope offcpu -->\n";

/// Maximum length of a line to read, bytes.
const LINE_BYTES: u64 = 64 << 10;

impl Output {
    /// Checks an existing file before anything is measured. A file with other data is refused.
    pub fn new(path: &Path) -> Result<Self> {
        let place = Place::of(path).map_err(|error| cannot_write(path, &error.to_string()))?;
        let is_svg = path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("svg"));
        let output = Self { place, format: if is_svg { Format::Svg } else { Format::Folded } };
        match output.is_free() {
            Ok(true) => Ok(output),
            Ok(false) => Err(cannot_write(output.path(), "it holds something other than stacks of cgscope")),
            Err(error) => Err(cannot_write(output.path(), &error.to_string())),
        }
    }

    /// Writes all of the text, or nothing.
    pub fn write(&self, text: &str) -> Result<()> {
        let written = self.place.create().and_then(|(mut file, beside)| {
            file.write_all(text.as_bytes())?;
            beside.keep()
        });
        written.map_err(|error| {
            Error::incomplete(format!(
                "the stacks could not be written to {} ({error}), so only the largest are printed: free some space, or \
                 name another file with --offcpu=FILE",
                self.path().display()
            ))
        })
    }

    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The format, by file name extension.
    pub fn format(&self) -> Format {
        self.format
    }

    fn is_free(&self) -> io::Result<bool> {
        if self.place.holds_something()? {
            return self.is_ours();
        }
        // Create a temporary file beside it: a failure must be known before we measure. A pipe is not opened.
        if self.place.is_direct() { Ok(true) } else { self.place.create().map(|_| true) }
    }

    fn is_ours(&self) -> io::Result<bool> {
        let file = self.place.open()?;
        if self.format == Format::Svg {
            let mut beginning = Vec::new();
            file.take(BEGINNING.len() as u64).read_to_end(&mut beginning)?;
            return Ok(beginning == BEGINNING.as_bytes());
        }
        let mut line = Vec::new();
        BufReader::new(file.take(LINE_BYTES)).read_until(b'\n', &mut line)?;
        Ok(is_ours(String::from_utf8_lossy(&line).trim_end()))
    }
}

/// Marks a flame graph so that we can recognize it later.
pub fn marked(svg: &str) -> String {
    let rest = svg.split_once("?>").map_or(svg, |(_, rest)| rest);
    format!("{BEGINNING}{}", rest.trim_start())
}

fn cannot_write(path: &Path, why: &str) -> Error {
    Error::could_not_run(format!(
        "{} cannot be written ({why}), so the stacks cannot be saved: name another file with --offcpu=FILE",
        path.display()
    ))
}

const NO_STACK: &str = "[no stack]";
const NO_NAME: &str = "[unknown]";

/// A line for each stack, sorted. Stacks with the same names share a line.
pub fn lines(stacks: &Stacks, symbols: &KernelSymbols) -> Vec<String> {
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (place, time) in stacks.places() {
        *lines.entry(line(&place, symbols)).or_default() += time.ns;
    }
    lines.into_iter().map(|(stack, ns)| format!("{stack} {ns}")).collect()
}

fn line(place: &BlockedAt, symbols: &KernelSymbols) -> String {
    let mut names: Vec<&str> = functions(place, symbols).collect();
    names.reverse();
    if names.is_empty() {
        names.push(NO_STACK);
    }
    // A semicolon would end the name.
    let comm = place.comm.replace(';', ":");
    format!("{comm};{};{}", blocked(kind(place, symbols), place.state), names.join(";"))
}

/// The function names of a stack, the innermost first.
pub fn functions<'a>(place: &'a BlockedAt, symbols: &'a KernelSymbols) -> impl Iterator<Item = &'a str> {
    place.stack.iter().map(|addr| symbols.caller(*addr).unwrap_or(NO_NAME))
}

/// What kind of thing the tasks are blocked on.
pub fn kind(place: &BlockedAt, symbols: &KernelSymbols) -> BlockedKind {
    BlockedKind::of(place.state, place.stack.iter().map(|addr| symbols.caller(*addr)))
}

fn blocked(kind: BlockedKind, state: BlockedState) -> String {
    format!("[{}, {}]", kind.name(), state.name())
}

/// Whether [`lines`] may have written this line.
pub fn is_ours(line: &str) -> bool {
    let all =
        || BlockedKind::ALL.into_iter().flat_map(|kind| BlockedState::ALL.map(|state| blocked(kind, state)));
    let has_ns = line.rsplit_once(' ').is_some_and(|(_, ns)| ns.parse::<u64>().is_ok());
    has_ns && line.split(';').nth(1).is_some_and(|frame| all().any(|ours| ours == frame))
}
