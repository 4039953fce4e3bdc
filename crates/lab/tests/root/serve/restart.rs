//! A daemon that stops, restarts and reloads.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    os::unix::fs::PermissionsExt,
    process::Command,
};

use super::{ALICE, Daemon, VIEWERS, as_user};
use crate::{
    background::Background,
    bench::{cgscope, patience},
    files::Dir,
    load::Load,
    recording::reason,
};

fn bpf_objects() -> BTreeSet<String> {
    let list = |kind: &str| {
        let output = Command::new("bpftool").args(["-j", kind, "list"]).output().expect("bpftool");
        let all: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let ids = all.as_array().cloned().unwrap_or_default();
        ids.iter().map(|object| format!("{kind} {}", object["id"])).collect::<Vec<_>>()
    };
    ["prog", "map", "link"].into_iter().flat_map(list).collect()
}

/// Waits until the kernel has freed all new BPF objects. The kernel frees an unreferenced object only after a grace period.
fn assert_nothing_new(before: &BTreeSet<String>) {
    let end = std::time::Instant::now() + patience(10_000);
    loop {
        let left: Vec<_> = bpf_objects().difference(before).cloned().collect();
        if left.is_empty() {
            return;
        }
        assert!(std::time::Instant::now() < end, "{left:?}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
}

#[test]
#[ignore = "all CPUs: counts BPF objects of the whole kernel"]
fn a_killed_daemon_leaves_nothing_in_the_kernel_and_its_viewers_wait_for_a_new_one() {
    let before = bpf_objects();
    let mut daemon = Daemon::start();
    assert!(bpf_objects().len() > before.len());
    let load = Load::busy_loop(None);
    let pid = load.pid().to_string();
    let mut viewer =
        Background::start(cgscope().args(["hist", "--connect", &daemon.socket(), "0.3", "-p", &pid]));
    std::thread::sleep(patience(1_500));

    daemon.kill();
    viewer.wait_for("has ended; cgscope tries to reconnect");
    assert_nothing_new(&before);
    assert!(std::path::Path::new(&daemon.socket()).exists(), "a killed daemon leaves its socket");
    daemon.begin();
    viewer.wait_for("the daemon is back: all figures start from 0");
    std::thread::sleep(patience(1_500));
    viewer.signal(libc::SIGINT);
    let (code, words) = viewer.wait();
    assert_eq!(code, Some(1), "incomplete: {words}");

    let (code, words) = daemon.end();
    assert_eq!(code, Some(0), "{words}");
    assert!(!std::path::Path::new(&daemon.socket()).exists());
    assert_nothing_new(&before);
}

#[test]
fn a_viewer_ends_with_a_message_if_its_process_exited_while_the_daemon_was_down() {
    let mut daemon = Daemon::start();
    let mut load = Load::busy_loop(None);
    let pid = load.pid().to_string();
    let mut viewer =
        Background::start(cgscope().args(["hist", "--connect", &daemon.socket(), "0.3", "-p", &pid]));
    std::thread::sleep(patience(1_000));
    daemon.kill();
    viewer.wait_for("has ended; cgscope tries to reconnect");
    load.kill();
    daemon.begin();
    viewer.wait_for("the daemon refused: ");
    let (code, words) = viewer.wait();
    assert_eq!(code, Some(1), "{words}");
}

#[test]
fn a_recording_ends_when_the_daemon_is_restarted_and_keeps_its_samples() {
    let mut daemon = Daemon::start();
    let dir = Dir::new("serve-record");
    let file = dir.file("a.rec");
    let mut recording = Background::start(cgscope().args([
        "record",
        "-o",
        &file,
        "-i",
        "0.2",
        "--connect",
        &daemon.socket(),
    ]));
    std::thread::sleep(patience(1_500));
    daemon.kill();
    recording.wait_for("has ended");
    daemon.begin();
    recording.wait_for("the daemon was restarted");
    assert_eq!(recording.wait().0, Some(1));
    let (samples, ending) = crate::recording::read(std::path::Path::new(&file));
    assert!(samples.len() >= 4, "{}", samples.len());
    assert_eq!(reason(&ending), Some(&cgscope_record::Reason::Failed));
}

#[test]
fn a_second_daemon_is_refused_and_a_file_that_is_not_a_socket_stays() {
    let daemon = Daemon::start();
    let output =
        cgscope().args(["serve", "--config", &daemon.config()]).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    let says = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(says.contains("another daemon serves"), "{says}");

    let dir = Dir::new("serve-file");
    std::fs::write(dir.file("kept"), "precious").expect("a file of ours");
    let config = dir.file("c.toml");
    std::fs::write(&config, format!("[socket]\npath = \"{}\"\ngroup = 0\n", dir.file("kept")))
        .expect("a file");
    let output = cgscope().args(["serve", "--config", &config]).output().expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(dir.file("kept")).expect("the file still exists"), "precious");
}

#[test]
fn a_configuration_is_checked_and_reloaded() {
    let mut daemon = Daemon::start();
    let check = |daemon: &Daemon| {
        let output = cgscope()
            .args(["serve", "--check", "--config", &daemon.config()])
            .output()
            .expect("the command starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    assert_eq!(check(&daemon).0, Some(0));
    daemon.configure("clients = 0");
    let (code, words) = check(&daemon);
    assert_eq!(code, Some(2));
    assert!(words.contains("`[socket] clients` is 0"), "{words}");
    daemon.process().signal(libc::SIGHUP);
    daemon.process().wait_for("the previous configuration stays in use");

    daemon.configure("shortest_interval = \"500ms\"");
    daemon.process().signal(libc::SIGHUP);
    daemon.process().wait_for("was read again");
    let output = daemon.as_user(0, &[0], &["hist", "0.1", "1"]);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(words.contains("the interval is 500 ms, the shortest"), "{words}");
}

fn status(daemon: &Daemon) -> String {
    let address = daemon.metrics().trim_start_matches("http://").trim_end_matches("/metrics");
    let mut stream = TcpStream::connect(address).expect("a listening server");
    stream
        .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        .expect("the server reads requests");
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line).expect("an answer");
    line
}

#[test]
fn after_a_reload_with_users_the_metrics_need_a_password() {
    let mut daemon = Daemon::exporting("");
    assert!(status(&daemon).contains(" 200 "));
    let users = daemon.config() + ".users";
    // `htpasswd -nbB -C 5 prometheus secret`
    let line = "prometheus:$2y$05$lLuTxFE7iYFzL8rEtGucWO8vRpMYD8VBC7IWogqswUzsfRhwYzk4O\n";
    std::fs::write(&users, line).expect("a file of ours");
    daemon.configure_exporting(&format!("users = \"{users}\"\n[containers]\nruntime = \"\""));
    daemon.process().signal(libc::SIGHUP);
    let reported = daemon.process().wait_for("was read again");
    assert!(reported.contains("`runtime` in [containers]") && !reported.contains("[http]"), "{reported}");
    assert!(status(&daemon).contains(" 401 "), "{}", status(&daemon));
}

#[test]
fn a_user_who_is_no_viewer_any_more_is_disconnected_with_a_sentence() {
    let mut daemon = Daemon::start();
    let mut hist = cgscope();
    hist.args(["hist", "--connect", &daemon.socket(), "0.3"]);
    let mut viewer = Background::start(as_user(&mut hist, ALICE, &[VIEWERS]));
    // First reload the configuration without a change.
    std::thread::sleep(patience(1_000));
    daemon.process().signal(libc::SIGHUP);
    daemon.process().wait_for("was read again");
    let config = std::fs::read_to_string(daemon.config()).expect("the file still exists");
    let without = config.replace(&format!("viewers = {VIEWERS}"), "viewers = 7");
    assert_ne!(config, without);
    std::fs::write(daemon.config(), without).expect("a file of ours");
    daemon.process().signal(libc::SIGHUP);
    daemon.process().wait_for("was read again");
    viewer.wait_for("whoever may connect sees all processes of this host");
    let (code, words) = viewer.wait();
    assert_eq!((code, words.matches("whoever may connect").count()), (Some(1), 1), "{words}");
}

#[test]
fn files_that_viewers_can_read_cause_a_warning_at_the_start_and_at_each_reload() {
    let mut daemon = Daemon::exporting("");
    let users = daemon.config() + ".users";
    let line = "prometheus:$2y$05$lLuTxFE7iYFzL8rEtGucWO8vRpMYD8VBC7IWogqswUzsfRhwYzk4O\n";
    std::fs::write(&users, line).expect("a file of ours");
    let give = |gid, mode| {
        std::os::unix::fs::chown(&users, None, Some(gid)).expect("a file of ours");
        std::fs::set_permissions(&users, std::fs::Permissions::from_mode(mode)).expect("a file of ours");
    };
    daemon.configure_exporting(&format!("users = \"{users}\""));
    let of_viewers = format!("viewers (group {VIEWERS}) can read {users}");
    let of_all = format!("every user of this host can read {users}");
    for (mode, says) in [(0o640, &of_viewers), (0o644, &of_all)] {
        give(VIEWERS, mode);
        daemon.process().signal(libc::SIGHUP);
        daemon.process().wait_for(says);
    }
    for (gid, mode, says) in [(VIEWERS, 0o640, true), (0, 0o640, false)] {
        give(gid, mode);
        daemon.end();
        daemon.begin();
        let (code, words) = daemon.end();
        assert_eq!((code, words.contains("can read")), (Some(0), says), "{words}");
        daemon.begin();
    }
}
