//! The daemon in the environment that it has under Kubernetes: an image without other programs, and the capabilities and the
//! configuration of the DaemonSet.

use std::{ffi::CString, fs, io, os::unix::process::CommandExt, path::Path, process::Command, ptr};

use crate::{
    background::Background,
    bench::cgscope,
    files::{Dir, copy_program},
    load::Load,
};

const DAEMONSET: &str = include_str!("../../../../../deploy/kubernetes/daemonset.yaml");

/// Numbers (linux/capability.h) of the capabilities that the DaemonSet adds: PERFMON and BPF.
const ADDED: [u64; 2] = [38, 39];

fn configuration() -> String {
    let (_, text) = DAEMONSET.split_once("  cgscope.toml: |\n").expect("the file");
    let (text, _) = text.split_once("\n---\n").expect("the next object");
    text.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}

fn text(path: impl AsRef<Path>) -> CString {
    CString::new(path.as_ref().to_str().expect("a path of ours")).expect("a path without a zero byte")
}

/// Makes a command run with the root directory `root`, as under a container runtime. The /proc and /sys of the host are mounted
/// there.
fn contained<'c>(command: &'c mut Command, root: &Path) -> &'c mut Command {
    let mounts = ["proc", "sys"].map(|name| (text(format!("/{name}")), text(root.join(name))));
    let root = text(root);
    let check = |done: i32| if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: between fork and exec, the closure only makes system calls, with strings that end with NUL.
    unsafe {
        command.pre_exec(move || {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let private = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))?;
            for (from, to) in &mounts {
                let bound = libc::MS_BIND | libc::MS_REC;
                check(libc::mount(from.as_ptr(), to.as_ptr(), ptr::null(), bound, ptr::null()))?;
            }
            check(libc::chroot(root.as_ptr()))?;
            check(libc::chdir(c"/".as_ptr()))?;
            for capability in (0..64).filter(|capability| !ADDED.contains(capability)) {
                // For numbers above the last capability, the kernel returns an error.
                libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0);
            }
            check(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        })
    }
}

#[test]
fn the_daemon_serves_from_an_image_that_contains_nothing_else() {
    let image = Dir::new("image");
    for name in ["proc", "sys", "usr/bin", "etc/cgscope", "run/cgscope"] {
        fs::create_dir_all(image.path().join(name)).expect("a directory of ours");
    }
    let program = image.path().join("usr/bin/cgscope");
    copy_program(cgscope().get_program(), &program);
    let here = configuration().replace("0.0.0.0:9753", "127.0.0.1:0");
    assert!(here.contains("127.0.0.1:0"), "{here}");
    fs::write(image.path().join("etc/cgscope/cgscope.toml"), here).expect("a file of ours");

    let mut command = Command::new("/usr/bin/cgscope");
    command.args(["serve", "--config", "/etc/cgscope/cgscope.toml"]);
    let mut daemon = Background::start(contained(&mut command, image.path()));
    daemon.wait_for("serving metrics at http://127.0.0.1:");
    daemon.wait_for("serving viewers at /run/cgscope/cgscope.sock");

    let load = Load::busy_loop(None);
    let socket = image.file("run/cgscope/cgscope.sock");
    let args = ["hist", "--connect", &socket, "-p", &load.pid().to_string(), "--json", "1", "1"];
    let output = cgscope().args(args).output().expect("the command starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let reported: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
    assert_eq!(reported["tasks"][0]["tid"], load.pid(), "{reported}");
    daemon.signal(libc::SIGTERM);
    let (code, words) = daemon.wait();
    assert_eq!(code, Some(0), "{words}");
}
