//! The Debian package, by dpkg-deb from a tree: there is nothing in it that debhelper would have to find out.
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::tree::Tree;
use super::{Made, debian_architecture, read, said};
use crate::failure::Failure;
use crate::root::is_on_path;
use crate::steps;

/// What dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// What the administrator may change.
const CONFIGURATION: &str = "etc/cgscope/cgscope.toml";

/// Makes it, and says where it is.
pub(super) fn make(made: &Made) -> Result<PathBuf, Failure> {
    if !is_on_path("dpkg-deb") {
        return Err(Failure::Host(
            "dist: dpkg-deb is not here, so the Debian package is not made (the tarball is); install dpkg"
                .to_owned(),
        ));
    }
    let debian = steps::workspace().join("deploy/debian");
    let changelog = read(&debian.join("changelog"))?;
    let version = latest_version(&changelog).unwrap_or_default();
    if version != made.version {
        return Err(Failure::Step(format!(
            "dist: the latest entry of deploy/debian/changelog is of version {version:?} and the binary of {:?}, so the \
             package would be called wrong; add an entry",
            made.version
        )));
    }
    let tree = Tree::new(made.place.join("deb"))?;
    put_files(made, &tree, &debian, &changelog)?;
    put_control(made, &tree, &debian)?;
    let package = made.place.join(format!("cgscope_{}_{}.deb", made.version, debian_architecture()?));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", &made.epoch).args(["--root-owner-group", "-Zxz", "--build"]);
    said(dpkg.arg(tree.root()).arg(&package))?;
    Ok(package)
}

fn put_files(made: &Made, tree: &Tree, debian: &Path, changelog: &str) -> Result<(), Failure> {
    made.put_common(tree, "usr", "/usr")?;
    // Names of functions are of no use to users of a package, and half of its size.
    said(
        Command::new("strip")
            .args(["--strip-all", "--remove-section=.comment"])
            .arg(tree.root().join("usr/bin/cgscope")),
    )?;
    let zsh = made.pages.join("completions/_cgscope");
    tree.copy(&zsh, "usr/share/zsh/vendor-completions/_cgscope", 0o644)?;
    for page in made.manual()? {
        let file = page.file_name().unwrap_or_default().to_string_lossy();
        tree.put_compressed(&format!("usr/share/man/man1/{file}"), read(&page)?.as_bytes())?;
    }
    let doc = |name: &str| format!("usr/share/doc/cgscope/{name}");
    tree.copy(&debian.join("copyright"), &doc("copyright"), 0o644)?;
    tree.put_compressed(&doc("changelog"), changelog.as_bytes())?;
    tree.put_compressed(&doc("THIRD-PARTY"), made.third_party.as_bytes())?;
    tree.copy(&debian.join("lintian-overrides"), "usr/share/lintian/overrides/cgscope", 0o644)?;
    tree.copy(&debian.join("../cgscope.toml"), CONFIGURATION, 0o644).map(drop)
}

/// What dpkg reads; last, as it counts the files.
fn put_control(made: &Made, tree: &Tree, debian: &Path) -> Result<(), Failure> {
    let files = tree.files()?;
    let mut sums = Command::new("md5sum");
    sums.current_dir(tree.root()).args(files.iter().filter(|file| *file != Path::new(CONFIGURATION)));
    let sums = said(&mut sums)?;
    let bytes = |file: &PathBuf| fs::metadata(tree.root().join(file)).map_or(0, |metadata| metadata.len());
    let kib: u64 = files.iter().map(|file| bytes(file).div_ceil(1024)).sum();
    let control = read(&debian.join("control"))?
        .replace("@VERSION@", &made.version)
        .replace("@ARCHITECTURE@", debian_architecture()?)
        .replace("@INSTALLED_KIB@", &kib.to_string());
    tree.put("DEBIAN/control", control.as_bytes(), 0o644)?;
    tree.put("DEBIAN/conffiles", format!("/{CONFIGURATION}\n").as_bytes(), 0o644)?;
    tree.put("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        tree.copy(&debian.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    Ok(())
}

/// The version in the first line of a changelog: `cgscope (0.1.0) unstable; urgency=medium`.
fn latest_version(changelog: &str) -> Option<&str> {
    let (_, rest) = changelog.lines().next()?.split_once('(')?;
    Some(rest.split_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use super::latest_version;

    #[test]
    fn the_changelog_is_of_the_version_of_the_workspace() {
        let manifest = include_str!("../../../Cargo.toml");
        let package = manifest.split("[workspace.package]").nth(1).expect("the workspace's package");
        let version = package.lines().find_map(|line| line.strip_prefix("version = ")).expect("a version");
        let changelog = include_str!("../../../deploy/debian/changelog");
        assert_eq!(latest_version(changelog), Some(version.trim_matches('"')));
    }

    #[test]
    fn what_is_no_changelog_has_no_version() {
        assert_eq!(latest_version(""), None);
        assert_eq!(latest_version("cgscope 0.1.0\n"), None);
    }
}
