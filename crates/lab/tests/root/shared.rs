//! Readings for viewers of several users: whose a task is, and whom the kernel side follows for whom.

use std::{
    collections::BTreeMap,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::{Collector, Options};
use cgscope_model::{
    Sample,
    access::{Access, Follower},
};

use crate::load::Load;

const ALICE: u32 = 61_001;

fn shared() -> Collector {
    let options = Options { shared: true, ..Options::default() };
    Collector::start(&options).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Whose the tasks of a Sample are, by tid.
fn read(collector: &mut Collector) -> (Sample, BTreeMap<u32, Access>) {
    let sample = collector.sample().expect("a sample");
    let access = collector.access();
    assert!(access.is_sorted_by(|a, b| a.serial < b.serial));
    assert_eq!(sample.tasks.len(), access.len());
    let both = sample.tasks.iter().zip(access);
    let both = both.map(|(task, access)| {
        assert_eq!(task.serial, access.serial);
        (task.tid, *access)
    });
    let by_tid = both.collect();
    (sample, by_tid)
}

/// A process with these ids: real, effective and saved.
fn sleeper(ids: &str) -> Load {
    let code =
        format!("import os, time; os.setresgid(61001, 61001, 61001); os.setresuid({ids}); time.sleep(60)");
    Load::start("python3", &["-c", &code], None)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::sleep(Duration::from_millis(50));
    }
}

fn uids(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|uid| uid.parse().ok()).collect()
}

#[test]
fn a_task_is_a_users_if_all_its_ids_are_theirs() {
    let cases = [
        ("61001, 61001, 61001", [ALICE; 3], Some(ALICE)),
        ("61001, 0, 0", [ALICE, 0, 0], None),
        ("61001, 61001, 0", [ALICE, ALICE, 0], None),
        ("0, 61001, 0", [0, ALICE, 0], None),
        ("0, 0, 0", [0; 3], Some(0)),
    ];
    let loads = cases.map(|(ids, as_told, owner)| (sleeper(ids), as_told, owner));
    for (load, as_told, _) in &loads {
        wait_until("its ids", || uids(load.pid()).get(..3) == Some(&as_told[..]));
    }
    let mut collector = shared();
    let (_, access) = read(&mut collector);
    for (load, as_told, owner) in &loads {
        assert_eq!(access[&load.pid()].owner, *owner, "{as_told:?}");
    }
    let me = std::process::id();
    assert_eq!(access[&me].owner, Some(0));
    drop(collector);
    // Who asks for nothing of it is told nothing.
    let mut alone = crate::bench::follow(&[me]);
    alone.sample().expect("a sample");
    assert!(alone.access().is_empty());
}

/// The process whose name is this.
fn named(sample: &Sample, comm: &str) -> Vec<u32> {
    sample.tasks.iter().filter(|task| &*task.comm == comm).map(|task| task.tid).collect()
}

#[test]
fn processes_are_followed_with_what_they_start_for_each_viewer_by_itself() {
    let mut collector = shared();
    let [one, other] = std::array::from_fn(|n| Follower::all().nth(n * 30).expect("many"));
    // A grandchild whose parent is gone when it is first read.
    let script = "read go; (sh -c 'sleep 60 & exit 0'); exec sleep 60";
    let mut child = Command::new("sh");
    let mut child = child.args(["-c", script]).stdin(std::process::Stdio::piped()).spawn().expect("a shell");
    let bystander = Load::start("sleep", &["60"], None);
    let me = std::process::id();
    let (_, before) = read(&mut collector);
    assert!(!before[&child.id()].is_followed_for(one));

    collector.follow(one, &[child.id()]);
    collector.follow(other, &[child.id(), me]);
    let (_, marked) = read(&mut collector);
    assert!(marked[&child.id()].is_followed_for(one) && marked[&child.id()].is_followed_for(other));
    assert!(marked[&me].is_followed_for(other) && !marked[&me].is_followed_for(one));

    drop(child.stdin.take());
    let deadline = Instant::now() + Duration::from_secs(20);
    let orphan = loop {
        let (sample, access) = read(&mut collector);
        let children: Vec<u32> =
            named(&sample, "sleep").into_iter().filter(|tid| *tid != bystander.pid()).collect();
        let followed: Vec<u32> = children
            .into_iter()
            .filter(|tid| access[tid].is_followed_for(one) && *tid != child.id())
            .collect();
        if let [orphan] = followed[..] {
            assert!(access[&orphan].is_followed_for(other));
            assert!(!access[&bystander.pid()].is_followed_for(one));
            break orphan;
        }
        assert!(Instant::now() < deadline, "{followed:?}");
        thread::sleep(Duration::from_millis(50));
    };

    collector.follow_no_longer(one);
    let (_, after) = read(&mut collector);
    assert!(!after[&orphan].is_followed_for(one) && after[&orphan].is_followed_for(other));
    // The same place for another viewer, in one go.
    collector.follow_no_longer(other);
    collector.follow(other, &[bystander.pid()]);
    let (_, after) = read(&mut collector);
    assert!(!after[&orphan].is_followed_for(other) && after[&bystander.pid()].is_followed_for(other));

    // SAFETY: a process that was started above, whose parent is gone; its id is still its.
    unsafe { libc::kill(orphan as i32, libc::SIGKILL) };
    let _ = child.kill();
    let _ = child.wait();
}
