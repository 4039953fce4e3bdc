//! Tests of the daemon through its clients.

mod access;
mod chains;
mod container;
mod hostile;
mod intervals;
mod limits;
mod many;
mod prometheus;
mod restart;
mod scale;
mod split;
mod systemd;

use std::{
    io,
    os::unix::{fs::PermissionsExt, process::CommandExt},
    process::{Command, Output},
};

use crate::{background::Background, bench::cgscope, files::Dir};

/// User and group ids that no host uses.
pub(crate) const ALICE: u32 = 61_001;
pub(crate) const BOB: u32 = 61_002;
pub(crate) const VIEWERS: u32 = 61_100;

/// A daemon with its socket in a directory of the test. Drop ends the daemon and removes the directory.
pub(crate) struct Daemon {
    dir: Dir,
    http: String,
    /// URL of the metrics page, from the output of the daemon.
    metrics: Option<String>,
    process: Option<Background>,
}

impl Daemon {
    pub(crate) fn start() -> Self {
        Self::with("")
    }

    /// Starts a daemon without a metrics page. `more` contains lines for the section `[socket]`, and possibly other sections.
    pub(crate) fn with(more: &str) -> Self {
        Self::of("listen = \"\"", more)
    }

    /// Starts a daemon with a metrics page on a free loopback port. `more` contains additional lines for the section `[http]`.
    pub(crate) fn exporting(more: &str) -> Self {
        Self::of(&exporting(more), "")
    }

    /// Replaces the configuration file. `more` contains additional lines for the section `[http]`.
    pub(crate) fn configure_exporting(&mut self, more: &str) {
        self.http = exporting(more);
        self.configure("");
    }

    fn of(http: &str, more: &str) -> Self {
        let dir = Dir::new("serve");
        // Other users must be able to enter the directory.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
            .expect("a directory of ours");
        let mut daemon = Self { dir, http: http.into(), metrics: None, process: None };
        daemon.configure(more);
        daemon.begin();
        daemon
    }

    pub(crate) fn configure(&self, more: &str) {
        let text = format!(
            "[http]\n{}\n[socket]\npath = \"{}\"\nviewers = {VIEWERS}\n{more}\n",
            self.http,
            self.socket()
        );
        std::fs::write(self.config(), text).expect("a file of ours");
    }

    pub(crate) fn begin(&mut self) {
        let mut process = Background::start(cgscope().args(["serve", "--config", &self.config()]));
        if !self.http.starts_with("listen = \"\"") {
            let says = "serving metrics at ";
            let line = process.wait_for(says);
            self.metrics = line.split_once(says).map(|(_, url)| url.to_owned());
        }
        process.wait_for("serving viewers at ");
        self.process = Some(process);
    }

    pub(crate) fn config(&self) -> String {
        self.dir.file("cgscope.toml")
    }

    pub(crate) fn socket(&self) -> String {
        self.dir.file("cgscope.sock")
    }

    pub(crate) fn metrics(&self) -> &str {
        self.metrics.as_deref().expect("a daemon with metrics")
    }

    pub(crate) fn process(&mut self) -> &mut Background {
        self.process.as_mut().expect("a running daemon")
    }

    pub(crate) fn pid(&mut self) -> u32 {
        self.process().pid()
    }

    pub(crate) fn kill(&mut self) {
        self.process.take().expect("a running daemon").kill();
    }

    pub(crate) fn end(&mut self) -> (Option<i32>, String) {
        let process = self.process.take().expect("a running daemon");
        process.signal(libc::SIGTERM);
        process.wait()
    }

    /// Runs `cgscope ARGS --connect` as a user with these groups.
    pub(crate) fn as_user(&self, uid: u32, groups: &[u32], args: &[&str]) -> Output {
        let at_end = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
        let (before, after) = args.split_at(at_end);
        let mut command = cgscope();
        command.args(before).args(["--connect", &self.socket()]).args(after);
        as_user(&mut command, uid, groups).output().expect("cgscope starts")
    }
}

/// Runs the command as a user with only these groups and without privileges.
pub(crate) fn as_user<'c>(command: &'c mut Command, uid: u32, groups: &[u32]) -> &'c mut Command {
    let groups = groups.to_vec();
    // SAFETY: between fork and exec, the closure only makes system calls.
    unsafe {
        command.pre_exec(move || {
            let gid = groups.first().copied().unwrap_or(uid);
            let done = libc::setgroups(groups.len(), groups.as_ptr()) == 0
                && libc::setresgid(gid, gid, gid) == 0
                && libc::setresuid(uid, uid, uid) == 0;
            if done { Ok(()) } else { Err(io::Error::last_os_error()) }
        })
    }
}

fn exporting(more: &str) -> String {
    format!("listen = \"127.0.0.1:0\"\n{more}")
}
