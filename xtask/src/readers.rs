//! Installs the programs with which tests read exports and manifests. Pinned versions are installed into the user's cache.
use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use crate::lab;
use crate::setup::{self, cache, installed};
use crate::steps::{self, Failure, find};

/// The environment variable through which tests receive the directory of these programs.
const VARIABLE: &str = "CGSCOPE_READERS";
/// The environment variable that lets tests pass if these programs are missing.
const WITHOUT: &str = "CGSCOPE_TEST_WITHOUT_READERS";

const JAR: &str = "HdrHistogram.jar";
const HDR: &str = "org.hdrhistogram:HdrHistogram:2.2.2";
/// The goal of Maven that copies one artifact without a project.
const MAVEN_COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy";

/// Python packages. DuckDB reads the tables. The other packages contain Perfetto's protobuf messages and the schemas of
/// Kubernetes.
const PYTHON_PACKAGES: [&str; 4] =
    ["duckdb==2.0.0", "perfetto==0.59.1", "protobuf==7.36.2", "kubernetes-validate==1.37.0"];

/// Programs and their Debian packages.
const PROGRAMS: [(&str, &str); 4] =
    [("java", "default-jre-headless"), ("mvn", "maven"), ("python3", "python3-venv"), ("go", "golang-go")];

pub(crate) fn run() -> Result<(), Failure> {
    let place = cache("readers")?;
    ensure_in(&place, true)?;
    eprintln!("readers: all programs are installed in {}", place.display());
    Ok(())
}

/// Returns the environment variables for the tests. Downloads missing container runtimes. If readers are missing, prints their
/// names. Then the tests use only our own libraries.
pub(crate) fn for_tests(with_long: bool) -> Result<Vec<(&'static str, PathBuf)>, Failure> {
    let place = cache("readers")?;
    let mut variables = vec![(VARIABLE, place.clone()), (RUNTIMES_VARIABLE, runtimes()?)];
    if let Err(failure) = ensure_in(&place, with_long) {
        eprintln!(
            "{failure}; the tests use only cgscope's own libraries for exports that need a missing program ({WITHOUT}=1)"
        );
        variables.push((WITHOUT, "1".into()));
    }
    Ok(variables)
}

fn ensure_in(place: &Path, with_long: bool) -> Result<(), Failure> {
    let missing = PROGRAMS.iter().filter(|(program, _)| find(program).is_none());
    let missing: Vec<&str> = missing.map(|(_, package)| *package).collect();
    if !missing.is_empty() {
        setup::ensure(&missing)?;
    }
    fs::create_dir_all(place).map_err(|why| steps::cannot("write", place, &why))?;
    // If an installation fails, the others are still tried, because only one registry may be unreachable.
    let results = [
        installed(&place.join(JAR), HDR, || hdr(place)),
        installed(&place.join("python"), &PYTHON_PACKAGES.join(" "), || python(&place.join("python"))),
        if with_long { ensure_kubernetes(place) } else { Ok(()) },
    ];
    results.into_iter().collect()
}

fn hdr(place: &Path) -> Result<(), Failure> {
    let mut maven = Command::new("mvn");
    maven.args(["--batch-mode", "--quiet", MAVEN_COPY, "-Dmdep.stripVersion=true"]);
    maven.arg(format!("-Dartifact={HDR}")).arg(format!("-DoutputDirectory={}", place.display()));
    setup::run(&mut maven, HDR)
}

fn python(environment: &Path) -> Result<(), Failure> {
    let mut venv = Command::new("python3");
    setup::run(venv.args(["-m", "venv", "--clear"]).arg(environment), "a Python environment")?;
    let mut pip = Command::new(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:"]).args(PYTHON_PACKAGES);
    setup::run(&mut pip, &PYTHON_PACKAGES.join(", "))
}

const HELM: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";
/// The version of Kubernetes. The modules of Kubernetes have the same version, but with the major version 0.
const KUBERNETES: &str = "1.34.4";
/// The Debian package of etcd, where the API server stores objects. The package is only unpacked, because its installation would
/// start a service.
const ETCD: &str = "etcd-server/bookworm";

/// Parts of Kubernetes that are separate Go modules. The main module refers to them by a path in its repository. Only a module
/// that replaces them can build Kubernetes.
const KUBERNETES_PARTS: &str = "api apiextensions-apiserver apimachinery apiserver cli-runtime client-go \
    cloud-provider cluster-bootstrap code-generator component-base component-helpers controller-manager cri-api \
    cri-client csi-translation-lib dynamic-resource-allocation endpointslice externaljwt kms kube-aggregator \
    kube-controller-manager kube-proxy kube-scheduler kubectl kubelet metrics mount-utils pod-security-admission \
    sample-apiserver sample-cli-plugin sample-controller";

fn ensure_kubernetes(place: &Path) -> Result<(), Failure> {
    installed(&place.join("helm"), HELM, || {
        let mut go = go(place);
        setup::run(go.env("GOBIN", place).args(["install", "-ldflags=-s -w", HELM]), HELM)
    })?;
    installed(&place.join("kube-apiserver"), KUBERNETES, || api_server(place))?;
    installed(&place.join("etcd"), ETCD, || {
        lab::Apt::new(lab::Arch::of_this_machine())?.unpack(ETCD, &place.join("etcd"))
    })?;
    // Go stores gigabytes of sources and objects, which are useless after the build.
    let _ = fs::remove_dir_all(place.join("go"));
    Ok(())
}

fn api_server(place: &Path) -> Result<(), Failure> {
    let scratch = place.join("go/kubernetes");
    steps::write(&scratch.join("go.mod"), kubernetes_module())?;
    let version = "-X k8s.io/component-base/version";
    let flags = format!(
        "-ldflags=-s -w {version}.gitVersion=v{KUBERNETES} {version}.gitMajor=1 {version}.gitMinor=34"
    );
    let mut go = go(place);
    go.args(["build", "-C"]).arg(&scratch).args(["-mod=mod", &flags, "-o"]).arg(place);
    setup::run(
        go.args(["kube-apiserver", "kubectl"].map(|name| format!("k8s.io/kubernetes/cmd/{name}"))),
        "Kubernetes",
    )
}

fn kubernetes_module() -> String {
    let part = |name: &str| format!("\tk8s.io/{name} => k8s.io/{name} v0{}\n", &KUBERNETES[1..]);
    let parts: String = KUBERNETES_PARTS.split(' ').map(part).collect();
    format!("module build\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v{KUBERNETES}\n\nreplace (\n{parts})\n")
}

/// Returns a command that runs Go. Go stores its files in our own directory.
fn go(place: &Path) -> Command {
    let mut go = Command::new(find("go").unwrap_or_else(|| "go".into()));
    go.env("CGO_ENABLED", "0").env("GOFLAGS", "-modcacherw");
    go.env("GOPATH", place.join("go/path")).env("GOCACHE", place.join("go/cache"));
    go
}

/// The environment variable through which tests receive the directory of the runtimes.
const RUNTIMES_VARIABLE: &str = "CGSCOPE_RUNTIMES";
/// The Debian release from which the runtimes come. The tests rely on the options of these versions.
const RUNTIMES_SUITE: &str = "bookworm";
/// The runtimes, the programs that the runtimes start, and libraries that a machine may lack.
const RUNTIMES: &str = "containerd runc docker.io podman conmon catatonit uidmap libassuan0 libdevmapper1.02.1 \
    libgpgme11 libseccomp2 libsubid4";

fn runtimes() -> Result<PathBuf, Failure> {
    let place = cache("runtimes")?.join("root");
    installed(&place, &format!("{RUNTIMES} of {RUNTIMES_SUITE}"), || {
        let _ = fs::remove_dir_all(&place);
        let apt = lab::Apt::new(lab::Arch::of_this_machine())?;
        RUNTIMES.split(' ').try_for_each(|name| apt.unpack(&format!("{name}/{RUNTIMES_SUITE}"), &place))
    })?;
    Ok(place)
}
