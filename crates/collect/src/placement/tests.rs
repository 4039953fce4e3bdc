use std::fs;

use cgscope_model::Scheduling;

use super::{
    *, {cpuset_path, narrowing},
};

struct Fake(PathBuf);

impl Fake {
    fn new(name: &str) -> Self {
        let root = std::env::temp_dir().join(format!("cgscope-placement-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("sys/devices/system/cpu")).unwrap();
        Self(root)
    }

    fn file(self, path: &str, text: &str) -> Self {
        self.write(path, text);
        self
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Adds online nodes with their CPUs. Each CPU has been busy for 2 ticks and idle for 3 ticks.
    fn nodes(self, nodes: &[(u32, &str)]) -> Self {
        let numbers: Vec<u32> = nodes.iter().map(|(node, _)| *node).collect();
        self.write("sys/devices/system/node/online", &format!("{}\n", cpu_list(&numbers)));
        let mut online = Vec::new();
        for (node, cpus) in nodes {
            self.write(&format!("sys/devices/system/node/node{node}/cpulist"), &format!("{cpus}\n"));
            let meminfo =
                format!("Node {node} MemTotal:       1000 kB\nNode {node} MemFree:        {node} kB\n");
            self.write(&format!("sys/devices/system/node/node{node}/meminfo"), &meminfo);
            online.extend(parse_cpu_list(cpus).unwrap());
        }
        online.sort_unstable();
        self.online(&online)
    }

    fn online(self, cpus: &[u32]) -> Self {
        self.write("sys/devices/system/cpu/online", &cpu_list(cpus));
        let lines = cpus.iter().map(|cpu| format!("cpu{cpu} 1 0 1 2 1 0 0 0 0 0\n"));
        let stat = format!("cpu  9 9 9 9 9 9 9 9 9 9\n{}intr 5 6\nctxt 7\n", lines.collect::<String>());
        self.file("proc/stat", &stat)
    }

    fn files(&self) -> PlacementFiles {
        PlacementFiles::new(&self.0, false)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn nodes_of(cpus: &[CpuReading]) -> Vec<(u32, Option<u32>)> {
    cpus.iter().map(|cpu| (cpu.cpu, cpu.node)).collect()
}

fn task(tid: u32, cpu: u32) -> Arc<TaskReading> {
    let comm = "a".into();
    Arc::new(TaskReading { serial: tid.into(), tid, tgid: tid, comm, cpu, ..TaskReading::default() })
}

/// Reads the placement of a task at second `s`. The task has run for `ran_ns` in total.
fn place_after_run(files: &mut PlacementFiles, tasks: &mut [Arc<TaskReading>; 1], s: u64, ran_ns: u64) {
    let before = tasks[0].clone();
    Arc::make_mut(&mut tasks[0]).totals.on_cpu_ns = ran_ns;
    let active = Active::between(Some(&before), &tasks[0]);
    files.place(tasks, &[active], s * 1_000_000_000);
}

#[test]
fn a_cpu_is_busy_unless_it_is_idle_or_waits_for_io() {
    //               user nice system idle iowait irq softirq steal guest guest_nice
    let stat = "cpu  1 1 1 1 1 1 1 1 1 1\ncpu10 1 2 4 8 16 32 64 128 256 512\ncpu2 0 0 0 5 0 0 0\n";
    let cpus = cpu_times(stat, 10_000_000);
    assert_eq!(nodes_of(&cpus), [(2, None), (10, None)]);
    assert_eq!((cpus[1].busy_ns, cpus[1].idle_ns), (Some(1_030_000_000), Some(240_000_000)));
    assert_eq!((cpus[0].busy_ns, cpus[0].idle_ns), (Some(0), Some(50_000_000)), "2.6.11 had no steal");
}

#[test]
fn invalid_times_give_no_reading() {
    let cpus = cpu_times("cpu0 1 2 3\ncpu1 a b c d e f g h\ncpux 1 1 1 1 1 1 1\ncpu\n\ncpu3\n", 1);
    assert_eq!(nodes_of(&cpus), [(0, None), (1, None)]);
    assert!(cpus.iter().all(|cpu| cpu.busy_ns.is_none() && cpu.idle_ns.is_none()));
    let huge = format!("cpu0 {} 0 0 0 0 0 0\n", u64::MAX);
    assert_eq!(cpu_times(&huge, 10)[0].busy_ns, None);
}

#[test]
fn cpus_of_two_large_nodes_with_gaps_get_their_node() {
    let host = Fake::new("large").nodes(&[(0, "0-95,192-287"), (1, "96-190,300-396")]);
    let mut files = host.files();
    let cpus = files.cpus();
    assert_eq!((cpus.len(), files.has_several_nodes()), (384, true));
    assert_eq!(cpus.iter().filter(|cpu| cpu.node == Some(1)).count(), 192);
    assert_eq!((cpus[383].cpu, cpus[383].node, cpus[383].busy_ns), (396, Some(1), Some(2 * files.tick_ns)));
}

#[test]
fn node_numbers_may_have_gaps_and_nodes_may_lack_cpus() {
    let host = Fake::new("sparse").nodes(&[(0, "0-3"), (8, "8-11"), (252, "")]);
    let mut files = host.files();
    assert_eq!(files.cpus().len(), 8);
    let nodes = files.nodes();
    let of = |i: usize| (nodes[i].node, nodes[i].memory_bytes, nodes[i].free_bytes);
    assert_eq!(nodes.len(), 3);
    assert_eq!(of(1), (8, Some(1_024_000), Some(8_192)));
    assert_eq!(of(2), (252, Some(1_024_000), Some(252 * 1024)));
    assert!(files.has_several_nodes());
    assert!(!Fake::new("memory-only").nodes(&[(0, "0-3"), (1, "")]).files().has_several_nodes());
}

#[test]
fn one_cpu_is_a_node_of_its_own() {
    let host = Fake::new("one").nodes(&[(0, "0")]);
    let mut files = host.files();
    assert_eq!(nodes_of(&files.cpus()), [(0, Some(0))]);
    assert!(!files.has_several_nodes());
    let mut tasks = [task(1, 0)];
    files.place(&mut tasks, &[], 1_000);
    assert!(tasks[0].placement.is_none());
}

#[test]
fn without_numa_node_0_has_all_cpus_and_memory() {
    let host = Fake::new("no-numa").online(&[0, 2, 3]);
    host.write("proc/meminfo", "MemTotal:        2000 kB\nMemFree:          500 kB\nSwapTotal: 1 kB\n");
    let mut files = host.files();
    assert_eq!(nodes_of(&files.cpus()), [(0, Some(0)), (2, Some(0)), (3, Some(0))]);
    let node = NodeReading { node: 0, memory_bytes: Some(2_048_000), free_bytes: Some(512_000) };
    assert_eq!(files.nodes(), [node]);
}

#[test]
fn cpus_that_go_offline_and_online_are_noticed() {
    let host = Fake::new("hotplug").nodes(&[(0, "0-1"), (1, "2-3")]);
    let mut files = host.files();
    assert_eq!(files.cpus().len(), 4);
    let host = host.nodes(&[(0, "0"), (1, "3")]);
    assert_eq!(nodes_of(&files.cpus()), [(0, Some(0)), (3, Some(1))]);
    let mut tasks = [task(1, 3), task(2, 2)];
    assert_eq!(files.place(&mut tasks, &[], 1), [0]);
    assert_eq!((tasks[0].node, tasks[1].node), (Some(1), None));
    let _host = host.nodes(&[(0, "0,2"), (1, "3-5")]);
    assert_eq!(
        nodes_of(&files.cpus()),
        [(0, Some(0)), (2, Some(0)), (3, Some(1)), (4, Some(1)), (5, Some(1))]
    );
}

#[test]
fn without_readable_files_there_are_no_cpus_and_nodes() {
    let host = Fake::new("nothing");
    fs::create_dir_all(host.0.join("sys/devices/system/node")).unwrap();
    let mut files = host.files();
    assert_eq!((files.cpus(), files.nodes()), (vec![], vec![]));
    assert!(check_places(&Selection { cpus: vec![900], ..Selection::default() }, &files.cpu_nodes).is_ok());
}

#[test]
fn a_missing_cpu_or_node_is_named_with_the_existing_ones() {
    let nodes = BTreeMap::from([(0, 0), (1, 0), (8, 4)]);
    let refusal = |cpus: &[u32], nodes_asked: &[u32]| {
        let (cpus, nodes_asked) = (cpus.to_vec(), nodes_asked.to_vec());
        let selection = Selection { cpus, nodes: nodes_asked, ..Selection::default() };
        check_places(&selection, &nodes).err().map(|failure| failure.to_string())
    };
    assert_eq!(refusal(&[0, 8], &[0, 4]), None);
    assert_eq!(refusal(&[1, 2], &[]).as_deref(), Some("there is no CPU 2: the online CPUs are 0-1,8"));
    assert_eq!(refusal(&[], &[1]).as_deref(), Some("there is no node 1: the nodes with CPUs are 0,4"));
}

#[test]
fn cpu_lists_are_written_as_they_are_read() {
    for list in ["", "0", "0-1", "0-3,8", "1,3,5-7,250", "0-95,192-287"] {
        assert_eq!(cpu_list(&parse_cpu_list(list).unwrap()), list);
    }
}

#[test]
fn the_cpuset_of_a_task_is_in_its_hierarchy() {
    let hybrid = "5:cpu,cpuacct:/c\n4:cpuset:/a:b\n1:name=systemd:/s\n0::/u\n";
    assert_eq!(cpuset_path(hybrid, false).as_deref(), Some("/a:b"));
    assert_eq!(cpuset_path(hybrid, true).as_deref(), Some("/u"));
    assert_eq!(cpuset_path("0::/../b\n", true), None, "outside of what is mounted here");
    assert_eq!(cpuset_path("5:cpu:/c\n", false), None);
}

#[test]
fn the_cpuset_is_named_after_the_cgroup_that_sets_it() {
    let host = Fake::new("cpusets")
        .file("m/cpuset.cpus.effective", "0-7\n")
        .file("m/a/cpuset.cpus.effective", "0-3\n")
        .file("m/a/b/cpuset.cpus.effective", "0-3\n")
        .file("m/a/b/c/cgroup.procs", "")
        .file("m/wide/cpuset.cpus.effective", "0-7\n")
        .file("v1/x/cpuset.effective_cpus", "4-5\n")
        .file("v1/cpuset.effective_cpus", "0-7\n");
    let online: Vec<u32> = (0..8).collect();
    let found = |mount: &str, path: &str| {
        let found = narrowing(&host.0.join(mount), mount == "m", path, &online);
        found.map(|cpuset| (cpuset.path.to_string(), cpuset.cpus.to_string()))
    };
    let a = Some(("/a".to_owned(), "0-3".to_owned()));
    assert_eq!([found("m", "/a"), found("m", "/a/b"), found("m", "/a/b/c")], [a.clone(), a.clone(), a]);
    assert_eq!((found("m", "/wide"), found("m", "/"), found("m", "/gone")), (None, None, None));
    assert_eq!(found("v1", "/x"), Some(("/x".into(), "4-5".into())));
}

#[test]
fn only_busy_threads_are_checked() {
    // The host has fewer CPUs than each of these nodes, so no affinity mask contains all CPUs of a node.
    let host = Fake::new("busy").nodes(&[(0, "0-4095"), (1, "4096-8191")]);
    let mut files = host.files();
    files.cpus();
    // SAFETY: no preconditions.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    let mut tasks = [task(tid, 0)];
    let mut look = |s: u64, ran_ns: u64| {
        place_after_run(&mut files, &mut tasks, s, ran_ns);
        tasks[0].placement.as_ref().and_then(|placement| placement.cpus_allowed.clone())
    };
    assert_eq!(look(1, 1_000), None);
    assert_eq!(look(2, 2_000), None);
    let mask = look(3, 500_000_000).expect("its mask");
    assert!(!parse_cpu_list(&mask).unwrap().is_empty(), "{mask}");
    assert_eq!(look(4, 500_000_000), Some(mask), "valid for some samples");
    for s in 5..8 {
        look(s, 500_000_000);
    }
    assert_eq!(look(8, 500_000_000), None, "but not forever");
}

#[test]
fn the_policy_and_the_mask_of_a_busy_thread_are_read_even_with_one_node() {
    // SAFETY: no preconditions.
    let tid = unsafe { libc::syscall(libc::SYS_gettid) } as u32;
    // The flags include PF_NO_SETAFFINITY and PF_KTHREAD. The name contains a bracket. The node has more CPUs than any affinity
    // mask.
    let stat = format!(
        "{tid} (kworker/0:1) x) I 2 0 0 0 -1 69238880 0 0 0 0 1 2 0 0 20 0 1 0 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n"
    );
    let host =
        Fake::new("policy").nodes(&[(0, "0-8191")]).file(&format!("proc/{tid}/task/{tid}/stat"), &stat);
    let mut files = host.files();
    files.cpus();
    let mut tasks = [task(tid, 0)];
    let mut look = |s: u64, ran_ns: u64| {
        place_after_run(&mut files, &mut tasks, s, ran_ns);
        (
            tasks[0].scheduling,
            tasks[0].placement.as_ref().is_some_and(|placement| placement.cpus_allowed.is_some()),
        )
    };
    look(1, 1_000);
    assert_eq!(look(2, 2_000), (None, false), "the thread is idle");
    let batch = libc::sched_param { sched_priority: 0 };
    // SAFETY: the structure is ours, and 0 means this thread. Every thread can set SCHED_BATCH.
    assert_eq!(unsafe { libc::syscall(libc::SYS_sched_setscheduler, 0, libc::SCHED_BATCH, &batch) }, 0);
    let busy = Some(Scheduling { policy: libc::SCHED_BATCH as u8, is_bound: true });
    assert_eq!(look(3, 500_000_000), (busy, true));
    for s in 4..10 {
        assert_eq!(look(s, 500_000_000).0, busy, "a policy is valid as long as the task exists");
    }
}
