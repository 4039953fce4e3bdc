//! The pictures of the screen in the README and in docs.
use std::process::Command;

use crate::failure::Failure;
use crate::steps;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    match arguments {
        [] => succeed(&mut draw()),
        [check] if check == "--check" => succeed(&mut for_checks()),
        [word, ..] => Err(Failure::Usage(format!("`pictures` takes `--check` or nothing, so not `{word}`"))),
    }
}

/// Fails if those that are there are not what would be drawn, and says what to do.
pub(crate) fn for_checks() -> Command {
    let mut check = draw();
    check.arg("--check");
    check
}

fn draw() -> Command {
    steps::cargo(&["run", "--quiet", "--package", "cgscope-view", "--example", "pictures", "--"])
}

fn succeed(command: &mut Command) -> Result<(), Failure> {
    let status = steps::status(command)?;
    if !status.success() {
        return Err(Failure::Step(format!("pictures: it failed ({status}); what it said is above")));
    }
    Ok(())
}
