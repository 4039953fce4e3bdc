//! A mount and PID namespace in which a container runtime runs. When the namespace ends, the kernel removes the mounts, files and
//! processes of the runtime. Drop also removes the cgroups.
//!
//! On the lab's systemd host, no such namespace is needed: the packages of the runtimes are installed, and the runtimes run as
//! services of the host.

use std::{
    cell::RefCell,
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Command, Output},
    thread,
    time::{Duration, Instant},
};

use crate::{background::Background, bench::patience, files::Dir};

pub(crate) const IMAGE: &str = "localhost/busybox:1";
pub(crate) const BUSY: &str = "while :; do :; done";

/// Shell script that mounts the packages, an empty /run, and overlays of directories to which runtimes write. It also adds the
/// libraries of the packages to the search path of the system, because runtimes start their programs without LD_LIBRARY_PATH.
const SETUP: &str = "\
set -e
mount --bind \"$PACKAGES\" /mnt
mount -t tmpfs none /run
for dir in etc opt var; do
    mkdir -p /run/.$dir/upper /run/.$dir/work
    mount -t overlay -o lowerdir=/$dir,upperdir=/run/.$dir/upper,workdir=/run/.$dir/work none /$dir
done
ls -d /mnt/usr/lib/*-linux-gnu /mnt/lib/*-linux-gnu > /etc/ld.so.conf.d/packages.conf
ldconfig
exec \"$@\"";

/// Processes in their own mount and PID namespace. Drop kills the processes and removes their cgroups.
pub(crate) struct Namespace {
    /// The first process; `None` if the runtime runs on the host itself.
    process: Option<Background>,
    cgroups: RefCell<Vec<String>>,
    dir: Dir,
}

impl Namespace {
    /// Runs a shell command as the first process of a new namespace. The namespace ends with this process. `words` returns the
    /// command. Its argument is a directory that is also visible on the host.
    pub(crate) fn start(name: &str, words: impl FnOnce(&Dir) -> String) -> Self {
        let dir = Dir::new(name);
        // Other users must be able to enter the directory.
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a directory of ours");
        let words = words(&dir);
        let mut command = Command::new("unshare");
        command.args(["--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", SETUP, "sh"]);
        command.args(["sh", "-c", &words]);
        let process = Background::start(in_packages(&mut command));
        Self { process: Some(process), cgroups: RefCell::default(), dir }
    }

    /// Returns a `Namespace` that represents the host itself. Restarts these services, so that they read their new configuration.
    pub(crate) fn of_host(services: &[&str]) -> Self {
        let namespace = Self { process: None, cgroups: RefCell::default(), dir: Dir::new("host") };
        fs::set_permissions(namespace.dir.path(), fs::Permissions::from_mode(0o755))
            .expect("a directory of ours");
        if !services.is_empty() {
            namespace.run(&[&["systemctl", "restart"], services].concat());
        }
        namespace
    }

    pub(crate) fn wait_for(&mut self, words: &str) {
        self.process.as_mut().expect("a first process").wait_for(words);
    }

    /// Returns the path of a file that is visible both on the host and in the namespace.
    pub(crate) fn file(&self, name: &str) -> String {
        self.dir.file(name)
    }

    pub(crate) fn run(&self, words: &[&str]) -> String {
        let output = self.output(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{words:?}: {}\n{said}", output.status);
        String::from_utf8(output.stdout).expect("its output is UTF-8").trim().to_owned()
    }

    /// Runs a program in the namespace until it ends, for at most ten seconds.
    pub(crate) fn output(&self, words: &[&str]) -> Output {
        let mut command = Command::new("timeout");
        command.args(["--signal=KILL", &patience(10_000).as_secs().to_string()]);
        if let Some(first) = self.first() {
            command.args(["nsenter", "--mount", "--pid", "--target", &first]);
            in_packages(&mut command);
        }
        command.args(words).output().expect("timeout starts")
    }

    /// Returns the path at which the host can open a file of the namespace.
    pub(crate) fn seen(&self, path: &str) -> String {
        self.first().map_or_else(|| path.to_owned(), |first| format!("/proc/{first}/root{path}"))
    }

    fn first(&self) -> Option<String> {
        let unshare = self.process.as_ref()?.pid();
        let children = fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"));
        Some(children.expect("a running namespace").trim().to_owned())
    }

    pub(crate) fn image(&self) -> String {
        let file = self.file("image.tar");
        let made = Command::new("sh").args(["-c", include_str!("image.sh"), "sh", &file]).output();
        let made = made.expect("sh starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        file
    }

    /// Registers a cgroup, which drop then removes with its descendants. Drop also removes the parent if it is empty then.
    pub(crate) fn owns(&self, cgroup: &str) {
        self.cgroups.borrow_mut().push(cgroup.to_owned());
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let end = Instant::now() + patience(5_000);
        let cgroups = self.cgroups.take();
        match &self.process {
            // When the first process of a PID namespace ends, the kernel kills all other processes of the namespace.
            Some(first) => first.signal(libc::SIGKILL),
            None => cgroups.iter().for_each(|path| {
                let _ = fs::write(format!("/sys/fs/cgroup{path}/cgroup.kill"), "1");
            }),
        }
        while !cgroups.iter().all(|path| is_removed(path)) && Instant::now() < end {
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Adds the programs of the packages to a command's `PATH`.
fn in_packages(command: &mut Command) -> &mut Command {
    let path = env::var("PATH").expect("a PATH");
    command.env("PACKAGES", packages()).env("PATH", format!("/mnt/usr/bin:/mnt/usr/sbin:{path}"))
}

/// Returns the directory of the unpacked packages: `CGSCOPE_RUNTIMES`, or by default one in the user's cache.
fn packages() -> PathBuf {
    let cache = || Path::new(&env::var_os("HOME").unwrap_or_default()).join(".cache/cgscope/runtimes/root");
    let place = env::var_os("CGSCOPE_RUNTIMES").map_or_else(cache, PathBuf::from);
    assert!(place.exists(), "{} does not exist: run these tests with `cargo xtask test`", place.display());
    place
}

/// Removes a cgroup from every hierarchy. Returns false if some of its processes are still exiting.
fn is_removed(path: &str) -> bool {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let place = fields.next()?;
        fields.next()?.starts_with("cgroup").then_some(place)
    });
    let removed: Vec<bool> = mounts
        .map(|mount| {
            let cgroup = Path::new(mount).join(path.trim_start_matches('/'));
            remove(&cgroup);
            let parents = cgroup.ancestors().skip(1).take_while(|parent| *parent != Path::new(mount));
            parents.for_each(|parent| drop(fs::remove_dir(parent)));
            !cgroup.exists()
        })
        .collect();
    !removed.contains(&false)
}

fn remove(cgroup: &Path) {
    let children = fs::read_dir(cgroup).into_iter().flatten().flatten().map(|entry| entry.path());
    children.filter(|path| path.is_dir()).for_each(|path| remove(&path));
    let _ = fs::remove_dir(cgroup);
}
