//! Reads recordings. The reader verifies the checksum of each frame before it uses the frame. An index holds the positions of
//! samples. After damage, a search finds the next key frame.

use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::{collections::BTreeSet, fs::File, os::fd::AsRawFd, path::PathBuf, sync::Arc};

use cgscope_ledger::Loss;
use cgscope_model::{Losses, Sample, TaskReading};
use memchr::memmem;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};

use crate::{
    Damage, End, Ending, FileError, Gap, Header, MAGIC, ReadError,
    codec::{Clocks, SYNC, SampleDecoder},
    frame::{self, Found, HEAD, Opening, kind},
    rows::out_of_order,
};

/// Reads a recording: iterates over its samples. Only an I/O error ends it early. Then [`Reader::ending`] says how it ended.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    pub header: Header,
    decoder: SampleDecoder,
    /// Offsets of the first frame after the header, of the next frame, and of the last frame that was read.
    start: u64,
    at: u64,
    last: u64,
    payload: Vec<u8>,
    /// Number of frames that were skipped so far because this version does not know their kinds.
    pub skipped: u64,
    /// The damaged parts that were skipped so far.
    pub gaps: Vec<Gap>,
    /// The damaged part after which the reader has found no usable frame yet. Its `lost_bytes` is not known yet.
    lost: Option<Gap>,
    /// Number of bytes that all searches have read so far.
    searched: u64,
    /// How the recording ended. `None` before the end of the iteration and after an error.
    pub ending: Option<Ending>,
    failed: bool,
}

/// A [`Reader`] of a file.
pub type FileReader = Reader<BufReader<File>>;

/// Opens a recording. Reading needs positions in the file, so a pipe is first copied to an unnamed file.
pub fn open(path: impl Into<PathBuf>) -> Result<FileReader, FileError<ReadError>> {
    let path = path.into();
    let reader = File::open(&path).map_err(ReadError::Io);
    reader
        .and_then(|file| if file.metadata()?.is_file() { Ok(file) } else { copied(file) })
        .and_then(|file| Reader::new(BufReader::with_capacity(1 << 16, file)))
        .map_err(|error| FileError { path, error })
}

impl FileReader {
    /// Opens the same recording again, and starts at its first sample. This works even if the file was deleted.
    ///
    /// # Errors
    /// Fails if `/proc` is not mounted, or the header cannot be read.
    pub fn again(&self) -> Result<Self, ReadError> {
        let same = format!("/proc/self/fd/{}", self.input.get_ref().as_raw_fd());
        Self::new(BufReader::with_capacity(1 << 16, File::open(same)?))
    }
}

/// Copies a pipe to an unnamed file. If the directory for temporary files is not writable, the copy is in memory.
fn copied(mut pipe: File) -> Result<File, ReadError> {
    let mut start = Vec::new();
    (&mut pipe).take(MAGIC.len() as u64).read_to_end(&mut start)?;
    let folder = std::env::temp_dir();
    let mut copy = || -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&folder, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.or_else(|_| memfd_create("recording", MemfdFlags::CLOEXEC))?);
        file.write_all(&start)?;
        // Check the first bytes before the rest: a pipe with other data may never end.
        if start == MAGIC {
            io::copy(&mut pipe, &mut file)?;
        }
        file.rewind()?;
        Ok(file)
    };
    let failed = |error| {
        let folder = folder.display();
        io::Error::other(format!("its copy in {folder} failed: {error}; set TMPDIR to another directory"))
    };
    Ok(copy().map_err(failed)?)
}

impl<R: Read + Seek> Reader<R> {
    /// Reads the header. `input` should be buffered, and must be at its start.
    pub fn new(mut input: R) -> Result<Self, ReadError> {
        let opening = Opening::read(&mut input)?;
        let (header, decoder) = opening.header()?;
        let Opening { payload, bytes: start, .. } = opening;
        Ok(Self {
            input,
            header,
            decoder,
            start,
            at: start,
            last: start,
            payload,
            skipped: 0,
            gaps: Vec::new(),
            lost: None,
            searched: 0,
            ending: None,
            failed: false,
        })
    }

    /// Returns the number of lost samples so far.
    pub fn losses(&self) -> Losses {
        let mut losses = self.ending.as_ref().map(Ending::losses).unwrap_or_default();
        losses.add(Loss::SamplesUnreadable, self.gaps.iter().map(|gap| gap.samples).sum());
        losses
    }

    /// Decodes only these tables. A table has the name of a member of [`Sample`], or `whole` for all members that are neither
    /// lists nor times. `rows` limits a table to rows with these ids. Everything else is empty in the samples. Call this before
    /// the first sample.
    pub fn only(&mut self, tables: &[&str], rows: &[(&str, BTreeSet<u64>)]) {
        self.decoder.only(tables, rows);
    }

    /// Reads the whole file without decompressing it. Returns the positions of all samples, and starts again at the first.
    pub fn index(&mut self) -> Result<Index, ReadError> {
        let mut index = Index::new();
        self.go_to(self.start)?;
        loop {
            let (found, read) = frame::read(&mut self.input, &mut self.payload)?;
            match found {
                Found::Frame(kind @ (kind::KEY | kind::DELTA)) => {
                    let is_key = kind == kind::KEY;
                    let clocks =
                        if is_key { self.payload.strip_prefix(&SYNC) } else { Some(self.payload.as_slice()) };
                    // Omit a damaged frame, as the iteration does.
                    if let Some(Clocks { unix_ns, mono_ns }) = clocks.and_then(Clocks::of) {
                        index.push(IndexEntry { at: self.at, is_key, unix_ns, mono_ns });
                    }
                }
                Found::Frame(kind::END) if serde_json::from_slice::<End>(&self.payload).is_ok() => break,
                Found::Frame(kind::HEADER) | Found::Nothing => break,
                Found::Frame(_) => {}
                Found::BadChecksum if self.is_frame(self.at + read)? => {}
                Found::Torn | Found::BadLength | Found::BadChecksum => {
                    let Some(next) = self.find_key(self.at + 1)? else { break };
                    self.go_on_at(next)?;
                    continue;
                }
            }
            self.at += read;
        }
        self.go_to(self.start)?;
        Ok(index)
    }

    /// Makes the sample with this number the next sample. Ends the iteration if there is no such sample.
    pub fn seek(&mut self, index: &[IndexEntry], number: usize) -> Result<(), ReadError> {
        let Some(target) = index.get(number) else {
            while self.step()?.is_some() || self.ending.is_none() {}
            return Ok(());
        };
        // Decoding must start from a key frame.
        let key = index[..=number].iter().rfind(|entry| entry.is_key).unwrap_or(target);
        self.go_to(key.at)?;
        while self.at < target.at && self.ending.is_none() {
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
        self.decoder.has_base = false;
        Ok(())
    }

    /// Returns the next sample without its tasks, which would be most of the work (see [`Self::tasks`]). `None` at the end.
    pub fn next_without_tasks(&mut self) -> Result<Option<Sample>, ReadError> {
        self.advance(false)
    }

    /// Returns the tasks of the last sample. `None` if they are damaged; the next sample is then the first after the damage.
    pub fn tasks(&mut self) -> Result<Option<Vec<Arc<TaskReading>>>, ReadError> {
        let tasks = self.decoder.tasks();
        let is_right = tasks.as_ref().is_some_and(|tasks| tasks.is_sorted_by(|a, b| a.serial < b.serial));
        if is_right {
            return Ok(tasks);
        }
        self.distrust(self.last, Damage::Payload);
        Ok(None)
    }

    /// From now on, stores tasks for [`Self::take_new_tasks`] and [`Self::take_exited_tasks`]. Call both regularly.
    pub fn keep_changes(&mut self) {
        if let Some((tasks, _)) = self.decoder.tasks_table() {
            tasks.keeps_changes = true;
        }
    }

    /// Returns the tasks that appeared since the last call, in order. Each task has its figures from its first sample.
    pub fn take_new_tasks(&mut self) -> Vec<Arc<TaskReading>> {
        self.decoder.tasks_table().map(|(tasks, _)| std::mem::take(&mut tasks.came)).unwrap_or_default()
    }

    /// Returns the tasks that disappeared since the last call, in order. Each task has its figures from its last sample.
    pub fn take_exited_tasks(&mut self) -> Vec<Arc<TaskReading>> {
        self.decoder.tasks_table().map(|(tasks, _)| std::mem::take(&mut tasks.last_rows)).unwrap_or_default()
    }

    fn advance(&mut self, with_tasks: bool) -> Result<Option<Sample>, ReadError> {
        while self.ending.is_none() {
            self.last = self.at;
            let Some(clocks) = self.step()? else { continue };
            let sample = self.decoder.sample(clocks, with_tasks);
            let damage = match &sample {
                Some(sample) => out_of_order(sample).map(Damage::Sample),
                None => Some(Damage::Payload),
            };
            match damage {
                None => return Ok(sample),
                Some(damage) => self.distrust(self.last, damage),
            }
        }
        Ok(None)
    }

    /// Reads one frame. If the frame contains a sample, returns its times; the decoder can then return the sample.
    fn step(&mut self) -> Result<Option<Clocks>, ReadError> {
        if self.ending.is_some() {
            return Ok(None);
        }
        let at = self.at;
        let (found, read) = frame::read(&mut self.input, &mut self.payload)?;
        self.at += read;
        match found {
            Found::Frame(kind::DELTA) if self.lost.is_some() => self.lost_from(at, Damage::Payload),
            Found::Frame(kind @ (kind::KEY | kind::DELTA)) => {
                if let Some(clocks) = self.decoder.apply(kind == kind::KEY, &self.payload) {
                    self.found_again(at);
                    return Ok(Some(clocks));
                }
                self.distrust(at, Damage::Payload);
            }
            Found::Frame(kind::END) => match serde_json::from_slice(&self.payload) {
                Ok(end) => self.end(end)?,
                Err(_) => self.distrust(at, Damage::Payload),
            },
            // Another recording begins here.
            Found::Frame(kind::HEADER) => {
                self.ending = Some(Ending::Corrupt(self.rest(at, Damage::Misplaced)?))
            }
            Found::Frame(_) => self.skipped += 1,
            Found::Nothing => self.finish(Ending::Killed)?,
            Found::Torn => self.damage(at, Damage::Length, Some(Ending::Torn { lost_bytes: read }))?,
            Found::BadLength => self.damage(at, Damage::Length, None)?,
            // Another frame begins where this frame ends, so the length of this frame is correct.
            Found::BadChecksum if self.is_frame(self.at)? => self.lost_from(at, Damage::Checksum),
            Found::BadChecksum => self.damage(at, Damage::Checksum, None)?,
        }
        Ok(None)
    }

    fn end(&mut self, end: End) -> Result<(), ReadError> {
        let rest = self.rest(self.at, Damage::Misplaced)?;
        self.finish(if rest.lost_bytes == 0 { Ending::Clean(end) } else { Ending::Corrupt(rest) })
    }

    /// Ends the iteration. If no usable frame follows a damaged part, the ending is this damage instead of `ending`.
    fn finish(&mut self, ending: Ending) -> Result<(), ReadError> {
        self.ending = Some(match self.lost.take() {
            Some(lost) => Ending::Corrupt(Gap { lost_bytes: self.bytes_from(lost.at)?, ..lost }),
            None => ending,
        });
        Ok(())
    }

    /// Rejects a frame with correct checksum and length but wrong contents. The next usable frame is the next key frame.
    fn distrust(&mut self, at: u64, damage: Damage) {
        self.decoder.clear();
        self.lost_from(at, damage);
    }

    /// Skips a damaged part up to the next key frame. If no key frame follows, the ending is `ending`; if that is `None`, the
    /// ending is [`Ending::Corrupt`].
    fn damage(&mut self, at: u64, damage: Damage, ending: Option<Ending>) -> Result<(), ReadError> {
        if let Some(next) = self.find_key(at + 1)? {
            self.lost_from(at, damage);
            return Ok(self.go_on_at(next)?);
        }
        let rest = Ending::Corrupt(self.rest(at, damage)?);
        self.finish(ending.unwrap_or(rest))
    }

    fn lost_from(&mut self, at: u64, damage: Damage) {
        self.lost.get_or_insert(Gap { at, damage, samples: 0, lost_bytes: 0 }).samples += 1;
    }

    /// Ends the current damaged part, if any, because a usable key frame is at `at`.
    fn found_again(&mut self, at: u64) {
        let Some(lost) = self.lost.take() else { return };
        // After a seek, the reader may find the same gap again.
        if let Err(place) = self.gaps.binary_search_by_key(&lost.at, |gap| gap.at) {
            self.gaps.insert(place, Gap { lost_bytes: at - lost.at, ..lost });
        }
    }

    fn rest(&mut self, at: u64, damage: Damage) -> io::Result<Gap> {
        Ok(Gap { at, lost_bytes: self.bytes_from(at)?, damage, samples: 1 })
    }

    /// Returns the number of bytes from `at` to the current end of the file, which the writer may have cut.
    fn bytes_from(&mut self, at: u64) -> io::Result<u64> {
        Ok(self.input.seek(SeekFrom::End(0))?.saturating_sub(at))
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

/// The positions and times of all samples of a recording, in order.
pub type Index = Vec<IndexEntry>;

/// A sample in an [`Index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    at: u64,
    is_key: bool,
    pub unix_ns: u64,
    pub mono_ns: u64,
}

/// All searches together may read this many times the size of the file. Without a limit, a search in a badly damaged file could
/// take minutes.
const MOST_TIMES: u64 = 4;
/// Number of bytes that the searches may read even if the file is small.
const LEAST: u64 = 1 << 20;

/// Searches after damage.
impl<R: Read + Seek> Reader<R> {
    /// Returns the offset of the next complete key frame at or after `from`. Stops where another recording starts.
    fn find_key(&mut self, from: u64) -> io::Result<Option<u64>> {
        let length = self.input.seek(SeekFrom::End(0))?;
        let mut from = from.saturating_add(HEAD as u64);
        while let Some((mark, is_key)) = self.mark(from, length)? {
            if !is_key {
                return Ok(None);
            }
            let frame = mark - HEAD as u64;
            self.input.seek(SeekFrom::Start(frame))?;
            frame::read_up_to(&mut self.input, 4, &mut self.payload)?;
            let payload = self.payload.first_chunk().map(|head| u64::from(u32::from_le_bytes(*head)));
            // Skip a frame that would extend beyond the end of the file.
            if payload.is_some_and(|payload| frame + HEAD as u64 + payload <= length) {
                self.input.seek(SeekFrom::Start(frame))?;
                let (found, read) = frame::read(&mut self.input, &mut self.payload)?;
                self.searched += read;
                if matches!(found, Found::Frame(kind::KEY)) {
                    return Ok(Some(frame));
                }
            }
            from = mark + 1;
        }
        Ok(None)
    }

    /// Returns whether a complete frame or the end of the file is at `at`. Leaves the input at `at`.
    fn is_frame(&mut self, at: u64) -> io::Result<bool> {
        self.input.seek(SeekFrom::Start(at))?;
        let (found, read) = frame::read(&mut self.input, &mut self.payload)?;
        self.searched += read;
        self.input.seek(SeekFrom::Start(at))?;
        Ok(matches!(found, Found::Frame(_) | Found::Nothing))
    }

    /// Returns the offset of the next mark, and whether it marks a key frame (true) or a recording's start (false).
    fn mark(&mut self, from: u64, length: u64) -> io::Result<Option<(u64, bool)>> {
        const PIECE: u64 = 1 << 16;
        let (mut at, mut piece) = (from, Vec::new());
        while self.searched <= LEAST.max(length.saturating_mul(MOST_TIMES)) {
            self.input.seek(SeekFrom::Start(at))?;
            frame::read_up_to(&mut self.input, PIECE, &mut piece)?;
            let got = piece.len() as u64;
            self.searched += got;
            let first = |bytes: &[u8]| memmem::find(&piece, bytes);
            match (first(&SYNC), first(&MAGIC)) {
                (Some(key), magic) if magic.is_none_or(|magic| key < magic) => {
                    return Ok(Some((at + key as u64, true)));
                }
                (_, Some(magic)) => return Ok(Some((at + magic as u64, false))),
                _ if got < PIECE => return Ok(None),
                // Overlap the pieces, because a mark may cross the end of a piece.
                _ => at += PIECE - SYNC.len() as u64 + 1,
            }
        }
        Ok(None)
    }
}
