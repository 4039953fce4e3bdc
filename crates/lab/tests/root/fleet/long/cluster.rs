//! A Kubernetes API server with its store (etcd), but without nodes. The server checks objects and permissions, but starts no
//! containers.

use std::{
    env, fs,
    net::TcpListener,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value, json};

use super::CHART;
use crate::{
    bench::{patience, stderr, stdout},
    export::readers::Readers,
    files::Dir,
    fleet::DOCS,
};

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes");

/// Users and their groups. The user name is also the token.
const USERS: [(&str, &str); 3] = [("admin", "system:masters"), ("viewer", "cgscope-viewers"), ("lister", "")];

struct Cluster {
    processes: Vec<Child>,
    /// Directory that contains kubectl, the plugin `kubectl cgscope`, and the configuration of kubectl.
    dir: Dir,
    helm: PathBuf,
}

impl Cluster {
    fn start() -> Option<Self> {
        let readers = Readers::find();
        let program = |name| readers.program(name);
        let (server, kubectl, helm) = (program("kube-apiserver")?, program("kubectl")?, program("helm")?);
        let etcd = program("etcd/usr/bin/etcd")?;
        let dir = Dir::new("cluster");
        symlink(kubectl, dir.path().join("kubectl")).expect("a link of ours");
        symlink(Path::new(DEPLOY).join("kubectl-cgscope"), dir.path().join("kubectl-cgscope"))
            .expect("a link");
        let [store, peers, port] = [(); 3].map(|()| free_port());
        let (store, peers) = (format!("http://127.0.0.1:{store}"), format!("http://127.0.0.1:{peers}"));
        let key = rcgen::KeyPair::generate().expect("a key");
        fs::write(dir.file("key.pem"), key.serialize_pem()).expect("a file of ours");
        fs::write(dir.file("public.pem"), key.public_key_pem()).expect("a file of ours");
        let tokens = USERS.map(|(user, group)| format!("{user},{user},{user},{group}\n")).concat();
        fs::write(dir.file("tokens.csv"), tokens).expect("a file of ours");
        fs::write(dir.file("config"), configuration(port).to_string()).expect("a file of ours");

        let mut store_process = Command::new(etcd);
        store_process.args(["--data-dir", &dir.file("etcd"), "--listen-client-urls", &store]);
        store_process.args(["--advertise-client-urls", &store, "--listen-peer-urls", &peers]);
        let mut api = Command::new(server);
        // Disable this admission plugin: it requires service accounts, but no controller creates them here.
        api.args(["--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount"]);
        api.args(["--bind-address=127.0.0.1", "--service-cluster-ip-range=10.0.0.0/24"]);
        api.arg("--service-account-issuer=https://localhost").arg(format!("--secure-port={port}"));
        api.arg(format!("--etcd-servers={store}")).arg(format!("--cert-dir={}", dir.file("certificates")));
        api.arg(format!("--token-auth-file={}", dir.file("tokens.csv")));
        api.arg(format!("--service-account-key-file={}", dir.file("public.pem")));
        api.arg(format!("--service-account-signing-key-file={}", dir.file("key.pem")));
        let started = |(command, log): (&mut Command, &str)| {
            let log = fs::File::create(dir.file(log)).expect("a file of ours");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("a program starts")
        };
        let processes = [(&mut store_process, "etcd.log"), (&mut api, "api.log")].map(started).into();
        let cluster = Self { processes, dir, helm };
        cluster.wait();
        Some(cluster)
    }

    fn wait(&self) {
        let end = Instant::now() + patience(60_000);
        while !self.kubectl("admin", &["get", "--raw", "/readyz"]).status.success() {
            let log = || fs::read_to_string(self.dir.file("api.log")).unwrap_or_default();
            assert!(Instant::now() < end, "the API server does not become ready:\n{}", log());
            thread::sleep(Duration::from_millis(200));
        }
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let path = env::var_os("PATH").unwrap_or_default();
        let path = [self.dir.path().to_owned()].into_iter().chain(env::split_paths(&path));
        command
            .env("PATH", env::join_paths(path).expect("a path"))
            .env("KUBECONFIG", self.dir.file("config"));
        command
            .current_dir(Path::new(DEPLOY).join("../.."))
            .env_remove("CGSCOPE_NAMESPACE")
            .stdin(Stdio::null());
        command
    }

    /// Runs kubectl as `user`. Appends the option `--context`, because kubectl passes only options after a plugin's name to the
    /// plugin.
    fn kubectl(&self, user: &str, words: &[&str]) -> Output {
        let mut command = self.command(&self.dir.path().join("kubectl"));
        command.args(words).args(["--context", user]).output().expect("kubectl starts")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.kubectl("admin", words);
        assert!(output.status.success(), "{words:?}: {}", stderr(&output));
        stdout(&output)
    }

    fn apply(&self, objects: &[Value]) {
        let file = self.dir.file("objects.json");
        fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string())
            .expect("a file");
        self.done(&["apply", "-f", &file]);
    }

    fn plugin(&self, user: &str, words: &[&str]) -> (Option<i32>, String) {
        let output = self.kubectl(user, &[&["cgscope"], words].concat());
        (output.status.code(), stderr(&output))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for process in self.processes.iter_mut().rev() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("an address").port()
}

/// Returns the configuration of kubectl, with a context for each user. The certificate of the server is self-signed.
fn configuration(port: u16) -> Value {
    let server = format!("https://127.0.0.1:{port}");
    let users = USERS.map(|(name, _)| json!({"name": name, "user": {"token": name}}));
    let context =
        |(name, _)| json!({"name": name, "context": {"cluster": "c", "user": name, "namespace": "shop"}});
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server, "insecure-skip-tls-verify": true}}],
        "users": users,
        "contexts": USERS.map(context),
        "current-context": "admin",
    })
}

fn pod(name: &str, node: Option<&str>) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop"},
           "spec": {"nodeName": node, "containers": [{"name": "app", "image": "app"}]}})
}

/// Returns a role with the right to get and list the pods of a namespace, and the binding of this role to these users.
fn readers(namespace: &str, users: &[&str]) -> [Value; 2] {
    let metadata = json!({"name": "readers", "namespace": namespace});
    let group = "rbac.authorization.k8s.io";
    let user = |name: &&str| json!({"apiGroup": group, "kind": "User", "name": name});
    [
        json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
               "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]}),
        json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
               "roleRef": {"apiGroup": group, "kind": "Role", "name": "readers"},
               "subjects": users.iter().map(user).collect::<Vec<_>>()}),
    ]
}

#[test]
fn an_api_server_accepts_the_manifests_and_permits_only_viewers_to_exec() {
    let Some(cluster) = Cluster::start() else { return };
    for file in ["daemonset.yaml", "access.yaml"] {
        let file = format!("deploy/kubernetes/{file}");
        cluster.done(&["apply", "-f", &file]);
        let again = cluster.done(&["apply", "--dry-run=server", "-f", &file]);
        assert!(again.lines().all(|line| line.ends_with(" unchanged (server dry run)")), "{again}");
    }
    cluster.done(&["create", "namespace", "shop"]);
    // No kubelet listens on the node's port.
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}});
    let objects = [node, pod("web", Some("n1")), pod("waits", None)];
    cluster.apply(
        &[&objects[..], &readers("shop", &["viewer", "lister"]), &readers("cgscope", &["lister"])].concat(),
    );
    let addresses = json!([{"type": "InternalIP", "address": "127.0.0.1"}]);
    let status =
        json!({"status": {"addresses": addresses, "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}}}});
    cluster.done(&["patch", "node", "n1", "--subresource=status", "-p", &status.to_string()]);

    // At this point, the DaemonSet has no pod on the node.
    let (code, words) = cluster.plugin("viewer", &["top", "web"]);
    assert!(code == Some(2) && words.contains("cgscope does not run on the node `n1`"), "{words}");

    let daemonset = cluster.done(&["get", "daemonset", "cgscope", "-n", "cgscope", "-o", "json"]);
    let daemonset: Value = serde_json::from_str(&daemonset).expect("JSON");
    let mut ours = daemonset["spec"]["template"].clone();
    (ours["apiVersion"], ours["kind"]) = ("v1".into(), "Pod".into());
    (ours["metadata"]["name"], ours["metadata"]["namespace"]) = ("cgscope-x7".into(), "cgscope".into());
    ours["spec"]["nodeName"] = "n1".into();
    cluster.apply(&[ours.clone()]);
    let running = json!({"status": {"phase": "Running"}}).to_string();
    cluster.done(&["patch", "pod", "cgscope-x7", "-n", "cgscope", "--subresource=status", "-p", &running]);

    // The namespace of cgscope needs its label for clusters that enforce another Pod Security level.
    cluster.done(&["create", "namespace", "strict"]);
    cluster.done(&["label", "namespace", "strict", "pod-security.kubernetes.io/enforce=baseline"]);
    ours["metadata"]["namespace"] = "strict".into();
    fs::write(cluster.dir.file("strict.json"), ours.to_string()).expect("a file of ours");
    let refused = cluster.kubectl("admin", &["apply", "-f", &cluster.dir.file("strict.json")]);
    assert!(stderr(&refused).contains("violates PodSecurity \"baseline"), "{}", stderr(&refused));

    for (user, verb, namespace, is_allowed) in [
        ("viewer", &["create", "pods", "--subresource=exec"][..], "cgscope", true),
        ("viewer", &["list", "pods"], "cgscope", true),
        ("viewer", &["create", "pods", "--subresource=exec"], "shop", false),
        ("viewer", &["delete", "pods"], "cgscope", false),
        ("viewer", &["get", "secrets"], "cgscope", false),
        ("lister", &["create", "pods", "--subresource=exec"], "cgscope", false),
        ("lister", &["get", "pods", "--subresource=exec"], "cgscope", false),
    ] {
        let answer = cluster.kubectl(user, &[&["auth", "can-i"], verb, &["-n", namespace]].concat());
        assert_eq!(stdout(&answer).starts_with("yes"), is_allowed, "{user} {verb:?} {namespace}");
    }

    // The API server permits the exec request, but no kubelet can execute it.
    let (code, words) = cluster.plugin("viewer", &["top", "web"]);
    assert_eq!(code, Some(1), "{words}");
    assert!(words.contains("127.0.0.1:1: connect: connection refused"), "{words}");
    assert!(!words.contains("kubectl cgscope:"), "{words}");
    for (user, arguments, expected) in [
        ("viewer", &["top", "none"][..], "there is no pod `none` in the current namespace"),
        ("viewer", &["top", "waits"], "the pod `waits` is not on a node yet"),
        ("viewer", &["top", "web", "-n", "strict"], "cannot read the pod `web`"),
        ("viewer", &["stat", "--node", "n2"], "cgscope does not run on the node `n2`"),
        ("lister", &["hist", "web"], "you may not exec into pods in the namespace `cgscope`"),
    ] {
        let (code, words) = cluster.plugin(user, arguments);
        assert!(code == Some(2) && words.contains(expected), "{arguments:?}: {words}");
    }
}

#[test]
fn the_documented_commands_install_the_chart() {
    let Some(cluster) = Cluster::start() else { return };
    let (_, section) = DOCS.split_once("also use Helm").expect("the section");
    let commands: Vec<&str> = section
        .lines()
        .skip_while(|line| !line.starts_with("    "))
        .map_while(|line| line.strip_prefix("    "))
        .collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.split_whitespace().collect();
        let program =
            if words[0] == "helm" { cluster.helm.clone() } else { cluster.dir.path().join(words[0]) };
        let output = cluster.command(&program).args(&words[1..]).output().expect("a program starts");
        assert!(output.status.success(), "{command}: {}", stderr(&output));
    }
    let made = cluster.done(&["get", "daemonset,configmap,serviceaccount", "-n", "cgscope", "-o", "name"]);
    for name in ["daemonset.apps/cgscope", "configmap/cgscope", "serviceaccount/cgscope"] {
        assert!(made.lines().any(|line| line == name), "{made}");
    }
    let upgraded =
        cluster.command(&cluster.helm).args(["upgrade", "cgscope", CHART, "-n", "cgscope"]).output();
    assert!(upgraded.expect("helm starts").status.success());
}
