//! Builds, tests and measures cgscope. Installs the tools for this: see `cargo xtask help`.
mod binary;
mod checks;
mod dist;
mod fuzz;
mod lab;
mod lanes;
mod mutants;
mod overhead;
mod readers;
mod setup;
mod size;
mod steps;
mod unchanged;

use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};
use steps::Failure;

/// Builds, tests and measures cgscope, and installs the tools for that
#[derive(Parser)]
#[command(
    bin_name = "cargo xtask",
    after_help = "\
`cargo xtask help COMMAND` lists the options of a command.

Exit status: 0 success; 1 a step failed; 2 the command could not run; 3 tests are undecided: they failed while other \
programs used the machine, and the machine did not become quiet for a second try."
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Install missing build tools; lists them first
    Setup,
    /// Setup, then build the optimised, static binary target/release/cgscope
    Build,
    /// Build, then run cgscope ARGS as root; without ARGS: top
    #[command(disable_help_flag = true)]
    Run {
        #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Build, then make a tarball, a Debian package and an image for containers in target/dist
    Dist,
    /// Setup, install the tools for tests, then check format and lints, run unit tests and tests as root
    Test(checks::TestRun),
    /// Run the tests as root on other kernels, each in a virtual machine
    Lab(lab::Request),
    /// Install the programs that read exports and the Helm chart in the tests
    Readers,
    /// Test the reader of recordings and the daemon's protocol with generated inputs
    Fuzz(fuzz::Request),
    /// Change the arithmetic of ledger and of the findings in one place at a time, and check that a test fails each time,
    /// for at most 30 minutes; the next run continues
    Mutants,
    /// Build the documents as a book in target/book, with mdBook
    Book,
    /// Draw the screens in docs/pictures
    Pictures,
    /// Compare the cost of cgscope with other tools, as root; --before COMMIT: with an earlier commit, which is built
    /// first; fails if a printed bound is missed
    #[command(disable_help_flag = true)]
    Overhead {
        #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// Count source files and lines outside tests by crate, and the words of README and docs
    Size,
    /// Run one test; `test` calls this
    #[command(hide = true)]
    Supervise {
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::from(failure.exit_code())
        }
    }
}

fn run(task: Task) -> Result<(), Failure> {
    match task {
        Task::Setup => setup::ensure(&[]),
        Task::Build => binary::build().map(drop),
        Task::Run { arguments } => binary::run(&arguments),
        Task::Dist => dist::make(&binary::build()?).map(drop),
        Task::Test(tests) => checks::run(&tests),
        Task::Lab(request) => lab::run(&request),
        Task::Readers => readers::run(),
        Task::Fuzz(request) => fuzz::run(&request),
        Task::Mutants => mutants::run(),
        Task::Book => book(),
        Task::Pictures => draw_pictures(),
        Task::Overhead { arguments } => overhead::run(arguments),
        Task::Size => size::run(),
        Task::Supervise { command } => lanes::supervise(&command),
    }
}

const MDBOOK: &str = "0.5.4";

fn book() -> Result<(), Failure> {
    let mut build = Command::new(setup::program("mdbook", MDBOOK)?);
    steps::succeed(build.args(["build", "docs"]).current_dir(steps::workspace()), "book: mdBook failed")
}

/// Draws the pictures with the test that checks them.
fn draw_pictures() -> Result<(), Failure> {
    let mut cargo = steps::cargo(&["test", "--quiet", "--package", "cgscope-view", "--test", "pictures"]);
    steps::succeed(cargo.env("UPDATE_DOCS", "1"), "pictures: failed")
}
