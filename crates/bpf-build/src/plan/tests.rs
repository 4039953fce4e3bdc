use std::path::PathBuf;

use super::{Apt, Facts, Step, packages, plan};

fn names(of: &[&str]) -> Vec<String> {
    of.iter().map(|name| (*name).to_owned()).collect()
}

fn root(llvm: u32) -> PathBuf {
    PathBuf::from(format!("/cache/llvm-{llvm}"))
}

/// Facts of a machine with a C compiler, and with an apt that offers every package but has none installed.
fn fresh(compilers: &[u32]) -> Facts {
    Facts {
        c_compiler: true,
        static_libc: true,
        compilers: compilers.to_vec(),
        complete: false,
        rustup: true,
        roots: compilers.iter().map(|llvm| (*llvm, root(*llvm))).collect(),
        apt: Some(Apt { updated: false, offered: packages(compilers), installed: Vec::new() }),
    }
}

fn with_apt(facts: Facts, change: impl FnOnce(&mut Apt)) -> Facts {
    let mut apt = facts.apt.clone().unwrap_or_default();
    change(&mut apt);
    Facts { apt: Some(apt), ..facts }
}

#[test]
fn if_everything_is_installed_the_plan_is_empty() {
    let facts = Facts { complete: true, ..fresh(&[22]) };
    assert!(plan(&facts, &[]).is_empty());
    assert!(plan(&Facts { apt: None, ..facts }, &[]).is_empty());
}

#[test]
fn without_a_compiler_the_distributions_compiler_and_then_the_linker_are_installed() {
    let plan = plan(&fresh(&[]), &[]);
    assert_eq!(plan.steps, [Step::AptInstall(names(&["rustc-web", "libstd-rust-web-dev-bpf"]))]);
    assert!(plan.then.is_some_and(|then| then.contains("bpf-linker")));
}

#[test]
fn a_linker_is_built_for_the_compilers_release_of_llvm() {
    let steps = plan(&fresh(&[22]), &[]).steps;
    let packages = names(&["llvm-22-dev", "libpolly-22-dev", "libzstd-dev"]);
    assert_eq!(steps, [Step::AptInstall(packages), Step::Linker { llvm: 22, root: root(22) }]);
}

#[test]
fn installed_packages_are_not_installed_again() {
    let facts = with_apt(fresh(&[22]), |apt| apt.installed = apt.offered.clone());
    assert_eq!(plan(&facts, &["gcc"]).steps, [Step::Linker { llvm: 22, root: root(22) }]);
}

#[test]
fn tools_for_tests_are_installed_only_if_missing() {
    let facts = with_apt(Facts { complete: true, ..fresh(&[22]) }, |apt| {
        apt.installed.push("tmux".to_owned());
        apt.offered.push("stress-ng".to_owned());
    });
    assert_eq!(plan(&facts, &["tmux", "stress-ng"]).steps, [Step::AptInstall(names(&["stress-ng"]))]);
}

#[test]
fn the_c_compiler_and_the_static_c_library_are_installed() {
    let facts = Facts { c_compiler: false, static_libc: false, complete: true, ..fresh(&[22]) };
    assert_eq!(plan(&facts, &[]).steps, [Step::AptInstall(names(&["gcc", "libc6-dev"]))]);
}

#[test]
fn if_apt_lacks_a_package_its_lists_are_updated_once() {
    let stale = with_apt(fresh(&[]), |apt| apt.offered.clear());
    assert_eq!(plan(&stale, &[]).steps, [Step::AptUpdate]);
    let updated = with_apt(stale, |apt| apt.updated = true);
    assert!(!plan(&updated, &[]).steps.contains(&Step::AptUpdate));
}

#[test]
fn without_a_compiler_of_the_distribution_rustup_installs_one() {
    let facts = with_apt(fresh(&[]), |apt| {
        apt.offered.clear();
        apt.updated = true;
    });
    assert_eq!(plan(&facts, &[]).steps, [Step::RustSrc]);
    let plan = plan(&Facts { rustup: false, ..facts }, &[]);
    assert!(plan.steps.is_empty() && plan.out_of_reach[0].contains("install rustup"), "{plan:?}");
}

#[test]
fn a_compiler_newer_than_the_distributions_llvm_is_not_used() {
    let facts = with_apt(fresh(&[23]), |apt| {
        apt.offered.retain(|name| !name.contains("23"));
        apt.updated = true;
    });
    assert_eq!(plan(&facts, &[]).steps, [Step::AptInstall(names(&["rustc-web", "libstd-rust-web-dev-bpf"]))]);
}

#[test]
fn an_unsupported_release_of_llvm_is_named() {
    let facts = with_apt(fresh(&[31]), |apt| {
        apt.updated = true;
        apt.installed = apt.offered.clone();
    });
    let plan = plan(&facts, &[]);
    assert!(plan.steps.is_empty() && plan.out_of_reach[0].contains("LLVM 31"), "{plan:?}");
}

#[test]
fn an_unavailable_package_is_named_and_the_others_are_installed() {
    let facts = with_apt(Facts { complete: true, ..fresh(&[22]) }, |apt| {
        apt.updated = true;
        apt.offered.push("tmux".to_owned());
    });
    let plan = plan(&facts, &["tmux", "no-such-tool"]);
    assert_eq!(plan.steps, [Step::AptInstall(names(&["tmux"]))]);
    assert!(plan.out_of_reach[0].contains("no-such-tool"));
}

#[test]
fn without_apt_only_the_packages_are_left_to_the_user() {
    let plan = plan(&Facts { apt: None, static_libc: false, ..fresh(&[22]) }, &[]);
    assert_eq!(plan.steps, [Step::Linker { llvm: 22, root: root(22) }]);
    assert!(plan.out_of_reach[0].contains("libc.a") && plan.out_of_reach[1].contains("LLVM 22"), "{plan:?}");
}

#[test]
fn the_linker_is_built_with_the_llvm_config_of_its_release() {
    let step = Step::Linker { llvm: 22, root: root(22) };
    assert_eq!(step.on_path(), Some(PathBuf::from("/usr/lib/llvm-22/bin")));
    let words = step.words().join(" ");
    assert!(words.starts_with("cargo install bpf-linker --version 0.13.0 --locked"), "{words}");
    assert!(words.ends_with("--no-default-features --features llvm-22 --root /cache/llvm-22"), "{words}");
    assert!(!step.needs_root());
}
