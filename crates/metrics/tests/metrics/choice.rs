//! Tests which cgroups and culprits are exported, and for how long.

use std::{collections::BTreeMap, sync::Arc};

use cgscope_ledger::history::KERNEL;
use cgscope_metrics::{Config, Format, Metrics};
use cgscope_model::{Blame, CgroupReading, Hist, Interval, PairReading, TaskInterval, TaskReading, Wait};
use proptest::{collection::vec, prelude::*};
use regex::Regex;

use crate::parsed;

const PATHS: [&str; 8] = ["/", "/a", "/a/b", "/a/b/c", "/d", "/e", "/f", "/g"];

fn id(path: &str) -> u64 {
    1 + PATHS.iter().position(|at| *at == path).expect("a path") as u64
}

/// Returns an interval of one second. Each cgroup has one task that waited for the given time, ms.
fn interval(waited_ms: &[(&str, u64)]) -> Interval {
    let task = |(path, ms): &(&str, u64)| TaskInterval {
        reading: TaskReading { cgroup_id: id(path), ..TaskReading::default() },
        wait: Wait {
            total_ns: ms * 1_000_000,
            hist: Hist::from_waits_ns([ms * 1_000_000]),
            ..Wait::default()
        },
        ..TaskInterval::default()
    };
    Interval {
        duration_ns: 1_000_000_000,
        tasks: waited_ms.iter().map(task).collect(),
        cgroups: (1..).zip(PATHS.map(Arc::from)).collect(),
        ..Interval::default()
    }
}

fn read(path: &str) -> CgroupReading {
    CgroupReading { id: id(path), ..CgroupReading::default() }
}

/// Returns all values of a metric family, by cgroup path and by the value of the last label.
fn family(metrics: &Metrics, name: &str) -> BTreeMap<(String, String), f64> {
    let samples = parsed::samples(&parsed::text(&metrics.page(Format::Text, &[]), false));
    let of_family = samples.into_iter().filter(|((found, _), _)| found == name);
    of_family
        .map(|((_, labels), value)| {
            let at = |at: Option<&(String, String)>| at.expect("a label").1.clone();
            ((at(labels.first()), at(labels.last())), value)
        })
        .collect()
}

fn exported(metrics: &Metrics) -> Vec<String> {
    family(metrics, "cgscope_cgroup_tasks").into_keys().map(|(path, _)| path).collect()
}

fn states(metrics: &Metrics) -> [f64; 4] {
    let states = family(metrics, "cgscope_cgroups");
    ["exported", "over_limit", "too_deep", "excluded"].map(|state| states[&(state.into(), state.into())])
}

/// Like [`interval`], but the paths need not be in [`PATHS`].
fn interval_of(waited_ms: &[(String, u64)]) -> Interval {
    let tasks = (1..).zip(waited_ms).map(|(cgroup_id, (_, ms))| TaskInterval {
        reading: TaskReading { cgroup_id, ..TaskReading::default() },
        wait: Wait { total_ns: ms * 1_000_000, ..Wait::default() },
        ..TaskInterval::default()
    });
    Interval {
        duration_ns: 1_000_000_000,
        tasks: tasks.collect(),
        cgroups: (1..).zip(waited_ms.iter().map(|(path, _)| path.as_str().into())).collect(),
        ..Interval::default()
    }
}

fn of_size(cgroups: usize) -> Metrics {
    Metrics::new(Config { cgroups, ..Config::default() })
}

fn add(metrics: &mut Metrics, waited_ms: &[(&str, u64)]) {
    metrics.add(&interval(waited_ms));
}

#[test]
fn the_root_and_the_cgroups_that_waited_most_are_exported() {
    let mut metrics = of_size(3);
    add(&mut metrics, &[("/a", 1), ("/d", 5), ("/e", 9), ("/f", 3)]);
    assert_eq!(
        (exported(&metrics), states(&metrics)),
        (vec!["/".into(), "/d".into(), "/e".into()], [3.0, 2.0, 0.0, 0.0])
    );
    let mut metrics = of_size(0);
    add(&mut metrics, &[("/a", 1)]);
    assert_eq!(exported(&metrics), ["/"]);
}

#[test]
fn an_exported_cgroup_is_replaced_only_by_one_that_waited_more_than_twice_as_long() {
    let mut metrics = of_size(2);
    add(&mut metrics, &[("/d", 5), ("/e", 4)]);
    add(&mut metrics, &[("/d", 0), ("/e", 6)]);
    assert_eq!(exported(&metrics), ["/", "/d"], "10 ms are not more than twice 5 ms");
    add(&mut metrics, &[("/d", 0), ("/e", 1)]);
    assert_eq!(exported(&metrics), ["/", "/e"]);
    let waits = family(&metrics, "cgscope_runqueue_wait_seconds_count");
    assert_eq!(waits[&("/e".into(), "wakeup".into())], 1.0, "only waits from then on count");
    assert_eq!(waits[&("/".into(), "wakeup".into())], 6.0);
}

#[test]
fn a_removed_cgroup_loses_its_place_and_its_earlier_waits() {
    let mut metrics = of_size(2);
    add(&mut metrics, &[("/d", 50), ("/e", 1)]);
    add(&mut metrics, &[("/e", 1)]);
    assert_eq!(exported(&metrics), ["/", "/e"]);
    add(&mut metrics, &[("/d", 1), ("/e", 1)]);
    assert_eq!(exported(&metrics), ["/", "/e"], "waits before the removal do not count");
}

#[test]
fn a_cgroup_without_tasks_stays_while_its_files_exist() {
    let mut metrics = of_size(2);
    add(&mut metrics, &[("/d", 5), ("/e", 1)]);
    let empty = Interval { limits: vec![read("/d")], ..interval(&[("/e", 1)]) };
    metrics.add(&empty);
    assert_eq!(
        (exported(&metrics), states(&metrics)[..2].to_vec()),
        (vec!["/".into(), "/d".into()], vec![2.0, 1.0])
    );
}

#[test]
fn a_cgroup_with_tasks_only_below_it_is_exported() {
    let mut metrics = of_size(10);
    add(&mut metrics, &[("/a/b/c", 1)]);
    add(&mut metrics, &[("/a/b/c", 1)]);
    let waits = family(&metrics, "cgscope_runqueue_wait_seconds_count");
    let of = |path: &str| waits[&(path.to_owned(), "wakeup".to_owned())];
    assert_eq!(["/", "/a", "/a/b", "/a/b/c"].map(of), [2.0; 4]);
}

#[test]
fn deep_and_excluded_cgroups_are_counted_but_not_exported() {
    let config = Config {
        depth: 2,
        include: Some(Regex::new("^/[a-e]").expect("a regex")),
        exclude: Some(Regex::new("^/e").expect("a regex")),
        ..Config::default()
    };
    let mut metrics = Metrics::new(config.clone());
    let all: Vec<_> = PATHS.iter().map(|path| (*path, 1)).collect();
    add(&mut metrics, &all);
    assert_eq!(exported(&metrics), ["/", "/a", "/a/b", "/d"]);
    assert_eq!(states(&metrics), [4.0, 0.0, 1.0, 3.0]);
    let waits = family(&metrics, "cgscope_runqueue_wait_seconds_count");
    assert_eq!(
        waits[&("/a/b".into(), "wakeup".into())],
        2.0,
        "waits of a cgroup that is too deep count for its ancestor"
    );

    metrics.set_config(Config { depth: 1, exclude: None, ..config });
    assert_eq!(
        (exported(&metrics), states(&metrics)),
        (vec!["/".into(), "/a".into(), "/d".into()], [3.0, 1.0, 2.0, 2.0])
    );
    add(&mut metrics, &all);
    assert_eq!(exported(&metrics), ["/", "/a", "/d", "/e"]);
    let waits = family(&metrics, "cgscope_runqueue_wait_seconds_count");
    let of = |path: &str| waits[&(path.to_owned(), "wakeup".to_owned())];
    assert_eq!([of("/a"), of("/d"), of("/e")], [6.0, 2.0, 1.0], "cgroups that stay keep their counts");
}

fn pair(victim: &str, culprit: u64, ms: u64) -> PairReading {
    PairReading {
        victim: id(victim),
        culprit,
        blame: Blame::Ran,
        tid: 0,
        comm: "".into(),
        ns: ms * 1_000_000,
    }
}

fn blamed(metrics: &mut Metrics, pairs: &[(&str, u64, u64)]) {
    let everybody = PATHS.map(|path| (path, 1));
    let mut pairs: Vec<PairReading> =
        pairs.iter().map(|(victim, culprit, ms)| pair(victim, *culprit, *ms)).collect();
    pairs.sort_by_key(PairReading::key);
    metrics.add(&Interval { pairs, ..interval(&everybody) });
}

/// Returns the wait times of all pairs of a victim and a culprit, ms.
fn all_culprits(metrics: &Metrics) -> BTreeMap<(String, String), f64> {
    let mut all = family(metrics, "cgscope_culprit_wait_seconds_total");
    all.values_mut().for_each(|seconds| *seconds = (*seconds * 1e3).round());
    all
}

fn of_victim(all: &BTreeMap<(String, String), f64>, victim: &str) -> BTreeMap<String, f64> {
    let of_victim = all.iter().filter(|((path, _), _)| path == victim);
    of_victim.map(|((_, culprit), ms)| (culprit.clone(), *ms)).collect()
}

fn culprits(metrics: &Metrics, victim: &str) -> BTreeMap<String, f64> {
    of_victim(&all_culprits(metrics), victim)
}

fn named<'a>(culprits: impl IntoIterator<Item = (&'a str, f64)>) -> BTreeMap<String, f64> {
    culprits.into_iter().map(|(culprit, ms)| (culprit.to_owned(), ms)).collect()
}

#[test]
fn the_worst_culprits_are_named_and_the_others_are_summed() {
    let mut metrics = Metrics::new(Config { culprits: 2, ..Config::default() });
    let exited = 99;
    blamed(
        &mut metrics,
        &[
            ("/a/b", KERNEL, 7),
            ("/a/b", id("/d"), 5),
            ("/a", id("/e"), 9),
            ("/a", id("/a/b"), 2),
            ("/a", exited, 40),
        ],
    );
    assert_eq!(culprits(&metrics, "/a/b"), named([("kernel", 7.0), ("/d", 5.0)]));
    assert_eq!(culprits(&metrics, "/a"), named([("/e", 9.0), ("kernel", 7.0), ("other", 47.0)]));
    assert_eq!(culprits(&metrics, "/"), culprits(&metrics, "/a"));
}

#[test]
fn a_culprit_keeps_its_name_unless_another_is_much_worse() {
    let mut metrics = Metrics::new(Config { culprits: 1, ..Config::default() });
    blamed(&mut metrics, &[("/a", id("/d"), 5), ("/a", id("/e"), 4)]);
    blamed(&mut metrics, &[("/a", id("/e"), 6)]);
    assert_eq!(culprits(&metrics, "/a"), named([("/d", 5.0), ("other", 10.0)]));
    blamed(&mut metrics, &[("/a", id("/e"), 3)]);
    assert_eq!(
        culprits(&metrics, "/a"),
        named([("/e", 3.0), ("other", 10.0)]),
        "earlier waits stay in `other`"
    );
    metrics.set_config(Config { culprits: 0, ..Config::default() });
    assert_eq!(culprits(&metrics, "/a"), named([("other", 10.0)]));
}

#[test]
fn a_removed_culprit_is_replaced_by_the_next_one() {
    let mut metrics = Metrics::new(Config { culprits: 1, ..Config::default() });
    blamed(&mut metrics, &[("/a", id("/d"), 500)]);
    let mut without = interval(&[("/a", 1), ("/e", 1)]);
    metrics.add(&without);
    assert_eq!(culprits(&metrics, "/a"), named([("/d", 500.0)]), "no other culprit takes the place yet");
    without.pairs = vec![pair("/a", id("/e"), 1)];
    metrics.add(&without);
    assert_eq!(culprits(&metrics, "/a"), named([("/e", 1.0)]));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_wait_behind_a_culprit_is_added_to_exactly_one_series(
        rounds in vec(vec((0..PATHS.len(), prop_oneof![1..=8u64, Just(KERNEL), Just(77)], 1..1_000u64), 0..12), 1..6),
        most in 0..4usize,
    ) {
        let mut metrics = Metrics::new(Config { culprits: most, ..Config::default() });
        let mut before: BTreeMap<&str, BTreeMap<String, f64>> = BTreeMap::new();
        for round in rounds {
            let pairs: BTreeMap<_, _> = round.iter().map(|(victim, culprit, ms)| ((PATHS[*victim], *culprit), *ms)).collect();
            let pairs: Vec<_> = pairs.into_iter().map(|((victim, culprit), ms)| (victim, culprit, ms)).collect();
            blamed(&mut metrics, &pairs);
            let whole = Interval { pairs: pairs.iter().map(|(victim, culprit, ms)| pair(victim, *culprit, *ms)).collect(), ..interval(&[]) };
            let all = all_culprits(&metrics);
            for victim in PATHS {
                let now = of_victim(&all, victim);
                let earlier = before.entry(victim).or_default();
                let rose: f64 = now.iter().map(|(culprit, ms)| ms - earlier.get(culprit).unwrap_or(&0.0)).sum();
                let model: u64 = whole.culprits_of(victim).iter().map(|culprit| culprit.ns).sum();
                prop_assert_eq!(rose, model as f64 / 1e6, "{}", victim);
                prop_assert!(now.len() <= most + 1);
                *earlier = now;
            }
        }
    }
}

#[test]
fn the_cgroups_of_one_user_do_not_take_the_places_of_others() {
    let hostile = (0..100).map(|at| (format!("/user/hostile/{at}"), 1_000));
    let others: Vec<_> =
        (0..12).map(|at| (format!("/pods/{at}"), 1)).chain([("/user/other".into(), 1)]).collect();
    let all: Vec<_> = hostile.chain(others.iter().cloned()).collect();
    let mut metrics = of_size(40);
    metrics.add(&interval_of(&all));
    let exported = exported(&metrics);
    assert_eq!(exported.len(), 40);
    // 39 / 2 = 19 places are divided evenly: `/user` gets 10 and `/pods` gets 9. `/user` gives one place to `/user/other`, which
    // needs no more, and nine to `/user/hostile`.
    let of = |root: &str| exported.iter().filter(|path| path.starts_with(root)).count();
    assert_eq!((of("/pods"), of("/user/other")), (9, 1), "{exported:?}");
    // If there are enough places, each cgroup gets one.
    let mut metrics = of_size(200);
    metrics.add(&interval_of(&all));
    assert_eq!(states(&metrics), [117.0, 0.0, 0.0, 0.0]);
}

#[test]
fn renames_make_an_eighth_of_the_places_new_in_a_minute_and_others_come_at_once() {
    let mut metrics = of_size(81);
    let mut seen = std::collections::BTreeSet::new();
    for second in 0..60 {
        let renamed = (0..100).map(|at| (format!("/user.slice/user-1000.slice/x/{at}-{second}"), 10));
        // One pod starts in each second. Pods wait less than the renamed cgroups.
        let pods = (0..=second).map(|pod| (format!("/kubepods/burstable/pod{pod}/app"), 1));
        metrics.add(&interval_of(&renamed.chain(pods).collect::<Vec<_>>()));
        let exported = exported(&metrics);
        let of_pods = exported.iter().filter(|path| path.ends_with("/app")).count();
        // 40 of the 80 places are divided evenly. A pod takes two places: for itself and for its child `app`.
        assert!(of_pods >= (second + 1).min(9), "{second}: {exported:?}");
        seen.extend(exported.into_iter().filter(|path| path.contains("user-1000")));
    }
    // In the first second, all places can go to this user's cgroups. Afterwards, 10 new cgroups can get a place at once, and 10
    // more within the minute. Three of their ancestors are also exported.
    assert!((60..=103).contains(&seen.len()), "{}", seen.len());
}

#[test]
fn a_path_that_is_too_long_for_a_label_counts_for_the_cgroup_above_it() {
    let long = format!("/a/{}", "x".repeat(255)).repeat(3);
    let short = format!("/a/{}", "x".repeat(255));
    let mut metrics = of_size(10);
    metrics.add(&interval_of(&[(short.clone(), 1), (long.clone(), 5)]));
    assert_eq!(exported(&metrics), ["/".to_owned(), "/a".to_owned(), short.clone(), format!("{short}/a")]);
    assert_eq!(family(&metrics, "cgscope_cgroups")[&("too_long".into(), "too_long".into())], 3.0);
    let page = String::from_utf8(metrics.page(Format::Text, &[])).expect("text");
    let longest = page.lines().map(str::len).max();
    assert!(longest < Some(512 + 200), "{longest:?}");
    let tasks = family(&metrics, "cgscope_cgroup_tasks");
    assert_eq!(tasks[&(short.clone(), short)], 2.0);
}
