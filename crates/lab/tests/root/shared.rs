//! Readings for viewers of several users: the owner of each task, and which tasks the kernel side follows for which viewer.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Child, Command, Stdio},
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
/// Number of grandchildren that are started while readings are taken.
const BIRTHS: u32 = 100;

fn shared() -> Collector {
    let options = Options { shared: true, ..Options::default() };
    Collector::start(&options).unwrap_or_else(|failure| panic!("{failure}"))
}

/// Takes a sample. Returns it with each task's owner and followers, by tid.
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

/// Starts a process with these ids: real, effective and saved.
fn sleeper(ids: &str) -> Load {
    let code =
        format!("import os, time; os.setresgid(61001, 61001, 61001); os.setresuid({ids}); time.sleep(60)");
    Load::start("python3", &["-c", &code], None)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn uids(pid: u32) -> Vec<u32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap_or_default();
    line.split_ascii_whitespace().filter_map(|uid| uid.parse().ok()).collect()
}

#[test]
fn a_task_is_owned_by_a_user_if_all_its_ids_are_those_of_the_user() {
    let cases = [
        ("61001, 61001, 61001", [ALICE; 3], Some(ALICE)),
        ("61001, 0, 0", [ALICE, 0, 0], None),
        ("61001, 61001, 0", [ALICE, ALICE, 0], None),
        ("0, 61001, 0", [0, ALICE, 0], None),
        ("0, 0, 0", [0; 3], Some(0)),
    ];
    let loads = cases.map(|(ids, as_expected, owner)| (sleeper(ids), as_expected, owner));
    for (load, as_expected, _) in &loads {
        wait_until("its ids", || uids(load.pid()).get(..3) == Some(&as_expected[..]));
    }
    let mut collector = shared();
    let (_, access) = read(&mut collector);
    for (load, as_expected, owner) in &loads {
        assert_eq!(access[&load.pid()].owner, *owner, "{as_expected:?}");
    }
    let me = std::process::id();
    assert_eq!(access[&me].owner, Some(0));
    drop(collector);
    // A collector without the option `shared` reports no owners.
    let mut alone = crate::bench::follow(&[me]);
    alone.sample().expect("a sample");
    assert!(alone.access().is_empty());
}

/// Returns the threads with this name.
fn named(sample: &Sample, comm: &str) -> Vec<u32> {
    sample.tasks.iter().filter(|task| &*task.comm == comm).map(|task| task.tid).collect()
}

/// A shell that starts a grandchild for each line that it reads. The grandchild's parent has exited by the time of the first
/// reading.
struct Parent {
    shell: Child,
    orphans: Vec<u32>,
}

impl Parent {
    fn start() -> Self {
        let script = "while read go; do (sh -c 'sleep 60 & exit 0'); done; exec sleep 60";
        let shell = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn().expect("a shell");
        Self { shell, orphans: Vec::new() }
    }

    fn pid(&self) -> u32 {
        self.shell.id()
    }

    /// Requests the next grandchild, and takes a reading `later` after the request. Repeats the reading until it finds the
    /// grandchild, and returns the grandchild's id.
    fn bear(&mut self, collector: &mut Collector, follower: Follower, later: Duration) -> u32 {
        self.shell.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("the receiver reads");
        let word = Instant::now();
        while word.elapsed() < later {
            std::hint::spin_loop();
        }
        let mut born = None;
        wait_until("a grandchild that is followed", || {
            let (sample, access) = read(collector);
            let followed = |tid: &u32| access[tid].is_followed_for(follower) && !self.orphans.contains(tid);
            born = named(&sample, "sleep").into_iter().find(followed);
            born.is_some()
        });
        self.orphans.extend(born);
        born.expect("the grandchild was found")
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        for orphan in &self.orphans {
            // SAFETY: no pointers; the shell started this process, and it is not reaped before it exits by itself.
            unsafe { libc::kill(*orphan as i32, libc::SIGKILL) };
        }
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

#[test]
fn processes_and_their_children_are_followed_for_each_viewer_separately() {
    let mut collector = shared();
    let [one, other] = std::array::from_fn(|n| Follower::all().nth(n * 30).expect("many"));
    let mut parent = Parent::start();
    let bystander = Load::start("sleep", &["60"], None);
    let me = std::process::id();
    let (_, before) = read(&mut collector);
    assert!(!before[&parent.pid()].is_followed_for(one));

    collector.follow(one, &[parent.pid()]);
    collector.follow(other, &[parent.pid(), me]);
    let (_, marked) = read(&mut collector);
    assert!(marked[&parent.pid()].is_followed_for(one) && marked[&parent.pid()].is_followed_for(other));
    assert!(marked[&me].is_followed_for(other) && !marked[&me].is_followed_for(one));

    // With one of these delays, a reading finds the process before the kernel reports its fork.
    let later = |n| Duration::from_micros(5) * n;
    let orphans: Vec<u32> = (0..BIRTHS).map(|n| parent.bear(&mut collector, one, later(n))).collect();
    let (_, access) = read(&mut collector);
    assert!(orphans.iter().all(|orphan| access[orphan].is_followed_for(other)));
    assert!(!access[&bystander.pid()].is_followed_for(one));

    collector.follow_no_longer(one);
    let (_, after) = read(&mut collector);
    let orphan = orphans[0];
    assert!(!after[&orphan].is_followed_for(one) && after[&orphan].is_followed_for(other));
    // Reuse the same follower slot for another viewer, without a reading in between.
    collector.follow_no_longer(other);
    collector.follow(other, &[bystander.pid()]);
    let (_, after) = read(&mut collector);
    assert!(!after[&orphan].is_followed_for(other) && after[&bystander.pid()].is_followed_for(other));
}
