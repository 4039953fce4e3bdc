//! Tests `kubectl cgscope` with a fake kubectl that records its arguments.

use std::{
    env, fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};

/// A directory with the plugin, a fake `kubectl` and its answers.
struct Cluster(PathBuf);

/// The result of a call of the plugin: its exit status, its error messages, and the arguments of each call of kubectl.
struct Done {
    status: Option<i32>,
    out: String,
    words: String,
    calls: Vec<Vec<String>>,
}

impl Cluster {
    /// Creates a simulated cluster. The pod `web` in the namespace `shop` runs on the node `n1`, and so does `cgscope-x7`.
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let dir = env::temp_dir().join(format!("xtask-kubectl-{}-{number}", std::process::id()));
        // `create_dir` fails if another user has created the directory.
        fs::create_dir(&dir).expect("a directory of ours");
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let plugin = here.join("../deploy/kubernetes/kubectl-cgscope");
        symlink(plugin, dir.join("kubectl-cgscope")).expect("a link of ours");
        fs::write(dir.join("kubectl"), include_str!("kubectl/fake.sh")).expect("a file of ours");
        fs::set_permissions(dir.join("kubectl"), fs::Permissions::from_mode(0o755)).expect("a file of ours");
        let cluster = Self(dir);
        for (answer, text) in [
            ("pod", "shop n1"),
            ("pods", "cgscope-x7 cgscope-x8 "),
            ("can-i", "yes\n"),
            ("exec", "of cgscope\n"),
        ] {
            cluster.answer(answer, text);
        }
        cluster
    }

    fn answer(&self, answer: &str, text: &str) {
        fs::write(self.0.join(answer), text).expect("a file of ours");
    }

    fn fails(&self, answer: &str, text: &str, status: i32) {
        self.answer(answer, text);
        self.answer(&format!("{answer}.status"), &status.to_string());
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([self.0.clone()].into_iter().chain(env::split_paths(&path)));
        command.env("PATH", path.expect("a path")).env("FAKE", &self.0).env_remove("CGSCOPE_NAMESPACE");
        command.current_dir(&self.0).stdin(Stdio::null());
        command
    }

    fn run(&self, words: &[&str]) -> Done {
        self.done(self.command("kubectl-cgscope").args(words))
    }

    fn done(&self, command: &mut Command) -> Done {
        let _ = fs::remove_file(self.0.join("calls"));
        let output = command.output().expect("the plugin starts");
        let calls = fs::read_to_string(self.0.join("calls")).unwrap_or_default();
        let call = |call: &str| call.trim_end_matches('\0').split('\0').map(str::to_owned).collect();
        Done {
            status: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            words: String::from_utf8_lossy(&output.stderr).into_owned(),
            calls: calls.split("\u{1}\0").filter(|text| !text.is_empty()).map(call).collect(),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_pod_is_shown_by_the_daemon_on_its_node() {
    let done = Cluster::new().run(&["top", "web", "-n", "shop"]);
    assert_eq!((done.status, done.out.as_str(), done.words.as_str()), (Some(0), "of cgscope\n", ""));
    let [pod, ours, exec] = &done.calls[..] else { panic!("{:?}", done.calls) };
    let jsonpath = "jsonpath={.metadata.namespace} {.spec.nodeName}";
    assert_eq!(
        pod[..],
        ["get", "pod", "--namespace=shop", "--ignore-not-found", "-o", jsonpath, "--", "web"]
    );
    let jsonpath = "jsonpath={range .items[*]}{.metadata.name}{\" \"}{end}";
    let label = "app.kubernetes.io/name=cgscope";
    let on_node = "spec.nodeName=n1,status.phase=Running";
    let listed =
        ["get", "pods", "--namespace=cgscope", "-l", label, "--field-selector", on_node, "-o", jsonpath];
    assert_eq!(ours[..], listed);
    // This test has no terminal, so the plugin runs `top` with `-b`.
    let words = "exec --stdin --tty=false --namespace=cgscope -c cgscope cgscope-x7 -- \
                 cgscope top -b --connect /run/cgscope/cgscope.sock --pod shop/web";
    assert_eq!(exec.join(" "), words);
}

#[test]
fn on_a_terminal_top_is_the_screen() {
    let cluster = Cluster::new();
    let mut script = cluster.command("script");
    let done = cluster.done(script.args(["-qec", "kubectl-cgscope top web", "/dev/null"]));
    let words = "exec --stdin --tty --namespace=cgscope -c cgscope cgscope-x7 -- \
                 cgscope top --connect /run/cgscope/cgscope.sock --pod shop/web";
    assert_eq!(done.calls.last().map(|call| call.join(" ")).as_deref(), Some(words));
}

#[test]
fn flags_reach_kubectl_and_cgscope_unchanged() {
    let hostile = "$(touch made); `touch made` 'a b' \"*\"\n--x";
    let kubeconfig = format!("--kubeconfig={hostile}");
    let done = Cluster::new().run(&[
        "--context",
        hostile,
        "hist",
        &kubeconfig,
        "pod/web",
        "-c",
        "app",
        "--as=alice",
        "--cgscope-namespace",
        "tools",
        "--",
        "--comm",
        hostile,
        "-n",
        "",
        "*",
    ]);
    assert_eq!((done.status, done.words.as_str()), (Some(0), ""));
    let context = format!("--context={hostile}");
    for call in &done.calls {
        assert_eq!(call[..3], [kubeconfig.as_str(), &context, "--as=alice"]);
    }
    let exec = &done.calls[2];
    let at = exec.iter().position(|word| word == "--").expect("the end of kubectl's options");
    assert_eq!(exec[at - 1], "cgscope-x7");
    let words = [
        "cgscope",
        "hist",
        "--connect",
        "/run/cgscope/cgscope.sock",
        "--pod",
        "shop/web",
        "--container",
        "app",
        "--comm",
        hostile,
        "-n",
        "",
        "*",
    ];
    assert_eq!(exec[at + 1..], words);
    assert!(exec.contains(&"--namespace=tools".to_owned()), "{exec:?}");
}

#[test]
fn a_hostile_name_never_reaches_kubectl() {
    let cluster = Cluster::new();
    for name in [
        "$(touch made)",
        "`touch made`",
        "a b",
        "a'b",
        "a\"b",
        "a;b",
        "a\nb",
        "é",
        "A",
        ".a",
        "../a",
        "*",
        "pod/-x",
    ] {
        for words in [
            &["top", name][..],
            &["top", "web", "-n", name],
            &["top", "web", "-c", name],
            &["top", "--node", name],
            &["top", "web", "--cgscope-namespace", name],
        ] {
            let done = cluster.run(words);
            assert_eq!((done.status, done.calls.len()), (Some(2), 0), "{words:?}: {:?}", done.calls);
            assert!(done.words.contains("is not the name of a"), "{words:?}: {}", done.words);
        }
    }
    // These names look like options.
    for words in [&["top", "-web"][..], &["top", "--all"], &["top", "--raw=/"], &["-x", "top"]] {
        let done = cluster.run(words);
        assert_eq!((done.status, done.calls.len()), (Some(2), 0), "{words:?}");
        assert!(done.words.contains("unknown option"), "{}", done.words);
    }
    let done = cluster.run(&["top", "web", "-n", "-A"]);
    assert!(done.words.contains("`-A` is not the name of a namespace"), "{}", done.words);
    assert!(!cluster.0.join("made").exists());
}

#[test]
fn a_node_is_shown_whole() {
    let done = Cluster::new().run(&["stat", "--node", "n2", "--", "-d", "10s"]);
    let [ours, exec] = &done.calls[..] else { panic!("{:?}", done.calls) };
    assert!(ours.contains(&"spec.nodeName=n2,status.phase=Running".to_owned()), "{ours:?}");
    assert!(
        exec.join(" ").ends_with("-- cgscope stat --connect /run/cgscope/cgscope.sock -d 10s"),
        "{exec:?}"
    );
    let done = Cluster::new().run(&["doctor", "--node", "n2"]);
    assert!(done.calls[1].join(" ").ends_with("-- cgscope doctor"), "{:?}", done.calls);
}

#[test]
fn an_error_names_its_remedy() {
    let says = |change: &dyn Fn(&Cluster), words: &[&str]| {
        let cluster = Cluster::new();
        change(&cluster);
        let done = cluster.run(words);
        assert_eq!(done.status, Some(2), "{}", done.words);
        done.words
    };
    let web = &["top", "web", "-n", "shop"][..];
    let cases: [(&str, &str, Option<i32>, &str, &str); 6] = [
        ("pod", "", None, "there is no pod `web` in the namespace `shop`", "kubectl get pods -A"),
        ("pod", "shop ", None, "`web` is not on a node yet", "kubectl describe pod -n shop web"),
        ("pod", "", Some(1), "cannot read the pod `web`", "permission to get pods"),
        ("pods", "", None, "cgscope does not run on the node `n1`", "--cgscope-namespace"),
        ("pods", "", Some(1), "cannot list the pods of cgscope", "access.yaml"),
        ("can-i", "no - no rule\n", None, "you may not exec into pods", "access.yaml"),
    ];
    for (answer, text, status, problem, remedy) in cases {
        let change = |cluster: &Cluster| {
            cluster.answer(answer, text);
            match (answer, status) {
                ("can-i", _) => cluster.fails("exec", "", 1),
                (_, Some(status)) => cluster.fails(answer, text, status),
                _ => {}
            }
        };
        let words = says(&change, web);
        assert!(words.contains(problem) && words.contains(remedy), "{words}");
        assert_eq!(words.contains("(Forbidden)"), status.is_some() || answer == "can-i", "{words}");
    }
    let nothing = |_: &Cluster| {};
    for (words, problem) in [
        (&["top"][..], "which pod?"),
        (&["top", "web", "-n"], "`-n` needs a value"),
        (&["top", "web", "other"], "`other` is one argument too many"),
        (&["top", "web", "--node", "n1"], "leave out the pod"),
        (&["record", "web"], "unknown command `record`"),
        (&[], "Usage:"),
    ] {
        let text = says(&nothing, words);
        assert!(text.contains(problem), "{text}");
    }
}

#[test]
fn the_status_of_cgscope_is_passed_on() {
    for status in [1, 2, 130] {
        let cluster = Cluster::new();
        cluster.fails("exec", "part\n", status);
        let done = cluster.run(&["hist", "web"]);
        assert_eq!((done.status, done.out.as_str()), (Some(status), "part\n"));
        assert!(!done.words.contains("kubectl cgscope:"), "{}", done.words);
    }
}

#[test]
fn the_documented_commands_work() {
    let docs = include_str!("../../docs/how-to/many-hosts.md");
    let commands: Vec<&str> =
        docs.lines().filter_map(|line| line.strip_prefix("    kubectl cgscope ")).collect();
    assert!(commands.len() >= 5, "{commands:?}");
    for command in commands {
        let command = command.split('#').next().unwrap_or_default();
        let words = command.split_whitespace().map(|word| match word {
            "POD" => "web",
            "NODE" => "n1",
            "NAMESPACE" => "shop",
            word => word,
        });
        let done = Cluster::new().run(&words.collect::<Vec<_>>());
        assert_eq!((done.status, done.words.as_str()), (Some(0), ""), "{command}");
    }
}

#[test]
fn help_and_version_need_no_cluster() {
    let done = Cluster::new().run(&["top", "--help"]);
    assert_eq!((done.status, done.calls.len()), (Some(0), 0));
    for command in ["top", "hist", "stat", "doctor", "version"] {
        assert!(done.out.contains(&format!("\n  {command} ")), "{}", done.out);
    }
    let done = Cluster::new().run(&["version"]);
    assert_eq!(done.out, concat!("kubectl-cgscope ", env!("CARGO_PKG_VERSION"), "\n"));
}
