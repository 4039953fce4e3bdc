use cgscope_record::{Ending, FileReader, open};

use super::*;

mod freeze;

const SECOND: u64 = 1_000_000_000;

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cgscope-{}-ring-{name}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn ring(&self, limits: SegmentLimits) -> Ring {
        let header = Header { interval_ns: SECOND, ..Header::default() };
        Ring::create(&self.0.join("a.rec"), &header, limits).unwrap()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn sample(second: u64) -> Sample {
    Sample { mono_ns: second * SECOND, unix_ns: second * SECOND, ..Sample::default() }
}

fn open_up_to(ring: &mut Ring, last: u64) -> Vec<FileReader> {
    ring.segments.turn(&sample(last)).unwrap();
    ring.segments.open().unwrap()
}

/// Returns the seconds of the samples in each segment.
fn contents(ring: &mut Ring, last: u64) -> Vec<Vec<u64>> {
    let read = |mut segment: FileReader| {
        let seconds = segment.by_ref().map(|sample| sample.unwrap().mono_ns / SECOND).collect();
        assert!(
            matches!(segment.ending.as_ref(), Some(Ending::Clean(end)) if end.reason == Reason::Continued)
        );
        seconds
    };
    open_up_to(ring, last).into_iter().map(read).collect()
}

#[test]
fn a_ring_holds_at_least_the_requested_time_and_not_much_more() {
    let dir = Dir::new("time");
    let mut ring = dir.ring(SegmentLimits::ring(80 * SECOND, 1 << 30));
    for second in 0..1_000u64 {
        ring.segments.add(&sample(second), (second * SECOND).saturating_sub(80 * SECOND)).unwrap();
        let held = ring.segments.held_ns() / SECOND;
        assert!((second.min(80)..=80 + 10).contains(&held), "{held} held at {second}");
        let files = fs::read_dir(&ring.directory).unwrap().count();
        assert!(files <= 10, "{files} files");
    }
    let segments = contents(&mut ring, 999);
    for two in segments.windows(2) {
        assert_eq!(two[0].last(), two[1].first(), "no interval is lost between segments");
    }
    assert!(segments[0][0] <= 919 && *segments.last().unwrap().last().unwrap() == 999, "{segments:?}");
    ring.remove().unwrap();
    assert_eq!(fs::read_dir(&dir.0).unwrap().count(), 0);
}

#[test]
fn a_ring_never_exceeds_its_size_limit() {
    let dir = Dir::new("size");
    let bytes = 256 << 10;
    let mut ring = dir.ring(SegmentLimits::ring(100_000 * SECOND, bytes));
    for second in 0..12_000u64 {
        ring.segments.add(&sample(second), 0).unwrap();
        let files = fs::read_dir(&ring.directory).unwrap();
        let on_disk: u64 = files.map(|entry| entry.unwrap().metadata().unwrap().len()).sum();
        assert!(
            on_disk <= bytes && ring.segments.bytes_on_disk() <= bytes,
            "{on_disk} bytes, {} by its own count",
            ring.segments.bytes_on_disk()
        );
    }
    assert!(
        ring.segments.shortened && ring.segments.bytes_on_disk() > bytes / 2,
        "{}",
        ring.segments.bytes_on_disk()
    );
    assert!(ring.segments.bytes() > 2 * bytes);
}

#[test]
fn an_opened_segment_stays_readable_after_its_removal_from_the_ring() {
    let dir = Dir::new("opened");
    let mut ring = dir.ring(SegmentLimits::ring(8 * SECOND, 1 << 30));
    for second in 0..8 {
        ring.segments.add(&sample(second), 0).unwrap();
    }
    let opened = open_up_to(&mut ring, 7);
    for second in 8..100 {
        ring.segments.add(&sample(second), second * SECOND).unwrap();
    }
    let seconds: Vec<u64> =
        opened.into_iter().flatten().map(|sample| sample.unwrap().mono_ns / SECOND).collect();
    assert_eq!((seconds.first(), seconds.last()), (Some(&0), Some(&7)));
}

#[test]
fn the_ring_of_a_killed_run_is_kept_and_the_ring_of_a_running_one_is_refused() {
    let dir = Dir::new("killed");
    let limits = SegmentLimits::ring(8 * SECOND, 1 << 30);
    let mut ring = dir.ring(limits);
    ring.segments.add(&sample(1), 0).unwrap();
    let header = Header::default();
    let Err(refused) = Ring::create(&dir.0.join("a.rec"), &header, limits) else {
        panic!("two rings in one directory")
    };
    assert!(refused.to_string().contains("another cgscope that is running"), "{refused}");
    // Simulate that cgscope is killed.
    drop(ring);
    let ring = dir.ring(limits);
    let kept: Vec<_> = fs::read_dir(&dir.0)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| *path != ring.directory)
        .collect();
    let [kept] = kept.as_slice() else { panic!("{kept:?}") };
    assert!(file::is_stamped(&dir.0.join("a.rec.ring"), kept), "{kept:?}");
    let mut segment = open(kept.join("000001.rec")).unwrap();
    assert_eq!(segment.by_ref().count(), 1);
    assert_eq!(segment.ending.as_ref(), Some(&Ending::Killed));
    ring.remove().unwrap();
    assert!(kept.exists());
}

#[test]
fn foreign_files_in_the_directory_of_a_ring_are_not_removed() {
    let dir = Dir::new("foreign");
    let ring = dir.ring(SegmentLimits::ring(8 * SECOND, 1 << 30));
    let foreign = ring.directory.join("notes.txt");
    fs::write(&foreign, "mine").unwrap();
    let said = ring.remove().unwrap_err().to_string();
    assert!(said.contains("cannot be removed"), "{said}");
    assert_eq!(fs::read_to_string(&foreign).unwrap(), "mine");
}
