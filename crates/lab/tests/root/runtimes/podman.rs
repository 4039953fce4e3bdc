//! Podman with crun and the cgroupfs driver, as root and as another user.

use std::process::Output;

use super::namespace::{IMAGE, Namespace};
use crate::serve::ALICE;

/// Accepts the image, and gives a user what podman needs to run without root.
const SETUP: &str = r#"
mkdir -p /etc/containers /run/home
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > /etc/containers/policy.json
cat > /etc/containers/containers.conf << END
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "crun"
conmon_path = ["/mnt/usr/bin/conmon"]
[engine.runtimes]
crun = ["/mnt/usr/bin/crun"]
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

/// A Podman with storage of its own. Drop ends its containers.
pub(crate) struct Podman {
    namespace: Namespace,
    image: String,
}

impl Podman {
    pub(crate) fn start() -> Self {
        let mut namespace = Namespace::start("podman", |_| SETUP.replace("USER", &ALICE.to_string()));
        namespace.wait_for("podman is set up");
        let image = namespace.image();
        namespace.run(&["podman", "load", "--input", &image]);
        Self { namespace, image }
    }

    /// Starts a container of root. Returns its id. `script` is executed by a shell.
    pub(crate) fn run(&self, options: &[&str], script: &str) -> String {
        let command = [IMAGE, "sh", "-c", script];
        let create = [&["podman", "create", "--network", "host"], options, &command].concat();
        let id = self.namespace.run(&create);
        self.namespace.owns(&format!("/libpod_parent/libpod-{id}"));
        self.namespace.run(&["podman", "start", &id]);
        id
    }

    /// Runs podman as Alice, in a cgroup of the cpu controller.
    pub(crate) fn as_alice(&self, cgroup: &str, words: &[&str]) -> Output {
        let (user, runtime) = (ALICE.to_string(), format!("XDG_RUNTIME_DIR=/run/user/{ALICE}"));
        let script = "echo 0 > $0/cgroup.procs; exec \"$@\"";
        let become_alice = ["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"];
        let environment = ["env", "HOME=/run/home", &runtime, "PATH=/run/bin:/mnt/usr/bin:/usr/bin:/bin"];
        let shell = ["sh", "-c", script, cgroup];
        self.namespace.output(&[&shell[..], &become_alice, &environment, &["podman"], words].concat())
    }

    /// The image's file.
    pub(crate) fn image(&self) -> &str {
        &self.image
    }
}
