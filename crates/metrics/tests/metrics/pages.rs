//! Tests of whole pages.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use cgscope_ledger::Loss;
use cgscope_made_up::{host, small};
use cgscope_metrics::{Config, Format, Given, Kind, Metrics, family};
use cgscope_model::{
    BlockedKind, Cause, CgroupReading, ContainerReading, Interval, Mode, Names, TaskReading, Tree,
};

use crate::parsed::{self, Key};

/// The index of a cgroup in [`Interval::cgroups`], and the names of the cgroup's container, pod and namespace.
type Named<'a> = (usize, Option<&'a str>, Option<&'a str>, Option<&'a str>);

fn name(interval: &mut Interval, named: &[Named<'_>]) {
    let named = named.iter().map(|(at, container, pod, namespace)| {
        let [container, pod, namespace] = [container, pod, namespace].map(|name| name.map(Into::into));
        ContainerReading { cgroup_id: interval.cgroups[*at].0, container, pod, namespace }
    });
    interval.names = Arc::new(Names::new(&interval.cgroups, &named.collect::<Vec<_>>()));
}

fn interval(tasks: u32, cgroups: u32, round: u64) -> Interval {
    Interval::between(&host(tasks, cgroups, round), &host(tasks, cgroups, round + 1))
}

fn metrics(config: Config, intervals: &[Interval]) -> Metrics {
    let mut metrics = Metrics::new(config);
    intervals.iter().for_each(|interval| metrics.add(interval));
    metrics
}

fn samples(metrics: &Metrics) -> BTreeMap<Key, f64> {
    parsed::samples(&parsed::text(&metrics.page(Format::Text, &[]), false))
}

fn key(name: &str, labels: &[(&str, &str)]) -> Key {
    (name.into(), labels.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect())
}

/// Returns metrics with at least one series of each family.
fn everything() -> (Metrics, Vec<Given>) {
    let mut interval = interval(500, 100, 1);
    let all = (0..interval.cgroups.len()).map(|at| (at, Some("web"), Some("web-0"), Some("shop")));
    name(&mut interval, &all.collect::<Vec<_>>());
    let chain =
        |ids: &[(u64, Arc<str>)]| small::chain(ids[1].0, BlockedKind::Lock, ids[0].0, [1, 2, 3, 4, 5]);
    interval.chains = Some(interval.cgroups.windows(2).map(chain).collect());
    let mut metrics = Metrics::new(Config::default());
    metrics.add(&interval);
    let given = family::ALL.iter().skip_while(|given| **given != &family::COLLECTIONS).map(|given| {
        let labels = given.labels.iter().map(|label| (*label, "a\"b".to_owned())).collect();
        Given { family: **given, samples: vec![(labels, 2.5)] }
    });
    (metrics, given.collect())
}

#[test]
fn every_family_is_on_the_page_once_in_the_order_of_the_list() {
    let (metrics, given) = everything();
    let open = parsed::text(&metrics.page(Format::OpenMetrics, &given), true);
    let text = parsed::text(&metrics.page(Format::Text, &given), false);
    let messages = parsed::messages(&metrics.page(Format::Protobuf, &given));
    assert_eq!(family::ALL.len(), open.len());
    for (at, family) in family::ALL.iter().enumerate() {
        assert_eq!((&*open[at].name, open[at].unit.as_deref()), (family.name, family.unit));
        assert_eq!(text[at].name, family.sample_name());
        assert_eq!(messages[at].name(), family.sample_name());
        assert_eq!(open[at].help.as_deref(), Some(family.help));
        assert_eq!(open[at].kind.as_deref(), Some(family.kind.name()));
        let cgroup: BTreeSet<&str> = family::CGROUP_LABELS.into_iter().collect();
        let mut labels = BTreeSet::new();
        for ((_, pairs), _) in &text[at].samples {
            labels.extend(pairs.iter().map(|(name, _)| name.as_str()).filter(|name| *name != "le"));
        }
        let of_cgroups: BTreeSet<&str> = labels.intersection(&cgroup).copied().collect();
        assert_eq!(
            family.labels.contains(&family::CGROUP),
            of_cgroups == cgroup,
            "{}: {labels:?}",
            family.name
        );
        let others: Vec<&str> = labels.difference(&cgroup).copied().collect();
        let mut said: Vec<&str> =
            family.labels.iter().copied().filter(|label| *label != family::CGROUP).collect();
        said.sort_unstable();
        assert_eq!(others, said, "{}", family.name);
    }
}

#[test]
fn all_formats_have_the_same_figures() {
    let (metrics, given) = everything();
    let text = parsed::samples(&parsed::text(&metrics.page(Format::Text, &given), false));
    let messages = parsed::of_messages(&parsed::messages(&metrics.page(Format::Protobuf, &given)));
    assert_eq!(text, messages);
    let mut open = parsed::samples(&parsed::text(&metrics.page(Format::OpenMetrics, &given), true));
    let before = open.len();
    open.retain(|(name, _), _| !name.ends_with("_created"));
    assert!(before > open.len() && text == open);
}

#[test]
fn counters_and_histograms_never_fall_and_the_causes_sum_to_the_waits() {
    let rounds: Vec<Interval> = (0..5).map(|round| interval(300, 60, round)).collect();
    let mut metrics = Metrics::new(Config { cgroups: 20, culprits: 2, ..Config::default() });
    let (mut before, mut waits) = (BTreeMap::new(), 0);
    for round in &rounds {
        metrics.add(round);
        let now = parsed::cumulative(&parsed::text(&metrics.page(Format::Text, &[]), false));
        for (key, value) in &before {
            assert!(now.get(key).is_none_or(|now| now >= value), "{key:?} fell from {value}");
        }
        waits += round.total().wait.hist.count();
        let of_root = |(name, labels): &Key| name.ends_with("_wait_seconds_count") && labels[0].1 == "/";
        let over_causes: f64 = now.iter().filter(|(key, _)| of_root(key)).map(|(_, value)| value).sum();
        assert_eq!(over_causes, waits as f64);
        before = now;
    }
}

#[test]
fn figures_of_a_cgroup_include_everything_below_it() {
    let interval = interval(1_000, 200, 3);
    let tree = Tree::new(&interval);
    for cgroups in [10_000, 50] {
        let samples =
            samples(&metrics(Config { cgroups, ..Config::default() }, std::slice::from_ref(&interval)));
        let mut exported = 0;
        for ((name, labels), value) in &samples {
            let path = labels.first().filter(|(name, _)| name == "cgroup").map(|(_, path)| path.as_str());
            let Some(node) = path.map(|path| &tree.nodes()[tree.find(path).expect("a cgroup")]) else {
                continue;
            };
            let limits = node.limits.map(|at| &interval.limits[at]).expect("limits of all");
            let seconds = |ns: u64| ns as f64 / 1e9;
            let same = match name.strip_prefix("cgscope_").expect("a name") {
                "cgroup_cpu_usage_seconds_total" => seconds(node.group.totals.on_cpu_ns),
                "cgroup_tasks" => {
                    exported += 1;
                    node.group.threads as f64
                }
                "cgroup_voluntary_switches_total" => node.group.totals.voluntary as f64,
                "cgroup_involuntary_switches_total" => node.group.totals.involuntary as f64,
                "cgroup_migrations_total" => node.group.totals.migrations as f64,
                "runqueue_waiting" => node.group.pending as f64,
                "runqueue_longest_wait_seconds" => seconds(node.group.pending_max_ns),
                "cgroup_effective_cores" => node.effective.expect("a quota").cores,
                "cgroup_quota_seconds" => limits.quota_us.expect("a quota") as f64 / 1e6,
                "cgroup_period_seconds" => limits.period_us.expect("a period") as f64 / 1e6,
                "cgroup_burst_seconds" => limits.burst_us.expect("a burst") as f64 / 1e6,
                "cgroup_throttled_seconds_total" => seconds(limits.throttled_ns.expect("read")),
                "cgroup_throttled_periods_total" => limits.nr_throttled.expect("read") as f64,
                "cgroup_periods_total" => limits.nr_periods.expect("read") as f64,
                "runqueue_wait_seconds_sum" => {
                    let cause = Cause::ALL
                        .into_iter()
                        .find(|cause| cause.name() == labels.last().expect("a cause").1);
                    seconds(node.group.wait.by_cause.get(cause.expect("a cause")))
                }
                _ => continue,
            };
            assert_eq!(*value, same, "{name} {labels:?}");
        }
        assert_eq!(exported, tree.nodes().iter().filter(|node| node.has_tasks).count().min(cgroups));
    }
}

#[test]
fn the_configuration_limits_the_length_of_a_page() {
    let config = Config { cgroups: 30, culprits: 3, ..Config::default() };
    let lengths = [400, 1_600].map(|cgroups| {
        let metrics =
            metrics(config.clone(), &[interval(2 * cgroups, cgroups, 1), interval(2 * cgroups, cgroups, 2)]);
        let samples = samples(&metrics);
        // Each cgroup has a histogram of 28 buckets, sum and count for six causes, and one bucket for three other causes. It also
        // has 15 gauges and counters, its named culprits, and `other`.
        let bound = 30 * (6 * 30 + 3 * 3 + 15 + 3 + 1) + 2 * 6 + 4 + Loss::ALL.len() + 2;
        assert!(samples.len() <= bound, "{} {bound}", samples.len());
        let states = ["exported", "over_limit", "too_deep", "too_long", "excluded"]
            .map(|state| samples[&key("cgscope_cgroups", &[("state", state)])]);
        let tree = Tree::new(&interval(2 * cgroups, cgroups, 1));
        let all = tree.nodes().iter().filter(|node| node.has_tasks).count();
        assert_eq!((states[0], states.iter().sum::<f64>()), (30.0, all as f64));
        metrics.page(Format::OpenMetrics, &[]).len()
    });
    assert!(lengths[1] < lengths[0] * 5 / 4, "{lengths:?}");
}

#[test]
fn unread_figures_are_absent_and_every_loss_is_present() {
    let mut interval = (*small::interval(vec![small::task(4, &[5_000])])).clone();
    let no_quota = CgroupReading { id: 1, period_us: Some(100_000), burst_us: Some(0), ..Default::default() };
    interval.limits = vec![no_quota];
    interval.cost = Default::default();
    let samples = samples(&metrics(Config::default(), &[interval]));
    let has = |name: &str| samples.keys().any(|(found, _)| found == name);
    for name in [
        "cgroup_throttled_seconds_total",
        "cgroup_quota_seconds",
        "cgroup_period_seconds",
        "cgroup_burst_seconds",
        "cgroup_effective_cores",
        "hook_runs_total",
        "hook_seconds_total",
        "node_cpus",
    ] {
        assert!(!has(&format!("cgscope_{name}")), "{name}");
    }
    for loss in Loss::ALL {
        assert_eq!(samples[&key("cgscope_losses_total", &[("loss", loss.name())])], 0.0);
    }
    assert_eq!(samples[&key("cgscope_cgroup_tasks", &[("cgroup", "/")])], 1.0);
    let web = [("cgroup", "/system.slice/web.service"), ("unit", "web.service")];
    assert_eq!(samples[&key("cgscope_runqueue_waiting", &web)], 0.0);
}

#[test]
fn the_coarse_mode_has_sums_and_no_histogram() {
    let mut interval = (*small::interval(vec![small::task(4, &[5_000])])).clone();
    interval.mode = Mode::Coarse;
    interval.pairs.clear();
    let samples = samples(&metrics(Config::default(), &[interval]));
    let has = |name: &str| samples.keys().any(|(found, _)| found.starts_with(name));
    assert!(
        has("cgscope_cgroup_cpu_usage_seconds_total") && has("cgscope_cgroup_involuntary_switches_total")
    );
    for name in ["cgscope_runqueue", "cgscope_cgroup_migrations_total", "cgscope_culprit"] {
        assert!(!has(name), "{name}");
    }
}

#[test]
fn any_path_is_read_back_unchanged_beside_the_names_of_the_runtime() {
    let id = "0123456789abcdef".repeat(4);
    let paths = [
        "/a\\x2d\"b\"/é\n{}".to_owned(),
        format!("/kubepods/burstable/pod{}/{id}", "0123456789abcdef".repeat(2)),
    ];
    let mut interval = (*small::interval(vec![small::task(4, &[5_000]), small::task(5, &[9_000])])).clone();
    for (at, path) in paths.iter().enumerate() {
        interval.cgroups[at + 1].1 = path.as_str().into();
    }
    let mut metrics = Metrics::new(Config::default());
    let unnamed = interval.clone();
    name(&mut interval, &[(2, Some("web"), None, Some("shop\""))]);
    metrics.add(&interval);
    // In the second interval the container runtime is unavailable. The known names must stay.
    metrics.add(&unnamed);
    let samples = samples(&metrics);
    let pod = "0123456789abcdef".repeat(2);
    let container = [
        ("cgroup", &*paths[1]),
        ("container_id", &id),
        ("pod_uid", &pod),
        ("container", "web"),
        ("namespace", "shop\""),
    ];
    assert_eq!(samples[&key("cgscope_cgroup_tasks", &[("cgroup", &paths[0])])], 1.0);
    assert_eq!(samples[&key("cgscope_cgroup_tasks", &container)], 1.0);
    let culprit = [&container[..], &[("culprit", &paths[0])]].concat();
    assert_eq!(samples[&key("cgscope_culprit_wait_seconds_total", &culprit)], 0.18);
}

#[test]
fn a_pod_is_named_on_the_cgroups_around_its_containers() {
    let (id, uid) = ("0123456789abcdef".repeat(4), "0b0f2f3c-8a3f-4a8e-b5c1-000000000001");
    let pod = format!("/kubepods/burstable/pod{uid}");
    let container = format!("{pod}/{id}");
    let mut interval = (*small::interval(vec![small::task(4, &[5_000]), small::task(5, &[9_000])])).clone();
    (interval.cgroups[1].1, interval.cgroups[2].1) = (pod.as_str().into(), container.as_str().into());
    let unnamed = interval.clone();
    let pod_of = |at, container| (at, container, Some("web-0"), Some("shop"));
    name(&mut interval, &[pod_of(1, None), pod_of(2, Some("web"))]);
    let mut metrics = Metrics::new(Config::default());
    metrics.add(&interval);
    metrics.add(&unnamed);
    let samples = samples(&metrics);
    let names = [("pod_uid", uid), ("pod", "web-0"), ("namespace", "shop")];
    let of_pod = [&[("cgroup", &*pod)], &names[..]].concat();
    let of_container =
        [("cgroup", &*container), ("container_id", &id), names[0], ("container", "web"), names[1], names[2]];
    assert_eq!(samples[&key("cgscope_cgroup_tasks", &of_pod)], 2.0);
    assert_eq!(samples[&key("cgscope_cgroup_tasks", &of_container)], 1.0);
}

#[test]
fn tasks_in_cgroups_without_a_name_count_for_the_root() {
    let mut interval = (*small::interval(vec![small::task(4, &[5_000]), small::task(5, &[9_000])])).clone();
    interval.cgroups.truncate(2);
    let samples = samples(&metrics(Config::default(), &[interval.clone()]));
    assert_eq!(samples[&key("cgscope_cgroup_tasks", &[("cgroup", "/")])], 2.0);
    let culprit = [("cgroup", "/"), ("culprit", "/system.slice/web.service")];
    assert_eq!(samples[&key("cgscope_culprit_wait_seconds_total", &culprit)], 0.09);
}

#[test]
fn counters_have_the_time_when_they_began() {
    let first = interval(100, 20, 0);
    let page =
        |metrics: &Metrics| parsed::samples(&parsed::text(&metrics.page(Format::OpenMetrics, &[]), true));
    let mut metrics = Metrics::new(Config { cgroups: 1, ..Config::default() });
    metrics.add(&first);
    metrics.set_config(Config::default());
    metrics.add(&interval(100, 20, 1));
    let samples = page(&metrics);
    let created = |path: &str| samples[&key("cgscope_cgroup_cpu_usage_seconds_created", &[("cgroup", path)])];
    assert_eq!((created("/"), created("/kubepods.slice")), (1.7e9, 1.7e9 + 1.0));
    let messages = parsed::messages(&metrics.page(Format::Protobuf, &[]));
    let waits = messages[0].metric[0].histogram.as_ref().expect("a histogram");
    assert_eq!(waits.created_timestamp.as_ref().map(|at| (at.seconds, at.nanos)), Some((1_700_000_000, 0)));
}

#[test]
fn a_page_before_the_first_interval_is_valid() {
    let metrics = Metrics::new(Config::default());
    parsed::text(&metrics.page(Format::OpenMetrics, &[]), true);
    let given = Given { family: family::WAIT, samples: vec![(Vec::new(), 1.0)] };
    assert_eq!(given.family.kind, Kind::Histogram);
    let before = metrics.page(Format::Text, &[]);
    assert_eq!(metrics.page(Format::Text, &[given]), before, "the caller cannot provide a histogram");
}

#[test]
fn sleeps_are_divided_by_what_the_waker_did() {
    // Only cgroups with tasks are exported, and get a name as wakers.
    let task = |tid, cgroup_id| TaskReading { cgroup_id, ..small::task(tid, &[5_000]) };
    let tasks = small::interval((2..5).map(|id| task(id, id.into())).collect()).tasks.clone();
    let shop = |chains| Interval { tasks: tasks.clone(), chains, ..small::shop() };
    let with = shop(small::shop().chains);
    let mut metrics = metrics(Config { culprits: 1, ..Config::default() }, &[with]);
    let page = samples(&metrics);
    let of = |page: &BTreeMap<Key, f64>, cgroup, waker, doing| {
        let labels = [("cgroup", cgroup), ("unit", "web.service"), ("waker_cgroup", waker), ("doing", doing)];
        let labels = labels.into_iter().filter(|(name, _)| cgroup != "/" || *name != "unit");
        let labels: Vec<_> = labels.collect();
        page.get(&key("cgscope_sleep_for_seconds_total", &labels)).copied()
    };
    let (web, api) = ("/shop.slice/web.service", "/shop.slice/api.service");
    let did = ["ran", "throttled", "waiting", "slept", "unknown"];
    assert_eq!(did.map(|doing| of(&page, web, api, doing)), [0.06, 0.0, 0.04, 0.4, 0.0].map(Some));
    // The file lock, the lock and the pipe.
    assert_eq!(did.map(|doing| of(&page, web, "other", doing)), [0.058, 0.15, 0.02, 0.0, 0.005].map(Some));
    assert_eq!(of(&page, "/", api, "slept"), Some(0.4));
    metrics.add(&shop(None));
    assert_eq!(of(&samples(&metrics), web, api, "slept"), Some(0.4), "the series stays");
    let page = samples(&self::metrics(Config::default(), &[shop(None)]));
    assert!(!page.keys().any(|(name, _)| name.contains("sleep_for")), "{page:?}");
}
