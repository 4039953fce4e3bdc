//! Compares cgscope's sum of waits with the kernel's sum.

use std::{thread, time::Duration};

use cgscope_model::{Interval, Sample};

use crate::{
    bench::{Run, follow, is_emulated, json_lines, kernel_figures, measure, run, scaled, stderr},
    load::Load,
};

/// Returns the part of an unfinished wait that the kernel has already added to its sum, ns. The sum of cgscope includes this part
/// only after the wait has ended.
fn booked_ns(sample: &Sample, serial: u64) -> u64 {
    let task = sample.tasks.iter().find(|task| task.serial == serial);
    task.and_then(|task| task.pending.as_ref()).map_or(0, |pending| pending.booked_ns)
}

/// For each followed task, compares cgscope's sum of waits with the kernel's sum at the same moment.
pub(crate) fn assert_sums_equal(run: &Run) {
    assert!(!run.whole.tasks.is_empty(), "nothing was followed");
    let mut exact = 0;
    for task in &run.whole.tasks {
        let reading = &task.reading;
        let begun =
            booked_ns(&run.last, reading.serial) as i64 - booked_ns(&run.first, reading.serial) as i64;
        let ours = task.totals.wait_ns as i64 + begun;
        let kernel = task.totals.run_delay_ns as i64;
        let allowed = kernel / 1_000 + task.wait.max_ns as i64;
        assert!(
            (ours - kernel).abs() <= allowed,
            "{} {}: {ours} ns of waits, the kernel says {kernel}; {:?}",
            reading.tid,
            reading.comm,
            task.totals,
        );
        exact += usize::from(ours == kernel);
    }
    // The hook counts a wait just before or just after the kernel does. If the collector reads between these two moments, the
    // sums differ by that wait. All other sums must be equal. Such differences are more frequent under emulation, because an
    // emulated CPU can stop between the two moments.
    let tasks = run.whole.tasks.len();
    let least = if is_emulated() { 0.5 } else { 0.75 } * tasks as f64;
    assert!(exact as f64 >= least, "only {exact} of {tasks} sums equal the kernel's to the nanosecond");
}

/// Checks the figures that cgscope reports as the kernel's. The kernel's files are read before and after both samples, and the
/// reported figure must be between these readings.
fn assert_between_the_files(run: &Run) {
    let mut compared = 0;
    for task in &run.whole.tasks {
        let tid = &task.reading.tid;
        let [Some(a), Some(b)] = run.at_first.each_ref().map(|figures| figures.get(tid)) else { continue };
        let [Some(c), Some(d)] = run.at_last.each_ref().map(|figures| figures.get(tid)) else { continue };
        for (name, ours, least, most) in [
            (
                "run delay",
                task.totals.run_delay_ns,
                c.run_delay_ns - b.run_delay_ns,
                d.run_delay_ns - a.run_delay_ns,
            ),
            ("voluntary", task.totals.voluntary, c.voluntary - b.voluntary, d.voluntary - a.voluntary),
            (
                "involuntary",
                task.totals.involuntary,
                c.involuntary - b.involuntary,
                d.involuntary - a.involuntary,
            ),
        ] {
            assert!(
                (least..=most).contains(&ours),
                "{name} of {tid}: {ours}, but {least} to {most} in /proc"
            );
        }
        compared += 1;
    }
    assert!(compared > 0, "no thread is in both the first and the last Sample");
}

pub(crate) fn check(load: &Load, seconds: u64) -> Interval {
    let pids = load.pids();
    let run = measure(&mut follow(&pids), &pids, seconds);
    assert_sums_equal(&run);
    assert_between_the_files(&run);
    // Ignore losses for merged rows, because the collector measures the whole host and can merge rows of other tasks.
    let lost: Vec<_> = run.whole.losses.nonzero().filter(|(loss, _)| !loss.leaves_result_whole()).collect();
    assert_eq!(lost, []);
    run.whole
}

#[test]
#[ignore = "all CPUs: asserts the share of waiting time"]
fn sums_are_equal_for_two_busy_loops_per_cpu_that_may_migrate() {
    let (load, _out) = Load::workload(&["burn", "4", "90", "pair"], None);
    let whole = check(&load, 3);
    let total = whole.total();
    // There are twice as many tasks as CPUs, so each task waits half of the time on average.
    let share = total.wait.total_ns as f64 / (whole.duration_ns as f64 * 2.0);
    assert!((0.8..1.3).contains(&share), "half of the tasks must wait: {share}");
    assert!(total.totals.involuntary > 10 * total.totals.voluntary);
}

#[test]
fn sums_are_equal_for_threads_pinned_to_cpus() {
    let (load, _out) = Load::workload(&["burn", "6", "90", "pin"], None);
    check(&load, 3);
}

#[test]
fn sums_are_equal_for_two_tasks_on_a_pipe() {
    let load = Load::start("perf", &["bench", "sched", "pipe", "-l", "100000000"], None);
    thread::sleep(Duration::from_millis(500));
    let whole = check(&load, 3);
    assert!(whole.total().totals.voluntary > scaled(10_000), "the pipe switches all the time");
}

#[test]
#[ignore = "all CPUs: stress-ng must have started its workers"]
fn sums_are_equal_for_context_switches_of_stress_ng() {
    // Run the load only on two CPUs, because otherwise attaching would take long.
    let switching = ["-c", "0,1", "stress-ng", "--switch", "4", "--cpu", "2", "--timeout", "90s"];
    let load = Load::start("taskset", &switching, None);
    thread::sleep(Duration::from_secs(1));
    let whole = check(&load, 3);
    assert!(whole.total().wait.count > scaled(10_000));
}

#[test]
fn switch_counts_equal_the_kernels_while_a_task_sleeps() {
    // While the load sleeps, its switch counts do not change, so cgscope's counts must equal the kernel's exactly.
    let (load, _out) = Load::workload(&["sleep", "20", "30"], None);
    let pids = load.pids();
    let mut collector = follow(&pids);
    thread::sleep(Duration::from_millis(300));
    let sample = collector.sample().expect("a sample");
    let kernel = kernel_figures(&pids);
    assert_eq!(sample.tasks.len(), 21);
    for task in &sample.tasks {
        let kernel = kernel[&task.tid];
        assert_eq!(
            (task.totals.run_delay_ns, task.totals.voluntary, task.totals.involuntary),
            (kernel.run_delay_ns, kernel.voluntary, kernel.involuntary)
        );
    }
}

#[test]
#[ignore = "all CPUs: asserts the share of waiting time"]
fn tasks_that_already_wait_at_the_start_are_counted() {
    // Each of two CPUs has four loops, so three of four loops wait when cgscope attaches.
    let (load, _out) = Load::workload(&["burn", "8", "90", "pin"], None);
    thread::sleep(Duration::from_millis(500));
    let pids = load.pids();
    let before = kernel_figures(&pids);
    let mut collector = follow(&pids);
    let first = collector.sample().expect("a sample");
    assert!(
        first.tasks.iter().filter(|task| task.pending.is_some()).count() >= 4,
        "tasks wait at the first reading"
    );
    for task in first.tasks.iter().filter(|task| task.comm.starts_with("workload") && task.tid != task.tgid) {
        assert!(task.totals.run_delay_ns >= before[&task.tid].run_delay_ns);
    }
    let run = measure(&mut collector, &pids, 3);
    assert_sums_equal(&run);
    // A wait that began before cgscope attached counts in full.
    let burners: Vec<_> = run.whole.tasks.iter().filter(|task| task.totals.on_cpu_ns > 100_000_000).collect();
    assert_eq!(burners.len(), 8);
    for task in burners {
        let (wait, run) = (task.totals.wait_ns as f64, task.totals.on_cpu_ns as f64);
        assert!((0.5..0.95).contains(&(wait / (wait + run))), "{wait} {run}");
    }
}

/// When a task exits, the hook adds each row of the task's histogram to the histogram of its cgroup.
#[test]
fn histograms_of_tasks_that_exit_have_all_their_waits() {
    // Four loops share one CPU, so each wait lasts some milliseconds.
    let script =
        "while :; do for n in 1 2 3 4; do timeout 0.2 sh -c 'while :; do :; done' & done; wait; done";
    let _load = Load::start("taskset", &["-c", "0", "sh", "-c", script], None);
    // Do not check the exit code, because cgscope can lose a cause when a task moves, and then the exit code is 1.
    let output = run(&["hist", "--json", "--duration", "2s"]);
    let total = &json_lines(&output)[0]["total"];
    let number = |value: &serde_json::Value| value.as_f64().expect("a number");
    let buckets = total["hist"].as_array().expect("buckets");
    let sum = |edge: usize| -> f64 { buckets.iter().map(|of| number(&of[edge]) * number(&of[2])).sum() };
    let waited_ns = number(&total["total_ns"]);
    assert!(waited_ns > 1e9, "{waited_ns}");
    let count: f64 = buckets.iter().map(|of| number(&of[2])).sum();
    println!("{count} waits in the buckets of {}; {}", total["waits"], json_lines(&output)[0]["losses"]);
    println!("by cause {}, {}", total["by_cause"], stderr(&output));
    assert!((sum(0)..=sum(1)).contains(&waited_ns), "{waited_ns} not in {} to {}", sum(0), sum(1));
    // The loops wait for each other, so there are hardly any wakeups. If the causes of a wait were lost at the exit of its task,
    // the wait would count as `wakeup`, because `wakeup` is the remainder of a row.
    let rows = total["hist_by_cause"].as_array().expect("rows");
    let of_loops = |row: &&serde_json::Value| (1e6..32e6).contains(&number(&row[0]));
    let sum = |cause: &str| rows.iter().filter(of_loops).map(|row| number(&row[2][cause])).sum::<f64>();
    let (own, wakeup) = (sum("own_cgroup"), sum("wakeup"));
    assert!(own > 100.0 && wakeup < 0.1 * own, "{own} waits behind the own cgroup, {wakeup} for wakeups");
}
