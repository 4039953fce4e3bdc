//! Measures the overhead of cgscope and of other tools: `cargo xtask overhead`.
use crate::failure::Failure;
use crate::root::AsRoot;
use crate::{binary, setup, steps};

pub(crate) fn run(arguments: &[String]) -> Result<(), Failure> {
    let as_root = AsRoot::become_root("measuring the overhead", "run this as root")?;
    setup::ensure(&setup::TEST_TOOLS)?;
    // `overhead` starts the release binary and the loads of the lab from its own directory.
    binary::build()?;
    let loads =
        steps::status(&mut steps::cargo(&["build", "--release", "--package", "cgscope-lab", "--bins"]))?;
    if !loads.success() {
        return Err(Failure::Step(format!(
            "overhead: cannot build the loads ({loads}); see the messages above"
        )));
    }
    let mut cargo = steps::cargo(&["run", "--release", "--package", "cgscope-benches", "--bin", "overhead"]);
    cargo.args(as_root.for_cargo()).arg("--").args(arguments);
    let status = steps::status(&mut cargo)?;
    if !status.success() {
        return Err(Failure::Step(format!(
            "overhead: the measurement failed ({status}); see the messages above"
        )));
    }
    Ok(())
}
