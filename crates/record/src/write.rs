//! Writes recordings. Each frame is written by a single system call if possible, and the file contains only complete frames.

use std::{
    fs::File,
    io::{self, Seek, SeekFrom, Write},
    path::PathBuf,
};

use cgscope_model::Sample;
use rustix::fs::FallocateFlags;

use crate::{
    Beside, End, FileError, Header, Place, Reason, WriteError,
    codec::SampleEncoder,
    frame::{kind, with_json},
};

/// Writes a recording to any output.
///
/// The writer holds back no frames and never calls fsync. Written bytes are in the page cache, which survives the process. If the
/// writer is killed, at most the last interval is lost. If the host crashes, more is lost. Frequent syncs would disturb the disk
/// and the scheduler that we measure.
#[derive(Debug)]
pub struct Writer<W> {
    output: W,
    /// The buffer is reused for each frame, which saves allocations.
    buffer: Vec<u8>,
    /// Number of bytes in complete frames.
    pub bytes: u64,
    /// Whether a write failed and may have left part of a frame.
    broken: bool,
    unwritten: u64,
    encoder: SampleEncoder,
    reserve: Reserve<W>,
}

/// Function that reserves disk space for the output. Its arguments are the output, an offset and a number of bytes.
type Reserve<W> = fn(&W, u64, u64) -> io::Result<()>;

/// Disk space that we reserve after each sample for the end frame, bytes. An end frame has about 100 bytes, or up to 1000 bytes
/// with the text of a trigger.
const END_BYTES: u64 = 2048;

impl<W: Write> Writer<W> {
    pub fn create(output: W, header: &Header) -> Result<Self, WriteError> {
        Self::reserving(output, header, |_, _, _| Ok(()))
    }

    fn reserving(output: W, header: &Header, reserve: Reserve<W>) -> Result<Self, WriteError> {
        let (encoder, buffer) = (SampleEncoder::new()?, SampleEncoder::opening(header)?);
        let mut writer = Self { output, buffer, bytes: 0, broken: false, unwritten: 0, encoder, reserve };
        writer.put_before_end()?;
        Ok(writer)
    }

    /// Adds a sample. After an I/O error no further sample can be added, except to a [`FileWriter`].
    pub fn sample(&mut self, sample: &Sample) -> Result<(), WriteError> {
        self.buffer.clear();
        let framed = self.encoder.append_frame(sample, &mut self.buffer);
        let done = framed.and_then(|_| self.put_before_end());
        if done.is_err() {
            self.unwritten += 1;
            // Make the next frame a key frame: it must not depend on a frame that is not in the file.
            self.encoder.start_anew();
        }
        done
    }

    pub fn end(mut self, unix_ns: u64, reason: Reason) -> Result<W, WriteError> {
        self.finish(unix_ns, reason)?;
        Ok(self.output)
    }

    fn finish(&mut self, unix_ns: u64, reason: Reason) -> Result<(), WriteError> {
        let end = End { unix_ns, reason, unwritten: self.unwritten };
        self.buffer = with_json(Vec::new(), kind::END, &end)?;
        self.put()
    }

    /// Writes the buffer if there is enough disk space for the buffer and an end frame. If the disk becomes full, the end frame
    /// with the reason can still be written.
    fn put_before_end(&mut self) -> Result<(), WriteError> {
        (self.reserve)(&self.output, self.bytes, self.buffer.len() as u64 + END_BYTES)?;
        self.put()
    }

    fn put(&mut self) -> Result<(), WriteError> {
        if self.broken {
            return Err(WriteError::Broken);
        }
        self.broken = true;
        self.output.write_all(&self.buffer)?;
        self.output.flush()?;
        self.broken = false;
        self.bytes += self.buffer.len() as u64;
        Ok(())
    }
}

type FileResult<T> = Result<T, FileError<WriteError>>;

/// Writes a recording to a file. If a failed write leaves a part of a frame, the writer cuts this part off. Thus the file stays
/// readable, and more samples can follow when the disk has space again.
#[derive(Debug)]
pub struct FileWriter {
    pub path: PathBuf,
    writer: Writer<File>,
}

impl FileWriter {
    /// Starts a recording, which replaces an existing file. Even if the writer is killed, the file has at least a header.
    pub fn create(path: impl Into<PathBuf>, header: &Header) -> FileResult<Self> {
        let (file, beside) = Self::create_beside(path, header)?;
        beside.keep().map_err(|error| FileError { path: file.path.clone(), error: error.into() })?;
        Ok(file)
    }

    /// Starts a recording that gets its final name from [`Beside::keep`]. Until then, an existing file stays unchanged.
    pub fn create_beside(path: impl Into<PathBuf>, header: &Header) -> FileResult<(Self, Beside)> {
        let path = path.into();
        let created = Place::of(&path).and_then(|place| place.create()).map_err(WriteError::Io);
        let begun =
            created.and_then(|(file, beside)| Ok((Writer::reserving(file, header, reserve)?, beside)));
        match begun {
            Ok((writer, beside)) => Ok((Self { path, writer }, beside)),
            Err(error) => Err(FileError { path, error }),
        }
    }

    /// Adds a sample. After an error, the next sample may succeed. The end frame contains the number of failed samples.
    pub fn sample(&mut self, sample: &Sample) -> FileResult<()> {
        let done = self.writer.sample(sample);
        self.settle(done)
    }

    /// Closes the recording. No sample can be added afterwards.
    pub fn end(&mut self, unix_ns: u64, reason: Reason) -> FileResult<()> {
        let done = self.writer.finish(unix_ns, reason);
        self.settle(done)?;
        // Set the length to free the reserved space. Ignore errors, because a pipe has no length.
        let _ = self.writer.output.set_len(self.writer.bytes);
        Ok(())
    }

    pub fn bytes(&self) -> u64 {
        self.writer.bytes
    }

    /// After an error, cuts the file back to its last complete frame. A pipe or device keeps an incomplete frame.
    fn settle(&mut self, done: Result<(), WriteError>) -> FileResult<()> {
        done.map_err(|error| {
            let Writer { output, bytes, broken, .. } = &mut self.writer;
            if *broken && output.set_len(*bytes).is_ok() && output.seek(SeekFrom::Start(*bytes)).is_ok() {
                *broken = false;
            }
            FileError { path: self.path.clone(), error }
        })
    }
}

/// Reserves space if the file system supports this. Fails only if there is not enough space.
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
    fn an_incomplete_write_is_cut_off_and_the_file_accepts_samples_again() {
        let path = std::env::temp_dir().join(format!("cgscope-{}-taken-back.cgs", std::process::id()));
        let mut file = FileWriter::create(&path, &Header::default()).unwrap();
        file.sample(&Sample::default()).unwrap();

        // Simulate a full disk: write half a frame, and set the error state.
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
        assert_eq!(reader.ending.as_ref(), Some(&Ending::Clean(end)));
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_sample_that_leaves_no_space_for_the_end_is_not_written() {
        static LEFT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
        fn reserve(_: &Vec<u8>, from: u64, bytes: u64) -> io::Result<()> {
            let fits = from + bytes <= LEFT.load(std::sync::atomic::Ordering::Relaxed);
            if fits { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }
        let enough = 1 << 20;
        LEFT.store(enough, std::sync::atomic::Ordering::Relaxed);
        let mut writer = Writer::reserving(Vec::new(), &Header::default(), reserve).unwrap();
        let header = writer.bytes;
        writer.sample(&Sample::default()).unwrap();
        let first = writer.bytes - header;
        for room in [END_BYTES, END_BYTES + first / 2] {
            LEFT.store(writer.bytes + room, std::sync::atomic::Ordering::Relaxed);
            let error = writer.sample(&Sample { mono_ns: 1, ..Sample::default() }).unwrap_err();
            assert!(matches!(error, WriteError::Io(error) if error.kind() == io::ErrorKind::StorageFull));
            assert_eq!(writer.bytes, header + first, "nothing of it is written");
        }
        let before = writer.bytes;
        let file = writer.end(1, Reason::DiskFull).unwrap();
        assert!(file.len() as u64 - before <= END_BYTES, "the end had its room");
    }
}
