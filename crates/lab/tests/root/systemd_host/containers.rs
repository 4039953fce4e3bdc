//! Containers in cgroups that systemd creates: containerd, Docker, and Podman with and without root.

use std::fs;

use super::{row, users::Manager};
use crate::{
    bench::{run, stdout},
    runtimes::{
        BUSY, COMMANDS, Containerd, Docker, IMAGE, Namespace, assert_a_container_of_docker_is_measured,
        assert_a_pod_is_measured, assert_is_throttled, measure, names_of, rows_of,
    },
};

#[test]
fn a_pod_of_containerd_has_the_id_uid_limit_and_names_of_its_runtime() {
    assert_a_pod_is_measured(&Containerd::of_systemd());
}

#[test]
fn a_container_of_docker_has_the_id_and_limit_of_its_runtime() {
    assert_a_container_of_docker_is_measured(&Docker::of_systemd());
}

const LIST: &str = "/var/lib/containers/storage/vfs-containers/containers.json";

/// Podman with its default runtime, crun, either as root or as the user Alice.
struct Podman {
    host: Namespace,
    /// The service manager that Alice's containers need.
    manager: Option<Manager>,
}

impl Podman {
    fn new(manager: Option<Manager>) -> Self {
        let podman = Self { host: Namespace::of_host(&[]), manager };
        podman.run(&format!("load --input {}", podman.host.image()));
        podman
    }

    fn run(&self, words: &str) -> String {
        let command = format!("podman {words}");
        match self.manager {
            Some(_) => self.host.run(&["su", "-", "alice", "-c", &command]),
            None => self.host.run(&["sh", "-c", &command]),
        }
    }

    /// Starts a busy loop. Returns the id of the container and the path of its cgroup.
    fn busy(&self, options: &str) -> (String, String) {
        let id = self.run(&format!(
            "run --detach --replace --network host --cpus 0.2 {options} {IMAGE} sh -c '{BUSY}'"
        ));
        let pid = self.run(&format!("inspect --format '{{{{.State.Pid}}}}' {id}"));
        let cgroup = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a running container");
        let path = cgroup.trim().trim_start_matches("0::").to_owned();
        self.host.owns(path.trim_end_matches("/container"));
        (id, path)
    }

    fn assert_is_measured(&self, id: &str, path: &str) {
        assert!(
            path.ends_with(&format!("/libpod-{id}.scope/container")),
            "crun makes one more cgroup: {path}"
        );
        for args in COMMANDS {
            assert_is_throttled(&measure(args), path, Some(id), None);
        }
        let text = stdout(&run(&["top", "-b", "-n", "1", "-d", "1", "--runtime", ""]));
        let says = format!("container {} is at its CPU limit of 0.2 CPUs", &id[..12]);
        assert!(text.contains(&says), "{text}");
    }
}

#[test]
fn a_container_of_podman_has_the_id_and_limit_of_its_runtime_also_in_a_pod() {
    let podman = Podman::new(None);
    for (name, options) in [("web", "--name web"), ("app", "--pod new:shop --name app")] {
        let (id, path) = podman.busy(options);
        podman.assert_is_measured(&id, &path);
        let (own, inner) = (format!("container {name}"), format!("container {name}/container"));
        assert_eq!(names_of(LIST, &["--container", name], &inner), rows_of(&path, &inner, Some(&own)));
    }
}

/// cgscope does not show the names of rootless containers, because a user can choose their names and ids.
#[test]
fn a_container_of_podman_without_root_has_its_id_and_limit_and_belongs_to_its_user() {
    let podman = Podman::new(Some(Manager::start()));
    let (id, path) = podman.busy("--name web");
    assert!(path.starts_with("/user.slice/user-1000.slice/user@1000.service/"), "{path}");
    podman.assert_is_measured(&id, &path);
    let interval = measure(&[COMMANDS[0], &["--unit", "user@1000.service"]].concat());
    let own = row(&interval, &path);
    assert_eq!([&own["unit"], &own["container"]], ["user@1000.service", &id]);
}
