use cgscope_record::open;

use super::super::*;

const SECOND: u64 = 1_000_000_000;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cgscope-{}-freeze-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Writes segments with samples at these seconds.
    fn segments(&self, of: &[&[u64]]) -> Vec<FileReader> {
        let write = |(at, seconds): (usize, &&[u64])| {
            let path = self.0.join(format!("{at}"));
            let header = Header { hostname: "host".into(), interval_ns: SECOND, ..Header::default() };
            let mut file = File::create(&path, &header).unwrap();
            for second in *seconds {
                let (mono_ns, unix_ns) = (second * SECOND, (1_000 + second) * SECOND);
                file.sample(&Sample { mono_ns, unix_ns, ..Sample::default() }).unwrap();
            }
            file.end(Reason::Continued).unwrap();
            open(&path).unwrap()
        };
        of.iter().enumerate().map(write).collect()
    }

    fn copy(&self, segments: Vec<FileReader>, from: u64, at: u64) -> Result<Frozen> {
        self.copy_with(segments, from * SECOND, at, 1 << 10, false)
    }

    fn copy_with(
        &self,
        segments: Vec<FileReader>,
        from_ns: u64,
        at: u64,
        bytes: u64,
        stop: bool,
    ) -> Result<Frozen> {
        let at_ns = at * SECOND;
        let triggered = Triggered { words: "p99>10ms".into(), from_ns, at_ns, until_ns: at_ns, unix_ns: 0 };
        copy(segments, self.0.join("frozen.rec"), triggered, bytes, &stop.into())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn seconds(path: &Path) -> Vec<u64> {
    open(path).unwrap().map(|sample| sample.unwrap().mono_ns / SECOND).collect()
}

#[test]
fn a_saved_part_has_every_sample_once_and_is_a_complete_recording() {
    let dir = Dir::new("whole");
    let segments = dir.segments(&[&[1, 2, 3], &[3, 4, 5], &[5, 6], &[6]]);
    let frozen = dir.copy(segments, 0, 4).unwrap();
    assert_eq!(seconds(&frozen.0), [1, 2, 3, 4, 5, 6]);
    let mut reader = open(&frozen.0).unwrap();
    assert_eq!((reader.header.start_unix_ns, &*reader.header.hostname), (1_001 * SECOND, "host"));
    assert_eq!(reader.by_ref().count(), 6);
    let Some(Ending::Clean(end)) = reader.ending.as_ref() else { panic!("{:?}", reader.ending.as_ref()) };
    assert_eq!((end.unix_ns, &end.reason), (1_006 * SECOND, &Reason::Triggered("p99>10ms".into())));
    let said = frozen.1;
    assert!(said.starts_with("saved 3.00s before the trigger and 2.00s after it: 6 samples, "), "{said}");
}

#[test]
fn a_saved_part_begins_with_the_last_sample_before_its_start() {
    for (from, first) in [(3, 3), (4, 4), (5, 5), (6, 6)] {
        let dir = Dir::new(&format!("begin-{from}"));
        let frozen = dir.copy(dir.segments(&[&[1, 3], &[3, 4, 5], &[5, 6]]), from, 6).unwrap();
        assert_eq!(seconds(&frozen.0)[0], first);
    }
    let dir = Dir::new("between");
    let frozen = dir.copy(dir.segments(&[&[1, 3], &[3, 6]]), 5, 6).unwrap();
    assert_eq!(seconds(&frozen.0), [3, 6], "nothing of the five seconds is missing");
}

#[test]
fn the_readable_part_of_a_damaged_ring_is_saved_and_the_damage_reported() {
    let dir = Dir::new("damaged");
    let mut segments = dir.segments(&[&[1, 2, 3], &[3, 4]]);
    let first = dir.0.join("0");
    let bytes = fs::read(&first).unwrap();
    fs::write(&first, &bytes[..bytes.len() - 30]).unwrap();
    segments[0] = open(&first).unwrap();
    let frozen = dir.copy(segments, 0, 4).unwrap();
    let read = seconds(&frozen.0);
    assert_eq!((read.first(), read.last()), (Some(&1), Some(&4)));
    assert!(
        frozen.1.contains("something is missing, because the ring is damaged: the recording breaks off"),
        "{}",
        frozen.1
    );
}

#[test]
fn a_copy_that_fails_or_is_stopped_changes_no_files() {
    let dir = Dir::new("given-up");
    let names = || {
        let entries = fs::read_dir(&dir.0).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    fs::write(dir.0.join("frozen.rec"), "of another week").unwrap();
    for (from_ns, bytes, stop, said) in [
        (0, 1 << 10, true, "ended early"),
        (0, u64::MAX, false, "the disk is full"),
        (u64::MAX, 1 << 10, false, ""),
    ] {
        match dir.copy_with(dir.segments(&[&[1, 2, 3], &[3, 4]]), from_ns, 3, bytes, stop) {
            Err(error) if !said.is_empty() => {
                assert!(error.sentence.contains(said), "{error}");
                assert_eq!(fs::read_to_string(dir.0.join("frozen.rec")).unwrap(), "of another week");
                assert_eq!(names(), ["0", "1", "frozen.rec"]);
            }
            Ok(frozen) if said.is_empty() => assert_eq!(seconds(&frozen.0), [4]),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(names(), ["0", "1", "frozen.rec", "frozen.rec.old"]);
    assert_eq!(fs::read_to_string(dir.0.join("frozen.rec.old")).unwrap(), "of another week");
}

#[test]
fn an_empty_ring_cannot_be_saved() {
    let dir = Dir::new("empty");
    let said = dir.copy(dir.segments(&[&[]]), 0, 4).unwrap_err().to_string();
    assert_eq!(said, "there is no sample to save");
}
