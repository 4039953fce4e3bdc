//! Tests of docs/how-to/many-hosts.md: queries over the exports of all hosts, and the Kubernetes objects.

mod long;

use std::{fs, process::Command};

use serde_json::Value;

use crate::{
    bench::{assert_measured, cgscope, json_lines, run},
    export::readers::Readers,
    files::Dir,
    load::{Cgroup, Load},
};

const DOCS: &str = include_str!("../../../../docs/how-to/many-hosts.md");
pub(crate) const DAEMONSET: &str = include_str!("../../../../deploy/kubernetes/daemonset.yaml");
const ACCESS: &str = include_str!("../../../../deploy/kubernetes/access.yaml");

/// Returns the SQL queries in the documentation. A query begins after `duckdb -c "` and ends at the next quotation mark.
fn documented_queries() -> Vec<String> {
    DOCS.split("duckdb -c \"").skip(1).filter_map(|rest| Some(rest.split_once('"')?.0.to_owned())).collect()
}

/// Records for two seconds with the host name `name`, and exports the recording to `exports/NAME.parquet`. Returns the waiting
/// time that `report` shows, ns.
fn host(dir: &Dir, name: &str) -> u64 {
    let recording = dir.file(&format!("{name}.rec"));
    let mut command = Command::new("unshare");
    let program = cgscope().get_program().to_owned();
    // The command changes the host name only in its own UTS namespace.
    command.args(["--uts", "sh", "-c", "hostname \"$1\" && shift && exec \"$@\"", "sh", name]).arg(program);
    let output = command.args(["record", "-o", &recording, "-d", "2"]).output().expect("unshare runs");
    assert_measured(&output);
    let out = dir.file(&format!("exports/{name}.parquet"));
    let output = run(&["export", &recording, "--format", "parquet", "-o", &out]);
    assert_measured(&output);
    let intervals = json_lines(&run(&["report", "--json", &recording]));
    intervals.iter().map(|interval| interval["total"]["total_ns"].as_u64().expect("a sum")).sum()
}

#[test]
fn the_exports_of_several_hosts_are_one_table() {
    let dir = Dir::new("fleet");
    fs::create_dir(dir.path().join("exports")).expect("a directory of ours");
    let limited = Cgroup::new("fleet");
    limited.limit(20_000, 100_000);
    let load = Load::busy_loop(Some(&limited));
    let web1 = host(&dir, "web1");
    drop(load);
    let _loads = [Load::busy_loop(None), Load::busy_loop(None), Load::busy_loop(None)];
    let web2 = host(&dir, "web2");

    let queries = documented_queries();
    assert!(queries.len() >= 2, "{queries:?}");
    let Some(python) = Readers::find().python("DuckDB") else { return };
    let answer = |query: &str| {
        let script = include_str!("fleet/query.py");
        python.json(script, &[&dir.path().display().to_string(), query])
    };
    let sums = answer(
        "SELECT host, CAST(sum(wait_ns) AS BIGINT) AS ns FROM read_parquet('exports/*.parquet') GROUP BY host ORDER BY host",
    );
    assert_eq!(sums, serde_json::json!([{"host": "web1", "ns": web1}, {"host": "web2", "ns": web2}]));
    for query in &queries {
        let rows = answer(query);
        assert!(!rows.as_array().expect("rows").is_empty(), "{query}");
    }
    // The first query returns the services with the longest waits, and their hosts. The cgroup with the quota exists only on one
    // host.
    let rows = answer(&queries[0]);
    let of_quota: Vec<&Value> =
        rows.as_array().expect("rows").iter().filter(|row| row["service"] == limited.name.as_str()).collect();
    assert_eq!(of_quota.len(), 1, "{rows}");
    assert_eq!(of_quota[0]["host"], "web1");
    assert!(of_quota[0]["throttled"].as_f64().expect("a share") > 0.5, "{}", of_quota[0]);
}

#[test]
fn kubernetes_accepts_the_daemon_set_which_has_only_the_needed_rights() {
    let Some(python) = Readers::find().python("kubernetes-validate") else { return };
    let reported = python.json(include_str!("fleet/kubernetes.py"), &[DAEMONSET]);
    let kinds: Vec<_> =
        reported["objects"].as_array().expect("objects").iter().map(|object| &object["kind"]).collect();
    assert_eq!(kinds, ["Namespace", "ServiceAccount", "ConfigMap", "DaemonSet"]);
    let objects = &reported["objects"];
    assert_eq!(objects[1]["automountServiceAccountToken"], false);
    let pod = &objects[3]["spec"]["template"]["spec"];
    assert_eq!((&pod["hostPID"], &pod["automountServiceAccountToken"]), (&true.into(), &false.into()));
    assert_eq!((&pod["hostNetwork"], &pod["hostIPC"]), (&Value::Null, &Value::Null));
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["capabilities"], serde_json::json!({"drop": ["ALL"], "add": ["BPF", "PERFMON"]}));
    assert_eq!(security["privileged"], false);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    let writable: Vec<_> =
        mounts.iter().filter(|mount| mount["readOnly"] != true).map(|mount| &mount["name"]).collect();
    assert_eq!(writable, ["socket"]);
    // Check that the validator refuses an object with a typing error.
    assert_eq!(reported["refuses_a_typing_error"], true);
}

#[test]
fn the_plugin_needs_only_the_pods_of_its_own_namespace() {
    let Some(python) = Readers::find().python("kubernetes-validate") else { return };
    let reported = python.json(include_str!("fleet/kubernetes.py"), &[ACCESS]);
    let [role, binding] = &reported["objects"].as_array().expect("objects")[..] else { panic!("{reported}") };
    assert_eq!((&role["kind"], &binding["kind"]), (&"Role".into(), &"RoleBinding".into()));
    assert_eq!(
        (&role["metadata"]["namespace"], &binding["metadata"]["namespace"]),
        (&"cgscope".into(), &"cgscope".into())
    );
    assert_eq!(binding["roleRef"]["name"], role["metadata"]["name"]);
    let rules = serde_json::json!([
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]},
        {"apiGroups": [""], "resources": ["pods/exec"], "verbs": ["create"]},
    ]);
    assert_eq!(role["rules"], rules);
}
