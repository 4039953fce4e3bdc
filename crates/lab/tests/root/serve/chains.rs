//! For whom tasks sleep, through the daemon.

use super::{ALICE, Daemon, VIEWERS};
use crate::{
    bad_input::assert_refused,
    bench::{is_emulated, json_lines},
    load::{Cgroup, Load},
};

#[test]
fn a_viewer_sees_for_whom_its_process_sleeps_if_the_daemon_counts_it() {
    let [sleeper, waker] = ["sleeper", "waker"].map(Cgroup::new);
    let directories = [&sleeper, &waker].map(|cgroup| cgroup.path.to_str().expect("a path of ours"));
    let words = ["wakes", "pipe", "60000", "1000", "60", directories[0], directories[1]];
    let (load, _out) = Load::workload(&words, None);
    load.signal(libc::SIGUSR1);
    let pid = load.pids()[1].to_string();
    let hist = |daemon: &Daemon, more: &[&str]| {
        let args = [&["hist", "--json", "--pid", &pid][..], more, &["1", "2"]].concat();
        daemon.as_user(ALICE, &[VIEWERS], &args)
    };

    let daemon = Daemon::with("[collect]\nchains = true");
    for interval in json_lines(&hist(&daemon, &["--chains"])) {
        let rows = interval["waits_for"].as_array().expect("chains");
        let is_for_waker = |row: &&serde_json::Value| {
            row["waker_cgroup"].as_str().is_some_and(|path| path.ends_with(&waker.name))
                && row["kind"] == "pipe"
        };
        let row = rows.iter().find(is_for_waker).unwrap_or_else(|| panic!("{rows:#?}"));
        let slept_ns = row["slept_ns"].as_u64().expect("a time");
        let length_ns = interval["duration_ns"].as_u64().expect("a time");
        let least_ns = if is_emulated() { 0 } else { length_ns / 2 };
        assert!((least_ns + 1..=length_ns + length_ns / 20).contains(&slept_ns), "{interval:#}");
    }
    drop(daemon);

    let daemon = Daemon::start();
    assert_refused(&hist(&daemon, &["--chains"]), &["does not count for whom tasks sleep", "[collect]"]);
    for interval in json_lines(&hist(&daemon, &[])) {
        assert!(interval["waits_for"].is_null(), "{interval:#}");
    }
}
