//! Builds, tests and measures cgscope, and installs the tools for that: see `cargo xtask help`.
use std::env;
use std::process::ExitCode;

mod binary;
mod checks;
mod deploy;
mod dist;
mod failure;
mod fuzz;
mod lab;
mod lanes;
mod overhead;
mod pictures;
mod quiet;
mod readers;
mod root;
mod setup;
mod steps;

use failure::Failure;

const HELP: &str = "\
cargo xtask COMMAND

  setup              install what cgscope is built with; says so before, and does nothing where all is there
  build              setup, then the optimised, static binary at target/release/cgscope
  run [ARGS...]      build, then cgscope ARGS as root; without ARGS: top
  dist [--built]     build, then packages in target/dist: a tarball and a Debian package; --built: of the binary that is there
  test [--unit|--root|--long] [-- ARGS...]
                     setup and the tools for tests, then format, lints, unit tests, tests as root;
                     --unit: without those as root; --root: only those; --long: those that take minutes, which are
                     in no other run; ARGS go to the test binaries
  lab [KERNEL...] [--all] [-- FILTER...]
                     the tests as root on other kernels, each in a virtual machine, as a table; without KERNEL (6.12):
                     all; --all: every test on each; --list: which kernels; --shell KERNEL: a shell in there;
                     --script FILE: a shell script in place of the tests
  readers            install the programs that read exports, for the tests
  fuzz [reader | protocol] [RUNS] [-- FLAGS...]
                     hears RUNS recordings, and as many clients and daemons, that libFuzzer makes up (without RUNS: as
                     `test --long` does); FLAGS go to libFuzzer
  pictures [--check] draws the screens of docs/pictures; --check: says whether they are what is drawn now
  overhead [ARGS...] what cgscope costs, side by side with other tools, as root
  help               this text

Exit: 0 done, 1 a step failed, 2 could not run.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = match env::args_os().skip(1).map(|word| word.into_string()).collect() {
        Ok(arguments) => arguments,
        Err(word) => return failed(&Failure::Usage(format!("{} is not text", word.display()))),
    };
    match dispatch(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failed(&failure),
    }
}

fn failed(failure: &Failure) -> ExitCode {
    eprintln!("xtask: {failure}");
    if matches!(failure, Failure::Usage(_)) {
        eprint!("\n{HELP}");
    }
    ExitCode::from(if matches!(failure, Failure::Step(_)) { 1 } else { 2 })
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let (command, rest) = match arguments {
        [] => ("help", arguments),
        [command, rest @ ..] => (command.as_str(), rest),
    };
    match command {
        "help" | "--help" | "-h" => {
            print!("{HELP}");
            Ok(())
        }
        "setup" => nothing_else(command, rest).and_then(|()| setup::ensure(&[])),
        "build" => nothing_else(command, rest).and_then(|()| binary::build()).map(|_| ()),
        "run" => binary::run(rest),
        "dist" => dist::run(rest),
        "test" => checks::run(&checks::TestRun::parse(rest)?),
        "lab" => lab::run(&lab::Request::parse(rest)?),
        "readers" => nothing_else(command, rest).and_then(|()| readers::run()),
        "fuzz" => fuzz::run(rest),
        "pictures" => pictures::run(rest),
        "overhead" => overhead::run(rest),
        other => Err(Failure::Usage(format!("`{other}` is not a command"))),
    }
}

fn nothing_else(command: &str, rest: &[String]) -> Result<(), Failure> {
    match rest.first() {
        None => Ok(()),
        Some(word) => Err(Failure::Usage(format!("`{command}` takes no arguments, so not `{word}`"))),
    }
}
