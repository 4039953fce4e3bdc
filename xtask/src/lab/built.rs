//! Builds the kernel `scx`, and BPF schedulers for it, from Debian's source of Linux.
//!
//! It is built because no kernel of Debian has both sched_ext and the accounting of interrupt time.
use std::path::{Path, PathBuf};
use std::{fs, process::Command, thread};

use crate::steps::{self, Failure};
use crate::{lab::archive::Apt, lab::kernels, setup};

/// The source package. It is in Debian 13 and in the backports of Debian 12.
const SOURCE: &str = "linux-source-6.12";
/// All options of the kernel that differ from `allnoconfig`.
const CONFIG: &str = include_str!("scx.config");
/// The compilers and tools for the build, and the tools that write the kernel's BTF.
const TOOLS: &str = "make gcc flex bison bc xz-utils libelf-dev dwarves clang";
/// The example BPF schedulers in the kernel's source that the lab builds.
const SCHEDULERS: [&str; 2] = ["scx_simple", "scx_qmap"];

/// Returns the directory of the BPF schedulers. It does not exist until the kernel is built.
pub(crate) fn schedulers() -> Result<PathBuf, Failure> {
    Ok(kernels::image(kernels::BUILT)?.with_file_name("schedulers"))
}

/// Builds the kernel as `image`, and the schedulers. This takes some ten minutes. Until it ends, it needs 4 GB of disk space.
pub(crate) fn make(apt: &Apt, image: &Path) -> Result<(), Failure> {
    setup::ensure(&[TOOLS])?;
    let (unpacked, tree) = (image.with_extension("package"), image.with_extension("source"));
    let clean = || [&unpacked, &tree].into_iter().for_each(|dir| _ = fs::remove_dir_all(dir));
    clean();
    apt.unpack(SOURCE, &unpacked)?;
    fs::create_dir_all(&tree).map_err(|why| steps::cannot("write", &tree, &why))?;
    eprintln!("lab: building the kernel {}, which takes some ten minutes", kernels::BUILT);
    let archive = unpacked.join(format!("usr/src/{SOURCE}.tar.xz"));
    steps::output(
        Command::new("tar").args(["--strip-components=1", "-xf"]).arg(archive).arg("-C").arg(&tree),
    )?;
    configure(&tree)?;
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    steps::output(make_in(&tree).arg(format!("-j{jobs}")).arg("bzImage"))?;
    steps::output(make_in(&tree.join("tools/sched_ext")).arg("CLANG=clang").args(SCHEDULERS))?;
    let place = schedulers()?;
    let copied = fs::create_dir_all(&place).and_then(|()| {
        for scheduler in SCHEDULERS {
            fs::copy(tree.join("tools/sched_ext/build/bin").join(scheduler), place.join(scheduler))?;
        }
        // The image is moved last, because the next run builds everything again if the image is missing.
        fs::rename(tree.join("arch/x86/boot/bzImage"), image)
    });
    copied.map_err(|why| steps::cannot("write", image, &why))?;
    clean();
    Ok(())
}

fn configure(tree: &Path) -> Result<(), Failure> {
    let wanted = tree.join("wanted.config");
    steps::write(&wanted, CONFIG)?;
    steps::output(make_in(tree).arg(format!("KCONFIG_ALLCONFIG={}", wanted.display())).arg("allnoconfig"))?;
    let chosen = fs::read_to_string(tree.join(".config")).unwrap_or_default();
    let refused = refused(&chosen).join(", ");
    if refused.is_empty() {
        return Ok(());
    }
    Err(Failure::Step(format!("lab: the kernel's configuration lacks {refused}; see scx.config")))
}

/// Returns those lines of [`CONFIG`] that the kernel's configuration lacks. A line can be missing because another option is.
fn refused(chosen: &str) -> Vec<&'static str> {
    let is_chosen = |line: &&str| chosen.lines().any(|chosen| chosen == *line);
    CONFIG.lines().filter(|line| line.contains("CONFIG_")).filter(|line| !is_chosen(line)).collect()
}

fn make_in(dir: &Path) -> Command {
    let mut command = Command::new("make");
    command.args(["-s", "-C"]).arg(dir);
    command
}

#[cfg(test)]
mod tests {
    use super::{CONFIG, refused};

    #[test]
    fn options_that_the_kernel_refused_are_named() {
        assert!(refused(CONFIG).is_empty());
        let without = CONFIG.replace("CONFIG_SCHED_CLASS_EXT=y", "# CONFIG_SCHED_CLASS_EXT is not set");
        assert_eq!(refused(&without), ["CONFIG_SCHED_CLASS_EXT=y"]);
    }
}
