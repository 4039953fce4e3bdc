//! Rotation: a series of files, each a recording of its own, the next one begun with the last Sample of the one before.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
};

use cgscope_model::{Sample, units};
use cgscope_record::{Header, Reason};

use crate::{
    exit::{Error, Result},
    record::{
        file::{Failure, File, Made},
        names,
        sink::{Broken, Ended, Next, Sink},
    },
};

/// When a file has had its share, and how many stay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Limits {
    /// At this size.
    pub bytes: Option<u64>,
    /// At this age.
    pub age_ns: Option<u64>,
    /// So many files, the one that is written included.
    pub files: Option<usize>,
}

impl Limits {
    /// True once a file of this size and length goes on in the next one. It then has an interval of its own at least; and the
    /// tick that is due at the end of its age may come a little early.
    fn reached(&self, samples: u64, bytes: u64, length_ns: u64, interval_ns: u64) -> bool {
        let full = self.bytes.is_some_and(|limit| bytes >= limit);
        let old = self.age_ns.is_some_and(|limit| length_ns + interval_ns / 2 >= limit);
        samples >= 2 && (full || old)
    }
}

pub struct Rotating {
    base: PathBuf,
    header: Header,
    limits: Limits,
    file: File,
    made: Made,
    /// Complete, the oldest first.
    complete: VecDeque<Made>,
    /// Older ones that could not be removed so far.
    stuck: Vec<Made>,
    /// The time in the name of the file that is written.
    named_ns: u64,
    removed: u64,
    /// Bytes in files that are complete, those that were removed included.
    bytes: u64,
}

impl Rotating {
    pub fn create(base: &Path, header: &Header, limits: Limits) -> Result<Self> {
        say_foreign(base);
        let (path, named_ns) = names::free_stamped(base, header.start_unix_ns);
        let file =
            File::create(&path, header).map_err(|failure| Error::could_not_run(failure.to_string()))?;
        let (made, complete) = (Made::of(&path), VecDeque::new());
        let (base, header) = (base.to_owned(), header.clone());
        let stuck = Vec::new();
        Ok(Self { base, header, limits, file, made, complete, stuck, named_ns, removed: 0, bytes: 0 })
    }

    /// The next file, with the Sample in it that the present one ends with.
    fn turn(&mut self, sample: &Sample) -> std::result::Result<(), Failure> {
        self.remove_oldest();
        // Clocks are set back: names ascend all the same.
        let (path, named_ns) = names::free_stamped(&self.base, sample.unix_ns.max(self.named_ns + 1_000_000));
        let (next, made) = File::create_next(&path, &self.header, sample)?;
        self.named_ns = named_ns;
        self.bytes += self.file.bytes();
        self.complete.push_back(std::mem::replace(&mut self.made, made));
        std::mem::replace(&mut self.file, next).end(Reason::Continued)
    }

    /// Makes room for one more file.
    fn remove_oldest(&mut self) {
        let Some(files) = self.limits.files else { return };
        // What is stuck may have come loose; it takes the place of none that is wanted.
        let mut stuck = std::mem::take(&mut self.stuck);
        stuck.retain(|made| self.remove(made).is_err());
        while self.complete.len() + 2 > files
            && let Some(oldest) = self.complete.pop_front()
        {
            if let Err(error) = self.remove(&oldest) {
                say!(
                    "cgscope: {} cannot be removed ({error}); that is tried again with each new file",
                    oldest.path.display()
                );
                stuck.push(oldest);
            }
        }
        self.stuck = stuck;
    }

    fn remove(&mut self, made: &Made) -> io::Result<()> {
        self.removed += u64::from(made.remove()?);
        Ok(())
    }
}

impl Sink for Rotating {
    fn sample(&mut self, sample: Sample) -> std::result::Result<Next, Broken> {
        self.file.sample(&sample)?;
        let (samples, bytes) = (self.file.samples, self.file.bytes());
        if self.limits.reached(samples, bytes, self.file.length_ns(), self.header.interval_ns) {
            self.turn(&sample)?;
        }
        Ok(Next::GoOn)
    }

    fn bytes(&self) -> u64 {
        self.bytes + self.file.bytes()
    }

    fn state(&self) -> String {
        let removed = if self.removed == 0 { "" } else { ", older ones removed" };
        format!("{}{removed}", units::count(self.complete.len() as u64 + 1, "file"))
    }

    fn end(self: Box<Self>, reason: Reason) -> Result<Ended> {
        let (file, written, state) = (self.file.path().to_owned(), units::bytes(self.bytes()), self.state());
        self.file.end(reason).map_err(|failure| Error::incomplete(failure.to_string()))?;
        let words = format!("{written} written; {state}, the last one is {}", file.display());
        Ok(Ended { words, report: Some(file), incomplete: false })
    }

    fn end_after(self: Box<Self>, broken: Broken) -> Error {
        let before = self.complete.len() as u64;
        let mut error = broken.end(self.file);
        if let Some(latest) = self.complete.back() {
            error.sentence += &format!(
                ", and what came before them in {} up to {}",
                units::count(before, "file"),
                latest.path.display()
            );
        }
        error
    }
}

/// Files of an earlier run are none of ours: they stay, and count for nothing.
fn say_foreign(base: &Path) {
    let directory = base.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries
        .filter(|entry| names::is_stamped(base, &entry.path()))
        .filter_map(|entry| Some(entry.metadata().ok()?.len()));
    let (files, bytes) = sizes.fold((0, 0), |(files, bytes), size| (files + 1, bytes + size));
    if files > 0 {
        say!(
            "cgscope: {} of earlier runs ({}) {} there; what this run removes is its own alone",
            units::count(files, "file"),
            units::bytes(bytes),
            if files == 1 { "is" } else { "are" },
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cgscope_record::{Ending, FileError, WriteError, open};

    const SECOND: u64 = 1_000_000_000;

    /// In a directory of its own, gone with its value.
    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("cgscope-{}-{name}", std::process::id()));
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn recordings(&self) -> Vec<PathBuf> {
            let mut files: Vec<_> =
                fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path()).collect();
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

    fn seconds(file: &Path) -> (Vec<u64>, Reason) {
        let mut reader = open(file).unwrap();
        let seconds = reader.by_ref().map(|sample| sample.unwrap().mono_ns / SECOND).collect();
        let Some(Ending::Clean(end)) = reader.ending() else { panic!("{:?}", reader.ending()) };
        (seconds, end.reason.clone())
    }

    #[test]
    fn every_file_begins_with_the_last_sample_of_the_one_before() {
        let dir = Dir::new("rotated");
        let limits = Limits { age_ns: Some(3 * SECOND), ..Limits::default() };
        let mut series = Rotating::create(&dir.0.join("a.rec"), &header(), limits).unwrap();
        for second in 0..8 {
            assert!(series.sample(sample(second)).is_ok());
        }
        let ended = Box::new(series).end(Reason::Finished).unwrap();
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
    fn of_more_files_than_are_to_be_kept_the_oldest_go_and_foreign_ones_stay() {
        let dir = Dir::new("few");
        let base = dir.0.join("a.rec");
        let foreign = names::stamped(&base, 0);
        fs::write(&foreign, "yesterday").unwrap();
        let limits = Limits { bytes: Some(1), files: Some(3), ..Limits::default() };
        let mut series = Rotating::create(&base, &header(), limits).unwrap();
        for second in 0..20 {
            assert!(series.sample(sample(second)).is_ok());
            assert!(dir.recordings().len() <= 1 + 3, "{:?}", dir.recordings());
        }
        assert_eq!(series.state(), "3 files, older ones removed");
        assert!(Box::new(series).end(Reason::Finished).is_ok());
        let files = dir.recordings();
        assert_eq!((files.len(), &files[0]), (4, &foreign));
        let read: Vec<_> = files[1..].iter().map(|file| seconds(file).0).collect();
        assert_eq!(read, [vec![17, 18], vec![18, 19], vec![19]]);
    }

    #[test]
    fn what_is_there_under_the_name_of_a_file_stays() {
        let dir = Dir::new("taken");
        let base = dir.0.join("a.rec");
        let taken = [1_000, 1_001].map(|second| names::stamped(&base, second * SECOND));
        taken.iter().for_each(|path| fs::write(path, "of an earlier boot").unwrap());
        let limits = Limits { bytes: Some(1), ..Limits::default() };
        let mut series = Rotating::create(&base, &header(), limits).unwrap();
        for second in 0..4 {
            assert!(series.sample(sample(second)).is_ok());
        }
        assert!(Box::new(series).end(Reason::Finished).is_ok());
        for path in &taken {
            assert_eq!(fs::read_to_string(path).unwrap(), "of an earlier boot");
        }
        let ours: Vec<_> = dir.recordings().into_iter().filter(|path| !taken.contains(path)).collect();
        let read: Vec<_> = ours.iter().map(|file| seconds(file).0).collect();
        assert_eq!(read, [vec![0, 1], vec![1, 2], vec![2, 3], vec![3]]);
    }

    #[test]
    fn what_cannot_be_removed_is_tried_again_and_what_is_foreign_is_not_counted() {
        let dir = Dir::new("stuck");
        let limits = Limits { bytes: Some(1), files: Some(2), ..Limits::default() };
        let mut series = Rotating::create(&dir.0.join("a.rec"), &header(), limits).unwrap();
        // A directory is not removed as a file is.
        let (stuck, loose, foreign) = (dir.0.join("stuck"), dir.0.join("loose"), dir.0.join("foreign"));
        fs::create_dir(&stuck).unwrap();
        series.complete.push_back(Made::of(&stuck));
        fs::write(&foreign, "ours").unwrap();
        series.complete.push_back(Made::of(&foreign));
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
    fn at_a_full_disk_all_files_are_named() {
        let dir = Dir::new("broken");
        let limits = Limits { bytes: Some(1), ..Limits::default() };
        let mut series = Rotating::create(&dir.0.join("a.rec"), &header(), limits).unwrap();
        for second in 0..4 {
            assert!(series.sample(sample(second)).is_ok());
        }
        let files = dir.recordings();
        let error = WriteError::Io(io::ErrorKind::StorageFull.into());
        let broken = Broken::Write(FileError { path: files[3].clone(), error });
        let said = Box::new(series).end_after(broken).sentence;
        let end = format!(
            "the 1 Sample before it is in {}, and what came before them in 3 files up to {}",
            files[3].display(),
            files[2].display()
        );
        assert!(said.contains("the disk is full") && said.ends_with(&end), "{said}");
    }

    #[test]
    fn a_clock_that_is_set_back_changes_no_order() {
        let dir = Dir::new("back");
        let limits = Limits { bytes: Some(1), ..Limits::default() };
        let mut series = Rotating::create(&dir.0.join("a.rec"), &header(), limits).unwrap();
        for second in 0..6 {
            let unix_ns = (1_000 - second * 60) * SECOND;
            assert!(series.sample(Sample { unix_ns, ..sample(second) }).is_ok());
        }
        assert!(Box::new(series).end(Reason::Interrupted).is_ok());
        let files = dir.recordings();
        let firsts: Vec<_> = files.iter().map(|file| seconds(file).0[0]).collect();
        assert_eq!(firsts, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_file_goes_on_at_its_size_or_at_its_age_but_never_without_an_interval() {
        let size = Limits { bytes: Some(1_000), ..Limits::default() };
        assert!(!size.reached(9, 999, 1, SECOND) && size.reached(9, 1_000, 1, SECOND));
        assert!(!size.reached(1, 5_000, 0, SECOND), "one Sample is no interval");
        let age = Limits { age_ns: Some(60 * SECOND), ..Limits::default() };
        assert!(!age.reached(60, 1, 59 * SECOND, SECOND));
        assert!(age.reached(61, 1, 60 * SECOND - 1_000_000, SECOND), "a tick that comes a little early");
        assert!(!Limits::default().reached(9, u64::MAX, u64::MAX / 2, SECOND));
    }
}
