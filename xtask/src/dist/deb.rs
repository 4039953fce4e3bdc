//! Builds the Debian package from a directory tree with dpkg-deb. The package is too simple to need debhelper.
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Contents, architecture, read};
use crate::dist::Tree;
use crate::steps::{self, Failure, is_on_path, output};

/// The maintainer scripts, which dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The configuration file, which the administrator may change.
const CONFIGURATION: &str = "etc/cgscope/cgscope.toml";

pub(super) fn make(contents: &Contents) -> Result<PathBuf, Failure> {
    if !is_on_path("dpkg-deb") {
        return Err(Failure::Host(
            "dist: cannot find dpkg-deb, so only the tarball was made; for the Debian package, install dpkg"
                .into(),
        ));
    }
    let debian = steps::workspace().join("deploy/debian");
    let changelog = read(&debian.join("changelog"))?;
    let version = latest_version(&changelog).unwrap_or_default();
    if version != contents.version {
        return Err(Failure::Step(format!(
            "dist: the latest entry in deploy/debian/changelog has version {version:?}, but the binary has {:?}; add an \
             entry for the binary's version",
            contents.version
        )));
    }
    let tree = Tree::new(contents.place.join("deb"))?;
    put_files(contents, &tree, &debian, &changelog)?;
    put_control(contents, &tree, &debian)?;
    let package = contents.place.join(format!("cgscope_{version}_{}.deb", architecture()?));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", &contents.epoch).args(["--root-owner-group", "-Zxz", "--build"]);
    output(dpkg.arg(&tree.root).arg(&package))?;
    Ok(package)
}

fn put_files(contents: &Contents, tree: &Tree, debian: &Path, changelog: &str) -> Result<(), Failure> {
    let usr = Tree::new(tree.root.join("usr"))?;
    contents.put_common(&usr, "/usr")?;
    usr.strip("bin/cgscope")?;
    let zsh = contents.pages.join("completions/_cgscope");
    usr.copy(&zsh, "share/zsh/vendor-completions/_cgscope", 0o644)?;
    for (page, to) in contents.manual()? {
        usr.put_compressed(&to, read(&page)?.as_bytes())?;
    }
    usr.copy(&debian.join("copyright"), "share/doc/cgscope/copyright", 0o644)?;
    usr.put_compressed("share/doc/cgscope/changelog", changelog.as_bytes())?;
    usr.put_compressed("share/doc/cgscope/THIRD-PARTY", contents.third_party.as_bytes())?;
    usr.copy(&debian.join("lintian-overrides"), "share/lintian/overrides/cgscope", 0o644)?;
    tree.copy(&debian.join("../cgscope.toml"), CONFIGURATION, 0o644)
}

/// Writes the files that dpkg reads. Call this function last, because these files contain the sizes and checksums of all other
/// files.
fn put_control(contents: &Contents, tree: &Tree, debian: &Path) -> Result<(), Failure> {
    let mut find = Command::new("find");
    let found = output(find.current_dir(&tree.root).args(["-type", "f", "-printf", "%P %s\n"]))?;
    let mut files: Vec<(&str, &str)> = found.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    files.sort_by(|(a, _), (b, _)| Path::new(a).cmp(Path::new(b)));
    let names = files.iter().map(|(name, _)| name).filter(|name| **name != CONFIGURATION);
    let sums = output(Command::new("md5sum").current_dir(&tree.root).args(names))?;
    let kib: u64 =
        files.iter().filter_map(|(_, bytes)| Some(bytes.parse::<u64>().ok()?.div_ceil(1024))).sum();
    let control = read(&debian.join("control"))?
        .replace("@VERSION@", &contents.version)
        .replace("@ARCHITECTURE@", architecture()?)
        .replace("@INSTALLED_KIB@", &kib.to_string());
    tree.put("DEBIAN/control", control.as_bytes(), 0o644)?;
    tree.put("DEBIAN/conffiles", format!("/{CONFIGURATION}\n").as_bytes(), 0o644)?;
    tree.put("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        tree.copy(&debian.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    Ok(())
}

/// Returns the version in the first line of a changelog: `cgscope (0.1.0) unstable; urgency=medium`.
fn latest_version(changelog: &str) -> Option<&str> {
    let (_, rest) = changelog.lines().next()?.split_once('(')?;
    Some(rest.split_once(')')?.0)
}

#[cfg(test)]
mod tests {
    use super::latest_version;

    #[test]
    fn the_changelog_has_the_version_of_the_workspace() {
        let manifest = include_str!("../../../Cargo.toml");
        let package = manifest.split("[workspace.package]").nth(1).expect("the workspace's package");
        let version = package.lines().find_map(|line| line.strip_prefix("version = ")).expect("a version");
        let changelog = include_str!("../../../deploy/debian/changelog");
        assert_eq!(latest_version(changelog), Some(version.trim_matches('"')));
    }

    #[test]
    fn text_without_a_changelog_entry_has_no_version() {
        assert_eq!(latest_version(""), None);
        assert_eq!(latest_version("cgscope 0.1.0\n"), None);
    }
}
