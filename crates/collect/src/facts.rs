//! Gathers facts about this host; [`cgscope_model::doctor::judge`] evaluates them.
//!
//! Parsers are plain functions on text. All paths are below a root, so that tests can build hosts of any kind.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

pub use cgscope_model::placement::parse_cpu_list;
use cgscope_model::{
    SchedExt,
    doctor::{Btf, CgroupFacts, CgroupLayout, Facts, Lockdown},
    printable,
};
use rustix::thread::CapabilitySet;

const INITIAL_PID_NAMESPACE: u64 = 0xEFFF_FFFC;
const INITIAL_USER_NAMESPACE: u64 = 0xEFFF_FFFD;

/// Gathers all facts except those of the collector: `named_containers`, `features_off`, `trial`. `root` is `/` except in tests.
pub fn gather(root: &Path) -> Facts {
    let host = Root(root);
    let release = host.line("proc/sys/kernel/osrelease");
    let status = host.text("proc/self/status");
    let status = status.as_deref();
    Facts {
        architecture: Some(std::env::consts::ARCH.into()),
        program: host.link("proc/self/exe"),
        uid: status.and_then(|status| status_value(status, "Uid")?.split_whitespace().nth(1)?.parse().ok()),
        capabilities: status.and_then(effective_capabilities),
        initial_user_namespace: host.is_namespace("proc/self/ns/user", INITIAL_USER_NAMESPACE),
        initial_pid_namespace: host.is_namespace("proc/self/ns/pid", INITIAL_PID_NAMESPACE),
        container: host.sign_of_a_container(),
        named_containers: None,
        btf: Some(host.btf()),
        features_off: None,
        sched_info: status.map(|_| host.text("proc/self/schedstat").is_some_and(|text| counts(&text))),
        lockdown: host.text("sys/kernel/security/lockdown").as_deref().and_then(lockdown),
        cgroups: host.text("proc/self/mountinfo").map(|mountinfo| host.cgroups(&mountinfo)),
        cpus_online: host.cpu_list("sys/devices/system/cpu/online"),
        cpus_possible: host.cpu_list("sys/devices/system/cpu/possible"),
        numa_nodes: host.numa_nodes(),
        realtime: host.realtime(),
        sched_ext: host.line("sys/kernel/sched_ext/state"),
        bpf_scheduler: sched_ext(root).and_then(|found| found.scheduler).map(|name| name.as_ref().into()),
        proxy_exec: release.as_deref().and_then(|release| host.proxy_exec(release)),
        autogroup: host.switch("proc/sys/kernel/sched_autogroup_enabled"),
        hides_processes: host.text("proc/self/mountinfo").map(|mountinfo| hides_processes(&mountinfo)),
        bpf_stats: host.switch("proc/sys/kernel/bpf_stats_enabled"),
        kernel_release: release,
        trial: None,
    }
}

/// Returns the state of sched_ext; `None` if it is unreadable. A kernel without sched_ext has no BPF scheduler.
pub fn sched_ext(root: &Path) -> Option<SchedExt> {
    let host = Root(root);
    let Some(state) = host.line("sys/kernel/sched_ext/state") else {
        let kernel = root.join("sys/kernel");
        return (kernel.is_dir() && !kernel.join("sched_ext").exists()).then(SchedExt::default);
    };
    if state == "disabled" {
        return Some(SchedExt::default());
    }
    // The kernel removes the directory slightly before the state changes.
    let name = host.line("sys/kernel/sched_ext/root/ops").unwrap_or_else(|| "(unknown)".into());
    let takes_all = host.switch("sys/kernel/sched_ext/switch_all") == Some(true);
    Some(SchedExt { scheduler: Some(printable(&name)), takes_all })
}

/// Returns the NUMA node of each online CPU; empty without NUMA.
pub fn cpu_to_node(root: &Path) -> BTreeMap<u32, u32> {
    let host = Root(root);
    let nodes = host.numa_nodes().unwrap_or_default();
    let cpus =
        |node| host.cpu_list(&format!("sys/devices/system/node/node{node}/cpulist")).unwrap_or_default();
    nodes.into_iter().flat_map(|node| cpus(node).into_iter().map(move |cpu| (cpu, node))).collect()
}

/// Returns the node of each present CPU, even if offline: the directory of each CPU has a link to its node.
pub fn present_cpu_to_node(root: &Path) -> BTreeMap<u32, u32> {
    let cpus = root.join("sys/devices/system/cpu");
    let number = |name: &std::ffi::OsStr, kind: &str| name.to_str()?.strip_prefix(kind)?.parse::<u32>().ok();
    let entries = |directory: &Path| fs::read_dir(directory).into_iter().flatten().flatten();
    entries(&cpus)
        .filter_map(|entry| {
            let cpu = number(&entry.file_name(), "cpu")?;
            let node = entries(&entry.path()).find_map(|entry| number(&entry.file_name(), "node"))?;
            Some((cpu, node))
        })
        .collect()
}

pub(crate) fn has_no_numa(root: &Path) -> bool {
    let system = root.join("sys/devices/system");
    system.join("cpu").is_dir() && !system.join("node").exists()
}

/// Returns the number of possible CPUs: the highest CPU number plus one, at least 1.
pub fn possible_cpus(root: &Path) -> u32 {
    let possible = Root(root).cpu_list("sys/devices/system/cpu/possible").unwrap_or_default();
    possible.into_iter().max().map_or(1, |last| last + 1)
}

/// Returns the number of threads on the host; 0 if unknown.
pub fn threads(root: &Path) -> u32 {
    let load = Root(root).text("proc/loadavg").unwrap_or_default();
    load.split([' ', '/']).nth(4).and_then(|threads| threads.parse().ok()).unwrap_or(0)
}

/// Returns the distance between the addresses of two tasks, more than 2 KiB; 4 KiB if unknown. Most kernels have larger tasks.
pub fn task_bytes(root: &Path) -> u64 {
    let shown = Root(root).line("sys/kernel/slab/task_struct/slab_size").and_then(|size| size.parse().ok());
    shown.filter(|bytes| *bytes > 2048).unwrap_or(4096)
}

/// The mount points of cgroup hierarchies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupMounts {
    /// The v1 hierarchy with the cpu controller.
    pub cpu_v1: Option<PathBuf>,
    /// The v2 hierarchy.
    pub unified: Option<PathBuf>,
    /// Whether a v1 hierarchy with a controller is mounted. systemd's v1 hierarchy has a name but no controller.
    pub has_v1: bool,
}

impl CgroupMounts {
    /// Reads the mounts that this process sees.
    pub fn read(root: &Path) -> Self {
        cgroup_mounts(&mountinfo(root))
    }

    /// Whether the cpu controller is in v2. A controller is always in exactly one hierarchy: in v2, unless a v1 hierarchy has it.
    pub fn cpu_is_v2(&self) -> bool {
        self.cpu_v1.is_none() && self.unified.is_some()
    }

    /// Returns the mount of the cpu controller's hierarchy.
    pub fn cpu(&self) -> Option<&Path> {
        self.cpu_v1.as_deref().or(self.unified.as_deref())
    }

    /// Returns which hierarchies exist.
    pub fn layout(&self) -> CgroupLayout {
        match (self.has_v1, self.unified.is_some()) {
            (true, true) => CgroupLayout::Hybrid,
            (true, false) => CgroupLayout::V1,
            (false, true) => CgroupLayout::V2,
            (false, false) => CgroupLayout::None,
        }
    }
}

pub(crate) fn mountinfo(root: &Path) -> String {
    Root(root).text("proc/self/mountinfo").unwrap_or_default()
}

pub(crate) fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

pub(crate) fn cgroup_mounts(mountinfo: &str) -> CgroupMounts {
    let is_named = |mount: &Mount<'_>| mount.options.split(',').any(|one| one.starts_with("name="));
    CgroupMounts {
        cpu_v1: mount_v1(mountinfo, "cpu"),
        unified: mount_point(mountinfo, |mount| mount.kind == "cgroup2"),
        has_v1: mounts(mountinfo).any(|mount| mount.kind == "cgroup" && !is_named(&mount)),
    }
}

pub(crate) fn mount_v1(mountinfo: &str, controller: &str) -> Option<PathBuf> {
    mount_point(mountinfo, |mount| {
        mount.kind == "cgroup" && mount.options.split(',').any(|one| one == controller)
    })
}

/// Finds a mount point. If the hierarchy has several mounts (bind mounts, containers), prefers the first that shows the root.
fn mount_point(mountinfo: &str, is_wanted: impl Fn(&Mount<'_>) -> bool) -> Option<PathBuf> {
    let wanted = || mounts(mountinfo).filter(&is_wanted);
    wanted().find(|mount| mount.shows == "/").or(wanted().next()).map(|mount| unescape(mount.point))
}

fn mounts(mountinfo: &str) -> impl Iterator<Item = Mount<'_>> {
    mountinfo.lines().filter_map(Mount::parse)
}

/// Returns the directory of the hierarchy that the mount at `point` shows. This is usually `/`, but in a container it can be the
/// container's cgroup.
pub(crate) fn shown_at(mountinfo: &str, point: &Path) -> Option<String> {
    // The last mount at this point hides earlier mounts.
    let mount = mounts(mountinfo).filter(|mount| unescape(mount.point) == point).last()?;
    unescape(mount.shows).into_os_string().into_string().ok()
}

/// Whether this `/proc` may hide other users' processes (`hidepid=` other than 0).
fn hides_processes(mountinfo: &str) -> bool {
    let of_proc = |line: &&str| line.split(' ').nth(4) == Some("/proc");
    let line = mountinfo.lines().rfind(of_proc).unwrap_or_default();
    let mut options = line.split([' ', ',']).filter_map(|option| option.strip_prefix("hidepid="));
    options.any(|value| !matches!(value, "0" | "off"))
}

/// A line of mountinfo: `ID PARENT DEV ROOT POINT OPTIONS [TAG...] - KIND SOURCE OPTIONS`.
struct Mount<'a> {
    shows: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (shows, point) = (mount.next()?, mount.next()?);
        let mut system = system.split(' ');
        let (kind, _source, options) = (system.next()?, system.next()?, system.next()?);
        Some(Self { shows, point, kind, options })
    }
}

/// Decodes a path: the kernel writes space, tab, newline and backslash as three octal digits.
fn unescape(path: &str) -> PathBuf {
    // The backslash is last, because it may stand before digits.
    let codes = [(r"\040", " "), (r"\011", "\t"), (r"\012", "\n"), (r"\134", r"\")];
    codes.into_iter().fold(path.to_owned(), |path, (code, character)| path.replace(code, character)).into()
}

/// Returns the value of `NAME:` in `/proc/self/status`.
fn status_value<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
}

fn effective_capabilities(status: &str) -> Option<BTreeSet<String>> {
    let bits = u64::from_str_radix(status_value(status, "CapEff")?, 16).ok()?;
    let held = CapabilitySet::from_bits_retain(bits);
    Some(held.iter_names().map(|(name, _)| format!("CAP_{name}")).collect())
}

/// Whether the kernel keeps sched_info. Without sched_info, `/proc/self/schedstat` is zero even for a running process.
fn counts(schedstat: &str) -> bool {
    schedstat.split_whitespace().nth(2).is_some_and(|slices| slices != "0")
}

/// Parses `none [integrity] confidentiality`: the value in brackets is active.
fn lockdown(text: &str) -> Option<Lockdown> {
    let (_, rest) = text.split_once('[')?;
    match rest.split_once(']')?.0 {
        "none" => Some(Lockdown::None),
        "integrity" => Some(Lockdown::Integrity),
        "confidentiality" => Some(Lockdown::Confidentiality),
        _ => None,
    }
}

/// Whether proxy execution is built in and not disabled by the boot parameter. It is enabled by default.
fn proxy_exec(config: &str, cmdline: &str) -> bool {
    let built_in = config.lines().any(|line| line == "CONFIG_SCHED_PROXY_EXEC=y");
    let last =
        cmdline.split_whitespace().filter_map(|word| word.strip_prefix("sched_proxy_exec=")).next_back();
    built_in && !last.is_some_and(|value| ["0", "n", "N", "off", "false"].contains(&value))
}

struct Root<'a>(&'a Path);

impl Root<'_> {
    fn text(&self, path: &str) -> Option<String> {
        let bytes = fs::read(self.0.join(path)).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn line(&self, path: &str) -> Option<String> {
        self.text(path).map(|text| text.trim().to_owned()).filter(|line| !line.is_empty())
    }

    fn link(&self, path: &str) -> Option<String> {
        Some(fs::read_link(self.0.join(path)).ok()?.to_string_lossy().into_owned())
    }

    fn switch(&self, path: &str) -> Option<bool> {
        self.line(path)?.parse::<u64>().ok().map(|value| value != 0)
    }

    fn cpu_list(&self, path: &str) -> Option<Vec<u32>> {
        parse_cpu_list(&self.text(path)?)
    }

    fn is_namespace(&self, path: &str, inode: u64) -> Option<bool> {
        let link = self.link(path)?;
        Some(link.split_once('[')?.1.strip_suffix(']')?.parse::<u64>().ok()? == inode)
    }

    fn btf(&self) -> Btf {
        let open = fs::File::open(self.0.join("sys/kernel/btf/vmlinux"));
        match open.and_then(|file| file.metadata()) {
            Ok(metadata) => Btf::Present(metadata.len()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Btf::Absent,
            Err(error) => Btf::Unreadable(error.to_string()),
        }
    }

    fn cgroups(&self, mountinfo: &str) -> CgroupFacts {
        let mounts = cgroup_mounts(mountinfo);
        // v2 may lack the cpu controller: the controller can be disabled, or it may not be delegated to this container.
        let has_cpu = |mount: &Path| {
            let controllers = format!("{}/cgroup.controllers", mount.display());
            let controllers = self.text(controllers.trim_start_matches('/'));
            controllers.is_none_or(|controllers| controllers.split_whitespace().any(|name| name == "cpu"))
        };
        let cpu = mounts.cpu().filter(|mount| !mounts.cpu_is_v2() || has_cpu(mount));
        CgroupFacts {
            layout: mounts.layout(),
            cpu_mount: cpu.map(|mount| mount.display().to_string()),
            cpu_is_v2: mounts.cpu_is_v2(),
        }
    }

    fn numa_nodes(&self) -> Option<Vec<u32>> {
        if has_no_numa(self.0) { Some(Vec::new()) } else { self.cpu_list("sys/devices/system/node/online") }
    }

    /// Whether this is a PREEMPT_RT kernel. The RT patches add `/sys/kernel/realtime`, but some of these kernels lack this file.
    fn realtime(&self) -> Option<bool> {
        let by_file = self.switch("sys/kernel/realtime");
        // Example: `#1 SMP PREEMPT_RT`. RT patches before 5.3 wrote a space instead of the last underscore.
        let says_so = |version: String| version.contains("PREEMPT_RT") || version.contains("PREEMPT RT");
        let version = || self.text("proc/sys/kernel/version").map(says_so);
        if by_file == Some(true) { by_file } else { version().or(by_file) }
    }

    fn proxy_exec(&self, release: &str) -> Option<bool> {
        let files = [format!("boot/config-{release}"), format!("lib/modules/{release}/config")];
        let config = files.iter().find_map(|path| self.text(path))?;
        Some(proxy_exec(&config, &self.text("proc/cmdline").unwrap_or_default()))
    }

    fn sign_of_a_container(&self) -> Option<String> {
        let file = ["/run/.containerenv", "/.dockerenv", "/run/systemd/container"]
            .into_iter()
            .find(|path| self.0.join(path.trim_start_matches('/')).exists());
        // In a container without a cgroup namespace, the cgroup path of PID 1 contains the name of the container engine.
        let by_cgroup = || {
            let cgroup = self.text("proc/1/cgroup")?;
            let mut engines = ["docker", "kubepods", "containerd", "libpod", "lxc"].into_iter();
            engines.find(|engine| cgroup.contains(engine)).map(|engine| format!("cgroup of {engine}"))
        };
        file.map(String::from).or_else(by_cgroup)
    }
}

#[cfg(test)]
mod tests;
