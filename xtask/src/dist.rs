//! Makes the packages in `target/dist`: a tarball of the static binary with its manual pages, an image for containers, and a Debian
//! package.
mod deb;
mod image;
mod licences;
mod tree;

use std::env::consts::ARCH;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::Failure;
use crate::{binary, steps};
use tree::Tree;

/// The output directory. Each run clears it.
const PLACE: &str = "target/dist";

/// Example files in `deploy/` for monitoring many hosts.
const EXAMPLES: [&str; 17] = [
    "grafana/cgscope.json",
    "kubernetes/Containerfile",
    "kubernetes/access.yaml",
    "kubernetes/chart/Chart.yaml",
    "kubernetes/chart/templates/configmap.yaml",
    "kubernetes/chart/templates/daemonset.yaml",
    "kubernetes/chart/templates/namespace.yaml",
    "kubernetes/chart/templates/networkpolicy.yaml",
    "kubernetes/chart/templates/podmonitor.yaml",
    "kubernetes/chart/templates/serviceaccount.yaml",
    "kubernetes/chart/values.schema.json",
    "kubernetes/chart/values.yaml",
    "kubernetes/daemonset.yaml",
    "kubernetes/kubectl-cgscope",
    "prometheus/cgscope.rules.yml",
    "prometheus/scrape-kubernetes.yml",
    "prometheus/scrape.yml",
];

/// The plugin for kubectl, the only program among the examples.
const PLUGIN: &str = "kubernetes/kubectl-cgscope";

/// `cargo xtask dist`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let binary = match arguments {
        [] => binary::build()?,
        [built] if built == "--built" => binary::built()?,
        [word, ..] => {
            return Err(Failure::Usage(format!(
                "unknown argument `{word}` of `dist`, which takes only `--built`"
            )));
        }
    };
    make(&binary).map(drop)
}

/// Makes the packages of a binary and prints their names on standard error. Returns the Debian package.
pub(crate) fn make(binary: &Path) -> Result<PathBuf, Failure> {
    let place = steps::workspace().join(PLACE);
    let contents = Contents::gather(&place, binary)?;
    let packages = [contents.tarball()?, image::make(&contents)?, deb::make(&contents)?];
    for package in &packages {
        eprintln!("dist: {}", package.display());
    }
    let [.., deb] = packages;
    Ok(deb)
}

/// The contents that all packages share.
struct Contents {
    /// The output directory.
    place: PathBuf,
    binary: PathBuf,
    version: String,
    /// Directory of the manual pages and shell completions that the binary wrote.
    pages: PathBuf,
    /// The licences of the crates in the binary.
    third_party: String,
    /// Time of the latest commit, in seconds since 1970. It makes packages of the same sources and binary identical.
    epoch: String,
}

impl Contents {
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
            // Without a git history, use the time of the binary.
            epoch: epoch.map_or_else(|_| modified(binary), |text| text.trim().to_owned()),
        })
    }

    /// Writes the common files into `tree`, which is installed at `prefix`.
    fn put_common(&self, tree: &Tree, prefix: &str) -> Result<(), Failure> {
        let (completions, deploy) = (self.pages.join("completions"), steps::workspace().join("deploy"));
        tree.copy(&self.binary, "bin/cgscope", 0o755)?;
        let service = read(&deploy.join("systemd/cgscope.service"))?;
        let service = service.replace("/usr/bin/cgscope", &format!("{prefix}/bin/cgscope"));
        tree.put("lib/systemd/system/cgscope.service", service.as_bytes(), 0o644)?;
        for (from, to) in [
            (completions.join("cgscope.bash"), "share/bash-completion/completions/cgscope"),
            (completions.join("cgscope.fish"), "share/fish/vendor_completions.d/cgscope.fish"),
            (deploy.join("systemd/cgscope.socket"), "lib/systemd/system/cgscope.socket"),
            (deploy.join("systemd/cgscope.sysusers"), "lib/sysusers.d/cgscope.conf"),
        ] {
            tree.copy(&from, to, 0o644)?;
        }
        for example in EXAMPLES {
            let mode = if example == PLUGIN { 0o755 } else { 0o644 };
            tree.copy(&deploy.join(example), &format!("share/doc/cgscope/examples/{example}"), mode)?;
        }
        Ok(())
    }

    /// The manual pages, each with its path below the prefix.
    fn manual(&self) -> Result<Vec<(PathBuf, String)>, Failure> {
        let place = self.pages.join("man");
        let entries = fs::read_dir(&place).map_err(|why| cannot_read(&place, &why))?;
        let pages = entries
            .flatten()
            .map(|entry| (entry.path(), format!("share/man/man1/{}", entry.file_name().to_string_lossy())));
        Ok(pages.collect())
    }

    /// Makes the tarball. `tar -C /usr/local --strip-components=1 -xf` installs it.
    fn tarball(&self) -> Result<PathBuf, Failure> {
        let name = format!("cgscope-{}-{ARCH}-linux", self.version);
        let tree = Tree::new(self.place.join("tarball").join(&name))?;
        self.put_common(&tree, "/usr/local")?;
        let zsh = self.pages.join("completions/_cgscope");
        tree.copy(&zsh, "share/zsh/site-functions/_cgscope", 0o644)?;
        for (page, to) in self.manual()? {
            tree.copy(&page, &to, 0o644)?;
        }
        let workspace = steps::workspace();
        for file in ["README.md", "LICENSE-MIT", "LICENSE-APACHE"] {
            tree.copy(&workspace.join(file), &format!("share/doc/cgscope/{file}"), 0o644)?;
        }
        tree.put("share/doc/cgscope/THIRD-PARTY", self.third_party.as_bytes(), 0o644)?;
        let configuration = workspace.join("deploy/cgscope.toml");
        tree.copy(&configuration, "share/doc/cgscope/examples/cgscope.toml", 0o644)?;
        let archive = self.place.join(format!("{name}.tar.gz"));
        let mut tar = tar(&self.place.join("tarball"), &self.epoch);
        tar.args(["--use-compress-program=gzip -9n", "-cf"]).arg(&archive).arg(&name);
        said(&mut tar)?;
        Ok(archive)
    }
}

/// A command to archive files of a directory. The archive depends only on their names, modes and contents. `epoch`: the time of
/// all files, in seconds since 1970.
pub(crate) fn tar(directory: &Path, epoch: &str) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(directory);
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    tar.arg(format!("--mtime=@{epoch}"));
    tar
}

fn modified(path: &Path) -> String {
    let time = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = time.and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0, |since| since.as_secs()).to_string()
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|why| cannot_read(path, &why))
}

/// Runs a command and returns its standard output.
fn said(command: &mut Command) -> Result<String, Failure> {
    let output = command.output().map_err(|why| steps::did_not_start(command, &why))?;
    if !output.status.success() {
        return Err(Failure::Step(format!(
            "dist: `{command:?}` failed ({}), so no package was made: {}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        )));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn cannot_write(path: &Path, why: &io::Error) -> Failure {
    Failure::Host(format!("dist: cannot write {}: {why}; no package was made", path.display()))
}

fn cannot_read(path: &Path, why: &io::Error) -> Failure {
    Failure::Host(format!("dist: cannot read {}: {why}; no package was made", path.display()))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{EXAMPLES, said};
    use crate::steps;

    #[test]
    fn the_packages_have_all_files_for_kubernetes() {
        let mut git = Command::new("git");
        let listed =
            said(git.current_dir(steps::workspace().join("deploy")).args(["ls-files", "kubernetes"]));
        let listed = listed.expect("a git checkout");
        let examples = EXAMPLES.into_iter().filter(|example| example.starts_with("kubernetes/"));
        assert_eq!(listed.lines().collect::<Vec<_>>(), examples.collect::<Vec<_>>());
    }
}
