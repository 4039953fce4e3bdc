//! Installs missing tools. Prints each command before the command runs.
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs, io};

use bpf_build::{Compiler, Toolchain, linker, without_cargo};

use crate::steps::{self, AsRoot, Failure, find};

// The Debian packages, as lists of names.

/// Packages for linking host programs. The static C library makes cgscope a single file that runs anywhere.
const FOR_C: &str = "gcc libc6-dev";
/// A compiler with `core` for the BPF target.
const BPF_COMPILER: &str = "rustc-web libstd-rust-web-dev-bpf";
/// Packages for tests and measurements: tools to compare cgscope with, load generators, and terminals.
pub(crate) const TEST_TOOLS: &str =
    "libbpf-tools sysstat linux-perf stress-ng rt-tests bpftool tmux ffmpeg procps curl util-linux strace";
/// libFuzzer must be compiled by a C++ compiler.
pub(crate) const FOR_FUZZ: &str = "g++";
/// promtool and shellcheck check the files in `deploy/`. The other tools create and boot a clean Debian, in which the package is
/// tested.
pub(crate) const FOR_DEPLOY: &str = "prometheus shellcheck mmdebstrap systemd-container";
/// Packages for the virtual machines, and a browser for the HTML report.
pub(crate) const LAB_TOOLS: &str = "qemu-system-x86 busybox-static cpio chromium";

/// Installs the build tools of cgscope and the packages in these lists. If nothing is missing, prints nothing.
pub(crate) fn ensure(lists: &[&str]) -> Result<(), Failure> {
    let mut packages = if has_static_libc() { Vec::new() } else { vec![FOR_C] };
    // On a machine without apt, a missing program is reported when it is called.
    if find("apt-get").is_some() {
        packages.extend(lists);
    }
    install(&packages.join(" "))?;
    if Toolchain::find().is_ok() || linker() || (compiler() && linker()) {
        return Ok(());
    }
    Err(Failure::Host(format!(
        "setup: the tools for the kernel side are missing and cannot be installed, so cgscope cannot be built; install \
         rustup's nightly with rust-src, and bpf-linker {} for its release of LLVM (docs/building.md)",
        linker::VERSION
    )))
}

fn has_static_libc() -> bool {
    let found = steps::output(Command::new("cc").arg("-print-file-name=libc.a"));
    // If the library is missing, the compiler prints only its name.
    found.is_ok_and(|path| Path::new(path.trim()).is_absolute())
}

fn install(packages: &str) -> Result<(), Failure> {
    let installed = installed_packages(packages);
    let packages = packages.split_ascii_whitespace();
    let missing: Vec<&str> = packages.filter(|name| !installed.iter().any(|there| there == name)).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let missing = missing.join(" ");
    if find("apt-get").is_none() {
        return Err(Failure::Host(format!(
            "setup: these Debian packages are missing, and this machine has no apt: {missing}; install what your \
             distribution has for them, then run this again"
        )));
    }
    // `--no-remove` is needed, because rustc-web would replace the distribution's other compiler. The timeout is needed, because
    // a machine may run apt after it has booted.
    let words = format!(
        "apt-get install --yes --no-install-recommends --no-remove -o DPkg::Lock::Timeout=120 {missing}"
    );
    // The package lists may be out of date. A package may be missing in them, or they may list packages that the archive no
    // longer has.
    apt(&words).or_else(|_| apt("apt-get update").and_then(|()| apt(&words)))
}

fn installed_packages(packages: &str) -> Vec<String> {
    let mut dpkg = Command::new("dpkg-query");
    dpkg.args(["--show", "--showformat=${Package} ${db:Status-Status}\n"]);
    dpkg.args(packages.split_ascii_whitespace());
    // If dpkg-query does not know a package, it fails, but it still reports the other packages.
    let found = dpkg.output().map(|output| output.stdout).unwrap_or_default();
    let found = String::from_utf8_lossy(&found);
    found.lines().filter_map(|line| line.strip_suffix(" installed")).map(str::to_owned).collect()
}

fn apt(words: &str) -> Result<(), Failure> {
    let as_root = AsRoot::become_root("installing packages", &format!("run `{words}` as root"))?;
    let mut command = as_root.command("env");
    run(command.arg("DEBIAN_FRONTEND=noninteractive").args(words.split(' ')), "Debian packages")
}

/// Installs a compiler for the BPF programs: the distribution's compiler, or else rustup's.
fn compiler() -> bool {
    let words = ["toolchain", "install", "nightly", "--profile", "minimal", "--component", "rust-src"];
    let nightly = || run(outside(&mut Command::new("rustup")).args(words), "nightly");
    reported(install(BPF_COMPILER)) || (find("rustup").is_some() && reported(nightly()))
}

/// Builds the linker for the first compiler whose LLVM libraries Debian has.
fn linker() -> bool {
    Compiler::all().filter(|compiler| linker::LLVMS.contains(&compiler.llvm)).any(
        |Compiler { llvm, .. }| {
            let libraries = format!("llvm-{llvm}-dev libpolly-{llvm}-dev libzstd-dev");
            let Some(root) = linker::root(llvm).filter(|_| reported(install(&libraries))) else {
                return false;
            };
            let features = format!("llvm-{llvm}");
            let words = ["bpf-linker", "--force", "--no-default-features", "--features", &features];
            let mut cargo = cargo_install(&words, linker::VERSION, &root);
            // The build calls the llvm-config of this LLVM release.
            let path = env::var_os("PATH").unwrap_or_default();
            let first = PathBuf::from(format!("/usr/lib/llvm-{llvm}/bin"));
            let path = env::join_paths([first].into_iter().chain(env::split_paths(&path)));
            cargo.env("PATH", path.unwrap_or_default());
            reported(run(&mut cargo, "bpf-linker")) && Toolchain::find().is_ok()
        },
    )
}

/// Returns whether a step succeeded. If it failed, prints the error.
fn reported(result: Result<(), Failure>) -> bool {
    if let Err(failure) = &result {
        eprintln!("{failure}");
    }
    result.is_ok()
}

/// Makes a command ignore the workspace and the variables of the calling cargo. The toolchain stays, because the default
/// toolchain may be too old.
pub(crate) fn outside(command: &mut Command) -> &mut Command {
    without_cargo(command);
    if let Some(toolchain) = env::var_os("RUSTUP_TOOLCHAIN") {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
    command.current_dir("/")
}

fn cargo_install(words: &[&str], version: &str, root: &Path) -> Command {
    let mut cargo = Command::new(steps::cargo_path());
    outside(&mut cargo)
        .args(["install", "--locked"])
        .args(words)
        .args(["--version", version, "--root"])
        .arg(root);
    cargo
}

/// Returns the path of a program that comes from this version of a crate. If the program is missing, installs it into the cache.
pub(crate) fn program(name: &str, version: &str) -> Result<PathBuf, Failure> {
    let root = cache(name)?;
    installed(&root, &format!("{name} {version}"), || {
        run(&mut cargo_install(&[name], version, &root), name)
    })?;
    Ok(root.join("bin").join(name))
}

/// Prints and runs a command that installs something.
pub(crate) fn run(command: &mut Command, what: &str) -> Result<(), Failure> {
    // The command runs in a directory where no other user can leave files for the program to read. Standard output is only for
    // results, as in `cargo xtask run hist | less`.
    command.current_dir("/").stdout(Stdio::from(io::stderr()));
    let words = steps::words(command);
    eprintln!("setup: {words}");
    steps::succeed(command, &format!("setup: cannot install {what}: `{words}` failed"))
}

/// Installs `wanted` at `path` if it is missing. A file `NAME.version` next to `path` records that the installation is complete.
pub(crate) fn installed(
    path: &Path,
    wanted: &str,
    install: impl FnOnce() -> Result<(), Failure>,
) -> Result<(), Failure> {
    let note = path.with_extension("version");
    if path.exists() && fs::read_to_string(&note).is_ok_and(|there| there == wanted) {
        return Ok(());
    }
    eprintln!("setup: installing {wanted} into {}", path.display());
    let _ = fs::remove_file(&note);
    install()?;
    steps::write(&note, wanted)
}

/// Returns the directory `name` in the user's cache of cgscope.
pub(crate) fn cache(name: &str) -> Result<PathBuf, Failure> {
    let cache = linker::cache().map(|cache| cache.join(name));
    cache.ok_or_else(|| Failure::Host(format!("HOME is not set, so there is no cache for {name}; set HOME")))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::{installed, installed_packages};

    #[test]
    fn a_package_that_does_not_exist_is_not_installed() {
        assert!(installed_packages("cgscope-no-such-package").is_empty());
    }

    #[test]
    fn an_installed_version_is_not_installed_again() {
        let dir = std::env::temp_dir().join(format!("xtask-readers-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory of ours");
        let path = dir.join("reader.jar");
        let times = Cell::new(0);
        let install = || {
            times.set(times.get() + 1);
            fs::write(&path, "jar").expect("a file of ours");
            Ok(())
        };
        for (version, so_far) in [("1", 1), ("1", 1), ("2", 2)] {
            assert!(installed(&path, version, install).is_ok());
            assert_eq!(times.get(), so_far);
        }
        fs::remove_file(&path).expect("a file of ours");
        assert!(installed(&path, "2", install).is_ok());
        assert_eq!(times.get(), 3, "the file was missing");
        let _ = fs::remove_dir_all(&dir);
    }

    #[test]
    fn a_failed_installation_is_tried_again() {
        let dir = std::env::temp_dir().join(format!("xtask-readers-failed-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory of ours");
        let failed = || Err(super::Failure::Step("no network".to_owned()));
        assert!(installed(&dir.join("reader"), "1", failed).is_err());
        assert!(!dir.join("reader.version").exists());
        let _ = fs::remove_dir_all(&dir);
    }
}
