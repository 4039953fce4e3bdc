//! Measures the cost of the collector on a host with 5,000 sleeping threads, read once per second.

use std::{
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{bounds::Bounds, subject::cgscope};

const THREADS: u32 = 5_000;
const SECONDS: u32 = 10;

pub fn measure(bounds: &mut Bounds) -> Result<()> {
    let _load = Load::start(&["sleep", &THREADS.to_string(), "300"])?;
    println!("\n{THREADS} sleeping threads, `cgscope hist --json 1` for {SECONDS} s");
    let mut child = Command::new(cgscope()?)
        .args(["hist", "--verbose", "--json", "1", &SECONDS.to_string()])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let started = Instant::now();
    let mut said = BufReader::new(child.stderr.take().context("standard error")?);
    let mut line = String::new();
    said.read_line(&mut line)?;
    let attached_ms = started.elapsed().as_secs_f64() * 1e3;
    bounds.at_most(&format!("start to attached: {attached_ms:.0} ms"), attached_ms, 180.0);

    let (mut cpu_ns, mut wall_ns, mut rss, mut tasks) = (0, 0, 0, 0);
    for line in BufReader::new(child.stdout.take().context("standard output")?).lines() {
        let interval: Value = serde_json::from_str(&line?)?;
        let number = |value: &Value| value.as_u64().unwrap_or(0);
        cpu_ns += number(&interval["self"]["cpu_ns"]);
        wall_ns += number(&interval["duration_ns"]);
        rss = number(&interval["self"]["rss_bytes"]).max(rss);
        let active = interval["tasks"].as_array().map_or(0, Vec::len) as u64;
        tasks = active + number(&interval["idle_tasks"]);
    }
    child.wait()?;
    println!("tasks read: {tasks}");
    let cpu = 100.0 * cpu_ns as f64 / wall_ns as f64;
    bounds.at_most(&format!("CPU: {cpu:.2} % of one core, JSON included"), cpu, 2.0);
    let resident = rss as f64 / 1048576.0;
    bounds.at_most(&format!("resident: {resident:.1} MiB"), resident, 30.0);
    Ok(())
}

/// A load of the lab, killed on drop.
pub struct Load(Child);

impl Load {
    /// Starts `workload ARGS` and waits until it is ready.
    pub fn start(args: &[&str]) -> Result<Self> {
        let path = std::env::current_exe()?.with_file_name("workload");
        let mut child = Command::new(&path).args(args).stdout(Stdio::piped()).spawn().with_context(|| {
            format!("cannot start {}: run `cargo xtask overhead`, which builds it", path.display())
        })?;
        let output = child.stdout.take().context("its output")?;
        let load = Self(child);
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        anyhow::ensure!(line == "ready\n", "the load {args:?} did not start");
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
