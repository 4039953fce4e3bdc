use std::time::{Duration, Instant};

use cgscope_model::{
    ExitedReading, Interval, Sample, TaskReading, Totals,
    follower::{Followed, Follower},
};
use cgscope_record::{Header, Incoming, Message};

use super::*;
use crate::shown::Reading;

const SECOND: u64 = 1_000_000_000;

fn taken(number: u64, at_ns: u64, is_on_grid: bool) -> Taken {
    let sample = Sample { unix_ns: number, mono_ns: number, ..Sample::default() };
    Taken {
        reading: Arc::new(Reading { sample, followed: Vec::new() }),
        ended: Arc::default(),
        at_ns,
        is_on_grid,
        number,
        began: Instant::now(),
        at: Instant::now(),
        took: Duration::ZERO,
        changes: 0,
    }
}

fn every(interval_ns: u64) -> StreamKind {
    StreamKind { follower: None, interval_ns }
}

fn join(streams: &mut Streams, kind: StreamKind) -> Cursor {
    streams.join(kind, 0, 0).unwrap()
}

/// Returns the numbers of the samples that are available to a reader.
fn read(streams: &mut Streams, cursor: &mut Cursor) -> Vec<u64> {
    let mut bytes = Outgoing::opening(&Header::default()).unwrap();
    while let Some(shown) = streams.next(cursor) {
        bytes.extend(&*shown.frame);
    }
    samples(&bytes).iter().map(|sample| sample.unix_ns).collect()
}

fn samples(mut bytes: &[u8]) -> Vec<Sample> {
    let mut incoming = Incoming::open::<String>(&mut bytes).unwrap().unwrap();
    let mut samples = Vec::new();
    while let Some(Message::Sample(sample)) = incoming.receive::<String>().unwrap() {
        samples.push(*sample);
    }
    samples
}

fn show(streams: &mut Streams, taken: &Taken) {
    streams.show(taken);
}

#[test]
fn each_stream_has_the_samples_of_its_grid() {
    let mut streams = Streams::default();
    let mut seconds = join(&mut streams, every(SECOND));
    let mut halves = join(&mut streams, every(SECOND / 2));
    assert!(streams.of(&seconds).is_new());
    show(&mut streams, &taken(1, SECOND / 4, false));
    show(&mut streams, &taken(2, SECOND / 2, true));
    show(&mut streams, &taken(3, SECOND, true));
    show(&mut streams, &taken(4, SECOND * 5 / 4, false));
    show(&mut streams, &taken(5, SECOND * 3 / 2, true));
    // No sample was taken at 2 s, which is a grid point of both streams.
    show(&mut streams, &taken(6, SECOND * 5 / 2, true));
    show(&mut streams, &taken(6, SECOND * 5 / 2, true));
    assert_eq!(read(&mut streams, &mut halves), [1, 2, 3, 5, 6]);
    assert_eq!(read(&mut streams, &mut seconds), [1, 3, 6]);
}

#[test]
fn a_later_reader_starts_at_the_last_key_frame_and_then_shares() {
    let mut streams = Streams::default();
    let mut first = join(&mut streams, every(SECOND));
    for number in 1..=12 {
        show(&mut streams, &taken(number, number * SECOND, true));
    }
    assert_eq!(read(&mut streams, &mut first).len(), 12);
    let mut second = join(&mut streams, every(SECOND));
    assert_eq!(read(&mut streams, &mut second), (1..=12).collect::<Vec<_>>());
    show(&mut streams, &taken(13, 13 * SECOND, true));
    assert_eq!(streams.streams[&every(SECOND)].frames.len(), 1, "a key frame for the new readers");
    let mut third = join(&mut streams, every(SECOND));
    assert_eq!(read(&mut streams, &mut third), [13]);
    assert_eq!((streams.streams.len(), streams.of(&third).readers.len()), (1, 3));
    for cursor in [first, second, third] {
        streams.leave(&cursor, 0);
    }
    assert!(streams.streams.is_empty());
}

#[test]
fn a_reader_that_falls_behind_continues_at_a_key_frame() {
    let mut streams = Streams::default();
    let mut slow = join(&mut streams, every(SECOND));
    show(&mut streams, &taken(1, SECOND, true));
    assert_eq!(read(&mut streams, &mut slow), [1]);
    for number in 2..=400 {
        show(&mut streams, &taken(number, number * SECOND, true));
    }
    let passed = streams.next(&mut slow.clone()).map_or(0, |shown| shown.passed);
    let got = read(&mut streams, &mut slow);
    assert!(got.len() <= 129 && got.last() == Some(&400), "{got:?}");
    assert_eq!(1 + passed + got.len() as u64, 400, "the viewer is told how many it lost");
    show(&mut streams, &taken(401, 401 * SECOND, true));
    assert_eq!(streams.next(&mut slow).map(|shown| shown.passed), Some(0));
}

#[test]
fn an_immediate_sample_is_outside_the_grid_and_shown_once() {
    let mut streams = Streams::default();
    let mut cursor = join(&mut streams, every(SECOND));
    show(&mut streams, &taken(1, SECOND, true));
    assert_eq!(streams.one_more(&cursor), 1);
    for number in 2..=3 {
        show(&mut streams, &taken(number, SECOND * 5 / 4, false));
    }
    show(&mut streams, &taken(4, SECOND * 2, true));
    assert_eq!(streams.of(&cursor).behind(&cursor), 3);
    let all = std::iter::from_fn(|| streams.next(&mut cursor));
    let all: Vec<_> = all.map(|shown| (shown.number, shown.is_beside)).collect();
    assert_eq!(all, [(1, false), (2, true), (4, false)]);
}

#[test]
fn nothing_is_shown_before_the_requested_processes_are_followed() {
    let mut streams = Streams::default();
    let mut cursor = streams.join(every(SECOND), 0, 2).unwrap();
    show(&mut streams, &taken(1, SECOND, true));
    assert!(streams.next(&mut cursor).is_none());
    show(&mut streams, &Taken { changes: 2, ..taken(2, SECOND * 2, true) });
    assert_eq!(streams.next(&mut cursor).map(|shown| shown.number), Some(2));
}

#[test]
fn a_stream_that_cannot_be_encoded_ends_with_a_reason_and_others_continue() {
    let mut streams = Streams::default();
    let following = StreamKind { follower: Follower::all().next(), interval_ns: SECOND };
    let [mut all, mut one] = [every(SECOND), following].map(|kind| join(&mut streams, kind));
    show(&mut streams, &taken(1, SECOND, true));
    // The tasks are in the wrong order, but no viewer follows them.
    let mut sample = cgscope_made_up::host(3, 1, 2);
    sample.tasks.reverse();
    let reading = Arc::new(Reading { sample, followed: Vec::new() });
    let mut seen = |streams: &mut Streams| streams.next(&mut one).map(|shown| shown.number);
    assert_eq!(seen(&mut streams), Some(1));
    show(&mut streams, &Taken { reading, ..taken(2, 2 * SECOND, true) });
    assert_eq!(seen(&mut streams), Some(2));
    show(&mut streams, &taken(3, 3 * SECOND, true));
    assert_eq!(seen(&mut streams), Some(3));
    let word = streams.of(&all).ended.clone().expect("it ended");
    assert_eq!(word.refused, Some(Refusal::Failed));
    assert!(word.sentence.contains("not in the order of their serials"), "{}", word.sentence);
    assert!(streams.next(&mut all).is_none());
    // If a reader joins after all other readers have left, it gets a new stream.
    streams.leave(&all, 0);
    let mut again = join(&mut streams, every(SECOND));
    show(&mut streams, &taken(4, 4 * SECOND, true));
    assert_eq!(streams.next(&mut again).map(|shown| shown.number), Some(4));
}

/// The tasks as (serial, whether the task is followed, ns on a CPU), and the cgroups in which other tasks exited.
type Second<'a> = (&'a [(u64, bool, u64)], &'a [u64]);

/// Returns samples, one for each second. All tasks are in one cgroup. The task with serial N starts at N - 0.5 s.
fn seconds(samples: &[Second<'_>]) -> Vec<Taken> {
    let (mut before, mut ended) = (Reading::default(), Arc::<Ended>::default());
    let taken = |(number, (tasks, exited)): (u64, &Second<'_>)| {
        let mut sample = cgscope_made_up::host(1, 1, 1);
        let mut task = (*sample.tasks[0]).clone();
        (task.cgroup_id, task.moved_ns) = (7, None);
        let totals = |on_cpu_ns| Totals { on_cpu_ns, ..Totals::default() };
        let read = |(serial, _, ns): &(u64, bool, u64)| TaskReading {
            serial: *serial,
            start_ns: serial * SECOND - SECOND / 2,
            totals: totals(*ns),
            ..task.clone()
        };
        sample.tasks = tasks.iter().map(read).map(Arc::new).collect();
        let read =
            |id: &u64| ExitedReading { cgroup_id: *id, totals: totals(50), ..sample.exited[0].clone() };
        sample.exited = exited.iter().map(read).collect();
        sample.cgroups = vec![(7, "/7".into())];
        sample.cgroups.extend(exited.iter().map(|id| (*id, format!("/{id}").into())));
        sample.pairs.clear();
        sample.mono_ns = number * SECOND;
        let followed = |(serial, is_followed, _): &(u64, bool, u64)| Followed {
            serial: *serial,
            followers: if *is_followed { u64::MAX } else { 0 },
        };
        let reading = Reading { sample, followed: tasks.iter().map(followed).collect() };
        ended = ended.then(number, &before, &reading);
        before = reading.clone();
        Taken { reading: Arc::new(reading), ended: ended.clone(), ..taken(number, number * SECOND, true) }
    };
    (1..).zip(samples).map(taken).collect()
}

/// Returns how long each cgroup ran (ns), computed from the samples that a reader receives.
fn ran(streams: &mut Streams, cursor: &mut Cursor) -> BTreeMap<Option<Arc<str>>, u64> {
    let mut bytes = Outgoing::opening(&Header::default()).unwrap();
    while let Some(shown) = streams.next(cursor) {
        bytes.extend(&*shown.frame);
    }
    let mut incoming = Incoming::open::<String>(bytes.as_slice()).unwrap().unwrap();
    let mut samples = Vec::new();
    while let Some(Message::Sample(sample)) = incoming.receive::<String>().unwrap() {
        samples.push(sample);
    }
    let mut sums = BTreeMap::new();
    for two in samples.windows(2) {
        for (path, group) in Interval::between(&two[0], &two[1]).by_cgroup() {
            *sums.entry(path).or_default() += group.totals.on_cpu_ns;
        }
    }
    sums.retain(|_, ns| *ns != 0);
    sums
}

#[test]
fn a_reader_that_skips_samples_still_gets_what_ended_in_them() {
    let samples = seconds(&[
        (&[(1, true, 100), (2, false, 100)], &[]),
        (&[(1, true, 120), (2, false, 107)], &[8, 9]),
        (&[(2, false, 108), (3, true, 1_000)], &[9]),
        (&[(2, false, 108)], &[9]),
        (&[(2, false, 109)], &[]),
        (&[], &[]),
        (&[], &[]),
        (&[], &[]),
    ]);
    let of = |ran: &[(&str, u64)]| ran.iter().map(|(path, ns)| (Some(Arc::from(*path)), *ns)).collect();
    for (follower, expected) in [
        (None, of(&[("/", 1_129), ("/7", 1_029), ("/8", 50), ("/9", 50)])),
        (Follower::all().next(), of(&[("/", 1_020), ("/7", 1_020)])),
    ] {
        let mut streams = Streams::default();
        let kinds = [1, 2, 3, 7].map(|seconds| StreamKind { follower, interval_ns: seconds * SECOND });
        let mut cursors = kinds.map(|kind| join(&mut streams, kind));
        for taken in &samples {
            streams.skip(taken);
            streams.show(taken);
        }
        for cursor in &mut cursors {
            let ran: BTreeMap<_, _> = ran(&mut streams, cursor);
            assert_eq!(ran, expected, "{:?}", cursor.kind);
        }
    }
}

/// Compares what three viewers receive with a snapshot. One viewer sees each second, one each third second, and one follows some
/// processes.
#[test]
fn what_viewers_get_has_not_changed() {
    let follower = Follower::all().next().unwrap();
    let mut streams = Streams::default();
    let kinds =
        [every(SECOND), every(3 * SECOND), StreamKind { follower: Some(follower), interval_ns: SECOND }];
    let mut viewers = kinds.map(|kind| join(&mut streams, kind));
    let (mut before, mut ended) = (Arc::<Reading>::default(), Arc::<Ended>::default());
    let mut lines = String::new();
    let mut sent = [(); 3].map(|()| Outgoing::opening(&Header::default()).unwrap());
    for number in 1..=9 {
        let sample = cgscope_made_up::host(60 - 4 * (number as u32 % 4), 9 - (number as u32 % 3), number);
        let of = sample.tasks.iter().filter(|task| task.tgid.is_multiple_of(3));
        let followed = of.map(|task| Followed { serial: task.serial, followers: follower.bit() }).collect();
        let reading = Arc::new(Reading { sample, followed });
        ended = ended.then(number, &before, &reading);
        before = reading.clone();
        let taken = Taken { reading, ended: ended.clone(), ..taken(number, number * SECOND, true) };
        streams.skip(&taken);
        streams.show(&taken);
        for (viewer, sent) in viewers.iter_mut().zip(&mut sent) {
            while let Some(shown) = streams.next(viewer) {
                sent.extend(&*shown.frame);
            }
        }
    }
    for (viewer, sent) in sent.iter().enumerate() {
        for pair in samples(sent).windows(2) {
            let interval = Interval::between(&pair[0], &pair[1]);
            let text = format!("{:?} {:?} {:?}", interval.by_cgroup(), interval.pairs, interval.limits);
            lines += &format!("viewer {viewer}: {:08x} {}\n", crc32fast::hash(text.as_bytes()), text.len());
        }
    }
    insta::assert_snapshot!(lines);
}
