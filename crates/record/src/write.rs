//! Writing. One frame is one write, and a frame is in the file whole or not at all.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use cgscope_model::Sample;
use rustix::fs::FallocateFlags;

use crate::{
    Beside, End, FileError, Header, Place, Reason, WriteError,
    codec::SampleEncoder,
    frame::{self, kind},
    opening, rules,
};

/// Writes a recording to anything.
///
/// Nothing is buffered from one frame to the next and there is no fsync: what `write` took is in the page cache, which
/// outlives the process. `kill -9` thus costs at most the last interval; only a crash of the host costs more, and a
/// sync each second would disturb the very disk and scheduler that are watched.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    /// Kept from frame to frame for its memory.
    buffer: Vec<u8>,
    /// Where the last whole frame ends.
    good: u64,
    /// A write failed, and part of a frame may have been written.
    broken: bool,
    unwritten: u64,
    encoder: SampleEncoder,
    reserve: Reserve<W>,
}

/// Makes sure that so many bytes can be written from an offset on.
type Reserve<W> = fn(&W, u64, u64) -> io::Result<()>;

/// What is kept free behind a Sample: an end frame is some hundred bytes long, with the words of a trigger up to a thousand.
const END_BYTES: u64 = 2048;

impl<W: Write> Writer<W> {
    /// Begins a recording.
    pub fn create(output: W, header: &Header) -> Result<Self, WriteError> {
        Self::reserving(output, header, |_, _, _| Ok(()))
    }

    fn reserving(output: W, header: &Header, reserve: Reserve<W>) -> Result<Self, WriteError> {
        let encoder = SampleEncoder::new()?;
        let buffer = Vec::new();
        let mut writer = Self { output, buffer, good: 0, broken: false, unwritten: 0, encoder, reserve };
        writer.begin(header)?;
        Ok(writer)
    }

    fn begin(&mut self, header: &Header) -> Result<(), WriteError> {
        opening::put(&mut self.buffer, header)?;
        self.put_before_end()
    }

    /// Adds a Sample. After an I/O error nothing can be added any more ([`FileWriter`] mends that).
    pub fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        let done = match rules::broken(sample) {
            Some(rule) => Err(WriteError::Invalid(rule)),
            None => self.changes(sample),
        };
        if done.is_err() {
            self.unwritten += 1;
            // The next one must not build on what is not in the file.
            self.encoder.start_anew();
        }
        done
    }

    fn changes(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.buffer.clear();
        frame::append(&mut self.buffer, |out| self.encoder.encode(sample, out))?;
        self.put_before_end()
    }

    /// Closes the recording and gives back what it was written to.
    pub fn end(mut self, unix_ns: u64, reason: Reason) -> Result<W, WriteError> {
        self.finish(unix_ns, reason)?;
        Ok(self.output)
    }

    /// Bytes written in whole frames.
    pub fn bytes(&self) -> u64 {
        self.good
    }

    /// Samples that could not be written so far.
    pub fn unwritten(&self) -> u64 {
        self.unwritten
    }

    fn finish(&mut self, unix_ns: u64, reason: Reason) -> Result<(), WriteError> {
        let end = End { unix_ns, reason, unwritten: self.unwritten };
        self.buffer.clear();
        frame::append_json(&mut self.buffer, kind::END, &end)?;
        self.put()
    }

    /// Writes the buffer, if there is room for it and for an end behind it: the disk that refuses the next Sample must still take
    /// the words that this is how the recording ended.
    fn put_before_end(&mut self) -> Result<(), WriteError> {
        (self.reserve)(&self.output, self.good, self.buffer.len() as u64 + END_BYTES)?;
        self.put()
    }

    /// Writes the buffer.
    fn put(&mut self) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken);
        }
        self.broken = true;
        self.output.write_all(&self.buffer)?;
        self.output.flush()?;
        self.broken = false;
        self.good += self.buffer.len() as u64;
        Ok(())
    }
}

/// Writes a recording to a file. What a failed write left of a frame is taken away again, so the file stays readable,
/// and takes Samples again once there is room.
#[derive(Debug)]
pub struct FileWriter {
    path: PathBuf,
    writer: Writer<File>,
}

impl FileWriter {
    /// Begins a recording in place of whatever file is there. Whoever is killed meanwhile leaves no file without a header.
    pub fn create(path: impl Into<PathBuf>, header: &Header) -> Result<Self, FileError<WriteError>> {
        let (file, beside) = Self::create_beside(path, header)?;
        match beside.keep() {
            Ok(()) => Ok(file),
            Err(error) => Err(FileError { path: file.path, error: error.into() }),
        }
    }

    /// Begins a recording that has its name only from the moment that it is kept: whoever is killed before leaves what is under the
    /// name as it is.
    pub fn create_beside(
        path: impl Into<PathBuf>,
        header: &Header,
    ) -> Result<(Self, Beside), FileError<WriteError>> {
        let path = path.into();
        match begin(&path, header) {
            Ok((writer, beside)) => Ok((Self { path, writer }, beside)),
            Err(error) => Err(FileError { path, error }),
        }
    }

    /// Adds a Sample. After an error the next one may succeed; how many did not is in the end frame.
    pub fn sample(&mut self, sample: &Sample) -> Result<(), FileError<WriteError>> {
        let done = self.writer.sample(sample);
        self.settle(done)
    }

    /// Closes the recording.
    pub fn end(&mut self, unix_ns: u64, reason: Reason) -> Result<(), FileError<WriteError>> {
        let done = self.writer.finish(unix_ns, reason);
        self.settle(done)?;
        // What is reserved behind it is freed by setting its length once more; a pipe has none.
        let _ = self.writer.output.set_len(self.writer.good);
        Ok(())
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written in whole frames.
    pub fn bytes(&self) -> u64 {
        self.writer.bytes()
    }

    /// Samples that could not be written so far.
    pub fn unwritten(&self) -> u64 {
        self.writer.unwritten()
    }

    fn settle(&mut self, done: Result<(), WriteError>) -> Result<(), FileError<WriteError>> {
        done.map_err(|error| {
            self.take_back();
            FileError { path: self.path.clone(), error }
        })
    }

    /// Cuts the file back to its last whole frame. Fails on a pipe or a device: the writer then stays broken, and
    /// readers report a torn end.
    fn take_back(&mut self) {
        let Writer { output, good, broken, .. } = &mut self.writer;
        if *broken && output.set_len(*good).is_ok() && output.seek(SeekFrom::Start(*good)).is_ok() {
            *broken = false;
        }
    }
}

fn begin(path: &Path, header: &Header) -> Result<(Writer<File>, Beside), WriteError> {
    let (file, beside) = Place::of(path)?.create()?;
    Ok((Writer::reserving(file, header, reserve)?, beside))
}

/// Not every file system can; there the end has the room that there is.
fn reserve(file: &File, from: u64, bytes: u64) -> io::Result<()> {
    let reserved = rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, from, bytes);
    reserved.map_err(io::Error::from).or_else(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Err(error),
        _ => Ok(()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Ending, open};

    #[test]
    fn what_a_failed_write_left_is_taken_away_and_the_file_takes_samples_again() {
        let path = std::env::temp_dir().join(format!("cgscope-{}-taken-back.cgs", std::process::id()));
        let mut file = FileWriter::create(&path, &Header::default()).unwrap();
        file.sample(&Sample::default()).unwrap();

        // As a full disk leaves it: half a frame, and an error.
        file.writer.output.write_all(&[9; 100]).unwrap();
        file.writer.broken = true;
        file.writer.unwritten += 1;
        assert!(file.settle(Err(WriteError::Broken)).is_err());
        assert_eq!(std::fs::metadata(&path).unwrap().len(), file.bytes());

        file.sample(&Sample::default()).unwrap();
        file.end(1, Reason::Finished).unwrap();
        let mut reader = open(&path).unwrap();
        assert_eq!(reader.by_ref().filter(Result::is_ok).count(), 2);
        let end = End { unix_ns: 1, reason: Reason::Finished, unwritten: 1 };
        assert_eq!(reader.ending(), Some(&Ending::Clean(end)));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_sample_that_leaves_no_room_for_an_end_is_not_written() {
        // So many bytes are left; what is reserved stays so.
        static LEFT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        fn reserve(_: &Vec<u8>, from: u64, bytes: u64) -> io::Result<()> {
            let fits = from + bytes <= LEFT.load(std::sync::atomic::Ordering::Relaxed);
            if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }
        let enough = 1 << 20;
        LEFT.store(enough, std::sync::atomic::Ordering::Relaxed);
        let mut writer = Writer::reserving(Vec::new(), &Header::default(), reserve).unwrap();
        let header = writer.bytes();
        writer.sample(&Sample::default()).unwrap();
        let first = writer.bytes() - header;
        for room in [END_BYTES, END_BYTES + first / 2] {
            LEFT.store(writer.bytes() + room, std::sync::atomic::Ordering::Relaxed);
            let error = writer.sample(&Sample { mono_ns: 1, ..Sample::default() }).unwrap_err();
            assert!(matches!(error, WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull));
            assert_eq!(writer.bytes(), header + first, "nothing of it is written");
        }
        let before = writer.bytes();
        let file = writer.end(1, Reason::DiskFull).unwrap();
        assert!(file.len() as u64 - before <= END_BYTES, "the end had its room");
    }
}
