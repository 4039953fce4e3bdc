//! Reads recordings. No frame is used before its checksum is verified. An index has the positions of samples, and a search finds the next key
//! frame after damage.

use std::{
    collections::BTreeSet,
    fs::File,
    io::{self, BufReader, Read, Seek, SeekFrom, Write},
    os::fd::AsRawFd,
    path::PathBuf,
    sync::Arc,
};

use cgscope_ledger::Loss;
use cgscope_model::{Losses, Sample, TaskReading};
use memchr::memmem;
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};

use crate::{
    Damage, End, Ending, FileError, Gap, Header, MAGIC, ReadError,
    codec::{Clocks, SYNC, SampleDecoder},
    frame::{self, Found, HEAD, kind},
    header::Opening,
    rows::out_of_order,
};

/// Reads a recording: an iterator over its samples, then [`Reader::ending`]. Only I/O errors end the iteration early.
#[derive(Debug)]
pub struct Reader<R> {
    input: R,
    header: Header,
    decoder: SampleDecoder,
    /// Offset of the first frame after the header, of the next frame, and of the last frame that was read.
    start: u64,
    at: u64,
    last: u64,
    payload: Vec<u8>,
    skipped: u64,
    gaps: Vec<Gap>,
    /// The damage after which no frame could be used so far. Its `lost_bytes` are not known yet.
    lost: Option<Gap>,
    search: Search,
    ending: Option<Ending>,
    failed: bool,
}

/// A [`Reader`] of a file.
pub type FileReader = Reader<BufReader<File>>;

/// Opens a recording. One that comes through a pipe is copied to a file without a name first, because its frames are found by place.
pub fn open(path: impl Into<PathBuf>) -> Result<FileReader, FileError<ReadError>> {
    let path = path.into();
    let reader = File::open(&path).map_err(ReadError::Io);
    reader
        .and_then(|file| if file.metadata()?.is_file() { Ok(file) } else { copied(file) })
        .and_then(|file| Reader::new(BufReader::with_capacity(1 << 16, file)))
        .map_err(|error| FileError { path, error })
}

impl FileReader {
    /// Opens the same recording again, at its start, also if its name is gone.
    ///
    /// # Errors
    /// If `/proc` is not mounted, or the header cannot be read.
    pub fn again(&self) -> Result<Self, ReadError> {
        let same = format!("/proc/self/fd/{}", self.input.get_ref().as_raw_fd());
        Self::new(BufReader::with_capacity(1 << 16, File::open(same)?))
    }
}

/// Copies a pipe to a file without a name; in memory where the directory for temporary files cannot be written.
fn copied(mut pipe: File) -> Result<File, ReadError> {
    let mut start = Vec::new();
    (&mut pipe).take(MAGIC.len() as u64).read_to_end(&mut start)?;
    let folder = std::env::temp_dir();
    let mut copy = || -> io::Result<File> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&folder, flags, Mode::RUSR | Mode::WUSR);
        let mut file = File::from(file.or_else(|_| memfd_create("recording", MemfdFlags::CLOEXEC))?);
        file.write_all(&start)?;
        // What is no recording may have no end.
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
    /// Reads the header. `input` should be buffered and at its start.
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
            search: Search::default(),
            ending: None,
            failed: false,
        })
    }

    /// The header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// How the recording ended; `None` before the end of the iteration and after an error.
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// Damage that was skipped so far.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Lost samples so far.
    pub fn losses(&self) -> Losses {
        let mut losses = self.ending().map(Ending::losses).unwrap_or_default();
        losses.add(Loss::SamplesUnreadable, self.gaps.iter().map(|gap| gap.samples).sum());
        losses
    }

    /// The number of skipped frames so far, whose kinds this version does not know.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Decodes only these tables from now on: the names of members of [`Sample`], and `whole` for those that are neither lists nor times. Of
    /// the tables in `rows`, only the rows of these ids. Everything else is empty. Call it before the first sample.
    pub fn only(&mut self, tables: &[&str], rows: &[(&str, BTreeSet<u64>)]) {
        self.decoder.only(tables, rows);
    }

    /// Reads the whole file without decompressing, and returns the positions of all samples. The iteration then restarts.
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
                Found::BadChecksum if self.search.is_frame(&mut self.input, self.at + read)? => {}
                Found::Torn | Found::BadLength | Found::BadChecksum => {
                    match self.search.key(&mut self.input, self.at + 1)? {
                        Some(next) => {
                            self.go_on_at(next)?;
                            continue;
                        }
                        None => break,
                    }
                }
            }
            self.at += read;
        }
        self.go_to(self.start)?;
        Ok(index)
    }

    /// Makes the sample with this number the next one. If there is no such sample, the iteration ends.
    pub fn seek(&mut self, index: &Index, number: usize) -> Result<(), ReadError> {
        let Some((key, target)) = index.key_and_frame(number) else {
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

    /// The next sample without its tasks, which take most of the work; see [`Self::tasks`]. `None` once the ending is known.
    pub fn next_without_tasks(&mut self) -> Result<Option<Sample>, ReadError> {
        self.advance(false)
    }

    /// The tasks of the last sample. `None` if they are damaged; then the next sample is one after the damage.
    pub fn tasks(&mut self) -> Result<Option<Vec<Arc<TaskReading>>>, ReadError> {
        let tasks = self.decoder.tasks();
        let is_right = tasks.as_ref().is_some_and(|tasks| tasks.is_sorted_by(|a, b| a.serial < b.serial));
        if is_right {
            return Ok(tasks);
        }
        self.distrust(self.last, Damage::Payload);
        Ok(None)
    }

    /// Keeps tasks that appear or disappear from now on for [`Self::take_new_tasks`] and [`Self::take_exited_tasks`]. Call both.
    pub fn keep_changes(&mut self) {
        if let Some((tasks, _)) = self.decoder.tasks_table() {
            tasks.keeps_changes = true;
        }
    }

    /// The tasks that appeared since the last call, as in their first sample, in order.
    pub fn take_new_tasks(&mut self) -> Vec<Arc<TaskReading>> {
        self.decoder.tasks_table().map(|(tasks, _)| std::mem::take(&mut tasks.came)).unwrap_or_default()
    }

    /// The tasks that disappeared since the last call, as in their last sample, in order.
    pub fn take_exited_tasks(&mut self) -> Vec<Arc<TaskReading>> {
        self.decoder.tasks_table().map(|(tasks, _)| std::mem::take(&mut tasks.last_rows)).unwrap_or_default()
    }

    /// The next sample; `None` once the ending is known.
    fn advance(&mut self, with_tasks: bool) -> Result<Option<Sample>, ReadError> {
        while self.ending.is_none() {
            self.last = self.at;
            let Some(clocks) = self.step()? else { continue };
            let sample = if with_tasks {
                self.decoder.sample(clocks)
            } else {
                self.decoder.sample_without_tasks(clocks)
            };
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

    /// Reads one frame. If the frame holds a sample, the decoder then holds that sample.
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
            // Another recording starts here.
            Found::Frame(kind::HEADER) => {
                self.ending = Some(Ending::Corrupt(self.rest(at, Damage::Misplaced)?))
            }
            Found::Frame(_) => self.skipped += 1,
            Found::Nothing => self.finish(Ending::Killed)?,
            Found::Torn => self.damage(at, Damage::Length, Some(Ending::Torn { lost_bytes: read }))?,
            Found::BadLength => self.damage(at, Damage::Length, None)?,
            // A frame follows where this one ends, so its length is right.
            Found::BadChecksum if self.search.is_frame(&mut self.input, self.at)? => {
                self.lost_from(at, Damage::Checksum)
            }
            Found::BadChecksum => self.damage(at, Damage::Checksum, None)?,
        }
        Ok(None)
    }

    fn end(&mut self, end: End) -> Result<(), ReadError> {
        let rest = self.rest(self.at, Damage::Misplaced)?;
        self.finish(if rest.lost_bytes == 0 { Ending::Clean(end) } else { Ending::Corrupt(rest) })
    }

    /// Ends the iteration. Damage without a later key frame takes precedence over `ending`.
    fn finish(&mut self, ending: Ending) -> Result<(), ReadError> {
        self.ending = Some(match self.lost.take() {
            Some(lost) => Ending::Corrupt(Gap { lost_bytes: self.bytes_from(lost.at)?, ..lost }),
            None => ending,
        });
        Ok(())
    }

    /// Rejects a frame with a right checksum but wrong contents. Its length is right too, but only a key frame can be used next.
    fn distrust(&mut self, at: u64, damage: Damage) {
        self.decoder.clear();
        self.lost_from(at, damage);
    }

    /// Skips damage up to the next key frame. If there is none, the recording ends as `ending`, or as corrupt.
    fn damage(&mut self, at: u64, damage: Damage, ending: Option<Ending>) -> Result<(), ReadError> {
        if let Some(next) = self.search.key(&mut self.input, at + 1)? {
            self.lost_from(at, damage);
            return Ok(self.go_on_at(next)?);
        }
        let rest = Ending::Corrupt(self.rest(at, damage)?);
        self.finish(ending.unwrap_or(rest))
    }

    fn lost_from(&mut self, at: u64, damage: Damage) {
        self.lost.get_or_insert(Gap { at, damage, samples: 0, lost_bytes: 0 }).samples += 1;
    }

    /// Ends the damaged part: the key frame at `at` could be used.
    fn found_again(&mut self, at: u64) {
        let Some(lost) = self.lost.take() else { return };
        // After a seek, the same gap may be read again.
        if let Err(place) = self.gaps.binary_search_by_key(&lost.at, |gap| gap.at) {
            self.gaps.insert(place, Gap { lost_bytes: at - lost.at, ..lost });
        }
    }

    fn rest(&mut self, at: u64, damage: Damage) -> io::Result<Gap> {
        Ok(Gap { at, lost_bytes: self.bytes_from(at)?, damage, samples: 1 })
    }

    /// Bytes from `at` to the end of the file. Reads the file length again, as the writer may have cut the file.
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

/// The samples of a recording in order, with their times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    entries: Vec<IndexEntry>,
}

/// A sample in an [`Index`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Offset of the sample's frame.
    at: u64,
    is_key: bool,
    /// Wall clock, ns since 1970.
    pub unix_ns: u64,
    /// CLOCK_MONOTONIC, ns.
    pub mono_ns: u64,
}

impl Index {
    /// The samples.
    pub fn entries(&self) -> &[IndexEntry] {
        &self.entries
    }

    /// Adds a sample. Omits a damaged frame, as the reader does.
    pub(crate) fn add(&mut self, at: u64, found: &Found, payload: &[u8]) {
        let is_key = matches!(found, Found::Frame(kind::KEY));
        let clocks = if is_key { payload.strip_prefix(&SYNC) } else { Some(payload) };
        if let Some(Clocks { unix_ns, mono_ns }) = clocks.and_then(Clocks::of) {
            self.entries.push(IndexEntry { at, is_key, unix_ns, mono_ns });
        }
    }

    /// Offsets of the key frame from which a sample must be read, and of the sample's own frame.
    pub(crate) fn key_and_frame(&self, number: usize) -> Option<(u64, u64)> {
        let target = self.entries.get(number)?;
        let key = self.entries[..=number].iter().rfind(|entry| entry.is_key).unwrap_or(target);
        Some((key.at, target.at))
    }
}

/// The search for frames after damage.
#[derive(Debug, Default)]
pub(crate) struct Search {
    /// Bytes read so far.
    read: u64,
    piece: Vec<u8>,
    payload: Vec<u8>,
}

/// The search may read this many times the file size. Without a limit, a heavily damaged file could take minutes.
const MOST_TIMES: u64 = 4;
/// Bytes that the search may read even of a small file.
const LEAST: u64 = 1 << 20;

impl Search {
    /// Offset of the next complete key frame at or after `from`. The search stops at the start of another recording, whose frames
    /// do not belong to this one.
    pub(crate) fn key(&mut self, input: &mut (impl Read + Seek), from: u64) -> io::Result<Option<u64>> {
        let length = input.seek(SeekFrom::End(0))?;
        let mut from = from.saturating_add(HEAD as u64);
        while let Some((mark, is_key)) = self.mark(input, from, length)? {
            if !is_key {
                return Ok(None);
            }
            let frame = mark - HEAD as u64;
            input.seek(SeekFrom::Start(frame))?;
            frame::read_up_to(input, 4, &mut self.payload)?;
            let payload = self.payload.first_chunk().map(|head| u64::from(u32::from_le_bytes(*head)));
            // Do not read a frame that would end after the end of the file.
            if payload.is_some_and(|payload| frame + HEAD as u64 + payload <= length) {
                input.seek(SeekFrom::Start(frame))?;
                let (found, read) = frame::read(input, &mut self.payload)?;
                self.read += read;
                if matches!(found, Found::Frame(kind::KEY)) {
                    return Ok(Some(frame));
                }
            }
            from = mark + 1;
        }
        Ok(None)
    }

    /// Whether a complete frame or the end of the file is at `at`. Leaves `input` at `at`.
    pub(crate) fn is_frame(&mut self, input: &mut (impl Read + Seek), at: u64) -> io::Result<bool> {
        input.seek(SeekFrom::Start(at))?;
        let (found, read) = frame::read(input, &mut self.payload)?;
        self.read += read;
        input.seek(SeekFrom::Start(at))?;
        Ok(matches!(found, Found::Frame(_) | Found::Nothing))
    }

    /// The offset of the next mark of a key frame (true) or of the start of a recording (false).
    fn mark(
        &mut self,
        input: &mut (impl Read + Seek),
        from: u64,
        length: u64,
    ) -> io::Result<Option<(u64, bool)>> {
        const PIECE: u64 = 1 << 16;
        let mut at = from;
        while self.read <= LEAST.max(length.saturating_mul(MOST_TIMES)) {
            input.seek(SeekFrom::Start(at))?;
            frame::read_up_to(input, PIECE, &mut self.piece)?;
            let got = self.piece.len() as u64;
            self.read += got;
            let first = |bytes: &[u8]| memmem::find(&self.piece, bytes);
            match (first(&SYNC), first(&MAGIC)) {
                (Some(key), magic) if magic.is_none_or(|magic| key < magic) => {
                    return Ok(Some((at + key as u64, true)));
                }
                (_, Some(magic)) => return Ok(Some((at + magic as u64, false))),
                _ if got < PIECE => return Ok(None),
                // A mark may cross the end of the piece.
                _ => at += PIECE - SYNC.len() as u64 + 1,
            }
        }
        Ok(None)
    }
}
