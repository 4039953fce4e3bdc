//! Tests on random hosts that findings have the figures of their cgroups, and that no two of them contradict each other. The expected
//! figures are summed from the tasks, without the tree that the rules use.

use std::{cell::RefCell, collections::BTreeMap, sync::Arc};

use cgscope_ledger::Cause;
use cgscope_model::{
    Autogroup, Blame, ByCause, CAUSES, CgroupReading, CpuReading, ExitedReading, Interval, PairReading,
    Placement, Sample, TaskReading, Totals,
    findings::{Finding, Host, Rule, findings},
};
use proptest::{
    collection::vec,
    option,
    prelude::*,
    test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner},
};

use crate::any::nothing_before;

const MS: u64 = 1_000_000;
const CPUS: u32 = 2;
const PATHS: [&str; 5] = ["/", "/a", "/a/b", "/a/b-2", "/c"];
const CASES: u32 = 12_000;

fn is_within(path: &str, top: &str) -> bool {
    top == "/" || path == top || path.strip_prefix(top).is_some_and(|rest| rest.starts_with('/'))
}

/// Waits of a task by cause: mostly of one or two causes.
fn waits() -> impl Strategy<Value = ByCause> {
    let wait = (0..CAUSES, prop_oneof![Just(0), 1..900u64]);
    vec(wait, 0..3).prop_map(|waits| {
        let mut by_cause = ByCause::default();
        waits.into_iter().for_each(|(cause, ms)| by_cause.0[cause] += ms * MS);
        by_cause
    })
}

fn totals(by_cause: ByCause, on_cpu_ns: u64, voluntary: u64) -> Totals {
    let wait_ns = by_cause.0.iter().sum();
    Totals { waits: 10, wait_ns, run_delay_ns: wait_ns, on_cpu_ns, voluntary, by_cause, ..Totals::default() }
}

fn task() -> impl Strategy<Value = TaskReading> {
    let ids = (prop_oneof![0..PATHS.len() as u64, Just(0)], 0..CPUS, 1..4u32, any::<bool>());
    let placed = (any::<bool>(), option::of((0..3u64, prop_oneof![Just(0), Just(19)])));
    (ids, placed, prop_oneof![0..100u64, 0..1_000u64], 0..50u64, waits()).prop_map(
        |((cgroup_id, cpu, tgid, polls), (is_pinned, session), ran_ms, voluntary, by_cause)| TaskReading {
            tgid,
            cgroup_id,
            cpu,
            comm: if polls { format!("iou-sqp-{tgid}") } else { "worker".into() }.into(),
            placement: Some(Arc::new(Placement {
                cpus_allowed: is_pinned.then(|| cpu.to_string().into()),
                parent: is_pinned.then_some(7),
                autogroup: session.map(|(number, nice)| Autogroup { number, nice }),
                ..Placement::default()
            })),
            totals: totals(by_cause, ran_ms * MS, voluntary),
            ..TaskReading::default()
        },
    )
}

fn limits() -> impl Strategy<Value = CgroupReading> {
    let quota = option::of(prop_oneof![Just(10_000), Just(50_000), Just(100_000), Just(150_000)]);
    (quota, 0..11u64, 0..11u64, 0..1_500u64, option::of(1..=CPUS)).prop_map(
        |(quota_us, nr_periods, throttled, used_ms, cpus)| CgroupReading {
            quota_us,
            period_us: quota_us.map(|_| 100_000),
            nr_periods: Some(nr_periods),
            nr_throttled: Some(throttled.min(nr_periods)),
            usage_ns: Some(used_ms * MS),
            cpus,
            ..CgroupReading::default()
        },
    )
}

/// A host after one second. Before it, all counters were 0.
fn host() -> impl Strategy<Value = Sample> {
    let exited = vec((0..30u64, waits()), PATHS.len());
    let of_cgroups = (vec(limits(), PATHS.len()), option::of(exited), vec(0..PATHS.len(), PATHS.len()));
    (vec(task(), 0..12), of_cgroups, vec(0..=1_000u64, CPUS as usize)).prop_map(
        |(tasks, (limits, exited, culprits), busy_ms)| {
            let ids = || 0..PATHS.len();
            let mut limits: Vec<_> =
                ids().zip(limits).map(|(id, one)| CgroupReading { id: id as u64, ..one }).collect();
            limits[0] = CgroupReading { cpus: limits[0].cpus, ..CgroupReading::default() };
            let numbered = tasks.into_iter().zip(1..);
            let tasks: Vec<_> = numbered
                .map(|(task, tid)| Arc::new(TaskReading { serial: tid.into(), tid, ..task }))
                .collect();
            let exited: Vec<_> = ids()
                .zip(exited.unwrap_or_default())
                .map(|(id, (tasks, by_cause))| ExitedReading {
                    cgroup_id: id as u64,
                    tasks,
                    totals: totals(by_cause, 0, 0),
                    ..ExitedReading::default()
                })
                .collect();
            let mut sample = Sample {
                mono_ns: 1_000 * MS,
                tasks,
                exited,
                cgroups: (0..).zip(PATHS.map(Arc::from)).collect(),
                cpus: (0..)
                    .zip(busy_ms)
                    .map(|(cpu, ms)| CpuReading {
                        cpu,
                        busy_ns: Some(ms * MS),
                        idle_ns: Some((1_000 - ms) * MS),
                        ..CpuReading::default()
                    })
                    .collect(),
                ..Sample::default()
            };
            // A ledger names a culprit or a quota for each of these waits.
            let mut pairs = Vec::new();
            for (victim, other) in ids().zip(culprits) {
                let waited = |cause| waited_ns(&sample, |path| path == PATHS[victim], &[cause]);
                let mut pair = |culprit: usize, blame, ns| {
                    let (victim, culprit) = (victim as u64, culprit as u64);
                    if ns != 0 {
                        pairs.push(PairReading { victim, culprit, blame, tid: 0, comm: "".into(), ns });
                    }
                };
                if other != victim {
                    pair(other, Blame::Ran, waited(Cause::OtherCgroup));
                }
                let limited = ids()
                    .rev()
                    .find(|at| is_within(PATHS[victim], PATHS[*at]) && limits[*at].quota_us.is_some());
                if let Some(limit) = limited {
                    pair(limit, Blame::Limited, waited(Cause::Throttled));
                }
            }
            pairs.sort_by_key(PairReading::key);
            sample.pairs = pairs;
            sample.limits = limits;
            sample
        },
    )
}

/// Returns how long tasks of some cgroups waited because of some causes, ns.
fn waited_ns(sample: &Sample, is_in: impl Fn(&str) -> bool, causes: &[Cause]) -> u64 {
    let tasks = sample.tasks.iter().map(|task| (task.cgroup_id, &task.totals));
    let all = tasks.chain(sample.exited.iter().map(|exited| (exited.cgroup_id, &exited.totals)));
    let there = all.filter(|(id, _)| is_in(PATHS[*id as usize]));
    there.flat_map(|(_, totals)| causes.iter().map(|cause| totals.by_cause.get(*cause))).sum()
}

fn held_ns(sample: &Sample, path: &str) -> u64 {
    let by_it = |pair: &&PairReading| pair.blame == Blame::Limited && PATHS[pair.culprit as usize] == path;
    sample.pairs.iter().filter(by_it).map(|pair| pair.ns).sum()
}

/// Rules of which at most one speaks about the same cgroup.
const QUOTA: [Rule; 3] = [Rule::ThreadsOverQuota, Rule::ThrottledBelowLimit, Rule::Throttled];
const OWN: [Rule; 2] = [Rule::OwnContention, Rule::JobBursts];

fn assert_figures(sample: &Sample, finding: &Finding) -> Result<(), TestCaseError> {
    let Finding { rule, cgroup, lost_ns, says, advice, .. } = finding;
    let path = cgroup.as_deref().unwrap_or("/");
    let below = |causes: &[Cause]| waited_ns(sample, |at| is_within(at, path), causes);
    let own = |causes: &[Cause]| waited_ns(sample, |at| at == path, causes);
    let limited = [Cause::Throttled, Cause::RtThrottled];
    match rule {
        Rule::NoisyNeighbour => prop_assert_eq!(*lost_ns, below(&[Cause::OtherCgroup])),
        Rule::OwnContention | Rule::JobBursts => prop_assert_eq!(*lost_ns, own(&[Cause::OwnCgroup])),
        Rule::Throttled | Rule::ThrottledBelowLimit => prop_assert_eq!(*lost_ns, held_ns(sample, path)),
        Rule::ThreadsOverQuota => prop_assert!(*lost_ns <= held_ns(sample, path)),
        Rule::Sessions => prop_assert!(*lost_ns <= own(&[Cause::OwnCgroup])),
        Rule::IdleCpus => prop_assert!(*lost_ns <= own(&Cause::ALL) - own(&limited)),
        Rule::CpuOversubscription => prop_assert_eq!(*lost_ns, below(&Cause::ALL) - below(&limited)),
        _ => prop_assert!(*lost_ns <= below(&Cause::ALL)),
    }
    // The screen has 80 columns, a mark and the number of findings.
    let (headline, action) = (finding.headline(), &finding.action);
    prop_assert!(headline.chars().count() <= 74, "{}", headline);
    prop_assert!(action.chars().count() <= 76, "{}", action);
    for text in [says, advice] {
        prop_assert!(!text.contains("NaN") && !text.contains("inf "), "{}", text);
    }
    Ok(())
}

/// If findings about cgroups explain half of the host's waiting, the host comes after all of them but those whose advice is to do
/// nothing.
fn assert_order(all: &[Finding]) -> Result<(), TestCaseError> {
    let Some(at) = all.iter().position(|finding| finding.rule == Rule::CpuOversubscription) else {
        return Ok(());
    };
    // Cgroups next to each other have no waiting in common.
    let apart = |finding: &&Finding| matches!(finding.cgroup.as_deref(), Some("/a/b" | "/a/b-2" | "/c"));
    let behind = |finding: &&Finding| {
        [Rule::NoisyNeighbour, Rule::OwnContention, Rule::JobBursts].contains(&finding.rule)
    };
    let explained_ns: u64 = all.iter().filter(apart).filter(behind).map(|finding| finding.lost_ns).sum();
    let is_last =
        all[at + 1..].iter().filter(behind).all(|finding| finding.action.starts_with("none, unless"));
    prop_assert!(explained_ns * 2 < all[at].lost_ns || is_last, "the host comes before those who wait");
    Ok(())
}

fn assert_no_contradiction(sample: &Sample, all: &[Finding]) -> Result<(), TestCaseError> {
    let has = |rules: &[Rule], is_at: &dyn Fn(&str) -> bool| {
        all.iter()
            .any(|other| rules.contains(&other.rule) && is_at(other.cgroup.as_deref().unwrap_or("the host")))
    };
    for (index, Finding { rule, cgroup, lost_ns, .. }) in all.iter().enumerate() {
        // Groups of tasks with different masks have a finding each.
        let again = |other: &Finding| other.rule == *rule && other.cgroup == *cgroup;
        prop_assert!(*rule == Rule::IdleCpus || !all[index + 1..].iter().any(again), "{:?} twice", rule);
        let Some(path) = cgroup.as_deref() else {
            prop_assert!(
                *rule != Rule::CpuOversubscription || !has(&OWN, &|at| at == "/"),
                "own contention of / is that of the host"
            );
            continue;
        };
        match rule {
            Rule::Throttled => prop_assert!(!has(&[Rule::ThrottledBelowLimit], &|at| at == path)),
            Rule::OwnContention | Rule::JobBursts => {
                prop_assert!(
                    !has(&QUOTA, &|at| is_within(path, at)),
                    "with a quota, its threads are too many"
                );
                let others: Vec<Rule> = OWN.into_iter().filter(|other| other != rule).collect();
                prop_assert!(!has(&others, &|at| at == path));
                let is_same =
                    |other: &Finding| other.rule == Rule::Sessions && other.lost_ns * 5 >= lost_ns * 4;
                prop_assert!(path != "/" || !all.iter().any(is_same), "the wait behind a session twice");
            }
            _ => {}
        }
        let about_waits = [&QUOTA[..], &OWN, &[Rule::NoisyNeighbour, Rule::IdleCpus]].concat();
        if about_waits.contains(rule) {
            let all_ns = waited_ns(sample, |at| is_within(at, path), &Cause::ALL);
            let own_ns = waited_ns(sample, |at| at == path, &Cause::ALL);
            let is_own = OWN.contains(rule) || *rule == Rule::IdleCpus;
            let is_small = *lost_ns != 0 && lost_ns * 10 < if is_own { own_ns } else { all_ns };
            let is_larger = |other: &Finding| {
                other.cgroup == *cgroup && about_waits.contains(&other.rule) && other.lost_ns * 10 >= all_ns
            };
            prop_assert!(!is_small || !all.iter().any(is_larger), "{:?} explains little", rule);
        }
    }
    Ok(())
}

#[test]
fn findings_have_the_figures_of_their_cgroups_and_do_not_contradict_each_other() {
    let seen = RefCell::new(BTreeMap::<Rule, u32>::new());
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let result = runner.run(&host(), |sample| {
        let interval = Interval::between(&nothing_before(&sample), &sample);
        let all = findings(&interval, &Host { cpus: Some(CPUS), whole: true, kernel: None });
        for finding in &all {
            *seen.borrow_mut().entry(finding.rule).or_default() += 1;
            assert_figures(&sample, finding)?;
        }
        assert_order(&all)?;
        assert_no_contradiction(&sample, &all)
    });
    if let Err(TestError::Fail(why, sample)) = &result {
        let interval = Interval::between(&nothing_before(sample), sample);
        let all = findings(&interval, &Host { cpus: Some(CPUS), whole: true, kernel: None });
        panic!("{why}\n{all:#?}\n{:?}\n{:?}", sample.tasks, sample.limits);
    }
    result.expect("no case was rejected");
    println!("{seen:?}");
    let judged = [&QUOTA[..], &OWN, &[Rule::NoisyNeighbour, Rule::Sessions, Rule::IdleCpus]].concat();
    for rule in judged.into_iter().chain([Rule::CpuOversubscription]) {
        let times = seen.borrow().get(&rule).copied().unwrap_or(0);
        assert!(times >= 20, "{rule:?} was tested only {times} times");
    }
}
