//! A host with very many threads.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use crate::{
    bench::{attached_after, json_lines, median, own_cpu_percent, run, slowness, stderr},
    load::Load,
    pty::Pty,
};

const THREADS: u64 = 150_000;
/// Number of threads in each process. By default, a process can have 65,530 memory areas, and each thread needs two.
const THREADS_EACH: u64 = 15_000;
/// Number of times that each figure is measured. The test uses the median.
const ROUNDS: usize = 5;

struct Raised {
    path: &'static str,
    before: String,
}

impl Raised {
    fn to(path: &'static str, least: u64) -> Self {
        let before = fs::read_to_string(path).expect("a setting");
        if before.trim().parse::<u64>().expect("a number") < least {
            fs::write(path, least.to_string()).expect("the setting can be raised");
        }
        Self { path, before }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        let _ = fs::write(self.path, &self.before);
    }
}

fn measured() -> (f64, Duration) {
    let output = run(&["hist", "--verbose", "--json", "1", "8"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let number = |value: &serde_json::Value| value.as_u64().expect("a number");
    // Skip the first two intervals, because they include work that cgscope does only once.
    let intervals = json_lines(&output).split_off(2);
    for interval in &intervals {
        assert!(number(&interval["idle_tasks"]) > THREADS * 99 / 100, "{}", interval["idle_tasks"]);
        let losses = interval["losses"].as_object().expect("losses");
        // Ignore one loss: switches of tasks that the host hides from all tracing programs.
        let losses: Vec<_> = losses.iter().filter(|(loss, _)| *loss != "switch_of_hidden_task").collect();
        assert!(losses.iter().all(|(_, count)| number(count) == 0), "{losses:?}");
    }
    (own_cpu_percent(&intervals), attached_after(&stderr(&output)))
}

fn screen() -> (Duration, Duration) {
    let begun = Instant::now();
    let mut pty = Pty::start_in(&["top", "-d", "1"], [160, 50], true, &[]);
    pty.wait_for("Overview");
    let frame = begun.elapsed();
    pty.wait_for("average");
    (frame, median(["j", ">", "?", "?", "G", "k", "<"].map(|key| pty.answer(key))))
}

#[test]
#[ignore = "all CPUs: asserts CPU time for each task of the host"]
fn one_hundred_and_fifty_thousand_threads_cost_at_most_2_percent_of_a_core() {
    let _threads = Raised::to("/proc/sys/kernel/threads-max", 2 * THREADS);
    let _ids = Raised::to("/proc/sys/kernel/pid_max", 2 * THREADS);
    let each = THREADS_EACH.to_string();
    let _loads: Vec<_> =
        (0..THREADS / THREADS_EACH).map(|_| Load::workload(&["sleep", &each, "300"], None)).collect();
    thread::sleep(Duration::from_secs(2));
    let rounds: Vec<_> = (0..ROUNDS)
        .map(|_| {
            let ((cpu, start), (frame, key)) = (measured(), screen());
            println!("{cpu:.2} % of a core, attached after {start:.0?}, frame {frame:.0?}, key {key:.1?}");
            (cpu, start, frame, key)
        })
        .collect();
    let cpu = median(rounds.iter().map(|round| round.0));
    let [start, frame, key] = [
        median(rounds.iter().map(|round| round.1)),
        median(rounds.iter().map(|round| round.2)),
        median(rounds.iter().map(|round| round.3)),
    ];
    let slow = slowness();
    assert!(cpu <= 2.0 * slow, "{cpu:.2} % of a core");
    assert!(start < Duration::from_secs(2), "attached after {start:?}");
    assert!(frame < Duration::from_secs(1).mul_f64(slow), "first frame after {frame:?}");
    assert!(key < Duration::from_millis(50), "a key is answered after {key:?}");
}
