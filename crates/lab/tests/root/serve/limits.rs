//! Limits of the daemon for each user. They prevent one user from using up resources of the daemon that all users share.

use std::{
    ffi::CString,
    fs, io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::Path,
    process::Command,
    ptr,
};

use cgscope_serve::{
    client::{ConnectError, Connection},
    protocol::{Refusal, Request},
};

use super::{ALICE, BOB, Daemon, VIEWERS};
use crate::{
    background::Background,
    bench::{assert_measured, cgscope},
    files::Dir,
    load::Load,
};

/// A daemon with its own /etc.
struct OfAnotherHost {
    dir: Dir,
    process: Background,
}

impl OfAnotherHost {
    /// Starts the daemon and waits until it prints `says`. `files` contains the name and text of each file in /etc. `socket`
    /// contains additional lines for the section `[socket]`.
    fn start(files: &[(&str, &str)], socket: &str, says: &str) -> Self {
        let dir = Dir::new("another-host");
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a directory of ours");
        let etc = dir.path().join("etc");
        fs::create_dir(&etc).expect("a directory of ours");
        for (name, text) in files {
            fs::write(etc.join(name), text).expect("a file of ours");
        }
        let config = dir.file("cgscope.toml");
        let text = format!("[http]\nlisten = \"\"\n[socket]\npath = {:?}\n{socket}\n", dir.file("s.sock"));
        fs::write(&config, text).expect("a file of ours");
        let mut command = cgscope();
        let mut process = Background::start(with_etc(command.args(["serve", "--config", &config]), &etc));
        if !says.is_empty() {
            process.wait_for(says);
        }
        process.wait_for("serving viewers at ");
        Self { dir, process }
    }

    fn socket(&self) -> String {
        self.dir.file("s.sock")
    }

    fn end(self) {
        self.process.signal(libc::SIGTERM);
        let (code, words) = self.process.wait();
        assert_eq!(code, Some(0), "{words}");
    }
}

/// Mounts a directory over /etc, but only for this command.
fn with_etc<'c>(command: &'c mut Command, etc: &Path) -> &'c mut Command {
    let etc = CString::new(etc.to_str().expect("a path of ours")).expect("a path without a zero byte");
    let check = |done: i32| if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    // SAFETY: between fork and exec, the closure only makes system calls, with strings that end with NUL.
    unsafe {
        command.pre_exec(move || {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let private = libc::MS_REC | libc::MS_PRIVATE;
            check(libc::mount(ptr::null(), c"/".as_ptr(), ptr::null(), private, ptr::null()))?;
            check(libc::mount(etc.as_ptr(), c"/etc".as_ptr(), ptr::null(), libc::MS_BIND, ptr::null()))
        })
    }
}

#[test]
fn without_a_configured_group_the_daemon_starts_and_serves_root() {
    let files = [("passwd", "root:x:0:0::/:/bin/sh\n"), ("group", "root:x:0:\n")];
    let daemon = OfAnotherHost::start(&files, "", "until then only root can connect");
    assert!(Connection::open(daemon.socket().as_ref(), &Request::every(1_000_000_000)).is_ok());
    daemon.end();
}

#[test]
fn a_user_at_the_limit_of_viewers_that_follow_processes_is_refused_and_others_are_not() {
    let daemon = Daemon::start();
    let loads = [ALICE, BOB].map(|uid| {
        let ids = format!("--reuid={uid}");
        Load::start("setpriv", &[&ids, "--clear-groups", "sleep", "300"], None)
    });
    let follow = |load: &Load| Request { pids: vec![load.pid()], ..Request::every(100_000_000) };
    let viewers = std::thread::scope(|scope| {
        let (path, request) = (daemon.socket(), follow(&loads[0]));
        let connect = move || {
            super::hostile::become_alice();
            (0..9).map(|_| Connection::open(path.as_ref(), &request)).collect::<Vec<_>>()
        };
        scope.spawn(connect).join().expect("no panic")
    });
    assert!(viewers[..8].iter().all(Result::is_ok));
    let Err(ConnectError::Refused(word)) = &viewers[8] else { panic!("{:?}", viewers[8]) };
    assert_eq!(word.refused, Some(Refusal::TooManyClients));
    assert!(word.sentence.contains("you have 8 viewers that follow processes"), "{}", word.sentence);
    for (uid, groups, load) in [(BOB, [VIEWERS], &loads[1]), (0, [0], &loads[0])] {
        let pid = load.pid().to_string();
        let output = daemon.as_user(uid, &groups, &["hist", "-p", &pid, "0.3", "1"]);
        assert_measured(&output);
    }
}
