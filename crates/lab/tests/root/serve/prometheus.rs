//! A real Prometheus scrapes the daemon under load, while `cgscope hist` measures during the same window.
//!
//! The test compares exact counts. It stops the tasks of the measured cgroup (SIGSTOP) at the start and at the end of the window,
//! so that all readers count the same waits, even if they read at slightly different times. Other load runs all the time.

mod cluster;
mod server;

use std::{
    collections::BTreeMap,
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::server::{Prometheus, RULES, get, range, unix_s};
use super::Daemon;
use crate::{
    bench::{assert_measured, cgscope, json_lines, stderr},
    files::Dir,
    load::{Cgroup, Load},
    metrics_page::findings,
};

/// Time between the stop of the tasks and the end of a window. This time exceeds two scrape intervals, and it exceeds a period of
/// the quota, so that no stopped task still waits.
const QUIET: Duration = Duration::from_millis(2_500);
const WARM: Duration = Duration::from_secs(1);
/// Duration of a measurement with `hist`, and duration of the load, which runs in the middle of the measurement.
const WINDOW: Duration = Duration::from_secs(9);
const LOAD: Duration = Duration::from_secs(3);

/// The quantiles that the test compares, with their names in the output of `hist`.
const QUANTILES: [(&str, f64); 3] = [("p50_ns", 0.5), ("p90_ns", 0.9), ("p99_ns", 0.99)];

/// A cgroup with several kinds of waits, on a CPU that other tasks also use.
struct Crowd {
    members: [Load; 2],
    _neighbours: [Load; 2],
    cgroup: Cgroup,
    beside: Cgroup,
}

impl Crowd {
    fn start() -> Self {
        let (cgroup, beside) = (Cgroup::new("prometheus"), Cgroup::new("neighbour"));
        cgroup.limit(40_000, 100_000);
        let neighbours = [0, 0].map(|cpu| Load::pinned_loop(cpu, Some(&beside)));
        let (busy, _) = Load::workload(&["bound", "0", "3", "300"], Some(&cgroup));
        let waking = ["-c", "0", env!("CARGO_BIN_EXE_workload"), "blink", "4", "300"];
        let members = [busy, Load::start("taskset", &waking, Some(&cgroup))];
        Self { members, _neighbours: neighbours, cgroup, beside }
    }

    fn signal(&self, signal: i32) {
        self.members.iter().for_each(|member| member.signal(signal));
    }
}

fn hist(cgroup: &str, more: &[&str]) -> Value {
    let window = format!("{}s", WINDOW.as_secs());
    let mut command = cgscope();
    command.args(["hist", "--json", "--cgroup", cgroup, "--duration", &window]).args(more);
    let output: Output = command.output().expect("cgscope is executed");
    assert_measured(&output);
    let [object] = &json_lines(&output)[..] else { panic!("not one object: {}", stderr(&output)) };
    object.clone()
}

/// The waits of a cgroup, measured in several ways at the same time.
struct Seen {
    path: String,
    through_daemon: Value,
    alone: Value,
    /// Start and end of the measurement, seconds since 1970.
    ends_unix_s: [f64; 2],
    length: Duration,
}

impl Seen {
    fn of(crowd: &Crowd, daemon: &Daemon) -> Self {
        thread::sleep(WARM);
        crowd.signal(libc::SIGSTOP);
        thread::sleep(QUIET);
        let (begun, begun_unix_s) = (Instant::now(), unix_s());
        let (path, socket) = (crowd.cgroup.name.clone(), daemon.socket());
        let (through_daemon, alone) = thread::scope(|scope| {
            let through_daemon = scope.spawn(|| hist(&path, &["--connect", &socket]));
            let alone = scope.spawn(|| hist(&path, &[]));
            thread::sleep((WINDOW - LOAD) / 2);
            crowd.signal(libc::SIGCONT);
            thread::sleep(LOAD);
            crowd.signal(libc::SIGSTOP);
            (through_daemon.join().expect("hist"), alone.join().expect("hist"))
        });
        let ends_unix_s = [begun_unix_s, unix_s()];
        Self { path, through_daemon, alone, ends_unix_s, length: begun.elapsed() }
    }

    /// Returns how much each series of an expression increased from the start to the end of the window. The key is the value of
    /// the label `label`. `$cgroup` stands for the cgroup.
    fn rise(&self, prometheus: &Prometheus, expression: &str, label: &str) -> BTreeMap<String, f64> {
        let at = |at_unix_s: f64| -> BTreeMap<String, f64> {
            let series = prometheus.vector(&self.expression(expression), at_unix_s);
            series
                .into_iter()
                .map(|(labels, value)| (labels[label].as_str().unwrap_or_default().into(), value))
                .collect()
        };
        let [before, after] = self.ends_unix_s.map(at);
        after.iter().map(|(name, value)| (name.clone(), value - before.get(name).unwrap_or(&0.0))).collect()
    }

    /// Evaluates an expression at the end of the window. `$window` stands for the length of the window.
    fn at_end(&self, prometheus: &Prometheus, expression: &str) -> f64 {
        prometheus.figure(&self.expression(expression), self.ends_unix_s[1])
    }

    fn expression(&self, expression: &str) -> String {
        let of_cgroup = format!("cgroup=\"{}\"", self.path);
        expression.replace("$cgroup", &of_cgroup).replace("$window", &range(self.length))
    }

    fn quantile_s(&self, name: &str) -> f64 {
        self.through_daemon["total"][name].as_f64().expect("a figure of the waits") / 1e9
    }
}

fn is_near(one: f64, other: f64, share: f64) -> bool {
    (one - other).abs() <= share * one.abs().max(other.abs())
}

fn assert_up(prometheus: &Prometheus, seen: &Seen) {
    let answered = seen.at_end(prometheus, "sum_over_time(up{job=\"cgscope\"}[$window])");
    let scrapes = seen.at_end(prometheus, "count_over_time(up{job=\"cgscope\"}[$window])");
    let longest_s =
        seen.at_end(prometheus, "max_over_time(scrape_duration_seconds{job=\"cgscope\"}[$window])");
    eprintln!("{scrapes} scrapes, the longest in {longest_s} s");
    assert_eq!(answered, scrapes, "scrapes that failed, the longest after {longest_s} s");
    assert!(scrapes >= seen.length.as_secs_f64() - 2.0, "{scrapes} scrapes in {:?}", seen.length);
}

fn assert_causes(seen: &Seen, sums_s: &BTreeMap<String, f64>) {
    let by_cause = &seen.through_daemon["total"]["by_cause"];
    for cause in ["throttled", "own_cgroup", "other_cgroup", "kernel", "wakeup", "unattributed"] {
        let ours_s = by_cause[format!("{cause}_ns")].as_f64().expect("known") / 1e9;
        let theirs_s = sums_s.get(cause).copied().unwrap_or_default();
        eprintln!("{cause}: {ours_s} s by hist, {theirs_s} s by Prometheus");
        assert!((ours_s - theirs_s).abs() <= 1e-6 * ours_s + 1e-8, "{cause}: {ours_s} {theirs_s}");
    }
    for cause in ["throttled", "own_cgroup", "other_cgroup"] {
        assert!(sums_s[cause] > 0.1, "{cause}: the load causes too few of these waits: {sums_s:?}");
    }
}

/// Returns the number of waits that `hist` counted below `edge_s`, an edge of a classic Prometheus bucket in seconds. The bucket
/// edges of `hist` differ from these edges by a factor of at most 1 + 2e-6.
fn count_below(hist: &Value, edge_s: f64) -> f64 {
    let buckets = hist["total"]["hist"].as_array().expect("buckets").iter();
    let below = buckets.filter(|bucket| bucket[1].as_f64().expect("an edge") <= edge_s * 1e9 * (1.0 + 1e-5));
    below.map(|bucket| bucket[2].as_f64().expect("a count")).sum()
}

/// Checks the figures of a `hist` with its own collector, which reads at other times than the daemon, but must count nearly the
/// same waits.
fn assert_alone_is_near(seen: &Seen) {
    let of = |hist: &Value, name: &str| hist["total"][name].as_f64().expect("a figure");
    for name in ["count", "total_ns", "p99_ns"] {
        let (ours, alone) = (of(&seen.through_daemon, name), of(&seen.alone, name));
        eprintln!("{name}: {ours} through the daemon, {alone} with its own collector");
        let share = if name == "p99_ns" { 0.125 } else { 0.01 };
        assert!(is_near(ours, alone, share), "{name}: {ours} {alone}");
    }
}

fn assert_rules(prometheus: &Prometheus, seen: &Seen) {
    let groups = prometheus.api("rules", &[]);
    let groups = groups["groups"].as_array().expect("groups");
    let rules: Vec<&Value> =
        groups.iter().flat_map(|group| group["rules"].as_array().expect("rules")).collect();
    assert!(rules.len() > 15, "{}", rules.len());
    for rule in rules {
        assert_eq!((&rule["health"], rule["lastError"].as_str()), (&"ok".into(), None), "{rule}");
    }
    for recorded in ["p99_5m", "rate5m"] {
        let figure =
            seen.at_end(prometheus, &format!("cgroup:cgscope_runqueue_wait_seconds:{recorded}{{$cgroup}}"));
        assert!(figure > 0.0, "{recorded}: {figure}");
    }
}

/// Asserts that the rule for the alert `CgscopeNeighbour` names the neighbour that the finding names.
fn assert_same_culprit(prometheus: &Prometheus, seen: &Seen, neighbour: &str) {
    let worst = seen.expression("cgroup_culprit:cgscope_culprit_wait_seconds:worst5m{$cgroup}");
    let worst = prometheus.vector(&worst, seen.ends_unix_s[1]);
    assert_eq!(worst.iter().map(|(labels, _)| &labels["culprit"]).collect::<Vec<_>>(), [neighbour]);
    let mut found = seen.through_daemon["findings"].as_array().expect("findings").iter();
    let found = found.find(|found| found["rule"] == "noisy_neighbour" && found["cgroup"] == *seen.path);
    let says = found.expect("a finding")["says"].as_str().expect("a text");
    let first = says.split_once(" behind ").and_then(|(_, rest)| rest.split_once("% behind "));
    assert!(first.is_some_and(|(_, first)| first.starts_with(neighbour)), "{says}");
}

/// Ends the daemon, and asserts that the alert `CgscopeDown` is pending a few seconds later.
fn assert_missed(prometheus: &Prometheus, mut daemon: Daemon) {
    daemon.kill();
    let end = Instant::now() + Duration::from_secs(15);
    loop {
        let alerts = prometheus.vector("ALERTS{alertname=\"CgscopeDown\"}", unix_s());
        if let [(labels, _)] = &alerts[..] {
            assert_eq!(labels["alertstate"], "pending", "for five minutes");
            return;
        }
        assert!(Instant::now() < end, "the alert is not pending: {alerts:?}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// Writes a certificate, and a file with a user. Returns configuration lines for the section `[http]` of the daemon, and for the
/// scrape job of Prometheus.
fn secured(dir: &Dir) -> (String, String) {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".into()]).expect("a certificate");
    let password = "of this test";
    let hash = bcrypt::hash(password, 5).expect("a hash");
    for (name, text) in [
        ("tls.crt", pair.cert.pem()),
        ("tls.key", pair.signing_key.serialize_pem()),
        ("users", format!("prometheus:{hash}\n")),
        ("password", password.into()),
    ] {
        std::fs::write(dir.file(name), text).expect("a file of ours");
    }
    let file = |name: &str| dir.file(name);
    let http = format!(
        "tls_certificate = {:?}\ntls_key = {:?}\nusers = {:?}",
        file("tls.crt"),
        file("tls.key"),
        file("users")
    );
    let job = format!(
        "  tls_config: {{ca_file: '{}', server_name: localhost}}\n  basic_auth: {{username: prometheus, password_file: '{}'}}\n",
        file("tls.crt"),
        file("password")
    );
    (http, job)
}

#[test]
fn promtool_finds_no_problem_in_the_rules() {
    let output = Command::new("promtool").args(["check", "rules", RULES]).output();
    let output = output.unwrap_or_else(|error| {
        panic!(
            "cannot run promtool: {error}; install Debian's package `prometheus`, as `cargo xtask test` does"
        )
    });
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("SUCCESS"), "{said}");
    assert!(!said.to_ascii_lowercase().contains("lint") && !said.contains("duplicate"), "{said}");
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: two measurements of the same waits may differ by 1 %"]
    fn quantiles_from_classic_buckets_differ_from_hist_at_most_by_a_factor_of_two() {
        let daemon = Daemon::exporting("");
        let prometheus = Prometheus::scraping(daemon.metrics(), "", &[]);
        let crowd = Crowd::start();
        let seen = Seen::of(&crowd, &daemon);
        assert_up(&prometheus, &seen);

        let buckets = "sum by (le) (cgscope_runqueue_wait_seconds_bucket{$cgroup})";
        let counts = seen.rise(&prometheus, buckets, "le");
        assert!(counts.len() > 20, "{counts:?}");
        for (edge, count) in &counts {
            let edge_s = edge.replace("+Inf", "inf").parse().expect("an edge");
            assert_eq!(*count, count_below(&seen.through_daemon, edge_s), "up to {edge} s: {counts:?}");
        }
        let sums = "sum by (cause) (cgscope_runqueue_wait_seconds_sum{$cgroup})";
        assert_causes(&seen, &seen.rise(&prometheus, sums, "cause"));
        for (name, quantile) in QUANTILES {
            let buckets = "sum by (le) (increase(cgscope_runqueue_wait_seconds_bucket{$cgroup}[$window]))";
            let theirs_s = seen.at_end(&prometheus, &format!("histogram_quantile({quantile}, {buckets})"));
            let ours_s = seen.quantile_s(name);
            eprintln!("{name}: {ours_s} s by hist, {theirs_s} s by Prometheus");
            assert!((0.5..=2.0).contains(&(theirs_s / ours_s)), "{name}: {ours_s} {theirs_s}");
        }
        let throttled = seen.rise(&prometheus, "cgscope_cgroup_throttled_periods_total{$cgroup}", "cgroup");
        let own = seen.through_daemon["cgroups"].as_array().expect("cgroups").iter();
        let own = own
            .filter(|cgroup| cgroup["path"] == seen.path.as_str())
            .map(|cgroup| cgroup["nr_throttled"].as_f64());
        assert_eq!(own.collect::<Vec<_>>(), [throttled.get(&seen.path).copied()]);
        assert_alone_is_near(&seen);
        assert_rules(&prometheus, &seen);
        assert_same_culprit(&prometheus, &seen, &crowd.beside.name);

        crowd.signal(libc::SIGCONT);
        let address = daemon.metrics().trim_start_matches("http://").trim_end_matches("/metrics");
        let page = get(address, "/metrics", "text/plain;version=0.0.4");
        assert!(page.contains(&seen.path), "{page}");
        assert_eq!(findings(page.as_bytes()), "");
        assert_missed(&prometheus, daemon);
    }

    #[test]
    #[ignore = "all CPUs: two measurements of the same waits may differ by 1 %"]
    fn quantiles_from_native_histograms_over_tls_equal_those_of_hist_within_the_bucket_widths() {
        let dir = Dir::new("tls");
        let (http, job) = secured(&dir);
        let daemon = Daemon::exporting(&http);
        let native = ["--enable-feature=native-histograms"];
        let prometheus = Prometheus::scraping(daemon.metrics(), &job, &native);
        let crowd = Crowd::start();
        let seen = Seen::of(&crowd, &daemon);
        assert_up(&prometheus, &seen);

        let of =
            |function: &str| format!("sum by (cause) ({function}(cgscope_runqueue_wait_seconds{{$cgroup}}))");
        let counts = seen.rise(&prometheus, &of("histogram_count"), "cause");
        let count: f64 = counts.values().sum();
        assert_eq!(Some(count), seen.through_daemon["total"]["count"].as_f64(), "{counts:?}");
        assert_causes(&seen, &seen.rise(&prometheus, &of("histogram_sum"), "cause"));
        for (name, quantile) in QUANTILES {
            let waits = "sum (increase(cgscope_runqueue_wait_seconds{$cgroup}[$window]))";
            let theirs_s = seen.at_end(&prometheus, &format!("histogram_quantile({quantile}, {waits})"));
            let ours_s = seen.quantile_s(name);
            eprintln!("{name}: {ours_s} s by hist, {theirs_s} s by Prometheus");
            // The bound is the sum of three bucket widths: our bucket, the Prometheus bucket, and our first bucket, which is
            // below 1 µs.
            let bound_s = (0.125 + 0.0905) * ours_s + 125e-9;
            assert!((theirs_s - ours_s).abs() <= bound_s, "{name}: {ours_s} {theirs_s}");
        }
        assert_alone_is_near(&seen);
        assert_rules(&prometheus, &seen);
        assert_missed(&prometheus, daemon);
    }
}
