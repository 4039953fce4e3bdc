//! Docker with the cgroupfs driver or the systemd driver, and without a container network.

use std::fs;

use super::namespace::{IMAGE, Namespace};

/// Options with which Docker does not change the network settings of the host.
const OPTIONS: &str = "--bridge none --iptables=false --ip6tables=false --ip-forward=false";

/// Options for the lab's systemd host. There, systemd creates the cgroups of containers, and overlay mounts do not work, because
/// the root file system is in memory.
const CONFIG_SYSTEMD: &str = r#"{
    "exec-opts": ["native.cgroupdriver=systemd"], "storage-driver": "vfs",
    "bridge": "none", "iptables": false, "ip6tables": false, "ip-forward": false
}"#;

/// A Docker daemon with its own socket. Drop ends this daemon and its containers.
pub(crate) struct Docker {
    namespace: Namespace,
    socket: String,
    has_systemd: bool,
}

impl Docker {
    pub(crate) fn start() -> Self {
        let mut namespace = Namespace::start("docker", |dir| {
            let socket = dir.file("docker.sock");
            // Leave `oom_score_adj` unchanged, because the test cannot lower it.
            format!(
                "exec dockerd --host unix://{socket} --data-root /run/data --oom-score-adjust 0 {OPTIONS}"
            )
        });
        namespace.wait_for("API listen on");
        let socket = namespace.file("docker.sock");
        Self { namespace, socket, has_systemd: false }.with_image()
    }

    pub(crate) fn of_systemd() -> Self {
        fs::create_dir_all("/etc/docker").expect("a directory");
        fs::write("/etc/docker/daemon.json", CONFIG_SYSTEMD).expect("a file");
        let namespace = Namespace::of_host(&["docker"]);
        Self { namespace, socket: "/run/docker.sock".to_owned(), has_systemd: true }.with_image()
    }

    fn with_image(self) -> Self {
        self.client(&["load", "--input", &self.namespace.image()]);
        self
    }

    pub(crate) fn socket(&self) -> String {
        self.socket.clone()
    }

    pub(crate) fn cgroup(&self, id: &str) -> String {
        if self.has_systemd { format!("/system.slice/docker-{id}.scope") } else { format!("/docker/{id}") }
    }

    /// Starts a container that runs the shell script `script`. Returns the id of the container.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> String {
        let command = [IMAGE, "sh", "-c", script];
        // Do not use AppArmor, because the host might not have its programs.
        let create = ["create", "--rm", "--network", "none", "--security-opt", "apparmor=unconfined"];
        let id = self.client(&[&create, options, &command].concat());
        self.namespace.owns(&self.cgroup(&id));
        self.client(&["start", &id]);
        id
    }

    fn client(&self, words: &[&str]) -> String {
        let host = format!("unix://{}", self.socket());
        self.namespace.run(&[&["docker", "--config", "/run/client", "--host", &host], words].concat())
    }
}
