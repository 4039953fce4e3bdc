//! Compares the answers of `cgscope whatif`, which simulates other quotas, with measurements under these quotas.

mod live;
mod long;

use std::{
    fmt,
    process::{Command, Stdio},
    rc::Rc,
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    bad_input::assert_one_sentence,
    bench::{OF_THE_HOST, assert_ended, assert_measured, json_lines, run, stderr, stdout},
    files::Dir,
    load::{Cgroup, Cpu, Load},
};

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    /// The program to run with `args`. `None` means `workload`.
    pub(crate) program: Option<&'static str>,
    pub(crate) args: &'static [&'static str],
}

impl Kind {
    fn start(&self, cgroup: &Cgroup) -> Load {
        match self.program {
            Some(program) => Load::start(program, self.args, Some(cgroup)),
            None => Load::workload(self.args, Some(cgroup)).0,
        }
    }
}

/// A quota, in thousandths of a CPU, and a burst and a period, in ms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    pub(crate) milli: u64,
    pub(crate) burst_ms: u64,
    pub(crate) period_ms: u64,
}

impl Limit {
    pub(crate) const fn of(milli: u64) -> Self {
        Self { milli, burst_ms: 0, period_ms: 100 }
    }

    fn apply(self, cgroup: &Cgroup) {
        cgroup.limit(self.milli * self.period_ms, self.period_ms * 1_000);
        assert!(self.burst_ms == 0 || cgroup.save(self.burst_ms * 1_000), "the kernel has no burst");
    }

    fn options(self) -> [String; 6] {
        let [cpus, burst_us, period_us] = [
            (self.milli as f64 / 1e3).to_string(),
            (self.burst_ms * 1_000).to_string(),
            (self.period_ms * 1_000).to_string(),
        ];
        ["--quota".into(), cpus, "--burst".into(), burst_us, "--period".into(), period_us]
    }
}

/// Creates a cgroup with a limit. The cgroup has priority over other programs of the host, so that only its quota limits its CPU
/// time.
fn limited(limit: Limit) -> Cgroup {
    let cgroup = Cgroup::new("whatif");
    limit.apply(&cgroup);
    cgroup.favour();
    cgroup
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// Share of periods that were throttled.
    pub(crate) share: f64,
    /// Throttled seconds per second.
    pub(crate) throttled: f64,
}

pub(crate) struct Counted {
    periods: u64,
    throttled: u64,
    throttled_ns: u64,
}

impl Counted {
    pub(crate) fn of(cgroup: &Cgroup) -> Self {
        let count = |name| cgroup.stat(name).unwrap_or(0);
        Self {
            periods: count("nr_periods"),
            throttled: count("nr_throttled"),
            throttled_ns: cgroup.throttled_ns(),
        }
    }

    /// Returns the throttled share and rate between `self` and `now`, which are `seconds` apart.
    pub(crate) fn until(&self, now: &Self, seconds: f64) -> Measured {
        Measured {
            share: (now.throttled - self.throttled) as f64 / (now.periods - self.periods).max(1) as f64,
            throttled: (now.throttled_ns - self.throttled_ns) as f64 / 1e9 / seconds,
        }
    }
}

pub(crate) fn count(cgroup: &Cgroup, seconds: u64) -> Measured {
    let before = Counted::of(cgroup);
    thread::sleep(Duration::from_secs(seconds));
    before.until(&Counted::of(cgroup), seconds as f64)
}

pub(crate) fn measure(kind: &Kind, limit: Limit, seconds: u64) -> Measured {
    let cgroup = limited(limit);
    let _load = kind.start(&cgroup);
    count(&cgroup, seconds)
}

/// A recording of a load under a limit, and the path of the cgroup that `whatif` simulates.
pub(crate) struct Recorded {
    dir: Rc<Dir>,
    path: String,
}

impl Recorded {
    pub(crate) fn new(kind: &Kind, limit: Limit, seconds: u64) -> Self {
        let cgroup = limited(limit);
        let _load = kind.start(&cgroup);
        Self::of(&cgroup, seconds)
    }

    fn of(cgroup: &Cgroup, seconds: u64) -> Self {
        let dir = Dir::new("whatif");
        let output = run(&["record", "-o", &dir.file("a.rec"), "-d", &seconds.to_string()]);
        assert_measured(&output);
        Self { dir: Rc::new(dir), path: cgroup.name.clone() }
    }

    pub(crate) fn about(&self, cgroup: &Cgroup) -> Self {
        Self { dir: self.dir.clone(), path: cgroup.name.clone() }
    }

    fn file(&self) -> String {
        self.dir.file("a.rec")
    }

    pub(crate) fn report(&self) -> Vec<Value> {
        json_lines(&run(&["report", &self.file(), "--json"]))
    }

    pub(crate) fn ask(&self, options: &[&str]) -> Value {
        let output = run(&[&["whatif", &self.file(), "--cgroup", &self.path, "--json"], options].concat());
        // The selection also includes the descendants of this cgroup.
        let answers = json_lines(&output);
        let is_unanswered = |answer: &Value| {
            let cautions = answer["cautions"].as_array().expect("cautions");
            !answer["refused"].is_null() || cautions.iter().any(|caution| caution == "may_have_slept")
        };
        if answers.iter().any(is_unanswered) {
            assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        } else {
            // Take the losses from the output of `report`, because the answers of `whatif` do not contain them.
            assert_ended(output.status.code(), &stdout(&run(&["report", &self.file()])), OF_THE_HOST);
        }
        answers.into_iter().find(|answer| answer["path"] == self.path).expect("an answer for the cgroup")
    }

    pub(crate) fn ask_for(&self, limit: Limit) -> Value {
        self.ask(&limit.options().each_ref().map(String::as_str))
    }

    /// Returns the row for a limit, or `None` if there is no advice.
    pub(crate) fn row(&self, limit: Limit) -> Option<Value> {
        self.ask_for(limit)["rows"].as_array().and_then(|rows| rows.first().cloned())
    }
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Bounds(pub(crate) f64, pub(crate) f64);

impl Bounds {
    pub(crate) fn of(row: &Value, figure: &str) -> Self {
        let bound = |at: usize| row[figure][at].as_f64().unwrap_or_else(|| panic!("no {figure} in {row}"));
        Self(bound(0), bound(1))
    }

    pub(crate) fn width(self) -> f64 {
        self.1 - self.0
    }

    pub(crate) fn contains(self, value: f64, tolerance: f64) -> bool {
        value >= self.0 - tolerance && value <= self.1 + tolerance
    }
}

impl fmt::Debug for Bounds {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.3}..{:.3}", self.0, self.1)
    }
}

const LOOP: Kind = Kind { name: "busy loop", program: Some("sh"), args: &["-c", "while :; do :; done"] };
const REGULAR: Kind =
    Kind { name: "regular", program: None, args: &["requests", "regular", "30000", "130000", "60"] };

fn assert_report_names_the_least_quota(recorded: &Recorded) {
    let text = stdout(&run(&["report", &recorded.file()]));
    let section =
        text.split("\nWhat would have been enough").nth(1).unwrap_or_else(|| panic!("no section in {text}"));
    let name = recorded.path.trim_start_matches('/');
    let line =
        section.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("no {name} in {section}"));
    assert!(line.contains("has 0.5 CPUs; ") && line.contains("would have been enough"), "{line}");
}

/// With a quota of q CPUs, a busy loop is throttled for P (1 - q) in each period of length P.
#[test]
#[ignore = "one CPU: asserts the share of throttled periods"]
fn a_busy_loop_is_simulated_as_its_closed_form_says_and_the_report_names_its_least_quota() {
    let recorded = Recorded::new(&LOOP, Limit::of(500), 7);
    assert_report_names_the_least_quota(&recorded);
    let row = recorded.row(Limit::of(800)).expect("advice");
    assert!(Bounds::of(&row, "throttled_share").0 > 0.9, "{row}");
    assert!(Bounds::of(&row, "stall_p50_ns").contains(20e6, 3e6), "{row}");
    let answer = recorded.ask(&[]);
    let least = answer["least"]["cores"].as_f64().expect("a quota");
    assert!((0.9..=1.1).contains(&least) && answer["is_least_demand"] == true, "{answer}");
}

/// While a load waits for CPUs, the recording does not show when its requests arrived. For example, each request could have
/// arrived only when the previous request was done.
#[test]
#[ignore = "one CPU: a neighbour takes most of it"]
fn there_is_no_advice_where_waiting_for_cpus_hides_when_work_arrives() {
    let cgroup = Cgroup::new("whatif");
    Limit::of(250).apply(&cgroup);
    let neighbour = Cgroup::new("neighbour");
    neighbour.weigh(2);
    let _neighbour = Load::loop_on_a_cpu(Some(&neighbour));
    let load = REGULAR.start(&cgroup);
    let pin = ["-a", "-p", "-c", &Cpu::one().to_string(), &load.pid().to_string()];
    assert!(Command::new("taskset").args(pin).stdout(Stdio::null()).status().expect("taskset").success());
    let recorded = Recorded::of(&cgroup, 6);
    let answer = recorded.ask(&[]);
    assert_eq!(answer["refused"], "contended", "{answer}");
    assert!(answer["least"].is_null() && answer["rows"].as_array().is_some_and(Vec::is_empty), "{answer}");
    let text = stdout(&run(&["report", &recorded.file()]));
    let name = recorded.path.trim_start_matches('/');
    let is_advice =
        |line: &&str| line.contains(name) && line.contains("no advice, because its tasks waited for CPUs");
    assert!(text.lines().any(|line| is_advice(&line)), "{text}");
}

#[test]
fn a_recording_without_an_answer_is_refused_in_one_sentence() {
    let cgroup = limited(Limit::of(500));
    let load = LOOP.start(&cgroup);
    let dir = Dir::new("whatif-refused");
    let file = dir.file("coarse.rec");
    let record = run(&["record", "-q", "--mode", "coarse", "-o", &file, "-d", "1"]);
    assert_eq!(record.status.code(), Some(0), "{}", stderr(&record));
    assert_one_sentence(&run(&["whatif", &file]), &["was recorded in the coarse mode"]);
    let old = concat!(env!("CARGO_MANIFEST_DIR"), "/../record/tests/files/version-4.rec");
    assert_one_sentence(&run(&["whatif", old, "--cgroup", "/a/b"]), &["has no demand of cgroups"]);
    let recorded = Recorded::of(&cgroup, 1);
    assert_eq!(recorded.ask(&[])["refused"], "short");
    assert_one_sentence(&run(&["whatif", &recorded.file(), "--pid", "1"]), &["whatif selects cgroups"]);
    let none = run(&["whatif", &recorded.file(), "--cgroup", "/no/such"]);
    assert_one_sentence(&none, &["the selected cgroups had no quota"]);
    drop(load);
}
