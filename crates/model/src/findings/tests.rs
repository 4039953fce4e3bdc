//! Tests that each rule reports at its threshold, but not below the threshold, and never without its data.

mod contention;
mod documented;
mod host;
mod idle_cpus;
mod numa;
mod quota;
mod starved;
mod waits_for;

use super::*;
use cgscope_ledger::Loss;

use crate::{
    Blame, ByCause, Cause, CgroupReading, ExitedInterval, Hist, PairReading, Scheduling, TaskInterval,
    TaskReading, Totals, Wait,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000 * MS;

/// An interval under construction, 1 s long. The root cgroup has the id 1.
struct Scene {
    interval: Interval,
    host: Host,
}

impl Scene {
    /// Creates cgroups with the ids 2, 3 and so on.
    fn new(paths: &[&str]) -> Self {
        let paths = ["/"].iter().chain(paths).zip(1..);
        let cgroups = paths.map(|(path, id)| (id, Arc::from(*path))).collect();
        let interval = Interval { duration_ns: S, cgroups, ..Default::default() };
        Self { interval, host: Host { cpus: Some(8), whole: true, kernel: None } }
    }

    fn id(&self, path: &str) -> u64 {
        self.interval.cgroups.iter().find(|(_, at)| &**at == path).map(|(id, _)| *id).expect("named before")
    }

    /// Adds a task, in its own process, that ran and waited on CPU 0.
    fn task(mut self, path: &str, ran_ns: u64, waits: &[(Cause, u64)]) -> Self {
        let serial = self.interval.tasks.len() as u64 + 1;
        let wait = wait(waits);
        let totals = Totals {
            on_cpu_ns: ran_ns,
            by_cause: wait.by_cause,
            wait_ns: wait.total_ns,
            ..Default::default()
        };
        let reading = TaskReading {
            serial,
            tid: serial as u32,
            tgid: serial as u32,
            comm: "worker".into(),
            cgroup_id: self.id(path),
            max_ns: wait.max_ns,
            totals,
            ..TaskReading::default()
        };
        self.interval.tasks.push(TaskInterval {
            accounts: None,
            reading,
            totals,
            wait,
            placement: Default::default(),
            whole: None,
        });
        self
    }

    fn exited(mut self, path: &str, ran_ns: u64, waits: &[(Cause, u64)]) -> Self {
        let totals = Totals { on_cpu_ns: ran_ns, ..Default::default() };
        let cgroup_id = self.id(path);
        self.interval.exited.push(ExitedInterval {
            accounts: None,
            cgroup_id,
            tasks: 1,
            totals,
            wait: wait(waits),
        });
        self
    }

    fn limits(mut self, path: &str, limits: CgroupReading) -> Self {
        let id = self.id(path);
        self.interval.limits.push(CgroupReading { id, ..limits });
        self
    }

    fn loses(mut self, loss: Loss, count: u64) -> Self {
        self.interval.losses.add(loss, count);
        self
    }

    fn pair(mut self, victim: &str, culprit: u64, blame: Blame, ns: u64) -> Self {
        let victim = self.id(victim);
        self.interval.pairs.push(PairReading { victim, culprit, blame, tid: 0, comm: "".into(), ns });
        self
    }

    fn ran_before(self, victim: &str, culprit: &str, ns: u64) -> Self {
        let culprit = self.id(culprit);
        self.pair(victim, culprit, Blame::Ran, ns)
    }

    fn limited(self, victim: &str, limit: &str, ns: u64) -> Self {
        let limit = self.id(limit);
        self.pair(victim, limit, Blame::Limited, ns)
    }

    fn all(&self) -> Vec<Finding> {
        findings(&self.interval, &self.host)
    }

    fn at(&self, rule: Rule) -> Vec<String> {
        let all = self.all().into_iter().filter(|finding| finding.rule == rule);
        all.map(|finding| finding.cgroup.as_deref().unwrap_or("host").to_owned()).collect()
    }

    fn only(&self, rule: Rule) -> Finding {
        let mut found: Vec<_> = self.all().into_iter().filter(|finding| finding.rule == rule).collect();
        assert_eq!(found.len(), 1, "{found:#?}");
        found.remove(0)
    }
}

fn wait(waits: &[(Cause, u64)]) -> Wait {
    let mut wait = Wait::default();
    for (cause, ns) in waits {
        let hist = Hist::of_cause(*cause, [*ns]);
        let by_cause = ByCause::only(*cause, *ns);
        wait.add(&Wait { count: 1, total_ns: *ns, max_ns: *ns, by_cause, hist });
    }
    wait
}

/// Returns a quota in CPUs, with a period of 100 ms.
fn cores(cores: f64) -> CgroupReading {
    let quota_us = Some((cores * 100_000.0) as u64);
    CgroupReading { quota_us, period_us: Some(100_000), ..Default::default() }
}

/// Same as [`cores`], but `nr_throttled` of `nr_periods` periods were throttled.
fn periods(quota: f64, nr_throttled: u64, nr_periods: u64) -> CgroupReading {
    CgroupReading { nr_throttled: Some(nr_throttled), nr_periods: Some(nr_periods), ..cores(quota) }
}

#[test]
fn an_interval_without_problems_has_no_findings() {
    assert_eq!(findings(&Interval::default(), &Host::default()), []);
    assert_eq!(Scene::new(&["/a"]).all(), []);
    assert_eq!(Scene::new(&["/a"]).task("/a", S, &[(Cause::Kernel, MS)]).all(), []);
}

#[test]
fn a_share_begins_at_its_percentage_and_not_below() {
    assert!(is_share(5, 100, 5) && !is_share(4_999, 100_000, 5));
    assert!(!is_share(0, 0, 5));
    assert!(is_share(u64::MAX, u64::MAX, 100));
}

#[test]
fn a_finding_in_json_names_its_rule() {
    let scene = Scene::new(&["/a"]).task("/a", 0, &[(Cause::Unattributed, 20 * MS)]);
    let json = serde_json::to_value(scene.only(Rule::Unattributed)).unwrap();
    let keys: Vec<_> = json.as_object().unwrap().keys().cloned().collect();
    assert_eq!(keys, ["advice", "cgroup", "lost_ns", "rule", "says"]);
    assert_eq!(json["rule"], "unattributed");
    assert_eq!(json["cgroup"], serde_json::Value::Null);
    assert_eq!(json["lost_ns"], 20 * MS);
}

#[test]
fn the_worst_finding_comes_first_and_unattributed_waiting_last() {
    let scene = Scene::new(&["/a", "/b", "/c"])
        .task("/a", S, &[(Cause::Throttled, 100 * MS), (Cause::Unattributed, 900 * MS)])
        .task("/b", S, &[(Cause::OtherCgroup, 300 * MS)])
        .task("/c", S, &[(Cause::OtherCgroup, 300 * MS)])
        .limits("/a", cores(2.0));
    let order: Vec<_> =
        scene.all().into_iter().map(|finding| (finding.rule.name(), finding.cgroup)).collect();
    let at = |path: &str| Some(Arc::from(path));
    assert_eq!(
        order,
        [
            ("noisy_neighbour", at("/b")),
            ("noisy_neighbour", at("/c")),
            ("throttled", at("/a")),
            ("unattributed", None)
        ]
    );
}

#[test]
fn the_number_of_findings_is_limited() {
    let paths: Vec<String> = (0..40).map(|i| format!("/{i:02}")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
    let mut scene = Scene::new(&paths);
    for (path, i) in paths.iter().zip(0..) {
        scene = scene.task(path, 0, &[(Cause::OtherCgroup, 100 * MS + i)]);
    }
    let found = scene.all();
    assert_eq!(found.len(), MOST);
    assert_eq!(found[0].cgroup.as_deref(), Some("/39"));
}

#[test]
fn sentences_have_no_full_stop_and_name_their_cgroup() {
    let scene = Scene::new(&["/a", "/b"])
        .task("/a", S, &[(Cause::Throttled, S), (Cause::OwnCgroup, S), (Cause::OtherCgroup, S)])
        .task("/b", S, &[(Cause::OwnCgroup, S), (Cause::Unattributed, S)])
        .task("/b", S, &[(Cause::OwnCgroup, S)])
        .limits("/a", periods(8.0, 5, 10));
    let found = scene.all();
    assert!(found.len() >= 4, "{found:#?}");
    for Finding { cgroup, says, advice, .. } in found {
        assert!(!says.ends_with('.') && !advice.ends_with('.'), "{says} {advice}");
        assert!(cgroup.is_none_or(|path| says.starts_with(&format!("{path}: "))), "{says}");
    }
}
