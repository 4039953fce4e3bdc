//! Tests of users: their sessions, and the services that they start.

use std::{
    fs,
    io::{BufRead, BufReader},
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use super::{Units, assert_advice_helps, done, row, says};
use crate::runtimes::{BUSY, COMMANDS, assert_is_throttled, assert_is_throttled_in_all_commands, measure};

const SLICE: &str = "/user.slice/user-1000.slice";

/// The service manager of the user Alice, which runs without a session. Drop ends this service manager and all its services.
pub(super) struct Manager;

impl Manager {
    pub(super) fn start() -> Self {
        done(&["loginctl", "enable-linger", "alice"]);
        done(&["systemctl", "start", "user@1000.service"]);
        Self
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        for words in [["disable-linger", "alice"], ["terminate-user", "alice"]] {
            let _ = Command::new("loginctl").args(words).output();
        }
        let _ = Command::new("systemctl").args(["stop", "user@1000.service"]).output();
        // Create the directory to which `systemctl --user set-property` writes.
        let _ = fs::remove_dir_all("/home/alice/.config/systemd");
    }
}

/// A session of Alice with a busy loop. Drop ends the session.
struct Session {
    su: Child,
    path: String,
}

impl Session {
    fn busy() -> Self {
        let script = format!("cat /proc/self/cgroup; {BUSY}");
        let mut su = Command::new("su");
        let mut su = su
            .args(["-", "alice", "-c", &script])
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("su starts");
        let mut line = String::new();
        BufReader::new(su.stdout.take().expect("its output")).read_line(&mut line).expect("a cgroup");
        Self { su, path: line.trim().trim_start_matches("0::").to_owned() }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = Command::new("loginctl").args(["terminate-user", "alice"]).output();
        let _ = self.su.wait();
    }
}

#[test]
fn the_slice_of_a_user_limits_the_sessions_below_it() {
    let session = Session::busy();
    let mut slice = Units::default();
    slice.limit("user-1000.slice", &["CPUQuota=20%"]);
    let name = session.path.strip_prefix(&format!("{SLICE}/")).expect("a session of Alice");
    assert!(name.starts_with("session-") && name.ends_with(".scope"), "{name}");
    for command in COMMANDS {
        let interval = measure(command);
        assert_is_throttled(&interval, SLICE, None, None);
        let own = row(&interval, &session.path);
        assert_eq!([&own["unit"], &own["name"]], [name, name]);
        assert_eq!([&own["quota_us"], &own["limited_by"]], [&Value::Null, &json!(SLICE)]);
        assert!(says(&interval, SLICE).starts_with("/user.slice/user-1000.slice: its quota"));
    }
    assert_advice_helps(&measure(COMMANDS[0]), SLICE);
    slice.limit("user-1000.slice", &["CPUQuota="]);
    slice.limit(name, &["CPUQuota=20%"]);
    assert_advice_helps(&measure(COMMANDS[0]), &session.path);
}

#[test]
fn a_service_of_a_user_has_its_own_quota_and_belongs_to_the_users_manager() {
    let _manager = Manager::start();
    let start = format!("systemd-run --user --quiet --unit burn -p CPUQuota=20% sh -c '{BUSY}'");
    done(&["su", "-", "alice", "-c", &start]);
    let name = "user@1000.service/app.slice/burn.service";
    let path = format!("{SLICE}/{name}");
    assert_is_throttled_in_all_commands(&path, None, None);
    let interval = measure(&[COMMANDS[0], &["--unit", "user@1000"]].concat());
    assert_is_throttled(&interval, &path, None, None);
    let own = row(&interval, &path);
    assert_eq!([&own["unit"], &own["name"]], ["user@1000.service", name]);
    assert!(says(&interval, &path).starts_with(&format!("{name}: its quota")));
    assert_advice_helps(&interval, &path);
}
