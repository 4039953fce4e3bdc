//! Short-lived cgroups. cgscope keeps the name of a cgroup while figures refer to the cgroup, and frees the data of the cgroup
//! afterwards.

mod storm;

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::{BufRead, BufReader, ErrorKind, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::{Duration, Instant},
};

use cgscope_collect::Collector;
use cgscope_ledger::Loss;
use cgscope_model::{Interval, Losses, Sample};

use crate::{
    background::Background,
    bench::{
        OF_THE_HOST, assert_ended, cgscope, follow, is_emulated, json_lines, patience, rss_bytes, run, scaled,
    },
    files::Dir,
    load::Cgroup,
    spread::Spread,
};

/// Shell script that enters each given cgroup, runs a short process there and leaves the cgroup again. The short process counts
/// for this cgroup, because it was created there.
const VISIT: &str = r#"
    while read -r there; do
        echo $$ > "$there/cgroup.procs"
        /bin/true
        echo $$ > "$HOME_CGROUP/cgroup.procs"
        echo back
    done
"#;

struct Visitor {
    child: Child,
    orders: Option<ChildStdin>,
    reports: BufReader<ChildStdout>,
}

impl Visitor {
    fn new(home: &Path) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", VISIT])
            .env("HOME_CGROUP", home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("sh");
        fs::write(home.join("cgroup.procs"), child.id().to_string()).expect("a cgroup of ours");
        let orders = child.stdin.take();
        let reports = BufReader::new(child.stdout.take().expect("its output is ours"));
        Self { child, orders, reports }
    }

    fn visit(&mut self, there: &Path) {
        let orders = self.orders.as_mut().expect("its input is open");
        writeln!(orders, "{}", there.display()).expect("the shell reads its input");
        let mut report = String::new();
        self.reports.read_line(&mut report).expect("the shell writes its answer");
        assert_eq!(report, "back\n");
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.orders = None;
        let _ = self.child.wait();
    }
}

/// A cgroup with children, and a process that enters and leaves the child cgroups.
struct Parent {
    visitor: Option<Visitor>,
    cgroup: Cgroup,
}

impl Parent {
    fn new(name: &str) -> Self {
        let cgroup = Cgroup::new(name);
        Self { visitor: Some(Visitor::new(&cgroup.path)), cgroup }
    }

    fn make(&self, name: &str) -> (PathBuf, u64, String) {
        let path = self.cgroup.path.join(name);
        fs::create_dir(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let id = fs::metadata(&path).expect("just made").ino();
        (path, id, format!("{}/{name}", self.cgroup.name))
    }

    fn visit(&mut self, path: &Path) {
        self.visitor.as_mut().expect("a visitor").visit(path);
    }
}

impl Drop for Parent {
    fn drop(&mut self) {
        self.visitor = None;
        for below in fs::read_dir(&self.cgroup.path).into_iter().flatten().flatten() {
            if below.path().is_dir() {
                remove(&below.path());
            }
        }
    }
}

/// Removes a cgroup. Retries, because a reaped process can stay in its cgroup for a moment.
fn remove(path: &Path) {
    let end = Instant::now() + Duration::from_secs(5);
    while let Err(error) = fs::remove_dir(path) {
        if error.kind() == ErrorKind::NotFound || Instant::now() > end {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn sample(collector: &mut Collector) -> Sample {
    collector.sample().expect("a sample")
}

fn name(sample: &Sample, id: u64) -> Option<&str> {
    sample.cgroups.iter().find(|(named, _)| *named == id).map(|(_, path)| &**path)
}

/// Asserts that hardly anything was lost. In rare cases, the storage of a task cannot be created (see `conservation`), but the
/// sums are still complete.
fn assert_hardly_lost(losses: &Losses) {
    for (loss, count) in losses.nonzero() {
        let allowed = match loss {
            Loss::StorageNotCreated => 50,
            Loss::SwitchWithoutStorage => 500,
            Loss::ReadingOvertaken if is_emulated() => 20,
            Loss::CulpritForgotten | Loss::PressureForgotten => 0,
            _ if loss.leaves_result_whole() => u64::MAX,
            _ => 0,
        };
        assert!(count <= allowed, "{} {count}", loss.name());
    }
}

type Names = Arc<Mutex<HashMap<u64, String>>>;

/// Creates and removes `count` cgroups in batches of a hundred. Runs a process in every tenth of these cgroups, and returns the
/// ids of the cgroups with a process.
fn churn(parent: &mut Parent, count: usize, names: &Names) -> HashSet<u64> {
    let mut visited = HashSet::new();
    for batch in 0..count / 100 {
        let made: Vec<_> = (0..100).map(|i| parent.make(&format!("c{batch}-{i}"))).collect();
        let mut known = names.lock().expect("no thread panicked");
        known.extend(made.iter().map(|(_, id, name)| (*id, name.clone())));
        drop(known);
        for (path, id, _) in made.iter().step_by(10) {
            parent.visit(path);
            visited.insert(*id);
        }
        made.iter().for_each(|(path, ..)| remove(path));
    }
    visited
}

#[test]
#[ignore = "all CPUs: makes thousands of cgroups, whose names other tests would lose"]
fn ten_thousand_cgroups_made_and_removed_cause_no_error_no_leak_and_no_wrong_name() {
    let mut collector = follow(&[]);
    let mut parent = Parent::new("many");
    let group = parent.cgroup.name.clone();
    let first = sample(&mut collector);
    let at_start = collector.held();
    let names = Names::default();
    let mut whole = Interval::default();
    let mut earlier = first.clone();
    let mut shown: HashMap<u64, HashSet<Arc<str>>> = HashMap::new();
    let (mut highest_rss, mut with_figures) = (0, HashSet::new());
    let mut follow_on = |collector: &mut Collector| {
        let now = sample(collector);
        highest_rss = highest_rss.max(now.cost.rss_bytes.unwrap_or(0));
        with_figures.extend(now.exited.iter().map(|place| place.cgroup_id));
        for (id, path) in &now.cgroups {
            shown.entry(*id).or_default().insert(path.clone());
        }
        whole.append(Interval::between(&earlier, &now));
        earlier = now;
    };
    let count = scaled(10_000) as usize;
    let (visited, parent) = thread::scope(|scope| {
        let churning = scope.spawn(|| (churn(&mut parent, count, &names), parent));
        while !churning.is_finished() {
            thread::sleep(Duration::from_millis(200));
            follow_on(&mut collector);
        }
        churning.join().expect("the thread that makes and removes cgroups")
    });
    drop(parent);
    for _ in 0..5 {
        thread::sleep(Duration::from_millis(500));
        follow_on(&mut collector);
    }

    let at_end = collector.held();
    for (at_start, at_end, what) in [
        (at_start.names, at_end.names, "names"),
        (at_start.places, at_end.places, "places"),
        (at_start.pairs, at_end.pairs, "pairs"),
    ] {
        assert!(at_end <= at_start + 20, "{what}: {at_start}, then {at_end}");
    }
    // The collector runs in the test process, so the memory of the collector includes the memory of the test.
    let grown = highest_rss.saturating_sub(first.cost.rss_bytes.unwrap_or(0));
    assert!(grown < 20 << 20, "memory grew by {grown} bytes");

    let names = names.lock().expect("no thread panicked");
    assert_eq!(names.len(), count, "the kernel reuses no id");
    for (id, name) in names.iter() {
        for path in shown.remove(id).unwrap_or_default() {
            assert_eq!(*path, **name, "{id}");
        }
    }
    assert!(visited.is_subset(&with_figures), "each visited cgroup has figures");
    assert_hardly_lost(&whole.losses);
    let nameless: Vec<u64> = visited
        .into_iter()
        .filter(|id| whole.cgroup_path(*id).is_none_or(|path| **path != *names[id]))
        .collect();
    assert!(nameless.is_empty() || whole.losses.get(Loss::CgroupEventLost) > 0, "{nameless:?}");
    let group = whole.by_cgroup().remove(&Some(group.as_str().into())).expect("the parent");
    assert!(group.exited >= scaled(1_000), "{} exited", group.exited);
    assert_eq!(group.wait.hist.count(), group.wait.count);
    assert_eq!(group.wait.total_ns, group.totals.run_delay_ns, "{:?}", group.totals);
}

#[test]
fn a_cgroup_that_existed_only_between_two_samples_has_its_name() {
    let mut collector = follow(&[]);
    let mut parent = Parent::new("short");
    sample(&mut collector);
    let (path, id, expected) = parent.make("life");
    parent.visit(&path);
    remove(&path);
    let after = sample(&mut collector);
    assert!(after.exited.iter().any(|place| place.cgroup_id == id && place.tasks == 1), "{:?}", after.exited);
    assert_eq!(name(&after, id), Some(&*expected));
    assert_eq!(after.losses.get(Loss::CgroupEventLost), 0);
}

#[test]
fn a_name_longer_than_an_event_is_found_by_a_walk_of_the_cgroup_tree() {
    let mut collector = follow(&[]);
    let mut parent = Parent::new("long");
    sample(&mut collector);
    let (path, id, expected) = parent.make(&"x".repeat(255));
    parent.visit(&path);
    // The collector walks the cgroup tree at most once every 900 ms.
    thread::sleep(Duration::from_secs(1));
    let after = sample(&mut collector);
    assert_eq!(name(&after, id), Some(&*expected));
}

#[test]
#[ignore = "all CPUs: makes thousands of cgroups, whose names other tests would lose"]
fn if_more_cgroups_appear_than_the_buffer_holds_live_ones_are_found_and_removed_ones_freed() {
    let mut collector = follow(&[]);
    let mut parent = Parent::new("flood");
    sample(&mut collector);
    let at_start = collector.held();
    for i in 0..3_000 {
        let (path, ..) = parent.make(&format!("{i}{}", "x".repeat(200)));
        remove(&path);
    }
    let (path, id, expected) = parent.make("living");
    parent.visit(&path);
    thread::sleep(Duration::from_secs(1));
    let after = sample(&mut collector);
    assert!(after.losses.get(Loss::CgroupEventLost) > 0, "no event was lost: is the buffer larger now?");
    assert_eq!(name(&after, id), Some(&*expected));
    remove(&path);
    for _ in 0..6 {
        thread::sleep(Duration::from_millis(500));
        sample(&mut collector);
    }
    let at_end = collector.held();
    assert!(at_end.names <= at_start.names + 20, "{at_start:?}, then {at_end:?}");
    assert!(at_end.places <= at_start.places + 20, "{at_start:?}, then {at_end:?}");
}

#[test]
fn a_renamed_cgroup_and_its_descendants_have_the_new_name() {
    let mut collector = follow(&[]);
    let mut parent = Parent::new("renamed");
    let (path, id, old) = parent.make("old");
    let below = path.join("below");
    fs::create_dir(&below).expect("a cgroup");
    let below_id = fs::metadata(&below).expect("just made").ino();
    parent.visit(&path);
    parent.visit(&below);
    let before = sample(&mut collector);
    let new = path.with_file_name("new");
    let renamed = fs::rename(&path, &new);
    let after = sample(&mut collector);
    let below = if renamed.is_ok() { new.join("below") } else { below };
    remove(&below);
    assert_eq!(name(&before, id), Some(&*old));
    assert_eq!(name(&before, below_id), Some(&*format!("{old}/below")));
    // On v2, cgroups cannot be renamed.
    if renamed.is_ok() {
        let new = format!("{}/new", parent.cgroup.name);
        assert_eq!(name(&after, id), Some(&*new));
        assert_eq!(name(&after, below_id), Some(&*format!("{new}/below")));
    }
}

#[test]
fn a_cgroup_removed_during_a_recording_keeps_its_name_in_it() {
    let dir = Dir::new("removed");
    let file = dir.file("a.rec");
    // The recording must start before the cgroup is removed, and continue afterwards.
    let seconds = if is_emulated() { "8" } else { "3" };
    let mut recording = Background::start(cgscope().args(["record", "-v", "-o", &file, "-d", seconds]));
    recording.wait_for("attached after");
    // Wait for the first sample, because the recorder then reads the names of all cgroups.
    thread::sleep(patience(300));
    let mut parent = Parent::new("recorded");
    let (path, _, _) = parent.make("inside");
    parent.visit(&path);
    remove(&path);
    let (code, said) = recording.wait();
    assert_ended(code, &said, OF_THE_HOST);
    let intervals = json_lines(&run(&["report", "--json", &file]));
    for interval in &intervals {
        assert!(interval["losses"].get("cgroup_event_lost").is_none(), "{}", interval["losses"]);
    }
    let is_it = |path: &str| path.ends_with("-recorded/inside");
    let named =
        intervals.iter().flat_map(|interval| interval["cgroups"].as_array().expect("cgroups").clone());
    let named: Vec<_> = named.filter(|cgroup| is_it(cgroup["path"].as_str().unwrap_or_default())).collect();
    assert!(named.iter().any(|cgroup| cgroup["wait"]["count"] != 0), "{named:?}");
}

#[test]
#[ignore = "all CPUs: 400 busy cgroups"]
fn memory_for_many_cgroups_that_wait_behind_each_other_is_bounded() {
    const CGROUPS: usize = 400;
    // Maximum number of pairs of victim and culprit. Each victim has at most 32 pairs for single culprits, and one pair for the
    // sum of all other culprits.
    const MOST: usize = CGROUPS * 33;
    let spread = Spread::yielding("yield", CGROUPS, 60);
    let mut collector = follow(&[]);
    let begun = Instant::now();
    let (mut earlier, mut lost) = (sample(&mut collector), Losses::default());
    let mut highest = 0;
    while lost.get(Loss::CulpritMerged) < 1_000 && begun.elapsed() < Duration::from_secs(45) {
        thread::sleep(Duration::from_millis(100));
        let now = sample(&mut collector);
        highest = highest.max(collector.held().pairs);
        let interval = Interval::between(&earlier, &now);
        // When the pair of a culprit is merged into the sum of the other culprits, the time of this culprit must not count twice.
        let charged: u64 = interval.pairs.iter().map(|pair| pair.ns).sum();
        let behind = interval.total().wait.by_cause.0.iter().sum::<u64>();
        assert!(charged <= behind + behind / 10, "{charged} ns of {behind}");
        lost = now.losses.clone();
        earlier = now;
    }
    drop(spread);
    assert!(lost.get(Loss::CulpritMerged) >= 1_000, "at most {highest} pairs");
    // The other cgroups of the host have some pairs, too.
    assert!(highest < MOST + 2_000, "{highest} pairs");
}

mod long {
    use super::*;

    /// Each cgroup with exited tasks has an entry for the figures of these tasks. When most entries are in use, cgscope releases
    /// the entries of idle cgroups. If a task then enters such a cgroup, cgscope creates a new entry.
    #[test]
    #[ignore = "all CPUs: makes thousands of cgroups, whose names other tests would lose"]
    fn exits_in_thousands_of_cgroups_one_after_the_other_are_counted_once() {
        const CGROUPS: usize = 13_000;
        const AGAIN: usize = 500;
        let mut collector = follow(&[]);
        let mut parent = Parent::new("emptied");
        let (mut earlier, mut whole) = (sample(&mut collector), Interval::default());
        let mut highest = 0;
        let mut read = |collector: &mut Collector| {
            let now = sample(collector);
            whole.append(Interval::between(&earlier, &now));
            earlier = now;
            highest = highest.max(collector.held().places);
        };
        let mut visited = Vec::new();
        for at in 0..CGROUPS {
            let (path, ..) = parent.make(&at.to_string());
            parent.visit(&path);
            visited.push(path);
            if at % 500 == 0 {
                read(&mut collector);
            }
        }
        // A task counts as exited at its last switch, and cgscope cannot release the entry of its cgroup earlier.
        for _ in 0..4 {
            thread::sleep(Duration::from_millis(500));
            read(&mut collector);
        }
        let left = collector.held().places;
        for _ in 0..2 {
            visited[..AGAIN].iter().for_each(|path| parent.visit(path));
            thread::sleep(Duration::from_millis(500));
            read(&mut collector);
        }
        println!("at most {highest} places, then {left}; {}", whole.losses);
        assert!(left + 1_000 < highest, "places are released");
        assert_eq!(whole.losses.get(Loss::ExitedInOtherCgroup), 0);
        let below = format!("{}/", parent.cgroup.name);
        let groups = whole.by_cgroup();
        let ours =
            groups.iter().filter(|(path, _)| path.as_ref().is_some_and(|path| path.starts_with(&below)));
        let exited: Vec<u64> = ours.map(|(_, group)| group.exited).collect();
        assert_eq!(exited.iter().sum::<u64>(), (CGROUPS + 2 * AGAIN) as u64);
        assert_eq!(exited.iter().filter(|exited| **exited == 3).count(), AGAIN);
    }

    #[derive(Default)]
    struct Hostile {
        paths: Vec<PathBuf>,
        sleepers: Vec<Child>,
    }

    impl Drop for Hostile {
        fn drop(&mut self) {
            for sleeper in &mut self.sleepers {
                let _ = sleeper.kill();
                let _ = sleeper.wait();
            }
            // The children of the sleepers exit within a second.
            thread::sleep(Duration::from_millis(1_200));
            self.paths.iter().for_each(|path| _ = fs::remove_dir(path));
        }
    }

    /// One user creates more cgroups than cgscope keeps. The cgroups have long names, and some have tasks. A pod runs on the same
    /// host.
    #[test]
    #[ignore = "all CPUs: makes thousands of cgroups, whose names other tests would lose"]
    fn forty_thousand_cgroups_of_one_user_cost_a_bounded_amount_and_hide_no_others() {
        const PARENTS: usize = 40;
        const EACH: usize = 1_000;
        let hostile = Cgroup::new("hostile");
        let pod = Cgroup::new("pod");
        let dir = Dir::new("forty-thousand");
        let recorded_rss = |name: &str| {
            let recording = Background::start(cgscope().args(["record", "-o", &dir.file(name), "-d", "20"]));
            let begun = Instant::now();
            thread::sleep(Duration::from_secs(18));
            let rss = rss_bytes(recording.pid());
            let (code, said) = recording.wait();
            assert_ended(code, &said, OF_THE_HOST);
            assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
            rss
        };
        let before = recorded_rss("before.rec");
        let mut made = Hostile::default();
        for parent in 0..PARENTS {
            let parent = hostile.path.join(format!("{parent}-{}", "n".repeat(150)));
            fs::create_dir(&parent).expect("a cgroup of ours");
            for at in 0..EACH {
                let path = parent.join(format!("{at}-{}", "n".repeat(80)));
                fs::create_dir(&path).expect("a cgroup of ours");
                // The collector's walk of the cgroup tree reads only a part of the cgroups, in an unknown order. Cgroups with
                // tasks are spread evenly, so the walk misses some of them.
                if at % 125 == 124 {
                    let awake = ["-c", "while :; do sleep 1; done"];
                    let sleeper = Command::new("sh").args(awake).spawn().expect("sh starts");
                    fs::write(path.join("cgroup.procs"), sleeper.id().to_string()).expect("a cgroup of ours");
                    made.sleepers.push(sleeper);
                }
                made.paths.push(path);
            }
            made.paths.push(parent);
        }
        let _loop = crate::load::Load::busy_loop(Some(&pod));
        let after = recorded_rss("after.rec");
        let shown = run(&["report", &dir.file("after.rec"), "--json"]);
        let whole = json_lines(&shown).remove(0);
        let merged = whole["losses"]["cgroup_merged"].as_u64().unwrap_or(0);
        println!("{} KiB, then {} KiB; {merged} merged", before >> 10, after >> 10);
        let paths: Vec<&str> = whole["tasks"]
            .as_array()
            .expect("tasks")
            .iter()
            .filter_map(|task| task["cgroup"].as_str())
            .collect();
        assert!(paths.contains(&&*pod.name), "the pod has its name");
        let of_hostile = paths.iter().filter(|path| path.starts_with(&hostile.name)).count();
        assert!(merged > 0 && of_hostile > 0, "{merged} {of_hostile}");
        assert!(after - before < 150 << 20, "{before} {after}");
    }
}
