//! containerd with the settings that a kubelet uses: pods in the network of the host, and the cgroupfs driver.

mod daemon_set;

use std::{
    collections::HashMap,
    fs,
    sync::atomic::{AtomicU32, Ordering},
};

use super::{
    cri,
    namespace::{IMAGE, Namespace},
};

/// Containers keep the `oom_score_adj` of containerd, because the test cannot lower it.
const CONFIG: &str = r#"
version = 2
root = "/run/root"
state = "/run/containerd"
[grpc]
address = "SOCKET"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "IMAGE"
restrict_oom_score_adj = true
"#;

/// Settings for the lab's systemd host. There, systemd creates the cgroups of pods and containers, and overlay mounts do not
/// work, because the root file system is in memory.
const CONFIG_SYSTEMD: &str = r#"
version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "IMAGE"
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
SystemdCgroup = true
"#;

/// A containerd with its own CRI socket. Drop ends this containerd and its pods.
pub(crate) struct Containerd {
    namespace: Namespace,
    socket: String,
    has_systemd: bool,
}

/// The user of a pod chooses its labels.
pub(crate) struct Pod<'a> {
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) labels: &'a [(&'a str, &'a str)],
    pub(crate) container: Container<'a>,
}

pub(crate) struct Container<'a> {
    pub(crate) name: &'a str,
    pub(crate) script: &'a str,
    /// Quota: CPU time in each 100 ms, µs.
    pub(crate) quota_us: u32,
    pub(crate) privileged: bool,
}

pub(crate) struct Running {
    pub(crate) uid: String,
    /// Path of the pod's cgroup, which is the parent of the cgroups of `sandbox` and `container`.
    pub(crate) cgroup: String,
    /// Id of the container that holds the pod's namespaces.
    pub(crate) sandbox: String,
    pub(crate) container: String,
}

impl Containerd {
    pub(crate) fn start() -> Self {
        let mut namespace = Namespace::start("containerd", |dir| {
            let config = CONFIG.replace("SOCKET", &dir.file("containerd.sock")).replace("IMAGE", IMAGE);
            fs::write(dir.file("config.toml"), config).expect("a file of ours");
            format!("exec containerd --config {}", dir.file("config.toml"))
        });
        namespace.wait_for("containerd successfully booted");
        let socket = namespace.file("containerd.sock");
        Self { namespace, socket, has_systemd: false }.with_image(&[])
    }

    pub(crate) fn of_systemd() -> Self {
        fs::create_dir_all("/etc/containerd").expect("a directory");
        fs::write("/etc/containerd/config.toml", CONFIG_SYSTEMD.replace("IMAGE", IMAGE)).expect("a file");
        let namespace = Namespace::of_host(&["containerd"]);
        let socket = "/run/containerd/containerd.sock".to_owned();
        Self { namespace, socket, has_systemd: true }.with_image(&["--snapshotter=native"])
    }

    fn with_image(self, options: &[&str]) -> Self {
        self.ctr(&[&["image", "import"], options, &[&self.namespace.image()]].concat());
        self
    }

    fn ctr(&self, words: &[&str]) -> String {
        let client = ["ctr", "--address", &self.socket(), "--namespace", "k8s.io"];
        self.namespace.run(&[&client[..], words].concat())
    }

    pub(crate) fn socket(&self) -> String {
        self.socket.clone()
    }

    /// Runs a pod in the class `burstable`.
    pub(crate) fn run_pod(&self, pod: &Pod<'_>) -> Running {
        let namespaces = Some(cri::Namespaces { network: cri::NODE, ..Default::default() });
        let privileged = pod.container.privileged;
        let (running, sandbox) =
            self.run_sandbox(pod.namespace, pod.name, pod.labels, namespaces, privileged);
        let of_pod = [
            ("io.kubernetes.pod.name", pod.name),
            ("io.kubernetes.pod.namespace", pod.namespace),
            ("io.kubernetes.pod.uid", &running.uid),
            ("io.kubernetes.container.name", pod.container.name),
        ];
        let container = self.run(&running.sandbox, sandbox, &pod.container, labels(of_pod.iter()));
        Running { container, ..running }
    }

    /// Runs the sandbox of a pod in the class `burstable`, still without a container.
    fn run_sandbox(
        &self,
        namespace: &str,
        name: &str,
        chosen: &[(&str, &str)],
        namespaces: Option<cri::Namespaces>,
        privileged: bool,
    ) -> (Running, cri::Sandbox) {
        let uid = unique_uid();
        let cgroup = if self.has_systemd {
            let slice = format!("kubepods-burstable-pod{}.slice", uid.replace('-', "_"));
            format!("/kubepods.slice/kubepods-burstable.slice/{slice}")
        } else {
            format!("/kubepods/burstable/pod{uid}")
        };
        self.namespace.owns(&cgroup);
        let of_pod = [
            ("io.kubernetes.pod.name", name),
            ("io.kubernetes.pod.namespace", namespace),
            ("io.kubernetes.pod.uid", &uid),
        ];
        let metadata =
            cri::SandboxMetadata { name: name.to_owned(), uid: uid.clone(), namespace: namespace.to_owned() };
        let config = cri::Sandbox {
            metadata: Some(metadata),
            labels: labels(chosen.iter().chain(&of_pod)),
            linux: Some(cri::LinuxSandbox {
                cgroup_parent: cgroup.clone(),
                security: Some(cri::SandboxSecurity { namespaces, privileged }),
            }),
        };
        let request = cri::RunPodSandbox { config: Some(config.clone()) };
        let sandbox = cri::call::<cri::Text>(&self.socket(), "RunPodSandbox", &request).text;
        (Running { uid, cgroup, sandbox, container: String::new() }, config)
    }

    pub(crate) fn remove_pod(&self, pod: &Running) {
        let sandbox = cri::text(&pod.sandbox);
        // Ignore the replies, which are empty messages.
        cri::call::<()>(&self.socket(), "StopPodSandbox", &sandbox);
        cri::call::<()>(&self.socket(), "RemovePodSandbox", &sandbox);
    }

    fn run(
        &self,
        sandbox_id: &str,
        sandbox: cri::Sandbox,
        container: &Container<'_>,
        labels: HashMap<String, String>,
    ) -> String {
        let security = cri::ContainerSecurity {
            privileged: container.privileged,
            namespaces: Some(cri::Namespaces { network: cri::NODE, ..Default::default() }),
            ..Default::default()
        };
        let resources = cri::Resources { cpu_period: 100_000, cpu_quota: container.quota_us.into() };
        let config = cri::Container {
            metadata: Some(cri::text(container.name)),
            image: Some(cri::text(IMAGE)),
            command: ["sh", "-c", container.script].map(str::to_owned).into(),
            labels,
            linux: Some(cri::LinuxContainer { resources: Some(resources), security: Some(security) }),
            ..Default::default()
        };
        self.start_container(sandbox_id, sandbox, config)
    }

    fn start_container(&self, sandbox_id: &str, sandbox: cri::Sandbox, config: cri::Container) -> String {
        let request = cri::CreateContainer {
            sandbox_id: sandbox_id.to_owned(),
            config: Some(config),
            sandbox: Some(sandbox),
        };
        let id = cri::call::<cri::Text>(&self.socket(), "CreateContainer", &request);
        cri::call::<()>(&self.socket(), "StartContainer", &id);
        id.text
    }
}

fn labels<'a>(pairs: impl Iterator<Item = &'a (&'a str, &'a str)>) -> HashMap<String, String> {
    pairs.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn unique_uid() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    format!("{:08x}-0d4e-4f5a-8b6c-{:012x}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}
