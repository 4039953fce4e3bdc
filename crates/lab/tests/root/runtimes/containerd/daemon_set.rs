//! The DaemonSet of `deploy/kubernetes`, started as the kubelet starts it. The image comes from `cargo xtask dist`. User,
//! capabilities, mounts and seccomp profile come from the manifest.

use std::{fs, net::TcpListener, path::Path, process::Command, thread, time::Duration};

use serde_json::Value;

use super::{Container, Containerd, Pod, Running, cri, labels};
use crate::{
    bench::{OF_THE_HOST, assert_ended},
    export::readers::Readers,
    fleet::DAEMONSET,
    packages::package,
    runtimes::{BUSY, QUOTA_US},
};

fn objects() -> Option<Value> {
    let python = Readers::find().python("PyYAML")?;
    let script = "import json, sys, yaml; json.dump(list(yaml.safe_load_all(sys.argv[1])), sys.stdout)";
    Some(python.json(script, &[DAEMONSET]))
}

fn texts(list: &Value) -> Vec<String> {
    list.as_array().expect("a list").iter().map(|text| text.as_str().expect("a text").to_owned()).collect()
}

impl Containerd {
    fn run_daemon_set(&self, objects: &Value, port: u16) -> Running {
        self.ctr(&["image", "import", package("-oci.tar").to_str().expect("a path of ours")]);
        let pod = &objects[3]["spec"]["template"]["spec"];
        let container = &pod["containers"][0];
        let security = &container["securityContext"];
        assert_eq!((&pod["hostPID"], &security["privileged"]), (&true.into(), &false.into()));
        assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");

        let namespaces = Some(cri::Namespaces { network: cri::NODE, pid: cri::NODE });
        let (running, sandbox) = self.run_sandbox("cgscope", "cgscope-x7", &[], namespaces, false);
        let config = cri::Container {
            metadata: Some(cri::text("cgscope")),
            image: Some(cri::text(&format!("localhost/cgscope:{}", env!("CARGO_PKG_VERSION")))),
            args: texts(&container["args"]),
            mounts: self.mounts(objects, port),
            labels: labels([("io.kubernetes.container.name", "cgscope")].iter()),
            linux: Some(cri::LinuxContainer {
                resources: None,
                security: Some(cri::ContainerSecurity {
                    capabilities: Some(cri::Capabilities {
                        add: texts(&security["capabilities"]["add"]),
                        drop: texts(&security["capabilities"]["drop"]),
                    }),
                    namespaces,
                    user: pod["securityContext"]["runAsUser"].as_i64().map(|id| cri::User { id }),
                    has_readonly_root: security["readOnlyRootFilesystem"] == true,
                    no_new_privileges: security["allowPrivilegeEscalation"] == false,
                    seccomp: Some(cri::SeccompProfile::default()),
                    privileged: false,
                }),
            }),
            ..Default::default()
        };
        let container = self.start_container(&running.sandbox, sandbox, config);
        Running { container, ..running }
    }

    /// Returns the mounts of the manifest. Directories of this test replace the volumes that the kubelet creates, and the
    /// directory of the runtime.
    fn mounts(&self, objects: &Value, port: u16) -> Vec<cri::Mount> {
        let pod = &objects[3]["spec"]["template"]["spec"];
        let config = objects[2]["data"]["cgscope.toml"].as_str().expect("a file");
        let listen = config.replace("0.0.0.0:9753", &format!("127.0.0.1:{port}"));
        assert_ne!(listen, config);
        for name in ["configuration", "socket"] {
            fs::create_dir(self.namespace.file(name)).expect("a directory of ours");
        }
        fs::write(self.namespace.file("configuration/cgscope.toml"), listen).expect("a file of ours");
        let mounts = pod["containers"][0]["volumeMounts"].as_array().expect("mounts");
        let mount = |mount: &Value| {
            let volumes = pod["volumes"].as_array().expect("volumes");
            let volume = volumes.iter().find(|volume| volume["name"] == mount["name"]).expect("its volume");
            let host_path = match (mount["name"].as_str(), volume["hostPath"]["path"].as_str()) {
                (Some("runtime"), _) => {
                    Path::new(&self.socket()).parent().expect("a directory").display().to_string()
                }
                (_, Some(path)) => path.to_owned(),
                (name, None) => self.namespace.file(name.expect("a name")),
            };
            let container_path = mount["mountPath"].as_str().expect("a path").to_owned();
            let propagation = i32::from(mount["mountPropagation"] == "HostToContainer");
            cri::Mount { container_path, host_path, readonly: mount["readOnly"] == true, propagation }
        };
        mounts.iter().map(mount).collect()
    }

    /// Mounts a file system below the directory of the socket, and returns the path of the mount. Makes that directory a shared
    /// mount, so that the new mount also appears in containers.
    fn mount_below_the_socket(&self, name: &str) -> String {
        let socket = self.socket();
        let above = Path::new(&socket).parent().expect("a directory").display().to_string();
        let place = format!("{above}/{name}");
        fs::create_dir(&place).expect("a directory of ours");
        let namespace = &self.namespace;
        namespace.run(&["mount", "--bind", &above, &above]);
        namespace.run(&["mount", "--make-shared", &above]);
        namespace.run(&["mount", "-t", "tmpfs", name, &place]);
        place
    }

    /// Runs a command in a container, as `kubectl exec` does.
    fn exec(&self, container: &str, words: &[&str]) -> (i32, String, String) {
        let command = words.iter().map(|word| (*word).to_owned()).collect();
        let request = cri::ExecSync { container_id: container.to_owned(), command, timeout_s: 8 };
        let done = cri::call::<cri::Executed>(&self.socket(), "ExecSync", &request);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status, text(&done.stdout), text(&done.stderr))
    }
}

#[test]
#[ignore = "all CPUs: removes cgroups that all containers share"]
fn the_daemon_set_measures_a_pod_of_its_node() {
    let Some(objects) = objects() else { return };
    let containerd = Containerd::start();
    let container = Container { name: "app", script: BUSY, quota_us: QUOTA_US, privileged: false };
    let busy = containerd.run_pod(&Pod { namespace: "shop", name: "web-0", labels: &[], container });
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
    let others = containerd.mount_below_the_socket("of-another-container");
    let ours = containerd.run_daemon_set(&objects, port);

    let (status, out, words) = containerd.exec(&ours.container, &["cgscope", "doctor"]);
    assert!(matches!(status, 0 | 1), "{out}{words}");
    for line in ["CAP_BPF and CAP_PERFMON are held", "loaded and attached in"] {
        assert!(out.lines().any(|there| there.starts_with("ok") && there.contains(line)), "{line}: {out}");
    }
    let listed = containerd.ctr(&["task", "ls"]);
    let task = listed.lines().find(|line| line.starts_with(&ours.container)).expect("a task of ours");
    let process = task.split_whitespace().nth(1).expect("its process");
    let status = || containerd.namespace.run(&["cat", &format!("/proc/{process}/status")]);
    let mut state = status();
    // Wait until the daemon has loaded its BPF programs and dropped its capabilities.
    for _ in 0..100 {
        if state.contains("CapEff:\t0000000000000000") {
            break;
        }
        thread::sleep(Duration::from_millis(50));
        state = status();
    }
    let value = |key: &str| state.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
    // The bounding set has capability 38 (PERFMON) and 39 (BPF). The daemon no longer has them, because it drops them after it
    // has loaded its programs. Seccomp mode 2 means a filter.
    assert_eq!((value("CapEff:"), value("CapBnd:")), (Some("0000000000000000"), Some("000000c000000000")));
    assert_eq!((value("Seccomp:"), value("NoNewPrivs:")), (Some("2"), Some("1")));

    // When the host unmounts a file system, the daemon's mount of the parent directory must not keep that file system mounted.
    let mounts = || containerd.namespace.run(&["cat", &format!("/proc/{process}/mountinfo")]);
    assert!(mounts().contains("/run/containerd/of-another-container"), "{}", mounts());
    containerd.namespace.run(&["umount", &others]);
    assert!(!mounts().contains("of-another-container"), "{}", mounts());

    // `kubectl cgscope` runs this command.
    let connect = ["--connect", "/run/cgscope/cgscope.sock", "--pod", "shop/web-0", "--container", "app"];
    let hist = [&["cgscope", "hist"], &connect[..], &["--json", "1", "1"]].concat();
    let (status, out, words) = containerd.exec(&ours.container, &hist);
    assert_ended(Some(status), &(words + &out), OF_THE_HOST);
    let interval: Value = serde_json::from_str(&out).expect("an object");
    let tasks = interval["tasks"].as_array().expect("tasks");
    let path = busy.container_cgroup();
    assert!(!tasks.is_empty() && tasks.iter().all(|task| task["cgroup"] == *path), "{path}: {out}");

    let page = Command::new("curl").args(["--silent", &format!("127.0.0.1:{port}/metrics")]).output();
    let page = String::from_utf8(page.expect("curl starts").stdout).expect("a page");
    let names = "pod=\"web-0\"";
    assert!(page.lines().any(|line| line.contains(names) && line.contains("namespace=\"shop\"")), "{page}");
}
