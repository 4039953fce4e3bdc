//! Builds, tests and measures cgscope. Installs the tools for this: see `cargo xtask help`.
mod binary;
mod book;
mod checks;
mod deploy;
mod dist;
mod fuzz;
mod lab;
mod lanes;
mod long;
mod mutants;
mod overhead;
mod readers;
mod setup;
mod size;
mod steps;
mod unchanged;

use std::env;
use std::process::ExitCode;

use steps::Failure;

const HELP: &str = "\
cargo xtask COMMAND

  setup              install missing build tools; lists them first
  build              setup, then build the optimised, static binary target/release/cgscope
  run [ARGS...]      build, then run cgscope ARGS as root; without ARGS: top
  dist [--built]     build, then make a tarball, a Debian package and an image for containers in target/dist; --built: do
                     not build, package the existing binary
  test [--unit|--root|--history] [--all] [-- ARGS...]
                     setup, install the tools for tests, then check format and lints, run unit tests and tests as root;
                     --unit: no tests as root; --root: only tests as root; --all: also the tests of the packages and on
                     other kernels if nothing has changed since they passed; --history: only print the latest runs on
                     this machine, and the tests that needed a second try most often; ARGS go to the test binaries
  test --long [PART...] [--again] [-- FILTER...]
                     run the tests that take minutes, which no other run includes (default: all parts), and print the
                     results, which are kept in the cache; what passed at this commit runs only with --again; FILTER:
                     only tests as root with this in their names; the parts:
                       fuzz: generated recordings, clients and daemons
                       schedules: a million random schedules of the ledger and of the pressure
                       mutants: changes of the arithmetic that a test must notice
                       tests: tests as root that take minutes
                       soak: half an hour of churn, and system calls that fail
                       lab: tests on other kernels
  lab [KERNEL...] [--all] [-- FILTER...]
                     run the tests as root on other kernels, each in a virtual machine, and print a table; KERNEL is a
                     series such as 6.12 (default: all); scx: a kernel with sched_ext, which is built first; systemd: a
                     Debian host with systemd and container runtimes; --all: every test on each kernel; --list: list the
                     kernels; --shell KERNEL: open a shell in the machine; --script FILE: run a shell script, not the
                     tests
  readers            install the programs that read exports and the Helm chart in the tests
  fuzz [reader | protocol] [RUNS] [--keep] [-- FLAGS...]
                     test the reader of recordings and the daemon's protocol with RUNS generated inputs each (default:
                     as many as `test --long`); --keep: then add the new inputs that reach other code to the archives in
                     fuzz/corpus, whose inputs the unit tests replay; FLAGS go to libFuzzer
  mutants [FILE...]  change the arithmetic of ledger and of the findings in one place at a time, and check that a test
                     fails each time, for at most 30 minutes; the next run continues; FILE: only files whose path ends so,
                     without a time limit
  book               build the documents as a book in target/book, with mdBook
  pictures [--check] draw the screens in docs/pictures; --check: only report whether they are up to date
  overhead [ARGS...] compare the cost of cgscope with other tools, as root; --before COMMIT: also with an earlier commit, which
                     is built first; fails if a printed bound is missed
  size               count source files and lines outside tests by crate, and the words of README and docs
  help               print this text

Exit status: 0 success; 1 a step failed; 2 the command could not run; 3 tests are undecided: they failed while other
programs used the machine, and the machine did not become quiet for a second try.
";

fn main() -> ExitCode {
    let arguments: Vec<String> = match env::args_os().skip(1).map(|word| word.into_string()).collect() {
        Ok(arguments) => arguments,
        Err(word) => {
            return failed(&Failure::Usage(format!("the argument {} is not valid UTF-8", word.display())));
        }
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
    ExitCode::from(failure.exit_code())
}

fn dispatch(arguments: &[String]) -> Result<(), Failure> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let rest = arguments.get(1..).unwrap_or_default();
    match words[..] {
        [] | ["help" | "--help" | "-h", ..] => {
            print!("{HELP}");
            Ok(())
        }
        ["setup"] => setup::ensure(&[]),
        ["build"] => binary::build().map(drop),
        ["run", ..] => binary::run(rest),
        ["dist"] => dist::make(&binary::build()?).map(drop),
        ["dist", "--built"] => dist::make(&binary::built()?).map(drop),
        ["test", ..] => checks::run(&checks::TestRun::parse(rest)?),
        ["lab", ..] => lab::run(&lab::Request::parse(rest)?),
        ["readers"] => readers::run(),
        ["fuzz", ..] => fuzz::run(rest),
        ["mutants", ..] => mutants::run(rest),
        ["book"] => book::run(),
        ["pictures"] => book::draw_pictures(false),
        ["pictures", "--check"] => book::draw_pictures(true),
        ["overhead", ..] => overhead::run(rest),
        ["size"] => size::run(),
        [lanes::supervise::COMMAND, ..] => lanes::supervise::run(rest),
        _ => Err(Failure::Usage(format!("unknown command or arguments: `{}`", words.join(" ")))),
    }
}
