//! Builds and runs the fuzz targets. They use libFuzzer with coverage, and are built by the same compiler as the rest of cgscope.
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::dist;
use crate::steps::{self, Failure, Steps, cargo_path};

/// Returns the directory of the fuzz targets, which is a separate workspace.
pub(crate) fn dir() -> PathBuf {
    steps::workspace().join("fuzz")
}

/// A fuzz target. Its saved inputs are in the directory `CORPUS` of the archive `fuzz/corpus/CORPUS.tar`.
#[derive(Debug)]
struct FuzzTarget {
    name: &'static str,
    inputs: &'static str,
    /// Number of runs if none is given. They take about 20 s for `reader` and 10 s for `protocol`.
    runs: &'static str,
    longest: u32,
    /// Name of the archive of saved inputs. Both fuzz targets for recordings share one archive.
    corpus: &'static str,
}

static TARGETS: [FuzzTarget; 3] = [
    FuzzTarget { name: "reader", inputs: "recordings", runs: "100000", longest: 1 << 20, corpus: "reader" },
    FuzzTarget {
        name: "answers",
        inputs: "recordings that are shown",
        runs: "20000",
        longest: 1 << 20,
        corpus: "reader",
    },
    FuzzTarget {
        name: "protocol",
        inputs: "clients and daemons",
        runs: "50000",
        longest: 64 << 10,
        corpus: "protocol",
    },
];

/// Compiler flags that let libFuzzer see which code an input reaches, as in `cargo fuzz`. The address sanitizer that `cargo fuzz`
/// uses is left out: it needs a nightly compiler, and the fuzzed code has no `unsafe`.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares";

/// Builds and runs the targets: `[TARGET] [RUNS] [--keep] [-- FLAGS OF LIBFUZZER]`.
pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut steps = Steps::new("fuzz");
    for_checks(&mut steps, arguments)?;
    steps.summary();
    Ok(())
}

pub(crate) fn for_checks(steps: &mut Steps, arguments: &[String]) -> Result<(), Failure> {
    let request = FuzzRequest::parse(arguments)?;
    // The host triple has this form on every platform on which cgscope can be built.
    let (built, host) = (target_dir(), format!("{}-unknown-linux-gnu", std::env::consts::ARCH));
    let mut build = Command::new(cargo_path());
    build.current_dir(dir()).env("RUSTFLAGS", COVERAGE);
    // Because of the explicit `--target`, cargo does not apply RUSTFLAGS to build scripts and derive macros.
    build.args(["build", "--release", "--locked", "--target", &host, "--target-dir"]).arg(&built);
    steps.step("the fuzz targets", &mut build)?;
    for target in request.targets {
        let runs = request.runs.unwrap_or(target.runs);
        let binary = built.join(&host).join("release").join(target.name);
        let corpora = Corpora::unpack(&built, target.corpus, steps)?;
        let step = format!("{runs} generated {}", target.inputs);
        // libFuzzer writes new inputs into the first directory.
        let fuzzer = |first: &Path, second: &Path| {
            let mut command = Command::new(&binary);
            command.current_dir(&built).args([first, second]);
            command
        };
        let mut fuzz = fuzzer(&corpora.found, &corpora.saved);
        fuzz.args([
            &format!("-runs={runs}"),
            &format!("-max_len={}", target.longest),
            "-timeout=60",
            "-rss_limit_mb=1024",
            "-print_final_stats=1",
        ]);
        eprintln!("fuzz: {step}");
        steps.done(&step, with_coverage(fuzz.args(request.flags)))?;
        if request.keep {
            let mut merge = fuzzer(&corpora.saved, &corpora.found);
            steps.step("new inputs that reach other code", merge.arg("-merge=1"))?;
            steps.step("the archive of saved inputs", &mut corpora.pack(target.corpus))?;
        }
    }
    Ok(())
}

/// Runs libFuzzer. Prints only two lines: the number of places in the code, and libFuzzer's last line with the number of places
/// that inputs reach.
fn with_coverage(fuzzer: &mut Command) -> Result<(), Failure> {
    let started = fuzzer.stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|why| steps::did_not_start(fuzzer, &why))?;
    let lines = child.stderr.take().into_iter().flat_map(|said| BufReader::new(said).lines());
    let mut progress = String::new();
    for line in lines.map_while(Result::ok) {
        match line.as_bytes() {
            [b'#', ..] => progress = line,
            [b'I', b'N', b'F', b'O', ..] if !line.contains("counters") => {}
            _ => eprintln!("{line}"),
        }
    }
    let status = child.wait().map_err(|why| steps::did_not_start(fuzzer, &why))?;
    eprintln!("{progress}");
    if status.success() { Ok(()) } else { Err(Failure::Step(status.to_string())) }
}

/// The inputs of a fuzz target. They are in two directories below the target directory.
struct Corpora {
    /// Inputs that earlier runs on this machine found.
    found: PathBuf,
    /// Inputs from the archive.
    saved: PathBuf,
}

impl Corpora {
    fn unpack(built: &Path, name: &str, steps: &mut Steps) -> Result<Self, Failure> {
        let corpora = Self { found: built.join("corpus").join(name), saved: built.join("saved").join(name) };
        let _ = fs::remove_dir_all(&corpora.saved);
        for place in [&corpora.found, &corpora.saved] {
            fs::create_dir_all(place).map_err(|why| steps::cannot("write", place, &why))?;
        }
        let mut tar = Command::new("tar");
        tar.arg("-C").arg(built.join("saved")).arg("-xf").arg(archive(name));
        steps.step(&format!("saved inputs of {name}"), &mut tar)?;
        Ok(corpora)
    }

    /// Returns a command that writes the archive. The same inputs always produce the same archive.
    fn pack(&self, name: &str) -> Command {
        let mut tar = dist::tar(self.saved.parent().unwrap_or(&self.saved), "0");
        tar.arg("--mode=u=rwX,go=rX").arg("-cf").arg(archive(name)).arg(name);
        tar
    }
}

fn archive(name: &str) -> PathBuf {
    dir().join("corpus").join(format!("{name}.tar"))
}

#[derive(Debug)]
struct FuzzRequest<'a> {
    targets: &'static [FuzzTarget],
    runs: Option<&'a str>,
    keep: bool,
    flags: &'a [String],
}

impl<'a> FuzzRequest<'a> {
    fn parse(arguments: &'a [String]) -> Result<Self, Failure> {
        let dashes = arguments.iter().position(|word| word == "--").unwrap_or(arguments.len());
        let flags = arguments.get(dashes + 1..).unwrap_or_default();
        let mut request = Self { targets: &TARGETS, runs: None, keep: false, flags };
        for word in &arguments[..dashes] {
            let target = TARGETS.iter().position(|target| target.name == word);
            match (word.as_str(), target) {
                ("--keep", _) => request.keep = true,
                (_, Some(at)) if request.targets.len() > 1 => request.targets = &TARGETS[at..=at],
                (runs, None) if runs.parse::<u64>().is_ok() && request.runs.is_none() => {
                    request.runs = Some(runs);
                }
                (other, _) => {
                    let names = TARGETS.each_ref().map(|target| target.name).join("` or `");
                    return Err(Failure::Usage(format!(
                        "`fuzz` takes one of `{names}`, one number of runs, and flags after `--`; `{other}` is too much"
                    )));
                }
            }
        }
        Ok(request)
    }
}

fn target_dir() -> PathBuf {
    steps::target_dir().join("fuzz")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The names of targets, the number of runs, whether inputs are kept, and the number of flags.
    type Asked = (Vec<&'static str>, Option<u64>, bool, usize);

    fn asked(line: &str) -> Result<Asked, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let asked = FuzzRequest::parse(&words).map_err(|failure| failure.to_string())?;
        let targets = asked.targets.iter().map(|target| target.name).collect();
        Ok((targets, asked.runs.and_then(|runs| runs.parse().ok()), asked.keep, asked.flags.len()))
    }

    #[test]
    fn target_number_and_flags_are_optional() {
        let both = || vec!["reader", "answers", "protocol"];
        assert_eq!(asked(""), Ok((both(), None, false, 0)));
        assert_eq!(asked("7 -- -seed=1 --keep"), Ok((both(), Some(7), false, 2)));
        assert_eq!(asked("--keep"), Ok((both(), None, true, 0)));
        assert_eq!(asked("protocol"), Ok((vec!["protocol"], None, false, 0)));
        assert_eq!(asked("reader 7 --keep"), Ok((vec!["reader"], Some(7), true, 0)));
        assert!(asked("writer").unwrap_err().contains("`writer` is too much"));
        assert!(asked("reader 7 8").is_err());
    }
}
