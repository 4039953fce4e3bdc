//! Field case 2: a video encoder that starts as many threads as the host has CPUs, under a quota of one.

use serde_json::Value;

use crate::{
    bench::{json_lines, run, stderr, stdout},
    files::Dir,
    load::Cgroup,
};

/// Records an encoding of `seconds` of video, in `cgroup` if one is given; the report in words, and its intervals.
fn encoding(cgroup: Option<&Cgroup>, options: &str, seconds: u32) -> (String, Vec<Value>) {
    let dir = Dir::new("encoding");
    let file = dir.file("a.rec");
    // As a runtime does it: first into the cgroup, then exec.
    let enter = cgroup
        .map_or_else(String::new, |cgroup| format!("echo 0 > {}/cgroup.procs && ", cgroup.path.display()));
    let encode = format!(
        "{enter}exec ffmpeg -loglevel error -nostdin -f lavfi -i testsrc=size=1280x720:rate=30 -t {seconds} \
         -c:v libx264 {options} -f null -"
    );
    let output = run(&["record", "-o", &file, "-i", "0.5", "--", "sh", "-c", &encode]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    // Without its line breaks, which may fall anywhere in a sentence.
    let words = stdout(&run(&["report", &file])).split_whitespace().collect::<Vec<_>>().join(" ");
    (words, json_lines(&run(&["report", "--json", &file])))
}

/// The sum of a counter of a cgroup over all intervals that have it.
fn sum(intervals: &[Value], path: &str, counter: impl Fn(&Value) -> &Value) -> u64 {
    let groups = intervals.iter().flat_map(|interval| interval["cgroups"].as_array().expect("cgroups"));
    groups.filter(|group| group["path"] == path).filter_map(|group| counter(group).as_u64()).sum()
}

fn findings(intervals: &[Value]) -> Vec<&str> {
    let all = intervals.iter().flat_map(|interval| interval["findings"].as_array().expect("findings"));
    all.filter_map(|finding| finding["rule"].as_str()).collect()
}

#[test]
fn threads_on_a_quota_of_one_cpu_are_told_with_the_derived_figures() {
    let cgroup = Cgroup::new("encoder");
    cgroup.limit(100_000, 100_000);
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
    // Periods x 100 ms is the time that passed.
    let by_periods_ns = periods * 100_000_000;
    assert!(by_periods_ns.abs_diff(measured_ns) <= 300_000_000, "{periods} periods in {measured_ns} ns");
    assert!(throttled * 100 >= periods * 50, "{throttled} of {periods} periods throttled");
    // It used its quota up: on average one CPU.
    let ran = counter("usage_ns");
    assert!(ran as f64 >= 0.8 * measured_ns as f64, "{ran} of {measured_ns} ns");
    // As long waiting as running, or longer; by far the most of it for the quota or for each other.
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
    // And in words, of the whole run.
    for said in [
        format!("{path}: "),
        "periods ran out of quota (1 CPU: 100ms of every 100ms)".into(),
        "times as long".into(),
        "threads of 1 process share 1 CPU of quota".into(),
        "Start as many threads as the limit has CPUs (1)".into(),
        format!("Quota of {path}: 1.00 CPUs (100ms of every 100ms, burst none)"),
        "the quota ran out in".into(),
    ] {
        assert!(words.contains(&said), "{said:?} is not in:\n{words}");
    }
}

#[test]
fn as_many_threads_as_the_quota_has_cpus_are_hardly_throttled() {
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
fn without_a_quota_nothing_is_said_of_one() {
    let cgroup = Cgroup::new("encoder");
    let (words, intervals) = encoding(Some(&cgroup), "", 6);
    assert_eq!(sum(&intervals, &cgroup.name, |group| &group["wait"]["by_cause"]["throttled_ns"]), 0);
    let rules = findings(&intervals);
    assert!(!rules.iter().any(|rule| rule.contains("throttled") || rule.contains("quota")), "{rules:?}");
    assert!(!words.contains("Quota of"), "{words}");
}
