//! Plans what to install if something is missing, as a pure function of facts. `cargo xtask setup` gathers the facts and runs the
//! steps.
use std::path::PathBuf;

use crate::linker;

/// Packages to link host programs. The static C library makes cgscope a single file that runs anywhere.
const C_COMPILER: &str = "gcc";
const STATIC_LIBC: &str = "libc6-dev";

/// Packages of a compiler with `core` for the BPF target.
const COMPILER: [&str; 2] = ["rustc-web", "libstd-rust-web-dev-bpf"];

/// Packages that are needed to build bpf-linker.
fn llvm_packages(llvm: u32) -> [String; 3] {
    [format!("llvm-{llvm}-dev"), format!("libpolly-{llvm}-dev"), "libzstd-dev".to_owned()]
}

/// Facts about this machine.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facts {
    pub c_compiler: bool,
    pub static_libc: bool,
    /// The LLVM releases of the compilers for the kernel side, the preferred compiler first.
    pub compilers: Vec<u32>,
    /// Whether one of these compilers has its linker.
    pub complete: bool,
    pub rustup: bool,
    /// The directory of the linker, by release of LLVM.
    pub roots: Vec<(u32, PathBuf)>,
    pub apt: Option<Apt>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Apt {
    /// The package lists are up to date: packages that are not offered now are not available.
    pub updated: bool,
    /// Packages that apt can install, among those of [`packages`].
    pub offered: Vec<String>,
    pub installed: Vec<String>,
}

impl Apt {
    fn can_have(&self, package: &str) -> bool {
        self.has(package) || self.offered.iter().any(|offered| offered == package)
    }

    fn has(&self, package: &str) -> bool {
        self.installed.iter().any(|installed| installed == package)
    }
}

/// Lists every package that a plan may need, to query apt only once.
pub fn packages(compilers: &[u32]) -> Vec<String> {
    let fixed = [C_COMPILER, STATIC_LIBC].into_iter().chain(COMPILER).map(str::to_owned);
    fixed.chain(compilers.iter().flat_map(|llvm| llvm_packages(*llvm))).collect()
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    AptUpdate,
    AptInstall(Vec<String>),
    /// Install nightly with rust-src.
    RustSrc,
    /// Build bpf-linker for this release of LLVM into this directory.
    Linker {
        llvm: u32,
        root: PathBuf,
    },
}

impl Step {
    /// The command as a list of words.
    pub fn words(&self) -> Vec<String> {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        match self {
            Self::AptUpdate => words("apt-get update"),
            // `--no-remove`: rustc-web would replace the distribution's other compiler. The timeout: a machine that has just
            // booted may run apt by itself.
            Self::AptInstall(packages) => {
                let mut command = words(
                    "apt-get install --yes --no-install-recommends --no-remove -o DPkg::Lock::Timeout=120",
                );
                command.extend_from_slice(packages);
                command
            }
            Self::RustSrc => words("rustup toolchain install nightly --profile minimal --component rust-src"),
            Self::Linker { llvm, root } => {
                let version = linker::VERSION;
                let mut command = words(&format!(
                    "cargo install bpf-linker --version {version} --locked --force --no-default-features \
                     --features llvm-{llvm} --root"
                ));
                command.push(root.display().to_string());
                command
            }
        }
    }

    pub fn needs_root(&self) -> bool {
        matches!(self, Self::AptUpdate | Self::AptInstall(_))
    }

    /// A directory that must come first on PATH: the build of bpf-linker runs its llvm-config.
    pub fn on_path(&self) -> Option<PathBuf> {
        match self {
            Self::Linker { llvm, .. } => Some(PathBuf::from(format!("/usr/lib/llvm-{llvm}/bin"))),
            _ => None,
        }
    }
}

/// The steps to run now. After them the facts are gathered again: which LLVM the linker needs is known only once the compiler
/// exists.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    pub steps: Vec<Step>,
    /// What follows these steps, in words.
    pub then: Option<&'static str>,
    /// Sentences about what no step can install: what is missing, what that prevents, what to do.
    pub out_of_reach: Vec<String>,
}

impl Plan {
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty() && self.out_of_reach.is_empty()
    }
}

/// Plans what to do so that cgscope can be built and the `extra` packages are installed.
pub fn plan(facts: &Facts, extra: &[&str]) -> Plan {
    let Some(apt) = &facts.apt else { return by_hand(facts) };
    let mut wanted = Wanted::default();
    let of_c = [(facts.c_compiler, C_COMPILER), (facts.static_libc, STATIC_LIBC)];
    wanted.packages(of_c.into_iter().filter(|(is_here, _)| !is_here).map(|(_, package)| package));
    wanted.packages(extra.iter().copied());
    if !facts.complete {
        wanted.bpf_side(facts, apt);
    }
    wanted.plan(apt)
}

/// The wanted packages, before they are compared with what apt offers.
#[derive(Default)]
struct Wanted {
    packages: Vec<String>,
    /// The step after the packages.
    after: Option<Step>,
    /// The plan is a fallback: after `apt-get update` apt may offer the first choice.
    is_second_choice: bool,
    then: Option<&'static str>,
    out_of_reach: Vec<String>,
}

impl Wanted {
    fn packages<S: Into<String>>(&mut self, packages: impl IntoIterator<Item = S>) {
        self.packages.extend(packages.into_iter().map(Into::into));
    }

    /// Adds the compiler, or its linker if the compiler exists.
    fn bpf_side(&mut self, facts: &Facts, apt: &Apt) {
        let buildable = facts.roots.iter().find(|(llvm, _)| {
            linker::LLVMS.contains(llvm) && llvm_packages(*llvm).iter().all(|name| apt.can_have(name))
        });
        if let Some((llvm, root)) = buildable {
            self.packages(llvm_packages(*llvm));
            self.after = Some(Step::Linker { llvm: *llvm, root: root.clone() });
            self.is_second_choice = facts.compilers.first() != Some(llvm);
            return;
        }
        self.is_second_choice = !facts.compilers.is_empty();
        self.then = Some("bpf-linker, for the release of LLVM in that compiler");
        if COMPILER.iter().all(|name| apt.can_have(name)) && !COMPILER.iter().all(|name| apt.has(name)) {
            self.packages(COMPILER);
            return;
        }
        self.is_second_choice = true;
        if facts.compilers.is_empty() && facts.rustup {
            self.after = Some(Step::RustSrc);
        } else {
            self.then = None;
            self.out_of_reach.push(no_way(&facts.compilers));
        }
    }

    fn plan(mut self, apt: &Apt) -> Plan {
        self.packages.retain(|name| !apt.has(name));
        let (offered, absent): (Vec<_>, Vec<_>) =
            self.packages.into_iter().partition(|name| apt.can_have(name));
        if !apt.updated && (self.is_second_choice || !absent.is_empty()) {
            let then =
                Some("install what is missing with apt-get, and install the linker for the kernel side");
            return Plan { steps: vec![Step::AptUpdate], then, out_of_reach: Vec::new() };
        }
        if !absent.is_empty() {
            self.out_of_reach.push(format!(
                "apt offers no {}, which cgscope needs for builds or tests; \
                 add the repository of the distribution that has the package",
                absent.join(", no ")
            ));
        }
        let install = (!offered.is_empty()).then_some(Step::AptInstall(offered));
        Plan {
            steps: install.into_iter().chain(self.after).collect(),
            then: self.then,
            out_of_reach: self.out_of_reach,
        }
    }
}

/// Plans without apt: the user installs packages, and the steps are the commands that are the same everywhere.
fn by_hand(facts: &Facts) -> Plan {
    let mut plan = Plan::default();
    if !facts.c_compiler || !facts.static_libc {
        plan.out_of_reach.push(
            "a C compiler with a static C library (libc.a) is missing, so cgscope cannot be linked; \
             install gcc and the package with glibc's static library (for example glibc-static)"
                .to_owned(),
        );
    }
    if facts.complete {
        return plan;
    }
    match facts.roots.iter().find(|(llvm, _)| linker::LLVMS.contains(llvm)) {
        Some((llvm, root)) => {
            plan.out_of_reach.push(format!(
                "bpf-linker for LLVM {llvm} is missing, so the kernel side cannot be linked; \
                 put bpf-linker {} on PATH, or install LLVM {llvm} with its headers and build bpf-linker",
                linker::VERSION
            ));
            plan.steps.push(Step::Linker { llvm: *llvm, root: root.clone() });
        }
        None if facts.compilers.is_empty() => {
            plan.steps.push(Step::RustSrc);
            plan.then = Some("`cargo xtask setup` again, which then names the linker for that compiler");
        }
        None => plan.out_of_reach.push(no_way(&facts.compilers)),
    }
    plan
}

fn no_way(compilers: &[u32]) -> String {
    let version = linker::VERSION;
    let (low, high) = linker::LLVMS.into_inner();
    match compilers.first() {
        None => {
            "no compiler for the kernel side is installed or can be installed, so the kernel side cannot be compiled; \
                 install rustup and then nightly with rust-src"
                .to_owned()
        }
        Some(llvm) => format!(
            "the compiler for the kernel side has LLVM {llvm}, and bpf-linker cannot be built for it on \
             this machine (the build needs a home directory, and llvm-{llvm}-dev with a release from {low} to {high}), so the \
             kernel side cannot be linked; put bpf-linker {version} or later on PATH"
        ),
    }
}

#[cfg(test)]
mod tests;
