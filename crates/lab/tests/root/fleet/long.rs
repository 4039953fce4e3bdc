//! Tests of the Helm chart, and of the manifests with a Kubernetes API server. Building helm and the server takes minutes. Unit
//! tests of xtask also compare the chart with the manifests, without these programs.

mod cluster;

use std::{path::Path, process::Command};

use serde_json::Value;

use super::{DAEMONSET, DOCS};
use crate::{
    bench::{stderr, stdout},
    export::readers::Readers,
};

const CHART: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/kubernetes/chart");

fn rendered(helm: &Path, values: &[&str]) -> Result<String, String> {
    let mut command = Command::new(helm);
    command.args(["template", "cgscope", CHART, "-n", "cgscope"]);
    let output = command.args(values.iter().flat_map(|value| ["--set", value])).output().expect("helm runs");
    if output.status.success() { Ok(stdout(&output)) } else { Err(stderr(&output)) }
}

/// Returns the objects of the manifests. Checks each object with its schema of Kubernetes. Only PodMonitor has no schema there.
fn objects(manifests: &str) -> Vec<Value> {
    let python = Readers::find().python("kubernetes-validate").expect("helm is installed, so Python is, too");
    let reported = python.json(include_str!("kubernetes.py"), &[manifests]);
    assert_eq!(reported["refuses_a_typing_error"], true);
    reported["objects"].as_array().expect("objects").clone()
}

#[test]
fn the_chart_renders_the_plain_manifests() {
    let Some(helm) = Readers::find().program("helm") else { return };
    let lint = Command::new(&helm).args(["lint", "--strict", "--quiet", CHART]).output().expect("helm runs");
    assert!(lint.status.success(), "{}{}", stdout(&lint), stderr(&lint));
    let plain = rendered(&helm, &["createNamespace=true"]).expect("the default values are valid");
    assert!(
        plain == DAEMONSET,
        "deploy/kubernetes/daemonset.yaml is out of date; its first comment has the command that renders it:\n{plain}"
    );
    // By default, the chart does not create the namespace.
    let (_, without) =
        DAEMONSET.split_once("---\n").and_then(|(_, rest)| rest.split_once("---\n")).expect("objects");
    assert_eq!(rendered(&helm, &[]).expect("the default values are valid"), format!("---\n{without}"));
}

#[test]
fn the_values_of_the_chart_change_the_manifests() {
    let Some(helm) = Readers::find().program("helm") else { return };
    let values = [
        "image=registry.example/other@sha256:0a",
        "imagePullSecrets[0].name=pull",
        "runtimeSocket=/run/k3s/containerd/containerd.sock",
        "metrics.port=9000",
        "metrics.tlsSecret=tls",
        "metrics.usersSecret=users",
        "resources.limits.memory=2Gi",
        "nodeSelector.pool=a",
        "tolerations[0].operator=Exists",
        "tolerations[0].key=gpu",
        "priorityClassName=low",
        "seccompProfile.type=Localhost",
        "seccompProfile.localhostProfile=bpf.json",
    ];
    let objects = objects(&rendered(&helm, &values).expect("valid values"));
    let config = objects[1]["data"]["cgscope.toml"].as_str().expect("a file");
    for line in [
        "listen = \"0.0.0.0:9000\"",
        "tls_certificate = \"/etc/cgscope/tls.crt\"",
        "tls_key = \"/etc/cgscope/tls.key\"",
        "users = \"/etc/cgscope/users\"",
        "runtime = \"/run/k3s/containerd/containerd.sock\"",
    ] {
        assert!(config.lines().any(|there| there == line), "{line} is not in {config}");
    }
    let pod = &objects[2]["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    assert_eq!(container["image"], "registry.example/other@sha256:0a");
    assert_eq!(container["ports"][0]["containerPort"], 9000);
    assert_eq!(container["livenessProbe"]["httpGet"]["scheme"], "HTTPS");
    assert_eq!(container["startupProbe"]["httpGet"]["scheme"], "HTTPS");
    assert_eq!(container["resources"]["limits"]["memory"], "2Gi");
    let mounts = container["volumeMounts"].as_array().expect("mounts");
    assert!(mounts.iter().any(|mount| mount["mountPath"] == "/run/k3s/containerd"), "{mounts:?}");
    assert_eq!(pod["volumes"][0]["projected"]["sources"][1]["secret"]["name"], "tls");
    assert_eq!(pod["volumes"][0]["projected"]["sources"][2]["secret"]["name"], "users");
    assert_eq!(
        (&pod["imagePullSecrets"][0]["name"], &pod["nodeSelector"]["pool"]),
        (&"pull".into(), &"a".into())
    );
    assert_eq!((&pod["tolerations"][0]["key"], &pod["priorityClassName"]), (&"gpu".into(), &"low".into()));
    assert_eq!(pod["securityContext"]["seccompProfile"]["localhostProfile"], "bpf.json");

    let without = rendered(&helm, &["runtimeSocket="]).expect("a valid value");
    assert!(without.contains("runtime = \"\"\n") && !without.contains("name: runtime"), "{without}");
    let policy = [
        "metrics.networkPolicy.enabled=true",
        "metrics.networkPolicy.from[0].podSelector.matchLabels.app=prometheus",
    ];
    let policy = rendered(&helm, &policy).expect("valid values");
    let (_, policy) = policy.split_once("kind: NetworkPolicy\n").expect("a NetworkPolicy");
    for line in ["        - port: 9753", "            app: prometheus"] {
        assert!(policy.lines().any(|there| there.trim() == line.trim()), "{line:?} is not in {policy}");
    }
    let everybody = rendered(&helm, &["metrics.networkPolicy.enabled=true"]).expect_err("nobody is named");
    assert!(everybody.contains("would allow everybody"), "{everybody}");
    let monitor = [
        "metrics.podMonitor.enabled=true",
        "metrics.podMonitor.labels.release=a",
        "metrics.podMonitor.endpoint.scheme=https",
    ];
    let monitor = rendered(&helm, &monitor).expect("valid values");
    let (_, monitor) = monitor.split_once("kind: PodMonitor\n").expect("a PodMonitor");
    for line in [
        "    release: a",
        "    - port: metrics",
        "      scheme: https",
        "          targetLabel: instance",
        "        - action: labeldrop",
    ] {
        assert!(monitor.lines().any(|there| there == line), "{line:?} is not in {monitor}");
    }
}

#[test]
fn the_documented_command_renders_the_chart() {
    let Some(helm) = Readers::find().program("helm") else { return };
    let command = DOCS.lines().find_map(|line| line.strip_prefix("    helm install ")).expect("a command");
    // Run `template` with the same arguments instead of `install`, which needs a cluster.
    let words =
        command.split_whitespace().map(|word| if word == "deploy/kubernetes/chart" { CHART } else { word });
    let output = Command::new(&helm).arg("template").args(words).output().expect("helm runs");
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stdout(&output).contains("namespace: cgscope"), "{}", stdout(&output));
}

#[test]
fn the_chart_refuses_wrong_values() {
    let Some(helm) = Readers::find().program("helm") else { return };
    for (value, named) in [
        ("toleration=a", "toleration"),
        ("runtimeSocket=containerd", "runtimeSocket"),
        ("runtimeSocket=/socket", "runtimeSocket"),
        ("metrics.port=99999", "port"),
        ("image=", "image"),
    ] {
        let error = rendered(&helm, &[value]).expect_err(value);
        assert!(error.contains(named), "{value}: {error}");
    }
}
