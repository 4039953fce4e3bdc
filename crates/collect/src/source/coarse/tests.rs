//! Fake hosts in a temporary directory.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU32, Ordering},
};

use cgscope_model::{ExitedThreads, Interval, Sample, Selection, TaskState};

use super::*;

struct Host(PathBuf);

impl Host {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("cgscope-coarse-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let host = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(host.0.join("proc")).unwrap();
        host.forks(100);
        host
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.0.join("proc").join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn forks(&self, forks: u64) {
        self.write("stat", &format!("cpu 1 2\nprocesses {forks}\n"));
    }

    /// Adds a thread with its run and wait time (ns), its state, its parent and its start (ticks).
    fn thread(&self, pid: u32, tid: u32, ran: u64, waited: u64, (state, ppid, start): (char, u32, u64)) {
        let zeros = |n| vec!["0"; n].join(" ");
        // A quarter of the run time is system time. `stat` has both times in ticks of 10 ms.
        let (user, system) = (ran / 4 * 3 / 10_000_000, ran / 4 / 10_000_000);
        let times = format!("{} {user} {system} {}", zeros(9), zeros(6));
        let stat = format!("{tid} (task) {state} {ppid} {times} {start} {} 1 {}\n", zeros(16), zeros(4));
        for at in [format!("{pid}"), format!("{pid}/task/{tid}")] {
            self.write(&format!("{at}/stat"), &stat);
        }
        let at = format!("{pid}/task/{tid}");
        self.write(&format!("{at}/schedstat"), &format!("{ran} {waited} {}\n", waited / 10));
        let switches = format!("voluntary_ctxt_switches:\t{ran}\nnonvoluntary_ctxt_switches:\t2\n");
        self.write(&format!("{at}/status"), &format!("Name:\ttask\n{switches}"));
        self.write(&format!("{at}/cgroup"), "0::/\n");
    }

    fn removed(&self, pid: u32) {
        fs::remove_dir_all(self.0.join("proc").join(pid.to_string())).unwrap();
    }

    fn source(&self, pids: &[u32]) -> CoarseSource {
        let mut files = ProcFiles::open(&self.0.join("proc")).unwrap();
        let selection = Selection { pids: pids.to_vec(), ..Selection::default() };
        let follow = Follow::new(&selection, 50, &mut files);
        CoarseSource {
            files,
            cgroups: None,
            follow,
            nodes: BTreeMap::new(),
            ticks: Ticks { length_ns: 10_000_000, ahead_ns: 0 },
            known: HashMap::new(),
            active: Vec::new(),
            no_waits: Arc::default(),
            accounts: true,
            number: 0,
            read_ns: None,
            counts_forks: pids.is_empty(),
            forks: Forks::default(),
            losses: Losses::default(),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const OLD: (char, u32, u64) = ('S', 1, 7);

fn sample(source: &mut CoarseSource) -> Sample {
    let mono_ns = monotonic_ns();
    Sample {
        mono_ns,
        mode: cgscope_model::Mode::Coarse,
        tasks: source.read(&mut Changes::default()).unwrap().tasks,
        ..Sample::default()
    }
}

fn tids(sample: &Sample) -> Vec<u32> {
    sample.tasks.iter().map(|task| task.tid).collect()
}

#[test]
fn run_and_wait_time_are_the_growth_of_a_threads_files() {
    let host = Host::new();
    host.thread(5, 5, 1_000, 200, OLD);
    host.thread(5, 6, 0, 0, OLD);
    let mut source = host.source(&[]);
    let a = sample(&mut source);
    assert_eq!(tids(&a), [5, 6]);
    host.thread(5, 5, 1_700, 250, OLD);
    let whole = Interval::between(&a, &sample(&mut source)).total();
    assert_eq!((whole.wait.count, whole.wait.total_ns, whole.totals.on_cpu_ns), (5, 50, 700));
    assert_eq!((whole.totals.voluntary, whole.threads, whole.processes), (700, 2, 1));
    assert_eq!(whole.wait.by_cause, ByCause::only(Cause::Unattributed, 50));
    assert_eq!(source.losses, Losses::default());
}

#[test]
fn cpu_time_is_split_to_the_nanosecond_and_never_falls() {
    let host = Host::new();
    host.thread(5, 5, 400_000_007, 200, OLD);
    let mut source = host.source(&[]);
    let a = sample(&mut source);
    let cpu = |sample: &Sample| sample.tasks[0].accounts.as_ref().unwrap().cpu;
    let CpuTimes { user_ns, system_ns, guest_ns } = cpu(&a);
    assert_eq!((user_ns + system_ns, system_ns, guest_ns), (400_000_007, 100_000_001, 0));
    host.thread(5, 5, 800_000_009, 200, OLD);
    let b = sample(&mut source);
    let between = Interval::between(&a, &b).tasks[0].accounts.clone().unwrap();
    assert_eq!(between.cpu.user_ns + between.cpu.system_ns, 400_000_002);
    assert_eq!(
        (between.blocked, between.exited_threads),
        (None, ExitedThreads::default()),
        "/proc does not show it"
    );
    // The thread ran for less than one tick, so its ticks are 0.
    host.thread(6, 6, 3_000, 200, OLD);
    let c = sample(&mut source);
    assert_eq!(c.tasks[1].accounts.as_ref().unwrap().cpu.user_ns, 3_000);
    source.accounts = false;
    host.thread(5, 5, 800_000_010, 200, OLD);
    assert_eq!(sample(&mut source).tasks[0].accounts, None, "not requested");
}

#[test]
fn the_state_of_a_thread_is_re_read_after_it_has_run() {
    let host = Host::new();
    host.thread(5, 5, 1_000, 200, OLD);
    let mut source = host.source(&[]);
    let state = |source: &mut CoarseSource| sample(source).tasks[0].state;
    assert_eq!(state(&mut source), Some(TaskState::Sleeping));
    // The task woke up and waits for a CPU. Its `schedstat` has not changed, so the source does not detect the wait.
    host.thread(5, 5, 1_000, 200, ('R', 1, 7));
    assert_eq!(state(&mut source), Some(TaskState::Sleeping));
    host.thread(5, 5, 1_700, 250, ('D', 1, 7));
    assert_eq!(state(&mut source), Some(TaskState::DiskSleep));
}

#[test]
fn new_tasks_count_from_their_start_and_short_lived_tasks_as_unseen() {
    let host = Host::new();
    host.thread(5, 5, 1_000, 200, OLD);
    let mut source = host.source(&[]);
    let a = sample(&mut source);
    // The current time in ticks. Ticks are rounded down by up to 10 ms, so the start of the task may seem to be before the last
    // reading.
    let now = monotonic_ns() / 10_000_000;
    host.thread(9, 9, 300, 40, ('R', 5, now));
    host.removed(5);
    host.forks(104);
    let b = sample(&mut source);
    let interval = Interval::between(&a, &b);
    assert_eq!(interval.tasks.iter().map(|task| task.reading.tid).collect::<Vec<_>>(), [9]);
    assert_eq!(interval.total().wait.total_ns, 40);
    // Four tasks started, and one of them still exists.
    assert_eq!((source.losses.get(Loss::TaskUnseen), source.losses.get(Loss::TaskEndUnseen)), (3, 1));

    // Another task has the same id.
    host.thread(9, 9, 100, 10, ('R', 5, now + 1));
    host.forks(105);
    let c = sample(&mut source);
    assert_ne!(b.tasks[0].serial, c.tasks[0].serial);
    assert_eq!((source.losses.get(Loss::TaskUnseen), source.losses.get(Loss::TaskEndUnseen)), (3, 2));
}

#[test]
fn an_exited_task_is_shown_once_more_with_all_its_time() {
    let host = Host::new();
    host.thread(5, 5, 1_000, 200, OLD);
    let mut source = host.source(&[]);
    let a = sample(&mut source);
    host.thread(5, 5, 1_500, 260, ('Z', 1, 7));
    let b = sample(&mut source);
    assert_eq!(Interval::between(&a, &b).total().wait.total_ns, 60);
    assert_eq!(tids(&sample(&mut source)), [] as [u32; 0]);
    host.removed(5);
    sample(&mut source);
    assert_eq!(source.losses, Losses::default());
}

#[test]
fn a_process_is_followed_with_its_later_children() {
    let host = Host::new();
    host.thread(5, 5, 1_000, 200, OLD);
    host.thread(6, 6, 1, 2, ('S', 5, 49));
    host.thread(8, 8, 1, 2, OLD);
    let mut source = host.source(&[5]);
    assert_eq!(tids(&sample(&mut source)), [5], "an earlier child is not followed");
    host.thread(4, 4, 1, 2, ('S', 7, 60));
    host.thread(7, 7, 1, 2, ('S', 5, 60));
    host.forks(102);
    assert_eq!(tids(&sample(&mut source)), [4, 5, 7]);
    // The parent of the task exits, but the source still follows the task.
    host.removed(7);
    host.thread(4, 4, 9, 20, ('S', 1, 60));
    host.forks(103);
    assert_eq!(tids(&sample(&mut source)), [4, 5]);
    // Another process has the same id.
    host.thread(4, 4, 1, 2, ('S', 1, 90));
    host.forks(104);
    assert_eq!(tids(&sample(&mut source)), [5]);
}

#[test]
fn invalid_files_give_no_tasks() {
    let host = Host::new();
    host.thread(5, 5, 1_000, 200, OLD);
    host.write("5/task/5/schedstat", "nonsense");
    host.write("12x/stat", "");
    fs::create_dir_all(host.0.join("proc/77")).unwrap();
    assert_eq!(tids(&sample(&mut host.source(&[]))), [] as [u32; 0]);
    assert!(ProcFiles::open(Path::new("/nowhere")).is_err());
}

#[test]
fn tasks_seen_before_their_fork_is_counted_are_not_counted_twice() {
    let mut forks = Forks::default();
    assert_eq!(forks.unseen(Some(100)), 0);
    // Two of the three new tasks started during the reading.
    forks.new = 3;
    assert_eq!(forks.unseen(Some(101)), 0);
    assert_eq!(forks.unseen(Some(103)), 0);
    forks.new = 1;
    assert_eq!(forks.unseen(Some(109)), 5);
    assert_eq!(forks.unseen(None), 0);
    assert_eq!(forks.unseen(Some(200)), 0, "the start of counting is unknown");
}
