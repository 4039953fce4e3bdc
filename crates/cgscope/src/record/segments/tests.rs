use cgscope_record::{Ending, FileError, WriteError};

use super::*;

const SECOND: u64 = 1_000_000_000;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cgscope-{}-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn recordings(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
        files.sort();
        files
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sample(second: u64) -> Sample {
    Sample { mono_ns: second * SECOND, unix_ns: (1_000 + second) * SECOND, ..Sample::default() }
}

fn header() -> Header {
    Header { interval_ns: SECOND, start_unix_ns: 1_000 * SECOND, ..Header::default() }
}

fn rotating(base: &Path, limits: SegmentLimits) -> Segments {
    let names = SegmentNames::Stamped { base: base.to_owned(), last_unix_ns: 0 };
    Segments::create(names, &header(), limits).unwrap()
}

fn seconds(file: &Path) -> (Vec<u64>, Reason) {
    let mut reader = open(file).unwrap();
    let seconds = reader.by_ref().map(|sample| sample.unwrap().mono_ns / SECOND).collect();
    let Some(Ending::Clean(end)) = reader.ending.as_ref() else { panic!("{:?}", reader.ending.as_ref()) };
    (seconds, end.reason.clone())
}

#[test]
fn every_file_begins_with_the_last_sample_of_the_previous_file() {
    let dir = Dir::new("rotated");
    let limits = SegmentLimits { age_ns: Some(3 * SECOND), ..SegmentLimits::default() };
    let mut series = rotating(&dir.0.join("a.rec"), limits);
    for second in 0..8 {
        assert!(series.sample(sample(second)).is_ok());
    }
    let ended = series.end(Reason::Finished).unwrap();
    let files = dir.recordings();
    let read: Vec<_> = files.iter().map(|file| seconds(file)).collect();
    let expected = [
        (vec![0, 1, 2, 3], Reason::Continued),
        (vec![3, 4, 5, 6], Reason::Continued),
        (vec![6, 7], Reason::Finished),
    ];
    assert_eq!(read, expected);
    assert_eq!(ended.report.as_ref(), files.last());
    assert!(files[1].ends_with("a-19700101T001643.000Z.rec"), "{files:?}");
}

#[test]
fn above_the_maximum_the_oldest_files_are_removed_and_foreign_files_stay() {
    let dir = Dir::new("few");
    let base = dir.0.join("a.rec");
    let foreign = file::stamped(&base, 0);
    fs::write(&foreign, "yesterday").unwrap();
    let limits = SegmentLimits { size: Some(1), count: Some(3), ..SegmentLimits::default() };
    let mut series = rotating(&base, limits);
    for second in 0..20 {
        assert!(series.sample(sample(second)).is_ok());
        assert!(dir.recordings().len() <= 1 + 3, "{:?}", dir.recordings());
    }
    assert_eq!(series.state(), "3 files, older ones removed");
    assert!(series.end(Reason::Finished).is_ok());
    let files = dir.recordings();
    assert_eq!((files.len(), &files[0]), (4, &foreign));
    let read: Vec<_> = files[1..].iter().map(|file| seconds(file).0).collect();
    assert_eq!(read, [vec![17, 18], vec![18, 19], vec![19]]);
}

#[test]
fn an_existing_file_with_the_same_name_stays() {
    let dir = Dir::new("taken");
    let base = dir.0.join("a.rec");
    let taken = [1_000, 1_001].map(|second| file::stamped(&base, second * SECOND));
    taken.iter().for_each(|path| fs::write(path, "of an earlier boot").unwrap());
    let limits = SegmentLimits { size: Some(1), ..SegmentLimits::default() };
    let mut series = rotating(&base, limits);
    for second in 0..4 {
        assert!(series.sample(sample(second)).is_ok());
    }
    assert!(series.end(Reason::Finished).is_ok());
    for path in &taken {
        assert_eq!(fs::read_to_string(path).unwrap(), "of an earlier boot");
    }
    let ours: Vec<_> = dir.recordings().into_iter().filter(|path| !taken.contains(path)).collect();
    let read: Vec<_> = ours.iter().map(|file| seconds(file).0).collect();
    assert_eq!(read, [vec![0, 1], vec![1, 2], vec![2, 3], vec![3]]);
}

#[test]
fn a_failed_removal_is_tried_again_and_foreign_files_are_not_counted() {
    let dir = Dir::new("stuck");
    let limits = SegmentLimits { size: Some(1), count: Some(2), ..SegmentLimits::default() };
    let mut series = rotating(&dir.0.join("a.rec"), limits);
    // `remove_file` cannot remove a directory.
    let (stuck, loose, foreign) = (dir.0.join("stuck"), dir.0.join("loose"), dir.0.join("foreign"));
    fs::create_dir(&stuck).unwrap();
    let complete = |path| Segment { made: Made::of(path), start_ns: 0, end_ns: 1, bytes: 0 };
    series.complete.push_back(complete(&stuck));
    fs::write(&foreign, "ours").unwrap();
    series.complete.push_back(complete(&foreign));
    fs::rename(&foreign, dir.0.join("elsewhere")).unwrap();
    fs::write(&foreign, "foreign").unwrap();
    for second in 0..2 {
        assert!(series.sample(sample(second)).is_ok());
    }
    assert_eq!((series.removed, series.stuck.len()), (0, 1));
    fs::write(&loose, "").unwrap();
    series.stuck.push(Made::of(&loose));
    assert!(series.sample(sample(2)).is_ok());
    assert_eq!((series.removed, series.stuck.len(), series.complete.len()), (2, 1, 1));
    assert!(stuck.exists() && foreign.exists() && !loose.exists());
}

#[test]
fn the_error_of_a_full_disk_names_all_files() {
    let dir = Dir::new("broken");
    let limits = SegmentLimits { size: Some(1), ..SegmentLimits::default() };
    let mut series = rotating(&dir.0.join("a.rec"), limits);
    for second in 0..4 {
        assert!(series.sample(sample(second)).is_ok());
    }
    let files = dir.recordings();
    let error = WriteError::Io(io::ErrorKind::StorageFull.into());
    let failure = FileError { path: files[3].clone(), error };
    let said = series.end_after(&failure).sentence;
    let end = format!(
        "the 1 sample before the failure is in {}, and earlier samples are in 3 files up to {}",
        files[3].display(),
        files[2].display()
    );
    assert!(said.contains("the disk is full") && said.ends_with(&end), "{said}");
}

#[test]
fn names_stay_in_order_if_the_clock_is_set_back() {
    let dir = Dir::new("back");
    let limits = SegmentLimits { size: Some(1), ..SegmentLimits::default() };
    let mut series = rotating(&dir.0.join("a.rec"), limits);
    for second in 0..6 {
        let unix_ns = (1_000 - second * 60) * SECOND;
        assert!(series.sample(Sample { unix_ns, ..sample(second) }).is_ok());
    }
    assert!(series.end(Reason::Interrupted).is_ok());
    let files = dir.recordings();
    let firsts: Vec<_> = files.iter().map(|file| seconds(file).0[0]).collect();
    assert_eq!(firsts, [0, 1, 2, 3, 4, 5]);
}

#[test]
fn a_file_is_complete_at_its_size_or_age_but_not_without_an_interval() {
    let size = SegmentLimits { size: Some(1_000), ..SegmentLimits::default() };
    assert!(!size.reached(9, 999, 1, SECOND) && size.reached(9, 1_000, 1, SECOND));
    assert!(!size.reached(1, 5_000, 0, SECOND), "one sample is no interval");
    let age = SegmentLimits { age_ns: Some(60 * SECOND), ..SegmentLimits::default() };
    assert!(!age.reached(60, 1, 59 * SECOND, SECOND));
    assert!(age.reached(61, 1, 60 * SECOND - 1_000_000, SECOND), "a sample that is a little early");
    assert!(!SegmentLimits::default().reached(9, u64::MAX, u64::MAX / 2, SECOND));
}

#[test]
fn segments_that_a_trigger_needs_are_kept() {
    let limits = SegmentLimits::ring(80, 1_000);
    let expendable = |more_bytes: u64, needed_ns: u64| {
        let complete = [(10, 100), (20, 100), (30, 100)];
        limits.expendable(complete.into_iter(), 300_u64 + more_bytes, needed_ns)
    };
    assert_eq!(expendable(110, 9), 0);
    assert_eq!(expendable(110, 10), 1, "the next segment begins at 10");
    assert_eq!(expendable(110, 25), 2);
    assert_eq!(expendable(110, 99), 3);
    assert_eq!(expendable(701, 0), 1, "1001 bytes");
    assert_eq!(expendable(700, 0), 0);
    assert_eq!(expendable(5010, 0), 3);
}

#[test]
fn a_segment_is_an_eighth_of_the_time_and_has_an_interval() {
    let limits = SegmentLimits::ring(80, 1_600);
    assert!(limits.reached(2, 1, 10, 0) && !limits.reached(2, 1, 9, 0));
    assert!(limits.reached(2, 100, 1, 0) && !limits.reached(2, 99, 1, 0));
    assert!(!limits.reached(1, 5_000, 0, 0));
}
