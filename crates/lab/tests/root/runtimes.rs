//! Containers of real runtimes: containerd with its CRI, Docker, and Podman (both as root and rootless).

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

use cgscope_model::path::path_and_ancestors;
use serde_json::Value;

use self::containerd::{Container, Pod, Running};
pub(crate) use self::namespace::{BUSY, IMAGE, Namespace};
pub(crate) use self::{containerd::Containerd, docker::Docker, podman::Podman};
use crate::{
    bench::{assert_measured, json_lines, patience, run, stdout},
    load::Cgroup,
    metrics_page, overview,
    serve::Daemon,
};

/// Quota of the busy loop: CPU time in each period of 100 ms, µs.
pub(crate) const QUOTA_US: u32 = 20_000;

/// Commands that measure cgroups, each for one second.
pub(crate) const COMMANDS: [&[&str]; 3] = [
    &["hist", "--by", "cgroup", "--json", "1", "1"],
    &["stat", "--by", "cgroup", "--json", "1", "1"],
    &["top", "-b", "--json", "-d", "1", "-n", "1"],
];

pub(crate) fn measure(args: &[&str]) -> Value {
    let output = run(args);
    assert_measured(&output);
    json_lines(&output).remove(0)
}

pub(crate) fn cgroups<'i>(interval: &'i Value, key: &str, value: &str) -> Vec<&'i Value> {
    let all = interval["cgroups"].as_array().expect("cgroups");
    all.iter().filter(|cgroup| cgroup[key] == value).collect()
}

/// Checks the row of a cgroup in which a busy loop runs under the quota [`QUOTA_US`]. Also checks that a finding names the
/// cgroup.
pub(crate) fn assert_is_throttled(
    interval: &Value,
    path: &str,
    container: Option<&str>,
    pod_uid: Option<&str>,
) {
    let [row] = cgroups(interval, "path", path)[..] else { panic!("not one row of {path}: {interval}") };
    assert_eq!((&row["container"], &row["pod_uid"]), (&Value::from(container), &Value::from(pod_uid)));
    let of_container = container.map(|id| cgroups(interval, "container", id));
    let limited = of_container.map(|rows| rows.iter().filter(|row| !row["quota_us"].is_null()).count());
    assert_eq!(limited.unwrap_or(1), 1, "{interval}");
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

pub(crate) fn assert_is_throttled_in_all_commands(
    path: &str,
    container: Option<&str>,
    pod_uid: Option<&str>,
) {
    for args in COMMANDS {
        assert_is_throttled(&measure(args), path, container, pod_uid);
    }
}

fn busy_pod<'a>(namespace: &'a str, name: &'a str) -> Pod<'a> {
    let container = Container { name: "app", script: BUSY, quota_us: QUOTA_US, privileged: false };
    Pod { namespace, name, labels: &[], container }
}

/// Measures the selected cgroups for a second, with names from a runtime, and returns the paths and names of these cgroups.
/// Checks that the finding about the quota begins with `name`.
pub(crate) fn names_of(runtime: &str, selection: &[&str], name: &str) -> Vec<(String, String)> {
    let interval = measure(&[COMMANDS[0], &["--runtime", runtime], selection].concat());
    let findings = interval["findings"].as_array().expect("findings");
    let says = |finding: &&Value| {
        finding["says"].as_str().is_some_and(|says| says.starts_with(&format!("{name}: its quota")))
    };
    assert_eq!(findings.iter().filter(says).count(), 1, "{name}: {findings:?}");
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let rows = interval["cgroups"].as_array().expect("cgroups").iter();
    let rows = rows.filter(|row| row["usage_ns"] != 0).map(|row| (text(&row["path"]), text(&row["name"])));
    rows.collect()
}

/// Returns the paths and names of the expected rows: one row for a container, and one row for each of its ancestors. The name of
/// the parent is `pod`, if given. The name of any other ancestor is its path.
pub(crate) fn rows_of(path: &str, name: &str, pod: Option<&str>) -> Vec<(String, String)> {
    let above: Vec<&str> = path_and_ancestors(path).skip(1).collect();
    let named = |(at, above): (usize, &&str)| match pod {
        Some(pod) if at == 0 => pod.to_owned(),
        _ => (*above).to_owned(),
    };
    let above = above.iter().enumerate().map(|(at, above)| ((*above).to_owned(), named((at, above))));
    let mut rows: Vec<_> = above.chain([(path.to_owned(), name.to_owned())]).collect();
    rows.sort();
    rows
}

impl Running {
    fn container_cgroup(&self) -> String {
        self.cgroup_of(&self.container)
    }

    fn cgroup_of(&self, id: &str) -> String {
        match self.cgroup.ends_with(".slice") {
            true => format!("{}/cri-containerd-{id}.scope", self.cgroup),
            false => format!("{}/{id}", self.cgroup),
        }
    }
}

pub(crate) fn assert_a_pod_is_measured(containerd: &Containerd) -> String {
    let pod = containerd.run_pod(&busy_pod("shop", "web-0"));
    let path = pod.container_cgroup();
    assert_is_throttled_in_all_commands(&path, Some(&pod.container), Some(&pod.uid));

    let interval = measure(COMMANDS[0]);
    let of_pod = cgroups(&interval, "pod_uid", &pod.uid);
    let paths: Vec<&Value> = of_pod.iter().map(|row| &row["path"]).collect();
    let sandbox = pod.cgroup_of(&pod.sandbox);
    assert!(of_pod.len() <= 3 && paths.contains(&&pod.cgroup.as_str().into()), "{paths:?}");
    assert!(paths.iter().all(|one| **one == *pod.cgroup || **one == *path || **one == *sandbox), "{paths:?}");

    let rows = rows_of(&path, "shop/web-0 (app)", Some("shop/web-0"));
    for selection in
        [&["--pod", "shop/web-0"][..], &["--pod", "web-0"], &["--container", "app"], &["--cgroup", &path]]
    {
        assert_eq!(names_of(&containerd.socket(), selection, "shop/web-0 (app)"), rows, "{selection:?}");
    }

    let daemon = Daemon::exporting(&format!("[containers]\nruntime = \"{}\"", containerd.socket()));
    let names = [("namespace", "shop"), ("pod", "web-0"), ("container", "app")];
    let page = page_with(&daemon, &names);
    let lines = lines_with(&page, &names);
    assert_eq!(lines, lines_with(&page, &[("container_id", &pod.container), ("pod_uid", &pod.uid)]));
    let quota = lines.iter().find(|line| line.starts_with("cgscope_cgroup_quota_seconds{"));
    assert!(quota.is_some_and(|line| line.ends_with(" 0.02")), "{lines:?}");
    page
}

pub(crate) fn assert_a_container_of_docker_is_measured(docker: &Docker) {
    let id = docker.run(&["--name", "web", "--cpus", "0.2"], BUSY);
    let path = docker.cgroup(&id);
    assert_is_throttled_in_all_commands(&path, Some(&id), None);
    for container in ["web", &id[..12]] {
        let rows = names_of(&docker.socket(), &["--container", container], "container web");
        assert_eq!(rows, rows_of(&path, "container web", None));
    }
}

#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn the_first_screen_names_the_pod_with_its_container_its_limit_and_what_to_do() {
    let containerd = Containerd::start();
    let _pod = containerd.run_pod(&busy_pod("shop", "web-0"));
    let finding = "shop/web-0 (app) is at its CPU limit of 0.2 CPUs: throttled ";
    for size in overview::SIZES {
        let top = format!("top --runtime {}", containerd.socket());
        overview::read(size, &top, &[finding, "raise its limit (cpu.max)", " shop/web-0 "]);
    }
}

#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn a_container_of_docker_has_the_id_and_limit_of_its_runtime() {
    assert_a_container_of_docker_is_measured(&Docker::start());
}

#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn a_container_of_podman_has_the_id_and_limit_of_its_runtime_also_in_a_pod() {
    let podman = Podman::start();
    let (id, path) = podman.run(&["--name", "web", "--cpus", "0.2"], BUSY);
    let (in_pod, path_in_pod) = podman.run(&["--pod", "new:shop", "--name", "app", "--cpus", "0.2"], BUSY);
    for args in COMMANDS {
        let interval = measure(args);
        assert_is_throttled(&interval, &path, Some(&id), None);
        assert_is_throttled(&interval, &path_in_pod, Some(&in_pod), None);
    }
    for (path, name) in [(&path, "web"), (&path_in_pod, "app")] {
        let said = format!("container {name}");
        let rows = names_of(&podman.list(), &["--container", name], &said);
        assert_eq!(rows, rows_of(path, &said, None));
    }
}

#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn a_pod_that_is_created_again_has_new_rows_under_its_name() {
    let containerd = Containerd::start();
    let measured = || {
        let pod = containerd.run_pod(&busy_pod("shop", "web-0"));
        let args = ["--runtime", &containerd.socket(), "--pod", "shop/web-0"];
        let interval = measure(&[COMMANDS[0], &args].concat());
        let [row] = cgroups(&interval, "path", &pod.container_cgroup())[..] else { panic!("{interval}") };
        assert_eq!((&row["pod"], &row["namespace"]), (&"web-0".into(), &"shop".into()));
        containerd.remove_pod(&pod);
        row["id"].clone()
    };
    assert_ne!(measured(), measured());
}

/// On a host with cgroup v1, rootless Podman cannot create cgroups, so a container has no cgroup of its own and no limit.
#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn a_container_of_podman_without_root_is_counted_in_the_cgroup_of_its_user() {
    let cgroup = Cgroup::new("rootless");
    cgroup.limit(QUOTA_US.into(), 100_000);
    let podman = Podman::start();
    podman.run_as_alice(&cgroup.path, BUSY);
    assert_is_throttled_in_all_commands(&cgroup.name, None, None);
}

/// Requests the metrics page repeatedly until the page contains a metric sample with these labels, and returns the page.
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

/// Returns the lines of a metrics page that have these labels. The first label of each line must be `cgroup`.
fn lines_with<'p>(page: &'p str, labels: &[(&str, &str)]) -> Vec<&'p str> {
    let has =
        |line: &&str| labels.iter().all(|(label, value)| line.contains(&format!(",{label}=\"{value}\"")));
    page.lines().filter(has).collect()
}

mod long {
    use super::*;

    #[test]
    #[ignore = "all CPUs: removes cgroups that all containers share"]
    fn a_container_of_a_pod_has_the_id_uid_limit_and_names_of_its_runtime() {
        let page = assert_a_pod_is_measured(&Containerd::start());
        assert_eq!(metrics_page::findings(page.as_bytes()), "");
    }
}
