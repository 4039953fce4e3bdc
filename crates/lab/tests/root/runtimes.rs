//! Containers of real runtimes: containerd with its CRI, Docker, and Podman with and without root.

mod containerd;
mod cri;
mod docker;
mod hostile;
mod namespace;
mod podman;

use std::{
    process::Command,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use self::{
    containerd::{Container, Containerd, Pod, Running},
    docker::Docker,
    namespace::BUSY,
    podman::Podman,
};
use crate::{
    bench::{json_lines, patience, run, stderr, stdout},
    load::Cgroup,
    metrics_page,
    serve::Daemon,
};

/// CPU time of the busy loop in each period of 100 ms, us.
const QUOTA_US: u32 = 20_000;

/// The commands that measure cgroups, each for a second.
const COMMANDS: [&[&str]; 3] = [
    &["hist", "--by", "cgroup", "--json", "1", "1"],
    &["stat", "--by", "cgroup", "--json", "1", "1"],
    &["top", "-b", "--json", "-d", "1", "-n", "1"],
];

/// Measures once. Returns the interval object.
fn measure(args: &[&str]) -> Value {
    let output = run(args);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{args:?}: {}", stderr(&output));
    json_lines(&output).remove(0)
}

/// Returns the objects of cgroups whose `key` has this value.
fn cgroups<'i>(interval: &'i Value, key: &str, value: &str) -> Vec<&'i Value> {
    let all = interval["cgroups"].as_array().expect("cgroups");
    all.iter().filter(|cgroup| cgroup[key] == value).collect()
}

/// Checks the row of a cgroup with a busy loop under [`QUOTA_US`], and that the host's findings name it.
fn assert_is_throttled(interval: &Value, path: &str, container: Option<&str>, pod_uid: Option<&str>) {
    let [row] = cgroups(interval, "path", path)[..] else { panic!("not one row of {path}: {interval}") };
    assert_eq!((&row["container"], &row["pod_uid"]), (&Value::from(container), &Value::from(pod_uid)));
    assert_eq!(container.map_or(1, |id| cgroups(interval, "container", id).len()), 1, "{interval}");
    assert_eq!((&row["quota_us"], &row["period_us"]), (&QUOTA_US.into(), &100_000.into()), "{row}");
    assert_eq!((&row["effective_cores"], &row["limited_by"]), (&0.2.into(), &path.into()), "{row}");
    let number = |pointer: &str| row.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let duration_ns = interval["duration_ns"].as_u64().expect("a duration");
    let usage = number("/usage_ns") as f64 / duration_ns as f64;
    assert!((0.1..0.3).contains(&usage), "{usage}: {row}");
    assert!(number("/nr_throttled") >= 5 && number("/throttled_ns") > duration_ns / 20, "{row}");
    assert!(number("/wait/by_cause/throttled_ns") > duration_ns / 20, "{row}");
    let findings = interval["findings"].as_array().expect("findings");
    let named = |finding: &&Value| finding["rule"] == "throttled" && finding["cgroup"] == path;
    assert_eq!(findings.iter().filter(named).count(), 1, "{findings:?}");
}

fn assert_is_throttled_in_all_commands(path: &str, container: Option<&str>, pod_uid: Option<&str>) {
    for args in COMMANDS {
        assert_is_throttled(&measure(args), path, container, pod_uid);
    }
}

fn busy_pod<'a>(namespace: &'a str, name: &'a str) -> Pod<'a> {
    let container = Container { name: "app", script: BUSY, quota_us: QUOTA_US, privileged: false };
    Pod { namespace, name, labels: &[], container }
}

impl Running {
    fn container_cgroup(&self) -> String {
        format!("{}/{}", self.cgroup, self.container)
    }
}

#[test]
#[ignore = "alone: removes cgroups that all containers share"]
fn a_container_of_a_pod_has_the_id_uid_limit_and_names_of_its_runtime() {
    let containerd = Containerd::start();
    let pod = containerd.run_pod(&busy_pod("shop", "web-0"));
    let path = pod.container_cgroup();
    assert_is_throttled_in_all_commands(&path, Some(&pod.container), Some(&pod.uid));

    let interval = measure(COMMANDS[0]);
    let of_pod = cgroups(&interval, "pod_uid", &pod.uid);
    let paths: Vec<&Value> = of_pod.iter().map(|row| &row["path"]).collect();
    let sandbox = format!("{}/{}", pod.cgroup, pod.sandbox);
    assert!(of_pod.len() <= 3 && paths.contains(&&pod.cgroup.as_str().into()), "{paths:?}");
    assert!(paths.iter().all(|one| **one == *pod.cgroup || **one == *path || **one == *sandbox), "{paths:?}");

    let daemon = Daemon::exporting(&format!("[containers]\nruntime = \"{}\"", containerd.socket()));
    let names = [("namespace", "shop"), ("pod", "web-0"), ("container", "app")];
    let page = page_with(&daemon, &names);
    assert_eq!(metrics_page::findings(page.as_bytes()), "");
    let lines = lines_with(&page, &names);
    assert_eq!(lines, lines_with(&page, &[("container_id", &pod.container), ("pod_uid", &pod.uid)]));
    let quota = lines.iter().find(|line| line.starts_with("cgscope_cgroup_quota_seconds{"));
    assert!(quota.is_some_and(|line| line.ends_with(" 0.02")), "{lines:?}");
}

#[test]
#[ignore = "alone: removes cgroups that all containers share"]
fn a_container_of_docker_has_the_id_and_limit_of_its_runtime() {
    let docker = Docker::start();
    let id = docker.run(&["--name", "web", "--cpus", "0.2"], BUSY);
    assert_is_throttled_in_all_commands(&format!("/docker/{id}"), Some(&id), None);
}

#[test]
#[ignore = "alone: removes cgroups that all containers share"]
fn a_container_of_podman_has_the_id_and_limit_of_its_runtime_also_in_a_pod() {
    let podman = Podman::start();
    let (id, path) = podman.run(&["--name", "web", "--cpus", "0.2"], BUSY);
    let (in_pod, path_in_pod) = podman.run(&["--pod", "new:shop", "--name", "app", "--cpus", "0.2"], BUSY);
    for args in COMMANDS {
        let interval = measure(args);
        assert_is_throttled(&interval, &path, Some(&id), None);
        assert_is_throttled(&interval, &path_in_pod, Some(&in_pod), None);
    }
}

/// On a host with cgroup v1, Podman without root cannot create cgroups. So its containers have neither an id nor a limit.
#[test]
#[ignore = "alone: removes cgroups that all containers share"]
fn a_container_of_podman_without_root_is_counted_in_the_cgroup_of_its_user() {
    let cgroup = Cgroup::new("rootless");
    cgroup.limit(QUOTA_US.into(), 100_000);
    let podman = Podman::start();
    podman.run_as_alice(&cgroup.path, BUSY);
    assert_is_throttled_in_all_commands(&cgroup.name, None, None);
}

/// Requests the page of metrics until one has a sample with these labels.
fn page_with(daemon: &Daemon, labels: &[(&str, &str)]) -> String {
    let end = Instant::now() + patience(20_000);
    loop {
        let output = Command::new("curl").args(["--silent", "--show-error", daemon.metrics()]).output();
        let page = stdout(&output.expect("curl starts"));
        if !lines_with(&page, labels).is_empty() {
            return page;
        }
        assert!(Instant::now() < end, "no sample has {labels:?}:\n{page}");
        thread::sleep(Duration::from_millis(200));
    }
}

/// The samples of a page that have these labels. The label `cgroup` comes first.
fn lines_with<'p>(page: &'p str, labels: &[(&str, &str)]) -> Vec<&'p str> {
    let has =
        |line: &&str| labels.iter().all(|(label, value)| line.contains(&format!(",{label}=\"{value}\"")));
    page.lines().filter(has).collect()
}
