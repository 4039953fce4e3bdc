use super::*;

struct Host(PathBuf);

const V2: &str = "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";

impl Host {
    fn new(name: &str, mountinfo: &str, cgroup: &str) -> Self {
        let root = std::env::temp_dir().join(format!("cgscope-own-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("proc/self")).unwrap();
        fs::create_dir_all(root.join("sys/fs/cgroup/unified/a/b")).unwrap();
        fs::create_dir_all(root.join("sys/fs/cgroup/a/b")).unwrap();
        fs::write(root.join("proc/self/mountinfo"), mountinfo).unwrap();
        fs::write(root.join("proc/self/cgroup"), cgroup).unwrap();
        Self(root)
    }

    fn at(&self, path: &str) -> PathBuf {
        self.0.join("sys/fs/cgroup").join(path)
    }

    fn names(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.at(path)).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_cgroup_is_created_below_our_own_and_removed_on_drop() {
    let host = Host::new("made", V2, "0::/a/b\n");
    let cgroup = OwnCgroup::make(&host.0).unwrap();
    let name = format!("{PREFIX}{}-", std::process::id());
    assert!(cgroup.path.starts_with(&format!("/a/b/{name}")), "{}", cgroup.path);
    assert_eq!(host.names("a/b").len(), 1);
    let other = OwnCgroup::make(&host.0).unwrap();
    assert_eq!(host.names("a/b").len(), 2, "a cgroup in use is not removed");
    other.remove().unwrap();
    drop(cgroup);
    assert_eq!(host.names("a/b"), [""; 0]);
}

#[test]
fn on_a_hybrid_host_the_cgroup_is_in_v2() {
    let mounts = "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                  32 23 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
    let host = Host::new("hybrid", mounts, "1:cpu:/x\n0::/a\n");
    let cgroup = OwnCgroup::make(&host.0).unwrap();
    assert!(cgroup.directory.starts_with(host.at("unified/a")), "{cgroup:?}");
}

#[test]
fn cgroups_of_killed_cgscopes_are_removed_when_empty() {
    let host = Host::new("stale", V2, "0::/a\n");
    fs::create_dir(host.at("a/cgscope-stat-1-0")).unwrap();
    fs::create_dir_all(host.at("a/cgscope-stat-2-0/busy")).unwrap();
    fs::create_dir(host.at("a/others")).unwrap();
    drop(OwnCgroup::make(&host.0).unwrap());
    let mut left = host.names("a");
    left.sort();
    assert_eq!(left, ["b", "cgscope-stat-2-0", "others"]);
}

#[test]
fn a_cgroup_that_cannot_be_created_is_an_error_with_the_reason() {
    let said = |host: Host| OwnCgroup::make(&host.0).unwrap_err().to_string();
    let v1 = "31 23 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n";
    assert_eq!(
        said(Host::new("v1", v1, "1:cpu:/\n")),
        "no cgroup v2 hierarchy is mounted, so the command has no cgroup of its own and its children are found only by \
         their forks: mount -t cgroup2 none /sys/fs/cgroup"
    );
    let hidden = said(Host::new("hidden", V2, "0::/../x\n"));
    assert!(hidden.contains("does not show cgscope's own cgroup"), "{hidden}");
    let removed = said(Host::new("gone", V2, "0::/nowhere\n"));
    assert!(removed.starts_with("cannot create a cgroup in"), "{removed}");
    let weighing = Host::new("weighing", V2, "0::/a\n");
    fs::write(weighing.at("a/cgroup.subtree_control"), "memory cpu pids\n").unwrap();
    let weighing = said(weighing);
    assert!(weighing.contains("enables the cpu controller"), "{weighing}");
}

#[test]
fn a_mount_may_show_a_part_of_the_hierarchy() {
    assert_eq!(below("/a/b", "/").as_deref(), Some("/a/b"));
    assert_eq!(below("/a/b", "/a").as_deref(), Some("/b"));
    assert_eq!(below("/a", "/a").as_deref(), Some("/"));
    assert_eq!(below("/ab", "/a"), None);
    assert_eq!(below("/../a", "/"), None);
}

#[test]
fn files_of_the_cgroup_and_its_descendants_are_read() {
    let host = Host::new("files", V2, "0::/a\n");
    let cgroup = OwnCgroup::make(&host.0).unwrap();
    let file = |name: &str| cgroup.directory.join(name);
    assert!(cgroup.add(7).is_ok(), "the kernel makes the file; here it is made by writing");
    assert_eq!(fs::read_to_string(file("cgroup.procs")).unwrap(), "7");
    fs::write(file("cpu.stat"), "usage_usec 12\nuser_usec 7\nsystem_usec 5\n").unwrap();
    let stat = cgroup.stat();
    assert_eq!((stat.usage_ns, stat.user_ns, stat.system_ns), (Some(12_000), Some(7_000), Some(5_000)));
    assert_eq!(stat.nr_periods, None);
    let us = std::process::id();
    fs::write(file("cgroup.procs"), "0\n").unwrap();
    fs::create_dir(file("below")).unwrap();
    fs::write(file("below/cgroup.procs"), format!("{us}\n{us}\n4294967295\n")).unwrap();
    let found = cgroup.processes();
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].pid == us && !found[0].comm.is_empty());
    fs::remove_file(file("cgroup.procs")).unwrap();
    fs::remove_file(file("cpu.stat")).unwrap();
    assert!(cgroup.remove().unwrap_err().to_string().contains("could not be removed"));
}
