//! Task states, compared with the kernel's state letters.

use std::{
    fs, thread,
    time::{Duration, Instant},
};

use cgscope_collect::Collector;
use cgscope_model::{Sample, TaskState};

use crate::{
    bench::{follow, follow_coarsely, json_lines, patience, run, stderr},
    files::Dir,
    load::{Cgroup, Load},
};

/// Returns the state letter of a thread (field 3 of `stat`), and the text of `schedstat`, which changes when the thread runs.
fn kernel_says(tgid: u32, tid: u32) -> Option<(char, String)> {
    let read = |file: &str| fs::read_to_string(format!("/proc/{tgid}/task/{tid}/{file}")).ok();
    let schedstat = read("schedstat")?;
    let letter = read("stat")?.rsplit_once(") ")?.1.chars().next()?;
    Some((letter, schedstat))
}

fn wait_for(pid: u32, letter: char) {
    let end = Instant::now() + patience(5_000);
    while kernel_says(pid, pid).is_none_or(|(said, _)| said != letter) {
        assert!(Instant::now() < end, "{pid} is not in {letter}: {:?}", kernel_says(pid, pid));
        thread::sleep(Duration::from_millis(10));
    }
}

fn signal(pid: u32, signal: i32) {
    // SAFETY: the child is ours and has not been reaped.
    assert_eq!(unsafe { libc::kill(pid as i32, signal) }, 0);
}

/// Attaches to the process and stops it, as a debugger does. The process continues when the calling thread exits.
fn trace(pid: u32) {
    let (pid, mut status) = (pid as i32, 0);
    // SAFETY: the child is ours, and `waitpid` writes the whole number. This `waitpid` consumes the report of the stop, so that
    // the test does not mistake the stop for the exit of the process.
    let is_stopped = unsafe {
        libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) == 0 && libc::waitpid(pid, &mut status, 0) == pid
    };
    assert!(is_stopped && libc::WIFSTOPPED(status), "{pid}: {status:#x}");
}

fn state(sample: &Sample, pid: u32) -> Option<TaskState> {
    sample
        .tasks
        .iter()
        .find(|task| task.tid == pid)
        .unwrap_or_else(|| panic!("the sample has no process {pid}"))
        .state
}

/// One process for each state that a program can bring about, with the expected state letter.
struct Scene {
    loads: Vec<(Load, char)>,
}

impl Scene {
    fn new() -> Self {
        let sleeper = || Load::workload(&["sleep", "1", "60"], None).0;
        let loads = vec![
            (Load::busy_loop(None), 'R'),
            (sleeper(), 'S'),
            (Load::workload(&["vfork", "60"], None).0, 'D'),
            (sleeper(), 'T'),
            (sleeper(), 't'),
        ];
        signal(loads[3].0.pid(), libc::SIGSTOP);
        trace(loads[4].0.pid());
        for (load, letter) in &loads {
            wait_for(load.pid(), *letter);
        }
        Self { loads }
    }

    fn pids(&self) -> Vec<u32> {
        self.loads.iter().map(|(load, _)| load.pid()).collect()
    }

    fn assert_reported(&self, sample: &Sample) {
        for (load, letter) in &self.loads {
            assert_eq!(state(sample, load.pid()).map(TaskState::letter), Some(*letter), "{:?}", sample.mode);
        }
    }
}

/// Checks the states in three samples: the first sample, a later sample, and a sample after two processes have changed their
/// state.
fn assert_follows(follow: fn(&[u32]) -> Collector) {
    let scene = Scene::new();
    let mut collector = follow(&scene.pids());
    scene.assert_reported(&collector.sample().expect("a sample"));
    thread::sleep(Duration::from_millis(300));
    scene.assert_reported(&collector.sample().expect("a sample"));
    let (running, stopped) = (scene.loads[0].0.pid(), scene.loads[3].0.pid());
    signal(stopped, libc::SIGCONT);
    signal(running, libc::SIGSTOP);
    wait_for(stopped, 'S');
    wait_for(running, 'T');
    let sample = collector.sample().expect("a sample");
    let states = [running, stopped].map(|pid| state(&sample, pid));
    assert_eq!(states, [Some(TaskState::Stopped), Some(TaskState::Sleeping)], "{:?}", sample.mode);
}

#[test]
fn running_sleeping_vfork_waiting_stopped_and_traced_tasks_have_different_states() {
    assert_follows(follow);
}

#[test]
fn the_coarse_mode_has_the_same_states() {
    assert_follows(follow_coarsely);
}

/// Compares the state of each task, including kernel threads, with the kernel's letter. Leaves out tasks that run while the
/// sample is taken.
#[test]
fn the_state_of_every_task_that_does_not_run_is_the_kernels_letter() {
    let mut collector = follow(&[]);
    // Use the threads in the first sample.
    let threads: Vec<_> =
        collector.sample().expect("a sample").tasks.iter().map(|task| (task.tgid, task.tid)).collect();
    let said = || threads.iter().map(|(tgid, tid)| kernel_says(*tgid, *tid)).collect::<Vec<_>>();
    let before = said();
    let sample = collector.sample().expect("a sample");
    let after = said();
    let mut compared = String::new();
    for ((tgid, tid), (before, after)) in threads.iter().zip(before.into_iter().zip(after)) {
        let Some((letter, _)) = before.filter(|before| Some(before) == after.as_ref()) else { continue };
        let task = sample.tasks.iter().find(|task| task.tid == *tid);
        // Skip woken tasks, because the wakeup can be between the sample and the reading of the kernel's files.
        let Some(task) = task.filter(|task| task.pending.is_none() && !task.on_cpu) else { continue };
        assert_eq!(task.state.map(TaskState::letter), Some(letter), "{tgid} {tid} {}", task.comm);
        compared.push(letter);
    }
    for letter in ['S', 'I'] {
        assert!(compared.contains(letter), "no task was in state {letter}: {compared}");
    }
    assert!(
        compared.len() * 2 > threads.len(),
        "only {} of {} threads did not run",
        compared.len(),
        threads.len()
    );
}

/// A throttled task counts as runnable, because only the quota keeps the task off its CPU.
#[test]
fn a_task_out_of_quota_is_running_all_the_time() {
    let limited = Cgroup::new("states");
    limited.limit(10_000, 100_000);
    let load = Load::busy_loop(Some(&limited));
    let mut collector = follow(&[load.pid()]);
    let mut was_off_its_cpu = 0;
    for _ in 0..20 {
        let sample = collector.sample().expect("a sample");
        assert_eq!(state(&sample, load.pid()), Some(TaskState::Running));
        was_off_its_cpu += usize::from(sample.tasks.iter().any(|task| !task.on_cpu));
        thread::sleep(Duration::from_millis(37));
    }
    assert!(was_off_its_cpu > 5, "{was_off_its_cpu} of 20");
}

#[test]
fn a_recording_keeps_what_tasks_did() {
    let scene = Scene::new();
    let dir = Dir::new("states");
    let file = dir.file("a.rec");
    let pids: Vec<String> = scene.pids().iter().map(u32::to_string).collect();
    let output = run(&["record", "-o", &file, "-i", "0.5", "-d", "1.5", "-p", &pids.join(",")]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let intervals = json_lines(&run(&["report", "--json", "--all", &file]));
    assert!(!intervals.is_empty());
    for interval in &intervals {
        for (load, letter) in &scene.loads {
            let tasks = interval["tasks"].as_array().expect("tasks");
            let task = tasks.iter().find(|task| task["tid"] == load.pid()).expect("the task of the load");
            assert_eq!(task["state"], letter.to_string());
        }
    }
}
