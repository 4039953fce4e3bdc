//! Docker with the cgroupfs driver, and without a network.

use super::namespace::{IMAGE, Namespace};

/// Changes no settings of the host's network.
const OPTIONS: &str = "--bridge none --iptables=false --ip6tables=false --ip-forward=false";

/// A Docker with a socket of its own. Drop ends it and its containers.
pub(crate) struct Docker {
    namespace: Namespace,
}

impl Docker {
    pub(crate) fn start() -> Self {
        let mut namespace = Namespace::start("docker", |dir| {
            let socket = dir.file("docker.sock");
            // Without the right to lower `oom_score_adj`, it must stay as it is.
            format!(
                "exec dockerd --host unix://{socket} --data-root /run/data --oom-score-adjust 0 {OPTIONS}"
            )
        });
        namespace.wait_for("API listen on");
        let docker = Self { namespace };
        docker.client(&["load", "--input", &docker.namespace.image()]);
        docker
    }

    /// The path of the socket of its API.
    pub(crate) fn socket(&self) -> String {
        self.namespace.file("docker.sock")
    }

    /// Starts a container. Returns its id. `script` is executed by a shell.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> String {
        let command = [IMAGE, "sh", "-c", script];
        let id = self.client(&[&["create", "--network", "none"], options, &command].concat());
        self.namespace.owns(&format!("/docker/{id}"));
        self.client(&["start", &id]);
        id
    }

    fn client(&self, words: &[&str]) -> String {
        let host = format!("unix://{}", self.socket());
        self.namespace.run(&[&["docker", "--config", "/run/client", "--host", &host], words].concat())
    }
}
