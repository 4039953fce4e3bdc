//! Reading. Nothing in the file is believed before its checksum fits.

use std::{
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom},
    path::PathBuf,
};

use cgscope_layout::Loss;
use cgscope_model::{Losses, Sample, TaskReading};

use crate::{
    Damage, End, Ending, FileError, Gap, Header, ReadError,
    codec::{Clocks, SampleDecoder},
    frame::{self, Found, kind},
    header::First,
    index::Index,
    opening::{Opening, first},
    rules,
    search::Search,
};

/// Reads a recording: an iterator over its Samples, then [`Reader::ending`].
///
/// The only errors on the way are those of the device; they end the iteration.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    decoder: SampleDecoder,
    /// Where the first frame after the header begins, and the next one.
    start: u64,
    at: u64,
    /// Where the last one begins.
    last: u64,
    payload: Vec<u8>,
    skipped: u64,
    gaps: Vec<Gap>,
    /// Since there nothing could be used.
    lost: Option<Lost>,
    search: Search,
    ending: Option<Ending>,
    failed: bool,
}

/// Where the reading broke off, and what was lost since.
#[derive(Clone, Copy, Debug)]
struct Lost {
    at: u64,
    damage: Damage,
    samples: u64,
}

/// A [`Reader`] of a file.
pub type FileReader = Reader<BufReader<File>>;

/// Opens a recording.
pub fn open(path: impl Into<PathBuf>) -> Result<FileReader, FileError<ReadError>> {
    let path = path.into();
    let reader = File::open(&path).map_err(ReadError::Io);
    reader
        .and_then(|file| Reader::new(BufReader::with_capacity(1 << 16, file)))
        .map_err(|error| FileError { path, error })
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the header. Give it something buffered that is at its beginning.
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let Opening { found, payload, bytes: start } = Opening::read(&mut input)?;
        let First { header, tables }: First<Header> = match found {
            Found::Frame(kind::HEADER) => first(&payload)?,
            Found::Nothing | Found::Torn => return Err(ReadError::HeaderCut),
            Found::Frame(_) | Found::BadLength | Found::BadChecksum => return Err(ReadError::HeaderDamaged),
        };
        Ok(Self {
            input,
            header: header.printable(),
            decoder: SampleDecoder::new(&tables)?,
            start,
            at: start,
            last: start,
            payload,
            skipped: 0,
            gaps: Vec::new(),
            lost: None,
            search: Search::default(),
            ending: None,
            failed: false,
        })
    }

    /// What was asked for, and where.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the recording ended. `None` until the iteration is over, and after an error.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Damage that was gone over so far.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// What is missing so far, as outputs show it.
    pub fn losses(&self) -> Losses {
        let mut losses = self.ending().map(Ending::losses).unwrap_or_default();
        losses.add(Loss::SamplesUnreadable, self.gaps.iter().map(|gap| gap.samples).sum());
        losses
    }

    /// Frames left out so far because this version does not know their kind.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Where all Samples are. Goes over the file without unpacking it; afterwards the iteration begins anew.
    pub fn index(&mut self) -> Result<Index, ReadError> {
        let mut index = Index::default();
        self.go_to(self.start)?;
        let mut payload = Vec::new();
        loop {
            let (found, read) = frame::read(&mut self.input, &mut payload)?;
            match found {
                Found::Frame(kind::KEY | kind::DELTA) => index.add(self.at, &found, &payload),
                Found::Frame(kind::END) if serde_json::from_slice::<End>(&payload).is_ok() => break,
                Found::Frame(kind::HEADER) | Found::Nothing => break,
                Found::Frame(_) => {}
                Found::BadChecksum if self.is_frame(self.at + read)? => {}
                Found::Torn | Found::BadLength | Found::BadChecksum => match self.find_key(self.at + 1)? {
                    Some(next) => {
                        self.go_on_at(next)?;
                        continue;
                    }
                    None => break,
                },
            }
            self.at += read;
        }
        self.go_to(self.start)?;
        Ok(index)
    }

    /// Makes the Sample with this number in the index the next one. Past the last one the iteration is over.
    pub fn seek(&mut self, index: &Index, number: usize) -> Result<(), ReadError> {
        let Some((key, target)) = index.way_to(number) else {
            while self.step()?.is_some() || self.ending.is_none() {}
            return Ok(());
        };
        self.go_to(key)?;
        while self.at < target && self.ending.is_none() {
            self.step()?;
        }
        Ok(())
    }

    fn go_to(&mut self, at: u64) -> io::Result<()> {
        self.decoder.clear();
        (self.ending, self.failed, self.lost) = (None, false, None);
        self.go_on_at(at)
    }

    fn go_on_at(&mut self, at: u64) -> io::Result<()> {
        self.input.seek(SeekFrom::Start(at))?;
        self.at = at;
        self.decoder.break_off();
        Ok(())
    }

    /// The next Sample without its tasks, which are most of the work; [`Self::tasks`] gives them. `None` once the ending is known.
    pub fn next_without_tasks(&mut self) -> Result<Option<Sample>, ReadError> {
        self.advance(false)
    }

    /// The tasks of the last Sample. `None`: they make no sense, and the next Sample will be one after the damage.
    pub fn tasks(&mut self) -> Result<Option<Vec<TaskReading>>, ReadError> {
        let tasks = self.decoder.tasks();
        let is_right = tasks.as_ref().is_some_and(|tasks| tasks.is_sorted_by(|a, b| a.serial < b.serial));
        if is_right {
            return Ok(tasks);
        }
        self.distrust(self.last, Damage::Payload);
        Ok(None)
    }

    /// From here on, tasks that come and go are kept for [`Self::take_new_tasks`] and [`Self::take_gone_tasks`]: ask for both.
    pub fn keep_changes(&mut self) {
        self.decoder.keep_changes();
    }

    /// The tasks that were in a Sample since this was last asked and not in the one before it: as they were read first, in the
    /// order in which they came.
    pub fn take_new_tasks(&mut self) -> Vec<TaskReading> {
        self.decoder.take_new_tasks()
    }

    /// The tasks that were in a Sample since this was last asked, and are not in the last one: as they were read last, in the
    /// order in which they went.
    pub fn take_gone_tasks(&mut self) -> Vec<TaskReading> {
        self.decoder.take_gone_tasks()
    }

    /// The next Sample; `None` once the ending is known.
    fn advance(&mut self, with_tasks: bool) -> Result<Option<Sample>, ReadError> {
        while self.ending.is_none() {
            let before = self.at;
            self.last = before;
            let Some(clocks) = self.step()? else { continue };
            let sample = if with_tasks {
                self.decoder.sample(clocks)
            } else {
                self.decoder.sample_without_tasks(clocks)
            };
            let rule = sample.as_ref().map(rules::out_of_order);
            match (sample, rule) {
                (Some(sample), Some(None)) => return Ok(Some(sample)),
                (_, Some(Some(rule))) => self.distrust(before, Damage::Sample(rule)),
                _ => self.distrust(before, Damage::Payload),
            }
        }
        Ok(None)
    }

    /// Goes over one frame; if it holds a Sample, the decoder has it now.
    fn step(&mut self) -> Result<Option<Clocks>, ReadError> {
        if self.ending.is_some() {
            return Ok(None);
        }
        let at = self.at;
        let (found, read) = frame::read(&mut self.input, &mut self.payload)?;
        self.at += read;
        match found {
            Found::Frame(kind::DELTA) if self.lost.is_some() => self.lost_one_more(),
            Found::Frame(kind @ (kind::KEY | kind::DELTA)) => {
                match self.decoder.apply(kind == kind::KEY, &self.payload) {
                    Some(clocks) => {
                        self.found_again(at);
                        return Ok(Some(clocks));
                    }
                    None => self.distrust(at, Damage::Payload),
                }
            }
            Found::Frame(kind::END) => match serde_json::from_slice(&self.payload) {
                Ok(end) => self.end(end)?,
                Err(_) => self.distrust(at, Damage::Payload),
            },
            // Another recording: nothing of it belongs to this one.
            Found::Frame(kind::HEADER) => self.ending = Some(self.corrupt(at, Damage::Misplaced)?),
            Found::Frame(_) => self.skipped += 1,
            Found::Nothing => self.finish(Ending::Killed)?,
            Found::Torn => match self.find_key(at + 1)? {
                Some(next) => self.lose(at, Damage::Length, next)?,
                None => self.finish(Ending::Torn { lost_bytes: read })?,
            },
            Found::BadLength => self.damage(at, Damage::Length)?,
            // A frame follows where this one says that it ends: then that is right.
            Found::BadChecksum if self.is_frame(self.at)? => self.lost_from(at, Damage::Checksum),
            Found::BadChecksum => self.damage(at, Damage::Checksum)?,
        }
        Ok(None)
    }

    fn end(&mut self, end: End) -> Result<(), ReadError> {
        match self.corrupt(self.at, Damage::Misplaced)? {
            Ending::Corrupt { lost_bytes: 0, .. } => self.finish(Ending::Clean(end)),
            more => self.finish(more),
        }
    }

    /// What was lost and not found again is how it ended.
    fn finish(&mut self, ending: Ending) -> Result<(), ReadError> {
        let ending = match self.lost.take() {
            Some(lost) => Ending::Corrupt {
                samples: lost.samples,
                at: lost.at,
                lost_bytes: self.bytes_from(lost.at)?,
                damage: lost.damage,
            },
            None => ending,
        };
        self.ending = Some(ending);
        Ok(())
    }

    /// A frame whose checksum fits, and so its length, holds what it should not: only a key frame can be believed next.
    fn distrust(&mut self, at: u64, damage: Damage) {
        self.decoder.clear();
        self.lost_from(at, damage);
    }

    /// What follows from a frame that is not as it was written: where the next one begins is not known.
    fn damage(&mut self, at: u64, damage: Damage) -> Result<(), ReadError> {
        match self.find_key(at + 1)? {
            Some(next) => self.lose(at, damage, next),
            None => {
                let ending = self.corrupt(at, damage)?;
                self.finish(ending)
            }
        }
    }

    fn lose(&mut self, at: u64, damage: Damage, next: u64) -> Result<(), ReadError> {
        self.lost_from(at, damage);
        Ok(self.go_on_at(next)?)
    }

    fn lost_from(&mut self, at: u64, damage: Damage) {
        self.lost.get_or_insert(Lost { at, damage, samples: 0 });
        self.lost_one_more();
    }

    fn lost_one_more(&mut self) {
        if let Some(lost) = &mut self.lost {
            lost.samples += 1;
        }
    }

    /// A key frame at `at` could be used.
    fn found_again(&mut self, at: u64) {
        let Some(lost) = self.lost.take() else { return };
        // After seeking the same one is met again.
        if let Err(place) = self.gaps.binary_search_by_key(&lost.at, |gap| gap.at) {
            let Lost { damage, samples, .. } = lost;
            self.gaps.insert(place, Gap { at: lost.at, lost_bytes: at - lost.at, damage, samples });
        }
    }

    fn corrupt(&mut self, at: u64, damage: Damage) -> io::Result<Ending> {
        Ok(Ending::Corrupt { at, lost_bytes: self.bytes_from(at)?, damage, samples: 1 })
    }

    /// Whoever writes may cut the file meanwhile.
    fn bytes_from(&mut self, at: u64) -> io::Result<u64> {
        Ok(self.input.seek(SeekFrom::End(0))?.saturating_sub(at))
    }

    /// Where the next whole key frame at or after `from` begins.
    fn find_key(&mut self, from: u64) -> io::Result<Option<u64>> {
        self.search.key(&mut self.input, from)
    }

    /// A whole frame, or the end of the file, is there; the next read is there, too.
    fn is_frame(&mut self, at: u64) -> io::Result<bool> {
        self.search.is_frame(&mut self.input, at)
    }
}

impl<R: Read + Seek> Iterator for Reader<R> {
    type Item = Result<Sample, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let next = self.advance(true);
        self.failed = next.is_err();
        next.transpose()
    }
}
