//! Readings for several viewers. The BPF programs mark each task with the viewers that follow the task.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::{Collector, Options};
use cgscope_model::{
    Mode, Sample,
    follower::{Followed, Follower},
};

use crate::load::Load;

/// Number of grandchildren that start during readings.
const BIRTHS: u32 = 100;

fn shared() -> Collector {
    let options = Options { shared: true, ..Options::default() };
    Collector::start(&options, Mode::Bpf).unwrap_or_else(|failure| panic!("{failure}"))
}

fn read(collector: &mut Collector) -> (Sample, BTreeMap<u32, Followed>) {
    let sample = collector.sample().expect("a sample");
    let followed = collector.followed();
    assert!(followed.is_sorted_by(|a, b| a.serial < b.serial));
    assert_eq!(sample.tasks.len(), followed.len());
    let both = sample.tasks.iter().zip(followed);
    let both = both.map(|(task, followed)| {
        assert_eq!(task.serial, followed.serial);
        (task.tid, followed)
    });
    let by_tid = both.collect();
    (sample, by_tid)
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

fn named(sample: &Sample, comm: &str) -> Vec<u32> {
    sample.tasks.iter().filter(|task| &*task.comm == comm).map(|task| task.tid).collect()
}

/// A shell that starts a grandchild for each line of its input. The parent of a grandchild exits before the first reading with
/// this grandchild.
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

    /// Makes the shell start the next grandchild. After the delay `later`, takes readings until one of them contains the
    /// grandchild. Returns the process id of the grandchild.
    fn bear(&mut self, collector: &mut Collector, follower: Follower, later: Duration) -> u32 {
        self.shell.stdin.as_mut().expect("a pipe").write_all(b"go\n").expect("the receiver reads");
        let word = Instant::now();
        while word.elapsed() < later {
            std::hint::spin_loop();
        }
        let mut born = None;
        wait_until("a grandchild that is followed", || {
            let (sample, by_tid) = read(collector);
            let followed = |tid: &u32| by_tid[tid].is_for(follower) && !self.orphans.contains(tid);
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
            // SAFETY: the call takes no pointers. The shell has started this process, and the process is not reaped before it
            // exits by itself.
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
    assert!(!before[&parent.pid()].is_for(one));

    collector.changes.follow(one, &[parent.pid()]);
    collector.changes.follow(other, &[parent.pid(), me]);
    let (_, marked) = read(&mut collector);
    assert!(marked[&parent.pid()].is_for(one) && marked[&parent.pid()].is_for(other));
    assert!(marked[&me].is_for(other) && !marked[&me].is_for(one));

    // Try many delays. With one of the delays, a reading finds the new process before the kernel reports its fork.
    let later = |n| Duration::from_micros(5) * n;
    let orphans: Vec<u32> = (0..BIRTHS).map(|n| parent.bear(&mut collector, one, later(n))).collect();
    let (_, born) = read(&mut collector);
    assert!(orphans.iter().all(|orphan| born[orphan].is_for(other)));
    assert!(!born[&bystander.pid()].is_for(one));

    // A collector without the option `shared` does not follow tasks for viewers.
    let mut alone = crate::bench::follow(&[me]);
    alone.sample().expect("a sample");
    assert!(alone.followed().is_empty());
    drop(alone);

    collector.changes.stop(one);
    let (_, after) = read(&mut collector);
    let orphan = orphans[0];
    assert!(!after[&orphan].is_for(one) && after[&orphan].is_for(other));
    // Before the next reading, give the follower slot of `other` to another viewer.
    collector.changes.stop(other);
    collector.changes.follow(other, &[bystander.pid()]);
    let (_, after) = read(&mut collector);
    assert!(!after[&orphan].is_for(other) && after[&bystander.pid()].is_for(other));
}
