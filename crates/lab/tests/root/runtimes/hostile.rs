//! Containers that imitate another pod: they copy each property that a user can choose.

use serde_json::Value;

use super::{
    COMMANDS, Containerd, Docker, Pod, Running, assert_is_throttled, busy_pod, cgroups,
    containerd::Container, lines_with, measure, page_with,
};
use crate::serve::Daemon;

/// Script that creates a cgroup below the container's own cgroup, and runs a busy loop in the new cgroup. The path of this cgroup
/// ends with the path of the victim's cgroup.
const IMITATION: &str = "\
for own in /sys/fs/cgroup/cpu /sys/fs/cgroup; do
    mount -o remount,bind,rw $own
    mkdir -p $own/VICTIM && echo $$ > $own/VICTIM/cgroup.procs && break
done
while :; do :; done";

/// Options that let a container change its own cgroups. `--privileged` would also do this, but needs more rights than a test has.
const RIGHTS: [&str; 3] = ["--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined", "--cgroupns=private"];

/// Returns the labels that the kubelet sets for the victim's container.
fn labels(victim: &Running) -> [(&'static str, &str); 4] {
    [
        ("io.kubernetes.pod.name", "web-0"),
        ("io.kubernetes.pod.namespace", "shop"),
        ("io.kubernetes.pod.uid", &victim.uid),
        ("io.kubernetes.container.name", "app"),
    ]
}

fn below<'i>(interval: &'i Value, path: &str) -> Vec<&'i Value> {
    let all = interval["cgroups"].as_array().expect("cgroups");
    let inside = format!("{path}/");
    all.iter().filter(|row| row["path"].as_str().is_some_and(|path| path.starts_with(&inside))).collect()
}

#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn a_container_that_imitates_a_pod_is_not_counted_as_that_pod() {
    let (containerd, docker) = (Containerd::start(), Docker::start());
    let victim = containerd.run_pod(&busy_pod("shop", "web-0"));
    let path = victim.container_cgroup();
    let script = IMITATION.replace("VICTIM", &path[1..]);

    // Start a pod with the same name in another namespace, and a container with its own cgroup namespace.
    let container = Container { name: "app", script: &script, quota_us: 40_000, privileged: true };
    let pod =
        containerd.run_pod(&Pod { namespace: "evil", name: "web-0", labels: &labels(&victim), container });
    let labels = labels(&victim).map(|(label, value)| format!("--label={label}={value}"));
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let id = docker
        .run(&[&RIGHTS[..], &["--name", &victim.container, "--cpus", "0.4"], &labels].concat(), &script);

    let hostile = [pod.container_cgroup(), format!("/docker/{id}")];
    for args in COMMANDS {
        let interval = measure(&[args, &["--runtime", &containerd.socket()]].concat());
        assert_is_throttled(&interval, &path, Some(&victim.container), Some(&victim.uid));
        let named = interval["cgroups"].as_array().expect("cgroups").iter();
        let named = named.filter(|row| row["name"].as_str().is_some_and(|name| name.starts_with("shop/")));
        for row in named {
            assert!(row["path"].as_str().is_some_and(|path| path.starts_with(&victim.cgroup)), "{row}");
        }
        for row in cgroups(&interval, "pod_uid", &victim.uid) {
            assert!(row["path"].as_str().is_some_and(|path| path.starts_with(&victim.cgroup)), "{row}");
        }
        for (own, (container, uid)) in hostile.iter().zip([(&pod.container, Some(&pod.uid)), (&id, None)]) {
            let rows = below(&interval, own);
            for row in &rows {
                assert_eq!(row["container"], container.as_str(), "{row}");
                assert_eq!(row["pod_uid"], Value::from(uid.map(String::as_str)), "{row}");
            }
            let imitation = rows.iter().find(|row| row["path"] == format!("{own}{path}"));
            assert!(imitation.is_some_and(|row| row["usage_ns"].as_u64() > Some(0)), "{own}: {rows:?}");
        }
    }

    let daemon = Daemon::exporting(&format!("[containers]\nruntime = \"{}\"", containerd.socket()));
    page_with(&daemon, &[("namespace", "evil"), ("pod", "web-0"), ("container_id", &pod.container)]);
    let page = page_with(&daemon, &[("namespace", "shop"), ("container_id", &victim.container)]);
    for line in lines_with(&page, &[("namespace", "shop")]) {
        assert!(line.contains(&format!("{{cgroup=\"{}", victim.cgroup)), "{line}");
    }
    let of_docker = lines_with(&page, &[("container_id", &id)]);
    assert!(!of_docker.is_empty());
    assert!(of_docker.iter().all(|line| !line.contains(",pod=") && !line.contains(",namespace=")));
}
