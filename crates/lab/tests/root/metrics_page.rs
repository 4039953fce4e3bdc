//! Checks metrics pages with `promtool`, Prometheus' own tool.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use cgscope_made_up::{host, small::chain};
use cgscope_metrics::{Config, Format, Given, Metrics, family};
use cgscope_model::{BlockedKind, ContainerReading, Interval, Names};

use crate::{
    bench::follow,
    load::{Cgroup, Load},
};

pub(crate) fn findings(page: &[u8]) -> String {
    let tool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut tool = tool.unwrap_or_else(|error| {
        panic!(
            "cannot run promtool: {error}; install Debian's package `prometheus`, as `cargo xtask test` does"
        )
    });
    tool.stdin.take().expect("its input").write_all(page).expect("the receiver reads");
    let output = tool.wait_with_output().expect("a child of ours");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8(said).expect("UTF-8");
    if output.status.success() { said } else { format!("{said}{}", output.status) }
}

#[test]
fn promtool_finds_no_problem_in_a_page_with_every_metric() {
    let mut interval = Interval::between(&host(2_000, 500, 1), &host(2_000, 500, 2));
    let name = |(id, _): &(u64, _)| ContainerReading {
        cgroup_id: *id,
        pod: Some("web-0".into()),
        ..ContainerReading::default()
    };
    let containers: Vec<_> = interval.cgroups.iter().map(name).collect();
    interval.names = Arc::new(Names::new(&interval.cgroups, &containers));
    let ids: Vec<u64> = interval.tasks.iter().map(|task| task.reading.cgroup_id).take(2).collect();
    interval.chains = Some(vec![chain(ids[0], BlockedKind::Lock, ids[1], [10, 20, 30, 40, 50])]);
    let mut metrics = Metrics::new(Config::default());
    metrics.add(&interval);
    let of_daemon = family::ALL.iter().skip_while(|given| **given != &family::COLLECTIONS);
    let given: Vec<Given> = of_daemon
        .map(|given| {
            let labels = given.labels.iter().map(|label| (*label, "a\\\"b".to_owned())).collect();
            Given { family: **given, samples: vec![(labels, 2.5)] }
        })
        .collect();
    let page = metrics.page(Format::Text, &given);
    let text = String::from_utf8(page.clone()).expect("UTF-8");
    for family in family::ALL.iter() {
        assert!(text.contains(&format!("\n# TYPE {} ", family.sample_name())), "{}", family.name);
    }
    assert_eq!(findings(&page), "");
    let broken =
        text.replacen("# TYPE cgscope_runqueue_waiting gauge", "# TYPE cgscope_runqueue_waiting counter", 1);
    assert_ne!(findings(broken.as_bytes()), "", "promtool finds the wrong type");
}

#[test]
fn a_page_of_this_host_has_throttled_and_neighbour_waits_and_promtool_finds_no_problem() {
    let (limited, neighbour) = (Cgroup::new("metrics limited"), Cgroup::new("metrics"));
    limited.favour();
    limited.limit(20_000, 100_000);
    let _loads: Vec<Load> =
        [&limited, &limited, &neighbour, &neighbour].map(|cgroup| Load::busy_loop(Some(cgroup))).into();
    let mut collector = follow(&[]);
    let first = collector.sample().expect("a sample");
    thread::sleep(Duration::from_secs(2));
    let interval = Interval::between(&first, &collector.sample().expect("a sample"));
    let mut metrics = Metrics::new(Config::default());
    metrics.add(&interval);
    let page = metrics.page(Format::Text, &[]);
    assert_eq!(findings(&page), "");
    let text = String::from_utf8(page).expect("UTF-8");
    let value = |name: &str, labels: &[&str]| -> Option<f64> {
        let of_family = text.lines().filter(|line| line.starts_with(&format!("{name}{{")));
        let mut lines = of_family.filter(|line| labels.iter().all(|label| line.contains(label)));
        lines.next()?.rsplit_once(' ')?.1.parse().ok()
    };
    let of = |cgroup: &Cgroup| format!("cgroup=\"{}\"", cgroup.name);
    let throttled = value("cgscope_runqueue_wait_seconds_sum", &[&of(&limited), "cause=\"throttled\""]);
    let exported = text.lines().filter(|line| line.starts_with("cgscope_cgroup_tasks{"));
    let exported = exported.collect::<Vec<_>>().join("\n");
    let groups = interval.by_cgroup();
    let group = groups.get(&Some(limited.name.as_str().into()));
    assert!(
        throttled.is_some_and(|seconds| seconds > 0.5),
        "{throttled:?}, {:?}; exported:\n{exported}",
        group.map(|group| (group.threads, &group.wait.by_cause))
    );
    assert_eq!(value("cgscope_cgroup_quota_seconds", &[&of(&limited)]), Some(0.02));
    assert_eq!(value("cgscope_cgroup_effective_cores", &[&of(&limited)]), Some(0.2));
    assert_eq!(value("cgscope_cgroup_effective_cores", &[&of(&neighbour)]), None);
    assert!(
        value("cgscope_cgroup_throttled_periods_total", &[&of(&limited)])
            .is_some_and(|periods| periods >= 10.0)
    );
    assert_eq!(value("cgscope_cgroup_tasks", &[&of(&neighbour)]), Some(2.0));
    let waits: u64 = interval.total().wait.hist.count();
    let counts =
        text.lines().filter(|line| line.starts_with("cgscope_runqueue_wait_seconds_count{cgroup=\"/\","));
    let counted: u64 =
        counts.map(|line| line.rsplit_once(' ').expect("a value").1.parse::<u64>().expect("a count")).sum();
    assert_eq!(counted, waits, "the causes sum to all waits of the host");
}
