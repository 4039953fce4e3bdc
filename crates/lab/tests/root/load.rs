//! Loads and cgroups for tests. Both are removed at the end of a test, even if the test fails.

use std::{
    fs,
    io::{BufRead, BufReader, ErrorKind, Read, Write},
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use cgscope_collect::facts::CgroupMounts;

/// Environment variable with which `cargo xtask test` assigns CPUs to a test: the number of one CPU, `all`, or `shared` (CPUs
/// that other tests use at the same time).
const CPU: &str = "CGSCOPE_TEST_CPU";

/// The CPUs that only this test uses. A test requests such CPUs with `#[ignore = "one CPU: why"]` or `#[ignore = "all CPUs:
/// why"]`.
pub(crate) struct Cpu;

impl Cpu {
    /// Returns a CPU that no other test uses. If the test has all CPUs, or runs without `cargo xtask test`, returns the last CPU.
    pub(crate) fn one() -> u32 {
        match std::env::var(CPU).as_deref() {
            Err(_) | Ok("all") => *allowed_cpus().last().expect("a CPU"),
            Ok(given) => given.parse().unwrap_or_else(|_| {
                panic!(
                    "this test needs a CPU for itself: mark it `#[ignore = \"one CPU: why\"]`, not `{given}`"
                )
            }),
        }
    }
}

fn allowed_cpus() -> Vec<u32> {
    let status = fs::read_to_string("/proc/self/status").expect("our own status");
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).expect("a list");
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        first.parse::<u32>().expect("a CPU")..=last.parse().expect("a CPU")
    };
    list.trim().split(',').flat_map(range).collect()
}

pub(crate) struct Load {
    child: Child,
}

impl Load {
    /// Starts a command in its own process group. If `cgroup` is given, the command runs there.
    pub(crate) fn start(program: &str, args: &[&str], cgroup: Option<&Cgroup>) -> Self {
        let mut command = Command::new(program);
        command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let procs = cgroup.map(|cgroup| {
            fs::OpenOptions::new()
                .write(true)
                .open(cgroup.path.join("cgroup.procs"))
                .expect("a cgroup of ours")
        });
        // SAFETY: between fork and exec, the closure only writes one byte.
        unsafe { command.pre_exec(move || procs.as_ref().map_or(Ok(()), |mut procs| procs.write_all(b"0"))) };
        Self { child: command.spawn().unwrap_or_else(|error| panic!("{program}: {error}")) }
    }

    /// Starts a load of the `workload` binary, and returns when the load runs.
    pub(crate) fn workload(
        args: &[&str],
        cgroup: Option<&Cgroup>,
    ) -> (Self, BufReader<std::process::ChildStdout>) {
        let mut load = Self::start(env!("CARGO_BIN_EXE_workload"), args, cgroup);
        let mut out = BufReader::new(load.child.stdout.take().expect("its output is ours"));
        let mut line = String::new();
        out.read_line(&mut line).expect("its output is readable");
        assert_eq!(line, "ready\n", "the load {args:?} did not start");
        (load, out)
    }

    /// Starts a load of the `workload` binary in the root cgroup, in its own session with its own autogroup.
    pub(crate) fn session(nice: i32, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_workload"));
        command.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = move || {
            // SAFETY: both are system calls without pointers.
            let failed = unsafe { libc::setsid() < 0 || libc::setpriority(libc::PRIO_PROCESS, 0, nice) < 0 };
            if failed { Err(std::io::Error::last_os_error()) } else { Ok(()) }
        };
        // SAFETY: between fork and exec, the closure only makes system calls.
        unsafe { command.pre_exec(start) };
        Self { child: command.spawn().expect("the workload") }
    }

    pub(crate) fn busy_loop(cgroup: Option<&Cgroup>) -> Self {
        Self::start("sh", &["-c", "while :; do :; done"], cgroup)
    }

    pub(crate) fn loop_on_a_cpu(cgroup: Option<&Cgroup>) -> Self {
        Self::pinned_loop(Cpu::one(), cgroup)
    }

    pub(crate) fn pinned_loop(cpu: u32, cgroup: Option<&Cgroup>) -> Self {
        Self::start("taskset", &["-c", &cpu.to_string(), "sh", "-c", "while :; do :; done"], cgroup)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the ids of this process and of all its living descendants.
    pub(crate) fn pids(&self) -> Vec<u32> {
        let mut all = vec![self.pid()];
        let mut at = 0;
        while let Some(pid) = all.get(at) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
            all.extend(children.split_ascii_whitespace().filter_map(|pid| pid.parse::<u32>().ok()));
            at += 1;
        }
        all
    }

    /// Waits until the load ends by itself, and asserts that it succeeded.
    pub(crate) fn wait(mut self) {
        let status = self.child.wait().expect("a child of ours");
        assert!(status.success(), "the load ended with {status}");
    }

    pub(crate) fn signal(&self, signal: i32) {
        // SAFETY: the child leads the process group and has not been reaped, so the id of the group is still valid.
        unsafe { libc::kill(-(self.child.id() as i32), signal) };
    }

    pub(crate) fn kill(&mut self) {
        self.signal(libc::SIGKILL);
        let _ = self.child.wait();
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(Some(_))) {
            self.kill();
        }
    }
}

pub(crate) fn result(out: &mut impl Read) -> u64 {
    let mut text = String::new();
    out.read_to_string(&mut text).expect("its output is readable");
    text.trim().parse().unwrap_or_else(|_| panic!("the last line is not a number: {text:?}"))
}

/// Creates a cgroup with this name below `mount`. If another test uses the name at this moment, appends a number to the name.
fn make(mount: &Path, name: &str) -> (PathBuf, String) {
    let plain = format!("cgscope-test-{}-{name}", std::process::id());
    let others = (2..).map(|number| format!("cgscope-test-{}-{number}-{name}", std::process::id()));
    for name in std::iter::once(plain).chain(others) {
        let path = mount.join(&name);
        match fs::create_dir(&path) {
            Ok(()) => return (path, format!("/{name}")),
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            Err(error) => panic!("{}: {error}", path.display()),
        }
    }
    unreachable!("the list of names is endless")
}

/// A cgroup in the hierarchy of the cpu controller, removed on drop.
pub(crate) struct Cgroup {
    pub(crate) path: PathBuf,
    pub(crate) name: String,
    is_v2: bool,
}

impl Cgroup {
    pub(crate) fn new(name: &str) -> Self {
        let mounts = CgroupMounts::read(Path::new("/"));
        let mount = mounts.cpu().expect("a hierarchy with the cpu controller");
        let is_v2 = mounts.cpu_is_v2();
        enable_cpu(mount, is_v2);
        let (path, name) = make(mount, name);
        Self { path, name, is_v2 }
    }

    /// Creates a cgroup in the cpuset hierarchy. The tasks of this cgroup can run only on the CPUs in `cpus`.
    pub(crate) fn of_cpus(name: &str, cpus: &str) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/cpuset");
        let (mount, is_v2) = if v1.join("cpuset.cpus").exists() {
            (v1.to_owned(), false)
        } else {
            let mount =
                CgroupMounts::read(Path::new("/")).unified.expect("a hierarchy with the cpuset controller");
            let _ = fs::write(mount.join("cgroup.subtree_control"), "+cpuset");
            (mount, true)
        };
        let (path, name) = make(&mount, name);
        let cgroup = Self { path, name, is_v2 };
        if !is_v2 {
            let mems = fs::read(mount.join("cpuset.mems")).expect("its nodes");
            fs::write(cgroup.path.join("cpuset.mems"), mems).expect("its nodes");
        }
        fs::write(cgroup.path.join("cpuset.cpus"), cpus).expect("its CPUs");
        cgroup
    }

    /// The child must be dropped before its parent, so declare the child after the parent.
    pub(crate) fn child(&self, name: &str) -> Self {
        let path = self.path.join(name);
        enable_cpu(&self.path, self.is_v2);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, name: format!("{}/{name}", self.name), is_v2: self.is_v2 }
    }

    pub(crate) fn throttled_ns(&self) -> u64 {
        self.stat("throttled_usec")
            .map_or_else(|| self.stat("throttled_time").expect("its throttled time"), |us| us * 1_000)
    }

    pub(crate) fn stat(&self, name: &str) -> Option<u64> {
        let stat = fs::read_to_string(self.path.join("cpu.stat")).expect("cpu.stat");
        stat.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' ')?.trim().parse().ok())
    }

    /// Lets the cgroup save up to `burst_us` of unused quota. Returns false if the kernel does not support bursts (before Linux
    /// 5.14).
    pub(crate) fn save(&self, burst_us: u64) -> bool {
        let file = self.path.join(if self.is_v2 { "cpu.max.burst" } else { "cpu.cfs_burst_us" });
        file.exists() && fs::write(file, burst_us.to_string()).is_ok()
    }

    /// Sets the highest weight, so that the tasks of this cgroup take precedence over other programs.
    pub(crate) fn favour(&self) {
        let (file, most) = if self.is_v2 { ("cpu.weight", "10000") } else { ("cpu.shares", "262144") };
        fs::write(self.path.join(file), most).expect("a weight");
    }

    /// Sets the lowest weight, so that other programs take precedence over the tasks of this cgroup.
    pub(crate) fn slight(&self) {
        let (file, least) = if self.is_v2 { ("cpu.weight", "1") } else { ("cpu.shares", "2") };
        fs::write(self.path.join(file), least).expect("a weight");
    }

    /// Leaves the tasks of this cgroup only the CPU time that others do not use (Linux 5.15).
    pub(crate) fn set_idle(&self, is_idle: bool) {
        fs::write(self.path.join("cpu.idle"), u8::from(is_idle).to_string()).expect("cpu.idle");
    }

    pub(crate) fn weigh(&self, times: u64) {
        self.weigh_percent(100 * times);
    }

    pub(crate) fn weigh_percent(&self, percent: u64) {
        let (file, default) = if self.is_v2 { ("cpu.weight", 100) } else { ("cpu.shares", 1_024) };
        fs::write(self.path.join(file), (default * percent / 100).to_string()).expect("a weight");
    }

    /// Lets the real-time tasks of the cgroup run for `runtime_us` of each second. Returns false if the cgroup has no such limit,
    /// as on v2.
    pub(crate) fn real_time(&self, runtime_us: u64) -> bool {
        let file = self.path.join("cpu.rt_runtime_us");
        let has_it = file.exists();
        if has_it {
            fs::write(file, runtime_us.to_string()).expect("a runtime");
        }
        has_it
    }

    pub(crate) fn limit(&self, quota_us: u64, period_us: u64) {
        let write = |file: &str, text: String| fs::write(self.path.join(file), text).expect("a limit");
        if self.is_v2 {
            write("cpu.max", format!("{quota_us} {period_us}"));
        } else {
            write("cpu.cfs_period_us", period_us.to_string());
            write("cpu.cfs_quota_us", quota_us.to_string());
        }
    }
}

/// Enables the cpu controller for the children of a v2 cgroup. Ignores errors, because the controller can be enabled already.
fn enable_cpu(parent: &Path, is_v2: bool) {
    if is_v2 {
        let _ = fs::write(parent.join("cgroup.subtree_control"), "+cpu");
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Retry, because killed tasks need a moment to exit.
        let end = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.path).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
