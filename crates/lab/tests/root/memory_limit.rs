//! cgscope in a cgroup with a memory limit.

use std::{
    fs, io,
    os::unix::process::{CommandExt, ExitStatusExt},
    path::{Path, PathBuf},
    process::Stdio,
    thread,
    time::Duration,
};

use cgscope_collect::facts::CgroupMounts;

use crate::{
    bench::{all_tasks, cgscope, json_lines, stderr},
    load::Load,
};

struct Limited(PathBuf);

impl Limited {
    fn new(bytes: u64) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/memory");
        let is_v1 = v1.join("memory.limit_in_bytes").exists();
        let mount = if is_v1 {
            v1.to_owned()
        } else {
            let mount = CgroupMounts::read(Path::new("/")).unified.expect("a hierarchy with memory");
            let _ = fs::write(mount.join("cgroup.subtree_control"), "+memory");
            mount
        };
        let limited = Self(mount.join(format!("cgscope-test-{}-memory", std::process::id())));
        fs::create_dir(&limited.0).expect("a cgroup");
        let file = if is_v1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(limited.0.join(file), bytes.to_string()).expect("a limit");
        limited
    }
}

impl Drop for Limited {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Starts cgscope with a memory limit, and then starts many threads. The figures of all these threads would need more memory than
/// the limit.
fn assert_is_not_killed(limit: u64, threads: usize, in_a_namespace: bool) {
    let limited = Limited::new(limit);
    let procs = limited.0.join("cgroup.procs");
    let mut command = cgscope();
    command.args(["top", "-b", "-n", "6", "-d", "1", "--json"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let enter = move || {
        fs::write(&procs, "0")?;
        // SAFETY: the call takes no pointers.
        let is_inside = !in_a_namespace || unsafe { libc::unshare(libc::CLONE_NEWCGROUP) } == 0;
        if is_inside { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    // SAFETY: the closure only writes to an existing file and calls `unshare`, in a child with one thread.
    let child = unsafe { command.pre_exec(enter) }.spawn().expect("the command starts");
    // Start the threads after cgscope. The figures of a thread that started before cgscope need little memory until the thread
    // runs.
    thread::sleep(Duration::from_secs(1));
    let half = (threads / 2).to_string();
    let _loads = [(); 2].map(|()| Load::workload(&["sleep", &half, "60"], None));
    let output = child.wait_with_output().expect("its output");
    assert_eq!(output.status.signal(), None, "cgscope was killed: {}", stderr(&output));
    let intervals = json_lines(&output);
    let [.., before, last] = &intervals[..] else { panic!("two intervals: {intervals:?}") };
    // A thread that is followed from the last reading on is not in the last interval. The reading before has counted it as lost.
    let lost = before["losses"]["no_room_for_task"].as_u64().unwrap_or(0) as usize;
    let followed = all_tasks(last);
    assert!(followed > 1_000 && lost > 1_000, "{followed} followed, {lost} not");
    assert!(
        followed + lost >= threads,
        "{followed} threads followed, {lost} counted as lost: the others are missing"
    );
    assert_eq!(output.status.code(), Some(1), "something was lost");
}

#[test]
#[ignore = "all CPUs: starts thousands of threads"]
fn a_cgroup_namespace_does_not_hide_the_memory_limit() {
    assert_is_not_killed(56 << 20, 24_000, true);
}

mod long {
    #[test]
    #[ignore = "all CPUs: starts thousands of threads"]
    fn a_flood_of_threads_does_not_make_the_kernel_kill_cgscope_at_its_memory_limit() {
        super::assert_is_not_killed(64 << 20, 30_000, false);
    }
}
