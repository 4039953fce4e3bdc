//! The cost of the collector. (`cargo xtask overhead` compares the cost of the hook with that of other tools.)

use std::{thread, time::Duration};

use crate::{
    bench::{all_tasks, attached_after, json_lines, median, own_cpu_percent, run, stderr},
    load::Load,
};

#[test]
#[ignore = "all CPUs: asserts CPU time for each task of the host"]
fn five_thousand_sleeping_threads_cost_at_most_2_percent_of_a_core_and_30_mib() {
    let (_load, _out) = Load::workload(&["sleep", "5000", "120"], None);
    thread::sleep(Duration::from_secs(1));
    let output = run(&["hist", "--json", "1", "9"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let intervals = json_lines(&output);
    for interval in &intervals {
        assert!(all_tasks(interval) > 5_000);
        let rss = interval["self"]["rss_bytes"].as_u64().expect("memory");
        assert!(rss <= 30 << 20, "{rss} bytes are resident");
    }
    let percent = own_cpu_percent(&intervals);
    println!("{percent:.2} % of a core");
    assert!(percent <= 2.0, "{percent:.2} % of a core");
}

/// Returns the memory in use in the kernel's `kmalloc-cg` caches, bytes. The kernel allocates the task storage there.
fn charged_slabs() -> f64 {
    let slabs = std::fs::read_to_string("/proc/slabinfo").expect("the kernel's caches");
    let charged = slabs.lines().filter(|line| line.starts_with("kmalloc-cg-"));
    let numbers = |line: &str| -> Vec<f64> { line.split(' ').filter_map(|word| word.parse().ok()).collect() };
    // The first number of a line is the number of objects in use, and the third number is the size of an object.
    charged.map(numbers).map(|of_cache| of_cache[0] * of_cache[2]).sum()
}

fn delta_frames(recording: &[u8]) -> Vec<usize> {
    let (mut sizes, mut rest) = (Vec::new(), &recording[12..]);
    while let Some((head, after)) = rest.split_at_checked(9) {
        let length = u32::from_le_bytes(head[..4].try_into().expect("four bytes")) as usize;
        if head[8] == 5 {
            sizes.push(head.len() + length);
        }
        rest = &after[length..];
    }
    sizes
}

/// The limit is relative, because the time depends on the machine. Without the threads, attaching takes 140 ms on one machine and
/// 230 ms on another.
#[test]
#[ignore = "all CPUs: asserts a time"]
fn with_5000_threads_attaching_takes_at_most_1_3_times_as_long() {
    let attached = || attached_after(&stderr(&run(&["hist", "-v", "--duration", "10ms"]))).as_secs_f64();
    let (mut without, mut with) = (Vec::new(), Vec::new());
    // Alternate between runs with and without the threads, because the machine can become slower during the test.
    for _ in 0..3 {
        without.extend((0..3).map(|_| attached()));
        let (_load, _out) = Load::workload(&["sleep", "5000", "120"], None);
        with.extend((0..3).map(|_| attached()));
    }
    let (with, without) = (median(with), median(without));
    println!("attached after {:.0} ms, without the threads {:.0} ms", with * 1e3, without * 1e3);
    assert!(with < 1.3 * without, "{with} s, without the threads {without} s");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: asserts CPU time for each task of the host"]
    fn twenty_thousand_sleeping_threads_cost_half_a_percent_of_a_core_and_600_bytes_each() {
        const THREADS: f64 = 20_000.0;
        let _loads: Vec<_> = (0..4).map(|_| Load::workload(&["sleep", "5000", "120"], None)).collect();
        thread::sleep(Duration::from_secs(2));
        let before = charged_slabs();
        let recorded = run(&["record", "-o", "/dev/stdout", "-d", "8"]);
        let mut frames = delta_frames(&recorded.stdout);
        frames.sort_unstable();
        // At one byte for every 16 tasks, a frame would have 1,250 bytes.
        assert!((50..=800).contains(&frames[frames.len() / 2]), "{frames:?}");
        let cgscope = thread::spawn(|| run(&["hist", "--json", "1", "11"]));
        thread::sleep(Duration::from_secs(5));
        let each = (charged_slabs() - before) / THREADS;
        let output = cgscope.join().expect("no panic");
        assert!(output.status.success(), "{}", stderr(&output));
        let intervals = json_lines(&output);
        let number = |value: &serde_json::Value| value.as_u64().expect("a number") as f64;
        // Skip the first two intervals, because they include work that cgscope does only once.
        for interval in &intervals[2..] {
            assert!(number(&interval["idle_tasks"]) > THREADS * 0.99, "{}", interval["idle_tasks"]);
            let bytes = interval.to_string().len();
            assert!(bytes <= 100_000, "{bytes} bytes of JSON");
            let rss = number(&interval["self"]["rss_bytes"]);
            assert!(rss <= 18.5 * 1048576.0, "{rss} bytes are resident");
        }
        let percent = own_cpu_percent(&intervals[2..]);
        println!("{percent:.2} % of a core, {each:.0} bytes of kernel memory for each thread");
        assert!(percent <= 0.5, "{percent:.2} % of a core");
        assert!(each <= 600.0, "{each:.0} bytes of kernel memory for each thread");
    }
}
