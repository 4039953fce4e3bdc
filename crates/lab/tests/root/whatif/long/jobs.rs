//! A job of a fixed length: ffmpeg encodes a number of frames. Its run time is predicted, too.

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
    print,
};
use crate::{
    background::Background,
    bench::cgscope,
    files::Dir,
    load::{Cgroup, Load},
};

/// Threads of the encoder.
const THREADS: [&str; 3] = ["1", "4", "16"];
/// Some 5 s of CPU time.
const FRAMES: &str = "300";
const RECORDED: Limit = Limit::of(800);
const SIMULATED: [Limit; 2] = [Limit::of(500), Limit::of(1_200)];
/// Time before and after the job that the recording must cover: the first and the last sample are left out of the simulation.
const MARGIN: Duration = Duration::from_millis(2_500);

/// Runs the job to its end. Returns its run time, s, and what was counted; `idle_s` is added to the time for rates per second.
fn run(cgroup: &Cgroup, threads: &str, idle_s: f64) -> (f64, Measured) {
    let args = [&FFMPEG[..], &[threads, "-frames:v", FRAMES, "-f", "null", "-"]].concat();
    let (before, begun) = (Counted::of(cgroup), Instant::now());
    Load::start("ffmpeg", &args, Some(cgroup)).wait();
    let run_s = begun.elapsed().as_secs_f64();
    (run_s, before.until(&Counted::of(cgroup), run_s + idle_s))
}

/// A recording from before the job until after it, and the run time, s.
fn record(threads: &str) -> (Recorded, f64) {
    let (cgroup, dir) = (limited(RECORDED), Dir::new("whatif-job"));
    let mut recording = Background::start(cgscope().args(["record", "-v", "-o", &dir.file("a.rec")]));
    recording.wait_for("attached after");
    thread::sleep(MARGIN);
    let (run_s, _) = run(&cgroup, threads, 0.0);
    thread::sleep(MARGIN);
    recording.signal(libc::SIGINT);
    let (code, said) = recording.wait();
    assert!(matches!(code, Some(0 | 1)), "{said}");
    (Recorded { dir: Rc::new(dir), path: cgroup.name.clone() }, run_s)
}

/// The bounds of the end of the work under a limit, s.
fn done(answer: &Value, limit: Limit) -> Option<Bounds> {
    let rows = answer["rows"].as_array()?;
    let of = |row: &&Value| (row["cores"].as_f64().unwrap_or(0.0) * 1e3).round() as u64 == limit.milli;
    let row = rows.iter().find(of)?;
    let Bounds(low, high) = row["done_ns"].is_array().then(|| Bounds::of(row, "done_ns"))?;
    Some(Bounds(low / 1e9, high / 1e9))
}

fn cell(threads: &str, recorded: &Recorded, run_s: f64, limit: Limit) -> Cell {
    let mut quotas = [RECORDED, limit].map(|limit| limit.milli);
    quotas.sort_unstable();
    // The first and the last row of a range are its ends.
    let range = quotas.map(|milli| (milli as f64 / 1e3).to_string()).join("..");
    let both = recorded.ask(&["--quota", &range]);
    let name = format!("ffmpeg, a job of {threads} threads");
    Cell::new(&name, [RECORDED, limit].map(text), &recorded.ask_for(limit), |row| {
        let (in_force, other) = (done(&both, RECORDED)?, done(&both, limit)?);
        let ends = [other.0 - in_force.0, other.1 - in_force.1].map(|later_s| run_s + later_s);
        let bounds = Bounds(ends[0].min(ends[1]), ends[0].max(ends[1]));
        // The rate of the simulation is over all of the recording.
        let idle_s = both["duration_ns"].as_f64()? / 1e9 - run_s;
        let (measured_s, measured) = run(&limited(limit), threads, idle_s);
        Some(Answered::new(row, measured).with_run(bounds, measured_s))
    })
}

/// Prints the run time under the recorded limit, once in the recording and once without it: how far the same job differs by itself.
fn print_again(threads: &str, recorded_s: f64) {
    let (run_s, measured) = run(&limited(RECORDED), threads, 0.0);
    let limit = text(RECORDED);
    print(&format!(
        "| ffmpeg, a job of {threads} threads | {limit} | {limit}, again | {:.1} % | - | {:.3} s | - | {run_s:.1} s | {recorded_s:.1} s when recorded | - |",
        measured.share * 100.0,
        measured.throttled,
    ));
}

pub(super) fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for threads in THREADS {
        // The first run reads the program from the disk.
        run(&limited(Limit::of(2_000)), threads, 0.0);
        let (recorded, run_s) = record(threads);
        print_again(threads, run_s);
        cells.extend(SIMULATED.map(|limit| cell(threads, &recorded, run_s, limit)));
    }
    cells
}
