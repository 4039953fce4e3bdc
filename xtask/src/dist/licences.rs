//! Lists the crates that are linked into the binary, with their licence texts. Most licences require this.
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::said;
use crate::failure::Failure;
use crate::steps;

const HEAD: &str = "\
cgscope is one static file. It also contains:

Rust's standard library (MIT OR Apache-2.0), the GNU C library (LGPL-2.1-or-later; to link another version of it, run
`cargo xtask build` in the sources), and these packages, whose sources are on crates.io:

";

/// Prefixes of the names of licence files.
const NAMES: [&str; 5] = ["licen", "copying", "notice", "copyright", "unlicense"];

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Package {
    name: String,
    version: String,
    /// An SPDX expression.
    licence: String,
}

/// The list of packages, then each licence text once with its packages.
pub(super) fn third_party() -> Result<String, Failure> {
    let mut packages = BTreeSet::new();
    for manifest in ["crates/cgscope/Cargo.toml", "ebpf/Cargo.toml"] {
        let mut tree = steps::cargo(&["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
        tree.args(["--format", "{p}|{l}", "--manifest-path"]).arg(steps::workspace().join(manifest));
        packages.extend(said(&mut tree)?.lines().filter_map(package));
    }
    let sources = registry_sources();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = HEAD.to_owned();
    for package in &packages {
        let Package { name, version, licence } = package;
        out += &format!("    {name} {version}: {licence}\n");
        for text in texts_of(&sources, package) {
            texts.entry(text).or_default().push(format!("{name} {version}"));
        }
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    for (text, of) in texts {
        out += &format!("\n{}\nof {}:\n\n{}\n", "-".repeat(79), of.join(", "), text.trim_end());
    }
    Ok(out)
}

/// Parses `anyhow v1.0.103|MIT OR Apache-2.0`. `None` for our own packages: their line contains a path.
fn package(line: &str) -> Option<Package> {
    let (id, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let id = id.trim_end_matches(" (proc-macro)");
    let (name, version) = id.split_once(" v")?;
    let is_ours = version.contains('(');
    (!is_ours).then(|| Package { name: name.into(), version: version.into(), licence: licence.into() })
}

/// The directories with the sources of packages that cargo unpacked.
fn registry_sources() -> Vec<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    let registries = fs::read_dir(cargo.join("registry/src")).into_iter().flatten().flatten();
    registries.map(|entry| entry.path()).collect()
}

fn texts_of(sources: &[PathBuf], package: &Package) -> Vec<String> {
    let directory = format!("{}-{}", package.name, package.version);
    let place = sources.iter().find_map(|source| fs::read_dir(source.join(&directory)).ok());
    let entries = place.into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| is_licence(path)).collect();
    files.sort();
    files.iter().filter_map(|path| fs::read_to_string(path).ok()).map(|text| text.replace('\r', "")).collect()
}

fn is_licence(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    path.is_file() && NAMES.iter().any(|beginning| name.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use super::package;

    #[test]
    fn third_party_packages_are_parsed_from_cargo_tree() {
        let found = package("anyhow v1.0.103|MIT OR Apache-2.0 (*)").expect("a package");
        assert_eq!(
            (&*found.name, &*found.version, &*found.licence),
            ("anyhow", "1.0.103", "MIT OR Apache-2.0")
        );
        let derive = package("serde_derive v1.0.2 (proc-macro)|MIT").expect("a package");
        assert_eq!(derive.version, "1.0.2");
    }

    #[test]
    fn our_own_packages_are_left_out() {
        assert_eq!(package("cgscope-model v0.1.0 (/somewhere/crates/model)|MIT OR Apache-2.0"), None);
        assert_eq!(package(""), None);
    }
}
