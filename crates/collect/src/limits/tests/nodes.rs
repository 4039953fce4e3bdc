//! Tests reading CPUs and memory by node.

use super::*;

#[test]
fn v1_without_effective_cpus_uses_the_set_ones() {
    let host = Fake::new("cpuset", V1)
        .files("sys/fs/cgroup/cpu,cpuacct/a", &ALL_V1)
        .files("sys/fs/cgroup/cpu,cpuacct/b", &ALL_V1)
        .files("sys/fs/cgroup/cpu,cpuacct/c", &ALL_V1)
        .file("sys/fs/cgroup/cpuset/a/cpuset.cpus", "0-7\n")
        .file("sys/fs/cgroup/cpuset/c/cpuset.effective_cpus", "\n")
        .file("sys/fs/cgroup/cpuset/cpuset.cpus", "0-63\n");
    let mut limits = host.limits();
    let mut cpus = |name: &str| {
        let id = host.id(&format!("sys/fs/cgroup/cpu,cpuacct/{name}"));
        let read = limits.read(id, &format!("/{name}"), false).unwrap();
        assert_eq!(read.cpus.is_some(), read.cpuset.is_some());
        read.cpus
    };
    assert_eq!((cpus("a"), cpus("b"), cpus("c")), (Some(8), None, None));
}

#[test]
fn the_node_of_memory_is_read_on_request() {
    let v2 = Fake::new("memory", V2)
        .files("sys/fs/cgroup/a", &ALL_V2)
        .file("sys/fs/cgroup/a/memory.numa_stat", "anon N0=4096 N8=0\nfile N0=1 N8=2\nshmem N0=1 N8=2\n");
    let id = v2.id("sys/fs/cgroup/a");
    assert_eq!(v2.limits().read(id, "/a", true).unwrap().memory_by_node, []);
    let read = LimitFiles { reads_memory: true, ..v2.limits() }.read(id, "/a", false).unwrap();
    assert_eq!(read.memory_by_node, [(0, 4097), (8, 2)]);

    let mounts = format!("{V1}35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n");
    let v1 = Fake::new("memory-v1", &mounts)
        .files("sys/fs/cgroup/cpu,cpuacct/a", &ALL_V1)
        .files("sys/fs/cgroup/cpu,cpuacct/b", &ALL_V1)
        .file("sys/fs/cgroup/memory/a/memory.numa_stat", "total=1 N0=1\nhierarchical_total=3 N0=1 N1=2\n");
    let mut limits = LimitFiles { reads_memory: true, ..v1.limits() };
    let mut memory = |name: &str| {
        let id = v1.id(&format!("sys/fs/cgroup/cpu,cpuacct/{name}"));
        limits.read(id, &format!("/{name}"), false).unwrap().memory_by_node
    };
    let page = rustix::param::page_size() as u64;
    assert_eq!((memory("a"), memory("b")), (vec![(0, page), (1, 2 * page)], vec![]));
}
