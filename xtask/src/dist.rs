//! Makes the packages in `target/dist`: a tarball of the static binary with its manual, a container image, and a Debian package.

use std::collections::{BTreeMap, BTreeSet};
use std::env::{self, consts::ARCH};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use crate::steps::{self, Failure, output};

/// The output directory. Each run clears it.
const PLACE: &str = "target/dist";

/// Directories in `deploy/` with examples for monitoring many hosts.
const EXAMPLES: [&str; 3] = ["grafana", "kubernetes", "prometheus"];

/// Makes all packages of a binary, and prints their names on standard error. Returns the path of the Debian package.
pub(crate) fn make(binary: &Path) -> Result<PathBuf, Failure> {
    let place = steps::workspace().join(PLACE);
    let contents = Contents::gather(&place, binary)?;
    let packages = [contents.tarball()?, make_image(&contents)?, make_deb(&contents)?];
    for package in &packages {
        eprintln!("dist: {}", package.display());
    }
    let [.., deb] = packages;
    Ok(deb)
}

struct Contents {
    place: PathBuf,
    binary: PathBuf,
    version: String,
    /// The directory in which the binary has written manual pages and shell completions.
    pages: PathBuf,
    third_party: String,
    /// Time of the latest commit, seconds since 1970. It is the time of all files in packages. So the same sources and binary
    /// always produce identical packages.
    epoch: String,
}

impl Contents {
    fn gather(place: &Path, binary: &Path) -> Result<Self, Failure> {
        if place.exists() {
            fs::remove_dir_all(place).map_err(|why| steps::cannot("write", place, &why))?;
        }
        fs::create_dir_all(place).map_err(|why| steps::cannot("write", place, &why))?;
        let version = output(Command::new(binary).arg("--version"))?;
        let version = version.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let modified = || fs::metadata(binary).map_or(0, |metadata| metadata.mtime()).to_string();
        let pages = place.join("pages");
        output(Command::new(binary).arg("packaging").arg(&pages))?;
        Ok(Self {
            place: place.to_owned(),
            binary: binary.to_owned(),
            version,
            pages,
            third_party: third_party()?,
            // Without a git history, the time of the binary is used.
            epoch: steps::git(&["log", "-1", "--format=%ct"]).unwrap_or_else(modified),
        })
    }

    /// Writes the files that all packages have in common into `tree`. A package installs `tree` at `prefix`.
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
        let mut find = Command::new("find");
        find.current_dir(&deploy).args(EXAMPLES);
        let found = output(find.args(["-type", "f", "!", "-name", "*.test.yml", "-printf", "%m %p\n"]))?;
        for example in found.lines() {
            let (mode, example) = example.split_once(' ').unwrap_or_default();
            // The plugin for kubectl is executable.
            let mode = if mode.starts_with('7') { 0o755 } else { 0o644 };
            tree.copy(&deploy.join(example), &format!("share/doc/cgscope/examples/{example}"), mode)?;
        }
        Ok(())
    }

    /// Returns the manual pages, and for each page its path below the prefix.
    fn manual(&self) -> Result<Vec<(PathBuf, String)>, Failure> {
        let place = self.pages.join("man");
        let entries = fs::read_dir(&place).map_err(|why| steps::cannot("read", &place, &why))?.flatten();
        let to = |entry: &fs::DirEntry| format!("share/man/man1/{}", entry.file_name().display());
        Ok(entries.map(|entry| (entry.path(), to(&entry))).collect())
    }

    /// Makes the tarball. It can be installed with `tar -C /usr/local --strip-components=1 -xf`.
    fn tarball(&self) -> Result<PathBuf, Failure> {
        let name = format!("cgscope-{}-{ARCH}-linux", self.version);
        let tree = Tree::new(self.place.join("tarball").join(&name))?;
        self.put_common(&tree, "/usr/local")?;
        let zsh = self.pages.join("completions/_cgscope");
        tree.copy(&zsh, "share/zsh/site-functions/_cgscope", 0o644)?;
        self.manual()?.into_iter().try_for_each(|(page, to)| tree.copy(&page, &to, 0o644))?;
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
        output(&mut tar)?;
        Ok(archive)
    }
}

/// Returns a command that archives files of a directory. The archive depends only on their names, modes and contents, and on
/// `epoch`, the time of all files, seconds since 1970.
pub(crate) fn tar(directory: &Path, epoch: &str) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(directory);
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--format=ustar"]);
    tar.arg(format!("--mtime=@{epoch}"));
    tar
}

/// Returns the name of this architecture in Debian and in container images.
fn architecture() -> &'static str {
    match ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|why| steps::cannot("read", path, &why))
}

/// The root directory of the target system, or a directory in it.
pub(crate) struct Tree {
    pub(crate) root: PathBuf,
}

impl Tree {
    pub(crate) fn new(root: PathBuf) -> Result<Self, Failure> {
        fs::create_dir_all(&root).map_err(|why| steps::cannot("write", &root, &why))?;
        set_mode(&root, 0o755)?;
        Ok(Self { root })
    }

    /// Creates a directory and its ancestors. Everybody can read these directories, whatever the umask is.
    pub(crate) fn directory(&self, path: &Path) -> Result<(), Failure> {
        let mut directory = self.root.clone();
        for part in path {
            directory.push(part);
            if !directory.is_dir() {
                fs::create_dir(&directory).map_err(|why| steps::cannot("write", &directory, &why))?;
                set_mode(&directory, 0o755)?;
            }
        }
        Ok(())
    }

    pub(crate) fn put(&self, path: &str, content: &[u8], mode: u32) -> Result<(), Failure> {
        self.directory(Path::new(path).parent().unwrap_or(Path::new("")))?;
        let file = self.root.join(path);
        steps::write(&file, content)?;
        set_mode(&file, mode)
    }

    pub(crate) fn copy(&self, from: &Path, path: &str, mode: u32) -> Result<(), Failure> {
        let content = fs::read(from).map_err(|why| steps::cannot("read", from, &why))?;
        self.put(path, &content, mode)
    }

    /// Writes `PATH.gz`. The gzip header has no name and no time.
    pub(crate) fn put_compressed(&self, path: &str, content: &[u8]) -> Result<(), Failure> {
        self.put(path, content, 0o644)?;
        output(Command::new("gzip").args(["-9n"]).arg(self.root.join(path))).map(drop)
    }

    /// Removes the symbols from a program. Symbols are half of a package, and users do not need them.
    pub(crate) fn strip(&self, path: &str) -> Result<(), Failure> {
        let mut strip = Command::new("strip");
        strip.args(["--strip-all", "--remove-section=.comment"]);
        output(strip.arg(self.root.join(path))).map(drop)
    }

    pub(crate) fn link(&self, path: &str, to: &str) -> Result<(), Failure> {
        self.directory(Path::new(path).parent().unwrap_or(Path::new("")))?;
        let link = self.root.join(path);
        symlink(to, &link).map_err(|why| steps::cannot("write", &link, &why))
    }
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
        .map_err(|why| steps::cannot("write", path, &why))
}

const HEAD: &str = "\
cgscope is one static file. It also contains:

Rust's standard library (MIT OR Apache-2.0), the GNU C library (LGPL-2.1-or-later; to link another version of it, run
`cargo xtask build` in the sources), and these packages, whose sources are on crates.io:

";

/// Returns the list of packages, followed by each licence text with the packages that have this licence.
pub(crate) fn third_party() -> Result<String, Failure> {
    let mut packages = BTreeSet::new();
    for manifest in ["crates/cgscope/Cargo.toml", "ebpf/Cargo.toml"] {
        let mut tree = steps::cargo(&["tree", "--locked", "--edges", "normal", "--prefix", "none"]);
        tree.args(["--format", "{p}|{l}", "--manifest-path"]).arg(steps::workspace().join(manifest));
        packages.extend(output(&mut tree)?.lines().filter_map(package));
    }
    let sources = registry_sources();
    let mut texts: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut out = HEAD.to_owned();
    for (package, licence) in &packages {
        out += &format!("    {package}: {licence}\n");
        for text in texts_of(&sources, package) {
            texts.entry(text).or_default().push(package.clone());
        }
    }
    let mut texts: Vec<_> = texts.into_iter().collect();
    texts.sort_by(|a, b| a.1.cmp(&b.1));
    for (text, of) in texts {
        out += &format!("\n{}\nof {}:\n\n{}\n", "-".repeat(79), of.join(", "), text.trim_end());
    }
    Ok(out)
}

/// Parses `anyhow v1.0.103|MIT OR Apache-2.0` into the package `anyhow 1.0.103` and its licence, an SPDX expression. `None` for
/// our own packages, whose line contains a path.
fn package(line: &str) -> Option<(String, String)> {
    let (id, licence) = line.trim_end_matches(" (*)").split_once('|')?;
    let (name, version) = id.trim_end_matches(" (proc-macro)").split_once(" v")?;
    let is_ours = version.contains('(');
    (!is_ours).then(|| (format!("{name} {version}"), licence.to_owned()))
}

/// Returns the directories in which cargo unpacked the sources of packages.
fn registry_sources() -> Vec<PathBuf> {
    let home = || Some(PathBuf::from(env::var_os("HOME")?).join(".cargo"));
    let cargo = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).unwrap_or_default();
    let registries = fs::read_dir(cargo.join("registry/src")).into_iter().flatten().flatten();
    registries.map(|entry| entry.path()).collect()
}

/// Returns the licences in the sources of a package.
fn texts_of(sources: &[PathBuf], package: &str) -> Vec<String> {
    let directory = package.replace(' ', "-");
    let place = sources.iter().find_map(|source| fs::read_dir(source.join(&directory)).ok());
    let is_licence = |entry: &fs::DirEntry| {
        let name = entry.file_name().to_string_lossy().to_lowercase();
        ["licen", "copying", "notice", "copyright", "unlicense"].iter().any(|word| name.starts_with(word))
    };
    let entries = place.into_iter().flatten().flatten().filter(is_licence);
    let files: BTreeSet<PathBuf> = entries.map(|entry| entry.path()).collect();
    files.iter().filter_map(|path| fs::read_to_string(path).ok()).map(|text| text.replace('\r', "")).collect()
}

/// The maintainer scripts, which dpkg runs.
const SCRIPTS: [&str; 3] = ["postinst", "prerm", "postrm"];
/// The configuration file, which the administrator may change.
const CONFIGURATION: &str = "etc/cgscope/cgscope.toml";

/// Builds the Debian package from a directory tree with dpkg-deb. The package is too simple to need debhelper.
fn make_deb(contents: &Contents) -> Result<PathBuf, Failure> {
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

/// The user is 0, because only this user has the container's capabilities. The user is given as a number, because the image has
/// no list of users.
const CONFIG: &str = include_str!("dist/image/config.json");
const MANIFEST: &str = include_str!("dist/image/manifest.json");
/// podman and containerd read the name from the first annotation.
const INDEX: &str = include_str!("dist/image/index.json");
/// A second index, for `docker load`: Docker can read an OCI layout only since version 25.
const FOR_DOCKER: &str = include_str!("dist/image/docker.json");

/// A file in the archive. Other files refer to it by its digest, or by a descriptor with its digest and size.
struct Blob {
    sha256: String,
    descriptor: String,
}

/// Writes a container image that contains only the static binary. The image is an archive that container tools can load (an OCI
/// image layout). The format is too simple to need an image builder.
fn make_image(contents: &Contents) -> Result<PathBuf, Failure> {
    let archive = contents.place.join(format!("cgscope-{}-oci.tar", contents.version));
    let root = root(contents)?;
    let layout = Tree::new(contents.place.join("image/layout"))?;
    let (layer, diff) = layer(contents, &root, &layout)?;
    let mut date = Command::new("date");
    let created =
        output(date.args(["--utc", "--date", &format!("@{}", contents.epoch), "+%Y-%m-%dT%H:%M:%SZ"]))?;
    let fill = |template: &str, values: &[(&str, &str)]| {
        let common = [
            ("@VERSION@", contents.version.as_str()),
            ("@ARCHITECTURE@", architecture()),
            ("@CREATED@", created.trim()),
        ];
        let values = common.iter().chain(values);
        values.fold(template.to_owned(), |text, (name, value)| text.replace(name, value))
    };
    let config = put_text(&layout, &fill(CONFIG, &[("@DIFF@", &diff)]))?;
    let descriptors = [("@CONFIG@", &*config.descriptor), ("@LAYER@", &layer.descriptor)];
    let manifest = put_text(&layout, &fill(MANIFEST, &descriptors))?;
    for (file, text) in [
        ("oci-layout", "{\"imageLayoutVersion\": \"1.0.0\"}\n".to_owned()),
        ("index.json", fill(INDEX, &[("@MANIFEST@", &manifest.descriptor)])),
        ("manifest.json", fill(FOR_DOCKER, &[("@CONFIG@", &config.sha256), ("@LAYER@", &layer.sha256)])),
    ] {
        layout.put(file, text.as_bytes(), 0o644)?;
    }
    let mut tar = tar(&layout.root, &contents.epoch);
    output(tar.arg("-cf").arg(&archive).args(["oci-layout", "index.json", "manifest.json", "blobs"]))?;
    Ok(archive)
}

fn root(contents: &Contents) -> Result<Tree, Failure> {
    let root = Tree::new(contents.place.join("image/root"))?;
    root.copy(&contents.binary, "usr/bin/cgscope", 0o755)?;
    root.strip("usr/bin/cgscope")?;
    for licence in ["LICENSE-MIT", "LICENSE-APACHE"] {
        root.copy(&steps::workspace().join(licence), &format!("usr/share/doc/cgscope/{licence}"), 0o644)?;
    }
    root.put("usr/share/doc/cgscope/THIRD-PARTY", contents.third_party.as_bytes(), 0o644)?;
    Ok(root)
}

/// Writes the image's only layer into the layout. Also returns the digest of the uncompressed layer, because the configuration
/// needs it.
fn layer(contents: &Contents, root: &Tree, layout: &Tree) -> Result<(Blob, String), Failure> {
    let file = contents.place.join("image/layer.tar");
    output(tar(&root.root, &contents.epoch).arg("-cf").arg(&file).arg("usr"))?;
    let diff = sha256(&file)?;
    output(Command::new("gzip").args(["-9n", "--force"]).arg(&file))?;
    Ok((put_blob(layout, &file.with_extension("tar.gz"))?, diff))
}

fn put_text(layout: &Tree, text: &str) -> Result<Blob, Failure> {
    let file = layout.root.with_extension("json");
    steps::write(&file, text)?;
    put_blob(layout, &file)
}

fn put_blob(layout: &Tree, file: &Path) -> Result<Blob, Failure> {
    let bytes = fs::metadata(file).map_err(|why| steps::cannot("read", file, &why))?.len();
    let sha256 = sha256(file)?;
    layout.copy(file, &format!("blobs/sha256/{sha256}"), 0o644)?;
    let descriptor = format!(r#""digest": "sha256:{sha256}", "size": {bytes}"#);
    Ok(Blob { sha256, descriptor })
}

fn sha256(file: &Path) -> Result<String, Failure> {
    let sum = output(Command::new("sha256sum").arg(file))?;
    Ok(sum.split_whitespace().next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    #[test]
    fn third_party_packages_are_parsed_from_cargo_tree() {
        let found = |line| package(line).expect("a package");
        let anyhow = ("anyhow 1.0.103".to_owned(), "MIT OR Apache-2.0".to_owned());
        assert_eq!(found("anyhow v1.0.103|MIT OR Apache-2.0 (*)"), anyhow);
        assert_eq!(found("serde_derive v1.0.2 (proc-macro)|MIT").0, "serde_derive 1.0.2");
    }

    #[test]
    fn our_own_packages_are_left_out() {
        assert_eq!(package("cgscope-model v0.1.0 (/somewhere/crates/model)|MIT OR Apache-2.0"), None);
        assert_eq!(package(""), None);
    }

    #[test]
    fn the_changelog_has_the_version_of_the_workspace() {
        let changelog = include_str!("../../deploy/debian/changelog");
        let first = format!("cgscope ({}) ", env!("CARGO_PKG_VERSION"));
        assert!(changelog.starts_with(&first), "the first entry is not for {first}");
    }

    fn image(place: &Path) -> Vec<u8> {
        let _ = fs::remove_dir_all(place);
        fs::create_dir_all(place).expect("a directory of ours");
        // This is a program of this machine. Its permissions differ from those in the image.
        let binary = place.join("program");
        fs::copy("/bin/true", &binary).expect("a program");
        fs::set_permissions(&binary, fs::Permissions::from_mode(0o700)).expect("a file of ours");
        let contents = Contents {
            place: place.to_owned(),
            binary,
            version: "1.2.3".to_owned(),
            pages: place.to_owned(),
            third_party: "licences".to_owned(),
            epoch: "1700000000".to_owned(),
        };
        let archive = make_image(&contents).expect("an image");
        assert_eq!(archive.file_name().and_then(|name| name.to_str()), Some("cgscope-1.2.3-oci.tar"));
        let image = fs::read(archive).expect("an image");
        let _ = fs::remove_dir_all(place);
        image
    }

    #[test]
    fn the_same_binary_gives_the_same_image() {
        let place = std::env::temp_dir().join(format!("xtask-image-{}", std::process::id()));
        let first = image(&place);
        std::thread::sleep(std::time::Duration::from_millis(1100));
        assert!(first == image(&place.with_extension("elsewhere")));
    }
}
