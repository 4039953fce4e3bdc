//! Selects kernels and extracts them from Debian packages, or builds them from their source.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
};

use crate::lab::{arch::Arch, archive::Apt, image};
use crate::lanes::{BUILT_KERNEL, LONG, SYSTEMD_HOST};
use crate::setup;
use crate::steps::{self, Failure};

/// A kernel series, such as `6.12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Series(pub(crate) u32, pub(crate) u32);

/// The kernel that the lab builds. In the order of kernels, it follows the series from whose source it is built.
pub(crate) const BUILT: Series = Series(6, u32::MAX);
/// A machine with the kernel [`NEWEST`] and a Debian root, in which systemd is the first process.
pub(crate) const SYSTEMD: Series = Series(u32::MAX, 0);
/// All kernels of [`OF_ARM`].
const ARM: Series = Series(u32::MAX, 1);
/// The machines that have a name instead of a version number.
const NAMED: [(Series, &str); 3] = [(BUILT, "scx"), (SYSTEMD, "systemd"), (ARM, "arm64")];

impl Series {
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let named = NAMED.into_iter().find(|(_, name)| *name == text).map(|(series, _)| series);
        let numbers = || {
            let (major, minor) = text.split_once('.')?;
            Some(Self(major.parse().ok()?, minor.parse().ok()?))
        };
        named.or_else(numbers).ok_or_else(|| "this is not a kernel series such as `6.12`".to_owned())
    }

    /// Returns the name of a machine that does not only consist of a kernel of Debian.
    pub(crate) fn name(self) -> Option<&'static str> {
        NAMED.into_iter().find(|(series, _)| *series == self).map(|(_, name)| name)
    }
}

impl std::fmt::Display for Series {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "{}.{}", self.0, self.1),
        }
    }
}

/// The default series. If the archive no longer has one of these series, the next available series replaces it.
///
/// * 5.10: older than every supported kernel
/// * 6.1: the oldest supported kernel that is in a Debian release
/// * 6.12: has the clock of throttled time
/// * 6.16: wakeups as changed in 6.14; the last series in this list before per-task throttling (6.18)
/// * 7.2: the newest kernel
pub(crate) const DEFAULT: [Series; 5] = [Series(5, 10), OLDEST, Series(6, 12), Series(6, 16), NEWEST];

/// The oldest kernel in [`DEFAULT`] that cgscope supports.
pub(crate) const OLDEST: Series = Series(6, 1);
pub(crate) const NEWEST: Series = Series(7, 2);

/// The kernels for arm64, and whether their pages have 16 KiB. On 6.1, a load through a null pointer stops the machine, and no program can
/// be attached to a function.
const OF_ARM: [(Series, bool); 5] =
    [(OLDEST, false), (Series(6, 12), false), (Series(6, 12), true), (NEWEST, false), (Series(7, 3), false)];

/// Which kernel a machine has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Id {
    pub(crate) series: Series,
    pub(crate) arch: Arch,
    has_16k_pages: bool,
}

impl Id {
    /// Returns the requested kernels; if there is no request, all of the architecture.
    pub(crate) fn all(requested: &[Series], arch: Arch) -> BTreeSet<Self> {
        let id = |series, arch, has_16k_pages| Self { series, arch, has_16k_pages };
        let of_arm =
            || OF_ARM.into_iter().map(|(series, has_16k_pages)| id(series, Arch::Arm, has_16k_pages));
        match (requested, arch) {
            ([], Arch::X86) => DEFAULT.into_iter().map(|series| id(series, arch, false)).collect(),
            ([], Arch::Arm) => of_arm().collect(),
            (some, _) => {
                let (arm, others): (Vec<_>, Vec<_>) = some.iter().copied().partition(|series| *series == ARM);
                let others = others.into_iter().map(|series| id(series, arch, false));
                others.chain(arm.into_iter().flat_map(|_| of_arm())).collect()
            }
        }
    }
}

impl std::fmt::Display for Id {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let arch = if self.arch == Arch::X86 { "" } else { "-arm64" };
        write!(f, "{}{arch}{}", self.series, if self.has_16k_pages { "-16k" } else { "" })
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    pub(crate) id: Id,
    pub(crate) image: PathBuf,
    /// The archive of a Debian root, if the machine has one.
    pub(crate) root: Option<PathBuf>,
}

/// Downloads missing kernels; by default, those in [`DEFAULT`]. Existing files are kept. To get the newest kernel of a series,
/// remove its file.
pub(crate) fn fetch(requested: &[Series], arch: Arch) -> Result<Vec<Kernel>, Failure> {
    let mut kernels = Vec::new();
    let apts = (Apt::new(Arch::X86)?, Apt::new(Arch::Arm)?);
    for id in Id::all(requested, arch) {
        let apt = if id.arch == Arch::X86 { &apts.0 } else { &apts.1 };
        match fetch_one(apt, id) {
            Ok(kernel) => kernels.push(kernel),
            // Archives remove old kernels. An unsupported kernel is skipped if it is missing and the user has not requested it.
            Err(failure @ Failure::Host(_)) if requested.is_empty() && !is_supported(id.series) => {
                eprintln!("{failure}");
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(kernels)
}

fn image(id: Id) -> Result<PathBuf, Failure> {
    Ok(setup::cache("lab")?.join("kernels").join(id.to_string()).join("vmlinuz"))
}

fn fetch_one(apt: &Apt, id: Id) -> Result<Kernel, Failure> {
    let of_debian = if id.series == SYSTEMD { Id { series: NEWEST, ..id } } else { id };
    let image = image(of_debian)?;
    if !image.is_file() {
        if id.series == BUILT { build(apt, &image) } else { download(apt, of_debian, &image) }?;
    }
    let root = (id.series == SYSTEMD).then(image::systemd_root).transpose()?;
    Ok(Kernel { id, image, root })
}

fn download(apt: &Apt, id: Id, image: &Path) -> Result<(), Failure> {
    // Since 6.19, `linux-binary-*` contains the image. `linux-image-*` only makes it bootable on real machines.
    let names = apt.names("linux-")?;
    let place = image.display();
    let name = choose(&names, id).ok_or_else(|| {
        Failure::Host(format!("lab: the archive has no kernel {id}; copy a kernel image to {place}"))
    })?;
    let unpacked = image.with_extension("new");
    let _ = fs::remove_dir_all(&unpacked);
    apt.unpack(name, &unpacked)?;
    // The rest of the package is mostly modules, which the lab does not need.
    let found = steps::output(Command::new("find").arg(&unpacked).args(["-name", "vmlinuz*", "-type", "f"]))?;
    let found = found.lines().next().unwrap_or_default();
    fs::rename(found, image)
        .map_err(|why| Failure::Step(format!("lab: cannot copy the kernel of {name} to {place}: {why}")))?;
    let _ = fs::remove_dir_all(&unpacked);
    Ok(())
}

/// Returns the name of the package with the newest kernel of the series.
///
/// If the archive lacks this series, returns a package of the next newer series that is available and older than the next series
/// in [`DEFAULT`]. The `cloud` flavour has everything that the tests need, and a third of the size.
fn choose(names: &[String], id: Id) -> Option<&str> {
    let series = id.series;
    let next = DEFAULT.into_iter().find(|next| *next > series).unwrap_or(Series(u32::MAX, 0));
    let candidates = || names.iter().filter_map(|name| Some((version(name, id)?, name.as_str())));
    let lowest = candidates().map(|(version, _)| Series(version[0], version[1]));
    let lowest = lowest.filter(|found| *found >= series && *found < next).min()?;
    let of_series = candidates().filter(|(version, _)| Series(version[0], version[1]) == lowest);
    // If two packages have this kernel, the image is in the package that is first in the alphabet (`linux-binary-*`).
    let best = of_series.max_by(|(a, a_name), (b, b_name)| a.cmp(b).then(b_name.cmp(a_name)));
    best.map(|(_, name)| name)
}

/// Returns the version numbers in a package name such as `linux-image-6.12.107+deb13-cloud-amd64`. `None` for packages of other
/// machines.
fn version(name: &str, id: Id) -> Option<Vec<u32>> {
    let rest = name.strip_prefix("linux-image-").or_else(|| name.strip_prefix("linux-binary-"))?;
    let arch = id.arch.of_debian();
    let version = if id.has_16k_pages {
        rest.strip_suffix("-16k")?.strip_suffix(arch)?
    } else {
        rest.strip_suffix(arch)?
    };
    let version = if id.has_16k_pages { version.strip_suffix('-') } else { version.strip_suffix("-cloud-") }?;
    let parts = version.split(|c: char| !c.is_ascii_digit()).filter(|part| !part.is_empty());
    let numbers: Vec<u32> = parts.map(|part| part.parse().ok()).collect::<Option<_>>()?;
    // This is a release candidate such as `7.3-cloud-amd64`, which has only two numbers.
    (numbers.len() > 2).then_some(numbers)
}

/// The oldest kernel that cgscope fully supports, see `Feature::LoopHelper`.
const OLDEST_SUPPORTED: Series = Series(5, 17);

/// Tests that run only on the host, by the prefixes of their full names.
const HOST_ONLY: [&str; 5] = [
    // They assert times or shares of time, or compare readings of the same seconds, and emulation is too slow for that. On other
    // kernels, `offcpu::` checks the same as `stat_classes::a_pool_that_waits`.
    "bad_input::a_target_that_exits coarse::five_thousand coarse::the_sums_equal_those_of_the_exact_mode cost:: cures:: \
     kill::a_kill_at_any_instant_loses kill::a_kill_with_bpf offcpu::beside_offcputime sample::a_sample_of_5000_threads \
     screen_cost:: serve::hostile:: serve::intervals:: serve::many:: serve::scale:: stat::objects_and_text_agree \
     stat::side_by_side stat_classes::a_command_that_sleeps stat_classes::a_pool_that_waits stat_classes::sleepers_that_exit \
     stat_command_unseen::the_terminal stat_offcpu::the_stacks_of_a_command whatif::",
    // They assert that the screen answers within seconds; the screen is the same on every kernel.
    "overview:: screen:: views::",
    // It runs fifty commands and screens, which depend on the kernel in other tests.
    "documented::",
    // They need a block device or a kernel module, which the machine lacks.
    "chains::paths::a_sleep_in_a_tcp_socket_between chains::timers::a_sleep_that_a_disk offcpu::writes_to_a_disk \
     sample::a_walk_of_proc sample::every_thread_of_a_blend",
    // They need large programs, such as Python, a browser or the Debian archive; the result is the same on every kernel.
    "export:: field_case_2:: fleet:: metrics_page:: packages:: report:: runtimes:: serve::access::a_request \
     serve::access::requests_for serve::prometheus:: shared::a_task_is",
];

/// Tests that also run on unsupported kernels, which are older. On supported kernels, these tests run on the same kernels as
/// [`ENDS`].
const BELOW_AND_ENDS: &str = "coarse:: coarse_fallback:: sample::the_coarse_mode";

/// Tests that hardly depend on the kernel. They run only on the oldest and the newest kernel; with `--all` they run on every
/// kernel.
const ENDS: &str = "serve:: bad_input:: record:: bytes::";

/// Tests that expect no wait with the cause `irq`. On the built kernel, interrupts take a part of the shares that they assert.
const WITHOUT_IRQ_TIME: &str =
    "ledger::far::a_long_wait_after_a_wakeup ledger::moved::six_loops_in_three_cgroups";

/// The test in which a thread hardly gets CPU time, and the oldest kernel on which it runs. On 6.1, which is preemptible, cgscope
/// ends only when that thread has run: the kernel waits for all tasks before it frees a trampoline.
const STARVES: (&str, Series) = ("ledger::a_thread_that_gets_no_cpu_time", Series(6, 12));

/// Returns whether a test runs on this kernel. Tests that are not named in this file run on every supported kernel.
///
/// `ends` is true if the kernel is the oldest or newest supported kernel of the run, or if the user requested every test.
pub(crate) fn runs(test: &str, kernel: Series, ends: bool) -> bool {
    let begins = |beginnings: &str| beginnings.split(' ').any(|beginning| test.starts_with(beginning));
    let (is_below, is_of_ends) = (begins(BELOW_AND_ENDS), begins(ENDS));
    match kernel {
        _ if test.starts_with(SYSTEMD_HOST) => kernel == SYSTEMD,
        SYSTEMD => false,
        _ if test.contains(LONG) => false,
        _ if test.starts_with(BUILT_KERNEL) => kernel == BUILT,
        BUILT if begins(WITHOUT_IRQ_TIME) => false,
        _ if begins(STARVES.0) && kernel < STARVES.1 => false,
        _ if HOST_ONLY.into_iter().any(begins) => false,
        _ if !is_supported(kernel) => is_below,
        _ => ends || !(is_below || is_of_ends),
    }
}

pub(crate) fn is_supported(kernel: Series) -> bool {
    kernel >= OLDEST_SUPPORTED
}

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
    Ok(image(Id { series: BUILT, arch: Arch::X86, has_16k_pages: false })?.with_file_name("schedulers"))
}

/// Builds the kernel as `image`, and the schedulers, because no kernel of Debian has both sched_ext and the accounting of interrupt
/// time. This takes some ten minutes. Until it ends, it needs 4 GB of disk space.
fn build(apt: &Apt, image: &Path) -> Result<(), Failure> {
    setup::ensure(&[TOOLS])?;
    let (unpacked, tree) = (image.with_extension("package"), image.with_extension("source"));
    let clean = || [&unpacked, &tree].into_iter().for_each(|dir| _ = fs::remove_dir_all(dir));
    clean();
    apt.unpack(SOURCE, &unpacked)?;
    fs::create_dir_all(&tree).map_err(|why| steps::cannot("write", &tree, &why))?;
    eprintln!("lab: building the kernel {}, which takes some ten minutes", BUILT);
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
    use super::*;

    fn x86(series: Series) -> Id {
        Id { series, arch: Arch::X86, has_16k_pages: false }
    }

    fn names(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_newest_of_the_series_is_chosen() {
        let names = names(
            "linux-image-6.12.90+deb12-cloud-amd64 linux-image-6.12.107+deb13-cloud-amd64 \
             linux-image-6.12.107+deb13-amd64 linux-image-6.12.107+deb13-cloud-amd64-unsigned \
             linux-image-6.1.0-50-cloud-amd64 linux-image-6.1.0-47-cloud-amd64 linux-image-cloud-amd64",
        );
        assert_eq!(choose(&names, x86(Series(6, 12))), Some("linux-image-6.12.107+deb13-cloud-amd64"));
        assert_eq!(choose(&names, x86(Series(6, 1))), Some("linux-image-6.1.0-50-cloud-amd64"));
    }

    #[test]
    fn if_a_kernel_has_two_packages_the_image_is_in_linux_binary() {
        let names = names("linux-image-7.2.12+deb13-cloud-amd64 linux-binary-7.2.12+deb13-cloud-amd64");
        assert_eq!(choose(&names, x86(Series(7, 2))), Some("linux-binary-7.2.12+deb13-cloud-amd64"));
    }

    #[test]
    fn the_next_series_replaces_a_missing_one() {
        let names = names(
            "linux-image-6.17.13+deb13-cloud-amd64 linux-image-6.18.15+deb13-cloud-amd64 \
             linux-image-7.3.4+deb13-cloud-amd64 linux-image-7.3-cloud-amd64",
        );
        assert_eq!(choose(&names, x86(Series(6, 16))), Some("linux-image-6.17.13+deb13-cloud-amd64"));
        assert_eq!(choose(&names, x86(Series(7, 2))), Some("linux-image-7.3.4+deb13-cloud-amd64"));
        assert_eq!(choose(&names, x86(Series(6, 1))), None, "the next series belongs to 6.12");
    }

    #[test]
    fn kernels_for_arm64_have_their_own_packages() {
        let names = names(
            "linux-image-6.12.95+deb12-cloud-arm64 linux-image-6.12.95+deb12-arm64-16k linux-image-6.12.99+deb12-arm64 \
             linux-image-6.12.99+deb12-cloud-amd64",
        );
        let of_6_12 = Id::all(&[ARM], Arch::X86).into_iter().filter(|id| id.series == Series(6, 12));
        let chosen: Vec<_> =
            of_6_12.map(|id| (id.to_string(), choose(&names, id).unwrap_or_default())).collect();
        let [small, large] = [0, 1].map(|at| (chosen[at].0.as_str(), chosen[at].1));
        assert_eq!(small, ("6.12-arm64", "linux-image-6.12.95+deb12-cloud-arm64"));
        assert_eq!(large, ("6.12-arm64-16k", "linux-image-6.12.95+deb12-arm64-16k"));
        assert_eq!(chosen.len(), 2);
    }

    #[test]
    fn a_series_is_two_numbers() {
        assert_eq!(Series::parse("6.12"), Ok(Series(6, 12)));
        assert!(Series::parse("6").is_err() && Series::parse("newest").is_err());
        assert_eq!(Series::parse("scx").map(|series| series.to_string()).as_deref(), Ok("scx"));
        assert_eq!(Series::parse("systemd").map(Series::name), Ok(Some("systemd")));
    }

    #[test]
    fn the_ledger_runs_on_every_supported_kernel() {
        for kernel in [Series(6, 1), Series(6, 12), Series(7, 2)] {
            assert!(runs("ledger::a", kernel, false) && !runs("coarse::a", kernel, false));
        }
        assert!(!runs("ledger::a", Series(5, 10), true) && runs("coarse::a", Series(5, 10), false));
    }

    #[test]
    fn tests_that_hardly_depend_on_the_kernel_run_on_the_oldest_and_the_newest() {
        assert!(runs("record::b", Series(6, 1), true) && !runs("record::b", Series(6, 12), false));
    }

    #[test]
    fn tests_of_a_machine_run_only_there() {
        assert!(runs("built_kernel::a::b", BUILT, false) && runs("systemd_host::a", SYSTEMD, false));
        for (test, kernel) in [
            ("built_kernel::a::b", Series(7, 2)),
            ("systemd_host::a", Series(7, 2)),
            ("ledger::a", SYSTEMD),
            ("built_kernel::a", SYSTEMD),
        ] {
            assert!(!runs(test, kernel, true), "{test}");
        }
    }

    #[test]
    fn times_are_measured_only_on_the_host() {
        assert!(!runs("cost::a", Series(7, 2), true));
    }

    #[test]
    fn options_that_the_kernel_refused_are_named() {
        assert!(refused(CONFIG).is_empty());
        let without = CONFIG.replace("CONFIG_SCHED_CLASS_EXT=y", "# CONFIG_SCHED_CLASS_EXT is not set");
        assert_eq!(refused(&without), ["CONFIG_SCHED_CLASS_EXT=y"]);
    }
}
