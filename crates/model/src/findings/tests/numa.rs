use super::*;
use crate::{CpuInterval, Cpuset, NodeReading, Placement, ProcessMemory};

/// Returns a host with two nodes of two CPUs. The CPUs of the nodes are busy for `first` and `second` percent.
fn host(paths: &[&str], first: u64, second: u64) -> Scene {
    let mut scene = Scene::new(paths);
    scene.interval.cpus = (0..4)
        .map(|cpu| {
            let busy = if cpu < 2 { first } else { second };
            CpuInterval {
                cpu,
                node: Some(cpu / 2),
                busy_ns: Some(S * busy / 100),
                idle_ns: Some(S - S * busy / 100),
                ..CpuInterval::default()
            }
        })
        .collect();
    let node = |node| NodeReading { node, memory_bytes: Some(1 << 30), free_bytes: Some(1 << 29) };
    scene.interval.nodes = vec![node(0), node(1)];
    scene
}

impl Scene {
    /// Adds threads of process 100 on node 0. Each thread runs for a quarter of the time and waits for the rest.
    fn threads(mut self, path: &str, count: u32, placement: &Placement) -> Self {
        for i in 0..count {
            self = self.task(path, S / 4, &[(Cause::OwnCgroup, S * 3 / 4)]);
            let task = self.interval.tasks.last_mut().unwrap();
            (task.reading.tgid, task.reading.tid) = (100, 100 + i);
            task.reading.comm = if i == 0 { "game".into() } else { "thread".into() };
            task.reading.node = Some(0);
            task.reading.placement = Some(Arc::new(placement.clone()));
        }
        self
    }

    fn memory(mut self, by_node: &[(u32, u64)], policy: &str) -> Self {
        let bytes = by_node.iter().map(|(_, bytes)| bytes).sum();
        let policies = vec![(policy.into(), bytes)];
        self.interval.memory.push(ProcessMemory { tgid: 100, by_node: by_node.to_vec(), policies });
        self
    }
}

fn held(cpus_allowed: &str, cpuset: Option<(&str, &str)>) -> Placement {
    let cpuset = cpuset.map(|(path, cpus)| Arc::new(Cpuset { path: path.into(), cpus: cpus.into() }));
    Placement { cpus_allowed: Some(cpus_allowed.into()), cpuset, ..Placement::default() }
}

#[test]
fn a_full_node_is_reported_with_its_process_and_the_affinity_mask() {
    let found = host(&["/a"], 100, 1).threads("/a", 8, &held("0-1", None)).only(Rule::NodeSkew);
    assert_eq!(
        found.says,
        "node 0 (CPUs 0-1) was busy 100.0% of the time, with 8.0 tasks running or waiting on average; node 1 (CPUs 2-3) was \
         busy 1.0%; on node 0, process 100 (game) of /a has 8 busy threads and takes 100.0% of the node's run time \
         (100.0% of its run and wait time together); the affinity mask 0-1 of the threads leaves out node 1"
    );
    assert_eq!(
        found.advice,
        "let the threads use node 1, too (taskset -acp 0-3 100), or start at most 2 threads (one for each CPU of node 0)"
    );
    assert_eq!((found.lost_ns, found.cgroup), (6 * S, Some("/a".into())));
}

#[test]
fn a_full_node_explains_waits_beside_idle_cpus() {
    let scene = |second| host(&["/a"], 100, second).threads("/a", 8, &held("0-1", None));
    assert!(scene(1).at(Rule::IdleCpus).is_empty());
    // Only one CPU of the other node is idle.
    let mut half = scene(1);
    (half.interval.cpus[2].busy_ns, half.interval.cpus[2].idle_ns) = (Some(S), Some(0));
    assert!(half.at(Rule::NodeSkew).is_empty());
    assert_eq!(half.at(Rule::IdleCpus), ["/a"]);
}

#[test]
fn a_full_node_explains_waits_of_threads_for_each_other_but_not_those_on_another_node() {
    let mut scene = host(&["/a", "/b"], 100, 1).threads("/a", 8, &held("0-1", None));
    assert!(scene.at(Rule::OwnContention).is_empty());
    for _ in 0..3 {
        scene = scene.task("/b", S / 4, &[(Cause::OwnCgroup, S * 3 / 4)]);
        scene.interval.tasks.last_mut().unwrap().reading.node = Some(1);
    }
    assert_eq!(scene.at(Rule::NodeSkew), ["/a"]);
    assert_eq!(scene.at(Rule::OwnContention), ["/b"]);
}

#[test]
fn the_waits_of_a_thread_are_on_the_nodes_where_it_ran_or_else_where_it_is() {
    let says = |scene: &Scene| scene.only(Rule::NodeSkew).says;
    let scene = || host(&["/a", "/b"], 100, 1).threads("/a", 2, &held("0-1", None));
    let mut moved = scene().task("/b", S / 2, &[(Cause::OwnCgroup, S / 2)]);
    moved.interval.tasks[1].placement.ran_ns = Some([(0, S / 8), (1, S / 8)].into());
    moved.interval.tasks[2].reading.node = Some(0);
    let expected = "takes 42.9% of the node's run time (60.0% of its run and wait time together)";
    assert!(says(&moved).contains(expected), "{}", says(&moved));
    // Two more threads, which have not run.
    let mut waiting =
        scene().task("/b", 0, &[(Cause::OwnCgroup, S)]).task("/b", 0, &[(Cause::OwnCgroup, 3 * S)]);
    waiting.interval.tasks[2].reading.node = Some(0);
    waiting.interval.tasks[3].reading.node = Some(1);
    let expected = "takes 100.0% of the node's run time (66.7% of its run and wait time together)";
    assert!(says(&waiting).contains(expected), "{}", says(&waiting));
}

#[test]
fn a_bound_kernel_thread_is_not_named() {
    let mask = held("0-1", None);
    let mut scene = host(&["/a"], 100, 1).threads("/", 8, &mask);
    for task in &mut scene.interval.tasks {
        (task.reading.tgid, task.reading.comm) = (7, "kworker/0:1".into());
        task.reading.scheduling = Some(Scheduling { policy: 0, is_bound: true });
    }
    assert!(scene.at(Rule::NodeSkew).is_empty(), "no thread can be moved");
    let found = scene.threads("/a", 2, &mask).only(Rule::NodeSkew);
    assert!(
        found
            .says
            .contains("process 100 (game) of /a has 2 busy threads and takes 20.0% of the node's run time"),
        "{}",
        found.says
    );
    assert!(found.advice.contains("taskset -acp 0-3 100"), "{}", found.advice);
}

#[test]
fn a_cpuset_that_keeps_threads_on_a_node_is_named_even_if_an_ancestor_has_it() {
    let held = held("0-1", Some(("/a", "0-1")));
    let found = host(&["/a", "/a/b"], 100, 1).threads("/a/b", 8, &held).only(Rule::NodeSkew);
    assert!(found.says.ends_with("; the cpuset of /a (cpuset.cpus 0-1) leaves out node 1"), "{}", found.says);
    assert_eq!(found.advice, "let /a use CPUs of node 1, too (cpuset.cpus 0-3)");
}

#[test]
fn a_process_with_little_of_a_full_node_is_reported_with_its_small_share() {
    let mut scene = host(&["/a"], 100, 1).threads("/a", 1, &held("0-1", None));
    scene.interval.is_selection = true;
    let found = scene.only(Rule::NodeSkew);
    assert!(
        found.says.contains(
            "process 100 (game) of /a has 1 busy thread and takes 12.5% of the node's run time (36.4% of"
        ),
        "{}",
        found.says
    );
}

#[test]
fn a_cpuset_that_has_both_nodes_is_not_the_reason() {
    let held = held("0", Some(("/a", "0-2")));
    let found = host(&["/a"], 100, 1).threads("/a", 8, &held).only(Rule::NodeSkew);
    assert!(found.says.ends_with("; the affinity mask 0 of the threads leaves out node 1"), "{}", found.says);
}

#[test]
fn several_affinity_masks_are_named() {
    let scene = host(&["/a"], 100, 1).threads("/a", 5, &held("0", None)).threads("/a", 3, &held("1", None));
    let found = scene.only(Rule::NodeSkew);
    assert!(
        found.says.ends_with("; the affinity masks 0 and 1 of the threads leave out node 1"),
        "{}",
        found.says
    );
}

#[test]
fn threads_without_a_mask_may_stay_near_their_memory() {
    let scene = || host(&["/a"], 100, 1).threads("/a", 8, &held("0-3", None));
    let free = scene().only(Rule::NodeSkew);
    assert!(
        free.says.ends_with("; no affinity mask and no cpuset keeps the threads on node 0"),
        "{}",
        free.says
    );
    let bound = scene().memory(&[(0, 90), (1, 10)], "bind:0").only(Rule::NodeSkew);
    assert!(
        bound.says.ends_with(
            "keeps the threads on node 0, but 90.0% of the memory is on this node (memory policy bind:0)"
        ),
        "{}",
        bound.says
    );
    let unknown = host(&["/a"], 100, 1).threads("/a", 8, &Placement::default()).only(Rule::NodeSkew);
    assert!(
        unknown
            .says
            .ends_with("; it is not known whether an affinity mask or a cpuset keeps the threads on node 0"),
        "{}",
        unknown.says
    );
}

#[test]
fn a_pool_of_processes_is_reported_by_its_cgroup() {
    let mut scene = host(&["/a"], 100, 1).threads("/a", 8, &held("0-1", None));
    for (task, tgid) in scene.interval.tasks.iter_mut().zip(200..) {
        task.reading.tgid = tgid;
    }
    let found = scene.only(Rule::NodeSkew);
    assert!(
        found.says.contains(", /a has 8 busy threads and takes 100.0% of the node's run time"),
        "{}",
        found.says
    );
}

#[test]
fn a_skew_begins_at_90_percent_with_10_percent_of_waiting_beside_30_percent() {
    let speaks = |first, second, waited_ns| {
        let scene = host(&["/a"], first, second).threads("/a", 1, &held("0-1", None));
        let mut scene = scene.task("/a", S, &[(Cause::OwnCgroup, waited_ns)]);
        scene.interval.tasks[0].wait = Wait::default();
        scene.interval.tasks[1].reading.node = Some(0);
        !scene.at(Rule::NodeSkew).is_empty()
    };
    assert!(speaks(90, 30, 180 * MS));
    assert!(!speaks(89, 30, S));
    assert!(!speaks(90, 31, S));
    assert!(!speaks(90, 30, 180 * MS - 1));
}

#[test]
fn two_busy_nodes_or_throttled_tasks_are_no_skew() {
    assert!(host(&["/a"], 100, 100).threads("/a", 8, &held("0-1", None)).at(Rule::NodeSkew).is_empty());
    let mut scene = host(&["/a"], 100, 1).task("/a", S, &[(Cause::Throttled, S)]);
    scene.interval.tasks[0].reading.node = Some(0);
    assert!(scene.at(Rule::NodeSkew).is_empty());
    let mut one = host(&["/a"], 100, 1).threads("/a", 8, &held("0-1", None));
    one.interval.cpus.retain(|cpu| cpu.node == Some(0));
    assert!(one.at(Rule::NodeSkew).is_empty(), "there is no other node");
    one.interval.cpus.clear();
    assert!(one.at(Rule::NodeSkew).is_empty(), "the CPUs are unknown");
}

const MIB: u64 = 1 << 20;

#[test]
fn memory_on_another_node_is_reported_with_its_policy() {
    let scene = host(&["/a"], 50, 1).threads("/a", 2, &held("0-1", None));
    let found = scene.memory(&[(0, 5 * MIB), (1, 95 * MIB)], "bind:1").only(Rule::RemoteMemory);
    assert_eq!(
        found.says,
        "process 100 (game): 95.0% of its memory is on another node than its threads; 95.0% of 100.0MiB is on node 1; \
         the threads spent 100.0% of their run time on node 0; the memory policy bind:1 covers 100.0MiB"
    );
    assert_eq!(found.what, "process 100 (game) runs far from its memory");
    assert!(
        found.advice.ends_with("; to move the memory it has now, run migratepages 100 FROM TO"),
        "{}",
        found.advice
    );
}

#[test]
fn memory_is_remote_from_55_percent_on_two_nodes_of_16_mib_and_a_tenth_of_a_cpu() {
    let speaks = |here: u64, there: u64, threads: u32| {
        let scene = host(&["/a"], 50, 1).threads("/a", threads, &held("0-1", None));
        !scene.memory(&[(0, here * MIB), (1, there * MIB)], "default").at(Rule::RemoteMemory).is_empty()
    };
    assert!(speaks(45, 55, 1));
    assert!(!speaks(46, 54, 1));
    assert!(!speaks(0, 15, 1), "too little");
    assert!(!speaks(0, 55, 0), "no thread runs");
}

#[test]
fn without_memory_of_processes_the_lowest_cgroups_are_reported() {
    let memory =
        || CgroupReading { memory_by_node: vec![(0, MIB), (1, 99 * MIB)], ..CgroupReading::default() };
    let scene = host(&["/a", "/a/b"], 50, 1).threads("/a/b", 2, &held("0-1", None));
    let scene = scene.limits("/", memory()).limits("/a", memory()).limits("/a/b", memory());
    let found = scene.only(Rule::RemoteMemory);
    assert_eq!(found.cgroup.as_deref(), Some("/a/b"));
    assert!(found.says.starts_with("/a/b: 99.0% of its memory is on another node"), "{}", found.says);
}

#[test]
fn threads_bounce_from_10_moves_a_second_each_and_20_in_all() {
    let with = |threads: u32, moves: &[u64]| {
        let mut scene = host(&["/a"], 50, 50).threads("/a", threads, &Placement::default());
        for (task, moves) in scene.interval.tasks.iter_mut().zip(moves) {
            task.placement.node_migrations = Some(*moves);
        }
        scene
    };
    let found = with(2, &[30, 10]).only(Rule::NodeBouncing);
    assert_eq!(
        found.says,
        "process 100 (game): its 2 busy threads moved to another node 40 times (20.0 times a second per thread); each move \
         leaves caches and memory behind"
    );
    assert!(!with(2, &[10, 10]).at(Rule::NodeBouncing).is_empty());
    assert!(with(2, &[10, 9]).at(Rule::NodeBouncing).is_empty());
    assert!(with(1, &[19]).at(Rule::NodeBouncing).is_empty());
    assert!(with(3, &[20, 5]).at(Rule::NodeBouncing).is_empty());
    assert!(with(2, &[]).at(Rule::NodeBouncing).is_empty(), "not counted");
}
