//! Helm and a Kubernetes API server, for tests that take minutes: Go compiles them for minutes.
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{PROGRAMS, cannot_write, carry_out, installed};
use crate::failure::Failure;
use crate::lab;

const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";
/// The version of Kubernetes. Its parts have the same version, with the major version 0.
const KUBERNETES: &str = "1.34.4";
/// Where the API server stores objects. Debian's package is not installed, because it would start a service.
const ETCD: &str = "etcd-server/bookworm";

/// Parts of Kubernetes that are modules of their own. The main module names them by a path inside its repository, which only a
/// module that replaces them can build.
const PARTS: &[&str] = &[
    "api",
    "apiextensions-apiserver",
    "apimachinery",
    "apiserver",
    "cli-runtime",
    "client-go",
    "cloud-provider",
    "cluster-bootstrap",
    "code-generator",
    "component-base",
    "component-helpers",
    "controller-manager",
    "cri-api",
    "cri-client",
    "csi-translation-lib",
    "dynamic-resource-allocation",
    "endpointslice",
    "externaljwt",
    "kms",
    "kube-aggregator",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "kubectl",
    "kubelet",
    "metrics",
    "mount-utils",
    "pod-security-admission",
    "sample-apiserver",
    "sample-cli-plugin",
    "sample-controller",
];

pub(super) fn ensure_in(place: &Path) -> Result<(), Failure> {
    installed(&place.join("helm"), HELM, || {
        let mut go = go(place);
        carry_out(go.env("GOBIN", place).args(["install", "-ldflags=-s -w", HELM]), HELM)
    })?;
    installed(&place.join("kube-apiserver"), KUBERNETES, || api_server(place))?;
    installed(&place.join("etcd"), ETCD, || lab::archive()?.unpack(ETCD, &place.join("etcd")))?;
    // Go needs gigabytes for sources and objects, which nothing uses afterwards.
    let _ = fs::remove_dir_all(place.join("go"));
    Ok(())
}

/// Builds the API server and the kubectl of the same version.
fn api_server(place: &Path) -> Result<(), Failure> {
    let scratch = place.join("go/kubernetes");
    let file = scratch.join("go.mod");
    fs::create_dir_all(&scratch)
        .and_then(|()| fs::write(&file, module()))
        .map_err(|why| cannot_write(&file, &why))?;
    let version = "-X k8s.io/component-base/version";
    let flags = format!(
        "-ldflags=-s -w {version}.gitVersion=v{KUBERNETES} {version}.gitMajor=1 {version}.gitMinor=34"
    );
    let mut go = go(place);
    go.args(["build", "-C"]).arg(&scratch).args(["-mod=mod", &flags, "-o"]).arg(place);
    carry_out(
        go.args(["kube-apiserver", "kubectl"].map(|name| format!("k8s.io/kubernetes/cmd/{name}"))),
        "Kubernetes",
    )
}

/// A module that builds Kubernetes.
fn module() -> String {
    let part = |name: &&str| format!("\tk8s.io/{name} => k8s.io/{name} v0{}\n", &KUBERNETES[1..]);
    let parts: String = PARTS.iter().map(part).collect();
    format!("module build\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v{KUBERNETES}\n\nreplace (\n{parts})\n")
}

/// Go, with its files in a directory of ours.
fn go(place: &Path) -> Command {
    let path = env::var_os("PATH").unwrap_or_default();
    let beside =
        PROGRAMS.iter().map(|(_, beside, _)| PathBuf::from(beside)).filter(|path| path.is_absolute());
    let path = env::join_paths(env::split_paths(&path).chain(beside)).unwrap_or(path);
    let mut go = Command::new("go");
    go.env("PATH", path).env("CGO_ENABLED", "0").env("GOFLAGS", "-modcacherw");
    go.env("GOPATH", place.join("go/path")).env("GOCACHE", place.join("go/cache"));
    go
}
