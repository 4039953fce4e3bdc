use std::os::unix::fs::symlink;

use super::*;

struct Fake(PathBuf);

impl Fake {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("cgscope-{}-{name}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn file(self, path: &str, text: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        self
    }

    fn link(self, path: &str, target: &str) -> Self {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
        self
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const HYBRID: &str = "\
23 27 0:22 / /sys rw,relatime - sysfs sysfs rw
31 23 0:28 / /sys/fs/cgroup rw,relatime shared:9 - tmpfs tmpfs rw,mode=755
33 31 0:30 / /sys/fs/cgroup/cpuacct rw,relatime - cgroup cgroup rw,cpuacct
34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
";

const V2: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

#[test]
fn a_v2_host_is_read() {
    let host = Fake::new("v2")
        .file("proc/sys/kernel/osrelease", "6.18.1-amd64\n")
        .file("proc/sys/kernel/version", "#1 SMP PREEMPT_DYNAMIC Debian\n")
        .file("proc/sys/kernel/sched_autogroup_enabled", "1\n")
        .file("proc/sys/kernel/bpf_stats_enabled", "0\n")
        .file("proc/self/status", "Name:\tx\nUid:\t1000\t0\t0\t0\nCapEff:\t000000c000080000\n")
        .file("proc/self/schedstat", "100 200 3\n")
        .file("proc/self/mountinfo", V2)
        .file("proc/1/cgroup", "0::/init.scope\n")
        .file("proc/cmdline", "quiet\n")
        .file("boot/config-6.18.1-amd64", "CONFIG_SMP=y\nCONFIG_SCHED_PROXY_EXEC=y\n")
        .link("proc/self/exe", "/usr/bin/cgscope")
        .link("proc/self/ns/pid", "pid:[4026531836]")
        .link("proc/self/ns/user", "user:[4026532999]")
        .file("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n")
        .file("sys/kernel/btf/vmlinux", "12345678")
        .file("sys/kernel/security/lockdown", "none [integrity] confidentiality\n")
        .file("sys/kernel/sched_ext/state", "enabled\n")
        .file("sys/kernel/sched_ext/root/ops", "simple\n")
        .file("sys/devices/system/cpu/online", "0-2\n")
        .file("sys/devices/system/cpu/possible", "0-3\n")
        .file("sys/devices/system/node/online", "0,2\n")
        .file("sys/devices/system/node/node0/cpulist", "0-1\n")
        .file("sys/devices/system/node/node2/cpulist", "2\n");
    let expected = Facts {
        kernel_release: Some("6.18.1-amd64".into()),
        architecture: Some(std::env::consts::ARCH.into()),
        program: Some("/usr/bin/cgscope".into()),
        uid: Some(0),
        capabilities: Some(["CAP_BPF", "CAP_PERFMON", "CAP_SYS_PTRACE"].map(String::from).into()),
        initial_user_namespace: Some(false),
        initial_pid_namespace: Some(true),
        named_containers: None,
        container: None,
        btf: Some(Btf::Present(8)),
        features_off: None,
        sched_info: Some(true),
        lockdown: Some(Lockdown::Integrity),
        cgroups: Some(CgroupFacts {
            layout: CgroupLayout::V2,
            cpu_mount: Some("/sys/fs/cgroup".into()),
            cpu_is_v2: true,
        }),
        cpus_online: Some(vec![0, 1, 2]),
        cpus_possible: Some(vec![0, 1, 2, 3]),
        numa_nodes: Some(vec![0, 2]),
        realtime: Some(false),
        sched_ext: Some("enabled".into()),
        bpf_scheduler: Some("simple".into()),
        proxy_exec: Some(true),
        autogroup: Some(true),
        hides_processes: Some(false),
        bpf_stats: Some(false),
        trial: None,
    };
    assert_eq!(gather(&host.0), expected);
    assert_eq!(cpu_to_node(&host.0), BTreeMap::from([(0, 0), (1, 0), (2, 2)]));
}

#[test]
fn an_empty_directory_gives_no_facts() {
    let host = Fake::new("empty");
    let architecture = Some(std::env::consts::ARCH.into());
    assert_eq!(gather(&host.0), Facts { architecture, btf: Some(Btf::Absent), ..Facts::default() });
    assert!(cpu_to_node(&host.0).is_empty());
}

#[test]
fn a_missing_feature_is_distinguished_from_an_unreadable_file() {
    let host = Fake::new("small")
        .file("proc/self/status", "Uid:\t0\t0\t0\t0\n")
        .file("sys/devices/system/cpu/online", "0\n");
    let facts = gather(&host.0);
    assert_eq!(facts.numa_nodes, Some(vec![]));
    assert_eq!(facts.sched_info, Some(false));
    assert_eq!(facts.capabilities, None);
}

#[test]
fn a_v2_hierarchy_without_the_cpu_controller_has_no_quotas() {
    let host = Fake::new("undelegated")
        .file("proc/self/mountinfo", V2)
        .file("sys/fs/cgroup/cgroup.controllers", "memory pids cpuset\n");
    let found = gather(&host.0).cgroups.unwrap();
    assert_eq!((found.layout, found.cpu_mount), (CgroupLayout::V2, None));
}

#[test]
fn containers_leave_signs() {
    let docker = Fake::new("docker").file(".dockerenv", "");
    let kubernetes = Fake::new("kubernetes").file("proc/1/cgroup", "4:cpu:/kubepods/besteffort/pod1/2\n");
    assert_eq!(gather(&docker.0).container.as_deref(), Some("/.dockerenv"));
    assert_eq!(gather(&kubernetes.0).container.as_deref(), Some("cgroup of kubepods"));
}

#[test]
fn a_realtime_kernel_is_found_by_its_file_or_its_version() {
    let by_file = Fake::new("rt-file")
        .file("sys/kernel/realtime", "1\n")
        .file("proc/sys/kernel/version", "#1 SMP PREEMPT\n");
    let by_version = Fake::new("rt-version").file("proc/sys/kernel/version", "#1 SMP PREEMPT_RT Debian\n");
    assert_eq!(gather(&by_file.0).realtime, Some(true));
    assert_eq!(gather(&by_version.0).realtime, Some(true));
}

#[test]
fn this_host_can_be_read() {
    let facts = gather(Path::new("/"));
    assert!(facts.kernel().is_some());
    assert!(facts.capabilities.is_some() && facts.uid.is_some());
    assert!(facts.initial_pid_namespace.is_some() && facts.initial_user_namespace.is_some());
    assert!(facts.cpus_online.is_some_and(|cpus| !cpus.is_empty()));
    let nodes = facts.numa_nodes.unwrap_or_default();
    // Offline CPUs also have a node.
    let present = present_cpu_to_node(Path::new("/"));
    assert!(cpu_to_node(Path::new("/")).iter().all(|(cpu, node)| present.get(cpu) == Some(node)));
    assert!(cpu_to_node(Path::new("/")).values().all(|node| nodes.contains(node)));
}

#[test]
fn the_cpu_controller_of_a_hybrid_host_is_on_v1() {
    let mounts = cgroup_mounts(HYBRID);
    assert_eq!(mounts.cpu(), Some(Path::new("/sys/fs/cgroup/cpu")));
    assert_eq!(mounts.unified.as_deref(), Some(Path::new("/sys/fs/cgroup/unified")));
    assert!(!mounts.cpu_is_v2());
    assert_eq!(mounts.layout(), CgroupLayout::Hybrid);
}

#[test]
fn the_cpu_controller_is_found_in_a_shared_mount() {
    let mounts = cgroup_mounts(
        "40 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:10 master:3 - cgroup cgroup rw,cpu,cpuacct\n",
    );
    assert_eq!(mounts.cpu(), Some(Path::new("/sys/fs/cgroup/cpu,cpuacct")));
    assert_eq!(mounts.layout(), CgroupLayout::V1);
}

#[test]
fn a_hierarchy_without_a_controller_does_not_make_the_host_hybrid() {
    let named = "40 31 0:37 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd\n";
    let mounts = cgroup_mounts(&format!("{named}{V2}"));
    assert_eq!(mounts.layout(), CgroupLayout::V2);
    assert!(mounts.cpu_is_v2());
}

#[test]
fn the_mount_that_shows_the_root_is_preferred() {
    let mounts = cgroup_mounts(&format!("50 29 0:26 /a /srv/a rw - cgroup2 cgroup2 rw\n{V2}"));
    assert_eq!(mounts.cpu(), Some(Path::new("/sys/fs/cgroup")));
    let mounts = cgroup_mounts("50 29 0:26 /a /srv/a\\040b\\134 rw - cgroup2 cgroup2 rw\n");
    assert_eq!(mounts.cpu(), Some(Path::new("/srv/a b\\")));
}

#[test]
fn malformed_mountinfo_is_ignored() {
    assert_eq!(cgroup_mounts("").layout(), CgroupLayout::None);
    assert_eq!(cgroup_mounts(" - \n1 2 3 - cgroup2\n- cgroup cgroup cpu\n").layout(), CgroupLayout::None);
}

#[test]
fn cpu_lists_are_parsed() {
    assert_eq!(parse_cpu_list("0-3,8\n"), Some(vec![0, 1, 2, 3, 8]));
    assert_eq!(parse_cpu_list("5"), Some(vec![5]));
    assert_eq!(parse_cpu_list("8,0-1,1"), Some(vec![0, 1, 8]));
    assert_eq!(parse_cpu_list("\n"), Some(vec![]));
    for wrong in ["a", "3-1", "0-", "-1", "1,,2", "0-4294967295"] {
        assert_eq!(parse_cpu_list(wrong), None, "{wrong}");
    }
}

#[test]
fn capabilities_have_their_names() {
    let of = |bits: &str| effective_capabilities(&format!("CapEff:\t{bits}\n"));
    assert_eq!(of("0000000000000000").unwrap().len(), 0);
    assert_eq!(of("000001ffffffffff").unwrap().len(), 41);
    assert!(!of("000001fffeffffff").unwrap().contains("CAP_SYS_RESOURCE"));
    assert_eq!(of("zz"), None);
}

#[test]
fn the_mode_of_lockdown_is_the_one_in_brackets() {
    assert_eq!(lockdown("[none] integrity confidentiality"), Some(Lockdown::None));
    assert_eq!(lockdown("none integrity [confidentiality]"), Some(Lockdown::Confidentiality));
    assert_eq!(lockdown(""), None);
}

#[test]
fn proxy_execution_can_be_switched_off_at_boot() {
    let config = "CONFIG_SCHED_PROXY_EXEC=y";
    assert!(proxy_exec(config, "ro quiet"));
    assert!(!proxy_exec(config, "ro sched_proxy_exec=0"));
    assert!(!proxy_exec("# CONFIG_SCHED_PROXY_EXEC is not set", "sched_proxy_exec=1"));
}

#[test]
fn waits_are_stamped_if_schedstat_counts() {
    assert!(counts("1 0 2\n"));
    assert!(!counts("0 0 0\n"));
    assert!(!counts(""));
}

#[test]
fn a_proc_that_hides_processes_is_detected_by_its_options() {
    let mounts = |options| format!("22 1 0:21 / /proc rw,nosuid shared:5 - proc proc rw{options}\n");
    assert!(!hides_processes(&mounts("")) && !hides_processes(&mounts(",hidepid=off")));
    assert!(hides_processes(&mounts(",gid=4,hidepid=invisible")) && hides_processes(&mounts(",hidepid=2")));
}

#[test]
fn a_mount_may_show_only_a_part_of_its_hierarchy() {
    let mountinfo = "\
31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw
32 31 0:29 /docker/a\\040b /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu
";
    let shown = |point: &str| shown_at(mountinfo, Path::new(point));
    assert_eq!(shown("/sys/fs/cgroup/cpu").as_deref(), Some("/docker/a b"));
    assert_eq!(shown("/sys/fs/cgroup").as_deref(), Some("/"));
    assert_eq!(shown("/nowhere"), None);
}

#[test]
fn the_bpf_scheduler_has_a_name_only_while_it_is_loaded() {
    let at = |state: &str, ops: &str, takes_all: &str| {
        let host = Fake::new("sched-ext")
            .file("sys/kernel/sched_ext/state", state)
            .file("sys/kernel/sched_ext/root/ops", ops)
            .file("sys/kernel/sched_ext/switch_all", takes_all);
        sched_ext(&host.0)
    };
    let loaded = |name: &str, takes_all| Some(SchedExt { scheduler: Some(name.into()), takes_all });
    assert_eq!(at("enabled\n", "simple\n", "1\n"), loaded("simple", true));
    assert_eq!(at("enabled\n", "a\u{1b}[2J\n", "0\n"), loaded("a\u{fffd}[2J", false));
    assert_eq!(at("disabling\n", "", "0\n"), loaded("(unknown)", false));
    assert_eq!(at("disabled\n", "simple\n", "1\n"), Some(SchedExt::default()));
    assert_eq!(at("", "simple\n", "1\n"), None, "unreadable");
}

#[test]
fn a_kernel_without_sched_ext_has_no_bpf_scheduler() {
    let host = Fake::new("no-sched-ext").file("sys/kernel/btf/vmlinux", "12345678");
    assert_eq!(sched_ext(&host.0), Some(SchedExt::default()));
    assert_eq!(sched_ext(&Fake::new("no-sys").0), None);
}

#[test]
fn the_size_of_a_task_is_4_kib_if_the_kernel_does_not_show_it() {
    let path = "sys/kernel/slab/task_struct/slab_size";
    for (shown, bytes) in [("9984\n", 9984), ("2048\n", 4096), ("?\n", 4096)] {
        assert_eq!(task_bytes(&Fake::new("task-bytes").file(path, shown).0), bytes);
    }
    assert_eq!(task_bytes(&Fake::new("no-slab").0), 4096);
}

#[test]
fn tasks_side_by_side_have_slots_side_by_side() {
    use cgscope_ledger::wire::{slot_factor, slot_of};
    for bytes in [2049, 4096, 4288, 9984, 16_384] {
        let factor = slot_factor(bytes);
        assert!(i32::try_from(factor).is_ok_and(|factor| factor > 0), "{bytes}");
        for first in [0xffff_8881_0000_0000, 0xffff_88ff_1234_5000, 0xffff_0000_0000_1000_u64] {
            let slot = |task: u64| slot_of(first + task * bytes, factor) as u32;
            let steps = (0..4096).map(|task| slot(task + 1).wrapping_sub(slot(task)));
            assert!(steps.filter(|step| *step != 1).count() <= 1, "{bytes} {first:x}");
        }
    }
}

#[test]
fn the_threads_of_the_host_are_counted_with_those_that_sleep() {
    let host = Fake::new("threads").file("proc/loadavg", "0.10 0.05 0.01 2/345 6789\n");
    assert_eq!(threads(&host.0), 345);
    assert_eq!(threads(&Fake::new("no-threads").0), 0);
}
