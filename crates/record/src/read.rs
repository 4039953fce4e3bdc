//! Reading. Nothing in the file is believed before its checksum fits.

use std::{
    fmt,
    fs::File,
    io::{self, BufReader, Read},
    path::PathBuf,
    sync::Arc,
};

use cgscope_layout::Loss;
use cgscope_model::{Hist, Losses, Sample};
use serde::de::DeserializeOwned;

use crate::{
    End, FileError, Header, MAGIC, ReadError, VERSION,
    frame::{self, Found, kind},
    rules,
};

/// How a recording ended: known once the iteration is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The writer closed it.
    Clean(End),
    /// No end frame, but the last frame is whole: the writer was killed between two Samples, or still writes.
    Killed,
    /// The file ends within a frame: the writer was killed as it wrote, or the file was cut.
    Torn {
        /// Bytes of the incomplete frame.
        lost_bytes: u64,
    },
    /// Damage. Nothing from there on is used: where the next frame begins is known only from the damaged one.
    Corrupt {
        /// Where the damaged frame begins.
        at: u64,
        /// Bytes from there to the end of the file.
        lost_bytes: u64,
        /// What is wrong there.
        damage: Damage,
    },
}

/// What is wrong with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// Its length is one that no writer writes.
    Length,
    /// Its checksum does not fit.
    Checksum,
    /// Its payload is not what its kind says.
    Payload,
    /// It holds a Sample that breaks this rule.
    Sample(&'static str),
    /// It does not belong there: a second header, or something after the end.
    Misplaced,
}

impl Ending {
    /// Bytes at the end of the file that could not be used.
    pub fn lost_bytes(&self) -> u64 {
        match self {
            Self::Clean(_) | Self::Killed => 0,
            Self::Torn { lost_bytes } | Self::Corrupt { lost_bytes, .. } => *lost_bytes,
        }
    }

    /// What is missing, as outputs show it. Of a damaged rest only one Sample is sure to have been there.
    pub fn losses(&self) -> Losses {
        let mut losses = Losses::default();
        match self {
            Self::Clean(end) => losses = end.losses(),
            Self::Killed => {}
            Self::Torn { .. } | Self::Corrupt { .. } => losses.add(Loss::SamplesUnreadable, 1),
        }
        losses
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Clean(End { reason, unwritten: 0, .. }) => {
                write!(f, "the recording ended because {reason}")
            }
            Self::Clean(End { reason, unwritten, .. }) => {
                write!(
                    f,
                    "the recording ended because {reason}; samples that could not be written to it: {unwritten}"
                )
            }
            Self::Killed => write!(f, "the recording has no end: cgscope was killed, or still records"),
            Self::Torn { lost_bytes } => write!(
                f,
                "the recording breaks off in its last frame, of which {lost_bytes} bytes are left out: cgscope was \
                 killed as it wrote, or the file was cut"
            ),
            Self::Corrupt { at, lost_bytes, damage } => write!(
                f,
                "the recording is damaged at byte {at} ({damage}); the {lost_bytes} bytes from there on are left out"
            ),
        }
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Length => write!(f, "a length that cannot be"),
            Self::Checksum => write!(f, "a checksum does not fit"),
            Self::Payload => write!(f, "a frame does not hold what it should"),
            Self::Sample(rule) => write!(f, "a sample was not believed, because {rule}"),
            Self::Misplaced => write!(f, "a frame where none belongs"),
        }
    }
}

/// Reads a recording: an iterator over its Samples, then [`Reader::ending`].
///
/// The only errors on the way are those of the device; they end the iteration.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    /// Where the next frame begins.
    at: u64,
    payload: Vec<u8>,
    previous: Shared,
    skipped: u64,
    ending: Option<Ending>,
    failed: bool,
}

/// A [`Reader`] of a file.
pub type FileReader = Reader<BufReader<File>>;

/// Opens a recording.
pub fn open(path: impl Into<PathBuf>) -> Result<FileReader, FileError<ReadError>> {
    let path = path.into();
    let reader = File::open(&path).map_err(ReadError::Io);
    reader.and_then(|file| Reader::new(BufReader::new(file))).map_err(|error| FileError { path, error })
}

impl<R: Read> Reader<R> {
    /// Reads the header. Give it something buffered.
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let mut start = [0u8; MAGIC.len() + 4];
        let got = frame::read_up_to(&mut input, &mut start)?;
        let (magic, version) = start.split_at(MAGIC.len());
        let same = got.min(MAGIC.len());
        if got == 0 {
            return Err(ReadError::Empty);
        } else if magic[..same] != MAGIC[..same] {
            return Err(ReadError::Foreign);
        } else if got < start.len() {
            return Err(ReadError::HeaderCut);
        }
        let found = version.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        let mut payload = Vec::new();
        let (frame, read) = frame::read(&mut input, &mut payload)?;
        if found != VERSION {
            return Err(ReadError::Version { found, wrote: writer_of(&frame, &payload) });
        }
        let header = match frame {
            Found::Frame(kind::HEADER) => decode(&payload).ok_or(ReadError::HeaderDamaged)?,
            Found::Nothing | Found::Torn => return Err(ReadError::HeaderCut),
            Found::Frame(_) | Found::BadLength | Found::BadChecksum => return Err(ReadError::HeaderDamaged),
        };
        let at = start.len() as u64 + read;
        let previous = Shared::default();
        Ok(Self { input, header, at, payload, previous, skipped: 0, ending: None, failed: false })
    }

    /// What was asked for, and where.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the recording ended. `None` until the iteration is over, and after an error.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Frames left out so far because this version does not know their kind.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next Sample; `None` once the ending is known.
    fn advance(&mut self) -> Result<Option<Sample>, ReadError> {
        while self.ending.is_none() {
            let (found, read) = frame::read(&mut self.input, &mut self.payload)?;
            match self.judge(&found) {
                Next::Sample(mut sample) => {
                    self.at += read;
                    self.previous.share(&mut sample);
                    return Ok(Some(*sample));
                }
                Next::Skip => {
                    self.at += read;
                    self.skipped += 1;
                }
                Next::End(end) => {
                    let lost_bytes = io::copy(&mut self.input, &mut io::sink())?;
                    let (at, damage) = (self.at + read, Damage::Misplaced);
                    let more = Ending::Corrupt { at, lost_bytes, damage };
                    self.ending = Some(if lost_bytes == 0 { Ending::Clean(end) } else { more });
                }
                Next::Damage(damage) => {
                    let lost_bytes = read + io::copy(&mut self.input, &mut io::sink())?;
                    self.ending = Some(Ending::Corrupt { at: self.at, lost_bytes, damage });
                }
                Next::Nothing => self.ending = Some(Ending::Killed),
                Next::Torn => self.ending = Some(Ending::Torn { lost_bytes: read }),
            }
        }
        Ok(None)
    }

    fn judge(&self, found: &Found) -> Next {
        match found {
            Found::Nothing => Next::Nothing,
            Found::Torn => Next::Torn,
            Found::BadLength => Next::Damage(Damage::Length),
            Found::BadChecksum => Next::Damage(Damage::Checksum),
            Found::Frame(kind::HEADER) => Next::Damage(Damage::Misplaced),
            Found::Frame(kind::END) => decode(&self.payload).map_or(Next::Damage(Damage::Payload), Next::End),
            Found::Frame(kind::SAMPLE) => match decode(&self.payload) {
                None => Next::Damage(Damage::Payload),
                Some(sample) => match rules::broken(&sample) {
                    Some(rule) => Next::Damage(Damage::Sample(rule)),
                    None => Next::Sample(Box::new(sample)),
                },
            },
            Found::Frame(_) => Next::Skip,
        }
    }
}

impl<R: Read> Iterator for Reader<R> {
    type Item = Result<Sample, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance();
        self.failed = next.is_err();
        next.transpose()
    }
}

/// What a frame means for the iteration.
enum Next {
    Sample(Box<Sample>),
    Skip,
    End(End),
    Damage(Damage),
    Nothing,
    Torn,
}

/// Every byte must be used: a payload of another shape is likelier to be found out.
fn decode<T: DeserializeOwned>(payload: &[u8]) -> Option<T> {
    postcard::take_from_bytes(payload).ok().filter(|(_, rest)| rest.is_empty()).map(|(value, _)| value)
}

/// The cgscope that wrote a header of another version: its first member in all of them.
fn writer_of(frame: &Found, payload: &[u8]) -> Option<String> {
    match frame {
        Found::Frame(kind::HEADER) => postcard::take_from_bytes(payload).ok().map(|(version, _)| version),
        _ => None,
    }
}

/// The names and histograms of the Sample before. Most tasks of a host sleep: what did not change is kept once for
/// all Samples, as the collector does it, and not once for each.
#[derive(Debug, Default)]
struct Shared {
    tasks: Vec<(u64, Arc<str>, Arc<Hist>)>,
    cgroups: Vec<(u64, Arc<str>)>,
}

impl Shared {
    fn share(&mut self, sample: &mut Sample) {
        let mut earlier = self.tasks.iter().peekable();
        for task in &mut sample.tasks {
            while earlier.next_if(|before| before.0 < task.serial).is_some() {}
            if let Some((_, comm, hist)) = earlier.next_if(|before| before.0 == task.serial) {
                keep(&mut task.comm, comm);
                keep(&mut task.hist, hist);
            }
        }
        let mut earlier = self.cgroups.iter().peekable();
        for (id, path) in &mut sample.cgroups {
            while earlier.next_if(|before| before.0 < *id).is_some() {}
            if let Some((_, before)) = earlier.next_if(|before| before.0 == *id) {
                keep(path, before);
            }
        }
        self.tasks.clear();
        self.tasks
            .extend(sample.tasks.iter().map(|task| (task.serial, task.comm.clone(), task.hist.clone())));
        self.cgroups.clone_from(&sample.cgroups);
    }
}

fn keep<T: PartialEq + ?Sized>(now: &mut Arc<T>, before: &Arc<T>) {
    if **now == **before {
        *now = Arc::clone(before);
    }
}
