//! The fallback to the coarse mode. Each test makes the exact mode impossible for one child process, for one reason.

use std::{
    ffi::CStr,
    io,
    os::unix::process::CommandExt,
    process::{Command, Output},
    ptr,
};

use crate::{
    bad_input::{assert_one_sentence, assert_refused, for_everyone},
    bench::{cgscope, json_lines, run, stderr, stdout},
};

const DAC_READ_SEARCH: i32 = 2;
const SYS_PTRACE: i32 = 19;
const SYS_ADMIN: i32 = 21;
const SYS_RESOURCE: i32 = 24;
const SYSLOG: i32 = 34;
const PERFMON: i32 = 38;
const BPF: i32 = 39;

fn done(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn prepared(args: &[&str], prepare: impl FnMut() -> io::Result<()> + Send + Sync + 'static) -> Output {
    let mut command = cgscope();
    command.args(args);
    // SAFETY: `prepare` makes only system calls.
    unsafe { command.pre_exec(prepare) };
    command.output().expect("the command starts")
}

/// Runs the command as root without these capabilities. At `execve`, root receives only the capabilities of the bounding set.
fn without(capabilities: &[i32], args: &[&str]) -> Output {
    let dropped = capabilities.to_vec();
    prepared(args, move || {
        // SAFETY: the call takes no pointers.
        dropped.iter().try_for_each(|one| done(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, *one, 0, 0, 0) }))
    })
}

/// Makes all mounts private, so that changes are visible only in this mount namespace.
fn own_mounts() -> io::Result<()> {
    mount(c"none", c"/", c"", libc::MS_REC | libc::MS_PRIVATE)
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: all strings end with NUL.
    done(unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind.as_ptr(), flags, ptr::null()) })
}

fn hide_btf() -> io::Result<()> {
    // SAFETY: the call takes no pointers.
    done(unsafe { libc::unshare(libc::CLONE_NEWNS) })?;
    own_mounts()?;
    match mount(c"none", c"/sys/kernel/btf", c"tmpfs", 0) {
        // This kernel has no BTF.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Enters a new PID namespace with its own `/proc`, as in a container.
fn own_pids() -> io::Result<()> {
    // SAFETY: the block makes only system calls, and the forking process has one thread.
    unsafe {
        done(libc::unshare(libc::CLONE_NEWPID | libc::CLONE_NEWNS))?;
        own_mounts()?;
        match libc::fork() {
            -1 => Err(io::Error::last_os_error()),
            0 => mount(c"proc", c"/proc", c"proc", 0),
            child => {
                // Close all descriptors. Otherwise a reader of a pipe would wait until this process exits.
                libc::syscall(libc::SYS_close_range, 0u32, u32::MAX, 0u32);
                let mut status = 0;
                libc::waitpid(child, &mut status, 0);
                libc::_exit(libc::WEXITSTATUS(status))
            }
        }
    }
}

/// Returns whether root can use the exact mode on this kernel. Some kernels of the lab are too old.
fn is_exact_here() -> bool {
    // Exit code 1 also means that the exact mode works: on a busy host, the result can be incomplete.
    run(&["hist", "--mode", "bpf", "0.1", "1"]).status.code() != Some(2)
}

fn assert_exact(output: &Output) {
    let lines = json_lines(output);
    let losses: Vec<_> = lines.iter().map(|line| line["losses"].to_string()).collect();
    assert_eq!(output.status.code(), Some(0), "{} {losses:?}", stderr(output));
    assert_eq!(stderr(output), "");
    assert_eq!(lines[0]["mode"], "bpf");
}

fn assert_coarse(output: &Output, words: &[&str]) {
    let said = stderr(output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for word in words.iter().chain(&["; continuing in the coarse mode"]) {
        assert!(said.contains(word), "{word:?} is not in {said:?}");
    }
    let interval = json_lines(output).remove(0);
    assert_eq!(interval["mode"], "coarse");
    assert!(interval["total"]["count"].as_u64().expect("a count") > 0, "some task has waited");
}

const AUTO: [&str; 4] = ["hist", "--json", "0.5", "1"];
const BPF_ONLY: [&str; 5] = ["hist", "--mode", "bpf", "0.5", "1"];

#[test]
fn without_a_needed_capability_the_coarse_mode_runs_and_names_it() {
    for (name, capability) in [("CAP_BPF", BPF), ("CAP_PERFMON", PERFMON)] {
        // Drop CAP_SYS_ADMIN too, because it includes the other capabilities.
        let dropped = [capability, SYS_ADMIN];
        let old = !is_exact_here();
        let words = if old { ["too old", "boot kernel"] } else { [name, "not held"] };
        assert_coarse(&without(&dropped, &AUTO), &words);
        assert_one_sentence(&without(&dropped, &BPF_ONLY), &words);
    }
}

#[test]
fn a_user_without_capabilities_measures_coarsely() {
    let (_dir, path) = for_everyone();
    let as_nobody = |args: &[&str]| {
        Command::new(&path).args(args).uid(65_534).gid(65_534).output().expect("the command starts")
    };
    let words =
        if is_exact_here() { "CAP_BPF and CAP_PERFMON are not held (user id 65534)" } else { "too old" };
    let output = as_nobody(&AUTO);
    assert_coarse(&output, &[words]);
    assert_one_sentence(&as_nobody(&BPF_ONLY), &[words]);
    // A user can measure the user's own processes and their children.
    let output = as_nobody(&["hist", "--mode", "coarse", "--", "sh", "-c", ":"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("1 wait") || stdout(&output).contains("waits"), "{}", stdout(&output));
    let doctor = as_nobody(&["doctor", "--json"]);
    assert_eq!(doctor.status.code(), Some(1));
    let verdicts = json_lines(&doctor);
    let mode = verdicts.iter().find(|verdict| verdict["topic"] == "mode").expect("a mode");
    assert!(mode["finding"].as_str().expect("words").contains("coarse"), "{mode}");
}

#[test]
fn without_btf_the_coarse_mode_runs_and_names_the_kernel_option() {
    let words: &[&str] =
        if is_exact_here() { &["/sys/kernel/btf/vmlinux", "CONFIG_DEBUG_INFO_BTF"] } else { &["too old"] };
    assert_coarse(&prepared(&AUTO, hide_btf), words);
    assert_one_sentence(&prepared(&BPF_ONLY, hide_btf), words);
}

#[test]
fn chains_are_refused_where_only_the_coarse_mode_runs() {
    let output = prepared(&["hist", "--chains", "0.5", "1"], hide_btf);
    assert_refused(&output, &["--chains needs the exact mode", "cgscope doctor"]);
}

#[test]
fn in_a_pid_namespace_a_command_is_followed_coarsely_and_the_host_exactly() {
    let exact = is_exact_here();
    let command = ["hist", "--json", "--", "sh", "-c", ":"];
    let words: &[&str] = if exact { &["not the initial PID namespace"] } else { &[] };
    assert_coarse(&prepared(&command, own_pids), words);
    if exact {
        assert_exact(&prepared(&AUTO, own_pids));
        assert_one_sentence(&prepared(&["hist", "--mode", "bpf", "--", "true"], own_pids), words);
    }
}

#[test]
fn a_missing_target_is_an_error_and_not_a_reason_for_the_coarse_mode() {
    for args in
        [&["--pid", "4194303"][..], &["--cgroup", "/no/such"], &["--mode", "coarse", "--tid", "4194303"]]
    {
        let output = run(&[&["hist", "0.5", "1"], args].concat());
        assert_one_sentence(&output, &["there is no"]);
    }
}

mod long {
    use super::*;

    #[test]
    fn the_exact_mode_runs_without_each_capability_that_it_does_not_need() {
        let exact = is_exact_here();
        for (name, capability) in [
            ("CAP_BPF", BPF),
            ("CAP_PERFMON", PERFMON),
            ("CAP_SYS_ADMIN", SYS_ADMIN),
            ("CAP_SYS_PTRACE", SYS_PTRACE),
            ("CAP_DAC_READ_SEARCH", DAC_READ_SEARCH),
            ("CAP_SYS_RESOURCE", SYS_RESOURCE),
            ("CAP_SYSLOG", SYSLOG),
        ] {
            println!("without {name}");
            let output = without(&[capability], &AUTO);
            if exact { assert_exact(&output) } else { assert_coarse(&output, &[]) }
        }
    }
}
