//! Draws the pictures of the screen in the README and the docs.
use std::process::Command;

use crate::failure::Failure;
use crate::steps;

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let mut command = match arguments {
        [] => draw(),
        [check] if check == "--check" => for_checks(),
        [word, ..] => {
            return Err(Failure::Usage(format!(
                "unknown argument `{word}` of `pictures`, which takes only `--check`"
            )));
        }
    };
    let status = steps::status(&mut command)?;
    if !status.success() {
        return Err(Failure::Step(format!("pictures: failed ({status}); see the messages above")));
    }
    Ok(())
}

/// A command that fails if the pictures are out of date, and prints what to do.
pub(crate) fn for_checks() -> Command {
    let mut check = draw();
    check.arg("--check");
    check
}

fn draw() -> Command {
    steps::cargo(&["run", "--quiet", "--package", "cgscope-view", "--example", "pictures", "--"])
}
