//! Builds and runs the fuzz targets. They use libFuzzer with coverage, and are built by the same compiler as the rest of cgscope.
use std::path::{Path, PathBuf};
use std::{fs, process::Command};

use clap::ValueEnum;

use crate::dist;
use crate::steps::{self, Failure, cargo_path, step};

/// Returns the directory of the fuzz targets, which is a separate workspace.
pub(crate) fn dir() -> PathBuf {
    steps::workspace().join("fuzz")
}

#[derive(clap::Args, Debug, Default)]
pub(crate) struct Request {
    /// What reads the generated inputs [default: all]
    target: Option<FuzzTarget>,
    /// Then add the new inputs that reach other code to the archives in fuzz/corpus, whose inputs the unit tests replay
    #[arg(long)]
    keep: bool,
    /// Flags of libFuzzer, such as -runs=1000000
    #[arg(last = true)]
    flags: Vec<String>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FuzzTarget {
    /// The reader of recordings
    Reader,
    /// Commands that show recordings
    Answers,
    /// The daemon's protocol, on both sides
    Protocol,
}

impl FuzzTarget {
    /// Returns the name, the name of the archive of saved inputs (`fuzz/corpus/NAME.tar`), the number of runs (10 to 20 s), and the
    /// maximum length of an input, bytes. Both targets for recordings share one archive.
    fn settings(self) -> (&'static str, &'static str, u32, u32) {
        match self {
            Self::Reader => ("reader", "reader", 100_000, 1 << 20),
            Self::Answers => ("answers", "reader", 20_000, 1 << 20),
            Self::Protocol => ("protocol", "protocol", 50_000, 64 << 10),
        }
    }
}

/// Compiler flags that let libFuzzer see which code an input reaches, as in `cargo fuzz`. The address sanitizer that `cargo fuzz`
/// uses is left out: it needs a nightly compiler, and the fuzzed code has no `unsafe`.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

pub(crate) fn run(request: &Request) -> Result<(), Failure> {
    // The host triple has this form on every platform on which cgscope can be built.
    let (built, host) =
        (steps::target_dir().join("fuzz"), format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let mut build = Command::new(cargo_path());
    build.current_dir(dir()).env("RUSTFLAGS", COVERAGE);
    // Because of the explicit `--target`, cargo does not apply RUSTFLAGS to build scripts and derive macros.
    build.args(["build", "--release", "--locked", "--target", &host, "--target-dir"]).arg(&built);
    step("fuzz: the fuzz targets", &mut build)?;
    let all = FuzzTarget::value_variants();
    for target in request.target.as_ref().map_or(all, std::slice::from_ref) {
        let (name, corpus, runs, longest) = target.settings();
        // The inputs that earlier runs on this machine found, and those in the archive.
        let (found, saved) = (built.join("corpus").join(corpus), built.join("saved").join(corpus));
        let archive = dir().join("corpus").join(format!("{corpus}.tar"));
        let _ = fs::remove_dir_all(&saved);
        for place in [&found, &saved] {
            fs::create_dir_all(place).map_err(|why| steps::cannot("write", place, &why))?;
        }
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(built.join("saved")).arg("-xf").arg(&archive);
        step(&format!("fuzz: saved inputs of {corpus}"), &mut tar)?;
        // libFuzzer writes new inputs into the first directory.
        let fuzzer = |first: &Path, second: &Path| {
            let mut command = Command::new(built.join(&host).join("release").join(name));
            command.current_dir(&built).args([first, second]);
            command
        };
        let mut fuzz = fuzzer(&found, &saved);
        fuzz.args([format!("-runs={runs}"), format!("-max_len={longest}")]);
        fuzz.args(["-timeout=60", "-rss_limit_mb=1024", "-print_final_stats=1"]).args(&request.flags);
        step(&format!("fuzz: {name}"), &mut fuzz)?;
        if request.keep {
            let mut merge = fuzzer(&saved, &found);
            step("fuzz: new inputs that reach other code", merge.arg("-merge=1"))?;
            // The same inputs always produce the same archive.
            let mut tar = dist::tar(&built.join("saved"), "0");
            tar.arg("--mode=u=rwX,go=rX").arg("-cf").arg(&archive).arg(corpus);
            step("fuzz: the archive of saved inputs", &mut tar)?;
        }
    }
    Ok(())
}
