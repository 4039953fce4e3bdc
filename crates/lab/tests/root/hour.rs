//! A synthetic recording of an hour on a busy host. cgscope needs as much time to read it as to read a real recording.

use std::{io::Read, path::Path, sync::Arc, time::Duration};

use cgscope_ledger::{
    BUCKETS, bucket_of,
    cause::{CELLS, COLUMNS, WHOLE, cell_of, column_of, row_of},
};
use cgscope_made_up::demand::Limited;
use cgscope_model::{
    ByCause, Cause, CgroupReading, CpuReading, ExitedReading, Hist, NodeReading, Sample, TaskReading,
    TaskState, Totals,
};
use cgscope_record::{Cpu, FileWriter, Header, Reason};

use crate::{
    bench::{cgscope, median},
    files::Dir,
    load::Load,
};

const SECOND: u64 = 1_000_000_000;
const CGROUPS: u64 = 40;
/// Number of tasks that exit in each second, and number of tasks that start.
const CHURN: usize = 5;

/// Generator of pseudo-random numbers, with Knuth's MMIX constants. Every run has the same numbers.
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

struct Task {
    reading: TaskReading,
    counts: [u64; BUCKETS],
    shares: [u64; CELLS],
}

/// A host with `tasks` tasks. Half of the tasks sleep, and the other half wait 1, 10, 100 or 200 times a second.
pub(crate) struct MadeUp {
    numbers: Numbers,
    tasks: Vec<Task>,
    exited: Vec<ExitedReading>,
    born: u64,
    seconds: u64,
}

impl MadeUp {
    pub(crate) fn new(tasks: usize) -> Self {
        let mut host =
            Self { numbers: Numbers(1), tasks: Vec::new(), exited: Vec::new(), born: 0, seconds: 1_000 };
        for _ in 0..tasks {
            host.bear();
        }
        host
    }

    fn bear(&mut self) {
        self.born += 1;
        let id = self.born;
        let reading = TaskReading {
            accounts: None,
            // A task that starts later has a higher serial, as on a host on which thread ids increase.
            serial: id << 42 | self.seconds,
            tid: id as u32,
            tgid: (id - id % 8) as u32,
            comm: format!("worker/{}", id % 50).into(),
            start_ns: self.seconds * SECOND + id,
            moved_ns: None,
            before_move: None,
            cgroup_id: 1 + id % CGROUPS,
            cpu: 0,
            node: Some(0),
            on_cpu: false,
            state: Some(TaskState::Sleeping),
            pending: None,
            placement: None,
            scheduling: None,
            max_ns: 0,
            totals: Totals::default(),
            hist: Arc::default(),
        };
        self.tasks.push(Task { reading, counts: [0; BUCKETS], shares: [0; CELLS] });
    }

    fn live(&mut self) {
        self.seconds += 1;
        for (i, task) in self.tasks.iter_mut().enumerate() {
            let waits = match i % 20 {
                0..10 => u64::from(self.seconds % 30 == i as u64 % 30),
                10..15 => 1,
                15..18 => 10,
                18 => 100,
                _ => 200,
            };
            if waits != 0 {
                task.wait(waits, &mut self.numbers);
            }
            // The more often a task wakes, the more likely the task is awake when the sample is taken.
            let is_awake = self.numbers.below(400) < waits;
            task.reading.state = Some(if is_awake { TaskState::Running } else { TaskState::Sleeping });
        }
        for _ in 0..CHURN {
            let exited = self.numbers.below(self.tasks.len() as u64) as usize;
            let exited = self.tasks.remove(exited).reading;
            match self.exited.binary_search_by_key(&exited.cgroup_id, |exited| exited.cgroup_id) {
                Ok(at) => self.exited[at].tasks += 1,
                Err(at) => self.exited.insert(
                    at,
                    ExitedReading {
                        accounts: None,
                        cgroup_id: exited.cgroup_id,
                        tasks: 1,
                        max_ns: exited.max_ns,
                        totals: Totals::default(),
                        hist: Arc::default(),
                    },
                ),
            }
            self.bear();
        }
    }

    fn sample(&mut self) -> Sample {
        self.live();
        let now = self.seconds;
        let limits = (1..=CGROUPS).map(|id| CgroupReading {
            id,
            quota_us: (id % 4 == 0).then_some(50_000),
            period_us: Some(100_000),
            usage_ns: Some(now * 7_000_000 * id),
            nr_periods: (id % 4 == 0).then_some(now * 10),
            nr_throttled: (id % 4 == 0).then_some(now * 3),
            throttled_ns: (id % 4 == 0).then_some(now * 31_000_000),
            ..CgroupReading::default()
        });
        let cpu = |cpu| CpuReading {
            cpu,
            node: Some(0),
            busy_ns: Some(now * 800_000_000),
            idle_ns: Some(now * 200_000_000),
            ..CpuReading::default()
        };
        Sample {
            unix_ns: 1_700_000_000 * SECOND + now * SECOND,
            mono_ns: now * SECOND,
            tasks: self.tasks.iter().map(|task| Arc::new(task.reading.clone())).collect(),
            exited: self.exited.clone(),
            limits: limits.collect(),
            cgroups: (1..=CGROUPS).map(|id| (id, format!("/made-up.slice/service-{id}").into())).collect(),
            cpus: (0..8).map(cpu).collect(),
            nodes: vec![NodeReading { node: 0, memory_bytes: Some(1 << 34), free_bytes: Some(1 << 33) }],
            ..Sample::default()
        }
    }
}

impl Task {
    fn wait(&mut self, waits: u64, numbers: &mut Numbers) {
        let totals = &mut self.reading.totals;
        for _ in 0..waits {
            // A wait lasts from 1 µs to 16 ms. The waits of one task have two causes, and their lengths differ at most by a
            // factor of eight.
            let serial = self.reading.serial >> 42;
            let ns = 1_000u64 << (serial % 12 + numbers.below(3));
            let ns = ns + numbers.below(ns);
            let cause = Cause::ALL[(serial + numbers.below(2)) as usize % Cause::ALL.len()];
            let bucket = bucket_of(ns);
            self.counts[bucket] += 1;
            if column_of(cause) < COLUMNS {
                self.shares[cell_of(row_of(bucket), column_of(cause))] += u64::from(WHOLE);
            }
            totals.by_cause.add(&ByCause::only(cause, ns));
            totals.waits += 1;
            totals.wait_ns += ns;
            totals.run_delay_ns += ns;
            self.reading.max_ns = self.reading.max_ns.max(ns);
        }
        totals.on_cpu_ns += waits * 20_000 + numbers.below(10_000);
        totals.voluntary += waits - waits / 10;
        totals.involuntary += waits / 10;
        self.reading.cpu = numbers.below(8) as u32;
        self.reading.hist = Arc::new(Hist::from_counts(self.counts, self.shares));
    }
}

impl Iterator for MadeUp {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        Some(self.sample())
    }
}

/// Writes a recording of `seconds` seconds. Returns the CPU time for writing.
pub(crate) fn record(path: &Path, host: impl Iterator<Item = Sample>, seconds: usize) -> Duration {
    let header = Header {
        cgscope_version: "0.1.0".into(),
        hostname: "made-up".into(),
        kernel_release: "6.12".into(),
        architecture: "x86_64".into(),
        cpus: (0..8).map(|cpu| Cpu { cpu, node: Some(0) }).collect(),
        interval_ns: SECOND,
        start_unix_ns: 1_700_000_000 * SECOND,
        ..Header::default()
    };
    let mut file = FileWriter::create(path, &header).expect("a file");
    let mut wrote = Duration::ZERO;
    for sample in host.take(seconds + 1) {
        let before = cpu_time();
        file.sample(&sample).expect("a Sample");
        wrote += cpu_time() - before;
    }
    file.end(0, Reason::Finished).expect("an end");
    wrote
}

fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `clock_gettime` writes all of `time`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

pub(crate) fn cpu_time_of(done: impl FnOnce()) -> Duration {
    let before = cpu_time();
    done();
    cpu_time() - before
}

/// Runs `cgscope` as a child of the small process `workload`. As a child of this large process, it would inherit a larger maximum
/// of resident memory. Returns the duration and the maximum resident memory, bytes.
fn cost(args: &[&str]) -> (Duration, u64) {
    let cgscope = cgscope();
    let program = cgscope.get_program().to_str().expect("a path in UTF-8");
    let (load, mut out) = Load::workload(&[&["cost", program], args].concat(), None);
    let mut text = String::new();
    out.read_to_string(&mut text).expect("its output is readable");
    load.wait();
    let figures =
        text.trim().split_once(' ').and_then(|(ns, bytes)| Some((ns.parse().ok()?, bytes.parse().ok()?)));
    let (ns, bytes) = figures.unwrap_or_else(|| panic!("{args:?}: {text:?}"));
    (Duration::from_nanos(ns), bytes)
}

#[test]
fn the_measured_memory_of_a_command_excludes_that_of_the_tests() {
    // Write to each page, so that the memory is resident.
    let large = vec![1u8; 300 << 20];
    let (_, bytes) = cost(&["--version"]);
    std::hint::black_box(&large);
    assert!(bytes < 100 << 20, "{bytes} bytes");
}

/// Maximum time for reading the recording, and maximum time for simulating five cgroups.
const SOON: Duration = Duration::from_secs(2);
/// Maximum time for reading on a slow machine, as a share of the CPU time for writing the same recording. The measured shares are
/// 0.67 to 0.71. Writing usually takes 2.2 to 3.2 s.
const OF_WRITING: f64 = 0.75;

/// Checks that a command needs at most the time `most` (median of three runs) and 200 MiB of memory. On a slow machine, the time
/// can be longer ([`OF_WRITING`]).
fn assert_soon(args: &[&str], most: Duration, wrote: Duration) {
    let costs: Vec<_> = (0..3).map(|_| cost(args)).collect();
    let time = median(costs.iter().map(|(time, _)| *time));
    eprintln!("{}: {costs:?}", args[..args.len() / 2].join(" "));
    let most = most.max(wrote.mul_f64(OF_WRITING));
    assert!(time < most, "{args:?}: {costs:?}, not {most:?}; written in {wrote:?}");
    assert!(costs.iter().all(|(_, memory)| *memory < 200 << 20), "{args:?}: {costs:?}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: asserts a time"]
    fn an_hour_of_a_thousand_tasks_makes_a_small_file_that_is_read_quickly() {
        let dir = Dir::new("hour");
        let file = dir.file("hour.rec");
        let wrote = record(Path::new(&file), MadeUp::new(1_000), 3_600);
        // The limit for writing, 36 s, is 1 % of the recorded hour.
        assert!(wrote < Duration::from_secs(36), "{wrote:?}");
        let bytes = std::fs::metadata(&file).expect("a file of ours").len();
        assert!(bytes < 60 * (2 << 20), "{bytes} bytes in an hour");
        eprintln!("an hour: {bytes} bytes, written in {wrote:?} of CPU time");
        let page = dir.file("hour.html");
        let other = dir.file("other.rec");
        std::fs::copy(&file, &other).expect("there is room");
        let commands =
            [&["report", &file][..], &["report", &file, "--html", &page], &["diff", &file, &other]];
        commands.iter().for_each(|args| assert_soon(args, SOON, wrote));
    }

    /// One in five cgroups is in a pod. `whatif` simulates the cgroups with the longest throttled time, and some of them are in
    /// pods.
    #[test]
    #[ignore = "all CPUs: asserts a time"]
    fn whatif_over_an_hour_of_200_cgroups_with_quotas_answers_quickly() {
        let dir = Dir::new("whatif-hour");
        let file = dir.file("hour.rec");
        let wrote = record(Path::new(&file), Limited::new(200), 3_600);
        eprintln!(
            "an hour: {} bytes, written in {wrote:?} of CPU time",
            std::fs::metadata(&file).expect("a file").len()
        );
        assert_soon(&["whatif", &file], SOON, wrote);
    }
}
