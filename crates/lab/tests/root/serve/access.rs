//! Access rights: which users can connect to the daemon.

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    os::unix::{fs::MetadataExt, net::UnixStream},
    process::Command,
    time::Duration,
};

use cgscope_record::{Message, open};
use cgscope_serve::{
    client::{ConnectError, Connection},
    protocol::{Refusal, Request},
};
use serde_json::Value;

use super::{ALICE, BOB, Daemon, VIEWERS, as_user};
use crate::{
    bench::{assert_measured, cgscope, json_lines, stderr, stdout},
    files::Dir,
    load::{Cgroup, Load},
};

fn busy_loop_of(uid: u32) -> Load {
    let ids = format!("--reuid={uid}");
    Load::start("setpriv", &[&ids, "--clear-groups", "sh", "-c", "while :; do :; done"], None)
}

fn pids_of(intervals: &[Value]) -> BTreeSet<u64> {
    let tasks = intervals.iter().flat_map(|interval| interval["tasks"].as_array().expect("tasks"));
    tasks.map(|task| task["tgid"].as_u64().expect("an id")).collect()
}

#[test]
fn whoever_may_connect_sees_everything_in_every_command() {
    let daemon = Daemon::start();
    let loads = [busy_loop_of(ALICE), busy_loop_of(BOB)];
    let all = [u64::from(loads[0].pid()), u64::from(loads[1].pid()), u64::from(std::process::id())];
    for (uid, groups) in [(0, &[0][..]), (ALICE, &[VIEWERS])] {
        let viewer = |args: &[&str]| daemon.as_user(uid, groups, args);
        for args in [
            &["hist", "--json", "0.3", "2"][..],
            &["top", "-b", "--json", "-n", "2", "-d", "0.3"],
            &["stat", "--json", "-t", "0.3", "2"],
        ] {
            let output = viewer(args);
            assert_measured(&output);
            let pids = pids_of(&json_lines(&output));
            assert!(all.iter().all(|pid| pids.contains(pid)), "{args:?} of {uid}: {pids:?}");
        }
        let dir = Dir::new("viewer");
        std::os::unix::fs::chown(dir.path(), Some(uid), None).expect("a directory of ours");
        let file = dir.file("a.rec");
        assert_measured(&viewer(&["record", "-o", &file, "-i", "0.3", "-d", "1"]));
        let samples: Vec<_> =
            open(&file).expect("a recording").map(|sample| sample.expect("a Sample")).collect();
        let tasks = samples.iter().flat_map(|sample| &sample.tasks);
        let recorded: BTreeSet<u64> = tasks.map(|task| task.tgid.into()).collect();
        assert!(all.iter().all(|pid| recorded.contains(pid)), "{uid}: {recorded:?}");
        let output = viewer(&["hist", "--json", "-p", &all[1].to_string(), "0.3", "2"]);
        assert_eq!(pids_of(&json_lines(&output)), [all[1]].into(), "{}", stderr(&output));
    }
}

/// In older versions of cgscope, members of the group of the socket could see their own processes.
#[test]
fn members_of_the_old_group_of_the_socket_get_a_sentence_and_nothing_else() {
    const OLD: u32 = 61_102;
    let mut daemon = Daemon::with(&format!("group = {OLD}\nadmin_groups = [61103]"));
    let metadata = fs::metadata(daemon.socket()).expect("the socket");
    assert_eq!((metadata.mode() & 0o777, metadata.gid()), (0o660, OLD));
    let hist = |groups: &[u32]| daemon.as_user(ALICE, groups, &["hist", "--json", "0.3", "1"]);
    for groups in [&[OLD, VIEWERS][..], &[OLD, 61_103]] {
        assert_measured(&hist(groups));
    }
    let output = hist(&[OLD]);
    assert_eq!((output.status.code(), stdout(&output)), (Some(2), String::new()));
    let says = stderr(&output);
    assert!(says.contains("whoever may connect sees all processes of this host"), "{says}");
    assert!(says.contains(&format!("members of {VIEWERS}, 61103 (`usermod -aG`")), "{says}");
    let (_, words) = daemon.end();
    for key in ["`group` in [socket] is outdated", "`admin_groups` in [socket] is outdated"] {
        assert!(words.contains(key), "{words}");
    }
}

#[test]
fn only_the_group_of_the_socket_may_connect_and_others_measure_coarsely() {
    let daemon = Daemon::start();
    let metadata = fs::metadata(daemon.socket()).expect("the socket");
    assert_eq!((metadata.mode() & 0o777, metadata.uid(), metadata.gid()), (0o660, 0, VIEWERS));
    let output = daemon.as_user(ALICE, &[], &["hist", "0.3", "1"]);
    assert_eq!(output.status.code(), Some(2));
    let says = stderr(&output);
    assert!(says.contains(&format!("no permission to connect to {}", daemon.socket())), "{says}");
    assert!(says.contains("add you to the socket's group"), "{says}");
}

/// Sends raw request lines and returns the answer. The formats of request and answer must not change, because clients in other
/// languages depend on them.
fn raw(daemon: &Daemon, uid: u32, lines: &str) -> String {
    let code = "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\ns.sendall(sys.argv[2].encode())\n\
                s.settimeout(5)\ndata = b''\n\
                try:\n    while len(data) < 1 << 20:\n        got = s.recv(65536)\n        if not got: break\n        data += got\n\
                except TimeoutError: pass\nsys.stdout.buffer.write(data)";
    let socket = daemon.socket();
    let mut command = Command::new("python3");
    command.args(["-c", code, &socket, lines]);
    let output = as_user(&mut command, uid, &[VIEWERS]).output().expect("python3");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn requests_for_processes_that_do_not_exist_and_no_requests_are_refused() {
    let daemon = Daemon::start();
    for pids in [vec![u32::MAX], vec![std::process::id(), u32::MAX]] {
        let request = Request { pids: pids.clone(), ..Request::every(300_000_000) };
        let answer = raw(&daemon, ALICE, &String::from_utf8(request.line()).expect("text"));
        assert!(answer.contains("\"refused\":\"no_such_process\""), "{pids:?}: {answer}");
    }
    for line in ["{}\n", "GET /metrics HTTP/1.1\n\n", "{\"version\":1,\"interval_ns\":1,\"user\":0}\n"] {
        let answer = raw(&daemon, ALICE, line);
        assert!(answer.contains("\"refused\":\"bad_request\""), "{line}: {answer}");
    }
}

#[test]
fn a_request_of_another_user_than_the_one_who_connected_is_refused() {
    let daemon = Daemon::start();
    // Root opens the connection, but a child process of another user sends the request.
    let code = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX)\ns.connect(sys.argv[1])\npid = os.fork()\n\
                if pid == 0:\n    os.setresuid(61001, 61001, 61001)\n    s.sendall(b'{\"version\":1,\"interval_ns\":300000000}\\n')\n    os._exit(0)\n\
                os.waitpid(pid, 0)\ns.settimeout(5)\nsys.stdout.buffer.write(s.recv(65536))";
    let output = Command::new("python3").args(["-c", code, &daemon.socket()]).output().expect("python3");
    let answer = String::from_utf8_lossy(&output.stdout);
    assert!(answer.contains("\"refused\":\"other_user\""), "{answer}");
}

#[test]
fn the_daemon_has_no_privileges_when_it_serves() {
    let mut daemon = Daemon::start();
    let status = fs::read_to_string(format!("/proc/{}/status", daemon.pid())).expect("its status");
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let line = status.lines().find_map(|line| line.strip_prefix(&format!("{set}:"))).expect("a set");
        assert_eq!(line.trim(), "0000000000000000", "{set}");
    }
    assert!(status.contains("NoNewPrivs:\t1"));
    for thread in fs::read_dir(format!("/proc/{}/task", daemon.pid())).expect("its threads").flatten() {
        let status = fs::read_to_string(thread.path().join("status")).expect("its status");
        assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    }
}

#[test]
fn figures_through_the_daemon_equal_the_kernels_and_include_children() {
    let daemon = Daemon::start();
    let cgroup = Cgroup::new("serve-figure");
    // The quota is small enough to run out even if other programs leave little CPU time to the loop.
    cgroup.limit(10_000, 100_000);
    // Pin the loop to one CPU, because after a migration the kernel's sum would include the first part of an unfinished wait.
    let load = Load::pinned_loop(0, Some(&cgroup));
    let output = daemon.as_user(0, &[0], &["hist", "--json", "-p", &load.pid().to_string(), "1", "3"]);
    let intervals = json_lines(&output);
    assert_eq!(intervals.len(), 3, "{}", stderr(&output));
    for interval in &intervals {
        let task = &interval["tasks"][0];
        assert_eq!(task["tid"], load.pid());
        assert_eq!(task["wait"]["total_ns"], task["run_delay_ns"], "{task}");
        let length = interval["duration_ns"].as_u64().expect("a length");
        assert!((900_000_000..1_100_000_000).contains(&length), "{length}");
        assert!(task["wait"]["by_cause"]["throttled_ns"].as_u64() > Some(300_000_000), "{task}");
    }
    let unit = Cgroup::new("serve-unit.service");
    let of_unit = Load::busy_loop(Some(&unit));
    let output = daemon.as_user(0, &[0], &["hist", "--json", "--unit", &unit.name[1..], "0.5", "2"]);
    assert_eq!(pids_of(&json_lines(&output)), [u64::from(of_unit.pid())].into(), "{}", stderr(&output));
    let script = "for i in 1 2 3; do sh -c 'sleep 0.6 & exec sleep 1' ; done";
    let output = daemon.as_user(ALICE, &[VIEWERS], &["hist", "--json", "0.3", "--", "sh", "-c", script]);
    let seen: BTreeSet<String> = json_lines(&output)
        .iter()
        .flat_map(|interval| interval["tasks"].as_array().expect("tasks").clone())
        .map(|task| task["comm"].as_str().expect("a name").to_owned())
        .collect();
    assert!(seen.contains("sleep"), "{seen:?}: {}", stderr(&output));
}

#[test]
fn a_viewer_reports_reduced_and_unsupported_requests() {
    let daemon = Daemon::with("shortest_interval = \"200ms\"");
    let alice = |args: &[&str]| daemon.as_user(ALICE, &[VIEWERS], args);
    let says = stderr(&alice(&["hist", "50ms", "2"]));
    assert!(says.contains("the interval is 200 ms, the shortest"), "{says}");
    for args in [
        &["hist", "-C", "0.3", "1"][..],
        &["stat", "--", "true"],
        &["sample"],
        &["hist", "--memory", "-p", "1", "1", "1"],
    ] {
        let output = alice(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains("sudo"), "{args:?}: {}", stderr(&output));
    }
    let nobody = Dir::new("no-daemon");
    let output = cgscope()
        .args(["hist", "1", "1", "--connect", &nobody.file("x.sock")])
        .output()
        .expect("the command starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("no daemon listens"), "{}", stderr(&output));
}

#[test]
fn a_client_of_the_library_gets_the_documented_answers() {
    let daemon = Daemon::with("clients_per_user = 2");
    let path = daemon.socket();
    let open = |request: &Request| Connection::open(path.as_ref(), request);
    let request = Request::every(300_000_000);
    let (mut first, mut sender) = open(&request).expect("the first");
    let second = open(&request).expect("the second");
    let third = open(&request).expect_err("a client above the limit");
    assert!(
        matches!(&third, ConnectError::Refused(word) if word.refused == Some(Refusal::TooManyClients)),
        "{third}"
    );
    drop(second);
    let mut stamps = Vec::new();
    while stamps.len() < 6 {
        match first.receive() {
            Some(Message::Sample(sample)) => stamps.push(sample.mono_ns),
            Some(Message::Word(word)) if word.shows_all == Some(true) => {}
            other => panic!("{other:?}"),
        }
    }
    let lengths: Vec<u64> = stamps[1..].windows(2).map(|two| two[1] - two[0]).collect();
    assert!(lengths.iter().all(|ns| ns.abs_diff(300_000_000) < 100_000_000), "{lengths:?}");
    sender.ask(&Request { last: true, ..request }).expect("the daemon reads requests");
    let mut last = None;
    loop {
        match first.receive() {
            Some(Message::Sample(sample)) => last = Some(sample.mono_ns),
            Some(Message::End(_)) => break,
            other => panic!("{other:?}"),
        }
    }
    assert!(last > stamps.last().copied());
    // The daemon disconnects a client that sends nothing or sends a line without an end.
    let mut silent = UnixStream::connect(&path).expect("the socket");
    silent.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    silent.write_all(&[b'x'; 20 << 10]).expect("room");
    let mut answer = Vec::new();
    let _ = silent.read_to_end(&mut answer);
    assert!(String::from_utf8_lossy(&answer).contains("too long"), "{answer:?}");
}
