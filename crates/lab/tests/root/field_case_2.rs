//! Field case 2: a video encoder with as many threads as the host has CPUs, under a quota of one CPU.

use std::time::Duration;

use serde_json::Value;

use crate::{
    bench::{json_lines, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
};

/// Records an encoder that encodes `seconds` of video. If `cgroup` is given, the encoder runs there. Returns the report as text,
/// and its intervals as JSON.
fn encoding(cgroup: Option<&Cgroup>, options: &str, seconds: u32) -> (String, Vec<Value>) {
    let dir = Dir::new("encoding");
    let file = dir.file("a.rec");
    // Enter the cgroup and then exec, as a container runtime does.
    let enter = cgroup
        .map_or_else(String::new, |cgroup| format!("echo 0 > {}/cgroup.procs && ", cgroup.path.display()));
    let encode = format!(
        "{enter}exec ffmpeg -loglevel error -nostdin -f lavfi -i testsrc=size=1280x720:rate=30 -t {seconds} \
         -c:v libx264 {options} -f null -"
    );
    let output = run(&["record", "-o", &file, "-i", "0.5", "--", "sh", "-c", &encode]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Join the lines, because a line break can be anywhere in a sentence.
    let words = stdout(&run(&["report", &file])).split_whitespace().collect::<Vec<_>>().join(" ");
    (words, json_lines(&run(&["report", "--json", &file])))
}

fn sum(intervals: &[Value], path: &str, counter: impl Fn(&Value) -> &Value) -> u64 {
    let groups = intervals.iter().flat_map(|interval| interval["cgroups"].as_array().expect("cgroups"));
    groups.filter(|group| group["path"] == path).filter_map(|group| counter(group).as_u64()).sum()
}

fn findings(intervals: &[Value]) -> Vec<&str> {
    let all = intervals.iter().flat_map(|interval| interval["findings"].as_array().expect("findings"));
    all.filter_map(|finding| finding["rule"].as_str()).collect()
}

#[test]
#[ignore = "all CPUs: an encoder must use up a quota of one CPU in each period"]
fn threads_on_a_quota_of_one_cpu_are_reported_with_the_derived_figures() {
    let cgroup = Cgroup::new("encoder");
    cgroup.limit(100_000, 100_000);
    // Give the cgroup a high weight, so that only the quota limits its CPU time.
    cgroup.favour();
    let (words, intervals) = encoding(Some(&cgroup), "", 10);
    let path = cgroup.name.as_str();
    let counter = |name: &'static str| sum(&intervals, path, move |group| &group[name]);
    let (periods, throttled) = (counter("nr_periods"), counter("nr_throttled"));
    let measured_ns: u64 = intervals
        .iter()
        .filter(|interval| {
            let groups = interval["cgroups"].as_array().expect("cgroups");
            groups.iter().any(|group| group["path"] == path && group["nr_periods"].as_u64().is_some())
        })
        .filter_map(|interval| interval["duration_ns"].as_u64())
        .sum();
    let by_periods_ns = periods * 100_000_000;
    assert!(by_periods_ns.abs_diff(measured_ns) <= 300_000_000, "{periods} periods in {measured_ns} ns");
    assert!(throttled * 100 >= periods * 50, "{throttled} of {periods} periods throttled");
    let ran = counter("usage_ns");
    assert!(ran as f64 >= 0.8 * measured_ns as f64, "{ran} of {measured_ns} ns");
    // The encoder waits for longer than it runs. Most of the waiting is for its quota or for its own threads.
    let cause = |name: &'static str| sum(&intervals, path, move |group| &group["wait"]["by_cause"][name]);
    let waited = sum(&intervals, path, |group| &group["wait"]["total_ns"]);
    assert!(waited > ran, "{waited} ns waited, {ran} ns ran");
    assert!((cause("throttled_ns") + cause("own_cgroup_ns")) * 10 >= waited * 8, "of {waited}");
    assert!(intervals.iter().any(|interval| {
        let groups = interval["cgroups"].as_array().expect("cgroups");
        groups.iter().any(|group| {
            group["path"] == path && group["limited_by"] == path && group["effective_cores"] == 1.0
        })
    }));
    let rules = findings(&intervals);
    assert!(rules.contains(&"throttled") && rules.contains(&"threads_over_quota"), "{rules:?}");
    for said in [
        format!("{path}: "),
        "its quota (1 CPU: 100ms of every 100ms) ran out in".into(),
        " their run time (".into(),
        "threads of 1 process share a quota of 1 CPU".into(),
        "Start at most 1 thread (one for each CPU of the limit)".into(),
        format!("Quota of {path}: 1.00 CPUs (100ms of every 100ms, burst none)"),
        "the quota ran out in".into(),
    ] {
        assert!(words.contains(&said), "{said:?} is not in:\n{words}");
    }
}

#[test]
fn a_program_with_one_thread_on_a_quota_of_one_cpu_is_hardly_throttled() {
    let cgroup = Cgroup::new("encoder");
    cgroup.limit(100_000, 100_000);
    let (words, intervals) =
        encoding(Some(&cgroup), "-threads 1 -x264-params threads=1:lookahead-threads=1", 6);
    let path = cgroup.name.as_str();
    let ran = sum(&intervals, path, |group| &group["usage_ns"]);
    let throttled = sum(&intervals, path, |group| &group["wait"]["by_cause"]["throttled_ns"]);
    assert!(throttled * 4 < ran, "throttled for {throttled} ns, ran for {ran} ns:\n{words}");
}

#[test]
#[ignore = "all CPUs: the quota of a neighbour would be in the report"]
fn without_a_quota_the_report_mentions_none() {
    let cgroup = Cgroup::new("encoder");
    let (words, intervals) = encoding(Some(&cgroup), "", 6);
    assert_eq!(sum(&intervals, &cgroup.name, |group| &group["wait"]["by_cause"]["throttled_ns"]), 0);
    let rules = findings(&intervals);
    assert!(!rules.iter().any(|rule| rule.contains("throttled") || rule.contains("quota")), "{rules:?}");
    assert!(!words.contains("Quota of"), "{words}");
}

fn cpu_stat(cgroup: &Cgroup) -> std::collections::BTreeMap<String, u64> {
    let text = std::fs::read_to_string(cgroup.path.join("cpu.stat")).expect("cpu.stat");
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    lines.map(|(name, value)| (name.into(), value.parse().expect("a number"))).collect()
}

#[test]
#[ignore = "all CPUs: an encoder must use up a quota of one CPU in each period"]
fn the_summary_of_the_command_has_the_kernels_own_figures_and_figures_derived_from_them() {
    let cgroup = Cgroup::new("encoder");
    cgroup.limit(100_000, 100_000);
    // Give the cgroup a high weight, so that only the quota limits its CPU time.
    cgroup.favour();
    // Load the encoder's libraries before the measurement. Otherwise the first command waits half a second for the disk, and no
    // period of the quota begins in this time.
    Load::start("ffmpeg", &["-version"], None).wait();
    let dir = Dir::new("encoding");
    let (file, object) = (dir.file("text"), dir.file("object"));
    let encode = format!(
        "echo 0 > {}/cgroup.procs && exec ffmpeg -loglevel error -nostdin -f lavfi -i testsrc=size=1280x720:rate=30 -t 5 -c:v \
         libx264 -preset slower -f null -",
        cgroup.path.display()
    );
    for (output, options) in [(&object, &["--json"][..]), (&file, &[])] {
        let before = cpu_stat(&cgroup);
        let mut args = vec!["stat", "-o", output];
        args.extend(options);
        args.extend(["--", "sh", "-c", &encode]);
        let done = run(&args);
        assert_eq!(done.status.code(), Some(0), "{}", stderr(&done));
        let after = cpu_stat(&cgroup);
        let text = std::fs::read_to_string(output).expect("a summary");
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if options.is_empty() {
            in_words(&words, &before, &after);
        } else {
            in_figures(&serde_json::from_str(&text).expect("an object"), &cgroup.name, &before, &after);
        }
    }
}

type Stat = std::collections::BTreeMap<String, u64>;

/// Returns the throttled time, ns. `cpu.stat` has ns on v1, and µs on v2.
fn throttled_ns(stat: &Stat) -> u64 {
    stat.get("throttled_usec").map_or_else(|| stat["throttled_time"], |us| us * 1_000)
}

fn in_figures(summary: &Value, path: &str, before: &Stat, after: &Stat) {
    let quota = &summary["quotas"][0];
    assert_eq!((&quota["path"], &quota["cores"]), (&Value::from(path), &Value::from(1.0)), "{summary}");
    let of =
        |when: &str, name: &str| quota[when][name].as_u64().unwrap_or_else(|| panic!("{name} in {quota}"));
    // Only the command ran in this cgroup, so the counters should agree. However, the kernel can count the end of a throttled
    // phase (once for each CPU) and the last periods up to one period late.
    let cpus = std::thread::available_parallelism().map_or(1, usize::from) as u64;
    for (name, [earlier, later], late) in [
        ("nr_periods", [before["nr_periods"], after["nr_periods"]], 2),
        ("nr_throttled", [before["nr_throttled"], after["nr_throttled"]], 1),
        ("throttled_ns", [throttled_ns(before), throttled_ns(after)], cpus * 110_000_000),
    ] {
        for (when, kernels) in [("before", earlier), ("after", later)] {
            let ours = of(when, name);
            assert!(kernels.abs_diff(ours) <= late, "{name} {when}: the kernel has {kernels}: {quota}");
        }
        assert_eq!(of("delta", name), of("after", name) - of("before", name));
    }
    if let Some(usage_us) = after.get("usage_usec") {
        assert_eq!(of("delta", "usage_ns"), (usage_us - before["usage_usec"]) * 1_000);
    }
    let (periods, throttled) = (of("delta", "nr_periods"), of("delta", "nr_throttled"));
    let figure = |name: &str| quota[name].as_f64().expect("a figure");
    assert!((figure("throttled_percent") - 100.0 * throttled as f64 / periods as f64).abs() < 1e-9);
    assert_eq!(quota["periods_ns"].as_u64(), Some(periods * 100_000_000));
    let ran =
        quota["delta"]["usage_ns"].as_u64().or(summary["cpu"]["usage_ns"].as_u64()).expect("its CPU time");
    assert!((figure("times_throttled") - of("delta", "throttled_ns") as f64 / ran as f64).abs() < 1e-9);
    let wall = summary["wall_ns"].as_u64().expect("a time");
    assert!((periods * 100_000_000).abs_diff(wall) <= 400_000_000, "{periods} periods in {wall} ns");
    assert!(throttled * 2 >= periods, "{quota}");
    let cpu = |name: &str| summary["cpu"][name].as_u64().expect("a time");
    let (user, system) = (cpu("user_ns"), cpu("system_ns"));
    assert!((user + system).abs_diff(cpu("usage_ns")) <= 2_000, "{}", summary["cpu"]);
    assert!(summary["peak_threads"].as_u64() > Some(2), "{}", summary["peak_threads"]);
    let rules: Vec<_> =
        summary["findings"].as_array().expect("a list").iter().map(|one| &one["rule"]).collect();
    assert!(rules.contains(&&Value::from("throttled")), "{rules:?}");
    assert!(rules.contains(&&Value::from("threads_over_quota")), "{rules:?}");
}

fn in_words(words: &str, before: &Stat, after: &Stat) {
    let throttled = after["nr_throttled"] - before["nr_throttled"];
    let (user, system) = (delta(words, "user_usec"), delta(words, "system_usec"));
    let does = match user {
        user if user >= 5 * system => "CPU-bound, not I/O",
        user if user < system => "it spends its time in the kernel",
        _ => "neither user mode nor the kernel dominates",
    };
    // The kernel can count one more throttled period after cgscope has read the counters.
    let counted =
        [throttled, throttled.saturating_sub(1)].map(|throttled| format!("periods ({throttled}); "));
    assert!(counted.iter().any(|said| words.contains(said)), "{counted:?} is not in:\n{words}");
    for said in [
        "1 CPU of quota (100ms of every 100ms, burst none)",
        " x 100ms = ",
        " its run time",
        &format!("{:.1}% user mode, {does}", 100.0 * user as f64 / (user + system) as f64),
        "existed at the same time, with a quota of 1 CPU: raise the limit",
        "start at most 1 thread (one for each CPU of the limit)",
    ] {
        assert!(words.contains(said), "{said:?} is not in:\n{words}");
    }
}

fn delta(words: &str, name: &str) -> u64 {
    let (_, line) = words.split_once(name).unwrap_or_else(|| panic!("{name} is not in:\n{words}"));
    let figure = line.split_whitespace().filter(|word| *word != "*").nth(2).expect("three columns");
    figure.replace(',', "").parse().expect("a number")
}

/// Records two busy loops in the cgroup `path`. A shell enters the cgroup with the command `enter` and then starts the loops.
/// Returns the recorded numbers of periods and throttled periods of that cgroup.
fn recorded(enter: &str, path: &str) -> (u64, u64) {
    let dir = Dir::new("periods");
    let file = dir.file("a.rec");
    let run_load = format!("{enter} && exec {} burn 2 3", env!("CARGO_BIN_EXE_workload"));
    // Enter the cgroup only after the first sample.
    let script = format!("sleep 1.2; {run_load}");
    let output = run(&["record", "-o", &file, "-i", "0.5", "--", "sh", "-c", &script]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let intervals = json_lines(&run(&["report", "--json", &file]));
    let counter = |name: &'static str| sum(&intervals, path, move |group| &group[name]);
    (counter("nr_periods"), counter("nr_throttled"))
}

/// Checks the recorded numbers against the kernel's. After the last task has stopped, the kernel counts at most two more periods,
/// and at most one more throttled period. A period counts as throttled only at its end, and the last task can stop before that.
/// In one of three runs, the recording had 30 throttled periods and the kernel 31.
fn assert_all_periods(recorded: (u64, u64), (periods, throttled): (u64, u64)) {
    assert!(throttled > 20, "{throttled} of {periods} periods throttled");
    let has = |recorded: u64, more, kernels| (recorded..=recorded + more).contains(&kernels);
    assert!(
        has(recorded.1, 1, throttled) && has(recorded.0, 2, periods),
        "recorded {recorded:?}, but the kernel has {periods} and {throttled}"
    );
}

#[test]
#[ignore = "one CPU: the loops must use up their quota in each period"]
fn a_recording_has_all_periods_of_a_cgroup_that_its_command_entered() {
    let cgroup = Cgroup::new("entered");
    cgroup.limit(50_000, 100_000);
    // Run a load before the recording, so that the counters of the cgroup are not 0 at the first sample.
    let (load, _) = Load::workload(&["burn", "2", "1"], Some(&cgroup));
    load.wait();
    std::thread::sleep(Duration::from_millis(300));
    let before = cpu_stat(&cgroup);
    let enter = format!("echo 0 > {}/cgroup.procs", cgroup.path.display());
    let recorded = recorded(&enter, &cgroup.name);
    let now = cpu_stat(&cgroup);
    let since = |name: &str| now[name] - before[name];
    assert!(before["nr_throttled"] > 0);
    assert_all_periods(recorded, (since("nr_periods"), since("nr_throttled")));
}

#[test]
#[ignore = "one CPU: the loops must use up their quota in each period"]
fn a_recording_has_all_periods_of_a_cgroup_that_its_command_created() {
    let parent = Cgroup::new("maker");
    let made = parent.child("made");
    // Remove the cgroup, so that the command under measurement creates the cgroup again.
    std::fs::remove_dir(&made.path).expect("an empty cgroup");
    let path = made.path.display();
    let limit = if made.path.parent().is_some_and(|above| above.join("cpu.max").exists()) {
        format!("echo 50000 100000 > {path}/cpu.max")
    } else {
        format!("echo 50000 > {path}/cpu.cfs_quota_us")
    };
    let enter = format!("mkdir {path} && {limit} && echo 0 > {path}/cgroup.procs");
    let recorded = recorded(&enter, &made.name);
    let now = cpu_stat(&made);
    assert_all_periods(recorded, (now["nr_periods"], now["nr_throttled"]));
}
