//! A job with a fixed amount of work: ffmpeg encodes a number of frames. For such a job, `cgscope whatif` also predicts the run
//! time.

use std::{
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use super::{
    super::{Bounds, Counted, Limit, Measured, Recorded, limited},
    cell::{Answered, Cell, text},
    loads::FFMPEG,
};
use crate::{
    background::Background,
    bench::{OF_THE_HOST, assert_ended, cgscope},
    files::Dir,
    load::{Cgroup, Load},
};

const THREADS: [&str; 3] = ["1", "4", "16"];
/// Encoding this number of frames takes some 5 s of CPU time.
const FRAMES: &str = "300";
const RECORDED: Limit = Limit::of(800);
const SIMULATED: [Limit; 2] = [Limit::of(500), Limit::of(1_200)];
/// Recorded time before and after the job, which must exceed 1 s, because the simulation ignores the first and the last second.
const MARGIN: Duration = Duration::from_millis(2_500);

struct Run {
    run_s: f64,
    /// CPU time, s. The CPU time varies by 10 % between runs, because of caches and the clock rate of the CPU.
    cpu_s: f64,
    measured: Measured,
}

fn children_s() -> f64 {
    // SAFETY: a zeroed `rusage` is valid, and `getrusage` only writes to it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_CHILDREN, &raw mut usage), 0);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    seconds(usage.ru_utime) + seconds(usage.ru_stime)
}

/// Runs the job to its end, and measures it. Rates are per second of the run time plus `idle_s`.
fn run(cgroup: &Cgroup, threads: &str, idle_s: f64) -> Run {
    let args = [&FFMPEG[..], &[threads, "-frames:v", FRAMES, "-f", "null", "-"]].concat();
    let (before, begun, used_s) = (Counted::of(cgroup), Instant::now(), children_s());
    Load::start("ffmpeg", &args, Some(cgroup)).wait();
    let run_s = begun.elapsed().as_secs_f64();
    Run { run_s, cpu_s: children_s() - used_s, measured: before.until(&Counted::of(cgroup), run_s + idle_s) }
}

fn record(threads: &str) -> (Recorded, Run) {
    // The first run reads the program and its libraries from the disk.
    run(&limited(Limit::of(2_000)), threads, 0.0);
    let (cgroup, dir) = (limited(RECORDED), Dir::new("whatif-job"));
    let mut recording = Background::start(cgscope().args(["record", "-v", "-o", &dir.file("a.rec")]));
    recording.wait_for("attached after");
    thread::sleep(MARGIN);
    let job = run(&cgroup, threads, 0.0);
    thread::sleep(MARGIN);
    recording.signal(libc::SIGINT);
    let (code, said) = recording.wait();
    assert_ended(code, &said, OF_THE_HOST);
    (Recorded { dir: Rc::new(dir), path: cgroup.name.clone() }, job)
}

/// Returns the bounds of the time at which the simulated job ends under a limit, s.
fn done(answer: &Value, limit: Limit) -> Option<Bounds> {
    let rows = answer["rows"].as_array()?;
    let of = |row: &&Value| (row["cores"].as_f64().unwrap_or(0.0) * 1e3).round() as u64 == limit.milli;
    let row = rows.iter().find(of)?;
    let Bounds(low, high) = row["done_ns"].is_array().then(|| Bounds::of(row, "done_ns"))?;
    Some(Bounds(low / 1e9, high / 1e9))
}

fn cell(threads: &str, recorded: &Recorded, job: &Run, limit: Limit) -> Cell {
    let mut quotas = [RECORDED, limit].map(|limit| limit.milli);
    quotas.sort_unstable();
    // Ask for a range of quotas. Its first row is for the lowest quota, and its last row is for the highest quota.
    let range = quotas.map(|milli| (milli as f64 / 1e3).to_string()).join("..");
    let both = recorded.ask(&["--quota", &range]);
    let name = format!("ffmpeg, a job of {threads} threads");
    Cell::new(&name, [RECORDED, limit].map(text), &recorded.ask_for(limit), |row| {
        let (in_force, other) = (done(&both, RECORDED)?, done(&both, limit)?);
        // The simulation gives rates per second of the whole recording, so add the idle time of the recording to the run time.
        let idle_s = both["duration_ns"].as_f64()? / 1e9 - job.run_s;
        let now = run(&limited(limit), threads, idle_s);
        // The simulated job has as much work as the recorded job, but the measured job can have more or less. So scale the run
        // time by the ratio of the CPU times.
        let work = now.cpu_s / job.cpu_s;
        let ends = [other.0 - in_force.0, other.1 - in_force.1].map(|later_s| (job.run_s + later_s) * work);
        let bounds = Bounds(ends[0].min(ends[1]), ends[0].max(ends[1]));
        Some(Answered::new(row, now.measured).with_run(bounds, now.run_s))
    })
}

pub(super) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for threads in THREADS {
        let (recorded, job) = record(threads);
        cells.extend(SIMULATED.map(|limit| cell(threads, &recorded, &job, limit)));
    }
    cells
}
