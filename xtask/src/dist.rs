//! Packages: a tarball of the static binary with its pages, and a Debian package, in `target/dist`.
mod deb;
mod licences;
mod tarball;
mod tree;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::binary;
use crate::failure::Failure;
use crate::steps;
use tree::Tree;

/// What packages are made in; made anew by each run.
const PLACE: &str = "target/dist";

/// What Debian calls the machines of [`std::env::consts::ARCH`].
const DEBIAN_NAMES: [(&str, &str); 2] = [("x86_64", "amd64"), ("aarch64", "arm64")];

/// `cargo xtask dist`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let binary = match arguments {
        [] => binary::build()?,
        [built] if built == "--built" => binary::built()?,
        [word, ..] => {
            return Err(Failure::Usage(format!("`dist` takes `--built` or nothing, so not `{word}`")));
        }
    };
    make(&binary)
}

/// Makes the packages of a binary that is built; each is named on standard error.
pub(crate) fn make(binary: &Path) -> Result<(), Failure> {
    let place = steps::workspace().join(PLACE);
    let made = Made::gather(&place, binary)?;
    for package in [tarball::make(&made)?, deb::make(&made)?] {
        eprintln!("dist: {}", package.display());
    }
    Ok(())
}

/// What all packages are made of.
struct Made {
    /// Where packages are put.
    place: PathBuf,
    binary: PathBuf,
    /// As the binary says it.
    version: String,
    /// Manual pages and completions, as the binary wrote them.
    pages: PathBuf,
    /// What is linked into the binary, with its licences.
    third_party: String,
    /// Seconds since 1970 of the latest commit: packages of the same sources and binary are the same files.
    epoch: String,
}

impl Made {
    fn gather(place: &Path, binary: &Path) -> Result<Self, Failure> {
        if place.exists() {
            fs::remove_dir_all(place).map_err(|why| cannot_write(place, &why))?;
        }
        fs::create_dir_all(place).map_err(|why| cannot_write(place, &why))?;
        let version = said(Command::new(binary).arg("--version"))?;
        let version = version.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let pages = place.join("pages");
        said(Command::new(binary).arg("packaging").arg(&pages))?;
        let mut git = Command::new("git");
        let epoch = said(git.current_dir(steps::workspace()).args(["log", "-1", "--format=%ct"]));
        Ok(Self {
            place: place.to_owned(),
            binary: binary.to_owned(),
            version,
            pages,
            third_party: licences::third_party()?,
            // Sources without their history: the time of the binary.
            epoch: epoch.map_or_else(|_| modified(binary), |text| text.trim().to_owned()),
        })
    }

    /// Puts what every package has below `prefix` (`usr`, or nothing), for a system where that is `installed`.
    fn put_common(&self, tree: &Tree, prefix: &str, installed: &str) -> Result<(), Failure> {
        let at = |path: &str| if prefix.is_empty() { path.to_owned() } else { format!("{prefix}/{path}") };
        tree.copy(&self.binary, &at("bin/cgscope"), 0o755)?;
        let completions = self.pages.join("completions");
        tree.copy(
            &completions.join("cgscope.bash"),
            &at("share/bash-completion/completions/cgscope"),
            0o644,
        )?;
        tree.copy(
            &completions.join("cgscope.fish"),
            &at("share/fish/vendor_completions.d/cgscope.fish"),
            0o644,
        )?;
        let deploy = steps::workspace().join("deploy");
        let service = read(&deploy.join("systemd/cgscope.service"))?;
        let service = service.replace("/usr/bin/cgscope", &format!("{installed}/bin/cgscope"));
        tree.put(&at("lib/systemd/system/cgscope.service"), service.as_bytes(), 0o644)?;
        let system = [
            ("systemd/cgscope.socket", "lib/systemd/system/cgscope.socket"),
            ("systemd/cgscope.sysusers", "lib/sysusers.d/cgscope.conf"),
        ];
        for (from, to) in system {
            tree.copy(&deploy.join(from), &at(to), 0o644)?;
        }
        for example in EXAMPLES {
            let to = at(&format!("share/doc/cgscope/examples/{example}"));
            tree.copy(&deploy.join(example), &to, 0o644)?;
        }
        Ok(())
    }

    /// The manual pages, by name.
    fn manual(&self) -> Result<Vec<PathBuf>, Failure> {
        let place = self.pages.join("man");
        let entries = fs::read_dir(&place).map_err(|why| cannot_read(&place, &why))?;
        let mut pages: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        pages.sort();
        Ok(pages)
    }
}

/// Below `deploy/`: what a fleet is watched with.
const EXAMPLES: [&str; 6] = [
    "grafana/cgscope.json",
    "kubernetes/Containerfile",
    "kubernetes/daemonset.yaml",
    "prometheus/cgscope.rules.yml",
    "prometheus/scrape-kubernetes.yml",
    "prometheus/scrape.yml",
];

/// What Debian calls this machine.
fn debian_architecture() -> Result<&'static str, Failure> {
    let here = std::env::consts::ARCH;
    let known = DEBIAN_NAMES.iter().find(|(arch, _)| *arch == here);
    known.map(|(_, name)| *name).ok_or_else(|| {
        Failure::Host(format!(
            "dist: Debian's name for {here} is not known here, so no package of it is made"
        ))
    })
}

fn modified(path: &Path) -> String {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs()).to_string()
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|why| cannot_read(path, &why))
}

/// Runs it and gives what it says on standard output.
fn said(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|why| steps::did_not_start(command, &why))?;
    if !output.status.success() {
        return Err(Failure::Step(format!(
            "dist: `{command:?}` failed ({}), so there is no package: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cannot_write(path: &Path, why: &io::Error) -> Failure {
    Failure::Host(format!("dist: {} cannot be written ({why}), so there is no package", path.display()))
}

fn cannot_read(path: &Path, why: &io::Error) -> Failure {
    Failure::Host(format!("dist: {} cannot be read ({why}), so there is no package", path.display()))
}
