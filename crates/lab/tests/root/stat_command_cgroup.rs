//! The cgroup that `cgscope stat` creates for a command. It counts all descendants of the command, and cgscope removes it at the
//! end.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use cgscope_collect::facts::CgroupMounts;
use serde_json::Value;

use crate::{
    bench::{cgscope, run, stderr},
    files::Dir,
    stat_command::{BUSY, MS, Running, is_alive, kill, leftovers, ns, stat, unified, wait_until},
};

/// Moves the test into another cgroup if the test's cgroup enables controllers for its children. Otherwise, commands would get no
/// cgroup of their own, because only a root cgroup can have both processes and enabled controllers. Drop moves the test back.
pub(crate) struct Home(Option<(PathBuf, PathBuf)>);

impl Home {
    pub(crate) fn new() -> Self {
        let Some(ours) = unified() else { return Self(None) };
        let passed_on =
            fs::read_to_string(ours.join("cgroup.subtree_control")).expect("a file of every cgroup");
        if !passed_on.split_whitespace().any(|one| matches!(one, "cpu" | "io")) {
            return Self(None);
        }
        let home = ours.join(format!("cgscope-test-{}-home", std::process::id()));
        fs::create_dir(&home).expect("a cgroup");
        fs::write(home.join("cgroup.procs"), "0").expect("a cgroup of ours");
        Self(Some((ours, home)))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let Some((before, home)) = &self.0 else { return };
        for pid in fs::read_to_string(home.join("cgroup.procs")).unwrap_or_default().lines() {
            let _ = fs::write(before.join("cgroup.procs"), pid);
        }
        let _ = fs::remove_dir(home);
    }
}

#[test]
#[ignore = "all CPUs: may move all tests to another cgroup"]
fn children_and_grandchildren_are_counted() {
    let _home = Home::new();
    let script = format!(
        "{BUSY} sh -c '{BUSY} sh -c \"{} busy 400000\" & busy 300000; wait' & busy 200000; wait",
        BUSY.replace('$', "\\$")
    );
    let (summary, output) = stat(&script);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let waited_for = ns(&summary, "/waited_for/user_ns") + ns(&summary, "/waited_for/system_ns");
    let ran = ns(&summary, "/threads_time/on_cpu_ns");
    assert!(waited_for > 200 * MS, "{summary}");
    let about = |a: u64, b: u64| a.abs_diff(b) <= 10 * MS + b / 100;
    assert!(about(ran, waited_for), "{ran} ns ran, {waited_for} ns were waited for");
    if summary["cpu"]["of"] == "own_cgroup" {
        let all = ns(&summary, "/cpu/usage_ns");
        assert!(about(all, waited_for) && about(all, ran), "{all} {waited_for} {ran}");
    }
    assert_eq!(summary["outlived"], serde_json::json!([]));
    assert!(ns(&summary, "/peak_processes") >= 3, "{summary}");
}

#[test]
#[ignore = "all CPUs: may move all tests to another cgroup"]
fn processes_that_outlive_the_command_are_counted_named_and_not_killed() {
    let _home = Home::new();
    let script = format!(
        "(setsid sh -c '{BUSY} busy 300000; echo > $DONE; exec sleep 30' > /dev/null 2>&1 &); while ! [ -e $DONE ]; do sleep 0.05; done; sleep 0.1"
    );
    let dir = Dir::new("daemon");
    let (summary, output) = stat(&format!("DONE={}; export DONE; {script}", dir.file("done")));
    let outlived = summary["outlived"].as_array().expect("a list");
    let daemon = outlived.iter().find(|one| one["comm"] == "sleep").and_then(|one| one["pid"].as_u64());
    let daemon = daemon.unwrap_or_else(|| panic!("no daemon in {summary}"));
    let is_alive_after = is_alive(daemon);
    let cgroup = fs::read_to_string(format!("/proc/{daemon}/cgroup"));
    kill(daemon, libc::SIGKILL);
    assert!(is_alive_after, "{}", stderr(&output));
    assert_eq!(outlived.len(), 1, "{summary}");
    let waited_for = ns(&summary, "/waited_for/user_ns") + ns(&summary, "/waited_for/system_ns");
    let ran = ns(&summary, "/threads_time/on_cpu_ns");
    assert!(ran > waited_for + 50 * MS, "its time is counted: {ran}, {waited_for}");
    let all = ns(&summary, "/cpu/usage_ns");
    assert!(all.abs_diff(ran) <= 10 * MS + ran / 100, "{all} {ran}");
    // A daemon that CMD has started is now in the cgroup in which it would be without cgscope, and cgscope has removed the cgroup
    // of CMD.
    assert!(!cgroup.expect("its cgroups").contains("cgscope-stat"));
    let own = summary["own_cgroup"].as_str().expect("a cgroup of its own");
    let mount = CgroupMounts::read(Path::new("/")).unified.expect("a v2 hierarchy");
    assert!(!mount.join(own.trim_start_matches('/')).exists());
}

#[test]
#[ignore = "all CPUs: may move all tests to another cgroup"]
fn the_next_cgscope_removes_cgroups_that_a_killed_one_left() {
    let _home = Home::new();
    let mut running = Running::start("echo ready; echo $$; exec sleep 60");
    let pid: u64 = running.line().parse().expect("a pid");
    let left = leftovers(running.child.id());
    assert_eq!(left.len(), 1);
    running.child.kill().expect("a child of ours");
    running.child.wait().expect("a child of ours");
    assert!(is_alive(pid), "the command still runs");
    run(&["stat", "--", "true"]);
    assert!(left[0].exists(), "the cgroup is not empty, so it still exists");
    kill(pid, libc::SIGKILL);
    wait_until("the command exits", || !is_alive(pid));
    run(&["stat", "--", "true"]);
    assert!(!left[0].exists());
}

#[test]
#[ignore = "all CPUs: may move all tests to another cgroup"]
fn without_its_own_cgroup_a_command_is_followed_by_its_forks_and_the_summary_says_so() {
    let _home = Home::new();
    // In a new mount namespace, mount the cgroup hierarchy read-only, as on hosts with a read-only /sys.
    let dir = Dir::new("readonly");
    let file = dir.file("summary");
    let Some(parent) = unified() else { return assert_eq!(stat("true").0["own_cgroup"], Value::Null) };
    let mount = CgroupMounts::read(Path::new("/")).unified.expect("found above");
    assert!(parent.starts_with(&mount));
    let script = format!(
        "mount --make-rprivate / && mount -o remount,bind,ro {} && exec {} stat --json -o {file} -- sh -c '{BUSY} busy 200000; exit 6'",
        mount.display(),
        cgscope().get_program().to_string_lossy(),
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().expect("unshare runs");
    assert_eq!(output.status.code(), Some(6), "{}", stderr(&output));
    let summary: Value =
        serde_json::from_str(&fs::read_to_string(&file).expect("a summary")).expect("an object");
    assert_eq!((&summary["own_cgroup"], &summary["cpu"]["of"]), (&Value::Null, &Value::from("waited_for")));
    let remark = summary["remarks"][0].as_str().expect("a remark");
    assert!(
        remark.contains("Read-only file system") && remark.contains("found only by their forks"),
        "{remark}"
    );
    assert!(ns(&summary, "/threads_time/on_cpu_ns") > 50 * MS, "{summary}");
}
