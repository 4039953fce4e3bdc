//! Podman with runc and the cgroupfs driver, as root and as another user. Podman's default runtime, crun, refuses a host that has
//! both cgroup v1 and v2.

use std::path::Path;

use super::namespace::{IMAGE, Namespace};
use crate::serve::ALICE;

/// Script that makes Podman accept the image, and creates the files that rootless Podman needs.
const SETUP: &str = r#"
mkdir -p /etc/containers /run/home
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > /etc/containers/policy.json
cat > /etc/containers/containers.conf << END
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
conmon_path = ["/mnt/usr/bin/conmon"]
[engine.runtimes]
runc = ["/mnt/usr/bin/runc"]
END
cat > /etc/containers/storage.conf << END
[storage]
driver = "overlay"
graphroot = "/run/podman/graph"
runroot = "/run/podman/run"
END
echo "alice:x:USER:USER::/run/home:/bin/sh" >> /etc/passwd
echo "alice:100000:65536" | tee -a /etc/subuid >> /etc/subgid
install -d -o USER -g USER -m 700 /run/home /run/user/USER
install -D -o root -m 4755 -t /run/bin /mnt/usr/bin/newuidmap /mnt/usr/bin/newgidmap
echo 'podman is set up' >&2
exec sleep infinity
"#;

/// A Podman with its own storage. Drop ends the containers of this Podman.
pub(crate) struct Podman {
    namespace: Namespace,
}

impl Podman {
    pub(crate) fn start() -> Self {
        let mut namespace = Namespace::start("podman", |_| SETUP.replace("USER", &ALICE.to_string()));
        namespace.wait_for("podman is set up");
        namespace.owns("/libpod_parent/conmon");
        namespace.run(&["podman", "load", "--input", &namespace.image()]);
        Self { namespace }
    }

    pub(crate) fn list(&self) -> String {
        self.namespace.seen("/run/podman/graph/overlay-containers/containers.json")
    }

    /// Starts a container as root. The container runs `script` in a shell. Returns the container's id and the path of its cgroup.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> (String, String) {
        let command = [IMAGE, "sh", "-c", script];
        let create = [&["podman", "create", "--network", "host"], options, &command].concat();
        let id = self.namespace.run(&create);
        let pod = self.namespace.run(&["podman", "inspect", "--format", "{{.Pod}}", &id]);
        let parent =
            if pod.is_empty() { "/libpod_parent".to_owned() } else { format!("/libpod_parent/{pod}") };
        let cgroup = format!("{parent}/libpod-{id}");
        self.namespace.owns(if pod.is_empty() { &cgroup } else { &parent });
        self.namespace.run(&["podman", "start", &id]);
        (id, cgroup)
    }

    /// Starts a container as the user Alice. Her shell first enters `cgroup`, the directory of a cgroup of the cpu controller.
    pub(crate) fn run_as_alice(&self, cgroup: &Path, script: &str) {
        let (user, runtime) = (ALICE.to_string(), format!("XDG_RUNTIME_DIR=/run/user/{ALICE}"));
        let enter = format!("echo 0 > {}/cgroup.procs; exec \"$@\"", cgroup.display());
        let become_alice =
            ["sh", "-c", &enter, "sh", "setpriv", "--clear-groups", "--reuid", &user, "--regid", &user];
        let path = "PATH=/run/bin:/mnt/usr/bin:/usr/bin:/bin";
        let as_alice = |words: &[&str]| {
            let environment = ["env", "HOME=/run/home", &runtime, path, "podman"];
            self.namespace.run(&[&become_alice[..], &environment, words].concat())
        };
        as_alice(&["load", "--input", &self.namespace.file("image.tar")]);
        as_alice(&["run", "--detach", "--network", "host", IMAGE, "sh", "-c", script]);
    }
}
