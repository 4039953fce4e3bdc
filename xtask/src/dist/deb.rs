//! Builds the Debian package from a directory tree with dpkg-deb. The package is too simple to need debhelper.
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Contents, architecture, read};
use crate::dist::Tree;
use crate::steps::{self, Failure, output};

/// The maintainer scripts, which dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The configuration file, which the administrator may change.
const CONFIGURATION: &str = "etc/cgscope/cgscope.toml";

pub(super) fn make(contents: &Contents) -> Result<PathBuf, Failure> {
    let debian = steps::workspace().join("deploy/debian");
    let tree = Tree::new(contents.place.join("deb"))?;
    put_files(contents, &tree, &debian)?;
    put_control(contents, &tree, &debian)?;
    let package = contents.place.join(format!("cgscope_{}_{}.deb", contents.version, architecture()));
    let mut dpkg = Command::new("dpkg-deb");
    dpkg.env("SOURCE_DATE_EPOCH", &contents.epoch).args(["--root-owner-group", "-Zxz", "--build"]);
    output(dpkg.arg(&tree.root).arg(&package))?;
    Ok(package)
}

fn put_files(contents: &Contents, tree: &Tree, debian: &Path) -> Result<(), Failure> {
    let usr = Tree::new(tree.root.join("usr"))?;
    contents.put_common(&usr, "/usr")?;
    usr.strip("bin/cgscope")?;
    let zsh = contents.pages.join("completions/_cgscope");
    usr.copy(&zsh, "share/zsh/vendor-completions/_cgscope", 0o644)?;
    for (page, to) in contents.manual()? {
        usr.put_compressed(&to, read(&page)?.as_bytes())?;
    }
    usr.copy(&debian.join("copyright"), "share/doc/cgscope/copyright", 0o644)?;
    usr.put_compressed("share/doc/cgscope/changelog", read(&debian.join("changelog"))?.as_bytes())?;
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
        .replace("@ARCHITECTURE@", architecture())
        .replace("@INSTALLED_KIB@", &kib.to_string());
    tree.put("DEBIAN/control", control.as_bytes(), 0o644)?;
    tree.put("DEBIAN/conffiles", format!("/{CONFIGURATION}\n").as_bytes(), 0o644)?;
    tree.put("DEBIAN/md5sums", sums.as_bytes(), 0o644)?;
    for script in SCRIPTS {
        tree.copy(&debian.join(script), &format!("DEBIAN/{script}"), 0o755)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_changelog_has_the_version_of_the_workspace() {
        let changelog = include_str!("../../../deploy/debian/changelog");
        let first = format!("cgscope ({}) ", env!("CARGO_PKG_VERSION"));
        assert!(changelog.starts_with(&first), "the first entry is not for {first}");
    }
}
