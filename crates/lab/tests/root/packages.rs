//! The packages that `cargo xtask dist` builds: their files, their installation in a clean Debian root, and their removal by a
//! purge.

mod boot;
mod image;

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use crate::{
    bench::{cgscope, stderr, stdout},
    files::Dir,
};

/// Packages that the clean root has in addition to a minimal Debian. Tests of manual pages and systemd units need these packages.
const INCLUDED: &str = "man-db,procps,systemd";
const EXPOSURE: &str = "30";

/// Returns Cargo's target directory. `cargo xtask dist` writes packages there, too.
fn target() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target").canonicalize().expect("a target directory")
}

/// Returns the path of the package whose name ends with `end`. Panics if the package is older than the binary under test.
pub(crate) fn package(end: &str) -> PathBuf {
    let place = target().join("dist");
    let entries = fs::read_dir(&place).into_iter().flatten().flatten().map(|entry| entry.path());
    let found = entries.into_iter().find(|path| path.to_string_lossy().ends_with(end));
    let found = found.unwrap_or_else(|| panic!("no package in {}: run `cargo xtask dist`", place.display()));
    let modified = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).expect("a file");
    let binary = PathBuf::from(cgscope().get_program());
    assert!(
        modified(&found) >= modified(&binary),
        "{} is older than the binary: run `cargo xtask dist`",
        found.display()
    );
    found
}

fn done(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(
        output.status.success(),
        "{command:?}: {}\n{}{}",
        output.status,
        stdout(&output),
        stderr(&output)
    );
    stdout(&output)
}

/// A root directory with the Debian release of this machine, unpacked from an archive. The archive is created once and stays in
/// the user's cache.
struct CleanRoot(Dir);

impl CleanRoot {
    fn new() -> Self {
        let release = fs::read_to_string("/etc/os-release").expect("a release");
        let suite = release
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .expect("a release by name");
        let place =
            Path::new(&std::env::var_os("HOME").unwrap_or_default()).join(".cache/cgscope/clean-root");
        fs::create_dir_all(&place).expect("the user's cache");
        let archive = place.join(format!("{suite}-{}.tar", INCLUDED.replace(',', "-")));
        if !archive.exists() {
            // Several tests can create the archive at the same time.
            let maker = format!("{}-{:?}.tar", std::process::id(), std::thread::current().id());
            let beside = archive.with_extension(maker);
            let mut make = Command::new("mmdebstrap");
            make.args(["--quiet", "--variant=minbase"]).arg(format!("--include={INCLUDED}"));
            done(make.arg(suite).arg(&beside).arg(sources()));
            fs::rename(&beside, &archive).expect("a file of ours");
        }
        let root = Self(Dir::new("clean-root"));
        done(
            Command::new("tar")
                .arg("-C")
                .arg(root.0.path())
                .arg("-xf")
                .arg(&archive)
                .args(["--exclude=./dev/*"]),
        );
        // Scripts write to `/dev/null`. A plain file is sufficient for this, and needs neither a device nor a mount.
        fs::write(root.path("dev/null"), "").expect("a file of ours");
        root
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn run(&self, words: &[&str]) -> Output {
        let mut command = Command::new("chroot");
        command.arg(self.0.path()).args(words).env_clear();
        command
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("LC_ALL", "C.UTF-8");
        command.output().expect("chroot runs")
    }

    fn done(&self, words: &[&str]) -> String {
        let output = self.run(words);
        assert!(
            output.status.success(),
            "{words:?}: {}\n{}{}",
            output.status,
            stdout(&output),
            stderr(&output)
        );
        stdout(&output)
    }

    /// Returns all files except dpkg's own files, backups of user management tools, and files that a boot creates.
    fn files(&self) -> BTreeSet<String> {
        let mut find = Command::new("find");
        let all =
            done(find.current_dir(self.0.path()).args([".", "-xdev", "!", "-path", "./var/lib/dpkg/*"]));
        let kept = |path: &&str| {
            let is_backup = path.starts_with("./etc/") && path.ends_with('-');
            let of_others =
                ["./run/", "./var/cache/", "./var/log/"].iter().any(|place| path.starts_with(place));
            is_backup || of_others || path.ends_with(".lock")
        };
        all.lines().filter(|path| !kept(path)).map(str::to_owned).collect()
    }

    fn accounts(&self) -> [BTreeSet<String>; 2] {
        ["etc/passwd", "etc/group"].map(|file| {
            let text = fs::read_to_string(self.path(file)).expect("a list");
            text.lines().map(str::to_owned).collect()
        })
    }
}

fn sources() -> PathBuf {
    let lists = ["sources.list.d/debian.sources", "sources.list.d/ubuntu.sources", "sources.list"];
    let mut paths = lists.iter().map(|list| Path::new("/etc/apt").join(list));
    paths.find(|path| path.is_file()).expect("the sources of apt: these tests need Debian")
}

#[test]
fn the_package_installs_on_a_clean_debian_and_a_purge_removes_all_of_it() {
    let deb = package(".deb");
    let root = CleanRoot::new();
    let (files, accounts) = (root.files(), root.accounts());
    fs::copy(&deb, root.path("cgscope.deb")).expect("a package");
    root.done(&["dpkg", "-i", "/cgscope.deb"]);
    fs::remove_file(root.path("cgscope.deb")).expect("a file of ours");

    let version = root.done(&["cgscope", "--version"]);
    assert!(
        deb.to_string_lossy()
            .contains(&format!("cgscope_{}_", version.trim().trim_start_matches("cgscope ")))
    );
    assert_eq!(
        root.done(&["id", "-Gn", "cgscope"]).trim(),
        "cgscope-daemon",
        "the daemon is not in the viewers' group"
    );
    root.done(&["getent", "group", "cgscope", "cgscope-admin"]);
    the_manual_is_read(&root);
    completions_complete(&root);
    the_unit_is_sound_and_confined(&root);

    // Installing the package does not enable its units. An administrator can enable them, and removing the package disables them
    // again.
    let enabled =
        || root.files().into_iter().filter(|path| path.contains(".wants/cgscope")).collect::<Vec<_>>();
    assert_eq!(enabled(), [""; 0]);
    root.done(&["systemctl", "enable", "cgscope.service"]);
    assert_eq!(enabled().len(), 2, "the service and its socket: {:?}", enabled());
    // A changed configuration survives removal and upgrade, but not a purge.
    fs::write(root.path("etc/cgscope/cgscope.toml"), "[http]\nlisten = \"\"\n").expect("a file");
    root.done(&["dpkg", "-r", "cgscope"]);
    let left: Vec<_> = root.files().difference(&files).cloned().collect();
    assert_eq!(left, ["./etc/cgscope", "./etc/cgscope/cgscope.toml"]);
    root.done(&["dpkg", "--purge", "cgscope"]);
    let left: Vec<_> = root.files().symmetric_difference(&files).cloned().collect();
    assert_eq!(left, [""; 0]);
    assert_eq!(root.accounts(), accounts);
}

#[test]
fn an_upgrade_removes_the_daemon_from_the_viewers_group_and_keeps_its_files_readable() {
    let root = CleanRoot::new();
    // Create the group as an older package did, in which viewers and the daemon shared one group.
    root.done(&["adduser", "--system", "--group", "--quiet", "--no-create-home", "cgscope"]);
    root.done(&["useradd", "--groups", "cgscope", "alice"]);
    // In the old configuration, `cgscope` was the group of the socket, and its members saw their own processes.
    let old = "[socket]\ngroup = \"cgscope\"\nadmin_groups = [\"cgscope-admin\"]\n";
    fs::create_dir_all(root.path("etc/cgscope")).expect("a root of ours");
    fs::write(root.path("etc/cgscope/cgscope.toml"), old).expect("a file");
    fs::copy(package(".deb"), root.path("cgscope.deb")).expect("a package");
    root.done(&["dpkg", "--force-confold", "-i", "/cgscope.deb"]);
    let checked = root.run(&["cgscope", "serve", "--check"]);
    assert_eq!(checked.status.code(), Some(0), "{}", stderr(&checked));
    let says = stderr(&checked);
    assert!(
        says.contains(
            "members of cgscope can open the socket, and of these only members of cgscope-admin may use it"
        ),
        "{says}"
    );
    let socket = fs::read_to_string(root.path("usr/lib/systemd/system/cgscope.socket")).expect("a unit");
    assert!(socket.contains("SocketGroup=cgscope-admin"), "{socket}");
    assert_eq!(root.done(&["id", "-gn", "cgscope"]).trim(), "cgscope-daemon");
    assert_eq!(root.done(&["id", "-Gn", "cgscope"]).trim(), "cgscope-daemon cgscope");
    assert_eq!(root.done(&["id", "-Gn", "alice"]).trim(), "alice cgscope");
}

#[test]
fn systemd_creates_the_daemons_user_with_its_own_group() {
    let root = CleanRoot::new();
    let sysusers = include_str!("../../../../deploy/systemd/cgscope.sysusers");
    fs::write(root.path("usr/lib/sysusers.d/cgscope.conf"), sysusers).expect("a root of ours");
    root.done(&["systemd-sysusers", "cgscope.conf"]);
    assert_eq!(root.done(&["id", "-Gn", "cgscope"]).trim(), "cgscope-daemon");
    root.done(&["getent", "group", "cgscope", "cgscope-admin"]);
}

fn the_manual_is_read(root: &CleanRoot) {
    let help = root.done(&["cgscope", "--help"]);
    let commands =
        help.split("Commands:").nth(1).and_then(|rest| rest.split("Options:").next()).expect("commands");
    // Skip continuation lines of a description, which have a larger indent.
    let names =
        commands.lines().filter_map(|line| line.strip_prefix("  ")).filter(|line| !line.starts_with(' '));
    let commands: Vec<&str> = names.filter_map(|line| line.split_whitespace().next()).collect();
    assert!(commands.len() >= 10, "{commands:?}");
    for command in commands.into_iter().filter(|command| *command != "help") {
        let page = root.done(&["man", &format!("cgscope-{command}")]);
        for heading in ["NAME", "SYNOPSIS", "EXIT STATUS"] {
            assert!(page.lines().any(|line| line == heading), "{heading} of {command}: {page}");
        }
    }
    assert!(root.done(&["man", "cgscope-top"]).contains("--iterations"));
    assert!(root.done(&["man", "cgscope"]).contains("cgscope-report(1)"));
    // groff prints a warning if a page is incorrect.
    let warned = root.run(&[
        "man",
        "--warnings",
        "--encoding=utf8",
        "--local-file",
        "/usr/share/man/man1/cgscope-top.1.gz",
    ]);
    assert_eq!(stderr(&warned), "");
}

fn completions_complete(root: &CleanRoot) {
    let script = "set -u; source /usr/share/bash-completion/completions/cgscope
        answer() { COMP_WORDS=(cgscope \"$@\"); COMP_CWORD=$#; COMP_TYPE=9; COMPREPLY=(); _clap_complete_cgscope cgscope \"${*: -1}\"; echo \"${COMPREPLY[@]}\"; }
        answer to; answer top --iter; answer export --format p";
    let answers = root.run(&["bash", "-c", script]);
    assert_eq!((stderr(&answers), answers.status.code()), (String::new(), Some(0)));
    let answers = stdout(&answers);
    let answers: Vec<&str> = answers.lines().collect();
    assert_eq!(answers, ["top", "--iterations", "perfetto parquet pprof"]);
}

fn the_unit_is_sound_and_confined(root: &CleanRoot) {
    let units = ["/usr/lib/systemd/system/cgscope.service", "/usr/lib/systemd/system/cgscope.socket"];
    // The systemd in the clean root checks the units with the programs, manual pages and users of that root.
    let verified = root.run(&["systemd-analyze", "verify", units[0], units[1]]);
    assert_eq!((stderr(&verified), verified.status.code()), (String::new(), Some(0)));
    let threshold = format!("--threshold={EXPOSURE}");
    let judged =
        root.done(&["systemd-analyze", "security", "--offline=true", "--no-pager", &threshold, units[0]]);
    assert!(judged.contains("Overall exposure level"), "{judged}");
}

#[test]
fn the_programs_in_the_tarball_run_without_installation() {
    let tarball = package("-linux.tar.gz");
    let dir = Dir::new("tarball");
    done(Command::new("tar").arg("-C").arg(dir.path()).args(["--strip-components=1", "-xf"]).arg(&tarball));
    let at = |path: &str| dir.path().join(path);
    assert!(done(Command::new(at("bin/cgscope")).arg("--version")).starts_with("cgscope "));
    for file in [
        "share/man/man1/cgscope-top.1",
        "share/bash-completion/completions/cgscope",
        "share/zsh/site-functions/_cgscope",
        "share/fish/vendor_completions.d/cgscope.fish",
        "lib/systemd/system/cgscope.socket",
        "lib/sysusers.d/cgscope.conf",
        "share/doc/cgscope/README.md",
        "share/doc/cgscope/LICENSE-MIT",
        "share/doc/cgscope/LICENSE-APACHE",
        "share/doc/cgscope/examples/cgscope.toml",
        "share/doc/cgscope/examples/prometheus/cgscope.rules.yml",
    ] {
        assert!(at(file).is_file(), "{file}");
    }
    let unit = fs::read_to_string(at("lib/systemd/system/cgscope.service")).expect("a unit");
    assert!(unit.contains("ExecStart=/usr/local/bin/cgscope serve"), "{unit}");
    let others = fs::read_to_string(at("share/doc/cgscope/THIRD-PARTY")).expect("a list");
    for word in ["inferno 0", "CDDL-1.0", "tokio 1", "Permission is hereby granted"] {
        assert!(others.contains(word), "{word}");
    }
    let dynamic =
        done(Command::new("sh").args(["-c", "ldd \"$1\" 2>&1 || true", "sh"]).arg(at("bin/cgscope")));
    assert!(
        dynamic.contains("not a dynamic executable") || dynamic.contains("statically linked"),
        "{dynamic}"
    );
}
