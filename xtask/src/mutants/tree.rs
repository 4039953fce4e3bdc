//! Copies of the workspace in which cargo-mutants runs.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bpf_build::without_cargo;

use super::{Name, OUTCOMES, Part, VERSION, cannot_write, create, git};
use crate::readers::installed;
use crate::steps::{self, Failure};

const TOOL: &str = "cargo-mutants";

/// Fewer random inputs than usual: a mutant that survives them mostly survives all. A failure ends the run, and is not made smaller.
pub(super) const VARIABLES: [(&str, &str); 5] = [
    ("CGSCOPE_SCHEDULES", "1000"),
    ("PROPTEST_CASES", "16"),
    ("PROPTEST_MAX_SHRINK_ITERS", "0"),
    // The workers share the CPUs.
    ("RUST_TEST_THREADS", "1"),
    // For `--fail-fast`.
    ("RUSTC_BOOTSTRAP", "1"),
];
const FAIL_FAST: [&str; 2] = ["-Zunstable-options", "--fail-fast"];

/// A copy of the workspace, which cargo-mutants changes in place.
pub(super) struct Tree {
    dir: PathBuf,
    tool: PathBuf,
    /// By part: how long a test run may take.
    timeouts: BTreeMap<&'static str, Duration>,
}

impl Tree {
    /// Makes `dir` a copy of the workspace. A file that has not changed keeps its time, so that cargo does not compile it again.
    pub(super) fn new(
        dir: PathBuf,
        tool: &Path,
        sources: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Self, Failure> {
        let note = dir.join("target/mutants.files");
        for gone in
            fs::read_to_string(&note).unwrap_or_default().lines().filter(|path| !sources.contains_key(*path))
        {
            let _ = fs::remove_file(dir.join(gone));
        }
        for (path, contents) in sources {
            let copy = dir.join(path);
            if fs::read(&copy).is_ok_and(|there| there == *contents) {
                continue;
            }
            create(copy.parent().unwrap_or(&dir))?;
            fs::write(&copy, contents).map_err(|why| cannot_write(&copy, &why))?;
        }
        create(&dir.join("target"))?;
        let paths: Vec<_> = sources.keys().map(String::as_str).collect();
        fs::write(&note, paths.join("\n")).map_err(|why| cannot_write(&note, &why))?;
        Ok(Self { dir, tool: tool.to_owned(), timeouts: BTreeMap::new() })
    }

    /// A call of cargo-mutants for a file.
    fn mutants(&self, part: &Part, path: &str) -> Command {
        let mut command = Command::new(&self.tool);
        without_cargo(&mut command)
            .env("CARGO", steps::cargo_path())
            .env("CARGO_TARGET_DIR", self.dir.join("target"));
        same_toolchain(&mut command);
        command.args([
            "mutants",
            "--no-config",
            "--colors",
            "never",
            "--package",
            part.package,
            "--file",
            path,
        ]);
        command.arg("--dir").arg(&self.dir);
        command
    }

    /// The mutants of a file.
    pub(super) fn list(&self, part: &Part, path: &str) -> Result<Vec<Name>, Failure> {
        let mut command = self.mutants(part, path);
        let output = command.arg("--list").output().map_err(|why| steps::did_not_start(&command, &why))?;
        let text = String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::Step(format!("mutants: cannot list the mutants of {path}:\n{errors}")));
        }
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// Tries the mutants at some places of a file. Returns lines for its file of results.
    pub(super) fn tried(
        &mut self,
        part: &'static Part,
        path: &str,
        places: &[String],
    ) -> Result<String, Failure> {
        let timeout = match self.timeouts.get(part.name) {
            Some(timeout) => *timeout,
            None => {
                let timeout = self.baseline(part)?;
                self.timeouts.insert(part.name, timeout);
                timeout
            }
        };
        let out = self.dir.join("target/outcomes");
        create(&out)?;
        let mut command = self.mutants(part, path);
        command.args(["--in-place", "--baseline", "skip", "--build-timeout", "300", "--cargo-arg=--lib"]);
        command.args(config(part).map(|config| format!("--cargo-arg={config}")));
        command
            .arg(format!("--timeout={}", timeout.as_secs()))
            .arg(format!("--re=:({}): ", places.join("|")));
        let status = steps::status(in_tests(
            command.arg("--output").arg(&out).args(["--", "--"]).args(part.tests).args(FAIL_FAST),
        ))?;
        // 2: a mutant survived; 3: a test run took too long.
        if !matches!(status.code(), Some(0 | 2 | 3)) {
            return Err(Failure::Step(format!(
                "mutants: cargo-mutants failed ({status}); see its messages above"
            )));
        }
        let mut lines = String::new();
        for (word, _) in OUTCOMES {
            let names = fs::read_to_string(out.join(format!("mutants.out/{word}.txt"))).unwrap_or_default();
            names.lines().for_each(|name| lines.extend([word, " ", name, "\n"]));
        }
        Ok(lines)
    }

    /// Runs the tests without a mutant, which must pass. Returns the time after which a test run counts as hanging.
    fn baseline(&self, part: &Part) -> Result<Duration, Failure> {
        let test = |more: &[&str]| {
            let mut cargo = steps::cargo(&["test", "--quiet", "--package", part.package, "--lib"]);
            cargo
                .args(config(part))
                .args(more)
                .current_dir(&self.dir)
                .env("CARGO_TARGET_DIR", self.dir.join("target"));
            let otherwise = format!("the tests of {} fail without a mutant", part.package);
            succeeded(in_tests(&mut cargo), &otherwise)
        };
        test(&["--no-run"])?;
        let since = Instant::now();
        test(&[&["--"], part.tests].concat())?;
        Ok((since.elapsed() * 6).max(Duration::from_secs(20)))
    }
}

fn config(part: &Part) -> Option<String> {
    (!part.config.is_empty()).then(|| format!("--config={}", part.config))
}

fn in_tests(command: &mut Command) -> &mut Command {
    command.envs(VARIABLES).env("CARGO_INCREMENTAL", "1").stdout(Stdio::null())
}

/// Installs cargo-mutants into the cache. Returns its path.
pub(super) fn tool(kept: &Path) -> Result<PathBuf, Failure> {
    let root = kept.join("tool");
    installed(&root, &format!("{TOOL} {VERSION}"), || {
        let mut cargo = Command::new(steps::cargo_path());
        // A dependency brings a file that asks rustup for another toolchain.
        same_toolchain(without_cargo(&mut cargo));
        cargo.current_dir("/").args(["install", "--quiet", "--locked"]);
        cargo.args([TOOL, "--version", VERSION, "--root"]).arg(&root).stdout(Stdio::from(std::io::stderr()));
        succeeded(&mut cargo, "cargo-mutants cannot be installed")
    })?;
    Ok(root.join("bin").join(TOOL))
}

/// Lets rustup use the toolchain that compiled this program.
fn same_toolchain(command: &mut Command) {
    if let Some(toolchain) = std::env::var_os("RUSTUP_TOOLCHAIN") {
        command.env("RUSTUP_TOOLCHAIN", toolchain);
    }
}

fn succeeded(command: &mut Command, otherwise: &str) -> Result<(), Failure> {
    steps::succeed(command, |status| format!("mutants: {otherwise} ({status}); see the messages above"))
}

/// The files of the workspace, without the corpora of the fuzz targets.
pub(super) fn sources() -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let paths = git(&["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", ".", ":!fuzz"])?;
    let read = |path: &str| Some((path.to_owned(), fs::read(steps::workspace().join(path)).ok()?));
    Ok(paths.split('\0').filter_map(read).collect())
}
