//! Builds intervals to write, and collects the bytes that a sink writes.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex},
};

use cgscope_export::{About, Error, Format, Out};
use cgscope_made_up::small;
use cgscope_model::{
    Blame, ByCause, Cause, CgroupReading, CpuReading, ExitedReading, Hist, Interval, Losses, Mode,
    PairReading, Pending, Sample, TaskReading, Totals, findings::Host,
};

pub(crate) const START_NS: u64 = 1_700_000_000_000_000_123;
pub(crate) const SECOND: u64 = 1_000_000_000;

pub(crate) fn about() -> About {
    About {
        cgscope_version: "0.1.0".into(),
        hostname: "web 1, rack \"b\"".into(),
        measured_by: "cgscope 0.1.0 on web 1, rack \"b\", Linux 6.18.0 x86_64".into(),
        start_unix_ns: START_NS,
        host: Host { cpus: Some(2), whole: true, kernel: None },
    }
}

/// Returns the totals of `n` waits of 3 ms with the given cause, and of `n` waits of 2 us with the cause wakeup.
fn totals(cause: Cause, n: u64) -> (Totals, Hist) {
    let mut by_cause = ByCause::only(cause, n * 3_000_000);
    by_cause.add(&ByCause::only(Cause::Wakeup, n * 2_000));
    let mut hist = Hist::of_cause(cause, std::iter::repeat_n(3_000_000, n as usize));
    hist.add(&Hist::from_waits_ns(std::iter::repeat_n(2_000, n as usize)));
    let totals = Totals {
        waits: 2 * n,
        wait_ns: by_cause.total(),
        run_delay_ns: by_cause.total(),
        on_cpu_ns: n * 1_000_000,
        voluntary: n,
        involuntary: 2 * n,
        migrations: n,
        by_cause,
        ..Totals::default()
    };
    (totals, hist)
}

fn task(serial: u64, tgid: u32, comm: &str, cgroup_id: u64, cause: Cause, n: u64) -> TaskReading {
    let (totals, hist) = totals(cause, n);
    let pending = Pending { ns: 5_000, booked_ns: 0, by_cause: ByCause::only(cause, 5_000) };
    TaskReading {
        serial,
        tid: serial as u32,
        tgid,
        comm: comm.into(),
        start_ns: 5,
        cgroup_id,
        cpu: 1,
        node: Some(0),
        pending: (serial == 11).then_some(pending.into()),
        max_ns: 3_000_000,
        totals,
        hist: Arc::new(hist),
        ..TaskReading::default()
    }
}

fn pair(victim: u64, culprit: u64, blame: Blame, ns: u64) -> PairReading {
    PairReading { victim, culprit, blame, tid: 0, comm: "".into(), ns }
}

/// Returns the sample after `n` seconds. The same events happen in every second.
pub(crate) fn sample(n: u64, mode: Mode) -> Sample {
    let (ended, hist) = totals(Cause::Kernel, 5 * n);
    let limits = CgroupReading {
        id: 7,
        quota_us: Some(50_000),
        period_us: Some(100_000),
        nr_periods: Some(10 * n),
        nr_throttled: Some(9 * n),
        throttled_ns: Some(400_000_000 * n),
        ..CgroupReading::default()
    };
    Sample {
        unix_ns: START_NS + n * SECOND,
        mono_ns: 10 + n * SECOND,
        mode,
        tasks: [
            task(10, 10, "web, \"main\"", 7, Cause::Throttled, 100 * n),
            task(11, 10, "worker", 7, Cause::Throttled, 40 * n),
            task(12, 12, "", 1, Cause::OtherCgroup, 7 * n),
            // This task switched, but did not wait.
            TaskReading {
                totals: Totals { voluntary: n, ..Totals::default() },
                ..task(13, 13, "quiet", 9, Cause::Wakeup, 0)
            },
            // This task did nothing, so no format contains its figures.
            task(14, 13, "idle", 9, Cause::Wakeup, 0),
        ]
        .map(Arc::new)
        .to_vec(),
        exited: vec![ExitedReading {
            accounts: None,
            cgroup_id: 7,
            tasks: 3 * n,
            max_ns: 3_000_000,
            totals: ended,
            hist: Arc::new(hist),
        }],
        pairs: vec![
            pair(1, 7, Blame::Ran, 7 * n * 3_000_000),
            pair(7, 7, Blame::Limited, 140 * n * 3_000_000),
        ],
        limits: vec![limits],
        cgroups: vec![(1, "/".into()), (7, "/system.slice/web app.service".into())],
        cpus: (0..2)
            .map(|cpu| CpuReading {
                cpu,
                node: Some(0),
                busy_ns: Some(600_000_000 * n),
                idle_ns: Some(400_000_000 * n),
                ..CpuReading::default()
            })
            .collect(),
        losses: Losses::from_iter([("culprit_forgotten", 2 * n)]),
        ..Sample::default()
    }
}

/// Returns `count` intervals of one second, with the figures that `mode` measures.
pub(crate) fn intervals(count: u64, mode: Mode) -> Vec<Interval> {
    let mut before = None;
    let samples = (0..=count).map(|n| {
        let mut sample = sample(n, mode);
        if mode == Mode::Coarse {
            for task in sample.tasks.iter_mut().map(Arc::make_mut) {
                task.hist = Arc::default();
                task.totals.by_cause = ByCause::only(Cause::Unattributed, task.totals.wait_ns);
            }
            (sample.exited, sample.pairs) = (Vec::new(), Vec::new());
        }
        sample
    });
    let between = |sample: Sample| {
        before
            .replace(sample.clone())
            .map(|before| Interval { chains: small::shop().chains, ..Interval::between(&before, &sample) })
    };
    samples.filter_map(between).collect()
}

/// An output that tests can read afterwards, and that can become full.
#[derive(Clone, Default)]
pub(crate) struct Paper {
    bytes: Arc<Mutex<Vec<u8>>>,
    room: Option<usize>,
}

impl Paper {
    pub(crate) fn with_room(bytes: usize) -> Self {
        Self { room: Some(bytes), ..Self::default() }
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().expect("nobody panicked").clone()
    }
}

impl Write for Paper {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        let mut bytes = self.bytes.lock().expect("nobody panicked");
        if self.room.is_some_and(|room| bytes.len() + more.len() > room) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

pub(crate) fn try_export(format: Format, intervals: &[Interval], paper: &Paper) -> Result<(), Error> {
    let out: Out = Box::new(paper.clone());
    let mut sink = format.sink(out, about())?;
    for interval in intervals {
        sink.interval(interval)?;
    }
    sink.finish()
}

pub(crate) fn export(format: Format, intervals: &[Interval]) -> Vec<u8> {
    let paper = Paper::default();
    try_export(format, intervals, &paper).unwrap_or_else(|error| panic!("{format:?}: {error}"));
    paper.bytes()
}

pub(crate) fn whole(intervals: &[Interval]) -> Interval {
    let mut whole = Interval::default();
    intervals.iter().cloned().for_each(|interval| whole.append(interval));
    whole
}
