use std::{
    io::{self, Write},
    path::PathBuf,
};

use cgscope_record::{Ending, FileWriter, Reason, WriteError, Writer, open};

use crate::support::{file, header, read, reader, sample, samples};

/// A disk that is full after `room` bytes. A write stores the bytes that fit, and then fails.
struct Full<'a> {
    room: usize,
    file: &'a mut Vec<u8>,
}

impl Write for Full<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = bytes.len().min(self.room);
        if n == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room -= n;
        self.file.extend(&bytes[..n]);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_leaves_all_earlier_samples_readable() {
    let samples = samples(3);
    let (whole, ends) = file(&samples);
    for room in 0..whole.len() {
        let mut file = Vec::new();
        let Ok(mut writer) = Writer::create(Full { room, file: &mut file }, &header()) else {
            assert!(room < ends[0]);
            continue;
        };
        let wrote = samples.iter().take_while(|sample| writer.sample(sample).is_ok()).count();
        let after = writer.sample(&sample(9)).unwrap_err();
        if wrote < 3 {
            assert!(matches!(after, WriteError::Broken), "{after}");
        }
        drop(writer);
        assert_eq!(read(&file).unwrap().0, samples[..wrote], "room for {room} bytes");
    }
}

#[test]
fn one_sample_is_one_write() {
    struct Counting(usize);
    impl Write for Counting {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut writer = Writer::create(Counting(0), &header()).unwrap();
    for sample in samples(5) {
        writer.sample(&sample).unwrap();
    }
    assert_eq!(writer.end(0, Reason::Finished).unwrap().0, 7, "header, five samples, end");
}

#[test]
fn a_sample_that_breaks_the_rules_is_counted_and_not_written() {
    let mut unordered = sample(1);
    unordered.tasks.reverse();
    let mut writer = Writer::create(Vec::new(), &header()).unwrap();
    let error = writer.sample(&unordered).unwrap_err();
    assert!(matches!(error, WriteError::Invalid(_)), "{error}");
    writer.sample(&sample(1)).unwrap();
    let (back, ending) = read(&writer.end(0, Reason::Finished).unwrap()).unwrap();
    assert_eq!(back.len(), 1);
    assert!(ending.to_string().ends_with("samples that could not be written to it: 1"), "{ending}");
    assert_eq!(ending.losses().nonzero().map(|(_, count)| count).sum::<u64>(), 1);
}

struct Temporary(PathBuf);

impl Temporary {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("cgscope-{}-{name}.cgs", std::process::id())))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn a_file_is_readable_while_it_is_written() {
    let path = Temporary::new("growing");
    let mut writer = FileWriter::create(&path.0, &header()).unwrap();
    for n in 0..3 {
        writer.sample(&sample(n)).unwrap();
        let mut reader = open(&path.0).unwrap();
        assert_eq!(reader.by_ref().map(Result::unwrap).count() as u64, n + 1);
        assert_eq!(reader.ending.as_ref(), Some(&Ending::Killed));
    }
    writer.end(5, Reason::Interrupted).unwrap();
    let mut reader = open(&path.0).unwrap();
    assert_eq!(reader.by_ref().count(), 3);
    assert!(matches!(reader.ending, Some(Ending::Clean(_))));
}

#[test]
fn an_older_file_of_the_same_name_is_replaced_completely() {
    let path = Temporary::new("older");
    std::fs::write(&path.0, vec![7; 100_000]).unwrap();
    FileWriter::create(&path.0, &header()).unwrap().end(0, Reason::Finished).unwrap();
    let bytes = std::fs::read(&path.0).unwrap();
    assert!(matches!(reader(&bytes).map(|_| ()), Ok(())));
    assert!(matches!(read(&bytes).unwrap().1, Ending::Clean(_)));
}

#[test]
fn an_error_names_the_file_that_cannot_be_created() {
    let error = FileWriter::create("/nonexistent/x.cgs", &header()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/nonexistent/x.cgs could not be written: No such file or directory (os error 2)"
    );
}

#[test]
fn a_full_device_is_reported_with_a_remedy() {
    let error = FileWriter::create("/dev/full", &header()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "/dev/full could not be written: the disk is full; free some space or record to another disk"
    );
}
